/* test_plan_work.c - what a plan asks of a device is known to be possible before anything runs. */
#include "runtime/execution/plan_work.h"
#include "runtime/work/operand.h"
#include "tests/support/small_jobs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct plan *plan_in(enum arch arch, enum code code, enum dtype dtype)
{
    struct job job = small_job(arch);
    job.model.code = code;
    job.config.activation = "silu";
    job.model.compute = job.strategy.compute = dtype;
    return small_plan_of(&job);
}

static uint32_t times_in(const char *text, const char *part)
{
    uint32_t times = 0;
    for (const char *at = strstr(text, part); at; at = strstr(at + 1, part))
        times++;
    return times;
}

static void plans_of_small_jobs_can_run(void **state)
{
    (void)state;
    for (int kind = 0; kind < SMALL_JOBS; kind++) {
        struct job job = small_job_of_kind(kind);
        struct err err = {0};
        job.config.dropout = 0;
        struct plan *plan = small_plan_of(&job);
        if (plan_check_runnable(plan, WORK_ON_HOST, &err) != ERR_OK ||
            plan_check_runnable(plan, WORK_ON_CUDA, &err) != ERR_OK)
            fail_msg("job %d: %s", kind, err.text);
        plan_free(plan);
    }
}

/* Hugging Face's Llama takes its norms and rotations apart; nobody computes dropout. */
static void what_a_device_does_not_compute_is_listed_once(void **state)
{
    static const char *const missing[] = {"dropout (", "dropout_backward (",
                                          "the first: instruction"};
    (void)state;
    for (enum work_backend on = WORK_ON_HOST; on <= WORK_ON_CUDA; on++) {
        struct err err = {0};
        struct plan *plan = plan_in(ARCH_LLAMA, CODE_HF, DTYPE_FP32);
        if (plan_check_runnable(plan, on, &err) != ERR_OK)
            fail_msg("%s", err.text);
        plan_free(plan);
        struct job job = small_job(ARCH_GPT2);
        job.model.code = CODE_HF; /* nanoGPT's has none */
        job.config.dropout = 0.1F;
        plan = small_plan_of(&job);
        assert_int_equal(plan_check_runnable(plan, on, &err), ERR_UNSUPPORTED);
        for (size_t i = 0; i < sizeof missing / sizeof missing[0]; i++)
            if (times_in(err.text, missing[i]) != 1)
                fail_msg("\"%s\" has %s %u times", err.text, missing[i],
                         times_in(err.text, missing[i]));
        assert_non_null(strstr(err.text, work_backend_name(on)));
        assert_null(strstr(err.text, "matmul"));
        plan_free(plan);
    }
}

static void operands_that_no_kernel_takes_name_the_instruction(void **state)
{
    (void)state;
    struct plan *plan = plan_in(ARCH_LLAMA, CODE_TORCHTITAN, DTYPE_BF16);
    bool found = false;
    for (uint32_t id = 0; id < plan->instruction_count && !found; id++) {
        const struct plan_instruction *in = &plan->instructions[id];
        if (!plan_op_is_kernel((enum plan_op)in->op) ||
            plan_kernel(plan, in->arg)->work != WORK_MATMUL_NT)
            continue;
        struct err err = {0};
        char expected[64];
        const struct kernel *k = plan_kernel(plan, in->arg);
        plan->instructions[id].arg =
            plan_add_kernel(plan, WORK_MATMUL_TN, k->label, 2, k->operands, 1, k->operands + 2);
        snprintf(expected, sizeof expected, "instruction %u: matmul_tn", id);
        assert_int_equal(plan_check_runnable(plan, WORK_ON_HOST, &err), ERR_INVALID);
        if (!strstr(err.text, expected))
            fail_msg("%s", err.text);
        found = true;
    }
    assert_true(found);
    plan_free(plan);
}

/* One key/value head stretched over four: the bytes are not there four times, and strides say it.
 */
static void an_expanded_view_is_read_where_it_is(void **state)
{
    (void)state;
    struct err err = {0};
    struct job job = small_job(ARCH_LLAMA);
    job.config.kv_heads = 1;
    struct plan *plan = small_plan_of(&job);
    if (plan_check_runnable(plan, WORK_ON_HOST, &err) != ERR_OK)
        fail_msg("%s", err.text);
    if (plan_check_runnable(plan, WORK_ON_CUDA, &err) != ERR_OK)
        fail_msg("%s", err.text);
    plan_free(plan);
}

/* What a run adds to it is addresses and its own numbers. */
static void work_is_all_that_the_plan_says(void **state)
{
    (void)state;
    struct job job = small_job(ARCH_LLAMA);
    job.strategy.rank = 2;
    job.strategy.max_norm = 0.5F;
    struct plan *plan = small_plan_of(&job);
    struct work_operand operand[256];
    uint32_t gathers = 0, seeds = 0, clips = 0;
    for (uint32_t id = 0; id < plan->instruction_count; id++) {
        const struct plan_instruction *in = &plan->instructions[id];
        if (!plan_op_is_kernel((enum plan_op)in->op))
            continue;
        const struct work work = plan_work(plan, id, operand);
        assert_int_equal(work.instruction, id);
        assert_true(work_can_run(work.kind));
        switch (plan_kernel(plan, in->arg)->work) {
        case WORK_ALL_GATHER:
            assert_int_equal(work.ranks, 4);
            assert_int_equal(work.rank, 2);
            assert_int_equal(work.group, in->group);
            gathers++;
            break;
        case WORK_SEED: /* backends know it as what it is made of */
            assert_int_equal(work.kind, WORK_FILL);
            assert_int_equal(work.group, -1);
            seeds++;
            break;
        case WORK_CLIP_COEFFICIENT:
            assert_true(work.attr.p == 0.5F);
            clips++;
            break;
        default:
            break;
        }
    }
    assert_true(gathers > 4 && seeds == 1 && clips == 1);
    plan_free(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_of_small_jobs_can_run),
        cmocka_unit_test(what_a_device_does_not_compute_is_listed_once),
        cmocka_unit_test(operands_that_no_kernel_takes_name_the_instruction),
        cmocka_unit_test(an_expanded_view_is_read_where_it_is),
        cmocka_unit_test(work_is_all_that_the_plan_says),
    };
    return cmocka_run_group_tests_name("plan_work", tests, NULL, NULL);
}

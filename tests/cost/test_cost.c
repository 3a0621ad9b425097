/* test_cost.c - single kernels beside what others measured, and what must hold of any. */
#include "cost/cost.h"
#include "cost/plan_collectives.h"
#include "tests/support/small_jobs.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static struct profile find(const char *name)
{
    struct profile profile;
    struct err err = {0};
    assert_int_equal(profile_find(name, &profile, &err), ERR_OK);
    return profile;
}

/* The best of a search over GEMM shapes (stas00/ml-engineering, MAMF tables): m x k by k x n,
 * TFLOP/s. The profiles hold what a GPU sustains in training, which is 0.83 to 1 of that. */
static void gemms_run_near_the_best_that_was_measured(void **state)
{
    (void)state;
    static const struct {
        const char *gpu;
        double m, n, k, tflops;
    } best[] = {
        {"a100-sxm-80gb", 1024, 10240, 5120, 271}, {"a100-pcie-80gb", 2048, 5120, 6144, 253},
        {"h100-sxm", 2048, 2048, 13312, 794.5},    {"b200", 1792, 16128, 3072, 1745},
        {"gb200", 4096, 9728, 2048, 1822},         {"mi300x", 10240, 15360, 8192, 668},
    };
    for (size_t i = 0; i < sizeof best / sizeof best[0]; i++) {
        struct profile p = find(best[i].gpu);
        const double seconds =
            gemm_seconds(&p, profile_value(&p, PROFILE_BF16), best[i].m, best[i].n, best[i].k, 1);
        const double share =
            2 * best[i].m * best[i].n * best[i].k / seconds / 1e12 / best[i].tflops;
        if (share < 0.7 || share > 1)
            fail_msg("%s: %.2f of what was measured", best[i].gpu, share);
        profile_free(&p);
    }
}

/* The Matrix Multiplication Background guide's effect: one tile more than fills the GPU costs a
 * whole wave. 11 x 12 tiles of 256 x 128 are 132. */
static void one_tile_too_many_costs_a_wave(void **state)
{
    (void)state;
    struct profile p = find("h100-sxm");
    const double peak = profile_value(&p, PROFILE_BF16);
    const double full = gemm_seconds(&p, peak, 11 * 256, 12 * 128, 2048, 1);
    const double over = gemm_seconds(&p, peak, 11 * 256, 13 * 128, 2048, 1);
    assert_true(over / full > 1.3); /* 1.08 times the arithmetic */
    profile_free(&p);
}

static void a_larger_gemm_takes_no_less_time(void **state)
{
    (void)state;
    struct profile p = find("a100-sxm-80gb");
    const double peak = profile_value(&p, PROFILE_BF16);
    for (int n = 64; n < 20000; n += n / 8) {
        const double before = gemm_seconds(&p, peak, 4096, n, 4096, 1);
        const double after = gemm_seconds(&p, peak, 4096, 2 * n, 4096, 1);
        assert_true(after >= before);
        assert_true(gemm_seconds(&p, peak, 4096, n, 8192, 1) > before);
        assert_true(gemm_seconds(&p, peak, 4096, n, 4096, 2) >= before);
    }
    profile_free(&p);
}

/* What runs must take time, use something, and be no faster than the datasheet allows. */
static void no_kernel_is_faster_than_the_device(void **state)
{
    (void)state;
    struct profile p = find("h100-sxm");
    for (int kind = 0; kind < SMALL_JOBS; kind++) {
        const struct job job = small_job_of_kind(kind);
        struct plan *plan = small_plan_of(&job);
        struct costs costs;
        struct err err = {0};
        assert_int_equal(costs_of_plan(plan, &p, 8, &costs, &err), ERR_OK);
        for (uint32_t i = 0; i < plan->instruction_count; i++) {
            const struct plan_instruction *in = &plan->instructions[i];
            if (!plan_op_is_kernel((enum plan_op)in->op) || in->flags & PLAN_FIRST_STEP)
                continue;
            const struct cost *cost = &costs.kernels[in->arg];
            const struct kernel *kernel = plan_kernel(plan, in->arg);
            assert_true(isfinite(cost->device_s) && cost->device_s >= 0);
            assert_true(cost->host_s > 0 || in->lane == LANE_HOST);
            for (int k = 0; k < RESOURCE_COUNT; k++)
                assert_true(cost->use[k] >= 0 && cost->use[k] <= 1);
            /* Gathers of rows touch less than their operands hold. */
            const bool picks = kernel->work == WORK_EMBEDDING || kernel->work == WORK_NLL_LOSS ||
                               kernel->work == WORK_NLL_LOSS_BACKWARD;
            const bool fills_a_slice = kernel->work == WORK_COPY_IN;
            if (cost->class == COST_MEMORY && !picks && !fills_a_slice)
                assert_true(kernel->bytes / cost->device_s < profile_value(&p, PROFILE_MEMORY));
            if (cost->class == COST_GEMM)
                assert_true(kernel->flops / cost->device_s < profile_value(&p, PROFILE_BF16));
        }
        assert_true(costs.hardware_flops >= costs.model_flops && costs.model_flops > 0);
        costs_free(&costs);
        plan_free(plan);
    }
    profile_free(&p);
}

/* Llama-3.1-8B at 8192 tokens: 5.791e10 FLOP a token by torchtitan's formula, 6 (N - N_embedding)
 * + 6 l a (d_qk + d_v) s, of which its published 33 and 39 % MFU are made. */
static void model_flops_are_those_that_mfu_is_made_of(void **state)
{
    (void)state;
    struct profile p = find("h100-sxm");
    struct model_config config;
    struct job job;
    struct plan *plan;
    struct costs costs;
    struct err err = {0};
    assert_int_equal(model_find("llama-3.1-8b", &config, &err), ERR_OK);
    job_defaults(&job, &config);
    job.model.seq = 8192;
    for (int checkpointing = 0; checkpointing < 3; checkpointing++) {
        job.tape.checkpointing = (enum checkpointing)checkpointing;
        assert_int_equal(job_plan(&job, &plan, NULL, &err), ERR_OK);
        assert_int_equal(costs_of_plan(plan, &p, 8, &costs, &err), ERR_OK);
        assert_true(fabs(costs.model_flops / 8192 / 5.791e10 - 1) < 0.001);
        /* Full checkpointing runs the forward pass of the blocks once more: 8 for 6, less the head
         * and what is not needed again of the last matmul. */
        if (checkpointing == CHECKPOINTING_NONE)
            assert_true(costs.hardware_flops == costs.model_flops);
        if (checkpointing == CHECKPOINTING_FULL)
            assert_in_range(100 * costs.hardware_flops / costs.model_flops, 120, 134);
        costs_free(&costs);
        plan_free(plan);
    }
    profile_free(&p);
}

/* Seconds of one collective on eight GPUs of a node, whose whole buffer is so many bytes. */
static double collective_seconds(const struct profile *p, enum plan_op op, enum work_kind work,
                                 uint32_t bytes)
{
    struct plan *plan = plan_new();
    struct cost cost = {0};
    struct err err = {0};
    const uint32_t buffer = plan_add_buffer(
        plan, &(struct buffer){.bytes = bytes, .dtype = DTYPE_FP32, .shape = SHAPE(bytes / 4)});
    const struct operand whole = plan_whole_buffer(plan, buffer);
    plan->world = 8;
    const struct plan_instruction in = {
        .op = (uint8_t)op,
        .group = plan_add_group(plan, "data", GROUP_DATA, 8, 1),
        .arg = plan_add_kernel(plan, work, ATEN_EMPTY, 1, &whole, 1, &whole),
    };
    const struct plan_collectives collectives = {
        .plan = plan, .profile = p, .gpus_per_node = 8, .models = collective_models_new()};
    if (plan_collective_cost(&collectives, &in, &cost, &err) != ERR_OK)
        fail_msg("%s", err.text);
    collective_models_free(collectives.models);
    plan_free(plan);
    return cost.device_s;
}

/* Every byte reaches every rank once; an all-reduce moves each nearly twice. */
static void a_broadcast_takes_longer_than_its_bytes_and_less_than_a_sum(void **state)
{
    (void)state;
    struct profile p = find("a100-sxm-80gb"); /* without NVLS, whose switches do the sums */
    for (uint32_t bytes = 1024; bytes <= 1 << 28; bytes *= 4) {
        const double all_bytes_s = bytes / profile_value(&p, PROFILE_LINK);
        const double broadcast = collective_seconds(&p, PLAN_BROADCAST, WORK_BROADCAST, bytes);
        const double sum = collective_seconds(&p, PLAN_ALL_REDUCE, WORK_ALL_REDUCE_SUM, bytes);
        assert_true(broadcast > all_bytes_s);
        assert_true(broadcast < (bytes == 1 << 28 ? 0.6 : 1) * sum);
    }
    profile_free(&p);
}

static void ranks_that_fill_no_node_are_refused(void **state)
{
    (void)state;
    struct profile p = find("h100-sxm");
    struct plan *plan = small_plan(); /* four ranks */
    struct costs costs;
    struct err err = {0};
    assert_int_equal(costs_of_plan(plan, &p, 3, &costs, &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "--gpus-per-node"));
    p.of[PROFILE_NICS].value = 0;
    err = (struct err){0};
    assert_int_equal(costs_of_plan(plan, &p, 2, &costs, &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "nic"));
    plan_free(plan);
    profile_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gemms_run_near_the_best_that_was_measured),
        cmocka_unit_test(one_tile_too_many_costs_a_wave),
        cmocka_unit_test(a_larger_gemm_takes_no_less_time),
        cmocka_unit_test(no_kernel_is_faster_than_the_device),
        cmocka_unit_test(model_flops_are_those_that_mfu_is_made_of),
        cmocka_unit_test(a_broadcast_takes_longer_than_its_bytes_and_less_than_a_sum),
        cmocka_unit_test(ranks_that_fill_no_node_are_refused),
    };
    return cmocka_run_group_tests_name("cost", tests, NULL, NULL);
}

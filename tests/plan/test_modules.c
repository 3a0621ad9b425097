/* test_modules.c - what an instruction is of, by the names of the model's own modules. */
#include "plan/modules.h"

#include "tests/support/small_jobs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* The names of the state dict say whose a parameter is: so is the kernel that reads it. */
static void a_kernel_that_reads_a_parameter_is_of_its_module(void **state)
{
    (void)state;
    uint32_t seen = 0;
    for (int kind = 0; kind < SMALL_JOBS; kind++) {
        struct arena arena = {0};
        const struct job job = small_job_of_kind(kind);
        struct plan *plan = small_plan_of(&job);
        const char **names = plan_module_names(plan, &arena);
        for (uint32_t i = 0; i < plan->instruction_count; i++) {
            const struct plan_instruction *in = &plan->instructions[i];
            if (in->op != PLAN_COMPUTE || in->lane != LANE_COMPUTE || in->phase == PLAN_STEP)
                continue;
            const struct kernel *kernel = plan_kernel(plan, in->arg);
            for (uint32_t k = 0; k < kernel->ins; k++) {
                const uint32_t place = kernel->operands[k].place;
                if ((place & PLACE_MASK) != PLACE_PARAM)
                    continue;
                char module[256];
                snprintf(module, sizeof module, "%s", plan->params[place & ~PLACE_MASK].name);
                *strrchr(module, '.') = '\0';
                if (kernel->ins < 4 && strncmp(module, names[i], strlen(names[i])) != 0)
                    fail_msg("kind %d: instruction %u reads %s and is of \"%s\"", kind, i, module,
                             names[i]);
                seen++;
                break;
            }
        }
        plan_free(plan);
        arena_free(&arena);
    }
    assert_true(seen > 500);
}

static bool has_kernel(const struct plan *plan, const char **names, const char *label,
                       const char *name)
{
    for (uint32_t i = 0; i < plan->instruction_count; i++) {
        const struct plan_instruction *in = &plan->instructions[i];
        if (in->op == PLAN_COMPUTE && in->lane == LANE_COMPUTE && strcmp(names[i], name) == 0 &&
            strcmp(plan->labels[plan_kernel(plan, in->arg)->label], label) == 0)
            return true;
    }
    return false;
}

/* As torchtitan's Llama calls its modules: model.py's TransformerBlock, Attention, FeedForward. */
static void what_reads_no_parameter_is_of_the_module_around_its_neighbours(void **state)
{
    static const char *const expected[][2] = {
        {"embedding", "tok_embeddings"},
        {"_scaled_dot_product_flash_attention", "layers.1.attention"},
        {"_scaled_dot_product_flash_attention_backward", "layers.1.attention"},
        {"silu", "layers.1.feed_forward"},
        {"silu_backward", "layers.1.feed_forward"},
        {"add.Tensor", "layers.1"}, /* the residual */
        {"mm", "layers.2.feed_forward.w2"},
        {"_fused_rms_norm", "norm"},
        {"mm", "output"},
        {"_log_softmax", "loss"},
        {"_log_softmax_backward_data", "loss"},
    };
    (void)state;
    struct arena arena = {0};
    struct plan *plan = small_plan();
    const char **names = plan_module_names(plan, &arena);
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++)
        if (!has_kernel(plan, names, expected[i][0], expected[i][1]))
            fail_msg("no %s of %s", expected[i][0], expected[i][1]);
    assert_false(has_kernel(plan, names, "silu", "layers.1"));
    assert_false(has_kernel(plan, names, "_log_softmax", "output"));
    plan_free(plan);
    arena_free(&arena);
}

/* A unit that is gathered ahead is not what the host computes. */
static void what_a_system_does_for_a_unit_is_of_the_unit(void **state)
{
    (void)state;
    uint32_t ahead = 0;
    struct arena arena = {0};
    struct plan *plan = small_plan();
    const char **names = plan_module_names(plan, &arena);
    for (uint32_t i = 1; i < plan->instruction_count; i++) {
        const uint32_t unit = plan_scope_unit(plan, &plan->instructions[i]);
        if (unit == PLAN_NO_UNIT)
            continue;
        assert_string_equal(names[i], plan->units[unit].name);
        ahead += plan->instructions[i].op == PLAN_ALL_GATHER &&
                 plan->instructions[i].phase == PLAN_BACKWARD;
    }
    assert_true(ahead > 0);
    plan_free(plan);
    arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kernel_that_reads_a_parameter_is_of_its_module),
        cmocka_unit_test(what_reads_no_parameter_is_of_the_module_around_its_neighbours),
        cmocka_unit_test(what_a_system_does_for_a_unit_is_of_the_unit),
    };
    return cmocka_run_group_tests_name("modules", tests, NULL, NULL);
}

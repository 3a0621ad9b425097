/* test_closed_form.c - closed forms beside the functions that they are of. */
#include "job/closed_form.h"

#include "tests/support/small_jobs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

/* What deepspeed 0.19.8's functions return for GPUs, without offload. */
static void estimators_return_what_deepspeeds_do(void **state)
{
    (void)state;
    static const struct {
        uint64_t parameters, largest;
        uint32_t gpus;
        uint64_t zero2, zero3;
    } rows[] = {
        {2851000000, 32000000, 8, 12116750000, 6542750000},
        {7000000000, 131072000, 32, 17937500000, 4461788000},
        {1557611200, 80411200, 8, 6619847600, 3826270000},
        {8030261248, 525336576, 64, 18319033472, 4359857280},
        {70553706496, 1050673152, 512, 143587816736, 6683096352},
    };
    const struct zero_options none = {.hpz_partition_size = 1};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(closed_form_zero2(rows[i].parameters, rows[i].gpus, &none), rows[i].zero2);
        assert_int_equal(
            closed_form_zero3(rows[i].parameters, rows[i].largest, rows[i].gpus, &none),
            rows[i].zero3);
    }
    /* the same with cpu_offload, and with cpu_offload_params, in GiB as they print it */
    const struct zero_options states = {.optimizer = {.on = true}};
    const struct zero_options both = {.optimizer = {.on = true}, .param = {.on = true}};
    assert_float_equal((float)closed_form_zero2(2851000000, 8, &states) / 0x1p30F, 5.31F, 0.005F);
    assert_float_equal((float)closed_form_zero3(2851000000, 32000000, 8, &states) / 0x1p30F, 0.78F,
                       0.005F);
    assert_float_equal((float)closed_form_zero3(2851000000, 32000000, 8, &both) / 0x1p30F, 0.12F,
                       0.005F);
    /* accelerate's estimate_training_usage(4 x 1557611200, "float32"): its largest, "step" */
    assert_int_equal(closed_form_accelerate(1557611200), 24921779200);
}

/* The paper's own example: 7.5 billion parameters on 64 GPUs take 120, 31.4, 16.6 and 1.9 GB. */
static void the_paper_says_so_of_its_example(void **state)
{
    (void)state;
    static const double gb[] = {120, 31.4, 16.6, 1.9};
    for (uint32_t stage = 0; stage < 4; stage++) {
        const double ours = (double)closed_form_paper(stage, 7500000000, 7500000000, 64) / 1e9;
        assert_true(ours > gb[stage] - 0.05 && ours < gb[stage] + 0.05);
    }
}

/* What is frozen has neither gradients nor states. */
static void what_is_frozen_is_only_there(void **state)
{
    (void)state;
    for (uint32_t stage = 0; stage < 4; stage++)
        assert_int_equal(closed_form_paper(stage, 8000, 0, 8), stage == 3 ? 2000 : 16000);
}

static void a_plan_has_the_parameters_and_the_largest_module(void **state)
{
    (void)state;
    struct job job = small_job(ARCH_GPT2);
    uint64_t parameters = 0, largest = 0;
    struct plan *plan = small_plan_of(&job);
    for (uint32_t i = 0; i < plan->param_count; i++) {
        const uint64_t elements = shape_elements(&plan->params[i].shape);
        parameters += elements;
        largest = elements > largest ? elements : largest;
    }
    const struct zero_options none = {.hpz_partition_size = 1};
    /* of a toy it is the embedding or a product with its bias: no more than two in one */
    job.strategy.system = SYSTEM_ZERO3;
    const struct closed_form form = closed_form_of(plan, &job.strategy);
    const uint64_t rest = closed_form_zero3(parameters, 0, job.strategy.world, &none);
    assert_string_equal(form.estimator, "deepspeed's estimate_zero3_model_states_mem_needs");
    assert_true(form.estimator_bytes >= rest + 4 * largest);
    assert_true(form.estimator_bytes <= rest + 4 * 2 * largest);
    assert_int_equal(form.stage, 3);
    job.strategy.system = SYSTEM_FSDP2;
    job.strategy.reshard = RESHARD_NEVER; /* parameters are whole from forward to backward */
    assert_int_equal(closed_form_of(plan, &job.strategy).stage, 2);
    assert_null(closed_form_of(plan, &job.strategy).estimator);
    plan_free(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(estimators_return_what_deepspeeds_do),
        cmocka_unit_test(the_paper_says_so_of_its_example),
        cmocka_unit_test(what_is_frozen_is_only_there),
        cmocka_unit_test(a_plan_has_the_parameters_and_the_largest_module),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_exposure.c - whose the exposed communication is: by hand, and in sum on real steps. */
#include "compare/exposure.h"
#include "search/step_spans.h"
#include "tests/support/small_jobs.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { MOST = 256 };

static struct plan_instruction instruction(enum plan_op op, uint8_t lane, uint32_t scope)
{
    return (struct plan_instruction){.op = (uint8_t)op, .lane = lane, .scope = scope};
}

/*      0    2    4    6    8   10
 * compute   |====|    |====|
 * gather |=======|
 * scatter     |=========|    |==|     */
static void moments_go_to_what_ends_last(void **state)
{
    (void)state;
    struct plan *plan = plan_new();
    const uint8_t gather = plan_add_lane(plan, "all_gather", true);
    const uint8_t scatter = plan_add_lane(plan, "reduce_scatter", true);
    const uint32_t a = plan_add_scope(plan, "unshard[a]", 0), b = plan_add_scope(plan, "b", 1);
    const struct plan_instruction program[] = {
        instruction(PLAN_COMPUTE, LANE_COMPUTE, 0),   instruction(PLAN_COMPUTE, LANE_COMPUTE, 0),
        instruction(PLAN_ALL_GATHER, gather, a),      instruction(PLAN_REDUCE_SCATTER, scatter, b),
        instruction(PLAN_REDUCE_SCATTER, scatter, b),
    };
    const struct compare_interval spans[] = {{2, 4}, {6, 8}, {0, 4.5}, {3, 7}, {8.5, 10}};
    for (size_t i = 0; i < sizeof program / sizeof *program; i++)
        plan_add_instruction(plan, &program[i]);
    struct arena arena = {0};
    struct compare_time time = {.step_s = 10};
    struct exposure found[MOST];
    compare_overlap(plan, spans, &arena, &time);
    assert_true(fabs(time.exposed_s - (2 + 2 + 1.5)) < 1e-12);
    assert_int_equal(exposure_of(plan, spans, &time, found, MOST), 2);
    assert_int_equal(found[0].op, PLAN_REDUCE_SCATTER);
    assert_int_equal(found[0].unit, 1);
    assert_int_equal(found[0].count, 2);
    assert_true(fabs(found[0].seconds - 3.5) < 1e-12);
    assert_int_equal(found[1].op, PLAN_ALL_GATHER);
    assert_true(fabs(found[1].seconds - 2) < 1e-12);
    assert_int_equal(exposure_of(plan, spans, &time, found, 1), 2); /* cut, and counted */
    arena_free(&arena);
    plan_free(plan);
}

static void parts_add_up(void **state)
{
    (void)state;
    struct machine machine = {.gpus_per_node = 8};
    uint32_t exposed = 0;
    assert_int_equal(profile_find("h100-sxm", &machine.profile, NULL), ERR_OK);
    for (int kind = 0; kind < SMALL_JOBS; kind++) {
        const struct job job = small_job_of_kind(kind);
        struct prediction p;
        struct step_time t;
        struct arena arena = {0};
        struct exposure found[MOST];
        struct err err = {0};
        double sum = 0;
        if (predict(&job, &machine, &p, &err) != ERR_OK)
            fail_msg("%d: %s", kind, err.text);
        if (step_time(&p, &job, &machine, 0, &t, &err) != ERR_OK)
            fail_msg("%d: %s", kind, err.text);
        struct compare_interval *spans =
            arena_alloc(&arena, p.plan->instruction_count * sizeof *spans);
        step_spans(p.plan, &t, spans);
        struct compare_time time = {.step_s = t.timeline.step_s};
        compare_overlap(p.plan, spans, &arena, &time);
        const uint32_t count = exposure_of(p.plan, spans, &time, found, MOST);
        assert_true(count <= MOST);
        for (uint32_t i = 0; i < count; i++)
            sum += found[i].seconds;
        /* the simulator counts on its own */
        assert_true(fabs(sum - time.exposed_s) < 1e-9);
        assert_true(fabs(sum - t.timeline.exposed_s) < 1e-6 + 1e-3 * sum);
        exposed += sum > 0;
        arena_free(&arena);
        step_time_free(&t);
        prediction_free(&p);
    }
    assert_true(exposed >= SMALL_JOBS - 2);
    profile_free(&machine.profile);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(moments_go_to_what_ends_last),
        cmocka_unit_test(parts_add_up),
    };
    return cmocka_run_group_tests_name("exposure", tests, NULL, NULL);
}

/* test_difference.c - two plans side by side, against what fully_shard is documented to do and what
 * is counted here in another way. */
#include "compare/difference.h"
#include "tests/support/small_jobs.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static struct difference between(const struct plan *a, const struct plan *b)
{
    const struct difference_side side[SIDES] = {{a, NULL, NULL}, {b, NULL, NULL}};
    struct difference d;
    difference_of(side, &d);
    return d;
}

/* Of the unit's parameters, in the dtype that they are gathered in. */
static uint64_t gathered_bytes(const struct plan *plan, const char *name)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < plan->param_count; i++)
        if (strcmp(plan->units[plan->params[i].unit].name, name) == 0)
            bytes += 2 * shape_elements(&plan->params[i].shape);
    return bytes;
}

static void a_plan_does_not_differ_from_itself(void **state)
{
    (void)state;
    for (int kind = 0; kind < SMALL_JOBS; kind++) {
        const struct job job = small_job_of_kind(kind);
        struct plan *a = small_plan_of(&job), *b = small_plan_of(&job);
        struct difference d = between(a, b);
        assert_int_equal(d.setting_count, 0);
        assert_int_equal(d.unit_count, a->unit_count);
        assert_int_equal(d.group_count, 1);
        assert_int_equal(d.groups[0].count, a->unit_count);
        assert_false(d.groups[0].changed);
        for (uint32_t i = 0; i < d.kind_count; i++)
            assert_true(d.kinds[i].count[0] > 0 && d.kinds[i].count[0] == d.kinds[i].count[1]);
        difference_free(&d);
        plan_free(a);
        plan_free(b);
    }
}

/* reshard_after_forward=False: every block is gathered once less, and its parameters stay until
 * backward. The root, which is not resharded by default, is as before. */
static void without_resharding_blocks_are_gathered_once(void **state)
{
    (void)state;
    struct job job = small_job(ARCH_LLAMA);
    struct plan *a = small_plan_of(&job);
    job.strategy.reshard = RESHARD_NEVER;
    struct plan *b = small_plan_of(&job);
    struct difference d = between(a, b);
    assert_int_equal(d.group_count, 2);
    for (uint32_t i = 0; i < d.unit_count; i++) {
        const struct difference_unit *u = &d.units[i];
        const struct difference_work *gathers[] = {&u->work[0][PLAN_ALL_GATHER],
                                                   &u->work[1][PLAN_ALL_GATHER]};
        const uint64_t bytes = gathered_bytes(a, u->name);
        const bool root = u->name[0] == '\0';
        assert_true(u->there[0] && u->there[1]);
        assert_int_equal(gathers[0]->count, root ? 1 : 2);
        assert_int_equal(gathers[1]->count, 1);
        /* messages have every rank's padded shard: not less, and less than a row a parameter more
         */
        assert_true(gathers[1]->bytes >= bytes && gathers[1]->bytes < bytes + bytes / 2);
        assert_int_equal(u->held_bytes[1] - u->held_bytes[0], root ? 0 : bytes);
        assert_int_equal(u->work[0][PLAN_REDUCE_SCATTER].count, 1);
        assert_memory_equal(&u->work[0][PLAN_REDUCE_SCATTER], &u->work[1][PLAN_REDUCE_SCATTER],
                            sizeof(struct difference_work));
        assert_int_equal(d.groups[u->group].changed, !root);
    }
    difference_free(&d);
    plan_free(a);
    plan_free(b);
}

/* HSDP of two replicas: one all_reduce a unit, of half the gradients where four ranks shared them.
 */
static void replicas_reduce_once_more(void **state)
{
    (void)state;
    struct job job = small_job(ARCH_LLAMA);
    struct plan *a = small_plan_of(&job);
    job.strategy.replicate = 2;
    struct plan *b = small_plan_of(&job);
    struct difference d = between(a, b);
    for (uint32_t i = 0; i < d.unit_count; i++) {
        const struct difference_unit *u = &d.units[i];
        const struct difference_work *reduce = &u->work[1][PLAN_ALL_REDUCE];
        const uint64_t half = 4 * gathered_bytes(a, u->name) / 2 / 2; /* fp32 */
        assert_int_equal(u->work[0][PLAN_ALL_REDUCE].count, 0);
        assert_int_equal(reduce->count, 1);
        assert_true(reduce->bytes >= half && reduce->bytes < half + half / 2);
    }
    difference_free(&d);
    plan_free(a);
    plan_free(b);
}

static void units_of_other_sizes_do_not_match(void **state)
{
    (void)state;
    struct job job = small_job(ARCH_LLAMA);
    struct plan *a = small_plan_of(&job);
    job.strategy.per_unit = 3;
    struct plan *b = small_plan_of(&job);
    struct difference d = between(a, b);
    uint32_t both = 0, only_a = 0, only_b = 0;
    for (uint32_t i = 0; i < d.unit_count; i++) {
        both += d.units[i].there[0] && d.units[i].there[1];
        only_a += !d.units[i].there[1];
        only_b += !d.units[i].there[0];
    }
    assert_int_equal(both, 1); /* the root */
    assert_int_equal(only_a, 3);
    assert_int_equal(only_b, 1);
    assert_int_equal(d.group_count, 3);
    difference_free(&d);
    plan_free(a);
    plan_free(b);
}

/* A second for each instruction: sums are counts. */
static json_t *seconds_of(const struct plan *plan)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < plan->instruction_count; i++)
        json_array_append_new(array, json_real(1));
    return json_pack("{s:o}", "instruction_s", array);
}

static void seconds_are_summed_by_lane_kind_and_unit(void **state)
{
    (void)state;
    struct job job = small_job(ARCH_LLAMA);
    struct plan *a = small_plan_of(&job);
    job.tape.checkpointing = CHECKPOINTING_FULL;
    struct plan *b = small_plan_of(&job);
    json_t *of_a = seconds_of(a), *of_b = seconds_of(b);
    json_t *settings[SIDES] = {
        json_pack("{s:s, s:i, s:i}", "checkpointing", "none", "seq", 20, "gone", 1),
        json_pack("{s:s, s:i}", "checkpointing", "full", "seq", 20)};
    const struct difference_side side[SIDES] = {{a, settings[0], of_a}, {b, settings[1], of_b}};
    struct difference d;
    difference_of(side, &d);
    assert_true(d.timed);
    assert_int_equal(d.setting_count, 2);
    assert_string_equal(d.settings[0].name, "checkpointing");
    assert_null(d.settings[1].value[1]);
    double lanes[SIDES] = {0}, kinds[SIDES] = {0};
    for (int s = 0; s < SIDES; s++) {
        for (uint32_t i = 0; i < d.lane_count; i++) {
            assert_true(d.lanes[i].seconds[s] == d.lanes[i].count[s]);
            lanes[s] += d.lanes[i].seconds[s];
        }
        for (uint32_t i = 0; i < d.kind_count; i++)
            kinds[s] += d.kinds[i].seconds[s];
        assert_true(lanes[s] == kinds[s]);
    }
    assert_true(lanes[1] > lanes[0]);
    for (uint32_t i = 1; i < d.kind_count; i++) /* most apart first */
        assert_true(fabs(d.kinds[i - 1].seconds[1] - d.kinds[i - 1].seconds[0]) >=
                    fabs(d.kinds[i].seconds[1] - d.kinds[i].seconds[0]));
    double compute[SIDES] = {0};
    for (uint32_t i = 0; i < d.unit_count; i++)
        for (int s = 0; s < SIDES; s++) {
            assert_true(d.units[i].compute_s[s] == d.units[i].work[s][PLAN_COMPUTE].count);
            compute[s] += d.units[i].compute_s[s];
            if (d.units[i].name[0] && s == 1) /* recomputed: no less work, and less is held */
                assert_true(d.units[i].compute_s[1] > d.units[i].compute_s[0] &&
                            d.units[i].held_bytes[1] < d.units[i].held_bytes[0]);
        }
    assert_true(compute[0] > 0 && compute[0] < lanes[0]);
    difference_free(&d);
    for (int s = 0; s < SIDES; s++)
        json_decref(settings[s]);
    json_decref(of_a);
    json_decref(of_b);
    plan_free(a);
    plan_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_does_not_differ_from_itself),
        cmocka_unit_test(without_resharding_blocks_are_gathered_once),
        cmocka_unit_test(replicas_reduce_once_more),
        cmocka_unit_test(units_of_other_sizes_do_not_match),
        cmocka_unit_test(seconds_are_summed_by_lane_kind_and_unit),
    };
    return cmocka_run_group_tests_name("difference", tests, NULL, NULL);
}

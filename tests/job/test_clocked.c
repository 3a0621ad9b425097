/* test_clocked.c - late frees by a clock: by hand, where the host is behind the device, and between
 * the bounds that hold whatever the clock says. */
#include "families/families.h"
#include "job/clocked.h"
#include "lower/zero_options.h"
#include "tests/support/planned.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* `host_s`: what each operator takes the host; 0: what the profile says. */
static void plan_on(const struct job *job, double host_s, struct planned *p)
{
    static const int host[] = {PROFILE_HOST_OP, PROFILE_HOST_BACKWARD, PROFILE_HOST_COLLECTIVE,
                               PROFILE_HOST_EVENT};
    *p = planned_on("h100-sxm");
    for (size_t i = 0; i < sizeof host / sizeof *host && host_s > 0; i++)
        p->machine.profile.of[host[i]].value = host_s;
    planned_job(p, job);
}

static struct job job_of(enum system_kind system)
{
    struct model_config config;
    struct job job;
    struct err err = {0};
    assert_int_equal(model_preset_find("llama-3.2-1b", &config, &err), ERR_OK);
    job_defaults(&job, &config);
    job.model.code = CODE_HF;
    job.model.seq = 2048;
    job.strategy.system = system;
    job.strategy.world = 8;
    if (system == SYSTEM_ZERO3)
        job.strategy.zero = zero_defaults(3);
    job.strategy.zero.node_ranks = 8;
    return job;
}

static uint64_t clocked(struct planned *p)
{
    struct err err = {0};
    assert_int_equal(predict_clocked(&p->prediction, &p->machine, &err), ERR_OK);
    return p->prediction.clocked_bytes;
}

/* Reserved where each block is back at the next alloc: `done_s` of zeros. */
static uint64_t at_once(const struct planned *p)
{
    const struct plan *plan = p->prediction.plan;
    double *zeros = calloc(plan->instruction_count + 1U, sizeof *zeros);
    const struct deferred_clock clock = {zeros, zeros};
    struct memory_options options = machine_memory(&p->machine);
    struct memory memory;
    struct err err = {0};
    options.clock = &clock;
    assert_int_equal(memory_replay(plan, &options, NULL, NULL, &memory, &err), ERR_OK);
    free(zeros);
    return memory.reserved_bytes;
}

/* A host that takes ten milliseconds an operator finds the device idle. */
static void a_slow_host_holds_nothing(void **state)
{
    static const enum system_kind systems[] = {SYSTEM_FSDP1, SYSTEM_ZERO3};
    (void)state;
    for (size_t i = 0; i < sizeof systems / sizeof *systems; i++) {
        struct planned slow, usual;
        const struct job job = job_of(systems[i]);
        plan_on(&job, 10e-3, &slow);
        plan_on(&job, 0, &usual);
        assert_int_equal(clocked(&slow), at_once(&slow));
        assert_true(clocked(&slow) >= slow.prediction.memory.allocated.bytes);
        assert_true(clocked(&usual) > clocked(&slow)); /* it is ahead */
        planned_free(&slow);
        planned_free(&usual);
    }
}

static void what_frees_nothing_late_has_none(void **state)
{
    static const enum system_kind systems[] = {SYSTEM_FSDP2, SYSTEM_DDP};
    (void)state;
    for (size_t i = 0; i < sizeof systems / sizeof *systems; i++) {
        struct planned p;
        const struct job job = job_of(systems[i]);
        plan_on(&job, 0, &p);
        assert_int_equal(clocked(&p), 0);
        planned_free(&p);
    }
}

/* ---- the verdict ---- */

/* Of a device of `capacity` bytes: the caller calls prediction_free. */
static struct prediction judged(const struct job *job, struct machine *machine, uint64_t capacity)
{
    struct prediction p;
    struct err err = {0};
    machine->profile.of[PROFILE_CAPACITY].value = (double)capacity;
    if (predict_few(job, machine, &p, &err) != ERR_OK)
        fail_msg("%s", err.text);
    return p;
}

/* Whoever replays the prediction gets what it says. */
static void check_replay(const struct prediction *p, const struct machine *machine)
{
    const struct memory_options options = prediction_memory(p, machine);
    struct memory memory;
    struct err err = {0};
    assert_non_null(options.clock);
    assert_int_equal(memory_replay(p->plan, &options, NULL, NULL, &memory, &err), ERR_OK);
    assert_int_equal(memory.reserved_bytes, p->memory.reserved_bytes);
    assert_false(memory.out_of_memory);
}

/* Between what waits show and what the clock says: by the clock, whether all micro-batches are
 * there or few stand for them. Below that, too, segments are given back by it; above, nobody needs
 * it. */
static void the_clock_decides_where_waits_are_too_much(void **state)
{
    static const uint32_t micro_batches[] = {1, 8};
    (void)state;
    for (size_t i = 0; i < sizeof micro_batches / sizeof *micro_batches; i++) {
        struct job job = job_of(SYSTEM_ZERO3);
        struct planned p;
        job.strategy.accumulate = micro_batches[i];
        plan_on(&job, 0, &p);
        const uint64_t by_clock = clocked(&p) + p.prediction.outside_bytes;
        const uint64_t by_waits = p.prediction.unconstrained_bytes;
        assert_in_range(by_clock, p.prediction.least_bytes, by_waits - (64 << 20));

        struct prediction between = judged(&job, &p.machine, (by_clock + by_waits) / 2);
        assert_true(between.fits && between.by_clock && !between.after_release);
        assert_int_equal(between.device_bytes, by_clock);
        assert_int_equal(between.unconstrained_bytes, by_waits);
        check_replay(&between, &p.machine);

        struct prediction below =
            judged(&job, &p.machine, (3 * by_clock + p.prediction.least_bytes) / 4);
        assert_true(below.fits && below.after_release && !below.by_clock);
        check_replay(&below, &p.machine);

        struct prediction above = judged(&job, &p.machine, by_waits);
        assert_true(above.fits && !above.by_clock && !above.clocked_bytes);
        prediction_free(&above);
        prediction_free(&below);
        prediction_free(&between);
        planned_free(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slow_host_holds_nothing),
        cmocka_unit_test(what_frees_nothing_late_has_none),
        cmocka_unit_test(the_clock_decides_where_waits_are_too_much),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

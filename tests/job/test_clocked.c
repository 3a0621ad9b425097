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

static uint64_t clocked(const struct planned *p)
{
    struct err err = {0};
    uint64_t bytes;
    assert_int_equal(clocked_reserved(&p->prediction, &p->machine, &p->time, &bytes, &err), ERR_OK);
    return bytes;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slow_host_holds_nothing),
        cmocka_unit_test(what_frees_nothing_late_has_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

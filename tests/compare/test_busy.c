/* test_busy.c - the median of a run's steps with its spread, in its trace and out of it, and when a
 * machine is said to be busy. */
#include "compare/busy.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void steps_have_their_median_and_spread(void **state)
{
    (void)state;
    double seconds[] = {5, 1, 2, 3, 100}; /* residuals of 3: 2, 2, 1, 0, 97 */
    const struct run_steps steps = run_steps_of(seconds, 5);
    assert_int_equal(steps.count, 5);
    assert_true(steps.median_s == 3);
    assert_true(fabs(steps.spread - 1.4826 * 2 / 3) < 1e-12);
    assert_int_equal(run_steps_of(seconds, 0).count, 0);
}

static void a_trace_tells_them(void **state)
{
    (void)state;
    const struct run_steps steps = {17, 0.0531, 0.25};
    struct trace *trace = trace_new();
    assert_int_equal(run_steps_read(trace).count, 0);
    run_steps_note(&steps, trace);
    const struct run_steps read = run_steps_read(trace);
    assert_true(read.count == 17 && read.median_s == 0.0531 && read.spread == 0.25);
    trace_set_info(trace, "step_median_s", "nothing");
    assert_int_equal(run_steps_read(trace).count, 0);
    trace_free(trace);
}

/* Predicted 1 s, 0.9 ... 1.1 s, half of it kernels. */
static struct busy_evidence evidence(double step_s, double spread, double work_s)
{
    return (struct busy_evidence){.steps = {10, step_s, spread},
                                  .step_s = 1.0,
                                  .low_s = 0.9,
                                  .high_s = 1.1,
                                  .work_s = work_s,
                                  .work_measured_s = 0.5,
                                  .profile = "host-2026-11-22",
                                  .device = "host"};
}

static void a_machine_is_busy_where_steps_and_kernels_say_so(void **state)
{
    (void)state;
    static const struct {
        double step_s, spread, work_s;
        enum machine_busy want;
    } cases[] = {
        {1.0, 0.05, 0.5, BUSY_NO},             /* as predicted */
        {3.0, 0.05, 1.5, BUSY_NOW},            /* three times, all of it */
        {3.0, 0.05, 0.5, BUSY_NO},             /* its collectives: a wrong prediction */
        {3.0, 2.0, 1.5, BUSY_NO},              /* its steps say as little */
        {1.15, 0.05, 0.7, BUSY_NO},            /* within both spreads */
        {0.3, 0.05, 0.15, BUSY_AT_CALIBRATION} /* a third */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct busy_evidence e = evidence(cases[i].step_s, cases[i].spread, cases[i].work_s);
        assert_int_equal(busy_of(&e), cases[i].want);
        e.profile = "h100-sxm"; /* another machine is no busy one */
        assert_int_equal(busy_of(&e), BUSY_NO);
        e.profile = "host-2026-11-22";
        e.device = "cuda";
        assert_int_equal(busy_of(&e), BUSY_NO);
    }
    struct busy_evidence e = evidence(3.0, 0.05, 1.5);
    e.low_s = e.high_s = NAN;
    assert_int_equal(busy_of(&e), BUSY_NO);
    e = evidence(0.68, 0.1, 0.33); /* a calibration that leaves more open above than below */
    e.low_s = 0.8;
    e.high_s = 1.6;
    assert_int_equal(busy_of(&e), BUSY_AT_CALIBRATION);
    e.work_s = 0.38;
    assert_int_equal(busy_of(&e), BUSY_NO);
    e = evidence(3.0, 0.05, 1.5);
    e.steps.count = 0;
    assert_int_equal(busy_of(&e), BUSY_NO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_have_their_median_and_spread),
        cmocka_unit_test(a_trace_tells_them),
        cmocka_unit_test(a_machine_is_busy_where_steps_and_kernels_say_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

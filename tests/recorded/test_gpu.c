/* test_gpu.c - a training step as one GPU allocated it, beside the same model recorded without one.
 *
 * tests/data/gpu/allocator/wl_medium_* is the history of PyTorch's allocator on a GPU (README.md
 * there); tests/data/recorded/wl_medium.py is the model. The recording was made under a dispatch
 * mode, which does less in place: what a GPU does follows by rule (recorded/recording_stream.c). */
#include "tests/support/gpu_truth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void a_step_on_a_gpu_is_planned_event_for_event(void **state)
{
    (void)state;
    static const uint32_t workspaces[GPU_STEPS] = {10, 10 + 4 * 49};
    for (uint32_t i = 0; i < GPU_STEPS; i++) {
        const struct gpu_step step = gpu_step(i);
        assert_true(step.events > 6500);
        if (step.equal != step.events)
            fail_msg("%s: event %u of %u: %lld bytes on the GPU, %lld planned", step.name,
                     step.equal, step.events, (long long)step.measured, (long long)step.planned);
        assert_int_equal(step.workspaces, workspaces[i]);
        assert_int_equal(step.peak, step.planned_peak);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_step_on_a_gpu_is_planned_event_for_event),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_allocator_gpu.c - the caching allocator against PyTorch's own on real GPUs: every block at
 * PyTorch's address, every segment asked for in PyTorch's size (tests/support/gpu_truth.h). */
#include "tests/support/gpu_truth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

static void every_block_lands_where_pytorchs_did(void **state)
{
    (void)state;
    static const uint32_t allocs[] = {3505, 6526, 6624, 7591, 1666};
    uint32_t sum = 0;
    for (size_t i = 0; gpu_recordings[i]; i++) {
        const struct gpu_replay replay = gpu_replay(gpu_recordings[i]);
        if (replay.differs[0])
            fail_msg("%s: %s", gpu_recordings[i], replay.differs);
        assert_int_equal(replay.allocs, allocs[i]);
        assert_int_equal(replay.planned, replay.reserved);
        sum += replay.allocs;
    }
    assert_int_equal(sum, 25912);
    printf("note: %u blocks at PyTorch's addresses\n", sum);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_block_lands_where_pytorchs_did),
    };
    return cmocka_run_group_tests_name("allocator_gpu", tests, NULL, NULL);
}

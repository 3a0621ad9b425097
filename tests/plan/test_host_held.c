/* test_host_held.c - what a process takes of its host: pageable memory as it is, pinned memory as
 * PyTorch's caching host allocator has it. */
#include "plan/host_held.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static const struct buffer pageable = {.bytes = 1000};

static struct buffer pinned(uint64_t bytes)
{
    return (struct buffer){.bytes = bytes, .pinned = true};
}

/* c10::llvm::PowerOf2Ceil. */
static void pinned_blocks_are_powers_of_two(void **state)
{
    (void)state;
    static const uint64_t known[][2] = {
        {1, 1},
        {2, 2},
        {3, 4},
        {4, 4},
        {4095, 4096},
        {4096, 4096},
        {1 << 20, 1 << 20},
        {(1 << 20) + 1, 1 << 21},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        struct host_held held = {.kept = 0};
        const struct buffer buffer = pinned(known[i][0]);
        host_held_alloc(&held, &buffer, 1);
        assert_int_equal(held.most, known[i][1]);
    }
    struct host_held held = {.kept = 0};
    const struct buffer nothing = pinned(0);
    host_held_alloc(&held, &nothing, 1); /* no block is asked for */
    host_held_free(&held, &nothing);
    assert_int_equal(held.most, 0);
}

/* A freed block serves the next of its size, and no other; pageable memory goes back. */
static void pinned_blocks_are_kept(void **state)
{
    (void)state;
    struct host_held held = {.kept = 0};
    const struct buffer small = pinned(3000), alike = pinned(4000), large = pinned(5000);
    host_held_alloc(&held, &small, 2);
    assert_int_equal(held.most, 8192);
    host_held_free(&held, &small);
    host_held_alloc(&held, &alike, 1); /* in the block that is free */
    assert_int_equal(held.most, 8192);
    host_held_free(&held, &small);
    host_held_free(&held, &alike);
    host_held_alloc(&held, &large, 1); /* beside the two, which nobody gives back */
    assert_int_equal(held.most, 2 * 4096 + 8192);
    host_held_free(&held, &large);
    host_held_alloc(&held, &pageable, 2);
    assert_int_equal(held.most, 16384 + 2000);
    host_held_free(&held, &pageable);
    host_held_free(&held, &pageable);
    host_held_alloc(&held, &pageable, 1);
    assert_int_equal(held.pageable, 1000);
    assert_int_equal(held.most, 16384 + 2000);
    assert_int_equal(held.pageable_most, 2000);
}

/* Where counting begins amid a step, what was there may go before more comes. */
static void counts_may_fall_below_their_beginning(void **state)
{
    (void)state;
    struct host_held held = {.kept = 0};
    const struct buffer block = pinned(4096);
    host_held_free(&held, &block);
    host_held_free(&held, &pageable);
    host_held_alloc(&held, &block, 1);
    host_held_alloc(&held, &pageable, 1);
    assert_int_equal(held.most, 0);
    host_held_alloc(&held, &block, 1);
    assert_int_equal(held.most, 4096);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pinned_blocks_are_powers_of_two),
        cmocka_unit_test(pinned_blocks_are_kept),
        cmocka_unit_test(counts_may_fall_below_their_beginning),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

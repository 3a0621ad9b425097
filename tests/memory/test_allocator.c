/* test_allocator.c - the caching allocator against vectors made by hand.
 *
 * The vectors are small enough to add up by hand; the first is a published PyTorch snapshot. For
 * programs too long for that see test_allocator_model.c. */
#include "memory/allocator.h"
#include "tests/support/small_device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB ((uint64_t)1048576)

/* ---- helpers ---- */

static struct allocator_block *alloc_on(struct allocator *allocator, uint64_t bytes, int stream)
{
    struct allocator_block *block = NULL;
    struct err err = {0};
    assert_int_equal(allocator_alloc(allocator, bytes, stream, &block, &err), ERR_OK);
    assert_non_null(block);
    assert_string_equal(err.text, "");
    assert_sound(allocator);
    return block;
}

static struct allocator_block *alloc(struct allocator *allocator, uint64_t bytes)
{
    return alloc_on(allocator, bytes, 0);
}

static void expect_oom(struct allocator *allocator, uint64_t bytes)
{
    struct allocator_block *block = (struct allocator_block *)allocator;
    const uint64_t ooms = allocator_stats(allocator)->ooms;
    assert_int_equal(allocator_alloc(allocator, bytes, 0, &block, NULL), ERR_NOMEM);
    assert_null(block);
    assert_int_equal(allocator_stats(allocator)->ooms, ooms + 1);
}

static void expect(const struct allocator *allocator, uint64_t reserved, uint64_t allocated)
{
    const struct allocator_stats *stats = allocator_stats(allocator);
    assert_sound(allocator);
    assert_int_equal(stats->reserved_bytes, reserved);
    assert_int_equal(stats->allocated_bytes, allocated);
}

static void expect_all(const struct allocator *allocator, uint64_t reserved, uint64_t allocated,
                       uint64_t requested, uint64_t inactive_split)
{
    expect(allocator, reserved, allocated);
    assert_int_equal(allocator_stats(allocator)->requested_bytes, requested);
    assert_int_equal(allocator_stats(allocator)->inactive_split_bytes, inactive_split);
}

struct span_text {
    char text[512];
    uint64_t end; /* where the next block of the same segment has to begin */
    uint64_t segment;
};

static void write_span(void *context, const struct allocator_span *span)
{
    struct span_text *out = context;
    const size_t used = strlen(out->text);
    const bool begins = out->segment != span->segment_address;
    assert_int_equal(span->address, begins ? span->segment_address : out->end);
    assert_true(span->segment_address >= out->segment);
    out->segment = span->segment_address;
    out->end = span->address + span->bytes;
    snprintf(out->text + used, sizeof out->text - used, "%s%s%llu%s", used ? " " : "",
             begins ? "|" : "", (unsigned long long)span->bytes, span->allocated ? "" : "-");
}

/* Compares all blocks: "|" begins a segment, "-" marks a free block. */
static void expect_blocks(const struct allocator *allocator, const char *expected)
{
    struct span_text out = {{0}, 0, 0};
    allocator_visit(allocator, write_span, &out);
    assert_string_equal(out.text, expected);
}

/* ---- vectors ---- */

static void blocks_of_a_published_snapshot_are_reproduced(void **state)
{
    (void)state;
    struct allocator *a = allocator_new(&(struct allocator_settings){0});
    alloc(a, 40000);
    alloc(a, 40);
    alloc(a, 4000);
    expect_all(a, 2097152, 45056, 44040, 2052096);
    struct allocator_block *product = alloc(a, 40);
    alloc(a, 8519680);
    alloc(a, 40);
    allocator_free_block(a, product);
    expect_all(a, 23068672, 8565248, 8563760, 14503424);
    expect_blocks(a, "|40448 512 4096 512- 512 2051072- |8519680 12451840-");
    allocator_free(a);
}

static void a_rest_of_one_mib_stays_with_its_block(void **state)
{
    (void)state;
    struct allocator *a = allocator_new(&(struct allocator_settings){0});
    struct allocator_block *first = alloc(a, 3 * MIB);
    expect_all(a, 20971520, 3145728, 3145728, 17825792);
    struct allocator_block *second = alloc(a, 12 * MIB);
    expect_all(a, 20971520, 15728640, 15728640, 5242880);
    struct allocator_block *third = alloc(a, 11 * MIB);
    expect_all(a, 33554432, 28311552, 27262976, 5242880);
    assert_int_equal(allocator_block_bytes(third), 12 * MIB);
    alloc(a, 9 * MIB / 2);
    expect_all(a, 33554432, 33554432, 31981568, 0);
    allocator_free_block(a, second);
    expect_all(a, 33554432, 20971520, 19398656, 12582912);
    allocator_free_block(a, first);
    expect_all(a, 33554432, 17825792, 16252928, 15728640);
    alloc(a, 16 * MIB);
    expect_all(a, 50331648, 34603008, 33030144, 15728640);
    expect_blocks(a, "|15728640- 5242880 |12582912 |16777216");
    assert_int_equal(allocator_stats(a)->segments, 3);
    assert_int_equal(allocator_stats(a)->allocated_peak, 34603008);
    allocator_reset_peaks(a);
    allocator_free_block(a, third);
    assert_int_equal(allocator_stats(a)->allocated_peak, 34603008);
    allocator_free(a);
}

static void expandable_segments_grow_by_pages(void **state)
{
    (void)state;
    struct allocator *a = allocator_new(&(struct allocator_settings){.expandable_segments = true});
    alloc(a, 3 * MIB);
    expect(a, 20971520, 3145728);
    struct allocator_block *second = alloc(a, 12 * MIB);
    expect(a, 20971520, 15728640);
    alloc(a, 11 * MIB);
    expect(a, 41943040, 27262976);
    allocator_free_block(a, second);
    expect(a, 41943040, 14680064);
    alloc(a, 16 * MIB);
    expect(a, 62914560, 31457280);
    alloc(a, 1000);
    expect(a, 65011712, 31458304);
    assert_int_equal(allocator_stats(a)->segments, 0);
    assert_int_equal(allocator_stats(a)->inactive_split_bytes, 0);
    expect_blocks(a, "|3145728 12582912- 11534336 16777216 18874368- |1024 2096128-");
    allocator_free(a);
}

static void a_large_request_takes_a_whole_segment_or_leaves_more_than_one_mib(void **state)
{
    (void)state;
    struct allocator *a = allocator_new(&(struct allocator_settings){0});
    struct allocator_block *blocks[] = {alloc(a, 33554432), alloc(a, 33554944), alloc(a, 33555456)};
    expect_all(a, 104857600, 100664832, 100664832, 4192768);
    expect_blocks(a, "|33554432 |33554944 2096640- |33555456 2096128-");
    for (int i = 0; i < 3; i++)
        allocator_free_block(a, blocks[i]);
    expect_all(a, 104857600, 0, 0, 0);
    alloc(a, 30 * MIB);
    alloc(a, 33 * MIB);
    expect_all(a, 104857600, 67108864, 66060288, 2097152);
    expect_blocks(a, "|31457280 2097152- |35651584 |35651584-");
    allocator_free(a);
}

static void pools_and_segments_are_chosen_by_rounded_size(void **state)
{
    (void)state;
    struct allocator *a = allocator_new(&(struct allocator_settings){0});
    alloc(a, MIB);
    expect(a, 2097152, 1048576);
    alloc(a, MIB + 1);
    expect(a, 23068672, 2097664);
    alloc(a, 10 * MIB);
    expect(a, 23068672, 12583424);
    alloc(a, 10 * MIB - 1);
    expect(a, 33554432, 23069184);
    allocator_free(a);
}

static void requests_can_be_rounded_to_divisions_of_powers_of_two(void **state)
{
    (void)state;
    struct allocator_settings settings = {0};
    for (int i = 0; i < 16; i++)
        settings.roundup_power2_divisions[i] = 4;
    settings.roundup_power2_divisions[3] = 1; /* 8 MiB ... 16 MiB: off */
    struct allocator *a = allocator_new(&settings);
    assert_int_equal(allocator_block_bytes(alloc(a, 1200)), 1536);   /* not above 4 * 512 */
    assert_int_equal(allocator_block_bytes(alloc(a, 2048)), 2048);   /* likewise */
    assert_int_equal(allocator_block_bytes(alloc(a, 2100)), 2560);   /* steps of 512 */
    assert_int_equal(allocator_block_bytes(alloc(a, 66000)), 81920); /* steps of 16 KiB */
    assert_int_equal(allocator_block_bytes(alloc(a, 4 * MIB)), 4 * MIB);
    assert_int_equal(allocator_block_bytes(alloc(a, 4 * MIB + 1)), 5 * MIB);
    assert_int_equal(allocator_block_bytes(alloc(a, 9 * MIB + 1)), 9 * MIB + 512);
    allocator_free(a);
}

/* ---- behaviour ---- */

static void a_block_is_reused_only_on_its_own_stream(void **state)
{
    (void)state;
    struct allocator *a = allocator_new(&(struct allocator_settings){0});
    struct allocator_block *block = alloc_on(a, 32 * MIB, 1);
    const uint64_t address = allocator_block_address(block);
    allocator_free_block(a, block);
    assert_true(allocator_block_address(alloc_on(a, 32 * MIB, 2)) != address);
    assert_int_equal(allocator_block_address(alloc_on(a, 32 * MIB, 1)), address);
    expect(a, 64 * MIB, 64 * MIB);
    allocator_free(a);
}

static void the_lowest_address_wins_among_thousands_of_equal_blocks(void **state)
{
    (void)state;
    enum { COUNT = 5000, STRIDE = 1237 }; /* coprime: frees hit every block once, out of order */
    static struct allocator_block *blocks[COUNT], *again[COUNT];
    struct allocator *a = allocator_new(&(struct allocator_settings){0});
    for (int i = 0; i < COUNT; i++)
        blocks[i] = alloc(a, 32 * MIB);
    for (int i = 0, at = 0; i < COUNT; i++, at = (at + STRIDE) % COUNT)
        allocator_free_block(a, blocks[at]);
    uint64_t before = 0;
    for (int i = 0; i < COUNT; i++) {
        again[i] = alloc(a, 32 * MIB);
        assert_true(allocator_block_address(again[i]) > before);
        before = allocator_block_address(again[i]);
    }
    assert_int_equal(allocator_stats(a)->segments, COUNT);
    for (int i = 0; i < COUNT / 2; i++)
        allocator_free_block(a, again[i]);
    assert_int_equal(allocator_block_bytes(alloc(a, 32 * MIB + 512)), 32 * MIB + 512);
    assert_int_equal(allocator_stats(a)->segments, COUNT + 1); /* near, but not enough */
    allocator_empty_cache(a);
    assert_int_equal(allocator_stats(a)->segments, COUNT / 2 + 1);
    for (int i = COUNT / 2; i < COUNT; i++)
        allocator_free_block(a, again[i]);
    allocator_free(a);
}

static void out_of_memory_names_the_bytes_and_leaves_the_allocator_usable(void **state)
{
    (void)state;
    struct allocator *a = allocator_new(&(struct allocator_settings){.capacity_bytes = 64 * MIB});
    struct allocator_block *held = alloc(a, 40 * MIB), *block = held;
    struct err err = {0};
    assert_int_equal(allocator_alloc(a, 24 * MIB + 1, 3, &block, &err), ERR_NOMEM);
    assert_null(block);
    assert_string_equal(err.text, "cannot allocate 25165825 bytes on stream 3: 41943040 bytes are "
                                  "allocated, 41943040 reserved of 67108864 allowed");
    assert_int_equal(allocator_stats(a)->ooms, 1);
    assert_int_equal(allocator_stats(a)->alloc_retries, 1);
    alloc(a, 24 * MIB); /* exactly what is left */
    expect(a, 64 * MIB, 64 * MIB);
    allocator_free(a);
}

static void a_request_larger_than_any_device_is_out_of_memory(void **state)
{
    (void)state;
    struct allocator *a = allocator_new(&(struct allocator_settings){0});
    expect_oom(a, UINT64_MAX);
    expect_oom(a, (uint64_t)1 << 45);
    expect(a, 0, 0);
    allocator_free(a);
    allocator_free(NULL);
}

static void a_simulated_range_may_exceed_its_device(void **state)
{
    (void)state;
    struct allocator *a = allocator_new(
        &(struct allocator_settings){.expandable_segments = true, .device_bytes = 100 * MIB});
    alloc(a, 50 * MIB);
    alloc(a, 80 * MIB); /* a range has 112.5 MiB, in pages 120: another one */
    alloc(a, 200 * MIB);
    expect(a, 340 * MIB, 330 * MIB);
    expect_blocks(a, "|52428800 10485760- |83886080 |209715200");
    allocator_free(a);
}

static void cached_segments_of_all_streams_are_released_before_giving_up(void **state)
{
    (void)state;
    struct allocator *a = allocator_new(&(struct allocator_settings){.capacity_bytes = 64 * MIB});
    struct allocator_block *other = alloc_on(a, 20 * MIB, 5), *small = alloc_on(a, 100, 6);
    alloc(a, 2 * MIB); /* keeps its segment of 20 MiB */
    allocator_free_block(a, other);
    allocator_free_block(a, small);
    expect(a, 42 * MIB, 2 * MIB);
    alloc(a, 44 * MIB);
    expect(a, 64 * MIB, 46 * MIB);
    assert_int_equal(allocator_stats(a)->alloc_retries, 1);
    assert_int_equal(allocator_stats(a)->ooms, 0);
    assert_int_equal(allocator_stats(a)->segments, 2);
    expect_oom(a, 1); /* the 18 MiB left over are of the large pool */
    allocator_free(a);
}

static void emptying_the_cache_keeps_segments_in_use(void **state)
{
    (void)state;
    struct device device = {.budget = 1024 * MIB};
    struct allocator *a = new_on_device((struct allocator_settings){0}, &device);
    struct allocator_block *whole = alloc(a, 64 * MIB), *part = alloc(a, 2 * MIB);
    alloc(a, 3 * MIB);
    allocator_free_block(a, whole);
    allocator_free_block(a, part);
    assert_int_equal(device.used, 84 * MIB);
    allocator_empty_cache(a);
    expect_all(a, 20 * MIB, 3 * MIB, 3 * MIB, 17 * MIB);
    expect_blocks(a, "|2097152- 3145728 15728640-");
    assert_int_equal(device.used, 20 * MIB);
    allocator_free(a);
    assert_int_equal(device.used, 0); /* even what was in use */
}

static void oversize_blocks_serve_only_oversize_requests(void **state)
{
    (void)state;
    struct allocator *a = allocator_new(&(struct allocator_settings){.max_split_bytes = 32 * MIB});
    struct allocator_block *block = alloc(a, 64 * MIB);
    allocator_free_block(a, block);
    alloc(a, 31 * MIB); /* below the limit: a new segment, whose rest of 1 MiB is not split */
    expect(a, 96 * MIB, 32 * MIB);
    alloc(a, 44 * MIB); /* 64 >= 44 + 20: too much would be lost */
    expect(a, 140 * MIB, 76 * MIB);
    alloc(a, 44 * MIB + 512); /* taken whole: oversize blocks are never split */
    expect(a, 140 * MIB, 140 * MIB);
    assert_int_equal(allocator_stats(a)->inactive_splits, 0);
    allocator_free(a);
}

static void oversize_blocks_are_released_largest_first_until_enough(void **state)
{
    (void)state;
    struct device device = {.budget = 200 * MIB};
    struct allocator *a =
        new_on_device((struct allocator_settings){.max_split_bytes = 32 * MIB}, &device);
    struct allocator_block *blocks[] = {alloc(a, 40 * MIB), alloc(a, 50 * MIB), alloc(a, 60 * MIB),
                                        alloc(a, 30 * MIB)};
    for (int i = 0; i < 4; i++)
        allocator_free_block(a, blocks[i]);
    alloc(a, 100 * MIB); /* 60 + 50 go, 40 and 30 stay */
    expect(a, 170 * MIB, 100 * MIB);
    assert_int_equal(allocator_stats(a)->alloc_retries, 0);
    alloc_on(a, 60 * MIB, 1); /* no oversize block of stream 1: everything cached goes */
    expect(a, 160 * MIB, 160 * MIB);
    assert_int_equal(allocator_stats(a)->alloc_retries, 1);
    allocator_free(a);
}

static void garbage_collection_drops_what_was_not_used_for_long(void **state)
{
    (void)state;
    struct allocator *a = allocator_new(&(struct allocator_settings){
        .capacity_bytes = 100 * MIB, .garbage_collection_threshold = 0.5});
    struct allocator_block *old = alloc(a, 30 * MIB), *young = alloc(a, 20 * MIB);
    allocator_free_block(a, old);
    for (int i = 0; i < 5; i++) {
        allocator_free_block(a, young);
        young = alloc(a, 20 * MIB);
    }
    allocator_free_block(a, young);
    expect(a, 50 * MIB, 0);
    alloc(a, 40 * MIB); /* 50 MiB reserved is not above the threshold: nothing is dropped */
    expect(a, 90 * MIB, 40 * MIB);
    alloc(a, 44 * MIB); /* must free 40 MiB: the old 30 MiB first, then the younger 20 */
    expect(a, 84 * MIB, 84 * MIB);
    assert_int_equal(allocator_stats(a)->alloc_retries, 0);
    allocator_free(a);
}

static void a_hole_is_preferred_to_the_growing_end_of_a_range(void **state)
{
    (void)state;
    struct allocator *a = allocator_new(&(struct allocator_settings){.expandable_segments = true});
    struct allocator_block *hole = alloc(a, 12 * MIB);
    alloc(a, 2 * MIB); /* 6 MiB of the first page are left behind it */
    const uint64_t start = allocator_block_address(hole);
    allocator_free_block(a, hole);
    struct allocator_block *block = alloc(a, 5 * MIB); /* 6 would fit better */
    assert_int_equal(allocator_block_address(block), start);
    expect_blocks(a, "|5242880 7340032- 2097152 6291456-");
    allocator_free(a);
}

static void whole_pages_inside_free_blocks_are_unmapped(void **state)
{
    (void)state;
    struct device device = {.budget = 200 * MIB};
    struct allocator *a =
        new_on_device((struct allocator_settings){.expandable_segments = true}, &device);
    struct allocator_block *first = alloc(a, 2 * MIB), *hole = alloc(a, 60 * MIB);
    struct allocator_block *last = alloc(a, 2 * MIB);
    allocator_free_block(a, hole);
    expect(a, 80 * MIB, 4 * MIB);
    allocator_empty_cache(a); /* the second and third page lie wholly inside the hole */
    expect(a, 40 * MIB, 4 * MIB);
    expect_blocks(a, "|2097152 18874368- |2097152- 2097152 16777216-");
    hole = alloc(a, 30 * MIB); /* maps one page again, behind the first */
    expect(a, 60 * MIB, 34 * MIB);
    expect_blocks(a, "|2097152 31457280 8388608- |2097152- 2097152 16777216-");
    allocator_free_block(a, first);
    allocator_free_block(a, hole);
    allocator_free_block(a, last);
    allocator_empty_cache(a);
    expect(a, 0, 0);
    expect_blocks(a, "");
    assert_int_equal(device.used, 0);
    alloc(a, 2 * MIB);
    allocator_free(a);
    assert_int_equal(device.used, 0);
}

static void pages_are_mapped_all_or_not_at_all(void **state)
{
    (void)state;
    struct device device = {.budget = 70 * MIB};
    struct allocator *a =
        new_on_device((struct allocator_settings){.expandable_segments = true}, &device);
    alloc(a, 20 * MIB);
    expect_oom(a, 60 * MIB); /* two of its three pages would be there */
    expect(a, 20 * MIB, 20 * MIB);
    assert_int_equal(device.used, 20 * MIB);
    struct allocator_block *other = alloc_on(a, 40 * MIB, 1);
    allocator_free_block(a, other);
    alloc(a, 39 * MIB); /* the pages of stream 1 come back for stream 0 */
    expect(a, 60 * MIB, 59 * MIB);
    allocator_free(a);
}

struct action_log {
    char text[256];
};

static void log_action(void *context, enum allocator_action action, uint64_t address,
                       uint64_t bytes, int stream)
{
    static const char *const names[] = {"alloc",    "free_requested", "free_completed", "+segment",
                                        "-segment", "+map",           "-map",           "oom"};
    struct action_log *log = context;
    const size_t used = strlen(log->text);
    assert_true(address != 0 || action == ALLOCATOR_OOM);
    snprintf(log->text + used, sizeof log->text - used, "%s:%llu:%d ", names[action],
             (unsigned long long)bytes, stream);
}

static void actions_are_reported_in_pytorchs_order(void **state)
{
    (void)state;
    struct action_log log = {""};
    struct allocator *a = allocator_new(&(struct allocator_settings){
        .capacity_bytes = 4 * MIB, .on_action = log_action, .action_context = &log});
    allocator_free_block(a, alloc_on(a, 1000, 2));
    expect_oom(a, 3 * MIB);
    assert_string_equal(log.text, "+segment:2097152:2 alloc:1000:2 free_requested:1000:2 "
                                  "free_completed:1000:2 -segment:2097152:2 oom:3145728:0 ");
    allocator_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_of_a_published_snapshot_are_reproduced),
        cmocka_unit_test(a_rest_of_one_mib_stays_with_its_block),
        cmocka_unit_test(expandable_segments_grow_by_pages),
        cmocka_unit_test(a_large_request_takes_a_whole_segment_or_leaves_more_than_one_mib),
        cmocka_unit_test(pools_and_segments_are_chosen_by_rounded_size),
        cmocka_unit_test(requests_can_be_rounded_to_divisions_of_powers_of_two),
        cmocka_unit_test(a_block_is_reused_only_on_its_own_stream),
        cmocka_unit_test(the_lowest_address_wins_among_thousands_of_equal_blocks),
        cmocka_unit_test(out_of_memory_names_the_bytes_and_leaves_the_allocator_usable),
        cmocka_unit_test(a_request_larger_than_any_device_is_out_of_memory),
        cmocka_unit_test(a_simulated_range_may_exceed_its_device),
        cmocka_unit_test(cached_segments_of_all_streams_are_released_before_giving_up),
        cmocka_unit_test(emptying_the_cache_keeps_segments_in_use),
        cmocka_unit_test(oversize_blocks_serve_only_oversize_requests),
        cmocka_unit_test(oversize_blocks_are_released_largest_first_until_enough),
        cmocka_unit_test(garbage_collection_drops_what_was_not_used_for_long),
        cmocka_unit_test(a_hole_is_preferred_to_the_growing_end_of_a_range),
        cmocka_unit_test(whole_pages_inside_free_blocks_are_unmapped),
        cmocka_unit_test(pages_are_mapped_all_or_not_at_all),
        cmocka_unit_test(actions_are_reported_in_pytorchs_order),
    };
    return cmocka_run_group_tests_name("allocator", tests, NULL, NULL);
}

/* test_allocator_check.c - allocator_check finds whatever is broken.
 *
 * Each row breaks one thing of a sound allocator from inside. Doing the same again mends it. */
#include "memory/allocator_parts.h"
#include "tests/support/small_device.h"

#include <assert.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Blocks at work: in a segment, allocated, free, allocated, free; another segment as a whole; in a
 * range, allocated, free, unmapped, allocated, free, unmapped. */
struct scene {
    struct device device;
    struct allocator *allocator, *ranged;
    struct allocator_block *first, *second, *whole;
    struct allocator_block *in_range;    /* the allocated block before the first gap */
    struct allocator_block *kept_unused; /* what is taken out, until it is put back */
    uint64_t kept_address;
};

static struct allocator_block *take(struct allocator *allocator, uint64_t bytes)
{
    struct allocator_block *block;
    assert_int_equal(allocator_alloc(allocator, bytes, 0, &block, NULL), ERR_OK);
    return block;
}

/* In place: the allocator keeps the address of its device. */
static void scene_make(struct scene *s)
{
    *s = (struct scene){.device = {.budget = UINT64_MAX}};
    s->allocator = new_on_device((struct allocator_settings){0}, &s->device);
    s->first = take(s->allocator, 2 * MIB);
    struct allocator_block *hole = take(s->allocator, 3 * MIB);
    s->second = take(s->allocator, 2 * MIB);
    allocator_free_block(s->allocator, hole);
    s->whole = take(s->allocator, 24 * MIB);
    s->ranged = allocator_new(&(struct allocator_settings){.expandable_segments = true});
    s->in_range = take(s->ranged, 30 * MIB);
    hole = take(s->ranged, 90 * MIB);
    take(s->ranged, 30 * MIB);
    allocator_free_block(s->ranged, hole);
    allocator_empty_cache(s->ranged);
    allocator_free_block(s->ranged, take(s->ranged, 3 * MIB)); /* leaves a slot unused */
}

static void scene_free(struct scene *s)
{
    allocator_free(s->allocator);
    allocator_free(s->ranged);
}

/* ---- what to break ---- */

static void size_of_a_block(struct scene *s)
{
    s->second->bytes ^= 256;
}

static void stream_of_a_block(struct scene *s)
{
    s->whole->stream ^= 128;
}

static void memory_of_an_allocated_block(struct scene *s)
{
    s->in_range->mapped ^= true;
}

static void memory_of_a_segment(struct scene *s)
{
    s->first->next->mapped ^= true;
}

static void request_of_a_free_block(struct scene *s)
{
    s->first->next->requested_bytes ^= 8;
}

static void request_beyond_its_block(struct scene *s)
{
    s->whole->requested_bytes ^= 64 * MIB;
}

static void a_free_block_that_waits(struct scene *s)
{
    s->first->next->pending ^= true;
}

static void an_allocated_block_that_waits(struct scene *s)
{
    s->second->pending ^= true;
}

static void previous_of_a_block(struct scene *s)
{
    s->whole->prev = s->whole->prev ? NULL : s->second;
}

static void address_of_a_block(struct scene *s)
{
    s->second->address ^= 512;
}

static void pool_of_a_neighbour(struct scene *s)
{
    s->second->pool ^= 1;
}

static void a_free_block_beside_another(struct scene *s)
{
    s->second->allocated ^= true;
    s->second->requested_bytes ^= 2 * MIB;
}

static void size_of_a_segment(struct scene *s)
{
    s->whole->bytes ^= MIB;
}

static void place_of_a_segment(struct scene *s)
{
    const uint64_t address = s->whole->address;
    s->whole->address = s->kept_address ? s->kept_address : s->first->address + 512;
    s->kept_address = s->kept_address ? 0 : address;
}

static void bytes_of_a_range(struct scene *s)
{
    s->in_range->range->bytes ^= LARGE_SEGMENT_BYTES;
}

static void list_of_ranges(struct scene *s)
{
    struct expandable_range *range = s->in_range->range;
    s->ranged->ranges = s->ranged->ranges ? NULL : range;
}

static void begin_of_an_unmapped_block(struct scene *s)
{
    struct allocator_block *rest = s->in_range->next, *gap = rest->next;
    const uint64_t by = gap->address % (2 * MIB) ? MIB : -MIB;
    rest->bytes -= by;
    gap->address -= by;
    gap->bytes += by;
}

static void list_of_unused_slots(struct scene *s)
{
    struct allocator_block *unused = s->ranged->store.unused;
    s->ranged->store.unused = s->kept_unused;
    s->kept_unused = unused;
}

static struct free_set *large(struct allocator *allocator)
{
    return allocator->sets[POOL_LARGE][0];
}

static void a_bit_of_the_bins(struct scene *s)
{
    large(s->allocator)->words[0] ^= 1;
    large(s->allocator)->words_in_use ^= 1;
}

static void a_bit_of_the_words(struct scene *s)
{
    large(s->allocator)->words_in_use ^= 1;
}

static void key_of_a_free_block(struct scene *s)
{
    const struct free_spot spot = free_set_first(large(s->allocator), 0);
    assert(spot.leaf);
    spot.leaf->entries[spot.entry].key ^= 1;
}

static void a_block_in_two_sets(struct scene *s)
{
    struct free_set **other = &s->allocator->sets[POOL_SMALL][1];
    *other = *other ? NULL : large(s->allocator);
}

static void a_block_in_no_set(struct scene *s)
{
    struct free_set *set = large(s->allocator);
    struct allocator_block *block = s->first->next;
    if (block->free_since == 0)
        free_set_remove(set, block);
    else
        free_set_insert(set, block);
    block->free_since ^= 1;
}

static void list_of_unmapped_blocks(struct scene *s)
{
    struct allocator_block **unmapped = large(s->ranged)->unmapped, *lowest = unmapped[0];
    unmapped[0] = unmapped[1];
    unmapped[1] = lowest;
}

static void allocated_bytes(struct scene *s)
{
    s->allocator->stats.allocated_bytes ^= 512;
}

static void reserved_bytes(struct scene *s)
{
    s->ranged->stats.reserved_bytes ^= 512;
}

static void count_of_segments(struct scene *s)
{
    s->allocator->stats.segments ^= 1;
}

static void count_of_splits(struct scene *s)
{
    s->allocator->stats.inactive_splits ^= 1;
}

static void bytes_of_splits(struct scene *s)
{
    s->allocator->stats.inactive_split_bytes ^= 512;
}

static void a_peak(struct scene *s)
{
    s->allocator->stats.requested_peak ^= s->allocator->stats.requested_bytes;
}

static void a_cap(struct scene *s)
{
    s->allocator->settings.capacity_bytes ^= 40 * MIB;
}

static const struct {
    void (*break_or_mend)(struct scene *s);
    const char *said;
} rows[] = {
    {size_of_a_block, "are no multiple of 512"},
    {stream_of_a_block, "no such pool (0) or stream (128)"},
    {memory_of_an_allocated_block, "is allocated without memory behind it"},
    {memory_of_a_segment, "of a segment is not mapped"},
    {request_of_a_free_block, "8 bytes requested of 3145728, free"},
    {request_beyond_its_block, "bytes requested of 25165824, allocated"},
    {a_free_block_that_waits, "is free, and its free waits"},
    {an_allocated_block_that_waits, "allocated_bytes is"},
    {previous_of_a_block, "is not the next of its previous"},
    {address_of_a_block, "of 3145728 bytes is followed by"},
    {pool_of_a_neighbour, "are neighbours of different kinds"},
    {a_free_block_beside_another, "are both free and not one"},
    {size_of_a_segment, "has 26214400 bytes"},
    {place_of_a_segment, "lies in the one before"},
    {bytes_of_a_range, "are not all of it"},
    {list_of_ranges, "1 ranges have blocks, 0 are listed"},
    {begin_of_an_unmapped_block, "does not begin and end at pages"},
    {list_of_unused_slots, "slots are unused, 0 of them listed"},
    {a_bit_of_the_bins, "bin 0 is marked and has no blocks"},
    {a_bit_of_the_words, "and marked otherwise"},
    {key_of_a_free_block, "is not where its size and address belong"},
    {a_block_in_two_sets, "is in the set of pool 1, stream 1 and does not belong"},
    {a_block_in_no_set, "pool 0, stream 0: 2 blocks are free, 1 of them in the set"},
    {list_of_unmapped_blocks, "is listed out of order"},
    {allocated_bytes, "allocated_bytes is"},
    {reserved_bytes, "reserved_bytes is"},
    {count_of_segments, "segments is 3, the blocks' sum 2"},
    {count_of_splits, "inactive_splits is 3, the blocks' sum 2"},
    {bytes_of_splits, "inactive_split_bytes is"},
    {a_peak, "requested_bytes is 29360128, its peak"},
    {a_cap, "bytes are reserved of 41943040 allowed"},
};

static enum err_code check(const struct scene *s, struct err *err)
{
    TRY(allocator_check(s->allocator, err));
    return allocator_check(s->ranged, err);
}

static void whatever_is_broken_is_named(void **state)
{
    (void)state;
    struct scene s;
    scene_make(&s);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct err err = {0};
        if (check(&s, &err) != ERR_OK)
            fail_msg("row %zu is not mended: %s", i, err.text);
        rows[i].break_or_mend(&s);
        if (check(&s, &err) != ERR_INTERNAL || !strstr(err.text, rows[i].said))
            fail_msg("row %zu: expected \"%s\", got \"%s\"", i, rows[i].said, err.text);
        rows[i].break_or_mend(&s);
    }
    assert_int_equal(check(&s, NULL), ERR_OK);
    scene_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whatever_is_broken_is_named),
    };
    return cmocka_run_group_tests_name("allocator_check", tests, NULL, NULL);
}

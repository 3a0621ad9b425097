/* test_allocator_model.c - the caching allocator against a naive model, on random programs.
 *
 * The model (ref_*) knows nothing of free sets, keys or slabs: it keeps all blocks in one unsorted
 * array and scans it for everything. */
#include "memory/allocator.h"
#include "tests/support/small_device.h"
#include "tests/support/soak.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define KIB ((uint64_t)1024)
#define MIB ((uint64_t)1048576)

/* ---- a naive model of the same rules ---- */

enum { REF_MAX = 4096, REF_SEGMENTS = 65536 };

struct ref_block {
    uint64_t address, bytes, requested, free_since, segment_bytes;
    int segment, stream;
    bool small, allocated, mapped;
};

struct ref {
    struct allocator_settings settings;
    struct ref_block blocks[REF_MAX]; /* in no order */
    int count, segments;
    uint64_t next_address, searches[2];
    struct device device;
    struct allocator_stats stats;
};

static struct ref_block *ref_add(struct ref *ref, struct ref_block block)
{
    assert_true(ref->count < REF_MAX);
    ref->blocks[ref->count] = block;
    return &ref->blocks[ref->count++];
}

static struct ref_block *ref_at(struct ref *ref, uint64_t address)
{
    for (int i = 0; i < ref->count; i++)
        if (ref->blocks[i].address == address)
            return &ref->blocks[i];
    return NULL;
}

static struct ref_block *ref_neighbour(struct ref *ref, const struct ref_block *block, bool next)
{
    for (int i = 0; i < ref->count; i++) {
        struct ref_block *other = &ref->blocks[i];
        if (other->segment == block->segment &&
            (next ? other->address == block->address + block->bytes
                  : other->address + other->bytes == block->address))
            return other;
    }
    return NULL;
}

static void ref_remove(struct ref *ref, struct ref_block *block)
{
    *block = ref->blocks[--ref->count];
}

/* Recomputes the sums; peaks take part because they are only looked at after growth. */
static void ref_sum(struct ref *ref)
{
    struct allocator_stats *s = &ref->stats;
    s->requested_bytes = s->allocated_bytes = s->reserved_bytes = 0;
    s->inactive_split_bytes = s->inactive_splits = 0;
    for (int i = 0; i < ref->count; i++) {
        const struct ref_block *block = &ref->blocks[i];
        s->reserved_bytes += block->mapped ? block->bytes : 0;
        s->allocated_bytes += block->allocated ? block->bytes : 0;
        s->requested_bytes += block->allocated ? block->requested : 0;
        if (!ref->settings.expandable_segments && !block->allocated &&
            block->bytes < block->segment_bytes) {
            s->inactive_split_bytes += block->bytes;
            s->inactive_splits++;
        }
    }
    s->reserved_peak = s->reserved_bytes > s->reserved_peak ? s->reserved_bytes : s->reserved_peak;
}

/* Merges the free block at `address` with everything it can; returns where it is now. */
static struct ref_block *ref_merge(struct ref *ref, uint64_t address)
{
    for (;;) {
        struct ref_block *block = ref_at(ref, address);
        struct ref_block *next = ref_neighbour(ref, block, true);
        if (next && !next->allocated && next->mapped == block->mapped) {
            block->bytes += next->bytes;
            ref_remove(ref, next);
            continue;
        }
        struct ref_block *prev = ref_neighbour(ref, block, false);
        if (!prev || prev->allocated || prev->mapped != block->mapped) {
            block->free_since = ref->searches[block->small];
            return block;
        }
        address = prev->address;
    }
}

static uint64_t ref_round(const struct ref *ref, uint64_t bytes)
{
    uint64_t power = 1;
    int log2 = 0;
    while (2 * power <= bytes) {
        power *= 2;
        log2++;
    }
    const uint64_t divisions = ref->settings.roundup_power2_divisions[log2 < 20   ? 0
                                                                      : log2 > 35 ? 15
                                                                                  : log2 - 20];
    uint64_t step = 512;
    if (divisions > 1 && bytes > 512 * divisions) {
        step = power;
        for (uint64_t d = divisions; d > 1; d /= 2)
            step /= 2;
    }
    uint64_t rounded = bytes / step * step;
    return rounded < bytes ? rounded + step : rounded;
}

static uint64_t ref_reach(struct ref *ref, const struct ref_block *block)
{
    const struct ref_block *next = ref_neighbour(ref, block, true);
    return block->bytes + (next && !next->mapped ? next->bytes : 0);
}

/* The first free block in order of (size, address), from `bytes` and `address` on. */
static struct ref_block *ref_first(struct ref *ref, bool small, int stream, uint64_t bytes,
                                   uint64_t address)
{
    struct ref_block *best = NULL;
    for (int i = 0; i < ref->count; i++) {
        struct ref_block *b = &ref->blocks[i];
        if (b->allocated || !b->mapped || b->small != small || b->stream != stream)
            continue;
        if (b->bytes < bytes || (b->bytes == bytes && b->address < address))
            continue;
        if (!best || b->bytes < best->bytes ||
            (b->bytes == best->bytes && b->address < best->address))
            best = b;
    }
    return best;
}

static struct ref_block *ref_cached(struct ref *ref, bool small, int stream, uint64_t rounded)
{
    const struct allocator_settings *s = &ref->settings;
    if (s->capacity_bytes && s->garbage_collection_threshold > 0)
        ref->searches[small]++;
    struct ref_block *best = ref_first(ref, small, stream, rounded, 0);
    while (best && s->expandable_segments) {
        struct ref_block *next = ref_first(ref, small, stream, best->bytes, best->address + 1);
        if (!next || ref_reach(ref, next) >= ref_reach(ref, best))
            break;
        best = next;
    }
    if (!best || !s->max_split_bytes)
        return best;
    if (rounded < s->max_split_bytes)
        return best->bytes < s->max_split_bytes ? best : NULL;
    return best->bytes < rounded + 20 * MIB ? best : NULL;
}

static bool ref_map(struct ref *ref, uint64_t address, uint64_t bytes, uint64_t page)
{
    struct ref_block *block = ref_at(ref, address);
    const uint64_t mapped = (bytes + page - 1) / page * page;
    const struct device before = ref->device;
    for (uint64_t i = 0; i < mapped / page; i++) {
        if (!device_new(&ref->device, page)) {
            ref->device.used = before.used;
            return false;
        }
    }
    if (mapped < block->bytes) {
        struct ref_block rest = *block;
        rest.address += mapped;
        rest.bytes -= mapped;
        block->bytes = mapped;
        ref_add(ref, rest);
    }
    block->mapped = true;
    ref_merge(ref, address);
    ref_sum(ref); /* for the peak */
    return true;
}

/* Free and unmapped bytes in a row from `block` on. */
static uint64_t ref_room(struct ref *ref, const struct ref_block *block)
{
    uint64_t bytes = 0;
    for (; block && !block->allocated; block = ref_neighbour(ref, block, true))
        bytes += block->bytes;
    return bytes;
}

static struct ref_block *ref_expand(struct ref *ref, bool small, int stream, uint64_t rounded)
{
    const uint64_t page = small ? 2 * MIB : 20 * MIB;
    const struct ref_block *found = NULL;
    for (int i = 0; i < ref->count; i++) {
        const struct ref_block *first = &ref->blocks[i];
        if (first->mapped || first->small != small || first->stream != stream)
            continue;
        const struct ref_block *prev = ref_neighbour(ref, first, false);
        first = prev && !prev->allocated ? prev : first;
        if (ref_room(ref, first) >= rounded && (!found || first->address < found->address))
            found = first;
    }
    if (!found) {
        const uint64_t device = ref->settings.device_bytes;
        const uint64_t bytes = (device + device / 8 + page - 1) / page * page;
        found = ref_add(ref, (struct ref_block){.address = ref->next_address,
                                                .bytes = bytes,
                                                .segment_bytes = bytes,
                                                .segment = ref->segments++,
                                                .stream = stream,
                                                .small = small});
        ref->next_address += 2 * bytes;
    }
    const uint64_t start = found->address;
    for (;;) {
        struct ref_block *block = ref_at(ref, start);
        const uint64_t have = block->mapped ? block->bytes : 0;
        const struct ref_block *gap = block->mapped ? ref_neighbour(ref, block, true) : block;
        if (have >= rounded)
            return block;
        const uint64_t missing = rounded - have;
        if (!ref_map(ref, gap->address, missing < gap->bytes ? missing : gap->bytes, page))
            return NULL;
    }
}

static struct ref_block *ref_segment(struct ref *ref, bool small, int stream, uint64_t rounded)
{
    uint64_t bytes = small ? 2 * MIB : 20 * MIB;
    if (rounded >= 10 * MIB)
        bytes = (rounded + 2 * MIB - 1) / (2 * MIB) * (2 * MIB);
    ref_sum(ref);
    const uint64_t capacity = ref->settings.capacity_bytes;
    if (capacity && ref->stats.reserved_bytes + bytes > capacity)
        return NULL;
    if (ref->settings.expandable_segments)
        return ref_expand(ref, small, stream, rounded);
    const uint64_t address = device_new(&ref->device, bytes);
    if (!address)
        return NULL;
    assert_true(ref->segments < REF_SEGMENTS);
    ref->stats.segments++;
    struct ref_block *block = ref_add(ref, (struct ref_block){.address = address,
                                                              .bytes = bytes,
                                                              .segment_bytes = bytes,
                                                              .segment = ref->segments++,
                                                              .stream = stream,
                                                              .small = small,
                                                              .mapped = true});
    ref_sum(ref);
    return block;
}

static void ref_drop(struct ref *ref, struct ref_block *block)
{
    ref->device.used -= block->bytes;
    ref->stats.segments--;
    ref_remove(ref, block);
}

static bool ref_is_whole(const struct ref *ref, const struct ref_block *block)
{
    return !block->allocated && !ref->settings.expandable_segments &&
           block->bytes == block->segment_bytes;
}

static void ref_collect(struct ref *ref)
{
    ref_sum(ref);
    const struct allocator_settings *s = &ref->settings;
    const double allowed = s->garbage_collection_threshold * (double)s->capacity_bytes;
    const uint64_t reserved = ref->stats.reserved_bytes, limit = (uint64_t)allowed;
    uint64_t dropped = 0;
    while (reserved > limit && dropped < reserved - limit) {
        uint64_t total = 0, count = 0;
        for (int i = 0; i < ref->count; i++) {
            if (!ref->blocks[i].small && ref_is_whole(ref, &ref->blocks[i])) {
                total += ref->searches[0] - ref->blocks[i].free_since;
                count++;
            }
        }
        if (!count)
            return;
        for (int i = ref->count - 1; i >= 0; i--) {
            struct ref_block *block = &ref->blocks[i];
            if (block->small || !ref_is_whole(ref, block) ||
                (ref->searches[0] - block->free_since) * count < total)
                continue;
            dropped += block->bytes;
            ref_drop(ref, block);
        }
    }
}

static bool ref_release_oversize(struct ref *ref, bool small, int stream, uint64_t rounded)
{
    const uint64_t least = ref->settings.max_split_bytes;
    const uint64_t wanted = rounded > least ? rounded : least;
    if (!least || ref->settings.expandable_segments)
        return false;
    struct ref_block *best = ref_first(ref, small, stream, wanted, 0);
    if (best) {
        ref_drop(ref, best);
        return true;
    }
    uint64_t dropped = 0;
    while (dropped < wanted) {
        struct ref_block *largest = NULL, *next = ref_first(ref, small, stream, least, 0);
        for (; next; next = ref_first(ref, small, stream, next->bytes, next->address + 1))
            largest = next;
        if (!largest)
            return false;
        dropped += largest->bytes;
        ref_drop(ref, largest);
    }
    return true;
}

static void ref_unmap(struct ref *ref, uint64_t address)
{
    const struct ref_block whole = *ref_at(ref, address);
    const uint64_t page = whole.small ? 2 * MIB : 20 * MIB;
    uint64_t base = address;
    for (int i = 0; i < ref->count; i++)
        if (ref->blocks[i].segment == whole.segment && ref->blocks[i].address < base)
            base = ref->blocks[i].address;
    const uint64_t first = base + (address - base + page - 1) / page * page;
    const uint64_t end = base + (address + whole.bytes - base) / page * page;
    if (first >= end)
        return;
    ref_remove(ref, ref_at(ref, address));
    struct ref_block part = whole;
    part.bytes = first - address;
    if (part.bytes)
        ref_add(ref, part);
    part.address = end;
    part.bytes = address + whole.bytes - end;
    if (part.bytes)
        ref_add(ref, part);
    part.address = first;
    part.bytes = end - first;
    part.mapped = false;
    ref_add(ref, part);
    ref->device.used -= part.bytes;
    struct ref_block *merged = ref_merge(ref, first);
    if (merged->bytes == merged->segment_bytes)
        ref_remove(ref, merged);
}

static void ref_empty_cache(struct ref *ref)
{
    for (int i = 0; i < ref->count;) {
        const int before = ref->count;
        struct ref_block *block = &ref->blocks[i];
        if (ref_is_whole(ref, block))
            ref_drop(ref, block);
        i = ref->count == before ? i + 1 : 0;
    }
    uint64_t addresses[REF_MAX];
    int count = 0;
    for (int i = 0; i < ref->count && ref->settings.expandable_segments; i++)
        if (!ref->blocks[i].allocated && ref->blocks[i].mapped)
            addresses[count++] = ref->blocks[i].address;
    for (int i = 0; i < count; i++)
        ref_unmap(ref, addresses[i]);
}

static struct ref_block *ref_alloc(struct ref *ref, uint64_t bytes, int stream)
{
    const struct allocator_settings *s = &ref->settings;
    const uint64_t rounded = ref_round(ref, bytes);
    const bool small = rounded <= MIB;
    struct ref_block *block = ref_cached(ref, small, stream, rounded);
    if (!block && s->capacity_bytes && s->garbage_collection_threshold > 0)
        ref_collect(ref);
    if (!block)
        block = ref_segment(ref, small, stream, rounded);
    if (!block && ref_release_oversize(ref, small, stream, rounded))
        block = ref_segment(ref, small, stream, rounded);
    if (!block) {
        ref_empty_cache(ref);
        ref->stats.alloc_retries++;
        block = ref_segment(ref, small, stream, rounded);
    }
    if (!block) {
        ref->stats.ooms++;
        return NULL;
    }
    const uint64_t rest = block->bytes - rounded;
    if (small || s->expandable_segments
            ? rest >= 512
            : rest > MIB && (!s->max_split_bytes || rounded < s->max_split_bytes)) {
        struct ref_block behind = *block;
        behind.address += rounded;
        behind.bytes = rest;
        behind.free_since = ref->searches[small];
        ref_add(ref, behind);
        block->bytes = rounded;
    }
    block->allocated = true;
    block->requested = bytes;
    return block;
}

/* ---- the comparison ---- */

enum { LIVE_MAX = 300 };

struct live {
    struct allocator_block *block;
    uint64_t address, bytes, ref_address;
};

static uint64_t random_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Few sizes, so that blocks fit exactly; some odd ones, so that blocks are split and merged. */
static uint64_t random_bytes(uint64_t *state)
{
    const uint64_t kind = random_next(state) % 16, pick = random_next(state);
    if (kind < 4)
        return 1 + pick % 4096;
    if (kind < 7)
        return (1 + pick % 8) * 64 * KIB;
    if (kind < 9)
        return 1 + pick % (3 * MIB / 2);
    if (kind < 12)
        return (1 + pick % 6) * 2 * MIB;
    return kind < 15 ? 1 + pick % (12 * MIB) : 1 + pick % (70 * MIB);
}

static void expect_same_stats(const struct allocator *allocator, struct ref *ref)
{
    struct allocator_stats *s = &ref->stats;
    ref_sum(ref);
    s->allocated_peak =
        s->allocated_bytes > s->allocated_peak ? s->allocated_bytes : s->allocated_peak;
    s->requested_peak =
        s->requested_bytes > s->requested_peak ? s->requested_bytes : s->requested_peak;
    assert_memory_equal(allocator_stats(allocator), s, sizeof *s);
}

struct tiling {
    uint64_t end, bytes, allocated;
};

static void add_tile(void *context, const struct allocator_span *span)
{
    struct tiling *tiling = context;
    assert_true(span->address >= tiling->end); /* in order, so nothing overlaps */
    assert_true(span->address >= span->segment_address);
    assert_true(span->address + span->bytes <= span->segment_address + span->segment_bytes);
    tiling->end = span->address + span->bytes;
    tiling->bytes += span->bytes;
    tiling->allocated += span->allocated ? span->bytes : 0;
}

static void expect_tiling(const struct allocator *allocator)
{
    struct tiling tiling = {0};
    allocator_visit(allocator, add_tile, &tiling);
    assert_int_equal(tiling.bytes, allocator_stats(allocator)->reserved_bytes);
    assert_int_equal(tiling.allocated, allocator_stats(allocator)->allocated_bytes);
}

/* Hands the same request to both; places must agree up to where a range happens to begin. */
static void alloc_in_both(struct allocator *allocator, struct ref *ref, uint64_t *shifts,
                          struct live *live, int *count, uint64_t bytes, int stream)
{
    struct live *added = &live[*count];
    const enum err_code rc = allocator_alloc(allocator, bytes, stream, &added->block, NULL);
    const struct ref_block *expected = ref_alloc(ref, bytes, stream);
    assert_int_equal(rc, expected ? ERR_OK : ERR_NOMEM);
    if (!expected)
        return;
    added->address = allocator_block_address(added->block);
    added->bytes = allocator_block_bytes(added->block);
    added->ref_address = expected->address;
    uint64_t *shift = &shifts[expected->segment];
    if (!*shift)
        *shift = added->address - expected->address + 1;
    assert_int_equal(added->address, expected->address + *shift - 1);
    for (int i = 0; i < *count; i++)
        assert_true(added->address + added->bytes <= live[i].address ||
                    live[i].address + live[i].bytes <= added->address);
    ++*count;
}

static void compare_with_model(struct allocator_settings settings, uint64_t budget, int streams,
                               int operations, uint64_t seed)
{
    struct device device = {.budget = budget};
    struct allocator *allocator = new_on_device(settings, &device);
    struct ref *ref = calloc(1, sizeof *ref);
    uint64_t *shifts = calloc(REF_SEGMENTS, sizeof *shifts);
    struct live live[LIVE_MAX];
    int count = 0, wanted = LIVE_MAX / 2;
    assert_true(ref && shifts);
    ref->settings = settings;
    ref->device.budget = budget;
    ref->next_address = MIB;

    for (int i = 0; i < operations; i++) {
        const uint64_t dice = random_next(&seed);
        if (dice % 1499 == 0) /* let it grow and shrink */
            wanted = (int)(random_next(&seed) % (LIVE_MAX + 100)) - 100;
        if (dice % 4999 == 0) {
            allocator_empty_cache(allocator);
            ref_empty_cache(ref);
        } else if (count == 0 ||
                   (count < LIVE_MAX && (dice >> 32) % 100 < (count < wanted ? 60 : 40))) {
            const uint64_t bytes = random_bytes(&seed);
            alloc_in_both(allocator, ref, shifts, live, &count, bytes,
                          (int)(random_next(&seed) % (uint64_t)streams));
        } else {
            const uint64_t pick = random_next(&seed) % (uint64_t)count;
            allocator_free_block(allocator, live[pick].block);
            ref_at(ref, live[pick].ref_address)->allocated = false;
            ref_merge(ref, live[pick].ref_address);
            live[pick] = live[--count];
        }
        assert_sound(allocator);
        expect_same_stats(allocator, ref);
        if (i % 64 == 0)
            expect_tiling(allocator);
        assert_int_equal(device.used, ref->device.used);
    }
    allocator_free(allocator);
    assert_int_equal(device.used, 0);
    free(shifts);
    free(ref);
}

static void default_settings_agree_with_the_model(void **state)
{
    (void)state;
    compare_with_model((struct allocator_settings){0}, UINT64_MAX, 4, is_soak() ? 200000 : 80000,
                       1);
}

static void scarce_memory_agrees_with_the_model(void **state)
{
    (void)state;
    compare_with_model((struct allocator_settings){.capacity_bytes = 1700 * MIB}, 1500 * MIB, 3,
                       30000, 2);
    compare_with_model((struct allocator_settings){.capacity_bytes = 1500 * MIB}, UINT64_MAX, 3,
                       30000, 3);
}

static void oversize_blocks_and_garbage_collection_agree_with_the_model(void **state)
{
    (void)state;
    struct allocator_settings settings = {.max_split_bytes = 24 * MIB};
    compare_with_model(settings, 1500 * MIB, 2, 30000, 4);
    settings.capacity_bytes = 2000 * MIB;
    settings.garbage_collection_threshold = 0.6;
    compare_with_model(settings, 1900 * MIB, 2, 30000, 5);
    settings.max_split_bytes = 0;
    compare_with_model(settings, 1900 * MIB, 2, 30000, 6);
}

static void rounding_to_divisions_agrees_with_the_model(void **state)
{
    (void)state;
    struct allocator_settings settings = {0};
    for (int i = 0; i < 16; i++)
        settings.roundup_power2_divisions[i] = (uint32_t[]){8, 4, 0, 1, 5}[i % 5];
    compare_with_model(settings, UINT64_MAX, 2, 20000, 7);
}

static void expandable_segments_agree_with_the_model(void **state)
{
    (void)state;
    struct allocator_settings settings = {.expandable_segments = true, .device_bytes = 1000 * MIB};
    compare_with_model(settings, UINT64_MAX, 3, 30000, 8);
    compare_with_model(settings, 1500 * MIB, 3, 30000, 9);
    settings.capacity_bytes = 1500 * MIB;
    settings.garbage_collection_threshold = 0.5;
    settings.max_split_bytes = 24 * MIB;
    compare_with_model(settings, UINT64_MAX, 3, 30000, 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(default_settings_agree_with_the_model),
        cmocka_unit_test(scarce_memory_agrees_with_the_model),
        cmocka_unit_test(oversize_blocks_and_garbage_collection_agree_with_the_model),
        cmocka_unit_test(rounding_to_divisions_agrees_with_the_model),
        cmocka_unit_test(expandable_segments_agree_with_the_model),
    };
    return cmocka_run_group_tests_name("allocator_model", tests, NULL, NULL);
}

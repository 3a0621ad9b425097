/* placer.c - see placer.h. Sizes and addresses are in units of 512 bytes, addresses from the pool's
 * first segment on, in the order in which segments came. */
#include "memory/placer.h"

#include "base/arena.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define UNITS(bytes) ((uint32_t)((bytes) / LEDGER_UNIT))

enum { NOBODY = UINT32_MAX };

struct block {
    uint32_t units, address;
    uint32_t prev, next; /* neighbours in the segment; NOBODY: its end */
    uint32_t place;      /* among the free blocks of its bin; NOBODY: in use */
    uint32_t bin;
};

/* Free blocks from a power of two units to before the next, in any order: there are a few, or some
 * dozens of one size, and looking at all of them is faster than keeping them sorted. */
struct free_blocks {
    uint64_t *keys;   /* (count) units << 32 | address: the least is what best fit takes */
    uint32_t *blocks; /* (count) */
    uint32_t count, cap;
};

enum { BINS = 32 };

/* What was found before, by 128 bits of what was asked. */
struct known {
    uint64_t key[2];   /* 0, 0: nothing */
    uint64_t reserved; /* units; UINT64_MAX: not known, but that it is more than `beyond` */
    uint64_t beyond;
    bool steady;
};

enum { KNOWN = 1 << 12 };

struct placer {
    struct block *blocks; /* (block_count) */
    uint32_t block_count, block_cap;
    uint32_t unused; /* linked by next */
    uint32_t *slots; /* (slot_cap) the block that each slot has */
    uint32_t slot_cap;
    struct free_blocks bins[BINS];
    uint32_t used_bins; /* bits */
    /* of the pool */
    bool small, expandable;
    uint32_t least_rest; /* a smaller rest is not split off */
    uint32_t page, tail; /* of expandable segments: units; the block at the end of what is mapped */
    uint64_t range;      /* units; no more can be mapped */
    uint64_t reserved;
    uint64_t enough; /* units; more are not placed: */
    bool beyond;     /* ... they were asked for */
    bool steady;
    struct known *known; /* (KNOWN) by key */
};

struct placer *placer_new(void)
{
    struct placer *p = xmalloc(sizeof *p);
    *p = (struct placer){.known = xcalloc(KNOWN, sizeof *p->known)};
    return p;
}

void placer_free(struct placer *p)
{
    if (!p)
        return;
    free(p->blocks);
    free(p->slots);
    for (uint32_t bin = 0; bin < BINS; bin++) {
        free(p->bins[bin].keys);
        free(p->bins[bin].blocks);
    }
    free(p->known);
    free(p);
}

/* ---- free blocks ---- */

static inline uint64_t key_of(const struct block *b)
{
    return (uint64_t)b->units << 32 | b->address;
}

static inline bool is_free(const struct placer *p, uint32_t index)
{
    return p->blocks[index].place != NOBODY;
}

static inline uint32_t bin_of(uint32_t units)
{
    return 31 - (uint32_t)__builtin_clz(units);
}

/* The block of a bin with the least key from `least` on; NOBODY: there is none. What is below
 * becomes larger than all others, modulo 2^64. */
static inline uint32_t find_in(const struct free_blocks *f, uint64_t least)
{
    uint64_t best = UINT64_MAX;
    uint32_t at = 0;
    for (uint32_t i = 0; i < f->count; i++) {
        const uint64_t above = f->keys[i] - least;
        at = above < best ? i : at;
        best = above < best ? above : best;
    }
    return best <= UINT64_MAX - least ? f->blocks[at] : NOBODY;
}

/* The same of all bins; least >> 32 is not 0. */
static inline uint32_t find(const struct placer *p, uint64_t least)
{
    const uint32_t first = bin_of((uint32_t)(least >> 32));
    for (uint32_t bins = p->used_bins >> first << first; bins; bins &= bins - 1) {
        const uint32_t found = find_in(&p->bins[__builtin_ctz(bins)], least);
        if (found != NOBODY)
            return found;
    }
    return NOBODY;
}

static void insert(struct placer *p, uint32_t index)
{
    struct block *block = &p->blocks[index];
    block->bin = bin_of(block->units);
    struct free_blocks *f = &p->bins[block->bin];
    if (f->count == f->cap) {
        f->cap = f->cap ? 2 * f->cap : 64;
        f->keys = xrealloc(f->keys, f->cap * sizeof *f->keys);
        f->blocks = xrealloc(f->blocks, f->cap * sizeof *f->blocks);
    }
    block->place = f->count;
    f->keys[f->count] = key_of(block);
    f->blocks[f->count++] = index;
    p->used_bins |= 1U << block->bin;
}

/* The last one takes its place. */
static void take_out(struct placer *p, uint32_t index)
{
    const uint32_t bin = p->blocks[index].bin, place = p->blocks[index].place;
    struct free_blocks *f = &p->bins[bin];
    const uint32_t last = --f->count;
    f->keys[place] = f->keys[last];
    f->blocks[place] = f->blocks[last];
    p->blocks[f->blocks[place]].place = place;
    p->blocks[index].place = NOBODY;
    p->used_bins &= ~((uint32_t)(last == 0) << bin);
}

/* A free block has another size or address. */
static inline void note_key(struct placer *p, uint32_t index)
{
    const struct block *block = &p->blocks[index];
    if (block->bin == bin_of(block->units)) {
        p->bins[block->bin].keys[block->place] = key_of(block);
        return;
    }
    take_out(p, index);
    insert(p, index);
}

/* ---- blocks ---- */

static uint32_t new_block(struct placer *p, struct block with)
{
    uint32_t index = p->unused;
    if (index != NOBODY) {
        p->unused = p->blocks[index].next;
    } else {
        ARRAY_GROW(p->blocks, p->block_count, p->block_cap);
        index = p->block_count++;
    }
    p->blocks[index] = with;
    return index;
}

/* ---- segments ---- */

/* allocator_expandable.c: segment_bytes_for. */
static uint64_t segment_units(uint32_t units)
{
    const uint32_t own = UNITS(10 << 20), rounding = UNITS(2 << 20);
    if (units <= UNITS(LEDGER_SMALL))
        return UNITS(2 << 20);
    if (units < own)
        return UNITS(20 << 20);
    return ((uint64_t)units + rounding - 1) / rounding * rounding;
}

static bool is_enough(struct placer *p, uint64_t more)
{
    p->beyond |= p->reserved + more > p->enough;
    return p->beyond;
}

/* A free block of new memory; NOBODY: beyond what is planned here, or enough. */
static uint32_t grow(struct placer *p, uint32_t units)
{
    const uint64_t more = segment_units(units);
    if (is_enough(p, more) || p->reserved + more > UINT32_MAX)
        return NOBODY;
    const uint32_t block = new_block(
        p, (struct block){(uint32_t)more, (uint32_t)p->reserved, NOBODY, NOBODY, NOBODY, 0});
    p->reserved += more;
    insert(p, block);
    return block;
}

/* Maps pages behind the last one, so many that with what is free before them it is enough. */
static uint32_t grow_range(struct placer *p, uint32_t units)
{
    const uint32_t tail = p->tail;
    const bool joins = tail != NOBODY && is_free(p, tail);
    const uint64_t missing = units - (joins ? p->blocks[tail].units : 0);
    const uint64_t more = (missing + p->page - 1) / p->page * p->page;
    if (is_enough(p, more) || p->reserved + more > p->range || p->range > UINT32_MAX)
        return NOBODY;
    const uint32_t address = (uint32_t)p->reserved;
    p->reserved += more;
    if (joins) {
        p->blocks[tail].units += (uint32_t)more;
        note_key(p, tail);
        return tail;
    }
    const uint32_t block =
        new_block(p, (struct block){(uint32_t)more, address, tail, NOBODY, NOBODY, 0});
    if (tail != NOBODY)
        p->blocks[tail].next = block;
    insert(p, block);
    return p->tail = block;
}

/* ---- alloc and free ---- */

/* allocator.c: spot_choose. The end of a range can still grow: a hole is taken before it. */
static uint32_t prefer_hole(const struct placer *p, uint32_t index)
{
    if (index != p->tail)
        return index;
    const uint32_t hole = find(p, key_of(&p->blocks[index]) + 1);
    const uint64_t reach = p->blocks[index].units + (p->range - p->reserved);
    return hole != NOBODY && p->blocks[hole].units < reach ? hole : index;
}

/* Puts the front of a free block into use. */
static uint32_t hand_out(struct placer *p, uint32_t index, uint32_t units)
{
    struct block *block = &p->blocks[index];
    const uint32_t rest = block->units - units;
    if (rest < p->least_rest) {
        take_out(p, index);
        return index;
    }
    const uint32_t front =
        new_block(p, (struct block){units, block->address, block->prev, index, NOBODY, 0});
    block = &p->blocks[index]; /* blocks may have moved */
    if (block->prev != NOBODY)
        p->blocks[block->prev].next = front;
    block->prev = front;
    block->address += units;
    block->units = rest;
    note_key(p, index);
    return front;
}

static bool place(struct placer *p, uint32_t slot, uint32_t units)
{
    uint32_t block = find(p, (uint64_t)units << 32);
    if (block == NOBODY)
        block = p->expandable ? grow_range(p, units) : grow(p, units);
    else if (p->expandable)
        block = prefer_hole(p, block);
    if (block == NOBODY)
        return false;
    p->slots[slot] = hand_out(p, block, units);
    return true;
}

/* `index` takes in the block behind it, which is in use no more, nor free. */
static void join_next(struct placer *p, uint32_t index)
{
    struct block *block = &p->blocks[index];
    const uint32_t gone = block->next;
    block->units += p->blocks[gone].units;
    block->next = p->blocks[gone].next;
    if (block->next != NOBODY)
        p->blocks[block->next].prev = index;
    if (p->tail == gone)
        p->tail = index;
    p->blocks[gone].next = p->unused;
    p->unused = gone;
}

static void take_back(struct placer *p, uint32_t slot)
{
    const uint32_t index = p->slots[slot];
    p->slots[slot] = NOBODY;
    const struct block *block = &p->blocks[index];
    const uint32_t prev = block->prev, next = block->next;
    assert(!is_free(p, index));
    if (next != NOBODY && is_free(p, next)) {
        take_out(p, next);
        join_next(p, index);
    }
    if (prev != NOBODY && is_free(p, prev)) {
        join_next(p, prev);
        note_key(p, prev);
    } else {
        insert(p, index);
    }
}

/* ---- hashes ---- */

struct hash {
    uint64_t a, b;
};

static void mix(struct hash *h, uint64_t word)
{
    h->a = (h->a ^ word) * 0x9e3779b97f4a7c15U;
    h->a ^= h->a >> 32;
    h->b = (h->b + word) * 0xd6e8feb86659fd93U;
    h->b ^= h->b >> 29;
}

/* A block as it lies, whoever has it. */
static void mix_block(struct hash *h, const struct block *block)
{
    mix(h, (uint64_t)block->address << 32 | block->units);
    mix(h, (uint64_t)(block->prev == NOBODY) << 1 | (block->next == NOBODY));
}

/* Of every block, and of the slot that each in use is for: those of the micro-batch before, from
 * `first` to before `end`, count from its first one. Free ones are in no order. */
static struct hash state_of(const struct placer *p, uint32_t slots, uint32_t first, uint32_t end)
{
    struct hash all = {3, 4};
    uint64_t free_blocks = 0;
    for (uint32_t slot = 0; slot < slots; slot++) {
        if (p->slots[slot] == NOBODY)
            continue;
        const bool recent = slot >= first && slot < end;
        mix(&all, recent ? (uint64_t)(slot - first) << 32 | 1 : (uint64_t)slot << 32);
        mix_block(&all, &p->blocks[p->slots[slot]]);
    }
    for (uint32_t bin = 0; bin < BINS; bin++)
        for (uint32_t i = 0; i < p->bins[bin].count; i++) {
            struct hash one = {5, 6};
            mix_block(&one, &p->blocks[p->bins[bin].blocks[i]]);
            free_blocks += one.a ^ one.b;
        }
    mix(&all, free_blocks);
    mix(&all, p->reserved);
    return all;
}

/* ---- a pool ---- */

static bool run_some(struct placer *p, const struct ledger_list *list, uint32_t from, uint32_t to,
                     uint32_t skipped)
{
    for (uint32_t i = from; i < to; i++) {
        const struct ledger_event event = list->at[i];
        if (event.what & skipped)
            continue;
        if (event.what & LEDGER_FREE)
            take_back(p, event.what >> LEDGER_SHIFT);
        else if (!place(p, event.what >> LEDGER_SHIFT, event.units))
            return false;
    }
    return true;
}

static bool run(struct placer *p, const struct ledger_list *list, uint32_t skipped)
{
    return run_some(p, list, 0, list->count, skipped);
}

static bool run_step(struct placer *p, const struct ledger_pool *pool, uint32_t skipped)
{
    return run(p, &pool->step, skipped);
}

/* A step whose last micro-batch and the one before it are asked what they find. */
static bool run_asking(struct placer *p, const struct ledger_pool *pool, uint32_t skipped)
{
    const struct ledger_mark *at = pool->begins;
    const struct ledger_list *step = &pool->step;
    if (!run_some(p, step, 0, at[1].event, skipped))
        return false;
    const struct hash first = state_of(p, pool->slots, at[0].slot, at[1].slot);
    if (!run_some(p, step, at[1].event, at[2].event, skipped))
        return false;
    const struct hash second = state_of(p, pool->slots, at[1].slot, at[2].slot);
    p->steady = p->steady && first.a == second.a && first.b == second.b;
    p->enough = UINT64_MAX; /* the last one of a longer step may find other memory */
    return run_some(p, step, at[2].event, step->count, skipped);
}

/* allocator_expandable.c: range_new. */
static uint64_t range_units(uint64_t device_bytes, uint32_t page)
{
    const uint64_t bytes = device_bytes + device_bytes / 8,
                   page_bytes = (uint64_t)page * LEDGER_UNIT;
    return (bytes + page_bytes - 1) / page_bytes * page;
}

static void begin(struct placer *p, const struct ledger_pool *pool, bool small,
                  const struct placer_options *options)
{
    p->block_count = p->used_bins = 0;
    for (uint32_t bin = 0; bin < BINS; bin++)
        p->bins[bin].count = 0;
    p->unused = p->tail = NOBODY;
    p->reserved = 0;
    p->enough = options->enough_bytes ? options->enough_bytes / LEDGER_UNIT : UINT64_MAX;
    p->beyond = false;
    p->small = small;
    p->expandable = options->expandable_segments;
    p->least_rest = small || p->expandable ? 1 : UNITS(LEDGER_SMALL) + 1;
    p->page = small ? UNITS(2 << 20) : UNITS(20 << 20);
    p->range = range_units(options->device_bytes, p->page);
    if (p->slot_cap < pool->slots) {
        p->slot_cap = pool->slots;
        p->slots = xrealloc(p->slots, p->slot_cap * sizeof *p->slots);
    }
    p->steady = options->repeats;
    if (options->repeats)
        memset(p->slots, 0xff, pool->slots * sizeof *p->slots); /* NOBODY */
}

/* ---- what was found before ---- */

static void mix_list(struct hash *h, const struct ledger_list *list)
{
    mix(h, list->count);
    for (uint32_t i = 0; i < list->count; i++)
        mix(h, (uint64_t)list->at[i].what << 32 | list->at[i].units);
}

static struct known *known_of(struct placer *p, const struct ledger_pool *pool)
{
    struct hash h = {1, 2};
    mix(&h, (uint64_t)p->small << 1 | p->expandable);
    mix(&h, p->expandable ? p->range : 0);
    if (p->steady) /* is asked */
        for (int i = 0; i < 3; i++)
            mix(&h, (uint64_t)pool->begins[i].event << 32 | pool->begins[i].slot);
    mix_list(&h, &pool->before);
    mix_list(&h, &pool->step);
    struct known *known = &p->known[h.a % KNOWN];
    if (known->key[0] != h.a || known->key[1] != h.b)
        *known = (struct known){.key = {h.a, h.b}, .reserved = UINT64_MAX};
    return known;
}

/* What there is before the first step, that, and another one. */
static bool run_pool(struct placer *p, const struct ledger_pool *pool, bool repeats)
{
    bool (*const step)(struct placer *, const struct ledger_pool *, uint32_t) =
        repeats ? run_asking : run_step;
    return run(p, &pool->before, 0) && step(p, pool, LEDGER_LATER_STEPS) &&
           step(p, pool, LEDGER_FIRST_STEP);
}

bool placer_pool(struct placer *p, const struct ledger_pool *pool, bool small,
                 const struct placer_options *options, uint64_t *reserved_bytes)
{
    begin(p, pool, small, options);
    struct known *known = known_of(p, pool);
    const uint64_t enough = p->enough;
    *reserved_bytes = UINT64_MAX;
    if (known->reserved == UINT64_MAX && enough <= known->beyond)
        return true;
    if (known->reserved == UINT64_MAX) {
        const bool placed = run_pool(p, pool, options->repeats);
        if (p->beyond)
            known->beyond = enough;
        if (!placed)
            return p->beyond;
        known->reserved = p->reserved;
        known->steady = p->steady;
    }
    p->steady = known->steady;
    if (known->reserved <= enough)
        *reserved_bytes = known->reserved * LEDGER_UNIT;
    return true;
}

bool placer_is_steady(const struct placer *p)
{
    return p->steady;
}

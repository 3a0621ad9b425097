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
    uint32_t is_free;
};

/* Free blocks by size, then address: what best fit asks for. */
struct free_blocks {
    struct free_entry {
        uint64_t key; /* units << 32 | address, ascending */
        uint32_t block;
    } * at; /* (count) */
    uint32_t count, cap;
};

/* What was found before, by 128 bits of what was asked. */
struct known {
    uint64_t key[2]; /* 0, 0: nothing */
    uint64_t reserved;
};

enum { KNOWN = 1 << 12 };

struct placer {
    struct block *blocks; /* (block_count) */
    uint32_t block_count, block_cap;
    uint32_t unused; /* linked by next */
    uint32_t *slots; /* (slot_cap) the block that each slot has */
    uint32_t slot_cap;
    struct free_blocks free;
    /* of the pool */
    bool small, expandable;
    uint32_t least_rest; /* a smaller rest is not split off */
    uint32_t page, tail; /* of expandable segments: units; the block at the end of what is mapped */
    uint64_t range;      /* units; no more can be mapped */
    uint64_t reserved;
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
    free(p->free.at);
    free(p->known);
    free(p);
}

/* ---- free blocks ---- */

static inline uint64_t key_of(const struct block *b)
{
    return (uint64_t)b->units << 32 | b->address;
}

/* How many keys are below. Without branches, which would be guessed wrong. */
static inline uint32_t rank_of(const struct free_blocks *f, uint64_t key)
{
    const struct free_entry *base = f->at;
    uint32_t n = f->count;
    if (n == 0)
        return 0;
    while (n > 1) {
        const uint32_t half = n / 2;
        base += half & (0U - (uint32_t)(base[half - 1].key < key));
        n -= half;
    }
    return (uint32_t)(base - f->at) + (base->key < key);
}

static void insert(struct free_blocks *f, uint64_t key, uint32_t block)
{
    ARRAY_GROW(f->at, f->count, f->cap);
    struct free_entry *at = f->at + rank_of(f, key), *end = f->at + f->count++;
    memmove(at + 1, at, (size_t)(end - at) * sizeof *at);
    *at = (struct free_entry){key, block};
}

static void remove_at(struct free_blocks *f, uint32_t index)
{
    struct free_entry *at = f->at + index, *end = f->at + f->count--;
    memmove(at, at + 1, (size_t)(end - at - 1) * sizeof *at);
}

/* The key of the block at a place has changed: it moves to where that belongs. */
static void change_key(struct free_blocks *f, uint32_t from, uint64_t key)
{
    const uint32_t block = f->at[from].block;
    uint32_t to = rank_of(f, key);
    if (to > from)
        to--; /* it is below itself */
    struct free_entry *at = f->at;
    if (to < from)
        memmove(at + to + 1, at + to, (from - to) * sizeof *at);
    else if (to > from)
        memmove(at + from, at + from + 1, (to - from) * sizeof *at);
    at[to] = (struct free_entry){key, block};
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

/* A free block of new memory, in no array yet; NOBODY: beyond what is planned here. */
static uint32_t grow(struct placer *p, uint32_t units)
{
    const uint64_t more = segment_units(units);
    if (p->reserved + more > UINT32_MAX)
        return NOBODY;
    const uint32_t address = (uint32_t)p->reserved;
    p->reserved += more;
    return new_block(p, (struct block){(uint32_t)more, address, NOBODY, NOBODY, 1});
}

/* Maps pages behind the last one, so many that with what is free before them it is enough. */
static uint32_t grow_range(struct placer *p, uint32_t units)
{
    const uint32_t tail = p->tail;
    const bool joins = tail != NOBODY && p->blocks[tail].is_free;
    const uint64_t missing = units - (joins ? p->blocks[tail].units : 0);
    const uint64_t more = (missing + p->page - 1) / p->page * p->page;
    if (p->reserved + more > p->range || p->range > UINT32_MAX)
        return NOBODY;
    const uint32_t address = (uint32_t)p->reserved;
    p->reserved += more;
    if (joins) {
        remove_at(&p->free, rank_of(&p->free, key_of(&p->blocks[tail])));
        p->blocks[tail].units += (uint32_t)more;
        return tail;
    }
    const uint32_t block = new_block(p, (struct block){(uint32_t)more, address, tail, NOBODY, 1});
    if (tail != NOBODY)
        p->blocks[tail].next = block;
    return p->tail = block;
}

/* ---- alloc and free ---- */

/* allocator.c: spot_choose. The end of a range can still grow: a hole is taken before it. */
static uint32_t prefer_hole(const struct placer *p, uint32_t at)
{
    const struct free_blocks *f = &p->free;
    if (f->at[at].block != p->tail || at + 1 == f->count)
        return at;
    const uint64_t reach = p->blocks[p->tail].units + (p->range - p->reserved);
    return p->blocks[f->at[at + 1].block].units < reach ? at + 1 : at;
}

/* Puts the front of a free block, at place `at` of the array (NOBODY: in none), into use. */
static uint32_t hand_out(struct placer *p, uint32_t index, uint32_t at, uint32_t units)
{
    struct block *block = &p->blocks[index];
    const uint32_t rest = block->units - units;
    if (rest < p->least_rest) {
        if (at != NOBODY)
            remove_at(&p->free, at);
        block->is_free = 0;
        return index;
    }
    const uint32_t front =
        new_block(p, (struct block){units, block->address, block->prev, index, 0});
    block = &p->blocks[index]; /* blocks may have moved */
    if (block->prev != NOBODY)
        p->blocks[block->prev].next = front;
    block->prev = front;
    block->address += units;
    block->units = rest;
    if (at != NOBODY)
        change_key(&p->free, at, key_of(block));
    else
        insert(&p->free, key_of(block), index);
    return front;
}

static bool place(struct placer *p, uint32_t slot, uint32_t units)
{
    uint32_t at = rank_of(&p->free, (uint64_t)units << 32), block;
    if (at < p->free.count) {
        if (p->expandable)
            at = prefer_hole(p, at);
        block = p->free.at[at].block;
    } else {
        at = NOBODY;
        block = p->expandable ? grow_range(p, units) : grow(p, units);
        if (block == NOBODY)
            return false;
    }
    p->slots[slot] = hand_out(p, block, at, units);
    return true;
}

/* `index` takes in its free neighbour behind it, which is in no array. */
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
    uint32_t index = p->slots[slot], at = NOBODY;
    struct block *block = &p->blocks[index];
    assert(!block->is_free);
    block->is_free = 1;
    if (block->next != NOBODY && p->blocks[block->next].is_free) {
        at = rank_of(&p->free, key_of(&p->blocks[block->next]));
        join_next(p, index);
        p->free.at[at].block = index;
    }
    if (block->prev != NOBODY && p->blocks[block->prev].is_free) {
        if (at != NOBODY)
            remove_at(&p->free, at);
        index = block->prev;
        block = &p->blocks[index];
        at = rank_of(&p->free, key_of(block));
        join_next(p, index);
    }
    if (at != NOBODY)
        change_key(&p->free, at, key_of(block));
    else
        insert(&p->free, key_of(block), index);
}

/* ---- a pool ---- */

static bool run(struct placer *p, const struct ledger_list *list, uint32_t skipped)
{
    for (uint32_t i = 0; i < list->count; i++) {
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
    p->block_count = p->free.count = 0;
    p->unused = p->tail = NOBODY;
    p->reserved = 0;
    p->small = small;
    p->expandable = options->expandable_segments;
    p->least_rest = small || p->expandable ? 1 : UNITS(LEDGER_SMALL) + 1;
    p->page = small ? UNITS(2 << 20) : UNITS(20 << 20);
    p->range = range_units(options->device_bytes, p->page);
    if (p->slot_cap < pool->slots) {
        p->slot_cap = pool->slots;
        p->slots = xrealloc(p->slots, p->slot_cap * sizeof *p->slots);
    }
}

/* ---- what was found before ---- */

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
    mix_list(&h, &pool->before);
    mix_list(&h, &pool->step);
    struct known *known = &p->known[h.a % KNOWN];
    if (known->key[0] != h.a || known->key[1] != h.b)
        *known = (struct known){.key = {h.a, h.b}, .reserved = UINT64_MAX};
    return known;
}

bool placer_pool(struct placer *p, const struct ledger_pool *pool, bool small,
                 const struct placer_options *options, uint64_t *reserved_bytes)
{
    begin(p, pool, small, options);
    struct known *known = known_of(p, pool);
    if (known->reserved == UINT64_MAX) {
        if (!run(p, &pool->before, 0) || !run(p, &pool->step, LEDGER_LATER_STEPS) ||
            !run(p, &pool->step, LEDGER_FIRST_STEP))
            return false;
        known->reserved = p->reserved;
    }
    *reserved_bytes = known->reserved * LEDGER_UNIT;
    return true;
}

/* triples.c - see triples.h: a table of slots, of which at least half are free. */
#include "compile/triples.h"

#include "base/arena.h"

#include <stdlib.h>
#include <string.h>

enum { SLOTS_FIRST = 64 };

static uint32_t mixed(struct triple t)
{
    uint64_t x = t.a + 0x9e3779b97f4a7c15U * (t.b + 0x9e3779b97f4a7c15U * t.c);
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93U;
    return (uint32_t)(x >> 32);
}

/* Where a triple is, or would be. */
static uint32_t slot_of(const struct triples *t, struct triple triple)
{
    uint32_t slot = mixed(triple) & (t->slot_count - 1);
    for (; t->slots[slot]; slot = (slot + 1) & (t->slot_count - 1)) {
        const struct triple *there = &t->of[t->slots[slot] - 1];
        if (there->a == triple.a && there->b == triple.b && there->c == triple.c)
            break;
    }
    return slot;
}

static void grow(struct triples *t)
{
    free(t->slots);
    t->slot_count = t->slot_count ? 2 * t->slot_count : SLOTS_FIRST;
    t->slots = xcalloc(t->slot_count, sizeof *t->slots);
    for (uint32_t i = 0; i < t->count; i++)
        t->slots[slot_of(t, t->of[i])] = i + 1;
}

uint32_t triples_number(struct triples *t, struct triple triple, bool *is_new)
{
    if (2 * t->count >= t->slot_count)
        grow(t);
    const uint32_t slot = slot_of(t, triple);
    const bool found = t->slots[slot] != 0;
    if (!found) {
        ARRAY_GROW(t->of, t->count, t->cap);
        t->of[t->count++] = triple;
        t->slots[slot] = t->count;
    }
    if (is_new)
        *is_new = !found;
    return t->slots[slot];
}

void triples_free(struct triples *t)
{
    free(t->of);
    free(t->slots);
    *t = (struct triples){.count = 0};
}

/* siblings.c - see siblings.h. */
#include "search/siblings.h"

#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

struct sibling {
    struct strategy strategy; /* until the update */
    uint32_t stream_class;
    bool known;
    double update_s;
};

struct siblings {
    const struct candidates *candidates;
    struct sibling *all; /* (count) */
    uint32_t count, cap;
    uint32_t *slots; /* (slot_count) indices into all; NONE: free */
    uint32_t slot_count;
};

#define NONE UINT32_MAX

static void clear_slots(struct siblings *s, uint32_t count)
{
    s->slot_count = count;
    s->slots = xrealloc(s->slots, count * sizeof *s->slots);
    memset(s->slots, 0xff, count * sizeof *s->slots);
}

struct siblings *siblings_new(const struct candidates *candidates)
{
    struct siblings *s = xmalloc(sizeof *s);
    *s = (struct siblings){.candidates = candidates};
    clear_slots(s, 1024);
    return s;
}

void siblings_free(struct siblings *s)
{
    if (!s)
        return;
    free(s->all);
    free(s->slots);
    free(s);
}

static uint64_t hash_of(const struct sibling *sibling)
{
    struct hash hash;
    hash_begin(&hash);
    hash_add(&hash, &sibling->strategy, sizeof sibling->strategy);
    hash_add(&hash, &sibling->stream_class, sizeof sibling->stream_class);
    return hash_end(&hash);
}

/* By bytes: equal ones may be told apart, which costs time and nothing else. */
static bool is_same(const struct sibling *a, const struct sibling *b)
{
    return a->stream_class == b->stream_class &&
           memcmp((const unsigned char *)&a->strategy, (const unsigned char *)&b->strategy,
                  sizeof a->strategy) == 0;
}

/* Where it is, or has its place. */
static uint32_t *slot_of(const struct siblings *s, const struct sibling *sibling)
{
    uint32_t slot = (uint32_t)hash_of(sibling) & (s->slot_count - 1);
    while (s->slots[slot] != NONE && !is_same(&s->all[s->slots[slot]], sibling))
        slot = (slot + 1) & (s->slot_count - 1);
    return &s->slots[slot];
}

static void grow(struct siblings *s)
{
    clear_slots(s, 2 * s->slot_count);
    for (uint32_t i = 0; i < s->count; i++)
        *slot_of(s, &s->all[i]) = i;
}

uint32_t siblings_of(struct siblings *s, uint32_t candidate, uint64_t point)
{
    const struct candidate *at = &s->candidates->at[candidate];
    struct job job;
    bool expandable;
    if (candidates_job(s->candidates, at->grid, point, &job, &expandable, NULL) != ERR_OK)
        return NONE; /* it could be made before, so this does not happen */
    struct sibling sibling;
    memset(&sibling, 0, sizeof sibling);
    memcpy(&sibling.strategy, &job.strategy, sizeof sibling.strategy);
    sibling.stream_class = at->stream_class;
    strategy_unify(&sibling.strategy, s->candidates->classes[at->stream_class]->blocks_follow);
    strategy_until_update(&sibling.strategy);
    if (2 * (s->count + 1) > s->slot_count)
        grow(s);
    uint32_t *slot = slot_of(s, &sibling);
    if (*slot == NONE) {
        *slot = s->count;
        ARRAY_GROW(s->all, s->count, s->cap);
        s->all[s->count++] = sibling;
    }
    return *slot;
}

void siblings_note(struct siblings *s, uint32_t of, double update_s)
{
    if (of == NONE)
        return;
    s->all[of].known = true;
    s->all[of].update_s = update_s;
}

double siblings_floor(const struct siblings *s, uint32_t of, uint32_t candidate)
{
    if (of == NONE || !s->all[of].known)
        return 0;
    return frame_floor_behind(s->candidates->frames[s->candidates->at[candidate].frame],
                              s->all[of].update_s);
}

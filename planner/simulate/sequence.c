/* sequence.c - see sequence.h. */
#include "simulate/sequence.h"

#include <stdlib.h>
#include <string.h>

static const float all_of_it[RESOURCE_COUNT] = {1, 1, 1, 1, 1, 1};

static uint64_t mix(uint64_t hash, const void *word, size_t bytes)
{
    uint64_t bits = 0;
    memcpy(&bits, word, bytes);
    hash = (hash ^ bits) * 0x9e3779b97f4a7c15U; /* Knuth's multiplicative hashing */
    return hash ^ hash >> 32;
}

uint64_t cost_signature(const struct cost *cost)
{
    uint64_t hash = mix((uint64_t)cost->class << 1 | cost->first, &cost->device_s, 8);
    hash = mix(hash, &cost->host_s, 8);
    hash = mix(hash, &cost->slowdown, 4);
    for (int k = 0; k < RESOURCE_COUNT; k++)
        hash = mix(hash, &cost->use[k], sizeof cost->use[k]);
    return hash;
}

/* A polynomial's hash, of which that of any part follows from those of its ends. */
static void fill_sums(struct sequence *s)
{
    const uint64_t base = 0xd6e8feb86659fd93U;
    s->sums[0] = 0;
    s->powers[0] = 1;
    for (uint32_t i = 0; i < s->count; i++) {
        s->sums[i + 1] = s->sums[i] * base + cost_signature(&s->cost[i]);
        s->powers[i + 1] = s->powers[i] * base;
    }
}

static struct sequence *sequence_for(uint32_t count, uint32_t parts)
{
    struct sequence *s = xmalloc(sizeof *s);
    *s = (struct sequence){
        .cost = xmalloc((count + 1) * sizeof *s->cost),
        .host = xmalloc((count + 1) * sizeof *s->host),
        .sums = xmalloc((count + 1) * sizeof *s->sums),
        .powers = xmalloc((count + 1) * sizeof *s->powers),
        .count = count,
        .parts = parts,
    };
    return s;
}

/* The rest, of what each costs. */
static struct sequence *filled(struct sequence *s)
{
    s->host[0] = 0;
    for (uint32_t i = 0; i < s->count; i++)
        s->host[i + 1] = s->host[i] + s->cost[i].host_s;
    fill_sums(s);
    sequence_begin(s, all_of_it);
    return s;
}

struct sequence *sequence_of_costs(const struct cost *const *costs, uint32_t count)
{
    struct sequence *s = sequence_for(count, SEQUENCE_PARTS);
    for (uint32_t i = 0; i < count; i++)
        s->cost[i] = *costs[i];
    return filled(s);
}

struct sequence *sequence_new(const struct kernel_table *table, const uint32_t *kernels,
                              uint32_t count, uint32_t forward_count, const struct profile *profile,
                              double slower)
{
    struct sequence *s = sequence_for(count, 1);
    struct load load = {0};
    for (uint32_t i = 0; i < count; i++)
        load_add(&load, &table->kernels[kernels[i]], profile, 1);
    const struct profile used = profile_under(profile, &load);
    for (uint32_t i = 0; i < count; i++) {
        stream_kernel_cost(&table->kernels[kernels[i]], i >= forward_count, &used, &s->cost[i]);
        if (cost_class_is_arithmetic((enum cost_class)s->cost[i].class))
            s->cost[i].device_s *= slower;
    }
    return filled(s);
}

void sequence_free(struct sequence *s)
{
    if (!s)
        return;
    for (uint32_t i = 0; i < s->pace_count; i++)
        free(s->paces[i].begin);
    free(s->cost);
    free(s->host);
    free(s->sums);
    free(s->powers);
    free(s);
}

static bool is_alike(const float *a, const float *b)
{
    for (int k = 0; k < RESOURCE_COUNT; k++)
        if (a[k] != b[k])
            return false;
    return true;
}

static const double *set_pace(const struct sequence *s, struct pace *pace, const float *there)
{
    memcpy(pace->there, there, sizeof pace->there);
    double of_class[SEQUENCE_PARTS] = {0};
    pace->begin[0] = 0;
    for (uint32_t i = 0; s->parts == 1 && i < s->count; i++)
        pace->begin[i + 1] = pace->begin[i] + s->cost[i].device_s / pace_of(&s->cost[i], there);
    for (uint32_t i = 0; s->parts > 1 && i <= s->count; i++) {
        memcpy(pace->begin + (size_t)SEQUENCE_PARTS * i, of_class, sizeof of_class);
        if (i < s->count)
            of_class[s->cost[i].class] += s->cost[i].device_s / pace_of(&s->cost[i], there);
    }
    return pace->begin;
}

const double *sequence_begin(struct sequence *s, const float there[RESOURCE_COUNT])
{
    for (uint32_t i = 0; i < s->pace_count; i++)
        if (is_alike(s->paces[i].there, there))
            return s->paces[i].begin;
    if (s->pace_count == SEQUENCE_PACES) { /* the first one is for ever */
        s->oldest = s->oldest % (SEQUENCE_PACES - 1) + 1;
        return set_pace(s, &s->paces[s->oldest], there);
    }
    struct pace *pace = &s->paces[s->pace_count++];
    pace->begin = xmalloc((s->count + 1) * s->parts * sizeof *pace->begin);
    return set_pace(s, pace, there);
}

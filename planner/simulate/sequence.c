/* sequence.c - see sequence.h. */
#include "simulate/sequence.h"

#include <stdlib.h>
#include <string.h>

static const float all_of_it[RESOURCE_COUNT] = {1, 1, 1, 1, 1, 1};

struct sequence *sequence_new(const struct kernel_table *table, const uint32_t *kernels,
                              uint32_t count, uint32_t forward_count, const struct profile *profile,
                              double slower)
{
    struct sequence *s = xmalloc(sizeof *s);
    *s = (struct sequence){
        .cost = xmalloc((count + 1) * sizeof *s->cost),
        .host = xmalloc((count + 1) * sizeof *s->host),
        .count = count,
    };
    s->host[0] = 0;
    struct load load = {0};
    for (uint32_t i = 0; i < count; i++)
        load_add(&load, &table->kernels[kernels[i]], profile, 1);
    const struct profile used = profile_under(profile, &load);
    for (uint32_t i = 0; i < count; i++) {
        stream_kernel_cost(&table->kernels[kernels[i]], i >= forward_count, &used, &s->cost[i]);
        if (cost_class_is_arithmetic((enum cost_class)s->cost[i].class))
            s->cost[i].device_s *= slower;
        s->host[i + 1] = s->host[i] + s->cost[i].host_s;
    }
    sequence_begin(s, all_of_it);
    return s;
}

void sequence_free(struct sequence *s)
{
    if (!s)
        return;
    for (uint32_t i = 0; i < s->pace_count; i++)
        free(s->paces[i].begin);
    free(s->cost);
    free(s->host);
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
    pace->begin[0] = 0;
    for (uint32_t i = 0; i < s->count; i++)
        pace->begin[i + 1] = pace->begin[i] + s->cost[i].device_s / pace_of(&s->cost[i], there);
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
    pace->begin = xmalloc((s->count + 1) * sizeof *pace->begin);
    return set_pace(s, pace, there);
}

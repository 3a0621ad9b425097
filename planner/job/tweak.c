/* tweak.c - see tweak.h. */
#include "job/tweak.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEP 0.1

static struct tweak *add(struct tweaks *t, double *first, double most, double spread,
                         const char *source, const char *fmt, ...)
    __attribute__((format(printf, 6, 7)));

/* NULL: the number is 0, which a tenth more of does not change. */
static struct tweak *add(struct tweaks *t, double *first, double most, double spread,
                         const char *source, const char *fmt, ...)
{
    if (*first == 0)
        return NULL;
    ARRAY_GROW(t->of, t->count, t->cap);
    struct tweak *tweak = &t->of[t->count++];
    *tweak = (struct tweak){.at = xmalloc(sizeof *tweak->at), .count = 1, .most = most};
    tweak->at[0] = first;
    tweak->number = (struct explained_number){.value = *first, .spread = spread, .source = source};
    va_list args;
    va_start(args, fmt);
    vsnprintf(tweak->number.name, sizeof tweak->number.name, fmt, args);
    va_end(args);
    return tweak;
}

static void add_attention(struct tweaks *t, struct profile_attention *row)
{
    const struct {
        const char *name;
        double *at, most;
    } numbers[] = {{"forward", &row->forward, 1},
                   {"backward", &row->backward, 1},
                   {"start_tokens", &row->start_tokens, INFINITY},
                   {"backward_tokens", &row->backward_tokens, INFINITY},
                   {"draw", &row->draw, INFINITY}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        add(t, numbers[i].at, numbers[i].most, row->spread, row->source, "attention.%s-%u%s.%s",
            attention_name(row->kernel), row->head, row->deterministic ? "-deterministic" : "",
            numbers[i].name);
}

static void add_kernel(struct tweaks *t, struct profile_kernel *row)
{
    const struct {
        const char *name;
        double *at;
    } numbers[] = {{"latency_s", &row->latency_s},
                   {"seconds_per_flop", &row->seconds_per_flop},
                   {"seconds_per_byte", &row->seconds_per_byte}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        add(t, numbers[i].at, INFINITY, row->spread, row->source, "kernels.%s%s%s.%s",
            work_name(row->work), row->dtype == PROFILE_ANY ? "" : "-",
            row->dtype == PROFILE_ANY ? "" : dtype_brief((enum dtype)row->dtype), numbers[i].name);
}

static void *copy_of(const void *from, size_t size)
{
    void *copy = xmalloc(size + 1);
    if (size)
        memcpy(copy, from, size);
    return copy;
}

void tweaks_init(struct tweaks *t, const struct profile *profile)
{
    *t = (struct tweaks){.profile = *profile};
    struct profile *p = &t->profile;
    p->attentions = copy_of(p->attentions, p->attention_count * sizeof *p->attentions);
    p->kernels = copy_of(p->kernels, p->kernel_count * sizeof *p->kernels);
    p->points = copy_of(p->points, p->point_count * sizeof *p->points);
    for (int key = 0; key < PROFILE_KEYS; key++) {
        struct quantity *q = &p->of[key];
        add(t, &q->value, profile_key_most((enum profile_key)key), q->spread, q->source, "%s",
            profile_key_name((enum profile_key)key));
    }
    for (uint32_t i = 0; i < p->attention_count; i++)
        add_attention(t, &p->attentions[i]);
    for (uint32_t i = 0; i < p->kernel_count; i++)
        add_kernel(t, &p->kernels[i]);
    struct tweak *points = p->point_count ? add(t, &p->points[0].seconds, INFINITY, 0,
                                                "measured collectives, all of them", "collectives")
                                          : NULL;
    if (points) {
        free(points->at);
        points->count = p->point_count;
        points->at = xmalloc(points->count * sizeof *points->at);
        for (uint32_t i = 0; i < p->point_count; i++)
            points->at[i] = &p->points[i].seconds;
    }
    for (uint32_t i = 0; i < t->count; i++)
        t->of[i].was = xmalloc(t->of[i].count * sizeof(double));
}

double tweak_apply(struct tweak *tweak)
{
    const double change = *tweak->at[0] * (1 + STEP) <= tweak->most ? STEP : -STEP;
    for (size_t i = 0; i < tweak->count; i++) {
        tweak->was[i] = *tweak->at[i];
        *tweak->at[i] *= 1 + change;
    }
    return change;
}

void tweak_undo(struct tweak *tweak)
{
    for (size_t i = 0; i < tweak->count; i++)
        *tweak->at[i] = tweak->was[i];
}

void tweaks_free(struct tweaks *t)
{
    free(t->profile.attentions);
    free(t->profile.kernels);
    free(t->profile.points);
    for (uint32_t i = 0; i < t->count; i++) {
        free(t->of[i].at);
        free(t->of[i].was);
    }
    free(t->of);
    *t = (struct tweaks){.count = 0};
}

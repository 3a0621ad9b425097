/* kept_bounds.c - see kept_bounds.h. */
#include "search/kept_bounds.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Classes, and choices of how many of each, that are looked through; segments are of a grain
 * (allocator.h). */
enum { CLASSES_MOST = 8, CHOICES_MOST = 1 << 15, GRAIN = 2 << 20 };

/* Sums of the same times in another order. */
#define ROUNDING 1e-9

/* ---- frames ---- */

struct framing {
    const struct stream_class *stream_class;
    struct strategy strategy;
    const char *const *texts;
    const char *all;
    uint32_t units;
    struct evaluator *const *evaluators;
    struct frame **frames; /* (units + 2): each alone, none, all */
};

static void frame_one(void *context, uint32_t i, uint32_t thread)
{
    const struct framing *f = context;
    struct strategy strategy = f->strategy;
    strategy.keep_units = i < f->units ? f->texts[i] : i == f->units ? NULL : f->all;
    (void)frame_new(evaluator_framer(f->evaluators[thread]), f->stream_class, &strategy,
                    &f->frames[i], NULL);
}

/* Bytes in the gaps: while the stream is in one, and between it and the next. */
static uint64_t bytes_in(const struct kept_bounds *b, const struct frame *frame, uint32_t gap)
{
    const struct class_gap *own = &b->stream_class->gaps[gap / 2];
    return gap % 2 ? frame->after[gap / 2] + own->live : frame->during[gap / 2] + own->peak;
}

static struct busy saved_of(const struct busy *none, const struct busy *kept)
{
    struct busy saved = *none;
    busy_add_all(&saved, kept, -1);
    return saved;
}

/* False: it adds less than nothing somewhere. */
static bool fill_unit(struct kept_bounds *b, const struct frame *none, const struct frame *kept,
                      uint32_t unit)
{
    bool adds = true;
    uint64_t *more = b->more + (size_t)unit * b->gaps;
    for (uint32_t g = 0; g < b->gaps; g++) {
        const uint64_t with = bytes_in(b, kept, g);
        adds = adds && with >= b->none[g];
        more[g] = with >= b->none[g] ? with - b->none[g] : 0;
        b->most[unit] = more[g] > b->most[unit] ? more[g] : b->most[unit];
    }
    b->saved[unit] = saved_of(&none->busy, &kept->busy);
    b->saved_middle[unit] = saved_of(&none->middle, &kept->middle);
    return adds;
}

static double all_of(const struct busy *busy)
{
    double sum = busy->host_s;
    for (uint32_t lane = 0; lane < LANES_MOST; lane++)
        sum += busy->lane_s[lane];
    return sum;
}

static bool saves_as(const struct busy *a, const struct busy *b)
{
    const double tolerance = 1e-6 * (all_of(a) + all_of(b)) + 1e-12;
    bool same = fabs(a->host_s - b->host_s) <= tolerance &&
                fabs(a->joint_s - b->joint_s) <= tolerance &&
                fabs(a->rest_used_s - b->rest_used_s) <= tolerance;
    for (uint32_t lane = 0; lane < LANES_MOST; lane++)
        same = same && fabs(a->lane_s[lane] - b->lane_s[lane]) <= tolerance;
    return same;
}

static void find_classes(struct kept_bounds *b)
{
    uint32_t firsts[CLASSES_MOST] = {0};
    for (uint32_t u = 0; u < b->units; u++) {
        uint32_t kind = 0;
        while (kind < b->class_count && !saves_as(&b->saved[firsts[kind]], &b->saved[u]))
            kind++;
        if (kind == b->class_count && kind < CLASSES_MOST)
            firsts[b->class_count++] = u;
        if (kind == CLASSES_MOST) { /* too many kinds to count each */
            b->adds_up = false;
            return;
        }
        b->class_of[u] = kind;
    }
}

/* Whether keeping all is what keeping each comes to, or more. */
static bool adds_up(const struct kept_bounds *b, const struct frame *all)
{
    struct frame sum = b->frame;
    for (uint32_t u = 0; u < b->units; u++) {
        busy_add_all(&sum.busy, &b->saved[u], -1);
        busy_add_all(&sum.middle, &b->saved_middle[u], -1);
    }
    for (uint32_t g = 0; g < b->gaps; g++) {
        uint64_t bytes = b->none[g];
        for (uint32_t u = 0; u < b->units; u++)
            bytes += b->more[(size_t)u * b->gaps + g];
        if (bytes > bytes_in(b, all, g))
            return false;
    }
    return frame_step_floor(&sum, b->stream_class, b->accumulate) <= b->all_s * (1 + ROUNDING);
}

static void fill(struct kept_bounds *b, struct frame *const *frames)
{
    const struct frame *none = frames[b->units], *all = frames[b->units + 1];
    for (uint32_t g = 0; g < b->gaps; g++)
        b->none[g] = bytes_in(b, none, g);
    b->apart = none->apart < all->apart ? none->apart : all->apart;
    b->beside = (none->beside < all->beside ? none->beside : all->beside) + none->outside;
    b->frame = *none;
    b->frame.during = b->frame.after = NULL;
    b->frame.idle_s = fmin(none->idle_s, all->idle_s);
    b->frame.middle_idle_s = fmin(none->middle_idle_s, all->middle_idle_s);
    b->all_s = frame_step_floor(all, b->stream_class, b->accumulate);
    b->adds_up = true;
    for (uint32_t u = 0; u < b->units; u++)
        b->adds_up = fill_unit(b, none, frames[u], u) && b->adds_up;
    b->adds_up = b->adds_up && adds_up(b, all);
    if (b->adds_up)
        find_classes(b);
}

bool kept_bounds_new(const struct stream_class *c, const struct strategy *strategy,
                     const char *const *texts, uint32_t units, const char *all,
                     struct evaluator *const *evaluators, struct pool *pool,
                     struct kept_bounds *out)
{
    struct framing f = {c, *strategy, texts, all, units, evaluators, NULL};
    bool made = true;
    /* as late as can be: then it bounds all that fetch sooner (frame.h) */
    f.strategy.forward_prefetch = f.strategy.backward_prefetch = 0;
    f.frames = xcalloc(units + 2, sizeof(struct frame *));
    pool_run(pool, units + 2, frame_one, &f);
    for (uint32_t i = 0; i < units + 2; i++)
        made = made && f.frames[i];
    *out = (struct kept_bounds){.stream_class = c,
                                .units = units,
                                .gaps = 2 * c->gap_count,
                                .accumulate = strategy->accumulate};
    if (made) {
        out->none = xcalloc(out->gaps + 1, sizeof *out->none);
        out->more = xcalloc((size_t)units * out->gaps + 1, sizeof *out->more);
        out->most = xcalloc(units + 1, sizeof *out->most);
        out->saved = xcalloc(units + 1, sizeof *out->saved);
        out->saved_middle = xcalloc(units + 1, sizeof *out->saved_middle);
        out->class_of = xcalloc(units + 1, sizeof *out->class_of);
        fill(out, f.frames);
    }
    for (uint32_t i = 0; i < units + 2; i++)
        frame_free(f.frames[i]);
    free(f.frames);
    return made;
}

void kept_bounds_free(struct kept_bounds *b)
{
    free(b->none);
    free(b->more);
    free(b->most);
    free(b->saved);
    free(b->saved_middle);
    free(b->class_of);
    *b = (struct kept_bounds){.units = 0};
}

/* ---- of a choice ---- */

static uint64_t device_floor(const struct kept_bounds *b, uint64_t most)
{
    most = (most > b->apart ? most : b->apart) + b->stream_class->workspace;
    return b->beside + (most + GRAIN - 1) / GRAIN * GRAIN;
}

/* Asked of very many choices: gaps in parts, whose sums stay in the cache from unit to unit. */
uint64_t kept_bounds_bytes(const struct kept_bounds *b, const bool *kept)
{
    enum { PART = 256 };
    uint64_t most = 0, bytes[PART];
    for (uint32_t from = 0; from < b->gaps; from += PART) {
        const uint32_t count = b->gaps - from < PART ? b->gaps - from : PART;
        memcpy(bytes, b->none + from, count * sizeof *bytes);
        for (uint32_t u = 0; u < b->units && b->adds_up; u++) {
            const uint64_t *more = b->more + (size_t)u * b->gaps + from;
            for (uint32_t g = 0; g < count && kept[u]; g++)
                bytes[g] += more[g];
        }
        for (uint32_t g = 0; g < count; g++)
            most = bytes[g] > most ? bytes[g] : most;
    }
    return device_floor(b, most);
}

/* Where the units that are kept save so much of keeping none; keeping all is no slower. */
static double step_floor(const struct kept_bounds *b, const struct busy *saved,
                         const struct busy *saved_middle)
{
    struct frame frame = b->frame;
    busy_add_all(&frame.busy, saved, -1);
    busy_add_all(&frame.middle, saved_middle, -1);
    return fmax(b->all_s, frame_step_floor(&frame, b->stream_class, b->accumulate)) *
           (1 - ROUNDING);
}

double kept_bounds_step(const struct kept_bounds *b, const bool *gathered)
{
    struct busy saved = {.host_s = 0}, middle = {.host_s = 0};
    if (!b->adds_up)
        return b->all_s;
    for (uint32_t u = 0; u < b->units; u++)
        if (!gathered[u]) {
            busy_add_all(&saved, &b->saved[u], 1);
            busy_add_all(&middle, &b->saved_middle[u], 1);
        }
    return step_floor(b, &saved, &middle);
}

/* ---- over how many of each kind ---- */

struct counting {
    const struct kept_bounds *b;
    uint64_t limit;
    uint64_t *least[CLASSES_MOST]; /* (size + 1, gaps) what so many of a kind add at least */
    uint32_t sizes[CLASSES_MOST], first[CLASSES_MOST]; /* (classes) */
    double best_s;
};

static int by_bytes(const void *x, const void *y)
{
    const uint64_t a = *(const uint64_t *)x, b = *(const uint64_t *)y;
    return a < b ? -1 : a > b;
}

/* Of so many of a kind those that add least in a gap, which need not be the same in each. */
static void fill_least(struct counting *n, uint32_t kind)
{
    const struct kept_bounds *b = n->b;
    uint64_t *adds = xmalloc((n->sizes[kind] + 1) * sizeof *adds);
    uint64_t *least = xcalloc((n->sizes[kind] + 1) * (size_t)b->gaps, sizeof *least);
    for (uint32_t g = 0; g < b->gaps; g++) {
        uint32_t count = 0;
        for (uint32_t u = 0; u < b->units; u++)
            if (b->class_of[u] == kind)
                adds[count++] = b->more[(size_t)u * b->gaps + g];
        qsort(adds, count, sizeof *adds, by_bytes);
        for (uint32_t k = 0; k < count; k++)
            least[(size_t)(k + 1) * b->gaps + g] = least[(size_t)k * b->gaps + g] + adds[k];
    }
    n->least[kind] = least;
    free(adds);
}

static uint64_t bytes_of_counts(const struct counting *n, const uint32_t *counts)
{
    uint64_t most = 0;
    for (uint32_t g = 0; g < n->b->gaps; g++) {
        uint64_t bytes = n->b->none[g];
        for (uint32_t kind = 0; kind < n->b->class_count; kind++)
            bytes += n->least[kind][(size_t)counts[kind] * n->b->gaps + g];
        most = bytes > most ? bytes : most;
    }
    return device_floor(n->b, most);
}

static void try_counts(struct counting *n, const uint32_t *counts)
{
    const struct kept_bounds *b = n->b;
    struct busy saved = {.host_s = 0}, middle = {.host_s = 0};
    for (uint32_t kind = 0; kind < b->class_count; kind++) {
        busy_add_all(&saved, &b->saved[n->first[kind]], counts[kind]);
        busy_add_all(&middle, &b->saved_middle[n->first[kind]], counts[kind]);
    }
    /* what those of a kind save differs by a rounding */
    n->best_s = fmin(n->best_s, step_floor(b, &saved, &middle) * (1 - 1e-6));
}

/* The last kind is counted as far as it fits; what keeps more saves more. */
static void count_from(struct counting *n, uint32_t kind, uint32_t *counts)
{
    const bool last = kind + 1 >= n->b->class_count;
    for (uint32_t k = n->sizes[kind] + 1; k-- > 0;) {
        counts[kind] = k;
        memset(counts + kind + 1, 0, (n->b->class_count - kind - 1) * sizeof *counts);
        if (bytes_of_counts(n, counts) > n->limit)
            continue;
        if (!last) {
            count_from(n, kind + 1, counts);
            continue;
        }
        try_counts(n, counts);
        break;
    }
}

double kept_bounds_least(const struct kept_bounds *b, uint64_t limit_bytes)
{
    struct counting n = {.b = b, .limit = limit_bytes, .best_s = INFINITY};
    uint32_t counts[CLASSES_MOST] = {0};
    double choices = 1;
    if (!b->adds_up || b->class_count == 0)
        return b->all_s;
    for (uint32_t u = b->units; u-- > 0;) {
        n.sizes[b->class_of[u]]++;
        n.first[b->class_of[u]] = u;
    }
    for (uint32_t kind = 0; kind < b->class_count; kind++)
        choices *= n.sizes[kind] + 1;
    if (choices > CHOICES_MOST)
        return b->all_s;
    for (uint32_t kind = 0; kind < b->class_count; kind++)
        fill_least(&n, kind);
    count_from(&n, 0, counts);
    for (uint32_t kind = 0; kind < b->class_count; kind++)
        free(n.least[kind]);
    return n.best_s;
}

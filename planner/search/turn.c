/* turn.c - see turn.h.
 *
 * Values are addressed by their place in the domain. A place has "turned" when it fits (fewest) or
 * does not (largest); refused places are neither, and are skipped upwards. */
#include "search/turn.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_AXES = 4 };

struct search {
    const struct settings *base;
    struct axis axes[MOST_AXES];
    const char *values[MOST_AXES]; /* the last one's is set for each trial */
    uint32_t axis_count;
    const struct axis *along;
    enum turn_kind kind;
    uint64_t least, places; /* of the domain */
    struct turn *out;
    uint32_t cap; /* of the trials */
};

/* ---- trials ---- */

static void value_at(const struct search *s, uint64_t place, char text[NUMBER_TEXT])
{
    if (s->along->count)
        snprintf(text, NUMBER_TEXT, "%s", s->along->values[place]);
    else
        snprintf(text, NUMBER_TEXT, "%" PRIu64, s->least + place);
}

/* The trial of a place, made if needed; its index. */
static uint32_t try_place(struct search *s, uint64_t place)
{
    struct turn *t = s->out;
    for (uint32_t i = 0; i < t->count; i++)
        if (t->trials[i].place == place)
            return i;
    ARRAY_GROW(t->trials, t->count, s->cap);
    struct turn_trial *trial = &t->trials[t->count];
    *trial = (struct turn_trial){.place = place};
    value_at(s, place, trial->value);
    s->values[s->axis_count - 1] = trial->value;
    point_of(s->base, s->axes, s->values, s->axis_count, &trial->point);
    return t->count++;
}

static enum point_verdict verdict_at(struct search *s, uint64_t place)
{
    const uint32_t trial = try_place(s, place); /* which may move them */
    return s->out->trials[trial].point.verdict;
}

/* The first accepted place from `place` on; `end`: none before it. */
static uint64_t next_accepted(struct search *s, uint64_t place, uint64_t end)
{
    for (uint64_t i = place; i < end && i - place < TURN_REFUSALS; i++)
        if (verdict_at(s, i) != POINT_REFUSED)
            return i;
    return end;
}

static bool has_turned(struct search *s, uint64_t place)
{
    return (verdict_at(s, place) == POINT_FITS) == (s->kind == TURN_FEWEST);
}

/* ---- the search ---- */

/* Doubles from `before`, which has not turned, until one has: *after, or the end of the domain. */
static void gallop(struct search *s, uint64_t *before, uint64_t *after)
{
    *after = s->places;
    while (2 * *before + 1 < s->places) {
        const uint64_t from = 2 * *before + 1, place = next_accepted(s, from, s->places);
        if (place == s->places || has_turned(s, place)) {
            *after = place == s->places ? from : place;
            return;
        }
        *before = place;
    }
}

/* Halves between them: afterwards every place in between is refused. */
static void bisect(struct search *s, uint64_t *before, uint64_t *after)
{
    uint64_t end = *after;
    while (end - *before > 1) {
        const uint64_t middle = *before + (end - *before) / 2;
        const uint64_t place = next_accepted(s, middle, end);
        if (place < end && !has_turned(s, place)) {
            *before = place;
            continue;
        }
        if (place < end)
            *after = place;
        end = middle;
    }
}

/* Tries what lies next to the turn on the side that does not fit, one by one; returns a place that
 * fits after all, or `places`. */
static uint64_t look_beyond(struct search *s, uint64_t before, uint64_t after)
{
    const bool up = s->kind == TURN_LARGEST;
    uint64_t place = up ? after : before;
    s->out->neighbours = 0;
    for (int tried = 0; tried < TURN_REFUSALS && place < s->places; tried++) {
        const enum point_verdict verdict = verdict_at(s, place);
        if (verdict == POINT_FITS)
            return place;
        s->out->neighbours += verdict == POINT_TOO_LARGE;
        if (s->out->neighbours == TURN_NEIGHBOURS || (!up && place == 0))
            break;
        place += up ? 1 : (uint64_t)-1;
    }
    return s->places;
}

/* ---- the result ---- */

static int by_place(const void *a, const void *b)
{
    const struct turn_trial *x = a, *y = b;
    return (x->place > y->place) - (x->place < y->place);
}

/* The nearest trial at or beyond a place that did not fit; TURN_NONE: none. */
static uint32_t nearest_too_large(const struct search *s, uint32_t answer)
{
    const struct turn *t = s->out;
    const int step = s->kind == TURN_LARGEST ? 1 : -1;
    for (int64_t i = (int64_t)answer + step; i >= 0 && i < t->count; i += step)
        if (t->trials[i].point.verdict == POINT_TOO_LARGE)
            return (uint32_t)i;
    return TURN_NONE;
}

static uint32_t least_of(const struct turn *t)
{
    uint32_t least = TURN_NONE;
    for (uint32_t i = 0; i < t->count; i++)
        if (t->trials[i].point.verdict != POINT_REFUSED &&
            (least == TURN_NONE ||
             t->trials[i].point.device_bytes < t->trials[least].point.device_bytes))
            least = i;
    return least;
}

/* The accepted trials around one; `from` is the count where all are refused. */
static void collect_near(struct turn *t, uint32_t from)
{
    uint32_t below[TURN_NEAR], count = 0;
    for (uint32_t i = from; i-- > 0 && count < TURN_NEAR;)
        if (t->trials[i].point.verdict != POINT_REFUSED)
            below[count++] = i;
    while (count > 0)
        t->near[t->near_count++] = below[--count];
    for (uint32_t i = from; i < t->count && count <= TURN_NEAR; i++)
        if (t->trials[i].point.verdict != POINT_REFUSED) {
            t->near[t->near_count++] = i;
            count++;
        }
}

static void conclude(struct search *s, uint64_t place)
{
    struct turn *t = s->out;
    if (t->count)
        qsort(t->trials, t->count, sizeof *t->trials, by_place);
    for (uint32_t i = 0; i < t->count; i++)
        if (t->trials[i].place == place && t->trials[i].point.verdict == POINT_FITS)
            t->answer = i;
    if (t->answer != TURN_NONE)
        t->neighbour = nearest_too_large(s, t->answer);
    t->least = least_of(t);
    collect_near(t, t->answer != TURN_NONE  ? t->answer
                    : t->least != TURN_NONE ? t->least
                                            : t->count);
}

/* While there is one that fits below what does not: the fewest of them. */
static uint64_t walk_down(struct search *s, uint64_t beyond, uint64_t after)
{
    while (beyond != s->places) {
        s->out->jumped = true;
        after = beyond;
        beyond = after ? look_beyond(s, after - 1, after) : s->places;
    }
    return after;
}

static uint64_t run(struct search *s)
{
    uint64_t before = next_accepted(s, 0, s->places), after = s->places;
    if (before == s->places)
        return s->places;
    if (has_turned(s, before))
        return s->kind == TURN_FEWEST ? before : s->places;
    for (bool up = true; up;) {
        gallop(s, &before, &after);
        bisect(s, &before, &after);
        const uint64_t beyond = look_beyond(s, before, after);
        up = s->kind == TURN_LARGEST && beyond != s->places;
        if (up) {
            s->out->jumped = true;
            before = beyond;
        } else if (s->kind == TURN_FEWEST) {
            after = walk_down(s, beyond, after);
        }
    }
    return s->kind == TURN_LARGEST ? before : after;
}

/* ---- set-up ---- */

static enum err_code set_domain(struct search *s, struct err *err)
{
    const struct setting *row = s->along->row;
    if (!row || row->kind != SETTING_VALUE || row->numbers[0].kind != NUMBER_INTEGER)
        return err_set(err, ERR_INVALID,
                       "%s is no integer setting: the largest and the fewest are looked for among "
                       "integers",
                       s->along->name);
    for (uint32_t i = 0; i < s->along->count; i++) {
        uint64_t value, before = 0;
        if (!number_integer(s->along->values[i], &value) ||
            (i && number_integer(s->along->values[i - 1], &before) && before >= value))
            return err_set(err, ERR_INVALID, "%s: %s: values are expected to be integers that grow",
                           s->along->name, s->along->values[i]);
    }
    s->least = (uint64_t)row->numbers[0].least;
    s->places = s->along->count ? s->along->count : (uint64_t)row->numbers[0].most - s->least + 1;
    return ERR_OK;
}

enum err_code turn_find(const struct settings *base, const struct axis *axes,
                        const char *const *values, uint32_t axis_count, const struct axis *along,
                        enum turn_kind kind, struct turn *out, struct err *err)
{
    struct search s = {.base = base, .along = along, .kind = kind, .out = out};
    *out = (struct turn){.answer = TURN_NONE, .neighbour = TURN_NONE};
    if (axis_count >= MOST_AXES)
        return err_set(err, ERR_INVALID, "at most %d axes", MOST_AXES - 1);
    TRY(set_domain(&s, err));
    for (uint32_t i = 0; i < axis_count; i++) {
        s.axes[i] = axes[i];
        s.values[i] = values[i];
    }
    s.axes[axis_count] = *along;
    s.axis_count = axis_count + 1;
    conclude(&s, run(&s));
    return ERR_OK;
}

void turn_free(struct turn *turn)
{
    free(turn->trials);
    turn->trials = NULL;
    turn->count = 0;
}

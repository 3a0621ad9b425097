/* sweep.c - see sweep.h. */
#include "search/sweep.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

uint32_t sweep_size(const struct sweep_question *q)
{
    uint64_t size = 1;
    for (uint32_t i = 0; i < q->axis_count; i++)
        size *= q->axes[i].count;
    return size > SWEEP_MOST_POINTS ? SWEEP_MOST_POINTS + 1 : (uint32_t)size;
}

uint32_t sweep_index(const struct sweep_question *q, uint32_t point, uint32_t axis)
{
    for (uint32_t i = q->axis_count; i-- > axis + 1;)
        point /= q->axes[i].count;
    return point % q->axes[axis].count;
}

bool sweep_is_choice(const struct axis *axis)
{
    return axis->row != NULL;
}

static uint32_t choices_of(const struct sweep_question *q)
{
    uint32_t choices = 0;
    for (uint32_t i = 0; i < q->axis_count; i++)
        choices += sweep_is_choice(&q->axes[i]);
    return choices;
}

static bool has_same_conditions(const struct sweep_question *q, uint32_t a, uint32_t b)
{
    for (uint32_t i = 0; i < q->axis_count; i++)
        if (!sweep_is_choice(&q->axes[i]) && sweep_index(q, a, i) != sweep_index(q, b, i))
            return false;
    return true;
}

/* Of two that fit. What gives cached memory back takes longer than its step says. */
static bool is_better(const struct point *a, const struct point *b)
{
    if (a->after_release != b->after_release)
        return b->after_release;
    return a->tokens_per_s > b->tokens_per_s;
}

bool sweep_is_best(const struct sweep_question *q, const struct sweep *s, uint32_t point)
{
    const struct point *p = &s->points[point].point;
    if (p->verdict != POINT_FITS || !choices_of(q))
        return false;
    for (uint32_t i = 0; i < s->count; i++) {
        const struct point *other = &s->points[i].point;
        if (other->verdict == POINT_FITS && has_same_conditions(q, point, i) &&
            (is_better(other, p) || (i < point && !is_better(p, other))))
            return false;
    }
    return true;
}

/* The answer of a search stands for it; the sweep keeps all trials where there is only one. */
static enum err_code search(const struct sweep_question *q, const char *const *values,
                            struct turn *turn, struct sweep_point *out, struct err *err)
{
    TRY(turn_find(q->base, q->axes, values, q->axis_count, &q->along, q->kind, turn, err));
    out->jumped = turn->jumped;
    if (turn->answer != TURN_NONE) {
        out->point = turn->trials[turn->answer].point;
        snprintf(out->found, sizeof out->found, "%s", turn->trials[turn->answer].value);
    }
    if (turn->neighbour != TURN_NONE)
        snprintf(out->beyond, sizeof out->beyond, "%s", turn->trials[turn->neighbour].value);
    if (turn->answer != TURN_NONE)
        return ERR_OK;
    /* the first that was accepted, if any, is what does not fit */
    for (uint32_t i = 0; i < turn->count && out->point.verdict == POINT_REFUSED; i++)
        out->point = turn->trials[i].point;
    return ERR_OK;
}

static enum err_code evaluate(const struct sweep_question *q, uint32_t index, struct turn *turn,
                              struct sweep_point *out, struct err *err)
{
    const char *values[SWEEP_AXES] = {NULL};
    *out = (struct sweep_point){.point = {.verdict = POINT_REFUSED}};
    for (uint32_t i = 0; i < q->axis_count; i++)
        values[i] = q->axes[i].values[sweep_index(q, index, i)];
    if (q->searches)
        return search(q, values, turn, out, err);
    point_of(q->base, q->axes, values, q->axis_count, &out->point);
    return ERR_OK;
}

static void conclude(const struct sweep_question *q, struct sweep *s)
{
    const uint32_t choices = choices_of(q);
    uint64_t device = 0;
    uint32_t accepted = 0;
    s->best = SWEEP_NONE;
    s->same_memory = true;
    s->least_s = INFINITY;
    for (uint32_t i = 0; i < s->count; i++) {
        const struct point *p = &s->points[i].point;
        s->refused += p->verdict == POINT_REFUSED;
        s->fits += p->verdict == POINT_FITS;
        if (p->verdict == POINT_FITS && choices &&
            (s->best == SWEEP_NONE || is_better(p, &s->points[s->best].point)))
            s->best = i;
        if (p->verdict == POINT_REFUSED)
            continue;
        s->same_memory = s->same_memory && (!accepted || p->device_bytes == device);
        device = p->device_bytes;
        s->least_s = fmin(s->least_s, p->step_s);
        s->most_s = fmax(s->most_s, p->step_s);
        accepted++;
    }
    s->same_step = accepted > 1 && s->most_s <= s->least_s * (1 + SWEEP_ALIKE);
    s->same_memory = s->same_memory && accepted > 1;
}

static enum err_code check(const struct sweep_question *q, struct err *err)
{
    for (uint32_t i = 0; i < q->axis_count; i++)
        if (!q->axes[i].count)
            return err_set(err, ERR_INVALID, "%s has no values of its own: write %s=VALUE,...",
                           q->axes[i].name, q->axes[i].name);
    if (sweep_size(q) > SWEEP_MOST_POINTS)
        return err_set(err, ERR_INVALID, "more than %d points", SWEEP_MOST_POINTS);
    return ERR_OK;
}

enum err_code sweep_run(const struct sweep_question *question, sweep_progress *progress,
                        void *context, struct sweep *out, struct err *err)
{
    *out = (struct sweep){.best = SWEEP_NONE};
    TRY(check(question, err));
    out->count = sweep_size(question);
    out->points = xmalloc(out->count * sizeof *out->points);
    for (uint32_t i = 0; i < out->count; i++) {
        struct turn turn = {.trials = NULL};
        if (progress)
            progress(context, i, out->count);
        const enum err_code rc = evaluate(question, i, &turn, &out->points[i], err);
        if (rc != ERR_OK || question->axis_count)
            turn_free(&turn);
        else
            out->turn = turn;
        if (rc != ERR_OK) {
            sweep_free(out);
            return rc;
        }
    }
    if (progress)
        progress(context, out->count, out->count);
    conclude(question, out);
    return ERR_OK;
}

void sweep_free(struct sweep *sweep)
{
    turn_free(&sweep->turn);
    free(sweep->points);
    sweep->points = NULL;
    sweep->count = 0;
}

/* sweep.h - a job over one or two axes: every combination of their values as numbers.
 *
 *     over a            a point a value: a table
 *     over a and b      a point a pair: a heat map
 *     largest k         where k turns from fitting to not: a table of what was tried
 *     ... over a (, b)  the same once a point */
#ifndef SHARDPLAN_SWEEP_H
#define SHARDPLAN_SWEEP_H

#include "search/turn.h"

enum { SWEEP_AXES = 2, SWEEP_MOST_POINTS = 1 << 16 };
#define SWEEP_NONE UINT32_MAX

struct sweep_question {
    const struct settings *base;
    struct axis axes[SWEEP_AXES];
    uint32_t axis_count;
    struct axis along; /* what is searched, if `searches` */
    bool searches;
    enum turn_kind kind;
};

struct sweep_point {
    struct point point;       /* of a search: at its answer; refused where nothing fits */
    char found[NUMBER_TEXT];  /* of a search: the answer; "": nothing fits */
    char beyond[NUMBER_TEXT]; /* ... and the nearest value that does not fit; "": there is none */
    bool jumped;              /* as of struct turn */
};

struct sweep {
    struct sweep_point *points; /* (count) the last axis varies fastest: owned, sweep_free */
    uint32_t count;
    uint32_t best; /* the point that fits with most tokens/s of a GPU, the first of equals: of those
                      that need not give cached memory back (point.h), if there are any;
                      SWEEP_NONE: none fits, or there is nothing to choose */
    uint32_t fits, refused;
    struct turn turn; /* of a search without axes: owned */
    bool same_step;   /* two accepted points at least, whose steps are alike within SWEEP_ALIKE */
    bool same_memory; /* and whose device bytes are equal */
    double least_s, most_s; /* steps of accepted points */
};

#define SWEEP_ALIKE 5e-4 /* of a step: less than tables show */

/* Called before each point, and at the end with done == total. */
typedef void sweep_progress(void *context, uint32_t done, uint32_t total);

/* How many points there will be. */
uint32_t sweep_size(const struct sweep_question *question);

/* Evaluates all points (point.h; turn.h). `progress` may be NULL. ERR_INVALID: an axis has no
 * values, there are more than SWEEP_MOST_POINTS, or what is searched is no integer setting. The
 * caller owns what is in *out: sweep_free. */
enum err_code sweep_run(const struct sweep_question *question, sweep_progress *progress,
                        void *context, struct sweep *out, struct err *err);
void sweep_free(struct sweep *sweep);

/* Whether an axis is one's to choose: a number of the profile is what one has. */
bool sweep_is_choice(const struct axis *axis);

/* Whether no point with the same conditions (values of axes that are no choice) is better: the best
 * for what one has. At most one point of a sweep without conditions. */
bool sweep_is_best(const struct sweep_question *question, const struct sweep *sweep,
                   uint32_t point);

/* Which value of an axis a point has. */
uint32_t sweep_index(const struct sweep_question *question, uint32_t point, uint32_t axis);

#endif

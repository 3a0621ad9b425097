/* blame.c - see blame.h. */
#include "job/blame.h"

#include "base/arena.h"

#include <math.h>
#include <stdlib.h>

#define NOBODY UINT32_MAX

struct queue {
    uint32_t *tasks; /* (count) kernels of a lane, in the order in which they run */
    uint32_t count, at;
};

struct walk {
    const struct plan *plan;
    const struct step_time *time;
    const struct timeline *t;
    struct queue lanes[LANES_MOST];
    double now;
    struct blame *out;
    uint32_t count, cap;
};

static const struct plan_instruction *instruction_of(const struct walk *w, uint32_t task)
{
    return &w->plan->instructions[simulation_instruction(w->time->simulation, task)];
}

static bool talks(const struct walk *w, uint32_t task)
{
    return plan_op_is_collective((enum plan_op)instruction_of(w, task)->op);
}

static void fill_queues(struct walk *w)
{
    const uint32_t tasks = simulation_tasks(w->time->simulation);
    for (uint32_t lane = 0; lane < LANES_MOST; lane++)
        w->lanes[lane].tasks = xmalloc((tasks + 1) * sizeof *w->lanes[lane].tasks);
    for (uint32_t i = 0; i < tasks; i++) {
        const struct plan_instruction *in = instruction_of(w, i);
        if (plan_op_is_kernel((enum plan_op)in->op) && w->t->end_s[i] > w->t->begin_s[i])
            w->lanes[in->lane].tasks[w->lanes[in->lane].count++] = i;
    }
}

/* The task that the lane runs now or, where it stands still, the next; NOBODY: it is done. */
static uint32_t at_lane(struct walk *w, uint32_t lane)
{
    struct queue *q = &w->lanes[lane];
    while (q->at < q->count && w->t->end_s[q->tasks[q->at]] <= w->now)
        q->at++;
    return q->at < q->count ? q->tasks[q->at] : NOBODY;
}

static bool runs(const struct walk *w, uint32_t task)
{
    return task != NOBODY && w->t->begin_s[task] <= w->now;
}

/* What a moment is spent on, and until when nothing changes. */
struct moment {
    uint32_t task;
    enum spent spent;
    double until;
};

static enum spent computing(const struct walk *w, uint32_t task)
{
    const struct costs *costs = &w->time->costs;
    const struct cost *cost = &costs->kernels[instruction_of(w, task)->arg - costs->first];
    return cost->use[RESOURCE_COMPUTE] >= 1 ? SPENT_COMPUTE : SPENT_MEMORY;
}

enum { COMPUTES, TALKS, HELD, COPIES, NOBODYS }; /* in this order they count */

/* Later ends win within a kind. */
static void offer(struct moment *best, int *best_rank, double *best_end, uint32_t task,
                  enum spent spent, int rank, double end)
{
    if (rank > *best_rank || (rank == *best_rank && end <= *best_end))
        return;
    *best_rank = rank;
    *best_end = end;
    best->task = task;
    best->spent = spent;
}

static struct moment look(struct walk *w)
{
    struct moment found = {NOBODY, SPENT_HOST, w->t->step_s};
    int rank = NOBODYS;
    double end = -1, next = INFINITY;
    for (uint32_t lane = 0; lane < w->plan->lane_count; lane++) {
        const uint32_t task = at_lane(w, lane);
        if (task == NOBODY)
            continue;
        const bool collective = talks(w, task), is_running = runs(w, task);
        const double done_s = collective ? w->t->done_s[task] : w->t->end_s[task];
        const double change_s = !is_running       ? w->t->begin_s[task]
                                : done_s > w->now ? done_s
                                                  : w->t->end_s[task];
        found.until = fmin(found.until, change_s);
        if (!is_running) {
            if (rank == NOBODYS && w->t->begin_s[task] < next) {
                found.task = task; /* what is next to be issued, the compute stream's before all */
                next = lane == LANE_COMPUTE ? -INFINITY : w->t->begin_s[task];
            }
        } else if (lane == LANE_COMPUTE && !collective) {
            offer(&found, &rank, &end, task, computing(w, task), COMPUTES, done_s);
        } else if (collective && done_s > w->now) {
            offer(&found, &rank, &end, task, SPENT_NETWORK, TALKS, done_s);
        } else if (collective) {
            offer(&found, &rank, &end, task, SPENT_RANKS, HELD, w->t->end_s[task]);
        } else if (lane != LANE_HOST) {
            offer(&found, &rank, &end, task, SPENT_COPY, COPIES, done_s);
        } else if (rank == NOBODYS) {
            found.task = task; /* the host's own kernel */
            next = -INFINITY;
        }
    }
    return found;
}

static void add(struct walk *w, uint32_t task, enum spent spent, double seconds)
{
    if (seconds <= 0)
        return;
    if (w->count && w->out[w->count - 1].task == task && w->out[w->count - 1].spent == spent) {
        w->out[w->count - 1].seconds += seconds;
        return;
    }
    ARRAY_GROW(w->out, w->count, w->cap);
    w->out[w->count++] = (struct blame){task, spent, seconds};
}

/* After the last kernel the host may go on, and others may be slower. */
static void add_rest(struct walk *w)
{
    const double rest_s = w->t->step_s - w->now;
    double host_s = w->t->spent_s[SPENT_HOST];
    for (uint32_t i = 0; i < w->count; i++)
        host_s -= w->out[i].spent == SPENT_HOST ? w->out[i].seconds : 0;
    host_s = fmin(fmax(host_s, 0), rest_s);
    add(w, NOBODY, SPENT_HOST, host_s);
    add(w, NOBODY, SPENT_RANKS, rest_s - host_s);
}

struct blame *blame_step(const struct plan *plan, const struct step_time *time, uint32_t *count)
{
    enum { AT_FIRST = 256 };
    struct walk w = {.plan = plan,
                     .time = time,
                     .t = &time->timeline,
                     .out = xmalloc(AT_FIRST * sizeof *w.out),
                     .cap = AT_FIRST};
    fill_queues(&w);
    for (;;) {
        const struct moment m = look(&w);
        if (m.task == NOBODY)
            break;
        add(&w, m.task, m.spent, m.until - w.now);
        w.now = m.until;
    }
    add_rest(&w);
    for (uint32_t lane = 0; lane < LANES_MOST; lane++)
        free(w.lanes[lane].tasks);
    *count = w.count;
    return w.out;
}

/* simulation.c - makes a plan ready: what takes time, in host order and lane by lane, with what
 * each must wait for already found. */
#include "simulate/simulation.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static inline bool is_task(const struct plan_instruction *instruction)
{
    const uint32_t nothing = 1U << PLAN_ALLOC | 1U << PLAN_FREE | 1U << PLAN_USE | 1U << PLAN_MARK;
    return !(instruction->flags & PLAN_FIRST_STEP) && !(nothing >> instruction->op & 1);
}

struct found {               /* tasks that later ones wait for; NEVER: none yet */
    uint32_t *recorded;      /* (events) */
    uint32_t *last_of_group; /* (groups) a communicator is one FIFO */
};

static uint32_t *nothing_yet(uint32_t count)
{
    uint32_t *tasks = xmalloc((count + 1) * sizeof *tasks);
    memset(tasks, 0xff, (count + 1) * sizeof *tasks);
    return tasks;
}

static void add_stall(const struct stall *stall, struct task *task)
{
    *task = (struct task){.id = stall->instruction,
                          .kind = TASK_STALL,
                          .lane = LANE_HOST,
                          .after = NEVER,
                          .stall_s = (float)stall->host_s,
                          .idle = stall->idle};
}

/* Its number is `at`. */
static inline void add_task(const struct plan_instruction *in, uint32_t id, uint32_t at,
                            const struct found *found, struct simulation *s)
{
    struct task *const task = &s->tasks[at];
    *task = (struct task){.id = id, .lane = in->lane, .after = NEVER};
    if (in->op == PLAN_RECORD) {
        task->kind = TASK_RECORD;
        found->recorded[in->arg] = at;
    } else if (in->op == PLAN_WAIT) {
        task->kind = TASK_WAIT;
        task->after = found->recorded[in->arg];
        assert(task->after != NEVER); /* plan_verify: no wait comes before its record */
    } else if (in->flags & PLAN_SPAN) {
        task->kind = TASK_SPAN;
        task->kernel = in->arg;
        task->count = in->base;
    } else {
        task->kind = TASK_RUN;
        task->kernel = in->arg;
        if (in->arg >= s->kernel_end)
            s->kernel_end = in->arg + 1;
        task->collective = plan_op_is_collective((enum plan_op)in->op);
        if (task->collective) {
            task->after = found->last_of_group[in->group];
            found->last_of_group[in->group] = at;
        }
    }
}

struct maker {
    const struct plan *plan;
    const struct stall *stalls; /* those to come */
    uint32_t stall_count;
    struct found found;
    struct simulation *s;
};

static void add_range(struct maker *m, uint32_t first, uint32_t end)
{
    const struct plan_instruction *const instructions = m->plan->instructions;
    struct simulation *const s = m->s;
    uint32_t count = s->count;
    for (uint32_t i = first; i < end; i++) {
        if (m->stall_count && m->stalls->instruction == i) {
            add_stall(m->stalls++, &s->tasks[count++]);
            m->stall_count--;
        }
        if (is_task(&instructions[i]))
            add_task(&instructions[i], i, count++, &m->found, s);
    }
    s->count = count;
}

/* The micro-batch at `at` so many times, each behind the one before. What it waits for of its
 * predecessor, and what its successor waits for of it, goes by the names of two of them. */
static void add_micro_batch(struct maker *m, const struct plan_micro_batch *at, uint32_t times)
{
    uint32_t *const here = m->found.recorded + at->event;
    uint32_t *const before = m->found.recorded + at[-1].event;
    const size_t bytes = (at->event - at[-1].event) * sizeof *here;
    const struct stall *const stalls = m->stalls;
    const uint32_t stall_count = m->stall_count;
    for (uint32_t pass = 0; pass < times; pass++) {
        if (pass > 0)
            memcpy(before, here, bytes);
        m->stalls = stalls; /* those of each pass */
        m->stall_count = stall_count;
        add_range(m, at->instruction, at[1].instruction);
    }
    if (times > 0)
        return;
    memcpy(here, before, bytes);
    while (m->stall_count && m->stalls->instruction < at[1].instruction) {
        m->stalls++;
        m->stall_count--;
    }
}

static void add_tasks(struct maker *m, uint32_t times)
{
    const struct plan *plan = m->plan;
    const struct plan_micro_batch *at = &plan->micro_batches[plan->micro_batch_count - 2];
    add_range(m, 0, plan->repeats ? at->instruction : plan->instruction_count);
    if (!plan->repeats)
        return;
    m->s->repeat[0] = m->s->count;
    add_micro_batch(m, at, times);
    m->s->repeat[1] = m->s->count;
    if (times > 1)
        m->s->repeat[0] += (m->s->repeat[1] - m->s->repeat[0]) / times * (times - 1);
    add_range(m, at[1].instruction, plan->instruction_count);
}

void simulation_fill_queues(struct simulation *s)
{
    uint32_t at[LANES_MOST + 1] = {0};
    const uint32_t count = s->count;
    const struct task *const tasks = s->tasks;
    uint32_t *const queue = s->queue;
    for (uint32_t i = 0; i < count; i++)
        at[tasks[i].lane + 1]++;
    for (uint32_t lane = 0; lane < s->lane_count; lane++)
        at[lane + 1] += at[lane];
    memcpy(s->first, at, (s->lane_count + 1) * sizeof *at);
    for (uint32_t i = 0; i < count; i++)
        queue[at[tasks[i].lane]++] = i;
}

static struct simulation *make(const struct plan *plan, const struct stall *stalls,
                               uint32_t stall_count, uint32_t times)
{
    size_t tasks = (size_t)plan->instruction_count + stall_count;
    if (times > 1) {
        const struct plan_micro_batch *at = &plan->micro_batches[plan->micro_batch_count - 2];
        tasks += (size_t)(times - 1) * (at[1].instruction - at->instruction + stall_count);
    }
    struct simulation *s = xmalloc(sizeof *s);
    *s = (struct simulation){.tasks = xmalloc(tasks * sizeof *s->tasks + 1),
                             .lane_count = plan->lane_count};
    struct maker m = {plan,
                      stalls,
                      stall_count,
                      {nothing_yet(plan->event_count), nothing_yet(plan->group_count)},
                      s};
    add_tasks(&m, times);
    assert(m.stall_count == 0); /* they are in order of instructions, which there are */
    free(m.found.recorded);
    free(m.found.last_of_group);
    s->queue = xmalloc(s->count * sizeof *s->queue + 1);
    simulation_fill_queues(s);
    return s;
}

struct simulation *simulation_new(const struct plan *plan, const struct stall *stalls,
                                  uint32_t stall_count)
{
    return make(plan, stalls, stall_count, 1);
}

struct simulation *simulation_of_passes(const struct plan *plan, const struct stall *stalls,
                                        uint32_t stall_count, uint32_t times)
{
    assert(plan->repeats);
    return make(plan, stalls, stall_count, times);
}

void simulation_free(struct simulation *s)
{
    if (!s)
        return;
    free(s->tasks);
    free(s->queue);
    free(s->alike.of);
    free(s);
}

uint32_t simulation_tasks(const struct simulation *s)
{
    return s->count;
}

uint32_t simulation_instruction(const struct simulation *s, uint32_t task)
{
    return s->tasks[task].id;
}

struct timeline timeline_new(const struct simulation *s)
{
    double *room = xmalloc(4 * (size_t)s->count * sizeof *room + 1);
    return (struct timeline){.issue_s = room,
                             .begin_s = room + s->count,
                             .end_s = room + 2 * (size_t)s->count,
                             .done_s = room + 3 * (size_t)s->count};
}

void timeline_free(struct timeline *timeline)
{
    free(timeline->issue_s);
    *timeline = (struct timeline){0};
}

/* stream_class.c - see stream_class.h. */
#include "search/stream_class.h"

#include "job/predict.h"
#include "plan/host_held.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void busy_add(struct busy *busy, uint32_t lane, const struct cost *cost)
{
    const double compute = (double)cost->use[RESOURCE_COMPUTE];
    const double memory = (double)cost->use[RESOURCE_MEMORY];
    busy->lane_s[lane] += cost->device_s;
    busy->host_s += cost->host_s;
    if (lane == LANE_HOST)
        return;
    for (int k = 0; k < RESOURCE_COUNT; k++)
        busy->resource_s[k] += cost->device_s * (double)cost->use[k];
    if (cost->first) {
        const double beside_s = cost->device_s * fmax(1, (double)cost->slowdown);
        busy->joint_s += beside_s * fmin(compute, memory);
        busy->held_s += beside_s * compute;
    } else if (lane == LANE_COMPUTE) {
        busy->joint_s += cost->device_s * fmax(compute, memory);
        busy->bound_s += compute >= 1 ? cost->device_s : 0;
        busy->rest_s += compute >= 1 ? 0 : cost->device_s;
        busy->rest_used_s += compute >= 1 ? 0 : cost->device_s * fmax(compute, memory);
    }
}

void busy_add_all(struct busy *busy, const struct busy *other, double times)
{
    for (uint32_t lane = 0; lane < LANES_MOST; lane++)
        busy->lane_s[lane] += times * other->lane_s[lane];
    for (uint32_t group = 0; group < LANES_MOST; group++)
        busy->group_s[group] += times * other->group_s[group];
    for (int k = 0; k < RESOURCE_COUNT; k++)
        busy->resource_s[k] += times * other->resource_s[k];
    busy->joint_s += times * other->joint_s;
    busy->bound_s += times * other->bound_s;
    busy->rest_s += times * other->rest_s;
    busy->rest_used_s += times * other->rest_used_s;
    busy->held_s += times * other->held_s;
    busy->host_s += times * other->host_s;
}

/* ---- memory ---- */

uint64_t buffer_device_bytes(const struct buffer *buffer)
{
    return buffer->bytes && buffer->pool != LANE_HOST ? allocator_round(buffer->bytes) : 0;
}

/* Steps at which no system is asked, but whose gradient it casts. */
static bool is_passed_over(struct stream_step step)
{
    return stream_step_is_within(step) || stream_step_is_aside(step) || step.kind == STEP_GIVEN;
}

/* As a step holds it: each micro-batch takes what the one before gave back. */
static uint64_t host_bytes(const struct stream *s)
{
    struct host_held held = {.kept = 0};
    for (uint32_t i = 0; i < s->step_count; i++) {
        const struct stream_step step = s->steps[i];
        if (step.kind != STEP_BIRTH && step.kind != STEP_DEATH)
            continue;
        const struct buffer *buffer = &s->buffers[step.arg];
        if (buffer->pool != LANE_HOST)
            continue;
        if (step.kind == STEP_BIRTH)
            host_held_alloc(&held, buffer, 1);
        else
            host_held_free(&held, buffer);
    }
    return (uint64_t)held.most;
}

static void fill_gaps(struct stream_class *c)
{
    const struct stream *s = c->stream;
    uint64_t live = 0;
    c->gaps = xmalloc((s->step_count + 1) * sizeof *c->gaps);
    c->gaps[c->gap_count] = (struct class_gap){0};
    for (uint32_t i = 0; i < s->step_count; i++) {
        const struct stream_step step = s->steps[i];
        struct class_gap *gap = &c->gaps[c->gap_count];
        if (step.kind == STEP_BIRTH)
            live += buffer_device_bytes(&s->buffers[step.arg]);
        else if (step.kind == STEP_DEATH)
            live -= buffer_device_bytes(&s->buffers[step.arg]);
        if (live > gap->peak)
            gap->peak = live;
        if (step.kind == STEP_KERNEL) {
            c->first_gap = c->gap_count < c->first_gap ? c->gap_count : c->first_gap;
            c->last_gap = c->gap_count;
        }
        /* A gradient that was cast since STEP_GIVEN counts as it was computed until STEP_GRAD: at
         * the cast the plan holds both. */
        if (is_passed_over(step))
            continue;
        /* From here on it is the strategy's, as is from its birth what AccumulateGrad copies. */
        if (step.kind == STEP_GRAD && s->grads[step.arg].copy == GRAD_AS_IT_IS)
            live -= buffer_device_bytes(&s->buffers[s->grads[step.arg].buffer]);
        gap->live = live;
        c->gaps[++c->gap_count] = (struct class_gap){.peak = live};
    }
    c->gaps[c->gap_count++].live = live;
}

uint64_t stream_class_device_floor(const struct stream_class *c)
{
    uint64_t most = 0;
    if (c->bare)
        return c->device_floor;
    for (uint32_t g = 0; g < c->gap_count; g++)
        most = c->gaps[g].peak > most ? c->gaps[g].peak : most;
    return most + c->workspace;
}

/* ---- hooks ---- */

static void add_step(struct stream *hooks, enum step_kind kind, uint32_t arg)
{
    hooks->steps[hooks->step_count++] =
        (struct stream_step){.kind = (uint32_t)kind & 31U, .arg = arg & MODULE_ROOT};
}

static void fill_hooks(struct stream_class *c)
{
    const struct stream *s = c->stream;
    struct stream *hooks = xmalloc(sizeof *hooks);
    *hooks = (struct stream){
        .steps = xmalloc(3 * (size_t)c->gap_count * sizeof *hooks->steps),
        .buffers = xmalloc((s->grad_count + 1) * sizeof *hooks->buffers),
        .grads = xmalloc((s->grad_count + 1) * sizeof *hooks->grads),
        .kernels = kernel_table_new(c->gap_count, 0),
        .buffer_count = s->grad_count,
        .grad_count = s->grad_count,
    };
    for (uint32_t g = 0; g < s->grad_count; g++) {
        hooks->buffers[g] = s->buffers[s->grads[g].buffer];
        hooks->grads[g] = (struct stream_grad){.param = s->grads[g].param, .buffer = g};
        hooks->grads[g].copy =
            s->grads[g].copy == GRAD_AS_IT_IS ? GRAD_AS_IT_IS : 0; /* an empty one */
        hooks->grads[g].strided = s->grads[g].strided;
    }
    for (uint32_t g = 0; g < c->gap_count; g++)
        kernel_table_add(hooks->kernels, &(struct kernel){0});
    kernel_table_close(hooks->kernels);
    uint32_t gap = 0;
    for (uint32_t i = 0; i < s->step_count; i++) {
        const struct stream_step step = s->steps[i];
        if (is_passed_over(step))
            continue;
        add_step(hooks, STEP_KERNEL, gap++);
        if (step.kind == STEP_GRAD && s->grads[step.arg].copy == GRAD_AS_IT_IS)
            add_step(hooks, STEP_BIRTH, step.arg);
        if (step.kind == STEP_FINAL)
            hooks->final_step = hooks->step_count;
        add_step(hooks, (enum step_kind)step.kind, step.arg);
    }
    add_step(hooks, STEP_KERNEL, gap);
    c->hooks = hooks;
    c->outline = outline_new(hooks, (const uint64_t[2]){0, 0});
}

static bool same_gradients(const struct stream *a, const struct stream *b)
{
    for (uint32_t g = 0; g < a->grad_count; g++)
        if (a->grads[g].param != b->grads[g].param || a->buffers[g].bytes != b->buffers[g].bytes ||
            a->buffers[g].dtype != b->buffers[g].dtype || a->grads[g].copy != b->grads[g].copy ||
            a->grads[g].strided != b->grads[g].strided)
            return false;
    return true;
}

bool stream_class_same_hooks(const struct stream_class *a, const struct stream_class *b)
{
    const struct stream *x = a->hooks, *y = b->hooks;
    return a->first_gap == b->first_gap && a->last_gap == b->last_gap &&
           x->step_count == y->step_count && x->grad_count == y->grad_count &&
           memcmp(x->steps, y->steps, x->step_count * sizeof *x->steps) == 0 &&
           same_gradients(x, y);
}

/* ---- time ---- */

static int by_use(const void *x, const void *y)
{
    const struct partial *a = x, *b = y;
    return a->use < b->use ? -1 : a->use > b->use;
}

static void add_partial(struct stream_class *c, uint32_t *cap, const struct cost *cost)
{
    const double use = (double)fmaxf(cost->use[RESOURCE_COMPUTE], cost->use[RESOURCE_MEMORY]);
    if (cost->first || use >= 1)
        return;
    ARRAY_GROW(c->partials, c->partial_count, *cap);
    c->partials[c->partial_count++] = (struct partial){use, cost->device_s, cost->device_s * use};
}

static void sum_partials(struct stream_class *c, uint32_t cap)
{
    double device_s = 0, used_s = 0;
    ARRAY_GROW(c->partials, c->partial_count, cap);
    qsort(c->partials, c->partial_count, sizeof *c->partials, by_use);
    c->partials[c->partial_count] = (struct partial){.use = 1};
    for (uint32_t i = 0; i <= c->partial_count; i++) {
        struct partial *at = &c->partials[i];
        const struct partial own = *at;
        at->device_s = device_s;
        at->used_s = used_s;
        device_s += own.device_s;
        used_s += own.used_s;
    }
}

double stream_class_raised_s(const struct stream_class *c, double least)
{
    uint32_t low = 0, high = c->partial_count; /* the first that uses so much, or the end */
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        if (c->partials[middle].use < least)
            low = middle + 1;
        else
            high = middle;
    }
    return least * c->partials[low].device_s - c->partials[low].used_s;
}

double stream_class_most_tokens(const struct stream_class *c)
{
    double busy_s = 0;
    for (uint32_t lane = 0; lane < LANES_MOST; lane++)
        busy_s = fmax(busy_s, c->busy.lane_s[lane]);
    return busy_s > 0 ? c->tokens / busy_s : INFINITY;
}

/* Matmuls in forward and in backward, which are two threads. */
static void find_workspace(struct stream_class *c, const struct machine *machine)
{
    const struct memory_options memory = machine_memory(machine);
    const struct stream *s = c->stream;
    bool matmul[2] = {false, false}, backward = false;
    for (uint32_t i = 0; i < s->step_count; i++) {
        const struct stream_step step = s->steps[i];
        if (step.kind == STEP_MARK && step.arg == STREAM_AFTER_FORWARD)
            backward = true;
        if (step.kind == STEP_KERNEL &&
            work_is_matmul((enum work_kind)s->kernels->kernels[step.arg].work))
            matmul[backward] = true;
    }
    c->workspace = 0;
    for (int thread = 0; thread < 2; thread++)
        c->workspace += matmul[thread] ? allocator_round(memory.workspace_bytes[thread]) : 0;
}

/* What the stream's kernels take is the same in every plan of it: here in one of a single
 * micro-batch. */
static struct strategy of_one_micro_batch(const struct job *job)
{
    struct strategy strategy = job->strategy;
    strategy.accumulate = 1;
    strategy.accumulate_sync = false;
    return strategy;
}

enum err_code stream_class_time(struct stream_class *c, const struct job *job,
                                const struct machine *machine, struct err *err)
{
    struct plan *plan;
    struct costs costs;
    const struct strategy strategy = of_one_micro_batch(job);
    uint32_t cap = 0;
    TRY(lower_plan(c->graph, c->stream, &strategy, &plan, err));
    const enum err_code rc =
        costs_of_plan(plan, &machine->profile, machine->gpus_per_node, &costs, err);
    for (uint32_t i = 0; i < plan->instruction_count && rc == ERR_OK; i++) {
        const struct plan_instruction *in = &plan->instructions[i];
        if (in->op != PLAN_COMPUTE ||
            (in->arg >= plan->shared_count && !plan_kernel(plan, in->arg)->placed))
            continue;
        struct cost cost = costs.kernels[in->arg];
        if (cost_class_is_arithmetic((enum cost_class)cost.class))
            cost.device_s *= costs.slowest.factor;
        busy_add(&c->busy, in->lane, &cost);
        if (in->lane == LANE_COMPUTE)
            add_partial(c, &cap, &cost);
    }
    sum_partials(c, cap);
    c->timed = rc == ERR_OK;
    if (rc == ERR_OK)
        costs_free(&costs);
    plan_free(plan);
    return rc;
}

/* ---- classes ---- */

static enum err_code make(const struct job *job, const struct machine *machine,
                          struct stream_class *c, struct err *err)
{
    struct job there;
    *c = (struct stream_class){.first_gap = UINT32_MAX,
                               .tokens = (double)job->model.batch * job->model.seq};
    TRY(job_on_machine(job, machine, &there, err));
    TRY(job_stream(&there, &c->graph, &c->stream, err));
    c->blocks_follow = stream_blocks_follow(c->graph, c->stream);
    c->host = host_bytes(c->stream);
    fill_gaps(c);
    fill_hooks(c);
    return ERR_OK;
}

static void lend(const struct stream_class *made, struct stream_class *c)
{
    *c = *made;
    c->lent = true;
    c->timed = false;
    c->busy = (struct busy){.host_s = 0};
    c->partials = NULL;
    c->partial_count = 0;
}

enum err_code stream_class_untimed(const struct stream_class *made, const struct job *job,
                                   const struct machine *machine, struct stream_class **out,
                                   struct err *err)
{
    struct stream_class *c = xmalloc(sizeof *c);
    const struct strategy strategy = of_one_micro_batch(job);
    enum err_code rc = ERR_OK;
    if (made)
        lend(made, c);
    else
        rc = make(job, machine, c, err);
    if (rc == ERR_OK && !c->bare)
        rc = lower_check(c->graph, c->stream, &strategy, err);
    if (rc == ERR_OK && !c->bare)
        find_workspace(c, machine);
    *out = rc == ERR_OK ? c : NULL;
    if (rc != ERR_OK)
        stream_class_free(c);
    return rc;
}

static enum err_code in_whole(const struct stream_class *made, const struct job *job,
                              const struct machine *machine, struct stream_class **out,
                              struct err *err)
{
    TRY(stream_class_untimed(made, job, machine, out, err));
    const enum err_code rc = stream_class_time(*out, job, machine, err);
    if (rc == ERR_OK)
        return rc;
    stream_class_free(*out);
    *out = NULL;
    return rc;
}

enum err_code stream_class_new(const struct job *job, const struct machine *machine,
                               struct stream_class **out, struct err *err)
{
    return in_whole(NULL, job, machine, out, err);
}

enum err_code stream_class_of(const struct stream_class *made, const struct job *job,
                              const struct machine *machine, struct stream_class **out,
                              struct err *err)
{
    return in_whole(made, job, machine, out, err);
}

static void free_stream(struct stream_class *c)
{
    stream_free(c->stream);
    outline_free(c->outline);
    stream_free(c->hooks);
    graph_free(c->graph);
    free(c->gaps);
}

void stream_class_strip(struct stream_class *c)
{
    const struct stream_class left = {.bare = true,
                                      .device_floor = stream_class_device_floor(c),
                                      .tokens = c->tokens,
                                      .host = c->host};
    free_stream(c);
    free(c->partials);
    *c = left;
}

void stream_class_free(struct stream_class *c)
{
    if (!c)
        return;
    if (!c->lent)
        free_stream(c);
    free(c->partials);
    free(c);
}

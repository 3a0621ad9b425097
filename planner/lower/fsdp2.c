/* fsdp2.c - PyTorch FSDP2 (fully_shard, torch 2.14), event for event.
 *
 * Each unit is one FSDPParamGroup. The functions below are named after the methods they follow
 * (_fsdp_param_group.py, _fsdp_collectives.py, _fsdp_state.py) and do what those do to memory and
 * streams, in the same order:
 *
 *     forward   unshard        cast buffer, gather output, copy-in, all-gather, cast buffer dies
 *               wait           unsharded parameters, copy-out; the PREVIOUS gather output dies
 *               ...compute...
 *               post_forward   reshard: unsharded parameters die, or shrink to a secondary shard
 *     backward  pre_backward   wait; own gather output dies; unshard the unit before
 *               ...compute...
 *               post_backward  reshard; previous reduce-scatter input dies; copy-in; gradients
 *                              die; reduce-scatter; cast
 *     final     what post_backward has not run (the root, whose inputs need no gradient)
 *
 * Frees that come later than one would think, because a Python local still refers to the tensor:
 * the previous gather output, the cast buffer, the last gradient of a unit. They set the peaks.
 *
 * Letters: N ranks of the shard group, d rows and w columns of a parameter, c = ceil(d/N) rows a
 * shard, o, p, r the store, compute and reduce dtypes. */
#include "lower/fsdp2.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- small things ---- */

/* Elements of a parameter padded to N equal chunks of rows. */
uint64_t padded_elements(const struct shape *shape, uint32_t ranks)
{
    const uint64_t rows = shape->dim[0];
    const uint64_t width = rows ? shape_elements(shape) / rows : 0;
    return (rows + ranks - 1) / ranks * width * ranks;
}

struct shape flat(uint64_t elements)
{
    /* A flat buffer longer than 2^32 - 1 elements is written as rows of 1024. */
    return elements <= UINT32_MAX ? SHAPE((uint32_t)elements)
                                  : SHAPE((uint32_t)((elements + 1023) / 1024), 1024);
}

struct plan_instruction enter_site(struct fsdp2 *f, enum plan_site site, const struct unit *unit)
{
    const struct plan_instruction before = f->low.here;
    f->low.here.site = (uint8_t)site;
    f->low.here.unit = (uint16_t)unit_index(f, unit);
    return before;
}

void leave_site(struct fsdp2 *f, struct plan_instruction before)
{
    f->low.here = before;
}
/* ---- forward hooks ---- */

static void pre_forward(struct fsdp2 *f, struct unit *unit)
{
    unshard(f, unit);
    wait_for_unshard(f, unit, true);
    for (uint32_t i = 0; i < unit->forward_list_count; i++)
        unshard(f, &f->units[unit->forward_list[i]]);
}

static void post_forward(struct fsdp2 *f, struct unit *unit)
{
    reshard_after_forward(f, unit);
    if (unit->exists) {
        assert(unit->index_count < 4);
        unit->indices[unit->index_count++] = f->order_count;
        f->order[f->order_count++] = unit_index(f, unit);
    }
    if (unit == &f->units[0] && f->previous_gather != NONE) {
        release_gather(f, f->previous_event);
        emit_free(&f->low, f->previous_gather);
        f->previous_gather = NONE;
    }
}
/* ---- backward hooks ---- */

struct plan_instruction enter_outer(struct fsdp2 *f, enum plan_outer outer, const struct unit *unit)
{
    const struct plan_instruction before = f->low.here;
    f->low.here.outer = (uint8_t)outer;
    f->low.here.outer_unit = (uint16_t)unit_index(f, unit);
    return before;
}

static void pre_backward(struct fsdp2 *f, struct unit *unit)
{
    if (!unit->exists)
        return;
    const struct plan_instruction before = enter_outer(f, OUTER_PRE_BACKWARD, unit);
    unshard(f, unit);
    wait_for_unshard(f, unit, false);
    const uint32_t index = unit->index_count ? unit->indices[--unit->index_count] : 0;
    if (!unit->has_backward_list && index > 0)
        unshard(f, &f->units[f->order[index - 1]]);
    leave_site(f, before);
    for (uint32_t i = 0; i < unit->backward_list_count; i++)
        unshard(f, &f->units[unit->backward_list[i]]);
}

/* The root's post-backward final callback: states in pre-order, so the root first. */
static void final_callback(struct fsdp2 *f)
{
    for (uint32_t u = 0; u < f->unit_count; u++) {
        struct unit *unit = &f->units[u];
        if (!unit->post_backward_ran)
            post_backward(f, unit);
        if (unit->all_reduce_held != NONE) {
            emit_free(&f->low, unit->all_reduce_held);
            unit->all_reduce_held = NONE;
        }
        unit->index_count = 0;
        unit->post_backward_ran = false;
    }
    emit_wait(&f->low, STREAM_COMPUTE, emit_record(&f->low, STREAM_REDUCE_SCATTER));
    if (f->replicas > 1)
        emit_wait(&f->low, STREAM_COMPUTE, emit_record(&f->low, STREAM_ALL_REDUCE));
    release_retained(f);
    f->order_count = 0;
}
/* ---- one micro-batch ---- */

static struct unit *unit_of(const struct fsdp2 *f, uint32_t module, bool at_start)
{
    if (module == MODULE_ROOT)
        return &f->units[0];
    const uint32_t index = f->module_unit[module];
    if (index == NONE)
        return NULL;
    struct unit *unit = &f->units[index];
    return (at_start ? unit->first_module : unit->last_module) == module ? unit : NULL;
}

/* AccumulateGrad: the first gradient is kept as it is, later ones are added in place. */
static void take_gradient(struct fsdp2 *f, const struct stream_grad *grad)
{
    const uint32_t p = grad->param;
    const uint32_t buffer = f->stream ? f->base + grad->buffer : f->first_grad + p;
    if (f->grad[p] == NONE) {
        f->grad[p] = buffer;
        return;
    }
    emit_work(&f->low, PLAN_COMPUTE, STREAM_COMPUTE, WORK_ADD_IN_PLACE, ATEN_ADD_, PLAN_NO_GROUP, 1,
              &buffer, 1, &f->grad[p]);
    emit_free(&f->low, buffer);
}

static void emit_kernel(struct fsdp2 *f, uint32_t kernel)
{
    struct plan_instruction instruction = f->low.here;
    instruction.op = PLAN_COMPUTE;
    instruction.stream = STREAM_COMPUTE;
    instruction.group = PLAN_NO_GROUP;
    instruction.arg = kernel;
    instruction.base = f->base;
    plan_add_instruction(f->low.plan, &instruction);
}

static void stream_mark(struct fsdp2 *f, enum stream_mark mark)
{
    static const enum plan_mark marks[] = {
        [STREAM_AFTER_LOGITS] = PLAN_MARK_AFTER_LOGITS,
        [STREAM_AFTER_FORWARD] = PLAN_MARK_AFTER_FORWARD,
        [STREAM_BACKWARD_BLOCKS] = PLAN_MARK_BACKWARD_BLOCKS,
        [STREAM_AFTER_BACKWARD] = PLAN_MARK_AFTER_BACKWARD,
    };
    emit_mark(&f->low, marks[mark]);
    if (mark == STREAM_AFTER_FORWARD)
        f->low.here.phase = PLAN_BACKWARD;
}

/* Every step that a strategy has a say in. */
static void run_hook(struct fsdp2 *f, struct stream_step step)
{
    struct unit *unit;
    switch (step.kind) {
    case STEP_GRAD:
        take_gradient(f, f->stream ? &f->stream->grads[step.arg] : &f->summary->grads[step.arg]);
        break;
    case STEP_PRE_FORWARD:
        if ((unit = unit_of(f, step.arg, true)))
            pre_forward(f, unit);
        break;
    case STEP_POST_FORWARD:
        if ((unit = unit_of(f, step.arg, false)))
            post_forward(f, unit);
        break;
    case STEP_PRE_BACKWARD:
        if ((unit = unit_of(f, step.arg, false)))
            pre_backward(f, unit);
        break;
    case STEP_POST_BACKWARD:
        if ((unit = unit_of(f, step.arg, true)))
            post_backward(f, unit);
        break;
    case STEP_FINAL:
        final_callback(f);
        break;
    default:
        stream_mark(f, (enum stream_mark)step.arg);
        break;
    }
}

static void run_stream(struct fsdp2 *f)
{
    for (uint32_t i = 0; i < f->stream->step_count; i++) {
        const struct stream_step step = f->stream->steps[i];
        switch (step.kind) {
        case STEP_BIRTH:
            emit_alloc(&f->low, f->base + step.arg);
            break;
        case STEP_DEATH:
            emit_free(&f->low, f->base + step.arg);
            break;
        case STEP_KERNEL:
            emit_kernel(f, step.arg);
            break;
        default:
            run_hook(f, step);
            break;
        }
    }
}

static void run_summary(struct fsdp2 *f)
{
    for (uint32_t i = 0; i < f->summary->hook_count; i++) {
        tally_span(f->low.tally, &f->summary->spans[i]);
        run_hook(f, f->summary->hooks[i]);
    }
    tally_span(f->low.tally, &f->summary->spans[f->summary->hook_count]);
}

static void run_micro_batch(struct fsdp2 *f)
{
    f->low.here.phase = PLAN_FORWARD;
    emit_mark(&f->low, PLAN_MARK_MICRO_BATCH);
    if (f->low.strategy->offload) /* shards are read where the host's optimizer wrote them */
        emit_wait(&f->low, STREAM_COMPUTE, emit_record(&f->low, STREAM_HOST));
    const uint32_t start = emit_record(&f->low, STREAM_COMPUTE);
    release_gather(f, start);
    if (f->stream)
        run_stream(f);
    else
        run_summary(f);
}

/* The stream's kernels become the plan's. */
static void take_kernels(struct fsdp2 *f, struct stream *stream)
{
    struct plan *plan = f->low.plan;
    plan->kernels = stream->kernels;
    plan->kernel_count = stream->kernel_count;
    plan->kernel_cap = stream->kernel_cap;
    plan->operands = stream->operands;
    plan->operand_count = stream->operand_count;
    plan->operand_cap = stream->operand_cap;
    stream->kernels = NULL;
    stream->operands = NULL;
}

/* The stream's buffers, once a micro-batch. */
static void append_stream_buffers(struct fsdp2 *f)
{
    struct plan *plan = f->low.plan;
    const uint32_t count = f->stream->buffer_count;
    f->base = plan->buffer_count;
    plan_reserve_buffers(plan, count);
    plan_reserve_instructions(plan, f->stream->step_count + 12 * plan->param_count);
    memcpy(plan->buffers + plan->buffer_count, f->stream->buffers, count * sizeof *plan->buffers);
    plan->buffer_count += count;
}

/* A tally's gradients: their births are in the spans, their deaths are ours. */
static void declare_grads(struct fsdp2 *f)
{
    f->first_grad = f->low.plan->buffer_count;
    for (uint32_t p = 0; p < f->graph->param_count; p++)
        new_buffer(&f->low, CATEGORY_BACKWARD, STREAM_COMPUTE, ATEN_MM, f->low.strategy->compute,
                   f->graph->params[p].shape);
}

static uint32_t *none_array(uint32_t count)
{
    uint32_t *array = xmalloc((count + 1) * sizeof *array);
    memset(array, 0xff, (count + 1) * sizeof *array);
    return array;
}

/* Six a parameter (shard, unsharded, gradient, states), about eight a unit and micro-batch, and the
 * stream's own. */
static uint32_t buffers_expected(const struct fsdp2 *f)
{
    const uint32_t stream = f->stream ? f->stream->buffer_count : 0;
    return 6 * f->graph->param_count + 64 +
           f->low.strategy->accumulate * (stream + 8 * (f->graph->module_count + 1));
}

static void open_state(struct fsdp2 *f, const struct graph *graph, const struct strategy *strategy)
{
    f->low.plan = plan_new();
    f->low.strategy = strategy;
    f->low.here = (struct plan_instruction){.group = PLAN_NO_GROUP};
    f->graph = graph;
    f->units = xmalloc((graph->module_count + 2) * sizeof *f->units);
    f->module_unit = none_array(graph->module_count);
    f->secondary = none_array(graph->param_count);
    f->grad = none_array(graph->param_count);
    f->accumulated = none_array(graph->param_count);
    f->order = xmalloc((graph->module_count + 2) * sizeof *f->order);
    f->previous_gather = f->retained = NONE;
    plan_reserve_buffers(f->low.plan, buffers_expected(f));
    fsdp2_set_up(f);
}

static void close_state(struct fsdp2 *f)
{
    free(f->units);
    free(f->module_unit);
    free(f->secondary);
    free(f->grad);
    free(f->accumulated);
    free(f->order);
    free(f->low.gradient);
}

/* Where each parameter's sharded gradient lies in its unit's buffer: chunks in unit order, each as
 * long as the padded shard; the rows of this rank come first. */
static void set_gradients(struct fsdp2 *f)
{
    const struct plan *plan = f->low.plan;
    f->low.gradient = xmalloc(plan->param_count * sizeof *f->low.gradient);
    for (uint32_t u = 0; u < f->unit_count; u++) {
        const struct unit *unit = &f->units[u];
        uint64_t offset = 0;
        for (uint32_t i = 0; i < unit->params; i++) {
            const struct plan_param *param = param_of(f, unit, i);
            struct operand *gradient = &f->low.gradient[param_index(f, unit, i)];
            *gradient = (struct operand){.place = PLACE_NONE};
            if (!param->trainable || unit->sharded_grad == NONE)
                continue;
            *gradient = plan_whole_buffer(plan, unit->sharded_grad);
            gradient->offset = offset;
            gradient->shape = param->local;
            offset += padded_elements(&param->shape, f->shard_ranks) / f->shard_ranks;
        }
    }
}

static void run_step(struct fsdp2 *f)
{
    const struct strategy *strategy = f->low.strategy;
    emit_mark(&f->low, PLAN_MARK_START);
    for (uint32_t i = 0; i < strategy->accumulate; i++) {
        f->sync = strategy->accumulate_sync || i + 1 == strategy->accumulate;
        if (f->stream)
            append_stream_buffers(f);
        run_micro_batch(f);
    }
    if (strategy->offload) { /* grad_offload_event: the host's optimizer needs the gradients */
        emit_wait(&f->low, STREAM_HOST, emit_record(&f->low, STREAM_REDUCE_SCATTER));
        emit_wait(&f->low, STREAM_HOST, emit_record(&f->low, STREAM_ALL_REDUCE));
        emit_wait(&f->low, STREAM_HOST, emit_record(&f->low, STREAM_COPY_IN));
    }
    f->low.here.phase = PLAN_STEP;
    emit_mark(&f->low, PLAN_MARK_OPTIMIZER);
    if (f->low.tally == NULL)
        set_gradients(f);
    if (strategy->max_norm > 0)
        emit_clip(&f->low, f->shard_group);
    if (strategy->offload) /* clipping ran on the device's stream */
        emit_wait(&f->low, STREAM_HOST, emit_record(&f->low, STREAM_COMPUTE));
    emit_optimizer(&f->low);
    emit_mark(&f->low, PLAN_MARK_AFTER_STEP);
    zero_grad(f);
    emit_mark(&f->low, PLAN_MARK_END);
}

enum err_code lower_fsdp2(const struct graph *graph, struct stream *stream,
                          const struct strategy *strategy, struct plan **out, struct err *err)
{
    *out = NULL;
    TRY(fsdp2_check(strategy, err));
    struct fsdp2 f = {.stream = stream};
    open_state(&f, graph, strategy);
    take_kernels(&f, stream);
    run_step(&f);
    close_state(&f);
    *out = f.low.plan;
    return ERR_OK;
}

enum err_code tally_fsdp2(const struct graph *graph, const struct stream_summary *summary,
                          const struct strategy *strategy, struct tally_result *out,
                          struct err *err)
{
    TRY(fsdp2_check(strategy, err));
    *out = (struct tally_result){0};
    struct tally tally = {.out = out};
    struct fsdp2 f = {.summary = summary, .low = {.tally = &tally}};
    open_state(&f, graph, strategy);
    declare_grads(&f);
    const struct plan *plan = f.low.plan;
    for (uint32_t b = 0; b < plan->buffer_count; b++)
        if (plan->buffers[b].resident) {
            tally.live += plan->buffers[b].bytes;
            tally.rounded += (plan->buffers[b].bytes + 511) & ~511ULL;
        }
    run_step(&f);
    close_state(&f);
    plan_free(f.low.plan);
    return ERR_OK;
}

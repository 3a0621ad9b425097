/* driver.c - one step of any system: see lowering.h.
 *
 * What every system shares: the parameters and inputs of the model, micro-batches, the stream's own
 * births, deaths and kernels, AccumulateGrad, and the order of a step. What happens at the hooks is
 * the system's. */
#include "graph/op_table.h"
#include "lower/aside.h"
#include "lower/gradients.h"
#include "lower/states.h"
#include "lower/tally.h"

#include <stdlib.h>
#include <string.h>

/* ---- what is there before the first step ---- */

/* The names that the numbers in kernels and buffers stand for. */
static void name_numbers(struct plan *plan, const struct kernel_table *kernels)
{
    plan->labels = kernels->labels ? kernels->labels : aten_names();
    plan->label_count = kernels->labels ? kernels->label_count : ATEN_COUNT;
    plan->kinds = op_names();
    plan->kind_count = OP_KIND_COUNT;
}

static void declare_params(struct lowering *low)
{
    const struct graph *graph = low->graph;
    struct plan *plan = low->plan;
    plan->param_count = graph->param_count;
    plan->params = arena_lend(&plan->arena, graph->param_count * sizeof *plan->params);
    for (uint32_t p = 0; p < graph->param_count; p++) {
        struct plan_param *param = &plan->params[p];
        *param = (struct plan_param){
            .name = low->nameless ? graph->params[p].name
                                  : arena_strdup(&plan->arena, graph->params[p].name),
            .shape = graph->params[p].shape,
            .trainable = graph->params[p].trainable,
            .beside = p >= graph_own_params(graph),
            .packed = graph->params[p].packed,
            .step_buffer = NONE,
            .init = graph->params[p].init,
        };
        memset(param->piece, 0xff, sizeof param->piece);
    }
}

/* Module buffers and the batch: there from the start. Micro-batches reuse one batch. */
static void declare_inputs(struct lowering *low)
{
    const struct graph *graph = low->graph;
    struct plan *plan = low->plan;
    plan->inputs = arena_alloc(&plan->arena, graph->input_count * sizeof *plan->inputs);
    plan->module_buffers =
        arena_alloc(&plan->arena, graph->buffer_count * sizeof *plan->module_buffers);
    plan->input_count = graph->input_count;
    plan->module_buffer_count = graph->buffer_count;
    for (uint32_t i = 0; i < graph->given_count; i++) {
        const struct graph_storage *storage = &graph->storages[graph->given[i]];
        const bool is_input = storage->kind == STORAGE_INPUT;
        const uint32_t buffer =
            new_resident(low, is_input ? CATEGORY_INPUT : CATEGORY_BUFFER, LANE_COMPUTE, ATEN_EMPTY,
                         (enum dtype)storage->dtype, storage->shape);
        if (is_input)
            plan->inputs[storage->index] =
                (struct plan_input){buffer, graph->inputs[storage->index]};
        else
            plan->module_buffers[storage->index] =
                (struct plan_module_buffer){buffer, graph->buffers[storage->index]};
    }
}

/* What the step before returned and the script still has a name for. It goes when this one's takes
 * that name, which is of the same bytes: so it stays, and this one's goes. */
static void declare_outputs(struct lowering *low)
{
    const struct graph *graph = low->graph;
    for (uint32_t i = 0; graph->outputs_kept == OUTPUTS_UNTIL_NEXT && i < graph->output_count;
         i++) {
        const struct graph_tensor *kept = &graph->tensors[graph->outputs[i]];
        const struct graph_storage *storage = &graph->storages[kept->storage];
        new_resident(low, CATEGORY_ACTIVATION, LANE_COMPUTE, (enum aten)storage->aten,
                     (enum dtype)storage->dtype, storage->shape);
    }
}

/* ---- one micro-batch ---- */

void move_gradient(struct lowering *low, uint32_t param, struct operand to)
{
    const uint32_t from = low->grad[param].place;
    if (from != to.place && from != low->incoming && !low->plan->buffers[from].resident)
        emit_free(low, from);
    low->grad[param] = to;
}

void exchange_gradient(struct lowering *low, uint32_t param, struct operand to, uint8_t lane)
{
    const uint32_t from = low->grad[param].place;
    if (lane == low->plan->buffers[from].pool)
        emit_free(low, from);
    else
        emit_free_after(low, from, lane);
    if (from == low->incoming)
        low->incoming = NONE;
    low->grad[param] = to;
}

/* Of a system whose parameters move: a kernel of its own, where they are now. */
static uint32_t place_params(struct lowering *low, uint32_t index)
{
    const struct kernel shared = *plan_kernel(low->plan, index);
    const uint32_t count = (uint32_t)shared.ins + shared.outs;
    struct operand *operands = arena_alloc(&low->scratch, (count + 1) * sizeof *operands);
    bool uses = false;
    for (uint32_t i = 0; i < count; i++) {
        struct operand *x = &operands[i];
        *x = shared.operands[i];
        if (x->place == PLACE_NONE)
            continue;
        if ((x->place & PLACE_MASK) == PLACE_BUFFER)
            x->place += low->base;
        if ((x->place & PLACE_MASK) != PLACE_PARAM)
            continue;
        const struct operand *now = &low->gathered[x->place & ~PLACE_MASK];
        uses = true;
        x->place = now->place;
        x->offset += now->offset;
    }
    if (!uses)
        return NONE;
    const uint32_t placed =
        plan_add_kernel(low->plan, (enum work_kind)shared.work, shared.label, shared.ins, operands,
                        shared.outs, operands + shared.ins);
    struct kernel *own = plan_own_kernel(low->plan, placed);
    struct operand *mine = own->operands;
    *own = shared;
    own->operands = mine;
    own->placed = true;
    return placed;
}

static void pass_kernel(struct lowering *low, uint32_t kernel)
{
    if (low->tally) {
        low->tally->pending++;
        return;
    }
    const uint32_t placed = low->gathered ? place_params(low, kernel) : NONE;
    struct plan_instruction *instruction = plan_push_instruction(low->plan);
    *instruction = low->here;
    instruction->op = PLAN_COMPUTE;
    instruction->lane = LANE_COMPUTE;
    instruction->group = PLAN_NO_GROUP;
    instruction->arg = placed == NONE ? kernel : placed;
    instruction->base = placed == NONE ? low->base : 0;
}

static void pass_mark(struct lowering *low, enum stream_mark mark)
{
    static const enum plan_mark marks[] = {
        [STREAM_AFTER_LOGITS] = PLAN_MARK_AFTER_LOGITS,
        [STREAM_AFTER_FORWARD] = PLAN_MARK_AFTER_FORWARD,
        [STREAM_BACKWARD_BLOCKS] = PLAN_MARK_BACKWARD_BLOCKS,
        [STREAM_AFTER_BACKWARD] = PLAN_MARK_AFTER_BACKWARD,
    };
    if (mark != STREAM_BACKWARD_BLOCKS || !low->system->marks_blocks)
        emit_mark(low, marks[mark]);
    if (mark == STREAM_AFTER_FORWARD)
        low->here.phase = PLAN_BACKWARD;
}

/* ---- where the host is, for those who show it (plan/modules.h) ---- */

static void name_modules(struct lowering *low)
{
    const struct graph *graph = low->graph;
    low->module_names = arena_alloc(&low->scratch, (graph->module_count + 1) * sizeof(char *));
    for (uint32_t m = 0; m < graph->module_count && !low->tally; m++)
        low->module_names[m] = arena_strdup(&low->plan->arena, graph->modules[m].name);
}

static void note_module(struct lowering *low)
{
    const uint32_t module = low->depth ? low->inside[low->depth - 1] : MODULE_ROOT;
    plan_add_module_span(low->plan, module == MODULE_ROOT ? "" : low->module_names[module]);
}

static void enter_module(struct lowering *low, uint32_t module)
{
    if (low->tally || low->depth == MODULES_DEEP)
        return;
    low->inside[low->depth++] = module;
    note_module(low);
}

/* Backward leaves some modules without saying so: the next one around them says it. */
static void leave_module(struct lowering *low, uint32_t module)
{
    uint32_t at = low->depth;
    while (at > 0 && low->inside[at - 1] != module)
        at--;
    if (low->tally || at == 0)
        return;
    low->depth = at - 1;
    note_module(low);
}

static void call(struct lowering *low, void (*hook)(struct lowering *low))
{
    if (hook)
        hook(low);
}

static void call_for(struct lowering *low, void (*hook)(struct lowering *low, uint32_t module),
                     uint32_t module)
{
    if (hook)
        hook(low, module);
}

static void run_step(struct lowering *low, struct stream_step step)
{
    const struct system *system = low->system;
    if (low->recast_count && stream_step_is_within(step) && pass_recast(low, step))
        return;
    switch (step.kind) {
    case STEP_BIRTH:
        emit_alloc(low, stream_buffer(low, step.arg));
        break;
    case STEP_DEATH:
        aside_free(low, step.arg);
        break;
    case STEP_KERNEL:
        pass_kernel(low, step.arg);
        break;
    case STEP_GIVEN:
        take_given(low, &low->stream->given[step.arg]);
        break;
    case STEP_COPIED:
        copy_gradient(low, &low->stream->grads[step.arg]);
        break;
    case STEP_GRAD:
        take_gradient(low, &low->stream->grads[step.arg]);
        break;
    case STEP_PRE_FORWARD:
        enter_module(low, step.arg);
        call_for(low, system->pre_forward, step.arg);
        break;
    case STEP_POST_FORWARD:
        call_for(low, system->post_forward, step.arg);
        leave_module(low, step.arg);
        break;
    case STEP_PRE_BACKWARD:
        enter_module(low, step.arg);
        call_for(low, system->pre_backward, step.arg);
        break;
    case STEP_BACK:
        call_for(low, system->back, step.arg);
        leave_module(low, step.arg);
        break;
    case STEP_POST_BACKWARD:
        call_for(low, system->post_backward, step.arg);
        leave_module(low, step.arg);
        break;
    case STEP_NESTED:
        call_for(low, system->nested, step.arg);
        break;
    case STEP_FINAL:
        low->depth = 0;
        enter_module(low, MODULE_ROOT);
        call(low, system->final);
        low->depth = 0;
        break;
    case STEP_READ:
        emit_sync(low, LANE_HOST, LANE_COMPUTE);
        break;
    case STEP_NO_GRAD:
        low->no_grad = step.arg;
        break;
    case STEP_CALL_FORWARD:
    case STEP_RETURN_FORWARD:
    case STEP_CALL_BACKWARD:
    case STEP_RETURN_BACKWARD:
        if (system->called)
            system->called(low, (enum step_kind)step.kind, step.arg);
        break;
    case STEP_SAVED:
        call_for(low, system->saved, step.arg);
        break;
    case STEP_UNSAVED:
        call_for(low, system->unsaved, step.arg);
        break;
    case STEP_MARK:
        pass_mark(low, (enum stream_mark)step.arg);
        break;
    default:
        aside_pass(low, step);
        break;
    }
}

static void append_buffers(struct lowering *low, const struct buffer *buffers, uint32_t count)
{
    struct plan *plan = low->plan;
    low->base = plan->buffer_count;
    plan_reserve_buffers(plan, count);
    memcpy(plan->buffers + plan->buffer_count, buffers, count * sizeof *plan->buffers);
    plan->buffer_count += count;
    aside_place(low, low->base, count);
}

/* The stream's buffers, once a micro-batch. */
static void append_stream_buffers(struct lowering *low)
{
    append_buffers(low, low->stream->buffers, low->stream->buffer_count);
    plan_reserve_instructions(low->plan, low->stream->step_count + 12 * low->plan->param_count);
}

/* Of an outline: those that the systems see, the gradients. */
static void append_gradients(struct lowering *low)
{
    append_buffers(low, low->tally->outline->gradients, low->tally->outline->gradient_count);
}

static void run_spans(struct lowering *low)
{
    const struct outline *outline = low->tally->outline;
    tally_micro_batch(low);
    for (uint32_t i = 0; i < outline->span_count && !low->tally->beyond; i++) {
        tally_span(low, &outline->spans[i]);
        low->tally->beyond = low->tally->gaps && gaps_span_beyond(low->tally->gaps, i);
        run_step(low, outline->hooks[i]);
    }
    emit_span(low);
}

static void run_micro_batch(struct lowering *low)
{
    plan_note_micro_batch(low->plan);
    if (low->tally)
        append_gradients(low);
    else
        append_stream_buffers(low);
    low->here.phase = PLAN_FORWARD;
    emit_mark(low, PLAN_MARK_MICRO_BATCH);
    call(low, low->system->begin);
    if (low->tally)
        run_spans(low);
    else
        for (uint32_t i = 0; i < low->stream->step_count; i++)
            run_step(low, low->stream->steps[i]);
}

/* ---- the step ---- */

static void update(struct lowering *low)
{
    call(low, low->system->before_step);
    if (low->strategy->max_norm > 0)
        emit_clip(low);
    emit_optimizer(low);
    call(low, low->system->after_step);
}

/* More of it is not asked for. */
static bool is_beyond(const struct lowering *low)
{
    return low->tally && low->tally->beyond;
}

/* `updates`: with optimizer.step(), which leaves nothing in a system's state that settles. */
static void run(struct lowering *low, bool updates)
{
    const struct strategy *strategy = low->strategy;
    emit_mark(low, PLAN_MARK_START);
    for (uint32_t i = 0; i < strategy->accumulate && !is_beyond(low); i++) {
        low->micro_batch = i;
        low->sync = strategy->accumulate_sync || i + 1 == strategy->accumulate;
        run_micro_batch(low);
    }
    if (is_beyond(low))
        return;
    low->here.phase = PLAN_STEP;
    emit_mark(low, PLAN_MARK_OPTIMIZER);
    if (updates && low->system->update)
        low->system->update(low);
    else if (updates)
        update(low);
    emit_mark(low, PLAN_MARK_AFTER_STEP);
    call(low, low->system->close);
    emit_mark(low, PLAN_MARK_END);
}

/* A step before the first that is kept: the system's state is what a step leaves behind. */
static void settle(struct lowering *low)
{
    struct plan *plan = low->plan;
    const struct plan before = *plan;
    run(low, false);
    plan->instruction_count = before.instruction_count;
    plan->buffer_count = before.buffer_count;
    plan->kernel_count = before.kernel_count;
    plan->event_count = before.event_count;
    plan->piece_count = before.piece_count;
    plan->module_span_count = before.module_span_count;
    plan->micro_batch_count = before.micro_batch_count;
    for (uint32_t p = 0; p < plan->param_count; p++)
        plan->params[p].piece[PIECE_GRADIENT] = NONE;
    low->here = (struct plan_instruction){.group = PLAN_NO_GROUP};
    forget_issued(low);
    if (low->tally)
        tally_begin(low->tally);
}

/* Six a parameter (shard, unsharded, gradient, states), about eight a unit and micro-batch, and the
 * stream's own. */
static uint32_t buffers_expected(const struct lowering *low)
{
    const uint32_t of_stream = low->tally ? low->stream->grad_count : low->stream->buffer_count;
    return 6 * low->graph->param_count + 64 +
           low->strategy->accumulate * (of_stream + 8 * (low->graph->module_count + 1));
}

/* Parameters of no elements are all that some recordings train. */
static bool trains(const struct graph *graph)
{
    for (uint32_t p = 0; p < graph->param_count; p++)
        if (graph->params[p].trainable && shape_elements(&graph->params[p].shape))
            return true;
    return false;
}

enum err_code lower_check_with(const struct system *system, const struct graph *graph,
                               const struct stream *stream, const struct strategy *s,
                               struct err *err)
{
    if (s->rank >= s->world)
        return err_set(err, ERR_INVALID, "--rank %u: allowed are 0 ... %u", s->rank, s->world - 1);
    if (!trains(graph))
        return err_set(err, ERR_INVALID, "nothing is trained: no parameter that is has an element");
    TRY(check_optimizer(system, s, err));
    return system->check ? system->check(s, graph, stream, err) : ERR_OK;
}

/* Into an empty plan. `tally`: of an outline; else NULL. */
static void lower(const struct system *system, const struct graph *graph,
                  const struct stream *stream, const struct strategy *strategy, struct tally *tally,
                  bool nameless, struct plan *plan)
{
    struct lowering low = {
        .plan = plan,
        .system = system,
        .graph = graph,
        .stream = stream,
        .hooks = tally ? tally->outline->hooks : stream->steps,
        .hook_count = tally ? tally->outline->span_count : stream->step_count,
        .strategy = strategy,
        .tally = tally,
        .nameless = nameless,
        .here = {.group = PLAN_NO_GROUP},
        .norm_group = PLAN_NO_GROUP,
        .incoming = NONE,
        .tables = {NONE, NONE},
    };
    low.state = arena_alloc(&low.scratch, system->state_bytes);
    low.grad = arena_lend(&low.scratch, (graph->param_count + 1) * sizeof *low.grad);
    low.strided = arena_alloc(&low.scratch, (graph->param_count + 1) * sizeof *low.strided);
    for (uint32_t p = 0; p < graph->param_count; p++)
        low.grad[p].place = NONE;
    if (tally)
        low.last = arena_lend(&low.scratch, WORK_KIND_COUNT * sizeof *low.last);
    forget_issued(&low);
    low.plan->system = system->name;
    low.plan->world = strategy->world;
    low.plan->rank = strategy->rank;
    low.plan->own_programs = system->own_programs && strategy->world > 1;
    plan_share_kernels(low.plan, stream->kernels);
    plan_reserve_buffers(low.plan, buffers_expected(&low));
    name_numbers(low.plan, stream->kernels);
    declare_params(&low);
    name_modules(&low);
    system->set_up(&low);
    aside_set_up(&low);
    declare_inputs(&low);
    declare_outputs(&low);
    if (!low.optimized)
        optimize_params(&low, NULL, graph->param_count);
    low.plan->own_programs |= strategy->world > 1 && states_differ_by_rank(&low);
    if (tally && tally->gaps)
        tally->beyond = gaps_begin_beyond(tally->gaps, plan);
    if (system->settles && !is_beyond(&low))
        settle(&low);
    if (tally && tally->gaps)
        gaps_watch(tally->gaps);
    if (!is_beyond(&low))
        run(&low, true);
    call(&low, system->tear_down);
    free(low.recast);
    arena_free(&low.scratch);
}

enum err_code lower_with(const struct system *system, const struct graph *graph,
                         const struct stream *stream, const struct strategy *strategy,
                         struct plan **out, struct err *err)
{
    *out = NULL;
    TRY(lower_check_with(system, graph, stream, strategy, err));
    *out = plan_new();
    lower(system, graph, stream, strategy, NULL, false, *out);
    return ERR_OK;
}

/* An empty plan, in the memory of the one before if there is any. */
static void begin_again(struct plan **plan)
{
    if (*plan)
        plan_clear(*plan);
    else
        *plan = plan_new();
}

enum err_code lower_nameless_with(const struct system *system, const struct graph *graph,
                                  const struct stream *stream, const struct strategy *strategy,
                                  struct plan **plan, struct err *err)
{
    TRY(lower_check_with(system, graph, stream, strategy, err));
    begin_again(plan);
    lower(system, graph, stream, strategy, NULL, true, *plan);
    return ERR_OK;
}

enum err_code lower_outline_with(const struct system *system, const struct graph *graph,
                                 const struct outline *outline, const struct strategy *strategy,
                                 struct outlined *out, struct err *err)
{
    struct tally tally = {.outline = outline, .ledger = out->ledger};
    TRY(lower_check_with(system, graph, outline->stream, strategy, err));
    begin_again(&out->plan);
    if (out->gaps)
        tally.gaps = gaps_new(out->gaps, outline->span_count, out->limit);
    tally_begin(&tally);
    lower(system, graph, outline->stream, strategy, &tally, true, out->plan);
    out->beyond = tally.beyond;
    if (!tally.beyond)
        tally_result(&tally, out->plan, out);
    gaps_free_all(tally.gaps);
    return ERR_OK;
}

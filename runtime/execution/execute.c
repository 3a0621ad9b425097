/* execute.c - see execute.h.
 *
 *     instruction        what the host does
 *     alloc, free        the caching allocator, over segments of the device
 *     compute ...        resolves operands to addresses and launches on the stream
 *     record, wait       passed on
 *     mark micro_batch   queues a copy of the next sequences
 *     mark optimizer     launches the norms of all gradients, for the report
 *
 * Three things happen that the plan does not say, all outside its memory: batches are written, the
 * loss and the gradient norms are copied to a few scalars that are read when the step is done.
 *
 * In a rehearsal whose kernels are waits (execute_rehearsal.c) the last two do not: nothing that
 * memory holds has a meaning then, or is looked at. */
#include "runtime/execution/execute.h"

#include "memory/deferred.h"
#include "runtime/device/clock.h"
#include "runtime/execution/execute_parts.h"
#include "runtime/execution/plan_work.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- memory ---- */

static uint64_t new_segment(void *context, uint64_t bytes)
{
    struct execution *e = context;
    const uint64_t address = device_segment_new(e->device, bytes);
    if (address && e->moved)
        execution_touch(e, address, bytes);
    return address;
}

static void drop_segment(void *context, uint64_t address, uint64_t bytes)
{
    execution_catch_up(context);
    execution_poison_forget(context, address, bytes);
    device_segment_drop(((struct execution *)context)->device, address, bytes);
}

/* For the allocator, when it is about to give up: what streams still use is theirs no more. */
static void complete_frees(void *context)
{
    struct execution *e = context;
    device_sync(e->device, NULL); /* a failure is for the next call that can fail */
    deferred_complete(e->deferred);
}

static void free_buffer(struct execution *e, uint32_t id)
{
    const struct plan_instruction *instruction = &e->plan->instructions[id];
    const uint32_t index = instruction->arg;
    /* Host memory is kept for the next step: work that reads it may still be queued, and malloc
     * knows nothing of streams. */
    if (e->block[index] && plan_free_is_deferred(e->plan, instruction))
        deferred_free(e->deferred, id, e->first_step, e->block[index]);
    else if (e->block[index])
        allocator_free_block(e->allocator, e->block[index]);
    e->block[index] = NULL;
}

/* ---- what the plan does not say ---- */

/* Copies the scalar loss to our own memory: the plan frees it before the step ends. */
static enum err_code keep_loss(struct execution *e, uint32_t id, struct err *err)
{
    const struct plan_instruction *instruction = &e->plan->instructions[id];
    const struct kernel *kernel = plan_kernel(e->plan, instruction->arg);
    struct work_operand operand[2];
    operand[0] = execution_operand(e, instruction, &kernel->operands[kernel->ins]);
    operand[1] = operand[0];
    operand[1].data = (float *)(uintptr_t)e->scalars + e->micro_batch - 1;
    operand[1].dtype = DTYPE_FP32; /* as all of ours: a model may leave its loss in 16 bits */
    const struct work work = {
        .kind = WORK_CAST, .instruction = id, .ins = 1, .outs = 1, .operand = operand, .group = -1};
    return device_launch(e->device, LANE_COMPUTE, &work, err);
}

/* Norms of the gradients' parts that instruction `id` is the first to scale or to use; where they
 * are, offloaded ones on the host. */
static enum err_code launch_norms(struct execution *e, uint32_t id, struct err *err)
{
    const struct plan *plan = e->plan;
    const struct plan_instruction *update = &plan->instructions[id];
    uint32_t n = 0, done = 0;
    for (uint32_t i = 0; i < e->normed_count; i++)
        n += e->norm_at[i] == id;
    if (n == 0)
        return ERR_OK;
    for (uint32_t i = 0; i < e->normed_count; i++) {
        if (e->norm_at[i] != id)
            continue;
        const struct operand gradient =
            plan_piece_operand(plan, plan_piece(plan, e->normed[i], PIECE_GRADIENT));
        e->operands[done] = execution_operand(e, update, &gradient);
        if (!e->operands[done].data && shape_elements(&gradient.shape) > 0)
            return err_set(err, ERR_INVALID, "instruction %u: the gradient of %s is not there", id,
                           plan->params[e->normed[i]].name);
        e->operands[n + done++] = (struct work_operand){
            .data = (float *)(uintptr_t)e->scalars + e->micro_batches + i,
            .dtype = DTYPE_FP32,
        };
    }
    const struct work work = {.kind = WORK_NORMS,
                              .instruction = id,
                              .ins = n,
                              .outs = n,
                              .operand = e->operands,
                              .group = -1};
    return device_launch(e->device, update->lane, &work, err);
}

/* ---- instructions ---- */

static enum err_code pass_mark(struct execution *e, enum plan_mark mark, uint32_t instruction,
                               struct err *err)
{
    if (mark == PLAN_MARK_MICRO_BATCH) {
        TRY(execution_write_batch(e, instruction, err));
        e->micro_batch++;
    }
    return ERR_OK;
}

/* Whether it scales gradients, or updates by them. */
static bool uses_gradients(const struct plan *plan, uint32_t id)
{
    const struct plan_instruction *instruction = &plan->instructions[id];
    return instruction->op == PLAN_OPTIMIZER ||
           (instruction->op == PLAN_COMPUTE && instruction->phase == PLAN_STEP &&
            plan_kernel(plan, instruction->arg)->work == WORK_SCALE);
}

static enum err_code run_instruction(struct execution *e, uint32_t id, struct err *err)
{
    const struct plan_instruction *instruction = &e->plan->instructions[id];
    const uint8_t lane = instruction->lane;
    switch (instruction->op) {
    case PLAN_ALLOC:
        if ((instruction->flags & PLAN_FIRST_STEP) && execution_address(e, instruction->arg))
            return ERR_OK; /* a state that a checkpoint brought */
        TRY(execution_poison_freed(e, id, err));
        TRY(execution_alloc(e, instruction->arg, id, err));
        TRY(execution_poison_new(e, id, err));
        if (e->plan->buffers[instruction->arg].scratch)
            e->scratch = instruction->arg;
        return instruction->flags & PLAN_FIRST_STEP ? execution_zero(e, instruction->arg, id, err)
                                                    : ERR_OK;
    case PLAN_FREE:
        if (e->scratch == instruction->arg)
            e->scratch = PLACE_NONE;
        execution_poison_later(e, id);
        free_buffer(e, id);
        return ERR_OK;
    case PLAN_USE:
        deferred_pass(e->deferred, id);
        return ERR_OK;
    case PLAN_RECORD:
        deferred_pass(e->deferred, id);
        return device_record(e->device, lane, instruction->arg, err);
    case PLAN_WAIT:
        deferred_pass(e->deferred, id);
        return lane == LANE_HOST ? device_hold(e->device, instruction->arg, err)
                                 : device_wait(e->device, lane, instruction->arg, err);
    case PLAN_MARK:
        return pass_mark(e, (enum plan_mark)instruction->arg, id, err);
    default:
        if (plan_op_is_collective((enum plan_op)instruction->op))
            deferred_pass(e->deferred, id);
        if (e->moved)
            return execution_rehearse(e, id, err);
        if (uses_gradients(e->plan, id))
            TRY(launch_norms(e, id, err));
        if (fusion_chain(e->fusion, id))
            return execution_put_off(e, id, err);
        TRY(execution_launch(e, id, NULL, err));
        return plan_kernel(e->plan, instruction->arg)->work == WORK_NLL_LOSS ? keep_loss(e, id, err)
                                                                             : ERR_OK;
    }
}

static void record_memory(struct execution *e, uint32_t id)
{
    const struct allocator_stats *stats = allocator_stats(e->allocator);
    e->record[id].allocated = stats->allocated_bytes;
    e->record[id].reserved = stats->reserved_bytes;
}

static void take_time(void *context, uint32_t instruction, uint8_t stream, double begin_s,
                      double end_s)
{
    struct execution *e = context;
    struct step_record *record = &e->record[instruction];
    (void)stream;
    begin_s -= e->start_s;
    end_s -= e->start_s;
    if (record->end_s > 0) { /* our own small work shares an instruction's id, on any lane */
        record->begin_s = begin_s < record->begin_s ? begin_s : record->begin_s;
        record->end_s = end_s > record->end_s ? end_s : record->end_s;
        return;
    }
    record->begin_s = begin_s;
    record->end_s = end_s;
}

static void drop_time(void *context, uint32_t instruction, uint8_t stream, double begin_s,
                      double end_s)
{
    (void)context, (void)instruction, (void)stream, (void)begin_s, (void)end_s;
}

/* ---- results ---- */

/* Over the ranks of a group: a sum, or the average. */
static enum err_code sum_over(struct execution *e, uint8_t group, float *values, uint64_t count,
                              bool average, struct err *err)
{
    if (!e->comm || group == PLAN_NO_GROUP || count == 0)
        return ERR_OK;
    return comm_all_reduce(e->comm, group, comm_ticket(e->comm, group), values, values, count,
                           DTYPE_FP32, average, 0, err);
}

/* The mean over all ranks: the mesh's dims one after the other. */
static enum err_code average_loss(struct execution *e, const float *losses, float *loss,
                                  struct err *err)
{
    static const enum group_role dims[] = {GROUP_DATA, GROUP_SHARD, GROUP_REPLICATE};
    *loss = 0.0F;
    for (uint32_t i = 0; i < e->micro_batches; i++)
        *loss += losses[i] / (float)e->micro_batches;
    for (int d = 0; d < 3; d++)
        TRY(sum_over(e, plan_group_of_role(e->plan, dims[d]), loss, 1, true, err));
    return ERR_OK;
}

/* Squares of the norms, summed over the ranks that hold other parts of the same gradients. */
static enum err_code sum_squares(struct execution *e, float *squares, struct err *err)
{
    const struct plan *plan = e->plan;
    float *of_group = xmalloc((plan->param_count + 1) * sizeof *of_group);
    enum err_code rc = ERR_OK;
    for (uint32_t g = 0; g < plan->group_count && rc == ERR_OK; g++) {
        uint32_t n = 0;
        for (uint32_t p = 0; p < plan->param_count; p++) {
            const struct plan_piece *gradient = plan_piece(plan, p, PIECE_GRADIENT);
            if (gradient && gradient->group == g)
                of_group[n++] = squares[p];
        }
        rc = sum_over(e, (uint8_t)g, of_group, n, false, err);
        for (uint32_t p = plan->param_count; p-- > 0;) {
            const struct plan_piece *gradient = plan_piece(plan, p, PIECE_GRADIENT);
            if (gradient && gradient->group == g)
                squares[p] = of_group[--n];
        }
    }
    free(of_group);
    return rc;
}

static enum err_code collect(struct execution *e, struct step_result *result, struct err *err)
{
    const struct plan *plan = e->plan;
    if (e->moved) {
        result->loss = result->grad_norm = NAN;
        return ERR_OK;
    }
    const uint32_t count = e->micro_batches + e->normed_count;
    float *scalars = xmalloc((count + 1) * sizeof *scalars), loss = 0.0F;
    enum err_code rc = device_read(e->device, scalars, e->scalars, count * sizeof *scalars, err);
    if (rc == ERR_OK)
        rc = average_loss(e, scalars, &loss, err);

    /* A parameter that is all elsewhere has no gradient here: its square is 0. */
    float *squares = xcalloc(plan->param_count + 1, sizeof *squares);
    for (uint32_t i = 0; i < e->normed_count; i++)
        squares[e->normed[i]] = scalars[e->micro_batches + i] * scalars[e->micro_batches + i];
    if (rc == ERR_OK)
        rc = sum_squares(e, squares, err);
    double total = 0.0;
    for (uint32_t p = 0; p < plan->param_count; p++) {
        e->param_norm[p] = sqrt((double)squares[p]);
        total += (double)squares[p];
    }
    result->loss = (double)loss;
    result->grad_norm = sqrt(total);
    free(squares);
    free(scalars);
    return rc;
}

static uint64_t unix_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

enum err_code execution_step(struct execution *e, uint32_t step, struct step_result *result,
                             struct err *err)
{
    /* What ran before (filling parameters, checkpoints) is no part of the step. */
    TRY(device_sync(e->device, err));
    e->device->ops->take_times(e->device, drop_time, NULL);
    device_time_work(e->device, e->recorded);
    const double start = e->start_s = clock_now_s();
    e->step = step;
    e->micro_batch = 0;
    e->status->step = step;
    memset(e->record, 0, e->plan->instruction_count * sizeof *e->record);
    for (uint32_t id = 0; id < e->plan->instruction_count; id++) {
        if (!plan_is_issued(&e->plan->instructions[id], e->first_step))
            continue;
        e->status->instruction = id;
        const double issue = clock_now_s();
        if (e->settings.frames)
            snapshot_frames_instruction(e->settings.frames, id, unix_us());
        TRY(run_instruction(e, id, err));
        e->record[id].issue_begin_s = issue - start;
        e->record[id].issue_end_s = clock_now_s() - start;
        record_memory(e, id);
    }
    TRY(device_sync(e->device, err));
    result->seconds = clock_now_s() - start; /* reading times is no part of the step */
    deferred_end_step(e->deferred);
    e->device->ops->take_times(e->device, take_time, e);
    e->first_step = false;
    return collect(e, result, err);
}

void execution_record(struct execution *e, bool on)
{
    e->recorded = on;
}

/* ---- opening ---- */

/* The parameters of whose gradient this rank has a part. */
static void list_normed(struct execution *e)
{
    const struct plan *plan = e->plan;
    e->normed = xmalloc((plan->param_count + 1) * sizeof *e->normed);
    for (uint32_t p = 0; p < plan->param_count; p++) {
        const struct plan_piece *gradient = plan_piece(plan, p, PIECE_GRADIENT);
        if (!gradient)
            continue;
        const struct part part = plan_part(plan, gradient, plan->rank);
        if (part_elements(&part))
            e->normed[e->normed_count++] = p;
    }
}

/* Gradients are as backward left them until something of the step takes them. */
static void place_norms(struct execution *e)
{
    const struct plan *plan = e->plan;
    uint32_t *taken_by = xcalloc(plan->buffer_count + 1, sizeof *taken_by); /* instruction + 1 */
    for (uint32_t id = plan->instruction_count; id-- > 0;) {
        if (!uses_gradients(plan, id))
            continue;
        const struct kernel *kernel = plan_kernel(plan, plan->instructions[id].arg);
        for (uint32_t i = 0; i < (uint32_t)kernel->ins + kernel->outs; i++)
            if ((kernel->operands[i].place & PLACE_MASK) == PLACE_BUFFER)
                taken_by[plan->instructions[id].base + kernel->operands[i].place] = id + 1;
    }
    e->norm_at = xmalloc((e->normed_count + 1) * sizeof *e->norm_at);
    for (uint32_t i = 0; i < e->normed_count; i++) {
        const uint32_t by = taken_by[plan_piece(plan, e->normed[i], PIECE_GRADIENT)->buffer];
        e->norm_at[i] = by ? by - 1 : e->optimizer;
    }
    free(taken_by);
}

static enum work_backend backend_of(const struct execution *e)
{
    return strcmp(e->device->ops->name, "cuda") == 0 ? WORK_ON_CUDA : WORK_ON_HOST;
}

static enum err_code prepare(struct execution *e, struct err *err)
{
    const struct plan *plan = e->plan;
    uint32_t widest = FUSE_OPERANDS;
    e->optimizer = PLACE_NONE;
    TRY(e->settings.waits ? plan_list_moved(plan, backend_of(e), &e->moved, err)
                          : plan_check_runnable(plan, backend_of(e), err));
    for (uint32_t id = 0; id < plan->instruction_count; id++) {
        const struct plan_instruction *instruction = &plan->instructions[id];
        if (instruction->op == PLAN_MARK && instruction->arg == PLAN_MARK_MICRO_BATCH)
            e->micro_batches++;
        if (!plan_op_is_kernel((enum plan_op)instruction->op))
            continue;
        const struct kernel *kernel = plan_kernel(plan, instruction->arg);
        const uint32_t operands = 2U * kernel->ins + kernel->outs;
        widest = operands > widest ? operands : widest;
        if (instruction->op == PLAN_OPTIMIZER)
            e->optimizer = id;
    }
    widest = widest < 2 * plan->param_count ? 2 * plan->param_count : widest; /* norms */
    e->operands = xmalloc(widest * sizeof *e->operands);
    if (e->moved)
        return ERR_OK;
    list_normed(e);
    place_norms(e);
    if ((uint64_t)e->micro_batches + e->normed_count > SEGMENT_BYTES / sizeof(float))
        return err_set(err, ERR_UNSUPPORTED,
                       "%u micro-batches and %u gradients: at most %zu in all", e->micro_batches,
                       e->normed_count, SEGMENT_BYTES / sizeof(float));
    return ERR_OK;
}

static enum err_code alloc_initial(struct execution *e, struct err *err)
{
    bool *initial = plan_initial_buffers(e->plan);
    enum err_code rc = ERR_OK;
    for (uint32_t b = 0; b < e->plan->buffer_count && rc == ERR_OK; b++)
        if (initial[b]) {
            if (e->settings.frames)
                snapshot_frames_buffer(e->settings.frames, b, unix_us());
            rc = execution_alloc(e, b, 0, err);
        }
    free(initial);
    return rc;
}

enum err_code execution_open(const struct plan *plan, struct device *device, struct comm *comm,
                             struct data *data, const struct run_settings *settings,
                             struct execution **out, struct err *err)
{
    struct execution *e = xmalloc(sizeof *e);
    *out = e;
    *e = (struct execution){
        .plan = plan,
        .device = device,
        .comm = comm,
        .data = data,
        .settings = *settings,
        .scratch = PLACE_NONE,
        .block = xcalloc(plan->buffer_count + 1, sizeof(struct allocator_block *)),
        .host = xcalloc(plan->buffer_count + 1, sizeof(void *)),
        .record = xcalloc(plan->instruction_count + 1, sizeof(struct step_record)),
        .param_norm = xcalloc(plan->param_count + 1, sizeof(double)),
        .first_step = true,
        .recorded = true,
    };
    e->status = status_of_rank(plan->rank, &e->own_status);
    e->settings.allocator.segment_new = new_segment;
    e->settings.allocator.segment_drop = drop_segment;
    e->settings.allocator.context = e;
    e->settings.allocator.complete_frees = complete_frees;
    e->settings.allocator.free_context = e;
    e->allocator = allocator_new(&e->settings.allocator);
    e->deferred = deferred_new(plan, e->allocator, NULL);
    enum err_code rc = prepare(e, err);
    if (rc == ERR_OK) {
        e->scalars = device_segment_new(device, SEGMENT_BYTES);
        if (!e->scalars)
            rc = err_set(err, ERR_NOMEM, "the device has no memory at all");
    }
    if (rc == ERR_OK)
        rc = execution_open_batches(e, err);
    if (rc == ERR_OK && settings->poison)
        e->shared = execution_list_shared(plan);
    if (rc == ERR_OK && settings->fuse && !e->moved)
        e->fusion = fusion_find(plan, backend_of(e));
    if (rc == ERR_OK && !e->moved)
        rc = execution_prepare_products(e, err);
    if (rc == ERR_OK)
        rc = alloc_initial(e, err);
    if (rc == ERR_OK && !e->moved)
        rc = execution_fill(e, err);
    if (rc != ERR_OK) {
        execution_close(e);
        *out = NULL;
    }
    return rc;
}

void execution_close(struct execution *e)
{
    if (!e)
        return;
    if (e->scalars)
        device_segment_drop(e->device, e->scalars, SEGMENT_BYTES);
    execution_close_batches(e);
    for (uint32_t b = 0; b < e->plan->buffer_count; b++)
        device_host_drop(e->device, e->host[b], e->plan->buffers[b].bytes);
    deferred_close(e->deferred);
    execution_close_put_off(e);
    fusion_close(e->fusion);
    allocator_free(e->allocator); /* drops segments, which looks at what was freed */
    free(e->block);
    free(e->host);
    free(e->operands);
    free(e->freed);
    free(e->shared);
    free(e->moved);
    free(e->normed);
    free(e->norm_at);
    free(e->record);
    free(e->param_norm);
    free(e);
}

const struct step_record *execution_records(const struct execution *e)
{
    return e->record;
}

const double *execution_param_norms(const struct execution *e)
{
    return e->param_norm;
}

uint32_t execution_micro_batches(const struct execution *e)
{
    return e->micro_batches;
}

const struct allocator *execution_memory(const struct execution *e)
{
    return e->allocator;
}

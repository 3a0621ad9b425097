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
 * loss and the gradient norms are copied to a few scalars that are read when the step is done. */
#include "runtime/execution/execute.h"

#include "memory/deferred.h"
#include "runtime/device/clock.h"
#include "runtime/execution/plan_work.h"
#include "runtime/program/status.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct execution {
    const struct plan *plan;
    struct device *device;
    struct comm *comm;
    struct data *data;
    struct run_settings settings;
    struct allocator *allocator;
    struct deferred *deferred;
    struct allocator_block **block;       /* (buffers) */
    void **host;                          /* (buffers) of the host's pool */
    struct allocator_block *workspace[2]; /* of matrix products: forward's thread, backward's */
    uint32_t scratch; /* the buffer that is a kernel's own workspace now; PLACE_NONE: none */
    struct work_operand *operands; /* scratch: as many as the widest kernel has */
    struct step_record *record;    /* (instructions) */
    double *param_norm;            /* (params) */
    char *batches[2];              /* host memory of each input, for all micro-batches */
    uint64_t scalars;              /* device address of our own fp32 scalars: losses, then norms */
    uint32_t micro_batches, micro_batch, step;
    uint32_t optimizer; /* the optimizer instruction */
    uint32_t *normed; /* (normed_count) parameters of which this rank has a part of the gradient */
    uint32_t normed_count;
    volatile struct rank_status *status;
    struct rank_status own_status;
    bool first_step;
};

enum { SCALAR_BYTES = 1 << 21 };

/* ---- memory ---- */

static uint64_t new_segment(void *context, uint64_t bytes)
{
    return device_segment_new(((struct execution *)context)->device, bytes);
}

static void drop_segment(void *context, uint64_t address, uint64_t bytes)
{
    device_segment_drop(((struct execution *)context)->device, address, bytes);
}

/* Names the buffers that hold most, for the out-of-memory message. */
static void largest_holders(const struct execution *e, char *text, size_t size)
{
    size_t used = 0;
    uint64_t bound = UINT64_MAX;
    for (int n = 0; n < 3; n++) {
        uint32_t best = PLACE_NONE;
        for (uint32_t b = 0; b < e->plan->buffer_count; b++)
            if (e->block[b] && e->plan->buffers[b].bytes < bound &&
                (best == PLACE_NONE || e->plan->buffers[b].bytes > e->plan->buffers[best].bytes))
                best = b;
        if (best == PLACE_NONE || used >= size)
            return;
        char what[160];
        bound = e->plan->buffers[best].bytes;
        used +=
            (size_t)snprintf(text + used, size - used, "%s%s (%llu bytes)", n ? ", " : "",
                             plan_buffer_text(e->plan, &e->plan->buffers[best], what, sizeof what),
                             (unsigned long long)bound);
    }
}

static enum err_code out_of_memory(struct execution *e, uint32_t buffer, uint32_t instruction,
                                   struct err *err)
{
    char what[160], holders[512] = "";
    const struct allocator_stats *stats = allocator_stats(e->allocator);
    largest_holders(e, holders, sizeof holders);
    return err_set(err, ERR_NOMEM,
                   "out of memory at instruction %u: %s asks for %llu bytes; %llu live, %llu "
                   "reserved; largest holders: %s",
                   instruction,
                   plan_buffer_text(e->plan, &e->plan->buffers[buffer], what, sizeof what),
                   (unsigned long long)e->plan->buffers[buffer].bytes,
                   (unsigned long long)stats->allocated_bytes,
                   (unsigned long long)stats->reserved_bytes, holders);
}

static enum err_code alloc_buffer(struct execution *e, uint32_t index, uint32_t instruction,
                                  struct err *err)
{
    const struct buffer *buffer = &e->plan->buffers[index];
    if (buffer->bytes == 0)
        return ERR_OK;
    if (buffer->pool == LANE_HOST) {
        if (!e->host[index])
            e->host[index] = device_host_new(e->device, buffer->bytes);
        return e->host[index] ? ERR_OK : out_of_memory(e, index, instruction, err);
    }
    const enum err_code rc =
        allocator_alloc(e->allocator, buffer->bytes, buffer->pool, &e->block[index], NULL);
    return rc == ERR_NOMEM ? out_of_memory(e, index, instruction, err) : rc;
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

static void *address_of(const struct execution *e, uint32_t buffer)
{
    if (e->host[buffer])
        return e->host[buffer];
    if (!e->block[buffer])
        return NULL;
    return (void *)(uintptr_t)allocator_block_address(e->block[buffer]);
}

/* ---- launching ---- */

static struct work_operand operand_at(const struct execution *e,
                                      const struct plan_instruction *instruction,
                                      const struct operand *operand)
{
    const struct plan_place place = plan_operand_place(e->plan, instruction, operand);
    char *base = address_of(e, place.buffer);
    return (struct work_operand){
        .data = base ? base + place.offset * dtype_bytes((enum dtype)operand->dtype) : NULL,
        .shape = operand->shape,
        .pitch = operand->pitch,
        .dtype = operand->dtype,
    };
}

/* The memory that a kernel may work in: the plan's own buffer for it, or for a matrix product its
 * thread's workspace, made at the first one as PyTorch's cuBLAS handles do (memory/replay.c). */
static enum err_code give_workspace(struct execution *e, const struct plan_instruction *instruction,
                                    struct work *work, struct err *err)
{
    const uint64_t bytes = e->device->workspace_bytes;
    struct allocator_block **own = &e->workspace[instruction->phase == PLAN_BACKWARD];
    if (e->scratch != PLACE_NONE) {
        work->workspace = address_of(e, e->scratch);
        work->workspace_bytes = e->plan->buffers[e->scratch].bytes;
    }
    if (bytes == 0 || instruction->op != PLAN_COMPUTE ||
        !work_is_matmul((enum work_kind)plan_kernel(e->plan, instruction->arg)->work))
        return ERR_OK;
    if (!*own)
        TRY(allocator_alloc(e->allocator, bytes, LANE_COMPUTE, own, err));
    work->workspace = (void *)(uintptr_t)allocator_block_address(*own);
    work->workspace_bytes = bytes;
    return ERR_OK;
}

/* A few want more than operands. */
static void fill_settings(const struct execution *e, enum work_kind kind, struct work *work)
{
    const struct run_settings *s = &e->settings;
    work->update.lr = s->lr;
    work->update.beta1 = s->beta1;
    work->update.beta2 = s->beta2;
    work->update.eps = s->eps;
    work->update.weight_decay = s->weight_decay;
    work->update.step = e->step + 1;
    if (kind == WORK_SEED)
        work->attr.p = 1.0F / (float)e->micro_batches;
}

static enum err_code launch(struct execution *e, uint32_t id, struct err *err)
{
    const struct plan *plan = e->plan;
    const struct plan_instruction *instruction = &plan->instructions[id];
    const struct kernel *kernel = plan_kernel(plan, instruction->arg);
    struct work work = plan_work(plan, id, e->operands);
    for (uint32_t i = 0; i < (uint32_t)kernel->ins + kernel->outs; i++)
        e->operands[i] = operand_at(e, instruction, &kernel->operands[i]);
    work.wait_s = e->settings.wait_s ? e->settings.wait_s[id] : 0.0;
    fill_settings(e, (enum work_kind)kernel->work, &work);
    TRY(give_workspace(e, instruction, &work, err));
    return device_launch(e->device, instruction->lane, &work, err);
}

/* Copies the scalar loss to our own memory: the plan frees it before the step ends. */
static enum err_code keep_loss(struct execution *e, uint32_t id, struct err *err)
{
    const struct plan_instruction *instruction = &e->plan->instructions[id];
    const struct kernel *kernel = plan_kernel(e->plan, instruction->arg);
    struct work_operand operand[2];
    operand[0] = operand_at(e, instruction, &kernel->operands[kernel->ins]);
    operand[1] = operand[0];
    operand[1].data = (float *)(uintptr_t)e->scalars + e->micro_batch - 1;
    const struct work work = {
        .kind = WORK_COPY, .instruction = id, .ins = 1, .outs = 1, .operand = operand, .group = -1};
    return device_launch(e->device, LANE_COMPUTE, &work, err);
}

/* Norms of the gradients' parts, before anything scales them. */
static enum err_code launch_norms(struct execution *e, struct err *err)
{
    const struct plan *plan = e->plan;
    const struct plan_instruction *update = &plan->instructions[e->optimizer];
    const uint32_t n = e->normed_count;
    if (n == 0)
        return ERR_OK;
    for (uint32_t i = 0; i < n; i++) {
        const struct operand gradient =
            plan_piece_operand(plan, plan_piece(plan, e->normed[i], PIECE_GRADIENT));
        e->operands[i] = operand_at(e, update, &gradient);
        e->operands[n + i] = (struct work_operand){
            .data = (float *)(uintptr_t)e->scalars + e->micro_batches + i,
            .dtype = DTYPE_FP32,
        };
    }
    const struct work work = {.kind = WORK_NORMS,
                              .instruction = e->optimizer,
                              .ins = n,
                              .outs = n,
                              .operand = e->operands,
                              .group = -1};
    return device_launch(e->device, LANE_COMPUTE, &work, err);
}

/* ---- instructions ---- */

/* Copies one input of this micro-batch in, in the compute stream's order: who still reads the last
 * one's has passed by then. The host memory it comes from is this micro-batch's own, and free again
 * when the step has ended. */
static enum err_code send_input(struct execution *e, uint32_t i, const void *values,
                                uint32_t instruction, struct err *err)
{
    const uint32_t index = e->plan->input_buffers[i];
    const struct buffer *buffer = &e->plan->buffers[index];
    char *staged = e->batches[i] + e->micro_batch * buffer->bytes;
    struct work_operand operand[2] = {
        {.data = staged, .shape = buffer->shape, .dtype = buffer->dtype},
        {.data = address_of(e, index), .shape = buffer->shape, .dtype = buffer->dtype},
    };
    const struct work work = {.kind = WORK_COPY,
                              .instruction = instruction,
                              .ins = 1,
                              .outs = 1,
                              .operand = operand,
                              .group = -1,
                              .label = "batch"};
    memcpy(staged, values, buffer->bytes);
    return device_launch(e->device, LANE_COMPUTE, &work, err);
}

static enum err_code write_batch(struct execution *e, uint32_t instruction, struct err *err)
{
    const struct plan *plan = e->plan;
    const struct buffer *tokens = &plan->buffers[plan->input_buffers[0]];
    const uint32_t batch = tokens->shape.dim[0], seq = tokens->shape.dim[1];
    const uint32_t rows = plan->world * e->micro_batches * batch;
    const uint32_t first = (plan->rank * e->micro_batches + e->micro_batch) * batch;
    int64_t *row = xmalloc((seq + 1) * sizeof *row);
    int64_t *inputs = xmalloc((size_t)batch * seq * sizeof *inputs);
    int64_t *targets = xmalloc((size_t)batch * seq * sizeof *targets);
    enum err_code rc = ERR_OK;
    for (uint32_t b = 0; b < batch && rc == ERR_OK; b++) {
        rc = data_row(e->data, e->step, first + b, rows, seq, row, err);
        memcpy(inputs + (size_t)b * seq, row, seq * sizeof *row);
        memcpy(targets + (size_t)b * seq, row + 1, seq * sizeof *row);
    }
    const void *const from[] = {inputs, targets};
    for (uint32_t i = 0; i < plan->input_count && i < 2 && rc == ERR_OK; i++)
        rc = send_input(e, i, from[i], instruction, err);
    free(row);
    free(inputs);
    free(targets);
    return rc;
}

/* New optimizer states are zero (torch.zeros_like), and so are shards before they are filled
 * (FSDPParam's new_zeros). */
static enum err_code zero_buffer(struct execution *e, uint32_t index, uint32_t instruction,
                                 struct err *err)
{
    const struct buffer *buffer = &e->plan->buffers[index];
    struct work_operand operand = {
        .data = address_of(e, index), .shape = buffer->shape, .dtype = buffer->dtype};
    const struct work work = {
        .kind = WORK_FILL, .instruction = instruction, .outs = 1, .operand = &operand, .group = -1};
    if (!operand.data || buffer->pool == LANE_HOST)
        return ERR_OK;
    return device_launch(e->device, buffer->pool, &work, err);
}

static enum err_code pass_mark(struct execution *e, enum plan_mark mark, uint32_t instruction,
                               struct err *err)
{
    if (mark == PLAN_MARK_MICRO_BATCH) {
        TRY(write_batch(e, instruction, err));
        e->micro_batch++;
    }
    return mark == PLAN_MARK_OPTIMIZER ? launch_norms(e, err) : ERR_OK;
}

static enum err_code run_instruction(struct execution *e, uint32_t id, struct err *err)
{
    const struct plan_instruction *instruction = &e->plan->instructions[id];
    const uint8_t lane = instruction->lane;
    switch (instruction->op) {
    case PLAN_ALLOC:
        if ((instruction->flags & PLAN_FIRST_STEP) && address_of(e, instruction->arg))
            return ERR_OK; /* a state that a checkpoint brought */
        TRY(alloc_buffer(e, instruction->arg, id, err));
        if (e->plan->buffers[instruction->arg].scratch)
            e->scratch = instruction->arg;
        return instruction->flags & PLAN_FIRST_STEP ? zero_buffer(e, instruction->arg, id, err)
                                                    : ERR_OK;
    case PLAN_FREE:
        if (e->scratch == instruction->arg)
            e->scratch = PLACE_NONE;
        free_buffer(e, id);
        return ERR_OK;
    case PLAN_RECORD:
        deferred_pass(e->deferred, id);
        return device_record(e->device, lane, instruction->arg, err);
    case PLAN_WAIT:
        deferred_pass(e->deferred, id);
        return device_wait(e->device, lane, instruction->arg, err);
    case PLAN_MARK:
        return pass_mark(e, (enum plan_mark)instruction->arg, id, err);
    default:
        TRY(launch(e, id, err));
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
    if (record->end_s > 0) { /* our own small work shares the id of the instruction it follows */
        record->end_s = end_s;
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
    const uint32_t count = e->micro_batches + e->normed_count;
    float *scalars = xmalloc((count + 1) * sizeof *scalars), loss = 0.0F;
    enum err_code rc = device_read(e->device, scalars, e->scalars, count * sizeof *scalars, err);
    if (rc == ERR_OK)
        rc = average_loss(e, scalars, &loss, err);

    /* A parameter that is all elsewhere has no gradient here: its square is 0. */
    float *squares = calloc(plan->param_count + 1, sizeof *squares);
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

enum err_code execution_step(struct execution *e, uint32_t step, struct step_result *result,
                             struct err *err)
{
    /* What ran before (filling parameters, checkpoints) is no part of the step. */
    TRY(device_sync(e->device, err));
    e->device->ops->take_times(e->device, drop_time, NULL);
    const double start = clock_now_s();
    e->step = step;
    e->micro_batch = 0;
    e->status->step = step;
    memset(e->record, 0, e->plan->instruction_count * sizeof *e->record);
    for (uint32_t id = 0; id < e->plan->instruction_count; id++) {
        if (!e->first_step && (e->plan->instructions[id].flags & PLAN_FIRST_STEP))
            continue;
        e->status->instruction = id;
        const double issue = clock_now_s();
        TRY(run_instruction(e, id, err));
        e->record[id].issue_begin_s = issue - start;
        e->record[id].issue_end_s = clock_now_s() - start;
        record_memory(e, id);
    }
    TRY(device_sync(e->device, err));
    deferred_end_step(e->deferred);
    e->device->ops->take_times(e->device, take_time, e);
    result->seconds = clock_now_s() - start;
    e->first_step = false;
    return collect(e, result, err);
}

/* ---- values of parameters and states ---- */

/* Copies values between fp32 host memory and a run of a buffer of any dtype, by way of a cast on
 * the device where dtypes differ. */
static enum err_code move_values(struct execution *e, const struct operand *at, float *values,
                                 bool to_device, struct err *err)
{
    const struct shape shape = at->shape;
    const uint64_t bytes = 4 * shape_elements(&shape);
    const enum dtype dtype = (enum dtype)at->dtype;
    const uint64_t base = (uint64_t)(uintptr_t)address_of(e, at->place);
    const uint64_t address = base + at->offset * dtype_bytes(dtype);
    if (bytes == 0)
        return ERR_OK;
    if (!base)
        return err_set(err, ERR_INVALID, "this state does not exist yet");
    if (dtype == DTYPE_FP32)
        return to_device ? device_write(e->device, address, values, bytes, err)
                         : device_read(e->device, values, address, bytes, err);
    const uint64_t segment = (bytes + SCALAR_BYTES - 1) / SCALAR_BYTES * SCALAR_BYTES;
    const uint64_t staging = device_segment_new(e->device, segment);
    if (!staging)
        return err_set(err, ERR_NOMEM, "no memory to cast %llu bytes", (unsigned long long)bytes);
    struct work_operand operand[2] = {
        {.data = (void *)(uintptr_t)staging, .shape = shape, .dtype = DTYPE_FP32},
        {.data = (void *)(uintptr_t)address, .shape = shape, .dtype = (uint8_t)dtype},
    };
    if (!to_device) {
        const struct work_operand first = operand[0];
        operand[0] = operand[1];
        operand[1] = first;
    }
    const struct work cast = {
        .kind = WORK_CAST, .ins = 1, .outs = 1, .operand = operand, .group = -1};
    enum err_code rc = to_device ? device_write(e->device, staging, values, bytes, err) : ERR_OK;
    if (rc == ERR_OK)
        rc = device_launch(e->device, LANE_COMPUTE, &cast, err);
    if (rc == ERR_OK)
        rc = device_sync(e->device, err);
    if (rc == ERR_OK && !to_device)
        rc = device_read(e->device, values, staging, bytes, err);
    device_segment_drop(e->device, staging, segment);
    return rc;
}

const struct plan_piece *execution_piece(const struct plan *plan, uint32_t p, int state)
{
    return state < 0    ? plan_updated_piece(plan, p)
           : state == 0 ? plan_piece(plan, p, PIECE_EXP_AVG)
                        : plan_piece(plan, p, PIECE_EXP_AVG_SQ);
}

/* Where a parameter's values, or those of a state, are; *at has no elements when this rank has none
 * of it. */
static enum err_code find_values(const struct execution *e, uint32_t p, int state,
                                 struct operand *at, struct err *err)
{
    const struct plan_piece *piece = execution_piece(e->plan, p, state);
    const struct part part = plan_part(e->plan, plan_updated_piece(e->plan, p), e->plan->rank);
    *at = (struct operand){.shape = SHAPE(0)};
    if (piece)
        *at = plan_piece_operand(e->plan, piece);
    else if (part_elements(&part))
        return err_set(err, ERR_INVALID, "%s has no such state", e->plan->params[p].name);
    return ERR_OK;
}

enum err_code execution_read(struct execution *e, uint32_t p, int state, float *values,
                             struct err *err)
{
    struct operand at;
    TRY(find_values(e, p, state, &at, err));
    return move_values(e, &at, values, false, err);
}

enum err_code execution_write(struct execution *e, uint32_t p, int state, const float *values,
                              struct err *err)
{
    struct operand at;
    TRY(find_values(e, p, state, &at, err));
    if (shape_elements(&at.shape) == 0)
        return ERR_OK;
    if (state >= 0 && !address_of(e, at.place)) /* before the first step, which would make it */
        TRY(alloc_buffer(e, at.place, e->optimizer, err));
    return move_values(e, &at, (float *)(uintptr_t)values, true, err);
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

static enum err_code prepare(struct execution *e, struct err *err)
{
    const struct plan *plan = e->plan;
    uint32_t widest = 1;
    e->optimizer = PLACE_NONE;
    TRY(plan_check_runnable(plan, err));
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
    if (e->optimizer == PLACE_NONE || plan->input_count < 2)
        return err_set(err, ERR_UNSUPPORTED, "the plan has no optimizer step or no batch");
    list_normed(e);
    return ERR_OK;
}

static uint64_t batches_bytes(const struct execution *e, uint32_t i)
{
    return e->micro_batches * e->plan->buffers[e->plan->input_buffers[i]].bytes;
}

static enum err_code alloc_batches(struct execution *e, struct err *err)
{
    for (uint32_t i = 0; i < e->plan->input_count && i < 2; i++) {
        const uint64_t bytes = batches_bytes(e, i);
        e->batches[i] = bytes ? device_host_new(e->device, bytes) : NULL;
        if (bytes && !e->batches[i])
            return err_set(err, ERR_NOMEM, "no host memory for %llu bytes of batches",
                           (unsigned long long)bytes);
    }
    return ERR_OK;
}

static enum err_code alloc_residents(struct execution *e, struct err *err)
{
    const struct plan *plan = e->plan;
    unsigned char *later = calloc(plan->buffer_count + 1, 1);
    for (uint32_t i = 0; i < plan->instruction_count; i++)
        if (plan->instructions[i].op == PLAN_ALLOC)
            later[plan->instructions[i].arg] = 1;
    enum err_code rc = ERR_OK;
    for (uint32_t b = 0; b < plan->buffer_count && rc == ERR_OK; b++)
        if (plan->buffers[b].resident && !later[b])
            rc = alloc_buffer(e, b, 0, err);
    free(later);
    return rc;
}

/* The values of tests/data/numerics/README.md: norm weights 1, biases 0, the rest from a hash of
 * the parameter's index and the element's. */
static float initial_value(const struct plan_param *param, uint32_t p, uint64_t element)
{
    const size_t length = strlen(param->name);
    if (length > 4 && strcmp(param->name + length - 4, "bias") == 0)
        return 0.0F;
    if (param->shape.rank == 1)
        return 1.0F;
    uint32_t x = (uint32_t)(element * 2654435761U + (uint64_t)(p + 1) * 40503U * 65537U + 12345U);
    x = (x ^ (x >> 16)) * 2246822519U;
    return (float)(((double)x / 4294967296.0 - 0.5) * 0.2);
}

static enum err_code fill_piece(struct execution *e, const struct plan_piece *piece,
                                struct err *err)
{
    const struct plan *plan = e->plan;
    const struct part part = plan_part(plan, piece, plan->rank);
    const struct operand at = plan_piece_operand(plan, piece);
    float *values = xmalloc((part_elements(&part) + 1) * sizeof *values), *next = values;
    for (uint64_t run = 0; run < part.runs; run++)
        for (uint64_t i = 0; i < part.width; i++)
            *next++ = initial_value(&plan->params[piece->param], piece->param,
                                    part.first + run * part.pitch + i);
    const enum err_code rc = move_values(e, &at, values, true, err);
    free(values);
    return rc;
}

/* All of what is stored, padding included, is zero before values are put there. */
static enum err_code fill_params(struct execution *e, struct err *err)
{
    static const enum piece_role roles[] = {PIECE_STORE, PIECE_MASTER};
    const struct plan *plan = e->plan;
    for (int fill = 0; fill < 2; fill++)
        for (uint32_t i = 0; i < plan->piece_count; i++) {
            const struct plan_piece *piece = &plan->pieces[i];
            if (piece->role != roles[0] && piece->role != roles[1])
                continue;
            TRY(fill ? fill_piece(e, piece, err) : zero_buffer(e, piece->buffer, 0, err));
        }
    return ERR_OK;
}

/* torchtitan's freqs_cis: (1, s, 1, d/2) complex numbers exp(i·t·theta^(-2j/d)). */
static enum err_code fill_module_buffers(struct execution *e, struct err *err)
{
    const struct plan *plan = e->plan;
    for (uint32_t i = 0; i < plan->module_buffer_count; i++) {
        const uint32_t index = plan->module_buffers[i];
        const struct buffer *buffer = &plan->buffers[index];
        if (buffer->dtype != DTYPE_COMPLEX64 || buffer->shape.rank != 4)
            return err_set(err, ERR_UNSUPPORTED, "a module buffer that is no RoPE table");
        const uint32_t seq = buffer->shape.dim[1], half = buffer->shape.dim[3];
        float *values = xmalloc(buffer->bytes);
        for (uint32_t t = 0; t < seq; t++)
            for (uint32_t j = 0; j < half; j++) {
                const double angle = t * pow((double)e->settings.rope_theta, -(double)j / half);
                values[2 * ((size_t)t * half + j)] = (float)cos(angle);
                values[2 * ((size_t)t * half + j) + 1] = (float)sin(angle);
            }
        const enum err_code rc = device_write(e->device, (uint64_t)(uintptr_t)address_of(e, index),
                                              values, buffer->bytes, err);
        free(values);
        TRY(rc);
    }
    return ERR_OK;
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
        .block = calloc(plan->buffer_count + 1, sizeof(struct allocator_block *)),
        .host = calloc(plan->buffer_count + 1, sizeof(void *)),
        .record = calloc(plan->instruction_count + 1, sizeof(struct step_record)),
        .param_norm = calloc(plan->param_count + 1, sizeof(double)),
        .first_step = true,
    };
    e->status = status_of_rank(plan->rank, &e->own_status);
    e->settings.allocator.segment_new = new_segment;
    e->settings.allocator.segment_drop = drop_segment;
    e->settings.allocator.context = e;
    e->settings.allocator.complete_frees = complete_frees;
    e->settings.allocator.free_context = e;
    e->allocator = allocator_new(&e->settings.allocator);
    e->deferred = deferred_new(plan, e->allocator);
    enum err_code rc = prepare(e, err);
    if (rc == ERR_OK) {
        e->scalars = device_segment_new(device, SCALAR_BYTES);
        if (!e->scalars)
            rc = err_set(err, ERR_NOMEM, "the device has no memory at all");
    }
    if (rc == ERR_OK)
        rc = alloc_batches(e, err);
    if (rc == ERR_OK)
        rc = alloc_residents(e, err);
    if (rc == ERR_OK)
        rc = fill_params(e, err);
    if (rc == ERR_OK)
        rc = fill_module_buffers(e, err);
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
        device_segment_drop(e->device, e->scalars, SCALAR_BYTES);
    for (uint32_t i = 0; i < e->plan->input_count && i < 2; i++)
        device_host_drop(e->device, e->batches[i], batches_bytes(e, i));
    for (uint32_t b = 0; b < e->plan->buffer_count; b++)
        device_host_drop(e->device, e->host[b], e->plan->buffers[b].bytes);
    deferred_close(e->deferred);
    allocator_free(e->allocator);
    free(e->block);
    free(e->host);
    free(e->operands);
    free(e->normed);
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

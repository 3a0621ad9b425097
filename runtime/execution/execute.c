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

#include "runtime/device/clock.h"
#include "runtime/execution/execute_parts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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

enum err_code execution_alloc(struct execution *e, uint32_t index, uint32_t instruction,
                              struct err *err)
{
    const struct buffer *buffer = &e->plan->buffers[index];
    if (buffer->bytes == 0)
        return ERR_OK;
    if (buffer->pool == STREAM_HOST) {
        if (!e->host[index])
            e->host[index] = device_host_new(e->device, buffer->bytes);
        return e->host[index] ? ERR_OK : out_of_memory(e, index, instruction, err);
    }
    const enum err_code rc =
        allocator_alloc(e->allocator, buffer->bytes, buffer->pool, &e->block[index], NULL);
    return rc == ERR_NOMEM ? out_of_memory(e, index, instruction, err) : rc;
}

static void free_buffer(struct execution *e, uint32_t index)
{
    /* Host memory is kept for the next step: work that reads it may still be queued, and malloc
     * knows nothing of streams. */
    if (e->block[index])
        allocator_free_block(e->allocator, e->block[index]);
    e->block[index] = NULL;
}

void *execution_address(const struct execution *e, uint32_t buffer)
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
    char *base = execution_address(e, plan_operand_buffer(e->plan, instruction, operand));
    return (struct work_operand){
        .data = base ? base + operand->offset * dtype_bytes((enum dtype)operand->dtype) : NULL,
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
        work->workspace = execution_address(e, e->scratch);
        work->workspace_bytes = e->plan->buffers[e->scratch].bytes;
    }
    if (bytes == 0 || instruction->op != PLAN_COMPUTE || !e->plan->kernels[instruction->arg].matmul)
        return ERR_OK;
    if (!*own)
        TRY(allocator_alloc(e->allocator, bytes, STREAM_COMPUTE, own, err));
    work->workspace = (void *)(uintptr_t)allocator_block_address(*own);
    work->workspace_bytes = bytes;
    return ERR_OK;
}

/* A few kinds want more than operands. */
static void fill_settings(const struct execution *e, struct work *work)
{
    const struct run_settings *s = &e->settings;
    work->update.lr = s->lr;
    work->update.beta1 = s->beta1;
    work->update.beta2 = s->beta2;
    work->update.eps = s->eps;
    work->update.weight_decay = s->weight_decay;
    work->update.step = e->step + 1;
    if (work->kind == WORK_ONES) /* the seed of backward */
        work->scale = e->plan->loss_scale;
    if (work->kind == WORK_CLIP_COEFFICIENT)
        work->scale = work->attr.p;
}

static enum err_code launch(struct execution *e, uint32_t id, struct err *err)
{
    const struct plan *plan = e->plan;
    const struct plan_instruction *instruction = &plan->instructions[id];
    const struct kernel *kernel = &plan->kernels[instruction->arg];
    const struct plan_group *group =
        instruction->group == PLAN_NO_GROUP ? NULL : &plan->groups[instruction->group];
    for (uint32_t i = 0; i < (uint32_t)kernel->ins + kernel->outs; i++)
        e->operands[i] = operand_at(e, instruction, &plan->operands[kernel->first + i]);
    struct work work = {
        .kind = (enum work_kind)e->kind[id],
        .instruction = id,
        .ins = kernel->ins,
        .outs = kernel->outs,
        .operand = e->operands,
        .attr = kernel->attr,
        .group = instruction->group == PLAN_NO_GROUP ? -1 : instruction->group,
        .ranks = group ? group->ranks : 1,
        .rank = group ? plan->rank / group->stride % group->ranks : 0,
        .label = plan->labels[kernel->label],
        .wait_s = e->settings.wait_s ? e->settings.wait_s[id] : 0.0,
    };
    fill_settings(e, &work);
    TRY(give_workspace(e, instruction, &work, err));
    /* clipping sums squares; gradients are averaged */
    work.sum = strcmp(plan->labels[kernel->label], "_c10d_functional.all_reduce") == 0;
    if (work.kind == WORK_NOTHING)
        return ERR_OK;
    return device_launch(e->device, (enum stream_id)instruction->stream, &work, err);
}

/* Copies the scalar loss to our own memory: the plan frees it before the step ends. */
static enum err_code keep_loss(struct execution *e, uint32_t id, struct err *err)
{
    const struct plan_instruction *instruction = &e->plan->instructions[id];
    const struct kernel *kernel = &e->plan->kernels[instruction->arg];
    struct work_operand operand[2];
    operand[0] = operand_at(e, instruction, &e->plan->operands[kernel->first + kernel->ins]);
    operand[1] = operand[0];
    operand[1].data = (float *)(uintptr_t)e->scalars + e->micro_batch - 1;
    const struct work work = {
        .kind = WORK_COPY, .instruction = id, .ins = 1, .outs = 1, .operand = operand, .group = -1};
    return device_launch(e->device, STREAM_COMPUTE, &work, err);
}

/* Norms of the optimizer's gradients, before anything scales them. */
static enum err_code launch_norms(struct execution *e, struct err *err)
{
    const struct plan *plan = e->plan;
    const struct plan_instruction *update = &plan->instructions[e->optimizer];
    const struct kernel *kernel = &plan->kernels[update->arg];
    const uint32_t n = (uint32_t)kernel->ins - kernel->outs;
    if (n == 0)
        return ERR_OK;
    for (uint32_t i = 0; i < n; i++) {
        e->operands[i] = operand_at(e, update, &plan->operands[kernel->first + i]);
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
    return device_launch(e->device, STREAM_COMPUTE, &work, err);
}

/* ---- instructions ---- */

static enum err_code pass_mark(struct execution *e, enum plan_mark mark, uint32_t instruction,
                               struct err *err)
{
    if (mark == PLAN_MARK_MICRO_BATCH) {
        TRY(execution_write_batch(e, instruction, err));
        e->micro_batch++;
    }
    return mark == PLAN_MARK_OPTIMIZER ? launch_norms(e, err) : ERR_OK;
}

static enum err_code run_instruction(struct execution *e, uint32_t id, struct err *err)
{
    const struct plan_instruction *instruction = &e->plan->instructions[id];
    const enum stream_id stream = (enum stream_id)instruction->stream;
    switch (instruction->op) {
    case PLAN_ALLOC:
        if ((instruction->flags & PLAN_FIRST_STEP) && execution_address(e, instruction->arg))
            return ERR_OK; /* a state that a checkpoint brought */
        TRY(execution_alloc(e, instruction->arg, id, err));
        if (e->plan->buffers[instruction->arg].scratch)
            e->scratch = instruction->arg;
        return instruction->flags & PLAN_FIRST_STEP ? execution_zero(e, instruction->arg, id, err)
                                                    : ERR_OK;
    case PLAN_FREE:
        if (e->scratch == instruction->arg)
            e->scratch = PLACE_NONE;
        free_buffer(e, instruction->arg);
        return ERR_OK;
    case PLAN_RECORD:
        return device_record(e->device, stream, instruction->arg, err);
    case PLAN_WAIT:
        return device_wait(e->device, stream, instruction->arg, err);
    case PLAN_MARK:
        return pass_mark(e, (enum plan_mark)instruction->arg, id, err);
    default:
        TRY(launch(e, id, err));
        return e->kind[id] == WORK_NLL_LOSS ? keep_loss(e, id, err) : ERR_OK;
    }
}

static void record_memory(struct execution *e, uint32_t id)
{
    const struct allocator_stats *stats = allocator_stats(e->allocator);
    e->record[id].allocated = stats->allocated_bytes;
    e->record[id].reserved = stats->reserved_bytes;
}

static void take_time(void *context, uint32_t instruction, enum stream_id stream, double begin_s,
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

static void drop_time(void *context, uint32_t instruction, enum stream_id stream, double begin_s,
                      double end_s)
{
    (void)context, (void)instruction, (void)stream, (void)begin_s, (void)end_s;
}

/* ---- results ---- */

/* Sums over the ranks that hold different rows or saw different sequences. */
static enum err_code sum_over(struct execution *e, int group, float *values, uint64_t count,
                              bool average, struct err *err)
{
    if (!e->comm || group < 0 || count == 0)
        return ERR_OK;
    return comm_all_reduce(e->comm, group, comm_ticket(e->comm, group), values, values, count,
                           DTYPE_FP32, average, 0, err);
}

static int group_named(const struct plan *plan, const char *name)
{
    for (uint32_t i = 0; i < plan->group_count; i++)
        if (strcmp(plan->groups[i].name, name) == 0)
            return (int)i;
    return -1;
}

static enum err_code collect(struct execution *e, struct step_result *result, struct err *err)
{
    const struct plan *plan = e->plan;
    const struct kernel *update = &plan->kernels[plan->instructions[e->optimizer].arg];
    const uint32_t norms = (uint32_t)update->ins - update->outs;
    const uint32_t count = e->micro_batches + norms;
    float *scalars = xmalloc((count + 1) * sizeof *scalars);
    enum err_code rc = device_read(e->device, scalars, e->scalars, count * sizeof *scalars, err);
    float loss = 0.0F;
    for (uint32_t i = 0; i < e->micro_batches; i++)
        loss += scalars[i] / (float)e->micro_batches;
    if (rc == ERR_OK)
        rc = sum_over(e, group_named(plan, "shard"), &loss, 1, true, err);
    if (rc == ERR_OK)
        rc = sum_over(e, group_named(plan, "replicate"), &loss, 1, true, err);

    /* A parameter whose rows are all elsewhere has no gradient here: its square is 0. */
    float *squares = calloc(plan->param_count + 1, sizeof *squares);
    for (uint32_t i = 0; i < norms; i++)
        squares[e->updated[i]] = scalars[e->micro_batches + i] * scalars[e->micro_batches + i];
    if (rc == ERR_OK)
        rc = sum_over(e, group_named(plan, "shard"), squares, plan->param_count, false, err);
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
    e->device->ops->take_times(e->device, take_time, e);
    result->seconds = clock_now_s() - start;
    e->first_step = false;
    return collect(e, result, err);
}

/* ---- opening ---- */

static enum err_code resolve(struct execution *e, uint32_t id, struct err *err)
{
    const struct plan *plan = e->plan;
    const struct plan_instruction *instruction = &plan->instructions[id];
    const struct kernel *kernel = &plan->kernels[instruction->arg];
    const struct operand *operand = &plan->operands[kernel->first];
    bool weight_is_second = false;
    if (kernel->ins > 1)
        weight_is_second =
            plan->buffers[plan_operand_buffer(plan, instruction, &operand[1])].category ==
            CATEGORY_UNSHARDED_PARAM;
    const bool complex = kernel->ins > 0 && operand[0].dtype == DTYPE_COMPLEX64;
    for (uint32_t i = 0; i < (uint32_t)kernel->ins + kernel->outs; i++) {
        const struct buffer *buffer =
            &plan->buffers[plan_operand_buffer(plan, instruction, &operand[i])];
        const uint64_t end = operand[i].offset + shape_elements(&operand[i].shape);
        if (operand[i].pitch == 0 &&
            end * dtype_bytes((enum dtype)operand[i].dtype) > buffer->bytes)
            return err_set(err, ERR_UNSUPPORTED,
                           "instruction %u, %s: an expanded view (one key/value head) cannot be "
                           "executed yet",
                           id, plan->labels[kernel->label]);
    }
    enum work_kind kind;
    TRY(work_resolve(plan_op_name((enum plan_op)instruction->op), plan->labels[kernel->label],
                     plan->kinds[kernel->op], kernel->backward && !kernel->recomputed,
                     weight_is_second, complex, &kind, err));
    e->kind[id] = (uint8_t)kind;
    return ERR_OK;
}

/* Which parameters the optimizer's gradients belong to, by their shard buffers. */
static void find_updated(struct execution *e)
{
    const struct plan *plan = e->plan;
    const struct plan_instruction *update = &plan->instructions[e->optimizer];
    const struct kernel *kernel = &plan->kernels[update->arg];
    const uint32_t n = (uint32_t)kernel->ins - kernel->outs;
    e->updated = xmalloc((n + 1) * sizeof *e->updated);
    for (uint32_t i = 0, p = 0; i < n; i++) {
        const uint32_t shard =
            plan_operand_buffer(plan, update, &plan->operands[kernel->first + n + i]);
        while (p + 1 < plan->param_count && plan->params[p].shard_buffer != shard)
            p++;
        e->updated[i] = p;
    }
}

static enum err_code prepare(struct execution *e, struct err *err)
{
    const struct plan *plan = e->plan;
    uint32_t widest = 1;
    e->optimizer = PLACE_NONE;
    for (uint32_t id = 0; id < plan->instruction_count; id++) {
        const struct plan_instruction *instruction = &plan->instructions[id];
        if (instruction->op == PLAN_MARK && instruction->arg == PLAN_MARK_MICRO_BATCH)
            e->micro_batches++;
        if (!plan_op_is_kernel((enum plan_op)instruction->op))
            continue;
        TRY(resolve(e, id, err));
        const struct kernel *kernel = &plan->kernels[instruction->arg];
        const uint32_t operands = 2U * kernel->ins + kernel->outs;
        widest = operands > widest ? operands : widest;
        if (instruction->op == PLAN_OPTIMIZER)
            e->optimizer = id;
    }
    e->operands = xmalloc(widest * sizeof *e->operands);
    if (e->optimizer == PLACE_NONE)
        return err_set(err, ERR_UNSUPPORTED, "the plan has no optimizer step");
    find_updated(e);
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
            rc = execution_alloc(e, b, 0, err);
    free(later);
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
        .shard_ranks = 1,
        .scratch = PLACE_NONE,
        .block = calloc(plan->buffer_count + 1, sizeof(struct allocator_block *)),
        .host = calloc(plan->buffer_count + 1, sizeof(void *)),
        .kind = calloc(plan->instruction_count + 1, 1),
        .record = calloc(plan->instruction_count + 1, sizeof(struct step_record)),
        .param_norm = calloc(plan->param_count + 1, sizeof(double)),
        .first_step = true,
    };
    e->status = status_of_rank(plan->rank, &e->own_status);
    const int shard = group_named(plan, "shard");
    if (shard >= 0)
        e->shard_ranks = plan->groups[shard].ranks;
    e->settings.allocator.segment_new = new_segment;
    e->settings.allocator.segment_drop = drop_segment;
    e->settings.allocator.context = e;
    e->allocator = allocator_new(&e->settings.allocator);
    enum err_code rc = prepare(e, err);
    if (rc == ERR_OK) {
        e->scalars = device_segment_new(device, SEGMENT_BYTES);
        if (!e->scalars)
            rc = err_set(err, ERR_NOMEM, "the device has no memory at all");
    }
    if (rc == ERR_OK)
        rc = execution_open_batches(e, err);
    if (rc == ERR_OK)
        rc = alloc_residents(e, err);
    if (rc == ERR_OK)
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
    allocator_free(e->allocator);
    free(e->block);
    free(e->host);
    free(e->kind);
    free(e->operands);
    free(e->updated);
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

/* replay.c - see replay.h. */
#include "memory/replay.h"

#include "base/names.h"
#include "memory/deferred.h"
#include "memory/state.h"
#include "plan/host_held.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct found {      /* by a micro-batch */
    uint64_t state; /* memory_state; 0: without an allocator */
    uint64_t requested, host;
    uint64_t categories[CATEGORY_COUNT];
};

struct replay {
    const struct plan *plan;
    const struct memory_options *options;
    struct allocator *allocator;     /* NULL: without */
    struct deferred *deferred;       /* with it */
    struct allocator_block **blocks; /* (buffers) */
    struct allocator_block *workspaces[2];
    uint64_t requested, rounded;
    uint64_t categories[CATEGORY_COUNT], host_categories[CATEGORY_COUNT]; /* host's: of these */
    uint64_t host, pinned; /* on the host: tensors; of these */
    struct host_held held;
    enum step_part part;
    bool measuring; /* the steady-state step */
    uint32_t instruction;
    uint32_t micro_batch; /* how many of the step have begun */
    struct found found;   /* by the one before the last */
    struct memory *out;
};

static void reach(struct memory_moment *peak, uint64_t bytes, const struct replay *r)
{
    if (bytes > peak->bytes)
        *peak = (struct memory_moment){bytes, r->instruction, r->part};
}

static void note_places(struct replay *r)
{
    struct memory *out = r->out;
    if (r->requested - r->host > out->device_part_peaks[r->part])
        out->device_part_peaks[r->part] = r->requested - r->host;
    if (r->requested - r->host > out->device.bytes) {
        reach(&out->device, r->requested - r->host, r);
        for (int i = 0; i < CATEGORY_COUNT; i++)
            out->device_categories[i] = r->categories[i] - r->host_categories[i];
    }
    const uint64_t host = r->host + r->host_categories[CATEGORY_WORKSPACE];
    if (host > out->host.bytes) {
        reach(&out->host, host, r);
        out->host_pinned_bytes = r->pinned;
        memcpy(out->host_categories, r->host_categories, sizeof out->host_categories);
    }
}

static void note_peaks(struct replay *r)
{
    struct memory *out = r->out;
    if (!r->measuring)
        return;
    note_places(r);
    if (r->requested > out->requested.bytes) {
        reach(&out->requested, r->requested, r);
        memcpy(out->categories, r->categories, sizeof out->categories);
    }
    if (r->rounded > out->requested_rounded_bytes)
        out->requested_rounded_bytes = r->rounded;
    if (r->requested > out->part_peaks[r->part])
        out->part_peaks[r->part] = r->requested;
    if (r->allocator)
        reach(&out->allocated, allocator_stats(r->allocator)->allocated_bytes, r);
}

static enum err_code out_of_memory(struct replay *r, uint64_t bytes)
{
    r->out->out_of_memory = true;
    r->out->failure = (struct memory_moment){bytes, r->instruction, r->part};
    return ERR_NOMEM;
}

static enum err_code alloc_on_device(struct replay *r, uint64_t bytes, int stream,
                                     struct allocator_block **out)
{
    if (!r->allocator || bytes == 0)
        return ERR_OK;
    const enum err_code rc = allocator_alloc(r->allocator, bytes, stream, out, NULL);
    if (rc == ERR_OK && r->options->enough_bytes &&
        allocator_stats(r->allocator)->reserved_bytes > r->options->enough_bytes)
        return out_of_memory(r, bytes);
    return rc == ERR_NOMEM ? out_of_memory(r, bytes) : rc;
}

/* For nothing, nothing is asked of the allocator. */
static uint64_t rounded(const struct buffer *buffer)
{
    return buffer->bytes ? allocator_round(buffer->bytes) : 0;
}

/* A tensor of PyTorch's, in memory that PyTorch asked for. */
static bool is_requested(const struct buffer *buffer)
{
    return !buffer->scratch && !buffer->paged;
}

/* A buffer of the host's comes, or goes: `sign` 1 or -1 (as unsigned numbers wrap around). */
static void count_on_host(struct replay *r, const struct buffer *buffer, uint64_t sign)
{
    const uint64_t bytes = sign * buffer->bytes;
    if (is_requested(buffer))
        r->host += bytes;
    if (!buffer->paged)
        r->host_categories[buffer->scratch ? CATEGORY_WORKSPACE : buffer->category] += bytes;
    r->pinned += buffer->pinned ? bytes : 0;
    if (sign == 1)
        host_held_alloc(&r->held, buffer, 1);
    else
        host_held_free(&r->held, buffer);
}

static enum err_code alloc_buffer(struct replay *r, uint32_t index)
{
    const struct buffer *buffer = &r->plan->buffers[index];
    assert(!r->blocks[index]); /* plan_verify: nothing is born twice before it dies */
    if (is_requested(buffer)) {
        r->requested += buffer->bytes;
        r->rounded += rounded(buffer);
        r->categories[buffer->category] += buffer->bytes;
    }
    if (buffer->pool == LANE_HOST)
        count_on_host(r, buffer, 1);
    else
        TRY(alloc_on_device(r, buffer->bytes, buffer->pool, &r->blocks[index]));
    note_peaks(r);
    return ERR_OK;
}

static void free_buffer(struct replay *r, bool first)
{
    const struct plan_instruction *instruction = &r->plan->instructions[r->instruction];
    const uint32_t index = instruction->arg;
    const struct buffer *buffer = &r->plan->buffers[index];
    if (is_requested(buffer)) {
        assert(r->requested >= buffer->bytes); /* nothing dies unborn */
        r->requested -= buffer->bytes;
        r->rounded -= rounded(buffer);
        r->categories[buffer->category] -= buffer->bytes;
    }
    if (buffer->pool == LANE_HOST)
        count_on_host(r, buffer, (uint64_t)-1);
    if (!buffer->scratch)
        note_peaks(r); /* a part's peak may be what is left after its first free */
    if (r->blocks[index]) {
        if (plan_free_is_deferred(r->plan, instruction))
            deferred_free(r->deferred, r->instruction, first, r->blocks[index]);
        else
            allocator_free_block(r->allocator, r->blocks[index]);
        r->blocks[index] = NULL;
    }
}

static void pass_mark(struct replay *r, enum plan_mark mark)
{
    switch (mark) {
    case PLAN_MARK_AFTER_LOGITS:
        r->part = PART_LOSS;
        break;
    case PLAN_MARK_AFTER_FORWARD:
        r->part = PART_BACKWARD_HEAD;
        break;
    case PLAN_MARK_BACKWARD_BLOCKS:
        r->part = PART_BACKWARD_BLOCKS;
        break;
    case PLAN_MARK_OPTIMIZER:
        r->part = PART_OPTIMIZER;
        break;
    case PLAN_MARK_START:
    case PLAN_MARK_MICRO_BATCH:
        r->part = PART_FORWARD;
        break;
    default:
        break;
    }
    if (!r->measuring)
        return;
    r->out->live[mark] = r->requested;
    r->out->device_live[mark] = r->requested - r->host;
}

/* Of a plan with repeats, the one that repeats and the one after it are asked what they find. */
static void begin_micro_batch(struct replay *r)
{
    const uint32_t count = r->plan->micro_batch_count, index = r->micro_batch++;
    if (!r->plan->repeats || index + 2 < count)
        return;
    struct found found = {.requested = r->requested, .host = r->host};
    memcpy(found.categories, r->categories, sizeof found.categories);
    if (r->allocator)
        found.state =
            memory_state(r->plan, r->allocator, r->blocks, &r->plan->micro_batches[index]);
    if (index + 2 == count)
        r->found = found;
    else if (memcmp(&found, &r->found, sizeof found) != 0)
        r->out->repeats = false;
}

/* The first matmul of each thread makes that thread's cuBLAS handle allocate its workspace. */
static enum err_code run_kernel(struct replay *r, const struct plan_instruction *instruction)
{
    const unsigned thread = instruction->phase == PLAN_BACKWARD;
    if (!r->allocator || r->workspaces[thread] || r->options->workspace_bytes[thread] == 0)
        return ERR_OK;
    if (!work_is_matmul((enum work_kind)plan_kernel(r->plan, instruction->arg)->work))
        return ERR_OK;
    return alloc_on_device(r, r->options->workspace_bytes[thread], LANE_COMPUTE,
                           &r->workspaces[thread]);
}

static void visit_point(struct replay *r, memory_visitor *visit, void *context)
{
    struct memory_point point = {
        .instruction = r->instruction,
        .requested = r->requested,
        .host = r->host,
    };
    memcpy(point.categories, r->categories, sizeof point.categories);
    memcpy(point.host_categories, r->host_categories, sizeof point.host_categories);
    if (r->allocator) {
        point.allocated = allocator_stats(r->allocator)->allocated_bytes;
        point.reserved = allocator_stats(r->allocator)->reserved_bytes;
    }
    visit(context, r->plan, &point);
}

static enum err_code run_step(struct replay *r, bool first, memory_visitor *visit, void *context)
{
    r->micro_batch = 0;
    for (uint32_t i = 0; i < r->plan->instruction_count; i++) {
        const struct plan_instruction *instruction = &r->plan->instructions[i];
        r->instruction = i;
        if (!plan_is_issued(instruction, first))
            continue;
        if (r->options->before)
            r->options->before(r->options->hook_context, r->plan, i, first);
        switch (instruction->op) {
        case PLAN_ALLOC:
            if (r->options->clock && r->allocator)
                deferred_reach(r->deferred, i);
            TRY(alloc_buffer(r, instruction->arg));
            break;
        case PLAN_FREE:
            free_buffer(r, first);
            break;
        case PLAN_COMPUTE:
            TRY(run_kernel(r, instruction));
            continue;
        case PLAN_MARK:
            pass_mark(r, (enum plan_mark)instruction->arg);
            if (instruction->arg == PLAN_MARK_MICRO_BATCH)
                begin_micro_batch(r);
            break;
        default: /* with cases for events, all the others would go through a jump table */
            if (r->allocator && (instruction->op == PLAN_RECORD || instruction->op == PLAN_WAIT ||
                                 instruction->op == PLAN_USE ||
                                 plan_op_is_collective((enum plan_op)instruction->op)))
                deferred_pass(r->deferred, i);
            continue;
        }
        if (visit && r->measuring)
            visit_point(r, visit, context);
    }
    if (r->allocator)
        deferred_end_step(r->deferred);
    return ERR_OK;
}

/* For the allocator: nothing has to be waited for. */
static void complete_frees(void *context)
{
    deferred_complete(((struct replay *)context)->deferred);
}

static enum err_code alloc_initial(struct replay *r)
{
    bool *initial = plan_initial_buffers(r->plan);
    enum err_code rc = ERR_OK;
    for (uint32_t b = 0; b < r->plan->buffer_count && rc == ERR_OK; b++)
        if (initial[b]) {
            if (r->options->before_buffer)
                r->options->before_buffer(r->options->hook_context, r->plan, b);
            rc = alloc_buffer(r, b);
        }
    free(initial);
    return rc;
}

static enum err_code run(struct replay *r, memory_visitor *visit, void *context)
{
    TRY(alloc_initial(r));
    TRY(run_step(r, true, NULL, NULL));
    for (uint32_t step = 1; step < r->options->steps_before; step++)
        TRY(run_step(r, false, NULL, NULL));
    r->out->host_bytes = r->host;
    if (r->allocator) {
        r->out->first_step_reserved_bytes = allocator_stats(r->allocator)->reserved_peak;
        allocator_reset_peaks(r->allocator);
    }
    r->measuring = true;
    return run_step(r, false, visit, context);
}

enum err_code memory_replay(const struct plan *plan, const struct memory_options *options,
                            memory_visitor *visit, void *context, struct memory *out,
                            struct err *err)
{
    (void)err;
    *out = (struct memory){.repeats = plan->repeats > 0};
    struct replay r = {.plan = plan, .options = options, .out = out};
    if (!options->without_allocator) {
        struct allocator_settings settings = options->allocator;
        settings.complete_frees = complete_frees;
        settings.free_context = &r;
        r.allocator = allocator_new(&settings);
        r.deferred = deferred_new(plan, r.allocator, options->clock);
    }
    r.blocks = xcalloc(plan->buffer_count + 1, sizeof(struct allocator_block *));
    const enum err_code rc = run(&r, visit, context);
    if (r.allocator) {
        out->reserved_bytes = allocator_stats(r.allocator)->reserved_peak;
        if (out->first_step_reserved_bytes > out->reserved_bytes)
            out->reserved_bytes = out->first_step_reserved_bytes;
        if (options->at_end)
            options->at_end(options->hook_context, r.allocator);
    }
    out->host_held_bytes = (uint64_t)r.held.most;
    deferred_close(r.deferred);
    allocator_free(r.allocator);
    free(r.blocks);
    return rc == ERR_NOMEM ? ERR_OK : rc;
}

ENUM_NAME(step_part_name, enum step_part, PART_MAP)

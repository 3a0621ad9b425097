/* streams.c - see streams.h.
 *
 * Vector clocks: a lane counts its own operations and knows of every other how many are over when
 * it comes to the next. A record takes what its lane knows, a wait adds what was taken. What the
 * host waits for, whatever it issues later comes after, too. */
#include "tests/support/streams.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum lane { COMPUTE, HOST, COPY_IN, ALL_GATHER, REDUCE_SCATTER, ALL_REDUCE, FUTURE, LANES };

/* NCCL's stream of DDP is the plan's all_reduce. */
static const struct {
    const char *name;
    enum lane lane;
} lanes[] = {
    {"compute", COMPUTE},
    {"host", HOST},
    {"copy_in", COPY_IN},
    {"all_gather", ALL_GATHER},
    {"reduce_scatter", REDUCE_SCATTER},
    {"all_reduce", ALL_REDUCE},
    {"nccl", ALL_REDUCE},
    {"future", FUTURE},
    {"reduction", REDUCE_SCATTER}, /* of ZeRO-1 and 2 */
};

static enum lane lane_of(const char *name)
{
    for (size_t i = 0; i < sizeof lanes / sizeof lanes[0]; i++)
        if (strcmp(lanes[i].name, name) == 0)
            return lanes[i].lane;
    fail_msg("no lane is called %s", name);
    return LANES;
}

/* What recordings call an operation, and what it is called here. Others mark nothing. */
static const struct {
    const char *recorded, *name;
} names[] = {
    {"aten._foreach_copy_", "cast"},
    {"fsdp.all_gather_copy_in", "copy_in"},
    {"all_gather_single", "all_gather"},
    {"fsdp.split_with_sizes_copy", "copy_out"},
    {"fsdp.chunk_cat", "copy_in"},
    {"reduce_scatter_single", "reduce_scatter"},
    {"all_gather_into_tensor", "all_gather"}, /* until 2.12 */
    {"reduce_scatter_tensor", "reduce_scatter"},
    {"all_gather", "all_gather"},
    {"reduce_scatter", "reduce_scatter"},
    {"all_reduce", "all_reduce"},
    {"_c10d_functional.all_reduce", "all_reduce"},
    {"allreduce_", "all_reduce"},
    {"broadcast_", "broadcast"},
    {"copy_in", "copy_in"},
    {"copy_out", "copy_out"},
    {"host_to_device", "host_to_device"},
    {"device_to_host", "device_to_host"},
    {"aten.mm", "product"},
    {"aten.addmm", "product"},
};

struct clock {
    uint32_t over[LANES];
};

struct op {
    const char *name;
    enum lane lane;
    struct clock after; /* own lane: its place */
};

struct log {
    struct clock lanes[LANES];
    struct clock *events; /* (event_count) what was known when they were recorded */
    uint32_t event_count;
    struct op *ops;
    size_t count, cap;
};

static void join(struct clock *into, const struct clock *from)
{
    for (int i = 0; i < LANES; i++)
        if (from->over[i] > into->over[i])
            into->over[i] = from->over[i];
}

static void put_op(struct log *log, enum lane lane, const char *name)
{
    struct clock *own = &log->lanes[lane];
    join(own, &log->lanes[HOST]);
    own->over[lane]++;
    ARRAY_GROW(log->ops, log->count, log->cap);
    log->ops[log->count++] = (struct op){name, lane, *own};
}

/* An event that was recorded in the step before is over. */
static void put_wait(struct log *log, enum lane lane, uint32_t event)
{
    if (log->events && event < log->event_count)
        join(&log->lanes[lane], &log->events[event]);
}

static void put_record(struct log *log, enum lane lane, uint32_t event)
{
    if (!log->events || event >= log->event_count) {
        log->events = xrealloc(log->events, (event + 1) * sizeof *log->events);
        memset(log->events + log->event_count, 0,
               (event + 1 - log->event_count) * sizeof *log->events);
        log->event_count = event + 1;
    }
    log->events[event] = log->lanes[lane];
}

static void free_log(struct log *log)
{
    free(log->events);
    free(log->ops);
}

static void read_recorded(const json_t *row, struct log *log)
{
    size_t i;
    const json_t *line;
    bool filled = false;
    json_array_foreach(json_object_get(row, "streams"), i, line)
    {
        const char *kind = json_string_value(json_array_get(line, 0));
        const enum lane lane = lane_of(json_string_value(json_array_get(line, 1)));
        const json_t *what = json_array_get(line, 2);
        const uint32_t event = (uint32_t)json_integer_value(what);
        if (strcmp(kind, "record") == 0)
            put_record(log, lane, event);
        else if (strcmp(kind, "wait") == 0 || strcmp(kind, "sync") == 0)
            put_wait(log, lane, event);
        if (!json_is_string(what))
            continue;
        const char *text = json_string_value(what);
        /* Copies behind a broadcast of buffers, which one buffer that was sent as it is has too,
         * though nothing runs for it, are left out. */
        filled = (filled || strcmp(text, "copy_in") == 0) && strcmp(text, "broadcast_") != 0;
        for (size_t n = 0; n < sizeof names / sizeof names[0]; n++)
            if (strcmp(names[n].recorded, text) == 0 && (filled || strcmp(text, "copy_out") != 0))
                put_op(log, lane, names[n].name);
    }
}

static bool is_in_bucket(const struct plan *plan, const struct plan_instruction *in,
                         const struct operand *operand)
{
    const struct buffer *buffer = &plan->buffers[plan_operand_place(plan, in, operand).buffer];
    return buffer->category == CATEGORY_BUCKET && buffer->resident;
}

/* DDP's: into a bucket, out of it; and the map of used parameters, to where it is summed. */
static const char *bucket_name(const struct plan *plan, const struct plan_instruction *in)
{
    const struct kernel *kernel = plan_kernel(plan, in->arg);
    const bool copies = kernel->label == ATEN_COPY_ || kernel->label == ATEN_MUL;
    if (in->phase == PLAN_FORWARD)
        return kernel->label == ATEN_CAT ? "copy_in" : NULL; /* of module buffers */
    if (in->phase != PLAN_BACKWARD || !copies)
        return NULL;
    const bool from = is_in_bucket(plan, in, &kernel->operands[0]);
    const bool to = is_in_bucket(plan, in, &kernel->operands[kernel->ins]);
    if (in->lane != LANE_COMPUTE)
        return "copy_out"; /* of a hook's copy */
    if (kernel->operands[0].dtype == DTYPE_INT32)
        return "copy_in";
    return from && to ? NULL : from ? "copy_out" : to ? "copy_in" : NULL;
}

static bool is_bucket(const struct plan *plan, const struct plan_instruction *in)
{
    const struct kernel *kernel = plan_kernel(plan, in->arg);
    const struct operand *out = &kernel->operands[kernel->ins];
    return plan->buffers[plan_operand_place(plan, in, out).buffer].category == CATEGORY_BUCKET;
}

/* What a recording tells of a kernel: matrix products, copies from and into buckets, and casts
 * beside the compute stream. */
static const char *kernel_name(const struct plan *plan, const struct plan_instruction *in,
                               enum lane lane)
{
    const unsigned label = plan_kernel(plan, in->arg)->label;
    const bool with_bias = label == ATEN_ADDMM && strcmp(plan->system, "fsdp2") != 0;
    if (label == ATEN_MM || with_bias) /* FSDP2's rows tell of mm alone */
        return "product";
    if (lane == COPY_IN && label == ATEN_FOREACH_COPY_)
        return "cast";
    if (strncmp(plan->system, "zero", 4) == 0)
        return label == ATEN_CAT && is_bucket(plan, in) ? "copy_in" : NULL;
    return strcmp(plan->system, "ddp") == 0 ? bucket_name(plan, in) : NULL;
}

/* Of ZeRO copies of single numbers are not told; of others every copy is, of an empty shard too. */
static bool is_number(const struct plan *plan, const struct kernel *kernel)
{
    return strncmp(plan->system, "zero", 4) == 0 &&
           shape_elements(&kernel->operands[0].shape) *
                   dtype_bytes((enum dtype)kernel->operands[0].dtype) <=
               8;
}

static const char *name_of(const struct plan *plan, const struct plan_instruction *in,
                           enum lane lane)
{
    switch (in->op) {
    case PLAN_COMPUTE:
        return kernel_name(plan, in, lane);
    case PLAN_COPY_OUT: /* of one rank alone each parameter is copied, which is not recorded */
        return plan_kernel(plan, in->arg)->label == ATEN_COPY_ ? NULL : "copy_out";
    case PLAN_HOST_TO_DEVICE:
    case PLAN_DEVICE_TO_HOST:
        if (is_number(plan, plan_kernel(plan, in->arg)))
            return NULL;
        return plan_op_name((enum plan_op)in->op);
    case PLAN_COPY_IN: /* of one shard NCCL reads it itself */
        if (strcmp(plan->lanes[in->lane].name, "nccl") == 0)
            return NULL;
        return plan_op_name((enum plan_op)in->op);
    case PLAN_ALL_GATHER:
    case PLAN_REDUCE_SCATTER:
    case PLAN_ALL_REDUCE:
    case PLAN_BROADCAST:
        return plan_op_name((enum plan_op)in->op);
    default:
        return NULL;
    }
}

static void read_planned(const struct plan *plan, struct log *log)
{
    for (uint32_t i = 0; i < plan->instruction_count; i++) {
        const struct plan_instruction *in = &plan->instructions[i];
        const enum lane lane = lane_of(plan->lanes[in->lane].name);
        if (in->flags & PLAN_FIRST_STEP)
            continue;
        if (in->op == PLAN_RECORD)
            put_record(log, lane, in->arg);
        else if (in->op == PLAN_WAIT)
            put_wait(log, lane, in->arg);
        const char *name = name_of(plan, in, lane);
        if (name)
            put_op(log, lane, name);
    }
}

static void clock_text(const struct op *op, char *text, size_t size)
{
    int used = snprintf(text, size, "%s %u on lane %d after", op->name, op->after.over[op->lane],
                        (int)op->lane);
    for (int i = 0; i < LANES && used < (int)size; i++)
        if (i != (int)op->lane && op->after.over[i])
            used +=
                snprintf(text + used, size - (size_t)used, " %u of lane %d", op->after.over[i], i);
}

static bool is_alike(const struct op *a, const struct op *b)
{
    return a->lane == b->lane && strcmp(a->name, b->name) == 0 &&
           memcmp(&a->after, &b->after, sizeof a->after) == 0;
}

bool streams_equal(const json_t *row, const struct plan *plan, size_t *ops)
{
    struct log recorded = {.ops = NULL}, planned = {.ops = NULL};
    char theirs[256] = "nothing", ours[256] = "nothing";
    read_recorded(row, &recorded);
    read_planned(plan, &planned);
    size_t at = 0;
    while (at < recorded.count && at < planned.count &&
           is_alike(&recorded.ops[at], &planned.ops[at]))
        at++;
    const bool equal = at == recorded.count && at == planned.count;
    if (!equal) {
        if (at < recorded.count)
            clock_text(&recorded.ops[at], theirs, sizeof theirs);
        if (at < planned.count)
            clock_text(&planned.ops[at], ours, sizeof ours);
        print_error("%s: operation %zu\n  recorded %s\n  planned  %s\n",
                    json_string_value(json_object_get(row, "name")), at, theirs, ours);
    }
    *ops = recorded.count;
    free_log(&recorded);
    free_log(&planned);
    return equal;
}

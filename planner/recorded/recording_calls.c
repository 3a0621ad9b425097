/* recording_calls.c - the table of calls: each as a kernel whose operands have yet to be placed.
 *
 * A row is [op, ins, outs, arguments, flops]; a tensor [dtype, shape, strides, position]. The same
 * call is made many times on other storages, so its work, operands and strides are found once. */
#include "graph/ops.h"
#include "recorded/recording_parts.h"

#include <stdlib.h>
#include <string.h>

enum { OP, INS, OUTS, ARGUMENTS, FLOPS };
enum { DTYPE, SIZES, STRIDES, POSITION };

static bool read_strides(const json_t *row, size_t rank, struct strides *out)
{
    const size_t given = json_array_size(row);
    if (!json_is_array(row) || given != rank)
        return false;
    for (size_t i = 0; i < rank && i < SHAPE_DIMS; i++) {
        const json_int_t stride = json_integer_value(json_array_get(row, i));
        if (stride < 0)
            return false;
        out->of[i] = (uint64_t)stride;
    }
    return true;
}

/* One tensor of a call; `place` is its number among them. */
static bool read_tensor(const json_t *row, uint32_t place, struct aten_tensor *out)
{
    const json_t *strides = json_array_get(row, STRIDES), *sizes = json_array_get(row, SIZES);
    *out = (struct aten_tensor){
        .input = (uint32_t)json_integer_value(json_array_get(row, POSITION)), .place = place};
    if (json_array_size(row) != 4 ||
        !recorded_dtype(json_string_value(json_array_get(row, DTYPE)), &out->dtype) ||
        !recorded_shape(sizes, &out->shape))
        return false;
    if (json_is_array(strides) && json_array_size(sizes) <= SHAPE_DIMS)
        return read_strides(strides, out->shape.rank, &out->strides);
    out->strides = aten_dense(&out->shape); /* where dims were joined, too */
    return true;
}

static uint32_t read_tensors(const json_t *rows, uint32_t place,
                             struct aten_tensor out[ATEN_TENSORS], bool *ok)
{
    const size_t count = json_array_size(rows);
    *ok = *ok && json_is_array(rows) && count < ATEN_TENSORS;
    for (uint32_t i = 0; *ok && i < count; i++)
        *ok = read_tensor(json_array_get(rows, i), place + i, &out[i]);
    return (uint32_t)count;
}

struct arguments {
    const json_t *of;
    char text[24];
};

/* The dispatcher's positional arguments by number; a named one is not asked for by number, but
 * is_causal. */
static const char *argument(const void *context, uint32_t input)
{
    struct arguments *a = (struct arguments *)(uintptr_t)context;
    snprintf(a->text, sizeof a->text, "%u", input);
    const json_t *value = json_object_get(a->of, a->text);
    if (json_is_boolean(value))
        return json_is_true(value) ? "true" : "false";
    snprintf(a->text, sizeof a->text, "%lld", (long long)json_integer_value(value));
    return json_is_integer(value) ? a->text : "";
}

/* "mul.Tensor" -> "mul" */
static const char *stem_of(const char *name, char *stem, size_t size)
{
    snprintf(stem, size, "%.*s", (int)strcspn(name, "."), name);
    return stem;
}

static void keep(struct recording *r, const struct aten_kernel *made, struct recorded_call *call)
{
    const uint32_t count = (uint32_t)made->kernel.ins + made->kernel.outs;
    struct operand *operands = arena_alloc(&r->arena, (count + 1) * sizeof *operands);
    struct strides *strides = arena_alloc(&r->arena, (count + 1) * sizeof *strides);
    memcpy(operands, made->operands, count * sizeof *operands);
    memcpy(strides, made->strides, count * sizeof *strides);
    call->kernel = made->kernel;
    call->kernel.operands = operands;
    call->kernel.strides = made->kernel.strides ? strides : NULL;
    call->strides = strides;
    call->known = made->known;
}

/* Attention's arguments may be named: "is_causal" is the only one that counts. */
static bool is_causal(const json_t *arguments)
{
    return json_is_true(json_object_get(arguments, "is_causal"));
}

/* Forward's probability of dropout. */
static float dropout_of(const json_t *arguments)
{
    return (float)json_number_value(json_object_get(arguments, "3"));
}

struct reading { /* one call at a time */
    struct aten_kernel made;
    struct aten_tensor ins[ATEN_TENSORS], outs[ATEN_TENSORS];
};

static bool read_call(struct recording *r, const json_t *row, struct reading *reading,
                      struct recorded_call *out)
{
    struct aten_kernel *made = &reading->made;
    struct aten_tensor *ins = reading->ins, *outs = reading->outs;
    struct arguments arguments = {.of = json_array_get(row, ARGUMENTS)};
    char stem[256];
    bool ok = json_array_size(row) == 5;
    const json_int_t op = json_integer_value(json_array_get(row, OP));
    const uint32_t in_count = read_tensors(json_array_get(row, INS), 0, ins, &ok);
    const uint32_t out_count = read_tensors(json_array_get(row, OUTS), in_count, outs, &ok);
    if (!ok || op < 0 || op >= r->op_count)
        return false;
    const struct aten_call call = {
        .op = stem_of(r->ops[op].name, stem, sizeof stem),
        .tensors = ins,
        .results = outs,
        .count = in_count,
        .result_count = out_count,
        .value = argument,
        .context = &arguments,
        .traced = "",
        .flops = json_number_value(json_array_get(row, FLOPS)),
    };
    *out = (struct recorded_call){.op = (uint32_t)op, .places = in_count + out_count};
    if (!aten_kernel_make(&call, made))
        return false;
    if (is_causal(arguments.of) && made->family == ATEN_ATTENTION && !made->kernel.attr.causal) {
        made->kernel.attr.causal = true;
        made->kernel.flops /= 2;
    }
    if (r->ops[op].kind == RECORDED_FLASH)
        made->kernel.attr.p = dropout_of(arguments.of);
    made->kernel.backward = false;
    keep(r, made, out);
    struct kernel *kernel = &out->kernel;
    for (uint32_t i = 0; i < (uint32_t)kernel->ins + kernel->outs; i++)
        kernel->bytes +=
            (double)shape_bytes(&kernel->operands[i].shape, (enum dtype)kernel->operands[i].dtype);
    if (kernel->flops <= 0)
        kernel->flops = call.flops > 0 ? call.flops
                        : kernel->outs
                            ? (double)shape_elements(&kernel->operands[kernel->ins].shape)
                            : 0;
    return kernel->ins + kernel->outs > 0;
}

enum err_code recording_read_calls(struct recording *r, struct err *err)
{
    const json_t *rows = json_object_get(r->header, "calls");
    struct reading *reading = xmalloc(sizeof *reading);
    enum err_code rc = ERR_OK;
    r->call_count = (uint32_t)json_array_size(rows);
    r->calls = arena_alloc(&r->arena, (r->call_count + 1) * sizeof *r->calls);
    for (uint32_t i = 0; i < r->call_count && rc == ERR_OK; i++)
        if (!read_call(r, json_array_get(rows, i), reading, &r->calls[i]))
            rc = err_set(err, ERR_INVALID,
                         "%s: line 1: \"calls\"[%u] is not [op, ins, outs, arguments, flops], or "
                         "has a dtype that is not known",
                         r->path, i);
    free(reading);
    return rc;
}

enum attention_kernel recorded_attention(const struct recording *recording,
                                         const struct recording_choice *choice)
{
    if (choice->attention != ATTENTION_CUDNN)
        return choice->attention;
    for (uint32_t i = 0; i < recording->call_count; i++) {
        const struct kernel *kernel = &recording->calls[i].kernel;
        if (recording->ops[recording->calls[i].op].kind != RECORDED_FLASH || kernel->ins < 3)
            continue;
        const struct shape *q = &kernel->operands[0].shape, *v = &kernel->operands[2].shape;
        const struct attention_asks asks = {
            .head = q->dim[q->rank - 1], .width = v->dim[v->rank - 1], .dropout = kernel->attr.p};
        if (!attention_takes_cudnn(choice->torch, choice->attention_gpu, &asks))
            return ATTENTION_FLASH;
    }
    return ATTENTION_CUDNN;
}

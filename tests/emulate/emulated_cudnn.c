/* emulated_cudnn.c - cuDNN's backend API as far as the cuda backend uses it: a graph of operations
 * on 4-dim tensors, computed operation by operation in fp32 when its stream's turn comes. So a
 * graph is known to compute what it is meant to; whether an engine of cuDNN takes it, it cannot
 * say.
 *
 * It is loaded instead of libcudnn.so.9 where SHARDRUN_CUDNN names the emulated backend. A
 * descriptor is the list of what was set on it. Two engines, of which the heuristic lists the first
 * first:
 *
 *     0   says that it is not deterministic; takes graphs that sum a product in fp32 memory
 *     1   keeps (b, a, s, s_k) numbers of 16 bits in its workspace; takes the others */
#include "runtime/work/half.h"
#include "tests/emulate/emulated_stream.h"

#include <cudnn.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORTED __attribute__((visibility("default")))

enum { VERSION = 92000, DIMS = 4, MOST_ATTRIBUTES = 12, MOST_VALUES = 64, MOST_TENSORS = 96 };

struct attribute {
    cudnnBackendAttributeName_t name;
    int64_t count;
    void *values;
};

struct descriptor {
    cudnnBackendDescriptorType_t type;
    uint32_t count;
    struct attribute attribute[MOST_ATTRIBUTES];
    int64_t engine; /* of a configuration and an engine */
};

static struct descriptor *of(cudnnBackendDescriptor_t descriptor)
{
    return descriptor;
}

/* ---- the library ---- */

struct cudnnContext {
    cudaStream_t stream;
};

EXPORTED cudnnStatus_t cudnnCreate(cudnnHandle_t *handle)
{
    *handle = calloc(1, sizeof **handle);
    return CUDNN_STATUS_SUCCESS;
}

EXPORTED cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
    free(handle);
    return CUDNN_STATUS_SUCCESS;
}

EXPORTED cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

EXPORTED const char *cudnnGetErrorString(cudnnStatus_t status)
{
    return status == CUDNN_STATUS_NOT_SUPPORTED ? "NOT_SUPPORTED"
                                                : "an error of the emulated cuDNN";
}

EXPORTED void cudnnGetLastErrorString(char *message, size_t bytes)
{
    snprintf(message, bytes, "%s", "");
}

EXPORTED size_t cudnnGetVersion(void)
{
    return VERSION;
}

/* ---- descriptors ---- */

EXPORTED cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                                    cudnnBackendDescriptor_t *out)
{
    struct descriptor *made = calloc(1, sizeof *made);
    made->type = type;
    *out = made;
    return CUDNN_STATUS_SUCCESS;
}

EXPORTED cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor)
{
    for (uint32_t i = 0; i < of(descriptor)->count; i++)
        free(of(descriptor)->attribute[i].values);
    free(descriptor);
    return CUDNN_STATUS_SUCCESS;
}

static size_t bytes_of(cudnnBackendAttributeType_t type)
{
    switch (type) {
    case CUDNN_TYPE_BOOLEAN:
        return sizeof(bool);
    case CUDNN_TYPE_INT64:
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
        return 8;
    default: /* enums */
        return 4;
    }
}

EXPORTED cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                                cudnnBackendAttributeName_t name,
                                                cudnnBackendAttributeType_t type, int64_t count,
                                                const void *values)
{
    struct descriptor *to = of(descriptor);
    const size_t bytes = bytes_of(type) * (size_t)count;
    if (to->count == MOST_ATTRIBUTES || count < 1 || count > MOST_VALUES)
        return CUDNN_STATUS_BAD_PARAM;
    struct attribute *attribute = &to->attribute[to->count++];
    *attribute = (struct attribute){name, count, malloc(bytes)};
    memcpy(attribute->values, values, bytes);
    return CUDNN_STATUS_SUCCESS;
}

/* What was set; NULL: nothing. */
static const struct attribute *attribute_of(const struct descriptor *descriptor,
                                            cudnnBackendAttributeName_t name)
{
    for (uint32_t i = 0; i < descriptor->count; i++)
        if (descriptor->attribute[i].name == name)
            return &descriptor->attribute[i];
    return NULL;
}

static int64_t number(const struct descriptor *descriptor, cudnnBackendAttributeName_t name)
{
    const struct attribute *attribute = attribute_of(descriptor, name);
    int64_t value = 0;
    if (attribute)
        memcpy(&value, attribute->values, 8);
    return value;
}

static int word(const struct descriptor *descriptor, cudnnBackendAttributeName_t name)
{
    const struct attribute *attribute = attribute_of(descriptor, name);
    int value = -1;
    if (attribute)
        memcpy(&value, attribute->values, sizeof value);
    return value;
}

static bool flag(const struct descriptor *descriptor, cudnnBackendAttributeName_t name)
{
    const struct attribute *attribute = attribute_of(descriptor, name);
    return attribute && *(const bool *)attribute->values;
}

static struct descriptor *part(const struct descriptor *descriptor,
                               cudnnBackendAttributeName_t name)
{
    return (struct descriptor *)(uintptr_t)number(descriptor, name);
}

static const int64_t *dims_of(const struct descriptor *tensor)
{
    return attribute_of(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS)->values;
}

static const int64_t *strides_of(const struct descriptor *tensor)
{
    return attribute_of(tensor, CUDNN_ATTR_TENSOR_STRIDES)->values;
}

static int64_t elements_of(const struct descriptor *tensor)
{
    const int64_t *dim = dims_of(tensor);
    return dim[0] * dim[1] * dim[2] * dim[3];
}

/* ---- operations: what they read and write ---- */

enum { READS = 3 };

struct operation {
    struct descriptor *in[READS], *out;
};

static struct operation operation_of(const struct descriptor *d)
{
    switch (d->type) {
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
        return (struct operation){{part(d, CUDNN_ATTR_OPERATION_POINTWISE_XDESC),
                                   part(d, CUDNN_ATTR_OPERATION_POINTWISE_BDESC),
                                   part(d, CUDNN_ATTR_OPERATION_POINTWISE_TDESC)},
                                  part(d, CUDNN_ATTR_OPERATION_POINTWISE_YDESC)};
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
        return (struct operation){{part(d, CUDNN_ATTR_OPERATION_REDUCTION_XDESC)},
                                  part(d, CUDNN_ATTR_OPERATION_REDUCTION_YDESC)};
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
        return (struct operation){{part(d, CUDNN_ATTR_OPERATION_MATMUL_ADESC),
                                   part(d, CUDNN_ATTR_OPERATION_MATMUL_BDESC)},
                                  part(d, CUDNN_ATTR_OPERATION_MATMUL_CDESC)};
    default:
        return (struct operation){{part(d, CUDNN_ATTR_OPERATION_RESHAPE_XDESC)},
                                  part(d, CUDNN_ATTR_OPERATION_RESHAPE_YDESC)};
    }
}

/* Broadcast: the same, or 1. */
static bool fits(const struct descriptor *x, const struct descriptor *y)
{
    for (int i = 0; x && i < DIMS; i++)
        if (dims_of(x)[i] != dims_of(y)[i] && dims_of(x)[i] != 1)
            return false;
    return true;
}

static bool is_product(const int64_t *a, const int64_t *b, const int64_t *c)
{
    for (int i = 0; i < 2; i++) /* fewer heads of b are shared by heads of a that follow */
        if (a[i] != c[i] || b[i] == 0 || c[i] % b[i])
            return false;
    return a[2] == c[2] && a[3] == b[2] && b[3] == c[3];
}

/* Neighbours along a dim are summed: all of them, or in groups. */
static bool is_sum(const int64_t *x, const int64_t *y)
{
    for (int i = 0; i < DIMS; i++)
        if (y[i] == 0 || x[i] % y[i])
            return false;
    return true;
}

static bool is_right(const struct descriptor *d)
{
    const struct operation o = operation_of(d);
    if (!o.in[0] || !o.out)
        return false;
    switch (d->type) {
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
        return fits(o.in[0], o.out) && fits(o.in[1], o.out) && fits(o.in[2], o.out);
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
        return is_sum(dims_of(o.in[0]), dims_of(o.out));
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
        return is_product(dims_of(o.in[0]), dims_of(o.in[1]), dims_of(o.out));
    default:
        return elements_of(o.in[0]) == elements_of(o.out);
    }
}

static const struct attribute *operations_of(const struct descriptor *graph)
{
    return attribute_of(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS);
}

static bool sums_in_memory(const struct descriptor *graph)
{
    const struct attribute *all = operations_of(graph);
    for (int64_t i = 0; i < all->count; i++) {
        const struct descriptor *d = ((struct descriptor **)all->values)[i];
        if (d->type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) {
            const struct descriptor *out = operation_of(d).out;
            if (!flag(out, CUDNN_ATTR_TENSOR_IS_VIRTUAL) &&
                word(out, CUDNN_ATTR_TENSOR_DATA_TYPE) == CUDNN_DATA_FLOAT)
                return true;
        }
    }
    return false;
}

/* Whether attention's backward: its products are five. */
static bool is_backward(const struct descriptor *graph)
{
    const struct attribute *all = operations_of(graph);
    int products = 0;
    for (int64_t i = 0; i < all->count; i++)
        products += ((struct descriptor **)all->values)[i]->type ==
                    CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR;
    return products > 2;
}

static struct descriptor *graph_of(const struct descriptor *plan)
{
    const struct descriptor *configuration = part(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
    return part(configuration, CUDNN_ATTR_ENGINECFG_ENGINE);
}

EXPORTED cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor)
{
    const struct descriptor *d = of(descriptor);
    switch (d->type) {
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
        return is_right(d) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_BAD_PARAM;
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: {
        const struct descriptor *graph = graph_of(d);
        const int64_t engine = part(d, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)->engine;
        const bool takes = !is_backward(graph) || sums_in_memory(graph) == (engine == 0);
        return takes ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
    }
    default:
        return CUDNN_STATUS_SUCCESS;
    }
}

static int64_t workspace_of(const struct descriptor *plan)
{
    const struct descriptor *graph = graph_of(plan);
    const struct descriptor *first = *(struct descriptor **)operations_of(graph)->values;
    if (!is_backward(graph) || part(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)->engine == 0)
        return 0;
    const int64_t *rows = dims_of(operation_of(first).in[0]); /* of do: (b, a, s, d) */
    return rows[0] * rows[1] * rows[2] * rows[2] * 2;
}

EXPORTED cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor,
                                                cudnnBackendAttributeName_t name,
                                                cudnnBackendAttributeType_t type, int64_t count,
                                                int64_t *found, void *values)
{
    const struct descriptor *d = of(descriptor);
    struct descriptor **made = values;
    (void)type;
    *found = 0;
    if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS) {
        struct descriptor *graph = part(d, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
        for (; *found < 2 && *found < count; (*found)++) {
            made[*found]->engine = *found;
            cudnnBackendSetAttribute(made[*found], CUDNN_ATTR_ENGINECFG_ENGINE,
                                     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph);
        }
    } else if (name == CUDNN_ATTR_ENGINECFG_ENGINE) {
        made[0]->engine = d->engine;
        *found = 1;
    } else if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE) {
        const cudnnBackendNumericalNote_t note = CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
        memcpy(values, &note, sizeof note);
        *found = d->engine == 0;
    } else if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) {
        const int64_t bytes = workspace_of(d);
        memcpy(values, &bytes, sizeof bytes);
        *found = 1;
    } else {
        return CUDNN_STATUS_BAD_PARAM;
    }
    return CUDNN_STATUS_SUCCESS;
}

/* ---- computing ---- */

struct value { /* of a tensor without memory, packed */
    int64_t id;
    float *data;
};

struct given { /* by its user: where it lies, or a number */
    int64_t id;
    void *data;
    float number;
};

struct job {
    const struct descriptor *graph;
    int64_t count;
    struct given given[MOST_VALUES];
    void *workspace;
    int64_t workspace_bytes;
    struct value value[MOST_TENSORS];
    uint32_t values;
};

static const struct given *find_given(const struct job *job, const struct descriptor *tensor)
{
    const int64_t id = number(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID);
    for (int64_t i = 0; i < job->count; i++)
        if (job->given[i].id == id)
            return &job->given[i];
    fprintf(stderr, "emulated cuDNN: tensor %lld has no memory\n", (long long)id);
    abort();
}

static float load(const void *data, int type, int64_t i)
{
    if (type == CUDNN_DATA_FLOAT)
        return ((const float *)data)[i];
    const uint16_t half = ((const uint16_t *)data)[i];
    return type == CUDNN_DATA_BFLOAT16 ? float_from_bf16(half) : float_from_fp16(half);
}

static float rounded(float x, int type)
{
    if (type == CUDNN_DATA_BFLOAT16)
        return float_from_bf16(bf16_from_float(x));
    return type == CUDNN_DATA_HALF ? float_from_fp16(fp16_from_float(x)) : x;
}

static void store(void *data, int type, int64_t i, float x)
{
    if (type == CUDNN_DATA_FLOAT)
        ((float *)data)[i] = x;
    else
        ((uint16_t *)data)[i] =
            type == CUDNN_DATA_BFLOAT16 ? bf16_from_float(x) : fp16_from_float(x);
}

/* NOLINTBEGIN(bugprone-macro-parentheses): `at` is declared */
#define FOR_ELEMENTS(at, dim)                                                                      \
    for (int64_t at[DIMS] = {0}; at[0] < (dim)[0]; at[0]++)                                        \
        for (at[1] = 0; at[1] < (dim)[1]; at[1]++)                                                 \
            for (at[2] = 0; at[2] < (dim)[2]; at[2]++)                                             \
                for (at[3] = 0; at[3] < (dim)[3]; at[3]++)
/* NOLINTEND(bugprone-macro-parentheses) */

static int64_t place(const int64_t *at, const int64_t *stride)
{
    return at[0] * stride[0] + at[1] * stride[1] + at[2] * stride[2] + at[3] * stride[3];
}

/* Its elements, packed in the order of its dims; NULL: no tensor. The caller frees it. */
static float *read_tensor(const struct job *job, const struct descriptor *tensor)
{
    if (!tensor)
        return NULL;
    float *out = calloc((size_t)elements_of(tensor), sizeof *out);
    const int type = word(tensor, CUDNN_ATTR_TENSOR_DATA_TYPE);
    const int64_t *dim = dims_of(tensor), *stride = strides_of(tensor);
    int64_t n = 0;
    if (flag(tensor, CUDNN_ATTR_TENSOR_IS_VIRTUAL)) {
        const int64_t id = number(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID);
        for (uint32_t i = 0; i < job->values; i++)
            if (job->value[i].id == id)
                memcpy(out, job->value[i].data, (size_t)elements_of(tensor) * sizeof *out);
        return out;
    }
    const struct given *given = find_given(job, tensor);
    FOR_ELEMENTS(at, dim)
    out[n++] = flag(tensor, CUDNN_ATTR_TENSOR_IS_BY_VALUE)
                   ? given->number
                   : load(given->data, type, place(at, stride));
    return out;
}

/* Takes `data`. */
static void write_tensor(struct job *job, const struct descriptor *tensor, float *data)
{
    const int type = word(tensor, CUDNN_ATTR_TENSOR_DATA_TYPE);
    const int64_t *dim = dims_of(tensor), *stride = strides_of(tensor);
    int64_t n = 0;
    if (flag(tensor, CUDNN_ATTR_TENSOR_IS_VIRTUAL)) {
        for (int64_t i = 0; i < elements_of(tensor); i++)
            data[i] = rounded(data[i], type);
        job->value[job->values++] =
            (struct value){number(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID), data};
        return;
    }
    const struct given *given = find_given(job, tensor);
    FOR_ELEMENTS(at, dim)
    store(given->data, type, place(at, stride), data[n++]);
    free(data);
}

/* Strides of a packed tensor that is spread over others' elements where it has but one. */
static void spread(const struct descriptor *tensor, int64_t stride[DIMS])
{
    const int64_t *dim = dims_of(tensor);
    int64_t step = 1;
    for (int i = DIMS; i-- > 0; step *= dim[i])
        stride[i] = dim[i] == 1 ? 0 : step;
}

static float apply(int mode, float x, float b, float t, int64_t index)
{
    switch (mode) {
    case CUDNN_POINTWISE_ADD:
        return x + b;
    case CUDNN_POINTWISE_SUB:
        return x - b;
    case CUDNN_POINTWISE_MUL:
        return x * b;
    case CUDNN_POINTWISE_DIV:
        return x / b;
    case CUDNN_POINTWISE_EXP:
        return expf(x);
    case CUDNN_POINTWISE_LOG:
        return logf(x);
    case CUDNN_POINTWISE_IDENTITY:
        return x;
    case CUDNN_POINTWISE_GEN_INDEX:
        return (float)index;
    case CUDNN_POINTWISE_CMP_GE:
        return x >= b ? 1.0F : 0.0F;
    case CUDNN_POINTWISE_BINARY_SELECT:
        return t != 0 ? x : b;
    default:
        return NAN;
    }
}

static void run_pointwise(const struct descriptor *d, const struct operation *o,
                          float *const in[READS], float *out)
{
    const struct descriptor *what = part(d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    const int mode = word(what, CUDNN_ATTR_POINTWISE_MODE);
    const int64_t axis = number(what, CUDNN_ATTR_POINTWISE_AXIS);
    const int64_t *dim = dims_of(o->out);
    int64_t n = 0, stride[READS][DIMS] = {{0}};
    for (int i = 0; i < READS; i++)
        if (in[i])
            spread(o->in[i], stride[i]);
    FOR_ELEMENTS(at, dim)
    {
        float x[READS] = {0};
        for (int i = 0; i < READS; i++)
            if (in[i])
                x[i] = in[i][place(at, stride[i])];
        out[n++] = apply(mode, x[0], x[1], x[2], at[axis]);
    }
}

static void run_reduction(const struct descriptor *d, const struct operation *o, const float *in,
                          float *out)
{
    const struct descriptor *what = part(d, CUDNN_ATTR_OPERATION_REDUCTION_DESC);
    const bool most = word(what, CUDNN_ATTR_REDUCTION_OPERATOR) == CUDNN_REDUCE_TENSOR_MAX;
    const int64_t *from = dims_of(o->in[0]), *to = dims_of(o->out);
    int64_t n = 0, times[DIMS];
    for (int i = 0; i < DIMS; i++)
        times[i] = from[i] / to[i];
    for (int64_t i = 0; i < elements_of(o->out); i++)
        out[i] = most ? -INFINITY : 0;
    FOR_ELEMENTS(at, from)
    {
        int64_t place = 0;
        for (int i = 0; i < DIMS; i++)
            place = place * to[i] + (times[i] == 1 ? at[i] : at[i] / times[i]);
        const float x = in[n++];
        out[place] = most ? fmaxf(out[place], x) : out[place] + x;
    }
}

/* Into zeros, along rows of b: each sum is in the order of k all the same. */
static void run_matmul(const struct operation *o, const float *a, const float *b, float *out)
{
    const int64_t *of_b = dims_of(o->in[1]), *of_c = dims_of(o->out);
    const int64_t m = of_c[2], n = of_c[3], k = of_b[2];
    for (int64_t batch = 0; batch < of_c[0] * of_c[1]; batch++) {
        const int64_t head = batch % of_c[1] / (of_c[1] / of_b[1]);
        const int64_t b_at = (batch / of_c[1] / (of_c[0] / of_b[0])) * of_b[1] + head;
        for (int64_t i = 0; i < m; i++)
            for (int64_t l = 0; l < k; l++) {
                const float x = a[(batch * m + i) * k + l], *row = &b[(b_at * k + l) * n];
                float *sum = &out[(batch * m + i) * n];
                for (int64_t j = 0; j < n; j++)
                    sum[j] += x * row[j];
            }
    }
}

/* A view of the same elements under other strides: those of x are in memory's order by x's strides,
 * and so are y's by its own. */
static void run_reshape(const struct operation *o, const float *in, float *out)
{
    const int64_t *from = strides_of(o->in[0]), *to = strides_of(o->out);
    int64_t most = 0, n = 0;
    FOR_ELEMENTS(at, dims_of(o->in[0]))
    most = place(at, from) > most ? place(at, from) : most;
    float *memory = calloc((size_t)most + 1, sizeof *memory);
    FOR_ELEMENTS(at, dims_of(o->in[0]))
    memory[place(at, from)] = in[n++];
    n = 0;
    FOR_ELEMENTS(at, dims_of(o->out))
    out[n++] = memory[place(at, to)];
    free(memory);
}

static void run_operation(struct job *job, const struct descriptor *d)
{
    const struct operation o = operation_of(d);
    float *in[READS];
    for (int i = 0; i < READS; i++)
        in[i] = read_tensor(job, o.in[i]);
    float *out = calloc((size_t)elements_of(o.out), sizeof *out);
    if (d->type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)
        run_pointwise(d, &o, in, out);
    else if (d->type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR)
        run_reduction(d, &o, in[0], out);
    else if (d->type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)
        run_matmul(&o, in[0], in[1], out);
    else
        run_reshape(&o, in[0], out);
    write_tensor(job, o.out, out);
    for (int i = 0; i < READS; i++)
        free(in[i]);
}

static int run_graph(void *context)
{
    struct job *job = context;
    const struct attribute *all = operations_of(job->graph);
    if (job->workspace_bytes > 0) /* all of it is written: whoever shares it wrongly shall notice */
        memset(job->workspace, 0xff, (size_t)job->workspace_bytes);
    for (int64_t i = 0; i < all->count; i++)
        run_operation(job, ((struct descriptor **)all->values)[i]);
    for (uint32_t i = 0; i < job->values; i++)
        free(job->value[i].data);
    return 1;
}

static bool is_by_value(const struct descriptor *graph, int64_t id)
{
    const struct attribute *all = operations_of(graph);
    for (int64_t i = 0; i < all->count; i++) {
        const struct operation o = operation_of(((struct descriptor **)all->values)[i]);
        for (int k = 0; k < READS; k++)
            if (o.in[k] && number(o.in[k], CUDNN_ATTR_TENSOR_UNIQUE_ID) == id)
                return flag(o.in[k], CUDNN_ATTR_TENSOR_IS_BY_VALUE);
    }
    return false;
}

EXPORTED cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                           cudnnBackendDescriptor_t pack)
{
    const struct attribute *ids = attribute_of(of(pack), CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    const struct attribute *data = attribute_of(of(pack), CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    struct job job = {
        .graph = graph_of(of(plan)),
        .count = ids->count,
        .workspace = part(of(pack), CUDNN_ATTR_VARIANT_PACK_WORKSPACE),
        .workspace_bytes = workspace_of(of(plan)),
    };
    for (int64_t i = 0; i < job.count; i++) {
        struct given *given = &job.given[i];
        given->id = ((const int64_t *)ids->values)[i];
        given->data = ((void *const *)data->values)[i];
        if (is_by_value(job.graph, given->id)) /* read now: it is the caller's */
            given->number = *(const float *)given->data;
    }
    return emulated_queue_copy(handle->stream, run_graph, &job, sizeof job) == cudaSuccess
               ? CUDNN_STATUS_SUCCESS
               : CUDNN_STATUS_EXECUTION_FAILED;
}

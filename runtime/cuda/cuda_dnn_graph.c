/* cuda_dnn_graph.c - see cuda_dnn_graph.h. Every descriptor is created, given its attributes and
 * finalized; the graph owns them until it is closed. */
#include "runtime/cuda/cuda_dnn_graph.h"

#include <dlfcn.h>
#include <string.h>

/* ---- the library ---- */

static bool find(void *library, const char *name, void *function)
{
    void *symbol = dlsym(library, name);
    memcpy(function, &symbol, sizeof symbol); /* ISO C has no cast from a pointer to data */
    return symbol != NULL;
}

bool dnn_library_load(struct dnn_library *out)
{
    void *library = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
    return library && find(library, "cudnnCreate", &out->create) &&
           find(library, "cudnnDestroy", &out->destroy) &&
           find(library, "cudnnSetStream", &out->set_stream) &&
           find(library, "cudnnGetErrorString", &out->error_string) &&
           find(library, "cudnnBackendCreateDescriptor", &out->descriptor_new) &&
           find(library, "cudnnBackendDestroyDescriptor", &out->descriptor_free) &&
           find(library, "cudnnBackendFinalize", &out->finalize) &&
           find(library, "cudnnBackendSetAttribute", &out->set) &&
           find(library, "cudnnBackendGetAttribute", &out->get) &&
           find(library, "cudnnBackendExecute", &out->execute);
}

/* ---- descriptors ---- */

static void note(struct dnn_graph *graph, cudnnStatus_t rc)
{
    if (rc != CUDNN_STATUS_SUCCESS)
        graph->failed = true;
}

static cudnnBackendDescriptor_t create(struct dnn_graph *graph, cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t made = NULL;
    if (graph->failed || graph->owned_count == DNN_MOST_DESCRIPTORS) {
        graph->failed = true;
        return NULL;
    }
    note(graph, graph->library->descriptor_new(type, &made));
    if (made)
        graph->owned[graph->owned_count++] = made;
    return made;
}

static void set(struct dnn_graph *graph, cudnnBackendDescriptor_t to,
                cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                const void *values)
{
    if (!graph->failed)
        note(graph, graph->library->set(to, name, type, count, values));
}

static void set_descriptor(struct dnn_graph *graph, cudnnBackendDescriptor_t to,
                           cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value)
{
    if (value) /* NULL: an operand that this operation does not take */
        set(graph, to, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static void finish(struct dnn_graph *graph, cudnnBackendDescriptor_t descriptor)
{
    if (!graph->failed)
        note(graph, graph->library->finalize(descriptor));
}

static void finish_operation(struct dnn_graph *graph, cudnnBackendDescriptor_t operation)
{
    finish(graph, operation);
    if (graph->operation_count == DNN_MOST_OPERATIONS)
        graph->failed = true;
    if (!graph->failed)
        graph->operation[graph->operation_count++] = operation;
}

/* ---- tensors ---- */

struct dnn_form dnn_packed(int64_t a, int64_t b, int64_t c, int64_t d)
{
    return (struct dnn_form){{a, b, c, d}, {b * c * d, c * d, d, 1}};
}

static dnn_tensor add_tensor(struct dnn_graph *graph, int64_t id, cudnnDataType_t type,
                             const struct dnn_form *form, bool is_virtual, bool by_value)
{
    const int64_t alignment = 16;
    dnn_tensor made = create(graph, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set(graph, made, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    set(graph, made, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(graph, made, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, DNN_DIMS, form->dim);
    set(graph, made, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, DNN_DIMS, form->stride);
    set(graph, made, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    set(graph, made, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    set(graph, made, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
    finish(graph, made);
    return made;
}

dnn_tensor graph_tensor(struct dnn_graph *graph, int64_t id, cudnnDataType_t type,
                        const struct dnn_form *form)
{
    return add_tensor(graph, id, type, form, false, false);
}

dnn_tensor graph_number(struct dnn_graph *graph, int64_t id)
{
    const struct dnn_form one = dnn_packed(1, 1, 1, 1);
    return add_tensor(graph, id, CUDNN_DATA_FLOAT, &one, false, true);
}

dnn_tensor graph_virtual(struct dnn_graph *graph, cudnnDataType_t type, const struct dnn_form *form)
{
    return add_tensor(graph, graph->next_id++, type, form, true, false);
}

/* ---- operations ---- */

void graph_pointwise(struct dnn_graph *graph, cudnnPointwiseMode_t mode, cudnnDataType_t math,
                     int64_t axis, dnn_tensor x, dnn_tensor b, dnn_tensor t, dnn_tensor y)
{
    cudnnBackendDescriptor_t what = create(graph, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    set(graph, what, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    set(graph, what, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &math);
    if (axis >= 0)
        set(graph, what, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
    finish(graph, what);
    cudnnBackendDescriptor_t made = create(graph, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set_descriptor(graph, made, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, what);
    set_descriptor(graph, made, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    set_descriptor(graph, made, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    set_descriptor(graph, made, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t);
    set_descriptor(graph, made, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    finish_operation(graph, made);
}

void graph_reduce(struct dnn_graph *graph, cudnnReduceTensorOp_t operator, dnn_tensor x,
                  dnn_tensor y)
{
    const cudnnDataType_t math = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t what = create(graph, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    set(graph, what, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1,
        &operator);
    set(graph, what, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &math);
    finish(graph, what);
    cudnnBackendDescriptor_t made = create(graph, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set_descriptor(graph, made, CUDNN_ATTR_OPERATION_REDUCTION_DESC, what);
    set_descriptor(graph, made, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_descriptor(graph, made, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    finish_operation(graph, made);
}

void graph_matmul(struct dnn_graph *graph, dnn_tensor a, dnn_tensor b, dnn_tensor c)
{
    const cudnnDataType_t math = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t what = create(graph, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    set(graph, what, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &math);
    finish(graph, what);
    cudnnBackendDescriptor_t made = create(graph, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set_descriptor(graph, made, CUDNN_ATTR_OPERATION_MATMUL_DESC, what);
    set_descriptor(graph, made, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    set_descriptor(graph, made, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    set_descriptor(graph, made, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    finish_operation(graph, made);
}

void graph_reshape(struct dnn_graph *graph, dnn_tensor x, dnn_tensor y)
{
    cudnnBackendDescriptor_t made = create(graph, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    set_descriptor(graph, made, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    set_descriptor(graph, made, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    finish_operation(graph, made);
}

/* ---- plans ---- */

enum { MOST_CHOICES = 8 };

/* Whether an engine with this configuration can do it; then the plan is ready. */
static bool try_plan(struct dnn_graph *graph, cudnnHandle_t handle,
                     cudnnBackendDescriptor_t configuration, cudnnBackendDescriptor_t *out)
{
    const struct dnn_library *library = graph->library;
    cudnnBackendDescriptor_t plan = NULL;
    if (library->descriptor_new(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan) !=
        CUDNN_STATUS_SUCCESS)
        return false;
    if (library->set(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle) ==
            CUDNN_STATUS_SUCCESS &&
        library->set(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                     1, &configuration) == CUDNN_STATUS_SUCCESS &&
        library->finalize(plan) == CUDNN_STATUS_SUCCESS) {
        *out = plan;
        return true;
    }
    library->descriptor_free(plan);
    return false;
}

/* The heuristic's configurations, best first; returns how many. */
static int64_t list_choices(struct dnn_graph *graph, cudnnHandle_t handle,
                            cudnnBackendDescriptor_t choices[MOST_CHOICES])
{
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    cudnnBackendDescriptor_t all = create(graph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(graph, all, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    set(graph, all, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
        graph->operation_count, graph->operation);
    finish(graph, all);
    cudnnBackendDescriptor_t heuristic = create(graph, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set_descriptor(graph, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, all);
    set(graph, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    finish(graph, heuristic);
    for (int i = 0; i < MOST_CHOICES; i++)
        choices[i] = create(graph, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    int64_t found = 0;
    if (!graph->failed)
        note(graph,
             graph->library->get(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, MOST_CHOICES, &found, choices));
    return graph->failed ? 0 : found < MOST_CHOICES ? found : MOST_CHOICES;
}

cudnnBackendDescriptor_t graph_plan(struct dnn_graph *graph, cudnnHandle_t handle,
                                    int64_t *workspace)
{
    cudnnBackendDescriptor_t choices[MOST_CHOICES], plan = NULL;
    const int64_t count = list_choices(graph, handle, choices);
    int64_t found = 0;
    *workspace = 0;
    for (int64_t i = 0; i < count && !plan; i++)
        if (!try_plan(graph, handle, choices[i], &plan))
            plan = NULL;
    if (plan && graph->library->get(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                    CUDNN_TYPE_INT64, 1, &found, workspace) == CUDNN_STATUS_SUCCESS)
        return plan;
    if (plan)
        graph->library->descriptor_free(plan);
    return NULL;
}

void graph_close(struct dnn_graph *graph)
{
    while (graph->owned_count > 0)
        graph->library->descriptor_free(graph->owned[--graph->owned_count]);
    graph->operation_count = 0;
}

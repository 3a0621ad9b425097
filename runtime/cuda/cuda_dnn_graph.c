/* cuda_dnn_graph.c - see cuda_dnn_graph.h. Every descriptor is created, given its attributes and
 * finalized; the graph owns them until it is closed. */
#include "runtime/cuda/cuda_dnn_graph.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* ---- the library ---- */

static bool find(void *library, const char *name, void *function, struct err *err)
{
    void *symbol = dlsym(library, name);
    memcpy(function, &symbol, sizeof symbol); /* ISO C has no cast from a pointer to data */
    if (!symbol)
        err_set(err, ERR_UNSUPPORTED, "libcudnn.so.9 has no %s", name);
    return symbol != NULL;
}

enum err_code dnn_library_load(struct dnn_library *out, struct err *err)
{
    const char *named = getenv(CUDA_DNN_VARIABLE);
    void *library = dlopen(named ? named : "libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return err_set(err, ERR_UNSUPPORTED, "%s", dlerror());
    const bool whole = find(library, "cudnnCreate", &out->create, err) &&
                       find(library, "cudnnDestroy", &out->destroy, err) &&
                       find(library, "cudnnSetStream", &out->set_stream, err) &&
                       find(library, "cudnnGetErrorString", &out->error_string, err) &&
                       find(library, "cudnnGetLastErrorString", &out->last_error, err) &&
                       find(library, "cudnnGetVersion", &out->version, err) &&
                       find(library, "cudnnBackendCreateDescriptor", &out->descriptor_new, err) &&
                       find(library, "cudnnBackendDestroyDescriptor", &out->descriptor_free, err) &&
                       find(library, "cudnnBackendFinalize", &out->finalize, err) &&
                       find(library, "cudnnBackendSetAttribute", &out->set, err) &&
                       find(library, "cudnnBackendGetAttribute", &out->get, err) &&
                       find(library, "cudnnBackendExecute", &out->execute, err);
    return whole ? ERR_OK : ERR_UNSUPPORTED;
}

enum err_code dnn_refuse(const struct dnn_library *library, const char *call, cudnnStatus_t rc,
                         struct err *err)
{
    char last[256] = "";
    library->last_error(last, sizeof last);
    last[strcspn(last, "\n")] = '\0'; /* the message is one line */
    return err_set(err, ERR_DEVICE, "%s: %s%s%s", call, library->error_string(rc),
                   last[0] ? ": " : "", last);
}

/* ---- descriptors ---- */

static void note(struct dnn_graph *graph, const char *call, cudnnStatus_t rc)
{
    if (rc == CUDNN_STATUS_SUCCESS)
        return;
    graph->failed = true;
    dnn_refuse(graph->library, call, rc, &graph->why);
}

static cudnnBackendDescriptor_t create(struct dnn_graph *graph, cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t made = NULL;
    if (!graph->failed && graph->owned_count == DNN_MOST_DESCRIPTORS) {
        graph->failed = true;
        err_set(&graph->why, ERR_UNSUPPORTED, "more than %d descriptors", DNN_MOST_DESCRIPTORS);
    }
    if (graph->failed)
        return NULL;
    note(graph, "cudnnBackendCreateDescriptor", graph->library->descriptor_new(type, &made));
    if (made)
        graph->owned[graph->owned_count++] = made;
    return made;
}

static void set(struct dnn_graph *graph, cudnnBackendDescriptor_t to,
                cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                const void *values)
{
    if (!graph->failed)
        note(graph, "cudnnBackendSetAttribute", graph->library->set(to, name, type, count, values));
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
        note(graph, "cudnnBackendFinalize", graph->library->finalize(descriptor));
}

static void finish_operation(struct dnn_graph *graph, cudnnBackendDescriptor_t operation)
{
    finish(graph, operation);
    if (!graph->failed && graph->operation_count == DNN_MOST_OPERATIONS) {
        graph->failed = true;
        err_set(&graph->why, ERR_UNSUPPORTED, "more than %d operations", DNN_MOST_OPERATIONS);
    }
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

/* Whether the engine of a configuration says that its results may differ from run to run. */
static bool is_nondeterministic(struct dnn_graph *graph, cudnnBackendDescriptor_t configuration)
{
    const struct dnn_library *library = graph->library;
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    cudnnBackendDescriptor_t engine = create(graph, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    int64_t found = 0, count = 0;
    if (!graph->failed)
        note(graph, "cudnnBackendGetAttribute of a configuration",
             library->get(configuration, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                          1, &found, &engine));
    if (!graph->failed)
        note(graph, "cudnnBackendGetAttribute of an engine",
             library->get(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                          CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes));
    for (int64_t i = 0; i < count && !graph->failed; i++)
        if (notes[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC)
            return true;
    return graph->failed;
}

/* Whether an engine with this configuration can do it; then the plan is ready. */
static bool try_plan(struct dnn_graph *graph, const struct dnn_target *target,
                     cudnnBackendDescriptor_t configuration, cudnnBackendDescriptor_t *out)
{
    const struct dnn_library *library = graph->library;
    const char *call = "cudnnBackendCreateDescriptor";
    cudnnBackendDescriptor_t plan = NULL;
    cudnnStatus_t rc = library->descriptor_new(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan);
    if (rc == CUDNN_STATUS_SUCCESS) {
        call = "cudnnBackendSetAttribute";
        rc = target->handle ? library->set(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE,
                                           CUDNN_TYPE_HANDLE, 1, &target->handle)
                            : library->set(plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
                                           CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &target->properties);
    }
    if (rc == CUDNN_STATUS_SUCCESS)
        rc = library->set(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                          CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &configuration);
    if (rc == CUDNN_STATUS_SUCCESS) {
        call = "cudnnBackendFinalize of a plan";
        rc = library->finalize(plan);
    }
    if (rc == CUDNN_STATUS_SUCCESS) {
        *out = plan;
        return true;
    }
    dnn_refuse(library, call, rc, &graph->why);
    if (plan)
        library->descriptor_free(plan);
    return false;
}

static cudnnBackendDescriptor_t whole_graph(struct dnn_graph *graph,
                                            const struct dnn_target *target)
{
    cudnnBackendDescriptor_t all = create(graph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    if (target->handle)
        set(graph, all, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &target->handle);
    set(graph, all, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
        graph->operation_count, graph->operation);
    finish(graph, all);
    return all;
}

/* The heuristic's configurations, best first; returns how many. */
static int64_t list_choices(struct dnn_graph *graph, const struct dnn_target *target,
                            cudnnBackendDescriptor_t choices[MOST_CHOICES])
{
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    cudnnBackendDescriptor_t all = whole_graph(graph, target);
    cudnnBackendDescriptor_t heuristic = create(graph, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set_descriptor(graph, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, all);
    set(graph, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    set_descriptor(graph, heuristic, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, target->properties);
    finish(graph, heuristic);
    for (int i = 0; i < MOST_CHOICES; i++)
        choices[i] = create(graph, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    int64_t found = 0;
    if (!graph->failed)
        note(graph, "cudnnBackendGetAttribute of the heuristic",
             graph->library->get(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, MOST_CHOICES, &found, choices));
    if (found == 0 && !graph->failed)
        err_set(&graph->why, ERR_UNSUPPORTED, "cuDNN's heuristic lists no engine");
    return graph->failed ? 0 : found < MOST_CHOICES ? found : MOST_CHOICES;
}

static cudnnBackendDescriptor_t setting(struct dnn_graph *graph, cudnnBackendKnobType_t knob,
                                        int64_t value)
{
    cudnnBackendDescriptor_t made = create(graph, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
    set(graph, made, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &knob);
    set(graph, made, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &value);
    finish(graph, made);
    return made;
}

/* The engine of that number, as a list of one. */
static int64_t take_engine(struct dnn_graph *graph, const struct dnn_target *target,
                           const struct dnn_engine *wanted,
                           cudnnBackendDescriptor_t choices[MOST_CHOICES])
{
    cudnnBackendDescriptor_t all = whole_graph(graph, target);
    cudnnBackendDescriptor_t engine = create(graph, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    set_descriptor(graph, engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, all);
    set(graph, engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &wanted->number);
    set_descriptor(graph, engine, CUDNN_ATTR_ENGINE_DEVICEPROP, target->properties);
    finish(graph, engine);
    cudnnBackendDescriptor_t settings[DNN_MOST_KNOBS];
    for (int64_t i = 0; i < wanted->knobs; i++)
        settings[i] = setting(graph, wanted->knob[i].type, wanted->knob[i].value);
    choices[0] = create(graph, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    set_descriptor(graph, choices[0], CUDNN_ATTR_ENGINECFG_ENGINE, engine);
    set(graph, choices[0], CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
        wanted->knobs, settings);
    finish(graph, choices[0]);
    return graph->failed ? 0 : 1;
}

cudnnBackendDescriptor_t graph_plan(struct dnn_graph *graph, const struct dnn_target *target,
                                    const struct dnn_engine *engine, bool deterministic,
                                    int64_t *workspace)
{
    cudnnBackendDescriptor_t choices[MOST_CHOICES], plan = NULL;
    const int64_t count =
        engine ? take_engine(graph, target, engine, choices) : list_choices(graph, target, choices);
    int64_t found = 0;
    *workspace = 0;
    for (int64_t i = 0; i < count && !plan; i++) {
        if (!engine && deterministic && is_nondeterministic(graph, choices[i])) {
            if (!graph->failed)
                err_set(&graph->why, ERR_UNSUPPORTED, "none of cuDNN's engines is deterministic");
            continue;
        }
        if (!try_plan(graph, target, choices[i], &plan))
            plan = NULL;
    }
    if (!plan)
        return NULL;
    const cudnnStatus_t rc = graph->library->get(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                                 CUDNN_TYPE_INT64, 1, &found, workspace);
    if (rc == CUDNN_STATUS_SUCCESS)
        return plan;
    dnn_refuse(graph->library, "cudnnBackendGetAttribute of a plan", rc, &graph->why);
    graph->library->descriptor_free(plan);
    return NULL;
}

void graph_close(struct dnn_graph *graph)
{
    while (graph->owned_count > 0)
        graph->library->descriptor_free(graph->owned[--graph->owned_count]);
    graph->operation_count = 0;
}

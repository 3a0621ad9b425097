/* cuda_dnn_graph.h - cuDNN's backend API in the few calls that attention needs: a graph of
 * operations over 4-dim tensors, and the execution plan that one of its engines makes of it.
 *
 * Calls on a graph that has failed do nothing, so that a graph is built without a check at each
 * step; graph_plan says whether it went well, and the graph's `why` which call failed and what
 * cuDNN said about it. */
#ifndef SHARDPLAN_CUDA_DNN_GRAPH_H
#define SHARDPLAN_CUDA_DNN_GRAPH_H

#include "base/err.h"

#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <stdbool.h>
#include <stdint.h>

struct dnn_library { /* functions of libcudnn.so.9 */
    cudnnStatus_t (*create)(cudnnHandle_t *handle);
    cudnnStatus_t (*destroy)(cudnnHandle_t handle);
    cudnnStatus_t (*set_stream)(cudnnHandle_t handle, cudaStream_t stream);
    const char *(*error_string)(cudnnStatus_t status);
    void (*last_error)(char *text, size_t bytes);
    size_t (*version)(void); /* 10000 · major + 100 · minor + patch */
    cudnnStatus_t (*descriptor_new)(cudnnBackendDescriptorType_t type,
                                    cudnnBackendDescriptor_t *descriptor);
    cudnnStatus_t (*descriptor_free)(cudnnBackendDescriptor_t descriptor);
    cudnnStatus_t (*finalize)(cudnnBackendDescriptor_t descriptor);
    cudnnStatus_t (*set)(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type, int64_t count, const void *values);
    cudnnStatus_t (*get)(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                         cudnnBackendAttributeType_t type, int64_t count, int64_t *found,
                         void *values);
    cudnnStatus_t (*execute)(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                             cudnnBackendDescriptor_t pack);
};

#define CUDA_DNN_VARIABLE "SHARDRUN_CUDNN"

/* Loads libcudnn.so.9, or what CUDA_DNN_VARIABLE names. ERR_UNSUPPORTED: it is not there, or lacks
 * a function. It stays loaded. */
enum err_code dnn_library_load(struct dnn_library *out, struct err *err);

/* "cudnnBackendFinalize: CUDNN_STATUS_...: " and the library's own account of its last error. */
enum err_code dnn_refuse(const struct dnn_library *library, const char *call, cudnnStatus_t rc,
                         struct err *err);

enum { DNN_DIMS = 4, DNN_MOST_DESCRIPTORS = 160, DNN_MOST_OPERATIONS = 32 };

typedef cudnnBackendDescriptor_t dnn_tensor;

struct dnn_graph { /* made from {.library = ...}; graph_close frees it */
    const struct dnn_library *library;
    cudnnBackendDescriptor_t owned[DNN_MOST_DESCRIPTORS];
    cudnnBackendDescriptor_t operation[DNN_MOST_OPERATIONS];
    uint32_t owned_count, operation_count;
    int64_t next_id; /* of virtual tensors; above those of the caller */
    bool failed;
    struct err why; /* of the first failure; one of a plan that an engine refused is kept, too */
};

struct dnn_form {
    int64_t dim[DNN_DIMS], stride[DNN_DIMS];
};

/* Packed, last dim first. */
struct dnn_form dnn_packed(int64_t a, int64_t b, int64_t c, int64_t d);

/* A tensor that the caller gives memory for at execution, by its id; or a number in host memory. */
dnn_tensor graph_tensor(struct dnn_graph *graph, int64_t id, cudnnDataType_t type,
                        const struct dnn_form *form);
dnn_tensor graph_number(struct dnn_graph *graph, int64_t id);
/* One that exists only between operations. */
dnn_tensor graph_virtual(struct dnn_graph *graph, cudnnDataType_t type,
                         const struct dnn_form *form);

/* y = mode(x), mode(x, b) or mode(x, b, t): NULL where it takes fewer. `axis` is that of
 * GEN_INDEX, -1 for others. */
void graph_pointwise(struct dnn_graph *graph, cudnnPointwiseMode_t mode, cudnnDataType_t math,
                     int64_t axis, dnn_tensor x, dnn_tensor b, dnn_tensor t, dnn_tensor y);
void graph_reduce(struct dnn_graph *graph, cudnnReduceTensorOp_t operator, dnn_tensor x,
                  dnn_tensor y);
void graph_matmul(struct dnn_graph *graph, dnn_tensor a, dnn_tensor b, dnn_tensor c);
void graph_reshape(struct dnn_graph *graph, dnn_tensor x, dnn_tensor y);

/* The GPU that a plan is for: this one, by its handle; or one that need not be here, by its
 * properties (a finalized descriptor, cuDNN 9.8 on), whose plans cannot run. The other is NULL. */
struct dnn_target {
    cudnnHandle_t handle;
    cudnnBackendDescriptor_t properties;
};

/* An engine by its number, with what is set of it. */
enum { DNN_MOST_KNOBS = 6 };
struct dnn_engine {
    int64_t number, knobs;
    struct {
        cudnnBackendKnobType_t type;
        int64_t value;
    } knob[DNN_MOST_KNOBS];
};

/* The plan that `engine` makes; NULL: the first that one of the heuristic's list makes, with
 * `deterministic` of those that do not say that they are not. Returns NULL where none does.
 * `*workspace` is its bytes. The caller owns the result: library->descriptor_free, before
 * graph_close. */
cudnnBackendDescriptor_t graph_plan(struct dnn_graph *graph, const struct dnn_target *target,
                                    const struct dnn_engine *engine, bool deterministic,
                                    int64_t *workspace);
void graph_close(struct dnn_graph *graph);

#endif

/* cuda_dnn.h - cuDNN's attention, through its backend API: a graph of operations that one of
 * cuDNN's fused engines runs as a whole.
 *
 * The library is loaded when it is first asked, so that a machine without it has our own kernels. A
 * shape that no engine takes is remembered as such. */
#ifndef SHARDPLAN_CUDA_DNN_H
#define SHARDPLAN_CUDA_DNN_H

#include "base/err.h"
#include "runtime/work.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>

struct cuda_dnn;

/* NULL when cuDNN cannot be loaded or has another major version. The caller owns the result. */
struct cuda_dnn *cuda_dnn_open(void);
void cuda_dnn_close(struct cuda_dnn *dnn); /* NULL is allowed */

/* Queues ATTENTION or ATTENTION_BACKWARD that work_check has passed; *done is false when no engine
 * of cuDNN takes this shape and dtype. work.workspace is used where it is large enough, else memory
 * of its own, made at the first such work of a shape. */
enum err_code cuda_dnn_attention(struct cuda_dnn *dnn, const struct work *work, cudaStream_t stream,
                                 bool *done, struct err *err);

#endif

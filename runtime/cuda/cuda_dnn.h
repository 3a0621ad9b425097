/* cuda_dnn.h - cuDNN's attention, through its backend API: a graph of operations that one of
 * cuDNN's fused engines runs as a whole.
 *
 * The library is loaded when it is first asked, so that a machine without it has our own kernels. A
 * shape that no engine takes is remembered as such, with the reason. CUDA_DNN_VARIABLE names
 * another file than libcudnn.so.9. */
#ifndef SHARDPLAN_CUDA_DNN_H
#define SHARDPLAN_CUDA_DNN_H

#include "base/err.h"
#include "runtime/cuda/kernels.h"
#include "runtime/work/work.h"

#include <cuda_runtime_api.h>
#include <stdint.h>

struct cuda_dnn;

/* ERR_UNSUPPORTED or ERR_DEVICE, *out NULL: cuDNN cannot be loaded, has another major version, or
 * cannot start. `deterministic`: only engines that give the same bits every time. `properties`:
 * NULL, or cuDNN's JSON of a GPU that need not be here, for cuda_dnn_refuses alone. The caller owns
 * *out.
 */
enum err_code cuda_dnn_open(bool deterministic, const char *properties, struct cuda_dnn **out,
                            struct err *err);
void cuda_dnn_close(struct cuda_dnn *dnn); /* NULL is allowed */

/* As cudnnGetVersion: 91002 is 9.10.2. */
uint32_t cuda_dnn_version(const struct cuda_dnn *dnn);

/* Of the workspace that had room neither in the plan's memory nor in scratch. */
uint64_t cuda_dnn_own_bytes(const struct cuda_dnn *dnn);

/* Why cuDNN does not take ATTENTION or ATTENTION_BACKWARD that work_check has passed, lent until
 * the next call; NULL: an engine does, which works in *engine_bytes. Of operands' addresses only
 * the alignment is looked at. */
const char *cuda_dnn_refuses(struct cuda_dnn *dnn, const struct work *work, uint64_t *engine_bytes);

/* Queues ATTENTION or ATTENTION_BACKWARD that work_check has passed; *why_not is NULL then. Else
 * nothing is queued and it says why cuDNN does not take this shape and dtype, lent until the next
 * call. It works in work.workspace and `scratch`, and where they are too small in memory of its
 * own, made at the first such work of a shape. */
enum err_code cuda_dnn_attention(struct cuda_dnn *dnn, const struct work *work,
                                 struct kernel_scratch scratch, cudaStream_t stream,
                                 const char **why_not, struct err *err);

#endif

/* cuda_attention.c - which attention runs: cuDNN's for 16-bit numbers where one of its engines
 * takes the shape, else our own kernels, which take every shape up to heads of KERNEL_HEAD_SIZE. */
#include "runtime/cuda/cuda_device.h"
#include "runtime/cuda/cuda_dnn.h"
#include "runtime/operand.h"

#include <stdlib.h>

struct cuda_attention {
    bool own;    /* never cuDNN's */
    bool looked; /* for cuDNN */
    struct cuda_dnn *dnn;
};

enum err_code cuda_attention_open(bool own, struct cuda_attention **out, struct err *err)
{
    (void)err;
    *out = xmalloc(sizeof **out);
    **out = (struct cuda_attention){.own = own};
    return ERR_OK;
}

void cuda_attention_close(struct cuda_attention *attention)
{
    if (!attention)
        return;
    cuda_dnn_close(attention->dnn);
    free(attention);
}

static enum err_code run_own(const struct work *work, struct kernel_scratch scratch,
                             cudaStream_t stream, struct err *err)
{
    const bool backward = work->kind == WORK_ATTENTION_BACKWARD;
    const struct attention at = work_attention(work);
    const struct work_operand *logsumexp = backward ? work_in(work, 4) : work_out(work, 1);
    const struct kernel_attention_args args = {
        .q = cuda_tensor(at.q),
        .k = cuda_tensor(at.k),
        .v = cuda_tensor(at.v),
        .b = at.b,
        .s = at.s,
        .s_k = at.s_k,
        .a = at.a,
        .d = at.d,
        .logsumexp = logsumexp->data,
        .logsumexp_pitch = at.logsumexp_pitch,
        .scale = at.scale,
        .causal = at.causal,
    };
    if (at.d > KERNEL_HEAD_SIZE)
        return work_refuse(work, ERR_UNSUPPORTED, err, "heads of %u, more than %d", at.d,
                           KERNEL_HEAD_SIZE);
    if (!backward)
        return cuda_launched(work, kernel_attention(&args, cuda_tensor(work_out(work, 0)), stream),
                             err);
    const struct kernel_tensor absent = {0};
    const struct kernel_tensor o = work->ins > 5 ? cuda_tensor(work_in(work, 5)) : absent;
    return cuda_launched(work,
                         kernel_attention_backward(&args, cuda_tensor(work_in(work, 0)), o,
                                                   cuda_tensor(work_out(work, 0)),
                                                   cuda_tensor(work_out(work, 1)),
                                                   cuda_tensor(work_out(work, 2)), scratch, stream),
                         err);
}

enum err_code cuda_attention_run(struct cuda_attention *attention, const struct work *work,
                                 struct kernel_scratch scratch, cudaStream_t stream,
                                 struct err *err)
{
    const struct attention at = work_attention(work);
    bool done = false;
    if (!attention->own && at.q->dtype != DTYPE_FP32) {
        if (!attention->looked)
            attention->dnn = cuda_dnn_open();
        attention->looked = true;
        if (attention->dnn)
            TRY(cuda_dnn_attention(attention->dnn, work, stream, &done, err));
    }
    return done ? ERR_OK : run_own(work, scratch, stream, err);
}

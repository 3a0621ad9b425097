/* cuda_attention.c - which attention runs: cuDNN's for 16-bit numbers where one of its engines
 * takes the shape, else our own kernels, which take every shape up to heads of KERNEL_HEAD_SIZE and
 * are many times slower: the first time that they stand in for cuDNN's, a note says why. Where
 * cuDNN's was asked for by name, that is an error. */
#include "runtime/cuda/cuda_device.h"
#include "runtime/cuda/cuda_dnn.h"
#include "runtime/work/operand.h"

#include <stdio.h>
#include <stdlib.h>

struct cuda_attention {
    enum attention_kernel kernel;
    bool deterministic;
    bool looked; /* for cuDNN */
    bool noted;  /* that our own kernels stood in for it */
    struct cuda_dnn *dnn;
    uint64_t told_bytes; /* of cuDNN's workspace, outside the plan */
    struct err why;      /* there is no cuDNN */
    char about[512];
};

struct cuda_attention *cuda_attention_new(enum attention_kernel kernel, bool deterministic)
{
    struct cuda_attention *attention = xmalloc(sizeof *attention);
    *attention = (struct cuda_attention){.kernel = kernel, .deterministic = deterministic};
    return attention;
}

void cuda_attention_close(struct cuda_attention *attention)
{
    if (!attention)
        return;
    cuda_dnn_close(attention->dnn);
    free(attention);
}

const char *cuda_attention_about(const struct cuda_attention *attention)
{
    return attention->about;
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

static void name_work(const struct work *work, char what[128])
{
    const struct attention at = work_attention(work);
    snprintf(what, 128, "attention of %u x %u x %u x %u %s%s", at.b, at.s, at.a, at.d,
             dtype_name((enum dtype)at.q->dtype),
             work->kind == WORK_ATTENTION_BACKWARD ? " backward" : "");
}

/* For the trace, and a note: times of a run whose attention is ours are not those of cuDNN's. */
static void tell_stand_in(struct cuda_attention *attention, const struct work *work,
                          const char *why)
{
    char what[128];
    if (attention->noted)
        return;
    attention->noted = true;
    name_work(work, what);
    snprintf(attention->about, sizeof attention->about, "own kernels: %s: %.300s", what, why);
    fprintf(stderr, "note: %s runs on our own kernel, which is slow: %s\n", what, why);
}

/* For the trace, and of memory that no plan has a note. */
static void tell_dnn(struct cuda_attention *attention)
{
    const uint64_t bytes = cuda_dnn_own_bytes(attention->dnn);
    const double mib = (double)bytes / 1048576.0;
    char beside[64] = "";
    if (bytes > 0)
        snprintf(beside, sizeof beside, ", %.1f MiB beside the plan", mib);
    if (bytes > attention->told_bytes)
        fprintf(stderr, "note: cuDNN's attention works in %.1f MiB that no plan has\n", mib);
    attention->told_bytes = bytes;
    if (!attention->noted)
        snprintf(attention->about, sizeof attention->about, "cuDNN %u%s%s",
                 cuda_dnn_version(attention->dnn),
                 attention->deterministic ? ", deterministic" : "", beside);
}

/* Queues cuDNN's; else *why_not says why it does not take this work. */
static enum err_code run_dnn(struct cuda_attention *attention, const struct work *work,
                             struct kernel_scratch scratch, cudaStream_t stream,
                             const char **why_not, struct err *err)
{
    if (!attention->looked)
        cuda_dnn_open(attention->deterministic, &attention->dnn, &attention->why);
    attention->looked = true;
    *why_not = attention->why.text;
    if (!attention->dnn)
        return ERR_OK;
    TRY(cuda_dnn_attention(attention->dnn, work, scratch, stream, why_not, err));
    if (!*why_not)
        tell_dnn(attention);
    return ERR_OK;
}

enum err_code cuda_attention_run(struct cuda_attention *attention, const struct work *work,
                                 struct kernel_scratch scratch, cudaStream_t stream,
                                 struct err *err)
{
    const struct attention at = work_attention(work);
    const char *why_not = NULL;
    if (attention->kernel != ATTENTION_OWN && at.q->dtype != DTYPE_FP32) {
        TRY(run_dnn(attention, work, scratch, stream, &why_not, err));
        if (!why_not)
            return ERR_OK;
        if (attention->kernel == ATTENTION_CUDNN)
            return work_refuse(work, ERR_UNSUPPORTED, err, "--attention cudnn: %s", why_not);
        tell_stand_in(attention, work, why_not);
    } else if (!attention->about[0]) { /* asked for, or no other takes fp32 */
        snprintf(attention->about, sizeof attention->about, "own kernels");
    }
    return run_own(work, scratch, stream, err);
}

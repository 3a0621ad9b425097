/* cuda_attention.c - which attention runs: cuDNN's for 16-bit numbers where one of its engines
 * takes the shape, else our own kernels, which take every shape up to heads of KERNEL_HEAD_SIZE and
 * are many times slower: the first time that they stand in for cuDNN's, a note says why. Where
 * cuDNN's was asked for by name, that is an error. */
#include "runtime/cuda/cuda_device.h"
#include "runtime/cuda/cuda_dnn.h"
#include "runtime/work/operand.h"
#include "runtime/work/view.h"

#include <assert.h>
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

/* ---- our own kernels ---- */

static struct kernel_heads heads_of(const struct work_operand *x, uint32_t b, uint32_t length,
                                    uint32_t heads, uint32_t width)
{
    const struct view own = view_of(x);
    const struct shape shape = SHAPE(b, length, heads, width);
    struct view seen;
    const bool fits = view_as(&own, &shape, &seen);
    assert(fits); /* work_check */
    (void)fits;
    return (struct kernel_heads){x->data, seen.at.of[0], seen.at.of[1], seen.at.of[2],
                                 (uint8_t)cuda_dtype(x)};
}

static struct kernel_heads queries(const struct attention *at, const struct work_operand *x,
                                   uint32_t width)
{
    return heads_of(x, at->b, at->s, at->a, width);
}

static struct kernel_heads keys(const struct attention *at, const struct work_operand *x,
                                uint32_t width)
{
    return heads_of(x, at->b, at->s_k, at->a / at->repeats, width);
}

/* One number a query and key; x NULL: none. */
static struct kernel_scores scores_of(const struct attention *at, const struct work_operand *x)
{
    const struct shape shape = SHAPE(at->b, at->a, at->s, at->s_k);
    struct view seen;
    if (!x)
        return (struct kernel_scores){.data = NULL};
    const struct view own = view_of(x);
    const bool fits = view_as(&own, &shape, &seen);
    assert(fits);
    (void)fits;
    return (struct kernel_scores){x->data,       seen.at.of[0], seen.at.of[1],
                                  seen.at.of[2], seen.at.of[3], (uint8_t)cuda_dtype(x)};
}

static bool is_backward(const struct work *work)
{
    return work->kind == WORK_ATTENTION_BACKWARD || work->kind == WORK_EFFICIENT_ATTENTION_BACKWARD;
}

static enum err_code run_own(const struct work *work, struct kernel_scratch scratch,
                             cudaStream_t stream, struct err *err)
{
    const bool backward = is_backward(work);
    const struct attention at = work_attention(work);
    const struct work_operand *logsumexp = backward ? work_in(work, 4) : work_out(work, 1);
    const struct kernel_attention_args args = {
        .q = queries(&at, at.q, at.d),
        .k = keys(&at, at.k, at.d),
        .v = keys(&at, at.v, at.d_v),
        .bias = scores_of(&at, at.bias),
        .b = at.b,
        .s = at.s,
        .s_k = at.s_k,
        .a = at.a,
        .d = at.d,
        .d_v = at.d_v,
        .repeats = at.repeats,
        .logsumexp = logsumexp->data,
        .logsumexp_pitch = at.logsumexp_pitch,
        .scale = at.scale,
        .softcap = at.softcap,
        .window = at.window,
        .causal = at.causal,
    };
    if (!backward)
        return cuda_launched(
            work, kernel_attention(&args, queries(&at, work_out(work, 0), at.d_v), stream), err);
    const struct kernel_heads absent = {0};
    const struct kernel_heads o =
        work->ins > 5 && !at.bias ? queries(&at, work_in(work, 5), at.d_v) : absent;
    return cuda_launched(
        work,
        kernel_attention_backward(
            &args, queries(&at, work_in(work, 0), at.d_v), o, queries(&at, work_out(work, 0), at.d),
            keys(&at, work_out(work, 1), at.d), keys(&at, work_out(work, 2), at.d_v),
            scores_of(&at, work->outs > 3 ? work_out(work, 3) : NULL), scratch, stream),
        err);
}

/* What cuDNN's graphs (cuda_dnn_graph.c) are not built for; NULL: nothing. */
static const char *beyond_dnn(const struct work *work)
{
    const struct attention at = work_attention(work);
    for (uint32_t i = 0; i < work->ins + work->outs; i++)
        if (work->operand[i].layout)
            return "an operand is a view with strides";
    if (at.bias)
        return "it has a bias";
    if (at.window || at.softcap > 0)
        return "it has a window, or a cap on its scores";
    return at.d_v != at.d ? "values are of another size than keys" : NULL;
}

static void name_work(const struct work *work, char what[128])
{
    const struct attention at = work_attention(work);
    snprintf(what, 128, "attention of %u x %u x %u x %u %s%s", at.b, at.s, at.a, at.d,
             dtype_name((enum dtype)at.q->dtype), is_backward(work) ? " backward" : "");
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
        cuda_dnn_open(attention->deterministic, NULL, &attention->dnn, &attention->why);
    attention->looked = true;
    *why_not = attention->dnn ? beyond_dnn(work) : attention->why.text;
    if (*why_not)
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

/* ---- of a GPU that is not here ---- */

__attribute__((visibility("default"))) enum err_code
cuda_backend_ask(unsigned version, const char *properties, bool deterministic,
                 const struct work *work, struct cuda_answer *answer, struct err *err);

enum err_code cuda_backend_ask(unsigned version, const char *properties, bool deterministic,
                               const struct work *work, struct cuda_answer *answer, struct err *err)
{
    struct cuda_dnn *dnn = NULL;
    *answer = (struct cuda_answer){.work_bytes = 0};
    if (version != CUDA_BACKEND_VERSION)
        return err_set(err, ERR_UNSUPPORTED, CUDA_BACKEND_FILE " is of another version");
    TRY(work_check(work, WORK_ON_CUDA, err));
    TRY(cuda_dnn_open(deterministic, properties, &dnn, err));
    const char *why_not = beyond_dnn(work);
    if (!why_not)
        why_not = cuda_dnn_refuses(dnn, work, &answer->work_bytes);
    snprintf(answer->why_not, sizeof answer->why_not, "%s", why_not ? why_not : "");
    answer->version = cuda_dnn_version(dnn);
    cuda_dnn_close(dnn);
    return ERR_OK;
}

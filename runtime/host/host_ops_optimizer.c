/* host_ops_optimizer.c - clipping by global norm, and the updates of AdamW and SGD.
 *
 * AdamW is torch.optim.AdamW's foreach form: decoupled decay, step size lr / (1 - β₁ᵗ), denominator
 * sqrt(v) / sqrt(1 - β₂ᵗ) + eps. Constants of a step are computed in double, each element in fp32
 * with one rounding at the end, as the fused CUDA kernel does for 16-bit parameters too. A gradient
 * is its parameter's where their places in the lists say so. */
#include "runtime/host/host_ops_internal.h"

#include <math.h>

/* ---- norms ---- */

enum err_code host_norms(const struct work *work, struct err *err)
{
    if (work->outs != work->ins)
        return host_refuse(work, ERR_INVALID, err, "%u tensors, %u norms", work->ins, work->outs);
    float block[HOST_BLOCK];
    for (uint32_t i = 0; i < work->ins; i++) {
        const struct work_operand *x = host_in(work, i), *y = host_out(work, i);
        const uint64_t count = host_count(x);
        TRY(host_need_count(work, "x", x, count, err));
        TRY(host_need_count(work, "a norm", y, 1, err));
        double squares = 0;
        for (uint64_t at = 0, n; at < count; at += n) {
            n = host_block(at, count);
            host_load(x, at, n, block);
            for (uint64_t j = 0; j < n; j++)
                squares += (double)block[j] * (double)block[j];
        }
        host_store_one(y, 0, (float)sqrt(squares));
    }
    return ERR_OK;
}

enum err_code host_clip_coefficient(const struct work *work, struct err *err)
{
    TRY(host_need_count(work, "the norm", host_in(work, 0), 1, err));
    TRY(host_need_count(work, "y", host_out(work, 0), 1, err));
    const float ratio = work->scale / (host_load_one(host_in(work, 0), 0) + 1e-6F);
    host_store_one(host_out(work, 0), 0, ratio > 1 ? 1 : ratio); /* a NaN stays */
    return ERR_OK;
}

enum err_code host_scale(const struct work *work, struct err *err)
{
    if (work->outs + 1 != work->ins)
        return host_refuse(work, ERR_INVALID, err, "%u operands in, %u out", work->ins, work->outs);
    TRY(host_need_count(work, "the coefficient", host_in(work, 0), 1, err));
    const float coefficient = host_load_one(host_in(work, 0), 0);
    float block[HOST_BLOCK];
    for (uint32_t i = 0; i < work->outs; i++) {
        const struct work_operand *x = host_in(work, i + 1), *y = host_out(work, i);
        const uint64_t count = host_count(x);
        TRY(host_need_count(work, "x", x, count, err));
        TRY(host_need_count(work, "y", y, count, err));
        for (uint64_t at = 0, n; at < count; at += n) {
            n = host_block(at, count);
            host_load(x, at, n, block);
            for (uint64_t j = 0; j < n; j++)
                block[j] *= coefficient;
            host_store(y, at, n, block);
        }
    }
    return ERR_OK;
}

/* ---- updates ---- */

/* The operands are `lists` lists of equal length: how long; each list's i-th has one size. */
static enum err_code count_lists(const struct work *work, uint32_t lists, uint32_t *out,
                                 struct err *err)
{
    const uint32_t n = *out = work->ins / lists;
    if (n * lists != work->ins)
        return host_refuse(work, ERR_INVALID, err, "%u operands are not %u lists", work->ins,
                           lists);
    for (uint32_t i = 0; i < work->ins; i++)
        TRY(host_need_count(work, "an operand", host_in(work, i), host_count(host_in(work, i % n)),
                            err));
    return ERR_OK;
}

struct adam {
    float decay;                      /* 1 - lr · weight decay */
    float take_g, keep_v, take_gg;    /* 1 - β₁, β₂, 1 - β₂ */
    float step_size, root_scale, eps; /* root_scale: sqrt(1 - β₂ᵗ) */
};

static struct adam adam_constants(const struct work *work)
{
    const double lr = (double)work->update.lr, t = (double)work->update.step;
    const double beta1 = (double)work->update.beta1, beta2 = (double)work->update.beta2;
    return (struct adam){
        .decay = (float)(1 - lr * (double)work->update.weight_decay),
        .take_g = (float)(1 - beta1),
        .keep_v = (float)beta2,
        .take_gg = (float)(1 - beta2),
        .step_size = (float)(lr / (1 - pow(beta1, t))),
        .root_scale = (float)sqrt(1 - pow(beta2, t)),
        .eps = work->update.eps,
    };
}

static void adam_block(const struct adam *a, uint64_t n, const float *g, float *p, float *m,
                       float *v)
{
    for (uint64_t i = 0; i < n; i++) {
        m[i] += (g[i] - m[i]) * a->take_g;
        v[i] = v[i] * a->keep_v + a->take_gg * g[i] * g[i];
        const float denominator = sqrtf(v[i]) / a->root_scale + a->eps;
        p[i] = p[i] * a->decay - a->step_size * (m[i] / denominator);
    }
}

enum err_code host_adamw(const struct work *work, struct err *err)
{
    uint32_t tensors;
    TRY(count_lists(work, 4, &tensors, err));
    if (work->update.step == 0)
        return host_refuse(work, ERR_INVALID, err, "steps are numbered from 1");
    const struct adam constants = adam_constants(work);
    float block[4][HOST_BLOCK]; /* gradient, parameter, exp_avg, exp_avg_sq */
    for (uint32_t i = 0; i < tensors; i++) {
        const uint64_t count = host_count(host_in(work, i));
        for (uint64_t at = 0, n; at < count; at += n) {
            n = host_block(at, count);
            for (uint32_t list = 0; list < 4; list++)
                host_load(host_in(work, list * tensors + i), at, n, block[list]);
            adam_block(&constants, n, block[0], block[1], block[2], block[3]);
            for (uint32_t list = 1; list < 4; list++)
                host_store(host_in(work, list * tensors + i), at, n, block[list]);
        }
    }
    return ERR_OK;
}

/* p -= lr · (g + weight decay · p), torch.optim.SGD without momentum. */
enum err_code host_sgd(const struct work *work, struct err *err)
{
    uint32_t tensors;
    TRY(count_lists(work, 2, &tensors, err));
    const float lr = work->update.lr, decay = work->update.weight_decay;
    float g[HOST_BLOCK], p[HOST_BLOCK];
    for (uint32_t i = 0; i < tensors; i++) {
        const uint64_t count = host_count(host_in(work, i));
        for (uint64_t at = 0, n; at < count; at += n) {
            n = host_block(at, count);
            host_load(host_in(work, i), at, n, g);
            host_load(host_in(work, tensors + i), at, n, p);
            for (uint64_t j = 0; j < n; j++)
                p[j] -= lr * (g[j] + decay * p[j]);
            host_store(host_in(work, tensors + i), at, n, p);
        }
    }
    return ERR_OK;
}

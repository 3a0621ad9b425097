/* host_ops_optimizer.c - clipping by global norm, and the updates of AdamW and SGD.
 *
 * AdamW is torch.optim.AdamW's foreach form: decoupled decay, step size lr / (1 - β₁ᵗ), denominator
 * sqrt(v) / sqrt(1 - β₂ᵗ) + eps. Constants of a step are computed in double, each element in fp32
 * with one rounding at the end, as the fused CUDA kernel does for 16-bit parameters too. A gradient
 * is its parameter's where their places in the lists say so. */
#include "runtime/host/host_ops_internal.h"

#include <math.h>

/* ---- norms ---- */

void host_norms(const struct work *work)
{
    float block[HOST_BLOCK];
    for (uint32_t i = 0; i < work->ins; i++) {
        const struct work_operand *x = work_in(work, i), *y = work_out(work, i);
        const uint64_t count = operand_count(x);
        double squares = 0;
        for (uint64_t at = 0, n; at < count; at += n) {
            n = host_block(at, count);
            host_load(x, at, n, block);
            for (uint64_t j = 0; j < n; j++)
                squares += (double)block[j] * (double)block[j];
        }
        host_store_one(y, 0, (float)sqrt(squares));
    }
}

void host_clip_coefficient(const struct work *work)
{
    const float ratio = work->attr.p / (host_load_one(work_in(work, 0), 0) + 1e-6F);
    host_store_one(work_out(work, 0), 0, ratio > 1 ? 1 : ratio); /* a NaN stays */
}

void host_scale(const struct work *work)
{
    const float coefficient = host_load_one(work_in(work, 0), 0);
    float block[HOST_BLOCK];
    for (uint32_t i = 0; i < work->outs; i++) {
        const struct work_operand *x = work_in(work, i + 1), *y = work_out(work, i);
        const uint64_t count = operand_count(x);
        for (uint64_t at = 0, n; at < count; at += n) {
            n = host_block(at, count);
            host_load(x, at, n, block);
            for (uint64_t j = 0; j < n; j++)
                block[j] *= coefficient;
            host_store(y, at, n, block);
        }
    }
}

/* ---- updates ---- */

static void adam_block(const struct adam_constants *a, uint64_t n, const float *g, float *p,
                       float *m, float *v)
{
    for (uint64_t i = 0; i < n; i++) {
        m[i] += (g[i] - m[i]) * a->take_g;
        v[i] = v[i] * a->keep_v + a->take_gg * g[i] * g[i];
        const float denominator = sqrtf(v[i]) / a->root_scale + a->eps;
        p[i] = p[i] * a->decay - a->step_size * (m[i] / denominator);
    }
}

void host_adamw(const struct work *work)
{
    const uint32_t tensors = work->ins / 4;
    const struct adam_constants constants = work_adam_constants(work);
    float block[4][HOST_BLOCK]; /* gradient, parameter, exp_avg, exp_avg_sq */
    for (uint32_t i = 0; i < tensors; i++) {
        const uint64_t count = operand_count(work_in(work, i));
        for (uint64_t at = 0, n; at < count; at += n) {
            n = host_block(at, count);
            for (uint32_t list = 0; list < 4; list++)
                host_load(work_in(work, list * tensors + i), at, n, block[list]);
            adam_block(&constants, n, block[0], block[1], block[2], block[3]);
            for (uint32_t list = 1; list < 4; list++)
                host_store(work_in(work, list * tensors + i), at, n, block[list]);
        }
    }
}

/* p -= lr · (g + weight decay · p), torch.optim.SGD without momentum. */
void host_sgd(const struct work *work)
{
    const uint32_t tensors = work->ins / 2;
    const float lr = work->update.lr, decay = work->update.weight_decay;
    float g[HOST_BLOCK], p[HOST_BLOCK];
    for (uint32_t i = 0; i < tensors; i++) {
        const uint64_t count = operand_count(work_in(work, i));
        for (uint64_t at = 0, n; at < count; at += n) {
            n = host_block(at, count);
            host_load(work_in(work, i), at, n, g);
            host_load(work_in(work, tensors + i), at, n, p);
            for (uint64_t j = 0; j < n; j++)
                p[j] -= lr * (g[j] + decay * p[j]);
            host_store(work_in(work, tensors + i), at, n, p);
        }
    }
}

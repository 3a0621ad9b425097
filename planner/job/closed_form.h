/* closed_form.h - what papers and frameworks say that a job takes, without looking at its step.
 *
 * They count parameters, gradients and optimizer states of mixed-precision Adam, and nothing of
 * what a step makes: activations, gathered parameters, buckets, casts, NCCL. Here they stand beside
 * what was planned. Bytes of one GPU; P: parameters, T: those that are trained, N: ranks that
 * share them, G: GPUs a node.
 *
 *     paper       Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion
 *                 Parameter Models", table 1, with K = 12:
 *                 stage 0: 2P + (2 + K)T      stage 1: 2P + 2T + K T/N
 *                 stage 2: 2P + (2 + K)T/N    stage 3: 2P/N + (2 + K)T/N
 *     estimator   deepspeed 0.19.8, estimate_zero2_model_states_mem_needs (stage_1_and_2.py) and
 *                 estimate_zero3_model_states_mem_needs (stage3.py): 2P + 18P/N, and 4L + 18P/N
 *                 with the parameters L of the largest module itself; with the optimizer on the
 *                 host 2P and 4L + 2P/N, with parameters there, too, 4L; of DDP, accelerate
 *                 estimate-memory's column "Training using Adam" in float32: 16P */
#ifndef SHARDPLAN_CLOSED_FORM_H
#define SHARDPLAN_CLOSED_FORM_H

#include "lower/lower.h"
#include "plan/plan.h"

struct closed_form {
    uint32_t stage; /* of ZeRO, that a system comes to: 0 ... 3 */
    uint64_t paper_bytes;
    const char *estimator; /* "deepspeed's estimate_zero3_model_states_mem_needs"; NULL: the
                              framework has none */
    uint64_t estimator_bytes;
};

/* Of a plan under a strategy. */
struct closed_form closed_form_of(const struct plan *plan, const struct strategy *strategy);

/* ---- for who holds them to their sources ---- */

uint64_t closed_form_paper(uint32_t stage, uint64_t parameters, uint64_t trained, uint32_t ranks);
uint64_t closed_form_zero2(uint64_t parameters, uint32_t ranks, const struct zero_options *options);
uint64_t closed_form_zero3(uint64_t parameters, uint64_t largest_module, uint32_t ranks,
                           const struct zero_options *options);
uint64_t closed_form_accelerate(uint64_t parameters);

#endif

/* delta_cost.c - kernels of the gated delta rule (graph/ops_linear_attention.c), as Triton compiles
 * flash-linear-attention's: blocks of a chunk of 64 tokens and a head; and mamba-ssm's of Mamba-2
 * (graph/ops_mamba2.c), which are of the same kind, chunks of 128 or 256.
 *
 * Their products are small, and wait for each other: a multiprocessor does so many operations a
 * clock, however fast its matrix units could be; where these are slow, a share of what they can.
 * From one chunk to the next the state goes step by step, a block a sequence and head: each product
 * of a step waits for the one before it, and that decides where heads are few.
 *
 * Fitted to FLA 0.5's forward on H200 (one sequence or several of one length; tests/data/gpu/
 * delta_rule.csv): OPERATIONS_A_CLOCK and PRODUCT_CLOCKS. GB200 does as many operations a clock and
 * multiprocessor, though its matrix units are twice as fast, and needs more clocks a step:
 * PRODUCT_CLOCKS_BLACKWELL was fitted to it, and holds for all of that generation. MATRIX_SHARE is
 * of RTX 5090's forward. Backward was fitted to nothing, nor heads of 64. What was measured is
 * bf16; the share is of that rate in every dtype.
 *
 * Mamba-2's are taken to do as many operations a clock: no times of mamba-ssm's were found that say
 * otherwise, or that. (Of its chunk scan, as another compiler makes it, 515 a clock are published
 * for H800: tile-ai/tilelang, benchmark/mamba2.) */
#include "cost/cost_parts.h"

#include <math.h>

#define OPERATIONS_A_CLOCK 390.0 /* of a multiprocessor, whichever the dtype */
#define MATRIX_SHARE 0.31        /* of matrix units, where that is less */
#define PRODUCT_CLOCKS 1190.0    /* from one product of a step to the next; */
#define PRODUCT_CLOCKS_BLACKWELL 1650.0
enum { FORWARD_PRODUCTS = 2, BACKWARD_PRODUCTS = 4 }; /* of a step, one behind the other */

static bool is_of_chunks(const struct kernel *kernel)
{
    switch ((enum work_kind)kernel->work) {
    case WORK_DELTA_SOLVE:
    case WORK_DELTA_FACTORS:
    case WORK_DELTA_STATES:
    case WORK_DELTA_OUTPUT:
    case WORK_DELTA_VALUES_BACKWARD:
    case WORK_DELTA_STATES_BACKWARD:
    case WORK_DELTA_OUTPUT_BACKWARD:
    case WORK_DELTA_FACTORS_BACKWARD:
    case WORK_SSM_STATES:
    case WORK_SSM_SCORES:
    case WORK_SSM_SCAN:
    case WORK_SSM_SCAN_GATED:
    case WORK_SSM_STATES_BACKWARD:
    case WORK_SSM_INPUT_BACKWARD:
    case WORK_SSM_B_BACKWARD:
    case WORK_SSM_C_BACKWARD:
    case WORK_SSM_SCORES_BACKWARD:
    case WORK_SSM_SCORES_TO_GROUP:
    case WORK_SSM_DECAY_BACKWARD:
        return true;
    default:
        return false;
    }
}

/* Chunks of a sequence: states are (b, chunks, a, d, e), the first that either kernel writes. */
static double chunks_of(const struct kernel *kernel)
{
    return kernel->operands[kernel->ins].shape.dim[1];
}

double delta_seconds(const struct kernel *kernel, const struct profile *profile)
{
    const double sms = profile_value(profile, PROFILE_SMS);
    const double clock = profile_value(profile, PROFILE_BOOST_CLOCK);
    if (!is_of_chunks(kernel) || sms <= 0 || clock <= 0)
        return 0;
    const double peak = profile_value(profile, PROFILE_BF16);
    const double rate = fmin(OPERATIONS_A_CLOCK * sms * clock, MATRIX_SHARE * peak);
    const double clocks =
        profile->generation == GENERATION_BLACKWELL ? PRODUCT_CLOCKS_BLACKWELL : PRODUCT_CLOCKS;
    const int products = kernel->work == WORK_DELTA_STATES            ? FORWARD_PRODUCTS
                         : kernel->work == WORK_DELTA_STATES_BACKWARD ? BACKWARD_PRODUCTS
                                                                      : 0;
    const double steps = products ? products * chunks_of(kernel) : 0;
    return fmax(kernel->flops / rate, steps * clocks / clock);
}

/* attention_cost.c - attention: which kernel runs, and how long it takes.
 *
 * A block of threads takes 128 queries of one head and goes through the keys in steps of as many:
 *
 *       keys ->                    a causal block goes as far as its last query, and the step on
 *     q |####                      the diagonal, with its mask, costs about two
 *     u |########
 *     e |############              time = blocks · (keys + begin and end) · FLOP a key / rate
 *     r |################
 *
 * over the multiprocessors, but never less than one block. Begin and end are counted in keys
 * (`start_tokens`), so that they are the share of a short sequence that they are; rates are those
 * of long sequences, a small table by kernel, head size and generation in the profiles. */
#include "cost/cost_parts.h"

#include <math.h>

enum { BLOCK = 128 }; /* queries of a block, and keys of a step */

bool is_attention_backward(const struct kernel *kernel)
{
    return kernel->work == WORK_ATTENTION_BACKWARD ||
           kernel->work == WORK_EFFICIENT_ATTENTION_BACKWARD;
}

bool is_attention(const struct kernel *kernel)
{
    return kernel->work == WORK_ATTENTION || kernel->work == WORK_EFFICIENT_ATTENTION ||
           is_attention_backward(kernel);
}

/* ---- which kernel ---- */

enum attention_kernel attention_chosen(const struct profile *profile, enum dtype dtype)
{
    const enum gpu_generation generation = profile->generation;
    const bool half = dtype == DTYPE_BF16 || dtype == DTYPE_FP16;
    const enum attention_kernel asked = profile->attention;
    if (attention_is_asked(asked))
        return asked;
    if (generation == GENERATION_CPU)
        return ATTENTION_FLASH;
    /* The others are for 16-bit numbers, and for Ampere and newer. Before Ampere the
     * memory-efficient kernel is not there for bf16 (sdp_utils.cpp,
     * less_than_sm80_mem_efficient_dtypes). */
    if (half && generation == GENERATION_VOLTA)
        return dtype == DTYPE_BF16 ? ATTENTION_MATH : ATTENTION_EFFICIENT;
    if (!half)
        return ATTENTION_EFFICIENT;
    if (asked == ATTENTION_FLASH_3 && generation != GENERATION_HOPPER)
        return ATTENTION_FLASH;
    if (asked == ATTENTION_CUDNN && generation == GENERATION_AMD)
        return ATTENTION_FLASH;
    if (asked != ATTENTION_AUTO)
        return asked;
    return generation == GENERATION_HOPPER || generation == GENERATION_BLACKWELL ? ATTENTION_CUDNN
                                                                                 : ATTENTION_FLASH;
}

/* What was chosen may not take a call: the plan has another's then (op_attention_kernel), which
 * its label says. */
static enum attention_kernel kernel_of(const struct kernel *kernel, const struct profile *profile,
                                       enum dtype dtype)
{
    const enum attention_kernel chosen = attention_chosen(profile, dtype);
    const bool flash =
        kernel->label == ATEN_FLASH_ATTENTION || kernel->label == ATEN_FLASH_ATTENTION_BACKWARD;
    if (attention_is_composed(chosen))
        return chosen;
    if (kernel->label == ATEN_CUDNN_ATTENTION || kernel->label == ATEN_CUDNN_ATTENTION_BACKWARD)
        return ATTENTION_CUDNN;
    if (kernel->work == WORK_EFFICIENT_ATTENTION ||
        kernel->work == WORK_EFFICIENT_ATTENTION_BACKWARD)
        return ATTENTION_EFFICIENT;
    return flash && chosen == ATTENTION_CUDNN ? ATTENTION_FLASH : chosen;
}

/* ---- its rate ---- */

/* xformers' kernel and FlashAttention in Triton beside FlashAttention-2, forward and backward
 * (FlashAttention-2 paper, arXiv 2307.08691, figures 4 to 6, A100), where a profile has no row of
 * their own. */
#define BESIDE_FLASH 0.55

/* The spread of a rate that is not of this size of head. */
#define NOT_MEASURED 0.2

/* The size of a head that the kernel is there for: smaller ones are padded with zeros (its
 * HEADDIM_SWITCH; FlashAttention-3's round_up_headdim). cuDNN's are not known. */
static uint32_t padded_head(enum attention_kernel kernel, uint32_t head)
{
    static const uint32_t sizes[] = {32, 64, 96, 128, 192, 256};
    const bool flash = kernel == ATTENTION_FLASH || kernel == ATTENTION_FLASH_ATTN;
    if (!flash && kernel != ATTENTION_FLASH_3)
        return head;
    for (uint32_t i = flash ? 0 : 1; i < sizeof sizes / sizeof *sizes; i++)
        if (head <= sizes[i])
            return sizes[i];
    return head;
}

/* Rows of a kernel: of the largest head up to `head`, the smallest from there on, and the one
 * behind that; NULL: there is none. */
struct rows_around {
    const struct profile_attention *below, *from, *behind;
};

static struct rows_around rows_around(const struct profile *profile, enum attention_kernel kernel,
                                      uint32_t head, bool deterministic)
{
    struct rows_around a = {NULL, NULL, NULL};
    for (uint32_t i = 0; i < profile->attention_count; i++) {
        const struct profile_attention *row = &profile->attentions[i];
        if (row->kernel != kernel || row->deterministic != deterministic)
            continue;
        if (row->head < head && (!a.below || row->head > a.below->head))
            a.below = row;
        if (row->head >= head && (!a.from || row->head < a.from->head)) {
            a.behind = a.from;
            a.from = row;
        } else if (row->head > head && (!a.behind || row->head < a.behind->head)) {
            a.behind = row;
        }
    }
    return (a.below || a.from) || !deterministic ? a : rows_around(profile, kernel, head, false);
}

/* The share of the peak at a size of head: the time of a query and key is in a line over it, that
 * of its products and that of a softmax, which has no size. Between two rows on their line, below
 * the least on that of the first two, but never slower a product than there; SDPA's
 * FlashAttention-2 takes 1.41 times as long with heads of 96 as of 64
 * (github.com/DeepLink-org/DLBlas, pull 71), the line of H100's 64 and 128 says 1.31. */
static double share_on_line(const struct profile_attention *one, double at_one,
                            const struct profile_attention *two, double at_two, double head)
{
    const double t1 = one->head / at_one, t2 = two->head / at_two;
    const double line = t1 + (t2 - t1) * (head - one->head) / ((double)two->head - one->head);
    return head < one->head ? fmin(at_one, head / line) : head / line;
}

/* A kernel's numbers for a head; false: the profile has none of it. */
static bool row_of(const struct profile *profile, enum attention_kernel kernel, uint32_t head,
                   bool deterministic, struct profile_attention *out)
{
    const uint32_t padded = padded_head(kernel, head);
    const struct rows_around a = rows_around(profile, kernel, padded, deterministic);
    if (!a.below && !a.from)
        return false;
    *out = a.from ? *a.from : *a.below;
    const struct profile_attention *one = a.below ? a.below : a.from;
    const struct profile_attention *two = a.below ? a.from : a.behind;
    if (out->head != padded && two) {
        out->forward = share_on_line(one, one->forward, two, two->forward, padded);
        out->backward = share_on_line(one, one->backward, two, two->backward, padded);
        out->spread = fmax(out->spread, NOT_MEASURED);
    }
    out->forward *= (double)head / padded;
    out->backward *= (double)head / padded;
    return true;
}

/* A profile without a table (a user's, a CPU's) has three numbers for all. */
static struct profile_attention plain_row(const struct profile *profile)
{
    return (struct profile_attention){
        .forward = profile_value(profile, PROFILE_ATTENTION),
        .backward = profile_value(profile, PROFILE_ATTENTION_BACKWARD),
        .start_tokens = profile_value(profile, PROFILE_ATTENTION_START),
        .backward_tokens = profile_value(profile, PROFILE_ATTENTION_START),
        .draw = 1,
        .spread = profile->of[PROFILE_ATTENTION].spread,
    };
}

/* In fp32 no kernel runs on matrix instructions of Hopper or Blackwell, whose rows in a profile are
 * shares of a peak in 16 bits: it is taken to reach as much of fp32's peak as kernels of Ampere do
 * of theirs (the paper's rates of head sizes 64 and 128 on A100). No times of it were found. */
static struct profile_attention in_fp32(const struct profile *profile, uint32_t head)
{
    static const struct profile_attention of_64 = {.head = 64, .forward = 0.64, .backward = 0.55},
                                          of_128 = {.head = 128, .forward = 0.72, .backward = 0.62};
    struct profile_attention row = plain_row(profile);
    row.forward =
        BESIDE_FLASH * share_on_line(&of_64, of_64.forward, &of_128, of_128.forward, head);
    row.backward =
        BESIDE_FLASH * share_on_line(&of_64, of_64.backward, &of_128, of_128.backward, head);
    row.spread = fmax(row.spread, NOT_MEASURED);
    return row;
}

static struct profile_attention rate_of(const struct profile *profile, enum attention_kernel kernel,
                                        const struct attention *a)
{
    const bool newer =
        profile->generation == GENERATION_HOPPER || profile->generation == GENERATION_BLACKWELL;
    const uint32_t head = a->head;
    struct profile_attention row;
    if (newer && a->dtype == DTYPE_FP32)
        return in_fp32(profile, head);
    if (row_of(profile, kernel, head, a->deterministic, &row))
        return row;
    if (!row_of(profile, ATTENTION_FLASH, head, false, &row)) {
        row = plain_row(profile);
        row.forward *= fmin(1, head / 64.0); /* smaller ones leave tensor cores idle */
        row.backward *= fmin(1, head / 64.0);
    }
    if (kernel == ATTENTION_EFFICIENT || kernel == ATTENTION_TRITON) {
        row.forward *= BESIDE_FLASH;
        row.backward *= BESIDE_FLASH;
    }
    return row;
}

/* ---- its time ---- */

static struct attention attention_of(const struct kernel *kernel)
{
    const struct operand *q = &kernel->operands[is_attention_backward(kernel) ? 1 : 0];
    const struct operand *v = q + 2;
    const uint32_t sample = kernel->attr.sample, s = q->shape.dim[1];
    const bool joined = sample > 0 && sample < s; /* of sequences of their own */
    return (struct attention){
        .dtype = (enum dtype)q->dtype,
        .batch = joined ? q->shape.dim[0] * ((double)s / sample) : q->shape.dim[0],
        .queries = joined ? sample : s,
        .keys = joined ? sample : q[1].shape.dim[1],
        .heads = q->shape.dim[2],
        .head = q->shape.dim[q->shape.rank - 1],
        .head_v = v->shape.dim[v->shape.rank - 1],
        .causal = kernel->attr.causal,
        .window = kernel->attr.window,
        .backward = is_attention_backward(kernel),
    };
}

/* Keys that the blocks of one head go through, summed, with begin and end; *longest: of one. */
static double keys_of_blocks(const struct attention *a, double start, double *longest)
{
    const double blocks = ceil(a->queries / BLOCK);
    const double keys = ceil(a->keys / BLOCK) * BLOCK;
    double mean = keys;
    *longest = keys + start;
    if (a->window > 0) { /* its two ends are masked */
        mean = fmin(keys, ceil(a->window / BLOCK) * BLOCK + BLOCK) + BLOCK;
        *longest = mean + start;
    } else if (a->causal) {
        mean = fmax(BLOCK, keys / 2 + BLOCK / 2.0) + BLOCK;
    }
    return blocks * (mean + start);
}

/* Two products forward, five backward (FlashAttention-2 paper, section 3.1), for each query and
 * key. */
static double flops_a_pair(const struct attention *a)
{
    return a->backward ? 2.0 * (3 * a->head + 2 * a->head_v) : 2.0 * (a->head + a->head_v);
}

double attention_flops(const struct attention *a)
{
    const double pairs = a->window > 0 ? fmin(a->window, a->keys)
                         : a->causal   ? a->keys / 2
                                       : a->keys;
    return flops_a_pair(a) * a->batch * a->heads * a->queries * pairs;
}

/* Every score is written and read: two products for the forward pass, five for the backward one,
 * and a softmax in between, in the dtype of the scores. */
static double math_seconds(const struct attention *a, const struct profile *profile)
{
    const double peak = peak_flops(profile, a->dtype);
    const struct gemm scores = {.peak = peak,
                                .m = a->queries,
                                .n = a->keys,
                                .k = a->head,
                                .batch = a->batch * a->heads,
                                .element_bytes = dtype_bytes(a->dtype),
                                .result_bytes = dtype_bytes(a->dtype),
                                .speed = 1};
    const struct gemm values = {.peak = peak,
                                .m = a->queries,
                                .n = a->head_v,
                                .k = a->keys,
                                .batch = a->batch * a->heads,
                                .element_bytes = dtype_bytes(a->dtype),
                                .result_bytes = dtype_bytes(a->dtype),
                                .speed = 1};
    const double bytes = a->batch * a->heads * a->queries * a->keys * dtype_bytes(a->dtype);
    const double pass_s =
        bytes / (profile_value(profile, PROFILE_MEMORY) * profile_value(profile, PROFILE_STREAM));
    const double products = a->backward ? 2.5 : 1, passes = a->backward ? 9 : 8;
    return products * (gemm_seconds(profile, &scores) + gemm_seconds(profile, &values)) +
           passes * pass_s;
}

static double seconds_by(const struct attention *a, const struct profile *profile,
                         enum attention_kernel kernel)
{
    if (attention_is_composed(kernel))
        return math_seconds(a, profile);
    const struct profile_attention row = rate_of(profile, kernel, a);
    const double peak = peak_flops(profile, a->dtype);
    const double share = a->backward ? row.backward : row.forward;
    const double rate = peak * clock_boost(profile) * share;
    const double sms = profile_value(profile, PROFILE_SMS);
    double longest;
    const double keys =
        keys_of_blocks(a, a->backward ? row.backward_tokens : row.start_tokens, &longest);
    const double each = BLOCK * flops_a_pair(a) / rate; /* of a key of a block, on all of them */
    double boost_s = a->batch * a->heads * keys * each;
    if (sms > 0)
        boost_s = fmax(boost_s, longest * each * sms);
    return boost_s / clock_share(profile, peak, attention_flops(a), boost_s, row.draw);
}

double attention_time(const struct attention *a, const struct profile *profile)
{
    return seconds_by(a, profile, attention_chosen(profile, a->dtype));
}

double attention_seconds(const struct kernel *kernel, const struct profile *profile)
{
    const struct attention a = attention_of(kernel);
    return seconds_by(&a, profile, kernel_of(kernel, profile, a.dtype));
}

double attention_spread(const struct kernel *kernel, const struct profile *profile)
{
    const struct attention a = attention_of(kernel);
    const enum attention_kernel which = kernel_of(kernel, profile, a.dtype);
    const double spread = rate_of(profile, which, &a).spread;
    /* Published times of cuDNN's are without a bias. */
    const bool biased = which == ATTENTION_CUDNN && kernel->work != WORK_ATTENTION &&
                        kernel->work != WORK_ATTENTION_BACKWARD && !a.causal;
    return biased ? fmax(spread, NOT_MEASURED) : spread;
}

double attention_matrix_seconds(const struct kernel *kernel, const struct profile *profile)
{
    const struct attention a = attention_of(kernel);
    const enum attention_kernel which = kernel_of(kernel, profile, a.dtype);
    const double draw = attention_is_composed(which) ? 1 : rate_of(profile, which, &a).draw;
    return draw * attention_flops(&a) / (peak_flops(profile, a.dtype) * clock_boost(profile));
}

/* comm_sum.c - see comm_sum.h.
 *
 * Element by element, part 0 first, in blocks that stay in the cache: fp32 in double, 16 bits in
 * fp32; rounded once, to nearest even. */
#include "runtime/comm/comm_sum.h"

#include "runtime/work/half.h"

#include <assert.h>

enum { BLOCK = 256 }; /* elements */

/* fp32 is summed in double, so that the result is the nearest fp32 however many ranks there are. */
static void sum_fp32(const char *const *part, uint32_t parts, uint64_t first, uint32_t count,
                     double divisor, float *out)
{
    double sum[BLOCK] = {0};
    for (uint32_t p = 0; p < parts; p++) {
        const float *x = (const float *)(const void *)part[p] + first;
        for (uint32_t i = 0; i < count; i++)
            sum[i] += (double)x[i];
    }
    for (uint32_t i = 0; i < count; i++)
        out[first + i] = (float)(sum[i] / divisor);
}

static void sum_half(const char *const *part, uint32_t parts, uint64_t first, uint32_t count,
                     float divisor, bool brain, uint16_t *out)
{
    float sum[BLOCK] = {0};
    for (uint32_t p = 0; p < parts; p++) {
        const uint16_t *x = (const uint16_t *)(const void *)part[p] + first;
        for (uint32_t i = 0; i < count; i++)
            sum[i] += brain ? float_from_bf16(x[i]) : float_from_fp16(x[i]);
    }
    for (uint32_t i = 0; i < count; i++)
        out[first + i] =
            brain ? bf16_from_float(sum[i] / divisor) : fp16_from_float(sum[i] / divisor);
}

static void sum_bytes(const char *const *part, uint32_t parts, uint64_t first, uint32_t count,
                      uint32_t divisor, uint8_t *out)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t sum = 0;
        for (uint32_t p = 0; p < parts; p++)
            sum += (uint8_t)part[p][first + i];
        out[first + i] = (uint8_t)(sum / divisor);
    }
}

static void sum_int32(const char *const *part, uint32_t parts, uint64_t first, uint32_t n,
                      uint32_t divisor, int32_t *out)
{
    for (uint32_t i = 0; i < n; i++) {
        int64_t sum = 0;
        for (uint32_t p = 0; p < parts; p++)
            sum += ((const int32_t *)(const void *)part[p])[first + i];
        out[first + i] = (int32_t)(sum / divisor);
    }
}

enum err_code comm_sum_check(enum dtype dtype, uint32_t instruction, struct err *err)
{
    if (dtype == DTYPE_FP32 || dtype == DTYPE_BF16 || dtype == DTYPE_FP16 || dtype == DTYPE_INT32 ||
        dtype == DTYPE_UINT8)
        return ERR_OK;
    return err_set(err, ERR_UNSUPPORTED,
                   "instruction %u: sums of %s among ranks are not supported; use float32, "
                   "bfloat16, float16, int32 or uint8",
                   instruction, dtype_name(dtype));
}

void comm_sum(const char *const *part, uint32_t parts, uint64_t count, enum dtype dtype,
              bool average, char *out)
{
    assert(parts > 0); /* a group has ranks */
    const uint32_t divisor = average ? parts : 1;
    for (uint64_t i = 0; i < count; i += BLOCK) {
        const uint32_t n = count - i < BLOCK ? (uint32_t)(count - i) : BLOCK;
        if (dtype == DTYPE_FP32)
            sum_fp32(part, parts, i, n, divisor, (float *)(void *)out);
        else if (dtype == DTYPE_INT32)
            sum_int32(part, parts, i, n, divisor, (int32_t *)(void *)out);
        else if (dtype == DTYPE_UINT8)
            sum_bytes(part, parts, i, n, divisor, (uint8_t *)out);
        else
            sum_half(part, parts, i, n, (float)divisor, dtype == DTYPE_BF16,
                     (uint16_t *)(void *)out);
    }
}

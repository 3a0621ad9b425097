/* comm_sum.c - see comm_sum.h.
 *
 * Element by element, part 0 first, in blocks that stay in the cache: fp32 in double, 16 bits in
 * fp32; rounded once, to nearest even. */
#include "runtime/comm/comm_sum.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 256 }; /* elements */

static float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t to_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float from_bf16(uint16_t half)
{
    return from_bits((uint32_t)half << 16);
}

static uint16_t to_bf16(float value)
{
    const uint32_t bits = to_bits(value);
    if (isnan(value))
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float from_fp16(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000) << 16, magnitude = half & 0x7fffU;
    if (magnitude < 0x400) /* zero or subnormal: steps of 2^-24 */
        return from_bits(sign | to_bits((float)magnitude * 0x1p-24F));
    const uint32_t bias = magnitude >= 0x7c00 ? 0x70000000U : 0x38000000U;
    return from_bits(sign | (bias + (magnitude << 13)));
}

static uint16_t to_fp16(float value)
{
    const uint32_t bits = to_bits(value), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000)
        return (uint16_t)(sign | 0x7e00);
    if (magnitude >= 0x477ff000) /* 65520 and more round to infinity */
        return (uint16_t)(sign | 0x7c00);
    if (magnitude < 0x38800000)
        return (uint16_t)(sign | (uint32_t)lrintf(fabsf(value) * 0x1p24F));
    return (uint16_t)(sign | ((magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13));
}

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
            sum[i] += brain ? from_bf16(x[i]) : from_fp16(x[i]);
    }
    for (uint32_t i = 0; i < count; i++)
        out[first + i] = brain ? to_bf16(sum[i] / divisor) : to_fp16(sum[i] / divisor);
}

void comm_sum(const char *const *part, uint32_t parts, uint64_t count, enum dtype dtype,
              bool average, char *out)
{
    const uint32_t divisor = average ? parts : 1;
    for (uint64_t i = 0; i < count; i += BLOCK) {
        const uint32_t n = count - i < BLOCK ? (uint32_t)(count - i) : BLOCK;
        if (dtype == DTYPE_FP32)
            sum_fp32(part, parts, i, n, divisor, (float *)(void *)out);
        else
            sum_half(part, parts, i, n, (float)divisor, dtype == DTYPE_BF16,
                     (uint16_t *)(void *)out);
    }
}

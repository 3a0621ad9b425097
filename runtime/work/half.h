/* half.h - 16-bit numbers on the host: bf16 and fp16 to and from float.
 *
 * Bit by bit rather than with _Float16 or intrinsics: the result is the same on every machine and
 * compiler. Inline, so that loops over them vectorize. Rounding is to nearest even, what is too
 * large becomes infinity, subnormals are kept, a NaN stays a (quiet) NaN. */
#ifndef SHARDPLAN_HALF_H
#define SHARDPLAN_HALF_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t bits_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float float_from_bf16(uint16_t bits)
{
    return float_of_bits((uint32_t)bits << 16);
}

/* Adding just under half a unit, or half where the last bit kept is odd, rounds to nearest even. A
 * NaN keeps its upper bits and is made quiet: adding could carry it into infinity. */
static inline uint16_t bf16_from_float(float value)
{
    const uint32_t bits = bits_of_float(value);
    const uint32_t rounded = bits + 0x7fffU + (bits >> 16 & 1U);
    const bool nan = (bits & 0x7fffffffU) > 0x7f800000U;
    return (uint16_t)((nan ? bits | 0x00400000U : rounded) >> 16);
}

static inline float float_from_fp16(uint16_t half)
{
    const uint32_t sign = (half & 0x8000U) << 16, exponent = half >> 10 & 31U;
    if (exponent == 31)
        return float_of_bits(sign | 0x7f800000U | (half & 0x3ffU) << 13);
    if (exponent == 0) /* subnormal: in units of 2^-24 */
        return float_of_bits(sign | bits_of_float((float)(half & 0x3ffU) * 0x1p-24F));
    return float_of_bits(sign | (((half & 0x7fffU) << 13) + (112U << 23)));
}

static inline uint16_t fp16_from_float(float value)
{
    const uint32_t bits = bits_of_float(value), sign = bits >> 16 & 0x8000U,
                   size = bits & 0x7fffffffU;
    uint32_t half;
    if (size > 0x7f800000U)
        half = 0x7e00U; /* NaN */
    else if (size >= 0x47800000U)
        half = 0x7c00U;          /* 65536 and more: infinity */
    else if (size < 0x38800000U) /* below 2^-14; one unit of 0.5F is that of a subnormal, 2^-24 */
        half = bits_of_float(float_of_bits(size) + 0.5F) - 0x3f000000U;
    else
        half = (size - (112U << 23) + 0xfffU + (size >> 13 & 1U)) >> 13;
    return (uint16_t)(sign | half);
}

#endif

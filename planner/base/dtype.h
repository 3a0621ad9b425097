/* dtype.h - element types, named as PyTorch names them. Knows nothing of the rest. */
#ifndef SHARDPLAN_DTYPE_H
#define SHARDPLAN_DTYPE_H

#include <stdint.h>

/* X(name, text, bytes, short name on the command line) */
#define DTYPE_MAP(X)                                                                               \
    X(FP32, "float32", 4, "fp32")                                                                  \
    X(BF16, "bfloat16", 2, "bf16")                                                                 \
    X(FP16, "float16", 2, "fp16")                                                                  \
    X(INT64, "int64", 8, "int64")                                                                  \
    X(INT32, "int32", 4, "int32")                                                                  \
    X(UINT64, "uint64", 8, "uint64")                                                               \
    X(BOOL, "bool", 1, "bool")                                                                     \
    X(COMPLEX64, "complex64", 8, "complex64")                                                      \
    X(FP64, "float64", 8, "fp64")                                                                  \
    X(UINT8, "uint8", 1, "uint8")                                                                  \
    X(FLOAT8_E4M3, "float8_e4m3fn", 1, "fp8")                                                      \
    X(FLOAT8_E5M2, "float8_e5m2", 1, "e5m2")                                                       \
    X(INT8, "int8", 1, "int8")                                                                     \
    X(UINT32, "uint32", 4, "uint32")

enum dtype {
#define X(name, text, bytes, brief) DTYPE_##name,
    DTYPE_MAP(X)
#undef X
        DTYPE_COUNT
};

/* Bytes of one element. */
static inline uint32_t dtype_bytes(enum dtype dtype)
{
    static const uint8_t bytes[] = {
#define X(name, text, size, brief) size,
        DTYPE_MAP(X)
#undef X
    };
    return bytes[dtype];
}

/* "bfloat16", as torch prints it. */
static inline const char *dtype_name(enum dtype dtype)
{
    static const char *const names[] = {
#define X(name, text, bytes, brief) text,
        DTYPE_MAP(X)
#undef X
    };
    return names[dtype];
}

/* "bf16", as our options and tables spell it. */
static inline const char *dtype_brief(enum dtype dtype)
{
    static const char *const names[] = {
#define X(name, text, bytes, brief) brief,
        DTYPE_MAP(X)
#undef X
    };
    return names[dtype];
}

#endif

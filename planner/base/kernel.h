/* kernel.h - the nouns that graph, plan, simulator and runtime share: shapes, buffers, operands
 * and kernels. Plain data; whoever holds an array of them owns it. */
#ifndef SHARDPLAN_KERNEL_H
#define SHARDPLAN_KERNEL_H

#include "base/dtype.h"
#include "base/work_kind.h"

#include <stdbool.h>
#include <stdint.h>

enum { SHAPE_DIMS = 5 };

struct shape {
    uint32_t dim[SHAPE_DIMS]; /* outermost first */
    uint32_t rank;            /* 0: a scalar */
};

/* SHAPE(2, 128, 64): one to five dimensions. */
#define SHAPE_PICK(a, b, c, d, e, n, ...) n
#define SHAPE(...) ((struct shape){{__VA_ARGS__}, SHAPE_PICK(__VA_ARGS__, 5, 4, 3, 2, 1, 0)})

static inline uint64_t shape_elements(const struct shape *shape)
{
    uint64_t elements = 1;
    for (uint32_t i = 0; i < shape->rank; i++)
        elements *= shape->dim[i];
    return elements;
}

static inline uint64_t shape_bytes(const struct shape *shape, enum dtype dtype)
{
    return shape_elements(shape) * dtype_bytes(dtype);
}

/* What a buffer is for. The first eight follow the recordings in tests/data/truth, where a
 * category is told by the place of birth; gradients of sharded parameters are therefore under
 * reduce_scatter there, and `gradient` is for systems that keep gradients of their own. */
#define CATEGORY_MAP(X)                                                                            \
    X(SHARDED_PARAM, "sharded_param")                                                              \
    X(UNSHARDED_PARAM, "unsharded_param")                                                          \
    X(ALL_GATHER, "all_gather")                                                                    \
    X(REDUCE_SCATTER, "reduce_scatter")                                                            \
    X(ACTIVATION, "activation")                                                                    \
    X(BACKWARD, "backward")                                                                        \
    X(GRADIENT, "gradient")                                                                        \
    X(OPTIMIZER, "optimizer")                                                                      \
    X(INPUT, "input")                                                                              \
    X(BUFFER, "buffer")                                                                            \
    X(WORKSPACE, "workspace")                                                                      \
    X(OUTSIDE_ALLOCATOR, "outside_allocator")

enum category {
#define X(name, text) CATEGORY_##name,
    CATEGORY_MAP(X)
#undef X
        CATEGORY_COUNT
};

/* CUDA streams of FSDP2, and the pools of the allocator that go with them. */
#define STREAM_MAP(X)                                                                              \
    X(COMPUTE, "compute")                                                                          \
    X(COPY_IN, "copy_in")                                                                          \
    X(ALL_GATHER, "all_gather")                                                                    \
    X(REDUCE_SCATTER, "reduce_scatter")                                                            \
    X(ALL_REDUCE, "all_reduce")                                                                    \
    X(HOST, "host")

enum stream_id {
#define X(name, text) STREAM_##name,
    STREAM_MAP(X)
#undef X
        STREAM_COUNT
};

/* A piece of memory with one birth label. A buffer may be allocated again after it was freed, as
 * a PyTorch storage resized to 0 and back. */
struct buffer {
    uint64_t bytes;     /* as requested */
    uint16_t label;     /* enum aten: the call that returned it first */
    uint8_t dtype;      /* enum dtype */
    uint8_t category;   /* enum category */
    uint8_t pool;       /* enum stream_id whose pool it is from; STREAM_HOST: not on the device */
    bool scratch;       /* a kernel's own workspace: in the allocator, but no tensor of PyTorch's */
    bool resident;      /* allocated before the first step or in it, and never freed */
    struct shape shape; /* at birth */
};

/* Where an operand's bytes are. A buffer index is relative to its micro-batch's first buffer;
 * parameters mean the unsharded copy at that moment. */
#define PLACE_MASK 0xc0000000U
#define PLACE_BUFFER 0x00000000U
#define PLACE_PARAM 0x40000000U
#define PLACE_INPUT 0x80000000U
#define PLACE_MODULE_BUFFER 0xc0000000U
#define PLACE_NONE UINT32_MAX

struct operand {
    uint64_t offset; /* elements from the start to the first element */
    uint32_t place;  /* PLACE_... | index */
    uint32_t pitch;  /* elements between rows of a chunk of a wider tensor; 0: contiguous */
    uint8_t dtype;
    struct shape shape;
};

/* Numbers a kernel needs beyond its operands; 0 where it has no such thing. */
struct kernel_attr {
    uint32_t dim;   /* the dim that repeat or sum work on */
    uint32_t first; /* where a slice begins in the last dim */
    float p;        /* dropout probability, exponent, factor, what to fill with */
    float eps;
    bool causal;
};

struct kernel {
    uint16_t label; /* enum aten: what people see */
    uint16_t op;    /* index of the op class it belongs to, for people; 0: none */
    uint16_t ins, outs;
    uint8_t work;    /* enum work_kind: what it computes */
    bool backward;   /* part of the backward pass (recomputation included) */
    bool recomputed; /* runs again for activation checkpointing */
    uint32_t first;  /* its operands: ins, then outs */
    struct kernel_attr attr;
    double flops; /* floating-point operations */
    double bytes; /* bytes read and written */
};

const char *category_name(enum category category);
const char *stream_name(enum stream_id stream);

#endif

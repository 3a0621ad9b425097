/* kernel.h - the nouns that graph, plan, simulator and runtime share: shapes, buffers, operands
 * and kernels. Plain data; whoever holds an array of them owns it. */
#ifndef SHARDPLAN_KERNEL_H
#define SHARDPLAN_KERNEL_H

#include "base/dtype.h"
#include "base/vocabulary.h"

#include <stdbool.h>
#include <stdint.h>

enum { SHAPE_DIMS = 6 };

struct shape {
    uint32_t dim[SHAPE_DIMS]; /* outermost first */
    uint32_t rank;            /* 0: a scalar */
};

/* SHAPE(2, 128, 64): one to six dimensions. */
#define SHAPE_PICK(a, b, c, d, e, f, n, ...) n
#define SHAPE(...) ((struct shape){{__VA_ARGS__}, SHAPE_PICK(__VA_ARGS__, 6, 5, 4, 3, 2, 1, 0)})

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

/* (elements, 1); where a dim cannot hold that many, with rows as short as they can be. */
struct shape shape_column(uint64_t elements);

/* Elements between which a pitch lies: those of one row of the chunk. The last dim, or the last two
 * of (b, s, a, d), which is a row (a·d) of a chunk seen as heads; all where the pitch is 0. */
uint64_t shape_row(const struct shape *shape, uint32_t pitch);

/* How many elements of memory a shape with rows `pitch` apart takes, from its first to behind its
 * last. False: more than any number holds. */
bool shape_reach(const struct shape *shape, uint32_t pitch, uint64_t *elements);

/* What a buffer is for. They follow the recordings in tests/data/truth, where a
 * category is told by the place of birth; gradients of sharded parameters are therefore under
 * reduce_scatter there, and `gradient` is for systems that keep gradients of their own. */
#define CATEGORY_MAP(X)                                                                            \
    X(PARAM, "param") /* whole parameters, where nothing is sharded */                             \
    X(SHARDED_PARAM, "sharded_param")                                                              \
    X(UNSHARDED_PARAM, "unsharded_param")                                                          \
    X(CAST_SHARD, "cast_shard") /* FSDP1's shards in the compute dtype */                          \
    X(ALL_GATHER, "all_gather")                                                                    \
    X(REDUCE_SCATTER, "reduce_scatter")                                                            \
    X(BUCKET, "bucket") /* DDP's, and its flat copies of module buffers */                         \
    X(ACTIVATION, "activation")                                                                    \
    X(BACKWARD, "backward")                                                                        \
    X(GRADIENT, "gradient")                                                                        \
    X(OPTIMIZER, "optimizer")                                                                      \
    X(INPUT, "input")                                                                              \
    X(BUFFER, "buffer")                                                                            \
    X(PERSISTENT, "persistent") /* what a system keeps for itself */                               \
    X(WORKSPACE, "workspace")   /* from here on: no tensors */                                     \
    X(OUTSIDE_ALLOCATOR, "outside_allocator")

enum category {
#define X(name, text) CATEGORY_##name,
    CATEGORY_MAP(X)
#undef X
        CATEGORY_COUNT
};

/* A lane is a CUDA stream and the pool of the allocator that goes with it. Which there are is said
 * by each plan; these two are in all of them. */
enum {
    LANE_COMPUTE, /* the default stream */
    LANE_HOST,    /* the CPU: its memory, and work that runs there */
    LANES_MOST = 16
};

struct lane_info {
    const char *name; /* "all_gather" */
    bool urgent;      /* a CUDA stream of high priority */
};

struct lane_list { /* lent */
    const struct lane_info *of;
    uint32_t count;
};

/* A piece of memory with one birth label. A buffer may be allocated again after it was freed, as
 * a PyTorch storage resized to 0 and back. */
struct buffer {
    uint64_t bytes;     /* as requested */
    uint16_t label;     /* enum aten: the call that returned it first */
    uint8_t dtype;      /* enum dtype */
    uint8_t category;   /* enum category */
    uint8_t pool;       /* lane whose pool it is from; LANE_HOST: not on the device */
    bool scratch;       /* a kernel's own workspace: in the allocator, but no tensor of PyTorch's */
    bool resident;      /* allocated before the first step or in it, and there between steps */
    bool carried;       /* lives from one step into the next */
    bool pinned;        /* of LANE_HOST's: page-locked */
    bool paged;         /* likewise: managed memory, whose pages are on the device while there is
                           room for them */
    struct shape shape; /* at birth */
    uint32_t local;     /* parameter + 1 of whose updated part it has the shape, which is another on
                           every rank; 0: alike on all */
};

/* Where an operand's bytes are. A buffer index is relative to its micro-batch's first buffer;
 * parameters mean the copy that kernels compute with. */
#define PLACE_MASK 0xc0000000U
#define PLACE_BUFFER 0x00000000U
#define PLACE_PARAM 0x40000000U
#define PLACE_INPUT 0x80000000U
#define PLACE_MODULE_BUFFER 0xc0000000U
#define PLACE_NONE UINT32_MAX

/* Elements between neighbours of each dim of an operand, where a plan does not say it by `pitch`:
 * 0 where one element is read again and again. */
struct strides {
    uint64_t of[SHAPE_DIMS];
};

struct operand {
    uint64_t offset; /* elements from the start to the first element */
    uint32_t place;  /* PLACE_... | index */
    uint32_t pitch;  /* elements between rows of a chunk of a wider tensor; 0: contiguous */
    uint8_t dtype;
    uint8_t chunk;  /* group + 1 in which the operand is this rank's chunk: `offset` is its place
                       times the elements; 0: alike on all ranks */
    bool split;     /* what torch.split gave, of widths that are said: to torch.compile no slice */
    uint32_t local; /* as a buffer's */
    float since;    /* of a stream's kernel: bytes that were touched since it was, and one; of an
                       output, until its last use. 0: it was not, or it is not known */
    struct shape shape;
    const struct strides *layout; /* lent; NULL: as shape and pitch say. For who computes with it */
};

/* Numbers a kernel needs beyond its operands; 0 where it has no such thing. */
struct kernel_attr {
    uint32_t dim;   /* the dim that repeat or sum work on; of a broadcast, the rank it is from */
    uint32_t first; /* where a slice begins in the last dim */
    float p;        /* dropout probability, exponent, factor, what to fill with */
    float eps;
    float scale;     /* of q·kᵀ; 0: 1 / the root of a head's size */
    uint32_t window; /* tokens that a query of attention sees up to its own, which is one of them,
                        and as many from there on where it is not causal; 0: all */
    uint32_t sample; /* tokens of the samples that a sequence is joined of, each of which attends to
                        itself alone; 0: it is one */
    float softcap;   /* scores s are softcap · tanh(s / softcap); 0: s */
    bool causal;
};

struct kernel {
    uint16_t label; /* enum aten: what people see */
    uint16_t op;    /* index of the op class it belongs to, for people; 0: none */
    uint16_t ins, outs;
    uint8_t work;                  /* enum work_kind: what it computes */
    bool backward;                 /* part of the backward pass (recomputation included) */
    bool recomputed;               /* runs again for activation checkpointing */
    bool compiled;                 /* issued by a compiled program, not by eager operators */
    bool placed;                   /* of a plan: a stream's kernel, parameters where they are now */
    bool summed;                   /* of an outline (lower/outline.h): of lists of operands, the
                                      first in and the first out, and what all come to: */
    uint32_t tensors;              /* ... the longer of both lists */
    double in_bytes;               /* ... bytes of those in; of all: `bytes` */
    struct operand *operands;      /* ins, then outs; of the table that holds the kernel */
    const struct strides *strides; /* (ins + outs), lent; NULL: rows of `pitch` elements, the rest
                                     one after the other */
    struct kernel_attr attr;
    double flops; /* floating-point operations */
    double bytes; /* bytes read and written */
};

const char *category_name(enum category category);

#endif

/* values.h - what parameters, modules' buffers and inputs hold before the first step.
 *
 * A builder says it, the plan carries it, and whoever executes the plan fills memory from it
 * without looking at names or shapes. Plain data, copied by value. */
#ifndef SHARDPLAN_VALUES_H
#define SHARDPLAN_VALUES_H

#include "base/rope.h"

#include <stdint.h>

/* ---- parameters ---- */

/* Random kinds give each element of each parameter a number of its own, the same on any number of
 * ranks: runtime/execution/values.h has the formulas. */
#define INIT_MAP(X)                                                                                \
    X(ZEROS, "zeros")                                                                              \
    X(ONES, "ones")                                                                                \
    X(UNIFORM, "uniform") /* in [-bound, bound) */                                                 \
    X(NORMAL, "normal")   /* of standard deviation `std`; beyond `limit`, where given, drawn again \
                           */                                                                      \
    X(NUMBER, "number")   /* everywhere the same */

enum init_kind {
#define X(name, text) INIT_##name,
    INIT_MAP(X)
#undef X
        INIT_COUNT
};

struct param_init {
    uint8_t kind;  /* enum init_kind */
    double number; /* UNIFORM: the bound; NORMAL: the standard deviation; NUMBER: itself */
    double limit;  /* NORMAL: largest magnitude; 0: any */
};

/* Normal, cut at `limit` where that is not 0. */
static inline struct param_init init_normal(double std, double limit)
{
    return (struct param_init){INIT_NORMAL, std, limit};
}

static inline struct param_init init_uniform(double bound)
{
    return (struct param_init){.kind = INIT_UNIFORM, .number = bound};
}

/* ---- buffers of modules ---- */

#define BUFFER_VALUES_MAP(X)                                                                       \
    X(ZEROS, "zeros")                                                                              \
    X(RANGE, "range")   /* 0, 1, 2, ... along the last dim */                                      \
    X(NUMBER, "number") /* everywhere the same */                                                  \
    X(WINDOW, "window") /* (..., n, n) bools: places up to a row's, but for those farther back */  \
    X(PARTS, "parts")   /* along the last dim, parts that are each everywhere the same */          \
    X(ROPE, "rope")

enum buffer_values_kind {
#define X(name, text) VALUES_##name,
    BUFFER_VALUES_MAP(X)
#undef X
        VALUES_COUNT
};

enum { VALUES_PARTS_MOST = 5 };

struct buffer_values {
    uint8_t kind;   /* enum buffer_values_kind */
    uint8_t parts;  /* PARTS: how many */
    uint8_t layout; /* ROPE: enum rope_layout */
    bool unlisted;  /* a plain attribute of its module, not among model.buffers() */
    float number;   /* NUMBER: in fp32, or whole in int64; WINDOW: how many places, 0 all */
    struct rope rope;
    uint32_t widths[VALUES_PARTS_MOST]; /* PARTS, one behind the other ... */
    float numbers[VALUES_PARTS_MOST];   /* ... and what is in each */
};

/* ---- inputs ---- */

/* Of a sequence of s + 1 tokens (an executor's rules for what a file of tokens does not say): */
#define INPUT_MAP(X)                                                                               \
    X(TOKENS, "tokens")   /* the first s */                                                        \
    X(TARGETS, "targets") /* the last s: the token after each */                                   \
    X(LABELS,                                                                                      \
      "labels") /* the first s again; the model itself compares each with the one before */        \
    X(MASKED_TARGETS,                                                                              \
      "masked_targets")   /* what stood where the first s are masked: every seventh, from one on   \
                             that moves on with the step, by the last id of the vocabulary */      \
    X(REPLIES, "replies") /* the first s of the next step's sequence, which a decoder is to write  \
                           */                                                                      \
    X(CLASSES, "classes") /* a label of each sequence, or several: no file of tokens has them */   \
    X(POSITIONS, "positions")           /* where each stands in the sample that it is of */        \
    X(ATTENTION_MASK, "attention_mask") /* 1, and 0 where a sequence is padded */                  \
    X(UNKNOWN, "unknown")               /* of a recorded model: whatever that takes, of any dtype */

enum input_kind {
#define X(name, text) INPUT_##name,
    INPUT_MAP(X)
#undef X
        INPUT_COUNT
};

struct input_values {
    uint8_t kind;    /* enum input_kind */
    uint32_t vocab;  /* tokens are below it */
    uint32_t padded; /* of all sequences' last places so many are padded: padded_places */
    uint32_t prompt; /* LABELS: each sequence's first so many tokens have none */
};

/* How many of sequence `index`'s last places are padded, of `padded` of all `batch` sequences: the
 * first is the longest, and the others lack as many each. */
static inline uint32_t padded_places(uint32_t padded, uint32_t batch, uint32_t index)
{
    const uint32_t others = batch > 1 ? batch - 1 : 1;
    if (batch > 1 && index == 0)
        return 0;
    const uint32_t at = batch > 1 ? index - 1 : 0;
    return padded / others + (at < padded % others);
}

/* ... and of all places of `count` sequences from `first` on. */
static inline uint32_t padded_among(uint32_t padded, uint32_t batch, uint32_t first, uint32_t count)
{
    uint32_t sum = 0;
    for (uint32_t i = first; i < first + count; i++)
        sum += padded_places(padded, batch, i);
    return sum;
}

/* How many may be in all, where so many of each padded sequence are left. */
static inline uint64_t padded_most(uint32_t batch, uint32_t seq, uint32_t left)
{
    const uint64_t others = batch > 1 ? batch - 1 : 1;
    return seq > left ? others * (seq - left) : 0;
}

const char *init_name(enum init_kind kind);                   /* "uniform" */
const char *buffer_values_name(enum buffer_values_kind kind); /* "rope" */
const char *input_name(enum input_kind kind);                 /* "tokens" */

#endif

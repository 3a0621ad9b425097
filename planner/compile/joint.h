/* joint.h - forward and backward of a region as one graph of functions, as AOTAutograd traces them.
 *
 *     kernels of an eager stream --joint_kernel, one by one--> nodes --> what is saved
 * (partition.h)
 *
 * A kernel of the vocabulary becomes what Inductor's decompositions make of it: silu is a cast to
 * fp32, a negation, an exponential, a sum, a quotient and a cast back; a product of matrices is
 * itself, with the views that nn.Linear puts around it. Nodes are without effects: memory that a
 * kernel writes anew is a new node. What is computed twice is one node in the end (joint_merge).
 *
 * Which functions there are, and what the partitioner thinks of each, is JOINT_MAP: PyTorch 2.14,
 * torch/_functorch/partitioners.py, get_default_op_list. */
#ifndef SHARDPLAN_JOINT_H
#define SHARDPLAN_JOINT_H

#include "base/err.h"
#include "base/kernel.h"

#include <stdbool.h>
#include <stdint.h>

/* How the partitioner takes a function. */
enum joint_way {
    WAY_VIEW,      /* gives no memory of its own; fuses; is never forbidden to run again */
    WAY_ELEMENT,   /* of its list of what may run again, and fuses */
    WAY_REDUCTION, /* likewise, over a dim */
    WAY_SEARCH, /* over a dim, and Inductor fuses it, but it is not on that list: max with places */
    WAY_JOIN,   /* may not run again, and what fuses may fuse into it: cat */
    WAY_ALIAS,  /* no memory of its own either, but not known as a view: it may not run again */
    WAY_CALL,   /* a kernel of a library, or one that the partitioner does not know: may not run
                   again, and nothing fuses with it there */
};

/* X(NAME, way) */
#define JOINT_MAP(X)                                                                               \
    X(INPUT, CALL)                                                                                 \
    X(VIEW, VIEW)                                                                                  \
    X(PERMUTE, VIEW)                                                                               \
    X(EXPAND, VIEW)                                                                                \
    X(SLICE, VIEW)                                                                                 \
    X(SPLIT, VIEW)     /* several results */                                                       \
    X(SPLIT_BY, ALIAS) /* likewise, of widths that are said: aten.split_with_sizes */              \
    X(PART, VIEW)      /* one of a SPLIT's */                                                      \
    X(RESULT, ELEMENT) /* one of a call's with several, or of VARIANCE's */                        \
    X(CAST, ELEMENT)                                                                               \
    X(ADD, ELEMENT)                                                                                \
    X(SUB, ELEMENT)                                                                                \
    X(MUL, ELEMENT)                                                                                \
    X(DIV, ELEMENT)                                                                                \
    X(NEG, ELEMENT)                                                                                \
    X(EXP, ELEMENT)                                                                                \
    X(LOG, ELEMENT)                                                                                \
    X(EXPM1, ELEMENT)                                                                              \
    X(LOG1P, ELEMENT)                                                                              \
    X(MINIMUM, ELEMENT)                                                                            \
    X(POW, ELEMENT)                                                                                \
    X(RSQRT, ELEMENT)                                                                              \
    X(ERF, ELEMENT)                                                                                \
    X(TANH, ELEMENT)                                                                               \
    X(SIGMOID, ELEMENT)                                                                            \
    X(MAXIMUM, ELEMENT)                                                                            \
    X(ABS, ELEMENT)                                                                                \
    X(RECIPROCAL, ELEMENT)                                                                         \
    X(LOG2, ELEMENT)                                                                               \
    X(FLOOR, ELEMENT)                                                                              \
    X(FLOOR_DIV, ELEMENT)                                                                          \
    X(EXP2, ELEMENT)                                                                               \
    X(AT_LEAST, ELEMENT) /* clamp_min, of a number */                                              \
    X(AT_MOST, ELEMENT)                                                                            \
    X(LESS, ELEMENT)                                                                               \
    X(GREATER, ELEMENT)                                                                            \
    X(LESS_EQUAL, ELEMENT)                                                                         \
    X(AND, ELEMENT)                                                                                \
    X(COS, ELEMENT)                                                                                \
    X(SIN, ELEMENT)                                                                                \
    X(PICK, ELEMENT) /* by index: aten.index */                                                    \
    X(PAD, CALL)     /* a row filled up: Inductor fuses it */                                      \
    X(RUNNING, CALL) /* sums so far, of each row: Inductor's own scan */                           \
    X(RANDOM, CALL)  /* numbers drawn anew: Inductor fuses it */                                   \
    X(EQUAL, ELEMENT)                                                                              \
    X(NOT_EQUAL, ELEMENT)                                                                          \
    X(WHERE, ELEMENT)                                                                              \
    X(CLONE, ELEMENT)                                                                              \
    X(FULL, ELEMENT)                                                                               \
    X(IOTA, ELEMENT)                                                                               \
    X(GATHER, ELEMENT) /* elements of each row */                                                  \
    X(ROWS, CALL)      /* of a table, by index: Inductor fuses it */                               \
    X(ZEROS, ELEMENT)  /* memory that a PUT_ROWS adds to, or that has the first part of a whole */ \
    X(PUT_ROWS, CALL)  /* of zeros, rows, index: the zeros' memory with rows added; of memory, a   \
                          part: with that in it */                                                 \
    X(PLACES, CALL)    /* of a permutation: where each number is, put into memory that is empty */ \
    X(COPY, CALL)      /* aten.copy: Inductor fuses it */                                          \
    X(PUT_SLICE, JOIN)                                                                             \
    X(MEAN, REDUCTION)                                                                             \
    X(SUM, REDUCTION)                                                                              \
    X(LARGEST, REDUCTION)  /* max, amax */                                                         \
    X(LARGEST_OF, SEARCH)  /* max(dim): of its two results, each a reduction, the one */           \
    X(LARGEST_AT, SEARCH)  /* and the place */                                                     \
    X(VARIANCE, REDUCTION) /* several results */                                                   \
    X(CAT, JOIN)                                                                                   \
    X(AS_COMPLEX, ALIAS)                                                                           \
    X(AS_REAL, ALIAS)                                                                              \
    X(CONJUGATE, ALIAS)                                                                            \
    X(CALL, CALL)      /* one result, in memory that it is given */                                \
    X(CALL_OWN, CALL)  /* one result, in memory that it allocates */                               \
    X(CALL_MANY, CALL) /* several, likewise */

enum joint_name {
#define X(name, way) JOINT_##name,
    JOINT_MAP(X)
#undef X
};

enum joint_source { SOURCE_PARAM, SOURCE_INPUT, SOURCE_GRADIENT };

enum { JOINT_ARGS = 12, JOINT_NONE = UINT32_MAX };

struct joint_node {
    uint8_t name;   /* enum joint_name */
    uint8_t dtype;  /* of its result; of what has several: of none */
    uint8_t source; /* enum joint_source, of INPUT */
    uint8_t args;
    bool in_backward; /* traced there */
    bool save, again; /* checkpointing: must be saved, must run again */
    bool stays;       /* INPUT: the partitioner takes it for a parameter, which is there anyway */
    uint32_t arg[JOINT_ARGS];
    uint16_t block; /* checkpointing: the number of its region; 0: it is in none */
    uint32_t of;    /* INPUT: the parameter, or the eager stream's buffer. CALL: its kernel there */
    uint32_t detail; /* what else tells it from others: a dim, a place */
    float number;
    struct shape shape;
};

enum { JOINT_HEADS_FIRST = 1, JOINT_TRANSPOSED, JOINT_BATCHES_TURNED }; /* details of PERMUTE */
enum { JOINT_ROWS_ASKED = 1 };                                          /* of VIEW */
enum {
    JOINT_STEP = 1 << 24
}; /* detail of SLICE and PUT_SLICE: where they begin, and with steps
      this times their length, too */

struct joint;

struct joint *joint_new(void);
void joint_free(struct joint *joint); /* NULL is allowed */

uint32_t joint_count(const struct joint *joint);
const struct joint_node *joint_at(const struct joint *joint, uint32_t node);
enum joint_way joint_way(const struct joint_node *node);
/* Whether it is computed over a dim. */
bool joint_is_over_dim(const struct joint_node *node);
/* Whether it is its argument's memory under another shape or name. */
bool joint_is_seen_through(const struct joint_node *node);
/* Whether two nodes are the same but for which buffer or kernel they are of. */
bool joint_is_alike(const struct joint_node *x, const struct joint_node *y);
/* Whether it has several results, and so none that can be saved. */
bool joint_is_many(const struct joint_node *node);
/* Bytes of its result: views have those of what they show. */
uint64_t joint_bytes(const struct joint_node *node);

/* What the kernels that follow read from outside: a buffer of the stream, or a gradient that comes
 * to backward, as the tensor of `shape` that it is there. (Parameters, the batch and a module's
 * buffers need no telling.) Returns its node. */
uint32_t joint_input(struct joint *joint, enum joint_source source, uint32_t buffer,
                     struct shape shape, enum dtype dtype);

/* Whether the partitioner takes an INPUT for a parameter: those are at first. */
void joint_stays(struct joint *joint, uint32_t input, bool stays);

/* From here on kernels are of backward. */
void joint_begin_backward(struct joint *joint);

/* The next kernel, the `index`-th of its table. ERR_UNSUPPORTED: nothing is known of what Inductor
 * makes of its work, or of how it reads an operand. */
enum err_code joint_kernel(struct joint *joint, const struct kernel *kernel, uint32_t index,
                           struct err *err);

/* The node of a buffer's value now, seen as `shape`; JOINT_NONE: it has none. */
uint32_t joint_value(struct joint *joint, uint32_t buffer, struct shape shape, enum dtype dtype);

/* How the region is checkpointed, inside what is compiled. */
enum joint_checkpoint { CHECKPOINT_NOT, CHECKPOINT_AGAIN, CHECKPOINT_SELECTIVE };

/* Once all kernels are there, for each checkpointed region in order, numbered from 1: marks its
 * functions of forward, nodes [first, end), as torch.utils.checkpoint does while they are traced:
 * all to be computed again, or, selective, every second product and attention to be saved; and what
 * the region before hands to it, to be saved. */
void joint_checkpoint(struct joint *joint, enum joint_checkpoint how, uint32_t first, uint32_t end,
                      uint16_t number, const struct kernel *kernels);

/* Whether it is a cast to the dtype that its argument has. */
bool joint_is_nothing(const struct joint *joint, uint32_t node);
/* Such a cast is its argument from here on. */
void joint_leave_out(struct joint *joint, uint32_t node);

/* What becomes of a product that only a sum of matrices reads: one call of both, whose third
 * argument is what is added ("addmm", torch/_inductor/fx_passes/post_grad.py). What the sum adds is
 * no argument of the graph, nor one row. `kept` (nodes): also read from outside. */
void joint_add_to_products(struct joint *joint, const bool *lives, const bool *kept);

/* Once all of it is there: of nodes that compute the same the first is everybody's (the
 * partitioner's CSE). But what only forward needs stays apart from what a gradient is made of, and
 * what shares memory with a result from everything. Nodes keep their numbers; those that nobody
 * uses any more stay behind. Either list may have JOINT_NONE in it. */
void joint_merge(struct joint *joint, uint32_t result_count, const uint32_t *results,
                 uint32_t gradient_count, const uint32_t *gradients);

/* ---- for joint_work.c, joint_loss.c, joint_float8.c ---- */

struct joint_want { /* a node that is asked for */
    enum joint_name name;
    enum dtype dtype;
    struct shape shape;
    uint32_t args;
    uint32_t arg[JOINT_ARGS];
    uint32_t of, detail;
    float number;
};

uint32_t joint_node(struct joint *joint, const struct joint_want *want);
/* An operand of a kernel as a node, in the operand's shape and dtype. */
enum err_code joint_operand(struct joint *joint, const struct operand *operand, uint32_t *out,
                            struct err *err);
/* The node is what the operand's buffer holds from now on. */
void joint_write(struct joint *joint, const struct operand *operand, uint32_t node);
/* x in another shape of the same elements: x itself, or by the views that PyTorch's modules make.
 */
uint32_t joint_view(struct joint *joint, uint32_t x, struct shape shape);
/* A matrix transposed; of one that is, what it was made of. */
uint32_t joint_transposed(struct joint *joint, uint32_t x);
/* What of a Float8Linear the works are that no other module has (joint_float8.c); false: it is none
 * of them. `in`: its operands as nodes. */
bool joint_float8(struct joint *joint, const struct kernel *kernel, uint32_t index,
                  const uint32_t *in);

#endif

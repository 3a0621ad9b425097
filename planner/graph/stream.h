/* stream.h - what one micro-batch does on the compute stream, forward and backward.
 *
 * The tape's result and the lowerings' input: births and deaths of buffers and kernels between
 * them, in host order, with the places where a sharding strategy hooks in. It depends on the
 * model and the batch and on nothing that a strategy chooses, so one stream serves every
 * strategy, world size and micro-batch.
 *
 *     PRE_FORWARD root | embedding | PRE_FORWARD block 0 | ... | POST_FORWARD block 0 | ... | loss
 *     ... | PRE_BACKWARD block 0 | ... | GRAD p ... | POST_BACKWARD block 0 | ... | FINAL */
#ifndef SHARDPLAN_STREAM_H
#define SHARDPLAN_STREAM_H

#include "base/kernel_table.h"
#include "graph/graph.h"

enum step_kind {
    STEP_BIRTH,         /* arg: buffer */
    STEP_DEATH,         /* arg: buffer */
    STEP_KERNEL,        /* arg: kernel */
    STEP_GRAD,          /* arg: index into grads: a parameter's gradient is complete */
    STEP_GIVEN,         /* arg: index into given: a node has given a parameter a gradient, where
                           versions of PyTorch that have grad_dtype may cast it. It still holds what
                           it saved, unless the gradient is a view. Not of a view that is all that
                           the parameter gets: that is cast at GRAD */
    STEP_COPIED,        /* arg: index into grads: AccumulateGrad has what it does not keep as it is
                           (stream_grad.copy). STEP_GRAD follows, perhaps deaths between them */
    STEP_PRE_FORWARD,   /* arg: module, MODULE_ROOT for the root */
    STEP_POST_FORWARD,  /* likewise */
    STEP_PRE_BACKWARD,  /* likewise: the gradient of the module's output is there */
    STEP_POST_BACKWARD, /* likewise: the module's gradients are all accumulated. Not emitted for a
                           module whose inputs need no gradient: FINAL does its work */
    STEP_BACK,          /* likewise: in place of POST_BACKWARD where that is not emitted, or (of
                           recordings) before it. Backward has come back to where the module's
                           forward began */
    STEP_NESTED,        /* likewise: a backward of the module's own, within backward, has run all
                           nodes that it led to (tape_options.reentrant) */
    STEP_FINAL,         /* autograd's final callback */
    STEP_MARK,          /* arg: enum stream_mark */
    STEP_READ,          /* the host waits for what the last kernel computed, and reads it */
    STEP_NO_GRAD,       /* arg: whether the model is called under torch.no_grad from here on: the
                           hooks of a forward, which nothing is followed by in backward */
    /* With tape_options.saved_on: copies between host and device, and who waits for them. The
       copying stream waits for what the compute stream has so far before STEP_TO_HOST; the compute
       stream for it behind STEP_FROM_HOST. */
    STEP_TO_HOST,      /* arg: kernel */
    STEP_FROM_HOST,    /* likewise */
    STEP_AWAIT_COPY,   /* likewise, of STEP_TO_HOST: the compute stream waits for that copy */
    STEP_USED,         /* arg: buffer: the compute stream has got all that uses it */
    STEP_ASIDE_AWAITS, /* likewise: the copying stream waits for that */
    STEP_ASIDE_ENDS,   /* the host waits for both */
    /* With tape_options.call_hooks: every module, down to the smallest (calls.h); arg: call */
    STEP_CALL_FORWARD,    /* before its forward */
    STEP_RETURN_FORWARD,  /* behind it; not where recomputation stops in it */
    STEP_CALL_BACKWARD,   /* the gradient of its output is there */
    STEP_RETURN_BACKWARD, /* that of its input; not where it needs none */
    STEP_SAVED,   /* likewise; arg: param: a node saves the memory that it has now: a view of it, or
                     of a recomputed region anything. Other nodes save the parameter itself,
                     whatever its memory is */
    STEP_UNSAVED, /* ... and lets go of it: the last that was saved, as nodes run from behind */
};

enum { MODULE_ROOT = 0x0ffffff };

/* In the place of a lane: the one that copies between host and device. */
enum { LANE_ASIDE = LANES_MOST };

enum stream_mark { /* the marks of data/truth: bytes live here are reported */
                   STREAM_AFTER_LOGITS,
                   STREAM_AFTER_FORWARD,
                   STREAM_BACKWARD_BLOCKS, /* before the first block's pre-backward */
                   STREAM_AFTER_BACKWARD,
};

struct stream_step {
    uint32_t kind : 5;
    uint32_t arg : 27;
};

/* Whether the stream goes on without a hook after this step. */
static inline bool stream_step_is_within(struct stream_step step)
{
    return step.kind == STEP_BIRTH || step.kind == STEP_DEATH || step.kind == STEP_KERNEL;
}

/* Whether it is a copy between host and device, or a wait for one: the same under every system,
 * which is not called. */
static inline bool stream_step_is_aside(struct stream_step step)
{
    return step.kind >= STEP_TO_HOST && step.kind <= STEP_ASIDE_ENDS;
}

struct stream_grad {
    uint32_t param;
    uint32_t buffer; /* the gradient, d·w elements in the compute dtype */
    /* GRAD_AS_IT_IS, or the kernel that makes `buffer` of what arrived: of another layout than the
     * parameter's, or not the engine's alone. AccumulateGrad runs it where .grad is not there yet,
     * and adds what arrived where it is (accumulate_grad.h): STEP_COPIED has birth and kernel in
     * itself, and the stream has what arrived, with its death. */
    uint32_t copy;
    bool strided; /* where parameters are views (struct system), which have no AccumulateGrad: its
                     elements lie otherwise than the parameter's */
};

#define GRAD_AS_IT_IS UINT32_MAX

/* What one use of a parameter gives, and how it is added to what other uses gave before. */
struct stream_given {
    uint32_t param;
    uint32_t buffer;
    uint32_t before; /* buffer that it is added to, or NO_BUFFER: it is the first */
    uint32_t sum;    /* ... and where they are then: `before` itself or another buffer */
    uint32_t kernel; /* ... by this kernel */
    bool shared;     /* others hold `buffer`, too, which stays with them */
};

struct stream {
    struct stream_step *steps;
    struct buffer *buffers;
    struct kernel_table *kernels; /* plans made of the stream hold it too */
    struct stream_grad *grads;
    struct stream_given *given;
    uint32_t step_count, buffer_count, grad_count, given_count;
    uint32_t step_cap, buffer_cap, grad_cap, given_cap;
    uint32_t final_step; /* index of STEP_FINAL */
    bool aside;          /* buffers are of LANE_ASIDE's pool, or copies are that lane's */
};

void stream_free(struct stream *stream); /* NULL is allowed */

#endif

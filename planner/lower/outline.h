/* outline.h - a stream in short, and a strategy lowered to as little as its step time and its peak
 * need: for those who try very many strategies.
 *
 *     stream    birth kernel birth kernel death ... PRE_FORWARD ... kernel birth ...
 *     outline   |------------ a span ------------|             |----- a span ...
 *
 * Between two hooks a stream does the same under every strategy, so its kernels are one span, and
 * its births and deaths are two numbers: what lives more at the end, and at most. The systems do at
 * their hooks what they always do; what they allocate and free is added up at once.
 *
 * Where a system may cast what uses of a parameter give before it is added up (stream_given), that
 * is no span's: such births, additions and deaths are told apart as if they were hooks. */
#ifndef SHARDPLAN_OUTLINE_H
#define SHARDPLAN_OUTLINE_H

#include "lower/lower.h"
#include "plan/ledger.h"

/* Bytes alive, against some beginning. */
struct outline_bytes {
    int64_t requested; /* by tensors, those on the host too */
    int64_t rounded;   /* of the device's allocator: each as it rounds it, workspaces too */
};

struct outline_span {               /* a hook comes next, or what a system may do otherwise */
    uint32_t kernels;               /* that run in it: they follow those of the span before */
    uint32_t events;                /* likewise of outline.events */
    struct outline_bytes end, most; /* against what lives at its beginning */
};

/* A birth or death on the device, as a ledger has it. */
struct outline_event {
    struct ledger_event event;
    uint32_t pool;
    uint32_t
        gradient; /* of the outline's: the slot is the program's; PLACE_NONE: it is in `event` */
    bool once;    /* in the first micro-batch only: the workspace of a thread's matmuls */
};

struct outline {
    const struct stream *stream; /* lent */
    struct buffer *gradients;    /* (gradient_count) those of the stream's gradients, in order, and
                                    of what they are added up from where a system may cast it */
    uint32_t gradient_count;
    uint32_t *gradient_of;      /* (stream's buffers) index into gradients, or PLACE_NONE */
    struct outline_span *spans; /* (span_count) */
    struct stream_step *hooks;  /* (span_count) behind each of them */
    uint32_t span_count;
    uint32_t *kernels; /* (kernel_count) of the stream's table, in the order in which they run */
    uint32_t kernel_count;
    uint32_t forward_count;       /* of them, those before the end of the loss */
    struct outline_event *events; /* (event_count) */
    uint32_t event_count;
    uint32_t own_slots[LEDGER_POOLS]; /* of the stream's buffers: all of a micro-batch are dead
                                         when the next begins */
    bool no_ledger;                   /* ... if not, or if two gradients are one buffer */
};

/* The stream is lent until outline_free. `workspace_bytes`: of matmuls in forward and in backward
 * (struct memory_options); only a ledger has them. */
struct outline *outline_new(const struct stream *stream, const uint64_t workspace_bytes[2]);
void outline_free(struct outline *outline); /* NULL is allowed */

/* What a strategy has on the device beside the stream, in a step that is not the first: bytes as
 * the allocator rounds them. */
struct outline_gaps {
    uint64_t *during; /* (spans) of the compute stream's pool while the stream is in a span */
    uint64_t *after;  /* (spans) ... at most, between it and the next */
    uint64_t apart;   /* ... at most, while no micro-batch runs */
    uint64_t most[LANES_MOST]; /* of each stream's pool at any time */
    uint64_t host;             /* what a process takes of its host, at most (plan/host_held.h) */
    uint64_t host_blocks; /* ... of it pinned blocks that come back within the step: the stream's
                             own tensors may have them while they are not used */
};

/* Where lowering gives up: bytes of the compute stream's pool that a strategy may have beside the
 * stream. What it has in a span that was lowered, it has there at least in the step; and as soon as
 * the system is set up it is known what is there before the first step, which systems free between
 * micro-batches alone, if at all. */
struct outline_limit {
    int64_t resident;      /* before the first step */
    const int64_t *during; /* (spans) while the stream is in a span */
    const int64_t *after;  /* (spans) between it and the next */
    uint64_t host;         /* of the process's host before the first step */
};

struct outlined {
    struct plan *plan; /* NULL, or of the time before: its memory is used again. No allocs, frees or
                          marks, and the stream's kernels as spans (PLAN_SPAN): it can be costed and
                          simulated, and nothing else */
    uint64_t requested_bytes;  /* peak of a steady-state step: as memory_replay has it, to the byte
                                */
    uint64_t rounded_bytes;    /* likewise, what the allocator has to find room for at the least */
    struct ledger *ledger;     /* lent, filled in; NULL: is not asked for */
    struct outline_gaps *gaps; /* likewise, its arrays being the caller's; not with a ledger */
    const struct outline_limit *limit; /* lent, with gaps; NULL: none */
    bool beyond;                       /* it takes more: nothing else is filled in */
};

/* `graph` and the outline's stream under a strategy, as lower_plan. The caller owns out->plan, also
 * after an error: plan_free. */
enum err_code lower_outline(const struct graph *graph, const struct outline *outline,
                            const struct strategy *strategy, struct outlined *out, struct err *err);

/* The same under a system of one's own, whatever strategy->system says. */
enum err_code lower_outline_with(const struct system *system, const struct graph *graph,
                                 const struct outline *outline, const struct strategy *strategy,
                                 struct outlined *out, struct err *err);

#endif

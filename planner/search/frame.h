/* frame.h - what a strategy puts around any stream: gathers, reductions, the optimizer, and the
 * bytes that these hold while the stream runs. With a class it gives bounds of a configuration
 * without lowering or simulating it.
 *
 * A frame is a lowering of a class's hooks. The system does at its hooks what it always does, so no
 * bound knows any system. */
#ifndef SHARDPLAN_FRAME_H
#define SHARDPLAN_FRAME_H

#include "search/stream_class.h"

struct served {                /* what is, of all kernels that can run at once: at most */
    float use[RESOURCE_COUNT]; /* of each resource */
    float joint;               /* of the smaller of its shares (busy.joint_s) */
    float held;                /* of multiprocessors, times its slowdown (busy.held_s) */
    float excess;              /* of multiprocessors more than of memory */
};

struct frame {
    bool timeless;    /* memory alone is known (frame_limit) */
    bool beyond;      /* ... and of that no more than that it is beyond a limit */
    uint64_t *during; /* (gap_count) device bytes beside the stream's while it is in a gap */
    uint64_t *after;  /* (gap_count) at most, between a gap and the next */
    uint64_t apart;   /* at most, while no micro-batch runs */
    uint32_t gap_count;
    uint64_t beside;            /* bytes of other streams' pools */
    uint64_t outside;           /* bytes outside the allocator: context, communicators */
    uint64_t host, host_blocks; /* bytes of its host, beside the stream's; outline_gaps */
    uint64_t host_limit;        /* what a process may take: more, and a host has not enough */
    struct busy busy, middle; /* of the strategy's own work: with up to FRAME_BATCHES micro-batches;
                                 of one more */
    struct served served;     /* first, at any one time */
    double update_s; /* of the compute stream: the optimizer's update, and what follows it */
    double idle_s, middle_idle_s; /* the compute stream stands still at least: before and within
                                     a micro-batch, and after the last; of one more */
};

/* A step of more micro-batches repeats the one in the middle. */
enum { FRAME_BATCHES = 3 };

/* The strategy with no more micro-batches than a frame has: strategies of one result share it. */
struct strategy frame_strategy(const struct strategy *strategy);

/* What making a frame needs, used again for the next: of one thread. The machine is lent. */
struct framer; /* opaque */
struct framer *framer_new(const struct machine *machine);
void framer_free(struct framer *framer); /* NULL is allowed */

/* Beyond which time is not asked for: what takes more than so many bytes of a device under each of
 * the classes that have the frame. */
struct frame_limit {
    struct stream_class *const *classes; /* (class_count) */
    const uint64_t *of;                  /* bits: which of them have the frame */
    uint32_t class_count;
    uint64_t bytes; /* 0: time is always asked for */
    bool gives_up;  /* how much more is not asked, either */
};

/* The strategy, its fetches as late as can be (struct setting.ahead), around a class's hooks.
 * Errors are lower_plan's and costs_of_plan's. The caller owns *out: frame_free. */
enum err_code frame_new(struct framer *framer, const struct stream_class *stream_class,
                        const struct strategy *strategy, struct frame **out, struct err *err);
/* The same within a limit (NULL: none): a frame beyond it is timeless, and has no floor of the
 * step. */
enum err_code frame_new_within(struct framer *framer, const struct stream_class *stream_class,
                               const struct strategy *strategy, const struct frame_limit *limit,
                               struct frame **out, struct err *err);
void frame_free(struct frame *frame); /* NULL is allowed */

/* Bytes of a GPU that a configuration takes at least: what its tensors ask for on each stream, as
 * the allocator rounds them, workspaces, and what is outside the allocator. `stream_class` has the
 * frame's hooks. Never more than its device_bytes (predict.h) while nothing is given back.
 * UINT64_MAX: whatever it takes of a GPU, the host has no room for the rest; or it is beyond a
 * limit that gave up. */
uint64_t frame_device_floor(const struct frame *frame, const struct stream_class *stream_class);

/* Bytes of its host that a process takes at the least, all of it where the frame has no blocks that
 * the stream could take, too. */
uint64_t frame_host(const struct frame *frame, const struct stream_class *stream_class);

/* Seconds that its step lasts at least: what is busy longest of each stream at full speed, each
 * resource that streams share, and the host. Never more than its step (simulate.h). */
double frame_step_floor(const struct frame *frame, const struct stream_class *stream_class,
                        uint32_t accumulate);

/* Seconds that its step lasts at least where all before the optimizer's update is done at
 * `update_s` (evaluation.update_s of one that differs from it in the update alone); 0: that is not
 * known. */
double frame_floor_behind(const struct frame *frame, double update_s);

#endif

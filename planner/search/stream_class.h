/* stream_class.h - the stream that many configurations share, and what of it no strategy changes.
 *
 * The model, its batch, checkpointing and dtypes make the stream; which strategy it runs under
 * makes the rest. Between two hooks of a strategy the stream does the same under all of them:
 *
 *     gap 0 | PRE_FORWARD | gap 1 | ... | GRAD p | gap g | ... | FINAL | gap n
 *
 * so its memory is two numbers a gap, and its time a few sums. */
#ifndef SHARDPLAN_STREAM_CLASS_H
#define SHARDPLAN_STREAM_CLASS_H

#include "cost/cost.h"
#include "job/job.h"
#include "lower/outline.h"
#include "machine/machine.h"

/* Seconds of work, each of which a step lasts at least. */
struct busy {
    double lane_s[LANES_MOST]; /* kernels at full speed; LANE_HOST: what the host computes */
    double resource_s[RESOURCE_COUNT]; /* times the share of it that they use */
    double group_s[LANES_MOST]; /* of collectives: of one group they run one after the other */
    double joint_s; /* of the compute stream times the larger of its shares of multiprocessors and
                       of memory, of what is served first times the smaller and its slowdown beside
                       others: while the compute stream works these come to one at most, whichever
                       of the two a kernel is bound by */
    double bound_s; /* of the compute stream, what needs all multiprocessors */
    double rest_s;  /* ... and the rest of it */
    double rest_used_s; /* ... times the larger of its two shares */
    double held_s; /* of what is served first, times its multiprocessors and its slowdown beside
                      others */
    double host_s; /* issuing */
};

/* Kernels of the compute stream that leave some of multiprocessors and of memory, by what they use
 * of that which they use most: sums over those before. */
struct partial {
    double use;              /* more than those before */
    double device_s, used_s; /* ... times that */
};

struct class_gap { /* bytes that the stream itself has on the device, as the allocator rounds */
    uint64_t peak; /* at most */
    uint64_t live; /* at its end, gradients aside that AccumulateGrad has taken */
};

struct stream_class {
    bool lent;             /* all of it but busy and partials is another's */
    bool timed;            /* busy and partials are known */
    bool bare;             /* its bytes at least are all that is left of it (stream_class_strip) */
    uint64_t device_floor; /* those */
    struct graph *graph;
    struct stream *stream;
    struct class_gap *gaps; /* (gap_count) */
    uint32_t gap_count;
    uint32_t first_gap, last_gap; /* with kernels */
    struct busy busy;             /* of one micro-batch */
    struct partial *partials;     /* (partial_count + 1) of one micro-batch, ascending */
    uint32_t partial_count;
    uint64_t workspace;      /* bytes that its matmuls make cuBLAS allocate */
    uint64_t host;           /* bytes of a process's host that it takes (plan/host_held.h) */
    double tokens;           /* of a micro-batch */
    bool blocks_follow;      /* stream_blocks_follow */
    struct stream *hooks;    /* the stream without births, deaths and kernels: in each gap a kernel
                                that does nothing, with the number of the gap. Gradients are born
                                where they are taken */
    struct outline *outline; /* of those: a span a gap, the last one aside */
};

/* Builds the class of a job. ERR_INVALID, ERR_UNSUPPORTED: the model cannot be built so, or the
 * machine's costs of it are not known. The caller owns *out: stream_class_free. */
enum err_code stream_class_new(const struct job *job, const struct machine *machine,
                               struct stream_class **out, struct err *err);
/* The same of a job with the stream of `made`, on another number of GPUs, which is lent. */
enum err_code stream_class_of(const struct stream_class *made, const struct job *job,
                              const struct machine *machine, struct stream_class **out,
                              struct err *err);
void stream_class_free(struct stream_class *stream_class); /* NULL is allowed */

/* Both in two steps: a class without its time first, which is half of the work; then that, of the
 * same job, for a class that has none yet: an error leaves it so, and the caller's. One without is
 * lent like any other. */
enum err_code stream_class_untimed(const struct stream_class *made, const struct job *job,
                                   const struct machine *machine, struct stream_class **out,
                                   struct err *err); /* `made` may be NULL: none is there */
enum err_code stream_class_time(struct stream_class *stream_class, const struct job *job,
                                const struct machine *machine, struct err *err);

/* Frees all but its floor of bytes: of a class that takes too much, for whoever asks again. Of one
 * that is not lent; lent on, it is as bare. */
void stream_class_strip(struct stream_class *stream_class);

/* Bytes of a GPU that it takes at least, whatever the strategy. */
uint64_t stream_class_device_floor(const struct stream_class *stream_class);

/* Tokens a second of a GPU that it trains at most, whatever the strategy: its own work alone, at
 * full speed. */
double stream_class_most_tokens(const struct stream_class *stream_class);

/* Whether any strategy does the same around both, and they have kernels between the same hooks. */
bool stream_class_same_hooks(const struct stream_class *a, const struct stream_class *b);

/* Seconds that busy.joint_s of a micro-batch is more by if no kernel counts for less than `least`
 * of its time. */
double stream_class_raised_s(const struct stream_class *stream_class, double least);

/* Bytes of the device that a buffer takes, as the allocator rounds; 0: it lies in host memory. */
uint64_t buffer_device_bytes(const struct buffer *buffer);

/* Adds the cost of a kernel on a lane. */
void busy_add(struct busy *busy, uint32_t lane, const struct cost *cost);
/* Adds `times` times what another is. */
void busy_add_all(struct busy *busy, const struct busy *other, double times);

#endif

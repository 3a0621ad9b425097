/* kept_bounds.h - what a step takes at least, whichever units stay unsharded between forward and
 * backward.
 *
 * A unit that is kept holds its parameters from its forward to its backward, and is not gathered a
 * second time. Neither depends on what else is kept: bytes of each gap of the stream, and seconds
 * of each lane, are those of keeping none, plus or less what each unit adds or saves. That is read
 * off frames (frame.h) of keeping none, each alone, and all; where the last is not the sum of the
 * others, bounds are those of keeping all, and of none. */
#ifndef SHARDPLAN_KEPT_BOUNDS_H
#define SHARDPLAN_KEPT_BOUNDS_H

#include "search/evaluate.h"
#include "search/pool.h"

struct kept_bounds {
    const struct stream_class *stream_class; /* lent */
    uint32_t units, gaps;
    uint32_t accumulate;
    uint64_t *none;     /* (gaps) bytes of the device with none kept */
    uint64_t *more;     /* (units, gaps) what a unit adds */
    uint64_t *most;     /* (units) ... in the gap where that is most */
    uint64_t apart;     /* at most, while no micro-batch runs */
    uint64_t beside;    /* segments of other streams, and what is outside the allocator */
    struct frame frame; /* with none kept; its arrays are not there */
    struct busy *saved, *saved_middle; /* (units) of frame.busy, frame.middle */
    double all_s;                      /* the floor with all kept */
    uint32_t *class_of;                /* (units) those of a class save the same */
    uint32_t class_count;
    bool adds_up;
};

/* Bounds of a strategy that keeps nothing, and of the units that `texts` (units) name, each as
 * strategy.keep_units; `all` names all of them. `evaluators` are one for each thread of the pool.
 * False: no frame of it can be made. The caller owns *out: kept_bounds_free. */
bool kept_bounds_new(const struct stream_class *stream_class, const struct strategy *strategy,
                     const char *const *texts, uint32_t units, const char *all,
                     struct evaluator *const *evaluators, struct pool *pool,
                     struct kept_bounds *out);
void kept_bounds_free(struct kept_bounds *bounds);

/* Bytes of a device that any choice takes at least that keeps these: kept (units). */
uint64_t kept_bounds_bytes(const struct kept_bounds *bounds, const bool *kept);

/* Seconds that any choice takes at least that gathers these again: gathered (units). */
double kept_bounds_step(const struct kept_bounds *bounds, const bool *gathered);

/* Seconds that any choice within so many bytes takes at least: over how many of each class are
 * kept, wherever they are; INFINITY: none is. */
double kept_bounds_least(const struct kept_bounds *bounds, uint64_t limit_bytes);

#endif

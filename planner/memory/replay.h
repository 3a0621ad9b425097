/* replay.h - the memory of a plan: the caching allocator run over the program.
 *
 * Nothing is estimated. The program's allocs and frees are handed to the allocator in host order:
 * once for the first step, which also makes the optimizer's states, and once more for the steady
 * state that is reported. Requested bytes are summed beside it. */
#ifndef SHARDPLAN_REPLAY_H
#define SHARDPLAN_REPLAY_H

#include "memory/allocator.h"
#include "memory/deferred.h"
#include "plan/plan.h"

/* Where in a step the host is; a peak belongs to one. */
#define PART_MAP(X)                                                                                \
    X(FORWARD, "forward")                                                                          \
    X(LOSS, "loss")                                                                                \
    X(BACKWARD_HEAD, "backward_head")                                                              \
    X(BACKWARD_BLOCKS, "backward_blocks")                                                          \
    X(OPTIMIZER, "optimizer")

enum step_part {
#define X(name, text) PART_##name,
    PART_MAP(X)
#undef X
        PART_COUNT
};

struct memory_moment {
    uint64_t bytes;
    uint32_t instruction; /* id of the alloc that reached it */
    enum step_part part;
};

struct memory {
    struct memory_moment requested;   /* tensor bytes, as data/truth counts: no rounding, no kernel
                                         workspaces, CPU step counters included */
    struct memory_moment allocated;   /* on the device, as torch.cuda.max_memory_allocated() */
    uint64_t reserved_bytes;          /* peak of segments held */
    uint64_t requested_rounded_bytes; /* peak of requests rounded up to 512 each */
    uint64_t categories[CATEGORY_COUNT]; /* requested bytes at the requested peak */
    uint64_t live[PLAN_MARK_COUNT];      /* requested bytes at each mark of the last micro-batch */
    uint64_t part_peaks[PART_COUNT];
    uint64_t host_bytes; /* resident on the CPU (offload, step counters) */
    /* The same sums of the device's buffers alone and of the host's, each at its own peak. */
    struct memory_moment device, host;
    uint64_t device_live[PLAN_MARK_COUNT], device_part_peaks[PART_COUNT];
    uint64_t device_categories[CATEGORY_COUNT],
        host_categories[CATEGORY_COUNT]; /* CATEGORY_WORKSPACE: what copies make for themselves */
    uint64_t host_pinned_bytes;          /* at the host's peak: what is pinned */
    uint64_t host_held_bytes; /* what a process takes of the host for all of it, at most, from the
                                 first step on (plan/host_held.h) */
    uint64_t first_step_reserved_bytes;
    bool repeats; /* of a plan with repeats: in every step, as far as it came, the last micro-batch
                     found the allocator, and each buffer alive, as the one before it did: so would
                     any between them */
    bool out_of_memory;           /* the allocator's capacity was reached */
    struct memory_moment failure; /* then: what was asked for, and where */
};

struct memory_options {
    struct allocator_settings allocator;
    uint64_t workspace_bytes[2]; /* cuBLAS workspaces, of the forward and of the backward thread:
                                    allocated at their first matmul, never freed; 0: none */
    bool without_allocator;      /* requested bytes only: allocated and reserved stay 0 */
    uint64_t enough_bytes; /* more reserved than that ends the replay as if memory had run out,
                              with nothing given back; 0: no end */
    uint32_t steps_before; /* the one that is reported; 0: one, the first */
    const struct deferred_clock *clock; /* of each step; NULL: there is none (deferred.h) */

    /* For memory snapshots; each may be NULL. Before each buffer that is there before the first
     * step, before every instruction of every step, and with the allocator as it is after the last
     * one. */
    void (*before_buffer)(void *context, const struct plan *plan, uint32_t buffer);
    void (*before)(void *context, const struct plan *plan, uint32_t instruction, bool first_step);
    void (*at_end)(void *context, const struct allocator *allocator);
    void *hook_context;
};

/* One point of a memory curve: after instruction `instruction` of the steady-state step. */
struct memory_point {
    uint32_t instruction;
    uint64_t requested, allocated, reserved;
    uint64_t categories[CATEGORY_COUNT]; /* requested */
    uint64_t host;                       /* of what is requested, the host's part */
    uint64_t host_categories[CATEGORY_COUNT];
};

/* Called for each alloc, free and mark of the steady-state step, after it took effect. */
typedef void memory_visitor(void *context, const struct plan *plan,
                            const struct memory_point *point);

/* Replays the plan (lent). Running out of the allocator's capacity is a result, not an error.
 * visit may be NULL. */
enum err_code memory_replay(const struct plan *plan, const struct memory_options *options,
                            memory_visitor *visit, void *context, struct memory *out,
                            struct err *err);

const char *step_part_name(enum step_part part);

#endif

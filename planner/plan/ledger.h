/* ledger.h - a program's allocs and frees on the device and nothing else, pool by pool: what the
 * caching allocator's segments follow from (memory/placer.h).
 *
 *     plan      alloc b7 64 MiB, alloc b8 2 KiB, kernel, free b7, ...
 *     ledger    large, compute:   +0 131072   -0 ...        sizes in units of 512 bytes
 *               small, compute:   +0 4 ...
 *
 * The allocator keeps blocks of each stream apart, and a stream's small from its large ones; while
 * nobody refuses it memory no pool hears of another. So each has a list of its own, in which a
 * buffer is a slot: programs whose lists are equal reserve the same. */
#ifndef SHARDPLAN_LEDGER_H
#define SHARDPLAN_LEDGER_H

#include "base/request.h"
#include "plan/plan.h"

#define LEDGER_UNIT REQUEST_UNIT           /* bytes, to which the allocator rounds */
#define LEDGER_SMALL ((uint64_t)1 << 20)   /* bytes of the largest request of a small pool */
#define LEDGER_LARGEST ((uint64_t)1 << 38) /* a larger request breaks the ledger */

enum { LEDGER_POOLS = 2 * LANES_MOST };

enum { /* flags of an event, below its slot */
       LEDGER_FREE = 1,
       LEDGER_FIRST_STEP = 2,  /* as PLAN_FIRST_STEP */
       LEDGER_LATER_STEPS = 4, /* as PLAN_LATER_STEPS */
       LEDGER_SHIFT = 4        /* event.what >> LEDGER_SHIFT: the slot */
};

struct ledger_event {
    uint32_t what;  /* slot and flags */
    uint32_t units; /* of an alloc; else 0 */
};

struct ledger_list { /* zero-initialise; owned by whoever has it: free(at) */
    struct ledger_event *at;
    uint32_t count, cap;
};

struct ledger_mark { /* a micro-batch begins: so many of the pool are before it */
    uint32_t event, slot;
};

struct ledger_pool {
    struct ledger_list before; /* allocs before the first step */
    struct ledger_list step;
    uint32_t slots;               /* so many are used */
    struct ledger_mark begins[3]; /* of the last micro-batches: two, and the last one */
};

/* What the step does to a buffer first. */
enum ledger_begin { LEDGER_NOTHING, LEDGER_ALLOCATED, LEDGER_FREED };

struct ledger_place { /* of a buffer of the program */
    uint32_t slot;    /* UINT32_MAX: none yet */
    enum ledger_begin begin;
};

struct ledger { /* zero-initialise; its memory serves one program after another: ledger_free */
    struct ledger_pool pools[LEDGER_POOLS]; /* by ledger_pool_of */
    struct ledger_place *places;            /* (place_count) */
    uint32_t place_count, place_cap;
    uint32_t micro_batches;
    bool broken; /* the lists do not say all: blocks come back later than their frees, or a buffer
                    is too large */
};

static inline uint32_t ledger_pool_of(uint8_t lane, uint64_t bytes)
{
    return 2U * lane + (bytes <= LEDGER_SMALL);
}

static inline uint8_t ledger_lane(uint32_t pool)
{
    return (uint8_t)(pool / 2);
}

/* As the allocator rounds a request, which is for more than nothing. */
static inline uint64_t ledger_round(uint64_t bytes)
{
    return request_round(bytes);
}

static inline uint32_t ledger_units(uint64_t bytes)
{
    return (uint32_t)(ledger_round(bytes) / LEDGER_UNIT);
}

/* Whether a ledger has the buffer at all. */
static inline bool ledger_has(const struct buffer *buffer)
{
    return buffer->pool != LANE_HOST && buffer->bytes > 0;
}

static inline void ledger_add(struct ledger_list *list, struct ledger_event event)
{
    ARRAY_GROW(list->at, list->count, list->cap);
    list->at[list->count++] = event;
}

/* Another program. The first slots of each pool (LEDGER_POOLS of them) are the caller's own, who
 * adds their events himself. */
void ledger_begin(struct ledger *ledger, const uint32_t *own_slots);
/* The slot of buffer `index` of the program; ledger_has(buffer). */
uint32_t ledger_slot(struct ledger *ledger, uint32_t index, const struct buffer *buffer);
/* The buffer is allocated, or freed (LEDGER_FREE among the flags). */
void ledger_note(struct ledger *ledger, uint32_t index, const struct buffer *buffer,
                 uint32_t flags);
/* A micro-batch begins. */
void ledger_micro_batch(struct ledger *ledger);
/* Whether the micro-batch before the last does in every pool what the one before it does, in slots
 * of its own: then it may stand for more of them, if both find the same (placer_is_steady). */
bool ledger_repeats(const struct ledger *ledger);
/* The program is complete: its residents that are there before the first step are put down. */
void ledger_close(struct ledger *ledger, const struct plan *plan);
void ledger_free(struct ledger *ledger);

#endif

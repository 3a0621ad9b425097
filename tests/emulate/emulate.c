/* emulate.c - threads of a block as fibers: each runs until it waits at a barrier, exchanges with
 * its warp, or ends; then the next one's turn comes.
 *
 *     barrier    passes when every thread that has not ended waits at it
 *     exchange   passes when every lane of the warp waits at it
 *
 * A warp goes on as far as it can before the next one's turn comes: its stacks are in the cache. A
 * thread that ends leaves its stack to the next one that begins, so that a kernel in which nobody
 * waits is a loop on one stack.
 *
 * If nobody can go on, the kernel would hang on a GPU (or its lanes disagree about a shuffle): that
 * ends the program. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Stacks are no power of two apart: of those that are, all tops are in one set of the cache. */
enum {
    LANES = 32,
    MOST_THREADS = 1024,
    MOST_WARPS = MOST_THREADS / LANES,
    STACK_BYTES = (1 << 16) + 13 * 64
};

struct emulated_place {
    unsigned x, y, z;
};

struct emulated_place emulated_thread, emulated_block, emulated_block_size, emulated_grid;
void emulate_grid(struct emulated_place blocks, struct emulated_place threads,
                  void (*body)(void *context), void *context);
int emulate_barrier(int flag);
const uint64_t *emulate_exchange(uint64_t own);
void emulate_fiber_main(void);

struct fiber {
    void *stack_pointer; /* NULL: it has not begun */
    char *stack;
    struct emulated_place place;
};

/* Of lanes a bit each. */
struct warp {
    uint32_t ready, at_barrier;
    unsigned at_exchange, round;  /* so many lanes wait; exchanges that passed */
    uint64_t exchanged[2][LANES]; /* in this round and in the one before, which is still read */
};

static struct {
    struct fiber fiber[MOST_THREADS];
    struct warp warp[MOST_WARPS];
    uint32_t ready_warps;                    /* a bit each: one of its lanes is ready */
    unsigned count, current, ended, waiting; /* at the barrier */
    char *stacks, *spare[MOST_THREADS];
    unsigned spare_count;
    void *scheduler; /* its stack pointer */
    void (*body)(void *context);
    void *context;
    int barrier_flag, barrier_result;
} all;

/* Goes on where `to` was saved (System V, x86-64). Behind the red zone, and by a jump: a return
 * would be predicted to where the other context was called from, and threads of a block mostly go
 * on at one place. */
static inline void switch_to(void **from, void *to)
{
    __asm__ volatile("leaq -128(%%rsp), %%rsp\n"
                     "pushq %%rbp\n"
                     "leaq 1f(%%rip), %%rax\n"
                     "pushq %%rax\n"
                     "movq %%rsp, (%0)\n"
                     "movq %1, %%rsp\n"
                     "popq %%rax\n"
                     "jmp *%%rax\n"
                     "1: popq %%rbp\n"
                     "leaq 128(%%rsp), %%rsp\n"
                     : "+D"(from), "+S"(to)
                     :
                     : "rax", "rbx", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
                       "r15", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7",
                       "xmm8", "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "cc",
                       "memory");
}

static unsigned warps(void)
{
    return (all.count + LANES - 1) / LANES;
}

static unsigned lanes_of(unsigned warp)
{
    const unsigned rest = all.count - warp * LANES;
    return rest < LANES ? rest : LANES;
}

/* ---- whose turn it is ---- */

static void make_ready(unsigned warp, uint32_t lanes)
{
    all.warp[warp].ready |= lanes;
    if (lanes)
        all.ready_warps |= 1U << warp;
}

/* All wait at the barrier who have not ended. */
static bool pass_barrier(void)
{
    if (all.waiting == 0 || all.waiting + all.ended != all.count)
        return false;
    all.barrier_result = all.barrier_flag;
    all.barrier_flag = 0;
    all.waiting = 0;
    for (unsigned w = 0; w < warps(); w++) {
        make_ready(w, all.warp[w].at_barrier);
        all.warp[w].at_barrier = 0;
    }
    return true;
}

/* Of a warp's lanes the first that is ready has its turn: false: there is none. */
static inline bool take_lane(unsigned warp)
{
    const uint32_t ready = all.warp[warp].ready;
    if (!ready)
        return false;
    all.warp[warp].ready = ready & (ready - 1);
    all.current = warp * LANES + (unsigned)__builtin_ctz(ready);
    return true;
}

/* The next one's turn, in the warp that is running before others: all.current, or false: nobody can
 * go on. */
static bool take_turn(unsigned warp)
{
    if (take_lane(warp))
        return true;
    do {
        for (; all.ready_warps; all.ready_warps &= all.ready_warps - 1)
            if (take_lane((unsigned)__builtin_ctz(all.ready_warps)))
                return true;
    } while (pass_barrier());
    return false;
}

static void begin_here(struct fiber *fiber, char *stack)
{
    const unsigned i = all.current, x = emulated_block_size.x, y = emulated_block_size.y;
    fiber->stack = stack;
    fiber->place = i < x ? (struct emulated_place){i, 0, 0}
                         : (struct emulated_place){i % x, i / x % y, i / x / y};
    emulated_thread = fiber->place;
}

/* On a stack of its own; where that is. */
static void *begin(struct fiber *fiber)
{
    char *stack = all.spare[--all.spare_count];
    void **top = (void **)(void *)(stack + STACK_BYTES);
    void (*entry)(void) = emulate_fiber_main;
    *--top = NULL; /* keeps the stack aligned as at a function's entry */
    *--top = NULL;
    memcpy(top, &entry, sizeof entry);
    begin_here(fiber, stack);
    return top;
}

static inline void *entry_of(struct fiber *fiber)
{
    return fiber->stack_pointer ? fiber->stack_pointer : begin(fiber);
}

/* From this one to another, until its turn comes again. */
static inline void change(struct fiber *self, void *to)
{
    switch_to(&self->stack_pointer, to);
    emulated_thread = self->place;
}

/* This one waits: goes on with the next, which may be itself. */
static void give_way(struct fiber *self)
{
    const bool found = take_turn(all.current / LANES);
    if (!found || &all.fiber[all.current] != self)
        change(self, found ? entry_of(&all.fiber[all.current]) : all.scheduler);
}

void emulate_fiber_main(void)
{
    for (;;) {
        struct fiber *self = &all.fiber[all.current];
        char *stack = self->stack;
        all.body(all.context);
        all.ended++;
        const bool found = take_turn(all.current / LANES);
        struct fiber *next = &all.fiber[all.current];
        if (found && !next->stack_pointer) {
            begin_here(next, stack);
            continue;
        }
        all.spare[all.spare_count++] = stack;
        switch_to(&self->stack_pointer, found ? next->stack_pointer : all.scheduler);
        abort(); /* who has ended has no turn */
    }
}

/* ---- where they wait ---- */

int emulate_barrier(int flag)
{
    struct warp *warp = &all.warp[all.current / LANES];
    all.barrier_flag |= flag != 0;
    all.waiting++;
    warp->at_barrier |= 1U << all.current % LANES;
    give_way(&all.fiber[all.current]);
    return all.barrier_result;
}

/* They are there until all lanes have come to the next exchange. */
const uint64_t *emulate_exchange(uint64_t own)
{
    const unsigned current = all.current;
    struct warp *warp = &all.warp[current / LANES];
    struct fiber *self = &all.fiber[current];
    uint64_t *exchanged = warp->exchanged[warp->round % 2];
    exchanged[current % LANES] = own;
    if (++warp->at_exchange == LANES) {
        warp->at_exchange = 0;
        warp->round++;
        make_ready(current / LANES, UINT32_MAX);
    }
    if (take_lane(current / LANES))
        change(self, entry_of(&all.fiber[all.current]));
    else
        give_way(self);
    return exchanged;
}

/* ---- blocks ---- */

static void run_block(void)
{
    all.ended = all.waiting = 0;
    for (unsigned i = 0; i < all.count; i++)
        all.fiber[i].stack_pointer = NULL;
    for (unsigned w = 0; w < warps(); w++) {
        all.warp[w].at_barrier = all.warp[w].at_exchange = 0;
        make_ready(w, UINT32_MAX >> (LANES - lanes_of(w)));
    }
    all.spare_count = MOST_THREADS;
    take_turn(0);
    switch_to(&all.scheduler, entry_of(&all.fiber[all.current]));
    if (all.ended < all.count) {
        fprintf(stderr, "emulate: a block hangs: its threads wait for each other\n");
        abort();
    }
}

static void make_stacks(void)
{
    all.stacks = malloc((size_t)MOST_THREADS * STACK_BYTES);
    if (!all.stacks)
        abort();
    for (size_t i = 0; i < MOST_THREADS; i++)
        all.spare[MOST_THREADS - 1 - i] = all.stacks + i * STACK_BYTES;
}

void emulate_grid(struct emulated_place blocks, struct emulated_place threads,
                  void (*body)(void *context), void *context)
{
    if (!all.stacks)
        make_stacks();
    if (threads.x * threads.y * threads.z > MOST_THREADS)
        abort();
    all.count = threads.x * threads.y * threads.z;
    all.body = body;
    all.context = context;
    emulated_block_size = threads;
    emulated_grid = blocks;
    for (unsigned z = 0; z < blocks.z; z++)
        for (unsigned y = 0; y < blocks.y; y++)
            for (unsigned x = 0; x < blocks.x; x++) {
                emulated_block = (struct emulated_place){x, y, z};
                run_block();
            }
}

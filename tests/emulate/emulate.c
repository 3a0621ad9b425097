/* emulate.c - threads of a block as fibers: each has a stack and runs until it waits at a barrier,
 * exchanges with its warp, or ends; then the next one's turn comes.
 *
 *     barrier    passes when every thread that has not ended waits at it
 *     exchange   passes when every lane of the warp waits at it
 *
 * If a whole round moves nobody, the kernel would hang on a GPU (or its lanes disagree about a
 * shuffle): that ends the program. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Stacks are no power of two apart: of those that are, all tops are in one set of the cache. */
enum { LANES = 32, MOST_THREADS = 1024, STACK_BYTES = (1 << 16) + 13 * 64 };

struct emulated_place {
    unsigned x, y, z;
};

struct emulated_place emulated_thread, emulated_block, emulated_block_size, emulated_grid;
void emulate_grid(struct emulated_place blocks, struct emulated_place threads,
                  void (*body)(void *context), void *context);
int emulate_barrier(int flag);
const uint64_t *emulate_exchange(uint64_t own);
void emulate_fiber_main(void);

enum state { READY, AT_BARRIER, AT_EXCHANGE, ENDED };

struct fiber {
    void *stack_pointer;
    struct emulated_place place;
    enum state state;
    uint64_t value; /* to exchange */
};

static struct {
    struct fiber fiber[MOST_THREADS];
    char *stacks;
    unsigned count, current, ended;
    void *scheduler; /* its stack pointer */
    void (*body)(void *context);
    void *context;
    int barrier_flag, barrier_result;
    uint64_t exchanged[MOST_THREADS]; /* of each warp, what its lanes gave last */
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

/* The next thread, from this one on, that has nothing to wait for, or the scheduler: goes on there.
 */
static void go_on(void **from, unsigned i)
{
    while (i < all.count && all.fiber[i].state != READY)
        i++;
    all.current = i;
    switch_to(from, i < all.count ? all.fiber[i].stack_pointer : all.scheduler);
}

static void give_way(enum state state)
{
    struct fiber *self = &all.fiber[all.current];
    self->state = state;
    go_on(&self->stack_pointer, all.current + 1);
    emulated_thread = self->place;
}

void emulate_fiber_main(void)
{
    emulated_thread = all.fiber[all.current].place;
    all.body(all.context);
    all.ended++;
    give_way(ENDED);
    abort(); /* an ended fiber has no turn */
}

int emulate_barrier(int flag)
{
    all.barrier_flag |= flag != 0;
    give_way(AT_BARRIER);
    return all.barrier_result;
}

/* They are there until all lanes have come to the next exchange. */
const uint64_t *emulate_exchange(uint64_t own)
{
    all.fiber[all.current].value = own;
    give_way(AT_EXCHANGE);
    return &all.exchanged[all.current / LANES * LANES];
}

static void start_fiber(unsigned i)
{
    struct fiber *fiber = &all.fiber[i];
    void **top = (void **)(void *)(all.stacks + (size_t)(i + 1) * STACK_BYTES);
    void (*entry)(void) = emulate_fiber_main;
    *--top = NULL; /* keeps the stack aligned as at a function's entry */
    *--top = NULL;
    memcpy(top, &entry, sizeof entry);
    fiber->stack_pointer = top;
    fiber->state = READY;
    const unsigned x = emulated_block_size.x, y = emulated_block_size.y;
    fiber->place = (struct emulated_place){i % x, i / x % y, i / x / y};
}

/* Lets every warp whose lanes all wait go on, with what they gave. */
static int pass_exchanges(void)
{
    int moved = 0;
    for (unsigned first = 0; first < all.count; first += LANES) {
        unsigned waiting = 0;
        for (unsigned i = first; i < first + LANES && i < all.count; i++)
            waiting += all.fiber[i].state == AT_EXCHANGE;
        if (waiting != LANES)
            continue;
        for (unsigned i = first; i < first + LANES; i++) {
            all.exchanged[i] = all.fiber[i].value;
            all.fiber[i].state = READY;
        }
        moved = 1;
    }
    return moved;
}

static int pass_barrier(void)
{
    unsigned waiting = 0, ended = 0;
    for (unsigned i = 0; i < all.count; i++) {
        waiting += all.fiber[i].state == AT_BARRIER;
        ended += all.fiber[i].state == ENDED;
    }
    if (waiting == 0 || waiting + ended != all.count)
        return 0;
    all.barrier_result = all.barrier_flag;
    all.barrier_flag = 0;
    for (unsigned i = 0; i < all.count; i++)
        if (all.fiber[i].state == AT_BARRIER)
            all.fiber[i].state = READY;
    return 1;
}

static void run_block(void)
{
    all.ended = 0;
    for (unsigned i = 0; i < all.count; i++)
        start_fiber(i);
    go_on(&all.scheduler, 0);
    while (all.ended < all.count) {
        const int exchanged = pass_exchanges();
        if (!pass_barrier() && !exchanged) {
            fprintf(stderr, "emulate: a block hangs: its threads wait for each other\n");
            abort();
        }
        go_on(&all.scheduler, 0);
    }
}

void emulate_grid(struct emulated_place blocks, struct emulated_place threads,
                  void (*body)(void *context), void *context)
{
    if (!all.stacks)
        all.stacks = malloc((size_t)MOST_THREADS * STACK_BYTES);
    if (!all.stacks || threads.x * threads.y * threads.z > MOST_THREADS)
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

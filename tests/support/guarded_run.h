/* guarded_run.h - a plan.json, read and run as shardrun does, on the host backend with little
 * memory, of which only the buffers that are alive may be touched.
 *
 *     segment   |poisoned|  block of b3  |poisoned| block of b9 |poisoned .....|
 *
 * Under AddressSanitizer, whatever reads or writes beside a block ends the program; without it only
 * what the system itself does not let pass. For that each piece of work runs to its end before the
 * host goes on, and BLAS is a plain one that is looked into, too. Memory, streams and files cost
 * nothing of note, so that a fuzzer spends its time in what is tested. */
#ifndef SHARDPLAN_TEST_GUARDED_RUN_H
#define SHARDPLAN_TEST_GUARDED_RUN_H

#include "plan/plan_json.h"
#include "plan/plan_rank.h"
#include "runtime/execution/execute_parts.h"
#include "runtime/host/host_device.h"

#include <cblas.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__clang__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, bytes) ((void)(address), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes) ((void)(address), (void)(bytes))
#endif

enum { GUARDED_BYTES = 48 << 20, GUARDED_SEGMENTS = 64, GUARDED_STEPS = 2, GUARDED_WORLD = 4096 };

/* ---- a device that guards ---- */

/* Streams that do at once what they are given: what a plan may touch does not depend on when. The
 * memory is one mapping for all runs. */
struct guarded {
    struct device device; /* first */
    uint32_t events;
    const struct execution *execution; /* NULL: not open yet */
    uint64_t *open;                    /* (buffers) where each may be touched; 0: nowhere */
    struct {
        uint64_t address, bytes;
        bool shut; /* it holds blocks: what is not in one may not be touched */
    } segment[GUARDED_SEGMENTS];
};

static inline uint64_t guarded_base(void)
{
    static void *map;
    if (!map)
        map = mmap(NULL, GUARDED_BYTES, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        abort();
    return (uint64_t)(uintptr_t)map;
}

static inline uint64_t guarded_address(const struct allocator_block *block)
{
    return block ? allocator_block_address(block) : 0;
}

/* The segment of an address: an index, GUARDED_SEGMENTS: none. */
static inline int guarded_segment(const struct guarded *g, uint64_t address)
{
    int i = 0;
    while (i < GUARDED_SEGMENTS && !(g->segment[i].address && address >= g->segment[i].address &&
                                     address - g->segment[i].address < g->segment[i].bytes))
        i++;
    return i;
}

static inline void guarded_shut(uint64_t address, uint64_t bytes)
{
    ASAN_POISON_MEMORY_REGION((void *)(uintptr_t)address, bytes);
}

static inline void guarded_unshut(uint64_t address, uint64_t bytes)
{
    ASAN_UNPOISON_MEMORY_REGION((void *)(uintptr_t)address, bytes);
}

/* A block is gone: its segment, which may be another's by now, no longer has it. */
static inline void guarded_close_block(const struct guarded *g, uint64_t address, uint64_t bytes)
{
    const int i = guarded_segment(g, address);
    if (i < GUARDED_SEGMENTS && g->segment[i].shut)
        guarded_shut(address, bytes);
}

/* Segments that hold blocks are the allocator's; the executor's own have none. */
static inline void guarded_open_block(struct guarded *g, uint64_t address, uint64_t bytes)
{
    const int i = guarded_segment(g, address);
    if (i < GUARDED_SEGMENTS && !g->segment[i].shut) {
        guarded_shut(g->segment[i].address, g->segment[i].bytes);
        g->segment[i].shut = true;
    }
    guarded_unshut(address, bytes);
}

/* Before anything is touched: what is alive now may be, and nothing else. */
static inline void guarded_look(struct guarded *g)
{
    const struct execution *e = g->execution;
    for (uint32_t b = 0; e && b < e->plan->buffer_count; b++)
        if (g->open[b] && g->open[b] != guarded_address(e->block[b]))
            guarded_close_block(g, g->open[b], e->plan->buffers[b].bytes);
    for (uint32_t b = 0; e && b < e->plan->buffer_count; b++) {
        const uint64_t now = guarded_address(e->block[b]);
        if (now && now != g->open[b])
            guarded_open_block(g, now, e->plan->buffers[b].bytes);
        g->open[b] = now;
    }
}

static inline enum err_code guarded_launch(struct device *dev, uint8_t stream,
                                           const struct work *work, struct err *err)
{
    (void)stream;
    guarded_look((struct guarded *)dev);
    return host_run_alone(work, err);
}

static inline enum err_code guarded_write(struct device *dev, uint64_t to, const void *from,
                                          uint64_t bytes, struct err *err)
{
    (void)err;
    guarded_look((struct guarded *)dev);
    memcpy((void *)(uintptr_t)to, from, bytes);
    return ERR_OK;
}

static inline enum err_code guarded_read(struct device *dev, void *to, uint64_t from,
                                         uint64_t bytes, struct err *err)
{
    (void)err;
    guarded_look((struct guarded *)dev);
    memcpy(to, (const void *)(uintptr_t)from, bytes);
    return ERR_OK;
}

/* The first gap that is wide enough. */
static inline uint64_t guarded_gap(const struct guarded *g, uint64_t bytes)
{
    uint64_t at = guarded_base();
    for (int i = 0; i < GUARDED_SEGMENTS; i++) {
        const uint64_t address = g->segment[i].address, end = address + g->segment[i].bytes;
        if (address && address < at + bytes && end > at) {
            at = end;
            i = -1; /* those before it, again */
        }
        if (bytes > GUARDED_BYTES || at + bytes > guarded_base() + GUARDED_BYTES)
            return 0;
    }
    return at;
}

static inline uint64_t guarded_segment_new(struct device *dev, uint64_t bytes)
{
    struct guarded *g = (struct guarded *)dev;
    for (int i = 0; i < GUARDED_SEGMENTS; i++) {
        if (g->segment[i].address)
            continue;
        g->segment[i].address = guarded_gap(g, bytes);
        g->segment[i].bytes = bytes;
        g->segment[i].shut = false;
        return g->segment[i].address;
    }
    return 0;
}

static inline void guarded_segment_drop(struct device *dev, uint64_t address, uint64_t bytes)
{
    struct guarded *g = (struct guarded *)dev;
    g->segment[guarded_segment(g, address)].address = 0;
    guarded_unshut(address, bytes);
    madvise((void *)(uintptr_t)address, bytes, MADV_DONTNEED); /* the next one finds zeros */
}

static inline void *guarded_host_new(struct device *dev, uint64_t bytes)
{
    (void)dev;
    return bytes > GUARDED_BYTES ? NULL : calloc(1, bytes);
}

static inline void guarded_host_drop(struct device *dev, void *memory, uint64_t bytes)
{
    (void)dev;
    (void)bytes;
    free(memory);
}

static inline enum err_code guarded_event(struct device *dev, uint8_t stream, uint32_t event,
                                          struct err *err)
{
    (void)stream;
    (void)err;
    if (event >= ((struct guarded *)dev)->events)
        abort();
    return ERR_OK;
}

static inline enum err_code guarded_hold(struct device *dev, uint32_t event, struct err *err)
{
    return guarded_event(dev, 0, event, err);
}

static inline enum err_code guarded_sync(struct device *dev, struct err *err)
{
    (void)dev;
    (void)err;
    return ERR_OK;
}

static inline void guarded_times(struct device *dev,
                                 void (*take)(void *context, uint32_t instruction, uint8_t stream,
                                              double begin_s, double end_s),
                                 void *context)
{
    (void)dev;
    (void)take;
    (void)context;
}

static const struct device_ops guarded_ops = {
    .name = "guarded",
    .version = DEVICE_OPS_VERSION,
    .segment_new = guarded_segment_new,
    .segment_drop = guarded_segment_drop,
    .host_new = guarded_host_new,
    .host_drop = guarded_host_drop,
    .write = guarded_write,
    .read = guarded_read,
    .launch = guarded_launch,
    .record = guarded_event,
    .wait = guarded_event,
    .hold = guarded_hold,
    .sync = guarded_sync,
    .take_times = guarded_times,
};

/* In place of OpenBLAS's, so that its reads and writes are looked into. */
void cblas_sgemm(const enum CBLAS_ORDER order, const enum CBLAS_TRANSPOSE turn_a,
                 const enum CBLAS_TRANSPOSE turn_b, const blasint m, const blasint n,
                 const blasint k, const float alpha, const float *a, const blasint lda,
                 const float *b, const blasint ldb, const float beta, float *c, const blasint ldc)
{
    if (order != CblasRowMajor)
        abort();
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) {
            float sum = 0;
            for (int64_t l = 0; l < k; l++)
                sum += a[turn_a == CblasNoTrans ? i * lda + l : l * lda + i] *
                       b[turn_b == CblasNoTrans ? l * ldb + j : j * ldb + l];
            c[i * ldc + j] = alpha * sum + (beta == 0 ? 0 : beta * c[i * ldc + j]);
        }
}

/* ---- running ---- */

/* As a checkpoint does: what the rank has of each parameter and state, out and in again. */
static inline void guarded_exchange(struct execution *e, const struct plan *plan)
{
    for (uint32_t p = 0; p < plan->param_count; p++)
        for (int state = EXECUTION_GATHERED; state <= EXECUTION_EXP_AVG_SQ; state++) {
            const struct plan_piece *piece = execution_piece(plan, p, state);
            struct err err = {0};
            if (!piece)
                continue;
            const struct part part = plan_part(
                plan, state < EXECUTION_PARAM ? piece : plan_updated_piece(plan, p), plan->rank);
            float *values = malloc(part_elements(&part) * sizeof *values + 1);
            if (values && execution_read(e, p, state, values, &err) == ERR_OK)
                execution_write(e, p, state, values, &err);
            free(values);
        }
}

static inline enum err_code guarded_steps(struct guarded *g, const struct plan *plan, bool waits,
                                          struct err *err)
{
    const struct plan_input *tokens = plan_input_of(plan, INPUT_TOKENS);
    const struct run_settings settings = {
        .lr = 1e-3F, .beta1 = 0.9F, .beta2 = 0.99F, .eps = 1e-8F, .waits = waits};
    struct data *data;
    struct execution *e = NULL;
    TRY(data_open(NULL, DATA_REFERENCE, tokens ? tokens->values.vocab : 1, &data, err));
    enum err_code rc = execution_open(plan, &g->device, NULL, data, &settings, &e, err);
    g->execution = e;
    for (uint32_t step = 0; step < GUARDED_STEPS && rc == ERR_OK; step++) {
        struct step_result result;
        rc = execution_step(e, step, &result, err);
        if (rc == ERR_OK && !waits)
            guarded_exchange(e, plan);
    }
    g->execution = NULL;
    execution_close(e);
    data_close(data);
    return rc;
}

/* The same on memory of its own. */
static inline enum err_code guarded_alone(const struct plan *plan, bool waits, struct err *err)
{
    struct guarded g = {.device.ops = &guarded_ops, .events = plan->event_count};
    g.open = calloc(plan->buffer_count + 1U, sizeof *g.open);
    const enum err_code rc = g.open ? guarded_steps(&g, plan, waits, err) : ERR_NOMEM;
    free(g.open);
    return rc;
}

/* Reads a plan and runs two steps of a rank of it, alone: its kernels as waits first, which more
 * plans can, then computing. What is wrong is an error, here as anywhere; *ran: whether a step that
 * computes was begun. */
static inline enum err_code guarded_run(const char *text, size_t length, uint32_t rank, bool *ran,
                                        struct err *err)
{
    struct plan *plan;
    *ran = false;
    TRY(plan_parse_json("plan.json", text, length, &plan, err));
    enum err_code rc = ERR_OK;
    if (plan->world > GUARDED_WORLD)
        rc = err_set(err, ERR_UNSUPPORTED, "%u ranks take long", plan->world);
    if (rc == ERR_OK && rank != plan->rank && rank < plan->world && !plan->own_programs)
        rc = plan_for_rank(plan, rank, err);
    if (rc == ERR_OK) {
        struct err of_waits = {0};
        if (guarded_alone(plan, true, &of_waits) != ERR_OK && !of_waits.text[0])
            abort(); /* without a reason */
        rc = guarded_alone(plan, false, err);
        *ran = rc == ERR_OK;
    }
    plan_free(plan);
    return rc;
}

#endif

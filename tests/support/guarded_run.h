/* guarded_run.h - a plan.json, read and run as shardrun does, on the host backend with little
 * memory, of which only the buffers that are alive may be touched.
 *
 *     segment   |poisoned|  block of b3  |poisoned| block of b9 |poisoned .....|
 *
 * Under AddressSanitizer, whatever reads or writes beside a block ends the program; without it only
 * what the system itself does not let pass. For that each piece of work runs to its end before the
 * host goes on, and BLAS is a plain one that is looked into, too. */
#ifndef SHARDPLAN_TEST_GUARDED_RUN_H
#define SHARDPLAN_TEST_GUARDED_RUN_H

#include "plan/plan_json.h"
#include "plan/plan_rank.h"
#include "runtime/execution/execute_parts.h"
#include "runtime/host/host_device.h"

#include <cblas.h>
#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__clang__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, bytes) ((void)(address), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes) ((void)(address), (void)(bytes))
#endif

enum { GUARDED_BYTES = 48 << 20, GUARDED_SEGMENTS = 64, GUARDED_STEPS = 2, GUARDED_WORLD = 4096 };

/* ---- a device that guards ---- */

struct guarded {
    struct device device; /* first */
    struct device *host;
    const struct execution *execution; /* NULL: not open yet */
    struct {
        uint64_t address, bytes;
    } segment[GUARDED_SEGMENTS];
};

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

/* Segments that hold blocks are the allocator's; the executor's own have none. */
static inline void guarded_close_segments(struct guarded *g)
{
    const struct execution *e = g->execution;
    for (uint32_t b = 0; e && b < e->plan->buffer_count; b++) {
        const int i = guarded_segment(g, guarded_address(e->block[b]));
        if (i < GUARDED_SEGMENTS)
            ASAN_POISON_MEMORY_REGION((void *)(uintptr_t)g->segment[i].address,
                                      g->segment[i].bytes);
    }
    for (uint32_t b = 0; e && b < e->plan->buffer_count; b++)
        if (e->block[b])
            ASAN_UNPOISON_MEMORY_REGION((void *)(uintptr_t)guarded_address(e->block[b]),
                                        e->plan->buffers[b].bytes);
}

static inline void guarded_open_segments(struct guarded *g)
{
    for (int i = 0; i < GUARDED_SEGMENTS; i++)
        if (g->segment[i].address)
            ASAN_UNPOISON_MEMORY_REGION((void *)(uintptr_t)g->segment[i].address,
                                        g->segment[i].bytes);
}

static inline enum err_code guarded_launch(struct device *dev, uint8_t stream,
                                           const struct work *work, struct err *err)
{
    struct guarded *g = (struct guarded *)dev;
    guarded_close_segments(g);
    enum err_code rc = device_launch(g->host, stream, work, err);
    if (rc == ERR_OK)
        rc = device_sync(g->host, err);
    guarded_open_segments(g);
    return rc;
}

static inline enum err_code guarded_write(struct device *dev, uint64_t to, const void *from,
                                          uint64_t bytes, struct err *err)
{
    struct guarded *g = (struct guarded *)dev;
    guarded_close_segments(g);
    const enum err_code rc = device_write(g->host, to, from, bytes, err);
    guarded_open_segments(g);
    return rc;
}

static inline enum err_code guarded_read(struct device *dev, void *to, uint64_t from,
                                         uint64_t bytes, struct err *err)
{
    struct guarded *g = (struct guarded *)dev;
    guarded_close_segments(g);
    const enum err_code rc = device_read(g->host, to, from, bytes, err);
    guarded_open_segments(g);
    return rc;
}

static inline uint64_t guarded_segment_new(struct device *dev, uint64_t bytes)
{
    struct guarded *g = (struct guarded *)dev;
    for (int i = 0; i < GUARDED_SEGMENTS; i++) {
        if (g->segment[i].address)
            continue;
        g->segment[i].address = device_segment_new(g->host, bytes);
        g->segment[i].bytes = bytes;
        return g->segment[i].address;
    }
    return 0;
}

static inline void guarded_segment_drop(struct device *dev, uint64_t address, uint64_t bytes)
{
    struct guarded *g = (struct guarded *)dev;
    g->segment[guarded_segment(g, address)].address = 0;
    device_segment_drop(g->host, address, bytes);
}

static inline void *guarded_host_new(struct device *dev, uint64_t bytes)
{
    return bytes > GUARDED_BYTES ? NULL : device_host_new(((struct guarded *)dev)->host, bytes);
}

static inline void guarded_host_drop(struct device *dev, void *memory, uint64_t bytes)
{
    device_host_drop(((struct guarded *)dev)->host, memory, bytes);
}

static inline enum err_code guarded_record(struct device *dev, uint8_t stream, uint32_t event,
                                           struct err *err)
{
    return device_record(((struct guarded *)dev)->host, stream, event, err);
}

static inline enum err_code guarded_wait(struct device *dev, uint8_t stream, uint32_t event,
                                         struct err *err)
{
    return device_wait(((struct guarded *)dev)->host, stream, event, err);
}

static inline enum err_code guarded_hold(struct device *dev, uint32_t event, struct err *err)
{
    return device_hold(((struct guarded *)dev)->host, event, err);
}

static inline enum err_code guarded_sync(struct device *dev, struct err *err)
{
    return device_sync(((struct guarded *)dev)->host, err);
}

static inline void guarded_times(struct device *dev,
                                 void (*take)(void *context, uint32_t instruction, uint8_t stream,
                                              double begin_s, double end_s),
                                 void *context)
{
    struct guarded *g = (struct guarded *)dev;
    g->host->ops->take_times(g->host, take, context);
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
    .record = guarded_record,
    .wait = guarded_wait,
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

static inline enum err_code guarded_steps(struct guarded *g, const struct plan *plan,
                                          struct err *err)
{
    const struct plan_input *tokens = plan_input_of(plan, INPUT_TOKENS);
    const struct run_settings settings = {.lr = 1e-3F, .beta1 = 0.9F, .beta2 = 0.99F, .eps = 1e-8F};
    struct data *data;
    struct execution *e = NULL;
    TRY(data_open(NULL, DATA_REFERENCE, tokens ? tokens->values.vocab : 1, &data, err));
    enum err_code rc = execution_open(plan, &g->device, NULL, data, &settings, &e, err);
    g->execution = e;
    for (uint32_t step = 0; step < GUARDED_STEPS && rc == ERR_OK; step++) {
        struct step_result result;
        rc = execution_step(e, step, &result, err);
        if (rc == ERR_OK)
            guarded_exchange(e, plan);
    }
    device_sync(&g->device, NULL);
    g->execution = NULL;
    execution_close(e);
    data_close(data);
    return rc;
}

/* Reads a plan and runs two steps of a rank of it, alone. What is wrong is an error, here as
 * anywhere; *ran: whether a step was begun. */
static inline enum err_code guarded_run(const char *path, uint32_t rank, bool *ran, struct err *err)
{
    struct plan *plan;
    *ran = false;
    TRY(plan_read_json(path, &plan, err));
    enum err_code rc = plan->world > GUARDED_WORLD ? ERR_UNSUPPORTED : ERR_OK; /* that takes long */
    if (rc == ERR_OK && rank != plan->rank && rank < plan->world && !plan->own_programs)
        rc = plan_for_rank(plan, rank, err);
    const struct lane_list lanes = {plan->lanes, plan->lane_count};
    struct guarded g = {.device.ops = &guarded_ops};
    if (rc == ERR_OK)
        rc = device_open_host(GUARDED_BYTES, plan->event_count, lanes, NULL, &g.host, err);
    if (rc == ERR_OK) {
        rc = guarded_steps(&g, plan, err);
        *ran = rc == ERR_OK;
    }
    device_close(g.host);
    plan_free(plan);
    return rc;
}

#endif

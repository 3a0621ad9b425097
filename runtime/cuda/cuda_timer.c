/* cuda_timer.c - see cuda_timer.h.
 *
 * cudaEventElapsedTime gives milliseconds as a float, which loses microseconds after a few seconds.
 * So times are counted from the first work that was queued after the last reading: a step. What ran
 * first may be another stream's; its place on the clock is the host's when the first was queued and
 * the device was idle. */
#include "runtime/cuda/cuda_timer.h"

#include "base/arena.h"
#include "runtime/cuda/cuda_device.h"
#include "runtime/device/clock.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct span {
    cudaEvent_t begin, end;
    uint32_t instruction;
    uint8_t stream;
};

struct cuda_timer {
    bool on;
    double base_s;      /* host's clock, at the first span */
    struct span *spans; /* (cap), those below `made` have events, those below `count` a use */
    uint32_t count, made, cap;
};

struct cuda_timer *cuda_timer_new(void)
{
    struct cuda_timer *timer = xmalloc(sizeof *timer);
    *timer = (struct cuda_timer){.on = true};
    return timer;
}

void cuda_timer_free(struct cuda_timer *timer)
{
    if (!timer)
        return;
    for (uint32_t i = 0; i < timer->made; i++) {
        cudaEventDestroy(timer->spans[i].begin);
        cudaEventDestroy(timer->spans[i].end);
    }
    free(timer->spans);
    free(timer);
}

void cuda_timer_turn(struct cuda_timer *timer, bool on)
{
    timer->on = on;
}

/* Makes the events of the next span, the first time that so many are needed. */
static enum err_code make_span(struct cuda_timer *timer, struct err *err)
{
    if (timer->count < timer->made)
        return ERR_OK;
    ARRAY_GROW(timer->spans, timer->made, timer->cap);
    struct span *span = &timer->spans[timer->made];
    TRY_CUDA(err, cudaEventCreate(&span->begin));
    const enum err_code rc = cuda_check(cudaEventCreate(&span->end), "cudaEventCreate", err);
    if (rc == ERR_OK)
        timer->made++;
    else
        cudaEventDestroy(span->begin);
    return rc;
}

enum err_code cuda_timer_begin(struct cuda_timer *timer, uint8_t id, cudaStream_t stream,
                               uint32_t instruction, struct err *err)
{
    if (!timer->on)
        return ERR_OK;
    TRY(make_span(timer, err));
    struct span *span = &timer->spans[timer->count];
    span->instruction = instruction;
    span->stream = id;
    if (timer->count == 0)
        timer->base_s = clock_now_s();
    TRY_CUDA(err, cudaEventRecord(span->begin, stream));
    return ERR_OK;
}

enum err_code cuda_timer_end(struct cuda_timer *timer, cudaStream_t stream, struct err *err)
{
    if (!timer->on)
        return ERR_OK;
    TRY_CUDA(err, cudaEventRecord(timer->spans[timer->count].end, stream));
    timer->count++;
    return ERR_OK;
}

/* Seconds from the first span's begin to `event`; events of other streams may lie before it. */
static double since_base(const struct cuda_timer *timer, cudaEvent_t event)
{
    float ms = 0.0F;
    if (cudaEventElapsedTime(&ms, timer->spans[0].begin, event) != cudaSuccess) {
        cudaGetLastError(); /* work that did not end: it has no time */
        return 0.0;
    }
    return 1e-3 * (double)ms;
}

/* The same of the earliest work, which is not after the first span: 0 or less. */
static double find_earliest(const struct cuda_timer *timer)
{
    double earliest = 0.0;
    for (uint32_t i = 0; i < timer->count; i++) {
        const double begin_s = since_base(timer, timer->spans[i].begin);
        earliest = begin_s < earliest ? begin_s : earliest;
    }
    return earliest;
}

void cuda_timer_take(struct cuda_timer *timer,
                     void (*take)(void *context, uint32_t instruction, uint8_t stream,
                                  double begin_s, double end_s),
                     void *context)
{
    const double base_s = timer->base_s - find_earliest(timer);
    for (uint32_t i = 0; i < timer->count; i++) {
        const struct span *span = &timer->spans[i];
        const double begin_s = base_s + since_base(timer, span->begin);
        const double end_s = base_s + since_base(timer, span->end);
        take(context, span->instruction, span->stream, begin_s, end_s > begin_s ? end_s : begin_s);
    }
    timer->count = 0;
}

/* emulated_stream.c - see emulated_stream.h.
 *
 *     stream   first -> [ work ] -> [ record: point 3 ] -> [ wait: point 2 ] -> [ work ] <- last
 *     event    the point of its last record: a wait is for the point of its own moment
 *
 * Whose turn it is: each stream has a priority drawn at random, the highest that can go on does,
 * and now and then one is drawn anew (Burckhardt et al. 2010, "A randomized scheduler with
 * probabilistic guarantees of finding bugs": few changes of priority find most orders that
 * matter). */
#include "tests/emulate/emulated_stream.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    MOST_STREAMS = 256,
    MOST_PENDING = 1024, /* work in a queue: then a launch waits, as the driver's does */
    NOT_READY_MOST = 3,  /* so often at most, a query of what could be done says it is not */
    REDRAW = 16          /* one turn in so many draws a priority anew */
};

struct point { /* of a queue, that is passed once */
    bool passed;
    double ms;        /* when */
    unsigned holders; /* its event while no other follows it, and entries of queues */
};

struct event {
    struct point *last; /* NULL: never recorded */
};

struct entry {
    struct entry *next;
    struct point *point; /* NULL: work */
    bool waits;
    int (*run)(void *context);
    void (*drop)(void *context);
    void *context;
};

struct stream {
    struct entry *first, *last;
    unsigned pending; /* work among them */
    uint64_t priority;
};

static struct {
    pthread_mutex_t lock;
    struct stream *stream[MOST_STREAMS];
    unsigned count;
    bool has_owner;
    uint64_t random;
    double spent_ms;  /* that work has taken beyond its own time */
    pthread_t owner;  /* the thread that makes streams: others only look, unless it hangs */
    double owner_ms;  /* when it was here last */
    unsigned put_off; /* queries still to be answered "not ready" */
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

static _Thread_local cudaError_t last_error;

/* SHARDRUN_EMULATED_FAULT: the number of a piece of work that reads where nothing is. As on a GPU,
 * nobody is told when it does: every later call fails with it, for good. */
static cudaError_t broken;
static unsigned long long worked;

static cudaError_t result_of(cudaError_t rc)
{
    if (broken != cudaSuccess)
        rc = broken;
    if (rc != cudaSuccess)
        last_error = rc;
    return rc;
}

/* ---- whose turn it is; the lock is held ---- */

static void take_seed(void)
{
    const char *seed = getenv("SHARDRUN_EMULATED_SEED");
    all.random = 0x9e3779b97f4a7c15U * (seed ? strtoull(seed, NULL, 10) + 1 : 2);
}

static uint64_t draw(void)
{
    all.random ^= all.random << 13;
    all.random ^= all.random >> 7;
    all.random ^= all.random << 17;
    return all.random;
}

static void release(struct point *point)
{
    if (point && --point->holders == 0)
        free(point);
}

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
}

void emulated_spend(double ms)
{
    all.spent_ms += ms;
}

static void pop(struct stream *stream)
{
    struct entry *entry = stream->first;
    stream->first = entry->next;
    if (!stream->first)
        stream->last = NULL;
    stream->pending -= !entry->point;
    if (entry->drop)
        entry->drop(entry->context);
    release(entry->point);
    free(entry);
}

/* One entry of the stream; false: it cannot go on. */
static bool step(struct stream *stream)
{
    const struct entry *entry = stream->first;
    if (!entry)
        return false;
    if (!entry->point) {
        const char *fault = getenv("SHARDRUN_EMULATED_FAULT");
        if (broken == cudaSuccess && !entry->run(entry->context))
            return false;
        if (fault && ++worked == strtoull(fault, NULL, 10))
            broken = cudaErrorIllegalAddress;
    } else if (entry->waits) {
        if (!entry->point->passed)
            return false;
    } else {
        entry->point->passed = true;
        entry->point->ms = now_ms() + all.spent_ms;
    }
    pop(stream);
    return true;
}

/* One entry of the first stream, by priority, that can go on. */
static bool take_turn(void)
{
    bool asked[MOST_STREAMS] = {false};
    if (all.count && draw() % REDRAW == 0)
        all.stream[draw() % all.count]->priority = draw();
    for (unsigned tries = 0; tries < all.count; tries++) {
        unsigned best = 0;
        while (asked[best])
            best++;
        for (unsigned i = best + 1; i < all.count; i++)
            if (!asked[i] && all.stream[i]->priority > all.stream[best]->priority)
                best = i;
        asked[best] = true;
        if (step(all.stream[best]))
            return true;
    }
    return false;
}

static bool is_owner(void)
{
    return all.has_owner && pthread_equal(all.owner, pthread_self());
}

static void lock(void)
{
    pthread_mutex_lock(&all.lock);
    if (is_owner())
        all.owner_ms = now_ms();
}

static void unlock(void)
{
    pthread_mutex_unlock(&all.lock);
}

/* Lets time pass where no queue can go on: for the clock, or another process. */
static void rest(void)
{
    const struct timespec time = {.tv_nsec = 50000};
    unlock();
    nanosleep(&time, NULL);
    lock();
}

/* ---- queues ---- */

static struct entry *append(struct stream *stream, const struct entry *from)
{
    struct entry *entry = malloc(sizeof *entry);
    if (!entry)
        abort();
    *entry = *from;
    if (stream->last)
        stream->last->next = entry;
    else
        stream->first = entry;
    stream->last = entry;
    stream->pending += !entry->point;
    return entry;
}

cudaError_t emulated_queue(cudaStream_t id, int (*run)(void *context), void (*drop)(void *context),
                           void *context)
{
    struct stream *stream = (struct stream *)(void *)id;
    lock();
    while (stream->pending >= MOST_PENDING)
        if (!take_turn())
            rest();
    append(stream, &(struct entry){.run = run, .drop = drop, .context = context});
    unlock();
    return result_of(cudaSuccess);
}

cudaError_t emulated_queue_copy(cudaStream_t stream, int (*run)(void *context), const void *context,
                                size_t bytes)
{
    void *copy = malloc(bytes);
    if (!copy)
        abort();
    memcpy(copy, context, bytes);
    return emulated_queue(stream, run, free, copy);
}

void emulated_drain(void)
{
    lock();
    while (take_turn())
        ;
    unlock();
}

/* ---- the runtime's functions ---- */

cudaError_t cudaGetLastError(void)
{
    const cudaError_t error = last_error;
    last_error = broken;
    return error;
}

cudaError_t cudaPeekAtLastError(void)
{
    return last_error;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority)
{
    struct stream *stream = calloc(1, sizeof *stream);
    (void)flags, (void)priority;
    lock();
    if (!stream || all.count == MOST_STREAMS)
        abort();
    if (all.count == 0) /* a new device */
        take_seed();
    stream->priority = draw();
    all.stream[all.count++] = stream;
    all.owner = pthread_self();
    all.has_owner = true;
    unlock();
    *out = (cudaStream_t)(void *)stream;
    return cudaSuccess;
}

/* What can still be done is; what cannot is dropped. */
cudaError_t cudaStreamDestroy(cudaStream_t id)
{
    struct stream *stream = (struct stream *)(void *)id;
    lock();
    while (stream->first && take_turn())
        ;
    while (stream->first)
        pop(stream);
    for (unsigned i = 0; i < all.count; i++)
        if (all.stream[i] == stream)
            all.stream[i--] = all.stream[--all.count];
    free(stream);
    unlock();
    return cudaSuccess;
}

static bool is_done(const struct stream *stream, const struct event *event)
{
    if (event)
        return !event->last || event->last->passed;
    return !stream || !stream->first;
}

/* "Not ready" a few times although nothing is in its way, as a device that is busy; that is also
 * the thread's last error then. */
static cudaError_t query(const struct stream *stream, const struct event *event)
{
    const double hangs_ms = 200; /* a host that does not come: the device goes on without it */
    lock();
    const bool works = is_owner() || now_ms() - all.owner_ms > hangs_ms;
    const bool put_off = is_owner() && all.put_off > 0;
    all.put_off -= put_off;
    while (works && !put_off && !is_done(stream, event) && take_turn())
        ;
    if (is_owner() && !put_off)
        all.put_off = (unsigned)(draw() % (NOT_READY_MOST + 1));
    const bool done = !put_off && is_done(stream, event);
    unlock();
    return result_of(done ? cudaSuccess : cudaErrorNotReady);
}

cudaError_t cudaStreamQuery(cudaStream_t id)
{
    return query((const struct stream *)(const void *)id, NULL);
}

cudaError_t cudaEventQuery(cudaEvent_t id)
{
    return query(NULL, (const struct event *)(const void *)id);
}

cudaError_t cudaStreamSynchronize(cudaStream_t id)
{
    const struct stream *stream = (const struct stream *)(const void *)id;
    lock();
    while (stream->first)
        if (!take_turn())
            rest();
    unlock();
    return result_of(cudaSuccess);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    struct event *event = calloc(1, sizeof *event);
    (void)flags;
    if (!event)
        abort();
    *out = (cudaEvent_t)(void *)event;
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, 0);
}

cudaError_t cudaEventDestroy(cudaEvent_t id)
{
    struct event *event = (struct event *)(void *)id;
    lock();
    release(event->last);
    free(event);
    unlock();
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t id, cudaStream_t stream)
{
    struct event *event = (struct event *)(void *)id;
    struct point *point = calloc(1, sizeof *point);
    if (!point)
        abort();
    lock();
    release(event->last);
    event->last = point;
    point->holders = 2;
    append((struct stream *)(void *)stream, &(struct entry){.point = point});
    unlock();
    return result_of(cudaSuccess);
}

/* For the record that was queued last; an event that never was is not waited for. */
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t id, unsigned flags)
{
    const struct event *event = (const struct event *)(const void *)id;
    (void)flags;
    lock();
    if (event->last) {
        event->last->holders++;
        append((struct stream *)(void *)stream,
               &(struct entry){.point = event->last, .waits = true});
    }
    unlock();
    return result_of(cudaSuccess);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    const struct event *begin = (const struct event *)(const void *)from;
    const struct event *end = (const struct event *)(const void *)to;
    lock();
    const bool done = begin->last && begin->last->passed && end->last && end->last->passed;
    *ms = done ? (float)(end->last->ms - begin->last->ms) : 0.0F;
    unlock();
    return result_of(done ? cudaSuccess : cudaErrorNotReady);
}

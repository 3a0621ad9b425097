/* host_stream.c - see host_stream.h.
 *
 * One lock guards all queues, counters and the failure. Threads hold it between pieces of work
 * only, for about as long as it takes to unlink an entry; a lock per queue would save little and
 * make "has anything failed?" a question across locks.
 *
 *     stream      first -> [ entry ] -> [ entry ] -> ... <- last       queued: entries ever put in
 *                 running                                              passed: entries ever
 * finished
 *
 *     more        the thread sleeps here while its queue is empty
 *     moved       others sleep here until `passed` has reached what they want; `wanted` is the
 *                 least of that, so that passing a thousand entries wakes a waiter once
 *
 * Invariant: passed <= queued, and queued - passed entries are linked from `first`. */
#include "runtime/host/host_stream.h"

#include "base/arena.h"
#include "base/ending_signals.h"
#include "runtime/device/clock.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

struct entry {
    struct entry *next;
    bool waits; /* a wait for `mark`; otherwise work */
    struct host_mark mark;
    uint64_t ticket;
    struct work work;
    struct work_operand operand[];
};

struct ran { /* one piece of work that was done */
    uint32_t instruction;
    double begin_s, end_s;
};

struct stream {
    char name[16]; /* of its thread */
    struct host_streams *all;
    pthread_t thread;
    pthread_cond_t more, moved;
    struct entry *first, *last;
    uint64_t queued, passed, wanted;
    struct ran *ran;
    size_t ran_count, ran_cap;
};

struct host_streams {
    struct host_runner runner;
    pthread_mutex_t lock;
    pthread_cond_t ended; /* a thread has */
    uint32_t live;        /* threads that have not ended */
    uint32_t started;     /* threads that were started: the first so many */
    bool stopping, failed;
    struct err first_err;
    uint32_t count;
    struct stream stream[LANES_MOST];
};

/* ---- on a stream's thread; the lock is held on entry and on return ---- */

static bool skipping(const struct host_streams *all)
{
    return all->stopping || all->failed;
}

static void wake_all(struct host_streams *all)
{
    for (uint32_t i = 0; i < all->count; i++) {
        pthread_cond_broadcast(&all->stream[i].more);
        pthread_cond_broadcast(&all->stream[i].moved);
    }
}

static void fail(struct stream *stream, const struct entry *entry, enum err_code code,
                 struct err *err)
{
    struct host_streams *all = stream->all;
    if (all->failed)
        return;
    err_set(err, code, "instruction %u: %s", entry->work.instruction, err_name(code));
    err_context(err, "%s stream", stream->name);
    all->first_err = *err;
    all->failed = true;
    wake_all(all);
}

/* Sleeps until `stream` has passed `position` or nothing is to be waited for any more. */
static void await(struct stream *stream, uint64_t position)
{
    while (stream->passed < position && !skipping(stream->all)) {
        if (position < stream->wanted)
            stream->wanted = position;
        pthread_cond_wait(&stream->moved, &stream->all->lock);
    }
}

static void run_work(struct stream *stream, const struct entry *entry)
{
    struct host_streams *all = stream->all;
    const bool skip = skipping(all);
    struct err err;
    err.code = ERR_OK;
    err.text[0] = '\0';
    enum err_code code = ERR_OK;

    pthread_mutex_unlock(&all->lock);
    struct ran ran = {.instruction = entry->work.instruction};
    if (skip) {
        all->runner.skip(all->runner.context, &entry->work, entry->ticket);
    } else {
        ran.begin_s = clock_now_s();
        code = all->runner.run(all->runner.context, &entry->work, entry->ticket, &err);
        ran.end_s = clock_now_s();
    }
    pthread_mutex_lock(&all->lock);

    if (code != ERR_OK) {
        fail(stream, entry, code, &err);
    } else if (!skip) {
        ARRAY_GROW(stream->ran, stream->ran_count, stream->ran_cap);
        stream->ran[stream->ran_count++] = ran;
    }
}

static void pass(struct stream *stream)
{
    struct entry *entry = stream->first;
    stream->first = entry->next;
    if (!stream->first)
        stream->last = NULL;
    stream->passed++;
    if (stream->passed >= stream->wanted) {
        stream->wanted = UINT64_MAX; /* who still waits asks again */
        pthread_cond_broadcast(&stream->moved);
    }
    free(entry);
}

static void *stream_main(void *arg)
{
    struct stream *stream = arg;
    struct host_streams *all = stream->all;
    /* Linux wakes who sleeps up to 50 us late unless it asks for less: a rehearsal's kernels of a
     * few microseconds would take ten times as long (57 us late before, 6 us so, medians of 2,000
     * sleeps of 5 to 80 us on two cores). */
    prctl(PR_SET_TIMERSLACK, 1UL);
    pthread_mutex_lock(&all->lock);
    for (;;) {
        while (!stream->first && !all->stopping)
            pthread_cond_wait(&stream->more, &all->lock);
        if (!stream->first)
            break;
        if (stream->first->waits)
            await(&all->stream[stream->first->mark.stream], stream->first->mark.position);
        else
            run_work(stream, stream->first);
        pass(stream);
    }
    all->live--;
    pthread_cond_signal(&all->ended);
    pthread_mutex_unlock(&all->lock);
    return NULL;
}

/* ---- on the host's thread ---- */

static void monotonic_cond(pthread_cond_t *cond)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
}

static enum err_code start_threads(struct host_streams *all, struct err *err)
{
    for (uint32_t i = 0; i < all->count; i++) {
        struct stream *stream = &all->stream[i];
        pthread_mutex_lock(&all->lock);
        const int rc = ending_signals_thread(&stream->thread, stream_main, stream);
        if (rc == 0) {
            all->live++;
            all->started++;
        }
        pthread_mutex_unlock(&all->lock);
        if (rc != 0)
            return err_set(err, ERR_DEVICE, "start a thread for the %s stream: %s", stream->name,
                           strerror(rc));
        pthread_setname_np(stream->thread, stream->name);
    }
    return ERR_OK;
}

enum err_code host_streams_open(const struct host_runner *runner, struct lane_list lanes,
                                struct host_streams **out, struct err *err)
{
    struct host_streams *all = xcalloc(1, sizeof *all);
    all->runner = *runner;
    all->count = lanes.count;
    pthread_mutex_init(&all->lock, NULL);
    monotonic_cond(&all->ended);
    for (uint32_t i = 0; i < all->count; i++) {
        all->stream[i].all = all;
        snprintf(all->stream[i].name, sizeof all->stream[i].name, "%s", lanes.of[i].name);
        all->stream[i].wanted = UINT64_MAX;
        pthread_cond_init(&all->stream[i].more, NULL);
        pthread_cond_init(&all->stream[i].moved, NULL);
    }
    const enum err_code rc = start_threads(all, err);
    if (rc != ERR_OK) {
        uint32_t nothing_ran;
        host_streams_join(all, 1.0, &nothing_ran);
        host_streams_free(all);
        all = NULL;
    }
    *out = all;
    return rc;
}

static struct timespec deadline_in(double seconds)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    const int64_t ns = at.tv_nsec + (int64_t)(seconds * 1e9);
    at.tv_sec += ns / 1000000000;
    at.tv_nsec = ns % 1000000000;
    return at;
}

/* With the lock: whether a thread is in work that may never end. */
static bool waits_for_others(const struct host_streams *all, uint32_t *instruction)
{
    for (uint32_t i = 0; i < all->count; i++) {
        const struct entry *at = all->stream[i].first;
        if (at && !at->waits && all->runner.waits_for_others(at->work.kind)) {
            *instruction = at->work.instruction;
            return true;
        }
    }
    return false;
}

bool host_streams_join(struct host_streams *all, double grace_s, uint32_t *instruction)
{
    pthread_mutex_lock(&all->lock);
    all->stopping = true;
    wake_all(all);
    struct timespec at = deadline_in(grace_s);
    bool stuck = false;
    while (all->live > 0 && !stuck) {
        if (pthread_cond_timedwait(&all->ended, &all->lock, &at) != ETIMEDOUT)
            continue;
        stuck = waits_for_others(all, instruction);
        at = deadline_in(grace_s);
    }
    pthread_mutex_unlock(&all->lock);
    for (uint32_t i = 0; i < all->started && !stuck; i++)
        pthread_join(all->stream[i].thread, NULL);
    if (!stuck)
        all->started = 0;
    return !stuck;
}

void host_streams_free(struct host_streams *all)
{
    assert(all->live == 0 && all->started == 0);
    for (uint32_t i = 0; i < all->count; i++) {
        assert(!all->stream[i].first);
        pthread_cond_destroy(&all->stream[i].more);
        pthread_cond_destroy(&all->stream[i].moved);
        free(all->stream[i].ran);
    }
    pthread_cond_destroy(&all->ended);
    pthread_mutex_destroy(&all->lock);
    free(all);
}

/* With the lock. */
static enum err_code failure(const struct host_streams *all, struct err *err)
{
    if (!all->failed)
        return ERR_OK;
    return err_set(err, all->first_err.code, "%s", all->first_err.text);
}

enum err_code host_streams_check(struct host_streams *all, struct err *err)
{
    pthread_mutex_lock(&all->lock);
    const enum err_code rc = failure(all, err);
    pthread_mutex_unlock(&all->lock);
    return rc;
}

static void append(struct host_streams *all, uint8_t id, struct entry *entry)
{
    struct stream *stream = &all->stream[id];
    pthread_mutex_lock(&all->lock);
    const bool idle = !stream->first;
    if (idle)
        stream->first = entry;
    else
        stream->last->next = entry;
    stream->last = entry;
    stream->queued++;
    if (idle)
        pthread_cond_signal(&stream->more);
    pthread_mutex_unlock(&all->lock);
}

void host_streams_push(struct host_streams *all, uint8_t stream, const struct work *work,
                       uint64_t ticket)
{
    const size_t bytes = (work->ins + work->outs) * sizeof *work->operand;
    struct entry *entry = xmalloc(sizeof *entry + bytes);
    entry->next = NULL;
    entry->waits = false;
    entry->ticket = ticket;
    entry->work = *work;
    if (bytes > 0)
        memcpy(entry->operand, work->operand, bytes);
    entry->work.operand = entry->operand;
    append(all, stream, entry);
}

struct host_mark host_streams_mark(const struct host_streams *all, uint8_t stream)
{
    /* Only the host's thread changes `queued`: it may read it without the lock. */
    return (struct host_mark){.stream = stream, .position = all->stream[stream].queued};
}

void host_streams_wait(struct host_streams *all, uint8_t stream, struct host_mark mark)
{
    if (mark.stream == stream) /* its own past */
        return;
    struct entry *entry = xmalloc(sizeof *entry);
    entry->next = NULL;
    entry->waits = true;
    entry->mark = mark;
    entry->work.instruction = 0;
    append(all, stream, entry);
}

enum err_code host_streams_hold(struct host_streams *all, struct host_mark mark, struct err *err)
{
    pthread_mutex_lock(&all->lock);
    await(&all->stream[mark.stream], mark.position);
    const enum err_code rc = failure(all, err);
    pthread_mutex_unlock(&all->lock);
    return rc;
}

enum err_code host_streams_sync(struct host_streams *all, struct err *err)
{
    pthread_mutex_lock(&all->lock);
    for (uint32_t i = 0; i < all->count; i++)
        await(&all->stream[i], all->stream[i].queued);
    const enum err_code rc = failure(all, err);
    pthread_mutex_unlock(&all->lock);
    return rc;
}

void host_streams_take_times(struct host_streams *all,
                             void (*take)(void *context, uint32_t instruction, uint8_t stream,
                                          double begin_s, double end_s),
                             void *context)
{
    for (uint32_t i = 0; i < all->count; i++) {
        struct stream *stream = &all->stream[i];
        pthread_mutex_lock(&all->lock);
        struct ran *ran = stream->ran;
        const size_t count = stream->ran_count;
        stream->ran = NULL;
        stream->ran_count = stream->ran_cap = 0;
        pthread_mutex_unlock(&all->lock);
        for (size_t j = 0; j < count; j++)
            take(context, ran[j].instruction, (uint8_t)i, ran[j].begin_s, ran[j].end_s);
        free(ran);
    }
}

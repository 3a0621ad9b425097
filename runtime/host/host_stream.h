/* host_stream.h - the streams of the host device: a queue and a thread each.
 *
 * The host thread puts work and waits into the queues and goes on; each thread empties its own
 * queue in order. A place in a queue is a number, how many entries come up to it, and that is all
 * an event has to remember:
 *
 *     host:   launch  launch  mark---+      launch             wait(mark)
 *                |       |           |         |                   |
 *                v       v           |         v                   |
 *     compute  [ a1 ]  [ a2 ]   = {compute, 2} [ a3 ]  ...         |
 *     gather                                                     [ until compute has passed 2 ]
 *
 * A mark is a value: whoever waits for it took it when the wait was queued, so recording the same
 * event again, on whatever stream, cannot change what an earlier wait waits for. Recording puts
 * nothing into a queue.
 *
 * All calls are for one thread, the host's. After a failure (or when
 * stopping) the threads run through what is queued without doing it; nothing waits any more, so
 * nothing can wait for ever. */
#ifndef SHARDPLAN_HOST_STREAM_H
#define SHARDPLAN_HOST_STREAM_H

#include "base/err.h"
#include "base/kernel.h"
#include "runtime/work/work.h"

#include <stdbool.h>
#include <stdint.h>

struct host_streams; /* opaque; fields in host_stream.c */

struct host_mark { /* "everything queued on this stream so far"; all zero: nothing */
    uint8_t stream;
    uint64_t position;
};

struct host_runner { /* called on a stream's thread */
    enum err_code (*run)(void *context, const struct work *work, uint64_t ticket, struct err *err);
    /* Instead of run for work that is not done: gives up the turn that the ticket stands for. */
    void (*skip)(void *context, const struct work *work, uint64_t ticket);
    /* Whether work of this kind waits for other processes, so that it may never end. */
    bool (*waits_for_others)(enum work_kind kind);
    void *context;
};

/* Starts a thread for every lane. The caller owns *out: host_streams_join, then _free. */
enum err_code host_streams_open(const struct host_runner *runner, struct lane_list lanes,
                                struct host_streams **out, struct err *err);

/* Stops: work not begun is skipped; waits for the threads to end. False when after `grace_s` one is
 * in work that waits for others: *instruction is its id, and the threads are still there. */
bool host_streams_join(struct host_streams *streams, double grace_s, uint32_t *instruction);

/* Frees everything; host_streams_join has returned true. */
void host_streams_free(struct host_streams *streams);

/* ERR_OK, or the first failure of any stream: it stays, so that every later call reports it. */
enum err_code host_streams_check(struct host_streams *streams, struct err *err);

/* Queues a copy of `work` and its operands. */
void host_streams_push(struct host_streams *streams, uint8_t stream, const struct work *work,
                       uint64_t ticket);

struct host_mark host_streams_mark(const struct host_streams *streams, uint8_t stream);

/* Queues a wait: `stream` goes on when the mark's stream has passed it. */
void host_streams_wait(struct host_streams *streams, uint8_t stream, struct host_mark mark);

/* The caller waits for the mark, or until something has failed. */
enum err_code host_streams_hold(struct host_streams *streams, struct host_mark mark,
                                struct err *err);

/* Waits until everything queued is done, or something has failed. */
enum err_code host_streams_sync(struct host_streams *streams, struct err *err);

/* Hands out what ran since the last call, in the order of each stream. */
void host_streams_take_times(struct host_streams *streams,
                             void (*take)(void *context, uint32_t instruction, uint8_t stream,
                                          double begin_s, double end_s),
                             void *context);

#endif

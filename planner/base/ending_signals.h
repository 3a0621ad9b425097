/* ending_signals.h - signals that ask a command to end: those who have something to end or to
 * remove first hold them back and look for them. */
#ifndef SHARDPLAN_ENDING_SIGNALS_H
#define SHARDPLAN_ENDING_SIGNALS_H

#include <pthread.h>
#include <signal.h>

/* SIGINT, SIGTERM and SIGHUP, without those that are ignored (nohup's): blocked, they would wait
 * all the same. */
void ending_signals(sigset_t *out);

/* Holds them back from this thread; *before is for ending_signals_release. */
void ending_signals_hold(sigset_t *before);
void ending_signals_release(const sigset_t *before);

/* pthread_create of a thread that they pass by for good: a process whose main thread holds them
 * back is not ended through another. */
int ending_signals_thread(pthread_t *thread, void *(*run)(void *context), void *context);

#endif

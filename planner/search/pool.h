/* pool.h - a few threads that work through a range of numbers together. */
#ifndef SHARDPLAN_POOL_H
#define SHARDPLAN_POOL_H

#include <stdint.h>

struct pool; /* opaque */

/* `threads` in all, the caller's among them; 0: as many as this process may run on. A thread that
 * cannot be had is done without. */
struct pool *pool_new(uint32_t threads);
void pool_free(struct pool *pool); /* NULL is allowed */

uint32_t pool_threads(const struct pool *pool);

/* Calls work(context, i, thread) for every i below count, each once, and returns when all are done.
 * `thread` is below pool_threads: calls with the same one never overlap, so it can choose memory to
 * work in. Which thread does which i is left to chance: what work does must not depend on it. */
void pool_run(struct pool *pool, uint32_t count,
              void (*work)(void *context, uint32_t i, uint32_t thread), void *context);

#endif

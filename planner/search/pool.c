/* pool.c - see pool.h. Threads sleep between runs; in one, each takes the next number. */
#include "search/pool.h"

#include "base/arena.h"
#include "base/ending_signals.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

struct worker {
    struct pool *pool;
    pthread_t id;
    uint32_t thread;
};

struct pool {
    struct worker *workers;
    uint32_t worker_count; /* beside the caller */
    pthread_mutex_t lock;
    pthread_cond_t begin, end;
    uint64_t run;     /* how many there were */
    uint32_t working; /* workers that are not done with this one */
    bool leave;
    void (*work)(void *context, uint32_t i, uint32_t thread);
    void *context;
    uint32_t count;
    atomic_uint next;
};

static void take(struct pool *pool, uint32_t thread)
{
    for (uint32_t i; (i = atomic_fetch_add(&pool->next, 1)) < pool->count;)
        pool->work(pool->context, i, thread);
}

static void *attend(void *argument)
{
    const struct worker *worker = argument;
    struct pool *pool = worker->pool;
    uint64_t seen = 0;
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        while (pool->run == seen && !pool->leave)
            pthread_cond_wait(&pool->begin, &pool->lock);
        if (pool->leave)
            break;
        seen = pool->run;
        pthread_mutex_unlock(&pool->lock);
        take(pool, worker->thread);
        pthread_mutex_lock(&pool->lock);
        if (--pool->working == 0)
            pthread_cond_signal(&pool->end);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

static uint32_t cores(void)
{
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
}

struct pool *pool_new(uint32_t threads)
{
    struct pool *pool = xmalloc(sizeof *pool);
    *pool = (struct pool){.run = 0};
    threads = threads ? threads : cores();
    pool->workers = xmalloc(threads * sizeof *pool->workers);
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->begin, NULL);
    pthread_cond_init(&pool->end, NULL);
    while (pool->worker_count + 1 < threads) {
        struct worker *worker = &pool->workers[pool->worker_count];
        *worker = (struct worker){.pool = pool, .thread = pool->worker_count + 1};
        if (ending_signals_thread(&worker->id, attend, worker) != 0)
            break;
        pool->worker_count++;
    }
    return pool;
}

void pool_free(struct pool *pool)
{
    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->leave = true;
    pthread_cond_broadcast(&pool->begin);
    pthread_mutex_unlock(&pool->lock);
    for (uint32_t i = 0; i < pool->worker_count; i++)
        pthread_join(pool->workers[i].id, NULL);
    pthread_cond_destroy(&pool->begin);
    pthread_cond_destroy(&pool->end);
    pthread_mutex_destroy(&pool->lock);
    free(pool->workers);
    free(pool);
}

uint32_t pool_threads(const struct pool *pool)
{
    return pool->worker_count + 1;
}

void pool_run(struct pool *pool, uint32_t count,
              void (*work)(void *context, uint32_t i, uint32_t thread), void *context)
{
    pthread_mutex_lock(&pool->lock);
    pool->work = work;
    pool->context = context;
    pool->count = count;
    atomic_store(&pool->next, 0);
    pool->working = pool->worker_count;
    pool->run++;
    pthread_cond_broadcast(&pool->begin);
    pthread_mutex_unlock(&pool->lock);
    take(pool, 0);
    pthread_mutex_lock(&pool->lock);
    while (pool->working)
        pthread_cond_wait(&pool->end, &pool->lock);
    pthread_mutex_unlock(&pool->lock);
}

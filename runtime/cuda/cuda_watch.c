/* cuda_watch.c - see cuda_watch.h. */
#include "runtime/cuda/cuda_watch.h"

#include "base/arena.h"
#include "base/ending_signals.h"
#include "runtime/cuda/cuda_nccl.h"
#include "runtime/device/clock.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const double LOOK_S = 0.05, GRACE_S = 5;

struct cuda_watch {
    const struct cuda_settings *settings;
    struct cuda_nccl *nccl;
    int ordinal;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t moved; /* stopping or taken */
    bool stopping;
    struct err failure; /* written before `found`, then no more */
    atomic_bool found, taken;
};

/* The first collective that has not ended, and since when it has been that. */
struct oldest {
    uint32_t instruction; /* UINT32_MAX: none */
    double since_s;
};

/* A rank that has left while a collective has not ended has not left in peace: each step ends with
 * all ranks' losses. The collective may end between two questions, so it is asked about last. */
static enum err_code look_for_gone(const struct cuda_watch *watch, uint32_t under_way,
                                   struct err *err)
{
    uint32_t still;
    struct err gone = {0};
    if (watch->settings->host.check_whole(watch->settings->comm, &gone) == ERR_OK)
        return ERR_OK;
    TRY(cuda_nccl_watch(watch->nccl, &still, err));
    return still == under_way ? err_set(err, gone.code, "%s", gone.text) : ERR_OK;
}

static enum err_code look(const struct cuda_watch *watch, struct oldest *oldest, struct err *err)
{
    const uint32_t before = oldest->instruction;
    const double timeout_s = watch->settings->timeout_s;
    TRY(cuda_nccl_watch(watch->nccl, &oldest->instruction, err));
    if (oldest->instruction != before)
        oldest->since_s = clock_now_s();
    if (oldest->instruction == UINT32_MAX)
        return ERR_OK;
    TRY(look_for_gone(watch, oldest->instruction, err));
    if (timeout_s <= 0 || clock_now_s() - oldest->since_s <= timeout_s)
        return ERR_OK;
    return err_set(err, ERR_DEVICE,
                   "the collective of instruction %u has waited %.3g s for the others; giving up",
                   oldest->instruction, timeout_s);
}

/* Sleeps so long, or until the thread is to stop (true) or its failure was taken. */
static bool rest(struct cuda_watch *watch, double seconds)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    const int64_t ns = at.tv_nsec + (int64_t)(1e9 * seconds);
    at.tv_sec += ns / 1000000000;
    at.tv_nsec = ns % 1000000000;
    int rc = 0;
    pthread_mutex_lock(&watch->lock);
    while (!watch->stopping && !atomic_load(&watch->taken) && rc == 0)
        rc = pthread_cond_timedwait(&watch->moved, &watch->lock, &at);
    const bool stopping = watch->stopping;
    pthread_mutex_unlock(&watch->lock);
    return stopping;
}

static void *watch_main(void *context)
{
    struct cuda_watch *watch = context;
    struct oldest oldest = {UINT32_MAX, clock_now_s()};
    struct err failure = {0};
    cudaSetDevice(watch->ordinal);
    while (look(watch, &oldest, &failure) == ERR_OK)
        if (rest(watch, LOOK_S))
            return NULL;
    watch->failure = failure;
    atomic_store(&watch->found, true);
    if (rest(watch, GRACE_S) || atomic_load(&watch->taken))
        return NULL;
    char message[sizeof failure.text + 64];
    snprintf(message, sizeof message, "shardrun: rank %u: %s", watch->settings->rank, failure.text);
    watch->settings->host.give_up(watch->settings->comm, message);
    return NULL;
}

enum err_code cuda_watch_open(const struct cuda_settings *settings, struct cuda_nccl *nccl,
                              int ordinal, struct cuda_watch **out, struct err *err)
{
    struct cuda_watch *watch = xcalloc(1, sizeof *watch);
    pthread_condattr_t attr;
    *out = NULL;
    watch->settings = settings;
    watch->nccl = nccl;
    watch->ordinal = ordinal;
    pthread_mutex_init(&watch->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&watch->moved, &attr);
    pthread_condattr_destroy(&attr);
    const int rc = ending_signals_thread(&watch->thread, watch_main, watch);
    if (rc == 0) {
        pthread_setname_np(watch->thread, "watch");
        *out = watch;
        return ERR_OK;
    }
    pthread_cond_destroy(&watch->moved);
    pthread_mutex_destroy(&watch->lock);
    free(watch);
    return err_set(err, ERR_DEVICE, "start a thread that watches collectives: %s", strerror(rc));
}

static void wake(struct cuda_watch *watch, bool stopping)
{
    pthread_mutex_lock(&watch->lock);
    watch->stopping |= stopping;
    pthread_cond_signal(&watch->moved);
    pthread_mutex_unlock(&watch->lock);
}

void cuda_watch_close(struct cuda_watch *watch)
{
    if (!watch)
        return;
    wake(watch, true);
    pthread_join(watch->thread, NULL);
    pthread_cond_destroy(&watch->moved);
    pthread_mutex_destroy(&watch->lock);
    free(watch);
}

enum err_code cuda_watch_check(struct cuda_watch *watch, struct err *err)
{
    if (!watch || !atomic_load(&watch->found))
        return ERR_OK;
    if (!atomic_exchange(&watch->taken, true))
        wake(watch, false);
    return err_set(err, watch->failure.code, "%s", watch->failure.text);
}

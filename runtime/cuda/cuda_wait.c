/* cuda_wait.c - every wait of the host's thread: for a stream, for an event, for room in a stream's
 * queue. Each is a loop that asks and never blocks in the driver, so that a collective whose peers
 * are gone (cuda_watch.h) ends it.
 *
 *     stream   ... | 64 calls | mark | 64 calls | mark | ...      at most MARKS marks not passed
 *
 * A launch into a queue that is full blocks in the driver until the GPU has done some of it, which
 * it never may. The driver's own bound is about a thousand launches. */
#include "runtime/cuda/cuda_device.h"
#include "runtime/cuda/cuda_watch.h"

#include <time.h>

/* "Not ready" is an answer, but the runtime also keeps it as the thread's last error, which whoever
 * asks for that next would take for theirs. */
static cudaError_t answer(cudaError_t rc)
{
    if (rc == cudaErrorNotReady)
        cudaGetLastError();
    return rc;
}

cudaError_t cuda_ask_event(cudaEvent_t event)
{
    return answer(cudaEventQuery(event));
}

/* Spins first, for what ends at once, then sleeps between questions: longer where it has been a
 * second or so, as then it is for other ranks. */
enum err_code cuda_await(struct cuda_device *cuda, uint8_t id, cudaEvent_t event, struct err *err)
{
    enum { SPINS = 1000, MANY = 20000, REST_NS = 20000, LONG_NS = 1000000 };
    for (uint32_t tries = 0;; tries++) {
        const cudaError_t rc =
            event ? cuda_ask_event(event) : answer(cudaStreamQuery(cuda->stream[id]));
        if (rc == cudaSuccess)
            return ERR_OK;
        if (rc != cudaErrorNotReady)
            return cuda_check(rc, cuda->lane[id].name, err);
        TRY(cuda_watch_check(cuda->watch, err));
        const struct timespec rest = {.tv_nsec = tries < MANY ? REST_NS : LONG_NS};
        if (tries >= SPINS)
            nanosleep(&rest, NULL);
    }
}

enum err_code cuda_make_room(struct cuda_device *cuda, uint8_t id, struct err *err)
{
    struct lane_queue *queue = &cuda->queue[id];
    if (++queue->calls < CUDA_MARK_EVERY)
        return ERR_OK;
    cudaEvent_t *mark = &queue->mark[queue->next];
    if (*mark) /* the oldest */
        TRY(cuda_await(cuda, id, *mark, err));
    else
        TRY_CUDA(err, cudaEventCreateWithFlags(mark, cudaEventDisableTiming));
    TRY_CUDA(err, cudaEventRecord(*mark, cuda->stream[id]));
    queue->next = (queue->next + 1) % CUDA_MARKS;
    queue->calls = 0;
    return ERR_OK;
}

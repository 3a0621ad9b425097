/* emulated_cuda.c - the functions of the CUDA runtime that the cuda backend calls, on the CPU: the
 * device, memory, copies. Streams and events: emulated_stream.c. */
#include "runtime/cuda/kernels.h"
#include "tests/emulate/emulated_stream.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 1;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    return device == 0 ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = 0;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    (void)device;
    memset(properties, 0, sizeof *properties);
    memcpy(properties->name, "emulated", sizeof "emulated");
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    (void)device;
    *value = attribute == cudaDevAttrComputeCapabilityMajor ? 9 : 0;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaSuccess ? "no error" : "an error of the emulated device";
}

/* A mapping for each: a page that says how large it is, the memory, pushed to the end of its pages,
 * and a page that nobody may touch, so that a kernel that runs past its operand is stopped there.
 */
enum { PAGE = 4096, PIECE = 1 << 20 };

struct mapping {
    size_t bytes;
};

static int nothing = -1; /* a file of PIECE bytes that are all 0xff; -1: there is none */
static pthread_once_t nothing_made = PTHREAD_ONCE_INIT;

static void make_nothing(void)
{
    char bytes[PAGE];
    nothing = memfd_create("nothing", MFD_CLOEXEC);
    memset(bytes, 0xff, sizeof bytes);
    for (int done = 0; nothing >= 0 && done < PIECE; done += PAGE)
        if (write(nothing, bytes, PAGE) != PAGE) {
            close(nothing);
            nothing = -1;
        }
}

/* NaN: memory that nobody wrote may be anything. Whole pieces are pages of one file, copied where
 * they are written: of a workspace, most never are. */
static void poison(char *pages, size_t bytes)
{
    pthread_once(&nothing_made, make_nothing);
    for (; nothing >= 0 && bytes >= PIECE; pages += PIECE, bytes -= PIECE)
        if (mmap(pages, PIECE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, nothing, 0) ==
            MAP_FAILED)
            break;
    memset(pages, 0xff, bytes);
}

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    if (bytes > (size_t)2 << 30) /* what is larger is for a GPU (test_work_sizes.c) */
        return cudaErrorMemoryAllocation;
    const size_t rounded = (bytes + 15) / 16 * 16, pages = (rounded + PAGE - 1) / PAGE * PAGE;
    const size_t whole = pages + 2 * (size_t)PAGE;
    char *map = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return cudaErrorMemoryAllocation;
    mprotect(map + PAGE + pages, PAGE, PROT_NONE);
    ((struct mapping *)(void *)map)->bytes = whole;
    *memory = map + PAGE + pages - rounded;
    poison(map + PAGE, pages);
    return cudaSuccess;
}

cudaError_t cudaFree(void *memory)
{
    if (!memory)
        return cudaSuccess;
    emulated_drain();
    char *map = (char *)((uintptr_t)memory / PAGE * PAGE) - PAGE;
    return munmap(map, ((struct mapping *)(void *)map)->bytes) == 0 ? cudaSuccess
                                                                    : cudaErrorInvalidValue;
}

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned flags)
{
    (void)flags;
    return cudaMalloc(memory, bytes);
}

cudaError_t cudaFreeHost(void *memory)
{
    return cudaFree(memory);
}

/* ---- work ---- */

struct copy {
    void *to;
    const void *from; /* NULL: bytes of `value` */
    size_t bytes;
    int value;
};

static int run_copy(void *context)
{
    const struct copy *copy = context;
    if (copy->from)
        memmove(copy->to, copy->from, copy->bytes);
    else
        memset(copy->to, copy->value, copy->bytes);
    return 1;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    const struct copy copy = {to, from, bytes, 0};
    (void)kind;
    return emulated_queue_copy(stream, run_copy, &copy, sizeof copy);
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream)
{
    const struct copy copy = {memory, NULL, bytes, value};
    return emulated_queue_copy(stream, run_copy, &copy, sizeof copy);
}

struct host_function {
    cudaHostFn_t function;
    void *context;
};

static int run_host_function(void *context)
{
    const struct host_function *host = context;
    host->function(host->context);
    return 1;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *context)
{
    const struct host_function host = {function, context};
    return emulated_queue_copy(stream, run_host_function, &host, sizeof host);
}

/* ---- kernel_wait.cu, which reads the GPU's clock ---- */

struct wait {
    uint64_t *begin;
    uint64_t nanoseconds;
};

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000U + (uint64_t)now.tv_nsec;
}

static int run_clock(void *context)
{
    *((struct wait *)context)->begin = now_ns();
    return 1;
}

static int run_wait(void *context)
{
    const struct wait *wait = context;
    return now_ns() - *wait->begin >= wait->nanoseconds;
}

cudaError_t kernel_clock(uint64_t *ns, cudaStream_t stream)
{
    const struct wait wait = {ns, 0};
    return emulated_queue_copy(stream, run_clock, &wait, sizeof wait);
}

cudaError_t kernel_wait(const uint64_t *begin, uint64_t nanoseconds, cudaStream_t stream)
{
    const struct wait wait = {(uint64_t *)(uintptr_t)begin, nanoseconds};
    return emulated_queue_copy(stream, run_wait, &wait, sizeof wait);
}

/* kernel_wait.cu - time passes on a stream: what stands for the peers of a rehearsal. One thread
 * sleeps and looks at the clock, so that the other multiprocessors stay free for what overlaps. */
#include "runtime/cuda/kernel_tensor.cuh"

static __device__ __forceinline__ uint64_t clock_ns(void)
{
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

static __global__ void read_clock(uint64_t *ns)
{
    *ns = clock_ns();
}

/* Multiprocessors may be a little behind each other: then less than nothing has passed. */
static __global__ void hold(const uint64_t *begin, uint64_t nanoseconds)
{
    while ((int64_t)(clock_ns() - *begin) < (int64_t)nanoseconds)
        __nanosleep(500);
}

cudaError_t kernel_clock(uint64_t *ns, cudaStream_t stream)
{
    return kernel_launch(read_clock, 1, 1, stream, ns);
}

cudaError_t kernel_wait(const uint64_t *begin, uint64_t nanoseconds, cudaStream_t stream)
{
    return kernel_launch(hold, 1, 1, stream, begin, nanoseconds);
}

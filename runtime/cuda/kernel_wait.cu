/* kernel_wait.cu - time passes on a stream: what stands for the peers of a rehearsal. One thread
 * sleeps and looks at the clock, so that the other multiprocessors stay free for what overlaps. */
#include "runtime/cuda/kernel_tensor.cuh"

static __device__ __forceinline__ uint64_t clock_ns(void)
{
    uint64_t ns;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
    return ns;
}

static __global__ void hold(uint64_t nanoseconds)
{
    const uint64_t begin = clock_ns();
    while (clock_ns() - begin < nanoseconds)
        __nanosleep(500);
}

cudaError_t kernel_wait(uint64_t nanoseconds, cudaStream_t stream)
{
    return KERNEL_LAUNCH(hold, 1, 1, stream, nanoseconds);
}

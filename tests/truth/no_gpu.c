/* no_gpu.c - a CUDA runtime and driver that have one GPU and do nothing, preloaded by
 * record_compile.py.
 *
 * PyTorch's autograd asks for streams and devices of tensors that are fake: this answers. Every
 * call succeeds; none does anything. Names and parameters are those of cuda_runtime_api.h and
 * cuda.h. */
#include <stddef.h>
#include <string.h>

enum { ATTRIBUTE_MULTIPROCESSORS = 16, ATTRIBUTE_MAJOR = 75, ATTRIBUTE_MINOR = 76 };

#define SUCCEEDS(name, ...)                                                                        \
    int name(__VA_ARGS__);                                                                         \
    int name(__VA_ARGS__)

SUCCEEDS(cudaGetDeviceCount, int *count)
{
    *count = 1;
    return 0;
}
SUCCEEDS(cudaGetDevice, int *device)
{
    *device = 0;
    return 0;
}
SUCCEEDS(cudaSetDevice, int device)
{
    return device;
}
SUCCEEDS(cudaDeviceGetStreamPriorityRange, int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return 0;
}
SUCCEEDS(cudaStreamIsCapturing, void *stream, int *status)
{
    (void)stream;
    *status = 0;
    return 0;
}
SUCCEEDS(cudaStreamSynchronize, void *stream)
{
    (void)stream;
    return 0;
}
SUCCEEDS(cudaDeviceSynchronize, void)
{
    return 0;
}
SUCCEEDS(cudaGetLastError, void)
{
    return 0;
}
SUCCEEDS(cudaPeekAtLastError, void)
{
    return 0;
}
SUCCEEDS(cudaDriverGetVersion, int *version)
{
    *version = 13000;
    return 0;
}
SUCCEEDS(cudaEventCreateWithFlags, void **event, unsigned flags)
{
    (void)flags;
    *event = event;
    return 0;
}
SUCCEEDS(cudaEventRecord, void *event, void *stream)
{
    (void)event, (void)stream;
    return 0;
}
SUCCEEDS(cudaEventRecordWithFlags, void *event, void *stream, unsigned flags)
{
    (void)event, (void)stream, (void)flags;
    return 0;
}
SUCCEEDS(cudaStreamWaitEvent, void *stream, void *event, unsigned flags)
{
    (void)event, (void)stream, (void)flags;
    return 0;
}
SUCCEEDS(cudaEventQuery, void *event)
{
    (void)event;
    return 0;
}
SUCCEEDS(cudaEventDestroy, void *event)
{
    (void)event;
    return 0;
}
SUCCEEDS(cudaStreamCreateWithPriority, void **stream, unsigned flags, int priority)
{
    (void)flags, (void)priority;
    *stream = stream;
    return 0;
}
SUCCEEDS(cudaDeviceGetAttribute, int *value, int attribute, int device)
{
    (void)device;
    *value = attribute == ATTRIBUTE_MAJOR             ? 9
             : attribute == ATTRIBUTE_MINOR           ? 0
             : attribute == ATTRIBUTE_MULTIPROCESSORS ? 132
                                                      : 1;
    return 0;
}
SUCCEEDS(cudaGetDriverEntryPointByVersion, const char *symbol, void **function, unsigned version,
         unsigned long flags, int *found)
{
    (void)symbol, (void)version, (void)flags;
    *function = NULL;
    if (found)
        *found = 1; /* cudaDriverEntryPointSymbolNotFound */
    return 0;
}
SUCCEEDS(cudaThreadExchangeStreamCaptureMode, int *mode)
{
    (void)mode;
    return 0;
}

/* ---- the driver, which PyTorch loads by name ---- */

SUCCEEDS(cuInit, unsigned flags)
{
    (void)flags;
    return 0;
}
SUCCEEDS(cuDeviceGetCount, int *count)
{
    *count = 1;
    return 0;
}
SUCCEEDS(cuGetErrorString, int error, const char **text)
{
    (void)error;
    *text = "";
    return 0;
}
SUCCEEDS(cuCtxGetCurrent, void **context)
{
    *context = context;
    return 0;
}
SUCCEEDS(cuDevicePrimaryCtxGetState, int device, unsigned *flags, int *active)
{
    (void)device;
    *flags = 0;
    *active = 1;
    return 0;
}

/* driver.c - a libcuda.so.1 without a GPU: it takes kernels and runs none. cuDNN compiles the
 * kernel of an engine where it makes a plan, and loads it, also for a GPU that is not here; what is
 * not for that must only be found, and refuses (tests/runtime/test_cudnn_plans.c).
 *
 * Not by cuda.h's declarations: most of these are never called, and are one name each. */

enum { SUCCESS = 0, NO_DEVICE = 100, NOT_SUPPORTED = 801, VERSION = 13000 };

int cuInit(unsigned flags);
int cuDriverGetVersion(int *version);
int cuDeviceGetCount(int *count);
int cuLibraryLoadData(void **library);
int cuLibraryGetKernel(void **kernel, void *library);
int cuLibraryUnload(void *library);

int cuInit(unsigned flags)
{
    (void)flags;
    return NO_DEVICE;
}

int cuDriverGetVersion(int *version)
{
    *version = VERSION;
    return SUCCESS;
}

int cuDeviceGetCount(int *count)
{
    *count = 0;
    return SUCCESS;
}

/* Of eight parameters: the others say what is loaded. */
int cuLibraryLoadData(void **library)
{
    static char loaded;
    *library = &loaded;
    return SUCCESS;
}

int cuLibraryGetKernel(void **kernel, void *library)
{
    *kernel = library;
    return SUCCESS;
}

int cuLibraryUnload(void *library)
{
    (void)library;
    return SUCCESS;
}

#define REFUSES(name)                                                                              \
    int name(void);                                                                                \
    int name(void)                                                                                 \
    {                                                                                              \
        return NOT_SUPPORTED;                                                                      \
    }

REFUSES(cuCtxGetCurrent)
REFUSES(cuCtxGetDevice)
REFUSES(cuCtxGetLimit)
REFUSES(cuCtxPopCurrent)
REFUSES(cuCtxPushCurrent)
REFUSES(cuDeviceGet)
REFUSES(cuDeviceGetAttribute)
REFUSES(cuDevicePrimaryCtxRelease)
REFUSES(cuDevicePrimaryCtxReset)
REFUSES(cuDevicePrimaryCtxRetain)
REFUSES(cuFuncGetAttribute)
REFUSES(cuFuncSetAttribute)
REFUSES(cuGetErrorName)
REFUSES(cuGetErrorString)
REFUSES(cuGetProcAddress_v2)
REFUSES(cuKernelGetAttribute)
REFUSES(cuKernelSetAttribute)
REFUSES(cuLaunchCooperativeKernel)
REFUSES(cuLaunchKernel)
REFUSES(cuLaunchKernelEx)
REFUSES(cuLibraryLoadFromFile)
REFUSES(cuLinkAddData)
REFUSES(cuLinkAddData_v2)
REFUSES(cuLinkAddFile_v2)
REFUSES(cuLinkComplete)
REFUSES(cuLinkCreate)
REFUSES(cuLinkCreate_v2)
REFUSES(cuLinkDestroy)
REFUSES(cuMemcpyDtoH_v2)
REFUSES(cuMemcpyHtoD_v2)
REFUSES(cuModuleGetFunction)
REFUSES(cuModuleGetGlobal_v2)
REFUSES(cuModuleLoadData)
REFUSES(cuModuleLoadDataEx)
REFUSES(cuModuleLoadFatBinary)
REFUSES(cuModuleUnload)
REFUSES(cuOccupancyMaxActiveBlocksPerMultiprocessor)
REFUSES(cuOccupancyMaxPotentialClusterSize)
REFUSES(cuStreamGetCtx)
REFUSES(cuStreamSynchronize)
REFUSES(cuTensorMapEncodeTiled)

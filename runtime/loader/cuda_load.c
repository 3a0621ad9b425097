/* cuda_load.c - see cuda_load.h. Nothing else of the program knows where the backend is.
 *
 * Searched: the file that CUDA_BACKEND_VARIABLE names; else beside the program (as built), then
 * ../lib/shardplan from it (as installed). */
#include "runtime/loader/cuda_load.h"

#include "runtime/host/host_ops.h"

#include <dlfcn.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static enum err_code find_file(char file[PATH_MAX], struct err *err)
{
    static const char *const places[] = {".", "../lib/shardplan"};
    char self[PATH_MAX - 64];
    const char *named = getenv(CUDA_BACKEND_VARIABLE);
    if (named) {
        snprintf(file, PATH_MAX, "%s", named);
        return ERR_OK;
    }
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    self[length > 0 ? length : 0] = '\0';
    const char *folder = dirname(self);
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        snprintf(file, PATH_MAX, "%s/%s/" CUDA_BACKEND_FILE, folder, places[i]);
        if (access(file, R_OK) == 0)
            return ERR_OK;
    }
    return err_set(err, ERR_UNSUPPORTED,
                   "--device cuda: " CUDA_BACKEND_FILE
                   " is not beside the program or in ../lib/shardplan: it is built by `make` where "
                   "nvcc and NCCL are installed");
}

enum { EXIT_FAILED = 3 }; /* as shardrun's for any failure of a run */

static void give_up(struct comm *comm, const char *message)
{
    comm_abort(comm, EXIT_FAILED, message);
}

enum err_code device_open_cuda(const struct cuda_settings *settings, struct device **out,
                               struct err *err)
{
    char file[PATH_MAX];
    *out = NULL;
    TRY(find_file(file, err));
    /* Never closed: CUDA's own threads may run in it until the process ends. */
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return err_set(err, ERR_UNSUPPORTED, "--device cuda: cannot load it: %s", dlerror());
    void *symbol = dlsym(library, CUDA_BACKEND_SYMBOL);
    cuda_backend_function *open = NULL;
    memcpy(&open, &symbol, sizeof open); /* ISO C has no cast from a pointer to data */
    if (!open)
        return err_set(err, ERR_UNSUPPORTED, "--device cuda: %s is no backend of shardrun", file);
    struct cuda_settings all = *settings;
    all.host = (struct cuda_host){
        .broadcast = comm_broadcast,
        .check_whole = comm_check_whole,
        .give_up = give_up,
        .run_on_host = host_run,
    };
    return open(CUDA_BACKEND_VERSION, &all, out, err);
}

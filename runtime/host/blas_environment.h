/* blas_environment.h - what OpenBLAS reads when it is loaded, and never again. */
#ifndef SHARDPLAN_BLAS_ENVIRONMENT_H
#define SHARDPLAN_BLAS_ENVIRONMENT_H

#include <stdbool.h>

/* Sets the variables that OpenBLAS should have found when it was loaded, but those that the user
 * has set. True where one was missing: the process is to begin anew.
 * - OPENBLAS_NUM_THREADS=1: a stream is one thread (host_device.c). The pool that is made otherwise
 * has nothing to do, and its threads take the cores from the ranks as they wait.
 * - OPENBLAS_CORETYPE: of a processor that is newer than itself OpenBLAS takes the oldest kernels,
 * of SSE3 (driver/others/dynamic.c): products take three times as long. */
bool blas_environment(void);

#endif

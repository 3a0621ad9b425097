/* blas_core.h - which of its kernels OpenBLAS is to take. */
#ifndef SHARDPLAN_BLAS_CORE_H
#define SHARDPLAN_BLAS_CORE_H

/* OpenBLAS reads it when it is loaded, and never again. */
#define BLAS_CORE_VARIABLE "OPENBLAS_CORETYPE"

/* What the variable should be, in a process that begins anew; NULL: the kernels that are there are
 * right, or the user's choice. Of a processor that is newer than itself OpenBLAS takes the oldest
 * ones, of SSE3 (driver/others/dynamic.c): products take three times as long. */
const char *blas_core(void);

#endif

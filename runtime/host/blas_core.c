/* blas_core.c - see blas_core.h. */
#include "runtime/host/blas_core.h"

#include <cblas.h>
#include <stdlib.h>
#include <string.h>

const char *blas_core(void)
{
#ifdef __x86_64__
    static const char oldest[] = "Prescott";
    static const char with_avx2[] = "Haswell"; /* the first that had AVX2 and FMA */
    if (!getenv(BLAS_CORE_VARIABLE) && strcmp(openblas_get_corename(), oldest) == 0 &&
        __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return with_avx2;
#endif
    return NULL;
}

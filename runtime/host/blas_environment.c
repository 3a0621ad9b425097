/* blas_environment.c - see blas_environment.h. */
#include "runtime/host/blas_environment.h"

#include <cblas.h>
#include <stdlib.h>
#include <string.h>

/* True where the variable was not there and now is. */
static bool add(const char *variable, const char *value)
{
    return !getenv(variable) && setenv(variable, value, 1) == 0;
}

bool blas_environment(void)
{
    bool added = openblas_get_num_threads() > 1 && add("OPENBLAS_NUM_THREADS", "1");
#ifdef __x86_64__
    static const char oldest[] = "Prescott";
    static const char with_avx2[] = "Haswell"; /* the first that had AVX2 and FMA */
    if (strcmp(openblas_get_corename(), oldest) == 0 && __builtin_cpu_supports("avx2") &&
        __builtin_cpu_supports("fma"))
        added |= add("OPENBLAS_CORETYPE", with_avx2);
#endif
    return added;
}

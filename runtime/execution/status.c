/* status.c - see status.h. A shared mapping: a rank that is killed leaves its last store behind. */
#include "runtime/execution/status.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

volatile struct rank_status *status_of_rank(uint32_t rank, struct rank_status *own)
{
    const size_t bytes = ((size_t)rank + 1) * sizeof(struct rank_status);
    const char *path = getenv(STATUS_VARIABLE);
    const int file = path ? open(path, O_RDWR) : -1;
    struct stat st;
    void *mapped = MAP_FAILED;
    if (file >= 0 && fstat(file, &st) == 0 && (size_t)st.st_size >= bytes)
        mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (file >= 0)
        close(file);
    return mapped == MAP_FAILED ? own : (struct rank_status *)mapped + rank;
}

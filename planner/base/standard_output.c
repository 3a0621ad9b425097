/* standard_output.c - see standard_output.h. */
#include "base/standard_output.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void check(void)
{
    const int failed = ferror(stdout); /* what was written before */
    errno = 0;
    if (fclose(stdout) == 0 && !failed)
        return;
    if (errno == EBADF && !failed)
        return; /* whoever closed it before us wants none */
    fprintf(stderr, "shardplan: standard output: %s\n", strerror(errno ? errno : EIO));
    _exit(3);
}

void standard_output_check_at_exit(void)
{
    atexit(check);
}

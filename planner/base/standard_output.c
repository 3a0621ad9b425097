/* standard_output.c - see standard_output.h. */
#include "base/standard_output.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Why something that was written before is not there: the next byte meets the same. */
static int reason(void)
{
    errno = 0;
    return write(STDOUT_FILENO, "\n", 1) == 1 ? EIO : errno;
}

static void check(void)
{
    const int before = ferror(stdout) ? reason() : 0;
    errno = 0;
    if (fclose(stdout) == 0 && !before)
        return;
    if (errno == EBADF && !before)
        return; /* whoever closed it before us wants none */
    fprintf(stderr, "shardplan: standard output: %s\n", strerror(before ? before : errno));
    _exit(3);
}

void standard_output_check_at_exit(void)
{
    atexit(check);
}

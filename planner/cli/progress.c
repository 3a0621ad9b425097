/* progress.c - see progress.h. */
#include "cli/progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { BAR = 32 };

#define PATIENCE_S 0.5 /* what is over sooner needs no line */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

struct progress progress_begin(bool wanted)
{
    return (struct progress){wanted && isatty(STDERR_FILENO), -1, now()};
}

void progress_show(void *progress, uint32_t done, uint32_t total)
{
    struct progress *p = progress;
    if (!p->shown || !total)
        return;
    if (done == total) {
        if (p->percent >= 0)
            fputs("\r\x1b[K", stderr);
        return;
    }
    const int percent = (int)(100ULL * done / total);
    if (percent == p->percent || now() - p->begin < PATIENCE_S)
        return;
    p->percent = percent;
    fputs("\r  [", stderr);
    for (int i = 0; i < BAR; i++)
        fputc(i * 100 < percent * BAR ? '#' : ' ', stderr);
    fprintf(stderr, "] %3d %%  %" PRIu32 " of %" PRIu32 "\x1b[K", percent, done, total);
    fflush(stderr);
}

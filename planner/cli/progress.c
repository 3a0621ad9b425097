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

void progress_end(const struct progress *progress)
{
    if (progress->percent >= 0)
        fputs("\r\x1b[K", stderr);
}

static void show(struct progress *p, int percent, const char *what)
{
    p->percent = percent;
    fputs("\r  [", stderr);
    for (int i = 0; i < BAR; i++)
        fputc(i * 100 < percent * BAR ? '#' : ' ', stderr);
    fprintf(stderr, "] %3d %%  %s\x1b[K", percent, what);
    fflush(stderr);
}

static bool is_due(const struct progress *p)
{
    return p->shown && now() - p->begin >= PATIENCE_S;
}

void progress_show(void *progress, uint32_t done, uint32_t total)
{
    struct progress *p = progress;
    char what[32];
    if (!total)
        return;
    if (done == total) {
        progress_end(p);
        return;
    }
    const int percent = (int)(100ULL * done / total);
    if (percent == p->percent || !is_due(p))
        return;
    snprintf(what, sizeof what, "%" PRIu32 " of %" PRIu32, done, total);
    show(p, percent, what);
}

void progress_name(void *progress, const char *what, double share)
{
    if (is_due(progress))
        show(progress, share < 1 ? (int)(100 * share) : 100, what);
}

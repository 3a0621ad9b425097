/* ending_signals.c - see ending_signals.h. */
#include "base/ending_signals.h"

#include <stddef.h>

void ending_signals(sigset_t *out)
{
    static const int all[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action;
    sigemptyset(out);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (sigaction(all[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN)
            sigaddset(out, all[i]);
}

void ending_signals_hold(sigset_t *before)
{
    sigset_t signals;
    ending_signals(&signals);
    pthread_sigmask(SIG_BLOCK, &signals, before);
}

void ending_signals_release(const sigset_t *before)
{
    pthread_sigmask(SIG_SETMASK, before, NULL);
}

enum { STACK_BYTES = 2 << 20 };

int ending_signals_thread(pthread_t *thread, void *(*run)(void *context), void *context)
{
    sigset_t before;
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES); /* whatever `ulimit -s` is */
    ending_signals_hold(&before);                  /* which a thread inherits */
    const int rc = pthread_create(thread, &attr, run, context);
    ending_signals_release(&before);
    pthread_attr_destroy(&attr);
    return rc;
}

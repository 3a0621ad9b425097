/* local_ranks.c - see local_ranks.h. */
#include "tests/support/local_ranks.h"

#include "tests/support/program.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static bool is_free(unsigned port)
{
    const struct sockaddr_in at = {.sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)port),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    const bool is = bind(fd, (const struct sockaddr *)&at, sizeof at) == 0;
    close(fd);
    return is;
}

/* One that nobody listens at, of those that Linux gives to no connection by itself: one of these
 * is taken again before the ranks have started, now and then. */
static unsigned free_port(void)
{
    enum { LOWEST = 12000, PORTS = 20000, TRIES = 100 };
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    for (unsigned i = 0, at = (unsigned)getpid() * 64 + (unsigned)now.tv_nsec / 1024; i < TRIES;
         i++) {
        const unsigned port = LOWEST + (at + i) % PORTS;
        if (is_free(port))
            return port;
    }
    fail_msg("%d ports are taken", TRIES);
    return 0;
}

int local_ranks(int ranks, const char *fmt, ...)
{
    char arguments[2048];
    va_list args;
    va_start(args, fmt);
    vsnprintf(arguments, sizeof arguments, fmt, args);
    va_end(args);
    /* Rank 0 listens one port above PyTorch's store. */
    return shell("unset OMPI_COMM_WORLD_SIZE PMIX_RANK PMI_RANK; export WORLD_SIZE=%d "
                 "MASTER_ADDR=127.0.0.1 MASTER_PORT=%u SHARDPLAN_TOKEN=%d; exec 2>&1; "
                 "for rank in $(seq 0 %d); do (export RANK=$rank LOCAL_RANK=$rank; " PROGRAM_LIMITS
                 "^/shardrun %s) & pids=\"$pids $!\"; done; status=0; "
                 "for pid in $pids; do wait $pid || status=$?; done; exit $status",
                 ranks, free_port() - 1, (int)getpid(), ranks - 1, arguments);
}

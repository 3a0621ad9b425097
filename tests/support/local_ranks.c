/* local_ranks.c - see local_ranks.h. */
#include "tests/support/local_ranks.h"

#include "tests/support/program.h"

#include <arpa/inet.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

/* One that nobody listens at. */
static unsigned free_port(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t length = sizeof at;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(fd, (const struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &length), 0);
    close(fd);
    return ntohs(at.sin_port);
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

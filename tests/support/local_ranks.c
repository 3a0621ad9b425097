/* local_ranks.c - see local_ranks.h. */
#include "tests/support/local_ranks.h"

#include "tests/support/free_port.h"
#include "tests/support/program.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

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
                 ranks, free_port() - 1u, (int)getpid(), ranks - 1, arguments);
}

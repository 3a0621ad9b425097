/* ranks.h - for test programs that are ranks themselves: started by mpirun where MPI is what is
 * tested, and forked where not, in a fiftieth of the time.
 *
 *     test ---- system("mpirun -n 3 test") ----> test, as rank 0, 1, 2: RANK_VARIABLE names the
 * check ^                                          |
 *       +------------- exit status ----------------+
 *
 *     test ---- fork() three times ------------> run(3), over TCP
 *       ^                                          |
 *       +------------- exit statuses --------------+
 *
 * A rank has no cmocka: require.h's words end it, and with it the run. */
#ifndef SHARDPLAN_TESTS_RANKS_H
#define SHARDPLAN_TESTS_RANKS_H

#include "runtime/program/launch.h"
#include "tests/support/free_port.h"
#include "tests/support/local_ranks.h"
#include "tests/support/require.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define RANK_VARIABLE "SHARDPLAN_COMM_TEST"

struct rank_check { /* an array of them ends with NULL */
    const char *name;
    void (*run)(uint32_t ranks);
};

/* ---- in a rank ---- */

static inline struct comm *open_comm(const struct comm_group *groups, uint32_t count,
                                     double timeout_s)
{
    struct comm *comm = NULL;
    REQUIRE_OK(launch_open_comm(groups, count, timeout_s, &comm, &err));
    return comm;
}

static inline int run_as_rank(const struct rank_check *checks, const char *name)
{
    const char *ranks = getenv("OMPI_COMM_WORLD_SIZE");
    REQUIRE(ranks);
    for (size_t i = 0; checks[i].name; i++)
        if (strcmp(checks[i].name, name) == 0) {
            checks[i].run((uint32_t)atoi(ranks));
            return 0;
        }
    REQUIRE(!"a check of this name");
    return 1;
}

/* ---- in the test ---- */

static inline void need_mpirun(void)
{
    if (system("command -v mpirun >/dev/null 2>&1") == 0)
        return;
    printf("note: mpirun is not installed (package openmpi-bin)\n");
    skip();
}

/* MPI's own code leaks, which is not ours to check. Other errors of memory are still found in
 * ranks, and data races and orders of locks but for those in openmpi.supp (tests/run). */
#define SANITIZERS "-x ASAN_OPTIONS=detect_leaks=0"

/* Runs the check among so many ranks; its output goes to `log` (NULL: as it comes). */
static inline int status_of(const char *check, int ranks, const char *log)
{
    char self[1024], command[2048];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(length > 0);
    self[length] = '\0';
    snprintf(command, sizeof command,
             "mpirun --allow-run-as-root --oversubscribe " SANITIZERS
             " -x %s=%s -n %d '%s' %s%s %s",
             RANK_VARIABLE, check, ranks, self, log ? ">" : "", log ? log : "", log ? "2>&1" : "");
    const int status = system(command);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static inline void among(int ranks, const char *check)
{
    need_mpirun();
    assert_int_equal(status_of(check, ranks, NULL), 0);
}

/* The same without mpirun. */
static inline void among_forked(const struct rank_check *check, int ranks)
{
    enum { MOST = 16, SECONDS = 120 };
    pid_t pids[MOST];
    const uint16_t port = free_port();
    assert_true(ranks > 1 && ranks <= MOST);
    fflush(NULL);
    for (int rank = 0; rank < ranks; rank++) {
        pids[rank] = fork();
        assert_true(pids[rank] >= 0);
        if (pids[rank] > 0)
            continue;
        alarm(SECONDS);
        local_rank_become(rank, ranks, port);
        check->run((uint32_t)ranks);
        _exit(0);
    }
    for (int rank = 0; rank < ranks; rank++) {
        int status = -1;
        assert_int_equal(waitpid(pids[rank], &status, 0), pids[rank]);
        if (status != 0)
            fail_msg("%s: rank %d of %d: status %x", check->name, rank, ranks, (unsigned)status);
    }
}

static inline void expect_end(const char *check, int ranks, int status, const char *message)
{
    need_mpirun();
    char log[] = "/tmp/test_comm.XXXXXX", text[16384] = "";
    const int file = mkstemp(log);
    assert_true(file >= 0);
    const time_t begin = time(NULL);
    const int got = status_of(check, ranks, log);
    const ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    unlink(log);
    assert_true(length >= 0);
    text[length] = '\0';
    if (got != status || !strstr(text, message))
        fail_msg("status %d: %s", got, text);
    assert_true(time(NULL) - begin <= 10);
}

#endif

/* local_ranks.c - see local_ranks.h. Without a shell, `timeout` and the like between: of a small
 * model they took longer to start than a step takes. */
#include "tests/support/local_ranks.h"

#include "tests/support/free_port.h"
#include "tests/support/program.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { MOST_RANKS = 64, MOST_WORDS = 64 };

static void set_number(const char *name, long number)
{
    char text[32];
    snprintf(text, sizeof text, "%ld", number);
    setenv(name, text, 1);
}

/* Rank 0 listens one port above PyTorch's store. */
void local_rank_become(int rank, int ranks, uint16_t port)
{
    static const char *const mpis[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"};
    for (size_t i = 0; i < sizeof mpis / sizeof *mpis; i++)
        unsetenv(mpis[i]);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    set_number("MASTER_PORT", port - 1);
    set_number("SHARDPLAN_TOKEN", (long)getppid());
    set_number("WORLD_SIZE", ranks);
    set_number("RANK", rank);
    set_number("LOCAL_RANK", rank);
}

/* In the child. */
static void run_rank(char **words, int to)
{
    const rlim_t seconds = (rlim_t)program_seconds();
    const struct rlimit limit = {seconds, seconds};
    if (setrlimit(RLIMIT_CPU, &limit) == 0 && dup2(to, STDOUT_FILENO) >= 0 &&
        dup2(to, STDERR_FILENO) >= 0)
        execv(words[0], words);
    _exit(127);
}

/* Waits for all of them. Returns 0, or the status of the last that ended with another one. */
static int end_of(const pid_t *pids, int count)
{
    int result = 0;
    for (int i = 0; i < count; i++) {
        int status;
        if (waitpid(pids[i], &status, 0) != pids[i])
            result = 127;
        else if (!WIFEXITED(status))
            result = 128 + WTERMSIG(status);
        else if (WEXITSTATUS(status) != 0)
            result = WEXITSTATUS(status);
    }
    return result;
}

int local_ranks(int ranks, const char *fmt, ...)
{
    char program[1024], arguments[2048], *words[MOST_WORDS] = {program};
    const uint16_t port = free_port();
    pid_t pids[MOST_RANKS];
    int ends[2] = {-1, -1}, count = 1;
    va_list args;
    va_start(args, fmt);
    vsnprintf(arguments, sizeof arguments, fmt, args);
    va_end(args);
    for (char *save = NULL, *word = strtok_r(arguments, " ", &save); word;
         word = strtok_r(NULL, " ", &save)) {
        assert_true(count < MOST_WORDS - 1);
        words[count++] = word;
    }
    program_beside("shardrun", program, sizeof program);
    assert_true(ranks <= MOST_RANKS && pipe(ends) == 0);
    fflush(NULL);
    for (int rank = 0; rank < ranks; rank++) {
        pids[rank] = fork();
        assert_true(pids[rank] >= 0);
        if (pids[rank] > 0)
            continue;
        close(ends[0]);
        local_rank_become(rank, ranks, port);
        run_rank(words, ends[1]);
    }
    close(ends[1]);
    if (!program_read(ends[0], 4 * program_seconds()))
        for (int rank = 0; rank < ranks; rank++)
            kill(pids[rank], SIGKILL);
    close(ends[0]);
    return end_of(pids, ranks);
}

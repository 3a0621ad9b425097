/* cmd_run.c - shardplan run: starts the ranks of a plan and reports how they ended.
 *
 * The ranks are shardrun processes, started by mpirun when there is more than one. mpirun's own
 * messages are read here: what a rank says goes through, and of a rank that was killed one line is
 * made, with the step and instruction that it left behind in the status file. */
#include "cli/commands.h"
#include "plan/plan_json.h"
#include "report/files.h"
#include "runtime/execution/status.h"
#include "settings/settings_parse.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MPIRUN_ARGUMENTS = 16 };

struct launch {
    struct settings settings;
    uint32_t ranks;
    char shardrun[PATH_MAX];
    char status_path[64];
    struct plan *plan;
};

/* shardrun lies beside shardplan. */
static enum err_code find_shardrun(struct launch *launch, struct err *err)
{
    char self[PATH_MAX - 16];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    if (length > 0) {
        self[length] = '\0';
        snprintf(launch->shardrun, sizeof launch->shardrun, "%s/shardrun", dirname(self));
        if (access(launch->shardrun, X_OK) == 0)
            return ERR_OK;
    }
    return err_set(err, ERR_UNSUPPORTED, "shardrun is not beside shardplan: build it with `make`");
}

static enum err_code open_plan(struct launch *launch, struct err *err)
{
    const struct settings *s = &launch->settings;
    const bool rehearsal = s->run.rehearse_world > 0; /* one process, whatever the plan's world */
    TRY(plan_read_json(s->plan, &launch->plan, err));
    launch->ranks = rehearsal ? 1 : launch->plan->world;
    if (s->run.ranks && s->run.ranks != launch->ranks)
        return err_set(err, ERR_INVALID, "-n %u: %s is a plan for %u ranks%s", s->run.ranks,
                       s->plan, launch->plan->world,
                       rehearsal ? ", of which a rehearsal has one" : "");
    return s->output ? files_make_folder(s->output, err) : ERR_OK;
}

static void make_status(struct launch *launch)
{
    snprintf(launch->status_path, sizeof launch->status_path, "/tmp/shardrun.XXXXXX");
    const int file = mkstemp(launch->status_path);
    if (file < 0)
        return;
    if (ftruncate(file, (off_t)((size_t)launch->ranks * sizeof(struct rank_status))) == 0)
        setenv(STATUS_VARIABLE, launch->status_path, 1);
    close(file);
}

static struct rank_status read_status(const struct launch *launch, long rank)
{
    struct rank_status status = {0, 0};
    const int file = open(launch->status_path, O_RDONLY);
    if (file < 0)
        return status;
    if (pread(file, &status, sizeof status, rank * (off_t)sizeof status) != sizeof status)
        status = (struct rank_status){0, 0};
    close(file);
    return status;
}

/* Replaces this process; what was given goes to the ranks. */
static void start(const struct launch *launch, int messages)
{
    struct arena arena = {0};
    uint32_t passed, count = 0;
    const char **options = settings_arguments(&launch->settings, COMMAND_RANK, &arena, &passed);
    const char **arguments = arena_alloc(&arena, (passed + MPIRUN_ARGUMENTS) * sizeof *arguments);
    if (launch->ranks > 1) {
        const char *const mpirun[] = {"mpirun",
                                      "--allow-run-as-root",
                                      "--oversubscribe",
                                      "--mca",
                                      "mpi_yield_when_idle",
                                      "1",
                                      "--bind-to",
                                      "none",
                                      "-n",
                                      arena_printf(&arena, "%u", launch->ranks)};
        for (size_t i = 0; i < sizeof mpirun / sizeof mpirun[0]; i++)
            arguments[count++] = mpirun[i];
    }
    arguments[count++] = launch->shardrun;
    for (uint32_t i = 0; i < passed; i++)
        arguments[count++] = options[i];
    arguments[count] = NULL;
    dup2(messages, STDERR_FILENO);
    execvp(arguments[0], (char *const *)(uintptr_t)arguments);
    fprintf(stderr, "shardrun: cannot start %s: %s\n", arguments[0], strerror(errno));
    _exit(EXIT_FAILED);
}

/* Passes on what ranks say; returns the rank that mpirun saw die by a signal, -1: none. */
static long read_messages(int messages, bool *said)
{
    char line[4096];
    long killed = -1;
    FILE *file = fdopen(messages, "r");
    while (file && fgets(line, sizeof line, file)) {
        const char *rank = strstr(line, "process rank ");
        if (strncmp(line, "shardrun:", 9) == 0) {
            if (!*said)
                fputs(line, stderr); /* the first message is the cause */
            *said = true;
        } else if (strncmp(line, "note:", 5) == 0) {
            fputs(line, stderr);
        } else if (rank && killed < 0) {
            killed = strtol(rank + strlen("process rank "), NULL, 10);
        }
    }
    if (file)
        fclose(file);
    return killed;
}

static int run(struct launch *launch, struct err *err)
{
    int ends[2], status = 0;
    bool said = false;
    make_status(launch);
    setenv(TERMINAL_VARIABLE, isatty(STDOUT_FILENO) ? "1" : "0", 1);
    if (pipe(ends) != 0)
        return report_error((err_set(err, ERR_IO, "pipe: %s", strerror(errno)), err));
    const pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        start(launch, ends[1]);
    }
    close(ends[1]);
    const long killed = read_messages(ends[0], &said);
    waitpid(child, &status, 0);
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILED;
    if (code != 0 && !said) {
        const struct rank_status at = read_status(launch, killed < 0 ? 0 : killed);
        fprintf(stderr, "shardrun: rank %ld: killed at step %u, instruction %u\n",
                killed < 0 ? 0 : killed, at.step, at.instruction);
    }
    unlink(launch->status_path);
    return code == 0 || code == EXIT_BAD_INPUT ? code : EXIT_FAILED;
}

int command_run(int argc, char **argv)
{
    struct launch launch = {.plan = NULL};
    struct err err = {0};
    settings_parse(COMMAND_RUN, argc, argv, &launch.settings);
    if (find_shardrun(&launch, &err) != ERR_OK || open_plan(&launch, &err) != ERR_OK) {
        plan_free(launch.plan);
        return report_error(&err);
    }
    const int status = run(&launch, &err);
    plan_free(launch.plan);
    return status;
}

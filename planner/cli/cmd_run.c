/* cmd_run.c - shardplan run: starts the ranks of a plan and reports how they ended.
 *
 * The ranks are shardrun processes, started by mpirun when there is more than one. mpirun's own
 * messages are read here: what a rank says goes through, and of a rank that was killed one line is
 * made, with the step and instruction that it left behind in the status file. */
#include "cli/commands.h"
#include "plan/plan_json.h"
#include "runtime/program/status.h"

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

enum { MOST_ARGUMENTS = 96 };

struct launch {
    const char *plan_path, *out_dir, *device;
    bool rehearsal; /* one process, whatever the plan's world */
    long ranks;     /* 0: as the plan says */
    char shardrun[PATH_MAX];
    const char *passed[MOST_ARGUMENTS]; /* options of shardrun */
    int passed_count;
    char status_path[64];
    struct plan *plan;
};

static int usage(FILE *file)
{
    fputs(
        "Usage: shardplan run PLAN.json [-n RANKS] [--device host|cuda] [-o DIR] [OPTION...]\n"
        "Executes a plan: -n ranks (default: the plan's world size), on the host or one GPU each.\n"
        "--rehearse RANK/WORLD: one process plays one rank of a plan for WORLD.\n"
        "Writes DIR/trace.json (rank 0) and DIR/trace-R.json. Further options go to the ranks:\n"
        "`shardrun --help` lists them (--steps, --data, --lr, --memory, --timeout, --save ...).\n",
        file);
    return file == stdout ? EXIT_DONE : EXIT_BAD_INPUT;
}

static enum err_code set_device(struct launch *launch, const char *name, struct err *err)
{
    if (name && (strcmp(name, "host") == 0 || strcmp(name, "cuda") == 0)) {
        launch->device = name;
        return ERR_OK;
    }
    return err_set(err, ERR_INVALID, "--device %s: allowed are host, cuda", name ? name : "");
}

static enum err_code parse(int argc, char **argv, struct launch *launch, struct err *err)
{
    for (int i = 1; i < argc && argv[i]; i++) {
        const char *next = argv[i + 1]; /* NULL after the last */
        if (strcmp(argv[i], "-n") == 0) {
            const char *text = next ? next : "";
            char *end = NULL;
            launch->ranks = strtol(text, &end, 10);
            if (end == text || *end || launch->ranks < 1 || launch->ranks > 4096)
                return err_set(err, ERR_INVALID, "-n %s: allowed are 1 ... 4096", text);
            i++;
        } else if (strcmp(argv[i], "--device") == 0) {
            TRY(set_device(launch, next, err));
            i++;
        } else if (strncmp(argv[i], "--device=", 9) == 0) {
            TRY(set_device(launch, argv[i] + 9, err));
        } else if (argv[i][0] != '-' && !launch->plan_path &&
                   (i == 1 || strstr(argv[i], ".json"))) {
            launch->plan_path = argv[i];
        } else if (launch->passed_count + 8 < MOST_ARGUMENTS) {
            if ((strcmp(argv[i], "-o") == 0 || strcmp(argv[i], "--output") == 0) && next)
                launch->out_dir = next;
            launch->rehearsal = launch->rehearsal || strncmp(argv[i], "--rehearse", 10) == 0;
            launch->passed[launch->passed_count++] = argv[i];
        }
    }
    return launch->plan_path
               ? ERR_OK
               : err_set(err, ERR_INVALID, "PLAN.json is missing (see shardplan plan)");
}

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
    TRY(plan_read_json(launch->plan_path, &launch->plan, err));
    TRY(plan_verify(launch->plan, err));
    const uint32_t ranks = launch->rehearsal ? 1 : launch->plan->world;
    if (launch->ranks && (uint32_t)launch->ranks != ranks)
        return err_set(err, ERR_INVALID, "-n %ld: %s is a plan for %u ranks%s", launch->ranks,
                       launch->plan_path, launch->plan->world,
                       launch->rehearsal ? ", of which a rehearsal has one" : "");
    launch->ranks = ranks;
    if (launch->out_dir && mkdir(launch->out_dir, 0777) != 0 && errno != EEXIST)
        return err_set(err, ERR_IO, "create folder %s: %s", launch->out_dir, strerror(errno));
    return ERR_OK;
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

static void start(const struct launch *launch, int messages)
{
    const char *arguments[MOST_ARGUMENTS + 16];
    char ranks[24];
    int count = 0;
    if (launch->ranks > 1) {
        snprintf(ranks, sizeof ranks, "%ld", launch->ranks);
        const char *const mpirun[] = {"mpirun",
                                      "--allow-run-as-root",
                                      "--oversubscribe",
                                      "--mca",
                                      "mpi_yield_when_idle",
                                      "1",
                                      "--bind-to",
                                      "none",
                                      "-n",
                                      ranks};
        for (size_t i = 0; i < sizeof mpirun / sizeof mpirun[0]; i++)
            arguments[count++] = mpirun[i];
    }
    arguments[count++] = launch->shardrun;
    arguments[count++] = launch->plan_path;
    arguments[count++] = "--device";
    arguments[count++] = launch->device ? launch->device : "host";
    for (int i = 0; i < launch->passed_count; i++)
        arguments[count++] = launch->passed[i];
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
    struct launch launch = {.plan_path = NULL};
    struct err err = {0};
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0))
        return usage(stdout);
    if (parse(argc, argv, &launch, &err) != ERR_OK || find_shardrun(&launch, &err) != ERR_OK ||
        open_plan(&launch, &err) != ERR_OK) {
        plan_free(launch.plan);
        return report_error(&err);
    }
    const int status = run(&launch, &err);
    plan_free(launch.plan);
    return status;
}

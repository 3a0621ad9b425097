/* run_plan.c - see run_plan.h. */
#include "cli/run_plan.h"

#include "base/ending_signals.h"
#include "cli/commands.h"
#include "plan/plan_json.h"
#include "report/files.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void start(const struct run_plan *run, const char *plan_path, const sigset_t *signals)
{
    char self[PATH_MAX], steps[16];
    const ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    const int nowhere = open("/dev/null", O_WRONLY);
    snprintf(steps, sizeof steps, "%u", run->steps);
    setpgid(0, 0); /* a terminal's signal is ours alone: mpirun, asked twice, leaves its ranks */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    sigprocmask(SIG_UNBLOCK, signals, NULL);
    if (length > 0 && nowhere >= 0 && dup2(nowhere, STDOUT_FILENO) >= 0) {
        self[length] = '\0';
        execl(self, self, "run", plan_path, "--device", run->device, "--steps", steps, "--fuse",
              "off", "-q", "-o", run->dir, (char *)NULL); /* each kernel's own time */
    }
    _exit(EXIT_FAILED);
}

/* Waits for the child, or for a signal that asks us to end: then the child is ended first, and its
 * ranks with it. The signal is ours again as soon as it is not held back any more. */
static enum err_code await(pid_t child, const sigset_t *signals, int *status, struct err *err)
{
    for (;;) {
        const int signal = sigwaitinfo(signals, NULL);
        if (signal == SIGCHLD && waitpid(child, status, WNOHANG) == child)
            return ERR_OK;
        if (signal < 0 || signal == SIGCHLD)
            continue;
        kill(child, SIGTERM);
        waitpid(child, status, 0);
        raise(signal);
        return err_set(err, ERR_DEVICE, "stopped by signal %d", signal);
    }
}

static enum err_code execute(const struct run_plan *run, const char *plan_path, struct err *err)
{
    sigset_t signals, before;
    int status = 0;
    ending_signals(&signals);
    sigaddset(&signals, SIGCHLD);
    sigprocmask(SIG_BLOCK, &signals, &before);
    const pid_t child = fork();
    if (child == 0)
        start(run, plan_path, &signals);
    if (child > 0)
        setpgid(child, child); /* as it does itself: whoever is first */
    enum err_code rc = child < 0 ? err_set(err, ERR_DEVICE, "start a run: %s", strerror(errno))
                                 : await(child, &signals, &status, err);
    sigprocmask(SIG_SETMASK, &before, NULL);
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILED;
    if (rc == ERR_OK && code != EXIT_DONE)
        rc = err_set(err, code == EXIT_BAD_INPUT ? ERR_UNSUPPORTED : ERR_DEVICE,
                     "the run ended with status %d", code);
    return rc;
}

/* "trace.json" of rank 0, "trace-1.json" of the next. */
static const char *file_of_rank(const struct run_plan *run, const char *stem, const char *ending,
                                uint32_t rank, char *path, size_t size)
{
    char name[48];
    if (rank > 0)
        snprintf(name, sizeof name, "%s-%u.%s", stem, rank, ending);
    else
        snprintf(name, sizeof name, "%s.%s", stem, ending);
    return files_path(run->dir, name, path, size);
}

/* On an error none is left. */
static enum err_code read_traces(const struct run_plan *run, uint32_t ranks, struct trace **out,
                                 struct err *err)
{
    char path[PATH_MAX];
    for (uint32_t rank = 0; rank < ranks; rank++) {
        const enum err_code rc = trace_read(
            file_of_rank(run, "trace", "json", rank, path, sizeof path), &out[rank], err);
        if (rc == ERR_OK)
            continue;
        while (rank-- > 0) {
            trace_free(out[rank]);
            out[rank] = NULL;
        }
        return rc;
    }
    return ERR_OK;
}

static void remove_files(const struct run_plan *run, uint32_t ranks)
{
    char path[PATH_MAX];
    remove(files_path(run->dir, ".trace-lock", path, sizeof path)); /* of ranks that were ended */
    for (uint32_t rank = 0; rank < ranks; rank++) {
        remove(file_of_rank(run, "trace", "json", rank, path, sizeof path));
        remove(file_of_rank(run, "snapshot", "pickle", rank, path, sizeof path));
    }
}

enum err_code run_plan(const struct run_plan *run, const struct plan *plan, struct trace **out,
                       struct err *err)
{
    char plan_path[PATH_MAX];
    for (uint32_t rank = 0; rank < plan->world; rank++)
        out[rank] = NULL;
    files_path(run->dir, "plan.json", plan_path, sizeof plan_path);
    enum err_code rc = plan_write_json(plan, NULL, plan_path, err);
    if (rc == ERR_OK)
        rc = execute(run, plan_path, err);
    if (rc == ERR_OK)
        rc = read_traces(run, plan->world, out, err);
    remove(plan_path);
    remove_files(run, plan->world);
    return rc;
}

/* cmd_run.c - shardplan run: starts the ranks of a plan and reports how they ended.
 *
 * The ranks are shardrun processes, started by mpirun when there is more than one. mpirun's own
 * messages are read here: what a rank says goes through, of a rank that was killed one line is
 * made, with the step and instruction that it left behind in the status file, and where neither
 * says why, everything is shown. */
#include "base/ending_signals.h"
#include "cli/commands.h"
#include "memory/replay.h"
#include "plan/plan_json.h"
#include "report/files.h"
#include "runtime/execution/data.h"
#include "runtime/execution/status.h"
#include "runtime/program/rehearsal.h"
#include "settings/settings_parse.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MPIRUN_ARGUMENTS = 16, OTHER_MOST = 1 << 16, RANKS_MOST = 1024 };

#define GIB 1073741824.0

struct launch {
    struct settings settings;
    uint32_t ranks;
    char shardrun[PATH_MAX];
    char folder[PATH_MAX]; /* of this run alone; "": none could be made */
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

/* ---- before any rank is started ---- */

/* Ranks of the host backend are processes of this machine, whose memory is theirs: what they have
 * at the peak of a step, as planned. Where it is too little, it would be the system that ends one.
 */
static enum err_code check_memory(const struct launch *launch, struct err *err)
{
    const uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    const struct memory_options sums = {.without_allocator = true};
    struct memory planned;
    TRY(memory_replay(launch->plan, &sums, NULL, NULL, &planned, err));
    const uint64_t bytes = planned.device.bytes + planned.host.bytes;
    if (launch->settings.cuda || launch->settings.run.force || bytes <= memory / launch->ranks)
        return ERR_OK;
    return err_set(err, ERR_UNSUPPORTED,
                   "%u ranks of %.1f GiB each, as planned, are %.1f GiB, and this machine has %.1f "
                   "GiB of memory; --force starts them all the same",
                   launch->ranks, (double)bytes / GIB, (double)bytes * launch->ranks / GIB,
                   (double)memory / GIB);
}

static uint64_t micro_batches(const struct plan *plan)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < plan->instruction_count; i++)
        count += plan->instructions[i].op == PLAN_MARK &&
                 plan->instructions[i].arg == PLAN_MARK_MICRO_BATCH;
    return count;
}

/* All tokens that the steps will read. Others' machines may have other files: ranks look, too. */
static enum err_code check_data(const struct launch *launch, struct err *err)
{
    const struct run_options *o = &launch->settings.run;
    const struct plan_input *tokens = plan_input_of(launch->plan, INPUT_TOKENS);
    struct data *data;
    if (!o->data || !tokens)
        return ERR_OK;
    TRY(data_open(o->data, data_kind_of(o->token_bytes), tokens->values.vocab, &data, err));
    const double step = (double)shape_elements(&launch->plan->buffers[tokens->buffer].shape) *
                        (double)micro_batches(launch->plan) * launch->plan->world;
    const double all = fmin(step * o->steps + 1, 0x1p62);
    const enum err_code rc = data_check(data, (uint64_t)all, err);
    data_close(data);
    return rc;
}

static enum err_code check_machine(const struct launch *launch, struct err *err)
{
    if (launch->ranks > RANKS_MOST)
        return err_set(err, ERR_UNSUPPORTED,
                       "%s is a plan for %u ranks: one machine starts at most %d; one rank of them "
                       "alone: --rehearse R/%u",
                       launch->settings.plan, launch->ranks, RANKS_MOST, launch->ranks);
    struct err lacking;
    bool waits; /* the ranks choose the same, and say so */
    TRY(rehearsal_choose(launch->plan, &launch->settings, &waits, &lacking, err));
    TRY(check_memory(launch, err));
    return check_data(launch, err);
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
    TRY(check_machine(launch, err));
    return s->output ? files_make_folder(s->output, err) : ERR_OK;
}

/* A folder of the run's own: where its ranks say how far they are, and mpirun's files lie. What
 * mpirun makes for itself by default is in a folder of all of a user's, which one that ends removes
 * while another begins; that one then says "File exists". */
static void make_folder(struct launch *launch)
{
    const char *temporary = getenv("TMPDIR");
    char path[PATH_MAX + 8];
    snprintf(launch->folder, sizeof launch->folder, "%s/shardrun.XXXXXX",
             temporary ? temporary : "/tmp");
    if (!mkdtemp(launch->folder)) {
        launch->folder[0] = '\0';
        return;
    }
    snprintf(path, sizeof path, "%s/ranks", launch->folder);
    const int file = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file < 0)
        return;
    if (ftruncate(file, (off_t)((size_t)launch->ranks * sizeof(struct rank_status))) == 0)
        setenv(STATUS_VARIABLE, path, 1);
    close(file);
}

static struct rank_status read_status(const struct launch *launch, long rank)
{
    struct rank_status status = {0, 0};
    char path[PATH_MAX + 8];
    snprintf(path, sizeof path, "%s/ranks", launch->folder);
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return status;
    if (pread(file, &status, sizeof status, rank * (off_t)sizeof status) != sizeof status)
        status = (struct rank_status){0, 0};
    close(file);
    return status;
}

/* Replaces this process; what was given goes to the ranks. */
static void start(const struct launch *launch, int messages, int output)
{
    struct arena arena = {0};
    uint32_t passed, count = 0;
    const char **options = settings_arguments(&launch->settings, COMMAND_RANK, &arena, &passed);
    const char **arguments = arena_alloc(&arena, (passed + MPIRUN_ARGUMENTS) * sizeof *arguments);
    if (launch->ranks > 1) {
        const char *const own[] = {"--mca", "orte_tmpdir_base", launch->folder};
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
        for (size_t i = 0; launch->folder[0] && i < sizeof own / sizeof own[0]; i++)
            arguments[count++] = own[i];
    }
    arguments[count++] = launch->shardrun;
    for (uint32_t i = 0; i < passed; i++)
        arguments[count++] = options[i];
    arguments[count] = NULL;
    dup2(messages, STDERR_FILENO);
    if (output >= 0)
        dup2(output, STDOUT_FILENO);
    execvp(arguments[0], (char *const *)(uintptr_t)arguments);
    fprintf(stderr, "shardrun: cannot start %s: %s\n", arguments[0], strerror(errno));
    _exit(EXIT_FAILED);
}

/* ---- while they run ---- */

/* What is read of the ranks and of mpirun, line by line. */
struct messages {
    char line[4096];
    size_t length;
    long killed; /* the rank that mpirun saw die by a signal; -1: none */
    long signal; /* which */
    bool said;   /* a rank has said why it failed */
    char *other; /* what nobody of ours said: shown where nobody says why */
    size_t other_length, other_cap;
};

static void keep_other(struct messages *m)
{
    while (m->other_length < OTHER_MOST && m->other_length + m->length > m->other_cap)
        m->other = xrealloc(m->other, m->other_cap = 2 * m->other_cap + sizeof m->line);
    if (m->other_length >= OTHER_MOST)
        return;
    memcpy(m->other + m->other_length, m->line, m->length);
    m->other_length += m->length;
}

static void take_line(struct messages *m)
{
    const char *rank;
    m->line[m->length] = '\0';
    if (strncmp(m->line, "shardrun:", 9) == 0) {
        if (!m->said)
            fputs(m->line, stderr); /* the first message is the cause */
        m->said = true;
    } else if (strncmp(m->line, "note:", 5) == 0) {
        fputs(m->line, stderr);
    } else {
        rank = strstr(m->line, "process rank ");
        if (rank && m->killed < 0) {
            const char *by = strstr(rank, "on signal ");
            m->killed = strtol(rank + strlen("process rank "), NULL, 10);
            m->signal = by ? strtol(by + strlen("on signal "), NULL, 10) : 0;
        }
        keep_other(m);
    }
    m->length = 0;
}

/* False: there is nothing more to come. */
static bool read_messages(struct messages *m, int from)
{
    char piece[4096];
    const ssize_t got = read(from, piece, sizeof piece);
    if (got <= 0)
        return got < 0 && errno == EINTR;
    for (ssize_t i = 0; i < got; i++) {
        m->line[m->length++] = piece[i];
        if (piece[i] == '\n' || m->length == sizeof m->line - 1)
            take_line(m);
    }
    return true;
}

/* Prints what ranks print: mpirun says nothing of what it could not write. False as above. */
static bool pass_on(int from)
{
    char piece[4096];
    const ssize_t got = read(from, piece, sizeof piece);
    if (got <= 0)
        return got < 0 && errno == EINTR;
    fwrite(piece, 1, (size_t)got, stdout);
    fflush(stdout); /* where that fails, standard_output_check_at_exit says so */
    return true;
}

/* Until the ranks' last word, of which `output` may be -1. Who ends us, ends them: a signal to us
 * is one to them, the second of which they cannot ignore. Returns the first one; 0: none came. */
static int watch(pid_t child, int messages, int output, int signals, struct messages *m)
{
    struct pollfd ready[] = {{.fd = messages, .events = POLLIN},
                             {.fd = output, .events = POLLIN},
                             {.fd = signals, .events = POLLIN}};
    struct signalfd_siginfo info;
    int first = 0;
    while (ready[0].fd >= 0 || ready[1].fd >= 0) {
        if (poll(ready, 3, -1) < 0) {
            if (errno == EINTR)
                continue;
            break;
        }
        if (ready[2].revents & POLLIN && read(signals, &info, sizeof info) == sizeof info) {
            kill(child, first ? SIGKILL : SIGTERM);
            first = first ? first : (int)info.ssi_signo;
        }
        if (ready[0].revents && !read_messages(m, messages))
            ready[0].fd = -1;
        if (ready[1].revents && !pass_on(output))
            ready[1].fd = -1;
    }
    if (m->length > 0)
        take_line(m);
    return first;
}

/* What those say who did not come so far as to say it as ranks do. */
static void explain(const struct launch *launch, const struct messages *m)
{
    char by[80] = "";
    if (m->killed < 0 && m->other_length > 0) {
        fwrite(m->other, 1, m->other_length, stderr);
        return;
    }
    const long rank = m->killed < 0 ? 0 : m->killed;
    const struct rank_status at = read_status(launch, rank);
    if (m->signal)
        snprintf(by, sizeof by, ", by signal %ld%s", m->signal,
                 m->signal == SIGKILL ? ": this machine may have run out of memory" : "");
    fprintf(stderr, "shardrun: rank %ld: killed at step %u, instruction %u%s\n", rank, at.step,
            at.instruction, by);
}

/* In the child: a death of ours is the ranks' end, too, whatever we died of. */
static void become_ranks(const struct launch *launch, const sigset_t *mask, int messages,
                         int output)
{
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    sigprocmask(SIG_SETMASK, mask, NULL);
    start(launch, messages, output);
}

static int run(struct launch *launch, struct err *err)
{
    int ends[2], output[2] = {-1, -1}, status = 0;
    struct messages messages = {.killed = -1};
    sigset_t ending, before;
    setenv(TERMINAL_VARIABLE, isatty(STDOUT_FILENO) ? "1" : "0", 1);
    ending_signals(&ending);
    sigprocmask(SIG_BLOCK, &ending, &before);
    make_folder(launch);
    const int signals = signalfd(-1, &ending, SFD_CLOEXEC);
    if (signals < 0 || pipe(ends) != 0 ||
        (launch->ranks > 1 && pipe2(output, O_CLOEXEC) != 0)) { /* one rank prints itself */
        err_set(err, ERR_IO, "pipe: %s", strerror(errno));
        files_remove_folder(launch->folder);
        return report_error(err);
    }
    const pid_t child = fork();
    if (child < 0) {
        err_set(err, ERR_IO, "start a process: %s", strerror(errno));
        files_remove_folder(launch->folder);
        return report_error(err);
    }
    if (child == 0) {
        close(ends[0]);
        become_ranks(launch, &before, ends[1], output[1]);
    }
    close(ends[1]);
    if (output[1] >= 0)
        close(output[1]);
    const int ended_by = watch(child, ends[0], output[0], signals, &messages);
    close(ends[0]);
    if (output[0] >= 0)
        close(output[0]);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    close(signals);
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILED;
    if (WIFSIGNALED(status)) /* one rank, without mpirun */
        messages.signal = WTERMSIG(status);
    if (code != 0 && !messages.said && !ended_by)
        explain(launch, &messages);
    free(messages.other);
    files_remove_folder(launch->folder);
    if (ended_by) {
        fprintf(stderr, "shardplan: ended by signal %d, and the ranks with it\n", ended_by);
        return 128 + ended_by; /* as shells say it */
    }
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

/* cmd_calibrate.c - shardplan calibrate: measures this machine and writes a profile of it. */
#include "base/ending_signals.h"
#include "base/file.h"
#include "cli/calibrate_nccl.h"
#include "cli/commands.h"
#include "cli/run_plan.h"
#include "report/calibration_report.h"
#include "report/files.h"
#include "settings/settings_parse.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { STEPS = 3 }; /* the last is recorded: memory is touched, caches are as in any later one */

struct calibrate_command {
    struct settings settings;
    char date[32];
    bool terminal;        /* a progress bar is drawn */
    char dir[512];        /* temporary */
    struct run_plan plan; /* how each plan is run */
};

static const char *device_of(const struct calibrate_command *c)
{
    return c->settings.cuda ? "cuda" : "host";
}

/* ---- running the suite ---- */

static enum err_code run(void *context, const struct plan *plan, struct trace **out,
                         struct err *err)
{
    const struct calibrate_command *c = context;
    return run_plan(&c->plan, plan, out, err);
}

static void show_progress(void *context, uint32_t done, uint32_t of, const char *name)
{
    enum { WIDTH = 30 };
    const struct calibrate_command *c = context;
    if (!c->terminal)
        return;
    if (done == of) {
        fputs("\r\x1b[K", stderr);
        return;
    }
    char bar[WIDTH + 1];
    const uint32_t full = done * WIDTH / of;
    memset(bar, '#', full);
    memset(bar + full, '.', WIDTH - full);
    bar[WIDTH] = '\0';
    fprintf(stderr, "\r  [%s] %u/%u  %s\x1b[K", bar, done, of, name);
    fflush(stderr);
}

static enum err_code measure(struct calibrate_command *c, struct calibration *out, struct err *err)
{
    const struct calibrate_settings *s = &c->settings.calibrate;
    const uint32_t largest_mib = s->quick ? 1 : c->settings.cuda ? 1024 : 64;
    const struct calibrate_runner runner = {.run = run, .progress = show_progress, .context = c};
    struct calibrate_options options = {
        .suite = {.ranks = s->ranks ? s->ranks : 2,
                  .quick = s->quick,
                  .gpu = c->settings.cuda,
                  .largest_bytes = (uint64_t)(s->largest_mib ? s->largest_mib : largest_mib) << 20},
        .device = device_of(c),
        .base = c->settings.gpu,
    };
    memcpy(options.date, c->date, sizeof options.date);
    const char *temporary = getenv("TMPDIR");
    sigset_t before;
    snprintf(c->dir, sizeof c->dir, "%s/calibrate.XXXXXX", temporary ? temporary : "/tmp");
    ending_signals_hold(&before); /* until the folder is gone: run_plan minds them */
    if (!mkdtemp(c->dir)) {
        ending_signals_release(&before);
        return err_set(err, ERR_IO, "create folder %s: %s", c->dir, strerror(errno));
    }
    c->plan = (struct run_plan){.dir = c->dir, .device = device_of(c), .steps = STEPS};
    const enum err_code rc = calibrate(&options, &runner, out, err);
    if (c->terminal && rc != ERR_OK)
        fputc('\n', stderr);     /* the message goes below the bar */
    files_remove_folder(c->dir); /* with what a rank that was killed was writing */
    ending_signals_release(&before);
    return rc;
}

/* ---- results ---- */

static enum err_code write_results(const struct calibrate_command *c,
                                   const struct calibration *calibration, const char **note,
                                   struct err *err)
{
    char path[PATH_MAX];
    json_t *profile = calibration_profile(calibration);
    const enum err_code rc = calibrate_write(profile, c->settings.output, err);
    json_decref(profile);
    TRY(rc);
    snprintf(path, sizeof path, "%s", c->settings.output);
    return calibration_page(calibration, dirname(path), note, err);
}

static void print(const struct calibrate_command *c, const struct calibration *calibration)
{
    if (c->settings.json) {
        json_t *object = calibration_json(calibration, c->settings.output);
        json_object_set_new(object, "settings", settings_echo(&c->settings));
        report_json(object);
    } else if (!c->settings.quiet) {
        calibration_print(stdout, calibration);
        printf("\n  %s; calibration.html beside it\n", c->settings.output);
    }
}

/* Minutes of measuring should not end in "cannot write": what writes at the end is asked to begin,
 * and says what it would say then. Pipes and devices are left alone: whoever opens one may wait. */
static enum err_code check_output(const char *path, struct err *err)
{
    struct file_writer probe;
    struct stat st;
    (void)files_make_parent(path, NULL); /* or what follows says so */
    const bool exists = lstat(path, &st) == 0;
    if (exists && S_ISDIR(st.st_mode))
        return err_set(err, ERR_IO, "create %s: %s", path, strerror(EISDIR));
    if (exists && !S_ISREG(st.st_mode))
        return ERR_OK;
    TRY(file_create(path, &probe, err));
    (void)file_commit(&probe, ERR_IO, NULL); /* nothing is left of it */
    return ERR_OK;
}

static enum err_code check_settings(const struct settings *s, struct err *err)
{
    if (s->cuda && !s->gpu && !s->calibrate.nccl.count)
        return err_set(err, ERR_INVALID, "--device cuda needs --gpu NAME for what is not measured");
    if (s->profile && !s->calibrate.nccl.count)
        return err_set(err, ERR_INVALID, "--profile goes with --from-nccl-tests");
    return check_output(s->output, err);
}

static void set_date(struct calibrate_command *c)
{
    const time_t now = time(NULL);
    struct tm day;
    strftime(c->date, sizeof c->date, "%Y-%m-%d", localtime_r(&now, &day));
}

static int import(const struct calibrate_command *c)
{
    const struct nccl_source source = {
        .paths = c->settings.calibrate.nccl.at,
        .path_count = c->settings.calibrate.nccl.count,
        .known = {.collective = COLLECTIVE_COUNT, .ranks = c->settings.calibrate.ranks},
        .base = c->settings.profile,
        .gpu = c->settings.gpu,
        .date = c->date,
    };
    return calibrate_from_nccl(&source, &c->settings);
}

static int measure_and_write(struct calibrate_command *c)
{
    struct calibration calibration;
    struct err err = {0};
    const char *note = NULL;
    if (measure(c, &calibration, &err) != ERR_OK)
        return report_error(&err);
    int status = EXIT_DONE;
    if (write_results(c, &calibration, &note, &err) != ERR_OK)
        status = report_error(&err);
    else
        print(c, &calibration);
    if (note)
        fprintf(stderr, "shardplan: %s\n", note);
    calibrate_free(&calibration);
    return status;
}

int command_calibrate(int argc, char **argv)
{
    struct calibrate_command c = {.terminal = false};
    struct err err = {0};
    settings_parse(COMMAND_CALIBRATE, argc, argv, &c.settings);
    c.terminal = !c.settings.quiet && isatty(STDERR_FILENO);
    set_date(&c);
    if (check_settings(&c.settings, &err) != ERR_OK)
        return report_error(&err);
    return c.settings.calibrate.nccl.count ? import(&c) : measure_and_write(&c);
}

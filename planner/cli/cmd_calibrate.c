/* cmd_calibrate.c - shardplan calibrate: measures this machine and writes a profile of it. */
#include "cli/calibrate_nccl.h"
#include "cli/commands.h"
#include "cli/run_plan.h"
#include "report/calibration_report.h"

#include <argp.h>
#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { KEY_DEVICE = 1000, KEY_GPU, KEY_LARGEST, KEY_QUICK, KEY_JSON, KEY_NCCL, KEY_PROFILE };

enum { MOST_FILES = 16 };

enum { STEPS = 3 }; /* the last is recorded: memory is touched, caches are as in any later one */

struct calibrate_command {
    const char *device, *gpu, *output;
    uint32_t ranks;
    uint64_t largest_bytes; /* 0: by device */
    bool quick, json, quiet;
    const char *nccl[MOST_FILES]; /* what nccl-tests wrote: then nothing is run */
    uint32_t nccl_count;
    const char *base; /* a profile that collectives of nccl-tests go into */
    char date[32];
    bool terminal;        /* a progress bar is drawn */
    char dir[512];        /* temporary */
    struct run_plan plan; /* how each plan is run */
};

static const struct argp_option options[] = {
    {NULL, 'n', "RANKS", 0, "Ranks that run together (default 2)", 0},
    {"output", 'o', "FILE", 0,
     "The profile (default profile.json); calibration.html and .svg are put beside it", 0},
    {"device", KEY_DEVICE, "NAME", 0, "host, cuda (default host)", 0},
    {"gpu", KEY_GPU, "NAME", 0,
     "The built-in GPU for what is not measured (cuda needs it; host writes every number)", 0},
    {"largest", KEY_LARGEST, "MIB", 0, "Largest collective (default 64 on host, 1024 on cuda)", 0},
    {"quick", KEY_QUICK, NULL, 0, "A few small sizes only: seconds, and less true", 0},
    {"from-nccl-tests", KEY_NCCL, "FILE", 0,
     "Measure nothing: take collectives from what nccl-tests printed or wrote as JSON (up to 16 "
     "files); -n says the ranks where a file does not",
     0},
    {"profile", KEY_PROFILE, "FILE", 0, "The profile that they are put into (default: a new one)",
     0},
    {"json", KEY_JSON, NULL, 0, "One JSON object on standard output and nothing else", 0},
    {"quiet", 'q', NULL, 0, "Print nothing but errors", 0},
    {0},
};

static uint32_t number(struct argp_state *state, const char *name, const char *text, uint32_t most)
{
    char *end = NULL;
    const long value = strtol(text, &end, 10);
    if (end == text || *end || value < 1 || value > (long)most)
        argp_error(state, "%s %s: allowed are 1 ... %u", name, text, most);
    return (uint32_t)value;
}

static const char *device_name(struct argp_state *state, const char *text)
{
    if (strcmp(text, "host") != 0 && strcmp(text, "cuda") != 0)
        argp_error(state, "--device %s: allowed are host, cuda", text);
    return text;
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct calibrate_command *c = state->input;
    switch (key) {
    case 'n':
        c->ranks = number(state, "-n", arg, 64);
        return 0;
    case 'o':
        c->output = arg;
        return 0;
    case 'q':
        c->quiet = true;
        return 0;
    case KEY_DEVICE:
        c->device = device_name(state, arg);
        return 0;
    case KEY_GPU:
        c->gpu = arg;
        return 0;
    case KEY_LARGEST:
        c->largest_bytes = (uint64_t)number(state, "--largest", arg, 1 << 16) << 20;
        return 0;
    case KEY_QUICK:
        c->quick = true;
        return 0;
    case KEY_JSON:
        c->json = true;
        return 0;
    case KEY_PROFILE:
        c->base = arg;
        return 0;
    case KEY_NCCL:
        if (c->nccl_count == MOST_FILES)
            argp_error(state, "--from-nccl-tests: at most %d files", MOST_FILES);
        c->nccl[c->nccl_count++] = arg;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "\"%s\": it takes no arguments but options", arg);
        return EINVAL;
    case ARGP_KEY_END:
        if (strcmp(c->device, "cuda") == 0 && !c->gpu && !c->nccl_count)
            argp_error(state, "--device cuda needs --gpu NAME for what is not measured");
        if (c->base && !c->nccl_count)
            argp_error(state, "--profile goes with --from-nccl-tests");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
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
    const bool host = strcmp(c->device, "host") == 0;
    const uint64_t largest = c->quick ? (uint64_t)1 << 20 : (uint64_t)(host ? 64 : 1024) << 20;
    const struct calibrate_runner runner = {.run = run, .progress = show_progress, .context = c};
    struct calibrate_options settings = {
        .suite = {.ranks = c->ranks ? c->ranks : 2,
                  .quick = c->quick,
                  .largest_bytes = c->largest_bytes ? c->largest_bytes : largest},
        .device = c->device,
        .base = c->gpu,
    };
    memcpy(settings.date, c->date, sizeof settings.date);
    const char *temporary = getenv("TMPDIR");
    snprintf(c->dir, sizeof c->dir, "%s/calibrate.XXXXXX", temporary ? temporary : "/tmp");
    if (!mkdtemp(c->dir))
        return err_set(err, ERR_IO, "create folder %s: %s", c->dir, strerror(errno));
    c->plan = (struct run_plan){.dir = c->dir, .device = c->device, .steps = STEPS};
    const enum err_code rc = calibrate(&settings, &runner, out, err);
    if (c->terminal && rc != ERR_OK)
        fputc('\n', stderr); /* the message goes below the bar */
    rmdir(c->dir);
    return rc;
}

/* ---- results ---- */

static enum err_code write_results(const struct calibrate_command *c,
                                   const struct calibration *calibration, const char **note,
                                   struct err *err)
{
    char path[PATH_MAX];
    json_t *profile = calibration_profile(calibration);
    const enum err_code rc = calibrate_write(profile, c->output, err);
    json_decref(profile);
    TRY(rc);
    snprintf(path, sizeof path, "%s", c->output);
    return calibration_page(calibration, dirname(path), note, err);
}

static void print(const struct calibrate_command *c, const struct calibration *calibration)
{
    if (c->json) {
        json_t *object = calibration_json(calibration, c->output);
        json_dumpf(object, stdout, JSON_INDENT(2));
        putchar('\n');
        json_decref(object);
    } else if (!c->quiet) {
        calibration_print(stdout, calibration);
        printf("\n  %s; calibration.html beside it\n", c->output);
    }
}

/* Minutes of measuring should not end in "cannot write". */
static enum err_code check_settings(const struct calibrate_command *c, struct err *err)
{
    char path[PATH_MAX];
    struct profile profile = {.kernels = NULL};
    snprintf(path, sizeof path, "%s", c->output);
    const char *dir = dirname(path);
    if (access(dir, W_OK) != 0)
        return err_set(err, ERR_INVALID, "-o %s: folder %s: %s", c->output, dir, strerror(errno));
    if (c->gpu) {
        TRY(profile_find(c->gpu, &profile, err));
        profile_free(&profile);
    }
    return ERR_OK;
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
        .paths = c->nccl,
        .path_count = c->nccl_count,
        .known = {.collective = COLLECTIVE_COUNT, .ranks = c->ranks},
        .base = c->base,
        .gpu = c->gpu,
        .date = c->date,
    };
    return calibrate_from_nccl(&source, c->output, c->json, c->quiet);
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
    const struct argp argp = {
        .options = options,
        .parser = parse_option,
        .doc = "Measures this machine by running small plans on it, and writes the profile that "
               "plans of it are timed with: `shardplan plan --profile FILE`.",
    };
    struct calibrate_command c = {.device = "host", .output = "profile.json"};
    struct err err = {0};
    static char name[] = "shardplan calibrate";
    argv[0] = name; /* what usage and errors call this program */
    argp_err_exit_status = EXIT_BAD_INPUT;
    argp_parse(&argp, argc, argv, 0, NULL, &c);
    c.terminal = !c.quiet && isatty(STDERR_FILENO);
    set_date(&c);
    if (check_settings(&c, &err) != ERR_OK)
        return report_error(&err);
    return c.nccl_count ? import(&c) : measure_and_write(&c);
}

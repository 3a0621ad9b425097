/* cmd_compare.c - shardplan compare: a plan beside the trace of a run of it. */
#include "cli/commands.h"
#include "plan/plan_json.h"
#include "plan/plan_rank.h"
#include "report/compare_report.h"

#include <argp.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct compare_settings {
    const char *plan, *trace, *dir;
    double tolerance_percent; /* NAN: time is not checked */
    bool json, quiet;
};

enum { KEY_TOLERANCE = 1000, KEY_JSON }; /* no short options */

static const struct argp_option options[] = {
    {"output", 'o', "DIR", 0,
     "Folder for compare.json, compare.html, memory-compare.svg and timeline.svg", 0},
    {"tolerance", KEY_TOLERANCE, "PERCENT", 0,
     "Fail when the predicted step time is off by more (default: time is not checked)", 0},
    {"json", KEY_JSON, NULL, 0, "One JSON object on standard output and nothing else", 0},
    {"quiet", 'q', NULL, 0, "Print nothing but errors", 0},
    {0},
};

static void take_argument(struct compare_settings *s, char *arg, struct argp_state *state)
{
    if (s->trace)
        argp_error(state, "one PLAN.json and one TRACE.json only: \"%s\" is too much", arg);
    *(s->plan ? &s->trace : &s->plan) = arg;
}

static void take_tolerance(struct compare_settings *s, const char *arg, struct argp_state *state)
{
    char *end = NULL;
    s->tolerance_percent = strtod(arg, &end);
    if (end == arg || *end || !(s->tolerance_percent >= 0) || isinf(s->tolerance_percent))
        argp_error(state, "--tolerance %s: allowed are percentages from 0", arg);
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct compare_settings *s = state->input;
    switch (key) {
    case 'o':
        s->dir = arg;
        return 0;
    case KEY_TOLERANCE:
        take_tolerance(s, arg, state);
        return 0;
    case KEY_JSON:
        s->json = true;
        return 0;
    case 'q':
        s->quiet = true;
        return 0;
    case ARGP_KEY_ARG:
        take_argument(s, arg, state);
        return 0;
    case ARGP_KEY_END:
        if (!s->trace)
            argp_error(state, "PLAN.json and TRACE.json are needed: what `shardplan plan` and "
                              "`shardplan run` wrote");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static enum err_code judge(const struct compare_settings *s, const struct comparison *c,
                           struct compare_verdict *out, struct err *err)
{
    const struct compare_time *t = &c->time;
    *out = (struct compare_verdict){
        .memory_equal = compare_memory_equal(c),
        .time_checked = !isnan(s->tolerance_percent),
        .tolerance_percent = s->tolerance_percent,
    };
    if (!out->time_checked)
        return ERR_OK;
    if (isnan(t->predicted_step_s))
        return err_set(err, ERR_INVALID, "--tolerance: %s predicts no times", s->plan);
    out->time_within = t->step_s > 0 &&
                       100.0 * fabs(t->predicted_step_s / t->step_s - 1.0) <= s->tolerance_percent;
    return ERR_OK;
}

static void print(const struct compare_settings *s, const struct plan *plan,
                  const struct comparison *c, const struct compare_verdict *verdict,
                  const char *note)
{
    if (s->json) {
        json_t *object = compare_json(plan, c, verdict);
        json_dumpf(object, stdout, JSON_INDENT(2));
        putchar('\n');
        json_decref(object);
    } else if (!s->quiet) {
        compare_print(stdout, plan, c, verdict);
        if (s->dir)
            printf("\n  %s/: compare.json, %scompare.html\n", s->dir,
                   note ? "" : "memory-compare.svg, timeline.svg, ");
    }
    if (note)
        fprintf(stderr, "shardplan: %s\n", note);
}

static int compare(const struct compare_settings *s, const struct plan *plan, const json_t *time,
                   const struct trace *trace, struct err *err)
{
    struct comparison comparison;
    struct compare_verdict verdict;
    const char *note = NULL;
    if (compare_run(plan, time, trace, &comparison, err) != ERR_OK) {
        err_context(err, "%s", s->trace);
        return report_error(err);
    }
    int status;
    if (judge(s, &comparison, &verdict, err) != ERR_OK ||
        (s->dir &&
         compare_report_write(plan, &comparison, &verdict, s->dir, &note, err) != ERR_OK)) {
        status = report_error(err);
    } else {
        print(s, plan, &comparison, &verdict, note);
        status = verdict.memory_equal && (!verdict.time_checked || verdict.time_within)
                     ? EXIT_DONE
                     : EXIT_DIFFERS;
    }
    compare_free(&comparison);
    return status;
}

/* A plan is rank 0's; the trace says whose it is. */
static enum err_code play_rank(struct plan *plan, const struct trace *trace, struct err *err)
{
    const char *rank = trace_get_info(trace, "rank");
    return rank && plan->rank == 0 ? plan_for_rank(plan, (uint32_t)strtoul(rank, NULL, 10), err)
                                   : ERR_OK;
}

/* A file that cannot be read is bad input, too. */
static int report_unreadable(const struct err *err)
{
    const int status = report_error(err);
    return err->code == ERR_IO ? EXIT_BAD_INPUT : status;
}

int command_compare(int argc, char **argv)
{
    const struct argp argp = {
        .options = options,
        .parser = parse_option,
        .args_doc = "PLAN.json TRACE.json",
        .doc = "A plan beside the recorded trace of a run of it, instruction by instruction. Exit "
               "status: 0 memory is equal (and time within --tolerance), 1 it is not, 2 bad input.",
    };
    struct compare_settings settings = {.tolerance_percent = NAN};
    struct plan_json_extra extra = {0};
    struct plan *plan = NULL;
    struct trace *trace = NULL;
    struct err err = {0};
    int status;
    static char name[] = "shardplan compare";
    argv[0] = name; /* what usage and errors call this program */
    argp_err_exit_status = EXIT_BAD_INPUT;
    argp_parse(&argp, argc, argv, 0, NULL, &settings);
    if (plan_read_json_extra(settings.plan, &plan, &extra, &err) != ERR_OK ||
        trace_read(settings.trace, &trace, &err) != ERR_OK ||
        play_rank(plan, trace, &err) != ERR_OK)
        status = report_unreadable(&err);
    else
        status = compare(&settings, plan, extra.time, trace, &err);
    trace_free(trace);
    plan_free(plan);
    plan_json_extra_free(&extra);
    return status;
}

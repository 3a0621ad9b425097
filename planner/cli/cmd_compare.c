/* cmd_compare.c - shardplan compare: a plan beside the trace of a run of it. */
#include "base/file.h"
#include "base/number.h"
#include "cli/commands.h"
#include "plan/plan_json.h"
#include "plan/plan_rank.h"
#include "report/compare_report.h"
#include "report/files.h"
#include "settings/settings_parse.h"

#include <limits.h>
#include <math.h>
#include <string.h>

static enum err_code judge(const struct settings *s, const struct comparison *c,
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
    const double step_s = t->steps.count ? t->steps.median_s : t->step_s;
    out->time_within =
        step_s > 0 && 100.0 * fabs(t->predicted_step_s / step_s - 1.0) <= s->tolerance_percent;
    return ERR_OK;
}

static void print(const struct settings *s, const struct plan *plan, const struct comparison *c,
                  const struct compare_verdict *verdict, const char *note)
{
    if (s->json) {
        json_t *object = compare_json(plan, c, verdict);
        json_object_set_new(object, "settings", settings_echo(s));
        report_json(object);
    } else if (!s->quiet) {
        compare_print(stdout, plan, c, verdict);
        if (s->output)
            printf("\n  %s/: compare.json, %scompare.html\n", s->output,
                   note ? "" : "memory-compare.svg, timeline.svg, ");
    }
    if (note)
        fprintf(stderr, "shardplan: %s\n", note);
}

static enum err_code write_files(const struct settings *s, const struct plan *plan,
                                 const char *model, const struct comparison *comparison,
                                 const struct compare_verdict *verdict, const char **note,
                                 struct err *err)
{
    int hold;
    if (!s->output)
        return ERR_OK;
    TRY(files_take_folder(s->output, &hold, err));
    const enum err_code rc =
        compare_report_write(plan, comparison, verdict, model, s->output, note, err);
    files_give_folder(hold);
    return rc;
}

static int compare(const struct settings *s, const struct plan *plan,
                   const struct plan_json_extra *extra, const struct trace *trace, struct err *err)
{
    struct comparison comparison;
    struct compare_verdict verdict;
    const char *note = NULL;
    const char *model = json_string_value(json_object_get(extra->settings, "model"));
    if (compare_run(plan, extra->time, trace, &comparison, err) != ERR_OK) {
        err_context(err, "%s", s->trace);
        return report_error(err);
    }
    int status;
    if (judge(s, &comparison, &verdict, err) != ERR_OK ||
        write_files(s, plan, model, &comparison, &verdict, &note, err) != ERR_OK) {
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

/* A plan is rank 0's; the trace says whose it is. *extra becomes that rank's, too. */
static enum err_code play_rank(const char *path, struct plan **plan, struct plan_json_extra *extra,
                               const struct trace *trace, struct err *err)
{
    const char *rank = trace_get_info(trace, "rank");
    uint64_t number;
    if (!rank || (*plan)->rank != 0)
        return ERR_OK;
    if (!number_integer(rank, &number) || number > UINT32_MAX)
        return err_set(err, ERR_INVALID, "\"rank\" is \"%s\": a number is expected", rank);
    return plan_read_rank(path, (uint32_t)number, plan, extra, err);
}

int command_compare(int argc, char **argv)
{
    struct settings settings;
    struct plan_json_extra extra = {0};
    struct plan *plan = NULL;
    struct trace *trace = NULL;
    struct err err = {0};
    char path[PATH_MAX];
    int status;
    settings_parse(COMMAND_COMPARE, argc, argv, &settings);
    settings.trace = file_meant(settings.trace, "trace.json", path, sizeof path);
    if (plan_read_json_extra(settings.plan, &plan, &extra, &err) != ERR_OK ||
        plan_check_whole(plan, settings.plan, &err) != ERR_OK ||
        trace_read(settings.trace, &trace, &err) != ERR_OK ||
        play_rank(settings.plan, &plan, &extra, trace, &err) != ERR_OK)
        status = report_error(&err);
    else
        status = compare(&settings, plan, &extra, trace, &err);
    trace_free(trace);
    plan_free(plan);
    plan_json_extra_free(&extra);
    return status;
}

/* cmd_plan.c - shardplan plan: the step, written to a folder. */
#include "cli/commands.h"
#include "frameworks/import.h"
#include "report/report.h"
#include "report/time_result.h"
#include "settings/settings_parse.h"
#include "settings/settings_resolve.h"

struct planned {
    struct settings settings;
    struct import import; /* of --from */
    struct job job;
    struct machine machine;
    struct prediction prediction;
    struct step_time time;
    struct long_run run; /* with --goodput */
};

static void show(const struct planned *p, const char *note)
{
    struct remedy remedies[REMEDIES];
    const uint32_t count =
        p->prediction.fits ? 0 : remedies_find(&p->settings, &p->job.config, &p->machine, remedies);
    if (p->settings.json) {
        json_t *memory =
            result_json(&p->settings, &p->job, &p->machine, &p->prediction, remedies, count);
        json_object_set_new(memory, "time", time_json(&p->time));
        if (p->settings.goodput)
            json_object_set_new(memory, "goodput", long_run_json(&p->run));
        json_object_set_new(memory, "from", import_json(&p->import));
        json_dumpf(memory, stdout, JSON_INDENT(2));
        putchar('\n');
        json_decref(memory);
    } else if (!p->settings.quiet) {
        result_print(stdout, &p->settings, &p->job, &p->machine, &p->prediction, remedies, count);
        time_print(stdout, &p->time);
        if (p->settings.goodput)
            long_run_print(stdout, &p->run);
        import_print(stdout, &p->import);
        printf("\n  %s/: plan.json, trace.json (Perfetto), snapshot.pickle (memory_viz), "
               "%sreport.html\n",
               p->settings.output, note ? "" : "memory.svg, timeline.svg, ");
    }
    if (note)
        fprintf(stderr, "shardplan: %s\n", note);
}

/* Plans the step and everything that is asked of it; what it makes is freed by the caller. */
static enum err_code make(struct planned *p, const char **note, struct err *err)
{
    TRY(step_time(&p->prediction, &p->job, &p->machine, STEP_TIME_DRAWS, &p->time, err));
    if (p->settings.goodput)
        TRY(long_run(p->prediction.plan, &p->machine, &p->time, &p->run, err));
    return report_write(&p->settings, &p->job, &p->machine, &p->prediction, &p->time, note, err);
}

static int plan(struct planned *p)
{
    struct err err = {0};
    const char *note = NULL;
    if (settings_resolve(&p->settings, &p->job, &p->machine, &err) != ERR_OK)
        return report_error(&err);
    enum err_code rc = predict(&p->job, &p->machine, &p->prediction, &err);
    if (rc == ERR_OK)
        rc = make(p, &note, &err);
    if (rc == ERR_OK)
        show(p, note);
    const int status = rc != ERR_OK         ? report_error(&err)
                       : p->prediction.fits ? EXIT_DONE
                                            : EXIT_NO_FIT;
    step_time_free(&p->time);
    prediction_free(&p->prediction);
    settings_release(&p->job, &p->machine);
    return status;
}

int command_plan(int argc, char **argv)
{
    struct planned p = {.time = {.simulation = NULL}};
    settings_parse_from(COMMAND_PLAN, argc, argv, import_file, &p.import, &p.settings);
    const int status = plan(&p);
    import_free(&p.import);
    return status;
}

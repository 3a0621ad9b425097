/* cmd_plan.c - shardplan plan: the step, written to a folder. */
#include "cli/commands.h"
#include "cli/report.h"

int command_plan(int argc, char **argv)
{
    struct settings settings;
    struct job job;
    struct placement placement;
    struct prediction prediction;
    struct err err = {0};
    const char *note = NULL;
    options_parse(FOR_PLAN, argc, argv, &settings);
    if (options_resolve(&settings, &job, &placement, &err) != ERR_OK ||
        predict(&job, &placement, &prediction, &err) != ERR_OK)
        return report_error(&err);

    int status = prediction.fits ? EXIT_DONE : EXIT_NO_FIT;
    if (report_write(&settings, &job, &placement, &prediction, &note, &err) != ERR_OK) {
        status = report_error(&err);
    } else {
        struct remedy remedies[REMEDIES];
        const uint32_t count = prediction.fits ? 0 : remedies_find(&job, &placement, remedies);
        if (settings.json) {
            json_t *result = result_json(&settings, &job, &placement, &prediction, remedies, count);
            json_dumpf(result, stdout, JSON_INDENT(2));
            putchar('\n');
            json_decref(result);
        } else if (!settings.quiet) {
            result_print(stdout, &settings, &job, &placement, &prediction, remedies, count);
            printf("\n  %s/: plan.json, trace.json (Perfetto), snapshot.pickle (memory_viz), "
                   "%sreport.html\n",
                   settings.out_dir, note ? "" : "memory.svg, ");
        }
        if (note)
            fprintf(stderr, "shardplan: %s\n", note);
    }
    prediction_free(&prediction);
    return status;
}

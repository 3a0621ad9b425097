/* tuned.c - a choice of a tuning as settings, and as the commands predict it; see tune.h. */
#include "search/tune.h"

#include "settings/settings_resolve.h"

void tuned_settings(const struct tuned *tuned, const struct found *found, struct settings *out)
{
    grid_chosen(&tuned->space.grids[tuned->candidates.at[found->candidate].grid], found->point,
                out);
}

enum err_code tuned_predict(const struct tuned *tuned, const struct settings *settings, bool whole,
                            uint32_t draws, struct tuned_prediction *out, struct err *err)
{
    *out = (struct tuned_prediction){.machine = tuned->machine};
    out->machine.expandable_segments = settings->expandable_segments;
    TRY(settings_job(settings, &tuned->job.config, &out->job, err));
    TRY((whole ? predict : predict_few)(&out->job, &out->machine, &out->prediction, err));
    const enum err_code rc =
        step_time(&out->prediction, &out->job, &out->machine, draws, &out->time, err);
    if (rc != ERR_OK)
        prediction_free(&out->prediction);
    return rc;
}

void tuned_prediction_free(struct tuned_prediction *prediction)
{
    step_time_free(&prediction->time);
    prediction_free(&prediction->prediction);
}

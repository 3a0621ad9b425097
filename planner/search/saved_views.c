/* saved_views.c - see saved_views.h. */
#include "search/saved_views.h"

#include "settings/settings_resolve.h"

bool saved_views_find(const struct settings *settings, const struct job *job,
                      const struct machine *machine, const struct prediction *prediction,
                      struct saved_views *out)
{
    const struct plan *plan = prediction->plan;
    struct job full;
    struct prediction other;
    struct settings changed = *settings;
    *out = (struct saved_views){.bytes = plan->saved_views_bytes};
    if (plan->saved_views_bytes <= plan->saved_view_bytes ||
        job->tape.checkpointing == CHECKPOINTING_FULL)
        return false;
    changed.job.tape.checkpointing = CHECKPOINTING_FULL;
    if (settings_job(&changed, &job->config, &full, &out->refusal) == ERR_OK &&
        predict_few(&full, machine, &other, &out->refusal) == ERR_OK) {
        out->checkpointed_bytes = other.device_bytes;
        prediction_free(&other);
    }
    return true;
}

/* saved_views.c - see saved_views.h. */
#include "search/saved_views.h"

#include "job/reentrant.h"
#include "search/changed.h"

bool saved_views_find(const struct settings *settings, const struct job *job,
                      const struct machine *machine, const struct prediction *prediction,
                      struct saved_views *out)
{
    const struct plan *plan = prediction->plan;
    struct settings full = *settings;
    *out = (struct saved_views){.bytes = plan->saved_views_bytes,
                                .until_loss_goes = reentrant_frees_gathered(&settings->job)};
    if (plan->saved_views_bytes <= plan->saved_view_bytes ||
        (job->tape.checkpointing == CHECKPOINTING_FULL &&
         (job->tape.reentrant || !out->until_loss_goes)))
        return false;
    full.job.tape.checkpointing = CHECKPOINTING_FULL;
    full.job.tape.reentrant = job->tape.reentrant || out->until_loss_goes;
    out->checkpointed_bytes = changed_device_bytes(&full, &job->config, machine,
                                                   &out->checkpointed_release, &out->refusal);
    return true;
}

/* changed.c - see changed.h. */
#include "search/changed.h"

#include "settings/settings_resolve.h"

uint64_t changed_device_bytes(const struct settings *changed, const struct model_config *config,
                              const struct machine *machine, bool *after_release,
                              struct err *refusal)
{
    struct job job;
    struct prediction prediction;
    *after_release = false; /* of what is refused, too */
    if (settings_job(changed, config, &job, refusal) != ERR_OK ||
        predict_few(&job, machine, &prediction, refusal) != ERR_OK)
        return 0;
    const uint64_t bytes = prediction.device_bytes;
    *after_release = prediction.fits && prediction.after_release;
    prediction_free(&prediction);
    return bytes;
}

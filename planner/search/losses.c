/* losses.c - see losses.h. */
#include "search/losses.h"

#include "families/families.h"
#include "search/changed.h"
#include "settings/settings_resolve.h"

#include <string.h>

bool loss_is_plain(enum cross_entropy loss)
{
    switch (loss) {
    case CROSS_ENTROPY_EAGER:
    case CROSS_ENTROPY_FUSED:
    case CROSS_ENTROPY_CHUNKED:
    case CROSS_ENTROPY_COMPILED:
    case CROSS_ENTROPY_LIGER:
    case CROSS_ENTROPY_LIGER_LOGITS:
    case CROSS_ENTROPY_CUT:
    case CROSS_ENTROPY_LM_HEAD:
        return true;
    default: /* logits as they are, a loss of each token, of pairs, of rewards */
        return false;
    }
}

const char *loss_how(enum cross_entropy loss)
{
    switch (loss) {
    case CROSS_ENTROPY_FUSED:
    case CROSS_ENTROPY_LIGER_LOGITS:
        return "the same loss, its gradient written over the logits";
    case CROSS_ENTROPY_CHUNKED:
    case CROSS_ENTROPY_LIGER:
        return "the same loss, in chunks of tokens";
    case CROSS_ENTROPY_COMPILED:
        return "the same loss, compiled";
    case CROSS_ENTROPY_CUT:
    case CROSS_ENTROPY_LM_HEAD:
        return "the same loss, a tile of logits at a time";
    default:
        return "the same loss, by PyTorch's operators";
    }
}

bool losses_have_peak(const struct job *job, const struct prediction *prediction)
{
    const enum step_part part = prediction->memory.device.part;
    return loss_is_plain(job->model.loss) && (part == PART_LOSS || part == PART_BACKWARD_HEAD);
}

bool losses_in_transformers(const struct settings *settings, const struct model_config *config,
                            struct settings *out)
{
    struct job job;
    *out = *settings;
    return settings_job(settings, config, &job, NULL) == ERR_OK && job.model.code != CODE_HF &&
           !config->recording && settings_set(out, "code", code_name(CODE_HF), NULL) == ERR_OK;
}

static void keep_least(struct other_loss out[LOSSES_MOST], uint32_t *count,
                       const struct other_loss *one)
{
    uint32_t at = *count < LOSSES_MOST ? (*count)++ : LOSSES_MOST;
    for (; at > 0 && one->device_bytes < out[at - 1].device_bytes; at--)
        if (at < LOSSES_MOST)
            out[at] = out[at - 1];
    if (at < LOSSES_MOST)
        out[at] = *one;
}

/* As the code of the settings has them, which is told as `code`. */
static void try_all(const struct settings *settings, const struct job *job,
                    const struct machine *machine, uint64_t below, const char *code,
                    struct other_loss out[LOSSES_MOST], uint32_t *count)
{
    const struct setting *row = settings_find(settings, "loss", NULL);
    for (const struct setting_word *word = row->words; word->text; word++) {
        struct settings changed = *settings;
        struct err refusal = {0};
        struct other_loss one = {.code = code, .loss = word->text};
        bool after_release;
        if (!loss_is_plain((enum cross_entropy)word->value) ||
            (enum cross_entropy)word->value == job->model.loss)
            continue;
        changed.job.model.loss = (enum cross_entropy)word->value;
        one.device_bytes =
            changed_device_bytes(&changed, &job->config, machine, &after_release, &refusal);
        if (one.device_bytes && one.device_bytes < below && !after_release)
            keep_least(out, count, &one);
    }
}

uint32_t losses_find(const struct settings *settings, const struct job *job,
                     const struct machine *machine, const struct prediction *prediction,
                     struct other_loss out[LOSSES_MOST])
{
    struct settings other;
    uint32_t count = 0;
    if (!losses_have_peak(job, prediction) || job->config.recording)
        return 0;
    try_all(settings, job, machine, prediction->device_bytes, NULL, out, &count);
    if (losses_in_transformers(settings, &job->config, &other))
        try_all(&other, job, machine, prediction->device_bytes, code_name(CODE_HF), out, &count);
    return count;
}

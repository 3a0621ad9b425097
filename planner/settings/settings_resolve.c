/* settings_resolve.c - see settings_resolve.h. */
#include "settings/settings_resolve.h"

#include "machine/builtin.h"

#include <inttypes.h>

enum { DEFAULT_SEQ = 2048, MOST_TOKENS = 1 << 28 }; /* a micro-batch's: sizes stay below 2^63 */

/* Whether the chosen system has a setting: one that it has not is at no default of its own. */
static bool has(const struct settings *settings, const char *name)
{
    return settings_find(settings, name, NULL) != NULL;
}

static void resolve_dtypes(const struct settings *settings, struct job *job)
{
    const enum dtype same = DTYPE_COUNT;
    struct strategy *s = &job->strategy;
    if (!has(settings, "store-dtype"))
        s->store = DTYPE_FP32;
    s->names_compute = s->compute != same && has(settings, "param-dtype");
    if (!s->names_compute)
        s->compute = s->store;
    if (settings_find(settings, "frozen-dtype", NULL) && !has(settings, "param-dtype")) {
        s->compute = settings->frozen == same ? s->store : settings->frozen;
        s->frozen_low = s->compute != s->store;
    }
    if (s->reduce == same || !has(settings, "reduce-dtype"))
        s->reduce = strategy_own_reduce(s, job->model.torch);
    if (!has(settings, "autocast"))
        job->model.autocast = false;
    if (!has(settings, "outputs"))
        job->model.outputs_fp32 = false;
    job->model.compute = s->compute;
}

static enum err_code resolve_zero(const struct settings *settings, uint32_t hidden,
                                  struct strategy *s, struct err *err)
{
    const uint32_t stage = system_zero_stage(s->system);
    if (stage == 0)
        return ERR_OK;
    s->zero = zero_defaults_of(settings->deepspeed, stage);
    if (settings->zero)
        TRY(zero_read(settings->zero, stage, hidden, &s->zero, err));
    zero_offload_also(&s->zero, stage, settings->zero_offload);
    s->zero.node_ranks = settings->gpus_per_node;
    return ERR_OK;
}

enum err_code settings_job(const struct settings *settings, const struct model_config *config,
                           struct job *out, struct err *err)
{
    *out = settings->job;
    out->config = *config;
    if (out->model.code == CODE_COUNT)
        out->model.code = config->recording          ? CODE_RECORDED
                          : settings->job.model.lora ? CODE_HF /* which peft wraps */
                                                     : model_default_code(config->arch);
    if (out->model.seq == 0 && config->recording)
        out->model.seq = recording_info(config->recording).seq;
    if (out->model.seq == 0) {
        const uint32_t longest = model_longest(config);
        out->model.seq = longest && longest < DEFAULT_SEQ ? longest : DEFAULT_SEQ;
    }
    if ((uint64_t)out->model.batch * out->model.seq > MOST_TOKENS)
        return err_set(err, ERR_INVALID,
                       "--micro-batch %" PRIu32 " x --seq %" PRIu32
                       " is over 2^28 tokens a micro-batch",
                       out->model.batch, out->model.seq);
    resolve_dtypes(settings, out);
    return resolve_zero(settings, config->recording ? 0 : config->hidden, &out->strategy, err);
}

static bool is_given(const struct settings *settings, const char *name)
{
    const struct setting *row = settings_find(settings, name, NULL);
    return row && settings_is_given(settings, row);
}

/* A profile with a "gpu" of its own begins anew: what was chosen beside it would be lost. */
static enum err_code read_profile(const struct settings *settings, struct profile *profile,
                                  struct err *err)
{
    TRY(profile_read(settings->profile, profile, err));
    const char *own = profile->begun_with;
    if (own && is_given(settings, "gpu") &&
        builtin_find(builtin_gpus(), own) != builtin_find(builtin_gpus(), settings->gpu))
        return err_set(
            err, ERR_INVALID,
            "--gpu %s: %s is of another one (\"gpu\": \"%.100s\"); leave one of them out",
            settings->gpu, settings->profile, own);
    if (own && settings->node && is_given(settings, "node"))
        return err_set(err, ERR_INVALID,
                       "--node %s: %s begins with a card and its usual node (\"gpu\": "
                       "\"%.100s\"); leave \"gpu\" out and give --gpu",
                       settings->node, settings->profile, own);
    return ERR_OK;
}

enum err_code settings_machine(const struct settings *settings, struct machine *out,
                               struct err *err)
{
    enum err_code rc = ERR_OK;
    *out = (struct machine){
        .gpus_per_node = settings->gpus_per_node,
        .expandable_segments = settings->expandable_segments,
    };
    TRY(profile_find(settings->gpu, &out->profile, err));
    if (settings->node)
        rc = profile_set_node(settings->node, &out->profile, err);
    if (rc == ERR_OK && settings->profile)
        rc = read_profile(settings, &out->profile, err);
    if (settings->host_memory)
        out->profile.of[PROFILE_HOST_CAPACITY] =
            (struct quantity){.value = (double)settings->host_memory, .source = "--host-memory"};
    out->profile.clock = settings->clock;
    out->profile.attention = settings->attention;
    if (settings->attention == ATTENTION_AUTO &&
        !torch_does(settings->job.model.torch, TORCH_CUDNN_ATTENTION))
        out->profile.attention = ATTENTION_FLASH;
    if (rc != ERR_OK)
        profile_free(&out->profile);
    return rc;
}

enum err_code settings_resolve(struct settings *settings, struct job *job, struct machine *machine,
                               struct err *err)
{
    struct model_config config;
    TRY(model_find(settings->model, &config, err));
    enum err_code rc = settings_job(settings, &config, job, err);
    if (rc == ERR_OK) {
        settings->job.model.code = job->model.code;
        settings->job.model.seq = job->model.seq;
        rc = settings_machine(settings, machine, err);
    }
    if (rc != ERR_OK) {
        model_release(&config);
        job->config.recording = NULL;
    }
    return rc;
}

void settings_release(struct job *job, struct machine *machine)
{
    model_release(&job->config);
    profile_free(&machine->profile);
}

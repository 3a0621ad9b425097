/* settings_resolve.c - see settings_resolve.h. */
#include "settings/settings_resolve.h"

#include "families/families.h"
#include "job/policies.h"
#include "machine/builtin.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#define HUB_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."

enum { DEFAULT_SEQ = 2048, MOST_TOKENS = 1 << 28 }; /* a micro-batch's: sizes stay below 2^63 */

/* What is frozen under a system that gathers is stored as the others, or as it is gathered: a dtype
 * by its name has to be one of these. */
static enum err_code resolve_gathered(const struct settings *settings, struct strategy *s,
                                      struct err *err)
{
    const uint32_t asked = settings->frozen;
    s->frozen_low = asked == FROZEN_COMPUTED;
    if (asked >= DTYPE_COUNT || asked == (uint32_t)s->store)
        return ERR_OK;
    s->frozen_low = asked == (uint32_t)s->compute;
    return s->frozen_low
               ? ERR_OK
               : err_set(err, ERR_INVALID,
                         "--frozen-dtype %s: under %s what is not trained is in %s (--store-dtype) "
                         "or in %s (--param-dtype)",
                         dtype_brief((enum dtype)asked), system_name(s->system),
                         dtype_brief(s->store), dtype_brief(s->compute));
}

/* ZeRO keeps all parameters in the dtype that it computes with. */
static enum err_code check_one_dtype(const struct settings *settings, const struct strategy *s,
                                     struct err *err)
{
    const uint32_t asked = settings->frozen;
    if (asked >= DTYPE_COUNT || asked == (uint32_t)s->compute)
        return ERR_OK;
    return err_set(
        err, ERR_INVALID,
        "--frozen-dtype %s: %s stores all parameters in one dtype, that of --param-dtype: "
        "%s",
        dtype_brief((enum dtype)asked), system_name(s->system), dtype_brief(s->compute));
}

/* Where parameters are whole, those that are not trained are computed with as they are. */
static void resolve_whole(const struct settings *settings, struct strategy *s)
{
    s->compute = settings->frozen < DTYPE_COUNT ? (enum dtype)settings->frozen : s->store;
    s->frozen_low = s->compute != s->store;
}

static enum err_code resolve_frozen(const struct settings *settings, unsigned has,
                                    struct strategy *s, struct err *err)
{
    if (!(has & HAS_FROZEN))
        return ERR_OK;
    if (system_zero_stage(s->system) > 0)
        return check_one_dtype(settings, s, err);
    if (has & HAS_PARAM)
        return resolve_gathered(settings, s, err);
    resolve_whole(settings, s);
    return ERR_OK;
}

static enum err_code resolve_dtypes(const struct settings *settings, struct job *job,
                                    struct err *err)
{
    const enum dtype same = DTYPE_COUNT;
    struct strategy *s = &job->strategy;
    const unsigned has = settings->dtypes[s->system]; /* what is not there is at no default */
    if (!(has & HAS_STORE))
        s->store = DTYPE_FP32;
    s->names_compute = s->compute != same && (has & HAS_PARAM);
    if (!s->names_compute)
        s->compute = s->store;
    TRY(resolve_frozen(settings, has, s, err));
    if (s->reduce == same || !(has & HAS_REDUCE))
        s->reduce = strategy_own_reduce(s, job->model.torch);
    if (!(has & HAS_AUTOCAST))
        job->model.autocast = false;
    if (!(has & HAS_OUTPUTS))
        job->model.outputs_fp32 = false;
    job->model.compute = s->compute;
    job->model.autocast |= policies_autocast(job);
    return ERR_OK;
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

/* What only transformers' code is asked: what peft wraps, TRL's trainers of rewards, preferences
 * and policies call, collators pad. */
static bool is_of_transformers(const struct model_job *job)
{
    return job->lora || job->task || job->padding_tokens || job->loss == CROSS_ENTROPY_REWARD ||
           job->loss == CROSS_ENTROPY_DPO || job->loss == CROSS_ENTROPY_GRPO;
}

enum err_code settings_job(const struct settings *settings, const struct model_config *config,
                           struct job *out, struct err *err)
{
    *out = settings->job;
    out->config = *config;
    if (out->model.code == CODE_COUNT)
        out->model.code = config->recording ? CODE_RECORDED
                          : is_of_transformers(&settings->job.model) || config->stated.outer[0]
                              ? CODE_HF
                              : model_default_code(config->arch);
    if (out->model.task) /* it is asked for: of the file's own class nothing need be said */
        out->config.stated.class_name[0] = '\0';
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
    /* of a step, however few of them a plan has for all */
    out->model.micro_batches = out->model.loss == CROSS_ENTROPY_GRPO ? out->strategy.accumulate : 0;
    TRY(resolve_dtypes(settings, out, err));
    return resolve_zero(settings, config->recording ? 0 : config->hidden, &out->strategy, err);
}

static bool is_given(const struct settings *settings, const char *name)
{
    const struct setting *row = settings_find(settings, name, NULL);
    return row && settings_is_given(settings, row);
}

/* What joins GPUs by the host's slots has no rate of its own. A profile that says how they are
 * joined is whole, as `calibrate` writes it. */
static enum err_code check_link(const struct settings *settings, const struct profile *profile,
                                double usual, struct err *err)
{
    const bool slots = profile->link == LINK_PCIE || profile->link == LINK_HOST;
    const double link = profile_value(profile, PROFILE_LINK);
    if (!slots || link == usual || !profile_says(profile, "link_bytes_per_s") ||
        profile_says(profile, "link") || profile_says(profile, "pcie_bytes_per_s"))
        return ERR_OK;
    return err_set(err, ERR_INVALID,
                   "%s: \"link_bytes_per_s\" %g: these GPUs reach each other through their slots "
                   "(\"link\": \"%s\"); \"pcie_bytes_per_s\" is the rate of these, 12e9 of x16 of "
                   "generation 3 or x8 of 4, 25e9 and 52e9 of x16 of 4 and 5",
                   settings->profile, link, profile->link == LINK_PCIE ? "pcie" : "host");
}

/* A profile with a "gpu" of its own begins anew: what was chosen beside it would be lost. */
static enum err_code read_profile(const struct settings *settings, struct profile *profile,
                                  struct err *err)
{
    const double usual = profile_value(profile, PROFILE_NODE_GPUS);
    const double link = profile_value(profile, PROFILE_LINK);
    TRY(profile_read(settings->profile, profile, err));
    TRY(check_link(settings, profile, link, err));
    const char *own = profile->begun_with;
    const double node = profile_value(profile, PROFILE_NODE_GPUS);
    if (node != (own ? profile_node_gpus(own, NULL) : usual)) /* it would have no effect */
        return err_set(
            err, ERR_INVALID,
            "%s: \"node_gpus\" %g: how many GPUs of a node a job has is a setting; leave "
            "it out and give --gpus-per-node %g",
            settings->profile, node, node);
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

/* Ports of a rack are its hosts': of a part of it so many less. */
static void share_ports(struct profile *profile, uint32_t gpus_per_node)
{
    struct quantity *nics = &profile->of[PROFILE_NICS];
    const double rack = profile_value(profile, PROFILE_NODE_GPUS);
    const double host = profile_value(profile, PROFILE_HOST_GPUS);
    if (host > 0 && host < rack && gpus_per_node < rack)
        nics->value = fmax(1, floor(nics->value * gpus_per_node / rack));
}

/* What a profile's file takes away from nodes that a job has several of. */
static enum err_code check_ports(const struct settings *settings, const struct profile *profile,
                                 struct err *err)
{
    static const struct {
        enum profile_key key;
        const char *name;
    } needed[] = {{PROFILE_NICS, "nics"}, {PROFILE_NIC, "nic_bytes_per_s"}};
    const uint32_t world = settings->job.strategy.world, each = settings->gpus_per_node;
    for (size_t i = 0; each && world > each && i < sizeof needed / sizeof *needed; i++)
        if (profile_says(profile, needed[i].name) && !(profile_value(profile, needed[i].key) > 0))
            return err_set(err, ERR_INVALID,
                           "%s: \"%s\" is %g, and the job is on %u nodes, which reach each other "
                           "through their network ports: above 0",
                           settings->profile, needed[i].name, profile_value(profile, needed[i].key),
                           (world + each - 1) / each);
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
    if (rc == ERR_OK)
        share_ports(&out->profile, settings->gpus_per_node);
    if (rc == ERR_OK && settings->profile)
        rc = read_profile(settings, &out->profile, err);
    if (rc == ERR_OK && settings->profile)
        rc = check_ports(settings, &out->profile, err);
    if (settings->host_memory)
        out->profile.of[PROFILE_HOST_CAPACITY] =
            (struct quantity){.value = (double)settings->host_memory, .source = "--host-memory"};
    if (rc == ERR_OK && settings->memory_of_others > 0)
        out->profile.of[PROFILE_CAPACITY].value *= 1 - settings->memory_of_others;
    out->profile.clock = settings->clock;
    out->profile.attention = settings->attention;
    if (settings->attention == ATTENTION_AUTO &&
        !torch_does(settings->job.model.torch, TORCH_CUDNN_ATTENTION))
        out->profile.attention = ATTENTION_FLASH;
    if (rc != ERR_OK)
        profile_free(&out->profile);
    return rc;
}

/* ---- the model ---- */

static bool ends_in(const char *text, const char *end)
{
    const size_t length = strlen(text), less = strlen(end);
    return length > less && strcmp(text + length - less, end) == 0;
}

/* "org/name", as models are called on the Hub. */
static bool is_hub_name(const char *text)
{
    const char *slash = strchr(text, '/');
    const size_t owner = slash ? (size_t)(slash - text) : 0;
    return owner > 0 && text[0] != '.' && slash[1] && !strchr(slash + 1, '/') &&
           strspn(text, HUB_LETTERS) == owner &&
           strspn(slash + 1, HUB_LETTERS) == strlen(slash + 1);
}

/* A file's name that no file has is no preset's, and of a name on the Hub a file can be had. */
static enum err_code find_model(const char *text, struct model_config *out, struct err *err)
{
    struct err why = {0};
    const bool there = access(text, F_OK) == 0;
    *out = (struct model_config){.layers = 0};
    if (!there && (ends_in(text, ".json") || ends_in(text, ".gz")))
        return err_set(err, ERR_INVALID, "%.300s: %s", text, strerror(errno));
    const enum err_code rc = model_find(text, out, &why);
    if (rc == ERR_OK)
        return ERR_OK;
    if (!there && is_hub_name(text))
        return err_set(err, rc,
                       "%s; or give its config.json: `hf download %.200s config.json` fetches it "
                       "and says where it is",
                       why.text, text);
    return err_set(err, rc, "%s", why.text);
}

enum err_code settings_resolve(struct settings *settings, struct job *job, struct machine *machine,
                               struct err *err)
{
    struct model_config config;
    TRY(find_model(settings->model, &config, err));
    enum err_code rc = settings_job(settings, &config, job, err);
    if (rc == ERR_OK) {
        settings->job.model.code = job->model.code;
        settings->job.model.seq = job->model.seq;
        if (settings_find(settings, "param-dtype", NULL) && settings->frozen < DTYPE_COUNT &&
            system_zero_stage(job->strategy.system) == 0)
            settings->frozen = job->strategy.frozen_low ? FROZEN_COMPUTED : FROZEN_STORED;
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

/* proposals.c - see proposals.h. */
#include "search/proposals.h"

#include "job/reentrant.h"
#include "settings/settings_resolve.h"

/* Settings by name, with their values: NULL ends the list. */
struct change {
    const char *name, *value;
};

struct proposing {
    const struct settings *settings;
    struct settings *out;
    uint32_t count;
};

static void propose(struct proposing *p, const struct change *changes)
{
    struct settings *changed = &p->out[p->count];
    bool any = false;
    *changed = *p->settings;
    for (; changes->name; changes++)
        any |= settings_find(changed, changes->name, NULL) &&
               settings_set(changed, changes->name, changes->value, NULL) == ERR_OK;
    p->count += any;
}

/* Rows that do not share out evenly; views that nodes save of what is gathered. */
static void propose_what_notes_do(struct proposing *p)
{
    static const struct change columns[] = {{"placement", "columns"}, {NULL, NULL}};
    static const struct change checkpointed[] = {{"checkpointing", "full"}, {NULL, NULL}};
    static const struct change reentrant[] = {
        {"checkpointing", "full"}, {"checkpoint-reentrant", "on"}, {NULL, NULL}};
    propose(p, columns);
    propose(p, reentrant_frees_gathered(&p->settings->job) ? reentrant : checkpointed);
}

/* Weights in 4 bits are sharded by FSDP2 where they are packed in the dtype that it gathers. */
static void propose_packed(struct proposing *p)
{
    static const struct change packed[] = {{"strategy", "fsdp2"},
                                           {"bnb-quant-storage", "bf16"},
                                           {"frozen-dtype", "param"},
                                           {"checkpointing", "full"},
                                           {NULL, NULL}};
    const struct job *job = &p->settings->job;
    if (job->model.bits4.kind != BITS4_NOT && !system_is_alone(job->strategy.system) &&
        job->strategy.system != SYSTEM_FSDP2)
        propose(p, packed);
}

/* fp32 throughout, in a system that casts by autocast alone. What is frozen needs no fp32 to be
 * updated in. */
static void propose_autocast(struct proposing *p, const struct model_config *config)
{
    static const struct change cast[] = {{"autocast", "bf16"}, {NULL, NULL}};
    static const struct change cast_frozen[] = {
        {"frozen-dtype", "bf16"}, {"autocast", "bf16"}, {NULL, NULL}};
    struct job job;
    if (settings_job(p->settings, config, &job, NULL) != ERR_OK || job.model.autocast ||
        job.strategy.compute != DTYPE_FP32 || !settings_find(p->settings, "autocast", NULL))
        return;
    propose(p, job.model.frozen || job.model.lora ? cast_frozen : cast);
}

uint32_t proposals_of(const struct settings *settings, const struct model_config *config,
                      struct settings out[PROPOSALS_MOST])
{
    struct proposing p = {.settings = settings, .out = out};
    propose_what_notes_do(&p);
    propose_packed(&p);
    propose_autocast(&p, config);
    return p.count;
}

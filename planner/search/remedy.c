/* remedy.c - see remedy.h.
 *
 * The order is the cost model: what a change takes from throughput, from first principles.
 * Resharding a unit costs one more all-gather; a fused optimizer nothing; reducing in bf16 halves
 * the reduce-scatter and costs precision; selective checkpointing recomputes about half of the
 * matmuls that are not attention; full checkpointing recomputes the forward (4/3 of the compute);
 * halving the micro-batch doubles the collectives a token; more GPUs cost GPUs; offload moves
 * every parameter over PCIe twice a step. */
#include "search/remedy.h"

#include "settings/settings_resolve.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { EDITS = 3 };

struct edit { /* of one setting */
    const char *name;
    const char *to;       /* a value, or NULL: the present number ... */
    uint32_t times, over; /* ... times this, divided by this without a rest */
    bool optional;        /* a system without the setting does so anyway */
};

struct change {
    struct edit edits[EDITS];
    const char *cost;
};

/* No-sync would hold unsharded gradients instead. */
/* clang-format off */
#define SMALLER_BATCH(n)                                                                           \
    {{"accumulate-sync", "each", 0, 0, true}, {"micro-batch", NULL, 1, n, false},                  \
     {"accumulate", NULL, n, 1, false}}
/* clang-format on */

static const struct change changes[] = {
    {{{"optimizer-impl", "fused", 0, 0, false}},
     "no time: no list of square roots in the optimizer step"},
    {{{"reshard", "always", 0, 0, false}},
     "one more all-gather of the units that kept their parameters"},
    {{{"sharding", "FULL_SHARD", 0, 0, false}},
     "gathers where parameters were kept, or never sharded"},
    {{{"accumulate-sync", "each", 0, 0, false}}, "a reduce-scatter after every micro-batch"},
    {{{"checkpointing", "selective", 0, 0, false}},
     "recomputes every second matmul and what is cheap"},
    {{{"checkpointing", "full", 0, 0, false}}, "recomputes every block: a third more compute"},
    {SMALLER_BATCH(2), "twice the gathers a token"},
    {SMALLER_BATCH(4), "four times the gathers a token"},
    {{{"gpus", NULL, 2, 1, false}}, "twice the GPUs"},
    {{{"gpus", NULL, 4, 1, false}}, "four times the GPUs"},
    {{{"gpus", NULL, 8, 1, false}}, "eight times the GPUs"},
    {{{"offload", "cpu", 0, 0, false}}, "parameters, gradients and optimizer on the CPU"},
};
enum { CHANGES = sizeof changes / sizeof changes[0] };

/* False: the system does not have the setting, or the number cannot be. */
static bool edit(const struct edit *e, struct settings *settings)
{
    char text[NUMBER_TEXT];
    const char *present = settings_get(settings, e->name, text);
    uint64_t number;
    if (e->optional && !settings_find(settings, e->name, NULL))
        return true;
    if (e->to)
        return settings_set(settings, e->name, e->to, NULL) == ERR_OK;
    if (!present || !number_integer(present, &number) || number % e->over != 0)
        return false;
    snprintf(text, sizeof text, "%" PRIu64, number / e->over * e->times);
    return settings_set(settings, e->name, text, NULL) == ERR_OK;
}

static bool apply(const struct change *change, struct settings *settings)
{
    for (int i = 0; i < EDITS && change->edits[i].name; i++)
        if (!edit(&change->edits[i], settings))
            return false;
    return true;
}

struct trial {
    const struct settings *settings;
    const struct model_config *config;
    const struct machine *machine;
};

/* Whether the changed settings fit; then *remedy has the change and the peak. */
static bool try_settings(const struct trial *t, const struct settings *changed,
                         struct remedy *remedy)
{
    struct job job;
    struct prediction prediction;
    settings_difference(t->settings, changed, remedy->change, sizeof remedy->change);
    if (!remedy->change[0] || settings_job(changed, t->config, &job, NULL) != ERR_OK ||
        predict(&job, t->machine, &prediction, NULL) != ERR_OK)
        return false;
    remedy->device_bytes = prediction.device_bytes;
    const bool fits = prediction.fits;
    prediction_free(&prediction);
    return fits;
}

uint32_t remedies_find(const struct settings *settings, const struct model_config *config,
                       const struct machine *machine, struct remedy found[REMEDIES])
{
    const struct trial trial = {settings, config, machine};
    bool enough[CHANGES] = {false};
    uint32_t count = 0;
    for (int i = 0; i < CHANGES && count < REMEDIES; i++) {
        struct settings changed = *settings;
        if (!apply(&changes[i], &changed) || !try_settings(&trial, &changed, &found[count]))
            continue;
        enough[i] = true;
        snprintf(found[count++].cost, sizeof found->cost, "%s", changes[i].cost);
    }
    for (int j = 1; j < CHANGES && count < REMEDIES; j++)
        for (int i = 0; i < j && count < REMEDIES; i++) {
            struct settings changed = *settings;
            if (enough[i] || enough[j] || !apply(&changes[i], &changed) ||
                !apply(&changes[j], &changed) || !try_settings(&trial, &changed, &found[count]))
                continue;
            snprintf(found[count++].cost, sizeof found->cost, "both: %s", changes[j].cost);
        }
    return count;
}

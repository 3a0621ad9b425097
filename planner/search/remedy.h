/* remedy.h - when a job does not fit: the changes that make it fit: those that train the same, then
 * the others, each the fastest first.
 *
 * They are the search's answer (search.h) to what was asked for, changed in as few settings as can
 * be, on as many GPUs and on more of them: of all that fit, those that no other is as good as in
 * everything: tokens a second of a GPU, memory, number of changes, GPUs, and whether what is
 * trained stays the same. */
#ifndef SHARDPLAN_REMEDY_H
#define SHARDPLAN_REMEDY_H

#include "job/predict.h"
#include "search/pool.h"
#include "search/space.h"
#include "settings/settings.h"

enum {
    REMEDIES = 12,
    REMEDY_CHANGES = 5,         /* a remedy changes so many settings at most */
    REMEDY_TIMES = 8,           /* and is on so many times the GPUs at most */
    REMEDY_TIMES_ON_GPU = 1024, /* ... or, of what does not offload where nothing else does */
};

struct remedy {
    char change[256]; /* as options: "--checkpointing full" */
    uint32_t changes; /* their number */
    uint32_t gpus;
    char cost[400];        /* in words what else it changes; empty: nothing */
    bool changes_numerics; /* that among it, or the tokens of a step: it trains otherwise */
    bool recasts;          /* that, tokens of a step aside */
    bool other_loss;       /* that, and nothing but how the same loss is computed (losses.h) */
    bool after_release;    /* fits only by giving cached segments back (predict.h) */
    bool offloads;         /* what is of the GPU otherwise lies in the host */
    bool asked_for;        /* told, whatever else there is */
    bool tight;            /* fits with less free than predictions have been off by (predict.h) */
    uint64_t device_bytes; /* new peak */
    uint64_t
        host_needed_bytes; /* by the ranks of one host, which has so much where that is known */
    double step_s;
    double tokens_per_s; /* of one GPU */
};

/* In the order in which they are told. */
enum remedy_group { REMEDY_SAME, REMEDY_OTHER_LOSS, REMEDY_OTHERWISE, REMEDY_BY_RELEASING };

enum remedy_group remedy_group(const struct remedy *remedy);

struct remedy_progress { /* of a search: says where it looks, and how much of that is done */
    void (*show)(void *context, const char *what, double share); /* NULL: nobody asks */
    void *context;
};

/* Searches all settings that do not change what is trained, those that were given too; and with
 * them twice the GPUs, four and eight times, until something fits there, and halfway to the half of
 * that, which share the tokens of a step where these can be split, else train larger batches and
 * say so. On as many GPUs as were asked for, other dtypes too, where they are faster. Where nothing
 * of that fits, all settings that have values to search, but for the loss. Never on more GPUs than
 * --gpus may be.
 *
 * On how many GPUs it fits without offloading and without other dtypes is told: twice the GPUs
 * again and again until something does, then halved between that and the last number on which
 * nothing did. So on what is told something fits, and on one step less nothing was found. A step is
 * a node, within one as many GPUs as were asked for; but a 32nd of what is halved, in whole steps,
 * where that is more. Still fewer may do where memory does not fall with every step. What fits only
 * by giving cached memory back does not count here: `fit` may say of fewer GPUs that it fits so.
 *
 * Where nothing on these GPUs trains the same and fits: what does by giving memory back, of the
 * fewest changes, apart from the rest (judged.h); and where the peak is in the loss, other ways to
 * compute it, with what else is needed (losses.h).
 *
 * Writes up to REMEDIES of those and returns their number: some
 * on as many GPUs, one in other dtypes, two on more, what footnotes propose (padding.h,
 * saved_views.h), and autocast where everything is computed in fp32. They come by their groups, of
 * each most tokens a second and GPU, but of two that are as fast to a hundredth the one with fewer
 * changes. `config` is the model's. */
uint32_t remedies_find(const struct settings *settings, const struct model_config *config,
                       const struct machine *machine, struct remedy_progress progress,
                       struct remedy found[REMEDIES]);

/* The same below a limit of one's own, of `said`->global_batch: what `said`->refuses is no remedy.
 */
uint32_t remedies_within(const struct settings *settings, const struct model_config *config,
                         const struct machine *machine, uint64_t limit_bytes,
                         const struct space_options *said, struct pool *pool,
                         struct remedy_progress progress, struct remedy found[REMEDIES]);

/* "--attention, --clip": settings of how the system trains that no remedy changes, in the arena. */
const char *remedies_unsearched(const struct settings *settings, struct arena *arena);

#endif

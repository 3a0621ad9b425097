/* idle_notes.c - see idle_notes.h. What a setting does follows from the lowering that reads it: a
 * row says when that never looks at it, or finds nothing to do with it. */
#include "report/idle_notes.h"

#include "families/families.h"
#include "lower/states.h"

#include <string.h>

enum { NOTE = 256 };

struct idle_row {
    const char *setting; /* NULL: a key of --zero */
    bool (*is_idle)(const struct job *job, const struct plan *plan);
    const char *why; /* behind "does nothing" */
};

/* ---- when ---- */

static bool has_no_checkpoints(const struct job *job, const struct plan *plan)
{
    (void)plan;
    return job->tape.checkpointing == CHECKPOINTING_NONE;
}

static bool has_one_micro_batch(const struct job *job, const struct plan *plan)
{
    (void)plan;
    return job->strategy.accumulate == 1;
}

static bool reduces_once(const struct job *job, const struct plan *plan)
{
    return has_one_micro_batch(job, plan) || !job->strategy.accumulate_sync;
}

/* Of an optimizer whose states are those of the tensors there is no 8 bits to choose. */
static bool has_no_coded_states(const struct job *job, const struct plan *plan)
{
    const struct optimizer_rule *rule = optimizer_rule(job->strategy.optimizer);
    (void)plan;
    return rule->library != LIBRARY_BITSANDBYTES || !rule->bits;
}

static bool has_one_implementation(const struct job *job, const struct plan *plan)
{
    (void)plan;
    return optimizer_rule(job->strategy.optimizer)->library != LIBRARY_TORCH;
}

static bool has_no_replicas(const struct job *job, const struct plan *plan)
{
    (void)plan;
    return job->strategy.replicate == 1 && job->strategy.experts_replicate <= 1;
}

static bool has_no_tower(const struct job *job, const struct plan *plan)
{
    (void)plan;
    return job->config.tower.kind == TOWER_NONE;
}

static bool has_tower_of_other_code(const struct job *job, const struct plan *plan)
{
    return !has_no_tower(job, plan) && job->model.code != CODE_HF;
}

static bool is_all_trained(const struct job *job, const struct plan *plan)
{
    (void)job;
    for (uint32_t p = 0; p < plan->param_count; p++)
        if (!plan->params[p].trainable || plan->params[p].beside)
            return false;
    return true;
}

static bool is_not_compiled(const struct job *job, const struct plan *plan)
{
    (void)plan;
    return job->tape.compiled == COMPILED_NOT;
}

/* DeepSpeed reduces in 4 bits where there are nodes (stage3.py, __avg_scatter_grads: num_nodes >
 * 1).
 */
static bool quantizes_on_one_node(const struct job *job, const struct plan *plan)
{
    const struct strategy *s = &job->strategy;
    (void)plan;
    return s->system == SYSTEM_ZERO3 && s->zero.quantized_gradients &&
           s->world <= s->zero.node_ranks;
}

/* ---- what ---- */

#define NO_CHECKPOINTS "without checkpoints: --checkpointing full or selective makes them"
#define ONE_MICRO_BATCH "with one micro-batch in a step: --accumulate has more"

static const struct idle_row rows[] = {
    {"checkpoint-blocks", has_no_checkpoints, NO_CHECKPOINTS},
    {"checkpoint-reentrant", has_no_checkpoints,
     "without checkpoints: --checkpointing full makes them"},
    {"early-stop", has_no_checkpoints, NO_CHECKPOINTS},
    {"accumulate-sync", has_one_micro_batch, ONE_MICRO_BATCH},
    {"last-backward", has_one_micro_batch, ONE_MICRO_BATCH},
    {"reshard-after-backward", has_one_micro_batch, ONE_MICRO_BATCH},
    {"all-reduce", has_no_replicas, "without replicas: --replicate makes them"},
    {"all-reduce", reduces_once,
     "where gradients are reduced once a step: --accumulate with --accumulate-sync each does more "
     "often"},
    {"embedding-states", has_no_coded_states,
     "without bitsandbytes' states in 8 bits: --optimizer adamw-8bit has them"},
    {"optimizer-impl", has_one_implementation, "beside this --optimizer, which has but one"},
    {"tower", has_no_tower, "of a model of which none is known"},
    {"tower", has_tower_of_other_code, "with this code: --code hf is what has a tower"},
    {"frozen-dtype", is_all_trained, "where all is trained: --lora and --freeze freeze"},
    {"optimize-ddp", is_not_compiled, "without --compile"},
    {NULL, quantizes_on_one_node, "on one node: DeepSpeed reduces in 4 bits across nodes only"},
};

/* Whether it was said, and not what holds anyway. */
static bool is_said(const struct settings *settings, const struct idle_row *row)
{
    if (!row->setting)
        return true;
    const struct setting *setting = settings_find(settings, row->setting, NULL);
    return setting && settings_is_typed(settings, setting) &&
           !(setting->initial && setting_is(setting, settings, setting->initial));
}

/* The i-th note; of a setting there is one. False: there are no more. */
static bool note(const struct settings *settings, const struct job *job, const struct plan *plan,
                 uint32_t i, char text[NOTE])
{
    const char *last = "";
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        const struct idle_row *row = &rows[k];
        const char *name = row->setting ? row->setting : "zero_quantized_gradients";
        if (strcmp(name, last) == 0 || !is_said(settings, row) || !row->is_idle(job, plan))
            continue;
        last = name;
        if (i-- > 0)
            continue;
        snprintf(text, NOTE, "%s%s does nothing %s", row->setting ? "--" : "", name, row->why);
        return true;
    }
    return false;
}

bool idle_notes_any(const struct settings *settings, const struct job *job, const struct plan *plan)
{
    char text[NOTE];
    return note(settings, job, plan, 0, text);
}

void idle_notes_print(FILE *file, const struct settings *settings, const struct job *job,
                      const struct plan *plan)
{
    char text[NOTE];
    for (uint32_t i = 0; note(settings, job, plan, i, text); i++)
        fprintf(file, "%s\n", text);
}

void idle_notes_set(json_t *object, const struct settings *settings, const struct job *job,
                    const struct plan *plan)
{
    char text[NOTE];
    json_t *notes = json_array();
    for (uint32_t i = 0; note(settings, job, plan, i, text); i++)
        json_array_append_new(notes, json_string(text));
    if (json_array_size(notes))
        json_object_set(object, "no_effect", notes);
    json_decref(notes);
}

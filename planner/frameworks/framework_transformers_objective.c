/* framework_transformers_objective.c - what a trainer learns from: axolotl's `rl` and
 * `reward_model`, LLaMA-Factory's `stage`, and the keys of TRL's trainers.
 *
 * Of a pair, what was chosen and what was rejected, both go through the model as one batch (TRL's
 * collators of DPO, ORPO, CPO and rewards; LLaMA-Factory's PairwiseDataCollatorWithPadding), so a
 * batch of N pairs is planned as 2 N sequences. What else such a step has is said beside. TRL's
 * trainer of preferences is `--loss dpo`, that of rewards `--loss reward`; axolotl's and
 * LLaMA-Factory's are others. */
#include "frameworks/framework_transformers.h"

#include "base/number.h"
#include "families/families.h"

#include <stdlib.h>
#include <string.h>

/* RewardConfig's, which no other trainer has. */
#define CENTER "center_rewards_coefficient"

#define OBJECTIVE "another objective, with other models beside this one: planned as fine-tuning"

enum reference {
    REFERENCE_NONE,
    REFERENCE_FROZEN, /* what the model was before: another one, or itself without its adapters */
};

struct objective {
    const char *name;
    uint32_t sequences; /* of each example, in one forward; 0: not known, or others are generated */
    enum reference reference;
};

/* Continuing the pretraining steps as fine-tuning does. */
static const struct objective objectives[] = {
    {"sft", 1, REFERENCE_NONE},   {"pt", 1, REFERENCE_NONE},     {"dpo", 2, REFERENCE_FROZEN},
    {"ipo", 2, REFERENCE_FROZEN}, {"orpo", 2, REFERENCE_NONE},   {"simpo", 2, REFERENCE_NONE},
    {"rm", 2, REFERENCE_NONE},    {"reward", 2, REFERENCE_NONE},
};
static const struct objective other = {"other", 0, REFERENCE_FROZEN};

static const struct objective *named(const char *name)
{
    for (size_t i = 0; i < sizeof objectives / sizeof *objectives; i++)
        if (strcmp(objectives[i].name, name) == 0)
            return &objectives[i];
    return &other;
}

/* TRL's trainers have a file each and no key that says whose it is: `beta` is what those of pairs
 * and of rewards have and SFTTrainer has not; KTO's weights and what is generated tell them apart.
 */
static const struct objective *of_beta(const struct import *im)
{
    static const char *const not_pairs[] = {"num_generations", "desirable_weight",
                                            "undesirable_weight", "lmbda"};
    const struct node *loss = import_node(im, "loss_type");
    for (size_t i = 0; i < sizeof not_pairs / sizeof *not_pairs; i++)
        if (import_node(im, not_pairs[i]))
            return &other;
    return loss && loss->text && strcmp(loss->text, "simpo") == 0 ? named("simpo") : named("dpo");
}

/* The key that says it, the first of several. */
static const struct node *said_by(const struct import *im, const char **path)
{
    static const char *const keys[] = {"stage", "rl", "reward_model", "beta", CENTER};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const struct node *node = import_node(im, keys[i]);
        *path = keys[i];
        if (node && !(node->text && (!*node->text || strcmp(node->text, "false") == 0)))
            return node;
    }
    return NULL;
}

static const struct objective *objective_of(const struct import *im, const struct node *node,
                                            const char *path)
{
    const struct node *loss = import_node(im, "pref_loss"); /* LLaMA-Factory's */
    if (strcmp(path, "beta") == 0)
        return of_beta(im);
    if (strcmp(path, CENTER) == 0)
        return named("reward");
    if (strcmp(path, "reward_model") == 0)
        return transformers_is_on(node) ? named("rm") : &other;
    if (strcmp(path, "stage") == 0 && loss && loss->text && strcmp(node->text, "dpo") == 0)
        return named(loss->text)->reference == REFERENCE_NONE ? named(loss->text) : named("dpo");
    return named(node->text ? node->text : "");
}

static bool is_computed_before(const struct import *im)
{
    return transformers_is_on(import_node(im, "precompute_ref_log_probs"));
}

/* TRL's DPOTrainer. */
static bool is_trls_dpo(const struct import *im)
{
    const char *path;
    return said_by(im, &path) && strcmp(path, "beta") == 0 && strcmp(of_beta(im)->name, "dpo") == 0;
}

/* Whether its reference is another model, which is sharded, too. */
static bool has_other_model(const struct import *im)
{
    return !transformers_has_adapters(im) && !is_computed_before(im);
}

static bool names_any(const struct import *im, const char *path)
{
    const struct node *node = document_find(&im->named, path);
    return node && node->text && strcmp(node->text, "none") != 0 &&
           strcmp(node->text, "false") != 0 && strcmp(node->text, "1") != 0;
}

/* What of a file such a model is not planned with (job/preferences.h). */
static bool is_odd_for_other_model(const struct import *im)
{
    const struct strategy *s = &im->settings->job.strategy;
    return s->units == UNITS_ELEMENTS ||
           (s->system == SYSTEM_FSDP2 &&
            transformers_is_on(import_node(im, "activation_offloading"))) ||
           (s->system == SYSTEM_ZERO3 &&
            (names_any(im, "zero_optimization.offload_param.device") ||
             names_any(im, "zero_optimization.zero_hpz_partition_size") ||
             names_any(im, "zero_optimization.zero_quantized_weights")));
}

/* Whether an option asks for sequences that make no pairs. */
static bool is_odd_batch(const struct import *im)
{
    uint64_t batch = 0;
    const char *given = import_given(im, "micro-batch");
    return given && number_integer(given, &batch) && batch % 2;
}

bool transformers_has_preferences(const struct import *im)
{
    return is_trls_dpo(im) && !is_odd_batch(im) &&
           !(has_other_model(im) && is_odd_for_other_model(im)) && !transformers_lm_head_lacks(im);
}

/* Whether FSDP's shards of it are in what it is loaded in. */
static bool keeps_loaded(const struct import *im)
{
    const enum system_kind system = im->settings->job.strategy.system;
    const char *half = transformers_loaded_half(im);
    return transformers_has_preferences(im) && has_other_model(im) &&
           (system == SYSTEM_FSDP1 || system == SYSTEM_FSDP2) && half &&
           transformers_is_on(import_node(im, half));
}

/* accelerate's upcast is of the model that it prepares, and TRL prepares this one. */
static enum err_code set_reference_dtype(struct import *im, const struct key_row *row,
                                         struct err *err)
{
    return keeps_loaded(im)
               ? import_set(im, "frozen-dtype", "param", row, import_node(im, "dtype"), err)
               : ERR_OK;
}

/* TRL's RewardTrainer, of a model that has such a class, without what is not planned beside it. */
bool transformers_has_rewards(const struct import *im)
{
    static const char *const beside[] = {"use_liger_kernel", "load_in_4bit", "load_in_8bit"};
    const char *path;
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++)
        if (transformers_is_on(import_node(im, beside[i])))
            return false;
    return said_by(im, &path) && strcmp(path, CENTER) == 0 && !is_odd_batch(im) &&
           transformers_is_plain(im) && import_of_model(im, classifier_has);
}

static enum err_code plan_rewards(struct import *im, const struct key_row *row,
                                  const struct node *node, const char *batch, struct err *err)
{
    const bool centers = node->text && strtod(node->text, NULL) != 0;
    import_list(im, node, row->path,
                import_text(im,
                            "pairs of sequences, %s at once, both with the loss of TRL 1.16's "
                            "trainer of rewards, of a model with one label%s",
                            batch,
                            centers ? ", and the term that centers rewards is not there" : ""));
    return import_set(im, "loss", "reward", row, node, err);
}

/* What is left of the step where its loss is planned. */
static enum err_code plan_preferences(struct import *im, const struct key_row *row,
                                      const struct node *node, const char *batch, struct err *err)
{
    import_list(im, node, row->path,
                import_text(im,
                            "pairs of sequences, %s at once, both with DPO's loss of TRL 1.16 "
                            "(files of CPO and ORPO have a beta, too: --loss "
                            "eager): every token that is no padding counts as one of the "
                            "completion",
                            batch));
    if (is_computed_before(im))
        TRY(import_set(im, "precompute-ref-log-probs", "on", row, node, err));
    TRY(set_reference_dtype(im, row, err));
    return import_set(im, "loss", "dpo", row, node, err);
}

/* Why the numbers are not all of such a step. */
static const char *rest_of(struct import *im, const struct objective *of, const char *batch)
{
    const char *loss = import_given(im, "loss");
    const bool adapters = transformers_has_adapters(im);
    const bool kept = is_computed_before(im);
    if (loss && strcmp(loss, "dpo") == 0)
        return import_text(im,
                           "pairs of sequences, %s at once: every token that is no padding counts "
                           "as one of the completion",
                           batch);
    return import_text(im, "pairs of sequences, %s at once: planned as fine-tuning of both%s%s",
                       batch,
                       of->reference == REFERENCE_NONE || kept ? ""
                       : adapters ? ", without the reference's forward, the model's own less its "
                                    "adapters"
                                  : ", without the reference, a second model's weights and forward",
                       is_trls_dpo(im) && !adapters && !kept
                           ? " (--loss dpo has them where what is sharded is not offloaded)"
                           : "");
}

uint32_t transformers_sequences(const struct import *im, const char **path)
{
    const struct node *said = said_by(im, path);
    if (said && !transformers_has_policies(im))
        return objective_of(im, said, *path)->sequences;
    *path = NULL;
    return 1;
}

enum err_code transformers_read_objective(struct import *im, const struct key_row *row,
                                          const struct node *node, struct err *err)
{
    const char *path;
    char buffer[NUMBER_TEXT];
    uint64_t batch = 0;
    const struct node *said = said_by(im, &path);
    if (!node)
        return ERR_OK;
    const struct objective *of = objective_of(im, node, path);
    if (said != node || of->sequences == 1) { /* one key says it */
        import_idle(im, node, row->path);
        return ERR_OK;
    }
    if (transformers_has_policies(im)) /* whose beta it is */
        return ERR_OK;
    if (of->sequences == 0) {
        import_list(im, node, row->path, OBJECTIVE);
        return ERR_OK;
    }
    const bool given = import_is_given(im, "micro-batch");
    const char *value = import_value(im, "micro-batch", buffer);
    if (!given && value && number_integer(value, &batch))
        value = import_text(im, "%llu", (unsigned long long)batch * of->sequences);
    const char *loss = import_given(im, "loss");
    if (transformers_has_preferences(im) && (!loss || strcmp(loss, "dpo") == 0))
        TRY(plan_preferences(im, row, node, value ? value : "two", err));
    else if (transformers_has_rewards(im))
        TRY(plan_rewards(im, row, node, value ? value : "two", err));
    else
        import_list(im, node, row->path, rest_of(im, of, value ? value : "two"));
    return given || !batch ? ERR_OK : import_set(im, "micro-batch", value, row, node, err);
}

/* ---- the loss of TRL's other trainers ---- */

enum err_code transformers_read_lm_head(struct import *im, const struct key_row *row,
                                        const struct node *node, struct err *err)
{
    if (!node && transformers_is_anyones(im))
        import_open(im, NULL, "model_name_or_path",
                    "whose file it is: no key is TRL's or LLaMA-Factory's alone. Planned as "
                    "transformers' own Trainer; TRL's checkpoint blocks and have no logits "
                    "(dataset_name says so), LLaMA-Factory's checkpoint and have adapters (stage)");
    if (!node)
        return ERR_OK;
    const char *lacks = transformers_lm_head_lacks(im);
    if (transformers_has_preferences(im) || transformers_has_rewards(im) ||
        transformers_has_policies(im)) /* whose loss it is */
        return ERR_OK;
    if (lacks) {
        import_list(im, NULL, row->path, lacks);
        return ERR_OK;
    }
    if (!import_is_given(im, "loss"))
        import_open(im, NULL, row->path,
                    "which TRL it is: no logits since 1.16, as planned; before it --loss eager");
    return import_set(im, "loss", "fused-lm-head", row, node, err);
}

enum err_code transformers_read_loss_type(struct import *im, const struct key_row *row,
                                          const struct node *node, struct err *err)
{
    const struct node *first = node && node->kind == NODE_LIST ? node->first : node;
    const bool several = first && node->kind == NODE_LIST && first->next;
    const char *type = first && first->text ? first->text : "", *path;
    (void)err;
    if (!node || transformers_has_policies(im)) /* theirs is read with what is beside it */
        return ERR_OK;
    if (transformers_has_preferences(im) && (several || strcmp(type, "sigmoid") != 0))
        import_list(im, node, row->path,
                    import_text(im, "%s: planned as DPO's default loss, sigmoid",
                                several ? "a sum of losses" : type));
    else if (transformers_sequences(im, &path) == 1 && strcmp(type, "dft") == 0)
        import_list(im, node, row->path,
                    "a loss of logits and of its own: planned as cross-entropy with TRL's head");
    else
        import_idle(im, node, row->path);
    return ERR_OK;
}

/* ---- no training at all ---- */

/* LLaMA-Factory's `export`, `chat` and `api`, and `train` without do_train. */
enum err_code transformers_read_no_training(struct import *im, const struct key_row *row,
                                            const struct node *node, struct err *err)
{
    const bool training = transformers_is_on(import_node(im, "do_train"));
    const bool predicts = strcmp(row->path, "do_predict") == 0;
    if (!node || training || !transformers_is_llama_factory(im) ||
        (predicts && !transformers_is_on(node)))
        return ERR_OK;
    return import_refuse(im, row->path, node, err,
                         "it is no training job: do_train: true says that something is trained");
}

/* classifier.c - see classifier.h. */
#include "families/classifier.h"

#include <string.h>

#define TASK "--task sequence-classification"

enum { TRANSFORMERS_LABELS = 2 }; /* num_labels of a configuration that says nothing */

struct model_job classifier_settled(const struct model_config *c, const struct model_job *job)
{
    struct model_job own = *job;
    if (job->loss == CROSS_ENTROPY_REWARD) {
        own.task = TASK_SEQUENCE_CLASSIFICATION;
        own.labels = 1;
        own.sets_pad_token = true; /* RewardTrainer's __init__ */
    }
    if (own.task == TASK_LANGUAGE_MODEL)
        return own;
    if (!own.labels)
        own.labels = c->labels ? c->labels : TRANSFORMERS_LABELS;
    if (own.problem == PROBLEM_AUTO)
        own.problem = c->problem;
    if (own.problem == PROBLEM_AUTO)
        own.problem = own.labels == 1 ? PROBLEM_REGRESSION : PROBLEM_SINGLE_LABEL;
    return own;
}

const char *classifier_has(const struct model_config *config)
{
    return family_of(config->arch)->classifier;
}

static enum err_code check_language(const struct model_job *job, struct err *err)
{
    const char *option = job->labels           ? "--num-labels"
                         : job->problem        ? "--problem-type"
                         : job->sets_pad_token ? "--sets-pad-token on"
                                               : NULL;
    return option ? err_set(err, ERR_INVALID, "%s: of a model that classifies sequences (" TASK ")",
                            option)
                  : ERR_OK;
}

static enum err_code check_class(const struct family *family, const struct model_job *job,
                                 struct err *err)
{
    if (job->code != CODE_HF)
        return err_set(err, ERR_INVALID, TASK ": of transformers' code: --code hf, not %s",
                       code_name(job->code));
    if (family->classifier)
        return ERR_OK;
    return strstr(family->name, "t5")
               ? err_set(err, ERR_UNSUPPORTED, TASK " of %s is not planned", family->name)
               : err_set(err, ERR_UNSUPPORTED,
                         TASK ": transformers has no class of %s for it "
                              "(AutoModelForSequenceClassification)",
                         family->name);
}

static enum err_code check_beside(const struct model_job *job, struct err *err)
{
    const char *option = job->compiled                    ? "--compile"
                         : job->float8                    ? "--float8"
                         : job->liger                     ? "--liger"
                         : job->sample_tokens             ? "--sample-tokens"
                         : job->bits4.kind                ? "--load-in-4bit"
                         : job->bits8                     ? "--load-in-8bit"
                         : job->lora_kernels              ? "--lora-kernels"
                         : job->lora && job->wide_trained ? "--frozen-dtype"
                                                          : NULL;
    if (option)
        return err_set(err, ERR_UNSUPPORTED, TASK " with %s is not planned", option);
    if (job->loss != CROSS_ENTROPY_EAGER && job->loss != CROSS_ENTROPY_REWARD)
        return err_set(err, ERR_INVALID,
                       TASK " --loss %s: it is a loss of tokens; the class has its own (--loss "
                            "eager), TRL's trainer of rewards another (--loss reward)",
                       cross_entropy_name(job->loss));
    return ERR_OK;
}

static enum err_code check_reward(const struct model_job *job, struct err *err)
{
    if (job->loss != CROSS_ENTROPY_REWARD)
        return ERR_OK;
    TRY(pairs_check(job, err));
    return job->outputs_kept == OUTPUTS_DROPPED
               ? ERR_OK
               : err_set(err, ERR_INVALID,
                         "--loss reward with --keep-outputs: TRL's trainer lets go of what the "
                         "model returned when its loss is known");
}

/* Where the last token is that pads nothing, a decoder asks of its configuration. */
static enum err_code check_padding(const struct family *family, const struct model_config *c,
                                   const struct model_job *job, struct err *err)
{
    if (job->batch == 1 || family->encoder || c->padding || job->sets_pad_token)
        return ERR_OK;
    return err_set(err, ERR_INVALID,
                   TASK
                   " --micro-batch %u: the model's configuration has no pad_token_id, and %s "
                   "fails (\"Cannot handle batch sizes > 1 if no padding token is defined.\"): "
                   "--sets-pad-token on, where the script sets one",
                   job->batch, family->classifier);
}

/* A mean over tokens is one over those of the mask: EuroBERT divides in place. */
const char *pooling_lacks(const struct model_config *c)
{
    return c->arch == ARCH_EUROBERT && (c->pools_mean || c->pools_late) ? family_of(c->arch)->name
                                                                        : NULL;
}

static enum err_code check_pooling(const struct family *family, const struct model_config *c,
                                   const struct model_job *job, struct err *err)
{
    if (!job->padding_tokens || !pooling_lacks(c))
        return ERR_OK;
    return err_set(err, ERR_UNSUPPORTED,
                   TASK " with --padding-tokens: the mean over tokens of %s (classifier_pooling) "
                        "leaves out what is padded, which is not planned; --padding-tokens 0 is",
                   family->name);
}

enum err_code classifier_check(const struct family *family, const struct model_config *c,
                               const struct model_job *job, struct err *err)
{
    if (job->task == TASK_LANGUAGE_MODEL)
        return check_language(job, err);
    TRY(check_class(family, job, err));
    TRY(check_beside(job, err));
    TRY(check_reward(job, err));
    TRY(check_pooling(family, c, job, err));
    return check_padding(family, c, job, err);
}

enum err_code classifier_check_built(const struct graph *graph, struct err *err)
{
    return graph->saved_adapted
               ? err_set(err, ERR_UNSUPPORTED,
                         TASK
                         " with --lora: adapters would be in the head, which peft trains a copy "
                         "of: that is not planned; of others, by their names, it is")
               : ERR_OK;
}

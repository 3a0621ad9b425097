/* framework_transformers_policies.c - TRL's trainer of policies: GRPOConfig's keys (1.16.0) as
 * `--loss grpo`. What tells its files is num_generations, which RLOO's have, too.
 *
 * How long completions may be is in the file, how long prompts are is in the data: sequences are
 * as long as an option says, or as max_prompt_length (GRPOConfig's, once) and completions are
 * together; framework_transformers_others.c says so. */
#include "frameworks/framework_transformers.h"

#include "base/number.h"

#include <stdlib.h>
#include <string.h>

#define SHARE "0.3" /* vllm_gpu_memory_utilization */

static bool is_on(const struct import *im, const char *path)
{
    return transformers_is_on(import_node(im, path));
}

static const char *text_of(const struct import *im, const char *path, const char *otherwise)
{
    const struct node *node = import_node(im, path);
    return node && node->text && node->kind != NODE_NULL ? node->text : otherwise;
}

static double number_of(const struct import *im, const char *path, double otherwise)
{
    const char *text = text_of(im, path, NULL);
    return text ? strtod(text, NULL) : otherwise;
}

static bool is_of_rloo(const struct import *im)
{
    return import_node(im, "normalize_advantages") || import_node(im, "reward_clip_range");
}

bool transformers_has_policies(const struct import *im)
{
    const char *loss = import_given(im, "loss");
    return import_node(im, "num_generations") && import_node(im, TRLS_HEAD) && !is_of_rloo(im) &&
           !transformers_lm_head_lacks(im) && (!loss || strcmp(loss, "grpo") == 0);
}

/* ---- what is planned otherwise ---- */

static bool is_planned_loss(const char *loss)
{
    static const char *const planned[] = {"dapo", "grpo", "bnpo", "dr_grpo", "cispo"};
    for (size_t i = 0; i < sizeof planned / sizeof *planned; i++)
        if (strcmp(loss, planned[i]) == 0)
            return true;
    return false;
}

static void list_text(struct import *im, const char *path, const char *plain, const char *why)
{
    const char *text = text_of(im, path, plain);
    if (strcmp(text, plain) != 0)
        import_list(im, import_node(im, path), path, why);
    else if (import_node(im, path))
        import_idle(im, import_node(im, path), path);
}

static void list_number(struct import *im, const char *path, double plain, const char *why)
{
    const double number = number_of(im, path, plain);
    if (number < plain || number > plain)
        import_list(im, import_node(im, path), path, why);
    else if (import_node(im, path))
        import_idle(im, import_node(im, path), path);
}

static void list_set(struct import *im, const char *path, const char *why)
{
    if (import_node(im, path))
        import_list(im, import_node(im, path), path, why);
}

/* What changes a step and is planned without. */
static void list_others(struct import *im)
{
    const struct node *bias = import_node(im, "use_bias_correction_kl");
    list_text(im, "importance_sampling_level", "token",
              "a ratio of each sequence: planned with one of each token");
    list_number(im, "top_entropy_quantile", 1, "tokens of little entropy left out: planned with");
    list_number(im, "entropy_coef", 0, "a bonus of entropy: planned without");
    list_set(im, "delta", "clipped from the other side, too: planned without");
    list_set(im, "off_policy_mask_threshold", "sequences left out: planned with");
    if (is_on(im, "use_adaptive_entropy"))
        import_list(im, import_node(im, "use_adaptive_entropy"), "use_adaptive_entropy",
                    "a bonus of entropy: planned without");
    if (is_on(im, "cast_lm_head_to_fp32"))
        import_list(im, import_node(im, "cast_lm_head_to_fp32"), "cast_lm_head_to_fp32",
                    "the head in fp32: planned in the model's dtype");
    if (bias && !transformers_is_on(bias) && number_of(im, "beta", 0) > 0)
        import_list(im, bias, "use_bias_correction_kl",
                    "the divergence as it is: planned times the ratio, as is the default");
}

/* ---- settings ---- */

/* By the key that is read, which lives as long as the program. */
static enum err_code set_by(struct import *im, const char *setting, const char *value,
                            const char *path, const struct node *node, struct err *err)
{
    const struct key_row row = {.path = path};
    return import_set(im, setting, value, &row, node, err);
}

static enum err_code set_loss(struct import *im, struct err *err)
{
    const struct node *node = import_node(im, "loss_type");
    const char *loss = text_of(im, "loss_type", "dapo");
    if (node && !node->text)
        return import_refuse(im, "loss_type", node, err,
                             "it is %s; of policies there is one loss: dapo, grpo, bnpo, dr_grpo, "
                             "cispo",
                             node_kind_name(node->kind));
    if (is_planned_loss(loss))
        return node ? set_by(im, "grpo-loss", loss, "loss_type", node, err) : ERR_OK;
    import_list(im, node, "loss_type",
                "a loss that is not planned: planned as dapo; grpo, bnpo, dr_grpo and cispo are");
    return ERR_OK;
}

static enum err_code set_beta(struct import *im, struct err *err)
{
    const struct node *node = import_node(im, "beta");
    if (!(number_of(im, "beta", 0) > 0))
        return ERR_OK;
    if (transformers_has_adapters(im))
        return set_by(im, "grpo-beta", node->text, "beta", node, err);
    import_list(im, node, "beta",
                "a reference that is a second model, which stays on the GPU: planned without");
    return ERR_OK;
}

/* steps_per_generation, or as many as make generation_batch_size. */
static enum err_code set_steps(struct import *im, struct err *err)
{
    char buffer[NUMBER_TEXT];
    const struct node *node = import_node(im, "steps_per_generation"),
                      *all = import_node(im, "generation_batch_size");
    const char *batch = import_value(im, "micro-batch", buffer);
    uint64_t sequences = 1, size = 0, ranks = im->settings->job.strategy.world;
    if (text_of(im, "steps_per_generation", NULL))
        return set_by(im, "grpo-steps-per-generation", node->text, "steps_per_generation", node,
                      err);
    if (!all || !all->text || !number_integer(all->text, &size) || !batch ||
        !number_integer(batch, &sequences) || ranks == 0 || size % (sequences * ranks) != 0)
        return ERR_OK;
    return set_by(im, "grpo-steps-per-generation",
                  import_text(im, "%llu", (unsigned long long)(size / sequences / ranks)),
                  "generation_batch_size", all, err);
}

/* By default vLLM has a share of the trainer's GPUs, and keeps it while a step runs. */
static enum err_code set_memory(struct import *im, struct err *err)
{
    const struct node *share = import_node(im, "vllm_gpu_memory_utilization"),
                      *on = import_node(im, "use_vllm");
    if (strcmp(text_of(im, "vllm_mode", "colocate"), "colocate") != 0)
        return ERR_OK;
    if (is_on(im, "vllm_enable_sleep_mode")) {
        import_open(im, import_node(im, "vllm_enable_sleep_mode"), "vllm_enable_sleep_mode",
                    "what of vLLM stays on the GPU while it sleeps: planned as nothing; "
                    "--memory-of-others");
        return ERR_OK;
    }
    return set_by(im, "memory-of-others", text_of(im, "vllm_gpu_memory_utilization", SHARE),
                  share ? "vllm_gpu_memory_utilization" : "use_vllm", share ? share : on, err);
}

/* Its share is what is left for the step, whatever loss that is planned with. */
enum err_code transformers_read_vllm(struct import *im, const struct key_row *row,
                                     const struct node *node, struct err *err)
{
    const uint32_t before = im->note_count;
    const struct node *corrects = import_node(im, "vllm_importance_sampling_correction");
    const char *mode = text_of(im, "vllm_importance_sampling_mode", "sequence_mask");
    if (!node)
        return ERR_OK;
    if (transformers_is_on(node) && transformers_has_policies(im) &&
        (!corrects || transformers_is_on(corrects)))
        TRY(import_set(im, "grpo-vllm", strncmp(mode, "token", 5) == 0 ? "token" : "sequence", row,
                       node, err));
    if (transformers_is_on(node))
        TRY(set_memory(im, err));
    if (im->note_count == before)
        import_idle(im, node, row->path);
    return ERR_OK;
}

/* What --seq is beside max_completion_length. */
static enum err_code set_prompt(struct import *im, const struct key_row *row,
                                const struct node *node, struct err *err)
{
    char buffer[NUMBER_TEXT];
    const char *seq = import_value(im, "seq", buffer);
    const uint64_t completion = transformers_policy_tokens(&im->document, GRPO_COMPLETION);
    uint64_t all = 0;
    if (import_is_given(im, "prompt-tokens") || !seq || !number_integer(seq, &all))
        return ERR_OK;
    if (all <= completion)
        return import_refuse(im, "num_generations", node, err,
                             "--seq %s is prompt and completion, and completions are of up to %llu "
                             "tokens (max_completion_length): a longer --seq, or --prompt-tokens",
                             seq, (unsigned long long)completion);
    if (!text_of(im, GRPO_PROMPT, NULL))
        import_open(im, NULL, "prompts",
                    import_text(im,
                                "how long they are: planned as %llu tokens, and completions as "
                                "long as they may be; --seq, --prompt-tokens",
                                (unsigned long long)(all - completion)));
    return import_set(im, "prompt-tokens",
                      import_text(im, "%llu", (unsigned long long)(all - completion)), row, node,
                      err);
}

enum err_code transformers_read_policies(struct import *im, const struct key_row *row,
                                         const struct node *node, struct err *err)
{
    if (!node)
        return ERR_OK;
    if (!transformers_has_policies(im)) {
        import_list(im, node, row->path,
                    "completions that are generated and learned from: planned as fine-tuning");
        return ERR_OK;
    }
    import_list(im, node, row->path,
                "a step of TRL 1.16's trainer of policies (files of RLOO have num_generations, "
                "too: --loss fused-lm-head): generating and scoring, before it, are not planned");
    TRY(import_set(im, "loss", "grpo", row, node, err));
    list_others(im);
    TRY(set_loss(im, err));
    TRY(set_beta(im, err));
    TRY(set_steps(im, err));
    if (text_of(im, "num_iterations", NULL))
        TRY(set_by(im, "grpo-iterations", text_of(im, "num_iterations", "1"), "num_iterations",
                   import_node(im, "num_iterations"), err));
    return set_prompt(im, row, node, err);
}

enum err_code transformers_read_policy(struct import *im, const struct key_row *row,
                                       const struct node *node, struct err *err)
{
    (void)err;
    if (node && !transformers_has_policies(im))
        import_idle(im, node, row->path);
    return ERR_OK;
}

/* cut.c - see cut.h. */
#include "families/cut.h"

#include "graph/ops.h"

#include <string.h>

/* model_type. Gemma 4's and Phi's patches are not here, nor those of models that are not planned.
 */
static const char *const patched[] = {
    "apertus",
    "arcee",
    "cohere",
    "cohere2",
    "deepseek_v2",
    "deepseek_v3",
    "exaone4",
    "gemma",
    "gemma2",
    "gemma3_text",
    "gemma4_text",
    "glm",
    "glm4",
    "glm4_moe",
    "glm4_moe_lite",
    "gpt_oss",
    "granite",
    "granitemoe",
    "granitemoehybrid",
    "llama",
    "granitemoeshared",
    "hunyuan_v1_dense",
    "hunyuan_v1_moe",
    "lfm2",
    "lfm2_moe",
    "llama4_text",
    "ministral",
    "ministral3",
    "mistral",
    "mixtral",
    "nemotron_h",
    "olmo",
    "olmo2",
    "olmo3",
    "olmoe",
    "phi3",
    "qwen2",
    "qwen2_moe",
    "qwen3",
    "qwen3_moe",
    "qwen3_next",
    "qwen3_5_text",
    "qwen3_5_moe_text",
    "seed_oss",
    "smollm3",
};

static bool is_patched(const char *model_type)
{
    for (size_t i = 0; i < sizeof patched / sizeof *patched; i++)
        if (strcmp(patched[i], model_type) == 0)
            return true;
    return false;
}

const char *cut_has(const struct model_config *config)
{
    const char *name = family_of(config->arch)->name;
    return is_patched(name) ? name : NULL;
}

enum err_code cut_check(const struct family *family, const struct model_job *job, struct err *err)
{
    TRY(head_loss_check(job, "axolotl", err));
    return is_patched(family->name)
               ? ERR_OK
               : err_set(err, ERR_UNSUPPORTED,
                         "--loss cut-cross-entropy: axolotl's patch of %s is not planned, or there "
                         "is none",
                         family->name);
}

static const struct graph_op *loss_op(const struct graph *graph)
{
    for (uint32_t i = graph->op_count; i-- > 0;)
        if (graph->ops[i].kind == OP_CUT_CROSS_ENTROPY)
            return &graph->ops[i];
    return NULL;
}

enum err_code cut_check_built(const struct family *family, const struct graph *graph,
                              struct err *err)
{
    if (graph->cross_entropy != CROSS_ENTROPY_CUT)
        return ERR_OK;
    const struct graph_op *op = loss_op(graph);
    if (!op)
        return err_set(err, ERR_UNSUPPORTED,
                       "--loss cut-cross-entropy: axolotl's patch of %s is not planned",
                       family->name);
    for (uint32_t i = 0; i < 2; i++)
        if (graph->tensors[op->in[i]].dtype == DTYPE_FP32)
            return err_set(err, ERR_INVALID,
                           "--loss cut-cross-entropy: its backward takes hidden states and a head "
                           "in 16 bits, and the %s in fp32: --param-dtype bf16 or --store-dtype "
                           "bf16",
                           i ? "head is" : "hidden states are");
    return ERR_OK;
}

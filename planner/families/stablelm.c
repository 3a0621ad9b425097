/* stablelm.c - StableLM: Llama with LayerNorms and RoPE on the first quarter of each head;
 * attention and the feed-forward may be beside each other, behind one norm. */
#include "families/llama.h"
#include "hf/decoder.h"
#include "model/count.h"

static void build_hf_stablelm(struct graph *graph, const struct model_config *config,
                              const struct model_job *job)
{
    struct hf_decoder decoder = {
        .norm = apply_norm,
        .norms = {{".input_layernorm", HF_BEFORE_ATTENTION}},
        .qk = HF_QK_NONE,
        .biased_norms = true,
        .rotary = HF_ROTARY_OPEN,
        .locals_last = true,
        .mlp_dropout = "dropout",
        .positions_first = true,
    };
    if (!config->parallel_residual) {
        decoder.norms[1].name = ".post_attention_layernorm";
        decoder.norms[1].at = HF_BEFORE_MLP;
    }
    hf_decoder_build(graph, config, job, &decoder);
}

static const struct key keys[] = {
    SIZE_KEYS,
    {COUNT("num_key_value_heads", kv_heads, 32, HEADS_MAX)},
    {FIXED("head_dim", head_dim, RULE_HEAD_SIZE, HIDDEN_MAX)},
    {POSITIONS("max_position_embeddings", 4096)},
    EPS("layer_norm_eps", 1e-5),
    STD("initializer_range", 0.02),
    THETA("rope_theta", 1e4),
    PARTIAL_ROTARY(0.25),
    TIED(false),
    {CHOICE("hidden_act", gated, "silu", key_activations)},
    DROPOUT("hidden_dropout", dropout, 0),
    DROPOUT("attention_dropout", attention_dropout, 0),
    {FLAG("use_qkv_bias", attention_bias, false)},
    {FLAG("use_parallel_residual", parallel_residual, false)},
    {ONLY("qk_layernorm", false)},
};

/* stabilityai/stablelm-3b-4e1t. StableLmForCausalLM. */
static const struct model_preset presets[] = {
    {"stablelm-3b-4e1t",
     2795443200,
     {GATED(ARCH_STABLELM, 2560, 32, 32, 32, 80, 6912, 50304, 4096, 1e-5F, 1e4F),
      .rotary_dim = 20}},
    {"stablelm-2-1.6b", /* stabilityai/stablelm-2-1_6b */
     1644515328,
     {GATED(ARCH_STABLELM, 2048, 24, 32, 32, 64, 5632, 100352, 4096, 1e-5F, 1e4F),
      .attention_bias = true, .rotary_dim = 16}},
};

static const struct preset_alias aliases[] = {
    {"stablelm-zephyr-3b", "stablelm-3b-4e1t"},
    {"stablelm-2-zephyr-1.6b", "stablelm-2-1.6b"},
};

/* Llama's, where each norm has biases, too, or one norm is all that a layer has. */
static double parameters(const struct model_config *c)
{
    const double h = c->hidden;
    return count_llama(c) + (c->parallel_residual ? 0 : 2 * h * c->layers) + h;
}

const struct family family_stablelm = {
    .name = "stablelm",
    .class_name = "StableLmForCausalLM",
    .classifier = "StableLmForSequenceClassification",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    ALIASES(aliases),
    .heads_divide_hidden = true,
    .parameters = parameters,
    .traced = true,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build_hf_stablelm},
};

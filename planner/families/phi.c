/* phi.c - Phi-1, 1.5 and 2: attention and a feed-forward without a gate beside each other, behind
 * one LayerNorm; biases everywhere, the head too; RoPE on part of each head. */
#include "families/llama.h"
#include "hf/decoder.h"
#include "model/count.h"

static void build_hf_phi(struct graph *graph, const struct model_config *config,
                         const struct model_job *job)
{
    hf_decoder_build(graph, config, job,
                     &(struct hf_decoder){
                         .norm = apply_norm,
                         .norms = {{".input_layernorm", HF_BEFORE_ATTENTION}},
                         .biased_norms = true,
                         .rotary = HF_ROTARY_OPEN,
                         .up = "fc1",
                         .act = "activation_fn",
                         .down = "fc2",
                         .output = "dense",
                         .last_norm = "final_layernorm",
                         .biased_head = true,
                         .dropped_rows = true,
                         .attention_dropout = "resid_dropout",
                         .mlp_dropout = "resid_dropout",
                         .embedding_dropout = "embed_dropout",
                         .x_last = true,
                         .locals_last = true,
                         .positions_first = true,
                     });
}

static const struct key keys[] = {
    SIZE_KEYS,
    {DERIVED("num_key_value_heads", kv_heads, RULE_HEADS, HEADS_MAX)},
    HEAD_DIM_KEY,
    {POSITIONS("max_position_embeddings", 2048)},
    EPS("layer_norm_eps", 1e-5),
    STD("initializer_range", 0.02),
    THETA("rope_theta", 1e4),
    PARTIAL_ROTARY(0.5),
    TIED(false),
    {CHOICE("hidden_act", gated, "gelu_new", key_activations)},
    DROPOUT("resid_pdrop", dropout, 0),
    DROPOUT("embd_pdrop", embedding_dropout, 0),
    DROPOUT("attention_dropout", attention_dropout, 0),
    {ALWAYS("attention_bias", attention_bias)},
    {ALWAYS("attention_bias", output_bias)},
    {ALWAYS("mlp_bias", mlp_bias)},
    {ALWAYS("parallel_residual", parallel_residual)},
    {ONLY("qk_layernorm", false)},
};

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* microsoft/phi-1_5, phi-2. PhiForCausalLM. */
#define PHI(title, count, h, l, a, turned, residual)                                               \
    {title, count,                                                                                 \
     {DECODER(ARCH_PHI, h, l, a, a, h / a, 4 * h, 51200, 2048, 1e-5F, 1e4F),                       \
      .rotary_dim = turned, .activation = "gelu_new", .dropout = residual,                         \
      .attention_bias = true, .output_bias = true, .mlp_bias = true, .parallel_residual = true}}

static const struct model_preset presets[] = {
    PHI("phi-1.5", 1418270720, 2048, 24, 32, 32, 0),
    PHI("phi-2",   2779683840, 2560, 32, 32, 32, 0.1F),
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

static double parameters(const struct model_config *c)
{
    const double h = c->hidden, q = (double)c->heads * c->head_dim, f = c->ffn, v = c->vocab;
    const double kv = (double)c->kv_heads * c->head_dim;
    const double block = count_linear(q, h, true) + 2 * count_linear(kv, h, true) +
                         count_linear(h, q, true) + count_linear(f, h, true) +
                         count_linear(h, f, true) + 2 * h;
    return c->layers * block + (c->tied ? 1 : 2) * v * h + v + 2 * h;
}

static const struct preset_alias aliases[] = {
    {"phi-1", "phi-1.5"},
};

const struct family family_phi = {
    .name = "phi",
    .class_name = "PhiForCausalLM",
    .classifier = "PhiForSequenceClassification",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    ALIASES(aliases),
    .parameters = parameters,
    .traced = true,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build_hf_phi},
};

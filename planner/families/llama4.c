/* llama4.c - Llama 4's text model: three of four layers see a chunk of the sequence and have RoPE,
 * the fourth sees all of it and has none; mixtures of experts that all read all tokens, in every
 * layer or in turn with a feed-forward (hf/llama4.c). */
#include "families/llama.h"
#include "hf/decoder.h"
#include "model/count.h"
#include "model/experts.h"

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    static const struct hf_decoder way = {
        .norm = hf_rms_norm_last,
        HF_NORM_NAMES,
        .qk = HF_QK_BARE,
        .rotary = HF_ROTARY_COMPLEX,
        .complex_table = true,
        .mlp = "feed_forward",
        .attended_last = true,
        .chunks = true,
        .masks_by_layer = true,
        .both_masks = true,
        .positions_first = true,
        .moe = {.every = true,
                .router = "router",
                .shared = "shared_expert",
                .experts_first = true,
                .transposed = true},
    };
    hf_decoder_build(graph, config, job, &way);
}

static double parameters(const struct model_config *c)
{
    return count_llama(c) - (c->qk_norm ? 2.0 * c->head_dim * c->layers : 0);
}

/* What no_rope_layers says of RoPE it says of chunks, too, unless there is a list of those. */
#define NO_ROPE(kind, member, words)                                                               \
    {                                                                                              \
        LAYER_LIST("no_rope_layers", kind, member, words, RULE_KEEP), .or_empty = true             \
    }
static const struct key keys[] = {
    SHAPE_KEYS,
    {SIZE("num_attention_heads", heads, HEADS_MAX)},
    {SIZE("intermediate_size", expert_ffn, FFN_MAX)},
    {COUNT("intermediate_size_mlp", ffn, 16384, FFN_MAX)},
    KV_HEADS(8),
    {COUNT("head_dim", head_dim, 128, HEAD_DIM_MAX), .null = RULE_HEAD_SIZE},
    LLAMA_KEYS(131072, 1e-5, 5e5),
    ATTENTION_BIASES(false),
    DROPOUT("attention_dropout", attention_dropout, 0),
    {FLAG("use_qk_norm", qk_norm, true)},
    {NUMBER("attn_scale", position_beta, 0.1, 0, 1e6)},
    {.name = "floor_scale",
     .type = KEY_INT,
     .max = POSITIONS_MAX,
     AT(position_step),
     .absent = RULE_VALUE,
     .value = 8192},
    {BOOL("attn_temperature_tuning", KEY_GATE, true), AT(position_step)},
    {COUNT("attention_chunk_size", sliding_window, 8192, POSITIONS_MAX)},
    {COUNT("no_rope_layer_interval", plain_period, 4, LAYERS_MAX)},
    {COUNT("no_rope_layer_interval", window_period, 4, LAYERS_MAX)},
    NO_ROPE(KEY_LAYERS, plain, key_rope_layers),
    NO_ROPE(KEY_LAYERS, windows, key_turned_layers),
    {LAYER_LIST("layer_types", KEY_LAYERS, windows, key_chunk_layers, RULE_KEEP)},
    {COUNT("num_local_experts", experts, 16, EXPERTS_MAX)},
    {COUNT("num_experts_per_tok", experts_per_token, 1, EXPERTS_MAX)},
    {FIXED("shared_expert", shared_experts, RULE_VALUE, 1)},
    {COUNT("interleave_moe_layer_step", sparse_step, 1, LAYERS_MAX)},
    {.name = "moe_layers",
     .type = KEY_OTHERS,
     AT(dense),
     .absent = RULE_KEEP,
     .null = RULE_KEEP,
     .max = LAYERS_MAX - 1},
    {ONLY("output_router_logits", false)},
};

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* The text models of meta-llama/Llama-4-Scout-17B-16E-Instruct and
 * meta-llama/Llama-4-Maverick-17B-128E-Instruct. Llama4ForCausalLM. */
#define LLAMA4(e, step, positions, norms)                                                          \
    GATED(ARCH_LLAMA4, 5120, 48, 40, 8, 128, 16384, 202048, positions, 1e-5F, 5e5F),               \
    .expert_ffn = 8192, .experts = e, .experts_per_token = 1, .shared_experts = 1,                 \
    .sparse_step = step, .qk_norm = norms, .position_beta = 0.1F, .position_step = 8192,           \
    .sliding_window = 8192, .plain_period = 4, .window_period = 4
static const struct model_preset presets[] = {
    {"llama-4-scout-17b-16e", 107769861120,
     {LLAMA4(16, 1, 10485760, true), .rope.scaling = ROPE_LLAMA3, .rope.factor = 16,
      .rope.original_positions = 8192, .rope.low_freq_factor = 1, .rope.high_freq_factor = 1}},
    {"llama-4-maverick-17b-128e", 400711848960, {LLAMA4(128, 2, 1048576, false)}},
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

const struct family family_llama4 = {
    .name = "llama4_text",
    .class_name = "Llama4ForCausalLM",
    .block_class = "Llama4TextDecoderLayer",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    .rope = true,
    .check = experts_check,
    .parameters = parameters,
    .traced = true,
    .code = CODE_HF,
    .builder = {[CODE_TORCHTITAN] = build_llama4, [CODE_HF] = build},
};

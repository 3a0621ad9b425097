/* config_keys.c - the keys of config.json, one table per model_type.
 *
 * A row says everything about a key: name, other spelling, type, what holds when it is absent or
 * null, limits, and the field it goes to. Names and defaults are those of transformers' config
 * classes (configuration_*.py of 5.23), with one difference: what gives a model its size has no
 * default here. There, a Llama without "hidden_size" is a 7B; here it is more likely a mistake.
 *
 * Rows are in the order in which defaults depend on each other: hidden and heads come before
 * whatever is derived from them. A key that feeds two fields has two rows. */
#include "model/config_parts.h"

#define AT(member) .field = offsetof(struct model_config, member)
#define SIZE(key, member, most) .name = (key), .type = KEY_INT, .min = 1, .max = (most), AT(member)
#define COUNT(key, member, number, most)                                                           \
    SIZE(key, member, most), .absent = RULE_VALUE, .value = (number)
#define DERIVED(key, member, rule, most) SIZE(key, member, most), .absent = (rule), .null = (rule)
#define FIXED(key, member, rule, most)                                                             \
    SIZE(key, member, most), .fixed = true, .absent = (rule), .value = 1
#define REAL(key, kind, member, number, least, most)                                               \
    .name = (key), .type = (kind), AT(member), .absent = RULE_VALUE, .value = (number),            \
    .min = (least), .max = (most)
#define NUMBER(key, member, number, least, most) REAL(key, KEY_NUMBER, member, number, least, most)
#define WINDOW(rule)                                                                               \
    .name = "sliding_window", .type = KEY_INT, .max = POSITIONS_MAX, AT(sliding_window),           \
    .absent = (rule), .null = RULE_NONE, .value = 4096
#define BOOL(key, kind, number)                                                                    \
    .name = (key), .type = (kind), .absent = RULE_VALUE, .value = (number), .max = 1
#define FLAG(key, member, number) BOOL(key, KEY_BOOL, number), AT(member)
#define ALWAYS(key, member) BOOL(key, KEY_BOOL, true), AT(member), .fixed = true
#define ONLY(key, number) BOOL(key, KEY_ONLY, number)
#define CHOICE(key, member, otherwise, list)                                                       \
    .name = (key), .type = KEY_CHOICE, AT(member), .absent = RULE_VALUE, .text = (otherwise),      \
    .choices = (list)

static const struct choice silu_only[] = {
    {"silu", "silu", false}, {"swish", "silu", false}, {NULL, NULL, false}};
static const struct choice activations[] = {
    {"relu", "relu", false},
    {"gelu", "gelu", false},
    {"gelu_pytorch_tanh", "gelu_pytorch_tanh", false},
    {"gelu_new", "gelu_new", false},
    {"gelu_fast", "gelu_fast", false},
    {"silu", "silu", false},
    {"swish", "silu", false},
    {NULL, NULL, false},
};
static const struct choice t5_feed_forwards[] = {
    {"relu", "relu", false},
    /* so T5Config reads what T5 v1.1 wrote */
    {"gated-gelu", "gelu_new", true},
    {"gated-silu", "silu", true},
    {"gated-relu", "relu", true},
    {"gelu", "gelu", false},
    {"gelu_new", "gelu_new", false},
    {"silu", "silu", false},
    {NULL, NULL, false},
};
static const struct choice relu_only[] = {{"relu", "relu", false}, {NULL, NULL, false}};
static const struct choice absolute_only[] = {{"absolute", NULL, false}, {NULL, NULL, false}};
static const struct choice experts_ways[] = {
    {"grouped_mm", NULL, false}, {"batched_mm", NULL, true}, {NULL, NULL, false}};

/* clang-format off */
/* Rows. Each head has its own keys and values, and heads share out the hidden size. */
#define PLAIN_HEADS                                                                                \
    {FIXED("num_key_value_heads", kv_heads, RULE_HEADS, HEADS_MAX)},                               \
    {FIXED("head_dim", head_dim, RULE_HEAD_SIZE, HIDDEN_MAX)}
#define HEAD_DIM_KEY {DERIVED("head_dim", head_dim, RULE_HEAD_SIZE, HEAD_DIM_MAX)}
#define TIED(value) {FLAG("tie_word_embeddings", tied, value)}
#define POSITIONS(name, value) COUNT(name, max_positions, value, POSITIONS_MAX)
#define EPS(name, value) {NUMBER(name, norm_eps, value, 0, 1)}
#define DROPOUT(name, member, value) {NUMBER(name, member, value, 0, 1)}
#define THETA(name, value)                                                                         \
    {NUMBER(name, rope.theta, value, 1, 1e12), .other = "rope_parameters.rope_theta"}
#define STD(name, value) {NUMBER(name, init_std, value, 1e-9, 100)}
#define NEUTRAL(key, number)                                                                       \
    {.name = (key), .type = KEY_NEUTRAL, .absent = RULE_VALUE, .null = RULE_VALUE,                 \
     .value = (number), .max = 1}
#define NO_SUCH_THING (-1.0) /* no number is neutral */
#define LAYER_TYPES {.name = "layer_types", .type = KEY_LAYERS, .absent = RULE_VALUE,              \
                     .null = RULE_VALUE, .max = 1}
/* nn.LayerNorm's own, where the config class has no say. */
#define TORCH_EPS {NUMBER("layer_norm_eps", norm_eps, 1e-5, 0, 1), .fixed = true}
/* Absent, it is a number that the class has; null means heads. */
#define KV_HEADS(number)                                                                           \
    {COUNT("num_key_value_heads", kv_heads, number, HEADS_MAX), .null = RULE_HEADS}
#define SHAPE_KEYS                                                                                 \
    {SIZE("vocab_size", vocab, VOCAB_MAX)},                                                        \
    {SIZE("hidden_size", hidden, HIDDEN_MAX)},                                                     \
    {SIZE("num_hidden_layers", layers, LAYERS_MAX)}
#define SIZE_KEYS                                                                                  \
    SHAPE_KEYS,                                                                                    \
    {SIZE("num_attention_heads", heads, HEADS_MAX)},                                               \
    {SIZE("intermediate_size", ffn, FFN_MAX)}
#define LLAMA_FAMILY(positions, eps, theta)                                                        \
    {POSITIONS("max_position_embeddings", positions)},                                             \
    EPS("rms_norm_eps", eps),                                                                      \
    STD("initializer_range", 0.02),                                                                \
    THETA("rope_theta", theta),                                                                    \
    TIED(false),                                                                                   \
    {CHOICE("hidden_act", gated, "silu", silu_only)}
#define QWEN_WINDOW                                                                                \
    {WINDOW(RULE_VALUE)},                                                                          \
    {.name = "max_window_layers", .type = KEY_INT, .max = LAYERS_MAX, AT(full_layers),             \
     .absent = RULE_VALUE, .value = 28},                                                           \
    {BOOL("use_sliding_window", KEY_GATE, false), AT(sliding_window)},                             \
    {BOOL("use_sliding_window", KEY_GATE, false), AT(full_layers)},                                \
    LAYER_TYPES
#define SCHEMA(keys, divide, rope) {keys, sizeof(keys) / sizeof *(keys), divide, rope}
/* clang-format on */

static const struct key llama[] = {
    SIZE_KEYS,
    {DERIVED("num_key_value_heads", kv_heads, RULE_HEADS, HEADS_MAX)},
    HEAD_DIM_KEY,
    LLAMA_FAMILY(2048, 1e-6, 1e4),
    {NUMBER("attention_dropout", attention_dropout, 0, 0, 1), .null = RULE_VALUE},
    {FLAG("attention_bias", attention_bias, false)},
    {FLAG("mlp_bias", mlp_bias, false)},
};

static const struct key mistral[] = {
    SIZE_KEYS,
    KV_HEADS(8),
    HEAD_DIM_KEY,
    LLAMA_FAMILY(131072, 1e-6, 1e4),
    DROPOUT("attention_dropout", attention_dropout, 0),
    {WINDOW(RULE_VALUE)},
    LAYER_TYPES,
};

static const struct key qwen2[] = {
    SIZE_KEYS,
    KV_HEADS(32),
    HEAD_DIM_KEY,
    LLAMA_FAMILY(32768, 1e-6, 1e4),
    DROPOUT("attention_dropout", attention_dropout, 0),
    {ALWAYS("attention_bias", attention_bias)},
    QWEN_WINDOW,
};

static const struct key qwen3[] = {
    SIZE_KEYS,
    KV_HEADS(32),
    {COUNT("head_dim", head_dim, 128, HEAD_DIM_MAX)},
    LLAMA_FAMILY(32768, 1e-6, 1e4),
    DROPOUT("attention_dropout", attention_dropout, 0),
    {FLAG("attention_bias", attention_bias, false)},
    {ALWAYS("qk_norm", qk_norm)},
    QWEN_WINDOW,
};

static const struct key mixtral[] = {
    SIZE_KEYS,
    KV_HEADS(8),
    HEAD_DIM_KEY,
    LLAMA_FAMILY(131072, 1e-5, 1e6),
    DROPOUT("attention_dropout", attention_dropout, 0),
    {WINDOW(RULE_NONE)},
    {COUNT("num_local_experts", experts, 8, EXPERTS_MAX), .other = "num_experts"},
    {COUNT("num_experts_per_tok", experts_per_token, 2, EXPERTS_MAX)},
    {CHOICE("experts_implementation", batched_experts, "grouped_mm", experts_ways)},
    NEUTRAL("router_jitter_noise", 0),
    {ONLY("output_router_logits", false)},
};

static const struct key gpt2[] = {
    {SIZE("vocab_size", vocab, VOCAB_MAX)},
    {SIZE("n_embd", hidden, HIDDEN_MAX), .other = "hidden_size"},
    {SIZE("n_layer", layers, LAYERS_MAX), .other = "num_hidden_layers"},
    {SIZE("n_head", heads, HEADS_MAX), .other = "num_attention_heads"},
    {DERIVED("n_inner", ffn, RULE_FOUR_HIDDEN, FFN_MAX)},
    {POSITIONS("n_positions", 1024), .other = "max_position_embeddings"},
    PLAIN_HEADS,
    EPS("layer_norm_epsilon", 1e-5),
    STD("initializer_range", 0.02),
    TIED(true),
    {CHOICE("activation_function", gated, "gelu_new", activations)},
    DROPOUT("resid_pdrop", dropout, 0.1),
    DROPOUT("embd_pdrop", embedding_dropout, 0.1),
    DROPOUT("attn_pdrop", attention_dropout, 0.1),
    {ALWAYS("attention_bias", attention_bias)},
    {ALWAYS("mlp_bias", mlp_bias)},
    {ONLY("add_cross_attention", false)},
    {ONLY("scale_attn_weights", true)},
    {ONLY("scale_attn_by_inverse_layer_idx", false)},
    {ONLY("reorder_and_upcast_attn", false)},
};

static const struct key gpt_neox[] = {
    SIZE_KEYS,
    PLAIN_HEADS,
    {POSITIONS("max_position_embeddings", 2048)},
    EPS("layer_norm_eps", 1e-5),
    STD("initializer_range", 0.02),
    THETA("rotary_emb_base", 1e4),
    {REAL("rotary_pct", KEY_SHARE, rotary_dim, 0.25, 0.001, 1),
     .other = "rope_parameters.partial_rotary_factor"},
    TIED(false),
    {CHOICE("hidden_act", gated, "gelu", activations)},
    DROPOUT("hidden_dropout", dropout, 0),
    DROPOUT("attention_dropout", attention_dropout, 0),
    {FLAG("use_parallel_residual", parallel_residual, true)},
    {FLAG("attention_bias", attention_bias, true)},
    {ALWAYS("mlp_bias", mlp_bias)},
};

static const struct key opt[] = {
    SHAPE_KEYS,
    {SIZE("num_attention_heads", heads, HEADS_MAX)},
    {SIZE("ffn_dim", ffn, FFN_MAX)},
    PLAIN_HEADS,
    {DERIVED("word_embed_proj_dim", word_embed, RULE_HIDDEN, HIDDEN_MAX)},
    {POSITIONS("max_position_embeddings", 2048)},
    TORCH_EPS,
    STD("init_std", 0.02),
    TIED(true),
    {CHOICE("activation_function", gated, "relu", activations)},
    DROPOUT("dropout", dropout, 0.1),
    DROPOUT("attention_dropout", attention_dropout, 0),
    {FLAG("enable_bias", attention_bias, true)},
    {FLAG("enable_bias", mlp_bias, true)},
    {BOOL("do_layer_norm_before", KEY_NOT, true), AT(post_norm)},
    {ONLY("layer_norm_elementwise_affine", true)},
    {ONLY("_remove_final_layer_norm", false)},
    NEUTRAL("layerdrop", 0),
};

static const struct key bert[] = {
    SIZE_KEYS,
    PLAIN_HEADS,
    {POSITIONS("max_position_embeddings", 512)},
    {COUNT("type_vocab_size", type_vocab, 2, BUCKETS_MAX)},
    EPS("layer_norm_eps", 1e-12),
    STD("initializer_range", 0.02),
    TIED(true),
    {CHOICE("hidden_act", gated, "gelu", activations)},
    DROPOUT("hidden_dropout_prob", dropout, 0.1),
    DROPOUT("attention_probs_dropout_prob", attention_dropout, 0.1),
    {ALWAYS("attention_bias", attention_bias)},
    {ALWAYS("mlp_bias", mlp_bias)},
    {CHOICE("position_embedding_type", gated, "absolute", absolute_only)},
    {ONLY("add_cross_attention", false)},
    {ONLY("is_decoder", false)},
    NEUTRAL("chunk_size_feed_forward", 0),
};

static const struct key t5[] = {
    {SIZE("vocab_size", vocab, VOCAB_MAX)},
    {SIZE("d_model", hidden, HIDDEN_MAX), .other = "hidden_size"},
    {SIZE("num_layers", layers, LAYERS_MAX), .other = "num_hidden_layers"},
    {SIZE("num_heads", heads, HEADS_MAX), .other = "num_attention_heads"},
    {SIZE("d_ff", ffn, FFN_MAX)},
    {COUNT("d_kv", head_dim, 64, HEAD_DIM_MAX), .other = "head_dim"},
    {FIXED("num_key_value_heads", kv_heads, RULE_HEADS, HEADS_MAX)},
    {DERIVED("num_decoder_layers", decoder_layers, RULE_LAYERS, LAYERS_MAX)},
    {COUNT("relative_attention_num_buckets", relative_buckets, 32, BUCKETS_MAX)},
    EPS("layer_norm_epsilon", 1e-6),
    NEUTRAL("initializer_factor", 1),
    TIED(true),
    {CHOICE("feed_forward_proj", gated, "relu", t5_feed_forwards)},
    DROPOUT("dropout_rate", dropout, 0.1),
    DROPOUT("dropout_rate", attention_dropout, 0.1),
};

/* Ours, not Hugging Face's: the Transformer of the FSDP2 tutorial. */
static const struct key tutorial[] = {
    SHAPE_KEYS,
    {FIXED("num_attention_heads", heads, RULE_VALUE, HEADS_MAX)},
    PLAIN_HEADS,
    {FIXED("intermediate_size", ffn, RULE_FOUR_HIDDEN, FFN_MAX)},
    TORCH_EPS,
    {CHOICE("hidden_act", gated, "relu", relu_only), .fixed = true},
    {ALWAYS("attention_bias", attention_bias)},
    {ALWAYS("mlp_bias", mlp_bias)},
};

/* Keys by which other families' classes change what is computed: a file that has them under one of
 * our model_types wants another model, though the class named there would not look. */
static const struct key foreign[] = {
    NEUTRAL("attn_logit_softcapping", NO_SUCH_THING),
    NEUTRAL("final_logit_softcapping", NO_SUCH_THING),
    NEUTRAL("query_pre_attn_scalar", NO_SUCH_THING),
    NEUTRAL("attention_multiplier", NO_SUCH_THING),
    NEUTRAL("residual_multiplier", 1),
    NEUTRAL("embedding_multiplier", 1),
    NEUTRAL("logits_scaling", 1),
    NEUTRAL("logit_scale", 1),
    NEUTRAL("clip_qkv", NO_SUCH_THING),
    NEUTRAL("attention_chunk_size", NO_SUCH_THING),
    NEUTRAL("partial_rotary_factor", 1),
    NEUTRAL("alibi", NO_SUCH_THING),
    NEUTRAL("use_mrope", NO_SUCH_THING),
};

static const struct schema schemas[ARCH_COUNT] = {
    [ARCH_LLAMA] = SCHEMA(llama, true, true),
    [ARCH_MISTRAL] = SCHEMA(mistral, false, true),
    [ARCH_QWEN2] = SCHEMA(qwen2, false, true),
    [ARCH_QWEN3] = SCHEMA(qwen3, false, true),
    [ARCH_MIXTRAL] = SCHEMA(mixtral, false, true),
    [ARCH_GPT2] = SCHEMA(gpt2, true, false),
    [ARCH_GPT_NEOX] = SCHEMA(gpt_neox, true, false),
    [ARCH_OPT] = SCHEMA(opt, true, false),
    [ARCH_BERT] = SCHEMA(bert, true, false),
    [ARCH_T5] = SCHEMA(t5, false, false),
    [ARCH_FSDP2_TUTORIAL] = SCHEMA(tutorial, false, false),
};

const struct schema *config_schema(enum arch arch)
{
    return &schemas[arch];
}

const struct schema *config_foreign_keys(void)
{
    static const struct schema schema = SCHEMA(foreign, false, false);
    return &schema;
}

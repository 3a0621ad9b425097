/* gemma4.c - Gemma 4's text model: Gemma 3 with norms of another formula, a norm of values and
 * scores that nothing scales; layers without a window have heads of their own sizes. Experts may be
 * beside the feed-forward, each layer may have its part of a second embedding, and the last layers
 * may reuse keys and values (hf/gemma4.c). */
#include "hf/gemma4.h"

#include "families/gemma.h"
#include "model/count.h"
#include "model/experts.h"

#include <stdio.h>

static bool is_full(const struct model_config *c, uint32_t index)
{
    return !model_has_window(c, index);
}

/* ---- parameters ---- */

static double attention_parameters(const struct model_config *c, uint32_t index)
{
    const double h = c->hidden, d = gemma4_head_dim(c, index), q = c->heads * d,
                 kv = gemma4_kv_heads(c, index) * d;
    const double projections = gemma4_keys_are_values(c, index) ? 1 : 2;
    const double own =
        gemma4_keys_of(c, index) == GEMMA4_REUSED
            ? 0
            : projections * count_linear(kv, h, c->attention_bias) + d; /* and k's norm */
    return count_linear(q, h, c->attention_bias) + d + own + count_linear(h, q, c->output_bias);
}

static double layer_parameters(const struct model_config *c, uint32_t index)
{
    const double h = c->hidden, n = c->layer_width, e = c->experts, f = c->expert_ffn;
    const double part = c->layer_width ? 2 * h * n + h : 0;
    const double experts = c->experts ? e * h + h + e + 3 * e * h * f + 3 * h : 0;
    return attention_parameters(c, index) + 3 * h * gemma4_ffn(c, index) + 4 * h + part + experts;
}

static double parameters(const struct model_config *c)
{
    const double h = c->hidden, all = (double)c->layers * c->layer_width;
    double sum = (c->tied ? 1 : 2) * (double)c->vocab * h + h;
    for (uint32_t i = 0; i < c->layers; i++)
        sum += layer_parameters(c, i);
    return sum + (c->layer_width ? (c->layer_vocab + h) * all + c->layer_width : 0);
}

/* ---- keys ---- */

/* What sees an image both ways is the model around this one. */
static const struct choice causal_text[] = {{"vision", NULL, false}, {NULL, NULL, false}};

/* A size of what not every model has; null: it has not. */
#define PERHAPS(key, member, number, most)                                                         \
    .name = (key), .type = KEY_INT, .max = (most), AT(member), .absent = RULE_VALUE,               \
    .null = RULE_NONE, .value = (number)

static const struct key keys[] = {
    {COUNT("vocab_size", vocab, 262144, VOCAB_MAX)},
    {SIZE("hidden_size", hidden, HIDDEN_MAX)},
    {SIZE("num_hidden_layers", layers, LAYERS_MAX)},
    {COUNT("num_attention_heads", heads, 8, HEADS_MAX)},
    {SIZE("intermediate_size", ffn, FFN_MAX)},
    {COUNT("num_key_value_heads", kv_heads, 4, HEADS_MAX)},
    {COUNT("head_dim", head_dim, 256, HEAD_DIM_MAX)},
    {POSITIONS("max_position_embeddings", 131072)},
    EPS("rms_norm_eps", 1e-6),
    STD("initializer_range", 0.02),
    TIED(true),
    {CHOICE("hidden_activation", gated, "gelu_pytorch_tanh", key_activations)},
    DROPOUT("attention_dropout", attention_dropout, 0),
    ATTENTION_BIASES(false),
    {COUNT("sliding_window", sliding_window, 512, POSITIONS_MAX)},
    {NUMBER("rope_parameters.full_attention.rope_theta", rope.theta, 1e6, 1, 1e12)},
    {NUMBER("rope_parameters.sliding_attention.rope_theta", window_theta, 1e4, 1, 1e12)},
    SOFTCAP("final_logit_softcapping", logits_softcap, 0),
    {ALWAYS("qk_norm", qk_norm)},
    {CHOICE("use_bidirectional_attention", gated, "vision", causal_text), .null = RULE_VALUE},
    {LAYER_LIST("layer_types", KEY_LAYERS, windows, key_window_layers, RULE_NONE)},
    {FLAG("attention_k_eq_v", keys_are_values, false)},
    {PERHAPS("num_experts", experts, 0, EXPERTS_MAX)},
    {PERHAPS("top_k_experts", experts_per_token, 0, EXPERTS_MAX)},
    {PERHAPS("moe_intermediate_size", expert_ffn, 0, FFN_MAX)},
    {BOOL("enable_moe_block", KEY_GATE, false), AT(experts)},
    {BOOL("enable_moe_block", KEY_GATE, false), AT(experts_per_token)},
    {CHOICE("experts_implementation", batched_experts, "grouped_mm", experts_ways)},
    {ONLY("output_router_logits", false)},
    {PERHAPS("hidden_size_per_layer_input", layer_width, 256, HIDDEN_MAX)},
    {COUNT("vocab_size_per_layer_input", layer_vocab, 262144, VOCAB_MAX)},
    {PERHAPS("num_kv_shared_layers", reusing_layers, 0, LAYERS_MAX)},
    {FLAG("use_double_wide_mlp", wide_reusing, false)},
};

/* Of every six layers the last has no window, where the file does not say; the last of all never
 * has one. */
static void settle_windows(struct model_config *c)
{
    enum { PERIOD = 6 };
    const uint32_t last = c->layers - 1;
    for (uint32_t i = 0; i < c->layers && !c->windows.listed; i++)
        layer_put(&c->windows, i, (i + 1) % PERIOD != 0);
    c->windows.listed = true;
    c->windows.bits[last / 32] &= ~(1U << (last % 32));
}

/* A size of the file, or of an object of it; `otherwise` where it is absent or null. */
static enum err_code take_size(const json_t *object, const char *where, const char *within,
                               const char *key, uint32_t most, uint32_t otherwise, uint32_t *out,
                               struct err *err)
{
    const json_t *value = json_object_get(object, key);
    *out = otherwise;
    if (!value || json_is_null(value))
        return ERR_OK;
    if (!json_is_integer(value) || json_integer_value(value) < 1 ||
        json_integer_value(value) > most)
        return err_set(err, ERR_INVALID, "%s: \"%s%s\": expected an integer 1 ... %u", where,
                       within, key, most);
    *out = (uint32_t)json_integer_value(value);
    return ERR_OK;
}

/* What per_layer_config has by a layer's number, which transformers pads with zeros; NULL: nothing.
 */
static const json_t *layer_at(const json_t *file, uint32_t index)
{
    enum { DIGITS_MOST = 5 };
    char number[16];
    const json_t *layer = NULL;
    for (int digits = 1; digits <= DIGITS_MOST && !layer; digits++) {
        snprintf(number, sizeof number, "%0*u", digits, index);
        layer = json_object_get(file, number);
    }
    return layer;
}

/* What per_layer_config says of a layer. */
static enum err_code take_layer(const json_t *file, const char *where, uint32_t index,
                                const struct model_config *c, uint32_t *d, uint32_t *kv,
                                struct err *err)
{
    char within[64];
    snprintf(within, sizeof within, "per_layer_config.%u.", index);
    const json_t *layer = layer_at(file, index);
    const size_t known = (json_object_get(layer, "head_dim") != NULL) +
                         (size_t)(json_object_get(layer, "num_key_value_heads") != NULL);
    if (json_object_size(layer) != known || (layer && !json_is_object(layer)))
        return err_set(err, ERR_INVALID,
                       "%s: \"per_layer_config.%u\": expected an object of \"head_dim\" and "
                       "\"num_key_value_heads\" (nothing else is planned for)",
                       where, index);
    TRY(take_size(layer, where, within, "head_dim", HEAD_DIM_MAX, c->head_dim, d, err));
    return take_size(layer, where, within, "num_key_value_heads", HEADS_MAX, c->kv_heads, kv, err);
}

/* Whether its keys are numbers of layers. */
static bool are_layers(const json_t *file, uint32_t layers)
{
    size_t found = 0;
    for (uint32_t i = 0; i < layers; i++)
        found += layer_at(file, i) != NULL;
    return json_is_object(file) && found == json_object_size(file);
}

/* Sizes of heads in layers without a window: an object has them layer by layer, or two keys for
 * all. */
static enum err_code read_own(const json_t *root, const char *where, struct model_config *c,
                              struct err *err)
{
    const json_t *file = json_object_get(root, "per_layer_config");
    settle_windows(c);
    if (!file) {
        TRY(take_size(root, where, "", "global_head_dim", HEAD_DIM_MAX, 512, &c->full_head_dim,
                      err));
        TRY(take_size(root, where, "", "num_global_key_value_heads", HEADS_MAX, c->kv_heads,
                      &c->full_kv_heads, err));
        if (!c->keys_are_values)
            c->full_kv_heads = c->kv_heads;
        return ERR_OK;
    }
    if (!are_layers(file, c->layers))
        return err_set(err, ERR_INVALID,
                       "%s: \"per_layer_config\": expected an object whose keys are layers, \"0\" "
                       "... \"%u\"",
                       where, c->layers - 1);
    TRY(take_layer(file, where, c->layers - 1, c, &c->full_head_dim, &c->full_kv_heads, err));
    for (uint32_t i = 0; i < c->layers; i++) {
        uint32_t d = 0, kv = 0;
        TRY(take_layer(file, where, i, c, &d, &kv, err));
        if (d != gemma4_head_dim(c, i) || kv != gemma4_kv_heads(c, i))
            return err_set(err, ERR_INVALID,
                           "%s: \"per_layer_config\": layer %u has %u heads of keys, %u numbers a "
                           "head, others of its type %u and %u: one size for each type of layer "
                           "is planned for",
                           where, i, kv, d, gemma4_kv_heads(c, i), gemma4_head_dim(c, i));
    }
    return ERR_OK;
}

enum err_code gemma4_check_reusing(const struct key_table *table, const struct model_config *c,
                                   const char *where, struct err *err)
{
    const char *name = NAME_OF(table, reusing_layers);
    bool kept[2] = {false, false};
    if (c->reusing_layers >= c->layers)
        return err_set(err, ERR_INVALID, "%s: \"%s\": %u of %u layers leave none to reuse", where,
                       name, c->reusing_layers, c->layers);
    for (uint32_t i = 0; i < c->layers; i++)
        if (gemma4_keys_of(c, i) == GEMMA4_KEPT)
            kept[is_full(c, i)] = true;
    for (uint32_t i = 0; i < c->layers && c->reusing_layers; i++)
        if (!kept[is_full(c, i)])
            return err_set(err, ERR_INVALID,
                           "%s: \"%s\": %u leaves no layer of layer %u's type before them", where,
                           name, c->reusing_layers, i);
    if (c->reusing_layers && !c->layer_width)
        return err_set(err, ERR_INVALID,
                       "%s: \"%s\": %u without \"%s\", which transformers 5.23's code fails on",
                       where, name, c->reusing_layers, NAME_OF(table, layer_width));
    return ERR_OK;
}

static enum err_code check_experts(const struct key_table *table, const struct model_config *c,
                                   const char *where, struct err *err)
{
    if (c->experts && (!c->experts_per_token || !c->expert_ffn))
        return err_set(err, ERR_INVALID, "%s: \"%s\": %u needs \"%s\" and \"%s\" of 1 at the least",
                       where, NAME_OF(table, experts), c->experts,
                       NAME_OF(table, experts_per_token), NAME_OF(table, expert_ffn));
    return experts_check(table, c, where, err);
}

static enum err_code check(const struct key_table *table, const struct model_config *c,
                           const char *where, struct err *err)
{
    if (c->full_kv_heads == 0 || c->heads % c->full_kv_heads != 0)
        return err_set(err, ERR_INVALID,
                       "%s: %u heads of keys of layers without a window do not divide \"%s\": %u",
                       where, c->full_kv_heads, NAME_OF(table, heads), c->heads);
    if (c->full_head_dim == 0 || c->full_head_dim % 2 != 0)
        return err_set(err, ERR_INVALID,
                       "%s: heads of %u numbers in layers without a window: RoPE turns them in "
                       "pairs",
                       where, c->full_head_dim);
    if (c->layer_width && c->layer_vocab < c->vocab)
        return err_set(err, ERR_INVALID, "%s: \"%s\": %u is less than \"%s\": %u", where,
                       NAME_OF(table, layer_vocab), c->layer_vocab, NAME_OF(table, vocab),
                       c->vocab);
    TRY(check_experts(table, c, where, err));
    return gemma4_check_reusing(table, c, where, err);
}

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* The text models of google/gemma-4-31B, -26B-A4B, -E4B and -E2B. Gemma4ForCausalLM. */
#define GEMMA4(h, l, a, k, f, positions, window, period)                                           \
    DECODER(ARCH_GEMMA4, h, l, a, k, 256, f, 262144, positions, 1e-6F, 1e6F), .tied = true,        \
    .activation = "gelu_tanh", .qk_norm = true, .logits_softcap = 30, .sliding_window = window,    \
    .window_period = period, .window_theta = 1e4F, .full_head_dim = 512, .layer_vocab = 262144,    \
    .rope.scaling = ROPE_PROPORTIONAL, .rope.factor = 1, .rope.share = 0.25F
#define LARGE(h, l, a, k, full, f)                                                                 \
    GEMMA4(h, l, a, k, f, 262144, 1024, 6), .keys_are_values = true, .full_kv_heads = full
#define SMALL(h, l, k, f, period, reusing)                                                         \
    GEMMA4(h, l, 8, k, f, 131072, 512, period), .full_kv_heads = k, .layer_width = 256,            \
    .reusing_layers = reusing
static const struct model_preset presets[] = {
    {"gemma-4-31b-text", 30697345280, {LARGE(5376, 60, 32, 16, 4, 21504)}},
    {"gemma-4-26b-a4b-text", 25233141760,
     {LARGE(2816, 30, 16, 8, 2, 2112),
      .experts = 128, .experts_per_token = 8, .expert_ffn = 704}},
    {"gemma-4-e4b-text", 7463013376, {SMALL(2560, 42, 2, 10240, 6, 18)}},
    {"gemma-4-e2b-text", 4628569344, {SMALL(1536, 35, 1, 6144, 5, 20), .wide_reusing = true}},
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

const struct family family_gemma4 = {
    .name = "gemma4_text",
    .class_name = "Gemma4ForCausalLM",
    .block_class = "Gemma4TextDecoderLayer",
    .part_absent =
        "{\"hidden_size\": 2304, \"num_hidden_layers\": 30, \"intermediate_size\": 9216}",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    .rope = true,
    .rope_absent = "{\"full_attention\": {\"rope_type\": \"proportional\", "
                   "\"partial_rotary_factor\": 0.25}, \"sliding_attention\": {}}",
    .parameters = parameters,
    .padding = 0 + 1,
    .read = read_own,
    .check = check,
    .traced = true,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build_hf_gemma4},
};

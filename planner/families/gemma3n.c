/* gemma3n.c - Gemma 3n's text model (E2B, E4B): several hidden states of which a layer computes one
 * (AltUp), a product of low rank beside attention (LAuReL), a second embedding of which each layer
 * has a part, feed-forwards that gate most of their numbers away, and last layers that reuse keys
 * and values (hf/gemma3n.c). */
#include "families/gemma.h"
#include "hf/gemma4.h"
#include "model/count.h"

/* ---- parameters ---- */

static double layer_parameters(const struct model_config *c, uint32_t index)
{
    const double h = c->hidden, n = c->altup_inputs, d = c->head_dim, q = c->heads * d,
                 kv = c->kv_heads * d;
    const double own = gemma4_keys_of(c, index) == GEMMA4_REUSED
                           ? 0
                           : 2 * count_linear(kv, h, c->attention_bias) + d;
    const double attention =
        count_linear(q, h, c->attention_bias) + d + own + count_linear(h, q, c->output_bias);
    const double altup = 2 * h + n * n + n * n * n + n * h;
    return attention + 3 * h * c->ffn + 4 * h + altup + 2 * h * c->laurel_rank + h +
           2 * h * c->layer_width + h;
}

static double parameters(const struct model_config *c)
{
    const double h = c->hidden, all = (double)c->layers * c->layer_width;
    double sum = (c->tied ? 1 : 2) * (double)c->vocab * h + h;
    for (uint32_t i = 0; i < c->layers; i++)
        sum += layer_parameters(c, i);
    return sum + (c->layer_vocab + h) * all + c->layer_width + 2 * (c->altup_inputs - 1.0) * h * h;
}

/* ---- keys ---- */

/* States are operands of one call, and a copy more. */
enum { INPUTS_MAX = 16 };

static const struct key keys[] = {
    {COUNT("vocab_size", vocab, 262400, VOCAB_MAX)},
    {COUNT("hidden_size", hidden, 2048, HIDDEN_MAX)},
    {COUNT("num_hidden_layers", layers, 35, LAYERS_MAX)},
    {COUNT("num_attention_heads", heads, 8, HEADS_MAX)},
    {COUNT("num_key_value_heads", kv_heads, 2, HEADS_MAX)},
    {COUNT("head_dim", head_dim, 256, HEAD_DIM_MAX)},
    {POSITIONS("max_position_embeddings", 32768)},
    EPS("rms_norm_eps", 1e-6),
    STD("initializer_range", 0.02),
    TIED(true),
    {CHOICE("hidden_activation", gated, "gelu_pytorch_tanh", key_activations)},
    DROPOUT("attention_dropout", attention_dropout, 0),
    ATTENTION_BIASES(false),
    {COUNT("sliding_window", sliding_window, 512, POSITIONS_MAX)},
    {NUMBER("rope_theta", rope.theta, 1e6, 1, 1e12),
     .other = "rope_parameters.full_attention.rope_theta"},
    {NUMBER("rope_local_base_freq", window_theta, 1e4, 1, 1e12),
     .other = "rope_parameters.sliding_attention.rope_theta"},
    SOFTCAP("final_logit_softcapping", logits_softcap, 30),
    {ALWAYS("qk_norm", qk_norm)},
    {LAYER_LIST("layer_types", KEY_LAYERS, windows, key_window_layers, RULE_NONE)},
    {COUNT("vocab_size_per_layer_input", layer_vocab, 262144, VOCAB_MAX)},
    {COUNT("hidden_size_per_layer_input", layer_width, 256, HIDDEN_MAX)},
    {REAL("num_kv_shared_layers", KEY_INT, reusing_layers, 15, 0, LAYERS_MAX)},
    {REAL("altup_num_inputs", KEY_INT, altup_inputs, 4, 2, INPUTS_MAX)},
    {REAL("altup_active_idx", KEY_INT, altup_active, 0, 0, INPUTS_MAX)},
    {NUMBER("altup_coef_clip", altup_clip, 120, 1e-6, 1e9)},
    {FLAG("altup_correct_scale", altup_scaled, true)},
    {.name = "intermediate_size", /* or a list of the same for each layer */
     .type = KEY_EACH,
     .min = 1,
     .max = FFN_MAX,
     AT(ffn),
     .absent = RULE_VALUE,
     .value = 16384},
    {COUNT("laurel_rank", laurel_rank, 64, HIDDEN_MAX)},
};

/* "activation_sparsity_pattern": a share for each layer, 0 or one number; without, that of the
 * first ten of more layers than that. */
static enum err_code read_sparsity(const json_t *root, const char *where, struct model_config *c,
                                   struct err *err)
{
    enum { SPARSE_FIRST = 10 };
    const json_t *list = json_object_get(root, "activation_sparsity_pattern");
    c->sparse_layers.listed = true;
    c->sparsity = 0.95F;
    if (!list || json_is_null(list)) {
        for (uint32_t i = 0; i < SPARSE_FIRST && c->layers > SPARSE_FIRST; i++)
            layer_put(&c->sparse_layers, i, true);
        return ERR_OK;
    }
    double share = 0;
    bool fits = json_array_size(list) == c->layers;
    for (uint32_t i = 0; fits && i < c->layers; i++) {
        const json_t *entry = json_array_get(list, i);
        const double own = json_number_value(entry);
        fits = json_is_number(entry) && own >= 0 && own < 1 &&
               (own <= 0 || share <= 0 || (own <= share && own >= share));
        if (own > 0)
            share = own;
        layer_put(&c->sparse_layers, i, own > 0);
    }
    if (!fits)
        return err_set(err, ERR_INVALID,
                       "%s: \"activation_sparsity_pattern\": expected a list of %u numbers, each 0 "
                       "or the same one below 1 (nothing else is planned for)",
                       where, c->layers);
    if (share > 0)
        c->sparsity = (float)share;
    return ERR_OK;
}

/* Of every five layers the last has no window, where the file does not say. */
static enum err_code read(const json_t *root, const char *where, struct model_config *c,
                          struct err *err)
{
    enum { PERIOD = 5 };
    for (uint32_t i = 0; i < c->layers && !c->windows.listed; i++)
        layer_put(&c->windows, i, (i + 1) % PERIOD != 0);
    c->windows.listed = true;
    c->full_head_dim = c->head_dim;
    c->full_kv_heads = c->kv_heads;
    return read_sparsity(root, where, c, err);
}

static enum err_code check(const struct key_table *table, const struct model_config *c,
                           const char *where, struct err *err)
{
    if (c->hidden % c->heads != 0)
        return key_does_not_divide(where, NAME_OF(table, heads), c->heads, NAME_OF(table, hidden),
                                   c->hidden, err);
    if (c->altup_active >= c->altup_inputs)
        return err_set(err, ERR_INVALID, "%s: \"%s\": %u is not less than \"%s\": %u", where,
                       NAME_OF(table, altup_active), c->altup_active, NAME_OF(table, altup_inputs),
                       c->altup_inputs);
    return gemma4_check_reusing(table, c, where, err);
}

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* The text models of google/gemma-3n-E2B and -E4B. Gemma3nForCausalLM. Bits of layers: the first
 * ten. */
#define GEMMA3N(l, f, reusing)                                                                     \
    DECODER(ARCH_GEMMA3N, 2048, l, 8, 2, 256, f, 262400, 32768, 1e-6F, 1e6F), .tied = true,        \
    .activation = "gelu_tanh", .qk_norm = true, .logits_softcap = 30, .sliding_window = 512,       \
    .window_period = 5, .window_theta = 1e4F, .full_head_dim = 256, .full_kv_heads = 2,            \
    .padding = 0 + 1, .layer_width = 256, .layer_vocab = 262144, .reusing_layers = reusing,        \
    .altup_inputs = 4, .altup_clip = 120, .altup_scaled = true, .laurel_rank = 64,                 \
    .sparse_layers = {.listed = true, .bits = {0x3FF}}, .sparsity = 0.95F
static const struct model_preset presets[] = {
    {"gemma-3n-e2b-text", 4435182688, {GEMMA3N(30, 8192, 10)}},
    {"gemma-3n-e4b-text", 6835235568, {GEMMA3N(35, 16384, 15)}},
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

const struct family family_gemma3n = {
    .name = "gemma3n_text",
    .class_name = "Gemma3nForCausalLM",
    .block_class = "Gemma3nTextDecoderLayer",
    .part_absent = "{}",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    .rope = true,
    .parameters = parameters,
    .padding = 0 + 1,
    .uncompiled = true,
    .read = read,
    .check = check,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build_hf_gemma3n},
};

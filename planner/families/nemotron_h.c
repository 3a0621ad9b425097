/* nemotron_h.c - Nemotron-H, Nemotron Nano 2 and Nemotron 3 Nano: each layer is one thing behind a
 * norm, Mamba-2, attention without RoPE, a feed-forward without a gate, or a mixture of experts
 * without gates. */
#include "families/llama.h"
#include "hf/decoder.h"
#include "model/count.h"
#include "model/experts.h"
#include "model/shown.h"

#include <stdio.h>
#include <string.h>

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    static const struct hf_decoder way = {
        .norm = hf_rms_norm_cast,
        .normed_cast = true,
        .norms = {{".norm", HF_BEFORE_ATTENTION}},
        .embedding = "embeddings",
        .last_norm = "norm_f",
        .apart = "mixer",
        .mlp_last = true,
        .attention_last = true,
        .up = "up_proj",
        .down = "down_proj",
        .masks_by_layer = true,
        .positions_first = true,
        .wide_logits = true,
        .mixer = &hf_mixer_mamba,
        .moe = {.route = hf_route_deepseek_v3,
                .gate = hf_gate_none,
                .router = "gate",
                .leaf = "NemotronHMoE",
                .ungated = true,
                .experts_first = true,
                .flattens = true,
                .correction = HF_CORRECTION_AS_MADE},
    };
    hf_decoder_build(graph, config, job, &way);
}

/* For which mamba-ssm has kernels. */
static const struct choice mamba_words[] = {
    {"silu", NULL, false}, {"swish", NULL, false}, {NULL, NULL, false}};

static const struct key keys[] = {
    {COUNT("vocab_size", vocab, 131072, VOCAB_MAX)},
    {SIZE("hidden_size", hidden, HIDDEN_MAX)},
    {DERIVED("num_hidden_layers", layers, RULE_NONE, LAYERS_MAX)}, /* the list's length */
    {SIZE("num_attention_heads", heads, HEADS_MAX)},
    KV_HEADS(8),
    {COUNT("head_dim", head_dim, 128, HEAD_DIM_MAX)},
    {POSITIONS("max_position_embeddings", 4096)},
    EPS("layer_norm_epsilon", 1e-5),
    STD("initializer_range", 0.02),
    {ONLY("tie_word_embeddings", false)},
    {CHOICE("mamba_hidden_act", gated, "silu", mamba_words)}, /* leaves it to the next row */
    {CHOICE("mlp_hidden_act", gated, "relu2", key_squared_relu_only)},
    DROPOUT("attention_dropout", attention_dropout, 0),
    {COUNT("intermediate_size", ffn, 21504, FFN_MAX)},
    {FLAG("mlp_bias", mlp_bias, false)},
    {ALWAYS("nope", unturned)},
    {COUNT("mamba_num_heads", ssm_heads, 128, HEADS_MAX)},
    {COUNT("mamba_head_dim", ssm_head_dim, 64, HEAD_DIM_MAX)},
    {COUNT("ssm_state_size", ssm_state, 128, SSM_STATE_MAX)},
    {COUNT("n_groups", ssm_groups, 8, HEADS_MAX), .other = "mamba_n_groups"},
    {COUNT("chunk_size", ssm_chunk, 128, SSM_CHUNK_MAX), .other = "mamba_chunk_size"},
    {REAL("conv_kernel", KEY_INT, conv_width, 4, CONV_WIDTH_MIN, CONV_WIDTH_MAX),
     .other = "mamba_d_conv"},
    {FLAG("use_conv_bias", conv_bias, true), .other = "mamba_conv_bias"},
    {FLAG("use_bias", ssm_bias, false)},
    {FLAG("use_bias", ssm_out_bias, false)},
    EXPERTS("n_routed_experts", "num_local_experts", 8, 2),
    EXPERT_WIDTH(7688),
    {COUNT("moe_shared_expert_intermediate_size", shared_ffn, 7688, FFN_MAX)},
    EXPERT_GROUPS(1, 1, 1),
    {FLAG("norm_topk_prob", norm_topk, true)},
    NEUTRAL("moe_latent_size", NO_NUMBER),
};

/* Kinds of layers, by the letters of hybrid_override_pattern and the words of layers_block_type. */
static const struct kind {
    char letter;
    const char *word, *other;
    bool linear, feeds, mixture;
} kinds[] = {
    {'M', "linear_attention", "mamba", true, false, false},
    {'*', "full_attention", "attention", false, false, false},
    {'-', "mlp", NULL, false, true, false},
    {'E', "moe", NULL, false, true, true},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

#define WORDS "linear_attention or mamba (M), full_attention or attention (*), mlp (-) and moe (E)"

static const struct kind *kind_of(const json_t *word, char letter)
{
    const char *text = json_string_value(word);
    for (size_t i = 0; i < KINDS; i++)
        if (text ? !strcmp(text, kinds[i].word) || (kinds[i].other && !strcmp(text, kinds[i].other))
                 : letter && letter == kinds[i].letter)
            return &kinds[i];
    return NULL;
}

static void set(struct layer_list *list, uint32_t index, bool on)
{
    list->listed = true;
    layer_put(list, index, on);
}

struct layers { /* by words or by letters, and how many */
    const char *name;
    const json_t *words;
    const char *letters;
    size_t count;
};

/* Words, under either of their names: NULL where the file has none. */
static enum err_code find_words(const json_t *root, const char *where, struct layers *out,
                                struct err *err)
{
    static const char *const names[] = {"layers_block_type", "layer_types"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const json_t *list = json_object_get(root, names[i]);
        if (!list || json_is_null(list))
            continue;
        if (!json_is_array(list))
            return err_set(err, ERR_INVALID,
                           "%s: \"%s\": expected null or a list, for each layer of " WORDS
                           ", got %s",
                           where, names[i], shown_of(list).text);
        if (out->words && !json_equal(out->words, list))
            return err_set(err, ERR_INVALID, "%s: \"%s\": %s and \"%s\": %s are the same setting",
                           where, out->name, shown_of(out->words).text, names[i],
                           shown_of(list).text);
        out->words = list;
        out->name = names[i];
        out->count = json_array_size(list);
    }
    return ERR_OK;
}

/* Words, or letters where there are none. The four layers that the class has without either are
 * more likely a mistake. */
static enum err_code find_layers(const json_t *root, const char *where, struct layers *out,
                                 struct err *err)
{
    static const char name[] = "hybrid_override_pattern";
    const json_t *pattern = json_object_get(root, name);
    *out = (struct layers){.name = NULL};
    TRY(find_words(root, where, out, err));
    if (pattern && !json_is_string(pattern))
        return err_set(err, ERR_INVALID, "%s: \"%s\": expected a text of M, *, - and E, got %s",
                       where, name, shown_of(pattern).text);
    if (out->words)
        return ERR_OK;
    if (!pattern)
        return err_set(err, ERR_INVALID,
                       "%s: \"layers_block_type\" is missing: a list, for each layer of " WORDS
                       "; or \"%s\", a text of these letters",
                       where, name);
    out->name = name;
    out->letters = json_string_value(pattern);
    out->count = json_string_length(pattern);
    return ERR_OK;
}

/* What a layer is, in a message. */
static struct shown shown_layer(const struct layers *layers, uint32_t index)
{
    if (layers->words)
        return shown_of(json_array_get(layers->words, index));
    const char letter = layers->letters[index];
    struct shown shown;
    snprintf(shown.text, sizeof shown.text, "\"%c\"",
             letter >= ' ' && letter <= '~' ? letter : '?');
    return shown;
}

/* The list, whose length is the number of layers. */
static enum err_code read(const json_t *root, const char *where, struct model_config *c,
                          struct err *err)
{
    struct layers layers;
    TRY(find_layers(root, where, &layers, err));
    if (layers.count == 0 || layers.count > LAYERS_MAX)
        return err_set(err, ERR_INVALID, "%s: \"%s\": expected 1 ... %d layers, got %zu", where,
                       layers.name, LAYERS_MAX, layers.count);
    if (c->layers && c->layers != layers.count)
        return err_set(err, ERR_INVALID,
                       "%s: \"num_hidden_layers\": expected %zu, as many as \"%s\" has, got %u",
                       where, layers.count, layers.name, c->layers);
    c->layers = (uint32_t)layers.count;
    for (uint32_t i = 0; i < c->layers; i++) {
        const struct kind *kind = kind_of(layers.words ? json_array_get(layers.words, i) : NULL,
                                          layers.words ? '\0' : layers.letters[i]);
        if (!kind)
            return err_set(err, ERR_INVALID, "%s: \"%s\": layer %u: allowed are " WORDS ", got %s",
                           where, layers.name, i, shown_layer(&layers, i).text);
        set(&c->linear, i, kind->linear);
        set(&c->feeds, i, kind->feeds);
        set(&c->dense, i, !kind->mixture);
    }
    return ERR_OK;
}

static enum err_code check(const struct key_table *table, const struct model_config *c,
                           const char *where, struct err *err)
{
    if (model_mixes(c))
        TRY(hf_mamba_check(table, c, where, err));
    if (experts_layers(c) == 0)
        return ERR_OK;
    TRY(experts_check(table, c, where, err));
    return experts_check_groups(table, c, where, err);
}

static double parameters(const struct model_config *c)
{
    const double h = c->hidden, q = (double)c->heads * c->head_dim,
                 kv = (double)c->kv_heads * c->head_dim;
    const double attention = 2 * q * h + 2 * kv * h;
    const double mlp = count_linear(c->ffn, h, c->mlp_bias) + count_linear(h, c->ffn, c->mlp_bias);
    const double shared =
        count_linear(c->shared_ffn, h, c->mlp_bias) + count_linear(h, c->shared_ffn, c->mlp_bias);
    const double mixture = c->experts * (h + 2 * h * experts_width(c)) + shared;
    double sum = (c->tied ? 1 : 2) * (double)c->vocab * h + h;
    for (uint32_t i = 0; i < c->layers; i++)
        sum += h + (model_is_linear(c, i) ? hf_mamba_count(c)
                    : !model_feeds(c, i)  ? attention
                    : experts_in(c, i)    ? mixture
                                          : mlp);
    return sum;
}

/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */
/* nvidia/NVIDIA-Nemotron-Nano-9B-v2, -12B-v2, Nemotron-H-4B-Base-8K ... -56B-Base-8K,
 * NVIDIA-Nemotron-3-Nano-30B-A3B. NemotronHForCausalLM. */
#define BITS(...) {true, {__VA_ARGS__}}
/* Without experts, of which the class has numbers anyway. */
#define DENSE(title, count, h, l, a, f, positions, m, d, n, chunk, mixing, feeding, all)           \
    {title, count,                                                                                 \
     {DECODER(ARCH_NEMOTRON_H, h, l, a, 8, 128, f, 131072, positions, 1e-5F, 1e4F),                \
      .activation = "relu2", .unturned = true, .ssm_heads = m, .ssm_head_dim = d, .ssm_state = n,  \
      .ssm_groups = 8, .ssm_chunk = chunk, .conv_width = 4, .conv_bias = true, .experts = 8,       \
      .experts_per_token = 2, .expert_ffn = 7688, .shared_ffn = 7688, .groups = 1,                 \
      .topk_groups = 1, .routed_scaling = 1, .norm_topk = true, .linear = mixing,                  \
      .feeds = feeding, .dense = all}}
#define ALL 0xffffffff

static const struct model_preset presets[] = {
    DENSE("nemotron-nano-9b-v2", 8888227328, 4480, 56, 40, 15680, 131072, 128, 80, 128, 128,
          BITS(0x2a952ad5, 0x555a55), BITS(0x954a952a, 0xaaa52a), BITS(ALL, 0xffffff)),
    DENSE("nemotron-nano-12b-v2", 12310001152, 5120, 62, 40, 20480, 131072, 128, 80, 128, 128,
          BITS(0xa954aa55, 0x154aa552), BITS(0x54aa552a, 0x2aa552a9), BITS(ALL, 0x3fffffff)),
    DENSE("nemotron-h-4b", 4489223040, 3072, 52, 32, 12288, 8192, 112, 64, 128, 256,
          BITS(0x9552aa55, 0x554aa), BITS(0x4aa9552a, 0xaaa55), BITS(ALL, 0xfffff)),
    DENSE("nemotron-h-8b", 8100852736, 4096, 52, 32, 21504, 8192, 128, 64, 128, 128,
          BITS(0x9552aa55, 0x554aa), BITS(0x4aa9552a, 0xaaa55), BITS(ALL, 0xfffff)),
    DENSE("nemotron-h-47b", 46791554816, 8192, 98, 64, 30720, 131072, 256, 64, 256, 128,
          BITS(0xaaa95555, 0x4aa9552a, 0x5528c555, 0x1), BITS(0x5554aaaa, 0xa554aa95, 0xaa973aaa, 0x2),
          BITS(ALL, ALL, ALL, 0x3)),
    DENSE("nemotron-h-56b", 56324350464, 8192, 118, 64, 32768, 8192, 256, 64, 256, 128,
          BITS(0x9552aa55, 0x2aa554aa, 0x554aa955, 0x1552aa), BITS(0x4aa9552a, 0x9552aa55, 0x2aa554aa, 0x2aa955),
          BITS(ALL, ALL, ALL, 0x3fffff)),
    {"nemotron-3-nano-30b-a3b", 31577937344,
     {DECODER(ARCH_NEMOTRON_H, 2688, 52, 32, 2, 128, 1856, 131072, 262144, 1e-5F, 1e4F),
      .activation = "relu2", .unturned = true, .ssm_heads = 64, .ssm_head_dim = 64,
      .ssm_state = 128, .ssm_groups = 8, .ssm_chunk = 128, .conv_width = 4, .conv_bias = true,
      .experts = 128, .experts_per_token = 6, .expert_ffn = 1856, .shared_ffn = 3712, .groups = 1,
      .topk_groups = 1, .routed_scaling = 2.5F, .norm_topk = true,
      .linear = {true, {0x52a54a95, 0x552a9}}, .feeds = {true, {0xa952a54a, 0xaa954}},
      .dense = {true, {0x56ad5ab5, 0x556ab}}}},
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

static const struct preset_alias aliases[] = {
    {"nvidia-nemotron-nano-9b-v2", "nemotron-nano-9b-v2"},
    {"nvidia-nemotron-nano-12b-v2", "nemotron-nano-12b-v2"},
    {"nemotron-h-4b-base-8k", "nemotron-h-4b"},
    {"nemotron-h-8b-base-8k", "nemotron-h-8b"},
    {"nemotron-h-47b-base-8k", "nemotron-h-47b"},
    {"nemotron-h-47b-reasoning-128k", "nemotron-h-47b"},
    {"nemotron-h-56b-base-8k", "nemotron-h-56b"},
    {"nvidia-nemotron-3-nano-30b-a3b", "nemotron-3-nano-30b-a3b"},
    {"nvidia-nemotron-3-nano-30b-a3b-bf16", "nemotron-3-nano-30b-a3b"},
    {"nvidia-nemotron-3-nano-30b-a3b-base-bf16", "nemotron-3-nano-30b-a3b"},
};

const struct family family_nemotron_h = {
    .name = "nemotron_h",
    .class_name = "NemotronHForCausalLM",
    .block_class = "NemotronHBlock",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    ALIASES(aliases),
    .unpadded = true,
    .read = read,
    .check = check,
    .parameters = parameters,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};

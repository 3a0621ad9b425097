/* config.c - reads a Hugging Face config.json.
 *
 * One table per model_type says everything about its keys: name, other spelling, type, what holds
 * when it is absent or null, limits, and the field it goes to. Reading, the limits, and the text of
 * every message come from the table, so an architecture is a table and no code:
 *
 *     "num_key_value_heads": 7  --row--> type, limits --> config.kv_heads --> relations, in check
 *
 * Names and defaults are those of transformers' config classes (configuration_*.py of 5.23),
 * with one difference: what gives a model its size has no default here. There, a Llama without
 * "hidden_size" is a 7B; here it is more likely a mistake. Keys without a row are ignored, as they
 * are there, because published files are full of them.
 *
 * Rows are in the order in which defaults depend on each other: hidden and heads come before
 * whatever is derived from them. A key that feeds two fields has two rows. */
#include "model/config.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    FILE_BYTES_MAX = 16 << 20,
    VOCAB_MAX = 1 << 24,
    HIDDEN_MAX = 1 << 20,
    FFN_MAX = 1 << 24,
    LAYERS_MAX = 4096,
    HEADS_MAX = 16384,
    HEAD_DIM_MAX = 65536, /* times HEADS_MAX times 3, a fused q, k, v, is below 2^32 */
    POSITIONS_MAX = 1 << 24,
    BUCKETS_MAX = 65536,
    EXPERTS_MAX = 1024,
    LAYERS_TIMES_EXPERTS_MAX = 1 << 17, /* each is some ops of the graph */
};
#define PARAMETERS_MAX 1e15

enum key_type {
    KEY_INT,    /* uint32_t */
    KEY_NUMBER, /* float */
    KEY_SHARE,  /* a number: this share of head_dim, rounded down, is the uint32_t stored */
    KEY_BOOL,   /* bool */
    KEY_NOT,    /* bool, stored the other way round */
    KEY_GATE,   /* a bool: when false, the uint32_t read before is 0 */
    KEY_CHOICE, /* one of `choices`: its flag, a bool, and its activation if it has one */
    KEY_ONLY,   /* a bool that changes the model so that only `value` is planned for */
};

/* What holds when a key is absent, or null. */
enum rule {
    RULE_REFUSED,
    RULE_VALUE, /* `value`, or for a choice `text` */
    RULE_HEADS,
    RULE_HIDDEN,
    RULE_LAYERS,
    RULE_HEAD_SIZE,   /* hidden / heads */
    RULE_FOUR_HIDDEN, /* 4 · hidden */
    RULE_NONE,        /* 0, as no such thing */
};

struct choice {
    const char *text, *activation;
    bool flag;
};

struct key {
    const char *name, *other; /* "a.b" is key b of object a */
    enum key_type type;
    bool fixed; /* not a key of the file: what the class does always */
    enum rule absent, null;
    double value, min, max;
    size_t field;
    const struct choice *choices;
    const char *text;
};

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
    THETA("rope_theta", theta),                                                                    \
    TIED(false),                                                                                   \
    {CHOICE("hidden_act", gated, "silu", silu_only)}
#define QWEN_WINDOW                                                                                \
    {WINDOW(RULE_VALUE)},                                                                          \
    {.name = "max_window_layers", .type = KEY_INT, .max = LAYERS_MAX, AT(full_layers),             \
     .absent = RULE_VALUE, .value = 28},                                                           \
    {BOOL("use_sliding_window", KEY_GATE, false), AT(sliding_window)},                             \
    {BOOL("use_sliding_window", KEY_GATE, false), AT(full_layers)}
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
    TIED(true),
    {CHOICE("activation_function", gated, "gelu_new", activations)},
    DROPOUT("resid_pdrop", dropout, 0.1),
    DROPOUT("embd_pdrop", embedding_dropout, 0.1),
    DROPOUT("attn_pdrop", attention_dropout, 0.1),
    {ALWAYS("attention_bias", attention_bias)},
    {ALWAYS("mlp_bias", mlp_bias)},
    {ONLY("add_cross_attention", false)},
};

static const struct key gpt_neox[] = {
    SIZE_KEYS,
    PLAIN_HEADS,
    {POSITIONS("max_position_embeddings", 2048)},
    EPS("layer_norm_eps", 1e-5),
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
    TIED(true),
    {CHOICE("activation_function", gated, "relu", activations)},
    DROPOUT("dropout", dropout, 0.1),
    DROPOUT("attention_dropout", attention_dropout, 0),
    {FLAG("enable_bias", attention_bias, true)},
    {FLAG("enable_bias", mlp_bias, true)},
    {BOOL("do_layer_norm_before", KEY_NOT, true), AT(post_norm)},
    {ONLY("layer_norm_elementwise_affine", true)},
    {ONLY("_remove_final_layer_norm", false)},
};

static const struct key bert[] = {
    SIZE_KEYS,
    PLAIN_HEADS,
    {POSITIONS("max_position_embeddings", 512)},
    {COUNT("type_vocab_size", type_vocab, 2, BUCKETS_MAX)},
    EPS("layer_norm_eps", 1e-12),
    TIED(true),
    {CHOICE("hidden_act", gated, "gelu", activations)},
    DROPOUT("hidden_dropout_prob", dropout, 0.1),
    DROPOUT("attention_probs_dropout_prob", attention_dropout, 0.1),
    {ALWAYS("attention_bias", attention_bias)},
    {ALWAYS("mlp_bias", mlp_bias)},
    {CHOICE("position_embedding_type", gated, "absolute", absolute_only)},
    {ONLY("add_cross_attention", false)},
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

struct schema {
    const struct key *keys;
    size_t count;
    bool heads_divide_hidden; /* even where head_dim is given: the config class insists */
    bool rope;                /* on whole heads */
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

/* Messages */

/* Copies text without what a terminal could take for a command or a broken character. */
static void printable(const char *text, char *out, size_t room)
{
    size_t i = 0;
    for (; text[i] && i + 1 < room; i++)
        out[i] = (char)(text[i] >= ' ' && text[i] <= '~' ? text[i] : '?');
    out[i] = '\0';
}

struct shown { /* a value as it stands in the file, cut to a length that fits a message */
    char text[48];
};

static struct shown show(const json_t *value)
{
    struct shown shown = {"nothing"};
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(15));
    if (text)
        snprintf(shown.text, sizeof shown.text, strlen(text) > 40 ? "%.40s..." : "%.40s", text);
    free(text);
    return shown;
}

struct allowed { /* "an integer 1 ... 16777216 or null" */
    char text[192];
};

static struct allowed show_choices(const struct choice *choices)
{
    struct allowed allowed = {""};
    size_t used = 0;
    for (const struct choice *c = choices; c->text && used < sizeof allowed.text; c++) {
        const char *join = c == choices ? "" : c[1].text ? ", " : " or ";
        used += (size_t)snprintf(allowed.text + used, sizeof allowed.text - used, "%s\"%s\"", join,
                                 c->text);
    }
    return allowed;
}

static struct allowed show_allowed(const struct key *key)
{
    struct allowed allowed = {""};
    const char *or_null = key->null == RULE_REFUSED ? "" : " or null";
    switch (key->type) {
    case KEY_INT:
        snprintf(allowed.text, sizeof allowed.text, "an integer %.0f ... %.0f%s", key->min,
                 key->max, or_null);
        break;
    case KEY_NUMBER:
    case KEY_SHARE:
        snprintf(allowed.text, sizeof allowed.text, "a number %g ... %g%s", key->min, key->max,
                 or_null);
        break;
    case KEY_BOOL:
    case KEY_NOT:
    case KEY_GATE:
        snprintf(allowed.text, sizeof allowed.text, "true or false");
        break;
    case KEY_CHOICE:
        return show_choices(key->choices);
    case KEY_ONLY:
        snprintf(allowed.text, sizeof allowed.text, "%s (nothing else is planned for)",
                 key->value != 0 ? "true" : "false");
        break;
    }
    return allowed;
}

struct reader { /* what every step below needs */
    const json_t *root;
    const char *where;
    struct model_config *config;
    struct err *err;
};

static enum err_code unexpected(const struct reader *r, const struct key *key, const char *name,
                                const json_t *value)
{
    return err_set(r->err, ERR_INVALID, "%s: \"%s\": expected %s, got %s", r->where, name,
                   show_allowed(key).text, show(value).text);
}

static enum err_code does_not_divide(const char *where, const char *name, uint32_t value,
                                     const char *of, uint32_t whole, struct err *err)
{
    return err_set(err, ERR_INVALID, "%s: \"%s\": %u does not divide \"%s\": %u", where, name,
                   value, of, whole);
}

/* What the file of this architecture calls a field. */
static const char *name_of(enum arch arch, size_t field)
{
    const struct schema *schema = &schemas[arch];
    for (size_t i = 0; i < schema->count; i++)
        if (schema->keys[i].field == field && schema->keys[i].type != KEY_ONLY)
            return schema->keys[i].name;
    return "?";
}
#define NAME_OF(config, member) name_of((config)->arch, offsetof(struct model_config, member))

static const struct choice *find_choice(const struct choice *choices, const char *text)
{
    for (; choices->text; choices++)
        if (strcmp(choices->text, text) == 0)
            return choices;
    return NULL;
}

static bool leads_to(const struct choice *choices, const char *activation)
{
    for (; choices->text; choices++)
        if (!choices->activation || (activation && strcmp(choices->activation, activation) == 0))
            return true;
    return false;
}

/* Stores a number that is within the key's limits. */
static void store_number(struct model_config *config, const struct key *key, double value)
{
    void *field = (char *)config + key->field;
    if (key->type == KEY_INT)
        *(uint32_t *)field = (uint32_t)value;
    else if (key->type == KEY_NUMBER)
        *(float *)field = (float)value;
    else if (key->type == KEY_SHARE)
        *(uint32_t *)field = (uint32_t)(config->head_dim * value);
    else if (key->type == KEY_BOOL || key->type == KEY_NOT)
        *(bool *)field = (value != 0) == (key->type == KEY_BOOL);
    else if (key->type == KEY_GATE && value == 0)
        *(uint32_t *)field = 0;
}

static void store_choice(struct model_config *config, const struct key *key, const char *text)
{
    const struct choice *choice = find_choice(key->choices, text);
    *(bool *)((char *)config + key->field) = choice->flag;
    if (choice->activation)
        config->activation = choice->activation;
}

/* One key: find it, then take its value or its default */

static double derive(const struct model_config *c, const struct key *key, enum rule rule)
{
    switch (rule) {
    case RULE_HEADS:
        return c->heads;
    case RULE_HIDDEN:
        return c->hidden;
    case RULE_LAYERS:
        return c->layers;
    case RULE_HEAD_SIZE:
        return (double)c->hidden / c->heads;
    case RULE_FOUR_HIDDEN:
        return 4.0 * c->hidden;
    case RULE_NONE:
        return 0;
    default:
        return key->value;
    }
}

static enum err_code apply_rule(const struct reader *r, const struct key *key, enum rule rule)
{
    struct model_config *c = r->config;
    if (rule == RULE_REFUSED)
        return err_set(r->err, ERR_INVALID, "%s: \"%s\" is missing: %s", r->where, key->name,
                       show_allowed(key).text);
    assert(rule != RULE_HEAD_SIZE || c->heads > 0); /* an earlier row's, so within its limits */
    if (rule == RULE_HEAD_SIZE && c->hidden % c->heads != 0)
        return does_not_divide(r->where, NAME_OF(c, heads), c->heads, NAME_OF(c, hidden), c->hidden,
                               r->err);
    if (key->type == KEY_CHOICE)
        store_choice(c, key, key->text);
    else
        store_number(c, key, derive(c, key, rule));
    return ERR_OK;
}

static enum err_code take_value(const struct reader *r, const struct key *key, const char *name,
                                const json_t *value)
{
    if (key->type == KEY_CHOICE) {
        if (!json_is_string(value) || !find_choice(key->choices, json_string_value(value)))
            return unexpected(r, key, name, value);
        store_choice(r->config, key, json_string_value(value));
        return ERR_OK;
    }
    bool fits;
    double number;
    if (key->type == KEY_INT) {
        number = (double)json_integer_value(value);
        fits = json_is_integer(value);
    } else if (key->type == KEY_NUMBER || key->type == KEY_SHARE) {
        number = json_number_value(value);
        fits = json_is_number(value);
    } else {
        number = json_is_true(value);
        fits = json_is_boolean(value) && (key->type != KEY_ONLY || number == key->value);
    }
    if (!fits || number < key->min || number > key->max)
        return unexpected(r, key, name, value);
    store_number(r->config, key, number);
    return ERR_OK;
}

/* "a.b" is key b of object a; *value is NULL when it is absent. */
static enum err_code look_up(const struct reader *r, const char *name, const json_t **value)
{
    *value = NULL;
    const char *dot = name ? strchr(name, '.') : NULL;
    if (!dot) {
        *value = name ? json_object_get(r->root, name) : NULL;
        return ERR_OK;
    }
    const json_t *object = json_object_getn(r->root, name, (size_t)(dot - name));
    if (object && !json_is_object(object) && !json_is_null(object))
        return err_set(r->err, ERR_INVALID, "%s: \"%.*s\": expected an object or null, got %s",
                       r->where, (int)(dot - name), name, show(object).text);
    *value = json_object_get(object, dot + 1);
    return ERR_OK;
}

static bool same(const json_t *a, const json_t *b)
{
    if (json_is_number(a) && json_is_number(b)) /* 10000 and 10000.0 */
        return json_number_value(a) == json_number_value(b);
    return json_equal(a, b);
}

static enum err_code read_key(const struct reader *r, const struct key *key)
{
    const json_t *value = NULL, *again = NULL;
    const char *name = key->name;
    if (!key->fixed) {
        TRY(look_up(r, key->name, &value));
        TRY(look_up(r, key->other, &again));
    }
    if (value && again && !same(value, again))
        return err_set(r->err, ERR_INVALID, "%s: \"%s\": %s and \"%s\": %s are the same setting",
                       r->where, key->name, show(value).text, key->other, show(again).text);
    if (!value && again) {
        value = again;
        name = key->other;
    }
    if (!value)
        return apply_rule(r, key, key->absent);
    if (json_is_null(value) && key->null != RULE_REFUSED)
        return apply_rule(r, key, key->null);
    return take_value(r, key, name, value);
}

/* Checks, which presets pass through too */

static enum err_code check_field(const struct model_config *config, const struct key *key,
                                 const char *where, struct err *err)
{
    const void *field = (const char *)config + key->field;
    double value = key->max;
    if (key->type == KEY_INT)
        value = *(const uint32_t *)field;
    else if (key->type == KEY_NUMBER)
        value = (double)*(const float *)field;
    else if (key->type == KEY_CHOICE && !leads_to(key->choices, config->activation))
        return err_set(err, ERR_INVALID, "%s: \"%s\": expected %s", where, key->name,
                       show_allowed(key).text);
    /* a float may be a rounding error beyond a limit that its double kept */
    const double slack = key->type == KEY_NUMBER ? 1e-6 * key->max : 0;
    if (value >= key->min - slack && value <= key->max + slack)
        return ERR_OK;
    return err_set(err, ERR_INVALID, "%s: \"%s\": expected %s, got %g", where, key->name,
                   show_allowed(key).text, value);
}

static enum err_code check_attention(const struct model_config *c, const char *where,
                                     struct err *err)
{
    assert(c->heads > 0 && c->kv_heads > 0); /* the limits of their rows */
    if (schemas[c->arch].heads_divide_hidden && c->hidden % c->heads != 0)
        return does_not_divide(where, NAME_OF(c, heads), c->heads, NAME_OF(c, hidden), c->hidden,
                               err);
    if (c->heads % c->kv_heads != 0)
        return does_not_divide(where, NAME_OF(c, kv_heads), c->kv_heads, NAME_OF(c, heads),
                               c->heads, err);
    if (schemas[c->arch].rope && c->head_dim % 2 != 0)
        return err_set(err, ERR_INVALID, "%s: \"%s\": %u is odd, and RoPE turns numbers in pairs",
                       where, NAME_OF(c, head_dim), c->head_dim);
    if (c->arch == ARCH_GPT_NEOX &&
        (c->rotary_dim == 0 || c->rotary_dim % 2 != 0 || c->rotary_dim > c->head_dim))
        return err_set(err, ERR_INVALID,
                       "%s: \"%s\" has RoPE turn %u of a head's %u numbers: expected 2, 4, 6 ...",
                       where, NAME_OF(c, rotary_dim), c->rotary_dim, c->head_dim);
    return ERR_OK;
}

static enum err_code check_experts(const struct model_config *c, const char *where, struct err *err)
{
    if (c->arch != ARCH_MIXTRAL)
        return ERR_OK;
    if (c->experts_per_token > c->experts)
        return err_set(err, ERR_INVALID, "%s: \"%s\": %u is more than \"%s\": %u", where,
                       NAME_OF(c, experts_per_token), c->experts_per_token, NAME_OF(c, experts),
                       c->experts);
    if ((uint64_t)c->experts * c->layers > LAYERS_TIMES_EXPERTS_MAX)
        return err_set(err, ERR_INVALID, "%s: \"%s\": %u times \"%s\": %u is more than %d", where,
                       NAME_OF(c, experts), c->experts, NAME_OF(c, layers), c->layers,
                       LAYERS_TIMES_EXPERTS_MAX);
    return ERR_OK;
}

enum err_code model_config_check(const struct model_config *config, const char *where,
                                 struct err *err)
{
    if ((unsigned)config->arch >= ARCH_COUNT)
        return err_set(err, ERR_INVALID, "%s: no such architecture: %d", where, (int)config->arch);
    const struct schema *schema = &schemas[config->arch];
    for (size_t i = 0; i < schema->count; i++)
        TRY(check_field(config, &schema->keys[i], where, err));
    TRY(check_attention(config, where, err));
    TRY(check_experts(config, where, err));
    const double parameters = model_config_parameters(config);
    if (parameters > PARAMETERS_MAX)
        return err_set(err, ERR_INVALID, "%s: %.3g parameters; at most 10^15 can be planned", where,
                       parameters);
    return ERR_OK;
}

/* The whole object */

static enum err_code find_arch(const json_t *root, const char *where, enum arch *arch,
                               struct err *err)
{
    const json_t *type = json_object_get(root, "model_type");
    for (int i = 0; json_is_string(type) && i < ARCH_COUNT; i++)
        if (strcmp(json_string_value(type), arch_name((enum arch)i)) == 0) {
            *arch = (enum arch)i;
            return ERR_OK;
        }
    char known[192] = "";
    size_t used = 0;
    for (int i = 0; i < ARCH_COUNT && used < sizeof known; i++)
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "",
                                 arch_name((enum arch)i));
    if (!type)
        return err_set(err, ERR_INVALID, "%s: \"model_type\" is missing; known are %s", where,
                       known);
    return err_set(err, ERR_INVALID, "%s: \"model_type\": %s is not known; known are %s", where,
                   show(type).text, known);
}

enum err_code model_config_from_json(const json_t *root, const char *where,
                                     struct model_config *out, struct err *err)
{
    *out = (struct model_config){.layers = 0};
    if (!json_is_object(root))
        return err_set(err, ERR_INVALID, "%s: expected a JSON object, got %s", where,
                       show(root).text);
    struct model_config config = {.rope.attention_factor = 1};
    TRY(find_arch(root, where, &config.arch, err));
    const struct reader reader = {root, where, &config, err};
    const struct schema *schema = &schemas[config.arch];
    for (size_t i = 0; i < schema->count; i++)
        TRY(read_key(&reader, &schema->keys[i]));
    TRY(model_config_check(&config, where, err));
    *out = config;
    return ERR_OK;
}

/* The file */

/* Opens path, or the config.json in it. `where` receives the name for messages. */
static enum err_code open_config(const char *path, char *where, size_t room, int *fd,
                                 struct err *err)
{
    struct stat status;
    snprintf(where, room, "%s", path);
    if (stat(path, &status) != 0)
        return err_set(err, ERR_INVALID, "%s: %s", path, strerror(errno));
    if (S_ISDIR(status.st_mode)) {
        snprintf(where, room, "%s%sconfig.json", path, path[strlen(path) - 1] == '/' ? "" : "/");
        if (stat(where, &status) != 0)
            return err_set(err, ERR_INVALID, "%s: %s", where,
                           errno == ENOENT ? "the folder holds no config.json" : strerror(errno));
    }
    if (!S_ISREG(status.st_mode))
        return err_set(err, ERR_INVALID, "%s: not a regular file", where);
    *fd = open(where, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (*fd < 0)
        return err_set(err, ERR_INVALID, "%s: %s", where, strerror(errno));
    return ERR_OK;
}

/* Reads all there is, one byte beyond the limit at most. The caller owns *text. */
static enum err_code read_all(int fd, const char *where, char **text, size_t *bytes,
                              struct err *err)
{
    const size_t room = (size_t)FILE_BYTES_MAX + 1;
    size_t used = 0;
    *text = xmalloc(room);
    while (used < room) {
        const ssize_t got = read(fd, *text + used, room - used);
        if (got == 0)
            break;
        if (got < 0 && errno != EINTR)
            return err_set(err, ERR_IO, "%s: read: %s", where, strerror(errno));
        used += got > 0 ? (size_t)got : 0;
    }
    *bytes = used;
    if (used == 0)
        return err_set(err, ERR_INVALID, "%s: the file is empty", where);
    if (used == room)
        return err_set(err, ERR_INVALID, "%s: larger than 16 MiB: not a config.json", where);
    return ERR_OK;
}

static enum err_code parse(const char *text, size_t bytes, const char *where,
                           struct model_config *out, struct err *err)
{
    if (bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
        return err_set(err, ERR_INVALID,
                       "%s:1:1: starts with a byte order mark; save it as UTF-8 without one",
                       where);
    json_error_t at;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &at);
    if (!root) {
        char message[JSON_ERROR_TEXT_LENGTH];
        printable(at.text, message, sizeof message);
        return err_set(err, ERR_INVALID, "%s:%d:%d: %s", where, at.line, at.column, message);
    }
    const enum err_code rc = model_config_from_json(root, where, out, err);
    json_decref(root);
    return rc;
}

enum err_code model_config_read(const char *path, struct model_config *out, struct err *err)
{
    char where[PATH_MAX + sizeof "/config.json"];
    char *text = NULL;
    size_t bytes = 0;
    int fd = -1;
    enum err_code rc;
    *out = (struct model_config){.layers = 0};
    if (!*path)
        return err_set(err, ERR_INVALID, "the path of the model is empty");
    TRY(open_config(path, where, sizeof where, &fd, err));
    TRY_GOTO(rc, read_all(fd, where, &text, &bytes, err), done);
    rc = parse(text, bytes, where, out, err);
done:
    free(text);
    close(fd);
    return rc;
}

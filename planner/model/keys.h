/* keys.h - the keys of a config.json as a table: for planner/families.
 *
 * One row says everything about a key: name, other spelling, type, what holds when it is absent or
 * null, limits, and the field of struct model_config it goes to. Reading, the limits, and the text
 * of every message come from the row, so the keys of a family are a table and no code:
 *
 *     "num_key_value_heads": 7  --row--> type, limits --> config.kv_heads
 *
 * Names and defaults are those of transformers' config classes (configuration_*.py of 5.23),
 * with one difference: what gives a model its size has no default here. There, a Llama without
 * "hidden_size" is a 7B; here it is more likely a mistake. Keys without a row are ignored, as they
 * are there, because published files are full of them; but not those of keys_read_foreign.
 *
 * Rows are in the order in which defaults depend on each other: hidden and heads come before
 * whatever is derived from them. A key that feeds two fields has two rows. */
#ifndef SHARDPLAN_KEYS_H
#define SHARDPLAN_KEYS_H

#include "model/config_limits.h"
#include "model/model.h"

#include <jansson.h>

enum key_type {
    KEY_INT,        /* uint32_t; -1, where it may be, is UINT32_MAX */
    KEY_NUMBER,     /* float */
    KEY_DOUBLE,     /* the same as a double, of which a size is made */
    KEY_PER_LAYER,  /* a number: divided by the root of the number of layers, a float */
    KEY_PER_HIDDEN, /* a number: the hidden size divided by it, a float */
    KEY_SHARE,      /* a number: this share of head_dim, rounded down, is the uint32_t stored */
    KEY_BOOL,       /* bool */
    KEY_NOT,        /* bool, stored the other way round */
    KEY_GATE,       /* a bool: when false, the uint32_t read before is 0 */
    KEY_SHARED,     /* a bool: when true, the uint32_t read before is 1 */
    KEY_CHOICE,     /* one of `choices`: its flag, a bool, and its activation if it has one */
    KEY_ONLY,       /* a bool that changes the model so that only `value` is planned for */
    KEY_NEUTRAL,    /* as KEY_ONLY, of any type: null, false, or the number `value` */
    KEY_SET,        /* a list of numbers, each its bit of an array of uint32_t */
    KEY_OTHERS,     /* a list of layers: a struct layer_list of all others */
    KEY_LAYERS,  /* a list of one of `choices` for each layer: a struct layer_list of their flags */
    KEY_WINDOWS, /* the same, where a window is: some layers have it and some have not, or all is
                    as the other keys say */
    KEY_PATTERN, /* a list of [choices, n] pairs: the choices n times, and so on for all layers */
    KEY_HALF,    /* half of the uint32_t that is stored */
    KEY_EACH,    /* as KEY_INT, or a list of the same number for each layer */
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
    RULE_ROOT_LAYERS, /* the root of the number of layers */
    RULE_NONE,        /* 0, as no such thing */
    RULE_KEEP,        /* what an earlier row had */
};

struct choice {
    const char *text, *activation;
    bool flag;
};

struct key {
    const char *name, *other; /* "rope_parameters.b": key b of the object that RoPE has */
    enum key_type type;
    bool or_empty;      /* of a list for each layer: an empty one is none */
    const char *unless; /* where the file has this one, not null, nobody looks at the key */
    bool fixed;         /* not a key of the file: what the class does always */
    enum rule absent, null;
    double value, min, max;
    size_t field;
    const struct choice *choices; /* ends with a row of NULL */
    const char *text;
};

struct key_table {
    const struct key *keys;
    size_t count;
};
#define KEY_TABLE(rows)                                                                            \
    {                                                                                              \
        rows, sizeof(rows) / sizeof *(rows)                                                        \
    }

/* Reads every key of the table from `root` (lent) into `out`. `where` goes in front of messages. */
enum err_code keys_read(const struct key_table *table, const json_t *root, const char *where,
                        struct model_config *out, struct err *err);

/* Keys by which other families' classes change what is computed: a file that has them under one of
 * our model_types wants another model, though the class named there would not look. `own` are the
 * family's, which it reads itself. */
enum err_code keys_read_foreign(const struct key_table *own, const json_t *root, const char *where,
                                struct model_config *out, struct err *err);

/* Holds every field that a key feeds to the limits of its row. */
enum err_code keys_check(const struct key_table *table, const struct model_config *config,
                         const char *where, struct err *err);

/* What the file calls the field at this offset; "?" where no key feeds it. */
const char *key_name(const struct key_table *table, size_t field);
#define NAME_OF(table, member) key_name((table), offsetof(struct model_config, member))

/* A number of a file that is no member of the config; `otherwise` where the file has none.
 * ERR_INVALID: it is no integer from `least` to `most`. */
enum err_code key_integer(const json_t *root, const char *where, const char *name, uint32_t least,
                          uint32_t most, uint32_t otherwise, uint32_t *out, struct err *err);

/* ERR_INVALID: "name": value does not divide "of": whole. */
enum err_code key_does_not_divide(const char *where, const char *name, uint32_t value,
                                  const char *of, uint32_t whole, struct err *err);

/* ---- parts of rows: {PART(...), .null = RULE_...} ---- */

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
#define BOOL(key, kind, number)                                                                    \
    .name = (key), .type = (kind), .absent = RULE_VALUE, .value = (number), .max = 1
#define FLAG(key, member, number) BOOL(key, KEY_BOOL, number), AT(member)
#define ALWAYS(key, member) BOOL(key, KEY_BOOL, true), AT(member), .fixed = true
#define ONLY(key, number) BOOL(key, KEY_ONLY, number)
#define CHOICE(key, member, otherwise, list)                                                       \
    .name = (key), .type = KEY_CHOICE, AT(member), .absent = RULE_VALUE, .text = (otherwise),      \
    .choices = (list)
#define POSITIONS(name, value) COUNT(name, max_positions, value, POSITIONS_MAX)

/* "gelu" and "gelu_tanh" are one op each; the others are as many as Python writes. */
extern const struct choice key_activations[], key_silu_only[], key_squared_relu_only[];
/* What lists say of a layer. */
extern const struct choice key_window_layers[], key_chunk_layers[], key_rope_layers[],
    key_turned_layers[], key_dense_layers[];

/* ---- rows that many families have ---- */

/* clang-format off */
/* Each head has its own keys and values, and heads share out the hidden size. */
#define PLAIN_HEADS                                                                                \
    {FIXED("num_key_value_heads", kv_heads, RULE_HEADS, HEADS_MAX)},                               \
    {FIXED("head_dim", head_dim, RULE_HEAD_SIZE, HIDDEN_MAX)}
#define TIED(value) {FLAG("tie_word_embeddings", tied, value)}
#define EPS(name, value) {NUMBER(name, norm_eps, value, 0, 1)}
/* Of q, k and v, and of what attention puts out. */
#define ATTENTION_BIASES(value)                                                                    \
    {FLAG("attention_bias", attention_bias, value)}, {FLAG("attention_bias", output_bias, value)}
#define DROPOUT(name, member, value) {NUMBER(name, member, value, 0, 1)}
#define THETA(name, value)                                                                         \
    {NUMBER(name, rope.theta, value, 1, 1e12), .other = "rope_parameters.rope_theta"}
#define STD(name, value) {NUMBER(name, init_std, value, 1e-9, 100)}
#define NEUTRAL(key, number)                                                                       \
    {.name = (key), .type = KEY_NEUTRAL, .absent = RULE_VALUE, .null = RULE_VALUE,                 \
     .value = (number), .max = 1}
#define LAYER_LIST(key, kind, member, words, rule)                                                 \
    .name = (key), .type = (kind), AT(member), .absent = (rule), .null = (rule), .max = 1,         \
    .choices = (words)
#define NO_NUMBER (-1.0) /* is neutral */
#define LAYER_TYPES                                                                                \
    {LAYER_LIST("layer_types", KEY_WINDOWS, windows, key_window_layers, RULE_NONE)}
/* nn.LayerNorm's own, where the config class has no say. */
#define TORCH_EPS {NUMBER("layer_norm_eps", norm_eps, 1e-5, 0, 1), .fixed = true}
#define SHAPE_KEYS                                                                                 \
    {SIZE("vocab_size", vocab, VOCAB_MAX)},                                                        \
    {SIZE("hidden_size", hidden, HIDDEN_MAX)},                                                     \
    {SIZE("num_hidden_layers", layers, LAYERS_MAX)}
#define SIZE_KEYS                                                                                  \
    SHAPE_KEYS,                                                                                    \
    {SIZE("num_attention_heads", heads, HEADS_MAX)},                                               \
    {SIZE("intermediate_size", ffn, FFN_MAX)}
/* clang-format on */

#endif

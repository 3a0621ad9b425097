/* keys.c - see keys.h. */
#include "model/keys.h"

#include "model/keys_rope.h"
#include "model/shown.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const struct choice key_activations[] = {
    {"relu", "relu", false},
    {"gelu", "gelu", false},
    {"gelu_pytorch_tanh", "gelu_tanh", false},
    {"gelu_new", "gelu_new", false},
    {"gelu_fast", "gelu_fast", false},
    {"silu", "silu", false},
    {"swish", "silu", false},
    {NULL, NULL, false},
};

const struct choice key_silu_only[] = {
    {"silu", "silu", false}, {"swish", "silu", false}, {NULL, NULL, false}};

const struct choice key_squared_relu_only[] = {{"relu2", "relu2", false}, {NULL, NULL, false}};

const struct choice key_window_layers[] = {
    {"sliding_attention", NULL, true}, {"full_attention", NULL, false}, {NULL, NULL, false}};
const struct choice key_chunk_layers[] = {
    {"chunked_attention", NULL, true}, {"full_attention", NULL, false}, {NULL, NULL, false}};
const struct choice key_rope_layers[] = {
    {"0", NULL, true}, {"1", NULL, false}, {NULL, NULL, false}};
const struct choice key_turned_layers[] = {
    {"0", NULL, false}, {"1", NULL, true}, {NULL, NULL, false}};
const struct choice key_dense_layers[] = {
    {"dense", NULL, true}, {"sparse", NULL, false}, {NULL, NULL, false}};

static const struct key foreign[] = {
    NEUTRAL("attn_logit_softcapping", NO_NUMBER),
    NEUTRAL("final_logit_softcapping", NO_NUMBER),
    NEUTRAL("query_pre_attn_scalar", NO_NUMBER),
    NEUTRAL("attention_multiplier", NO_NUMBER),
    NEUTRAL("residual_multiplier", 1),
    NEUTRAL("embedding_multiplier", 1),
    NEUTRAL("logits_scaling", 1),
    NEUTRAL("logit_scale", 1),
    NEUTRAL("clip_qkv", NO_NUMBER),
    NEUTRAL("attention_chunk_size", NO_NUMBER),
    NEUTRAL("partial_rotary_factor", 1),
    NEUTRAL("alibi", NO_NUMBER),
    NEUTRAL("use_mrope", NO_NUMBER),
};

/* Messages */

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
    case KEY_HALF:
    case KEY_EACH:
        snprintf(allowed.text, sizeof allowed.text, "an integer %.0f ... %.0f%s", key->min,
                 key->max, or_null);
        break;
    case KEY_NUMBER:
    case KEY_DOUBLE:
    case KEY_PER_LAYER:
    case KEY_PER_HIDDEN:
    case KEY_SHARE:
        snprintf(allowed.text, sizeof allowed.text, "a number %g ... %g%s", key->min, key->max,
                 or_null);
        break;
    case KEY_BOOL:
    case KEY_NOT:
    case KEY_GATE:
    case KEY_SHARED:
        snprintf(allowed.text, sizeof allowed.text, "true or false");
        break;
    case KEY_CHOICE:
        return show_choices(key->choices);
    case KEY_NEUTRAL:
        snprintf(allowed.text, sizeof allowed.text, "null, false%s (nothing else is planned for)",
                 key->value < 0   ? ""
                 : key->value > 0 ? " or 1"
                                  : " or 0");
        break;
    case KEY_SET:
    case KEY_OTHERS:
        snprintf(allowed.text, sizeof allowed.text, "a list of integers 0 ... %.0f%s", key->max,
                 or_null);
        break;
    case KEY_LAYERS:
        snprintf(allowed.text, sizeof allowed.text, "null, or for each layer %.160s",
                 show_choices(key->choices).text);
        break;
    case KEY_PATTERN:
        snprintf(allowed.text, sizeof allowed.text,
                 "null, or [[[kind, ...], times], ...] for all layers, kinds %.120s",
                 show_choices(key->choices).text);
        break;
    case KEY_WINDOWS:
        snprintf(allowed.text, sizeof allowed.text,
                 "null, or for each layer %.100s: some of each where there is a \"sliding_window\"",
                 show_choices(key->choices).text);
        break;
    case KEY_ONLY:
        snprintf(allowed.text, sizeof allowed.text, "%s (nothing else is planned for)",
                 key->value != 0 ? "true" : "false");
        break;
    }
    return allowed;
}

struct reader { /* what every step below needs */
    const struct key_table *table;
    const json_t *root;
    const char *where;
    struct model_config *config;
    struct err *err;
};

static enum err_code unexpected(const struct reader *r, const struct key *key, const char *name,
                                const json_t *value)
{
    return err_set(r->err, ERR_INVALID, "%s: \"%s\": expected %s, got %s", r->where, name,
                   show_allowed(key).text, shown_of(value).text);
}

enum err_code key_does_not_divide(const char *where, const char *name, uint32_t value,
                                  const char *of, uint32_t whole, struct err *err)
{
    return err_set(err, ERR_INVALID, "%s: \"%s\": %u does not divide \"%s\": %u", where, name,
                   value, of, whole);
}

const char *key_name(const struct key_table *table, size_t field)
{
    for (size_t i = 0; i < table->count; i++)
        if (table->keys[i].field == field && table->keys[i].type != KEY_ONLY)
            return table->keys[i].name;
    return "?";
}

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
    if (key->type == KEY_INT || key->type == KEY_EACH)
        *(uint32_t *)field = value < 0 ? UINT32_MAX : (uint32_t)value;
    else if (key->type == KEY_HALF)
        *(uint32_t *)field = 2 * (uint32_t)value;
    else if (key->type == KEY_NUMBER)
        *(float *)field = (float)value;
    else if (key->type == KEY_DOUBLE)
        *(double *)field = value;
    else if (key->type == KEY_PER_LAYER)
        *(float *)field = (float)(value / sqrt(config->layers));
    else if (key->type == KEY_PER_HIDDEN)
        *(float *)field = (float)(config->hidden / value);
    else if (key->type == KEY_SHARE)
        *(uint32_t *)field = (uint32_t)(config->head_dim * value);
    else if (key->type == KEY_BOOL || key->type == KEY_NOT)
        *(bool *)field = (value != 0) == (key->type == KEY_BOOL);
    else if (key->type == (value != 0 ? KEY_SHARED : KEY_GATE))
        *(uint32_t *)field = value != 0;
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
    case RULE_ROOT_LAYERS:
        return sqrt(c->layers);
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
        return key_does_not_divide(r->where, NAME_OF(r->table, heads), c->heads,
                                   NAME_OF(r->table, hidden), c->hidden, r->err);
    if (key->type == KEY_CHOICE)
        store_choice(c, key, key->text);
    else if (rule != RULE_KEEP)
        store_number(c, key, derive(c, key, rule));
    return ERR_OK;
}

/* Whether windows are where a list has them: as the other keys say, which then goes for all
 * families, or else in some layers, and not in others. (Files of transformers make masks for each
 * type that the list has, or for both.) */
static bool windows_allowed(const struct model_config *c, const struct layer_list *list)
{
    bool same = true;
    uint32_t windows = 0;
    for (uint32_t i = 0; i < c->layers; i++) {
        same = same && layer_listed(list, i) == model_has_window(c, i);
        windows += layer_listed(list, i);
    }
    return same || (c->sliding_window && windows > 0 && windows < c->layers);
}

/* A word or a number of a list. */
static const struct choice *layer_choice(const struct key *key, const json_t *value)
{
    char number[24];
    snprintf(number, sizeof number, "%lld", (long long)json_integer_value(value));
    const char *text = json_is_integer(value) ? number : json_string_value(value);
    return text ? find_choice(key->choices, text) : NULL;
}

static enum err_code take_layers(const struct reader *r, const struct key *key, const char *name,
                                 const json_t *value)
{
    struct layer_list list = {.listed = true};
    if (key->or_empty && json_is_array(value) && json_array_size(value) == 0)
        return apply_rule(r, key, key->absent);
    if (json_array_size(value) != r->config->layers)
        return unexpected(r, key, name, value);
    for (uint32_t i = 0; i < r->config->layers; i++) {
        const struct choice *choice = layer_choice(key, json_array_get(value, i));
        if (!choice)
            return unexpected(r, key, name, value);
        layer_put(&list, i, choice->flag);
    }
    if (key->type == KEY_WINDOWS && !windows_allowed(r->config, &list))
        return unexpected(r, key, name, value);
    *(struct layer_list *)(void *)((char *)r->config + key->field) = list;
    return ERR_OK;
}

/* One [choices, n] of a pattern, from layer *index on. False: it is none, or there are fewer
 * layers. */
static bool take_repeated(const struct reader *r, const struct key *key, const json_t *pair,
                          uint32_t *index, struct layer_list *list)
{
    const json_t *kinds = json_array_get(pair, 0), *times = json_array_get(pair, 1);
    const size_t count = json_array_size(kinds);
    if (count == 0 || !json_is_integer(times) || json_array_size(pair) != 2)
        return false;
    for (json_int_t n = 0; n < json_integer_value(times); n++)
        for (size_t i = 0; i < count; i++, ++*index) {
            const struct choice *choice = layer_choice(key, json_array_get(kinds, i));
            if (!choice || *index >= r->config->layers)
                return false;
            list->bits[*index / 32] |= (uint32_t)choice->flag << (*index % 32);
        }
    return true;
}

static enum err_code take_pattern(const struct reader *r, const struct key *key, const char *name,
                                  const json_t *value)
{
    struct layer_list list = {.listed = true};
    uint32_t index = 0;
    for (size_t i = 0; i < json_array_size(value); i++)
        if (!take_repeated(r, key, json_array_get(value, i), &index, &list))
            return unexpected(r, key, name, value);
    if (index != r->config->layers)
        return unexpected(r, key, name, value);
    *(struct layer_list *)(void *)((char *)r->config + key->field) = list;
    return ERR_OK;
}

/* The number that a list has for each layer; NULL: they differ. */
static const json_t *same_of_each(const json_t *list)
{
    const json_t *first = json_array_get(list, 0);
    for (size_t i = 1; i < json_array_size(list); i++)
        if (!json_equal(first, json_array_get(list, i)))
            return NULL;
    return first;
}

/* What a key that is only checked may be. */
static bool is_allowed(const struct key *key, const json_t *value)
{
    return json_is_false(value) ||
           (key->value >= 0 && json_is_number(value) && json_number_value(value) == key->value);
}

static enum err_code take_set(const struct reader *r, const struct key *key, const char *name,
                              const json_t *list)
{
    uint32_t *bits = (uint32_t *)(void *)((char *)r->config + key->field);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *value = json_array_get(list, i);
        const json_int_t number = json_integer_value(value);
        if (!json_is_integer(value) || number < 0 || (double)number > key->max)
            return unexpected(r, key, name, list);
        bits[number / 32] |= 1U << (number % 32);
    }
    return json_is_array(list) ? ERR_OK : unexpected(r, key, name, list);
}

static enum err_code no_others(const struct reader *r, const struct key *key, const char *name,
                               const json_t *list)
{
    return err_set(r->err, ERR_INVALID, "%s: \"%s\": expected a list of layers 0 ... %u%s, got %s",
                   r->where, name, r->config->layers - 1,
                   key->null == RULE_REFUSED ? "" : " or null", shown_of(list).text);
}

static enum err_code take_others(const struct reader *r, const struct key *key, const char *name,
                                 const json_t *list)
{
    struct layer_list others = {.listed = true};
    for (uint32_t i = 0; i < r->config->layers; i++)
        layer_put(&others, i, true);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_int_t layer = json_integer_value(json_array_get(list, i));
        if (!json_is_integer(json_array_get(list, i)) || layer < 0 || layer >= r->config->layers)
            return no_others(r, key, name, list);
        others.bits[layer / 32] &= ~(1U << (layer % 32));
    }
    *(struct layer_list *)(void *)((char *)r->config + key->field) = others;
    return json_is_array(list) ? ERR_OK : no_others(r, key, name, list);
}

static bool is_real(enum key_type type)
{
    return type == KEY_NUMBER || type == KEY_DOUBLE || type == KEY_PER_LAYER ||
           type == KEY_PER_HIDDEN || type == KEY_SHARE;
}

static enum err_code take_value(const struct reader *r, const struct key *key, const char *name,
                                const json_t *value)
{
    if (key->type == KEY_SET)
        return take_set(r, key, name, value);
    if (key->type == KEY_OTHERS)
        return take_others(r, key, name, value);
    if (key->type == KEY_PATTERN)
        return take_pattern(r, key, name, value);
    if (key->type == KEY_LAYERS || key->type == KEY_WINDOWS)
        return take_layers(r, key, name, value);
    if (key->type == KEY_NEUTRAL)
        return is_allowed(key, value) ? ERR_OK : unexpected(r, key, name, value);
    if (key->type == KEY_CHOICE) {
        if (!json_is_string(value) || !find_choice(key->choices, json_string_value(value)))
            return unexpected(r, key, name, value);
        store_choice(r->config, key, json_string_value(value));
        return ERR_OK;
    }
    bool fits;
    double number;
    if (key->type == KEY_INT || key->type == KEY_HALF || key->type == KEY_EACH) {
        const bool each = key->type == KEY_EACH && json_is_array(value);
        const json_t *one = each ? same_of_each(value) : value;
        number = (double)json_integer_value(one);
        fits = json_is_integer(one);
    } else if (is_real(key->type)) {
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

/* "rope_parameters.b" is key b of the object that RoPE has, under either of its names, and
 * "rope_parameters.a.b" that of an object a in it; "a.b" is key b of the file's object a. *value is
 * NULL when it is absent. */
static enum err_code look_up(const struct reader *r, const char *name, const json_t **value)
{
    static const char rope[] = "rope_parameters.";
    const json_t *object = r->root;
    const char *spelled;
    if (name && strncmp(name, rope, sizeof rope - 1) == 0) {
        TRY(rope_find(r->root, r->where, &object, &spelled, r->err));
        name += sizeof rope - 1;
        const char *dot = strchr(name, '.');
        if (dot) {
            char inner[32];
            snprintf(inner, sizeof inner, "%.*s", (int)(dot - name), name);
            object = json_object_get(object, inner);
            name = dot + 1;
        }
    } else if (name && strchr(name, '.')) {
        char part[32];
        const char *dot = strchr(name, '.');
        snprintf(part, sizeof part, "%.*s", (int)(dot - name), name);
        object = json_object_get(r->root, part);
        name = dot + 1;
    }
    *value = name ? json_object_get(object, name) : NULL;
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
    if (key->unless) {
        const json_t *instead = json_object_get(r->root, key->unless);
        if (instead && !json_is_null(instead))
            return apply_rule(r, key, key->absent);
    }
    if (!key->fixed) {
        TRY(look_up(r, key->name, &value));
        TRY(look_up(r, key->other, &again));
    }
    if (value && again && !same(value, again))
        return err_set(r->err, ERR_INVALID, "%s: \"%s\": %s and \"%s\": %s are the same setting",
                       r->where, key->name, shown_of(value).text, key->other, shown_of(again).text);
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

static enum err_code check_field(const struct model_config *config, const struct key *key,
                                 const char *where, struct err *err)
{
    const void *field = (const char *)config + key->field;
    double value = key->max;
    if (key->type == KEY_INT || key->type == KEY_EACH)
        value = *(const uint32_t *)field == UINT32_MAX ? -1.0 : *(const uint32_t *)field;
    else if (key->type == KEY_NUMBER)
        value = (double)*(const float *)field;
    else if (key->type == KEY_DOUBLE)
        value = *(const double *)field;
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

enum err_code keys_read(const struct key_table *table, const json_t *root, const char *where,
                        struct model_config *out, struct err *err)
{
    const struct reader reader = {table, root, where, out, err};
    for (size_t i = 0; i < table->count; i++)
        TRY(read_key(&reader, &table->keys[i]));
    return ERR_OK;
}

static bool is_named(const struct key_table *table, const char *name)
{
    for (size_t i = 0; i < table->count; i++)
        if (strcmp(table->keys[i].name, name) == 0)
            return true;
    return false;
}

/* A size of heads that the class does not ask for, which then has to be what it computes. */
static enum err_code check_fixed_heads(const struct key_table *own, const json_t *root,
                                       const char *where, const struct model_config *config,
                                       struct err *err)
{
    const json_t *value = json_object_get(root, "head_dim");
    for (size_t i = 0; i < own->count; i++)
        if (own->keys[i].fixed && own->keys[i].field == offsetof(struct model_config, head_dim) &&
            json_is_integer(value) && json_integer_value(value) != (json_int_t)config->head_dim)
            return err_set(
                err, ERR_UNSUPPORTED,
                "%s: \"head_dim\": %s is planned only where it is what heads have of the "
                "hidden size, %u",
                where, shown_of(value).text, config->head_dim);
    return ERR_OK;
}

enum err_code keys_read_foreign(const struct key_table *own, const json_t *root, const char *where,
                                struct model_config *out, struct err *err)
{
    static const struct key_table table = KEY_TABLE(foreign);
    const struct reader reader = {&table, root, where, out, err};
    for (size_t i = 0; i < table.count; i++)
        if (!is_named(own, foreign[i].name))
            TRY(read_key(&reader, &foreign[i]));
    return check_fixed_heads(own, root, where, out, err);
}

enum err_code keys_check(const struct key_table *table, const struct model_config *config,
                         const char *where, struct err *err)
{
    for (size_t i = 0; i < table->count; i++)
        TRY(check_field(config, &table->keys[i], where, err));
    return ERR_OK;
}

enum err_code key_integer(const json_t *root, const char *where, const char *name, uint32_t least,
                          uint32_t most, uint32_t otherwise, uint32_t *out, struct err *err)
{
    const json_t *value = json_object_get(root, name);
    *out = otherwise;
    if (!value)
        return ERR_OK;
    if (!json_is_integer(value) || json_integer_value(value) < least ||
        json_integer_value(value) > most)
        return err_set(err, ERR_INVALID, "%s: \"%s\": expected an integer %u ... %u", where, name,
                       least, most);
    *out = (uint32_t)json_integer_value(value);
    return ERR_OK;
}

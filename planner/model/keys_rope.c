/* keys_rope.c - what a config.json says of RoPE's scaling, in an object of its own.
 *
 * Its names, which kinds have which numbers, and what holds when one is absent are transformers'
 * (modeling_rope_utils.py of 5.23). Older files call the object "rope_scaling" and the kind "type".
 * What a kind does not read is ignored, as it is there. */
#include "model/keys_rope.h"

#include "model/config_limits.h"
#include "model/shown.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- the object ---- */

enum err_code rope_find(const json_t *root, const char *where, const json_t **object,
                        const char **name, struct err *err)
{
    static const char *const names[] = {"rope_scaling", "rope_parameters"};
    *object = NULL;
    for (int i = 0; i < 2; i++) {
        const json_t *found = json_object_get(root, names[i]);
        if (!found || json_is_null(found))
            continue;
        if (!json_is_object(found))
            return err_set(err, ERR_INVALID, "%s: \"%s\": expected an object or null, got %s",
                           where, names[i], shown_of(found).text);
        if (*object && !json_equal(*object, found))
            return err_set(err, ERR_INVALID,
                           "%s: \"rope_scaling\": %s and \"rope_parameters\": %s are the same "
                           "setting",
                           where, shown_of(*object).text, shown_of(found).text);
        if (!*object)
            *name = names[i];
        *object = found;
    }
    return ERR_OK;
}

/* ---- members ---- */

struct rope_reader {
    const json_t *root, *object;
    const char *where, *name; /* of the file; of the object in it */
    uint32_t max_positions;
    bool grids; /* places are in three grids */
    struct rope_form form;
    struct err *err;
};

static enum err_code unexpected(const struct rope_reader *o, const char *key, const char *expected,
                                const json_t *value)
{
    if (!value)
        return err_set(o->err, ERR_INVALID, "%s: \"%s.%s\" is missing: %s", o->where, o->name, key,
                       expected);
    return err_set(o->err, ERR_INVALID, "%s: \"%s.%s\": expected %s, got %s", o->where, o->name,
                   key, expected, shown_of(value).text);
}

/* A number of at least `least`; `otherwise` when it is absent or null, or an error when that is
 * NAN. */
static enum err_code take_number(const struct rope_reader *o, const char *key, double least,
                                 double otherwise, float *out)
{
    char expected[64];
    const json_t *value = json_object_get(o->object, key);
    const bool none = !value || json_is_null(value);
    snprintf(expected, sizeof expected, "a number %g ... 1e+06", least);
    if (none && !isnan(otherwise)) {
        *out = (float)otherwise;
        return ERR_OK;
    }
    if (!json_is_number(value) || !(json_number_value(value) >= least) ||
        json_number_value(value) > 1e6)
        return unexpected(o, key, expected, value);
    *out = (float)json_number_value(value);
    return ERR_OK;
}

static enum err_code take_factors(const struct rope_reader *o, const char *key, uint32_t count,
                                  float *out)
{
    char expected[64];
    const json_t *list = json_object_get(o->object, key);
    snprintf(expected, sizeof expected, "a list of %u positive numbers", count);
    if (count > ROPE_PAIRS_MAX)
        return err_set(o->err, ERR_INVALID, "%s: \"%s.%s\": at most %d are planned for", o->where,
                       o->name, key, ROPE_PAIRS_MAX);
    if (json_array_size(list) != count)
        return unexpected(o, key, expected, list);
    for (uint32_t i = 0; i < count; i++) {
        const json_t *value = json_array_get(list, i);
        if (!json_is_number(value) || !(json_number_value(value) >= 1e-6) ||
            json_number_value(value) > 1e6)
            return unexpected(o, key, expected, value);
        out[i] = (float)json_number_value(value);
    }
    return ERR_OK;
}

/* ---- the kind ---- */

static enum err_code take_scaling(const struct rope_reader *o, struct rope *rope)
{
    char known[160] = "";
    size_t used = 0;
    const json_t *type = json_object_get(o->object, "rope_type");
    const json_t *older = json_object_get(o->object, "type");
    if (type && older && !json_equal(type, older))
        return err_set(o->err, ERR_INVALID,
                       "%s: \"%s.rope_type\": %s and \"%s.type\": %s are the same setting",
                       o->where, o->name, shown_of(type).text, o->name, shown_of(older).text);
    const char *key = type ? "rope_type" : "type";
    const json_t *value = type ? type : older;
    const char *said = json_string_value(value);
    if (o->grids && said && strcmp(said, "mrope") == 0)
        value = NULL; /* of three grids, by frequencies as they are */
    for (int i = 0; i < ROPE_SCALING_COUNT; i++) {
        const char *text = rope_scaling_name((enum rope_scaling)i);
        if (i == ROPE_PROPORTIONAL && !o->form.by_layer)
            continue; /* of classes that have no such objects a head turns in part */
        rope->scaling = (uint8_t)i;
        if (!value || (json_is_string(value) && strcmp(json_string_value(value), text) == 0))
            return ERR_OK; /* none is given: the first, "default" */
        used +=
            (size_t)snprintf(known + used, sizeof known - used, "%s\"%s\"", i ? ", " : "", text);
    }
    return unexpected(o, key, known, value);
}

/* How many pairs of a head's numbers each grid turns; where grids are woven, no sum is asked for.
 */
static enum err_code take_sections(const struct rope_reader *o, uint32_t dim, uint32_t *sections)
{
    static const char key[] = "mrope_section";
    char expected[64];
    const json_t *list = json_object_get(o->object, key);
    json_int_t sum = 0;
    if (o->form.woven)
        snprintf(expected, sizeof expected, "a list of 3 integers 1 ... %d", HEAD_DIM_MAX);
    else
        snprintf(expected, sizeof expected, "a list of 3 integers, together %u", dim / 2);
    for (size_t i = 0; i < 3; i++) {
        const json_t *value = json_array_get(list, i);
        if (json_array_size(list) != 3 || !json_is_integer(value) ||
            json_integer_value(value) < 1 || json_integer_value(value) > HEAD_DIM_MAX)
            return unexpected(o, key, expected, list);
        sections[i] = (uint32_t)json_integer_value(value);
        sum += json_integer_value(value);
    }
    return o->form.woven || sum == dim / 2 ? ERR_OK : unexpected(o, key, expected, list);
}

/* The positions that the model was made for; a key of the file itself goes before the object's. */
static enum err_code take_original(const struct rope_reader *o, struct rope *rope)
{
    static const char key[] = "original_max_position_embeddings";
    const json_t *outer = json_object_get(o->root, key);
    const json_t *inner = json_object_get(o->object, key);
    if (outer && inner && !json_equal(outer, inner))
        return err_set(o->err, ERR_INVALID, "%s: \"%s\": %s and \"%s.%s\": %s are the same setting",
                       o->where, key, shown_of(outer).text, o->name, key, shown_of(inner).text);
    const json_t *value = outer ? outer : inner;
    if (rope->original_positions == 0) /* not even the class has a number of its own */
        rope->original_positions = o->max_positions;
    if (!value)
        return ERR_OK;
    if (!json_is_integer(value) || json_integer_value(value) < 1 ||
        json_integer_value(value) > POSITIONS_MAX)
        return unexpected(o, key, "an integer 1 ... 16777216", value);
    rope->original_positions = (uint32_t)json_integer_value(value);
    return ERR_OK;
}

static double stretch_of(const struct rope_reader *o, const struct rope *rope)
{
    return (double)o->max_positions / rope->original_positions;
}

/* get_mscale of _compute_yarn_parameters */
static double mscale_of(double factor, double mscale)
{
    return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1;
}

static enum err_code read_yarn(const struct rope_reader *o, struct rope *rope)
{
    const json_t *factor = json_object_get(o->object, "factor");
    const json_t *truncate = json_object_get(o->object, "truncate");
    float mscale = 0, mscale_all_dim = 0;
    TRY(take_original(o, rope));
    TRY(take_number(o, "factor", 1, factor ? stretch_of(o, rope) : (double)NAN, &rope->factor));
    TRY(take_number(o, "beta_fast", 1e-6, 32, &rope->beta_fast));
    TRY(take_number(o, "beta_slow", 1e-6, 1, &rope->beta_slow));
    TRY(take_number(o, "mscale", 0, 0, &mscale));
    TRY(take_number(o, "mscale_all_dim", 0, 0, &mscale_all_dim));
    if (truncate && !json_is_boolean(truncate))
        return unexpected(o, "truncate", "true or false", truncate);
    rope->truncate = !json_is_false(truncate);
    const double by = (double)rope->factor;
    const double attention =
        mscale > 0 && mscale_all_dim > 0
            ? mscale_of(by, (double)mscale) / mscale_of(by, (double)mscale_all_dim)
            : mscale_of(by, 1);
    return take_number(o, "attention_factor", 1e-6, attention, &rope->attention_factor);
}

static enum err_code read_longrope(const struct rope_reader *o, uint32_t dim, struct rope *rope)
{
    TRY(take_original(o, rope));
    TRY(take_factors(o, "short_factor", dim / 2, rope->short_factor));
    TRY(take_factors(o, "long_factor", dim / 2, rope->long_factor));
    float by = 1;
    TRY(take_number(o, "factor", 1e-6, stretch_of(o, rope), &by));
    const double attention =
        by <= 1 ? 1 : sqrt(1 + log((double)by) / log((double)rope->original_positions));
    return take_number(o, "attention_factor", 1e-6, attention, &rope->attention_factor);
}

static enum err_code read_llama3(const struct rope_reader *o, struct rope *rope)
{
    TRY(take_original(o, rope));
    TRY(take_number(o, "factor", 1, (double)NAN, &rope->factor));
    TRY(take_number(o, "low_freq_factor", 1e-6, (double)NAN, &rope->low_freq_factor));
    return take_number(o, "high_freq_factor", 1e-6, (double)NAN, &rope->high_freq_factor);
}

static enum err_code read_proportional(const struct rope_reader *o, struct rope *rope)
{
    const json_t *share = json_object_get(o->object, "partial_rotary_factor");
    TRY(take_number(o, "factor", 1, 1, &rope->factor));
    TRY(take_number(o, "partial_rotary_factor", 0, 1, &rope->share));
    return rope->share <= 1 ? ERR_OK
                            : unexpected(o, "partial_rotary_factor", "a number 0 ... 1", share);
}

/* Where there is an object for each type of layer: that of layers without a window. With one, RoPE
 * is not scaled. */
static enum err_code choose_layer(struct rope_reader *o)
{
    const json_t *full = json_object_get(o->object, "full_attention");
    const json_t *window = json_object_get(o->object, "sliding_attention");
    const json_t *type = json_object_get(window, "rope_type");
    if (type && strcmp(json_string_value(type) ? json_string_value(type) : "", "default") != 0)
        return unexpected(o, "sliding_attention.rope_type", "\"default\"", type);
    if (json_is_object(full) || window)
        o->object = full;
    return ERR_OK;
}

enum err_code rope_read(const json_t *root, const char *where, struct rope_form form,
                        struct model_config *out, struct err *err)
{
    struct rope *rope = &out->rope;
    struct rope_reader o = {.root = root,
                            .where = where,
                            .max_positions = out->max_positions,
                            .grids = out->grids,
                            .form = form,
                            .err = err};
    rope->attention_factor = 1;
    TRY(rope_find(root, where, &o.object, &o.name, err));
    if (o.object && form.by_layer)
        TRY(choose_layer(&o));
    if (!o.object)
        return ERR_OK;
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)o.object, key, value)
    {
        if (json_is_object(value))
            return err_set(
                err, ERR_INVALID,
                "%s: \"%s\" has an object inside: one RoPE for all layers is planned for", where,
                o.name);
    }
    TRY(take_scaling(&o, rope));
    if (out->grids)
        TRY(take_sections(&o, form.dim, out->rope_sections));
    switch (rope->scaling) {
    case ROPE_LINEAR:
        return take_number(&o, "factor", 1, (double)NAN, &rope->factor);
    case ROPE_DYNAMIC:
        if (out->rope_alpha > 0 && form.dim > 2) { /* a longer base, once and for all */
            const double d = form.dim;
            rope->scaling = ROPE_DEFAULT;
            rope->theta *= (float)pow((double)out->rope_alpha, d / (d - 2));
            return ERR_OK;
        }
        rope->original_positions = out->max_positions;
        return take_number(&o, "factor", 1, (double)NAN, &rope->factor);
    case ROPE_YARN:
        return read_yarn(&o, rope);
    case ROPE_LONGROPE:
        return read_longrope(&o, form.dim, rope);
    case ROPE_LLAMA3:
        return read_llama3(&o, rope);
    case ROPE_PROPORTIONAL:
        return read_proportional(&o, rope);
    default:
        return ERR_OK;
    }
}

/* ---- checks, which presets pass through too ---- */

enum err_code rope_check(const struct rope *rope, uint32_t dim, const char *where, struct err *err)
{
    const char *kind = rope_scaling_name((enum rope_scaling)rope->scaling);
    if (rope->scaling == ROPE_DYNAMIC && dim < 4)
        return err_set(err, ERR_INVALID, "%s: RoPE scaling \"%s\" of %u numbers a head: 4 at least",
                       where, kind, dim);
    if (rope->scaling == ROPE_YARN && !(rope->theta > 1))
        return err_set(err, ERR_INVALID, "%s: RoPE scaling \"%s\" of theta 1 turns nothing", where,
                       kind);
    if (rope->scaling == ROPE_LONGROPE && rope->original_positions < 2)
        return err_set(err, ERR_INVALID,
                       "%s: RoPE scaling \"%s\": \"original_max_position_embeddings\" is %u: 2 at "
                       "least",
                       where, kind, rope->original_positions);
    if (rope->scaling == ROPE_LLAMA3 && rope->high_freq_factor < rope->low_freq_factor)
        return err_set(err, ERR_INVALID,
                       "%s: RoPE scaling \"%s\": \"high_freq_factor\": %g is below "
                       "\"low_freq_factor\": %g",
                       where, kind, (double)rope->high_freq_factor, (double)rope->low_freq_factor);
    return ERR_OK;
}

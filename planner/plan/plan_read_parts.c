/* plan_read_parts.c - see plan_read_parts.h. */
#include "plan/plan_read_parts.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- messages ---- */

enum err_code wrong(const struct object *o, const char *key, const char *fmt, ...)
{
    char table[64] = "", list[64] = "", text[TEXT];
    if (o->table)
        snprintf(table, sizeof table, "%s[%u]%s", o->table, o->index, *key || o->list ? "." : "");
    if (o->list && o->position == NO_POSITION)
        snprintf(list, sizeof list, "%s%s", o->list, *key ? "." : "");
    else if (o->list)
        snprintf(list, sizeof list, "%s[%u]%s", o->list, o->position, *key ? "." : "");
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return err_set(o->r->err, ERR_INVALID, "%s: %s%s%s: %s", o->r->path, table, list, key, text);
}

const char *kind_of(const json_t *value)
{
    static const char *const kinds[] = {
        [JSON_OBJECT] = "an object",
        [JSON_ARRAY] = "a list",
        [JSON_STRING] = "a string",
        [JSON_INTEGER] = "a number",
        [JSON_REAL] = "a number with a fraction",
        [JSON_TRUE] = "true",
        [JSON_FALSE] = "false",
        [JSON_NULL] = "null",
    };
    return value ? kinds[json_typeof(value)] : "missing";
}

/* ---- members ---- */

json_t *take(struct object *o, const char *key)
{
    json_t *value = json_object_get(o->json, key);
    o->taken += value != NULL;
    return value;
}

enum err_code number_in(const struct object *o, const char *key, json_t *value, uint64_t most,
                        uint64_t *out)
{
    if (!json_is_integer(value))
        return wrong(o, key, "it is %s: a whole number of 0 ... %" PRIu64 " is expected",
                     kind_of(value), most);
    const json_int_t number = json_integer_value(value);
    if (number < 0 || (uint64_t)number > most)
        return wrong(o, key, "%" JSON_INTEGER_FORMAT ": allowed are 0 ... %" PRIu64, number, most);
    *out = (uint64_t)number;
    return ERR_OK;
}

enum err_code take_number(struct object *o, const char *key, uint64_t most, uint64_t *out)
{
    return number_in(o, key, take(o, key), most, out);
}

enum err_code take_uint(struct object *o, const char *key, uint32_t most, uint32_t *out)
{
    uint64_t number = 0;
    TRY(take_number(o, key, most, &number));
    *out = (uint32_t)number;
    return ERR_OK;
}

enum err_code take_optional(struct object *o, const char *key, uint32_t most, uint32_t *out)
{
    return json_object_get(o->json, key) ? take_uint(o, key, most, out) : ERR_OK;
}

enum err_code take_index(struct object *o, const char *key, uint32_t count, const char *of_what,
                         uint32_t *out)
{
    if (count == 0)
        return wrong(o, key, "the plan has no %s", of_what);
    return take_uint(o, key, count - 1, out);
}

enum err_code take_real(struct object *o, const char *key, double *out)
{
    json_t *value = take(o, key);
    if (!json_is_number(value))
        return wrong(o, key, "it is %s: a number is expected", kind_of(value));
    *out = json_number_value(value);
    return ERR_OK;
}

enum err_code take_float(struct object *o, const char *key, float *out)
{
    double value = 0;
    if (!json_object_get(o->json, key))
        return ERR_OK;
    TRY(take_real(o, key, &value));
    *out = (float)value;
    return ERR_OK;
}

enum err_code take_bool(struct object *o, const char *key, bool *out)
{
    json_t *value = take(o, key);
    *out = json_is_true(value);
    if (value && !json_is_boolean(value))
        return wrong(o, key, "it is %s: true or false is expected", kind_of(value));
    return ERR_OK;
}

enum err_code take_text(struct object *o, const char *key, const char **out)
{
    json_t *value = take(o, key);
    if (!json_is_string(value))
        return wrong(o, key, "it is %s: a string is expected", kind_of(value));
    *out = json_string_value(value);
    return ERR_OK;
}

enum err_code take_choice(struct object *o, const char *key, const char *const *texts,
                          uint32_t count, uint8_t *out)
{
    const char *text = "";
    TRY(take_text(o, key, &text));
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(text, texts[i]) == 0) {
            *out = (uint8_t)i;
            return ERR_OK;
        }
    }
    char list[TEXT / 2] = "";
    size_t used = 0;
    for (uint32_t i = 0; i < count && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", texts[i]);
    return wrong(o, key, "\"%.64s\": allowed are %s", text, count ? list : "none");
}

enum err_code take_list(struct object *o, const char *key, json_t **out)
{
    *out = take(o, key);
    if (!json_is_array(*out))
        return wrong(o, key, "it is %s: a list is expected", kind_of(*out));
    if (json_array_size(*out) > ~PLACE_MASK)
        return wrong(o, key, "it has too many items");
    return ERR_OK;
}

enum err_code take_indices(struct object *o, const char *key, uint32_t limit, uint32_t **out,
                           uint32_t *count)
{
    json_t *list;
    TRY(take_list(o, key, &list));
    *count = (uint32_t)json_array_size(list);
    *out = arena_alloc(&o->r->plan->arena, *count * sizeof **out);
    for (uint32_t i = 0; i < *count; i++) {
        uint64_t number = 0;
        struct object item = *o;
        item.list = key;
        item.position = i;
        if (limit == 0)
            return wrong(&item, "", "there is nothing that it could refer to");
        TRY(number_in(&item, "", json_array_get(list, i), limit - 1, &number));
        (*out)[i] = (uint32_t)number;
    }
    return ERR_OK;
}

enum err_code take_shape(struct object *o, const char *key, struct shape *out)
{
    json_t *list;
    TRY(take_list(o, key, &list));
    *out = (struct shape){.rank = (uint32_t)json_array_size(list)};
    if (out->rank > SHAPE_DIMS)
        return wrong(o, key, "it has %u dims: at most %d are allowed", out->rank, SHAPE_DIMS);
    for (uint32_t i = 0; i < out->rank; i++) {
        uint64_t dim = 0;
        TRY(number_in(o, key, json_array_get(list, i), UINT32_MAX, &dim));
        out->dim[i] = (uint32_t)dim;
    }
    return ERR_OK;
}

enum err_code finish(const struct object *o, const char *known)
{
    const char *key;
    json_t *value;
    if (o->taken == json_object_size(o->json))
        return ERR_OK;
    json_object_foreach(o->json, key, value)
    {
        const size_t length = strlen(key);
        const char *at = length ? strstr(known, key) : NULL;
        while (at && ((at != known && at[-1] != ' ') || (at[length] && at[length] != ' ')))
            at = strstr(at + 1, key);
        if (!at)
            return wrong(o, "", "unknown member \"%.64s\": allowed are: %s", key, known);
    }
    return wrong(o, "", "a member does not go with the others; there are: %s", known);
}

enum err_code open_item(struct reader *r, const char *table, json_t *list, uint32_t index,
                        struct object *out)
{
    *out = (struct object){
        .r = r, .json = json_array_get(list, index), .table = table, .index = index};
    if (!json_is_object(out->json))
        return wrong(out, "", "it is %s: an object is expected", kind_of(out->json));
    return ERR_OK;
}

enum err_code take_id(struct object *o)
{
    uint32_t id = 0;
    TRY(take_uint(o, "id", UINT32_MAX, &id));
    return id == o->index ? ERR_OK : wrong(o, "id", "%u: it is item %u of the list", id, o->index);
}

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

const char *kind_of(const struct json_value *value)
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
    return value ? kinds[value->type] : "missing";
}

/* ---- members ---- */

bool has_member(struct object *o, const char *key)
{
    uint32_t near = o->near;
    return json_value_member(o->json, key, &near) != NULL;
}

const struct json_value *take(struct object *o, const char *key)
{
    const struct json_value *value = json_value_member(o->json, key, &o->near);
    o->taken += value != NULL;
    return value;
}

enum err_code number_in(const struct object *o, const char *key, const struct json_value *value,
                        uint64_t most, uint64_t *out)
{
    if (!json_value_is(value, JSON_INTEGER))
        return wrong(o, key, "it is %s: a whole number of 0 ... %" PRIu64 " is expected",
                     kind_of(value), most);
    const json_int_t number = value->integer;
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
    return has_member(o, key) ? take_uint(o, key, most, out) : ERR_OK;
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
    const struct json_value *value = take(o, key);
    if (!json_value_is_number(value))
        return wrong(o, key, "it is %s: a number is expected", kind_of(value));
    *out = json_value_number(value);
    return ERR_OK;
}

enum err_code take_float(struct object *o, const char *key, float *out)
{
    double value = 0;
    if (!has_member(o, key))
        return ERR_OK;
    TRY(take_real(o, key, &value));
    *out = (float)value;
    return ERR_OK;
}

enum err_code take_bool(struct object *o, const char *key, bool *out)
{
    const struct json_value *value = take(o, key);
    *out = json_value_is(value, JSON_TRUE);
    if (value && value->type != JSON_TRUE && value->type != JSON_FALSE)
        return wrong(o, key, "it is %s: true or false is expected", kind_of(value));
    return ERR_OK;
}

enum err_code take_text(struct object *o, const char *key, const char **out)
{
    const struct json_value *value = take(o, key);
    if (!json_value_is(value, JSON_STRING))
        return wrong(o, key, "it is %s: a string is expected", kind_of(value));
    *out = value->text;
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

enum err_code take_list(struct object *o, const char *key, const struct json_value **out)
{
    *out = take(o, key);
    if (!json_value_is(*out, JSON_ARRAY))
        return wrong(o, key, "it is %s: a list is expected", kind_of(*out));
    if (json_value_size(*out) > ~PLACE_MASK)
        return wrong(o, key, "it has too many items");
    return ERR_OK;
}

enum err_code take_indices(struct object *o, const char *key, uint32_t limit, uint32_t **out,
                           uint32_t *count)
{
    const struct json_value *list;
    TRY(take_list(o, key, &list));
    *count = (uint32_t)json_value_size(list);
    *out = arena_alloc(&o->r->plan->arena, *count * sizeof **out);
    for (uint32_t i = 0; i < *count; i++) {
        uint64_t number = 0;
        struct object item = *o;
        item.list = key;
        item.position = i;
        if (limit == 0)
            return wrong(&item, "", "there is nothing that it could refer to");
        TRY(number_in(&item, "", json_value_item(list, i), limit - 1, &number));
        (*out)[i] = (uint32_t)number;
    }
    return ERR_OK;
}

enum err_code take_shape(struct object *o, const char *key, struct shape *out)
{
    const struct json_value *list;
    TRY(take_list(o, key, &list));
    *out = (struct shape){.rank = (uint32_t)json_value_size(list)};
    if (out->rank > SHAPE_DIMS)
        return wrong(o, key, "it has %u dims: at most %d are allowed", out->rank, SHAPE_DIMS);
    for (uint32_t i = 0; i < out->rank; i++) {
        uint64_t dim = 0;
        TRY(number_in(o, key, json_value_item(list, i), UINT32_MAX, &dim));
        out->dim[i] = (uint32_t)dim;
    }
    return ERR_OK;
}

/* Whether a name is one of those, between spaces. */
static bool is_one_of(const struct json_value *member, const char *known)
{
    char key[2 * TEXT];
    const size_t length = member->key_length;
    if (length == 0 || length >= sizeof key)
        return false;
    memcpy(key, member->key, length);
    key[length] = '\0';
    const char *at = strstr(known, key);
    while (at && ((at != known && at[-1] != ' ') || (at[length] && at[length] != ' ')))
        at = strstr(at + 1, key);
    return at != NULL;
}

enum err_code finish(const struct object *o, const char *known)
{
    enum { SHOWN = 64 };
    if (o->taken == json_value_size(o->json))
        return ERR_OK;
    for (size_t i = 0; i < json_value_size(o->json); i++) {
        const struct json_value *member = json_value_item(o->json, i);
        const int length = member->key_length < SHOWN ? member->key_length : SHOWN;
        if (!is_one_of(member, known))
            return wrong(o, "", "unknown member \"%.*s\": allowed are: %s", length, member->key,
                         known);
    }
    return wrong(o, "", "a member does not go with the others; there are: %s", known);
}

enum err_code open_item(struct reader *r, const char *table, const struct json_value *list,
                        uint32_t index, struct object *out)
{
    *out = (struct object){
        .r = r, .json = json_value_item(list, index), .table = table, .index = index};
    if (!json_value_is(out->json, JSON_OBJECT))
        return wrong(out, "", "it is %s: an object is expected", kind_of(out->json));
    return ERR_OK;
}

enum err_code take_id(struct object *o)
{
    uint32_t id = 0;
    TRY(take_uint(o, "id", UINT32_MAX, &id));
    return id == o->index ? ERR_OK : wrong(o, "id", "%u: it is item %u of the list", id, o->index);
}

/* json_tree.c - see json_tree.h.
 *
 * Values that are still open lie on a stack, each object's or list's own behind those around it;
 * when it is closed they move to the arena, side by side. */
#include "base/json_tree.h"

#include "base/json_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIGITS_MOST = 18, NUMBER_MOST = 64, MEMBERS_MOST = 4096 };

struct parser {
    const char *at, *end;
    struct json_value *stack; /* (count) */
    uint32_t count, cap, depth;
    struct arena *arena;
};

/* ---- scalars ---- */

static void skip_space(struct parser *p)
{
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\n' || *p->at == '\t' || *p->at == '\r'))
        p->at++;
}

static bool next_is(struct parser *p, char c)
{
    skip_space(p);
    if (p->at == p->end || *p->at != c)
        return false;
    p->at++;
    return true;
}

/* Of characters between quotes, none of which needs a second look. */
static bool plain_text(struct parser *p, const char **text, size_t *length)
{
    const char *at = p->at;
    while (at < p->end && *at != '"' && *at != '\\' && *at >= ' ' && (unsigned char)*at < 0x7f)
        at++;
    if (at == p->end || *at != '"')
        return false;
    *text = p->at;
    *length = (size_t)(at - p->at);
    p->at = at + 1;
    return true;
}

static bool read_string(struct parser *p, struct json_value *out)
{
    const char *text;
    size_t length;
    if (!plain_text(p, &text, &length) || length >= UINT32_MAX)
        return false;
    char *copy = arena_lend(p->arena, length + 1);
    memcpy(copy, text, length);
    copy[length] = '\0';
    out->type = JSON_STRING;
    out->count = (uint32_t)length;
    out->text = copy;
    return true;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Skips digits, of which there is one at least. */
static bool skip_digits(const char **at, const char *end)
{
    const char *first = *at;
    while (*at < end && is_digit(**at))
        ++*at;
    return *at > first;
}

static bool read_real(struct parser *p, const char *first, const char *end, struct json_value *out)
{
    char text[NUMBER_MOST], *rest;
    const size_t length = (size_t)(end - first);
    if (length >= sizeof text)
        return false;
    memcpy(text, first, length);
    text[length] = '\0';
    out->type = JSON_REAL;
    out->real = strtod(text, &rest);
    p->at = end;
    return *rest == '\0' && isfinite(out->real);
}

static bool read_number(struct parser *p, struct json_value *out)
{
    const char *const first = p->at, *at = first + (*first == '-'), *digits = at;
    if (!skip_digits(&at, p->end) || (*digits == '0' && at - digits > 1))
        return false;
    const char *const whole = at;
    if (at < p->end && *at == '.') {
        at++;
        if (!skip_digits(&at, p->end))
            return false;
    }
    if (at < p->end && (*at == 'e' || *at == 'E')) {
        at++;
        at += at < p->end && (*at == '+' || *at == '-');
        if (!skip_digits(&at, p->end))
            return false;
    }
    if (at > whole)
        return read_real(p, first, at, out);
    if (whole - digits > DIGITS_MOST)
        return false;
    int64_t number = 0;
    for (const char *c = digits; c < whole; c++)
        number = 10 * number + (*c - '0');
    out->type = JSON_INTEGER;
    out->integer = *first == '-' ? -number : number;
    p->at = at;
    return true;
}

static bool read_word(struct parser *p, const char *word, json_type type, struct json_value *out)
{
    const size_t length = strlen(word);
    if ((size_t)(p->end - p->at) < length || memcmp(p->at, word, length) != 0)
        return false;
    p->at += length;
    out->type = (uint8_t)type;
    return true;
}

/* ---- objects and lists ---- */

static bool read_value(struct parser *p, struct json_value *out);

static bool is_key(const struct json_value *member, const char *key, size_t length)
{
    return member->key_length == length && memcmp(member->key, key, length) == 0;
}

/* A bit for a name: most are told apart by it. */
static uint64_t bit_of(const char *key, size_t length)
{
    const unsigned first = length ? (unsigned char)key[0] : 0;
    const unsigned last = length ? (unsigned char)key[length - 1] : 0;
    return UINT64_C(1) << ((7 * first + 3 * last + length) & 63);
}

/* Whether one of those from `base` on has that name; *seen has the bits of all of them. */
static bool is_known(const struct parser *p, uint32_t base, uint64_t *seen, const char *key,
                     size_t length)
{
    const uint64_t bit = bit_of(key, length);
    if (*seen & bit)
        for (uint32_t i = base; i < p->count; i++)
            if (is_key(&p->stack[i], key, length))
                return true;
    *seen |= bit;
    return false;
}

static void push(struct parser *p, const struct json_value *value)
{
    ARRAY_GROW(p->stack, p->count, p->cap);
    p->stack[p->count++] = *value;
}

/* Those from `base` on are all of it. */
static void close_values(struct parser *p, uint32_t base, json_type type, struct json_value *out)
{
    const uint32_t count = p->count - base;
    struct json_value *values = arena_lend(p->arena, count * sizeof *values);
    if (count)
        memcpy(values, p->stack + base, count * sizeof *values);
    out->type = (uint8_t)type;
    out->count = count;
    out->values = values;
    p->count = base;
}

static bool read_list(struct parser *p, struct json_value *out)
{
    const uint32_t base = p->count;
    if (!next_is(p, ']')) {
        do {
            struct json_value item = {.key = NULL};
            if (!read_value(p, &item))
                return false;
            push(p, &item);
        } while (next_is(p, ','));
        if (!next_is(p, ']'))
            return false;
    }
    close_values(p, base, JSON_ARRAY, out);
    return true;
}

static bool read_object(struct parser *p, struct json_value *out)
{
    const uint32_t base = p->count;
    uint64_t seen = 0;
    if (!next_is(p, '}')) {
        do {
            struct json_value member = {.key = NULL};
            size_t length;
            if (!next_is(p, '"') || !plain_text(p, &member.key, &length) || length > UINT16_MAX ||
                p->count - base > MEMBERS_MOST || is_known(p, base, &seen, member.key, length) ||
                !next_is(p, ':'))
                return false;
            member.key_length = (uint16_t)length;
            if (!read_value(p, &member))
                return false;
            push(p, &member);
        } while (next_is(p, ','));
        if (!next_is(p, '}'))
            return false;
    }
    close_values(p, base, JSON_OBJECT, out);
    return true;
}

static bool read_within(struct parser *p, bool (*read)(struct parser *p, struct json_value *out),
                        struct json_value *out)
{
    p->at++;
    if (++p->depth > JSON_DEEPEST || !read(p, out))
        return false;
    p->depth--;
    return true;
}

static bool read_value(struct parser *p, struct json_value *out)
{
    skip_space(p);
    if (p->at == p->end)
        return false;
    switch (*p->at) {
    case '{':
        return read_within(p, read_object, out);
    case '[':
        return read_within(p, read_list, out);
    case '"':
        p->at++;
        return read_string(p, out);
    case 't':
        return read_word(p, "true", JSON_TRUE, out);
    case 'f':
        return read_word(p, "false", JSON_FALSE, out);
    case 'n':
        return read_word(p, "null", JSON_NULL, out);
    default:
        return (*p->at == '-' || is_digit(*p->at)) && p->end - p->at > 1 && read_number(p, out);
    }
}

/* Whether it is plain, and read. */
static bool read_plain(const char *text, size_t length, struct json_tree *out)
{
    struct parser p = {.at = text, .end = text + length, .arena = &out->arena};
    struct json_value *root = arena_alloc(&out->arena, sizeof *root);
    bool plain = read_value(&p, root);
    skip_space(&p);
    plain = plain && p.at == p.end && (root->type == JSON_OBJECT || root->type == JSON_ARRAY);
    free(p.stack);
    out->root = root;
    return plain;
}

/* ---- jansson's ---- */

static bool take_value(struct arena *arena, json_t *from, struct json_value *out);

static bool take_members(struct arena *arena, json_t *from, struct json_value *out)
{
    const size_t count = json_object_size(from);
    struct json_value *values = arena_alloc(arena, count * sizeof *values), *next = values;
    const char *key;
    json_t *value;
    if (count > UINT32_MAX)
        return false;
    json_object_foreach(from, key, value)
    {
        const size_t length = strlen(key);
        if (length > UINT16_MAX)
            return false;
        next->key = key;
        next->key_length = (uint16_t)length;
        if (!take_value(arena, value, next++))
            return false;
    }
    out->count = (uint32_t)count;
    out->values = values;
    return true;
}

static bool take_items(struct arena *arena, json_t *from, struct json_value *out)
{
    const size_t count = json_array_size(from);
    struct json_value *values = arena_alloc(arena, count * sizeof *values);
    if (count > UINT32_MAX)
        return false;
    for (size_t i = 0; i < count; i++)
        if (!take_value(arena, json_array_get(from, i), &values[i]))
            return false;
    out->count = (uint32_t)count;
    out->values = values;
    return true;
}

static bool take_value(struct arena *arena, json_t *from, struct json_value *out)
{
    out->type = (uint8_t)json_typeof(from);
    switch (json_typeof(from)) {
    case JSON_OBJECT:
        return take_members(arena, from, out);
    case JSON_ARRAY:
        return take_items(arena, from, out);
    case JSON_STRING:
        out->text = json_string_value(from);
        out->count = (uint32_t)json_string_length(from);
        break;
    case JSON_INTEGER:
        out->integer = json_integer_value(from);
        break;
    case JSON_REAL:
        out->real = json_real_value(from);
        break;
    default:
        break;
    }
    return true;
}

/* Takes the document. */
static bool take_tree(json_t *root, struct json_tree *out, json_error_t *at)
{
    struct json_value *value = arena_alloc(&out->arena, sizeof *value);
    out->root = value;
    out->jansson = root;
    if (take_value(&out->arena, root, value))
        return true;
    *at = (json_error_t){.line = 1, .column = 1};
    snprintf(at->text, sizeof at->text, "a name is longer than %d", UINT16_MAX);
    json_tree_free(out);
    return false;
}

bool json_tree_read(const char *text, size_t length, bool beside, struct json_tree *out,
                    json_error_t *at)
{
    *out = (struct json_tree){.root = NULL};
    if (!beside && read_plain(text, length, out))
        return true;
    json_tree_free(out);
    json_t *root = json_text_read(text, length, JSON_REJECT_DUPLICATES, at);
    return root && take_tree(root, out, at);
}

void json_tree_free(struct json_tree *tree)
{
    arena_free(&tree->arena);
    json_decref(tree->jansson);
    *tree = (struct json_tree){.root = NULL};
}

/* ---- members ---- */

const struct json_value *json_value_member(const struct json_value *object, const char *key,
                                           uint32_t *near)
{
    const size_t length = strlen(key);
    const uint32_t count = json_value_is(object, JSON_OBJECT) ? object->count : 0;
    uint32_t at = *near < count ? *near : 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct json_value *member = &object->values[at];
        at = at + 1 < count ? at + 1 : 0;
        if (is_key(member, key, length)) {
            *near = at;
            return member;
        }
    }
    return NULL;
}

/* json_tree.h - a JSON document that is only read, as one tree in an arena: for what is large.
 *
 *     text --json_tree_read--> value { member "a", member "b" { ... }, ... }
 *
 * A value of jansson's is several blocks of the heap and a hash table; one of these is 32 bytes
 * beside its siblings. What is plain JSON (ASCII, no escapes) is read here. All else, and what is
 * no JSON at all, is jansson's to judge and its tree is taken over, so that what is accepted, and
 * every message, is jansson's. */
#ifndef SHARDPLAN_JSON_TREE_H
#define SHARDPLAN_JSON_TREE_H

#include "base/arena.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct json_value {
    const char *key;     /* (key_length) of a member, without an end; NULL: of a list */
    uint16_t key_length; /* longer ones are refused */
    uint8_t type;        /* json_type */
    uint32_t count;      /* of an object or a list: members or items; of a string: bytes */
    union {
        const struct json_value *values; /* (count) */
        const char *text;                /* ends with '\0' */
        json_int_t integer;
        double real;
    };
};

struct json_tree {
    const struct json_value *root;
    struct arena arena;
    json_t *jansson; /* the same, whose texts these are; NULL: it was plain, and not asked for */
};

/* The document, an object or a list without duplicate members; `beside`: with jansson's tree of it.
 * The text is lent until json_tree_free. False, with what is wrong in *at, as json_text_read of
 * base/json_file.h. The caller owns *out: json_tree_free. */
bool json_tree_read(const char *text, size_t length, bool beside, struct json_tree *out,
                    json_error_t *at);
void json_tree_free(struct json_tree *tree);

/* The member of that name; NULL: there is none, or `object` is no object. *near is behind the one
 * that was found before, where the search begins: whoever asks in the order of the file finds each
 * at once. */
const struct json_value *json_value_member(const struct json_value *object, const char *key,
                                           uint32_t *near);

static inline bool json_value_is(const struct json_value *value, json_type type)
{
    return value && value->type == (uint8_t)type;
}

static inline bool json_value_is_number(const struct json_value *value)
{
    return json_value_is(value, JSON_INTEGER) || json_value_is(value, JSON_REAL);
}

static inline double json_value_number(const struct json_value *value)
{
    return value->type == JSON_REAL ? value->real : (double)value->integer;
}

/* Items of a list, members of an object; 0 of what is neither. */
static inline size_t json_value_size(const struct json_value *value)
{
    return json_value_is(value, JSON_ARRAY) || json_value_is(value, JSON_OBJECT) ? value->count : 0;
}

/* An item, or a member; NULL: there is none. */
static inline const struct json_value *json_value_item(const struct json_value *of, size_t index)
{
    return index < json_value_size(of) ? &of->values[index] : NULL;
}

#endif

/* mutation.c - see mutation.h. */
#include "tests/support/mutation.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Steele, Lea, Flood 2014: splitmix64. */
uint64_t mutation_draw(uint64_t *state)
{
    uint64_t x = *state += 0x9e3779b97f4a7c15U;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31);
}

static uint64_t below(uint64_t *state, uint64_t bound)
{
    return mutation_draw(state) % bound;
}

/* ---- places ---- */

struct place {
    json_t *parent, *value;
    const char *key; /* of an object, or of the object's list that it is in */
    size_t index;    /* of a list */
};

typedef bool place_visitor(void *context, const struct place *place);

/* Calls for each value below `at` until a call returns false. */
static bool each_place(json_t *at, const char *key, place_visitor *visit, void *context)
{
    const char *member;
    json_t *value;
    size_t index;
    if (json_is_object(at)) {
        json_object_foreach(at, member, value)
        {
            const struct place place = {at, value, member, 0};
            if (!visit(context, &place) || !each_place(value, member, visit, context))
                return false;
        }
    }
    json_array_foreach(at, index, value)
    {
        const struct place place = {at, value, key, index};
        if (!visit(context, &place) || !each_place(value, key, visit, context))
            return false;
    }
    return true;
}

struct choice { /* one of those that are wanted, each as likely as another */
    uint64_t *state, seen;
    json_type type;
    bool any;
    const char *key; /* NULL: any */
    struct place place;
};

static bool choose(void *context, const struct place *place)
{
    struct choice *c = context;
    if ((c->any || json_typeof(place->value) == c->type) &&
        (!c->key || strcmp(c->key, place->key) == 0) && below(c->state, ++c->seen) == 0)
        c->place = *place;
    return true;
}

static void put(const struct place *place, json_t *value)
{
    if (json_is_array(place->parent))
        json_array_set_new(place->parent, place->index, value);
    else
        json_object_set_new(place->parent, place->key, value);
}

/* ---- changes ---- */

static json_int_t another_number(json_t *document, json_int_t number, uint64_t *state)
{
    static const json_int_t limits[] = {
        0, 1, -1, INT32_MAX, UINT32_MAX, (json_int_t)UINT32_MAX + 1, 1LL << 40, INT64_MAX};
    struct choice other = {.state = state, .type = JSON_INTEGER};
    uint64_t wrapped = (uint64_t)number; /* of which there is no overflow */
    switch (below(state, 8)) {
    case 0:
        wrapped++;
        return (json_int_t)wrapped;
    case 1:
        wrapped--;
        return (json_int_t)wrapped;
    case 2:
        wrapped *= 2;
        return (json_int_t)wrapped;
    case 3:
        return number / 2;
    case 4:
        return (json_int_t)below(state, 64);
    case 5:
        return limits[below(state, sizeof limits / sizeof *limits)];
    default:
        each_place(document, "", choose, &other);
        return other.seen ? json_integer_value(other.place.value) : 0;
    }
}

/* A buffer as an operand becomes a view of it. */
static json_t *view_of(json_t *document, json_t *buffer, uint64_t *state)
{
    static const char *const members[] = {"pitch", "offset", "local"};
    return json_pack("{s:O, s:I}", "buffer", buffer, members[below(state, 3)],
                     another_number(document, json_integer_value(buffer), state));
}

static void change_list(json_t *list, uint64_t *state)
{
    const size_t count = json_array_size(list);
    if (count == 0)
        return;
    const size_t a = below(state, count), b = below(state, count);
    json_t *first = json_incref(json_array_get(list, a));
    json_t *second = json_incref(json_array_get(list, b));
    switch (below(state, 3)) {
    case 0:
        json_array_remove(list, a);
        break;
    case 1:
        json_array_insert_new(list, b, json_deep_copy(first));
        break;
    default: /* neighbours, more often than not, where order is everything */
        json_array_set(list, a, second);
        json_array_set(list, b, first);
        break;
    }
    json_decref(first);
    json_decref(second);
}

static void change_object(json_t *document, json_t *object, uint64_t *state)
{
    struct choice member = {.state = state, .any = true};
    struct choice other = {.state = state, .any = true};
    each_place(object, "", choose, &member);
    if (below(state, 8) == 0 || !member.seen) {
        json_object_set_new(object, below(state, 2) ? "" : "unknown", json_integer(1));
    } else if (below(state, 2) && json_is_object(member.place.parent)) {
        json_object_del(member.place.parent, member.place.key);
    } else {
        other.key = member.place.key;
        each_place(document, "", choose, &other);
        put(&member.place, json_deep_copy(other.place.value));
    }
}

static void change(json_t *document, const struct place *place, uint64_t *state)
{
    struct choice other = {.state = state, .type = JSON_STRING, .key = place->key};
    switch (json_typeof(place->value)) {
    case JSON_INTEGER:
        put(place,
            json_is_array(place->parent) && below(state, 3) == 0
                ? view_of(document, place->value, state)
                : json_integer(another_number(document, json_integer_value(place->value), state)));
        return;
    case JSON_REAL:
        put(place, json_real(below(state, 2) ? -json_real_value(place->value) : 1e308));
        return;
    case JSON_STRING:
        each_place(document, "", choose, &other);
        put(place, json_deep_copy(other.place.value));
        return;
    case JSON_ARRAY:
        change_list(place->value, state);
        return;
    case JSON_OBJECT:
        change_object(document, place->value, state);
        return;
    default:
        put(place, json_boolean(!json_is_true(place->value)));
        return;
    }
}

static void number_list(json_t *list)
{
    json_t *item;
    size_t index;
    json_array_foreach(list, index, item)
    {
        if (json_is_object(item) && json_object_get(item, "id"))
            json_object_set_new(item, "id", json_integer((json_int_t)index));
    }
}

static void number_items(json_t *document)
{
    const char *key;
    json_t *list;
    json_object_foreach(document, key, list)
    {
        number_list(list);
    }
}

void mutate_json(json_t *document, uint64_t *state)
{
    /* A kind of value first: otherwise nearly all changes would be of numbers. */
    static const json_type types[] = {JSON_INTEGER, JSON_INTEGER, JSON_INTEGER, JSON_STRING,
                                      JSON_ARRAY,   JSON_OBJECT,  JSON_TRUE,    JSON_REAL};
    for (uint64_t n = 1 + below(state, 3); n > 0; n--) {
        struct choice choice = {.state = state, .type = types[below(state, 8)]};
        each_place(document, "", choose, &choice);
        if (choice.seen)
            change(document, &choice.place, state);
    }
    number_items(document);
}

size_t mutate_json_text(uint8_t *text, size_t size, size_t most, uint64_t state)
{
    json_t *tree = json_loadb((const char *)text, size, 0, NULL);
    if (!json_is_object(tree)) {
        json_decref(tree);
        return size;
    }
    mutate_json(tree, &state);
    char *changed = json_dumps(tree, JSON_COMPACT);
    const size_t length = changed ? strlen(changed) : most + 1;
    if (changed && length <= most)
        memcpy(text, changed, length);
    free(changed);
    json_decref(tree);
    return length <= most ? length : size;
}

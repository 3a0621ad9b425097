/* plan_read_parts.h - for the plan_read*.c files only: an object of the file, and how its members
 * are taken.
 *
 * Each take_ function asks for a member of one kind; what is missing, of another kind or out of
 * range is an error that says where. `finish` then finds what is left over. */
#ifndef SHARDPLAN_PLAN_READ_PARTS_H
#define SHARDPLAN_PLAN_READ_PARTS_H

#include "plan/plan.h"

#include <jansson.h>

enum { TEXT = 512 };
#define NO_POSITION UINT32_MAX
#define MOST_ELEMENTS (UINT64_C(1) << 48)

struct names { /* texts by number, and numbers by text */
    const char **texts;
    uint32_t count, cap;
    json_t *numbers;
};

struct vocabulary { /* allowed values */
    const char *ops[PLAN_OP_COUNT], *marks[PLAN_MARK_COUNT];
    const char *dtypes[DTYPE_COUNT], *categories[CATEGORY_COUNT];
    const char *phases[PLAN_STEP + 1], *placements[PLACEMENT_KINDS];
    const char *roles[PIECE_ROLES], *group_roles[GROUP_ROLES];
};

struct reader {
    const char *path;
    struct plan *plan;
    struct err *err;
    struct names labels, kinds;
    struct vocabulary allowed;
};

struct object { /* one JSON object and where it is */
    struct reader *r;
    json_t *json;
    const char *table, *list; /* "instructions"[index]."in"[position]; NULL: further out */
    uint32_t index, position; /* NO_POSITION: `list` is no list but the object itself */
    size_t taken;             /* members asked for and found */
};

/* "plan.json: instructions[12].in[0].dtype: ...". */
enum err_code wrong(const struct object *o, const char *key, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* "a list", "missing": what a value is, for messages. */
const char *kind_of(const json_t *value);

/* The member, or NULL; counts it as known. */
json_t *take(struct object *o, const char *key);
/* A value as a whole number of 0 ... most; then a member likewise. */
enum err_code number_in(const struct object *o, const char *key, json_t *value, uint64_t most,
                        uint64_t *out);
enum err_code take_number(struct object *o, const char *key, uint64_t most, uint64_t *out);
enum err_code take_uint(struct object *o, const char *key, uint32_t most, uint32_t *out);
/* As take_uint; *out stays as it is when there is no such member. */
enum err_code take_optional(struct object *o, const char *key, uint32_t most, uint32_t *out);
/* A number below `count`, of things called `of_what`. */
enum err_code take_index(struct object *o, const char *key, uint32_t count, const char *of_what,
                         uint32_t *out);
enum err_code take_real(struct object *o, const char *key, double *out);
/* *out stays as it is when there is no such member. */
enum err_code take_float(struct object *o, const char *key, float *out);
/* False when there is no such member. */
enum err_code take_bool(struct object *o, const char *key, bool *out);
enum err_code take_text(struct object *o, const char *key, const char **out);
/* One of `count` texts: its index. */
enum err_code take_choice(struct object *o, const char *key, const char *const *texts,
                          uint32_t count, uint8_t *out);
#define TAKE_CHOICE(o, key, texts, out)                                                            \
    take_choice((o), (key), (texts), sizeof(texts) / sizeof *(texts), (out))
enum err_code take_list(struct object *o, const char *key, json_t **out);
/* A list of indices, into the arena. */
enum err_code take_indices(struct object *o, const char *key, uint32_t limit, uint32_t **out,
                           uint32_t *count);
enum err_code take_shape(struct object *o, const char *key, struct shape *out);

/* Item `index` of a table: an object. */
enum err_code open_item(struct reader *r, const char *table, json_t *list, uint32_t index,
                        struct object *out);
/* Ids are positions: whoever refers to one finds it. */
enum err_code take_id(struct object *o);
/* After the last member: nothing may be left over. `known`: all names there may be. */
enum err_code finish(const struct object *o, const char *known);

/* ---- plan_read_values.c: base/values.h ---- */

/* "init" of a parameter. */
enum err_code read_param_init(struct object *param, struct param_init *init);
/* "inputs" and "module_buffers", into the plan's arena; buffers have been read. */
enum err_code read_inputs(struct object *top);
enum err_code read_module_buffers(struct object *top);

#endif

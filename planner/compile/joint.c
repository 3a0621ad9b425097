/* joint.c - see joint.h: nodes, values of buffers, operands. What a kernel becomes is in
 * joint_work.c. */
#include "compile/joint.h"

#include "base/arena.h"
#include "base/layout.h"
#include "compile/operand_parts.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct value { /* of a buffer of the stream, or of a parameter */
    uint32_t place, node;
    bool turned; /* the memory has its columns one after the other */
};

struct joint {
    struct joint_node *nodes;
    struct value *values;
    uint32_t node_count, node_cap, value_count, value_cap;
    bool in_backward;
};

struct joint *joint_new(void)
{
    return xcalloc(1, sizeof(struct joint));
}

void joint_free(struct joint *joint)
{
    if (!joint)
        return;
    free(joint->nodes);
    free(joint->values);
    free(joint);
}

uint32_t joint_count(const struct joint *joint)
{
    return joint->node_count;
}

const struct joint_node *joint_at(const struct joint *joint, uint32_t node)
{
    assert(node < joint->node_count);
    return &joint->nodes[node];
}

enum joint_way joint_way(const struct joint_node *node)
{
    static const uint8_t ways[] = {
#define X(name, way) [JOINT_##name] = WAY_##way,
        JOINT_MAP(X)
#undef X
    };
    return (enum joint_way)ways[node->name];
}

bool joint_is_seen_through(const struct joint_node *node)
{
    const enum joint_way way = joint_way(node);
    return way == WAY_VIEW || way == WAY_ALIAS;
}

bool joint_is_over_dim(const struct joint_node *node)
{
    const enum joint_way way = joint_way(node);
    return way == WAY_REDUCTION || way == WAY_SEARCH;
}

bool joint_is_many(const struct joint_node *node)
{
    return node->name == JOINT_SPLIT || node->name == JOINT_SPLIT_BY ||
           node->name == JOINT_VARIANCE || node->name == JOINT_CALL_MANY;
}

uint64_t joint_bytes(const struct joint_node *node)
{
    return shape_bytes(&node->shape, (enum dtype)node->dtype);
}

/* ---- nodes ---- */

static bool same_shape(const struct shape *x, const struct shape *y)
{
    return x->rank == y->rank && memcmp(x->dim, y->dim, x->rank * sizeof *x->dim) == 0;
}

bool joint_is_alike(const struct joint_node *x, const struct joint_node *y)
{
    return x->name == y->name && x->dtype == y->dtype && x->source == y->source &&
           x->args == y->args && x->in_backward == y->in_backward && x->save == y->save &&
           x->again == y->again && x->stays == y->stays && x->detail == y->detail &&
           x->number == y->number && memcmp(x->arg, y->arg, x->args * sizeof *x->arg) == 0 &&
           same_shape(&x->shape, &y->shape);
}

static bool is_call(enum joint_name name)
{
    return name == JOINT_CALL || name == JOINT_CALL_OWN || name == JOINT_CALL_MANY;
}

uint32_t joint_node(struct joint *joint, const struct joint_want *want)
{
    ARRAY_GROW(joint->nodes, joint->node_count, joint->node_cap);
    struct joint_node *node = &joint->nodes[joint->node_count];
    *node = (struct joint_node){
        .name = (uint8_t)want->name,
        .dtype = (uint8_t)want->dtype,
        .args = (uint8_t)want->args,
        .in_backward = joint->in_backward,
        .of = want->of,
        .detail = want->detail,
        .number = want->number,
        .shape = want->shape,
    };
    memcpy(node->arg, want->arg, sizeof node->arg);
    return joint->node_count++;
}

void joint_begin_backward(struct joint *joint)
{
    joint->in_backward = true;
}

/* ---- values ---- */

/* What was written last is asked for most. */
static struct value *find_value(struct joint *joint, uint32_t place)
{
    for (uint32_t i = joint->value_count; i-- > 0;)
        if (joint->values[i].place == place)
            return &joint->values[i];
    return NULL;
}

static void set_value(struct joint *joint, uint32_t place, uint32_t node)
{
    struct value *value = find_value(joint, place);
    if (!value) {
        ARRAY_GROW(joint->values, joint->value_count, joint->value_cap);
        value = &joint->values[joint->value_count++];
    }
    *value = (struct value){.place = place, .node = node};
}

/* Whether the columns of a matrix lie one after the other. */
static bool is_turned(const struct operand *operand)
{
    const struct strides columns = {{1, operand->shape.dim[0]}};
    return operand->layout && operand->shape.rank == 2 &&
           layout_same(&operand->shape, operand->layout, &columns);
}

void joint_write(struct joint *joint, const struct operand *operand, uint32_t node)
{
    set_value(joint, operand->place, node);
    find_value(joint, operand->place)->turned = is_turned(operand);
}

static uint32_t new_input(struct joint *joint, enum joint_source source, uint32_t of,
                          struct shape shape, enum dtype dtype)
{
    const uint32_t node = joint_node(joint, &(struct joint_want){.name = JOINT_INPUT,
                                                                 .dtype = dtype,
                                                                 .shape = shape,
                                                                 .of = of,
                                                                 .detail = (uint32_t)source});
    joint->nodes[node].source = (uint8_t)source;
    joint->nodes[node].in_backward = source == SOURCE_GRADIENT;
    joint->nodes[node].stays = source == SOURCE_PARAM;
    return node;
}

void joint_stays(struct joint *joint, uint32_t input, bool stays)
{
    assert(joint->nodes[input].name == JOINT_INPUT);
    joint->nodes[input].stays = stays;
}

uint32_t joint_input(struct joint *joint, enum joint_source source, uint32_t buffer,
                     struct shape shape, enum dtype dtype)
{
    const uint32_t node = new_input(joint, source, PLACE_BUFFER | buffer, shape, dtype);
    set_value(joint, PLACE_BUFFER | buffer, node);
    return node;
}

/* ---- views ---- */

static uint32_t one_view(struct joint *joint, uint32_t x, struct shape shape)
{
    if (same_shape(&joint->nodes[x].shape, &shape))
        return x;
    return joint_node(joint, &(struct joint_want){.name = JOINT_VIEW,
                                                  .dtype = (enum dtype)joint->nodes[x].dtype,
                                                  .shape = shape,
                                                  .args = 1,
                                                  .arg = {x}});
}

/* Heads (b, s, a, d) and rows (t, h) are both seen from (b, s, h), which is what modules are called
 * with: nn.Linear flattens it, attention takes it apart. */
uint32_t joint_view(struct joint *joint, uint32_t x, struct shape shape)
{
    const struct shape from = joint->nodes[x].shape;
    const struct shape *heads = from.rank >= 4 ? &from : &shape;
    const bool between = (from.rank >= 4 && shape.rank == 2) || (from.rank == 2 && shape.rank >= 4);
    if (between && heads->rank == 4)
        x = one_view(joint, x, SHAPE(heads->dim[0], heads->dim[1], heads->dim[2] * heads->dim[3]));
    return one_view(joint, x, shape);
}

/* Rows (t, h) of (b, s, h) as a model's own code asks for them: view(-1, h), which to the
 * partitioner's CSE is another function than nn.Linear's view(t, h). */
static uint32_t own_rows(struct joint *joint, uint32_t x, struct shape rows)
{
    return joint_node(joint, &(struct joint_want){.name = JOINT_VIEW,
                                                  .dtype = (enum dtype)joint->nodes[x].dtype,
                                                  .shape = rows,
                                                  .args = 1,
                                                  .arg = {x},
                                                  .detail = JOINT_ROWS_ASKED});
}

uint32_t joint_transposed(struct joint *joint, uint32_t x)
{
    const struct joint_node node = joint->nodes[x];
    assert(node.shape.rank == 2);
    if (node.name == JOINT_PERMUTE && node.detail == JOINT_TRANSPOSED)
        return node.arg[0];
    return joint_node(joint,
                      &(struct joint_want){.name = JOINT_PERMUTE,
                                           .dtype = (enum dtype)node.dtype,
                                           .shape = SHAPE(node.shape.dim[1], node.shape.dim[0]),
                                           .args = 1,
                                           .arg = {x},
                                           .detail = JOINT_TRANSPOSED});
}

/* fp32 pairs as complex numbers, and back. */
static uint32_t as_dtype(struct joint *joint, uint32_t x, enum dtype dtype, struct shape shape)
{
    const bool to_complex = dtype == DTYPE_COMPLEX64;
    struct shape pairs = to_complex ? shape : joint->nodes[x].shape;
    const struct shape numbers = pairs;
    if (to_complex) {
        pairs.dim[pairs.rank++] = 2;
        x = one_view(joint, x, pairs);
        return joint_node(
            joint,
            &(struct joint_want){
                .name = JOINT_AS_COMPLEX, .dtype = dtype, .shape = numbers, .args = 1, .arg = {x}});
    }
    pairs.dim[pairs.rank++] = 2;
    return joint_node(
        joint, &(struct joint_want){
                   .name = JOINT_AS_REAL, .dtype = dtype, .shape = pairs, .args = 1, .arg = {x}});
}

static uint32_t as_seen(struct joint *joint, uint32_t x, enum dtype dtype, struct shape shape)
{
    const bool complex = joint->nodes[x].dtype == DTYPE_COMPLEX64;
    if (complex != (dtype == DTYPE_COMPLEX64)) /* other dtypes are the nodes' own */
        x = as_dtype(joint, x, dtype, shape);
    return joint_view(joint, x, shape);
}

uint32_t joint_value(struct joint *joint, uint32_t buffer, struct shape shape, enum dtype dtype)
{
    const struct value *value = find_value(joint, PLACE_BUFFER | buffer);
    if (!value)
        return JOINT_NONE;
    const uint32_t node = value->turned ? joint_transposed(joint, value->node) : value->node;
    return as_seen(joint, node, dtype, shape);
}

/* ---- operands ---- */

/* `width` of each row from `first` on: of all that a split gives, or a slice. */
static uint32_t cut(struct joint *joint, const struct operand *operand, uint32_t from,
                    struct shape part, uint32_t first)
{
    const enum dtype dtype = (enum dtype)joint->nodes[from].dtype;
    const bool split = operand->split;
    if (split)
        from = joint_node(joint, &(struct joint_want){.name = JOINT_SPLIT_BY,
                                                      .dtype = dtype,
                                                      .shape = joint->nodes[from].shape,
                                                      .args = 1,
                                                      .arg = {from}});
    return joint_node(joint, &(struct joint_want){.name = split ? JOINT_PART : JOINT_SLICE,
                                                  .dtype = dtype,
                                                  .shape = part,
                                                  .args = 1,
                                                  .arg = {from},
                                                  .detail = first});
}

static uint32_t part_of_heads(struct joint *joint, const struct operand *operand, uint32_t rows,
                              uint32_t width)
{
    struct shape heads = operand->shape;
    heads.dim[3] = width;
    const uint32_t all = joint_view(joint, rows, heads);
    if (width == operand->shape.dim[3])
        return all;
    return cut(joint, operand, all, operand->shape, (uint32_t)(operand->offset % width));
}

/* Part of each row: split gives several such, slice one. */
static enum err_code slice_of( // NOLINT(misc-no-recursion): once, of the part that has the heads
    struct joint *joint, const struct operand *operand, uint32_t base, uint32_t *out,
    struct err *err)
{
    const enum dtype dtype = (enum dtype)joint->nodes[base].dtype;
    const uint64_t row = part_row(operand);
    struct operand heads;
    struct shape wide;
    uint32_t width;
    if (part_heads(operand, &heads, &width)) {
        TRY(slice_of(joint, &heads, base, out, err));
        *out = part_of_heads(joint, operand, *out, width);
        return ERR_OK;
    }
    if (row == 0 || !part_whole(operand, row, &wide) ||
        shape_elements(&wide) != shape_elements(&joint->nodes[base].shape))
        return err_set(
            err, ERR_UNSUPPORTED,
            "--compile: this model reads a part of a tensor in a way that is not planned");
    uint32_t from = joint_view(joint, base, wide);
    struct shape part = wide;
    part.dim[part.rank - 1] = (uint32_t)row;
    const uint32_t first = (uint32_t)(operand->offset % operand->pitch);
    const bool chunks = !operand->split && operand->pitch % row == 0 && operand->pitch / row > 2;
    if (chunks)
        from = joint_node(joint, &(struct joint_want){.name = JOINT_SPLIT,
                                                      .dtype = dtype,
                                                      .shape = wide,
                                                      .args = 1,
                                                      .arg = {from},
                                                      .detail = (uint32_t)row});
    const uint32_t node = chunks ? joint_node(joint, &(struct joint_want){.name = JOINT_PART,
                                                                          .dtype = dtype,
                                                                          .shape = part,
                                                                          .args = 1,
                                                                          .arg = {from},
                                                                          .detail = first})
                                 : cut(joint, operand, from, part, first);
    *out = as_seen(joint, node, (enum dtype)operand->dtype, operand->shape);
    return ERR_OK;
}

/* Every step-th element of each row, or of the part of it that these are of. */
static enum err_code steps_of(struct joint *joint, const struct operand *operand, uint32_t base,
                              uint32_t step, uint32_t *out, struct err *err)
{
    struct operand part = *operand;
    const uint32_t first = (uint32_t)(operand->offset % step);
    part.layout = NULL;
    part.offset -= first;
    part.shape.dim[part.shape.rank - 1] *= step;
    if (shape_elements(&part.shape) == shape_elements(&joint->nodes[base].shape))
        *out = joint_view(joint, base, part.shape);
    else
        TRY(slice_of(joint, &part, base, out, err));
    *out = joint_node(joint, &(struct joint_want){.name = JOINT_SLICE,
                                                  .dtype = (enum dtype)joint->nodes[base].dtype,
                                                  .shape = operand->shape,
                                                  .args = 1,
                                                  .arg = {*out},
                                                  .detail = JOINT_STEP * step + first});
    return ERR_OK;
}

/* One of each group of `step` elements that lie together, (..., d, step): (..., d). */
static uint32_t one_of_each(struct joint *joint, const struct operand *operand, uint32_t base,
                            uint32_t step)
{
    struct shape groups = operand->shape, one = operand->shape;
    groups.dim[groups.rank++] = step;
    one.dim[one.rank++] = 1;
    const uint32_t part =
        joint_node(joint, &(struct joint_want){.name = JOINT_SLICE,
                                               .dtype = (enum dtype)joint->nodes[base].dtype,
                                               .shape = one,
                                               .args = 1,
                                               .arg = {one_view(joint, base, groups)},
                                               .detail = (uint32_t)(operand->offset % step)});
    return one_view(joint, part, operand->shape);
}

enum err_code joint_operand( // NOLINT(misc-no-recursion): once, of what is repeated
    struct joint *joint, const struct operand *operand, uint32_t *out, struct err *err)
{
    const struct value *value = find_value(joint, operand->place);
    const bool turned = is_turned(operand);
    const struct shape *s = &operand->shape;
    const struct shape rows = turned ? SHAPE(s->dim[1], s->dim[0]) : *s; /* as it lies in memory */
    struct operand part = *operand;
    uint32_t base;
    struct strides strides;
    if (part_is_one_sequence(operand, &part, &strides)) {
        TRY(joint_operand(joint, &part, &base, err));
        const struct shape *h = &part.shape;
        *out = one_view(joint, base, SHAPE(h->dim[1], h->dim[2], h->dim[3]));
        return ERR_OK;
    }
    if (part_is_one_head(operand, &part)) {
        TRY(joint_operand(joint, &part, &base, err));
        *out = joint_node(joint, &(struct joint_want){.name = JOINT_EXPAND,
                                                      .dtype = (enum dtype)operand->dtype,
                                                      .shape = *s,
                                                      .args = 1,
                                                      .arg = {base}});
        return ERR_OK;
    }
    if (value) {
        base = value->turned ? joint_transposed(joint, value->node) : value->node;
    } else if ((operand->place & PLACE_MASK) == PLACE_BUFFER) {
        return err_set(err, ERR_UNSUPPORTED,
                       "--compile: a block reads what is neither its argument nor its own");
    } else {
        const bool param = (operand->place & PLACE_MASK) == PLACE_PARAM;
        base = new_input(joint, param ? SOURCE_PARAM : SOURCE_INPUT, operand->place, rows,
                         (enum dtype)operand->dtype);
        joint->nodes[base].in_backward = false;
        set_value(joint, operand->place, base);
    }
    const uint64_t all = shape_elements(&joint->nodes[base].shape);
    part = *operand;
    if (operand->offset && !operand->pitch && !operand->layout && s->rank == 1 && s->dim[0] < all) {
        part.pitch = (uint32_t)all; /* of the only row */
        return slice_of(joint, &part, base, out, err);
    }
    const uint32_t step = part_step(operand);
    if (step > 1 && operand->pitch > step)
        return steps_of(joint, operand, base, step, out, err);
    if (step > 1 && operand->pitch == step && shape_elements(s) * step == all) {
        *out = one_of_each(joint, operand, base, step);
        return ERR_OK;
    }
    part.pitch = part.pitch ? part.pitch : part_pitch(operand, all);
    if (part.pitch && (part.offset || shape_elements(s) < all))
        return slice_of(joint, &part, base, out, err);
    if (joint->nodes[base].dtype == operand->dtype && shape_elements(&operand->shape) != all) {
        *out = base; /* a gradient that stands for a wider one */
        return ERR_OK;
    }
    if (rows.rank == 2 && joint->nodes[base].shape.rank == 3)
        base = own_rows(joint, base, rows);
    *out = as_seen(joint, base, (enum dtype)operand->dtype, rows);
    if (turned)
        *out = joint_transposed(joint, *out);
    return ERR_OK;
}

bool joint_is_nothing(const struct joint *joint, uint32_t node)
{
    const struct joint_node *n = &joint->nodes[node];
    return n->name == JOINT_CAST && n->dtype == joint->nodes[n->arg[0]].dtype;
}

void joint_leave_out(struct joint *joint, uint32_t node)
{
    assert(joint_is_nothing(joint, node));
    joint->nodes[node].name = JOINT_VIEW;
}

/* ---- sums with products ---- */

static bool is_matrix(const struct joint_node *node)
{
    return node->shape.rank == 2;
}

/* Whether of a sum's arguments the one is a product that may take the other one in. */
static bool may_be_added(const struct joint *joint, const struct joint_node *sum, uint32_t product,
                         const uint32_t *users)
{
    const struct joint_node *p = &joint->nodes[sum->arg[product]];
    const struct joint_node *added = &joint->nodes[sum->arg[1 - product]];
    if (p->name != JOINT_CALL || p->args != 2 || users[sum->arg[product]] != 1 ||
        p->in_backward != sum->in_backward || added->name == JOINT_INPUT)
        return false;
    for (uint32_t a = 0; a < 2; a++)
        if (joint->nodes[p->arg[a]].dtype != added->dtype || !is_matrix(&joint->nodes[p->arg[a]]))
            return false;
    return is_matrix(added) && same_shape(&p->shape, &added->shape);
}

void joint_add_to_products(struct joint *joint, const bool *lives, const bool *kept)
{
    uint32_t *users = xcalloc(joint->node_count + 1, sizeof *users);
    for (uint32_t i = 0; i < joint->node_count; i++) {
        users[i] += kept[i];
        for (uint32_t a = 0; lives[i] && a < joint->nodes[i].args; a++)
            users[joint->nodes[i].arg[a]]++;
    }
    for (uint32_t i = 0; i < joint->node_count; i++) {
        struct joint_node *sum = &joint->nodes[i];
        for (uint32_t a = 2; lives[i] && sum->name == JOINT_ADD && sum->args == 2 && a-- > 0;) {
            if (!may_be_added(joint, sum, a, users))
                continue;
            const uint32_t added = sum->arg[1 - a];
            const struct joint_node product = joint->nodes[sum->arg[a]];
            *sum = product;
            sum->args = 3;
            sum->arg[2] = added;
        }
    }
    free(users);
}

/* ---- what is computed twice ---- */

/* Marks the nodes, and all that they are made of. */
static void mark_makers(const struct joint *joint, uint32_t count, const uint32_t *nodes,
                        bool *marks)
{
    for (uint32_t i = 0; i < count; i++)
        if (nodes[i] != JOINT_NONE)
            marks[nodes[i]] = true;
    for (uint32_t i = joint->node_count; i-- > 0;)
        for (uint32_t a = 0; marks[i] && a < joint->nodes[i].args; a++)
            marks[joint->nodes[i].arg[a]] = true;
}

/* "cleanup_recompute_tags" */
static void save_between(struct joint *joint, const struct joint_node *node)
{
    for (uint32_t a = 0; a < node->args; a++) {
        struct joint_node *arg = &joint->nodes[node->arg[a]];
        if (!arg->again || !arg->block || arg->block >= node->block)
            continue;
        arg->save = true;
        arg->again = false;
    }
}

static bool computes_the_same(const struct joint_node *x, const struct joint_node *y)
{
    return x->name == y->name && x->dtype == y->dtype && x->args == y->args &&
           x->detail == y->detail && x->number == y->number &&
           memcmp(x->arg, y->arg, x->args * sizeof *x->arg) == 0 &&
           same_shape(&x->shape, &y->shape);
}

/* Whether Python's hash takes the one for the other: hash(-1) is hash(-2). The partitioner's CSE
 * keeps the first of those that have one hash. */
static bool hashes_the_same(const struct joint_node *x, const struct joint_node *y)
{
    return x->name == JOINT_FULL && y->name == JOINT_FULL && x->dtype == y->dtype &&
           same_shape(&x->shape, &y->shape) && x->number < 0 && y->number < 0 &&
           x->number + y->number == -3 && x->number * y->number == 2;
}

/* Equal for those that compute the same. */
static uint32_t mixed_of(const struct joint_node *node)
{
    uint32_t mixed = (uint32_t)node->name << 16 ^ (uint32_t)node->dtype << 8 ^ node->detail;
    for (uint32_t a = 0; a < node->args; a++)
        mixed = (mixed ^ node->arg[a]) * 0x9e3779b1U;
    for (uint32_t d = 0; d < node->shape.rank; d++)
        mixed = (mixed ^ node->shape.dim[d]) * 0x9e3779b1U;
    return mixed ^ mixed >> 16;
}

/* The memory that a node's value is in: its own, or what it is a view of. */
static uint32_t memory_of(const struct joint *joint, uint32_t node)
{
    for (;;) {
        const enum joint_way way = joint_way(&joint->nodes[node]);
        if (way != WAY_VIEW && way != WAY_ALIAS)
            return node;
        node = joint->nodes[node].arg[0];
    }
}

static void mark_memory(const struct joint *joint, uint32_t count, const uint32_t *nodes,
                        bool *marks)
{
    for (uint32_t i = 0; i < count; i++)
        if (nodes[i] != JOINT_NONE)
            marks[memory_of(joint, nodes[i])] = true;
}

void joint_merge(struct joint *joint, uint32_t result_count, const uint32_t *results,
                 uint32_t gradient_count, const uint32_t *gradients)
{
    const uint32_t count = joint->node_count;
    bool *lives = xcalloc(count + 1, sizeof *lives), *behind = xcalloc(count + 1, sizeof *behind);
    bool *given = xcalloc(count + 1, sizeof *given);
    uint32_t *same = xcalloc(count + 1, sizeof *same);
    /* of those that others may be the same as: lists by what they compute */
    const uint32_t slots = 2 * count + 1;
    uint32_t *first = xmalloc(slots * sizeof *first), *next = xmalloc((count + 1) * sizeof *next);
    memset(first, 0xff, slots * sizeof *first);
    mark_makers(joint, result_count, results, lives);
    mark_makers(joint, gradient_count, gradients, lives);
    mark_makers(joint, gradient_count, gradients, behind);
    mark_memory(joint, result_count, results, given);
    mark_memory(joint, gradient_count, gradients, given);
    for (uint32_t i = 0; i < count; i++) {
        struct joint_node *node = &joint->nodes[i];
        same[i] = i;
        for (uint32_t a = 0; a < node->args; a++)
            node->arg[a] = same[node->arg[a]];
        if (!lives[i] || node->name == JOINT_INPUT || node->name == JOINT_RANDOM ||
            (node->name == JOINT_ZEROS && node->args == 0) || /* memory, to be written to */
            is_call((enum joint_name)node->name) || given[memory_of(joint, i)])
            continue;
        uint32_t *slot = &first[mixed_of(node) % slots], k = *slot;
        bool hashed = false;
        while (k != JOINT_NONE &&
               (behind[k] != behind[i] || !computes_the_same(&joint->nodes[k], node))) {
            hashed |= behind[k] == behind[i] && hashes_the_same(&joint->nodes[k], node);
            k = next[k];
        }
        if (k != JOINT_NONE || hashed) {
            same[i] = k != JOINT_NONE ? k : i;
            continue;
        }
        next[i] = *slot;
        *slot = i;
    }
    memset(lives, 0, (count + 1) * sizeof *lives);
    mark_makers(joint, result_count, results, lives);
    mark_makers(joint, gradient_count, gradients, lives);
    for (uint32_t i = 0; i < count; i++) /* one block's may be everybody's now */
        if (lives[i] && joint->nodes[i].block)
            save_between(joint, &joint->nodes[i]);
    free(first);
    free(next);
    free(lives);
    free(behind);
    free(given);
    free(same);
}

/* ---- checkpointing ---- */

/* As models that train with it count: products without a bias alternate, in the order of the
 * block's forward; the others, attention and the largest of all of a tensor are always kept. */
static bool is_kept(const struct kernel *kernel, uint32_t *products)
{
    switch ((enum work_kind)kernel->work) {
    case WORK_MATMUL_NT:
    case WORK_SCALED_MM_NT:
        return ++*products % 2 == 1;
    case WORK_MATMUL_NT_BIAS:
    case WORK_MATMUL_NN_BIAS:
    case WORK_BMM_NN:
    case WORK_ATTENTION:
    case WORK_EFFICIENT_ATTENTION:
        return true;
    default:
        return false;
    }
}

/* To the policy a product of two float8 tensors is one mm: what it does with their scales goes with
 * it. */
static void mark_scales(struct joint *joint, const struct joint_node *product)
{
    for (uint32_t a = 2; a < product->args; a++) {
        struct joint_node *scale = &joint->nodes[product->arg[a]];
        scale->save = scale->name == JOINT_RECIPROCAL;
        scale->again = !scale->save;
    }
}

void joint_checkpoint(struct joint *joint, enum joint_checkpoint how, uint32_t first, uint32_t end,
                      uint16_t number, const struct kernel *kernels)
{
    uint32_t products = 0;
    for (uint32_t i = first; how != CHECKPOINT_NOT && i < end; i++) {
        struct joint_node *node = &joint->nodes[i];
        if (node->in_backward || node->name == JOINT_INPUT || node->name == JOINT_RESULT)
            continue; /* results of calls with several are no calls themselves */
        const bool call = is_call((enum joint_name)node->name);
        const bool largest = node->name == JOINT_LARGEST && node->shape.rank == 0;
        const bool kept = how == CHECKPOINT_SELECTIVE &&
                          (largest || (call && is_kept(&kernels[node->of], &products)));
        node->save = kept;
        node->again = !kept;
        node->block = number;
        if (node->again)
            save_between(joint, node);
        if (kept && call && kernels[node->of].work == WORK_SCALED_MM_NT)
            mark_scales(joint, node);
    }
}

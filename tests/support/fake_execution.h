/* fake_execution.h - for tests of checkpoints only: in place of the runtime's, an execution that is
 * arrays, of a small model on any mesh, placed in any way.
 *
 * Every element has bits of its own, a hash of the parameter, the state and the element's place in
 * the whole, so that one that ends up anywhere else shows; many are NaNs. Who has an element is
 * asked of `has`, element by element, which is another way than placement.h's. */
#ifndef SHARDPLAN_FAKE_EXECUTION_H
#define SHARDPLAN_FAKE_EXECUTION_H

#include "base/arena.h"
#include "runtime/state/checkpoint.h"

#include <stdlib.h>
#include <string.h>

enum { PARAMS = 6, FROZEN = 3, ADAMW = 1, SGD = 0 };

static const struct {
    const char *name;
    struct shape shape;
} model[PARAMS] = {
    {"embed.weight", {{10, 3}, 2}}, {"norm.weight", {{7}, 1}}, {"conv.weight", {{5, 2, 2}, 3}},
    {"frozen.weight", {{6, 2}, 2}}, {"tiny.bias", {{1}, 1}},   {"head.weight", {{9, 4}, 2}},
};

/* ---- a mesh ---- */

/* What systems keep: rows, columns and flat parts in a shard group, each once for every replica;
 * whole copies (DDP); whole copies of which one owner updates each (ZeroRedundancyOptimizer), or
 * each rank a part (ZeRO-1). */
enum layout { ROWS, COLUMNS, FLAT, WHOLE, OWNED, PARTITIONED, LAYOUTS };

struct mesh {
    enum layout layout;
    uint32_t ranks, replicas; /* of those with whole copies: replicas is 1 */
};

static inline uint64_t elements_before(uint32_t p)
{
    uint64_t before = 0;
    for (uint32_t i = 0; i < p; i++)
        before += shape_elements(&model[i].shape);
    return before;
}

static inline struct plan_piece piece_of(struct mesh mesh, uint32_t p, uint8_t group)
{
    static const enum placement_kind kinds[] = {
        [ROWS] = PLACEMENT_ROWS,   [COLUMNS] = PLACEMENT_COLUMNS, [FLAT] = PLACEMENT_FLAT,
        [WHOLE] = PLACEMENT_WHOLE, [OWNED] = PLACEMENT_OWNED,     [PARTITIONED] = PLACEMENT_FLAT};
    struct plan_piece piece = {
        .param = p, .group = group, .placement = {.kind = (uint8_t)kinds[mesh.layout]}};
    if (mesh.layout == FLAT || mesh.layout == PARTITIONED)
        piece.placement =
            (struct placement){PLACEMENT_FLAT, elements_before(p), elements_before(PARAMS)};
    if (mesh.layout == OWNED)
        piece.placement.at = p % mesh.ranks;
    return piece;
}

/* Frozen parameters are updated by nobody: all have them. */
static inline void add_pieces(struct plan *plan, struct mesh mesh, uint32_t p, uint8_t group,
                              int optimizer)
{
    struct plan_piece piece = piece_of(mesh, p, group), store = piece;
    const bool apart = mesh.layout == OWNED || mesh.layout == PARTITIONED;
    if (apart || mesh.layout == WHOLE) {
        store.placement = (struct placement){.kind = PLACEMENT_WHOLE};
        store.group = PLAN_NO_GROUP;
    }
    store.role = PIECE_STORE;
    plan_add_piece(plan, &store);
    if (apart && p != FROZEN) {
        piece.role = PIECE_MASTER;
        plan_add_piece(plan, &piece);
    }
    for (int role = PIECE_EXP_AVG; role <= PIECE_EXP_AVG_SQ; role++)
        if (optimizer == ADAMW && p != FROZEN) {
            piece.role = (uint8_t)role;
            plan_add_piece(plan, &piece);
        }
}

/* The plan of a rank. The caller owns it: plan_free. */
static inline struct plan *mesh_plan(struct mesh mesh, uint32_t rank, int optimizer)
{
    struct plan *plan = plan_new();
    const bool data = mesh.layout >= WHOLE;
    plan->world = mesh.ranks * mesh.replicas;
    plan->rank = rank;
    uint8_t group = PLAN_NO_GROUP;
    if (plan->world > 1)
        group = plan_add_group(plan, data ? "data" : "shard", data ? GROUP_DATA : GROUP_SHARD,
                               mesh.ranks, 1);
    plan->param_count = PARAMS;
    plan->params = arena_alloc(&plan->arena, PARAMS * sizeof *plan->params);
    for (uint32_t p = 0; p < PARAMS; p++) {
        struct plan_param *param = &plan->params[p];
        param->name = model[p].name;
        param->shape = model[p].shape;
        param->trainable = p != FROZEN;
        memset(param->piece, 0xff, sizeof param->piece);
        add_pieces(plan, mesh, p, group, optimizer);
    }
    return plan;
}

/* ---- who has what ---- */

static inline uint64_t ceil_of(uint64_t extent, uint64_t ranks)
{
    return extent / ranks + (extent % ranks != 0);
}

/* Whether the plan's rank has an element of a piece. */
static inline bool has(const struct plan *plan, const struct plan_piece *piece, uint64_t element)
{
    const struct shape *shape = &plan->params[piece->param].shape;
    const uint64_t ranks = piece->group == PLAN_NO_GROUP ? 1 : plan->groups[piece->group].ranks;
    const uint64_t rank = plan->rank % ranks, rows = shape->dim[0];
    const uint64_t row = shape_elements(shape) / rows,
                   columns = shape->rank > 1 ? shape->dim[1] : 1;
    switch (piece->placement.kind) {
    case PLACEMENT_ROWS:
        return element / row / ceil_of(rows, ranks) == rank;
    case PLACEMENT_COLUMNS: /* of what has no second dim, all is the first column */
        return (shape->rank > 1 ? element % row / (row / columns) : 0) / ceil_of(columns, ranks) ==
               rank;
    case PLACEMENT_FLAT:
        return (piece->placement.at + element) / ceil_of(piece->placement.total, ranks) == rank;
    case PLACEMENT_OWNED:
        return piece->placement.at == rank;
    default:
        return true;
    }
}

/* ---- the execution ---- */

enum { KEPT = 4 }; /* of a parameter: stored, updated, and two states */

struct execution {
    const struct plan *plan;
    bool stepped; /* states exist */
    uint32_t writes;
    float *values[PARAMS][KEPT];
    uint64_t *element[PARAMS][KEPT], count[PARAMS][KEPT]; /* which they are, in their order */
};

const struct plan_piece *execution_piece(const struct plan *plan, uint32_t p, int state)
{
    static const enum piece_role roles[] = {PIECE_STORE, PIECE_STORE, PIECE_EXP_AVG,
                                            PIECE_EXP_AVG_SQ};
    const struct plan_piece *master = plan_piece(plan, p, PIECE_MASTER);
    if (state == EXECUTION_GATHERED) /* nothing here keeps gathered copies */
        return NULL;
    return state == EXECUTION_PARAM && master ? master
                                              : plan_piece(plan, p, roles[state - EXECUTION_STORE]);
}

/* A state's elements are those of what is updated. */
static inline void list_elements(struct execution *e, uint32_t p, int state)
{
    const struct plan_piece *piece =
        execution_piece(e->plan, p, state == EXECUTION_STORE ? state : EXECUTION_PARAM);
    const uint64_t all = shape_elements(&e->plan->params[p].shape);
    const int k = state - EXECUTION_STORE;
    e->element[p][k] = xrealloc(e->element[p][k], (all + 1) * sizeof(uint64_t));
    e->count[p][k] = 0;
    for (uint64_t i = 0; i < all; i++)
        if (has(e->plan, piece, i))
            e->element[p][k][e->count[p][k]++] = i;
    e->values[p][k] = xrealloc(e->values[p][k], e->count[p][k] * sizeof(float) + !e->count[p][k]);
}

static inline uint32_t bits_of(uint32_t p, int state, uint64_t element)
{
    uint32_t x = (uint32_t)element * 2654435761U + p * 40503U + (uint32_t)(state + 2) * 97U;
    x = (x ^ x >> 15) * 2246822519U;
    return element % 3 == 0 ? 0x7f800000U | x >> 9 : x;
}

/* What is stored is what is updated: of one parameter they have the same bits. */
static inline uint32_t wanted_bits(uint32_t p, int state, uint64_t element)
{
    return bits_of(p, state == EXECUTION_STORE ? EXECUTION_PARAM : state, element);
}

static inline struct execution *make_execution(const struct plan *plan, bool stepped, bool filled)
{
    struct execution *e = calloc(1, sizeof *e);
    e->plan = plan;
    e->stepped = stepped;
    for (uint32_t p = 0; p < PARAMS; p++)
        for (int state = EXECUTION_STORE; state <= EXECUTION_EXP_AVG_SQ; state++) {
            const int k = state - EXECUTION_STORE;
            list_elements(e, p, state);
            for (uint64_t i = 0; i < e->count[p][k]; i++) {
                const uint32_t bits =
                    filled ? wanted_bits(p, state, e->element[p][k][i]) : 0xdeadbeef;
                memcpy(&e->values[p][k][i], &bits, sizeof bits);
            }
        }
    return e;
}

static inline void free_execution(struct execution *e)
{
    for (uint32_t p = 0; p < PARAMS; p++)
        for (int k = 0; k < KEPT; k++) {
            free(e->values[p][k]);
            free(e->element[p][k]);
        }
    free(e);
}

static inline enum err_code find_values(struct execution *e, uint32_t p, int state, struct err *err)
{
    if (state >= 0 && (!e->stepped || !execution_piece(e->plan, p, state)))
        return err_set(err, ERR_INVALID, "no such state");
    return ERR_OK;
}

enum err_code execution_read(struct execution *e, uint32_t p, int state, float *values,
                             struct err *err)
{
    const int k = state - EXECUTION_STORE;
    TRY(find_values(e, p, state, err));
    memcpy(values, e->values[p][k], e->count[p][k] * sizeof *values);
    return ERR_OK;
}

/* Makes states that do not exist, as the executor does. */
enum err_code execution_write(struct execution *e, uint32_t p, int state, const float *values,
                              struct err *err)
{
    const int k = state - EXECUTION_STORE;
    e->stepped |= state >= 0;
    TRY(find_values(e, p, state, err));
    memcpy(e->values[p][k], values, e->count[p][k] * sizeof *values);
    if (state == EXECUTION_PARAM && !plan_piece(e->plan, p, PIECE_MASTER)) /* one memory */
        memcpy(e->values[p][0], values, e->count[p][0] * sizeof *values);
    e->writes++;
    return ERR_OK;
}

/* Whether parameters (last_state EXECUTION_PARAM) or states too are what bits_of says. */
static inline bool is_restored(const struct execution *e, int last_state)
{
    for (uint32_t p = 0; p < PARAMS; p++)
        for (int state = EXECUTION_STORE; state <= (p == FROZEN ? EXECUTION_PARAM : last_state);
             state++) {
            const int k = state - EXECUTION_STORE;
            for (uint64_t i = 0; i < e->count[p][k]; i++) {
                const uint32_t wanted = wanted_bits(p, state, e->element[p][k][i]);
                uint32_t bits = 0;
                memcpy(&bits, &e->values[p][k][i], sizeof bits);
                if (bits != wanted)
                    return false;
            }
        }
    return true;
}

#endif

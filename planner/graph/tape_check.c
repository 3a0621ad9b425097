/* tape_check.c - what is always true of a tape between two items of the script:
 *
 *     holders    of each buffer are as many as names, nodes, slots, caches, regions and given-out
 *                gradients say (the list in tape_state.h); so what none of them has is dead
 *     names      of Python and of the selective cache mean a storage that has a buffer
 *     nodes      hold in their region only from when it ran again
 *     the end    leaves nothing but gradients given out */
#include "base/arena.h"
#include "graph/tape_state.h"

#include <stdlib.h>

#define BROKEN(...) err_set(err, ERR_INTERNAL, __VA_ARGS__)

struct count { /* the holders that the rest of the state says */
    const struct tape *tape;
    uint32_t *holders; /* (buffers) */
    struct err *err;
};

static enum err_code count_holder(struct count *c, uint32_t buffer, const char *who, uint32_t of)
{
    struct err *err = c->err;
    if (buffer >= c->tape->stream->buffer_count)
        return BROKEN("%s %u holds buffer %u: there is none", who, of, buffer);
    c->holders[buffer]++;
    return ERR_OK;
}

static enum err_code count_tensor(struct count *c, uint32_t tensor, const char *who, uint32_t of)
{
    return tape_is_activation(c->tape, tensor)
               ? count_holder(c, tape_buffer(c->tape, tensor), who, of)
               : ERR_OK;
}

static enum err_code count_names(struct count *c)
{
    const struct tape *tape = c->tape;
    for (uint32_t s = 0; s < tape->graph->storage_count; s++) {
        if (tape->python[s])
            TRY(count_holder(c, tape->where[s], "Python's name of storage", s));
        if (tape->keeping[s])
            TRY(count_holder(c, tape->where[tape->graph->storages[s].keeps], "storage", s));
        if (tape->leaves[s])
            TRY(count_holder(c, tape->where[s], "the graph, of leaf", s));
        if (tape->cached[s])
            TRY(count_holder(c, tape->where[s], "the selective cache of storage", s));
    }
    return ERR_OK;
}

static enum err_code count_kept_calls(struct count *c)
{
    const struct tape *tape = c->tape;
    for (uint32_t i = 0; i < tape->graph->op_count * KEPT_MOST; i++)
        if (tape->kept_calls[i] != NO_BUFFER)
            TRY(count_holder(c, tape->kept_calls[i], "the selective cache of a call within op",
                             i / KEPT_MOST));
    return ERR_OK;
}

static enum err_code count_context(struct count *c, uint32_t op)
{
    for (int again = 0; again <= 1; again++) {
        const uint32_t buffer = tape_node_keeps(c->tape, op, again);
        if (buffer != NO_BUFFER)
            TRY(count_holder(c, buffer, "the context of op", op));
    }
    return ERR_OK;
}

static enum err_code count_nodes(struct count *c)
{
    const struct tape *tape = c->tape;
    struct err *err = c->err;
    for (uint32_t op = 0; op < tape->graph->op_count; op++) {
        uint32_t saved[SAVED_MOST];
        TRY(count_context(c, op));
        if (!tape->node_holds[op] || tape_host_has(tape, op))
            continue;
        if (tape->op_region[op] != GRAPH_NONE && !tape->regions[tape->op_region[op]].recomputed)
            return BROKEN("the node of op %u holds what it saves before its region ran again", op);
        const uint32_t count = tape_saved(tape, &tape->graph->ops[op], saved);
        for (uint32_t i = 0; i < count; i++)
            TRY(count_tensor(c, saved[i], "the node of op", op));
    }
    for (uint32_t i = 0; i < tape->held_count; i++)
        if (tape->handed_by[tape->held[i].op] && tape->held[i].buffer != NO_BUFFER)
            TRY(count_holder(c, tape->held[i].buffer, "what is handed on, by the node of op",
                             tape->held[i].op));
    return ERR_OK;
}

static enum err_code count_regions(struct count *c)
{
    const struct tape *tape = c->tape;
    for (uint32_t r = 0; r < tape->region_count; r++) {
        const struct region *region = &tape->regions[r];
        const uint32_t index = tape->graph->items[region->first].arg;
        const struct graph_module *module = &tape->graph->modules[index];
        for (uint32_t i = tape->host ? 1 : 0; i < module->inputs; i++)
            if (region->holds_others && i >= module->arguments ? true : region->holds_inputs)
                TRY(count_tensor(c, module->input[i], "the region of module", index));
    }
    return ERR_OK;
}

static enum err_code count_packed(struct count *c)
{
    for (uint32_t at = tape_host_any(c->tape) ? 0 : GRAPH_NONE; at != GRAPH_NONE;) {
        uint32_t buffers[2];
        const uint32_t now = at;
        at = tape_host_holds(c->tape, at, buffers);
        for (int i = 0; i < 2; i++)
            if (buffers[i] != NO_BUFFER)
                TRY(count_holder(c, buffers[i], "what is packed, of number", now));
    }
    return ERR_OK;
}

static enum err_code count_gradients(struct count *c)
{
    const struct tape *tape = c->tape;
    for (uint32_t t = 0; t < tape->graph->tensor_count; t++)
        if (tape->slot[t] != NO_BUFFER)
            TRY(count_holder(c, tape->slot[t], "the gradient slot of tensor", t));
    for (uint32_t i = 0; i < tape->stream->grad_count; i++)
        TRY(count_holder(c, tape->stream->grads[i].buffer, ".grad of parameter",
                         tape->stream->grads[i].param));
    if (tape->scaled != NO_BUFFER) {
        TRY(count_holder(c, tape->divided, "the engine", 0));
        TRY(count_holder(c, tape->scaled, "the engine", 1));
    }
    for (uint32_t i = 0; tape->given != NO_BUFFER && i < MODULE_INPUTS; i++)
        if (tape->outside[i].buffer != NO_BUFFER)
            TRY(count_holder(c, tape->outside[i].buffer, "the outer graph's slot of input", i));
    if (tape->given != NO_BUFFER)
        TRY(count_holder(c, tape->given, "the outer node", 0));
    for (uint32_t i = 0; i < tape->result_count; i++)
        TRY(count_holder(c, tape->results[i].zeros, "the outer node", i + 1));
    return tape->seed == NO_BUFFER ? ERR_OK : count_holder(c, tape->seed, "backward()", 0);
}

/* When backward has ended, only gradients have a holder: nothing else may be left in the state. */
static enum err_code check_end(const struct tape *tape, struct err *err)
{
    const struct graph *graph = tape->graph;
    for (uint32_t s = 0; s < graph->storage_count; s++)
        if (tape->python[s] || tape->cached[s])
            return BROKEN("storage %u is still %s", s, tape->python[s] ? "Python's" : "cached");
    for (uint32_t op = 0; op < graph->op_count; op++)
        if (tape->node_holds[op])
            return BROKEN("the node of op %u never ran and holds what it saved", op);
    for (uint32_t t = 0; t < graph->tensor_count; t++)
        if (tape->slot[t] != NO_BUFFER)
            return BROKEN("the gradient of tensor %u reached no node", t);
    for (uint32_t r = 0; r < tape->region_count; r++)
        if (tape->regions[r].holds_inputs)
            return BROKEN("region %u still holds its inputs", r);
    for (uint32_t p = 0; p < graph->param_count; p++)
        if (tape->param_uses[p])
            return BROKEN("%s waits for %u more gradients", graph->params[p].name,
                          tape->param_uses[p]);
    return ERR_OK;
}

static enum err_code check_holders(struct count *c)
{
    const struct tape *tape = c->tape;
    struct err *err = c->err;
    TRY(count_names(c));
    TRY(count_kept_calls(c));
    TRY(count_nodes(c));
    TRY(count_regions(c));
    TRY(count_packed(c));
    TRY(count_gradients(c));
    for (uint32_t b = 0; b < tape->stream->buffer_count; b++)
        if (tape->holds[b] != c->holders[b])
            return BROKEN("buffer %u (%s) has %u holders instead of %u", b,
                          aten_name((enum aten)tape->stream->buffers[b].label), tape->holds[b],
                          c->holders[b]);
    return ERR_OK;
}

enum err_code tape_check(const struct tape *tape, struct err *err)
{
    struct count c = {
        .tape = tape,
        .holders = xcalloc(tape->stream->buffer_count + 1, sizeof *c.holders),
        .err = err,
    };
    enum err_code rc = check_holders(&c);
    free(c.holders);
    if (rc == ERR_OK && tape->stream->final_step)
        rc = check_end(tape, err);
    return rc;
}

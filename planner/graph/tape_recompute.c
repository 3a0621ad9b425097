/* tape_recompute.c - checkpointed regions (see tape_state.h).
 *
 * A checkpointed block, in time:
 *
 *     forward   births ... each dies with Python's reference; the block's inputs are held
 *     backward  first node that needs something saved -> the script runs again, now holding what
 *               nodes save, and stops early where the last saved tensor would be packed
 *               nodes run; the inputs are let go with the last node that saved anything */
#include "graph/op_table.h"
#include "graph/tape_calls.h"

#include <assert.h>
#include <stdlib.h>

bool tape_is_checkpointed(const struct tape *tape, uint32_t module)
{
    return tape->checkpointed[module];
}

uint32_t tape_part_at(const struct tape *tape, uint32_t item)
{
    uint32_t first = 0, end = tape->parts.count;
    while (first < end) {
        const uint32_t middle = first + (end - first) / 2;
        if (tape->parts.of[middle].first_item < item)
            first = middle + 1;
        else
            end = middle;
    }
    return first < tape->parts.count && tape->parts.of[first].first_item == item ? first
                                                                                 : GRAPH_NONE;
}

/* Blocks that are eager where blocks are compiled: they call what is. */
static void find_eager(const struct graph *graph, bool *eager)
{
    uint32_t block = GRAPH_NONE;
    for (uint32_t i = 0; i < graph->item_count; i++) {
        const struct graph_item item = graph->items[i];
        if (item.kind == ITEM_ENTER && graph->modules[item.arg].role == ROLE_BLOCK)
            block = item.arg;
        else if (item.kind == ITEM_EXIT && item.arg == block)
            block = GRAPH_NONE;
        else if (item.kind == ITEM_MARK && item.arg == MARK_CALLED && block != GRAPH_NONE)
            eager[block] = true;
    }
}

/* What is compiled has its checkpoint inside of its programs. */
static void find_checkpointed(struct tape *tape)
{
    const struct graph *graph = tape->graph;
    const bool compiled = tape->options->compiled;
    bool *eager = xcalloc(graph->module_count + 1, sizeof *eager);
    uint32_t blocks = 0, block = 0;
    tape->checkpointed = xcalloc(graph->module_count + 1, sizeof *tape->checkpointed);
    if (compiled)
        find_eager(graph, eager);
    for (uint32_t m = 0; m < graph->module_count; m++)
        blocks += graph->modules[m].role == ROLE_BLOCK;
    for (uint32_t m = 0; m < graph->module_count; m++)
        if (graph->modules[m].role == ROLE_BLOCK)
            tape->checkpointed[m] =
                tape_options_checkpoint(tape->options, block++, blocks) && (!compiled || eager[m]);
    free(eager);
}

/* A part is one node. */
static void find_part(struct tape *tape, uint32_t part, uint32_t region)
{
    tape->part_region[part] = region;
    if (region == GRAPH_NONE || tape->parts.of[part].saved_count == 0)
        return;
    tape->regions[region].stop = tape->parts.of[part].end_item - 1;
    tape->regions[region].holders++;
}

void tape_find_regions(struct tape *tape)
{
    const struct graph *graph = tape->graph;
    tape->regions = xmalloc((graph->module_count + 1) * sizeof *tape->regions);
    uint32_t region = GRAPH_NONE;
    find_checkpointed(tape);
    for (uint32_t i = 0; i < graph->item_count; i++) {
        const struct graph_item item = graph->items[i];
        const uint32_t part = tape_part_at(tape, i);
        if (part != GRAPH_NONE) {
            find_part(tape, part, region);
            i = tape->parts.of[part].end_item - 1;
        } else if (item.kind == ITEM_ENTER && tape_is_checkpointed(tape, item.arg)) {
            region = tape->region_count++;
            tape->regions[region] = (struct region){.first = i, .stop = i};
        } else if (item.kind == ITEM_EXIT && region != GRAPH_NONE &&
                   tape_is_checkpointed(tape, item.arg)) {
            tape->regions[region].last = i;
            region = GRAPH_NONE;
        } else if (item.kind == ITEM_OP) {
            uint32_t saved[SAVED_MOST];
            tape->op_region[item.arg] = tape->options->reentrant ? GRAPH_NONE : region;
            if (region != GRAPH_NONE && tape_saved(tape, &graph->ops[item.arg], saved)) {
                tape->regions[region].stop = i;
                tape->regions[region].holders++;
            }
        }
    }
}

/* ---- a region's inputs ---- */

static const struct graph_module *module_of(const struct tape *tape, const struct region *region)
{
    return &tape->graph->modules[tape->graph->items[region->first].arg];
}

void tape_enter_region(struct tape *tape)
{
    struct region *region = &tape->regions[tape->next_region];
    assert(tape->next_region < tape->region_count && tape->entered == GRAPH_NONE);
    const struct graph_module *module = module_of(tape, region);
    const uint32_t packed = tape->host && module->inputs > 0;
    if (packed)
        tape_host_enter(tape, tape->next_region, module->input[0]);
    for (uint32_t i = packed; i < module->inputs; i++)
        if (tape_is_activation(tape, module->input[i]))
            tape_hold(tape, tape_buffer(tape, module->input[i]));
    region->holds_inputs = true;
    region->holds_others = tape->options->reentrant;
    for (uint32_t i = 0; tape->options->reentrant && i < module->inputs; i++)
        tape_hold_leaf(tape, module->input[i]);
    tape->entered = tape->next_region++;
    tape->matmuls = 0;
}

void tape_leave_region(struct tape *tape)
{
    struct region *region = &tape->regions[tape->entered];
    tape->entered = GRAPH_NONE;
    if (region->holders == 0) /* nothing in it is trained: no node will ask for it again */
        tape_end_region(tape, region);
}

static void release_input(struct tape *tape, uint32_t tensor)
{
    if (tape_is_activation(tape, tensor))
        tape_release(tape, tape_buffer(tape, tensor));
}

/* Arguments die last to first. Of several only the first is passed by position, and up to
 * torch 2.11 an autograd node holds it, apart from the others. */
static void release_inputs(struct tape *tape, struct region *region)
{
    const struct graph_module *module = module_of(tape, region);
    const bool first = !torch_does(tape->graph->torch, TORCH_CHECKPOINT_HOLDS_ALL);
    region->holds_inputs = false;
    if (region->holds_others) {
        for (uint32_t i = 0; i < module->arguments; i++)
            release_input(tape, module->input[i]);
        return;
    }
    if (first && module->inputs > 0 && !tape->host)
        release_input(tape, module->input[0]);
    tape_release_handed(tape);
    for (uint32_t i = module->inputs; i-- > (first || tape->host ? 1U : 0U);)
        release_input(tape, module->input[i]);
}

void tape_end_called(struct tape *tape)
{
    for (uint32_t r = tape->region_count; r-- > 0;) {
        struct region *region = &tape->regions[r];
        const struct graph_module *module = module_of(tape, region);
        for (uint32_t i = module->inputs; region->holds_others && i-- > module->arguments;)
            release_input(tape, module->input[i]);
        region->holds_others = false;
    }
}

/* ---- running it again ---- */

/* A name goes out of scope: what it means dies, and that may still be its earlier value. */
static void drop_name(struct tape *tape, uint32_t storage)
{
    const struct graph_storage *s = &tape->graph->storages[storage];
    if (s->renamed)
        return; /* the name is its successor's */
    for (uint32_t before = s->before; before != GRAPH_NONE;
         before = tape->graph->storages[before].before)
        tape_drop(tape, before);
    tape_drop(tape, storage);
}

static void drop_outputs(struct tape *tape, uint32_t op)
{
    for (uint32_t i = 0; i < tape->graph->ops[op].outs; i++) {
        const uint32_t storage = tape->graph->tensors[tape->graph->ops[op].out[i]].storage;
        if (!tape->handed[storage])
            tape_drop(tape, storage);
    }
}

/* Whether the node of an op saves only what was there before: then packing raises before the
 * kernel runs. */
static bool saves_inputs_only(const struct tape *tape, uint32_t index)
{
    const struct graph_op *op = &tape->graph->ops[index];
    uint32_t saved[SAVED_MOST];
    const uint32_t count = tape_saved(tape, op, saved);
    if (tape_is_own_linear(tape, op) || op_class(op)->in_python)
        return false;
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t o = 0; o < op->outs; o++)
            if (saved[i] == op->out[o])
                return false;
    return true;
}

/* Of modules within the block those that are wrapped on their own: their hooks run again. */
static bool is_unit_within(const struct graph *graph, struct graph_item item)
{
    const bool border = item.kind == ITEM_ENTER || item.kind == ITEM_EXIT;
    return border && (graph->modules[item.arg].role == ROLE_EXPERTS ||
                      graph->modules[item.arg].role == ROLE_INNER);
}

static void drop_again(struct tape *tape, struct graph_item item)
{
    if (item.kind == ITEM_DROP && !tape->kept_casts[tape->graph->tensors[item.arg].storage])
        tape_drop(tape, tape->graph->tensors[item.arg].storage);
}

/* Returns the part's last item. */
static uint32_t run_part(struct tape *tape, uint32_t part)
{
    const struct tape_compiled *of = &tape->parts.of[part];
    tape->parts.run(tape, tape->parts.with, part);
    for (uint32_t i = of->first_item; i < of->end_item; i++)
        drop_again(tape, tape->graph->items[i]);
    return of->end_item - 1;
}

static void run_items(struct tape *tape, const struct region *region, uint32_t end, bool early)
{
    for (uint32_t i = region->first + 1; i <= end; i++) {
        const struct graph_item item = tape->graph->items[i];
        const uint32_t part = tape_part_at(tape, i);
        if (part != GRAPH_NONE) {
            i = run_part(tape, part);
            continue;
        }
        tape_return_before(tape, &item);
        drop_again(tape, item);
        if (is_unit_within(tape->graph, item))
            tape_step(tape, item.kind == ITEM_ENTER ? STEP_PRE_FORWARD : STEP_POST_FORWARD,
                      item.arg);
        if (item.kind != ITEM_OP || tape_repeats(tape, item.arg))
            continue;
        tape_enter_op(tape, item.arg);
        if (early && i == region->stop && saves_inputs_only(tape, item.arg))
            tape_save(tape, item.arg);
        else
            tape_op(tape, item.arg, true);
        tape_hand_on(tape, item.arg);
        if (!early || i != region->stop) /* the exception passes the hook behind it */
            tape_return_from_op(tape, item.arg);
    }
    tape_return_before(tape, NULL);
}

/* Whether the op makes the cast of a parameter, or of another leaf, that autocast keeps while its
 * region lasts. */
static bool makes_kept_cast(const struct tape *tape, const struct graph_op *op)
{
    const struct graph *graph = tape->graph;
    if (op->outs == 1 && tape->kept_casts[graph->tensors[op->out[0]].storage])
        return true;
    if (op->ins == 0 || op->in[0] == GRAPH_NONE || op->outs != 1)
        return false;
    const struct graph_storage *s = &graph->storages[graph->tensors[op->in[0]].storage];
    return s->kind == STORAGE_PARAM && graph->params[s->index].cast == op->out[0];
}

/* Of the ops up to item `end`, the outputs that Python may still hold: autocast's casts, or all
 * but these. */
static void drop_all(struct tape *tape, const struct region *region, uint32_t end, bool casts)
{
    const struct graph *graph = tape->graph;
    for (uint32_t i = region->first + 1; i <= end; i++)
        if (graph->items[i].kind == ITEM_OP &&
            makes_kept_cast(tape, &graph->ops[graph->items[i].arg]) == casts)
            drop_outputs(tape, graph->items[i].arg);
}

/* What the block returned, and nothing else has: a tuple, of which Python lets go from its end. The
 * module's output is its first. */
static void drop_results(struct tape *tape, const struct region *region, uint32_t end)
{
    const struct graph *graph = tape->graph;
    const uint32_t output = graph->modules[graph->items[region->first].arg].output;
    const uint32_t first = output == GRAPH_NONE ? GRAPH_NONE : graph->tensors[output].storage;
    for (uint32_t i = end + 1; i-- > region->first + 1;) {
        if (graph->items[i].kind != ITEM_OP)
            continue;
        const struct graph_op *op = &graph->ops[graph->items[i].arg];
        for (uint32_t o = op->outs; o-- > 0;) {
            const uint32_t storage = graph->tensors[op->out[o]].storage;
            if (storage != first && !tape->handed[storage] && !makes_kept_cast(tape, op))
                tape_drop(tape, storage);
        }
    }
    if (first != GRAPH_NONE)
        tape_drop(tape, first);
}

/* What autocast had cast for the call that raised, and for no other: C++'s, which goes before
 * Python has the exception. */
static void drop_own_casts(struct tape *tape, const struct region *region)
{
    const struct graph *graph = tape->graph;
    for (uint32_t i = region->stop + 1; graph->items[i].kind == ITEM_DROP; i++) {
        const uint32_t storage = graph->tensors[graph->items[i].arg].storage;
        const struct graph_storage *s = &graph->storages[storage];
        if (s->kind == STORAGE_ACTIVATION && graph->ops[s->index].of_autocast &&
            !makes_kept_cast(tape, &graph->ops[s->index]))
            drop_name(tape, storage);
    }
}

/* The exception of an early stop unwinds: what only the frames held dies. Recomputation is in a
 * region of autocast of its own, which is left while the exception still holds the frames, or,
 * where the block has run to its end, with its result gone; its casts go then, unless that region
 * is `within` another. */
static void unwind(struct tape *tape, const struct region *region, uint32_t end, bool early,
                   bool within)
{
    const struct graph *graph = tape->graph;
    if (tape->options->reentrant) { /* what it returns is the outer node's */
        drop_all(tape, region, end, true);
        return;
    }
    const struct graph_item stop = graph->items[region->stop];
    const bool raised = early && stop.kind == ITEM_OP;
    /* First the call that raised, whose outputs Python never got; of what it was to change in place
     * the block's frame has the name. */
    const bool in_place = raised && op_class(&graph->ops[stop.arg])->in_place;
    if (raised && !in_place)
        drop_outputs(tape, stop.arg);
    if (raised)
        drop_own_casts(tape, region);
    if (early && !within)
        drop_all(tape, region, end, true);
    if (in_place && graph->ops[stop.arg].kind != OP_PUT_ROWS) /* its frame does */
        drop_outputs(tape, stop.arg);
    /* Then the block's frames, inner ones before outer ones: that is the order in which the rest of
     * the script would have let go of its names. */
    for (uint32_t i = end + 1; i < region->last; i++)
        if (graph->items[i].kind == ITEM_DROP)
            drop_name(tape, graph->tensors[graph->items[i].arg].storage);
    /* What no drop of the script names goes with its frame, too. */
    if (early) {
        drop_all(tape, region, end, false);
    } else {
        drop_results(tape, region, end);
        if (!within)
            drop_all(tape, region, end, true);
    }
}

/* The item of a region that runs last when it runs again. */
static uint32_t end_of(const struct tape *tape, const struct region *region)
{
    const bool early = !tape->options->no_early_stop && !tape->options->reentrant;
    return early ? region->stop : region->last - 1;
}

void tape_end_kept_casts(struct tape *tape, const struct region *region)
{
    if (!tape->options->reentrant)
        drop_all(tape, region, end_of(tape, region), true);
}

void tape_recompute(struct tape *tape, struct region *region)
{
    const bool early = !tape->options->no_early_stop && !tape->options->reentrant;
    const uint32_t op_now = tape->current_op, end = end_of(tape, region);
    const bool within = op_now != GRAPH_NONE && op_class(&tape->graph->ops[op_now])->custom_bwd;
    assert(!region->recomputed && !tape->recomputing && tape->backward);
    region->recomputed = true;
    tape->recomputing = true;
    tape->matmuls = 0;
    const uint32_t module = tape->graph->items[region->first].arg;
    const struct open_calls open = tape_call_again(tape, module);
    const uint32_t packed = tape_host_begin_again(tape, (uint32_t)(region - tape->regions));
    tape_before_handing(tape, region);
    run_items(tape, region, end, early);
    if (!early)
        tape_leave_module(tape, module, false);
    tape->open = open;
    unwind(tape, region, end, early, within);
    tape_after_handing(tape, region);
    tape_host_end_again(tape, packed);
    if (!tape->options->reentrant)
        tape_nodes_end(tape, true);
    tape->recomputing = false;
    tape->current_op = op_now;
}

/* The label of the call that an item of the script is, of which the cache has a dictionary. */
static enum aten call_of(const struct graph *graph, struct graph_item item)
{
    const struct graph_op *op = item.kind == ITEM_OP ? &graph->ops[item.arg] : NULL;
    return op && op->outs ? (enum aten)graph->storages[graph->tensors[op->out[0]].storage].aten
                          : ATEN_COUNT;
}

/* A call's results, of which a tuple goes from its end. */
static void release_cached(struct tape *tape, const struct graph_op *op)
{
    for (uint32_t o = op->outs; o-- > 0;) {
        const uint32_t storage = tape->graph->tensors[op->out[o]].storage;
        if (tape->cached[storage])
            tape_release(tape, tape->where[storage]);
        tape->cached[storage] = 0;
    }
}

/* The last node lets go of the region's frame: outputs that the selective policy kept and an early
 * stop left unused, call by call, and the inputs. */
void tape_end_region(struct tape *tape, struct region *region)
{
    const struct graph *graph = tape->graph;
    const bool keeps = tape->options->checkpointing == CHECKPOINTING_SELECTIVE;
    for (uint32_t i = region->first; keeps && i < region->last; i++) {
        const enum aten call = call_of(graph, graph->items[i]);
        bool first = call != ATEN_COUNT;
        for (uint32_t k = region->first; k < i && first; k++)
            first = call_of(graph, graph->items[k]) != call;
        for (uint32_t k = i; k < region->last && first; k++)
            if (call_of(graph, graph->items[k]) == call)
                release_cached(tape, &graph->ops[graph->items[k].arg]);
    }
    release_inputs(tape, region);
}

/* tape_regions.c - see tape_regions.h. */
#include "graph/tape_regions.h"

#include "graph/tape_emit.h"
#include "graph/tape_state.h"

#include <assert.h>
#include <stdlib.h>

/* ---- where they are in the script ---- */

static bool is_block(const struct graph *graph, struct graph_item item)
{
    return item.kind == ITEM_ENTER && graph->modules[item.arg].role == ROLE_BLOCK;
}

static bool is_mark(struct graph_item item, enum graph_mark mark)
{
    return item.kind == ITEM_MARK && item.arg == (uint32_t)mark;
}

static uint32_t end_of(const struct graph *graph, uint32_t first, uint32_t module)
{
    while (graph->items[first].kind != ITEM_EXIT || graph->items[first].arg != module)
        first++;
    return first;
}

static void add_region(struct tape_regions *out, struct tape_region region, uint32_t output)
{
    if (output != GRAPH_NONE) {
        region.outputs = xcalloc(1, sizeof *region.outputs);
        region.outputs[region.output_count++] = (struct tape_output){output, NO_BUFFER, NO_BUFFER};
    }
    out->of[out->count++] = region;
}

/* Blocks are what is between their hooks, the model what its forward does. The loss is a function
 * of the logits and the targets, called once they exist. */
static void find_regions(const struct graph *graph, const struct tape_options *options,
                         struct tape_regions *out)
{
    uint32_t loss = GRAPH_NONE, blocks = 0;
    out->of = xcalloc(graph->module_count + 2, sizeof *out->of);
    for (uint32_t i = 0; i < graph->item_count; i++) {
        const struct graph_item item = graph->items[i];
        blocks += is_block(graph, item);
        if (options->compiled == COMPILED_BLOCKS && is_block(graph, item))
            add_region(out,
                       (struct tape_region){
                           .module = item.arg,
                           .block = blocks - 1,
                           .first_item = i + 1,
                           .end_item = end_of(graph, i, item.arg),
                       },
                       graph->modules[item.arg].output);
        if (options->compiled == COMPILED_MODEL && is_mark(item, MARK_ROOT_EXIT))
            add_region(out, (struct tape_region){.module = GRAPH_NONE, .end_item = i}, GRAPH_NONE);
        if (is_mark(item, MARK_LOGITS))
            loss = i + 1;
        if (options->compiled_loss && is_mark(item, MARK_LOSS))
            add_region(
                out, (struct tape_region){.module = GRAPH_NONE, .first_item = loss, .end_item = i},
                graph->loss);
    }
}

/* ---- what goes over their borders ---- */

/* The first tensor of each storage that Python has now. */
static void note_inputs(const struct tape *tape, struct tape_region *region)
{
    const struct graph *graph = tape->graph;
    const struct graph_module *module =
        region->module == GRAPH_NONE ? NULL : &graph->modules[region->module];
    bool *noted = xcalloc(graph->storage_count + 1, sizeof *noted);
    region->inputs = xcalloc(graph->storage_count + 1, sizeof *region->inputs);
    for (uint32_t i = 0; module && i < module->inputs; i++) {
        const struct graph_tensor *t = &graph->tensors[module->input[i]];
        if (noted[t->storage] || !tape_is_activation(tape, module->input[i]))
            continue;
        noted[t->storage] = true;
        region->inputs[region->input_count++] =
            (struct tape_border){module->input[i], tape->where[t->storage], true};
    }
    for (uint32_t i = 0; i < graph->tensor_count; i++) {
        const uint32_t storage = graph->tensors[i].storage;
        if (noted[storage] || !tape->python[storage])
            continue;
        noted[storage] = true;
        region->inputs[region->input_count++] = (struct tape_border){i, tape->where[storage], true};
    }
    free(noted);
}

static bool is_input(const struct graph *graph, const struct tape_region *region, uint32_t storage)
{
    for (uint32_t i = 0; i < region->input_count; i++)
        if (graph->tensors[region->inputs[i].tensor].storage == storage)
            return true;
    return false;
}

/* Where nothing says what is given out, it is what Python has then and had not before: of each
 * storage the first tensor that is all of it. */
static void find_outputs(const struct tape *tape, struct tape_region *region)
{
    const struct graph *graph = tape->graph;
    bool *noted = xcalloc(graph->storage_count + 1, sizeof *noted);
    region->outputs = xcalloc(graph->storage_count + 1, sizeof *region->outputs);
    for (uint32_t i = 0; i < graph->tensor_count; i++) {
        const uint32_t storage = graph->tensors[i].storage;
        if (noted[storage] || !tape->python[storage] || !tape_is_activation(tape, i) ||
            is_input(graph, region, storage))
            continue;
        noted[storage] = true;
        region->outputs[region->output_count++] = (struct tape_output){i, NO_BUFFER, NO_BUFFER};
    }
    free(noted);
}

static void note_outputs(const struct tape *tape, struct tape_region *region)
{
    if (region->output_count == 0)
        find_outputs(tape, region);
    for (uint32_t i = 0; i < region->output_count; i++)
        region->outputs[i].buffer = tape_buffer(tape, region->outputs[i].tensor);
}

static uint32_t slot_of(const struct tape *tape, uint32_t tensor)
{
    return tape->slot[tape->root[tensor]];
}

static void note_before(const struct tape *tape, struct tape_region *region)
{
    for (uint32_t i = 0; i < region->input_count; i++)
        region->shared |= slot_of(tape, region->inputs[i].tensor) != NO_BUFFER;
    for (uint32_t i = 0; i < region->output_count; i++)
        region->outputs[i].gradient = slot_of(tape, region->outputs[i].tensor);
}

static void note_given(const struct tape *tape, struct tape_region *region)
{
    region->given = xcalloc(region->input_count + 1, sizeof *region->given);
    for (uint32_t i = 0; i < region->input_count; i++) {
        const uint32_t root = tape->root[region->inputs[i].tensor];
        if (tape->slot[root] != NO_BUFFER)
            region->given[region->given_count++] =
                (struct tape_border){root, tape->slot[root], true};
    }
}

static void run_forward(struct tape *tape, struct tape_regions *out)
{
    struct tape_region *region = out->of, *const end = out->of + out->count;
    for (uint32_t i = 0; i < tape->graph->item_count; i++) {
        if (region < end && i == region->first_item) {
            region->forward_first = tape->stream->step_count;
            note_inputs(tape, region);
        }
        if (region < end && i == region->end_item) {
            region->forward_end = tape->stream->step_count;
            note_outputs(tape, region);
            region++;
        }
        tape_forward_item(tape, tape->graph->items[i]);
    }
    assert(region == end);
}

static void run_backward(struct tape *tape, struct tape_regions *out)
{
    struct tape_region *region = out->of + out->count;
    for (uint32_t i = tape->graph->item_count; i-- > 0;) {
        if (region > out->of && i + 1 == region[-1].end_item) {
            region--;
            note_before(tape, region);
            region->backward_first = tape->stream->step_count;
        }
        tape_backward_item(tape, tape->graph->items[i]);
        if (region < out->of + out->count && i == region->first_item) {
            region->backward_end = tape->stream->step_count;
            note_given(tape, region);
        }
    }
}

void tape_run_regions(const struct graph *graph, const struct tape_options *options,
                      struct tape_regions *out)
{
    const struct tape_options eager = {.input_nodes = options->input_nodes};
    struct tape tape;
    *out = (struct tape_regions){0};
    find_regions(graph, options, out);
    tape_open(&tape, graph, &eager);
    run_forward(&tape, out);
    tape_begin_backward(&tape);
    run_backward(&tape, out);
    tape_end_backward(&tape);
    out->stream = tape_close(&tape);
}

void tape_regions_free(struct tape_regions *regions)
{
    for (uint32_t i = 0; i < regions->count; i++) {
        free(regions->of[i].inputs);
        free(regions->of[i].outputs);
        free(regions->of[i].given);
    }
    free(regions->of);
    stream_free(regions->stream);
    *regions = (struct tape_regions){0};
}

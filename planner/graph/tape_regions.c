/* tape_regions.c - see tape_regions.h. */
#include "graph/tape_regions.h"

#include "graph/tape_emit.h"
#include "graph/tape_state.h"

#include <stdlib.h>

static bool is_block(const struct graph *graph, struct graph_item item)
{
    return graph->modules[item.arg].role == ROLE_BLOCK;
}

/* The first tensor of each storage that Python has now. */
static void note_inputs(const struct tape *tape, struct tape_region *region)
{
    const struct graph *graph = tape->graph;
    const struct graph_module *module = &graph->modules[region->module];
    bool *noted = xcalloc(graph->storage_count + 1, sizeof *noted);
    region->inputs = xcalloc(graph->storage_count + 1, sizeof *region->inputs);
    for (uint32_t i = 0; i < module->inputs; i++) {
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

static struct tape_region *region_of(struct tape_regions *regions, uint32_t module)
{
    for (uint32_t i = 0; i < regions->count; i++)
        if (regions->of[i].module == module)
            return &regions->of[i];
    return NULL;
}

static void forward_item(struct tape *tape, struct tape_regions *out, struct graph_item item)
{
    if (item.kind == ITEM_EXIT && is_block(tape->graph, item)) {
        struct tape_region *region = region_of(out, item.arg);
        const uint32_t output = tape->graph->modules[item.arg].output;
        region->forward_end = tape->stream->step_count;
        region->output = (struct tape_border){output, tape_buffer(tape, output), true};
    }
    tape_forward_item(tape, item);
    if (item.kind == ITEM_ENTER && is_block(tape->graph, item)) {
        struct tape_region *region = &out->of[out->count++];
        *region = (struct tape_region){.module = item.arg, .gradient = NO_BUFFER};
        region->forward_first = tape->stream->step_count;
        note_inputs(tape, region);
    }
}

static uint32_t slot_of(const struct tape *tape, uint32_t tensor)
{
    return tape->slot[tape->root[tensor]];
}

static void note_before(const struct tape *tape, struct tape_region *region)
{
    for (uint32_t i = 0; i < region->input_count; i++)
        region->shared |= slot_of(tape, region->inputs[i].tensor) != NO_BUFFER;
    region->gradient = slot_of(tape, region->output.tensor);
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

static void backward_item(struct tape *tape, struct tape_regions *out, struct graph_item item)
{
    struct tape_region *region =
        (item.kind == ITEM_ENTER || item.kind == ITEM_EXIT) ? region_of(out, item.arg) : NULL;
    if (region && item.kind == ITEM_EXIT)
        note_before(tape, region);
    if (region && item.kind == ITEM_ENTER) {
        region->backward_end = tape->stream->step_count;
        note_given(tape, region);
    }
    tape_backward_item(tape, item);
    if (region && item.kind == ITEM_EXIT)
        region->backward_first = tape->stream->step_count;
}

void tape_run_regions(const struct graph *graph, const struct tape_options *options,
                      struct tape_regions *out)
{
    const struct tape_options eager = {.input_nodes = options->input_nodes};
    struct tape tape;
    *out = (struct tape_regions){.of = xcalloc(graph->module_count + 1, sizeof *out->of)};
    tape_open(&tape, graph, &eager);
    for (uint32_t i = 0; i < graph->item_count; i++)
        forward_item(&tape, out, graph->items[i]);
    tape_begin_backward(&tape);
    for (uint32_t i = graph->item_count; i-- > 0;)
        backward_item(&tape, out, graph->items[i]);
    tape_end_backward(&tape);
    out->stream = tape_close(&tape);
}

void tape_regions_free(struct tape_regions *regions)
{
    for (uint32_t i = 0; i < regions->count; i++) {
        free(regions->of[i].inputs);
        free(regions->of[i].given);
    }
    free(regions->of);
    stream_free(regions->stream);
    *regions = (struct tape_regions){0};
}

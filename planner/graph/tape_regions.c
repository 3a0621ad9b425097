/* tape_regions.c - see tape_regions.h. */
#include "graph/tape_regions.h"

#include "graph/bucket_parts.h"
#include "graph/frame_parts.h"
#include "graph/tape_emit.h"
#include "graph/tape_state.h"

#include <assert.h>
#include <stdlib.h>

/* ---- where they are in the script ---- */

static bool is_block(const struct graph *graph, struct graph_item item)
{
    return item.kind == ITEM_ENTER && graph->modules[item.arg].role == ROLE_BLOCK;
}

static bool is_head(const struct graph *graph, struct graph_item item)
{
    return item.kind == ITEM_ENTER && graph->modules[item.arg].role == ROLE_HEAD;
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

/* Whether a call of the region makes it. */
static bool makes(const struct graph *graph, const struct tape_region *region, uint32_t tensor)
{
    for (uint32_t i = region->first_item; i < region->end_item; i++) {
        const struct graph_op *op = &graph->ops[graph->items[i].arg];
        for (uint32_t k = 0; graph->items[i].kind == ITEM_OP && k < op->outs; k++)
            if (graph->tensors[op->out[k]].storage == graph->tensors[tensor].storage)
                return true;
    }
    return false;
}

/* A region as it is split. Room for its parts is in out->of. */
static void add_parts(const struct graph *graph, const struct tape_options *options,
                      struct tape_regions *out, struct tape_region whole, uint32_t output)
{
    uint32_t *cuts = xmalloc((whole.end_item - whole.first_item + 1) * sizeof *cuts);
    const uint32_t count = bucket_parts(graph, options, whole.first_item, whole.end_item, cuts);
    uint32_t begins = whole.first_item;
    for (uint32_t i = 0; i <= count; i++) {
        struct tape_region part = whole;
        part.first_item = begins;
        part.end_item = begins = i < count ? cuts[i] : whole.end_item;
        part.is_part = count > 0;
        part.is_last = i == count;
        for (uint32_t k = whole.first_item; whole.module == GRAPH_NONE && k < part.first_item; k++)
            part.block += graph->items[k].kind == ITEM_EXIT &&
                          graph->modules[graph->items[k].arg].role == ROLE_BLOCK;
        add_region(out, part, part.is_last ? output : GRAPH_NONE);
    }
    free(cuts);
}

/* What hooks of units within leave of a block. */
static void add_frame_parts(const struct graph *graph, struct tape_regions *out,
                            struct tape_region whole)
{
    struct frame_part *parts = xmalloc((whole.end_item - whole.first_item + 1) * sizeof *parts);
    const uint32_t output = graph->modules[whole.module].output,
                   count =
                       frame_parts(graph, whole.module, whole.first_item, whole.end_item, parts);
    for (uint32_t i = 0; i < count; i++) {
        struct tape_region part = whole;
        part.first_item = parts[i].first;
        part.end_item = parts[i].end;
        part.frame_end = parts[i].frame_end;
        part.is_part = true;
        part.is_last = i + 1 == count && makes(graph, &part, output);
        add_region(out, part, part.is_last ? output : GRAPH_NONE);
    }
    free(parts);
}

/* What is compiled of a block that is not; false: it is, all of it. */
static bool add_called(const struct graph *graph, const struct tape_options *options,
                       struct tape_regions *out, struct tape_region block)
{
    uint32_t first = GRAPH_NONE;
    for (uint32_t i = block.first_item; i < block.end_item; i++) {
        if (is_mark(graph->items[i], MARK_CALLED))
            first = i + 1;
        if (is_mark(graph->items[i], MARK_CALLED_END))
            add_parts(graph, options, out,
                      (struct tape_region){.module = GRAPH_NONE,
                                           .block = block.block,
                                           .is_frame = true,
                                           .is_called = true,
                                           .first_item = first,
                                           .end_item = i},
                      GRAPH_NONE);
    }
    return first != GRAPH_NONE;
}

static void add_block(const struct graph *graph, const struct tape_options *options,
                      struct tape_regions *out, struct tape_region block)
{
    if (add_called(graph, options, out, block))
        return;
    if (frame_parts_any(graph, block.module))
        add_frame_parts(graph, out, block);
    else
        add_parts(graph, options, out, block, graph->modules[block.module].output);
}

/* What was begun at *first ends before item `at`, and another begins behind it. */
static void break_graph(const struct graph *graph, const struct tape_options *options,
                        struct tape_regions *out, uint32_t at, uint32_t *first)
{
    const bool begun = *first != GRAPH_NONE; /* else it is outside of every frame */
    bool any = false;                        /* function: else there is no graph */
    for (uint32_t i = begun ? *first : at; i < at; i++)
        any |= graph->items[i].kind == ITEM_OP;
    if (any && (options->compiled == COMPILED_MODEL || options->compiled == COMPILED_FRAMES))
        add_parts(graph, options, out,
                  (struct tape_region){.module = GRAPH_NONE, .first_item = *first, .end_item = at},
                  GRAPH_NONE);
    *first = begun ? at + 1 : GRAPH_NONE;
}

/* Blocks are what is between their hooks, the model what its forward does. The loss is a function
 * of the logits and the targets, called once they exist. */
static void find_regions(const struct graph *graph, const struct tape_options *options,
                         struct tape_regions *out)
{
    const bool frames = options->compiled == COMPILED_FRAMES;
    uint32_t loss = GRAPH_NONE, frame = GRAPH_NONE, blocks = 0, model = 0;
    out->of = xcalloc(graph->item_count + 2UL, sizeof *out->of);
    for (uint32_t i = 0; i < graph->item_count; i++) {
        const struct graph_item item = graph->items[i];
        blocks += is_block(graph, item);
        if ((options->compiled == COMPILED_BLOCKS || frames) && is_block(graph, item))
            add_block(graph, options, out,
                      (struct tape_region){
                          .module = item.arg,
                          .block = blocks - 1,
                          .first_item = i + 1,
                          .end_item = end_of(graph, i, item.arg),
                      });
        if (options->compiled == COMPILED_MODEL && model != GRAPH_NONE &&
            (is_mark(item, MARK_ROOT_EXIT) || is_mark(item, MARK_RETURN))) {
            add_parts(
                graph, options, out,
                (struct tape_region){.module = GRAPH_NONE, .first_item = model, .end_item = i},
                GRAPH_NONE);
            model = GRAPH_NONE;
        }
        if (is_mark(item, MARK_BREAK))
            break_graph(graph, options, out, i, frames ? &frame : &model);
        if (is_mark(item, MARK_FRAME))
            frame = i + 1;
        if (frames && options->head_hooks && is_head(graph, item) && frame != GRAPH_NONE)
            frame = end_of(graph, i, item.arg) + 1; /* before it is a slice, which has no kernel */
        if (frames && is_mark(item, MARK_FRAME_END))
            add_parts(
                graph, options, out,
                (struct tape_region){
                    .module = GRAPH_NONE, .is_frame = true, .first_item = frame, .end_item = i},
                GRAPH_NONE);
        if (is_mark(item, MARK_FRAME_END))
            frame = GRAPH_NONE;
        if (is_mark(item, MARK_LOGITS))
            loss = i + 1;
        if (options->compiled_loss && is_mark(item, MARK_LOSS))
            add_region(
                out,
                (struct tape_region){
                    .module = GRAPH_NONE, .is_last = true, .first_item = loss, .end_item = i},
                graph->loss);
    }
}

/* ---- what goes over their borders ---- */

/* (storages) Which tensor of each the first call from an item on is given: its root, whose gradient
 * comes back; GRAPH_NONE: none. The caller frees it. */
static uint32_t *find_given(const struct tape *tape, uint32_t first)
{
    const struct graph *graph = tape->graph;
    uint32_t *given = xmalloc((graph->storage_count + 1) * sizeof *given);
    for (uint32_t i = 0; i < graph->storage_count; i++)
        given[i] = GRAPH_NONE;
    for (uint32_t i = first; i < graph->item_count; i++) {
        const struct graph_op *op = &graph->ops[graph->items[i].arg];
        for (uint32_t k = 0; graph->items[i].kind == ITEM_OP && k < op->ins; k++) {
            const uint32_t root = op->in[k] == GRAPH_NONE ? GRAPH_NONE : tape->root[op->in[k]];
            if (root == GRAPH_NONE)
                continue;
            uint32_t *of = &given[graph->tensors[root].storage];
            *of = *of == GRAPH_NONE ? root : *of;
        }
    }
    return given;
}

/* Between parts go the views that are used behind: they have gradients of their own. So has what
 * was written in place before a function is called with it. */
static uint32_t as_given(const struct tape *tape, const struct tape_region *region,
                         const uint32_t *given, uint32_t tensor)
{
    const struct graph_tensor *tensors = tape->graph->tensors;
    const uint32_t other = given[tensors[tensor].storage];
    if (other == GRAPH_NONE || !(region->is_part || region->is_frame))
        return tensor;
    const bool whole =
        shape_elements(&tensors[other].shape) == shape_elements(&tensors[tensor].shape);
    return region->is_part || whole ? other : tensor;
}

/* The first tensor of each storage that Python has now. */
static void note_inputs(const struct tape *tape, struct tape_region *region)
{
    const struct graph *graph = tape->graph;
    const struct graph_module *module =
        region->module == GRAPH_NONE ? NULL : &graph->modules[region->module];
    bool *noted = xcalloc(graph->storage_count + 1, sizeof *noted);
    uint32_t *given = find_given(tape, region->first_item);
    region->inputs = xcalloc(graph->storage_count + 1, sizeof *region->inputs);
    for (uint32_t i = 0; module && i < module->inputs; i++) {
        const struct graph_tensor *t = &graph->tensors[module->input[i]];
        if (noted[t->storage] || !tape_is_activation(tape, module->input[i]))
            continue;
        noted[t->storage] = true;
        region->inputs[region->input_count++] =
            (struct tape_border){module->input[i], tape->where[t->storage], .activation = true};
    }
    for (uint32_t i = 0; i < graph->tensor_count; i++) {
        const uint32_t storage = graph->tensors[i].storage;
        if (noted[storage] || !tape->python[storage])
            continue;
        noted[storage] = true;
        region->inputs[region->input_count++] = (struct tape_border){
            as_given(tape, region, given, i), tape->where[storage], .activation = true};
    }
    free(given);
    free(noted);
}

static bool is_input(const struct graph *graph, const struct tape_region *region, uint32_t storage)
{
    for (uint32_t i = 0; i < region->input_count; i++)
        if (graph->tensors[region->inputs[i].tensor].storage == storage)
            return true;
    return false;
}

/* (storages) Behind the last item that is a call given something in it; 0: there is none. */
static uint32_t *find_last_uses(const struct graph *graph)
{
    uint32_t *last = xcalloc(graph->storage_count + 1, sizeof *last);
    for (uint32_t i = 0; i < graph->item_count; i++) {
        const struct graph_op *op = &graph->ops[graph->items[i].arg];
        for (uint32_t k = 0; graph->items[i].kind == ITEM_OP && k < op->ins; k++)
            if (op->in[k] != GRAPH_NONE)
                last[graph->tensors[op->in[k]].storage] = i + 1;
    }
    return last;
}

/* Casts that autocast makes for a function while it is traced are kept for no other. */
static bool is_own_cast(const struct graph *graph, const struct tape_region *region,
                        uint32_t storage)
{
    return region->is_called && graph->ops[graph->storages[storage].index].of_autocast;
}

/* Where nothing says what is given out, it is what Python has then and had not before: of each
 * storage the first tensor that is all of it. Of a part, what others are called with. */
static void find_outputs(const struct tape *tape, const uint32_t *last_uses,
                         struct tape_region *region)
{
    const struct graph *graph = tape->graph;
    bool *noted = xcalloc(graph->storage_count + 1, sizeof *noted);
    uint32_t *given = find_given(tape, region->end_item);
    region->outputs = xcalloc(graph->storage_count + 1, sizeof *region->outputs);
    for (uint32_t i = 0; i < graph->tensor_count; i++) {
        const uint32_t storage = graph->tensors[i].storage;
        if (noted[storage] || !tape->python[storage] || !tape_is_activation(tape, i) ||
            is_input(graph, region, storage) || is_own_cast(graph, region, storage))
            continue;
        noted[storage] = true;
        if (!region->is_last && last_uses[storage] <= region->end_item)
            continue;
        region->outputs[region->output_count++] = (struct tape_output){
            region->is_last ? i : as_given(tape, region, given, i), NO_BUFFER, NO_BUFFER};
    }
    free(given);
    free(noted);
}

static void note_outputs(const struct tape *tape, const uint32_t *last_uses,
                         struct tape_region *region)
{
    if (region->output_count == 0)
        find_outputs(tape, last_uses, region);
    for (uint32_t i = 0; i < region->output_count; i++)
        region->outputs[i].buffer = tape_buffer(tape, region->outputs[i].tensor);
}

static uint32_t slot_of(const struct tape *tape, uint32_t tensor)
{
    return tape->slot[tape->root[tensor]];
}

static void zero_gradients(struct tape *tape, const struct tape_region *region)
{
    uint32_t *tensors = xmalloc((region->output_count + 1) * sizeof *tensors);
    for (uint32_t i = 0; i < region->output_count; i++)
        tensors[i] = region->outputs[i].tensor;
    tape_zero_gradients(tape, region->output_count, tensors);
    free(tensors);
}

/* Whether any call of the region is given something of the tensor's storage. */
static bool reads(const struct graph *graph, const struct tape_region *region, uint32_t tensor)
{
    for (uint32_t i = region->first_item; i < region->end_item; i++) {
        const struct graph_op *op = &graph->ops[graph->items[i].arg];
        for (uint32_t k = 0; graph->items[i].kind == ITEM_OP && k < op->ins; k++)
            if (op->in[k] != GRAPH_NONE &&
                graph->tensors[op->in[k]].storage == graph->tensors[tensor].storage)
                return true;
    }
    return false;
}

/* Whether others may be called with what it is called with. */
static bool has_others(const struct tape_region *region)
{
    return region->is_part || region->is_called;
}

static void note_before(const struct tape *tape, struct tape_region *region)
{
    bool any = false; /* of what Python has while the graph runs, others may have gradients */
    for (uint32_t i = 0; i < region->output_count; i++) {
        region->outputs[i].gradient = slot_of(tape, region->outputs[i].tensor);
        any |= region->outputs[i].gradient != NO_BUFFER;
    }
    for (uint32_t i = 0; any && i < region->input_count && !has_others(region); i++)
        region->shared |= slot_of(tape, region->inputs[i].tensor) != NO_BUFFER &&
                          reads(tape->graph, region, region->inputs[i].tensor);
}

/* Whether a parameter may have gradients from elsewhere, too: blocks have theirs alone. */
static bool shares_params(const struct tape_region *region)
{
    return region->is_part || region->module == GRAPH_NONE;
}

static void note_given(const struct tape *tape, struct tape_region *region)
{
    const struct graph *graph = tape->graph;
    region->given = xcalloc(region->input_count + graph->param_count + 1, sizeof *region->given);
    for (uint32_t p = 0; shares_params(region) && p < graph->param_count; p++)
        if (slot_of(tape, graph->params[p].tensor) != NO_BUFFER)
            region->given[region->given_count++] =
                (struct tape_border){graph->params[p].tensor,
                                     slot_of(tape, graph->params[p].tensor), .activation = false};
    for (uint32_t i = 0; i < region->input_count; i++) {
        const uint32_t root = tape->root[region->inputs[i].tensor];
        if (tape->slot[root] != NO_BUFFER)
            region->given[region->given_count++] =
                (struct tape_border){root, tape->slot[root], .activation = true};
    }
}

/* ---- parts ---- */

struct aside { /* a gradient that parts behind have given */
    uint32_t root, buffer;
    struct slice part;
};
struct asides {
    struct aside *of;
    uint32_t count;
};

static void put_aside(struct tape *tape, uint32_t tensor, struct asides *out)
{
    const uint32_t root = tape->root[tensor];
    if (tape->slot[root] == NO_BUFFER)
        return;
    out->of[out->count++] = (struct aside){root, tape->slot[root], tape->part[root]};
    tape->slot[root] = NO_BUFFER;
}

/* Each part gives its own gradient of what several are called with: the engine adds them up,
 * outside of all parts. */
static struct asides put_gradients_aside(struct tape *tape, const struct tape_region *region)
{
    const uint32_t params = tape->graph->param_count;
    struct asides out = {xcalloc(region->input_count + params + 1, sizeof *out.of), 0};
    for (uint32_t i = 0; has_others(region) && i < region->input_count; i++)
        put_aside(tape, region->inputs[i].tensor, &out);
    for (uint32_t p = 0; shares_params(region) && p < params; p++)
        put_aside(tape, tape->graph->params[p].tensor, &out);
    return out;
}

static bool is_complete(const struct tape *tape, uint32_t root)
{
    const struct graph_storage *s = &tape->graph->storages[tape->graph->tensors[root].storage];
    return s->kind == STORAGE_PARAM && tape->param_uses[s->index] == 0;
}

/* What they add up to is as either of them is. */
static void take_back(struct tape *tape, struct asides *asides)
{
    for (uint32_t i = 0; i < asides->count; i++) {
        const struct aside *aside = &asides->of[i];
        if (tape->slot[aside->root] != NO_BUFFER || is_complete(tape, aside->root)) {
            tape_release(tape, aside->buffer);
            continue;
        }
        tape->slot[aside->root] = aside->buffer;
        tape->part[aside->root] = aside->part;
    }
    free(asides->of);
}

/* ---- running it ---- */

static void run_forward(struct tape *tape, const uint32_t *last_uses, struct tape_regions *out)
{
    struct tape_region *region = out->of, *const end = out->of + out->count;
    for (uint32_t i = 0; i < tape->graph->item_count; i++) {
        if (region < end && i == region->end_item) {
            region->forward_end = tape->stream->step_count;
            note_outputs(tape, last_uses, region);
            region++;
        }
        if (region < end && i == region->first_item) {
            region->forward_first = tape->stream->step_count;
            note_inputs(tape, region);
        }
        tape_forward_item(tape, tape->graph->items[i]);
    }
    assert(region == end);
}

static void run_backward(struct tape *tape, struct tape_regions *out)
{
    struct tape_region *region = out->of + out->count;
    struct asides asides = {0};
    for (uint32_t i = tape->graph->item_count; i-- > 0;) {
        if (region > out->of && i + 1 == region[-1].end_item) {
            region--;
            asides = put_gradients_aside(tape, region);
            zero_gradients(tape, region);
            note_before(tape, region);
            region->backward_first = tape->stream->step_count;
        }
        tape_backward_item(tape, tape->graph->items[i]);
        if (region < out->of + out->count && i == region->first_item) {
            region->backward_end = tape->stream->step_count;
            note_given(tape, region);
            take_back(tape, &asides);
        }
    }
}

/* What one part gives to others goes with the last of them. */
static void find_let_go(const struct graph *graph, const uint32_t *last_uses,
                        struct tape_regions *out)
{
    uint32_t *crossing = xmalloc((graph->storage_count + 1) * sizeof *crossing), count = 0;
    for (uint32_t k = 0; k < out->count; k++) {
        struct tape_region *region = &out->of[k];
        region->lets_go = xcalloc(count + 1, sizeof *region->lets_go);
        for (uint32_t i = 0; i < count && !region->frame_end; i++)
            if (last_uses[crossing[i]] > region->first_item &&
                last_uses[crossing[i]] <= region->end_item)
                region->lets_go[region->let_go_count++] = crossing[i];
        count = region->is_last ? 0 : count;
        for (uint32_t i = 0; i < region->output_count && !region->is_last && !region->frame_end;
             i++)
            crossing[count++] = graph->tensors[region->outputs[i].tensor].storage;
    }
    free(crossing);
}

static bool is_of(const struct graph *graph, uint32_t tensor, uint32_t root)
{
    return graph->tensors[tensor].root == root;
}

/* Whether a part between what makes a tensor and this one is called with it, too, or with what
 * comes of the same part. */
static bool is_later(const struct graph *graph, const struct tape_regions *regions, uint32_t part,
                     uint32_t tensor)
{
    const uint32_t root = graph->tensors[tensor].root;
    for (uint32_t k = part; k-- > 0 && !regions->of[k].is_last;) {
        const struct tape_region *before = &regions->of[k];
        for (uint32_t i = 0; i < before->output_count; i++)
            if (is_of(graph, before->outputs[i].tensor, root))
                return k + 1 < part;
        for (uint32_t i = 0; i < before->argument_count; i++)
            if (before->arguments[i] == root)
                return true;
    }
    return false;
}

/* Whether what is eager passed a tensor to others before it called the region. */
static bool is_passed_before(const struct graph *graph, const struct tape_region *region,
                             uint32_t tensor)
{
    const uint32_t root = graph->tensors[tensor].root;
    for (uint32_t i = region->first_item; i-- > 0;) {
        const struct graph_op *op = &graph->ops[graph->items[i].arg];
        if (graph->items[i].kind != ITEM_OP)
            continue;
        for (uint32_t k = 0; k < op->outs; k++)
            if (is_of(graph, op->out[k], root))
                return false;
        for (uint32_t k = 0; k < op->ins; k++)
            if (op->requires_grad && op->in[k] != GRAPH_NONE && is_of(graph, op->in[k], root))
                return true;
    }
    return false;
}

static void find_later(const struct graph *graph, struct tape_regions *out)
{
    for (uint32_t k = 0; k < out->count; k++)
        for (uint32_t i = 0; out->of[k].is_part && i < out->of[k].given_count; i++)
            out->of[k].given[i].later = is_later(graph, out, k, out->of[k].given[i].tensor);
    for (uint32_t k = 0; k < out->count; k++)
        for (uint32_t i = 0; out->of[k].is_called && i < out->of[k].given_count; i++)
            out->of[k].given[i].later =
                is_passed_before(graph, &out->of[k], out->of[k].given[i].tensor);
}

static void find_arguments(const struct graph *graph, struct tape_regions *out)
{
    for (uint32_t k = 0; k < out->count; k++) {
        struct tape_region *region = &out->of[k];
        region->arguments = xmalloc((graph->tensor_count + 1) * sizeof *region->arguments);
        region->argument_count =
            bucket_arguments(graph, region->first_item, region->end_item, region->arguments);
    }
}

void tape_run_regions(const struct graph *graph, const struct tape_options *options,
                      struct tape_regions *out)
{
    const struct tape_options eager = {.input_nodes = options->input_nodes};
    struct tape tape;
    uint32_t *last_uses = find_last_uses(graph);
    *out = (struct tape_regions){0};
    find_regions(graph, options, out);
    tape_open(&tape, graph, &eager);
    run_forward(&tape, last_uses, out);
    tape_begin_backward(&tape);
    run_backward(&tape, out);
    tape_end_backward(&tape);
    out->stream = tape_close(&tape);
    find_arguments(graph, out);
    find_later(graph, out);
    find_let_go(graph, last_uses, out);
    free(last_uses);
}

void tape_regions_free(struct tape_regions *regions)
{
    for (uint32_t i = 0; i < regions->count; i++) {
        free(regions->of[i].inputs);
        free(regions->of[i].outputs);
        free(regions->of[i].given);
        free(regions->of[i].arguments);
        free(regions->of[i].lets_go);
    }
    free(regions->of);
    stream_free(regions->stream);
    *regions = (struct tape_regions){0};
}

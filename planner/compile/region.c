/* region.c - see region.h. */
#include "compile/region.h"

#include "base/arena.h"

#include <stdlib.h>
#include <string.h>

struct tracing {
    const struct graph *graph;
    const struct stream *stream;
    const struct tape_region *region;
    const enum joint_checkpoint *blocks; /* how each is checkpointed; NULL: none is */
    struct compiled_region *out;
    uint32_t next_block, block_begins; /* the latter: a node */
};

static void end_block(struct tracing *t)
{
    const uint32_t block = t->next_block++;
    if (t->blocks)
        joint_checkpoint(t->out->joint, t->blocks[block], t->block_begins,
                         joint_count(t->out->joint), (uint16_t)(block + 1),
                         t->stream->kernels->kernels);
}

static void note_border(struct tracing *t, const struct stream_step *step)
{
    const bool hook = step->kind == STEP_PRE_FORWARD || step->kind == STEP_POST_FORWARD;
    if (!hook || step->arg == MODULE_ROOT || t->graph->modules[step->arg].role != ROLE_BLOCK)
        return;
    if (step->kind == STEP_PRE_FORWARD)
        t->block_begins = joint_count(t->out->joint);
    else
        end_block(t);
}

static enum err_code add_kernels(struct tracing *t, uint32_t first, uint32_t end, struct err *err)
{
    for (uint32_t i = first; i < end; i++) {
        const struct stream_step *step = &t->stream->steps[i];
        note_border(t, step);
        if (step->kind == STEP_KERNEL)
            TRY(joint_kernel(t->out->joint, &t->stream->kernels->kernels[step->arg], step->arg,
                             err));
    }
    return ERR_OK;
}

static uint32_t value_of(const struct graph *graph, struct joint *joint, uint32_t tensor,
                         uint32_t buffer)
{
    const struct graph_tensor *t = &graph->tensors[tensor];
    return joint_value(joint, buffer, t->shape, (enum dtype)t->dtype);
}

static void add_gradient(struct compiled_region *out, struct region_gradient gradient)
{
    if (gradient.node != JOINT_NONE)
        out->gradients[out->gradient_count++] = gradient;
}

static void find_gradients(const struct graph *graph, const struct stream *stream,
                           const struct tape_region *region, struct compiled_region *out)
{
    out->gradients = xcalloc(region->given_count + stream->grad_count + 1, sizeof *out->gradients);
    for (uint32_t i = region->backward_first; i < region->backward_end; i++) {
        if (stream->steps[i].kind != STEP_GRAD)
            continue;
        const struct stream_grad *grad = &stream->grads[stream->steps[i].arg];
        const uint32_t tensor = graph->params[grad->param].tensor;
        add_gradient(out,
                     (struct region_gradient){value_of(graph, out->joint, tensor, grad->buffer),
                                              true, false, grad->param});
    }
    for (uint32_t i = 0; i < region->given_count; i++) {
        const struct tape_border *given = &region->given[i];
        const struct graph_storage *of = &graph->storages[graph->tensors[given->tensor].storage];
        const bool of_param = of->kind == STORAGE_PARAM;
        add_gradient(out, (struct region_gradient){
                              value_of(graph, out->joint, given->tensor, given->buffer), of_param,
                              given->later, of_param ? of->index : given->tensor});
    }
}

/* ---- what is taken for a parameter ---- */

/* The node of a parameter's scale, where its weight comes in float8; JOINT_NONE: it does not. */
static uint32_t scale_of(const struct graph *graph, const struct joint *joint,
                         const struct joint_node *param)
{
    const uint32_t scale = graph->params[param->of & ~PLACE_MASK].scale;
    if (scale == GRAPH_NONE)
        return JOINT_NONE;
    const uint32_t index = graph->storages[graph->tensors[scale].storage].index;
    for (uint32_t i = 0; i < joint_count(joint); i++)
        if (joint_at(joint, i)->name == JOINT_INPUT &&
            joint_at(joint, i)->of == (PLACE_MODULE_BUFFER | index))
            return i;
    return JOINT_NONE;
}

struct arguments {  /* of the graph, nodes, as AOTAutograd has them: in the order of first use */
    uint32_t *of;   /* tensors in float8 taken apart, into their bits and their scale */
    bool *is_param; /* (whole) */
    uint32_t count, whole;
};

static bool is_param(const struct joint_node *node)
{
    return node->name == JOINT_INPUT && node->source == SOURCE_PARAM;
}

static void list_arguments(const struct graph *graph, const struct joint *joint,
                           struct arguments *out)
{
    const uint32_t nodes = joint_count(joint);
    uint32_t *scale = xmalloc((nodes + 1) * sizeof *scale); /* (nodes) of each; JOINT_NONE */
    bool *listed = xcalloc(nodes + 1, sizeof *listed);      /* (nodes) with its bits */
    out->of = xcalloc(nodes + 1, sizeof *out->of);
    out->is_param = xcalloc(nodes + 1, sizeof *out->is_param);
    for (uint32_t i = 0; i < nodes; i++) { /* a scale may be read before its bits are */
        const struct joint_node *n = joint_at(joint, i);
        scale[i] = is_param(n) ? scale_of(graph, joint, n) : JOINT_NONE;
        if (scale[i] != JOINT_NONE)
            listed[scale[i]] = true;
    }
    for (uint32_t i = 0; i < nodes; i++) {
        if (joint_at(joint, i)->name != JOINT_INPUT || listed[i])
            continue;
        out->is_param[out->whole++] = is_param(joint_at(joint, i));
        out->of[out->count++] = i;
        if (scale[i] != JOINT_NONE)
            out->of[out->count++] = scale[i];
    }
    free(scale);
    free(listed);
}

/* The partitioner of PyTorch 2.14 is told the places of parameters among the arguments before
 * tensors in float8 are taken apart, and reads them as places behind that (aot_stage2_partition:
 * fw_metadata.static_input_indices, which remap_unwrapped_subclass_arg_indices does not reach):
 * what is behind the first such tensors counts as activations do, and a copy of it that is nearer
 * to its use in backward is what is saved. */
static void mark_stays(const struct graph *graph, struct joint *joint)
{
    struct arguments args = {0};
    list_arguments(graph, joint, &args);
    for (uint32_t i = 0; i < args.count; i++)
        joint_stays(joint, args.of[i], i < args.whole && args.is_param[i]);
    free(args.of);
    free(args.is_param);
}

/* Whether a module's buffer is of the model, or of this block of it. */
static bool is_of(const struct graph *graph, uint32_t buffer, uint32_t module)
{
    for (uint32_t i = 0; i < graph->given_count && module != GRAPH_NONE; i++) {
        const struct graph_storage *storage = &graph->storages[graph->given[i]];
        if (storage->kind == STORAGE_BUFFER && storage->index == buffer)
            return storage->module == module;
    }
    return module == GRAPH_NONE;
}

/* Buffers of modules are where they are, as parameters are, but for who is called with them. */
static void mark_buffers(const struct graph *graph, struct joint *joint, uint32_t module)
{
    for (uint32_t i = 0; i < joint_count(joint); i++) {
        const struct joint_node *node = joint_at(joint, i);
        if (node->name == JOINT_INPUT && (node->of & PLACE_MASK) == PLACE_MODULE_BUFFER &&
            is_of(graph, node->of & ~(uint32_t)PLACE_MASK, module))
            joint_stays(joint, i, true);
    }
}

/* ---- the joint graph ---- */

static void add_gradients_in(const struct graph *graph, const struct tape_region *region,
                             struct compiled_region *out)
{
    for (uint32_t i = 0; i < region->output_count; i++) {
        const struct tape_output *output = &region->outputs[i];
        const struct graph_tensor *t = &graph->tensors[output->tensor];
        out->comes[i] = JOINT_NONE;
        if (output->gradient == GRAPH_NONE)
            continue;
        out->comes[i] = joint_input(out->joint, SOURCE_GRADIENT, output->gradient, t->shape,
                                    (enum dtype)t->dtype);
        out->has_backward = true;
    }
}

/* What a function is called with it has whole, also where it reads two halves (a table of cosines
 * and sines). */
static void add_buffers(const struct graph *graph, const struct tape_region *region,
                        struct joint *joint)
{
    bool *added = xcalloc(graph->storage_count + 1, sizeof *added);
    for (uint32_t i = region->first_item; region->is_called && i < region->end_item; i++) {
        const struct graph_op *op = &graph->ops[graph->items[i].arg];
        for (uint32_t k = 0; graph->items[i].kind == ITEM_OP && k < op->ins; k++) {
            const uint32_t storage =
                op->in[k] == GRAPH_NONE ? GRAPH_NONE : graph->tensors[op->in[k]].storage;
            if (storage == GRAPH_NONE || added[storage] ||
                graph->storages[storage].kind != STORAGE_BUFFER)
                continue;
            const struct graph_storage *s = &graph->storages[storage];
            added[storage] = true;
            joint_input(joint, SOURCE_INPUT, PLACE_MODULE_BUFFER | s->index, s->shape,
                        (enum dtype)s->dtype);
        }
    }
    free(added);
}

static enum err_code trace(struct tracing *t, struct err *err)
{
    const struct graph *graph = t->graph;
    const struct tape_region *region = t->region;
    struct compiled_region *out = t->out;
    for (uint32_t i = 0; i < region->input_count; i++) {
        const struct graph_tensor *x = &graph->tensors[region->inputs[i].tensor];
        joint_input(out->joint, SOURCE_INPUT, region->inputs[i].buffer, x->shape,
                    (enum dtype)x->dtype);
    }
    add_buffers(graph, region, out->joint);
    TRY(add_kernels(t, region->forward_first, region->forward_end, err));
    if (!region->is_frame)
        mark_buffers(graph, out->joint, region->module);
    if (graph->float8_gather)
        mark_stays(graph, out->joint);
    for (uint32_t i = 0; i < region->output_count; i++)
        out->results[i] =
            value_of(graph, out->joint, region->outputs[i].tensor, region->outputs[i].buffer);
    if (region->module != GRAPH_NONE)
        end_block(t);
    joint_begin_backward(out->joint);
    add_gradients_in(graph, region, out);
    if (!out->has_backward)
        return ERR_OK;
    TRY(add_kernels(t, region->backward_first, region->backward_end, err));
    find_gradients(graph, t->stream, region, out);
    return ERR_OK;
}

static uint32_t *nodes_of_gradients(const struct compiled_region *region)
{
    uint32_t *nodes = xcalloc(region->gradient_count + 1, sizeof *nodes);
    for (uint32_t i = 0; i < region->gradient_count; i++)
        nodes[i] = region->gradients[i].node;
    return nodes;
}

static void mark_homes(const struct joint *joint, const uint32_t *nodes, uint32_t count,
                       bool *marks)
{
    for (uint32_t i = 0; i < count; i++)
        if (nodes[i] != JOINT_NONE)
            marks[program_home(joint, nodes[i])] = true;
}

static void mark(const uint32_t *nodes, uint32_t count, bool *marks)
{
    for (uint32_t i = 0; i < count; i++)
        if (nodes[i] != JOINT_NONE)
            marks[nodes[i]] = true;
}

/* "remove_noop_ops" (post_grad.py): what changes nothing is left out, but where results would share
 * memory then that they did not share. */
static void leave_out_nothings(const struct compiled_region *region, const uint32_t *gradients)
{
    struct joint *joint = region->joint;
    const uint32_t count = joint_count(joint);
    bool *given = xcalloc(count + 1, sizeof *given), *leave = xcalloc(count + 1, sizeof *leave);
    mark_homes(joint, region->results, region->result_count, given);
    mark_homes(joint, region->partition.saved, region->partition.saved_count, given);
    mark_homes(joint, gradients, region->gradient_count, given);
    for (uint32_t i = 0; i < count; i++) {
        if (!joint_is_nothing(joint, i))
            continue;
        const uint32_t from = program_home(joint, joint_at(joint, i)->arg[0]);
        leave[i] = !given[i] || !(given[from] || joint_at(joint, from)->name == JOINT_INPUT);
    }
    for (uint32_t i = 0; i < count; i++)
        if (leave[i])
            joint_leave_out(joint, i);
    free(given);
    free(leave);
}

static void add_to_products(const struct compiled_region *region, const uint32_t *gradients)
{
    const uint32_t count = joint_count(region->joint);
    bool *kept = xcalloc(count + 1, sizeof *kept), *lives = xcalloc(count + 1, sizeof *lives);
    mark(region->results, region->result_count, kept);
    mark(region->partition.saved, region->partition.saved_count, kept);
    mark(gradients, region->gradient_count, kept);
    memcpy(lives, kept, count * sizeof *lives);
    for (uint32_t i = count; i-- > 0;)
        for (uint32_t a = 0; lives[i] && a < joint_at(region->joint, i)->args; a++)
            lives[joint_at(region->joint, i)->arg[a]] = true;
    joint_add_to_products(region->joint, lives, kept);
    free(kept);
    free(lives);
}

static enum err_code split(struct compiled_region *out, struct err *err)
{
    uint32_t *gradients = nodes_of_gradients(out);
    const enum err_code rc = partition_of(out->joint, out->result_count, out->results,
                                          out->gradient_count, gradients, &out->partition, err);
    if (rc == ERR_OK) {
        leave_out_nothings(out, gradients);
        add_to_products(out, gradients);
    }
    struct program_wants wants = {.saved = out->partition.saved,
                                  .saved_count = out->partition.saved_count,
                                  .results = out->results,
                                  .result_count = out->result_count};
    if (rc == ERR_OK)
        out->forward = program_of(out->joint, &wants);
    wants.held = out->results;
    wants.held_count = out->result_count;
    wants.results = gradients;
    wants.result_count = out->gradient_count;
    wants.backward = true;
    if (rc == ERR_OK && out->has_backward)
        out->backward = program_of(out->joint, &wants);
    free(gradients);
    return rc;
}

static void merge(const struct compiled_region *region)
{
    uint32_t *gradients = nodes_of_gradients(region);
    joint_merge(region->joint, region->result_count, region->results, region->gradient_count,
                gradients);
    free(gradients);
}

enum err_code compiled_region_trace(const struct graph *graph, const struct tape_regions *regions,
                                    const struct tape_region *region,
                                    const enum joint_checkpoint *blocks,
                                    struct compiled_region *out, struct err *err)
{
    *out = (struct compiled_region){.joint = joint_new(), .result_count = region->output_count};
    out->results = xcalloc(region->output_count + 1, sizeof *out->results);
    out->comes = xcalloc(region->output_count + 1, sizeof *out->comes);
    if (region->shared)
        return err_set(err, ERR_UNSUPPORTED,
                       "--compile: what a block is called with has a gradient from elsewhere, too");
    struct tracing t = {.graph = graph,
                        .stream = regions->stream,
                        .region = region,
                        .blocks = blocks,
                        .out = out,
                        .next_block = region->block};
    TRY(trace(&t, err));
    merge(out);
    return ERR_OK;
}

enum err_code compiled_region_finish(struct compiled_region *region, struct err *err)
{
    return region->like ? ERR_OK : split(region, err);
}

static bool same_nodes(const struct joint *x, const struct joint *y)
{
    bool same = joint_count(x) == joint_count(y);
    for (uint32_t i = 0; same && i < joint_count(x); i++)
        same = joint_is_alike(joint_at(x, i), joint_at(y, i));
    return same;
}

bool compiled_region_is_like(const struct compiled_region *x, const struct compiled_region *y)
{
    bool same = x->result_count == y->result_count && x->gradient_count == y->gradient_count &&
                same_nodes(x->joint, y->joint);
    for (uint32_t i = 0; same && i < x->result_count; i++)
        same = x->results[i] == y->results[i] && x->comes[i] == y->comes[i];
    for (uint32_t i = 0; same && i < x->gradient_count; i++)
        same = x->gradients[i].node == y->gradients[i].node;
    return same;
}

void compiled_region_free(struct compiled_region *region)
{
    joint_free(region->joint);
    partition_free(&region->partition);
    program_free(region->forward);
    program_free(region->backward);
    free(region->gradients);
    free(region->results);
    free(region->comes);
    *region = (struct compiled_region){0};
}

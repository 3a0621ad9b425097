/* region.c - see region.h. */
#include "compile/region.h"

#include "base/arena.h"

#include <stdlib.h>

static enum err_code add_kernels(const struct stream *stream, uint32_t first, uint32_t end,
                                 struct joint *joint, struct err *err)
{
    for (uint32_t i = first; i < end; i++)
        if (stream->steps[i].kind == STEP_KERNEL)
            TRY(joint_kernel(joint, &stream->kernels->kernels[stream->steps[i].arg],
                             stream->steps[i].arg, err));
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
    if (gradient.node == JOINT_NONE)
        return;
    for (uint32_t i = 0; i < out->gradient_count; i++)
        if (program_home(out->joint, out->gradients[i].node) ==
            program_home(out->joint, gradient.node)) {
            gradient.node = joint_apart(out->joint, gradient.node);
            break;
        }
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
                                              true, grad->param});
    }
    for (uint32_t i = 0; i < region->given_count; i++) {
        const struct tape_border *given = &region->given[i];
        add_gradient(
            out, (struct region_gradient){value_of(graph, out->joint, given->tensor, given->buffer),
                                          false, given->tensor});
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

/* ---- the joint graph ---- */

static enum err_code trace(const struct graph *graph, const struct tape_regions *regions,
                           const struct tape_region *region, struct compiled_region *out,
                           struct err *err)
{
    const struct stream *stream = regions->stream;
    for (uint32_t i = 0; i < region->input_count; i++) {
        const struct graph_tensor *t = &graph->tensors[region->inputs[i].tensor];
        joint_input(out->joint, SOURCE_INPUT, region->inputs[i].buffer, t->shape,
                    (enum dtype)t->dtype);
    }
    TRY(add_kernels(stream, region->forward_first, region->forward_end, out->joint, err));
    if (graph->float8_gather)
        mark_stays(graph, out->joint);
    out->result = value_of(graph, out->joint, region->output.tensor, region->output.buffer);
    joint_begin_backward(out->joint);
    if (region->gradient == GRAPH_NONE)
        return ERR_OK;
    const struct graph_tensor *t = &graph->tensors[region->output.tensor];
    out->gradient =
        joint_input(out->joint, SOURCE_GRADIENT, region->gradient, t->shape, (enum dtype)t->dtype);
    TRY(add_kernels(stream, region->backward_first, region->backward_end, out->joint, err));
    find_gradients(graph, stream, region, out);
    return ERR_OK;
}

static uint32_t *nodes_of_gradients(const struct compiled_region *region)
{
    uint32_t *nodes = xcalloc(region->gradient_count + 1, sizeof *nodes);
    for (uint32_t i = 0; i < region->gradient_count; i++)
        nodes[i] = region->gradients[i].node;
    return nodes;
}

static enum err_code split(struct compiled_region *out, struct err *err)
{
    uint32_t *gradients = nodes_of_gradients(out);
    const enum err_code rc = partition_of(out->joint, 1, &out->result, out->gradient_count,
                                          gradients, &out->partition, err);
    struct program_wants wants = {.saved = out->partition.saved,
                                  .saved_count = out->partition.saved_count,
                                  .results = &out->result,
                                  .result_count = 1};
    if (rc == ERR_OK)
        out->forward = program_of(out->joint, &wants);
    wants.results = gradients;
    wants.result_count = out->gradient_count;
    wants.backward = true;
    if (rc == ERR_OK && out->gradient != JOINT_NONE)
        out->backward = program_of(out->joint, &wants);
    free(gradients);
    return rc;
}

static void merge(const struct compiled_region *region)
{
    uint32_t *gradients = nodes_of_gradients(region);
    joint_merge(region->joint, 1, &region->result, region->gradient_count, gradients);
    free(gradients);
}

enum err_code compiled_region_trace(const struct graph *graph, const struct tape_regions *regions,
                                    const struct tape_region *region,
                                    enum joint_checkpoint checkpoint, struct compiled_region *out,
                                    struct err *err)
{
    *out = (struct compiled_region){.joint = joint_new(), .gradient = JOINT_NONE};
    if (region->shared)
        return err_set(err, ERR_UNSUPPORTED,
                       "--compile: what a block is called with has a gradient from elsewhere, too");
    TRY(trace(graph, regions, region, out, err));
    joint_checkpoint(out->joint, checkpoint, regions->stream->kernels->kernels);
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
    bool same = x->result == y->result && x->gradient == y->gradient &&
                x->gradient_count == y->gradient_count && same_nodes(x->joint, y->joint);
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
    *region = (struct compiled_region){0};
}

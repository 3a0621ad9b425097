/* attention.c - scaled_dot_product_attention as Hugging Face calls it (hf.h).
 *
 * Which kernel runs decides what is saved, and in which order of memory the gradients of q, k and
 * v come out, which decides what the views in front of it copy. Shapes are (b, s, a, d) as the
 * projections lay them out; PyTorch's own are (b, a, s, d), and so are its labels. */
#include "hf/hf.h"

#include "graph/autocast.h"

#include <math.h>

/* What cuDNN's kernel is given for minus infinity (convert_boolean_attn_mask_cudnn). */
static const float CUDNN_LEAST = -65504.0F;

/* sdpa_attention_forward leaves grouped heads to the kernel only then. */
static bool may_group(bool masked, uint32_t d)
{
    return !masked && d <= 256;
}

/* Whether a kernel for numbers of 16 bits that shares heads is there. */
static bool shares_heads(const struct graph *graph)
{
    return autocast_product(graph) != DTYPE_FP32 &&
           (graph->attention != ATTENTION_EFFICIENT ||
            torch_does(graph->torch, TORCH_EFFICIENT_SHARES_HEADS));
}

bool hf_copies_gradients(const struct graph *graph, const struct model_config *c, bool given)
{
    const bool masked = given && graph->attention != ATTENTION_FLASH_ATTN; /* its are of tokens */
    const bool half = shares_heads(graph);
    if (attention_is_composed(graph->attention))
        return false; /* by rule */
    const bool padded = half && may_group(masked, c->head_dim) && c->head_dim % 8 != 0;
    const bool grouped = c->heads != c->kv_heads;
    return padded || (grouped && (!half || !may_group(masked, c->head_dim)));
}

bool hf_copies_query_gradient(const struct graph *graph, const struct model_config *c, bool given)
{
    const bool masked = given && graph->attention != ATTENTION_FLASH_ATTN;
    const bool half = shares_heads(graph);
    if (attention_is_composed(graph->attention))
        return false; /* by rule */
    const bool padded = half && may_group(masked, c->head_dim) && c->head_dim % 8 != 0;
    const bool single_ops = !half && c->heads != c->kv_heads && may_group(masked, c->head_dim);
    return padded || single_ops;
}

uint32_t hf_heads(struct graph *graph, uint32_t x, struct shape shape, bool copied)
{
    const bool orders_differ = shape.dim[1] > 1 && shape.dim[2] > 1;
    return copied && orders_differ ? op_view_copied(graph, x, shape) : build_heads(graph, x, shape);
}

static struct shape shape4(const struct graph *graph, uint32_t x)
{
    return graph->tensors[x].shape;
}

/* (b, s, a, d) as (b, a, s, d) and back. */
static uint32_t transpose(struct graph *graph, uint32_t x)
{
    return graph_transpose(graph, x, 1, 2);
}

static uint32_t flash(struct graph *graph, const struct hf_attention *a)
{
    const struct shape s = shape4(graph, a->q);
    const uint32_t d = s.dim[3], padded = (d + 7) & ~7U;
    uint32_t in[3] = {a->q, a->k, a->v};
    autocast_attention_arguments(graph, op_attention_kind(graph), 3, in);
    for (uint32_t i = 0; i < 3 && padded != d; i++)
        in[i] = transpose(graph, op_pad_last(graph, transpose(graph, in[i]), padded));
    uint32_t out = op_attention(graph, in[0], in[1], in[2], !a->both_ways, a->dropout);
    const float root = 1 / sqrtf((float)d); /* whatever it is padded to */
    op_attention_scale(graph, out, padded != d && !(a->scale > 0) ? root : a->scale);
    for (uint32_t i = 0; i < 3 && padded != d; i++)
        graph_drop(graph, in[i]);
    if (padded == d && !(a->q_contiguous && s.dim[1] > 1 && s.dim[2] > 1))
        return out;
    if (padded != d)
        out = transpose(graph, op_slice_last(graph, transpose(graph, out), 0, d));
    const uint32_t copy = op_unary(graph, OP_CLONE, out); /* .transpose(1, 2).contiguous() */
    graph_drop(graph, out);
    return copy;
}

/* A bias whose rows the kernel wants aligned: padded, and sliced back to a view. `goes`: what was
 * there is let go of where it is another. */
static uint32_t aligned(struct graph *graph, uint32_t bias, bool goes)
{
    const struct shape s = shape4(graph, bias);
    const uint32_t width = s.dim[3];
    if (width % 8 == 0)
        return bias;
    const uint32_t padded =
        op_no_grad(graph, WORK_PAD, ATEN_CONSTANT_PAD, (enum dtype)graph->tensors[bias].dtype,
                   SHAPE(s.dim[0], s.dim[1], s.dim[2], (width + 7) & ~7U), 1, &bias);
    if (goes)
        graph_drop(graph, bias);
    return graph_slice(graph, padded, 0, width);
}

/* Heads are repeated by Python, since the kernel is not told to. */
static uint32_t biased(struct graph *graph, const struct hf_attention *a)
{
    const struct shape s = shape4(graph, a->q);
    const struct attention_asks asks = op_attention_asks(graph, a->q, a->v, a->mask, a->dropout);
    const bool cudnn = op_attention_kernel(graph, &asks) == ATTENTION_CUDNN;
    const uint32_t k = hf_repeat_heads(graph, a->k, s.dim[2]),
                   v = hf_repeat_heads(graph, a->v, s.dim[2]);
    uint32_t in[3] = {a->q, transpose(graph, k), transpose(graph, v)}, bias = GRAPH_NONE;
    autocast_attention_arguments(graph, OP_EFFICIENT_ATTENTION, 3, in);
    const bool is_bias =
        a->mask != GRAPH_NONE && (enum dtype)graph->tensors[a->mask].dtype != DTYPE_BOOL;
    if (is_bias)
        bias = cudnn ? a->mask : aligned(graph, a->mask, false);
    else if (a->mask != GRAPH_NONE) { /* where(mask, 0, least) */
        const struct shape scalar = {.rank = 0}, shape = shape4(graph, a->mask);
        const uint32_t minus = op_fill(graph, ATEN_SCALAR_TENSOR, autocast_product(graph), scalar,
                                       cudnn ? CUDNN_LEAST : -INFINITY);
        const uint32_t zero =
            op_fill(graph, ATEN_SCALAR_TENSOR, autocast_product(graph), scalar, 0.0F);
        bias = op_no_grad(graph, WORK_WHERE, ATEN_WHERE, autocast_product(graph),
                          SHAPE(s.dim[0], 1, shape.dim[2], shape.dim[3]), 3,
                          (uint32_t[]){a->mask, zero, minus});
        graph_drop(graph, zero);
        graph_drop(graph, minus);
        bias = cudnn ? bias : aligned(graph, bias, true);
    }
    uint32_t out = op_efficient_attention(graph, in[0], in[1], in[2], bias,
                                          bias == GRAPH_NONE && !a->both_ways, a->dropout);
    op_attention_scale(graph, out, a->scale);
    if (bias != GRAPH_NONE && !(is_bias && bias == a->mask))
        graph_drop(graph, bias);
    if (cudnn && a->q_contiguous && s.dim[1] > 1 && s.dim[2] > 1) {
        const uint32_t copy = op_unary(graph, OP_CLONE, out); /* .transpose(1, 2).contiguous() */
        graph_drop(graph, out);
        out = copy;
    }
    if (graph->tensors[k].storage != graph->tensors[a->k].storage) {
        graph_drop(graph, k);
        graph_drop(graph, v);
    }
    return out;
}

/* A single token is masked by nothing. Heads are repeated by Python where the kernel may not. */
static uint32_t single_ops(struct graph *graph, const struct hf_attention *a)
{
    const struct shape s = shape4(graph, a->q);
    const bool masked = a->mask != GRAPH_NONE;
    const bool by_python = !may_group(masked, s.dim[3]) && !a->broadcast;
    uint32_t k = a->k, v = a->v;
    if (by_python) {
        k = transpose(graph, hf_repeat_heads(graph, a->k, s.dim[2]));
        v = transpose(graph, hf_repeat_heads(graph, a->v, s.dim[2]));
    }
    const uint32_t out =
        op_math_attention(graph, &(struct math_attention){
                                     .q = a->q,
                                     .k = k,
                                     .v = v,
                                     .mask = a->mask,
                                     .causal = !masked && !a->both_ways && s.dim[1] > 1,
                                     .broadcast = a->broadcast,
                                     .dropout = a->dropout,
                                     .scale = a->scale,
                                 });
    if (graph->tensors[k].storage != graph->tensors[a->k].storage) {
        graph_drop(graph, k);
        graph_drop(graph, v);
    }
    return out;
}

bool hf_is_flash(const struct graph *graph, bool masked, uint32_t d, uint32_t width)
{
    if (graph->attention == ATTENTION_FLASH_ATTN)
        return true;
    return graph->attention != ATTENTION_MATH && may_group(masked, d) && shares_heads(graph) &&
           width == d;
}

uint32_t hf_attention(struct graph *graph, const struct hf_attention *a)
{
    const struct shape s = shape4(graph, a->q);
    const bool grouped = shape4(graph, a->k).dim[2] != s.dim[2];
    const bool masked = a->mask != GRAPH_NONE;
    const bool may = may_group(masked, s.dim[3]);
    const uint32_t width = shape4(graph, a->v).dim[3]; /* of MLA narrower than keys: not flash */
    if (graph->attention == ATTENTION_FLASH_ATTN)
        return graph_view(graph, hf_flash_attn(graph, a),
                          SHAPE(s.dim[0], s.dim[1], s.dim[2] * width));
    const bool math = graph->attention == ATTENTION_MATH || (a->broadcast && grouped);
    const uint32_t out = math                                          ? single_ops(graph, a)
                         : hf_is_flash(graph, masked, s.dim[3], width) ? flash(graph, a)
                         : may && grouped                              ? single_ops(graph, a)
                                                                       : biased(graph, a);
    return graph_view(graph, out, SHAPE(s.dim[0], s.dim[1], s.dim[2] * width));
}

/* mlp.c - the gated feed-forward: see moe.h. */
#include "hf/hf.h"
#include "hf/moe.h"

struct hf_mlp hf_mlp_declare(struct graph *graph, const struct model_config *c, const char *prefix,
                             uint32_t width)
{
    struct hf_mlp mlp = {.function = false};
    mlp.gate = build_linear(graph, prefix, "gate_proj", width, c->hidden, c->mlp_bias);
    mlp.up = build_linear(graph, prefix, "up_proj", width, c->hidden, c->mlp_bias);
    mlp.down = build_linear(graph, prefix, "down_proj", c->hidden, width, c->mlp_bias);
    return mlp;
}

struct hf_mlp hf_mlp_declare_plain(struct graph *graph, const struct model_config *c,
                                   const char *prefix, uint32_t width)
{
    struct hf_mlp mlp = {.plain = true};
    mlp.up = build_linear(graph, prefix, "up_proj", width, c->hidden, c->mlp_bias);
    mlp.down = build_linear(graph, prefix, "down_proj", c->hidden, width, c->mlp_bias);
    return mlp;
}

uint32_t hf_liger_glu(struct graph *graph, uint32_t gate, uint32_t up)
{
    return op_liger_glu(graph, graph->liger.geglu ? OP_LIGER_GEGLU : OP_LIGER_SWIGLU, gate, up);
}

/* down(act(gate) up), as Liger's modules write it: what they compute has no names. */
static uint32_t liger_mlp(struct graph *graph, const struct hf_mlp *mlp, uint32_t y)
{
    const uint32_t gate = apply_linear(graph, y, mlp->gate);
    const uint32_t up = apply_linear(graph, y, mlp->up);
    const uint32_t product = hf_liger_glu(graph, gate, up);
    graph_drop(graph, gate);
    graph_drop(graph, up);
    const uint32_t out = apply_linear(graph, product, mlp->down);
    graph_drop(graph, product);
    return out;
}

static uint32_t hf_mlp_plain(struct graph *graph, const struct model_config *c,
                             const struct hf_mlp *mlp, uint32_t y)
{
    const uint32_t up = apply_linear(graph, y, mlp->up);
    const uint32_t active =
        hf_activation_beside(graph, c->activation, up, mlp->up.weight, "act_fn");
    graph_drop(graph, up);
    const uint32_t out = apply_linear(graph, active, mlp->down);
    graph_drop(graph, active);
    return out;
}

uint32_t hf_mlp(struct graph *graph, const struct model_config *c, const struct hf_mlp *mlp,
                uint32_t y)
{
    if (mlp->plain)
        return hf_mlp_plain(graph, c, mlp, y);
    if (graph->liger.glu)
        return liger_mlp(graph, mlp, y);
    const uint32_t gate = apply_linear(graph, y, mlp->gate);
    const uint32_t active = mlp->function ? hf_activation(graph, c->activation, gate)
                                          : hf_activation_beside(graph, c->activation, gate,
                                                                 mlp->gate.weight, "act_fn");
    graph_drop(graph, gate);
    const uint32_t up = apply_linear(graph, y, mlp->up);
    const uint32_t product = op_mul(graph, active, up);
    graph_drop(graph, active);
    graph_drop(graph, up);
    const uint32_t out = apply_linear(graph, product, mlp->down);
    graph_drop(graph, product);
    return out;
}

/* tutorial.c - the simplified Transformer of the FSDP2 tutorial: "attention" is one Linear, the MLP
 * is Linear, ReLU, Linear, with a LayerNorm before each; the head has a bias. */
#include "families/family.h"
#include "model/build.h"
#include "model/count.h"

#include <math.h>

/* torch.nn.Linear's own: everything uniform. */
static struct linear declare_linear(struct graph *graph, const char *prefix, const char *name,
                                    uint32_t out, uint32_t in)
{
    const struct linear linear = build_linear(graph, prefix, name, out, in, true);
    const struct param_init init = init_uniform(1 / sqrt(in));
    graph_init_param(graph, linear.weight, init);
    graph_init_param(graph, linear.bias, init);
    return linear;
}

static void build_tutorial(struct graph *graph, const struct model_config *c,
                           const struct model_job *job)
{
    const uint32_t tokens = build_input(graph, c, INPUT_TOKENS, SHAPE(job->batch, job->seq));
    const uint32_t targets = build_input(graph, c, INPUT_TARGETS, SHAPE(job->batch * job->seq));
    const uint32_t embedding = graph_module(graph, ROLE_EMBEDDING, "embedding");
    const uint32_t table =
        graph_param(graph, PARAM_WEIGHT, SHAPE(c->vocab, c->hidden), "embedding.weight");
    graph_init_param(graph, table, init_normal(1, 0));
    graph_enter(graph, embedding, tokens);
    uint32_t x = op_embedding(graph, tokens, table);
    graph_exit(graph, embedding, x);

    graph->sequences = "layers.*.mlp";
    for (uint32_t i = 0; i < c->layers; i++) {
        const uint32_t module = graph_module(graph, ROLE_BLOCK, "layers.%u", i);
        const char *name = graph->modules[module].name;
        const struct linear attention =
            declare_linear(graph, name, ".attention", c->hidden, c->hidden);
        const struct linear up = declare_linear(graph, name, ".mlp.0", c->ffn, c->hidden);
        const struct linear down = declare_linear(graph, name, ".mlp.2", c->hidden, c->ffn);
        const struct norm norm1 = build_norm(graph, name, ".norm1", c->hidden, true, c->norm_eps);
        const struct norm norm2 = build_norm(graph, name, ".norm2", c->hidden, true, c->norm_eps);

        graph_enter(graph, module, x);
        const uint32_t y1 = apply_norm(graph, x, norm1);
        const uint32_t attended = apply_linear(graph, y1, attention);
        graph_drop(graph, y1);
        const uint32_t h = op_add(graph, x, attended);
        graph_drop(graph, attended);
        const uint32_t y2 = apply_norm(graph, h, norm2);
        const uint32_t wide = apply_linear(graph, y2, up);
        const uint32_t relu = op_unary(graph, OP_RELU, wide);
        graph_call_is(graph, relu, "%s.mlp.1", name);
        graph_drop(graph, wide);
        const uint32_t fed = apply_linear(graph, relu, down);
        graph_drop(graph, relu);
        graph_drop(graph, y2);
        const uint32_t z = op_add(graph, h, fed);
        graph_drop(graph, fed);
        graph_drop(graph, h);
        graph_exit(graph, module, z);
        graph_drop(graph, x);
        x = z;
    }

    const uint32_t head = graph_module(graph, ROLE_HEAD, "output");
    const struct linear output = declare_linear(graph, "", "output", c->vocab, c->hidden);
    graph_enter(graph, head, x);
    const uint32_t logits = apply_linear(graph, x, output);
    graph_exit(graph, head, logits);
    graph_drop(graph, x);
    build_loss(graph, build_return(graph, logits), targets);
}

static const struct choice relu_only[] = {{"relu", "relu", false}, {NULL, NULL, false}};

static const struct key keys[] = {
    SHAPE_KEYS,
    {FIXED("num_attention_heads", heads, RULE_VALUE, HEADS_MAX)},
    PLAIN_HEADS,
    {FIXED("intermediate_size", ffn, RULE_FOUR_HIDDEN, FFN_MAX)},
    TORCH_EPS,
    {CHOICE("hidden_act", gated, "relu", relu_only), .fixed = true},
    {ALWAYS("attention_bias", attention_bias)},
    {ALWAYS("mlp_bias", mlp_bias)},
};

/* At the size of our recordings (tests/data/truth). */
static const struct model_preset presets[] = {
    {"fsdp2-tutorial",
     17343248,
     {.arch = ARCH_FSDP2_TUTORIAL,
      .hidden = 512,
      .layers = 3,
      .heads = 1,
      .kv_heads = 1,
      .head_dim = 512,
      .ffn = 2048,
      .vocab = 10000,
      .attention_bias = true,
      .mlp_bias = true,
      .activation = "relu",
      .norm_eps = 1e-5F}},
};

static double parameters(const struct model_config *c)
{
    const double h = c->hidden, v = c->vocab, f = c->ffn;
    return c->layers * (count_linear(h, h, true) + count_linear(f, h, true) +
                        count_linear(h, f, true) + 4 * h) +
           v * h + count_linear(v, h, true);
}

const struct family family_tutorial = {
    .name = "fsdp2-tutorial",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    .parameters = parameters,
    .code = CODE_TORCHTITAN,
    .builder = {[CODE_TORCHTITAN] = build_tutorial},
};

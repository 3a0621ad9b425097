/* cohere2_moe.c - Command A+: Command R7B's layers with mixtures of experts, whose width is the
 * file's "intermediate_size"; the first layers may have a feed-forward of another. */
#include "families/cohere.h"
#include "hf/decoder.h"
#include "model/count.h"
#include "model/experts.h"

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    const struct hf_decoder way = {
        HF_COHERE_NORM(config->rms_norms ? hf_rms_norm : hf_layer_norm_wide),
        .masks_by_layer = true,
        .both_types = true,
        .moe = {.route = hf_route_cohere,
                .gate = hf_gate_halves,
                .router = "gate",
                .when = HF_SHARED_AFTER},
    };
    hf_decoder_build(graph, config, job, &way);
}

static const struct choice functions[] = {
    {"softmax", NULL, false}, {"sigmoid", NULL, true}, {NULL, NULL, false}};
static const struct choice sums[] = {
    {"average", NULL, true}, {"sum", NULL, false}, {NULL, NULL, false}};

static const struct key keys[] = {
    COHERE_KEYS(1e4),
    {COUNT("head_dim", head_dim, 128, HEAD_DIM_MAX)},
    {SIZE("intermediate_size", expert_ffn, FFN_MAX)},
    {SIZE("prefix_dense_intermediate_size", ffn, FFN_MAX), .absent = RULE_KEEP, .null = RULE_KEEP},
    {.name = "rms_norm_eps",
     .type = KEY_NUMBER,
     AT(norm_eps),
     .absent = RULE_KEEP,
     .null = RULE_KEEP,
     .max = 1},
    {SIZE("sliding_window", sliding_window, POSITIONS_MAX), .absent = RULE_VALUE, .value = 4096},
    {COUNT("sliding_window_pattern", window_period, 4, LAYERS_MAX)},
    {COUNT("prefix_dense_sliding_window_pattern", plain_period, 1, LAYERS_MAX)},
    {LAYER_LIST("layer_types", KEY_LAYERS, windows, key_window_layers, RULE_NONE)},
    EXPERTS("num_experts", "num_local_experts", 8, 2),
    {.name = "num_shared_experts",
     .type = KEY_INT,
     .max = EXPERTS_MAX,
     AT(shared_experts),
     .absent = RULE_VALUE},
    {CHOICE("shared_expert_combination_strategy", shared_average, "average", sums)},
    {CHOICE("expert_selection_fn", sigmoid_scores, "softmax", functions)},
    {FLAG("norm_topk_prob", norm_topk, true)},
    {.name = "first_k_dense_replace",
     .type = KEY_INT,
     .max = LAYERS_MAX,
     AT(dense_first),
     .absent = RULE_VALUE},
    {LAYER_LIST("mlp_layer_types", KEY_LAYERS, dense, key_dense_layers, RULE_NONE)},
};

static enum err_code read(const json_t *root, const char *where, struct model_config *config,
                          struct err *err)
{
    (void)where;
    (void)err;
    config->rms_norms = json_is_number(json_object_get(root, "rms_norm_eps"));
    return ERR_OK;
}

/* The first layers, which have a feed-forward, count windows for themselves, and the others begin
 * again; RoPE is where a window is, and in layers with a feed-forward where none of the first has a
 * window. */
static void settle(struct model_config *c)
{
    const uint32_t first = c->plain_period;
    for (uint32_t i = 0; i < c->layers && !c->windows.listed; i++) {
        const bool prefix = i < c->dense_first;
        const uint32_t period = prefix ? first : c->window_period;
        const uint32_t at = prefix ? i : i - c->dense_first;
        layer_put(&c->windows, i, (at + 1) % period != 0);
    }
    c->windows.listed = true;
    for (uint32_t i = 0; i < c->layers; i++) {
        const bool turned = layer_listed(&c->windows, i) || (!experts_in(c, i) && first == 1);
        layer_put(&c->plain, i, !turned);
    }
    c->plain.listed = true;
}

const struct family family_cohere2_moe = {
    .name = "cohere2_moe",
    .class_name = "Cohere2MoeForCausalLM",
    .keys = KEY_TABLE(keys),
    .rope = true,
    .padding = 0 + 1,
    .read = read,
    .settle = settle,
    .check = experts_check,
    .parameters = count_cohere,
    .uncompiled = true,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};

/* experts.h - mixtures of experts: which layers have one, how wide they are, and what families that
 * have one share: rows of keys, the check. For builders and planner/families.
 *
 * Letters: E experts, k of them a token, f the width of one. */
#ifndef SHARDPLAN_EXPERTS_H
#define SHARDPLAN_EXPERTS_H

#include "model/keys.h"

/* Whether a layer's feed-forward is a mixture of experts. */
bool experts_in(const struct model_config *config, uint32_t layer);

/* How many layers' is. */
uint32_t experts_layers(const struct model_config *config);

/* The width of one expert, and of the experts that every token passes (0: there are none). */
uint32_t experts_width(const struct model_config *config);
uint32_t experts_shared_width(const struct model_config *config);

/* What must hold of every mixture of experts: a family's `check`. */
enum err_code experts_check(const struct key_table *keys, const struct model_config *config,
                            const char *where, struct err *err);

/* The same of experts in groups: also of the groups. */
enum err_code experts_check_groups(const struct key_table *keys, const struct model_config *config,
                                   const char *where, struct err *err);

extern const struct choice experts_ways[];

/* ---- rows of keys ---- */

/* clang-format off */
/* `name`: of their number; `all`, `each`: how many there are, and a token takes, by default. */
#define EXPERTS(name, another, all, each)                                                          \
    {COUNT(name, experts, all, EXPERTS_MAX), .other = (another)},                                  \
    {COUNT("num_experts_per_tok", experts_per_token, each, EXPERTS_MAX)},                          \
    EXPERT_WAYS
#define EXPERT_WAYS                                                                                \
    {CHOICE("experts_implementation", batched_experts, "grouped_mm", experts_ways)},               \
    {ONLY("output_router_logits", false)}
#define EXPERT_WIDTH(number) {COUNT("moe_intermediate_size", expert_ffn, number, FFN_MAX)}
#define EXPERT_GROUPS(groups_, chosen, scaling)                                                    \
    {COUNT("n_group", groups, groups_, EXPERTS_MAX), .null = RULE_VALUE},                          \
    {COUNT("topk_group", topk_groups, chosen, EXPERTS_MAX), .null = RULE_VALUE},                   \
    {NUMBER("routed_scaling_factor", routed_scaling, scaling, 0, 1e6)}
#define SHARED_EXPERTS(number, dense)                                                              \
    {COUNT("n_shared_experts", shared_experts, number, EXPERTS_MAX)},                              \
    DENSE_FIRST(dense)
#define DENSE_FIRST(dense)                                                                         \
    {.name = "first_k_dense_replace", .type = KEY_INT, .max = LAYERS_MAX, AT(dense_first),         \
     .absent = RULE_VALUE, .value = (dense)},                                                      \
    NEUTRAL("moe_layer_freq", 1)
#define SPARSE_LAYERS                                                                              \
    {COUNT("decoder_sparse_step", sparse_step, 1, LAYERS_MAX)},                                    \
    {.name = "mlp_only_layers", .type = KEY_SET, AT(dense_layers), .absent = RULE_NONE,            \
     .null = RULE_NONE, .max = LAYERS_MAX - 1}
/* clang-format on */

#endif

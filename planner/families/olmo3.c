/* olmo3.c - OLMo 3: OLMo 2 with windows, of four layers in the first three, and RoPE of its own
 * there. */
#include "families/olmo.h"
#include "model/count.h"

static void build_hf_olmo3(struct graph *graph, const struct model_config *config,
                           const struct model_job *job)
{
    hf_decoder_build(graph, config, job,
                     &(struct hf_decoder){
                         HF_OLMO_LAYER,
                         .masks_by_layer = true,
                         .tables_by_layer = true,
                         .positions_first = true,
                     });
}

static const struct key keys[] = {
    OLMO_KEYS,
    {NUMBER("rope_theta", rope.theta, 5e5, 1, 1e12),
     .other = "rope_parameters.full_attention.rope_theta"},
    {NUMBER("rope_parameters.sliding_attention.rope_theta", window_theta, 5e5, 1, 1e12)},
    {SIZE("sliding_window", sliding_window, POSITIONS_MAX), .absent = RULE_VALUE, .value = 4096},
    WINDOW_PERIOD(4),
    LAYER_TYPES,
};

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* allenai/Olmo-3-7B-Instruct, Olmo-3-32B-Think. Olmo3ForCausalLM. */
#define YARN_8 1.20794415F /* 0.1 ln 8 + 1 */
#define OLMO3(title, count, h, l, a, k, f)                                                         \
    {title, count,                                                                                 \
     {STRETCHED(ARCH_OLMO3, h, l, a, k, 128, f, 100278, 65536, 1e-6F, 5e5F, YARN_8),               \
      .activation = "silu", .sliding_window = 4096, .window_period = 4, .window_theta = 5e5F,        \
      .padding = 100277 + 1,                                                                       \
      .rope.scaling = ROPE_YARN, .rope.factor = 8, .rope.beta_fast = 32, .rope.beta_slow = 1,      \
      .rope.truncate = true, .rope.original_positions = 8192}}

static const struct model_preset presets[] = {
    OLMO3("olmo-3-7b",  7298011136,  4096, 32, 32, 32, 11008),
    OLMO3("olmo-3-32b", 32233522176, 5120, 64, 40, 8,  27648),
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

static const struct preset_alias aliases[] = {
    {"olmo-3-1025-7b", "olmo-3-7b"},
    {"olmo-3-1125-32b", "olmo-3-32b"},
};

const struct family family_olmo3 = {
    .name = "olmo3",
    .class_name = "Olmo3ForCausalLM",
    .classifier = "Olmo3ForSequenceClassification",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    ALIASES(aliases),
    .rope = true,
    .parameters = count_olmo,
    .padding = 1 + 1,
    .traced = true,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build_hf_olmo3},
};

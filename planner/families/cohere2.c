/* cohere2.c - Command R7B: Command R with windows, of four layers in the first three; RoPE is where
 * a window is. */
#include "families/cohere.h"
#include "hf/decoder.h"
#include "model/count.h"

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    static const struct hf_decoder way = {
        HF_COHERE_LAYER,
        .window_rope = true,
        .masks_by_layer = true,
    };
    hf_decoder_build(graph, config, job, &way);
}

static const struct key keys[] = {
    COHERE_KEYS(1e4),
    {SIZE("sliding_window", sliding_window, POSITIONS_MAX), .absent = RULE_VALUE, .value = 4096},
    {COUNT("sliding_window_pattern", window_period, 4, LAYERS_MAX)},
    LAYER_TYPES,
};

/* A model is a line, and what the macro holds is a row: no block, no expression. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* CohereForAI/c4ai-command-r7b-12-2024. Cohere2ForCausalLM. */
#define COMMAND2(title, count, h, l, a, f, positions)                                              \
    {title, count,                                                                                 \
     {GATED(ARCH_COHERE2, h, l, a, 8, 128, f, 256000, positions, 1e-5F, 5e4F), .tied = true,       \
      .parallel_residual = true, .logits_multiplier = 0.25F, .sliding_window = 4096,               \
      .window_period = 4, .padding = 0 + 1}}

static const struct model_preset presets[] = {
    COMMAND2("command-r7b", 8028033024,   4096,  32, 32, 14336, 132096),
    COMMAND2("command-a",   111057580032, 12288, 64, 96, 36864, 131072),
};
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

static const struct preset_alias aliases[] = {
    {"c4ai-command-r7b-12-2024", "command-r7b"},
    {"c4ai-command-a-03-2025", "command-a"},
};

const struct family family_cohere2 = {
    .name = "cohere2",
    .class_name = "Cohere2ForCausalLM",
    .keys = KEY_TABLE(keys),
    PRESETS(presets),
    ALIASES(aliases),
    .rope = true,
    .padding = 0 + 1,
    .parameters = count_cohere,
    .code = CODE_HF,
    .traced = true,
    .builder = {[CODE_HF] = build},
};

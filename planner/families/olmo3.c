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

const struct family family_olmo3 = {
    .name = "olmo3",
    .class_name = "Olmo3ForCausalLM",
    .keys = KEY_TABLE(keys),
    .rope = true,
    .parameters = count_olmo,
    .padding = 1 + 1,
    .traced = true,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build_hf_olmo3},
};

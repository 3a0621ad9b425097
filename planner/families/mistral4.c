/* mistral4.c - Mistral Small 4's text model: DeepSeek-V3's latent attention whose queries are
 * scaled by their positions, and experts in groups by a softmax. */
#include "families/llama.h"
#include "families/mla.h"
#include "families/scaled_queries.h"
#include "hf/decoder.h"
#include "model/count.h"
#include "model/experts.h"
#include "model/keys_rope.h"

#include <math.h>

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    static const struct hf_decoder way = {
        HF_LLAMA_NORMS,
        .tables_first = true,
        .mla = {.rotate = hf_mla_rotate_v3, .key_first = true},
        .moe = {.route = hf_route_mistral4,
                .gate = hf_gate_halves,
                .router = "gate",
                .experts_first = true,
                .flattens = true},
    };
    hf_decoder_build(graph, config, job, &way);
}

static const struct key keys[] = {
    SIZE_KEYS,
    {COUNT("num_key_value_heads", kv_heads, 32, HEADS_MAX), .null = RULE_HEADS},
    {COUNT("kv_lora_rank", kv_lora, 256, HIDDEN_MAX)},
    LATENT_QUERIES(1024),
    {COUNT("qk_rope_head_dim", rotary_dim, 64, HEAD_DIM_MAX)},
    {COUNT("qk_rope_head_dim", head_dim, 64, HEAD_DIM_MAX)},
    {COUNT("qk_nope_head_dim", nope_dim, 64, HEAD_DIM_MAX)},
    {COUNT("v_head_dim", v_dim, 128, HEAD_DIM_MAX)},
    MSCALE_ALL,
    LLAMA_KEYS(1048576, 1e-6, 1e4),
    DROPOUT("attention_dropout", attention_dropout, 0),
    {FLAG("attention_bias", attention_bias, false)},
    {FLAG("rope_interleave", rope_interleave, true)},
    SCALED_QUERIES(8192),
    EXPERTS("n_routed_experts", "num_local_experts", 128, 4),
    EXPERT_WIDTH(2048),
    EXPERT_GROUPS(1, 1, 1),
    SHARED_EXPERTS(1, 0),
    {FLAG("norm_topk_prob", norm_topk, true)},
};

/* The class makes a head's size of its two parts, unless the file has another, and RoPE's of that
 * and a share: it has to be the part that turns. */
static enum err_code read(const json_t *root, const char *where, struct model_config *c,
                          struct err *err)
{
    const json_t *object, *head = json_object_get(root, "head_dim");
    const char *name;
    TRY(scaled_queries_read(root, where, c, err));
    TRY(rope_find(root, where, &object, &name, err));
    const json_t *factor = json_object_get(object, "partial_rotary_factor");
    const double parts = (double)c->nope_dim + c->rotary_dim,
                 whole = json_is_number(head) ? json_number_value(head) : parts,
                 share = json_is_number(factor) ? json_number_value(factor) : c->rotary_dim / parts;
    if (floor(whole * share) == c->rotary_dim)
        return ERR_OK;
    return err_set(err, ERR_INVALID,
                   "%s: \"head_dim\" times \"partial_rotary_factor\", %g times %g, is not "
                   "\"qk_rope_head_dim\": %u, which RoPE turns",
                   where, whole, share, c->rotary_dim);
}

const struct family family_mistral4 = {
    .name = "mistral4",
    .class_name = "Mistral4ForCausalLM",
    .classifier = "Mistral4ForSequenceClassification",
    .keys = KEY_TABLE(keys),
    .seeing = "mistral3",
    .rope_absent = "{\"rope_type\": \"yarn\", \"rope_theta\": 10000.0, \"factor\": 128.0, "
                   "\"original_max_position_embeddings\": 8192, \"beta_fast\": 32.0, "
                   "\"beta_slow\": 1.0, \"mscale_all_dim\": 1.0, \"mscale\": 1.0}",
    .padding = 11 + 1,
    .read = read,
    .check = mla_check_experts,
    .parameters = count_llama,
    .uncompiled = true,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};

/* nanochat.c - nanochat: Llama with norms that have no parameters, one more before the first layer
 * and on each head behind RoPE, which turns the other way; a feed-forward that has no gate and
 * squares what is positive; and capped logits. */
#include "families/gemma.h"
#include "families/llama.h"
#include "hf/decoder.h"
#include "model/count.h"

static void build(struct graph *graph, const struct model_config *config,
                  const struct model_job *job)
{
    static const struct hf_decoder way = {
        .norm = hf_rms_norm_bare,
        HF_NORM_NAMES,
        .bare_norms = true,
        .norm_first = true,
        .qk = HF_QK_AFTER,
        .turns_back = true,
        .up = "fc1",
        .down = "fc2",
        .act = "activation_fn",
    };
    hf_decoder_build(graph, config, job, &way);
}

static const struct key keys[] = {
    SIZE_KEYS,
    {DERIVED("num_key_value_heads", kv_heads, RULE_HEADS, HEADS_MAX)},
    HEAD_DIM_KEY,
    {POSITIONS("max_position_embeddings", 2048)},
    EPS("rms_norm_eps", 1e-6),
    STD("initializer_range", 0.02),
    THETA("rope_theta", 1e4),
    TIED(false),
    {CHOICE("hidden_act", gated, "relu2", key_squared_relu_only)},
    DROPOUT("attention_dropout", attention_dropout, 0),
    ATTENTION_BIASES(false),
    {ALWAYS("qk_norm", qk_norm)},
    SOFTCAP("final_logit_softcapping", logits_softcap, 15),
};

/* Of norms there is nothing to count. */
static double parameters(const struct model_config *c)
{
    return count_ungated(c) - 2.0 * c->layers * ((double)c->hidden + c->head_dim) - c->hidden;
}

const struct family family_nanochat = {
    .name = "nanochat",
    .class_name = "NanoChatForCausalLM",
    .keys = KEY_TABLE(keys),
    .rope = true,
    .padding = 1 + 1,
    .parameters = parameters,
    .traced = true,
    .code = CODE_HF,
    .builder = {[CODE_HF] = build},
};

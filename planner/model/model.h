/* model.h - what a model is: what a Hugging Face config.json says of it, or a recording, which has
 * the graph's stream in it (recorded/recording.h); and what its graph is built for.
 *
 * Letters: b sequences, s tokens a sequence, t = b·s, h hidden size, a heads, k key/value heads,
 * d head size, f feed-forward size, v vocabulary, l layers. */
#ifndef SHARDPLAN_MODEL_H
#define SHARDPLAN_MODEL_H

#include "base/err.h"
#include "graph/graph.h"
#include "model/config_limits.h"
#include "model/tower.h"
#include "recorded/recording.h"

/* X(name, family_NAME of planner/families/NAME.c), in the order of every list */
#define ARCH_MAP(X)                                                                                \
    X(LLAMA, llama)                                                                                \
    X(MISTRAL, mistral)                                                                            \
    X(QWEN2, qwen2)                                                                                \
    X(QWEN3, qwen3)                                                                                \
    X(MIXTRAL, mixtral)                                                                            \
    X(QWEN2_MOE, qwen2_moe)                                                                        \
    X(QWEN3_MOE, qwen3_moe)                                                                        \
    X(GPT_OSS, gpt_oss)                                                                            \
    X(DEEPSEEK_V2, deepseek_v2)                                                                    \
    X(DEEPSEEK_V3, deepseek_v3)                                                                    \
    X(LLAMA4, llama4)                                                                              \
    X(QWEN2_VL, qwen2_vl)                                                                          \
    X(QWEN2_5_VL, qwen2_5_vl)                                                                      \
    X(QWEN3_NEXT, qwen3_next)                                                                      \
    X(QWEN3_5, qwen3_5)                                                                            \
    X(QWEN3_5_MOE, qwen3_5_moe)                                                                    \
    X(QWEN3_VL, qwen3_vl)                                                                          \
    X(QWEN3_VL_MOE, qwen3_vl_moe)                                                                  \
    X(QWEN2_5_OMNI, qwen2_5_omni)                                                                  \
    X(QWEN3_OMNI_MOE, qwen3_omni_moe)                                                              \
    X(GLM4V, glm4v)                                                                                \
    X(GLM4V_MOE, glm4v_moe)                                                                        \
    X(GLM_OCR, glm_ocr)                                                                            \
    X(PADDLEOCR_VL, paddleocr_vl)                                                                  \
    X(GLM4_MOE, glm4_moe)                                                                          \
    X(AFMOE, afmoe)                                                                                \
    X(OLMO, olmo)                                                                                  \
    X(OLMOE, olmoe)                                                                                \
    X(PHI, phi)                                                                                    \
    X(PHIMOE, phimoe)                                                                              \
    X(PHI3, phi3)                                                                                  \
    X(OLMO2, olmo2)                                                                                \
    X(OLMO3, olmo3)                                                                                \
    X(OLMO_HYBRID, olmo_hybrid)                                                                    \
    X(SMOLLM3, smollm3)                                                                            \
    X(LFM2, lfm2)                                                                                  \
    X(LFM2_MOE, lfm2_moe)                                                                          \
    X(GRANITE, granite)                                                                            \
    X(GRANITEMOE, granitemoe)                                                                      \
    X(GRANITEMOEHYBRID, granitemoehybrid)                                                          \
    X(GRANITEMOESHARED, granitemoeshared)                                                          \
    X(JAMBA, jamba)                                                                                \
    X(BAMBA, bamba)                                                                                \
    X(APERTUS, apertus)                                                                            \
    X(HYPERCLOVAX, hyperclovax)                                                                    \
    X(SEED_OSS, seed_oss)                                                                          \
    X(ARCEE, arcee)                                                                                \
    X(HUNYUAN_V1_DENSE, hunyuan_v1_dense)                                                          \
    X(EXAONE4, exaone4)                                                                            \
    X(MINISTRAL, ministral)                                                                        \
    X(HELIUM, helium)                                                                              \
    X(ERNIE4_5, ernie4_5)                                                                          \
    X(ERNIE4_5_MOE, ernie4_5_moe)                                                                  \
    X(COHERE, cohere)                                                                              \
    X(COHERE2, cohere2)                                                                            \
    X(COHERE2_MOE, cohere2_moe)                                                                    \
    X(NEMOTRON, nemotron)                                                                          \
    X(NEMOTRON_H, nemotron_h)                                                                      \
    X(DOTS1, dots1)                                                                                \
    X(JAIS2, jais2)                                                                                \
    X(CWM, cwm)                                                                                    \
    X(YOUTU, youtu)                                                                                \
    X(DEEPSEEK_V32, deepseek_v32)                                                                  \
    X(GLM_MOE_DSA, glm_moe_dsa)                                                                    \
    X(AXK1, axk1)                                                                                  \
    X(GLM4_MOE_LITE, glm4_moe_lite)                                                                \
    X(HY_V3, hy_v3)                                                                                \
    X(MINICPM3, minicpm3)                                                                          \
    X(NANOCHAT, nanochat)                                                                          \
    X(MELLUM, mellum)                                                                              \
    X(SOLAR_OPEN, solar_open)                                                                      \
    X(EXAONE_MOE, exaone_moe)                                                                      \
    X(FLEX_OLMO, flex_olmo)                                                                        \
    X(VAULTGEMMA, vaultgemma)                                                                      \
    X(MINIMAX_M2, minimax_m2)                                                                      \
    X(MIMO_V2_FLASH, mimo_v2_flash)                                                                \
    X(MINISTRAL3, ministral3)                                                                      \
    X(MISTRAL4, mistral4)                                                                          \
    X(HUNYUAN_V1_MOE, hunyuan_v1_moe)                                                              \
    X(GEMMA, gemma)                                                                                \
    X(GEMMA2, gemma2)                                                                              \
    X(GEMMA3, gemma3)                                                                              \
    X(GEMMA4, gemma4)                                                                              \
    X(GEMMA3N, gemma3n)                                                                            \
    X(GLM, glm)                                                                                    \
    X(GLM4, glm4)                                                                                  \
    X(INTERNLM3, internlm3)                                                                        \
    X(IQUESTCODER, iquestcoder)                                                                    \
    X(STARCODER2, starcoder2)                                                                      \
    X(STABLELM, stablelm)                                                                          \
    X(GPT2, gpt2)                                                                                  \
    X(GPT_BIGCODE, gpt_bigcode)                                                                    \
    X(GPT_NEOX, gpt_neox)                                                                          \
    X(GPT_NEO, gpt_neo)                                                                            \
    X(CODEGEN, codegen)                                                                            \
    X(GPTJ, gptj)                                                                                  \
    X(MPT, mpt)                                                                                    \
    X(BLOOM, bloom)                                                                                \
    X(FALCON, falcon)                                                                              \
    X(FALCON_H1, falcon_h1)                                                                        \
    X(OPT, opt)                                                                                    \
    X(ROBERTA, roberta)                                                                            \
    X(XLM_ROBERTA, xlm_roberta)                                                                    \
    X(CAMEMBERT, camembert)                                                                        \
    X(ELECTRA, electra)                                                                            \
    X(DISTILBERT, distilbert)                                                                      \
    X(EUROBERT, eurobert)                                                                          \
    X(MODERNBERT, modernbert)                                                                      \
    X(BERT, bert)                                                                                  \
    X(T5, t5)                                                                                      \
    X(MT5, mt5)                                                                                    \
    X(FSDP2_TUTORIAL, tutorial)

enum arch {
#define X(name, family) ARCH_##name,
    ARCH_MAP(X)
#undef X
        ARCH_COUNT
};

enum code { /* whose op sequence runs */
            CODE_TORCHTITAN,
            CODE_NANOGPT,
            CODE_HF,
            CODE_RECORDED, /* what PyTorch ran when it was recorded */
            CODE_COUNT
};

/* What a config.json says of the checkpoint beside it and no plan follows: see model_note. */
struct model_stated {
    char class_name[48]; /* of `architectures`, where it is not what is planned; else "" */
    char outer[32];      /* model_type of the file whose text_config is planned; else "" */
    char kin[32];        /* model_type of what the family is planned in the place of; else "" */
    char quantized[32];  /* quant_method of its quantization_config, or its name's; else "" */
};

/* A list of config.json that says of each layer whether it is of a kind; where the file has none,
 * other keys say it. */
struct layer_list {
    bool listed;
    uint32_t bits[LAYERS_MAX / 32];
};

/* What labels of sequences are (problem_type); AUTO: numbers where there is one label, else each
 * sequence has one of them. */
enum problem { PROBLEM_AUTO, PROBLEM_REGRESSION, PROBLEM_SINGLE_LABEL, PROBLEM_MULTI_LABEL };

/* What the model is a class for: whose heads it has. */
enum model_task { TASK_LANGUAGE_MODEL, TASK_SEQUENCE_CLASSIFICATION };

struct model_config {
    struct recording *recording; /* of a recorded model, which has nothing of what follows; NULL */
    enum arch arch;
    uint32_t hidden, layers, heads, kv_heads, head_dim, ffn, vocab;
    uint32_t max_positions;    /* of learned position embeddings; elsewhere RoPE's range */
    uint32_t padding;          /* token + 1 whose row of the embedding gets no gradient in
                                  transformers' code; 0: none */
    uint32_t type_vocab;       /* BERT's token types */
    uint32_t decoder_layers;   /* of an encoder with a decoder; 0: there are not both */
    uint32_t relative_buckets; /* likewise */
    uint32_t word_embed;       /* OPT, ELECTRA: width of the embedding where it is projected */
    bool tied;                 /* the head shares the token embedding */
    bool attention_bias; /* q, k, v have biases; so has what follows them, but see output_bias */
    bool output_bias;    /* ... for Llama and its kin, whose Qwen2 has none */
    bool mlp_bias;
    bool head_bias;             /* Phi-MoE, ModernBERT */
    bool rms_norms;             /* Cohere 2 with experts: norms are RMSNorms */
    bool norm_bias, dense_bias; /* ModernBERT: of LayerNorms; of the Linear before the head */
    bool qk_norm;
    bool gated;              /* T5: gated feed-forward */
    bool parallel_residual;  /* GPT-NeoX, StableLM, Phi, Falcon */
    bool one_kv_head;        /* Falcon: of all queries, unless heads are grouped */
    bool alibi;              /* Falcon: slopes in the mask, for RoPE */
    bool grouped_qkv;        /* Falcon: the product has a head of k and v behind its queries */
    uint32_t parallel_norms; /* Falcon: of a layer, one or two; 0: as is usual */
    bool post_norm; /* OPT-350m: norms after the residual; BLOOM: sums with what norms give */
    const char *activation; /* "silu", "gelu" (by erf), "gelu_pytorch_tanh", "gelu_new",
                               "gelu_fast" (by tanh), "relu": lent, static */
    float dropout, attention_dropout;
    float class_dropout; /* of an encoder's head for sequence classification */
    bool pools_mean;     /* ... which takes the mean of all tokens, not the first */
    bool pools_late;     /* ... or that of what it finds of each */
    uint32_t labels;     /* of sequences, as the file says; 0: it does not */
    enum problem problem;
    float norm_eps;
    float init_std;    /* of weights that transformers' code draws */
    float init_cutoff; /* ModernBERT: ... within so many of them */
    struct rope rope;  /* dim and positions are the builder's */
    /* Ministral 3: q times 1 + beta log(1 + floor(position / step)); Llama 4: of position + 1, and
     * in layers without RoPE, unless the step is 0 */
    float position_beta;
    uint32_t position_step;
    float short_mscale, long_mscale; /* Phi-MoE: what longrope's cos and sin are times, by the
                                        sequence's length */
    bool grids;                      /* Qwen-VL: RoPE by places in three grids ... */
    uint32_t rope_sections[3];       /* ... each of which turns so many pairs */
    float rope_alpha;        /* Hunyuan: of a "dynamic" RoPE, which then is not; 0: there is none */
    float embedding_dropout; /* GPT-2: embd_pdrop, StarCoder2, Phi; elsewhere `dropout` is all */
    uint32_t rotary_dim; /* GPT-NeoX, Phi, GLM, StableLM, DeepSeek: how many of a head's d numbers
                            RoPE turns */
    uint32_t sliding_window; /* Mistral, Mixtral, Qwen: tokens a query sees; 0: all before it */
    uint32_t full_layers;    /* Qwen: how many layers, from the first, have no window */
    /* OLMo 3, Gemma, GPT-OSS */
    uint32_t window_period; /* of so many layers the last has no window; 0: full_layers says it */
    struct layer_list windows; /* layers that have a window */
    float window_theta;        /* RoPE's where there is a window; 0: as elsewhere */
    /* Gemma 4 */
    uint32_t full_head_dim, full_kv_heads; /* of layers without a window; 0: as elsewhere */
    bool keys_are_values;                  /* ... whose keys are projected for values, too */
    uint32_t layer_width, layer_vocab;     /* of an embedding that each layer has a part of, so wide
                                              a part; 0: there is none */
    uint32_t reusing_layers; /* the last ones, which attend to keys and values of another */
    bool wide_reusing;       /* ... and whose feed-forward is twice as wide */
    /* Gemma 3n: hidden states side by side, of which a layer computes one and corrects all */
    uint32_t altup_inputs, altup_active;
    float altup_clip;  /* of the weights that say how */
    bool altup_scaled; /* the corrected one is scaled before its part of the embedding is added */
    uint32_t laurel_rank;            /* of the product beside attention */
    struct layer_list sparse_layers; /* layers whose feed-forward gates ... */
    float sparsity;                  /* ... this share of its numbers away */
    /* SmolLM3 */
    uint32_t plain_period;   /* of so many layers the last has no RoPE; 0: all have it */
    struct layer_list plain; /* layers that have none */
    /* Granite's hybrids */
    bool unturned; /* there is no RoPE */
    /* Layers with something else in the place of attention (hf/mixers.h) */
    uint32_t linear_period;   /* of so many layers the last has attention; 0: all have */
    struct layer_list linear; /* layers that have it */
    uint32_t conv_width;      /* tokens of its short convolution */
    /* Qwen 3.5: linear attention (hf/delta.h) */
    uint32_t delta_key_heads, delta_key_dim, delta_value_heads, delta_value_dim;
    bool joint_delta;  /* Qwen3-Next: one product for q, k, v and z, of each head of q and k one
                          behind the other, and one for beta and g */
    bool delta_apart;  /* OLMo Hybrid: a product for each of q, k and v, which the convolution is
                          given side by side */
    bool delta_twice;  /* ... and beta is times 2 */
    bool gated_output; /* attention's output is times a sigmoid of what q's product has beside q */
    /* Mamba-2 (hf/mamba.h): heads, numbers of a head and of its state, groups of heads that
     * share B and C, tokens of a chunk */
    uint32_t ssm_heads, ssm_head_dim, ssm_state, ssm_groups, ssm_chunk, ssm_expand;
    bool ssm_bias, ssm_out_bias; /* of the first product and the last */
    bool ssm_unnormed;           /* Falcon-H1: there is no norm, what is scanned is gated alone */
    uint32_t scan_rank;          /* Jamba: Mamba-1 (hf/mamba1.h), numbers that a token's steps are
                                    made of; 0: it is not that */
    struct layer_list feeds; /* Nemotron-H: layers that are feed-forwards, and nothing else is */
    /* LFM2 */
    bool conv_bias;        /* of its convolution and what is around it */
    bool narrow_ffn;       /* two thirds of ffn is meant, times a number ... */
    uint32_t ffn_multiple; /* ... and rounded up to a multiple of this */
    double ffn_multiplier; /* that number */
    float value_scale;     /* MiMo: a number that values are multiplied by */
    /* Granite; 0: there is no such product */
    float embedding_multiplier, attention_multiplier, residual_multiplier;
    float logits_scaling; /* a divisor */
    /* Falcon-H1, whose layers have Mamba-2 beside attention; 0: there is no such product */
    float key_multiplier, gate_multiplier, down_multiplier;
    float attention_in_multiplier, attention_out_multiplier;
    float ssm_in_multiplier, ssm_out_multiplier;
    float ssm_multipliers[5]; /* of what Mamba-2's first product gives: z, x, B, C, dt */
    bool scaled_by_root;      /* AFMoE: embedding_multiplier is the root of the hidden size */
    /* MiniCPM 3 */
    uint32_t embedding_scale; /* an integer that the embedding is multiplied by; 0: there is none */
    float hidden_scaling;     /* a divisor of what the head is given; 0: there is none */
    /* Cohere; 0: there is no such product */
    float logits_multiplier;
    /* Gemma */
    float query_scalar; /* scores are divided by its root; 0: by that of head_dim */
    float attention_softcap, logits_softcap; /* c tanh(x / c); 0: x as it is */

    /* Mixtures of experts (experts.h) */
    uint32_t experts, experts_per_token;
    uint32_t expert_ffn;     /* width of an expert; 0: ffn */
    uint32_t shared_experts; /* experts of that width that every token passes, joined to one */
    uint32_t shared_ffn;     /* Qwen2: the width of that one, given as such */
    float input_jitter;   /* Phi-MoE: how far from 1 what its input is times is; 0: there is none */
    float router_jitter;  /* ... how far below the best score one may be drawn */
    float router_least;   /* ERNIE: what their sum is at least */
    uint32_t dense_first; /* how many layers, from the first, have none */
    uint32_t sparse_last; /* ERNIE: the last layer that has any; 0: the last of all */
    uint32_t sparse_step; /* else every such layer has; 0: each, as 1 */
    uint32_t dense_layers[LAYERS_MAX / 32]; /* bits: but for these */
    struct layer_list dense;                /* layers that have none, whatever the rest says */
    bool batched_experts; /* their experts_implementation is "batched_mm", not "grouped_mm" */
    bool norm_topk;       /* the weights of a token's experts are divided by their sum */
    bool sigmoid_scores;  /* Cohere: the weights are sigmoids, not the softmax of the best */
    bool shared_average;  /* ... and experts' sum with what all tokens pass is halved */
    bool wide_sum;        /* HY 3: experts' sum with what all tokens pass is in fp32 */
    bool shared_gate;     /* Qwen2: what all pass is weighted, too */
    bool expert_bias;     /* GPT-OSS: experts and routers have biases */
    float swiglu_alpha, swiglu_limit; /* GPT-OSS */

    uint32_t groups, topk_groups; /* DeepSeek: of experts, and those that a token may choose from */
    bool limited_groups;          /* DeepSeek-V2: ... if it has to, which V3's has always */
    float routed_scaling;         /* ... its experts' weights are multiplied by it */

    /* DeepSeek: latent attention (hf/mla.h); rotary_dim is a part of each head */
    uint32_t kv_lora; /* 0: it has none */
    uint32_t q_lora;  /* 0: q has no latent */
    uint32_t nope_dim, v_dim;
    bool rope_interleave;
    float mscale_all; /* yarn's mscale_all_dim, by which scores grow, too; 0: they do not */
    /* DeepSeek-V3.2: what chooses the tokens that a query sees (hf/indexer.h) */
    uint32_t index_heads, index_dim; /* 0: there is none, it sees all before it */
    uint32_t index_topk;
    struct layer_list reused_index; /* layers that see what the one before them saw (GLM-5) */

    bool sinks; /* GPT-OSS: of attention */

    struct tower tower; /* beside the text model */
    struct model_stated stated;
};

/* Whether a list has layer `index`. */
bool layer_listed(const struct layer_list *list, uint32_t index);
/* Lists it where `in`, and else leaves the list as it is. */
void layer_put(struct layer_list *list, uint32_t index, bool in);
/* Whether layer `index` looks at a window only, or has no RoPE wherever windows are. */
bool model_has_window(const struct model_config *config, uint32_t index);
bool model_is_plain(const struct model_config *config, uint32_t index);
/* Whether layer `index` has something else in the place of attention. */
bool model_is_linear(const struct model_config *config, uint32_t index);
/* Whether any layer has, and whether that is Mamba-2, or Mamba-1. */
bool model_mixes(const struct model_config *config);
bool model_has_mamba(const struct model_config *config);
bool model_has_mamba1(const struct model_config *config);
/* Whether layer `index` is a feed-forward alone, where none is more than one thing. */
bool model_feeds(const struct model_config *config, uint32_t index);
/* Whether any layer has attention, and whether any is a mixture of experts: a file may say of
 * experts how many they are where no layer has them. */
bool model_attends(const struct model_config *config);
bool model_has_experts(const struct model_config *config);

/* Of --loss grpo (model/grpo.h): loss_type, and by what mode vLLM's samples are corrected. */
enum grpo_loss { GRPO_DAPO, GRPO_GRPO, GRPO_BNPO, GRPO_DR_GRPO, GRPO_CISPO };
enum grpo_vllm { GRPO_VLLM_OFF, GRPO_VLLM_SEQUENCE, GRPO_VLLM_TOKEN };
struct grpo_job {
    enum grpo_loss loss;
    enum grpo_vllm vllm;
    float beta;          /* of the divergence from a reference; 0: there is none */
    uint32_t steps;      /* steps_per_generation; 0: as many as micro-batches in a step */
    uint32_t iterations; /* num_iterations: how often a batch is used */
};

struct model_job {
    uint32_t batch, seq;
    uint32_t sample_tokens; /* of the samples that sequences are joined of; 0: a sequence is one */
    uint32_t
        padding_tokens; /* behind the ends of the sequences of a batch (values.h, padded_places) */
    uint32_t prompt_tokens; /* at the start of each sequence, which have no label */
    struct grpo_job grpo;
    uint32_t micro_batches, ranks; /* of a step; of the job: numbers of its loss */
    enum code code;
    enum dtype compute;  /* of unsharded parameters and activations */
    bool wide_trained;   /* ... but for parameters that are trained, which are in fp32 */
    enum dtype made;     /* the default one while the model is made: of numbers that it keeps */
    bool autocast;       /* the forward pass is under torch.autocast(bfloat16) */
    bool as_stored;      /* each rank has parameters whole, and computes with them as stored */
    bool views;          /* parameters are views of larger ones (graph.h) */
    bool casts_inputs;   /* modules cast what they are called with to `compute` */
    bool copies_outputs; /* what the model returns is copied before its caller gets it */
    enum outputs_kept outputs_kept; /* how long the script keeps what it returns */
    bool outputs_fp32;  /* its forward casts what it returns to fp32, outside of autocast:
                           convert_outputs_to_fp32 of accelerate 1.15 */
    bool own_experts;   /* experts are modules that are wrapped on their own (ROLE_EXPERTS) */
    bool flat;          /* torchtitan's and nanoGPT's blocks have no modules for attention and MLP:
                           their linear layers are the block's own */
    bool watched;       /* a dispatch mode watches the blocks: checkpoints by a policy have one */
    bool compiled;      /* blocks or all of it, by torch.compile */
    bool traced;        /* torch.compile traces the whole model: what transformers' code asks of the
                           values of tensors is not asked */
    bool returns_nodes; /* of --loss per-token: what the model returns passes nodes of the system's,
                           behind which its own loss's go first */
    bool input_grads;   /* what the embedding of the tokens returns needs a gradient, whatever does
                           before it: transformers' enable_input_require_grads */
    bool split;         /* DDPOptimizer splits what is compiled where buckets end */
    const char *frozen; /* comma-separated glob patterns of parameter names, or NULL */
    const char *lora;   /* low-rank adapters, "16,q_proj,v_proj" (lora.h), or NULL */
    float lora_dropout; /* 0 ... 1: of what they are given */
    const char
        *lora_kernels; /* axolotl's of them, "mlp,qkv,o" (families/lora_kernels.h), or NULL */
    const char *liger; /* Liger's kernels, "rope,rms_norm" (families/liger.h), or NULL */
    struct graph_bits4 bits4; /* linear layers' weights in 4 bits (bits4.h) */
    bool bits8;               /* ... in 8 bits (bits8.h) */
    const char *bits_skipped; /* llm_int8_skip_modules, by commas (bits4.h), or NULL */
    const char
        *cast_back; /* beside few bits, globs: what is frozen in fp32 does not match, or NULL */
    uint64_t adapters_apart; /* of so many elements, in the dtype `apart` (struct graph_lora) */
    enum dtype apart;
    enum autograd autograd;
    enum cross_entropy loss;
    enum model_task task;
    uint32_t labels;      /* of sequences; 0: as the config.json says, or 2 */
    enum problem problem; /* AUTO: likewise */
    bool sets_pad_token;  /* the script sets pad_token_id on the model's configuration */
    bool casts_root;      /* the root module casts what it is called with to `compute` */
    enum tower_there tower;
    bool precomputed;    /* DPO's reference is two columns of the batch (model/dpo.h) */
    bool bare_reference; /* ... or, another model, none that accelerate has prepared: it is called
                            outside of autocast, and what it returns stays as it is */
    bool attention_fell; /* in single ops, since the GPU has no kernel for the dtype */
    enum attention_kernel attention;  /* AUTO: flash; predict knows the GPU, and what it takes */
    enum attention_gpu attention_gpu; /* whose engines cuDNN's are */
    enum float8 float8;               /* of linear layers but the head, whose dims are whole 16s */
    enum float8_gather float8_gather;
    uint32_t multiprocessors; /* of the GPU, where buffers go by it; 0: unknown */
    bool own_init;            /* parameters start as the code draws them; else with test values */
    uint32_t torch;           /* 2.x, as base/torch.h counts; 0: the newest */
};

#endif

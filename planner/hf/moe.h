/* moe.h - a mixture of experts as Hugging Face transformers writes it, in parts: a router, experts,
 * experts that every token passes. A model file is a choice of these; how many and how wide they
 * are says config.json.
 *
 * Letters: E experts, k of them a token, f the width of one, t tokens. */
#ifndef SHARDPLAN_HF_MOE_H
#define SHARDPLAN_HF_MOE_H

#include "model/build.h"

/* down(silu(gate y) · up y): Llama's feed-forward, and the experts that every token passes. */
struct hf_mlp {
    struct linear gate, up, down;
    bool function; /* its activation, which is no module */
    bool plain;    /* down(act(up y)): there is no gate */
};
struct hf_mlp hf_mlp_declare(struct graph *graph, const struct model_config *config,
                             const char *prefix, uint32_t width);
/* The same without a gate. */
struct hf_mlp hf_mlp_declare_plain(struct graph *graph, const struct model_config *config,
                                   const char *prefix, uint32_t width);
/* act(gate) up, as one of Liger's kernels (graph->liger). */
uint32_t hf_liger_glu(struct graph *graph, uint32_t gate, uint32_t up);
uint32_t hf_mlp(struct graph *graph, const struct model_config *config, const struct hf_mlp *mlp,
                uint32_t y);

struct hf_moe {                       /* parameters */
    struct linear router;             /* (E, h), and (E) where biased */
    uint32_t gate_up;                 /* (E, 2f, h), or transposed (E, h, 2f); ungated (E, f, h) */
    uint32_t down;                    /* (E, h, f), or (E, f, h) */
    uint32_t gate_up_bias, down_bias; /* (E, 2f), (E, h), or GRAPH_NONE */
    uint32_t module;                  /* of the experts, where they are wrapped; or GRAPH_NONE */
    uint32_t correction;              /* a buffer (E): added to what experts are chosen by; or a
                                         parameter (1, E) that is not trained */
    struct hf_mlp shared;
    struct linear shared_gate; /* (1, h) */
    struct norm norm;          /* of all that the block returns; weight GRAPH_NONE: there is none */
};

/* What a router returns; all of it is Python's until the block returns. */
struct hf_routing {
    uint32_t logits;  /* (t, E) */
    uint32_t weights; /* (t, k) */
    uint32_t experts; /* (t, k) int64 */
    bool in_place;    /* rows were changed, and are these: */
    uint32_t rows;    /* (t, h) */
};

/* `rows` (t, h), or y (b, s, h) where the router flattens it itself. */
typedef struct hf_routing hf_router(struct graph *graph, const struct model_config *config,
                                    const struct hf_moe *moe, uint32_t rows);

/* p = softmax(router y) in fp32; the k best, divided by their sum where the config says so. As
 * Mixtral has it they stay in fp32; as Qwen has it they are cast back, and as Jamba has it when
 * they are returned. */
hf_router hf_route_mixtral, hf_route_qwen, hf_route_jamba;
/* The k best of the logits themselves, and the softmax of those, as GPT-OSS has it. */
hf_router hf_route_gpt_oss;
/* The k best of the logits, and their softmax in fp32, cast back, or their sigmoids, perhaps
 * divided by their sum, as Cohere has it. */
hf_router hf_route_cohere;

/* The same of logits in fp32, cast back, as Granite has it. */
hf_router hf_route_granite;

/* As Qwen's, always divided; the matrix is of a module of the router's. */
hf_router hf_route_hunyuan;
/* As MiniMax-M2 has it: s = sigmoid(router y) in fp32; of the k best s + correction, s divided by
 * their sum. */
hf_router hf_route_minimax_m2;

/* The same with the product in fp32, and the weights times a factor, as HY 3 has it; with all in
 * the dtype of the product, where the config says that they are divided, as LFM2 has it; and of y,
 * by a matrix of a module of the router's, as AFMoE has it. */
hf_router hf_route_hy_v3, hf_route_lfm2, hf_route_afmoe;

/* As ERNIE has it, in fp32: p = softmax(router y); of the k best p + correction, p divided by their
 * sum, or by a least one. */
hf_router hf_route_ernie;

/* As DeepSeek-V3 has it, in fp32: s = sigmoid(router y); of groups of experts, the best by the sum
 * of their two best s + correction; in those the k best s + correction, weighted by their s. */
hf_router hf_route_deepseek_v3;
/* The same of p = softmax(router y), in the dtype of the product, as Mistral 4 has it. */
hf_router hf_route_mistral4;
/* As DeepSeek-V2 has it, in fp32: p = softmax(router y); the k best, of the groups with the best
 * where the config limits them. */
hf_router hf_route_deepseek_v2;

/* x (b, s, h) times random numbers near 1, in its place. */
uint32_t hf_jitter(struct graph *graph, uint32_t x);

/* As Phi-MoE has it: of what is near the best score, one drawn at random, and so a second one; each
 * weighted by its softmax among those. Both draws have no kernel that runs. */
hf_router hf_route_phimoe;

/* Of gate and up (n, 2f), which it drops: (n, f). */
typedef uint32_t hf_gate(struct graph *graph, const struct model_config *config, uint32_t gate_up);

/* silu(gate) · up of two halves; (up + 1) · gate · sigmoid(alpha gate) of every second, within
 * limits. */
hf_gate hf_gate_halves, hf_gate_clamped;
/* act(up), of what is ungated (n, f). */
hf_gate hf_gate_none;

/* When what all tokens pass is computed: last, of y; or before the router, of y or of its rows, and
 * then it may be Python's until the block returns; or between router and experts, of the rows,
 * first in the sum, and then both are; or behind the experts, of the rows, and then theirs is, or
 * it is, and both may be halved. Or it is a module of the layer's, which adds it itself. */
enum hf_shared {
    HF_SHARED_LAST,
    HF_SHARED_FIRST,
    HF_SHARED_ROWS,
    HF_SHARED_HELD,
    HF_SHARED_BETWEEN,
    HF_SHARED_BEHIND,
    HF_SHARED_AFTER,
    HF_SHARED_BESIDE,
};

/* e_score_correction_bias: torch.zeros in the dtype that the model is made in, or one of its own.
 */
enum hf_correction { HF_NO_CORRECTION, HF_CORRECTION_AS_MADE, HF_CORRECTION_FP32 };

/* What of it is the model file's. */
struct hf_moe_way {
    hf_router *route;
    hf_gate *gate;
    const char *router;   /* its module: "gate" */
    bool experts_first;   /* declared before the router */
    bool experts_last;    /* declared behind what all tokens pass */
    bool every;           /* every token goes to every expert, times its weight: hf_every */
    bool transposed;      /* experts' matrices: multiplied as they are */
    bool ungated;         /* experts and what all tokens pass are down(act(up y)) */
    bool returns_scores;  /* the weights are the block's second result */
    bool flattens;        /* the router and the experts flatten y themselves */
    bool router_flattens; /* the router does, once more than the block */
    const char *leaf;     /* its class, where DeepSpeed takes that as one (leaf_module_config.py) */
    enum hf_correction correction; /* a buffer of the router's */
    const char *statics;           /* that parameter: "gate.moe_statics.e_score_correction_bias" */
    bool own_statics;              /* it is the block's own, (E), and declared ahead of all */
    enum hf_shared when;
    const char *norm;   /* RMSNorm of what the block returns, a module of its own; NULL: none */
    const char *shared; /* what all tokens pass; NULL: "shared_experts", gated "shared_expert" */
};

/* Declares it under `prefix`; then y (b, s, h) through it; y stays the caller's to drop, and so
 * does *scores, the second result (GRAPH_NONE: there is none). */
struct hf_moe hf_moe_declare(struct graph *graph, const struct model_config *config,
                             const struct hf_moe_way *way, const char *prefix);
uint32_t hf_moe(struct graph *graph, const struct model_config *config,
                const struct hf_moe_way *way, const struct hf_moe *moe, uint32_t y,
                uint32_t *scores);

/* The experts alone, as a module: rows (t, h), which stay the caller's as what a router returned
 * does, through those that it chose: (t, h). */
uint32_t hf_experts(struct graph *graph, const struct model_config *config,
                    const struct hf_moe_way *way, const struct hf_moe *moe, uint32_t rows,
                    const struct hf_routing *routing);
/* Their parameters, a part of hf_moe_declare. */
void hf_experts_declare(struct graph *graph, const struct model_config *config,
                        const struct hf_moe_way *way, const char *prefix, struct hf_moe *moe);

/* y (b, s, h) through all experts, each of all rows times their weights for it, which are 0 but for
 * k of them: Llama 4's, in transformers' code. *logits is the second result. */
uint32_t hf_every(struct graph *graph, const struct model_config *config, const struct hf_moe *moe,
                  uint32_t y, uint32_t *logits);

#endif

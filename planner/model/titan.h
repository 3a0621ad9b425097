/* titan.h - for builders of torchtitan's decoders: the feed-forward, the mixture of experts, and
 * what is around blocks. As torchtitan v0.2.2 has them.
 *
 * Letters: E experts, k of them a token, f the width of one, n = t·k rows. */
#ifndef SHARDPLAN_TITAN_H
#define SHARDPLAN_TITAN_H

#include "model/build.h"

/* trunc_normal_ of init_weights cuts its draws at 2. What ends a branch of layer `index` is drawn
 * with less and less. */
struct param_init titan_drawn(double std);
struct param_init titan_drawn_last(uint32_t index);

/* w2(silu(w1 y) · w3 y) */
struct titan_ffn {
    struct linear w1, w2, w3;
};
struct titan_ffn titan_ffn_declare(struct graph *graph, const char *prefix, uint32_t hidden,
                                   uint32_t width, bool biased, struct param_init last);
uint32_t titan_ffn(struct graph *graph, const char *activation, const struct titan_ffn *ffn,
                   uint32_t y);

/* How experts are chosen, and weighted. */
struct titan_scores {
    bool sigmoid; /* scores are, and not softmax's */
    bool limited; /* to groups of experts, of which a token may choose from the best */
    bool before;  /* rows are weighted before experts compute, and not behind */
};

/* models/moe/moe.py, where no ranks share experts: "<prefix>experts.w1" ... */
struct titan_moe {
    uint32_t w1, w2, w3; /* (E, f, h), (E, h, f), (E, f, h) */
    struct linear gate;
    uint32_t bias; /* expert_bias (E): added to scores where experts are chosen */
    bool shares;   /* has experts that every token passes */
    struct titan_ffn shared;
};
struct titan_moe titan_moe_declare(struct graph *graph, const struct model_config *config,
                                   const char *prefix, struct param_init last);
/* y (b, s, h), likewise. */
uint32_t titan_moe(struct graph *graph, const struct model_config *config,
                   const struct titan_moe *moe, struct titan_scores scores, uint32_t y);

/* What models have of their own: attention, and its table of RoPE. */
struct titan_attention {
    struct linear wq, wk, wv, wo;
    struct linear wq_a, wq_b, wkv_a, wkv_b; /* latent attention's */
    struct norm q_norm, k_norm, kv_norm;
};
struct titan_way {
    struct titan_scores scores;
    bool norms_first; /* a block's are its parameters behind attention's, and not the last */
    uint32_t (*table)(struct graph *graph, const struct model_config *config,
                      const struct model_job *job);
    struct titan_attention (*declare)(struct graph *graph, const struct model_config *config,
                                      const char *prefix, struct param_init last);
    uint32_t (*attend)(struct graph *graph, const struct model_config *config,
                       const struct model_job *job, const struct titan_attention *attention,
                       uint32_t y, uint32_t table);
};
void titan_build(struct graph *graph, const struct model_config *config,
                 const struct model_job *job, const struct titan_way *way);

#endif

/* mla.h - multi-head latent attention as Hugging Face transformers writes it for DeepSeek.
 *
 *     q = q_b(norm(q_a y)), or q_proj y    heads of n + r numbers, r of which RoPE turns
 *     c, k_r = kv_a y                      one latent of kv_lora numbers for all heads, and one key
 *                                          of r numbers that RoPE turns
 *     k_n, v = kv_b(norm(c))               heads of n and of v numbers
 *     o(attention(q, [k_n, k_r], v))
 *
 * Letters: n nope_dim, r rotary_dim, v v_dim. */
#ifndef SHARDPLAN_HF_MLA_H
#define SHARDPLAN_HF_MLA_H

#include "hf/indexer.h"

struct hf_mla {
    struct linear q, q_a, q_b, kv_a, kv_b, o;
    struct norm q_norm, kv_norm;
    struct hf_indexer indexer; /* where the config has one: of the tokens that are seen; q.weight
                                  GRAPH_NONE: it sees what the layer before it saw */
};

/* Turns q (b, a, s, r) and k (b, 1, s, r), in place of both. */
typedef void hf_mla_rotate(struct graph *graph, const struct model_config *config,
                           struct hf_rope rope, uint32_t *q, uint32_t *k);
/* As DeepSeek-V3 has it: in halves, or, where the config says so, in neighbours. As V2 has it:
 * neighbours are complex numbers, in fp32, and so are the factors. */
hf_mla_rotate hf_mla_rotate_v3, hf_mla_rotate_v2;

struct hf_mla hf_mla_declare(struct graph *graph, const struct model_config *config, uint32_t layer,
                             const char *prefix);

/* Whose name comes first in the function: the key that RoPE turns, or the latent. */
struct hf_mla_way {
    hf_mla_rotate *rotate;
    bool key_first;
    bool index_neighbours; /* the indexer's RoPE turns neighbours */
    bool hands_on;         /* a layer returns what its indexer chose, with which the next is called
                            */
};

/* y (b, s, h), which stays the caller's: (b, s, h). An indexer asks for a mask. *places: what the
 * indexer of the layer before chose, in whose place what this one chose comes, where the way hands
 * them on: the caller's. */
uint32_t hf_mla(struct graph *graph, const struct model_config *config, const struct hf_mla *mla,
                struct hf_mla_way way, struct hf_rope rope, uint32_t y, uint32_t mask,
                uint32_t *places);

#endif

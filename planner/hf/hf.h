/* hf.h - for the builders of Hugging Face's op sequences: the pieces that they share.
 *
 * transformers 5.23 under PyTorch 2.14, model.train(), attn_implementation "sdpa", use_cache False,
 * no attention mask, and the loss inside the model (labels given). What 5.24 does otherwise stands
 * in docs/supported.md. Python frees a returning function's variables in the order of their first
 * use as names: arguments, then locals. */
#ifndef SHARDPLAN_HF_HF_H
#define SHARDPLAN_HF_HF_H

#include "model/build.h"

/* 1 + the configuration's pad_token_id while the model is called, 0: it has none. What a script
 * sets is one that no sequence has. */
uint32_t hf_pad_token(const struct model_config *config, const struct model_job *job);

/* arange(s) + 0: positions (s), Python's until the model returns. */
uint32_t hf_positions(struct graph *graph, const struct model_job *job);

/* Whether several sequences are packed into one, asked of the positions; all of it is gone at
 * once. */
void hf_packed_test(struct graph *graph, const struct model_job *job, uint32_t positions);

/* Causal mask (1, 1, s, s) of bools, made of broadcast index comparisons; within a window, unless
 * that is HF_NO_WINDOW. */
#define HF_NO_WINDOW UINT32_MAX
uint32_t hf_window_mask(struct graph *graph, const struct model_job *job, uint32_t window);

/* The same of a batch with a mask (graph.attention_mask): (b, 1, s, s), without the keys that are
 * padding. GRAPH_NONE where nothing is padded, and who makes it asks. */
enum hf_mask {
    HF_MASK_ASKED, /* nothing padded, it might have been left out: that is asked first */
    HF_MASK_MADE,
    HF_MASK_ADDED, /* it goes, as what is added to scores (hf_eager_mask) takes its place */
};
uint32_t hf_padded_mask(struct graph *graph, const struct model_job *job, uint32_t window,
                        enum hf_mask how);

/* The causal mask, of a batch that is padded or not, as what is added to scores. */
uint32_t hf_added_mask(struct graph *graph, const struct model_job *job);

/* Whether anything is padded, asked for layers that have something else in the place of attention.
 */
void hf_padding_test(struct graph *graph);

/* y (b, s, h) with zeros in the place of padding, where a mixer begins, and where its name goes. y
 * itself, where nothing is padded. */
uint32_t hf_unpadded(struct graph *graph, uint32_t y);
void hf_drop_unpadded(struct graph *graph, uint32_t y, uint32_t unpadded);

/* -exp(A_log) in fp32, of a parameter: how a state decays. The caller's. */
uint32_t hf_decay(struct graph *graph, uint32_t a_log);

/* The mask of a model whose layers are alike; GRAPH_NONE where attention is causal without one, of
 * which it is asked first whether sequences are packed. */
uint32_t hf_causal_mask(struct graph *graph, const struct model_job *job, uint32_t positions);

/* An encoder's: tokens see others no farther than that (HF_NO_WINDOW: all), but padding (b, 1, s,
 * s), or nothing padded, (1, 1, s, s); GRAPH_NONE where all is seen. */
uint32_t hf_mask_both_ways(struct graph *graph, const struct model_job *job, uint32_t distance);

/* The mask where the model is traced (model_job.traced): whether sequences are packed is not asked,
 * but computed, and the mask (b, 1, s, s) has it: causal within each sequence, and within a window
 * as above. `added`: as it is added to scores (hf_eager_mask). */
uint32_t hf_traced_mask(struct graph *graph, const struct model_job *job, uint32_t positions,
                        uint32_t window, bool added);

/* Llama 4's: whether several sequences begin with padding (none does) is asked first, and then a
 * mask (b, 1, s, s), causal within chunks of so many tokens, is made where a sequence is as long as
 * that; else GRAPH_NONE. */
uint32_t hf_chunk_mask(struct graph *graph, const struct model_job *job, uint32_t chunk);

/* ALiBi, of heads as many as a power of 2: its bias (b, a, 1, s) in a dtype, and the mask of ones
 * (b, s) that it was made from, both Python's. And a causal mask of bools, which goes, as the bias
 * where it allows, and the least number elsewhere: (b, a, s, s). */
struct hf_alibi {
    uint32_t bias, ones;
};
struct hf_alibi hf_alibi(struct graph *graph, const struct model_config *config,
                         const struct model_job *job, enum dtype dtype);
uint32_t hf_alibi_mask(struct graph *graph, const struct model_config *config,
                       const struct model_job *job, struct hf_alibi alibi, uint32_t mask);

/* (cumsum(ones) - 1) · ones: the place of each token (b, s) int64 that a mask of ones has. */
uint32_t hf_alibi_places(struct graph *graph, uint32_t ones);

/* The least number of a dtype (torch.finfo). */
float hf_least(enum dtype dtype);

/* Such a mask, which goes, as what is added to scores: (b, 1, s, s), 0 or the least number. */
uint32_t hf_eager_mask(struct graph *graph, const struct model_job *job, uint32_t mask);

/* What RoPE's angles are products of: positions (s), and the buffer of frequencies (d/2), for d
 * numbers of a head. */
struct hf_angles {
    uint32_t positions, frequencies;
    uint32_t length; /* where remade: the sequence's, Python's as the frequencies are */
    bool remade;     /* frequencies are computed for this pass */
};

/* RoPE's factors (1 or b, s, d) in the compute dtype; or in one of fp32 or that, scaled by
 * attention_factor, in one of these layouts. */
struct hf_rope {
    uint32_t cos, sin;
    uint32_t positions; /* (s), which the layer was called with; 0 and GRAPH_NONE: with none */
    uint32_t sample;    /* model_job.sample_tokens, which they are of */
    bool back;          /* numbers half a head away turn the other way */
    bool by_token;      /* heads come as (b, s, a, d) */
};
enum hf_table {
    HF_TABLE_WHOLE,      /* every angle, and every angle again */
    HF_TABLE_HALF,       /* every angle: (1, s, d/2) */
    HF_TABLE_NEIGHBOURS, /* each angle twice */
};
struct hf_rope hf_rope_tables(struct graph *graph, const struct model_config *config,
                              struct hf_angles angles);
struct hf_rope hf_rope_tables_in(struct graph *graph, enum dtype dtype, float attention_factor,
                                 struct hf_angles angles, enum hf_table table);
/* (cos or sin of the angles) · factor, before the cast. */
uint32_t hf_rope_table(struct graph *graph, enum work_kind work, enum aten aten, uint32_t angles,
                       float factor);
/* Tables (b, s, d) of tokens that have a place in each of three grids, and how pairs of a head's
 * numbers are given to them. */
enum { HF_GRIDS = 3 };
enum hf_grids_way {
    HF_GRIDS_NONE,
    HF_GRIDS_PARTS,      /* c->rope_sections: so many to the first, then to the next */
    HF_GRIDS_WOVEN,      /* in turn */
    HF_GRIDS_NEIGHBOURS, /* as in parts; each angle twice */
};
struct hf_rope hf_rope_grids(struct graph *graph, const struct model_config *config,
                             const struct model_job *job, struct hf_angles angles,
                             enum hf_grids_way way);
/* The same as complex numbers (1, s, d/2). */
uint32_t hf_complex_rope_table(struct graph *graph, const struct model_config *config,
                               struct hf_angles angles);

/* The buffers of a rotary embedding for d numbers of a head, each (d/2). Longrope has the
 * frequencies of long sequences, too, and takes those that the positions ask for in each pass.
 * Dynamic RoPE asks in each pass whether the sequence is longer than any before; the first step's
 * was, or it is no longer than the model was made for: then all steps are alike behind it. */
struct hf_frequencies {
    uint32_t now, original, longer; /* longer: GRAPH_NONE where they are not chosen from */
    bool asks;                      /* dynamic */
    uint32_t longest;               /* () int64: the length of step 1; GRAPH_NONE: it was short */
    uint32_t original_positions;
};
struct hf_frequencies hf_rope_buffers(struct graph *graph, const struct model_config *config,
                                      const struct model_job *job, uint32_t d);
/* The angles of a rotary embedding that computes its frequencies in each pass, default's or
 * longrope's of short sequences (Phi-MoE's). */
struct hf_angles hf_rope_remade(struct graph *graph, const struct model_config *config,
                                uint32_t positions, uint32_t d);
void hf_rope_update(struct graph *graph, const struct hf_frequencies *frequencies,
                    uint32_t positions);

/* q (b, a, s, d) times 1 + beta log(1 + floor(position / step)), which is computed for it. */
uint32_t hf_scale_by_position(struct graph *graph, uint32_t q, uint32_t positions, float beta,
                              uint32_t step);

/* Llama 4's: the same of the floor of (position + 1) / step, of positions that are made for it; in
 * fp32, and cast back. What Python keeps goes to held[2]. */
uint32_t hf_scale_by_own_position(struct graph *graph, uint32_t q, float beta, uint32_t step,
                                  uint32_t held[2]);

/* q and k, qk[0] and qk[1] (b, s, a, d), in fp32 as complex numbers times a table's (1, s, d/2);
 * cast back. What was there stays the caller's. */
void hf_turn_complex(struct graph *graph, uint32_t table, uint32_t qk[2]);

/* x cos + rotate_half(x) sin; x (b, a, s, d), or as rope.by_token says. A number's partner is half
 * a head away; or it is the next one, where the tables are interleaved, too: those are Python's,
 * (1, s, d). */
uint32_t hf_rotate(struct graph *graph, uint32_t x, struct hf_rope rope);
uint32_t hf_rotate_pairs(struct graph *graph, uint32_t x, struct hf_rope interleaved);
struct hf_rope hf_rope_interleaved(struct graph *graph, struct hf_rope rope);
/* q and k, qk[0] and qk[1] (b, a, s, d), of neighbours: by tables that are interleaved here; the
 * same with each factor of a product cast to fp32 for itself and the sum cast back; and with q and
 * k cast to fp32 first, by tables of HF_TABLE_NEIGHBOURS. What was there stays the caller's. */
void hf_turn_neighbours(struct graph *graph, struct hf_rope rope, uint32_t qk[2]);
void hf_turn_neighbours_wide(struct graph *graph, struct hf_rope rope, uint32_t qk[2]);
void hf_turn_neighbours_cast(struct graph *graph, struct hf_rope rope, uint32_t qk[2]);
/* first · cos - second · sin beside second · cos + first · sin, each factor (1, s, d/2) wide, of
 * two views (b, a, s, d/2) of one tensor, or as rope.by_token says. What is joined dies in that
 * order, or the other way round. */
uint32_t hf_rotate_pair(struct graph *graph, uint32_t first, uint32_t second, struct hf_rope rope,
                        bool reversed);

/* The two ends of heads (b, a, s, d) of which the first `turned` numbers turn; both are views, and
 * where the whole head turns the other end is empty, and cut too. Joined, they are a new tensor. */
struct hf_cut {
    uint32_t turned, passed;
};
struct hf_cut hf_cut_heads(struct graph *graph, uint32_t x, uint32_t turned);
uint32_t hf_join_heads(struct graph *graph, uint32_t embedded, uint32_t passed);

/* x times 1 / root of (mean of x² + eps), in fp32. *variance, unless NULL: that mean, which is
 * Python's then. */
uint32_t hf_rms_normed(struct graph *graph, uint32_t x, float eps, uint32_t *variance);
/* RMSNorm as Python writes it, in fp32 but for the last product. */
uint32_t hf_rms_norm(struct graph *graph, uint32_t x, struct norm norm);
/* hf_rms_norm, with its module called around it, where layer.c does not do that. */
uint32_t hf_rms_norm_called(struct graph *graph, uint32_t x, struct norm norm);
/* The same with that product in fp32, too; with the weight cast for it; and with 1 + weight for
 * the weight. */
uint32_t hf_rms_norm_wide(struct graph *graph, uint32_t x, struct norm norm);
uint32_t hf_rms_norm_cast(struct graph *graph, uint32_t x, struct norm norm);
uint32_t hf_rms_norm_plus_one(struct graph *graph, uint32_t x, struct norm norm);
/* The same with x · weight for weight · x, in x's dtype; without a weight, the same without. */
uint32_t hf_rms_norm_last(struct graph *graph, uint32_t x, struct norm norm);
/* The same without a weight. */
uint32_t hf_rms_norm_bare(struct graph *graph, uint32_t x, struct norm norm);
/* All of it in fp32, with the mean to the power -1/2 for its rsqrt; without a weight, the same
 * without. */
uint32_t hf_rms_norm_power(struct graph *graph, uint32_t x, struct norm norm);
/* LayerNorm without a bias as Python writes it, all of it in fp32; and PyTorch's with 1 + weight
 * for the weight. */
uint32_t hf_layer_norm_wide(struct graph *graph, uint32_t x, struct norm norm);
uint32_t hf_layer_norm_plus_one(struct graph *graph, uint32_t x, struct norm norm);
/* LayerNorm without parameters, of fp32, cast back: OLMo's. */
uint32_t hf_layer_norm_bare(struct graph *graph, uint32_t x, struct norm norm);

/* cap · tanh(x / cap), which takes x's place. */
uint32_t hf_softcap(struct graph *graph, uint32_t x, float cap);

/* An activation by its name in config.json: some are one op, some several. */
uint32_t hf_activation(struct graph *graph, const char *name, uint32_t x);

/* A projection (b, s, a·d) as heads `shape`, (b, s, a, d). `copied`: what follows leaves the
 * gradient in the order (b, a, s, d) of memory, which cannot be viewed back. */
uint32_t hf_heads(struct graph *graph, uint32_t x, struct shape shape, bool copied);

/* Whether hf_attention leaves the gradients of k and v so: padding, repeated heads and single ops
 * do; fused kernels give (b, s, a, d). */
bool hf_copies_gradients(const struct graph *graph, const struct model_config *config, bool masked);
/* And that of q, where nothing comes between the projection and attention. */
bool hf_copies_query_gradient(const struct graph *graph, const struct model_config *config,
                              bool masked);

/* x through dropout, which takes its place. */
uint32_t hf_dropout(struct graph *graph, uint32_t x, float p);

/* The module that has a parameter is called from here to graph_call_end; or the module of that name
 * beside it. An operator that uses a module's parameters is its call without being told. */
void hf_call(struct graph *graph, uint32_t param);
void hf_call_beside(struct graph *graph, uint32_t param, const char *module);
/* The module that has the module that has it. */
void hf_call_outer(struct graph *graph, uint32_t param);
/* The two above as modules, which dropout is though it drops nothing. */
uint32_t hf_activation_beside(struct graph *graph, const char *name, uint32_t x, uint32_t param,
                              const char *module);
/* The first as a module of the one that is being called. */
uint32_t hf_activation_within(struct graph *graph, const char *name, uint32_t x,
                              const char *module);
uint32_t hf_dropout_beside(struct graph *graph, uint32_t x, float p, uint32_t param,
                           const char *module);

/* repeat_kv: (b, s, k, d) as (b, a, s, d), k heads repeated. */
uint32_t hf_repeat_heads(struct graph *graph, uint32_t x, uint32_t heads);

/* The module transformer.wte: its weight (v, h) in *weight, rows of it (b, s, h) by `tokens`. */
uint32_t hf_wte(struct graph *graph, const struct model_config *config, uint32_t tokens,
                uint32_t *weight);

/* hidden[:, slice(0, None), :] (b, s, h), of which logits are wanted: all. */
uint32_t hf_logits_kept(struct graph *graph, uint32_t hidden);

/* scaled_dot_product_attention and what sdpa_attention_forward does around it. q (b, s, a, d), k
 * and v (b, s, k, d), with or without fewer heads; mask (b, 1, s, s) of bools or GRAPH_NONE: then
 * causal. The result (b, s, a·d) is Python's.
 *
 *     no mask, d <= 256, 16-bit        flash (d padded to a multiple of 8), where v is as wide
 *     no mask, d <= 256, fp32, k < a   math: matrices and softmax in single ops
 *     else                             memory-efficient (k and v repeated first if k < a) */
struct hf_attention {
    uint32_t q, k, v, mask;
    bool both_ways;    /* without a mask nothing is masked: not causal */
    bool broadcast;    /* one head of k and v, which no kernel is told to repeat: single ops */
    bool q_contiguous; /* in memory as (b, a, s, d): flash's output is then in that order too */
    float dropout;
    /* of the package flash-attn, which has no mask, alone */
    uint32_t positions, sample; /* hf_rope's */
    uint32_t window;            /* a query sees so many tokens, itself among them; 0: all */
    float softcap;              /* 0: none */
    float scale;                /* of q·kᵀ; 0: 1 / the root of d */
};
uint32_t hf_attention(struct graph *graph, const struct hf_attention *attention);
/* What that is with --attention flash-attn (flash_attn.c): (b, s, a, d_v). */
uint32_t hf_flash_attn(struct graph *graph, const struct hf_attention *attention);

/* Whether that is flash or cuDNN's: the gradient of q then lies in memory as q does, the others' as
 * (b, s, a, d). `width`: of a value. */
bool hf_is_flash(const struct graph *graph, bool masked, uint32_t d, uint32_t width);

/* eager_attention_forward: the same in Python, with a mask of hf_eager_mask. *weights (b, a, s, s)
 * is Python's, too: the layer lets go of it when it returns. */
uint32_t hf_eager_attention(struct graph *graph, const struct hf_attention *attention,
                            float softcap, uint32_t *weights);

/* Attention in single ops, with a number for each head, (a), that every row's softmax has one more
 * logit for: what it takes from the others is lost. q (b, s, a, d), k and v (b, s, k, d) with
 * fewer heads; `mask` is additive. The result (b, s, a·d) is Python's, and so is *weights (b, a, s,
 * s), a view of the softmax. */
struct hf_sinks {
    uint32_t q, k, v, mask, sinks;
    float dropout;
};
uint32_t hf_sink_attention(struct graph *graph, const struct hf_sinks *attention,
                           uint32_t *weights);

/* Labels (b, s) for logits of the same places, each the next one's, with a pad behind the last:
 * (b · s). */
struct hf_shifted {
    uint32_t padded, flat;
};
struct hf_shifted hf_shift(struct graph *graph, uint32_t labels);
void hf_drop_shifted(struct graph *graph, struct hf_shifted targets);

/* The forward of transformers' root module returns these fields of its output, up to HF_FIELDS,
 * widened and copied where its caller has them so: *fields are what he gets. */
enum { HF_FIELDS = 6 };
void hf_leave(struct graph *graph, uint32_t count, uint32_t *fields);

/* The forward of transformers' root module returns graph->loss, logits, and `other` (GRAPH_NONE:
 * none of these): its caller takes the loss and lets go of the rest, which is where it drops. */
void hf_return(struct graph *graph, uint32_t logits, uint32_t other);
/* The same where what it was called with goes then: `argument`, GRAPH_NONE: nothing does. */
void hf_return_from(struct graph *graph, uint32_t logits, uint32_t other, uint32_t argument);

/* ForCausalLMLoss of logits (b, s, v) with labels (b, s): upcast, labels shifted by padding, and
 * the mean over all b·s rows. Then the root module returns: what the head was given (`hidden`) goes
 * with its frame, and the logits with its output. */
void hf_loss(struct graph *graph, uint32_t hidden, uint32_t logits, uint32_t labels);
/* ForMaskedLMLoss of logits (b, s, v) with targets (b · s): upcast, and the mean over those that
 * are masked. Then the root module returns. */
void hf_masked_loss(struct graph *graph, uint32_t hidden, uint32_t logits, uint32_t targets);
/* The loss of TRL's fused LM head (`--loss fused-lm-head`) from hidden states (b, s, h), a head's
 * weight and bias (GRAPH_NONE: none) and labels (b, s), likewise (lm_head.c). */
void hf_lm_head_loss(struct graph *graph, uint32_t hidden, uint32_t weight, uint32_t bias,
                     uint32_t labels);
/* The head's module, on hidden states (b, s, h) whose logits are wanted, and that loss. */
void hf_head(struct graph *graph, uint32_t module, uint32_t hidden, struct linear head,
             uint32_t labels);
/* The same where the head was given `scaled` instead, which goes behind it. */
void hf_loss_scaled(struct graph *graph, uint32_t hidden, uint32_t scaled, uint32_t logits,
                    uint32_t labels);
/* hf_loss of a class that computes its own: of copies of logits and labels without what has no next
 * token, in the dtype that the logits are of. */
void hf_loss_in_class(struct graph *graph, uint32_t hidden, uint32_t logits, uint32_t labels);

/* Tokens (b, s) as a text model is given them where 0 stands for what is no text, and which those
 * are: both Python's until the model around it returns (placeholders.c). */
struct hf_placeholders {
    uint32_t tokens, mask;
};
struct hf_placeholders hf_without_placeholders(struct graph *graph, uint32_t tokens);

#endif

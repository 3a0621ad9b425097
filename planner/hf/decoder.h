/* decoder.h - what a decoder of Llama's kind is made of, where the model files of transformers
 * differ.
 *
 * A family's file has one of these and a builder of one line:
 *
 *     hf_decoder_build(graph, config, job, &(struct hf_decoder){HF_LLAMA_NORMS, .fused_qkv = 1});
 *
 * What is a number or has a key in config.json is in struct model_config instead. */
#ifndef SHARDPLAN_HF_DECODER_H
#define SHARDPLAN_HF_DECODER_H

#include "hf/classify.h"
#include "hf/mixers.h"
#include "hf/mla.h"
#include "hf/moe.h"

/* Where in a layer a norm is: x + after(attention(before(x))), and the feed-forward likewise. */
enum hf_place { HF_BEFORE_ATTENTION, HF_AFTER_ATTENTION, HF_BEFORE_MLP, HF_AFTER_MLP, HF_PLACES };

typedef uint32_t hf_norm(struct graph *graph, uint32_t x, struct norm norm);

enum hf_qk_norm {
    HF_QK_HEADS,  /* of each head, where c->qk_norm: as soon as it is projected */
    HF_QK_NONE,   /* none; they are heads when all are projected */
    HF_QK_WIDE,   /* as that, and a norm of all heads at once before */
    HF_QK_LAST,   /* of each head, where c->qk_norm: when all are projected */
    HF_QK_TURNED, /* as that, of heads as PyTorch has them: (b, a, s, d) */
    HF_QK_AFTER,  /* as that, when RoPE has turned them */
    HF_QK_BARE,   /* of each head, where c->qk_norm and RoPE has turned it: no parameters */
};

/* What a model declares and computes ahead of its layers, where these and what is behind them are
 * declared before anything that is used first. */
struct hf_ahead {
    uint32_t *modules;       /* of layers */
    uint32_t last_module;    /* of the norm behind them ... */
    struct norm last;        /* ... and that */
    void *layers;            /* the family's own */
    uint32_t beside;         /* (b, s, l, n), of which each layer has a part, Python's until the
                                model returns; GRAPH_NONE: there is none */
    uint32_t held[4], holds; /* what layers leave to Python, let go when the model returns */
    uint32_t
        behind; /* what is let go behind these and the last layer's mask; GRAPH_NONE: nothing */
    uint32_t parts[GRAPH_OPERANDS], part_count; /* what hf_decoder.gather leaves to it, which goes
                                                   before RoPE's tables do */
};
/* Of tokens (b, s) and their rows of the embedding (b, s, h), which stay the caller's. */
typedef struct hf_ahead *hf_look_ahead(struct graph *graph, const struct model_config *config,
                                       const struct model_job *job, uint32_t tokens,
                                       uint32_t embedded);

/* What layers have for (b, s, h), of what they are called with first, when masks are there; and
 * that again of what the last one returned, which goes. */
typedef uint32_t hf_spread(struct graph *graph, const struct model_config *config,
                           struct hf_ahead *ahead, uint32_t x);

/* What a layer is called with: all of it stays the caller's. */
struct hf_layer_call {
    uint32_t index;
    const char *prefix; /* its module */
    uint32_t x;         /* (b, s, h) */
    uint32_t mask;      /* or GRAPH_NONE */
    uint32_t window;    /* what the mask is of; 0: none */
    uint32_t *places;   /* of tokens that the layer before saw, and that this one sees: hf_mla */
    struct hf_rope rope;
    uint32_t beside;        /* its part of hf_ahead.beside (b, s, n), or GRAPH_NONE */
    struct hf_ahead *ahead; /* NULL: there is none */
};
/* A layer of a kind of its own: declares its parameters, unless that is done, and returns x
 * through it. */
typedef uint32_t hf_own_layer(struct graph *graph, const struct model_config *config,
                              const struct model_job *job, const struct hf_layer_call *call);

enum hf_rotary {
    HF_ROTARY_WHOLE,  /* q, then k */
    HF_ROTARY_PARTS,  /* both are cut at rotary_dim, if that is all, too; each is turned, joined */
    HF_ROTARY_PAIRS,  /* as that, of neighbours; both are turned before they are joined */
    HF_ROTARY_BOTH,   /* as that, not of neighbours */
    HF_ROTARY_LAST,   /* as that, and the turned parts live until both are joined */
    HF_ROTARY_OPEN,   /* as that, and parts live until attention returns */
    HF_ROTARY_HALVES, /* q, then k, by tables that have each angle once */
    HF_ROTARY_NEIGHBOURS, /* q, then k, whole heads of neighbours; tables by hf_rope_interleaved */
    HF_ROTARY_NEIGHBOURS_WIDE, /* as that, each factor of a product in fp32 */
    HF_ROTARY_NEIGHBOURS_CAST, /* both are cast to fp32 first; tables are of neighbours as they are
                                */
    HF_ROTARY_COMPLEX, /* q and k, whole heads of neighbours as complex numbers (complex_table) */
};

struct hf_decoder {
    struct {
        const char *name; /* ".input_layernorm"; NULL behind the last */
        enum hf_place at;
    } norms[HF_PLACES]; /* in the order in which they are declared */
    hf_norm *norm;      /* how RMSNorm is written */
    bool normed_cast;   /* a layer's are called with x in the dtype of their weight */
    enum hf_qk_norm qk;
    const char *q_norm, *k_norm; /* what those are called; NULL: "q_norm", "k_norm" */
    bool qk_by_head;             /* ... and each head has factors of its own */
    bool biased_norms;           /* they are LayerNorms */
    bool bare_norms;             /* no norm has parameters */
    bool norm_first;             /* the last norm is there before the first layer, too */
    bool norms_at_zero;          /* weights begin at 0, to which the norm adds 1 */
    bool scaled_rows;            /* the embedding is times the root of h, by a buffer */
    bool eager;                  /* attention in Python: hf_eager_attention */
    const char *gate_output; /* a product of attention's input, declared behind norms of heads, by
                                whose sigmoid attention's output is multiplied; NULL: none */
    bool fused_qkv;          /* one product for q, k and v, sliced; declared behind the output's */
    bool fused_gate_up;      /* one product for gate and up, in two halves */
    const char *halves;  /* what that is called, of whose halves the first comes first when they are
                            multiplied; NULL: "gate_up_proj", the second */
    const char *mlp;     /* the feed-forward's module; NULL: "mlp" */
    const char *experts; /* ... where it is a mixture of experts; NULL: as that */
    bool mlp_last;       /* it is declared behind the norms */
    bool attention_last; /* attention is declared behind norms and feed-forward */
    const char *gate;    /* of a gated feed-forward in three products: what that is called, and up
                            and down below, whose activation is a function; NULL: Llama's */
    const char *up;      /* else down(act(up y)), no gate: what up is called, and down below */
    bool xielu;          /* ... and act has parameters (hf_xielu) */
    const char *act;     /* the activation's module; NULL: "act_fn" */
    const char *down, *output, *last_norm; /* "c_proj", "dense", "final_layernorm"; NULL: Llama's */
    bool biased_head;
    bool late_scale;    /* c->embedding_multiplier: when masks are there, not with the embedding */
    bool scaled_apart;  /* ... and inputs_embeds are what it multiplies */
    bool dropped_rows;  /* dropout takes the embedding's place: inputs_embeds are what it returns */
    bool x_last;        /* of the parallel sum: (attention(y) + mlp(y)) + x */
    bool attended_last; /* what attention returned, and no norm of it, lives until it returns */
    bool output_last;   /* likewise what attention is before its output's product, of attention */
    bool locals_last;   /* what a layer computes on its way lives until it returns */
    const char *attention_dropout, *mlp_dropout; /* dropout's modules; NULL: a function */
    const char *embedding_dropout;               /* likewise, of the model itself */
    bool own_dropout; /* attention and feed-forward end with dropout, which is not the layer's */
    enum hf_rotary rotary;
    const char *rope;     /* RoPE's module; NULL: "rotary_emb" */
    bool rope_remade;     /* its frequencies are computed in each pass */
    bool turns_back;      /* RoPE: hf_rope.back */
    bool fp32_tables;     /* RoPE's, and what is turned by them until it is cast back */
    bool window_rope;     /* where layers have windows, those without one have no RoPE */
    bool tables_by_layer; /* RoPE's by type of layer: c->window_theta's where it has a window */
    bool chunks;          /* what windows are: the chunk of the sequence that a token is in */
    bool masks_by_layer;  /* a mask for each type of layer, asked for where any has a window */
    bool masks_of_types;  /* ... and none for a type that no layer is of */
    bool both_masks;      /* ... both, whether any layer has a window or none */
    bool tables_first;    /* RoPE's tables come before the mask in the call of a layer */
    bool tables_before;   /* ... and before a layer's part of hf_ahead.beside */
    bool positions_first; /* position_ids come before the tables in the call of a layer */
    bool embedded_last;   /* of what layers were called with, inputs_embeds are let go last */
    const char *model;    /* the module that has the layers; NULL: "model" */
    bool nested;          /* ... is called by one that keeps inputs_embeds until it returns */
    bool deeper;          /* ... and is a class that is planned by itself, too */
    bool placeholders;    /* ... which gives it tokens of its own: hf_without_placeholders */
    bool last_named;      /* what the last layer returned lives until the model returns */
    const char *embedding, *layers; /* modules of it; NULL: "embed_tokens", "layers" */
    hf_own_layer *layer;            /* not hf_block_run */
    hf_look_ahead *ahead;           /* NULL: nothing is */
    hf_spread *spread, *gather;     /* NULL: it is (b, s, h) */
    bool both_types;                /* as masks_by_layer, whether any layer has a window or none */
    const struct hf_classifier *classifier; /* an encoder's, with which it classifies sequences */
    bool encoder;            /* tokens see all others: no mask, a masked language model's
                                loss; positions are asked for nothing */
    bool masks_ahead;        /* masks are made before positions, which nothing is asked of */
    bool masked;             /* there is a mask where every token is causal, too */
    bool uncounted;          /* positions begin at 0, to which nothing is added */
    bool unasked;            /* positions are not asked whether sequences are packed */
    bool unplaced;           /* layers are called without positions, which are not asked whether
                                sequences are packed */
    enum hf_grids_way grids; /* RoPE's tables, of places in three grids */
    bool complex_table;      /* RoPE's is one, of complex numbers */
    const struct hf_mixer *mixer;    /* of layers without attention; NULL: all have it */
    const struct hf_decoder *mixing; /* ... what those are made of, and called without tables; NULL:
                                        what the others are */
    const char *apart;               /* a layer is attention, what is in its place or a feed-forward
                                        (model_feeds), a module of this name; NULL: first and last */
    bool wide_logits;                /* they are cast to fp32 as they leave the head */
    struct hf_mla_way mla;           /* where there is latent attention */
    struct hf_moe_way moe;           /* where there are experts */
};

/* Whether attention is in Python: always, or because the job asks for it. */
static inline bool hf_is_eager(const struct graph *graph, const struct hf_decoder *way)
{
    return (way->eager && graph->attention != ATTENTION_FLASH_ATTN) ||
           graph->attention == ATTENTION_EAGER;
}

/* Whether a layer has something else in the place of attention. */
static inline bool hf_mixes(const struct model_config *config, const struct hf_decoder *way,
                            uint32_t index)
{
    return way->mixer && model_is_linear(config, index);
}

/* The norms of Llama: members of an initialiser. */
#define HF_LLAMA_NORMS .norm = hf_rms_norm, HF_NORM_NAMES
#define HF_NORM_NAMES                                                                              \
    .norms = {{".input_layernorm", HF_BEFORE_ATTENTION},                                           \
              {".post_attention_layernorm", HF_BEFORE_MLP}}

/* DeepSeek-V3's mixture of experts, whose correction is of that dtype: a member's initialiser. */
#define HF_DEEPSEEK_V3_MOE(of)                                                                     \
    {                                                                                              \
        .route = hf_route_deepseek_v3, .gate = hf_gate_halves, .router = "gate",                   \
        .experts_first = true, .flattens = true, .correction = (of)                                \
    }

/* A norm of h numbers, "<prefix><name>.weight". */
struct norm hf_decoder_norm(struct graph *graph, const struct model_config *config,
                            const struct hf_decoder *decoder, const char *prefix, const char *name,
                            uint32_t h);

/* Rows of a table by tokens as its module returns them, which is called here: times `scale`, a
 * buffer (), unless that is GRAPH_NONE; that of token `padding` - 1 gets no gradient. */
uint32_t hf_embedded_rows(struct graph *graph, uint32_t tokens, uint32_t table, uint32_t scale,
                          uint32_t padding);

/* x through such a norm, as a module. */
uint32_t hf_decoder_normed(struct graph *graph, const struct hf_decoder *decoder, uint32_t x,
                           struct norm norm);

/* ---- an activation with parameters ---- */

struct hf_xielu {
    uint32_t alpha_p, alpha_n, beta, eps; /* parameters (1), buffers () */
};
/* "<prefix>act_fn.alpha_p" and the others; and of x, which stays the caller's. */
struct hf_xielu hf_xielu_declare(struct graph *graph, const char *prefix);
uint32_t hf_xielu(struct graph *graph, const struct hf_xielu *xielu, uint32_t x);

/* ---- a layer ---- */

struct hf_block {
    const struct hf_decoder *way;                 /* lent */
    struct linear q, k, v, o;                     /* q: all of it where they are fused */
    struct linear gate;                           /* way->gate_output's */
    uint32_t sinks;                               /* GRAPH_NONE: there are none */
    struct hf_mla mla;                            /* latent attention, in their place */
    union hf_mixing mixing;                       /* way->mixer's, in their place ... */
    bool mixes;                                   /* ... in this layer */
    struct hf_mlp mlp;                            /* gate: all of it where they are fused */
    struct hf_xielu xielu;                        /* its activation */
    bool beside;                                  /* ... which all tokens pass, beside experts */
    struct hf_moe moe;                            /* in its place ... */
    bool mixed;                                   /* ... in this layer */
    bool feeds;                                   /* way->apart: a feed-forward is all it is */
    struct norm q_norm, k_norm, norms[HF_PLACES]; /* weight GRAPH_NONE: no norm there */
    uint32_t window;                              /* hf_layer_call's */
    uint32_t *places;                             /* likewise */
};

/* The parameters of layer `index`, whose module is called `prefix`. */
struct hf_block hf_block_declare(struct graph *graph, const struct model_config *config,
                                 const struct hf_decoder *decoder, uint32_t index,
                                 const char *prefix);
/* x (b, s, h) through it, which stays the caller's; so do a mask (b, 1, s, s) or GRAPH_NONE and
 * RoPE's tables (1, s, d), GRAPH_NONE where the layer has none. */
uint32_t hf_block_run(struct graph *graph, const struct model_config *config,
                      const struct model_job *job, const struct hf_block *block, uint32_t x,
                      uint32_t mask, struct hf_rope rope);

/* ---- the model ---- */

void hf_decoder_build(struct graph *graph, const struct model_config *config,
                      const struct model_job *job, const struct hf_decoder *decoder);

#endif

/* tower.h - what a model has besides text: towers that see, and what joins them to it, as
 * transformers 5.23 declares them. Batches of text alone call none of it, and what is not called is
 * there all the same: stored, sharded, gathered with the unit that it is in.
 *
 * The text model around which it is has its own builder; nothing here is computed. */
#ifndef SHARDPLAN_TOWER_H
#define SHARDPLAN_TOWER_H

#include "graph/graph.h"

/* By model_type of the vision_config. */
enum tower_kind {
    TOWER_NONE,
    TOWER_QWEN2_VL,
    TOWER_QWEN2_5_VL,
    TOWER_QWEN3_VL, /* Qwen 3.5's, too */
    TOWER_SIGLIP,
    TOWER_SIGLIP2,
    TOWER_CLIP,
    TOWER_PIXTRAL,
    TOWER_IDEFICS3, /* SmolVLM's, too */
    TOWER_INTERNVL,
    TOWER_LLAMA4,
    TOWER_GEMMA4,
};

/* By model_type of the file: what is between the tower and the text. */
enum tower_joint {
    JOINT_INSIDE, /* the tower has it */
    JOINT_GEMMA3,
    JOINT_PALIGEMMA,
    JOINT_LLAVA,
    JOINT_LLAVA_NEXT, /* LLaVA-OneVision's, too */
    JOINT_MISTRAL3,
    JOINT_IDEFICS3,
    JOINT_INTERNVL,
    JOINT_LLAMA4,
    JOINT_LFM2,
    JOINT_GEMMA4,
};

struct tower {
    enum tower_kind kind; /* NONE: there is none, or none that is known */
    enum tower_joint joint;
    uint32_t layers, width, heads, ffn;
    uint32_t channels, patch;       /* of a picture, and pixels along a side of a patch */
    uint32_t frames;                /* Qwen: in a patch */
    uint32_t image;                 /* pixels along a side */
    uint32_t places;                /* of learned positions, where the file says them itself */
    uint32_t merge;                 /* patches along a side that become one */
    uint32_t out;                   /* width of what the tower returns, where it has its own */
    uint32_t ratio;                 /* Qwen2-VL: ffn over width */
    uint32_t deep[2];               /* Qwen3-VL: bits, layers whose output is merged, too */
    uint32_t joined_in, joined_out; /* Llama 4, LFM2: widths within the joint */
    uint32_t head_dim, kv_heads;    /* Gemma 4 */
    bool pooled;                    /* SigLIP: there is a head (vision_use_head) */
    bool qk_norm, biased;           /* InternVL: of q and k; of q, k and v */
    bool joint_biased, joint_norm;
};

/* How it is there: nobody trains it; likewise, and its layers have no adapters either; trained,
 * though it gets no gradient; not at all. */
enum tower_there { TOWER_FROZEN, TOWER_BARE, TOWER_TRAINED, TOWER_ABSENT };
static inline bool tower_is_there(const struct tower *tower, enum tower_there there)
{
    return tower->kind != TOWER_NONE && there != TOWER_ABSENT;
}

/* Declares its parameters and buffers, in the order of named_parameters(): those before the text
 * model's, whose width is `text`, and those behind. Linear layers have the adapters or the few bits
 * that the graph has of such. */
void tower_declare(struct graph *graph, const struct tower *tower, uint32_t text,
                   enum tower_there there);
void tower_declare_rest(struct graph *graph, const struct tower *tower, uint32_t text,
                        enum tower_there there);

/* The module that the text model is: "model.language_model". Static. */
const char *tower_text(const struct tower *tower);

/* How many parameters that are, whatever the graph makes of them; NONE: 0. */
uint64_t tower_parameters(const struct tower *tower, uint32_t text);

#endif

/* tower.h - what a model has besides text: towers that see or hear, and what joins them to it, as
 * transformers 5.23 declares them. Batches of text alone call none of it, and what is not called is
 * there all the same: stored, sharded, gathered with the unit that it is in.
 *
 * The text model around which it is has its own builder; nothing here is computed. */
#ifndef SHARDPLAN_TOWER_H
#define SHARDPLAN_TOWER_H

#include "graph/graph.h"

/* By model_type of the vision_config or the audio_config. */
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
    TOWER_CLIP_TWICE, /* Video-LLaVA: of pictures and of films */
    TOWER_KIMI,
    TOWER_VIDEO_LLAMA3,
    TOWER_MINICPM,
    TOWER_PADDLE,
    TOWER_GLM4V,
    TOWER_WHISPER, /* from here on they hear */
    TOWER_GLM_ASR,
    TOWER_QWEN2_5_OMNI, /* and from here on see, too */
    TOWER_QWEN3_OMNI,
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
    JOINT_AYA,
    JOINT_COHERE2,
    JOINT_VIPLLAVA,
    JOINT_VIDEO_LLAVA,
    JOINT_DEEPSEEK,
    JOINT_LIGHTON,
    JOINT_HYPERCLOVAX,
    JOINT_KIMI,
    JOINT_VIDEO_LLAMA3,
    JOINT_MINICPM,
    JOINT_PADDLE,
    JOINT_QWEN2_AUDIO,
    JOINT_VOXTRAL,
    JOINT_GLM_ASR,
    JOINTS,
};

/* What hears, by itself or beside what sees. */
struct tower_ears {
    uint32_t layers, width, heads, ffn;
    uint32_t kv_heads;     /* GLM-ASR; 0: as many as heads */
    uint32_t bins, places; /* of a spectrum, and of positions */
    uint32_t out, narrow;  /* Omni: width of what it returns, and channels of its convolutions */
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
    uint32_t head_dim, kv_heads;    /* Gemma 4; EXAONE 4.5 has the latter (0: as many as heads) */
    uint32_t features;              /* LLaVA: layers whose output is joined; 0: one */
    uint32_t rows, columns;         /* Kimi: of learned positions, whose `frames` are computed */
    uint32_t times;                 /* MiniCPM-V: how often the joint merges */
    struct tower_ears ears;         /* of what hears */
    bool pooled;                    /* SigLIP: there is a head (vision_use_head) */
    bool qk_norm, biased;           /* InternVL, GLM-OCR: of q and k; of q, k and v */
    bool placed;                    /* GLM-4V: there are learned positions, and a norm of patches */
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
 * model's, whose width is `text`, and those behind, where the head is not yet declared. Linear
 * layers have the adapters or the few bits that the graph has of such. */
void tower_declare(struct graph *graph, const struct tower *tower, uint32_t text,
                   enum tower_there there);
void tower_declare_rest(struct graph *graph, const struct tower *tower, uint32_t text,
                        enum tower_there there);

/* The module that the text model is: "model.language_model". Static. */
const char *tower_text(const struct tower *tower);

/* The head is of the class around the text model. Whether that does with logits, and with what they
 * are made of, what the text model's own class does: multiplies, divides or caps them. */
bool tower_scales_logits(const struct tower *tower);

/* How many parameters that are, whatever the graph makes of them; NONE: 0. */
uint64_t tower_parameters(const struct tower *tower, uint32_t text);

#endif

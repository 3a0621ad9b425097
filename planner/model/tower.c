/* tower.c - see tower.h. */
#include "model/tower.h"

#include "model/tower_parts.h"

/* ---- what joins them to the text ---- */

/* Patches of a square, side by side. */
static uint32_t merged_of(const struct tower *t)
{
    return t->width * tower_square(t->merge);
}

/* What layers return, side by side. */
static uint32_t features_of(const struct tower *t)
{
    return t->width * (t->features ? t->features : 1);
}

static void join_gemma3(struct tower_at *at)
{
    tower_weight(at, "mm_input_projection_weight", SHAPE(at->t->width, at->text));
    tower_norm(at, "mm_soft_emb_norm", at->t->width, false);
}

static void join_paligemma(struct tower_at *at)
{
    tower_linear(at, "linear", at->t->joined_out, at->t->width, true);
}

static void join_llava(struct tower_at *at)
{
    tower_two_layers(at, features_of(at->t), at->text, at->t->joint_biased);
}

static void join_vipllava(struct tower_at *at)
{
    tower_norm(at, "projector_layernorm", features_of(at->t), true);
    tower_two_layers(at, features_of(at->t), at->text, true);
}

static void join_mistral3(struct tower_at *at)
{
    tower_norm(at, "norm", at->t->width, false);
    tower_linear(at, "patch_merger.merging_layer", at->t->width, merged_of(at->t), false);
    tower_two_layers(at, at->t->width, at->text, at->t->joint_biased);
}

static void join_idefics3(struct tower_at *at)
{
    tower_linear(at, "modality_projection.proj", at->text, merged_of(at->t), false);
}

static void join_internvl(struct tower_at *at)
{
    tower_norm(at, "layer_norm", merged_of(at->t), true);
    tower_two_layers(at, merged_of(at->t), at->text, true);
}

static void join_llama4(struct tower_at *at)
{
    tower_linear(at, "linear_1", at->text, at->t->out, false);
}

static void join_lfm2(struct tower_at *at)
{
    if (at->t->joint_norm)
        tower_norm(at, "layer_norm", merged_of(at->t), true);
    tower_two_layers(at, merged_of(at->t), at->t->joined_out, at->t->joint_biased);
}

static void join_gemma4(struct tower_at *at)
{
    tower_linear(at, "embedding_projection", at->text, at->t->width, false);
}

/* A gated one: the second layer is of half of what the first returns. */
static void join_cohere2(struct tower_at *at)
{
    const uint32_t between = at->t->joined_out ? at->t->joined_out : at->text;
    tower_linear(at, "linear_1", between, merged_of(at->t), true);
    tower_linear(at, "linear_2", at->text, between / 2, true);
}

static void join_aya(struct tower_at *at)
{
    tower_norm(at, "layernorm", merged_of(at->t), true);
    join_cohere2(at);
}

static void join_deepseek(struct tower_at *at)
{
    tower_linear(at, "linear1", at->text, at->t->width, true);
    tower_linear(at, "linear2", at->text, at->text, true);
}

static void join_hyperclovax(struct tower_at *at)
{
    tower_linear(at, "projector", at->text, at->t->out, true);
}

static void join_kimi(struct tower_at *at)
{
    tower_norm(at, "pre_norm", at->t->joined_in, true);
    tower_linear(at, "in_proj", merged_of(at->t), merged_of(at->t), true);
    tower_linear(at, "out_proj", at->text, merged_of(at->t), true);
}

static void join_video_llama3(struct tower_at *at)
{
    tower_linear(at, "readout.0", at->text, at->t->width, true);
    tower_linear(at, "readout.2", at->text, at->text, true);
}

/* Once to the text's width, before that to the tower's. */
static void join_minicpm(struct tower_at *at)
{
    const uint32_t merged = merged_of(at->t);
    for (uint32_t i = 0; i < at->t->times; i++) {
        tower_into(at, "%u.", i);
        tower_norm(at, "pre_norm", merged, true);
        tower_linear(at, "linear_1", merged, merged, true);
        tower_linear(at, "linear_2", i + 1 < at->t->times ? at->t->width : at->text, merged, true);
    }
}

static void join_paddle(struct tower_at *at)
{
    tower_norm(at, "pre_norm", at->t->width, true);
    tower_two_layers(at, merged_of(at->t), merged_of(at->t), true);
}

static void join_qwen2_audio(struct tower_at *at)
{
    tower_linear(at, "linear", at->text, at->t->ears.width, true);
}

/* What is heard becomes shorter: so many places side by side as are as wide as a feed-forward. */
static void join_voxtral(struct tower_at *at)
{
    tower_two_layers(at, at->t->ears.ffn, at->text, false);
}

static void join_glm_asr(struct tower_at *at)
{
    tower_two_layers(at, at->t->ears.ffn, 2 * at->text, true);
}

/* Modules: of the tower, of the joint, and the text model. */
struct joint {
    const char *tower, *path, *text;
    tower_part *join; /* NULL: the tower has it */
    bool last;        /* it is declared behind the text model */
    bool newline;     /* there is a row for the end of a line, declared first */
    bool scales;      /* logits are what the text model's class makes of them */
};

#define SEEN "model.vision_tower."
#define HEARD "model.audio_tower."
#define PROJECTOR "model.multi_modal_projector."
#define TEXT "model.language_model"

/* clang-format off */
static const struct joint joints[JOINTS] = {
    [JOINT_INSIDE]       = {"model.visual.", "", TEXT, NULL},
    [JOINT_GEMMA3]       = {SEEN, PROJECTOR, TEXT, join_gemma3},
    [JOINT_PALIGEMMA]    = {SEEN, PROJECTOR, TEXT, join_paligemma, .scales = true},
    [JOINT_LLAVA]        = {SEEN, PROJECTOR, TEXT, join_llava},
    [JOINT_LLAVA_NEXT]   = {SEEN, PROJECTOR, TEXT, join_llava, .newline = true},
    [JOINT_MISTRAL3]     = {SEEN, PROJECTOR, TEXT, join_mistral3},
    [JOINT_IDEFICS3]     = {"model.vision_model.", "model.connector.", "model.text_model",
                            join_idefics3},
    [JOINT_INTERNVL]     = {SEEN, PROJECTOR, TEXT, join_internvl},
    [JOINT_LLAMA4]       = {"vision_model.", "multi_modal_projector.", "language_model.model",
                            join_llama4},
    [JOINT_LFM2]         = {SEEN, PROJECTOR, TEXT, join_lfm2},
    [JOINT_GEMMA4]       = {SEEN, "model.embed_vision.", TEXT, join_gemma4, .last = true,
                            .scales = true},
    [JOINT_AYA]          = {SEEN, PROJECTOR, TEXT, join_aya},
    [JOINT_COHERE2]      = {SEEN, PROJECTOR, TEXT, join_cohere2},
    [JOINT_VIPLLAVA]     = {SEEN, PROJECTOR, TEXT, join_vipllava},
    [JOINT_VIDEO_LLAVA]  = {"model.image_tower.", PROJECTOR, TEXT, join_llava},
    [JOINT_DEEPSEEK]     = {"model.vision_model.", "model.aligner.", TEXT, join_deepseek},
    [JOINT_LIGHTON]      = {"model.vision_encoder.", "model.vision_projection.", TEXT,
                            join_mistral3},
    [JOINT_HYPERCLOVAX]  = {"model.vision_model.", "model.", TEXT, join_hyperclovax,
                            .scales = true},
    [JOINT_KIMI]         = {SEEN, "model.mm_projector.", TEXT, join_kimi, .last = true},
    [JOINT_VIDEO_LLAMA3] = {"model.vision_model.", "model.projector.", TEXT, join_video_llama3},
    [JOINT_MINICPM]      = {SEEN, "model.merger.mlp.", TEXT, join_minicpm, .last = true},
    [JOINT_PADDLE]       = {"model.visual.vision_model.", "model.projector.", TEXT, join_paddle,
                            .last = true},
    [JOINT_QWEN2_AUDIO]  = {HEARD, PROJECTOR, TEXT, join_qwen2_audio},
    [JOINT_VOXTRAL]      = {HEARD, PROJECTOR, TEXT, join_voxtral, .last = true},
    [JOINT_GLM_ASR]      = {HEARD, PROJECTOR, TEXT, join_glm_asr, .last = true},
};
/* clang-format on */

/* ---- all of it ---- */

static void declare_as(struct graph *graph, const struct tower *tower, uint32_t text,
                       enum tower_there there, tower_part *part)
{
    struct tower_at at = {.graph = graph, .t = tower, .text = text};
    const bool frozen = graph->all_frozen;
    const uint32_t rank = graph->lora.rank;
    if (!tower_is_there(tower, there))
        return;
    graph->all_frozen = frozen || there != TOWER_TRAINED;
    if (there == TOWER_BARE)
        graph->lora.rank = 0;
    graph->lora.beside = true;
    part(&at);
    graph->lora.beside = false;
    graph->lora.rank = rank;
    graph->all_frozen = frozen;
}

static void join(struct tower_at *at)
{
    const struct joint *joint = &joints[at->t->joint];
    at->base = joint->path;
    tower_here(at);
    if (joint->join)
        joint->join(at);
}

static void before_text(struct tower_at *at)
{
    static tower_part *const towers[] = {
        [TOWER_QWEN2_VL] = tower_qwen2_vl,
        [TOWER_QWEN2_5_VL] = tower_qwen2_5_vl,
        [TOWER_QWEN3_VL] = tower_qwen3_vl,
        [TOWER_SIGLIP] = tower_siglip,
        [TOWER_SIGLIP2] = tower_siglip,
        [TOWER_CLIP] = tower_clip,
        [TOWER_PIXTRAL] = tower_pixtral,
        [TOWER_IDEFICS3] = tower_idefics3,
        [TOWER_INTERNVL] = tower_internvl,
        [TOWER_LLAMA4] = tower_llama4,
        [TOWER_GEMMA4] = tower_gemma4,
        [TOWER_CLIP_TWICE] = tower_clip_twice,
        [TOWER_KIMI] = tower_kimi,
        [TOWER_VIDEO_LLAMA3] = tower_video_llama3,
        [TOWER_MINICPM] = tower_minicpm,
        [TOWER_PADDLE] = tower_paddle,
        [TOWER_GLM4V] = tower_glm4v,
        [TOWER_WHISPER] = tower_whisper,
        [TOWER_GLM_ASR] = tower_glm_asr,
        [TOWER_QWEN2_5_OMNI] = tower_qwen2_5_omni,
        [TOWER_QWEN3_OMNI] = tower_qwen3_omni,
    };
    const struct joint *joint = &joints[at->t->joint];
    if (joint->newline)
        graph_param(at->graph, PARAM_WEIGHT, SHAPE(at->text), "model.image_newline");
    at->base = joint->tower;
    towers[at->t->kind](at);
    if (!joint->last)
        join(at);
}

static void behind_text(struct tower_at *at)
{
    if (joints[at->t->joint].last)
        join(at);
}

void tower_declare(struct graph *graph, const struct tower *tower, uint32_t text,
                   enum tower_there there)
{
    declare_as(graph, tower, text, there, before_text);
}

void tower_declare_rest(struct graph *graph, const struct tower *tower, uint32_t text,
                        enum tower_there there)
{
    declare_as(graph, tower, text, there, behind_text);
}

const char *tower_text(const struct tower *tower)
{
    return joints[tower->joint].text;
}

bool tower_scales_logits(const struct tower *tower)
{
    return joints[tower->joint].scales;
}

uint64_t tower_parameters(const struct tower *tower, uint32_t text)
{
    struct graph *graph = graph_new(DTYPE_BF16, NULL);
    tower_declare(graph, tower, text, TOWER_FROZEN);
    tower_declare_rest(graph, tower, text, TOWER_FROZEN);
    const uint64_t elements = graph_parameter_elements(graph);
    graph_free(graph);
    return elements;
}

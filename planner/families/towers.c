/* towers.c - see towers.h. Names, defaults and model_types are transformers' 5.23. */
#include "families/towers.h"

#include "families/family.h"
#include "model/keys.h"
#include "model/shown.h"

#include <stdio.h>
#include <string.h>

enum { SIDE_MAX = 8192, DEEPEST = 63, LEAST_HEAD = 4 };

#define OF(key) "vision_config." key
#define HEARD(key) "audio_config." key
#define HEARD_NUMBER(key, member, number, most)                                                    \
    {                                                                                              \
        COUNT(HEARD(key), tower.ears.member, number, most)                                         \
    }
#define NUMBER_OF(key, member, number, most)                                                       \
    {                                                                                              \
        COUNT(OF(key), tower.member, number, most)                                                 \
    }
#define FLAG_OF(key, member, number)                                                               \
    {                                                                                              \
        FLAG(OF(key), tower.member, number)                                                        \
    }
#define SIDE_OF(key, member, number)                                                               \
    {                                                                                              \
        .name = OF(key), .type = KEY_EACH, AT(tower.member), .absent = RULE_VALUE,                 \
        .value = (number), .min = 1, .max = SIDE_MAX                                               \
    }
#define SIZES(layers_, width_, heads_, ffn_)                                                       \
    NUMBER_OF("num_hidden_layers", layers, layers_, LAYERS_MAX),                                   \
        NUMBER_OF("hidden_size", width, width_, HIDDEN_MAX),                                       \
        NUMBER_OF("num_attention_heads", heads, heads_, HEADS_MAX),                                \
        NUMBER_OF("intermediate_size", ffn, ffn_, FFN_MAX)
#define PATCHES(pixels)                                                                            \
    NUMBER_OF("num_channels", channels, 3, 64), SIDE_OF("patch_size", patch, pixels)

/* A key is a line. */
/* clang-format off */
#define QWEN_PATCHES(pixels)                                                                       \
    NUMBER_OF("in_channels", channels, 3, 64), SIDE_OF("patch_size", patch, pixels),               \
    NUMBER_OF("temporal_patch_size", frames, 2, 64),                                               \
    NUMBER_OF("spatial_merge_size", merge, 2, 64), NUMBER_OF("num_heads", heads, 16, HEADS_MAX)

static const struct key qwen2_vl[] = {
    NUMBER_OF("depth", layers, 32, LAYERS_MAX),
    NUMBER_OF("embed_dim", width, 1280, HIDDEN_MAX),
    NUMBER_OF("mlp_ratio", ratio, 4, 64),
    NUMBER_OF("hidden_size", out, 3584, HIDDEN_MAX),
    QWEN_PATCHES(14),
};

static const struct key qwen2_5_vl[] = {
    NUMBER_OF("depth", layers, 32, LAYERS_MAX),
    NUMBER_OF("hidden_size", width, 3584, HIDDEN_MAX),
    NUMBER_OF("intermediate_size", ffn, 3420, FFN_MAX),
    NUMBER_OF("out_hidden_size", out, 3584, HIDDEN_MAX),
    QWEN_PATCHES(14),
};

#define QWEN3(heads)                                                                               \
    NUMBER_OF("depth", layers, 27, LAYERS_MAX),                                                    \
    NUMBER_OF("hidden_size", width, 1152, HIDDEN_MAX),                                             \
    NUMBER_OF("intermediate_size", ffn, 4304, FFN_MAX),                                            \
    NUMBER_OF("out_hidden_size", out, 3584, HIDDEN_MAX),                                           \
    NUMBER_OF("num_position_embeddings", places, 2304, POSITIONS_MAX),                             \
    QWEN_PATCHES(16)

static const struct key qwen3_5[] = {QWEN3(16)};
/* Absent: of layers 8, 16 and 24. */
static const struct key qwen3_vl[] = {
    QWEN3(16),
    {.name = OF("deepstack_visual_indexes"), .type = KEY_SET, AT(tower.deep), .absent = RULE_VALUE,
     .value = (1 << 8) + (1 << 16) + (1 << 24), .max = DEEPEST},
};

static const struct key siglip[] = {
    SIZES(12, 768, 12, 3072), PATCHES(16), SIDE_OF("image_size", image, 224),
    FLAG_OF("vision_use_head", pooled, true),
    {COUNT("projection_dim", tower.joined_out, 2048, HIDDEN_MAX)}, /* PaliGemma's */
};

static const struct key siglip2[] = {
    SIZES(12, 768, 12, 3072), PATCHES(16),
    NUMBER_OF("num_patches", places, 256, POSITIONS_MAX),
    FLAG_OF("vision_use_head", pooled, true),
    {COUNT("downsample_factor", tower.merge, 2, 64)},
    {COUNT("projector_hidden_size", tower.joined_out, 2560, HIDDEN_MAX)},
    {FLAG("projector_use_layernorm", tower.joint_norm, true)},
    {FLAG("projector_bias", tower.joint_biased, true)},
};

static const struct key clip[] = {
    SIZES(24, 1024, 16, 4096), PATCHES(14), SIDE_OF("image_size", image, 336),
};

static const struct key pixtral[] = {
    SIZES(24, 1024, 16, 4096), PATCHES(16),
    {COUNT("spatial_merge_size", tower.merge, 2, 64)},
};

static const struct key idefics3[] = {
    SIZES(12, 1152, 16, 3072), PATCHES(32), SIDE_OF("image_size", image, 224),
    {COUNT("scale_factor", tower.merge, 2, 64)},
};

static const struct key internvl[] = {
    SIZES(24, 1024, 16, 4096), PATCHES(14), SIDE_OF("image_size", image, 448),
    FLAG_OF("attention_bias", biased, false), FLAG_OF("use_qk_norm", qk_norm, false),
};

static const struct key llama4[] = {
    SIZES(34, 768, 16, 5632), PATCHES(14), SIDE_OF("image_size", image, 448),
    NUMBER_OF("projector_input_dim", joined_in, 4096, HIDDEN_MAX),
    NUMBER_OF("projector_output_dim", joined_out, 4096, HIDDEN_MAX),
    NUMBER_OF("vision_output_dim", out, 7680, HIDDEN_MAX),
};

static const struct key gemma4[] = {
    SIZES(16, 768, 12, 3072), SIDE_OF("patch_size", patch, 16),
    NUMBER_OF("num_key_value_heads", kv_heads, 12, HEADS_MAX),
    NUMBER_OF("head_dim", head_dim, 64, HIDDEN_MAX),
    NUMBER_OF("position_embedding_size", places, 10240, POSITIONS_MAX),
};

static const struct key aya[] = {
    SIZES(27, 1152, 14, 4304), PATCHES(14), SIDE_OF("image_size", image, 384),
    FLAG_OF("vision_use_head", pooled, false),
    {COUNT("downsample_factor", tower.merge, 2, 64)},
    {COUNT("alignment_intermediate_size", tower.joined_out, 0, HIDDEN_MAX), .null = RULE_NONE},
};

static const struct key cohere2[] = {
    SIZES(27, 1152, 12, 3072), PATCHES(16), SIDE_OF("image_size", image, 512),
    FLAG_OF("vision_use_head", pooled, true),
    {COUNT("downsample_factor", tower.merge, 2, 64)},
    {COUNT("alignment_intermediate_size", tower.joined_out, 36864, HIDDEN_MAX)},
};

static const struct key video_llava[] = {
    SIZES(24, 1024, 16, 4096), PATCHES(14), SIDE_OF("image_size", image, 224),
};

static const struct key deepseek[] = {
    SIZES(12, 768, 12, 3072), PATCHES(16), SIDE_OF("image_size", image, 224),
    FLAG_OF("vision_use_head", pooled, true),
};

static const struct key lighton[] = {
    SIZES(24, 1024, 16, 4096), PATCHES(14),
    {COUNT("spatial_merge_size", tower.merge, 2, 64)},
};

static const struct key exaone[] = {
    NUMBER_OF("depth", layers, 32, LAYERS_MAX),
    NUMBER_OF("hidden_size", width, 3584, HIDDEN_MAX),
    NUMBER_OF("intermediate_size", ffn, 3420, FFN_MAX),
    NUMBER_OF("out_hidden_size", out, 3584, HIDDEN_MAX),
    NUMBER_OF("num_key_value_heads", kv_heads, 8, HEADS_MAX),
    QWEN_PATCHES(14),
};

static const struct key kimi[] = {
    SIZES(27, 1152, 16, 4304), PATCHES(14),
    NUMBER_OF("pos_emb_height", rows, 64, POSITIONS_MAX),
    NUMBER_OF("pos_emb_width", columns, 64, POSITIONS_MAX),
    NUMBER_OF("pos_emb_time", frames, 4, POSITIONS_MAX),
    SIDE_OF("merge_kernel_size", merge, 2),
    {COUNT("projection_hidden_size", tower.joined_in, 1152, HIDDEN_MAX)},
};

static const struct key video_llama3[] = {
    SIZES(12, 768, 12, 3072), PATCHES(16),
};

static const struct key minicpm[] = {
    SIZES(12, 768, 12, 3072), PATCHES(16), SIDE_OF("image_size", image, 224),
    SIDE_OF("window_kernel_size", merge, 2),
    {COUNT("merger_times", tower.times, 1, 64)},
};

static const struct key paddle[] = {
    SIZES(27, 1152, 16, 4304), PATCHES(14), SIDE_OF("image_size", image, 384),
    NUMBER_OF("spatial_merge_size", merge, 2, 64),
};

#define GLM4V(layers_, width_, heads_, ffn_, out_, bias)                                           \
    NUMBER_OF("depth", layers, layers_, LAYERS_MAX),                                               \
    NUMBER_OF("hidden_size", width, width_, HIDDEN_MAX),                                           \
    NUMBER_OF("intermediate_size", ffn, ffn_, FFN_MAX),                                            \
    NUMBER_OF("out_hidden_size", out, out_, HIDDEN_MAX),                                           \
    SIDE_OF("image_size", image, 336), FLAG_OF("attention_bias", biased, bias),                    \
    NUMBER_OF("in_channels", channels, 3, 64), SIDE_OF("patch_size", patch, 14),                   \
    NUMBER_OF("temporal_patch_size", frames, 2, 64),                                               \
    NUMBER_OF("spatial_merge_size", merge, 2, 64),                                                 \
    NUMBER_OF("num_heads", heads, heads_, HEADS_MAX)

static const struct key glm4v[] = {
    GLM4V(24, 1536, 12, 13696, 4096, false),
    {ALWAYS(OF("position_embedding"), tower.placed)},
};

static const struct key glm_ocr[] = {
    GLM4V(24, 1024, 16, 4096, 1536, true),
};

#define SPECTRUM                                                                                   \
    HEARD_NUMBER("num_mel_bins", bins, 128, HIDDEN_MAX),                                           \
    HEARD_NUMBER("max_source_positions", places, 1500, POSITIONS_MAX)
/* Whisper's names of sizes, and others'. */
#define WHISPER_EARS                                                                               \
    HEARD_NUMBER("encoder_layers", layers, 32, LAYERS_MAX),                                        \
    HEARD_NUMBER("d_model", width, 1280, HIDDEN_MAX),                                              \
    HEARD_NUMBER("encoder_attention_heads", heads, 20, HEADS_MAX),                                 \
    HEARD_NUMBER("encoder_ffn_dim", ffn, 5120, FFN_MAX), SPECTRUM
#define EARS                                                                                       \
    HEARD_NUMBER("num_hidden_layers", layers, 32, LAYERS_MAX),                                     \
    HEARD_NUMBER("hidden_size", width, 1280, HIDDEN_MAX),                                          \
    HEARD_NUMBER("num_attention_heads", heads, 20, HEADS_MAX),                                     \
    HEARD_NUMBER("intermediate_size", ffn, 5120, FFN_MAX)
#define OMNI_EARS WHISPER_EARS, HEARD_NUMBER("output_dim", out, 3584, HIDDEN_MAX)

static const struct key whisper[] = {WHISPER_EARS};
static const struct key voxtral[] = {EARS, SPECTRUM};
static const struct key glm_asr[] = {
    EARS, HEARD_NUMBER("num_mel_bins", bins, 128, HIDDEN_MAX),
    {DERIVED(HEARD("num_key_value_heads"), tower.ears.kv_heads, RULE_NONE, HEADS_MAX)},
};

static const struct key qwen2_5_omni[] = {
    NUMBER_OF("depth", layers, 32, LAYERS_MAX),
    NUMBER_OF("hidden_size", width, 3584, HIDDEN_MAX),
    NUMBER_OF("intermediate_size", ffn, 3420, FFN_MAX),
    NUMBER_OF("out_hidden_size", out, 3584, HIDDEN_MAX),
    QWEN_PATCHES(14), OMNI_EARS,
};

static const struct key qwen3_omni[] = {
    QWEN3(16),
    {.name = OF("deepstack_visual_indexes"), .type = KEY_SET, AT(tower.deep), .absent = RULE_VALUE,
     .value = (1 << 8) + (1 << 16) + (1 << 24), .max = DEEPEST},
    OMNI_EARS, HEARD_NUMBER("downsample_hidden_size", narrow, 480, HIDDEN_MAX),
};
/* clang-format on */

/* ---- which there are ---- */

/* `seen`: model_type of the vision_config, which has it where it names none and the row is the
 * class's first; NULL: whatever it says (files of Qwen's have had several names for theirs). */
struct sees {
    const char *type, *seen;
    enum tower_kind kind;
    enum tower_joint joint;
    struct key_table keys;
};

/* clang-format off */
static const struct sees models[] = {
    {"qwen2_vl",        NULL,                  TOWER_QWEN2_VL,   JOINT_INSIDE,     KEY_TABLE(qwen2_vl)},
    {"qwen2_5_vl",      NULL,                  TOWER_QWEN2_5_VL, JOINT_INSIDE,     KEY_TABLE(qwen2_5_vl)},
    {"qwen3_vl",        NULL,                  TOWER_QWEN3_VL,   JOINT_INSIDE,     KEY_TABLE(qwen3_vl)},
    {"qwen3_vl_moe",    NULL,                  TOWER_QWEN3_VL,   JOINT_INSIDE,     KEY_TABLE(qwen3_vl)},
    {"qwen3_5",         NULL,                  TOWER_QWEN3_VL,   JOINT_INSIDE,     KEY_TABLE(qwen3_5)},
    {"qwen3_5_moe",     NULL,                  TOWER_QWEN3_VL,   JOINT_INSIDE,     KEY_TABLE(qwen3_5)},
    {"gemma3",          "siglip_vision_model", TOWER_SIGLIP,     JOINT_GEMMA3,     KEY_TABLE(siglip)},
    {"gemma4",          "gemma4_vision",       TOWER_GEMMA4,     JOINT_GEMMA4,     KEY_TABLE(gemma4)},
    {"paligemma",       "siglip_vision_model", TOWER_SIGLIP,     JOINT_PALIGEMMA,  KEY_TABLE(siglip)},
    {"llava",           "clip_vision_model",   TOWER_CLIP,       JOINT_LLAVA,      KEY_TABLE(clip)},
    {"llava",           "siglip_vision_model", TOWER_SIGLIP,     JOINT_LLAVA,      KEY_TABLE(siglip)},
    {"llava",           "pixtral",             TOWER_PIXTRAL,    JOINT_LLAVA,      KEY_TABLE(pixtral)},
    {"llava_next",      "clip_vision_model",   TOWER_CLIP,       JOINT_LLAVA_NEXT, KEY_TABLE(clip)},
    {"llava_next",      "siglip_vision_model", TOWER_SIGLIP,     JOINT_LLAVA_NEXT, KEY_TABLE(siglip)},
    {"llava_onevision", "siglip_vision_model", TOWER_SIGLIP,     JOINT_LLAVA_NEXT, KEY_TABLE(siglip)},
    {"mistral3",        "pixtral",             TOWER_PIXTRAL,    JOINT_MISTRAL3,   KEY_TABLE(pixtral)},
    {"idefics3",        "idefics3_vision",     TOWER_IDEFICS3,   JOINT_IDEFICS3,   KEY_TABLE(idefics3)},
    {"idefics3",        "idefics3",            TOWER_IDEFICS3,   JOINT_IDEFICS3,   KEY_TABLE(idefics3)},
    {"smolvlm",         "smolvlm_vision",      TOWER_IDEFICS3,   JOINT_IDEFICS3,   KEY_TABLE(idefics3)},
    {"internvl",        "internvl_vision",     TOWER_INTERNVL,   JOINT_INTERNVL,   KEY_TABLE(internvl)},
    {"llama4",          "llama4_vision_model", TOWER_LLAMA4,     JOINT_LLAMA4,     KEY_TABLE(llama4)},
    {"lfm2_vl",         "siglip2_vision_model", TOWER_SIGLIP2,   JOINT_LFM2,       KEY_TABLE(siglip2)},
    {"llava_next_video", "clip_vision_model",  TOWER_CLIP,       JOINT_LLAVA_NEXT, KEY_TABLE(clip)},
    {"llava_next_video", "siglip_vision_model", TOWER_SIGLIP,    JOINT_LLAVA_NEXT, KEY_TABLE(siglip)},
    {"vipllava",        "clip_vision_model",   TOWER_CLIP,       JOINT_VIPLLAVA,   KEY_TABLE(clip)},
    {"video_llava",     "clip_vision_model",   TOWER_CLIP_TWICE, JOINT_VIDEO_LLAVA, KEY_TABLE(video_llava)},
    {"aya_vision",      "siglip_vision_model", TOWER_SIGLIP,     JOINT_AYA,        KEY_TABLE(aya)},
    {"cohere2_vision",  "siglip_vision_model", TOWER_SIGLIP,     JOINT_COHERE2,    KEY_TABLE(cohere2)},
    {"deepseek_vl",     "siglip_vision_model", TOWER_SIGLIP,     JOINT_DEEPSEEK,   KEY_TABLE(deepseek)},
    {"lighton_ocr",     "pixtral",             TOWER_PIXTRAL,    JOINT_LIGHTON,    KEY_TABLE(lighton)},
    {"hyperclovax_vision_v2", NULL,             TOWER_QWEN2_5_VL, JOINT_HYPERCLOVAX, KEY_TABLE(qwen2_5_vl)},
    {"exaone4_5",       "exaone4_5_vision",    TOWER_QWEN2_5_VL, JOINT_INSIDE,     KEY_TABLE(exaone)},
    {"kimi_k25",        "kimi_k25_vision",     TOWER_KIMI,       JOINT_KIMI,       KEY_TABLE(kimi)},
    {"video_llama_3",   "video_llama_3_vision", TOWER_VIDEO_LLAMA3, JOINT_VIDEO_LLAMA3, KEY_TABLE(video_llama3)},
    {"minicpmv4_6",     "minicpmv4_6_vision",  TOWER_MINICPM,    JOINT_MINICPM,    KEY_TABLE(minicpm)},
    {"paddleocr_vl",    NULL,                  TOWER_PADDLE,     JOINT_PADDLE,     KEY_TABLE(paddle)},
    {"glm4v",           NULL,                  TOWER_GLM4V,      JOINT_INSIDE,     KEY_TABLE(glm4v)},
    {"glm46v",          NULL,                  TOWER_GLM4V,      JOINT_INSIDE,     KEY_TABLE(glm4v)},
    {"glm4v_moe",       NULL,                  TOWER_GLM4V,      JOINT_INSIDE,     KEY_TABLE(glm4v)},
    {"glm_ocr",         NULL,                  TOWER_GLM4V,      JOINT_INSIDE,     KEY_TABLE(glm_ocr)},
    {"qwen2_audio",     NULL,                  TOWER_WHISPER,    JOINT_QWEN2_AUDIO, KEY_TABLE(whisper)},
    {"voxtral",         NULL,                  TOWER_WHISPER,    JOINT_VOXTRAL,    KEY_TABLE(voxtral)},
    {"glmasr",          NULL,                  TOWER_GLM_ASR,    JOINT_GLM_ASR,    KEY_TABLE(glm_asr)},
    {"qwen2_5_omni_thinker", NULL,             TOWER_QWEN2_5_OMNI, JOINT_INSIDE,   KEY_TABLE(qwen2_5_omni)},
    {"qwen3_omni_moe_thinker", NULL,           TOWER_QWEN3_OMNI, JOINT_INSIDE,     KEY_TABLE(qwen3_omni)},
};
/* clang-format on */

static const struct sees *find(const char *type, const char *seen)
{
    for (size_t i = 0; type && i < sizeof models / sizeof *models; i++) {
        const struct sees *m = &models[i];
        if (strcmp(type, m->type) == 0 && (!m->seen || !seen || strcmp(seen, m->seen) == 0))
            return m;
    }
    return NULL;
}

static const json_t *of_vision(const json_t *root, const char *key)
{
    return json_object_get(json_object_get(root, "vision_config"), key);
}

static bool hears(enum tower_kind kind)
{
    return kind >= TOWER_WHISPER;
}

/* Joints that are wider where layers are listed whose output they have. */
static bool joins_features(enum tower_joint joint)
{
    return joint == JOINT_LLAVA || joint == JOINT_LLAVA_NEXT || joint == JOINT_VIPLLAVA ||
           joint == JOINT_VIDEO_LLAVA;
}

/* What is declared otherwise than here, or not at all. */
static bool is_other(const json_t *root, const struct sees *model)
{
    const char *norm = json_string_value(of_vision(root, "norm_type")); /* InternVL */
    return (norm && strcmp(norm, "layer_norm") != 0) ||
           json_is_true(of_vision(root, "use_mask_token")) ||
           json_is_true(of_vision(root, "use_clipped_linears")) || /* Gemma 4: buffers */
           json_is_true(of_vision(root, "standardize")) ||
           (json_is_object(json_object_get(root, "audio_config")) && !hears(model->kind)) ||
           (json_is_array(json_object_get(root, "vision_feature_layer")) &&
            !joins_features(model->joint));
}

/* That there is a patch in a picture, and something that RoPE turns in a head. */
static enum err_code check_sizes(const struct tower *tower, const char *where, struct err *err)
{
    const struct tower_ears *ears = &tower->ears;
    const bool only_hears = ears->heads && !tower->heads;
    const uint32_t head = only_hears                    ? ears->width / ears->heads
                          : tower->kind == TOWER_GEMMA4 ? tower->head_dim
                                                        : tower->width / tower->heads;
    if (tower->image && tower->image < tower->patch)
        return err_set(err, ERR_INVALID,
                       "%s: \"vision_config.image_size\": %u pixels are less than a patch of %u",
                       where, tower->image, tower->patch);
    if (head < LEAST_HEAD)
        return err_set(err, ERR_INVALID,
                       "%s: \"%s_config\": heads of %u numbers: at least %d are planned", where,
                       only_hears ? "audio" : "vision", head, LEAST_HEAD);
    return ERR_OK;
}

/* The class around says whether the head is tied; LLaVA's and OneVision's take the text model's
 * word, too, Llama 4's takes that alone, and Idefics' says no where its file says nothing. Others
 * tie by default, but not what their files are of: checkpoints with both, which are then not tied.
 */
static void read_tied(const json_t *root, const struct sees *model, struct model_config *out)
{
    const bool either =
        strcmp(model->type, "llava") == 0 || strcmp(model->type, "llava_onevision") == 0;
    const json_t *tied = json_object_get(root, "tie_word_embeddings");
    if (model->joint == JOINT_LLAMA4 || family_of(out->arch)->outer)
        return;
    if (model->joint == JOINT_QWEN2_AUDIO || model->joint == JOINT_VOXTRAL) { /* they never are */
        out->tied = false;
        return;
    }
    if (json_is_boolean(tied))
        out->tied = json_is_true(tied) || (either && out->tied);
    else if (model->joint == JOINT_IDEFICS3)
        out->tied = false;
}

/* Layers whose output a joint has: those that are listed, or one; ViP-LLaVA's class has five. */
static uint32_t features(const json_t *root, enum tower_joint joint)
{
    const json_t *layers = json_object_get(root, "vision_feature_layer");
    const size_t count = json_array_size(layers);
    if (!joins_features(joint))
        return 0;
    if (!layers && joint == JOINT_VIPLLAVA)
        return 5;
    return count > 0 && count <= LAYERS_MAX ? (uint32_t)count : 1;
}

enum err_code tower_read(const json_t *root, const char *where, struct model_config *out,
                         struct err *err)
{
    const char *type = json_string_value(json_object_get(root, "model_type"));
    const struct sees *model = find(type, json_string_value(of_vision(root, "model_type")));
    const json_t *vision = json_object_get(root, "vision_config");
    if (!model || is_other(root, model) || json_is_null(vision))
        return ERR_OK;
    if (vision && !json_is_object(vision))
        return err_set(err, ERR_INVALID, "%s: \"vision_config\": expected an object, got %s", where,
                       shown_of(vision).text);
    out->tower.kind = model->kind;
    out->tower.joint = model->joint;
    out->tower.features = features(root, model->joint);
    if (joins_features(model->joint))
        out->tower.joint_biased =
            !json_is_false(json_object_get(root, "multimodal_projector_bias"));
    if (model->joint == JOINT_MISTRAL3)
        out->tower.joint_biased = json_is_true(json_object_get(root, "multimodal_projector_bias"));
    if (model->joint == JOINT_INTERNVL)
        out->tower.merge = 2; /* downsample_ratio 0.5 */
    read_tied(root, model, out);
    TRY(keys_read(&model->keys, root, where, out, err));
    return check_sizes(&out->tower, where, err);
}

/* ---- presets ---- */

/* What the macros hold is a row: no block, no expression. */
/* NOLINTBEGIN(bugprone-macro-parentheses) */

/* Of the config.json on Hugging Face; with the text model's they are as many parameters as the Hub
 * shows, where it shows no more (tests/families/test_towers.c). */
#define QWEN_TOWER(kind_, layers_, width_, ffn_, out_, pixels)                                     \
    {                                                                                              \
        .kind = kind_, .layers = layers_, .width = width_, .heads = 16, .ffn = ffn_,               \
        .channels = 3, .patch = pixels, .frames = 2, .merge = 2, .out = out_, .ratio = 4,          \
        .places = 2304
#define QWEN2(out)                                                                                 \
    QWEN_TOWER(TOWER_QWEN2_VL, 32, 1280, 0, out, 14)                                               \
    }
#define QWEN2_5(ffn, out)                                                                          \
    QWEN_TOWER(TOWER_QWEN2_5_VL, 32, 1280, ffn, out, 14)                                           \
    }
#define QWEN3_SMALL(out) QWEN_TOWER(TOWER_QWEN3_VL, 24, 1024, 4096, out, 16)
#define QWEN3_LARGE(out) QWEN_TOWER(TOWER_QWEN3_VL, 27, 1152, 4304, out, 16)
#define DEEP(a, b, c)                                                                              \
    .deep = {1U << (a) | 1U << (b) | 1U << (c)}                                                    \
    }
#define GEMMA3_TOWER                                                                               \
    {                                                                                              \
        .kind = TOWER_SIGLIP, .joint = JOINT_GEMMA3, .layers = 27, .width = 1152, .heads = 16,     \
        .ffn = 4304, .channels = 3, .patch = 14, .image = 896                                      \
    }
#define MISTRAL_TOWER                                                                              \
    {                                                                                              \
        .kind = TOWER_PIXTRAL, .joint = JOINT_MISTRAL3, .layers = 24, .width = 1024, .heads = 16,  \
        .ffn = 4096, .channels = 3, .patch = 14, .merge = 2                                        \
    }

#define PIXTRAL_TOWER                                                                              \
    {                                                                                              \
        .kind = TOWER_PIXTRAL, .joint = JOINT_LLAVA, .layers = 24, .width = 1024, .heads = 16,     \
        .ffn = 4096, .channels = 3, .patch = 16, .joint_biased = true                              \
    }
#define CLIP_TOWER                                                                                 \
    {                                                                                              \
        .kind = TOWER_CLIP, .joint = JOINT_LLAVA, .layers = 24, .width = 1024, .heads = 16,        \
        .ffn = 4096, .channels = 3, .patch = 14, .image = 336, .joint_biased = true                \
    }
#define SMOLVLM(layers_, width_, heads_, ffn_, pixels, side, factor)                               \
    {                                                                                              \
        .kind = TOWER_IDEFICS3, .joint = JOINT_IDEFICS3, .layers = layers_, .width = width_,       \
        .heads = heads_, .ffn = ffn_, .channels = 3, .patch = pixels, .image = side,               \
        .merge = factor                                                                            \
    }
#define INTERN_TOWER                                                                               \
    {                                                                                              \
        .kind = TOWER_INTERNVL, .joint = JOINT_INTERNVL, .layers = 24, .width = 1024, .heads = 16, \
        .ffn = 4096, .channels = 3, .patch = 14, .image = 448, .merge = 2, .biased = true          \
    }

/* clang-format off */
static const struct {
    const char *preset;
    const char *type; /* model_type of what sees; NULL: the one that the family has */
    struct tower tower;
} presets[] = {
    {"qwen2-vl-2b-text",          NULL,       QWEN2(1536)},
    {"qwen2-vl-7b-text",          NULL,       QWEN2(3584)},
    {"qwen2.5-vl-3b-text",        NULL,       QWEN2_5(3420, 2048)},
    {"qwen2.5-vl-7b-text",        NULL,       QWEN2_5(3420, 3584)},
    {"qwen2.5-vl-32b-text",       NULL,       QWEN2_5(3456, 5120)},
    {"qwen2.5-vl-72b-text",       NULL,       QWEN2_5(3456, 8192)},
    {"qwen3-vl-2b-text",          NULL,       QWEN3_SMALL(2048), DEEP(5, 11, 17)},
    {"qwen3-vl-4b-text",          NULL,       QWEN3_SMALL(2560), DEEP(5, 11, 17)},
    {"qwen3-vl-8b-text",          NULL,       QWEN3_LARGE(4096), DEEP(8, 16, 24)},
    {"qwen3-vl-32b-text",         NULL,       QWEN3_LARGE(5120), DEEP(8, 16, 24)},
    {"qwen3-vl-30b-a3b-text",     NULL,       QWEN3_LARGE(2048), DEEP(8, 16, 24)},
    {"qwen3-vl-235b-a22b-text",   NULL,       QWEN3_LARGE(4096), DEEP(8, 16, 24)},
    {"qwen3.5-0.8b-text",         NULL,       QWEN_TOWER(TOWER_QWEN3_VL, 12, 768, 3072, 1024, 16)}},
    {"qwen3.5-4b-text",           NULL,       QWEN3_SMALL(2560)}},
    {"qwen3.5-9b-text",           NULL,       QWEN3_LARGE(4096)}},
    {"qwen3.5-27b-text",          NULL,       QWEN3_LARGE(5120)}},
    {"qwen3.5-35b-a3b-text",      NULL,       QWEN3_LARGE(2048)}},
    {"qwen3.5-122b-a10b-text",    NULL,       QWEN3_LARGE(3072)}},
    {"qwen3.5-397b-a17b-text",    NULL,       QWEN3_LARGE(4096)}},
    {"gemma-3-4b-text",           NULL,       GEMMA3_TOWER},
    {"gemma-3-12b-text",          NULL,       GEMMA3_TOWER},
    {"gemma-3-27b-text",          NULL,       GEMMA3_TOWER},
    {"mistral-small-3.1-24b-2503-text", NULL,       MISTRAL_TOWER},
    {"pixtral-12b-text",          "llava",    PIXTRAL_TOWER},
    {"llava-1.5-7b-text",         "llava",    CLIP_TOWER},
    {"llava-1.5-13b-text",        "llava",    CLIP_TOWER},
    {"smolvlm2-256m-video-text",  "smolvlm",  SMOLVLM(12, 768, 12, 3072, 16, 512, 4)},
    {"smolvlm2-500m-video-text",  "smolvlm",  SMOLVLM(12, 768, 12, 3072, 16, 512, 4)},
    {"smolvlm2-2.2b-text",        "smolvlm",  SMOLVLM(27, 1152, 16, 4304, 14, 384, 3)},
    {"internvl3_5-8b-text",       "internvl", INTERN_TOWER},
};
/* clang-format on */
/* NOLINTEND(bugprone-macro-parentheses) */

void tower_of_preset(const char *name, struct model_config *out)
{
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++)
        if (strcmp(presets[i].preset, name) == 0) {
            out->tower = presets[i].tower;
            if (presets[i].type)
                snprintf(out->stated.outer, sizeof out->stated.outer, "%s", presets[i].type);
        }
}

/* Qwen2-Audio's class has a loss of its own, which looks at the mask, too. */
static enum err_code own_loss_check(const struct model_config *config, const struct model_job *job,
                                    const struct tower *tower, struct err *err)
{
    const char *what = job->loss != CROSS_ENTROPY_EAGER ? "--loss other than eager"
                       : job->padding_tokens            ? "--padding-tokens"
                       : job->prompt_tokens             ? "--prompt-tokens"
                                                        : NULL;
    if (!tower || tower->joint != JOINT_QWEN2_AUDIO || !what)
        return ERR_OK;
    return err_set(err, ERR_UNSUPPORTED,
                   "%s of a \"%s\": its class has a loss of its own, of which that is not planned; "
                   "--tower none plans the text model's",
                   what, config->stated.outer);
}

enum err_code tower_check(const struct model_config *config, const struct model_job *job,
                          struct err *err)
{
    const struct tower *tower = model_tower(config, job);
    const char *planned = family_of(config->arch)->class_name;
    const bool is_around = planned && strstr(planned, "ForConditionalGeneration");
    if (job->traced && tower && !is_around)
        return err_set(err, ERR_UNSUPPORTED,
                       "--compile model of what sees: what torch.compile makes of a \"%s\" was not "
                       "recorded, and is not planned; --compile on, or --tower none, is",
                       config->stated.outer);
    if (job->task && tower)
        return err_set(err, ERR_UNSUPPORTED,
                       "--task sequence-classification of a \"%s\": planned of text models alone; "
                       "--tower none",
                       config->stated.outer);
    TRY(own_loss_check(config, job, tower, err));
    if (job->tower != TOWER_TRAINED)
        return ERR_OK;
    if (!tower)
        return err_set(err, ERR_INVALID,
                       "--tower trained: the model has nothing besides text that is known%s",
                       config->tower.kind == TOWER_NONE ? "" : "; --code hf is what has a tower");
    if (job->lora)
        return err_set(err, ERR_INVALID, "--tower trained with --lora: adapters alone are trained");
    return ERR_OK;
}

/* test_towers.c - what models that see or hear have besides text: parameters beside transformers'
 * classes and the Hub's numbers, and what a file may say of it. */
#include "families/config.h"
#include "families/families.h"
#include "graph/graph.h"
#include "model/tower.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* What the Hub shows of the checkpoint, each of which is its model and no more. */
static void presets_are_as_many_parameters_as_the_hub_shows(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double parameters;
    } models[] = {
        {"Qwen/Qwen2-VL-2B-Instruct", 2208985600},
        {"Qwen/Qwen2-VL-7B-Instruct", 8291375616},
        {"Qwen/Qwen2.5-VL-3B-Instruct", 3754622976},
        {"Qwen/Qwen2.5-VL-7B-Instruct", 8292166656},
        {"Qwen/Qwen2.5-VL-32B-Instruct", 33452718336},
        {"Qwen/Qwen2.5-VL-72B-Instruct", 73410777344},
        {"Qwen/Qwen3-VL-2B-Instruct", 2127532032},
        {"Qwen/Qwen3-VL-4B-Instruct", 4437815808},
        {"Qwen/Qwen3-VL-8B-Instruct", 8767123696},
        {"Qwen/Qwen3-VL-30B-A3B-Instruct", 31070754032},
        {"google/gemma-3-4b-it", 4300079472},
        {"google/gemma-3-12b-it", 12187325040},
        {"google/gemma-3-27b-it", 27432406640},
        {"mistralai/Mistral-Small-3.1-24B-Instruct-2503", 24011361280},
        {"mistral-community/pixtral-12b", 12682739712},
        {"llava-hf/llava-1.5-7b-hf", 7063427072},
        {"HuggingFaceTB/SmolVLM-256M-Instruct", 256484928},
        {"HuggingFaceTB/SmolVLM-500M-Instruct", 507482304},
        {"HuggingFaceTB/SmolVLM2-2.2B-Instruct", 2246784880},
        {"OpenGVLab/InternVL3_5-8B-HF", 8528318464},
    };
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct model_config config;
        assert_int_equal(model_preset_find(models[i].name, &config, NULL), ERR_OK);
        assert_true(model_config_parameters(&config) +
                        (double)tower_parameters(&config.tower, config.hidden) ==
                    models[i].parameters);
    }
}

static enum err_code read_text(const char *text, struct model_config *out, struct err *err)
{
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    const enum err_code rc = model_config_from_json(root, "text", out, err);
    json_decref(root);
    return rc;
}

#define TEXT                                                                                       \
    "\"hidden_size\": 64, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, "                  \
    "\"num_key_value_heads\": 2, \"intermediate_size\": 112, \"vocab_size\": 97, "                 \
    "\"head_dim\": 16, "
#define VISION                                                                                     \
    "\"hidden_size\": 48, \"intermediate_size\": 68, \"num_hidden_layers\": 2, "                   \
    "\"num_attention_heads\": 4, \"patch_size\": 4, "

/* Of transformers' 5.23 classes, on the meta device, and with nothing of the text model: those that
 * no recording is of (tests/data/truth/tower_events.jsonl has the others). */
static void parameters_are_those_of_the_class(void **state)
{
    (void)state;
    static const struct {
        const char *file;
        uint64_t parameters;
    } files[] = {
        {"{\"model_type\": \"paligemma\", \"projection_dim\": 64, \"text_config\": "
         "{\"model_type\": \"gemma\", " TEXT "\"rms_norm_eps\": 1e-6}, \"vision_config\": "
         "{" VISION "\"image_size\": 16, \"vision_use_head\": false}}",
         38840},
        {"{\"model_type\": \"gemma4\", \"text_config\": {\"model_type\": \"gemma4_text\", " TEXT
         "\"rms_norm_eps\": 1e-6}, \"vision_config\": {" VISION "\"num_key_value_heads\": 4, "
         "\"head_dim\": 12, \"position_embedding_size\": 16}}",
         45360},
        {"{\"model_type\": \"llama4\", \"text_config\": {\"model_type\": \"llama4_text\", " TEXT
         "\"intermediate_size_mlp\": 112, \"num_local_experts\": 4, \"rms_norm_eps\": 1e-6}, "
         "\"vision_config\": {\"hidden_size\": 48, \"intermediate_size\": 64, "
         "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"patch_size\": 4, "
         "\"image_size\": 16, \"projector_input_dim\": 32, \"projector_output_dim\": 32, "
         "\"vision_output_dim\": 32}}",
         40192},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct model_config config;
        struct err err = {0};
        if (read_text(files[i].file, &config, &err) != ERR_OK)
            fail_msg("%s", err.text);
        assert_true(tower_parameters(&config.tower, config.hidden) == files[i].parameters);
    }
}

/* Of a file that has what speaks, too, the thinker is planned: as many parameters as transformers'
 * Qwen2_5OmniThinkerForConditionalGeneration of these sizes. */
static void a_thinker_is_planned_of_a_file_that_speaks_too(void **state)
{
    (void)state;
    static const char file[] =
        "{\"model_type\": \"qwen2_5_omni\", \"talker_config\": {\"hidden_size\": 896}, "
        "\"thinker_config\": {\"model_type\": \"qwen2_5_omni_thinker\", \"text_config\": "
        "{\"model_type\": \"qwen2_5_omni_text\", \"tie_word_embeddings\": true, " TEXT
        "\"rope_scaling\": {\"rope_type\": \"default\", \"mrope_section\": [2, 3, 3]}}, "
        "\"vision_config\": {\"depth\": 2, \"hidden_size\": 48, \"intermediate_size\": 68, "
        "\"num_heads\": 4, \"out_hidden_size\": 64, \"patch_size\": 4}, "
        "\"audio_config\": {\"d_model\": 48, \"encoder_layers\": 2, "
        "\"encoder_attention_heads\": 4, \"encoder_ffn_dim\": 68, \"num_mel_bins\": 20, "
        "\"max_source_positions\": 30, \"output_dim\": 64}}}";
    struct model_config config;
    struct err err = {0};
    char text[512];
    const struct model_job job = {.code = CODE_HF};
    if (read_text(file, &config, &err) != ERR_OK)
        fail_msg("%s", err.text);
    assert_string_equal(config.stated.outer, "qwen2_5_omni_thinker");
    assert_false(config.tied); /* whatever the text model inside says */
    assert_true(tower_parameters(&config.tower, config.hidden) == 138664);
    assert_true(model_note(&config, &job, 0, text, sizeof text));
    assert_non_null(strstr(text, "towers that see and hear"));
}

/* Layers whose output is joined make the joint wider: transformers' LlavaForConditionalGeneration
 * with vision_feature_layer of two, and of one. */
static void listed_layers_widen_the_joint(void **state)
{
    (void)state;
    static const char *const layers[] = {"[-2, -1]", "-2"};
    uint64_t parameters[2];
    for (int i = 0; i < 2; i++) {
        char file[1024];
        struct model_config config;
        snprintf(file, sizeof file,
                 "{\"model_type\": \"llava\", \"vision_feature_layer\": %s, \"text_config\": "
                 "{\"model_type\": \"llama\", " TEXT "\"rms_norm_eps\": 1e-6}, "
                 "\"vision_config\": {" VISION "\"image_size\": 16}}",
                 layers[i]);
        assert_int_equal(read_text(file, &config, NULL), ERR_OK);
        parameters[i] = tower_parameters(&config.tower, config.hidden);
    }
    assert_true(parameters[0] == parameters[1] + 48 * 64);
}

/* The head is of the class around: Aya Vision's does not look at Cohere 2's logit_scale, which
 * Cohere2ForCausalLM multiplies with. */
static void logits_are_those_of_the_class_around(void **state)
{
    (void)state;
    struct model_config config;
    uint32_t ops[2];
    assert_int_equal(read_text("{\"model_type\": \"aya_vision\", \"text_config\": {\"model_type\": "
                               "\"cohere2\", \"logit_scale\": 0.25, " TEXT
                               "\"layer_norm_eps\": 1e-5}, "
                               "\"vision_config\": {" VISION "\"image_size\": 16}}",
                               &config, NULL),
                     ERR_OK);
    assert_false(tower_scales_logits(&config.tower));
    for (int i = 0; i < 2; i++) {
        const struct model_job job = {.code = CODE_HF,
                                      .batch = 1,
                                      .seq = 16,
                                      .compute = DTYPE_BF16,
                                      .tower = i ? TOWER_ABSENT : TOWER_FROZEN};
        struct graph *graph;
        assert_int_equal(model_build(&config, &job, &graph, NULL), ERR_OK);
        ops[i] = graph->op_count;
        graph_free(graph);
    }
    assert_int_equal(ops[1], ops[0] + 1);
}

static void what_is_not_known_has_no_tower(void **state)
{
    (void)state;
    static const char *const files[] = {
        "{\"model_type\": \"llava\", \"text_config\": {\"model_type\": \"llama\", " TEXT
        "\"rms_norm_eps\": 1e-6}, \"vision_config\": {\"model_type\": \"dinov2\"}}",
        "{\"model_type\": \"internvl\", \"text_config\": {\"model_type\": \"qwen2\", " TEXT
        "\"rms_norm_eps\": 1e-6}, \"vision_config\": {\"norm_type\": \"rms_norm\"}}",
        "{\"model_type\": \"ovis2\", \"text_config\": {\"model_type\": \"qwen2\", " TEXT
        "\"rms_norm_eps\": 1e-6}, \"vision_config\": {" VISION "\"vocab_size\": 40}}",
        "{\"model_type\": \"granite_speech\", \"text_config\": {\"model_type\": \"llama\", " TEXT
        "\"rms_norm_eps\": 1e-6}}",
    };
    char text[512];
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct model_config config;
        const struct model_job job = {.code = CODE_HF};
        assert_int_equal(read_text(files[i], &config, NULL), ERR_OK);
        assert_int_equal(config.tower.kind, TOWER_NONE);
        assert_true(model_note(&config, &job, 0, text, sizeof text));
        assert_non_null(strstr(text, "is planned alone"));
    }
}

static void values_that_cannot_be_are_refused(void **state)
{
    (void)state;
    static const char *const files[][2] = {
        {"{\"model_type\": \"gemma3\", \"text_config\": {\"model_type\": \"gemma3_text\", " TEXT
         "\"rms_norm_eps\": 1e-6}, \"vision_config\": 7}",
         "text: \"vision_config\": expected an object, got 7"},
        {"{\"model_type\": \"gemma3\", \"text_config\": {\"model_type\": \"gemma3_text\", " TEXT
         "\"rms_norm_eps\": 1e-6}, \"vision_config\": {\"hidden_size\": -1}}",
         "text: \"vision_config.hidden_size\": expected an integer 1 ... "},
        {"{\"model_type\": \"gemma3\", \"text_config\": {\"model_type\": \"gemma3_text\", " TEXT
         "\"rms_norm_eps\": 1e-6}, \"vision_config\": {\"patch_size\": 900}}",
         "text: \"vision_config.image_size\": 224 pixels are less than a patch of 900"},
        {"{\"model_type\": \"llava\", \"text_config\": {\"model_type\": \"llama\", " TEXT
         "\"rms_norm_eps\": 1e-6}, \"vision_config\": {\"num_attention_heads\": 0}}",
         "text: \"vision_config.num_attention_heads\": expected an integer 1 ... "},
        {"{\"model_type\": \"llava\", \"text_config\": {\"model_type\": \"llama\", " TEXT
         "\"rms_norm_eps\": 1e-6}, \"vision_config\": {\"num_attention_heads\": 512}}",
         "text: \"vision_config\": heads of 2 numbers: at least 4 are planned"},
        {"{\"model_type\": \"qwen2_audio\", \"text_config\": {\"model_type\": \"qwen2\", " TEXT
         "\"rms_norm_eps\": 1e-6}, \"audio_config\": {\"encoder_attention_heads\": 512}}",
         "text: \"audio_config\": heads of 2 numbers: at least 4 are planned"},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct model_config config;
        struct err err = {0};
        assert_int_equal(read_text(files[i][0], &config, &err), ERR_INVALID);
        if (!strstr(err.text, files[i][1]))
            fail_msg("%s", err.text);
    }
}

static void what_is_not_planned_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        struct model_job job;
        const char *says;
    } jobs[] = {
        {"google/gemma-3-4b-it", {.traced = true}, "--compile model of what sees"},
        {"google/gemma-3-4b-it",
         {.task = TASK_SEQUENCE_CLASSIFICATION},
         "--task sequence-classification of a \"gemma3\""},
        {"google/gemma-3-4b-it",
         {.tower = TOWER_TRAINED, .lora = "8"},
         "--tower trained with --lora: adapters alone are trained"},
        {"Qwen/Qwen3-0.6B", {.tower = TOWER_TRAINED}, "nothing besides text that is known"},
    };
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        struct model_config config;
        struct model_job job = jobs[i].job;
        struct graph *graph;
        struct err err = {0};
        job.code = CODE_HF;
        job.batch = 1;
        job.seq = 16;
        job.compute = DTYPE_BF16;
        assert_int_equal(model_preset_find(jobs[i].name, &config, NULL), ERR_OK);
        assert_int_not_equal(model_build(&config, &job, &graph, &err), ERR_OK);
        if (!strstr(err.text, jobs[i].says))
            fail_msg("%s", err.text);
    }
}

/* Its class has a loss of its own. */
static void losses_of_qwen2_audio_are_its_own(void **state)
{
    (void)state;
    static const char file[] = "{\"model_type\": \"qwen2_audio\", \"text_config\": "
                               "{\"model_type\": \"qwen2\", " TEXT "\"rms_norm_eps\": 1e-6}}";
    const struct model_job jobs[] = {{.loss = CROSS_ENTROPY_CHUNKED}, {.padding_tokens = 4}};
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        struct model_config config;
        struct model_job job = jobs[i];
        struct graph *graph;
        struct err err = {0};
        job.code = CODE_HF;
        job.batch = 2;
        job.seq = 16;
        job.compute = DTYPE_BF16;
        assert_int_equal(read_text(file, &config, NULL), ERR_OK);
        assert_int_equal(model_build(&config, &job, &graph, &err), ERR_UNSUPPORTED);
        if (!strstr(err.text, "of a \"qwen2_audio\": its class has a loss of its own"))
            fail_msg("%s", err.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(presets_are_as_many_parameters_as_the_hub_shows),
        cmocka_unit_test(parameters_are_those_of_the_class),
        cmocka_unit_test(a_thinker_is_planned_of_a_file_that_speaks_too),
        cmocka_unit_test(listed_layers_widen_the_joint),
        cmocka_unit_test(logits_are_those_of_the_class_around),
        cmocka_unit_test(losses_of_qwen2_audio_are_its_own),
        cmocka_unit_test(what_is_not_known_has_no_tower),
        cmocka_unit_test(values_that_cannot_be_are_refused),
        cmocka_unit_test(what_is_not_planned_is_refused),
    };
    return cmocka_run_group_tests_name("towers", tests, NULL, NULL);
}

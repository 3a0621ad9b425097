/* test_parts.c - models in the files of others, and under the names of code that came with them. */
#include "families/config.h"
#include "families/families.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct model_config from_text(const char *text)
{
    struct model_config config;
    struct err err = {0};
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    if (model_config_from_json(root, "text", &config, &err) != ERR_OK)
        fail_msg("%s", err.text);
    json_decref(root);
    return config;
}

/* As llava-hf's files: sizes that the class has are not written. Counts are transformers' (5.23, on
 * the meta device) of each class without any argument. */
static void what_a_part_of_a_file_leaves_out_is_the_classs(void **state)
{
    (void)state;
    static const struct {
        const char *type;
        double parameters;
    } parts[] = {
        {"llama", 6738415616},        {"mistral", 7241732096},
        {"qwen2", 12049846272},       {"qwen3", 12049461248},
        {"gemma", 8537680896},        {"gemma2", 2614341888},
        {"gemma3_text", 2628658432},  {"gemma3n_text", 6835235568},
        {"gemma4_text", 5077177856},  {"phi3", 3821079552},
        {"mixtral", 46702792704},     {"granite", 6738415616},
        {"qwen3_5_text", 8953803264}, {"qwen3_5_moe_text", 34660610688},
    };
    char text[512];
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        snprintf(text, sizeof text,
                 "{\"model_type\": \"llava\", \"text_config\": {\"model_type\": \"%s\"}}",
                 parts[i].type);
        const struct model_config c = from_text(text);
        assert_true(model_config_parameters(&c) == parts[i].parameters);
    }
}

/* OpenGVLab/InternVL2_5-1B and moonshotai/Kimi-K2-Instruct name what came with them; the first has
 * Qwen2.5-0.5B with other tokens, its head on its own. Of the second transformers counts, as
 * "deepseek_v3", 1,026,408,209,408. */
static void files_of_code_that_came_with_a_model_are_read_as_the_class_they_follow(void **state)
{
    (void)state;
    char text[512];
    const struct model_config internvl = from_text(
        "{\"model_type\": \"internvl_chat\", \"llm_config\": {\"model_type\": \"qwen2\", "
        "\"hidden_size\": 896, \"num_hidden_layers\": 24, \"num_attention_heads\": 14, "
        "\"num_key_value_heads\": 2, \"intermediate_size\": 4864, \"vocab_size\": 151674, "
        "\"rms_norm_eps\": 1e-6, \"rope_theta\": 1e6}}");
    assert_true(model_config_parameters(&internvl) == 629697920);
    assert_true(model_note(&internvl, &(struct model_job){.code = CODE_HF}, 0, text, sizeof text));
    assert_non_null(strstr(text, "the text model of a \"internvl_chat\" is planned alone"));
    const struct model_config kimi = from_text(
        "{\"model_type\": \"kimi_k2\", \"hidden_size\": 7168, \"num_hidden_layers\": 61, "
        "\"num_attention_heads\": 64, \"num_key_value_heads\": 64, \"intermediate_size\": 18432, "
        "\"moe_intermediate_size\": 2048, \"n_routed_experts\": 384, \"first_k_dense_replace\": 1, "
        "\"n_group\": 1, \"topk_group\": 1, \"routed_scaling_factor\": 2.827, "
        "\"rope_theta\": 50000.0, \"vocab_size\": 163840}");
    assert_int_equal(kimi.arch, ARCH_DEEPSEEK_V3);
    assert_true(model_config_parameters(&kimi) == 1026408209408);
    assert_true(model_note(&kimi, &(struct model_job){.code = CODE_HF}, 0, text, sizeof text));
    assert_string_equal(text, "planned is DeepseekV3ForCausalLM, whose architecture a \"kimi_k2\" "
                              "has, not the code that comes with the checkpoint");
    assert_false(model_note(&kimi, &(struct model_job){.code = CODE_HF}, 1, text, sizeof text));
}

/* transformers 5.23 on the meta device: the class around alone decides, false by default; but
 * Qwen2-VL's takes either's word. */
static void the_class_around_says_whether_the_head_is_tied(void **state)
{
    (void)state;
    static const struct {
        const char *type, *outer, *inner;
        bool tied;
    } rows[] = {
        {"qwen3_vl", "", ", \"tie_word_embeddings\": true", false},
        {"qwen3_vl", ", \"tie_word_embeddings\": false", ", \"tie_word_embeddings\": true", false},
        {"qwen3_vl", ", \"tie_word_embeddings\": true", ", \"tie_word_embeddings\": false", true},
        {"qwen3_vl_moe", "", ", \"tie_word_embeddings\": true", false},
        {"qwen3_vl_moe", ", \"tie_word_embeddings\": true", "", true},
        {"qwen2_vl", "", ", \"tie_word_embeddings\": true", true},
        {"qwen2_5_vl", ", \"tie_word_embeddings\": false", ", \"tie_word_embeddings\": true", true},
        {"qwen2_5_vl", ", \"tie_word_embeddings\": true", "", true},
        {"qwen2_vl", "", "", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[512];
        snprintf(text, sizeof text,
                 "{\"model_type\": \"%s\"%s, \"text_config\": {\"model_type\": \"%s_text\", "
                 "\"hidden_size\": 64, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, "
                 "\"num_key_value_heads\": 2, \"head_dim\": 16, \"intermediate_size\": 128, "
                 "\"rope_parameters\": {\"mrope_section\": [2, 3, 3]}, \"vocab_size\": 256%s}}",
                 rows[i].type, rows[i].outer, rows[i].type, rows[i].inner);
        const struct model_config c = from_text(text);
        if (c.tied != rows[i].tied)
            fail_msg("%s", text);
    }
}

/* In a line, with the nearest names where one is given, and where all are. */
static void a_type_that_is_not_known_is_answered_shortly(void **state)
{
    (void)state;
    static const struct {
        const char *text, *said;
    } cases[] = {
        {"{}", "text: \"model_type\" is missing: `shardplan models` lists those that are known"},
        {"{\"model_type\": 3}",
         "text: \"model_type\": 3 is no name: `shardplan models` lists those that are known"},
        {"{\"model_type\": \"qwen4_moe\"}",
         "text: \"model_type\": \"qwen4_moe\" is not known; did you mean qwen2_moe, qwen3_moe, "
         "qwen3_next? `shardplan models` lists those that are known; any other model is recorded "
         "once, by a Python that has torch and transformers, and the recording planned: "
         "tools/record.py --hf text --seq 2048 --batch 1 -o "
         "model.stream.json.gz"},
        {"{\"model_type\": \"zzzzzzzz\"}",
         "text: \"model_type\": \"zzzzzzzz\" is not known: `shardplan models` lists those that are "
         "known; any other model is recorded once, by a Python that has torch and transformers, "
         "and "
         "the recording planned: tools/record.py --hf "
         "text --seq 2048 --batch 1 -o model.stream.json.gz"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model_config config;
        struct err err = {0};
        json_t *root = json_loads(cases[i].text, 0, NULL);
        assert_int_equal(model_config_from_json(root, "text", &config, &err), ERR_INVALID);
        assert_string_equal(err.text, cases[i].said);
        json_decref(root);
    }
}

/* As transformers saves what has Mamba's keys: a limit of Infinity, which Python reads and JSON has
 * not; a word in quotes stays what it is. */
static void a_file_with_a_number_that_has_no_end_is_read(void **state)
{
    (void)state;
    struct model_config c;
    struct err err = {0};
    if (model_config_read("tests/data/configs/granite-4.0-saved", &c, &err) != ERR_OK)
        fail_msg("%s", err.text);
    assert_int_equal(c.hidden, 64);
}

/* Names of models that see mean their text models, and that is said; a text model's own does not.
 */
static void a_model_that_sees_is_found_by_its_name(void **state)
{
    (void)state;
    static const char *const names[][3] = {
        {"google/gemma-3-4b-it", "gemma-3-4b-text", "\"gemma3\""},
        {"Qwen/Qwen2.5-VL-7B-Instruct", "qwen2.5-vl-7b-text", "\"qwen2_5_vl\""},
        {"Qwen3-VL-30B-A3B-Thinking", "qwen3-vl-30b-a3b-text", "\"qwen3_vl_moe\""},
        {"Qwen/Qwen3.5-9B", "qwen3.5-9b-text", "\"qwen3_5\""},
        {"mistralai/Mistral-Small-3.2-24B-Instruct-2506", "mistral-small-3.1-24b-2503-text",
         "\"mistral3\""},
        {"mistralai/Ministral-3-3B-Reasoning-2512", "ministral-3-3b-2512-text", "\"mistral3\""},
        {"LiquidAI/LFM2-VL-450M", "lfm2-350m", "\"lfm2_vl\""},
    };
    char text[512];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct model_config seeing, own;
        assert_int_equal(model_preset_find(names[i][0], &seeing, NULL), ERR_OK);
        assert_int_equal(model_preset_find(names[i][1], &own, NULL), ERR_OK);
        assert_true(model_config_parameters(&seeing) == model_config_parameters(&own));
        assert_true(
            model_note(&seeing, &(struct model_job){.code = CODE_HF}, 0, text, sizeof text) &&
            strstr(text, names[i][2]));
        assert_false(model_note(&own, &(struct model_job){.code = CODE_HF}, 0, text, sizeof text) &&
                     strstr(text, "planned alone"));
    }
    struct model_config none;
    assert_int_equal(model_preset_find("Qwen/Qwen2.5-VL-8B-Instruct", &none, NULL), ERR_INVALID);
}

/* What the transformers after the one that is followed computes otherwise. */
static void newer_code_is_said(void **state)
{
    (void)state;
    static const char *const names[] = {"gpt-j-6b", "codegen-2b-mono"};
    struct model_config config;
    char text[512];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_int_equal(model_preset_find(names[i], &config, NULL), ERR_OK);
        assert_true(
            model_note(&config, &(struct model_job){.code = CODE_HF}, 0, text, sizeof text) &&
            strstr(text, "from 5.24 on"));
    }
    assert_int_equal(model_preset_find("gpt2", &config, NULL), ERR_OK);
    assert_false(model_note(&config, &(struct model_job){.code = CODE_HF}, 0, text, sizeof text));
}

static void assert_refused(const char *text, const char *message)
{
    struct model_config config;
    struct err err = {0};
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    assert_int_equal(model_config_from_json(root, "text", &config, &err), ERR_INVALID);
    if (!strstr(err.text, message))
        fail_msg("%s", err.text);
    json_decref(root);
}

/* Where grids are woven mrope_section cuts nothing, and transformers takes [11, 11, 10] where a
 * file has none whatever turns; where they are parts, they are all that does. causal-conv1d 1.7:
 * "dim must be divisible by 8". */
#define QWEN3_5                                                                                    \
    "{\"model_type\": \"qwen3_5_text\", \"hidden_size\": 64, \"num_hidden_layers\": 4, "           \
    "\"num_attention_heads\": 2, \"intermediate_size\": 64, \"vocab_size\": 128, "                 \
    "\"num_key_value_heads\": 2, \"head_dim\": 128"
#define QWEN2_VL                                                                                   \
    "{\"model_type\": \"qwen2_vl_text\", \"hidden_size\": 64, \"num_hidden_layers\": 4, "          \
    "\"num_attention_heads\": 2, \"intermediate_size\": 64, \"vocab_size\": 128, "                 \
    "\"num_key_value_heads\": 2"
static void linear_attention_asks_for_what_its_kernels_can(void **state)
{
    (void)state;
    const struct model_config plain = from_text(QWEN3_5 "}");
    assert_int_equal(plain.rotary_dim, 32);
    from_text(QWEN3_5 ", \"rope_parameters\": {\"mrope_section\": [1, 2, 3]}}");
    assert_refused(QWEN3_5 ", \"rope_parameters\": {\"mrope_section\": [1, 2]}}",
                   "expected a list of 3 integers 1 ... 65536, got [1, 2]");
    assert_refused(QWEN2_VL
                   ", \"rope_scaling\": {\"type\": \"mrope\", \"mrope_section\": [8, 4, 8]}}",
                   "expected a list of 3 integers, together 16, got [8, 4, 8]");
    from_text(QWEN2_VL ", \"rope_scaling\": {\"type\": \"mrope\", \"mrope_section\": [8, 4, 4]}, "
                       "\"rope_parameters\": {\"type\": \"mrope\", \"mrope_section\": [8, 4, 4]}}");
    from_text(QWEN3_5 ", \"linear_value_head_dim\": 512}");
    assert_refused(QWEN3_5 ", \"linear_key_head_dim\": 512}", "expected an integer 1 ... 256");
    assert_refused(QWEN3_5 ", \"linear_conv_kernel_dim\": 1}", "expected an integer 2 ... 4");
    assert_refused(QWEN3_5 ", \"linear_num_key_heads\": 2, \"linear_num_value_heads\": 2, "
                           "\"linear_key_head_dim\": 65, \"linear_value_head_dim\": 65}",
                   "are 390 channels; causal-conv1d has kernels for a multiple of 8");
    assert_refused(QWEN3_5 ", \"linear_num_value_heads\": 24}", "does not divide");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_class_around_says_whether_the_head_is_tied),
        cmocka_unit_test(a_type_that_is_not_known_is_answered_shortly),
        cmocka_unit_test(what_a_part_of_a_file_leaves_out_is_the_classs),
        cmocka_unit_test(a_file_with_a_number_that_has_no_end_is_read),
        cmocka_unit_test(a_model_that_sees_is_found_by_its_name),
        cmocka_unit_test(newer_code_is_said),
        cmocka_unit_test(linear_attention_asks_for_what_its_kernels_can),
        cmocka_unit_test(files_of_code_that_came_with_a_model_are_read_as_the_class_they_follow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_experts.c - configs of mixtures of experts: which layers have one, what the keys of each
 * family mean, and what is refused. (Their parameters and events are compared with transformers' in
 * test_truth_hf.c, published files with presets in test_model.c.) */
#include "families/config.h"
#include "families/families.h"
#include "graph/graph.h"
#include "model/experts.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define SIZES                                                                                      \
    "\"vocab_size\": 100, \"hidden_size\": 64, \"num_hidden_layers\": 4, "                         \
    "\"num_attention_heads\": "                                                                    \
    "4, \"intermediate_size\": 96, \"num_experts_per_tok\": 2"
#define QWEN "\"model_type\": \"qwen3_moe\", \"num_key_value_heads\": 2, \"num_experts\": 8, " SIZES
#define GPT_OSS                                                                                    \
    "\"model_type\": \"gpt_oss\", \"num_key_value_heads\": 2, \"num_local_experts\": 8, " SIZES
#define DEEPSEEK "\"model_type\": \"deepseek_v3\", \"n_routed_experts\": 8, " SIZES
#define GLM                                                                                        \
    "\"model_type\": \"glm4_moe\", \"num_key_value_heads\": 2, \"n_routed_experts\": 8, " SIZES

static enum err_code read(const char *text, struct model_config *config, struct err *err)
{
    json_t *root = json_loads(text, 0, NULL);
    assert_non_null(root);
    const enum err_code rc = model_config_from_json(root, "text", config, err);
    json_decref(root);
    return rc;
}

static struct model_config good(const char *text)
{
    struct err err = {0};
    struct model_config config;
    if (read(text, &config, &err) != ERR_OK)
        fail_msg("%s: %s", text, err.text);
    return config;
}

static void bad(const char *text, const char *says)
{
    struct err err = {0};
    struct model_config config;
    assert_int_equal(read(text, &config, &err), ERR_INVALID);
    if (!strstr(err.text, says))
        fail_msg("\"%s\" does not say \"%s\"", err.text, says);
}

/* "0110": the layers that have experts, as the parameters of the built graph are named. */
static void assert_mixed(const char *text, const char *mixed)
{
    struct err err = {0};
    struct graph *graph;
    const struct model_config config = good(text);
    const struct model_job job = {.batch = 1, .seq = 8, .code = CODE_HF, .compute = DTYPE_BF16};
    assert_int_equal(model_build(&config, &job, &graph, &err), ERR_OK);
    for (uint32_t i = 0; i < config.layers; i++) {
        char experts[64], dense[64];
        bool has[2] = {false};
        snprintf(experts, sizeof experts, "model.layers.%u.mlp.experts.down_proj", i);
        snprintf(dense, sizeof dense, "model.layers.%u.mlp.down_proj.weight", i);
        for (uint32_t p = 0; p < graph->param_count; p++) {
            has[0] |= strcmp(graph->params[p].name, experts) == 0;
            has[1] |= strcmp(graph->params[p].name, dense) == 0;
        }
        assert_true(has[0] != has[1]);
        assert_int_equal(has[0], mixed[i] == '1');
        assert_int_equal(experts_in(&config, i), has[0]);
    }
    /* the closed formula knows them, too */
    assert_true(model_config_parameters(&config) == (double)graph_parameter_elements(graph));
    graph_free(graph);
}

/* As Qwen3MoeDecoderLayer and DeepseekV3DecoderLayer decide. */
static void layers_have_experts_where_the_class_gives_them(void **state)
{
    (void)state;
    assert_mixed("{" QWEN "}", "1111");
    assert_mixed("{" QWEN ", \"decoder_sparse_step\": 2}", "0101");
    assert_mixed("{" QWEN ", \"mlp_only_layers\": [0, 2, 77]}", "0101");
    assert_mixed("{" QWEN ", \"mlp_only_layers\": null}", "1111");
    assert_mixed("{" QWEN ", \"mlp_only_layers\": [3], \"decoder_sparse_step\": 2}", "0100");
    assert_mixed("{" DEEPSEEK ", \"n_group\": 2, \"topk_group\": 1}", "0001");
    assert_mixed("{" GLM ", \"first_k_dense_replace\": 2}", "0011");
    assert_mixed("{" GLM ", \"first_k_dense_replace\": 0}", "1111");
    bad("{" QWEN ", \"mlp_only_layers\": [0, -1]}", "a list of integers 0 ... 4095 or null");
    bad("{" QWEN ", \"mlp_only_layers\": 3}", "a list of integers");
    bad("{" QWEN ", \"decoder_sparse_step\": 0}", "an integer 1 ... 4096");
}

static void groups_have_to_share_out_the_experts(void **state)
{
    (void)state;
    bad("{" DEEPSEEK ", \"n_group\": 3}", "\"n_group\": 3 does not divide \"n_routed_experts\": 8");
    bad("{" DEEPSEEK ", \"n_group\": 8}", "fewer than two experts a group");
    bad("{" DEEPSEEK ", \"n_group\": 2, \"topk_group\": 4}", "\"topk_group\": 4 is more than");
    bad("{" GLM ", \"num_experts_per_tok\": 9}", "\"num_experts_per_tok\"");
}

static void latent_attention_is_read(void **state)
{
    (void)state;
    const char *groups = ", \"n_group\": 2, \"topk_group\": 1}";
    char text[512];
    snprintf(text, sizeof text, "{" DEEPSEEK ", \"q_lora_rank\": null%s", groups);
    const struct model_config none = good(text);
    assert_int_equal(none.q_lora, 0);
    assert_int_equal(none.kv_lora, 512);
    assert_int_equal(none.rotary_dim, 64);
    assert_int_equal(none.kv_heads, 4); /* as many as heads, where the file does not say */
    snprintf(text, sizeof text, "{" DEEPSEEK "%s", groups);
    assert_int_equal(good(text).q_lora, 1536);
    snprintf(text, sizeof text, "{" DEEPSEEK ", \"num_key_value_heads\": 2%s", groups);
    bad(text, "with latent attention it is \"num_attention_heads\": 4");
    snprintf(text, sizeof text, "{" DEEPSEEK ", \"qk_rope_head_dim\": 7%s", groups);
    bad(text, "expected 2, 4, 6");
    snprintf(text, sizeof text, "{" DEEPSEEK ", \"v_head_dim\": 20%s", groups);
    bad(text, "multiples of 8");
}

/* Where GptOssConfig has no rope_parameters it takes YaRN's by 32; and every second layer has a
 * window, which a file may spell out, but not otherwise. */
static void gpt_oss_is_read_as_its_config_class_does(void **state)
{
    (void)state;
    const struct model_config plain = good("{" GPT_OSS "}");
    assert_int_equal(plain.rope.scaling, ROPE_YARN);
    assert_true(plain.rope.factor == 32 && !plain.rope.truncate);
    assert_true(plain.rope.attention_factor == 1.34657359F); /* 0.1 ln 32 + 1 */
    const struct model_config own = good("{" GPT_OSS ", \"rope_scaling\": {\"rope_type\": "
                                         "\"default\"}}");
    assert_int_equal(own.rope.scaling, ROPE_DEFAULT);
    /* an object of the file's own is not filled up from the class's */
    const struct model_config linear =
        good("{" GPT_OSS ", \"rope_scaling\": {\"type\": \"linear\", "
             "\"factor\": 2}}");
    assert_int_equal(linear.rope.scaling, ROPE_LINEAR);
    const struct model_config yarn = good("{" GPT_OSS ", \"rope_parameters\": {\"rope_type\": "
                                          "\"yarn\", \"factor\": 2}}");
    assert_int_equal(yarn.rope.original_positions, yarn.max_positions);
    assert_true(yarn.rope.factor == 2 && yarn.rope.truncate);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(model_has_window(&plain, i), i % 2 == 0);
#define SLIDING "\"sliding_attention\""
#define FULL "\"full_attention\""
    good("{" GPT_OSS ", \"layer_types\": [" SLIDING ", " FULL ", " SLIDING ", " FULL "]}");
    const struct model_config turned =
        good("{" GPT_OSS ", \"layer_types\": [" FULL ", " SLIDING ", " FULL ", " SLIDING "]}");
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(model_has_window(&turned, i), i % 2 == 1);
    bad("{" GPT_OSS ", \"layer_types\": [" FULL ", " FULL ", " FULL ", " FULL "]}",
        "\"layer_types\"");
    bad("{" GPT_OSS ", \"experts_implementation\": \"batched_mm\"}", "expected \"grouped_mm\"");
    bad("{" GPT_OSS ", \"num_key_value_heads\": 4}", "fewer than \"num_attention_heads\"");
}

/* A key that others must not have, because their classes would not look. */
static void a_part_of_each_head_turns_where_the_family_has_that(void **state)
{
    (void)state;
    assert_int_equal(good("{" GLM "}").rotary_dim, 8); /* half of 64 / 4 */
    assert_int_equal(good("{" GLM ", \"partial_rotary_factor\": 0.25}").rotary_dim, 4);
    bad("{" GLM ", \"partial_rotary_factor\": 1.0}", "RoPE turns 16 of a head's 16 numbers");
    bad("{" QWEN ", \"partial_rotary_factor\": 0.5}", "\"partial_rotary_factor\"");
}

static void published_names_find_the_presets(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint64_t parameters;
    } presets[] = {
        {"Qwen/Qwen3-30B-A3B", 30532122624},
        {"Qwen/Qwen3-235B-A22B", 235093634560},
        {"openai/gpt-oss-20b", 20914757184},
        {"openai/gpt-oss-120b", 116829156672},
        {"deepseek-ai/DeepSeek-V3", 671026404352},
        {"deepseek-ai/DeepSeek-R1", 671026404352},
        {"deepseek-ai/DeepSeek-V2-Lite", 15706484224},
        {"deepseek-ai/DeepSeek-V2", 235741434880},
        {"zai-org/GLM-4.5", 352797814784},
        {"zai-org/GLM-4.5-Air", 106852245504},
        {"allenai/OLMoE-1B-7B-0924", 6919161856},
    };
    for (size_t i = 0; i < sizeof presets / sizeof presets[0]; i++) {
        struct err err = {0};
        struct model_config config;
        if (model_preset_find(presets[i].name, &config, &err) != ERR_OK)
            fail_msg("%s", err.text);
        assert_true(model_config_parameters(&config) == (double)presets[i].parameters);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_have_experts_where_the_class_gives_them),
        cmocka_unit_test(groups_have_to_share_out_the_experts),
        cmocka_unit_test(latent_attention_is_read),
        cmocka_unit_test(gpt_oss_is_read_as_its_config_class_does),
        cmocka_unit_test(a_part_of_each_head_turns_where_the_family_has_that),
        cmocka_unit_test(published_names_find_the_presets),
    };
    return cmocka_run_group_tests_name("experts", tests, NULL, NULL);
}

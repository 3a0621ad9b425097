/* test_hybrids.c - Bamba, Falcon-H1, OLMo Hybrid and Jamba: which layers attend, what heads share
 * out, what factors there are, and what is not planned. */
#include "families/config.h"
#include "families/families.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define SIZES(type)                                                                                \
    "{\"model_type\": \"" type "\", \"vocab_size\": 128256, \"hidden_size\": 4096, "               \
    "\"num_hidden_layers\": 4, \"num_attention_heads\": 32, \"intermediate_size\": 14336"
#define BAMBA(rest) SIZES("bamba") rest "}"
#define FALCON(rest) SIZES("falcon_h1") rest "}"
#define OLMO(rest) SIZES("olmo_hybrid") rest "}"
#define JAMBA(rest) SIZES("jamba") rest "}"

static enum err_code read_text(const char *text, struct model_config *config, struct err *err)
{
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    const enum err_code rc = model_config_from_json(root, "text", config, err);
    json_decref(root);
    return rc;
}

static struct model_config from_text(const char *text)
{
    struct model_config config;
    struct err err = {0};
    if (read_text(text, &config, &err) != ERR_OK)
        fail_msg("%s", err.text);
    return config;
}

/* transformers 5.23 on the meta device, of the classes as they are but for these keys. */
static void parameters_are_those_of_the_classes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double parameters;
    } rows[] = {
        {BAMBA(""), 2168700416},
        {BAMBA(", \"attn_layer_indices\": null"), 2168700416},
        {BAMBA(", \"attn_layer_indices\": []"), 2168700416},
        {BAMBA(", \"attn_layer_indices\": [1, 3]"), 2045912832},
        {BAMBA(", \"attn_layer_indices\": [1, 3], \"mamba_proj_bias\": true, "
               "\"mamba_conv_bias\": false, \"mamba_d_state\": 64, \"attention_bias\": true, "
               "\"mlp_bias\": true, \"head_dim\": 64"),
         2000990464},
        {OLMO(""), 2125394688},
        {OLMO(", \"num_key_value_heads\": 8, \"linear_num_key_heads\": 16, "
              "\"linear_key_head_dim\": 64, \"linear_conv_kernel_dim\": 2, "
              "\"attention_bias\": true, \"tie_word_embeddings\": true, \"layer_types\": "
              "[\"full_attention\", \"linear_attention\", \"linear_attention\", "
              "\"full_attention\"]"),
         1431923072},
        {OLMO(", \"linear_value_head_dim\": 64, \"head_dim\": 64"), 1940791680},
        {JAMBA(", \"num_experts\": 2"), 2528924800},
        {JAMBA(", \"num_experts\": 1, \"attn_layer_period\": 2, \"attn_layer_offset\": 1, "
               "\"mamba_dt_rank\": 100, \"mamba_conv_bias\": false, \"mamba_expand\": 1, "
               "\"mamba_d_state\": 64, \"num_key_value_heads\": 4"),
         1934774728},
        {JAMBA(", \"num_experts\": 2, \"expert_layer_period\": 4, \"expert_layer_offset\": 3, "
               "\"attn_layer_offset\": 2, \"attn_layer_period\": 3, \"mamba_d_conv\": 2, "
               "\"tie_word_embeddings\": true"),
         1764004704},
        {FALCON(""), 1983974912},
        {FALCON(", \"mamba_rms_norm\": true"), 1983979008},
        {FALCON(", \"mamba_d_ssm\": null"), 2336439808},
        {FALCON(", \"mamba_d_ssm\": 2048, \"mamba_n_heads\": 32, \"mamba_d_head\": 64, "
                "\"projectors_bias\": true"),
         2032769408},
        {FALCON(", \"mamba_proj_bias\": true, \"mamba_n_groups\": 2, "
                "\"tie_word_embeddings\": true"),
         1467049984},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct model_config config = from_text(rows[i].text);
        if (model_config_parameters(&config) != rows[i].parameters)
            fail_msg("%s: %.0f", rows[i].text, model_config_parameters(&config));
    }
}

/* Its class takes a half of each head whatever the file says beside RoPE's object. */
static void bamba_turns_half_of_a_head(void **state)
{
    (void)state;
    assert_int_equal(from_text(BAMBA("")).rotary_dim, 64);
    assert_int_equal(from_text(BAMBA(", \"partial_rotary_factor\": 0.5")).rotary_dim, 64);
    assert_int_equal(from_text(BAMBA(", \"rope_parameters\": {\"rope_type\": \"default\", "
                                     "\"rope_theta\": 10000.0, \"partial_rotary_factor\": 0.25}"))
                         .rotary_dim,
                     32);
}

static void falcons_factors_are_1_where_the_file_has_none(void **state)
{
    (void)state;
    const struct model_config plain = from_text(FALCON(", \"ssm_multipliers\": null"));
    assert_true(plain.key_multiplier == 1 && plain.ssm_multipliers[4] == 1);
    assert_true(plain.gate_multiplier == 1 && plain.down_multiplier == 1);
    const struct model_config given =
        from_text(FALCON(", \"key_multiplier\": 0.5, \"mlp_multipliers\": [0.25, 2], "
                         "\"ssm_multipliers\": [1, 2, 3, 4, 5]"));
    assert_true(given.key_multiplier == 0.5F && given.ssm_multipliers[4] == 5);
    assert_true(given.gate_multiplier == 0.25F && given.down_multiplier == 2);
}

static enum err_code build(const char *text, enum dtype made, enum attention_kernel attention,
                           struct graph **graph, struct err *err)
{
    const struct model_config config = from_text(text);
    const struct model_job job = {.batch = 1,
                                  .seq = 16,
                                  .code = CODE_HF,
                                  .compute = DTYPE_BF16,
                                  .made = made,
                                  .attention = attention};
    return model_build(&config, &job, graph, err);
}

/* Of each row z, x, B, C, dt. */
static void factors_of_parts_are_a_buffer_of_each_layer(void **state)
{
    (void)state;
    struct graph *graph;
    struct err err = {0};
    uint32_t found = 0;
    assert_int_equal(build(FALCON(", \"ssm_multipliers\": [1, 2, 3, 4, 5]"), DTYPE_BF16,
                           ATTENTION_FLASH, &graph, &err),
                     ERR_OK);
    for (uint32_t i = 0; i < graph->buffer_count; i++) {
        const struct buffer_values *values = &graph->buffers[i];
        if (values->kind != VALUES_PARTS)
            continue;
        static const uint32_t widths[] = {1024, 1024, 256, 256, 128};
        found++;
        assert_int_equal(values->parts, 5);
        assert_memory_equal(values->widths, widths, sizeof widths);
        for (uint32_t part = 0; part < 5; part++)
            assert_true(values->numbers[part] == (float)(part + 1));
    }
    assert_int_equal(found, 4);
    graph_free(graph);
}

static void assert_says(enum err_code rc, const struct err *err, const char *says)
{
    assert_int_not_equal(rc, ERR_OK);
    if (!strstr(err->text, says))
        fail_msg("%s", err->text);
}

static void what_a_file_asks_for_and_is_not_planned_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } rows[] = {
        {BAMBA(", \"attn_layer_indices\": [4]"), "\"attn_layer_indices\""},
        {BAMBA(", \"attn_layer_indices\": [-1]"), "\"attn_layer_indices\""},
        {BAMBA(", \"layer_types\": [\"mamba\"]"), "\"layer_types\""},
        {BAMBA(", \"z_loss_coefficient\": 0.1"), "\"z_loss_coefficient\""},
        {BAMBA(", \"partial_rotary_factor\": 0.25"), "\"partial_rotary_factor\""},
        {BAMBA(", \"mamba_d_head\": 32"), "\"auto\" or 64, which is \"mamba_expand\": 2 times"},
        {FALCON(", \"mamba_d_head\": 32"), "\"auto\" or 8, which is \"mamba_d_ssm\": 1024 by"},
        {FALCON(", \"mamba_d_ssm\": 1000"), "does not divide \"mamba_d_ssm\": 1000"},
        {FALCON(", \"mamba_d_ssm\": 0"), "\"mamba_d_ssm\": expected an integer 1"},
        {FALCON(", \"mamba_d_ssm\": \"x\""), "\"mamba_d_ssm\": expected an integer 1"},
        {FALCON(", \"ssm_multipliers\": [1, 1]"), "\"ssm_multipliers\": expected a list of 5"},
        {FALCON(", \"mlp_multipliers\": [1, 0]"), "\"mlp_multipliers\": expected a list of 2"},
        {FALCON(", \"key_multiplier\": null"), "\"key_multiplier\""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct model_config config;
        struct err err = {0};
        assert_says(read_text(rows[i].text, &config, &err), &err, rows[i].says);
    }
}

/* "expected m1 and m2 to have the same dtype": what a vector in fp32 makes of bf16. */
static void what_pytorch_does_not_run_is_refused(void **state)
{
    (void)state;
    struct graph *graph = NULL;
    struct err err = {0}, other = {0};
    assert_says(build(FALCON(""), DTYPE_FP32, ATTENTION_FLASH, &graph, &err), &err, "mup_vector");
    assert_says(build(BAMBA(""), DTYPE_FP32, ATTENTION_EAGER, &graph, &other), &other,
                "how bamba writes attention in Python is not planned");
}

/* Its kernel takes 64 KiB of a group; without a norm there is no such kernel. */
static void groups_are_as_wide_as_their_norm_takes(void **state)
{
    (void)state;
    static const char wide[] = FALCON(", \"mamba_d_ssm\": 65536, \"mamba_n_heads\": 1024");
    static const char normed[] =
        FALCON(", \"mamba_d_ssm\": 65536, \"mamba_n_heads\": 1024, \"mamba_rms_norm\": true");
    struct graph *graph = NULL;
    struct err err = {0};
    assert_int_equal(build(wide, DTYPE_BF16, ATTENTION_FLASH, &graph, &err), ERR_OK);
    graph_free(graph);
    assert_says(build(normed, DTYPE_BF16, ATTENTION_FLASH, &graph, &err), &err,
                "takes 1 ... 32768 numbers of a group in bf16, not 65536");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameters_are_those_of_the_classes),
        cmocka_unit_test(bamba_turns_half_of_a_head),
        cmocka_unit_test(falcons_factors_are_1_where_the_file_has_none),
        cmocka_unit_test(factors_of_parts_are_a_buffer_of_each_layer),
        cmocka_unit_test(what_a_file_asks_for_and_is_not_planned_is_refused),
        cmocka_unit_test(what_pytorch_does_not_run_is_refused),
        cmocka_unit_test(groups_are_as_wide_as_their_norm_takes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

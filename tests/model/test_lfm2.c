/* test_lfm2.c - what a config.json of LFM2 says twice, and what is made of its feed-forward. */
#include "families/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define LFM2                                                                                       \
    "{\"model_type\": \"lfm2\", \"hidden_size\": 64, \"num_hidden_layers\": 3, "                   \
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"vocab_size\": 128"

static enum err_code read_text(const char *text, struct model_config *config, struct err *err)
{
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    const enum err_code rc = model_config_from_json(root, "text", config, err);
    json_decref(root);
    return rc;
}

/* Widths of w1 and counts are transformers' (5.23, on the meta device). */
static void the_feed_forward_is_as_wide_as_transformers_makes_it(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint32_t ffn;
        double parameters;
    } rows[] = {
        {LFM2 "}", 8192, 4764192},
        {LFM2 ", \"intermediate_size\": 100}", 256, 193056},
        {LFM2 ", \"intermediate_size\": 100, \"block_ff_dim\": 200, \"block_multiple_of\": 7}", 133,
         122208},
        {LFM2 ", \"block_ff_dim\": 200, \"block_ffn_dim_multiplier\": 1.3, "
              "\"block_multiple_of\": 7}",
         175, 146400},
        {LFM2 ", \"block_ff_dim\": 200, \"block_auto_adjust_ff_dim\": false}", 200, 160800},
        {LFM2 ", \"block_ff_dim\": 200, \"full_attn_idxs\": [1], \"tie_embedding\": false}", 256,
         209760},
        {LFM2 ", \"block_ff_dim\": 200, \"full_attn_idxs\": [1], \"tie_embedding\": false, "
              "\"tie_word_embeddings\": true}",
         256, 209760},
        {LFM2 ", \"block_ff_dim\": 200, \"full_attn_idxs\": [1], "
              "\"layer_types\": [\"conv\", \"conv\", \"conv\"]}",
         256, 205824},
        /* 2,561, which is rounded up: in a float 1.3 is a little less */
        {LFM2 ", \"block_ff_dim\": 2955, \"block_ffn_dim_multiplier\": 1.3}", 2816, 1667616},
        {LFM2 ", \"block_ff_dim\": 200, \"full_attn_idxs\": [99], "
              "\"layer_types\": [\"conv\", \"conv\", \"conv\"]}",
         256, 205824},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct model_config config;
        struct err err = {0};
        if (read_text(rows[i].text, &config, &err) != ERR_OK)
            fail_msg("%s", err.text);
        assert_int_equal(config.ffn, rows[i].ffn);
        assert_true(model_config_parameters(&config) == rows[i].parameters);
    }
}

static void assert_refused(const char *text, const char *says)
{
    struct model_config config;
    struct err err = {0};
    assert_int_equal(read_text(text, &config, &err), ERR_INVALID);
    if (!strstr(err.text, says))
        fail_msg("%s", err.text);
}

static void what_makes_the_feed_forward_is_named(void **state)
{
    (void)state;
    assert_refused(LFM2 ", \"intermediate_size\": 1}",
                   "\"intermediate_size\": 1 with \"block_ffn_dim_multiplier\": 1 and "
                   "\"block_multiple_of\": 256 makes feed-forwards of 0: expected 1 ... 16777216");
    assert_refused(LFM2 ", \"block_ff_dim\": 3000000, \"block_ffn_dim_multiplier\": 1000}",
                   "\"block_ff_dim\": 3000000 with \"block_ffn_dim_multiplier\": 1000");
    assert_refused(LFM2 ", \"block_ffn_dim_multiplier\": null}",
                   "\"block_ffn_dim_multiplier\": expected a number 0.001 ... 1000, got null");
    assert_refused(LFM2 ", \"full_attn_idxs\": [1, 3]}",
                   "\"full_attn_idxs\": expected a list of layers 0 ... 2 or null, got [1, 3]");
}

/* The head is the outer class's (transformers 5.23 on the meta device, without what sees). */
static void the_class_around_ties_the_head(void **state)
{
    (void)state;
    static const struct {
        const char *outer, *text;
        double parameters;
    } rows[] = {
        {"", "", 4764192},
        {"", ", \"tie_word_embeddings\": false", 4764192},
        {", \"tie_word_embeddings\": false", "", 4772384},
        {", \"tie_word_embeddings\": false", ", \"tie_embedding\": true", 4772384},
        {", \"tie_word_embeddings\": true", ", \"tie_word_embeddings\": false", 4764192},
        {", \"tie_word_embeddings\": true, \"tie_embedding\": false", "", 4772384},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[512];
        struct model_config config;
        struct err err = {0};
        snprintf(text, sizeof text, "{\"model_type\": \"lfm2_vl\"%s, \"text_config\": %s%s}}",
                 rows[i].outer, LFM2, rows[i].text);
        if (read_text(text, &config, &err) != ERR_OK)
            fail_msg("%s", err.text);
        if (model_config_parameters(&config) != rows[i].parameters)
            fail_msg("%s: %.0f", text, model_config_parameters(&config));
    }
    assert_refused(
        "{\"model_type\": \"lfm2_vl\", \"tie_word_embeddings\": 1, \"text_config\": " LFM2 "}}",
        "text: \"tie_word_embeddings\": expected true or false, got 1");
}

/* causal-conv1d 1.7: "dim must be divisible by 8". */
static void convolutions_ask_for_what_their_kernels_can(void **state)
{
    (void)state;
    static const char head[] = "{\"model_type\": \"lfm2\", \"hidden_size\": 60, "
                               "\"num_hidden_layers\": 1, \"num_attention_heads\": 5, "
                               "\"num_key_value_heads\": 5, \"layer_types\": ";
    struct model_config config;
    char text[256];
    struct err err = {0};
    snprintf(text, sizeof text, "%s[\"full_attention\"]}", head);
    assert_int_equal(read_text(text, &config, &err), ERR_OK);
    snprintf(text, sizeof text, "%s[\"conv\"]}", head);
    assert_int_equal(read_text(text, &config, &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "60 channels; causal-conv1d has kernels for a multiple of 8"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_feed_forward_is_as_wide_as_transformers_makes_it),
        cmocka_unit_test(what_makes_the_feed_forward_is_named),
        cmocka_unit_test(the_class_around_ties_the_head),
        cmocka_unit_test(convolutions_ask_for_what_their_kernels_can),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

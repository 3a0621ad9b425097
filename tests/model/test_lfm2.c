/* test_lfm2.c - what a config.json of LFM2 says twice, and what is made of its feed-forward. */
#include "model/config.h"

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
        {LFM2 ", \"block_ff_dim\": 200, \"full_attn_idxs\": [1], "
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
        cmocka_unit_test(convolutions_ask_for_what_their_kernels_can),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

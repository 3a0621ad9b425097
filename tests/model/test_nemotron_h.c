/* test_nemotron_h.c - what layers of Nemotron-H are, by letters or by words. */
#include "families/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define HYBRID(layers)                                                                             \
    "{\"model_type\": \"nemotron_h\", \"hidden_size\": 4096, \"num_attention_heads\": 32" layers "}"

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

/* transformers 5.23 on the meta device, of the class as it is but for its layers. Words go before
 * letters. */
static void letters_and_words_say_the_same(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint32_t layers;
        double parameters;
    } rows[] = {
        {HYBRID(", \"hybrid_override_pattern\": \"ME*-\""), 4, 1968355712},
        {HYBRID(", \"layers_block_type\": [\"mamba\", \"moe\", \"attention\", \"mlp\"]"), 4,
         1968355712},
        {HYBRID(", \"layers_block_type\": null, \"num_hidden_layers\": 4, "
                "\"layer_types\": [\"mamba\", \"moe\", \"attention\", \"mlp\"]"),
         4, 1968355712},
        {HYBRID(", \"layer_types\": [\"linear_attention\", \"full_attention\"], "
                "\"hybrid_override_pattern\": \"ME*-\", \"num_hidden_layers\": null"),
         2, 1225333120},
        {HYBRID(", \"hybrid_override_pattern\": \"MM-M*\""), 5, 1620778112},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct model_config config = from_text(rows[i].text);
        assert_int_equal(config.layers, rows[i].layers);
        if (model_config_parameters(&config) != rows[i].parameters)
            fail_msg("%s: %.0f", rows[i].text, model_config_parameters(&config));
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

static void other_letters_and_words_are_refused(void **state)
{
    (void)state;
    assert_refused(
        HYBRID(", \"hybrid_override_pattern\": \"MX\""),
        "\"hybrid_override_pattern\": layer 1: allowed are linear_attention or mamba (M), "
        "full_attention or attention (*), mlp (-) and moe (E), got \"X\"");
    assert_refused(HYBRID(", \"hybrid_override_pattern\": \"M\u00e9\""), "got \"?\"");
    assert_refused(HYBRID(", \"layers_block_type\": [\"moe\", 3]"),
                   "\"layers_block_type\": layer 1: allowed are linear_attention");
    assert_refused(HYBRID(", \"layer_types\": [\"moe\", \"conv\"]"), "and moe (E), got \"conv\"");
    assert_refused(HYBRID(", \"layers_block_type\": []"), "expected 1 ... 4096 layers, got 0");
    assert_refused(HYBRID(", \"moe_latent_size\": 64"), "\"moe_latent_size\"");
}

/* What transformers takes for four layers, or for others, or not at all. */
static void layers_are_asked_for(void **state)
{
    (void)state;
    assert_refused(HYBRID(""), "\"layers_block_type\" is missing");
    assert_refused(HYBRID(", \"num_hidden_layers\": 52"), "\"layers_block_type\" is missing");
    assert_refused(
        HYBRID(", \"layers_block_type\": \"MMM\""),
        "\"layers_block_type\": expected null or a list, for each layer of "
        "linear_attention or mamba (M), full_attention or attention (*), mlp (-) and moe "
        "(E), got \"MMM\"");
    assert_refused(HYBRID(", \"hybrid_override_pattern\": 5"),
                   "\"hybrid_override_pattern\": expected a text of M, *, - and E, got 5");
    assert_refused(HYBRID(", \"hybrid_override_pattern\": null"), "got null");
    assert_refused(HYBRID(", \"hybrid_override_pattern\": [\"M\", \"E\"]"), "expected a text of");
    assert_refused(HYBRID(", \"layers_block_type\": [\"mlp\"], \"layer_types\": [\"moe\"]"),
                   "\"layers_block_type\": [\"mlp\"] and \"layer_types\": [\"moe\"] are the same "
                   "setting");
    assert_refused(HYBRID(", \"hybrid_override_pattern\": \"M*\", \"num_hidden_layers\": 3"),
                   "\"num_hidden_layers\": expected 2, as many as \"hybrid_override_pattern\" has, "
                   "got 3");
    assert_refused("{\"model_type\": \"nemotron_h\", \"hybrid_override_pattern\": \"M\"}",
                   "\"hidden_size\" is missing");
}

/* mamba-ssm asserts that it is one of two; and an embedding without a row that nothing trains. */
static void the_activation_is_mamba_ssms_and_no_token_pads(void **state)
{
    (void)state;
    const struct model_config swish =
        from_text(HYBRID(", \"hybrid_override_pattern\": \"M-\", "
                         "\"mamba_hidden_act\": \"swish\", \"pad_token_id\": 3"));
    assert_string_equal(swish.activation, "relu2");
    assert_int_equal(swish.padding, 0);
    assert_refused(HYBRID(", \"hybrid_override_pattern\": \"M\", \"mamba_hidden_act\": \"gelu\""),
                   "\"mamba_hidden_act\": expected \"silu\" or \"swish\", got \"gelu\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(letters_and_words_say_the_same),
        cmocka_unit_test(other_letters_and_words_are_refused),
        cmocka_unit_test(layers_are_asked_for),
        cmocka_unit_test(the_activation_is_mamba_ssms_and_no_token_pads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_nemotron_h.c - what layers of Nemotron-H are, by letters or by words. */
#include "model/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define HYBRID(layers) "{\"model_type\": \"nemotron_h\", \"num_hidden_layers\": 3" layers "}"

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

/* transformers 5.23 on the meta device, of the class as it is but for its layers; without any it
 * has one of each kind. Of num_hidden_layers it takes no notice. */
static void letters_and_words_say_the_same(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint32_t layers;
        double parameters;
    } rows[] = {
        {HYBRID(""), 4, 1968355712},
        {HYBRID(", \"hybrid_override_pattern\": \"ME*-\""), 4, 1968355712},
        {HYBRID(", \"layers_block_type\": [\"mamba\", \"moe\", \"attention\", \"mlp\"]"), 4,
         1968355712},
        {HYBRID(", \"layer_types\": [\"linear_attention\", \"full_attention\"], "
                "\"hybrid_override_pattern\": \"ME*-\""),
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
    assert_refused(HYBRID(", \"hybrid_override_pattern\": \"MX\""),
                   "\"hybrid_override_pattern\": layer 1: allowed are linear_attention (M)");
    assert_refused(HYBRID(", \"layers_block_type\": [\"moe\", 3]"),
                   "\"layers_block_type\": layer 1: allowed are");
    assert_refused(HYBRID(", \"layers_block_type\": []"), "expected 1 ... 4096 layers, got 0");
    assert_refused(HYBRID(", \"moe_latent_size\": 64"), "\"moe_latent_size\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(letters_and_words_say_the_same),
        cmocka_unit_test(other_letters_and_words_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_counts.c - what builders make of presets and configurations.
 *
 * Parameter counts come from three sides that know nothing of each other: the published number, a
 * closed formula, and the graph that a builder makes. */
#include "families/config.h"
#include "families/families.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct model_config preset(const char *name)
{
    struct model_config config;
    assert_int_equal(model_preset_find(name, &config, NULL), ERR_OK);
    return config;
}

static void the_formula_gives_every_published_count(void **state)
{
    (void)state;
    const struct model_preset *preset;
    for (uint32_t i = 0; (preset = model_preset_at(i)) != NULL; i++)
        if (model_config_parameters(&preset->config) != (double)preset->parameters)
            fail_msg("%s: %.0f parameters, published %llu", preset->name,
                     model_config_parameters(&preset->config),
                     (unsigned long long)preset->parameters);
}

/* Elements of the graph's parameters. */
static uint64_t build_and_count(const struct model_config *config, enum code code, const char *name)
{
    const struct model_job job = {.batch = 1, .seq = 16, .code = code, .compute = DTYPE_FP32};
    struct graph *graph = NULL;
    struct err err = {0};
    if (model_build(config, &job, &graph, &err) != ERR_OK)
        fail_msg("%s: %s", name, err.text);
    const uint64_t elements = graph_parameter_elements(graph);
    graph_free(graph);
    return elements;
}

static void assert_built(const struct model_config *config, const char *name, enum code code,
                         uint64_t expected)
{
    const uint64_t elements = build_and_count(config, code, name);
    if (elements != expected)
        fail_msg("%s (%s, %s): %llu elements in the graph, expected %llu", name, code_name(code),
                 config->tied ? "tied" : "untied", (unsigned long long)elements,
                 (unsigned long long)expected);
}

static void builders_make_every_published_count(void **state)
{
    (void)state;
    const struct model_preset *preset;
    for (uint32_t i = 0; (preset = model_preset_at(i)) != NULL; i++)
        assert_built(&preset->config, preset->name, model_default_code(preset->config.arch),
                     preset->parameters);
}

static void hugging_face_code_makes_the_same_count(void **state)
{
    (void)state;
    const struct model_preset *preset;
    for (uint32_t i = 0; (preset = model_preset_at(i)) != NULL; i++)
        if (preset->config.arch != ARCH_FSDP2_TUTORIAL)
            assert_built(&preset->config, preset->name, CODE_HF, preset->parameters);
}

/* How many parameters an untied head adds. */
static uint64_t head_elements(const struct model_config *c)
{
    return (uint64_t)c->vocab * (c->arch == ARCH_OPT ? c->word_embed : c->hidden);
}

/* T5 shares its embedding always, the tutorial never. An untied BERT has a second bias, too, which
 * nothing reads and the builder leaves out. */
static bool head_can_be_either(const struct model_config *config)
{
    return model_is_decoder(config) && config->arch != ARCH_FSDP2_TUTORIAL;
}

/* NULL: it is built. */
static void expect_code(const struct model_config *config, enum code code, uint32_t seq,
                        const char *refusal)
{
    const struct model_job job = {.batch = 1, .seq = seq, .code = code, .compute = DTYPE_BF16};
    struct graph *graph = NULL;
    struct err err = {0};
    const enum err_code rc = model_build(config, &job, &graph, &err);
    if (!refusal && rc != ERR_OK)
        fail_msg("%s", err.text);
    if (refusal && (rc != ERR_UNSUPPORTED || !strstr(err.text, refusal)))
        fail_msg("expected \"%s\", got %s: %s", refusal, err_name(rc), err.text);
    graph_free(graph);
}

static void what_a_code_does_not_compute_is_refused(void **state)
{
    (void)state;
    struct model_config c = preset("mistral-7b"); /* a window of 4,096 */
    expect_code(&c, CODE_TORCHTITAN, 4096, NULL);
    expect_code(&c, CODE_TORCHTITAN, 4097, "--seq 4097 is longer than the model's sliding window");
    expect_code(&c, CODE_HF, 4097, NULL);
    c = preset("qwen2.5-0.5b");
    c.sliding_window = 64;
    c.full_layers = c.layers; /* no layer has it */
    expect_code(&c, CODE_TORCHTITAN, 128, NULL);

    c = preset("llama-3.2-1b");
    c.attention_dropout = 0.1F;
    expect_code(&c, CODE_TORCHTITAN, 16, "asks for attention dropout 0.1, which torchtitan's code");
    expect_code(&c, CODE_HF, 16, NULL);

    c = preset("llama-3.2-1b");
    c.rope.scaling = ROPE_DYNAMIC;
    expect_code(&c, CODE_TORCHTITAN, 16, NULL);
    expect_code(&c, CODE_HF, 16, NULL);
}

static void a_tied_head_saves_vocabulary_times_width(void **state)
{
    (void)state;
    const struct model_preset *preset;
    for (uint32_t i = 0; (preset = model_preset_at(i)) != NULL; i++) {
        struct model_config config = preset->config;
        if (!head_can_be_either(&config))
            continue;
        config.tied = !config.tied;
        const uint64_t head = head_elements(&config);
        const uint64_t expected =
            config.tied ? preset->parameters - head : preset->parameters + head;
        assert_true(model_config_parameters(&config) == (double)expected);
        assert_built(&config, preset->name, model_default_code(config.arch), expected);
        assert_built(&config, preset->name, CODE_HF, expected);
    }
}

static void builders_follow_every_switch_that_adds_parameters(void **state)
{
    (void)state;
    struct model_config variants[10];
    uint32_t count = 0;
    variants[count] = preset("llama-3.2-1b");
    variants[count].attention_bias = true;
    variants[count++].output_bias = true;
    variants[count] = preset("llama-3.2-1b");
    variants[count++].mlp_bias = true;
    variants[count] = preset("qwen3-0.6b");
    variants[count++].attention_bias = true;
    variants[count] = preset("qwen3-0.6b");
    variants[count++].output_bias = true;
    variants[count] = preset("pythia-70m");
    variants[count++].attention_bias = false;
    variants[count] = preset("opt-125m");
    variants[count].attention_bias = false;
    variants[count++].mlp_bias = false;
    variants[count] = preset("opt-125m");
    variants[count++].word_embed = 96;
    variants[count] = preset("t5-small");
    variants[count].gated = true;
    variants[count++].decoder_layers = 2;
    variants[count] = preset("t5-small");
    variants[count++].relative_buckets = 64;
    variants[count] = preset("bert-base");
    variants[count++].type_vocab = 5;
    for (uint32_t i = 0; i < count; i++)
        assert_built(&variants[i], arch_name(variants[i].arch), CODE_HF,
                     (uint64_t)model_config_parameters(&variants[i]));
}

static void a_code_that_nobody_wrote_a_model_in_is_refused(void **state)
{
    (void)state;
    const struct model_config config = preset("llama-3.2-1b");
    const struct model_job job = {
        .batch = 1, .seq = 16, .code = CODE_NANOGPT, .compute = DTYPE_BF16};
    struct graph *graph;
    struct err err = {0};
    assert_int_equal(model_build(&config, &job, &graph, &err), ERR_INVALID);
    assert_string_equal(err.text, "--code nanogpt: llama is planned as torchtitan or hf");
    assert_null(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_formula_gives_every_published_count),
        cmocka_unit_test(builders_make_every_published_count),
        cmocka_unit_test(hugging_face_code_makes_the_same_count),
        cmocka_unit_test(a_tied_head_saves_vocabulary_times_width),
        cmocka_unit_test(builders_follow_every_switch_that_adds_parameters),
        cmocka_unit_test(a_code_that_nobody_wrote_a_model_in_is_refused),
        cmocka_unit_test(what_a_code_does_not_compute_is_refused),
    };
    return cmocka_run_group_tests_name("counts", tests, NULL, NULL);
}

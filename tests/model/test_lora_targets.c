/* test_lora_targets.c - of which mixtures of experts peft's all-linear is the linear layers alone.
 */
#include "families/families.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ERR_OK: it is planned. Or a part of why not. */
static void expect_of(const char *preset, const char *lora, const char *why)
{
    struct model_config config;
    struct graph *graph = NULL;
    struct err err = {0};
    const struct model_job job = {
        .batch = 1, .seq = 64, .code = CODE_HF, .compute = DTYPE_BF16, .lora = lora};
    assert_int_equal(model_preset_find(preset, &config, &err), ERR_OK);
    const enum err_code rc = model_build(&config, &job, &graph, &err);
    if (why ? rc == ERR_OK || !strstr(err.text, why) : rc != ERR_OK)
        fail_msg("%s: %s", preset, err.text);
    graph_free(graph);
}

static void expect(const char *preset, const char *why)
{
    expect_of(preset, "8,all-linear", why);
}

static void all_linear_of_mixtures(void **state)
{
    (void)state;
    expect("gpt-oss-20b", NULL);
    expect("qwen1.5-moe-a2.7b", NULL);
    expect("mixtral-8x7b", "its experts' parameters and the router's");
    expect("qwen3-30b-a3b", "its experts' parameters and the router's");
    expect("trinity-nano-preview", "its experts' parameters and the router's");
    expect("llama-4-scout-17b-16e", "its router, too, which returns two tensors");
}

/* peft 0.21.2 takes v4's names of experts' layers for the parameters of v5 in their place. */
static void names_of_experts_layers(void **state)
{
    (void)state;
    static const char gate[] = "model.layers.2.mlp.shared_experts.gate_proj.lora_A.default.weight";
    struct model_config trinity, qwen2;
    struct err err = {0};
    assert_int_equal(model_preset_find("trinity-nano-preview", &trinity, &err), ERR_OK);
    assert_int_equal(model_preset_find("qwen1.5-moe-a2.7b", &qwen2, &err), ERR_OK);
    assert_true(lora_takes_experts(&trinity, gate));
    assert_false(lora_takes_experts(&trinity, "model.layers.2.self_attn.q_proj.weight"));
    assert_false(lora_takes_experts(&qwen2, gate));
    expect_of("trinity-nano-preview", "8,q_proj,gate_proj", NULL);
    expect_of("deepseek-v3", "8,.*\\.(o_proj|up_proj)", NULL);
}

static const char *names_of(const char *preset)
{
    struct model_config config;
    struct err err = {0};
    assert_int_equal(model_preset_find(preset, &config, &err), ERR_OK);
    return lora_linear_names(&config);
}

/* What trainers that find nn.Linear name. */
static void names_of_linear_layers(void **state)
{
    (void)state;
    assert_string_equal(names_of("llama-3.1-8b"), "all-linear");
    assert_string_equal(names_of("gpt-oss-20b"), "all-linear");
    assert_string_equal(names_of("mixtral-8x7b"), "q_proj,k_proj,v_proj,o_proj");
    assert_null(names_of("deepseek-v3"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_linear_of_mixtures),
        cmocka_unit_test(names_of_linear_layers),
        cmocka_unit_test(names_of_experts_layers),
    };
    return cmocka_run_group_tests_name("lora_targets", tests, NULL, NULL);
}

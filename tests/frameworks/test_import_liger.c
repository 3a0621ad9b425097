/* test_import_liger.c - Liger's kernels by the keys of those who apply them. */
#include "tests/frameworks/import_fixture.h"

#define PLUGIN "plugins: [axolotl.integrations.liger.LigerPlugin]\n"
#define AXOLOTL "base_model: Qwen/Qwen3-8B\nbf16: false\n"

struct expected {
    const char *text, *kernels, *loss; /* kernels NULL: none */
};

static void expect_all(const struct expected *cases, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct fixture f;
        char buffer[NUMBER_TEXT];
        take_text(&f, SYNTAX_YAML, cases[i].text);
        const char *kernels = settings_get(&f.settings, "liger", buffer);
        if (!kernels != !cases[i].kernels || (kernels && strcmp(kernels, cases[i].kernels) != 0))
            fail_msg("%s: --liger %s", cases[i].text, kernels ? kernels : "none");
        const char *loss = settings_get(&f.settings, "loss", buffer);
        if (strcmp(loss, cases[i].loss) != 0)
            fail_msg("%s: --loss %s", cases[i].text, loss);
        assert_null(f.settings.unplanned);
        import_free(&f.import);
    }
}

/* axolotl's plugin applies what its keys say, and nothing is applied without it. */
static void axolotls_keys_are_settings(void **state)
{
    static const struct expected cases[] = {
        {AXOLOTL PLUGIN "liger_rope: true\nliger_rms_norm: true\nliger_glu_activation: true\n"
                        "liger_layer_norm: true\nliger_fused_linear_cross_entropy: true\n",
         "rope,rms_norm,glu", "liger"},
        {AXOLOTL PLUGIN "liger_swiglu: true\n", "glu", "eager"},
        {AXOLOTL PLUGIN "liger_cross_entropy: true\nliger_rope: false\n", NULL,
         "liger-cross-entropy"},
        {AXOLOTL PLUGIN, NULL, "eager"},
        {AXOLOTL "liger_rope: true\nliger_fused_linear_cross_entropy: true\n", NULL, "eager"},
        /* which Liger patches to no effect */
        {"base_model: mistralai/Mistral-7B-v0.1\nbf16: false\n" PLUGIN
         "liger_cross_entropy: true\n",
         NULL, "eager"},
    };
    (void)state;
    expect_all(cases, COUNT(cases));
}

/* The Trainer, and LLaMA-Factory, apply what Liger does by itself. */
static void trainers_take_what_is_there(void **state)
{
    static const struct expected cases[] = {
        {AXOLOTL "use_liger_kernel: true\n", "rope,rms_norm,glu", "liger"},
        {AXOLOTL "use_liger_kernel: false\n", NULL, "eager"},
        {AXOLOTL "liger_kernel_config:\n  rope: false\n", NULL, "eager"},
        {"model_name_or_path: Qwen/Qwen3-8B\nstage: sft\nenable_liger_kernel: true\n",
         "rope,rms_norm,glu", "liger"},
        {AXOLOTL "use_liger_kernel: true\nliger_kernel_config:\n  rope: false\n  swiglu: true\n"
                 "  fused_linear_cross_entropy: false\n  cross_entropy: true\n",
         "rms_norm,glu", "liger-cross-entropy"},
        /* no family of Liger's */
        {"base_model: openai-community/gpt2\nbf16: false\nuse_liger_kernel: true\n", NULL, "eager"},
    };
    (void)state;
    expect_all(cases, COUNT(cases));
}

/* What is not planned of a family, or beside something else, is listed. */
static void what_is_not_planned_is_listed(void **state)
{
    static const struct {
        const char *text, *key, *why;
    } cases[] = {
        {"base_model: allenai/OLMo-2-1124-7B\n" PLUGIN "liger_rms_norm: true\n", "liger_rms_norm",
         "planned as the model's own"},
        {AXOLOTL "torch_compile: true\nuse_liger_kernel: true\n", "use_liger_kernel",
         "planned as the model's own"},
        {AXOLOTL PLUGIN "liger_rms_norm_gated: true\n", "liger_rms_norm_gated", "Liger"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct fixture f;
        take_text(&f, SYNTAX_YAML, cases[i].text);
        const struct note *note = find_note(&f, NOTE_UNPLANNED, cases[i].key);
        if (!note || !strstr(note->text, cases[i].why))
            fail_msg("%s", cases[i].text);
        import_free(&f.import);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(axolotls_keys_are_settings),
        cmocka_unit_test(trainers_take_what_is_there),
        cmocka_unit_test(what_is_not_planned_is_listed),
    };
    return cmocka_run_group_tests_name("import of Liger's kernels", tests, NULL, NULL);
}

/* test_import_listed.c - keys that change a step and are not planned stand beside the verdict;
 * those of another program do, too; and what is off has no effect. */
#include "tests/frameworks/import_fixture.h"

#define AXOLOTL "base_model: Qwen/Qwen3-8B\nmicro_batch_size: 1\ngradient_accumulation_steps: 1\n"
#define TRL "model_name_or_path: Qwen/Qwen3-8B\ndataset_name: d\n"
#define TRL_EXPERTS "model_name_or_path: Qwen/Qwen3-30B-A3B\ndataset_name: d\n"
#define FACTORY "model_name_or_path: Qwen/Qwen3-8B\nstage: sft\ntemplate: qwen3\n"
#define TRAINER "model_name_or_path: Qwen/Qwen3-8B\nper_device_train_batch_size: 1\n"

static void keys_that_change_a_step_stand_beside_the_verdict(void **state)
{
    static const struct {
        const char *file, *key, *on, *off; /* off NULL: no value is */
    } cases[] = {
        {AXOLOTL, "fp8", "true", "false"},
        {AXOLOTL "fp8: true\n", "fp8_enable_fsdp_float8_all_gather", "true", "false"},
        {AXOLOTL, "tiled_mlp", "true", "false"},
        {AXOLOTL, "flex_attention", "true", "false"},
        {AXOLOTL, "xformers_attention", "true", "false"},
        {AXOLOTL, "sdpa_varlen", "true", "false"},
        {AXOLOTL, "batch_flattening", "auto", "false"},
        {AXOLOTL, "dpo_padding_free", "true", "false"},
        {AXOLOTL, "relora", "true", "false"},
        {AXOLOTL, "deepcompile", "true", "false"},
        {AXOLOTL, "torch_empty_cache_steps", "5", "0"},
        {AXOLOTL "bf16: false\n", "float16", "true", "false"},
        {TRAINER, "label_smoothing_factor", "0.1", "0.0"},
        {TRAINER, "torch_empty_cache_steps", "5", "0"},
        {TRAINER, "auto_find_batch_size", "true", "false"},
        {TRAINER "optim: adafactor\n", "optim_args", "a=1", "\"\""},
        {TRL_EXPERTS, "router_aux_loss_coef", "0.01", "0.0"},
        {TRL_EXPERTS, "experts_implementation", "eager", "grouped_mm"},
        {TRL, "sync_ref_model", "true", "false"},
        {TRL, "label_smoothing", "0.1", "0"},
        {FACTORY, "use_kt", "true", "false"},
        {FACTORY, "block_diag_attn", "true", "false"},
        {FACTORY, "rope_scaling", "dynamic", "yarn"},
        {FACTORY "finetuning_type: freeze\n", "freeze_trainable_layers", "2", NULL},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        const char *const values[] = {cases[i].on, cases[i].off, "null"};
        for (size_t v = 0; v < COUNT(values); v++) {
            struct fixture f;
            char text[512];
            if (!values[v])
                continue;
            snprintf(text, sizeof text, "%s%s: %s\n", cases[i].file, cases[i].key, values[v]);
            take_text(&f, SYNTAX_YAML, text);
            const struct note *note = find_note(&f, NOTE_UNPLANNED, cases[i].key);
            /* TRL's absent coefficient is not 0 */
            const bool absent = v == 2 && strcmp(cases[i].key, "router_aux_loss_coef") == 0;
            if (!note != (v > 0 && !absent) || find_note(&f, NOTE_UNKNOWN, cases[i].key) ||
                (v == 0 && (!f.settings.unplanned || !strstr(f.settings.unplanned, note->text))))
                fail_msg("%s", text);
            import_free(&f.import);
        }
    }
}

static void sections_are_listed_by_key(void **state)
{
    struct fixture f;
    (void)state;
    take_text(&f, SYNTAX_YAML, AXOLOTL "qat:\n  weight_dtype: int8\n");
    expect_note(&f, NOTE_UNPLANNED, "qat.weight_dtype", 5, "quantized and back");
    import_free(&f.import);
    take_text(&f, SYNTAX_YAML,
              TRL "model_init_kwargs:\n  attn_implementation: eager\n  revision: main\n  foo: 1\n");
    expect(&f, "attention eager");
    expect_note(&f, NOTE_IDLE, "model_init_kwargs.revision", 5, NULL);
    expect_note(&f, NOTE_UNPLANNED, "model_init_kwargs.foo", 6, "planned without");
    import_free(&f.import);
    take_text(&f, SYNTAX_JSON,
              "{\"model_name_or_path\": \"Qwen/Qwen3-8B\", \"bf16\": true, \"fsdp\": true,\n"
              "\"parallelism_config\": {\"tp_size\": 2, \"cp_size\": 1, \"dp_shard_size\": 4,\n"
              "\"dp_replicate_size\": 2}}");
    expect(&f, "gpus 8, replicate 2");
    expect_note(&f, NOTE_UNPLANNED, "parallelism_config.tp_size", 2, "tensor parallelism");
    expect_note(&f, NOTE_IDLE, "parallelism_config.cp_size", 2, NULL);
    import_free(&f.import);
}

/* axolotl trains in bf16 where either says so. */
static void bfloat16_is_bf16(void **state)
{
    struct fixture f;
    (void)state;
    take_text(&f, SYNTAX_YAML, AXOLOTL "bf16: false\nbfloat16: true\n");
    expect(&f, "autocast bf16");
    import_free(&f.import);
    take_text(&f, SYNTAX_YAML, AXOLOTL "bfloat16: true\nfp16: true\n");
    expect(&f, "autocast bf16");
    import_free(&f.import);
    take_text(&f, SYNTAX_YAML, AXOLOTL "bf16: false\nbfloat16: false\n");
    expect(&f, "autocast none");
    import_free(&f.import);
}

static void keys_of_another_program_are_not_taken(void **state)
{
    static const struct {
        const char *text, *key, *why;
    } cases[] = {
        {AXOLOTL "adapter: lora\nlora_r: 8\nlora_target_linear: true\nlora_rank: 32\n", "lora_rank",
         "did you mean lora_r?"},
        {AXOLOTL "cutoff_len: 4096\n", "cutoff_len", "did you mean sequence_len?"},
        {AXOLOTL "quantization_bit: 4\n", "quantization_bit", "LLaMA-Factory's"},
        {AXOLOTL "gradient_checkpoint: true\n", "gradient_checkpoint",
         "did you mean gradient_checkpointing?"},
        {FACTORY "lora_r: 32\n", "lora_r", "did you mean lora_rank?"},
        {FACTORY "micro_batch_size: 32\n", "micro_batch_size",
         "did you mean per_device_train_batch_size?"},
        {TRL "sequence_len: 64\n", "sequence_len", "did you mean max_length?"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct fixture f;
        take_text(&f, SYNTAX_YAML, cases[i].text);
        const struct note *note = find_note(&f, NOTE_MISSPELT, cases[i].key);
        if (!note || !strstr(note->text, cases[i].why) || !f.settings.misspelt)
            fail_msg("%s", cases[i].text);
        import_free(&f.import);
    }
    struct fixture f;
    take_text(&f, SYNTAX_YAML, cases[0].text);
    char buffer[NUMBER_TEXT];
    assert_string_equal(settings_get(&f.settings, "lora", buffer), "8,all-linear");
    import_free(&f.import);
}

static void a_missing_rank_names_the_key_that_is_there(void **state)
{
    struct fixture f;
    struct err err = {0};
    (void)state;
    assert_int_equal(
        take_with(&f, "x", SYNTAX_YAML, AXOLOTL "adapter: lora\nlora_rank: 32\n", NULL, 0, &err),
        ERR_INVALID);
    assert_non_null(strstr(err.text, "lora_r, which lora_rank is in another program's files"));
    import_free(&f.import);
}

static void both_halves_are_refused(void **state)
{
    static const struct {
        enum document_syntax syntax;
        const char *text, *why;
    } cases[] = {
        {SYNTAX_YAML, TRAINER "bf16: true\nfp16: true\n", "x:4: fp16 true: bf16 (line 3) is on"},
        {SYNTAX_YAML, FACTORY "fp16: true\nbf16: true\n", "x:4: fp16 true: bf16 (line 5) is on"},
        {SYNTAX_YAML, TRL "fp16: true\nbf16: true\n", "bf16 (line 4) is on"},
        {SYNTAX_JSON,
         "{\"train_micro_batch_size_per_gpu\": 1, \"zero_optimization\": {\"stage\": 2},\n"
         "\"bf16\": {\"enabled\": true},\n\"fp16\": {\"enabled\": true}}",
         "x:3: fp16.enabled true: bf16.enabled (line 2) is true"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct fixture f;
        struct err err = {0};
        assert_int_equal(take_with(&f, "x", cases[i].syntax, cases[i].text, NULL, 0, &err),
                         ERR_INVALID);
        if (!strstr(err.text, cases[i].why))
            fail_msg("%s", err.text);
        import_free(&f.import);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_that_change_a_step_stand_beside_the_verdict),
        cmocka_unit_test(sections_are_listed_by_key),
        cmocka_unit_test(bfloat16_is_bf16),
        cmocka_unit_test(keys_of_another_program_are_not_taken),
        cmocka_unit_test(a_missing_rank_names_the_key_that_is_there),
        cmocka_unit_test(both_halves_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

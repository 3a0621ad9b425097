/* test_import_plugins.c - what axolotl's plugins, and kernels of other programs, are listed as. */
#include "tests/frameworks/import_fixture.h"

#define AXOLOTL "base_model: Qwen/Qwen3-8B\nbf16: true\n"
#define FACTORY "model_name_or_path: Qwen/Qwen3-8B\nbf16: true\n"
#define OF(name) "axolotl.integrations." name

/* The note of one of a list's entries. */
static const struct note *find_entry(const struct fixture *f, enum note_kind kind,
                                     const char *value)
{
    for (uint32_t i = 0; i < f->import.note_count; i++) {
        const struct note *note = &f->import.notes[i];
        if (note->kind == kind && note->key && strcmp(note->key, "plugins") == 0 && note->value &&
            strcmp(note->value, value) == 0)
            return note;
    }
    return NULL;
}

/* Each is listed by its name: as not planned, as without effect, or as unknown. */
static void every_plugin_is_listed_by_name(void **state)
{
    static const struct {
        const char *plugin, *keys;
        enum note_kind kind;
        const char *why;
    } cases[] = {
        {OF("cut_cross_entropy.CutCrossEntropyPlugin"), "torch_compile: true\n", NOTE_UNPLANNED,
         "all logits at once"},
        {OF("cut_cross_entropy.CutCrossEntropyPlugin"), "cut_cross_entropy: false\n", NOTE_IDLE,
         NULL},
        {OF("liger.LigerPlugin"), "", NOTE_IDLE, NULL},
        {OF("liger.LigerPlugin"), "liger_rope: false\nliger_rms_norm: false\n", NOTE_IDLE, NULL},
        {OF("liger.LigerPlugin"), "liger_rope: false\nliger_glu_activation: true\n", NOTE_IDLE,
         NULL},
        {OF("kd.KDPlugin"), "", NOTE_IDLE, NULL},
        {OF("kd.KDPlugin"), "kd_trainer: true\n", NOTE_UNPLANNED, "teacher"},
        {OF("spectrum.SpectrumPlugin"), "", NOTE_UNPLANNED, "--freeze"},
        {OF("kernels.KernelsPlugin"), "", NOTE_UNPLANNED, "experts"},
        {OF("grokfast.GrokfastPlugin"), "", NOTE_UNPLANNED, "gradient"},
        {OF("swanlab.SwanLabPlugin"), "", NOTE_IDLE, NULL},
        {OF("lm_eval.LMEvalPlugin"), "", NOTE_IDLE, NULL},
        {"my.own.ThingPlugin", "", NOTE_UNKNOWN, NULL},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct fixture f;
        char text[512];
        snprintf(text, sizeof text, AXOLOTL "plugins:\n  - %s\n%s", cases[i].plugin, cases[i].keys);
        take_text(&f, SYNTAX_YAML, text);
        const struct note *note = find_entry(&f, cases[i].kind, cases[i].plugin);
        if (!note || note->line != 4 || !note->text != !cases[i].why ||
            (note->text && !strstr(note->text, cases[i].why)))
            fail_msg("%s", text);
        import_free(&f.import);
    }
}

/* Beside the verdict stands what is not planned; what has no effect has its name. */
static void plugins_stand_where_their_kind_does(void **state)
{
    struct fixture f;
    char *text = NULL;
    size_t size;
    (void)state;
    take_text(&f, SYNTAX_YAML,
              AXOLOTL "plugins:\n  - " OF("kernels.KernelsPlugin") "\n  - " OF(
                  "swanlab.SwanLabPlugin") "\n  - a.BPlugin\n");
    assert_non_null(strstr(f.settings.unplanned, "plugins = " OF("kernels.KernelsPlugin")));
    FILE *file = open_memstream(&text, &size);
    import_print(file, &f.import);
    assert_int_equal(fclose(file), 0);
    assert_non_null(strstr(text, ", a configuration of axolotl: "));
    assert_non_null(strstr(text, "no effect    plugins = " OF("swanlab.SwanLabPlugin")));
    assert_non_null(strstr(text, "not known    plugins = a.BPlugin (line 6)"));
    free(text);
    import_free(&f.import);
}

/* A loss without logits is a setting where it is planned of the model. */
static void cut_cross_entropy_is_a_loss(void **state)
{
#define CUT "plugins:\n  - " OF("cut_cross_entropy.CutCrossEntropyPlugin") "\n"
    static const struct {
        const char *text, *loss;
        bool listed;
    } cases[] = {
        {AXOLOTL CUT, "cut-cross-entropy", false},
        {AXOLOTL CUT "cut_cross_entropy: true\n", "cut-cross-entropy", false},
        {AXOLOTL CUT "cut_cross_entropy: false\n", "eager", false},
        {AXOLOTL "plugins:\n  - " OF("liger.LigerPlugin") "\n", "eager", false},
        {"base_model: openai-community/gpt2\n" CUT, "eager", true},
        {AXOLOTL CUT "micro_batch_size: 2\ndeepspeed: tests/data/frameworks/deepspeed_zero3.json\n",
         "eager", true},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct fixture f;
        char buffer[NUMBER_TEXT];
        take_text(&f, SYNTAX_YAML, cases[i].text);
        const char *loss = settings_get(&f.settings, "loss", buffer);
        const bool listed =
            find_entry(&f, NOTE_UNPLANNED, OF("cut_cross_entropy.CutCrossEntropyPlugin")) != NULL;
        if (strcmp(loss, cases[i].loss) != 0 || listed != cases[i].listed)
            fail_msg("%s: --loss %s", cases[i].text, loss);
        if (strstr(cases[i].text, "deepspeed:"))
            assert_non_null(strstr(f.settings.unplanned, "DeepSpeed 0.19.8 fails with it"));
        import_free(&f.import);
    }
}

/* axolotl loads what it trains in bf16 in that dtype, and casts embeddings, norms and the head to
 * fp32 where nothing asks for them as they were (_configure_embedding_dtypes). */
static void axolotl_loads_in_bf16(void **state)
{
    static const struct {
        const char *text, *store;
        bool listed;
    } cases[] = {
        {"bf16: auto\nattn_implementation: flash_attention_2\n", "bf16", false},
        {"bf16: true\nattn_implementation: flash_attention_2\n", "bf16", false},
        {"bf16: true\nattn_implementation: sdpa\n", "bf16", true},
        {"bf16: true\n", "bf16", true},
        {"bf16: true\nplugins:\n  - axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin\n",
         "bf16", false},
        {"fp16: true\nattn_implementation: flash_attention_2\n", "fp32", false},
        {"attn_implementation: flash_attention_2\n", "bf16", false},
        {"bf16: false\nattn_implementation: flash_attention_2\n", "fp32", false},
        {"bf16: true\nattn_implementation: flash_attention_2\nfsdp_version: 2\nfsdp_config:\n  "
         "reshard_after_forward: true\n",
         "fp32", false},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct fixture f;
        char text[256], buffer[NUMBER_TEXT];
        snprintf(text, sizeof text, "base_model: Qwen/Qwen3-8B\n%s", cases[i].text);
        take_text(&f, SYNTAX_YAML, text);
        const char *store = settings_get(&f.settings, "store-dtype", buffer);
        if (strcmp(store, cases[i].store) != 0 ||
            (find_note(&f, NOTE_UNPLANNED, "base_model") != NULL) != cases[i].listed)
            fail_msg("%s: --store-dtype %s", text, store);
        import_free(&f.import);
    }
}

/* attn_implementation: PyTorch's and the model's own are planned as they are. */
static void attention_is_said(void **state)
{
    static const struct {
        const char *value, *attention, *why; /* why: listed so */
    } cases[] = {
        {"eager", "eager", NULL},
        {"sdpa", "auto", NULL},
        {"flash_attention_2", "flash-attn", NULL},
        {"kernels-community/flash-attn2", "flash-attn", NULL},
        {"flash_attention_2\ntorch_compile: true", "auto", "under torch.compile"},
        {"flash_attention_2\ngemma4_hybrid_attn_impl: true", "auto", NULL},
        {"flash_attention_3", "auto", "FlashAttention-3's own kernels"},
        {"kernels-community/vllm-flash-attn3", "auto", "FlashAttention-3's own kernels"},
        {"flex_attention", "auto", "of another library"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct fixture f;
        char text[256], buffer[NUMBER_TEXT];
        snprintf(text, sizeof text, "base_model: Qwen/Qwen3-8B\nattn_implementation: %s\n",
                 cases[i].value);
        take_text(&f, SYNTAX_YAML, text);
        const struct note *note = find_note(&f, NOTE_UNPLANNED, "attn_implementation");
        assert_string_equal(settings_get(&f.settings, "attention", buffer), cases[i].attention);
        if (!note != !cases[i].why || (note && !strstr(note->text, cases[i].why)))
            fail_msg("%s", text);
        import_free(&f.import);
    }
}

/* Kernels by keys of their own, of axolotl old and new, LLaMA-Factory and the Trainer. */
static void kernels_of_others_are_not_planned(void **state)
{
    static const char *const keys[] = {
        "cut_cross_entropy",          "chunked_cross_entropy", "unsloth_lora_mlp", "unsloth_rope",
        "unsloth_cross_entropy_loss", "use_unsloth",           "unsloth_lora_qkv", "unsloth_lora_o",
        "unsloth_rms_norm",           "liger_rms_norm_gated"};
    (void)state;
    for (size_t i = 0; i < COUNT(keys); i++)
        for (int on = 0; on < 2; on++) {
            struct fixture f;
            char text[256];
            const bool factorys = strcmp(keys[i], "use_unsloth") == 0;
            snprintf(text, sizeof text, "%s%s: %s\n", factorys ? FACTORY : AXOLOTL, keys[i],
                     on ? "true" : "false");
            take_text(&f, SYNTAX_YAML, text);
            expect_note(&f, on ? NOTE_UNPLANNED : NOTE_IDLE, keys[i], 3, on ? ": planned " : NULL);
            import_free(&f.import);
        }
}

static void a_file_is_called_its_programs(void **state)
{
    static const struct {
        enum document_syntax syntax;
        const char *text, *about;
    } cases[] = {
        {SYNTAX_YAML, "base_model: Qwen/Qwen3-8B\n", "a configuration of axolotl"},
        {SYNTAX_YAML, "model_name_or_path: Qwen/Qwen3-8B\nstage: sft\n",
         "a configuration of LLaMA-Factory"},
        {SYNTAX_YAML, "model_name_or_path: Qwen/Qwen3-8B\nuse_peft: true\n",
         "a configuration of TRL"},
        {SYNTAX_JSON, "{\"per_device_train_batch_size\": 2}", "TrainingArguments of transformers"},
        {SYNTAX_YAML, "distributed_type: FSDP\n", "a configuration of accelerate"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct fixture f;
        take_text(&f, cases[i].syntax, cases[i].text);
        assert_string_equal(f.import.about, cases[i].about);
        import_free(&f.import);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_plugin_is_listed_by_name),
        cmocka_unit_test(plugins_stand_where_their_kind_does),
        cmocka_unit_test(cut_cross_entropy_is_a_loss),
        cmocka_unit_test(axolotl_loads_in_bf16),
        cmocka_unit_test(attention_is_said),
        cmocka_unit_test(kernels_of_others_are_not_planned),
        cmocka_unit_test(a_file_is_called_its_programs),
    };
    return cmocka_run_group_tests_name("import of plugins", tests, NULL, NULL);
}

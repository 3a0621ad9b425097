/* test_import_wrapped.c - classes of modules that accelerate wraps, held to the model's. */
#include "tests/frameworks/import_fixture.h"

#define ACCELERATE(version, policy, classes)                                                       \
    "distributed_type: FSDP\nnum_processes: 8\nmixed_precision: bf16\nfsdp_config:\n"              \
    "  fsdp_version: " version "\n  fsdp_auto_wrap_policy: " policy "\n"                           \
    "  fsdp_transformer_layer_cls_to_wrap: " classes "\n"
#define BY_CLASS "TRANSFORMER_BASED_WRAP"
#define CLASSES "fsdp_config.fsdp_transformer_layer_cls_to_wrap"
#define LINE 7

static enum err_code take(struct fixture *f, const char *model, const char *text, struct err *err)
{
    const struct setting_given given[] = {{"model", model}};
    return take_with(f, "x", SYNTAX_YAML, text, given, 1, err);
}

static void the_blocks_class_is_what_is_planned(void **state)
{
    static const struct {
        const char *model, *text, *units;
    } cases[] = {
        {"llama-3.1-8b", ACCELERATE("2", BY_CLASS, "LlamaDecoderLayer"), "torchtitan"},
        {"llama-3.1-8b", ACCELERATE("1", BY_CLASS, "LlamaDecoderLayer"), "blocks"},
        {"llama-3.1-8b", ACCELERATE("2", BY_CLASS, "LlamaDecoderLayer,Embedding"), "torchtitan"},
        {"gpt2", ACCELERATE("1", BY_CLASS, "GPT2Block"), "blocks"},
        {"llama-3.1-8b", ACCELERATE("1", "NO_WRAP", "Qwen2DecoderLayer"), "none"},
        {"llama-3.1-8b", ACCELERATE("1", "SIZE_BASED_WRAP", "Thing"), "100000000"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct fixture f;
        struct err err = {0};
        char units[64];
        if (take(&f, cases[i].model, cases[i].text, &err) != ERR_OK)
            fail_msg("%s", err.text);
        snprintf(units, sizeof units, "units %s", cases[i].units);
        expect(&f, units);
        expect_note(&f, NOTE_IDLE, CLASSES, LINE, NULL);
        import_free(&f.import);
    }
}

/* FSDP1 wraps each embedding by itself then, which is taken from the key. */
static void embeddings_are_units_of_fsdp1(void **state)
{
    struct fixture f;
    struct err err = {0};
    (void)state;
    assert_int_equal(
        take(&f, "llama-3.1-8b", ACCELERATE("1", BY_CLASS, "LlamaDecoderLayer,Embedding"), &err),
        ERR_OK);
    expect(&f, "units embeddings");
    expect_note(&f, NOTE_TAKEN, CLASSES, LINE, "--units embeddings");
    import_free(&f.import);
}

static void other_classes_stand_beside_the_verdict(void **state)
{
    static const struct {
        const char *model, *classes, *why;
    } cases[] = {
        {"llama-3.1-8b", "LlamaMLP", "units of LlamaMLP: planned with"},
        {"qwen3-0.6b", "\"Qwen3DecoderLayer,Embedding\"", "units of Embedding"}, /* a tied head */
        {"qwen3-0.6b", "[Qwen3DecoderLayer, Qwen3MLP]", "units of Qwen3MLP"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct fixture f;
        struct err err = {0};
        char text[512];
        snprintf(text, sizeof text, ACCELERATE("2", BY_CLASS, "%s"), cases[i].classes);
        if (take(&f, cases[i].model, text, &err) != ERR_OK)
            fail_msg("%s", err.text);
        expect_note(&f, NOTE_UNPLANNED, CLASSES, LINE, cases[i].why);
        assert_non_null(strstr(f.settings.unplanned, cases[i].why));
        import_free(&f.import);
    }
}

static void classes_that_the_model_lacks_are_refused(void **state)
{
    static const struct {
        const char *classes, *why;
    } cases[] = {
        {"Qwen2DecoderLayer", "x:7: " CLASSES " Qwen2DecoderLayer: the model (llama) has no module "
                              "of class \"Qwen2DecoderLayer\", which is of qwen2"},
        {"LlamaDecoderlayer2", "its blocks are LlamaDecoderLayer"},
        {"\"LlamaDecoderLayer, Embedding\"", "the blank before Embedding"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct fixture f;
        struct err err = {0};
        char text[512];
        snprintf(text, sizeof text, ACCELERATE("2", BY_CLASS, "%s"), cases[i].classes);
        assert_int_equal(take(&f, "llama-3.1-8b", text, &err), ERR_INVALID);
        if (!strstr(err.text, cases[i].why))
            fail_msg("%s", err.text);
        import_free(&f.import);
    }
}

/* The model's row is read first, whatever the order of keys. */
static void a_trainers_file_says_the_model_itself(void **state)
{
    struct fixture f;
    struct err err = {0};
    (void)state;
    assert_int_equal(take_with(&f, "x", SYNTAX_YAML,
                               "fsdp_version: 2\nfsdp_config:\n  transformer_layer_cls_to_wrap: "
                               "LlamaDecoderLayer\nbase_model: Qwen/Qwen3-8B\nmicro_batch_size: 1\n"
                               "gradient_accumulation_steps: 1\n",
                               NULL, 0, &err),
                     ERR_INVALID);
    assert_non_null(strstr(err.text, "its blocks are Qwen3DecoderLayer"));
    import_free(&f.import);
    take_text(&f, SYNTAX_JSON,
              "{\"model_name_or_path\": \"Qwen/Qwen3-8B\", \"bf16\": true, \"fsdp\": true,\n"
              "\"fsdp_config\": {\"transformer_layer_cls_to_wrap\": [\"Qwen3DecoderLayer\"]}}");
    expect(&f, "units torchtitan");
    import_free(&f.import);
    take_text(&f, SYNTAX_YAML,
              "fsdp_version: 2\ntrust_remote_code: true\nfsdp_config:\n"
              "  transformer_layer_cls_to_wrap: TheirDecoderLayer\nbase_model: Qwen/Qwen3-8B\n"
              "micro_batch_size: 1\ngradient_accumulation_steps: 1\n");
    expect_note(&f, NOTE_UNPLANNED, "fsdp_config.transformer_layer_cls_to_wrap", 4,
                "units of TheirDecoderLayer");
    import_free(&f.import);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_blocks_class_is_what_is_planned),
        cmocka_unit_test(embeddings_are_units_of_fsdp1),
        cmocka_unit_test(other_classes_stand_beside_the_verdict),
        cmocka_unit_test(classes_that_the_model_lacks_are_refused),
        cmocka_unit_test(a_trainers_file_says_the_model_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

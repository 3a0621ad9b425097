/* test_import_trl.c - TRL's files: how a model is loaded, and what changes nothing. */
#include "tests/frameworks/import_fixture.h"

/* TRL's dtype is what is trained where nothing casts it; by its older name, too. */
static void a_model_is_trained_as_it_is_loaded(void **state)
{
    static const char *const cases[][2] = {
        {"torch_dtype: bfloat16\nmax_seq_length: 512\n", "store-dtype bf16, seq 512"},
        {"dtype: bfloat16\nmax_length: 256\n", "store-dtype bf16, seq 256"},
        {"dtype: float32\n", "store-dtype fp32"},
        {"torch_dtype: null\n", "store-dtype fp32"},
        {"dtype: bfloat16\nfsdp: full_shard\n", "strategy fsdp2, store-dtype fp32"},
        {"use_peft: true\nmax_seq_length: 512\n", "store-dtype fp32, seq 512"},
    };
    (void)state;
    struct fixture f;
    for (size_t i = 0; i < COUNT(cases); i++) {
        char text[256];
        snprintf(text, sizeof text, "model_name_or_path: Qwen/Qwen3-8B\nbf16: true\n%s",
                 cases[i][0]);
        take_text(&f, SYNTAX_YAML, text);
        expect(&f, cases[i][1]);
        import_free(&f.import);
    }
    take_text(&f, SYNTAX_YAML, "base_model: Qwen/Qwen3-8B\nbf16: true\ntorch_dtype: bfloat16\n");
    expect(&f, "store-dtype bf16"); /* axolotl's goes by bf16 */
    import_free(&f.import);
    take_text(&f, SYNTAX_YAML,
              "model_name_or_path: Qwen/Qwen3-8B\ndtype: bfloat16\nfsdp: full_shard\n");
    expect(&f, "store-dtype bf16");
    import_free(&f.import);
}

/* A table of which no key has an effect, and one of which a key has. */
static void what_trains_alike_is_not_unknown(void **state)
{
    (void)state;
    struct fixture f;
    take_text(&f, SYNTAX_YAML,
              "model_name_or_path: Qwen/Qwen3-8B\ngradient_checkpointing: true\n"
              "gradient_checkpointing_kwargs:\n  use_reentrant: true\n"
              "dataset_mixture:\n  datasets:\n    - id: a/b\n  seed: 0\n");
    expect_note(&f, NOTE_UNPLANNED, "gradient_checkpointing_kwargs.use_reentrant", 4,
                "compute all of a block again");
    assert_non_null(find_note(&f, NOTE_IDLE, "dataset_mixture.datasets"));
    assert_null(f.settings.misspelt);
    import_free(&f.import);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_is_trained_as_it_is_loaded),
        cmocka_unit_test(what_trains_alike_is_not_unknown),
    };
    return cmocka_run_group_tests_name("import_trl", tests, NULL, NULL);
}

/* test_import_trl.c - TRL's files: how a model is loaded, and what changes nothing. */
#include "tests/frameworks/import_fixture.h"

#define AXOLOTL "base_model: Qwen/Qwen3-8B\ngradient_checkpointing: true\n"
#define ADAPTERS "adapter: lora\nlora_r: 8\nlora_target_linear: true\n"

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
    take_text(
        &f, SYNTAX_YAML,
        "model_name_or_path: Qwen/Qwen3-8B\ndtype: bfloat16\nbf16: false\nfsdp: full_shard\n");
    expect(&f, "store-dtype bf16");
    import_free(&f.import);
}

/* Who has reentrant checkpoints where nothing says so: LLaMA-Factory (model_args.py), but under
 * FSDP2. accelerate's own wrappers never are. */
static void checkpoints_are_as_reentrant_as_the_trainer_has_them(void **state)
{
    static const char *const cases[][2] = {
        {"gradient_checkpointing: true\n", "off"},
        {"gradient_checkpointing: true\ngradient_checkpointing_kwargs:\n  use_reentrant: true\n",
         "on"},
        {"gradient_checkpointing: true\ngradient_checkpointing_kwargs:\n  use_reentrant: false\n",
         "off"},
        {"gradient_checkpointing_kwargs:\n  use_reentrant: true\n", "off"},
        {"use_peft: true\n", "off"},
        {"use_peft: true\ngradient_checkpointing_kwargs:\n  use_reentrant: true\n", "on"},
        {"stage: sft\n", "on"},
        {"stage: sft\nuse_reentrant_gc: false\n", "off"},
        {"stage: sft\nuse_reentrant_gc: true\nfsdp: full_shard\n", "off"},
        {"stage: sft\nuse_reentrant_gc: true\nfsdp: full_shard\nfsdp_config:\n  version: 1\n",
         "on"},
        {"stage: sft\ndisable_gradient_checkpointing: true\n", "off"},
        {"fsdp: full_shard\nfsdp_config:\n  activation_checkpointing: true\n"
         "gradient_checkpointing_kwargs:\n  use_reentrant: true\n",
         "off"},
    };
    (void)state;
    struct fixture f;
    for (size_t i = 0; i < COUNT(cases); i++) {
        char text[256], wanted[64];
        snprintf(text, sizeof text, "model_name_or_path: Qwen/Qwen3-8B\n%s", cases[i][0]);
        snprintf(wanted, sizeof wanted, "checkpoint-reentrant %s", cases[i][1]);
        take_text(&f, SYNTAX_YAML, text);
        expect(&f, wanted);
        import_free(&f.import);
    }
    take_text(&f, SYNTAX_YAML,
              "base_model: Qwen/Qwen3-8B\ngradient_checkpointing: true\n"
              "gradient_checkpointing_kwargs:\n  use_reentrant: true\n");
    expect(&f, "checkpoint-reentrant on");
    import_free(&f.import);
}

/* TRL's trainers have it beside what else a file says; axolotl in the place of checkpoints, or
 * around its own. */
static void what_nodes_save_waits_on_the_host(void **state)
{
    static const char *const cases[][3] = {
        {"model_name_or_path: a\nactivation_offloading: true\ngradient_checkpointing: false\n",
         "on", "none"},
        {"model_name_or_path: a\nactivation_offloading: true\ngradient_checkpointing: true\n", "on",
         "full"},
        {"model_name_or_path: a\nactivation_offloading: false\n", "off", "full"},
        {AXOLOTL "activation_offloading: true\n", "on", "full"},
        {AXOLOTL "activation_offloading: legacy\n", "legacy", "full"},
        {AXOLOTL "activation_offloading: disk\n", "off", "full"},
        {AXOLOTL "activation_offloading: true\n" ADAPTERS, "weights", "none"},
        {AXOLOTL "activation_offloading: legacy\n" ADAPTERS, "legacy-weights", "none"},
        {"base_model: Qwen/Qwen3-8B\ngradient_checkpointing: offload\n", "on", "full"},
        {"base_model: Qwen/Qwen3-8B\ngradient_checkpointing: offload\n" ADAPTERS, "weights",
         "none"},
    };
    (void)state;
    struct fixture f;
    for (size_t i = 0; i < COUNT(cases); i++) {
        char text[256], wanted[64];
        snprintf(text, sizeof text, "%s", cases[i][0]);
        take_text(&f, SYNTAX_YAML, text);
        snprintf(wanted, sizeof wanted, "activation-offloading %s", cases[i][1]);
        expect(&f, wanted);
        snprintf(wanted, sizeof wanted, "checkpointing %s", cases[i][2]);
        expect(&f, wanted);
        import_free(&f.import);
    }
    take_text(&f, SYNTAX_YAML, AXOLOTL "activation_offloading: hidden_states\n");
    assert_non_null(find_note(&f, NOTE_UNPLANNED, "activation_offloading"));
    import_free(&f.import);
    take_text(&f, SYNTAX_YAML,
              AXOLOTL
              "activation_offloading: true\nfsdp: full_shard\nfsdp_config:\n  version: 1\n");
    assert_non_null(find_note(&f, NOTE_UNPLANNED, "activation_offloading"));
    expect(&f, "checkpointing full");
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
    expect(&f, "checkpoint-reentrant on");
    assert_non_null(find_note(&f, NOTE_IDLE, "dataset_mixture.datasets"));
    assert_null(f.settings.misspelt);
    import_free(&f.import);
}

/* TRL's trainers have no logits: Liger's losses are not called. What a family or a compiled model
 * has instead is said. */
static void trainers_have_a_head_of_their_own(void **state)
{
    static const char *const cases[][2] = {
        {"use_peft: true\n", "loss fused-lm-head"},
        {"use_peft: false\n", "loss fused-lm-head"},
        {"completion_only_loss: true\n", "loss fused-lm-head"},
        {"use_peft: true\nuse_liger_kernel: true\n", "loss fused-lm-head"},
        {"use_peft: false\ntorch_compile: true\ngradient_checkpointing: false\n",
         "loss eager, compile model"},
        {"use_peft: false\nfsdp: full_shard\n", "loss fused-lm-head"},
        {"use_peft: false\ndeepspeed: tests/data/frameworks/deepspeed_zero3.json\n",
         "strategy zero3, loss fused-lm-head"},
        {"use_peft: false\nlabel_smoothing_factor: 0.1\n", "loss eager"},
        {"stage: sft\n", "loss eager"},
        {"bf16: true\n", "loss eager"},
    };
    (void)state;
    struct fixture f;
    for (size_t i = 0; i < COUNT(cases); i++) {
        char text[256];
        snprintf(text, sizeof text, "model_name_or_path: Qwen/Qwen3-8B\n%s", cases[i][0]);
        take_text(&f, SYNTAX_YAML, text);
        expect(&f, cases[i][1]);
        import_free(&f.import);
    }
    take_text(&f, SYNTAX_YAML, "base_model: Qwen/Qwen3-8B\nuse_peft: true\n");
    expect(&f, "loss eager"); /* axolotl's */
    import_free(&f.import);
    take_text(&f, SYNTAX_YAML, "model_name_or_path: google-t5/t5-small\nuse_peft: false\n");
    expect(&f, "loss eager");
    import_free(&f.import);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_is_trained_as_it_is_loaded),
        cmocka_unit_test(checkpoints_are_as_reentrant_as_the_trainer_has_them),
        cmocka_unit_test(what_nodes_save_waits_on_the_host),
        cmocka_unit_test(what_trains_alike_is_not_unknown),
        cmocka_unit_test(trainers_have_a_head_of_their_own),
    };
    return cmocka_run_group_tests_name("import_trl", tests, NULL, NULL);
}

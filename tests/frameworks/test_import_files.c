/* test_import_files.c - several files of one job: what starts it and what it starts; and whose file
 * one is by its keys.
 *
 * What holds of two is what transformers 5.23 and accelerate 1.15 do with both (training_args.py,
 * trainer.py), read in the sources. */
#include "tests/frameworks/import_fixture.h"
#include "tests/support/folder.h"

#include <stdlib.h>

#define ACCELERATE                                                                                 \
    "distributed_type: FSDP\nmixed_precision: bf16\nnum_machines: 2\nnum_processes: 16\n"          \
    "fsdp_config:\n  fsdp_version: 2\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"           \
    "  fsdp_reshard_after_forward: false\n"
#define TRL                                                                                        \
    "model_name_or_path: Qwen/Qwen2.5-7B\ndataset_name: a\nmax_length: 4096\npacking: true\n"      \
    "per_device_train_batch_size: 2\ngradient_accumulation_steps: 4\n"

static char *folder;

static int make_folder(void **state)
{
    (void)state;
    folder = folder_new("import");
    return 0;
}

static int drop_folder(void **state)
{
    (void)state;
    folder_remove(folder);
    free(folder);
    return 0;
}

/* Two files in that order, or in the other where `swapped`: documents lend their paths. */
static enum err_code take_two(struct fixture *f, const char *first, const char *second,
                              bool swapped, struct err *err)
{
    static char names[2][512];
    const char *const texts[] = {first, second};
    for (int i = 0; i < 2; i++) {
        snprintf(names[i], sizeof names[i], "%s",
                 file_in(folder, texts[i][0] == '{' ? "first.json"
                                 : i                ? "second.yaml"
                                                    : "first.yaml"));
        FILE *file = fopen(names[i], "w");
        assert_non_null(file);
        fputs(texts[i], file);
        assert_int_equal(fclose(file), 0);
    }
    const char *const paths[] = {names[swapped], names[!swapped]};
    settings_defaults(&f->settings, COMMAND_PLAN);
    return import_files(&f->import, &f->settings, paths, 2, NULL, 0, err);
}

static void the_launchers_file_says_what_the_other_leaves_open(void **state)
{
    static const struct {
        const char *launcher, *trainer, *holds;
    } cases[] = {
        {ACCELERATE, TRL,
         "strategy fsdp2, gpus 16, gpus-per-node 8, reshard never, units torchtitan, "
         "param-dtype bf16, reduce-dtype bf16, store-dtype fp32, micro-batch 2, accumulate 4, "
         "seq 4096, checkpointing full, clip 1, loss fused-lm-head, model qwen2.5-7b"},
        {ACCELERATE "  fsdp_activation_checkpointing: true\n",
         TRL "gradient_checkpointing: false\n",
         "strategy fsdp2, checkpointing full, checkpoint-reentrant off"},
        {ACCELERATE, TRL "bf16: false\n", "param-dtype bf16, reduce-dtype bf16, store-dtype fp32"},
        {"distributed_type: FSDP\nmixed_precision: 'no'\nnum_processes: 8\nfsdp_config:\n"
         "  fsdp_version: 2\n",
         TRL, "param-dtype bf16, reduce-dtype bf16, store-dtype fp32, gpus 8"},
        {"distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 8\nfsdp_config:\n"
         "  fsdp_version: 1\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n",
         TRL "use_peft: true\ndtype: bfloat16\n", "strategy fsdp1, units peft, lora 16"},
        {"distributed_type: MULTI_GPU\nnum_processes: 4\n", TRL,
         "strategy ddp, gpus 4, autocast bf16, outputs fp32"},
        {"distributed_type: MULTI_GPU\nmixed_precision: fp16\nnum_processes: 4\n",
         TRL "fsdp: full_shard\n", "strategy fsdp2, gpus 4, param-dtype bf16, units torchtitan"},
        {"distributed_type: DEEPSPEED\nmixed_precision: bf16\nnum_processes: 8\ndeepspeed_config:\n"
         "  zero_stage: 3\n  gradient_accumulation_steps: auto\n",
         TRL "max_grad_norm: 0.5\n",
         "strategy zero3, gpus 8, param-dtype bf16, accumulate 4, clip 0.5"},
        {"{\"zero_optimization\": {\"stage\": 2}, \"bf16\": {\"enabled\": \"auto\"},"
         " \"gradient_accumulation_steps\": \"auto\"}",
         TRL, "strategy zero2, param-dtype bf16, accumulate 4"},
        {"distributed_type: FSDP\nnum_processes: 8\nfsdp_config:\n  fsdp_version: 2\n",
         "base_model: Qwen/Qwen3-8B\nmicro_batch_size: 3\n",
         "strategy fsdp2, gpus 8, micro-batch 3, param-dtype bf16, seq 512"},
    };
    (void)state;
    for (size_t i = 0; i < 2 * COUNT(cases); i++) {
        struct fixture f;
        struct err err = {0};
        if (take_two(&f, cases[i / 2].launcher, cases[i / 2].trainer, i % 2, &err) != ERR_OK)
            fail_msg("%s\n%s: %s", cases[i / 2].launcher, cases[i / 2].trainer, err.text);
        expect(&f, cases[i / 2].holds);
        assert_false(leaves_open(&f, "--gpus") && strstr(cases[i / 2].launcher, "num_processes"));
        import_free(&f.import);
    }
}

/* The file that is named, beside whoever names it, by another path to it. */
static void one_file_has_many_paths(void **state)
{
    static const char *const names[] = {"first.json", "./first.json"};
    (void)state;
    for (size_t i = 0; i < COUNT(names); i++) {
        struct fixture f;
        struct err err = {0};
        char text[512];
        snprintf(text, sizeof text, TRL "deepspeed: %s\n", names[i]);
        if (take_two(&f, "{\"zero_optimization\": {\"stage\": 2}, \"bf16\": {\"enabled\": true}}",
                     text, false, &err) != ERR_OK)
            fail_msg("%s: %s", names[i], err.text);
        expect(&f, "strategy zero2");
        import_free(&f.import);
    }
}

/* TrainingArguments.__post_init__: bf16 and fp16 hold over ACCELERATE_MIXED_PRECISION; and what
 * does not hold is not said to be missing from the plan. */
static void the_trainers_precision_holds(void **state)
{
    static const char *const launchers[] = {
        "distributed_type: MULTI_GPU\nmixed_precision: fp16\nnum_processes: 8\n",
        "distributed_type: FSDP\nmixed_precision: fp16\nnum_processes: 8\nfsdp_config:\n"
        "  fsdp_version: 1\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"};
    (void)state;
    for (size_t i = 0; i < COUNT(launchers); i++) {
        struct fixture f;
        struct err err = {0};
        assert_int_equal(take_two(&f, launchers[i], TRL "bf16: true\n", i == 1, &err), ERR_OK);
        struct fixture launcher = {.import = *f.import.before};
        expect(&f, "autocast bf16");
        expect_note(&launcher, NOTE_OVERRIDDEN, "mixed_precision", 2, "says");
        assert_null(find_note(&launcher, NOTE_UNPLANNED, "mixed_precision"));
        assert_true(!f.settings.unplanned || !strstr(f.settings.unplanned, "mixed_precision"));
        import_free(&f.import);
    }
}

static void what_both_say_is_said(void **state)
{
    (void)state;
    struct fixture f;
    struct err err = {0};
    assert_int_equal(take_two(&f,
                              "distributed_type: FSDP\nmixed_precision: 'no'\nfsdp_config:\n"
                              "  fsdp_version: 2\n",
                              TRL, false, &err),
                     ERR_OK);
    struct fixture launcher = {.import = *f.import.before};
    expect_note(&launcher, NOTE_OVERRIDDEN, "mixed_precision", 2, "says --param-dtype bf16");
    json_t *json = import_json(&f.import);
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(json, "before"), "framework")),
        "accelerate");
    json_decref(json);
    import_free(&f.import);
    /* Trainer.create_accelerator_and_postprocess */
    assert_int_equal(
        take_two(&f, ACCELERATE "  fsdp_activation_checkpointing: true\n", TRL, false, &err),
        ERR_OK);
    expect_note(&f, NOTE_UNPLANNED, "gradient_checkpointing", 0, "transformers fails");
    import_free(&f.import);
}

static void what_is_of_no_one_job_is_refused(void **state)
{
    static const struct {
        const char *first, *second, *says;
    } cases[] = {
        {TRL, TRL, "a configuration of TRL, as another one is"},
        {ACCELERATE, "distributed_type: MULTI_GPU\n", "accelerate, as another one is"},
        {ACCELERATE, "colour: red\n", "no configuration that is known"},
        {"distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 1\n", TRL "fsdp: full_shard\n",
         "first.yaml:1 says another system, fsdp1"},
        {"distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 3\n"
         "  gradient_accumulation_steps: 2\n",
         TRL, "first.yaml:4 says 2; transformers refuses what differs"},
        {"{\"zero_optimization\": {\"stage\": 2}}", TRL "deepspeed: other.json\n",
         "names another file than --from"},
        {"{\"zero_optimization\": {\"stage\": 2}}", TRL "deepspeed: second.yaml\n",
         "names another file than --from"},
        /* which accelerate reads no DeepSpeed file beside */
        {"{\"zero_optimization\": {\"stage\": 3}}", ACCELERATE,
         "second.yaml:1: distributed_type says FSDP"},
        {"{\"zero_optimization\": {\"stage\": 3}}", "distributed_type: MULTI_GPU\n",
         "second.yaml:1: distributed_type says MULTI_GPU"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct fixture f;
        struct err err = {0};
        if (take_two(&f, cases[i].first, cases[i].second, false, &err) != ERR_INVALID ||
            !strstr(err.text, cases[i].says))
            fail_msg("%s\n%s: %s", cases[i].first, cases[i].second, err.text);
        import_free(&f.import);
    }
}

/* Keys of TRL's or LLaMA-Factory's dataclasses alone, whatever else is there. */
static void a_key_of_its_own_says_whose_a_file_is(void **state)
{
    static const char *const trls[] = {
        "dataset_name: a", "dataset_config: a", "dtype: bfloat16",           "max_length: 512",
        "packing: false",  "use_peft: false",   "attn_implementation: sdpa", "beta: 0.1"};
    static const char *const factorys[] = {"flash_attn: auto", "dataset: a", "template: a",
                                           "enable_liger_kernel: false", "neat_packing: false"};
    static const char start[] = "model_name_or_path: Qwen/Qwen3-8B\nbf16: true\n";
    (void)state;
    struct fixture f;
    char text[256];
    for (size_t i = 0; i < COUNT(trls) + COUNT(factorys); i++) {
        const bool trl = i < COUNT(trls);
        snprintf(text, sizeof text, "%s%s\n", start, trl ? trls[i] : factorys[i - COUNT(trls)]);
        take_text(&f, SYNTAX_YAML, text);
        assert_string_equal(f.import.about,
                            trl ? "a configuration of TRL" : "a configuration of LLaMA-Factory");
        expect(&f, "checkpointing full");
        assert_null(find_note(&f, NOTE_UNSAID, "model_name_or_path"));
        import_free(&f.import);
    }
    take_text(&f, SYNTAX_YAML, start);
    assert_string_equal(f.import.about, "TrainingArguments of transformers");
    expect(&f, "checkpointing none, loss eager");
    expect_note(&f, NOTE_UNSAID, "model_name_or_path", 0, "whose file it is");
    import_free(&f.import);
}

/* axolotl's utils/schemas, LLaMA-Factory's hparams. */
static void what_a_trainers_file_leaves_out_is_its_default(void **state)
{
    static const char *const cases[][2] = {
        {"base_model: Qwen/Qwen3-8B\n",
         "micro-batch 1, accumulate 1, seq 512, autocast bf16, store-dtype bf16, "
         "checkpointing none, optimizer-impl fused, clip 1"},
        {"base_model: Qwen/Qwen3-8B\nfp16: true\n", "autocast none"},
        {"base_model: Qwen/Qwen3-8B\nbf16: auto\nfp16: true\n", "autocast none"},
        {"base_model: Qwen/Qwen3-8B\nbf16: auto\nfp16:\n", "autocast bf16"},
        {"base_model: Qwen/Qwen3-8B\nbf16:\n", "autocast none"},
        {"base_model: Qwen/Qwen3-8B\nsequence_len: 1024\nmicro_batch_size: 2\n",
         "micro-batch 2, seq 1024"},
        {"model_name_or_path: Qwen/Qwen3-8B\nstage: sft\n",
         "micro-batch 8, accumulate 1, seq 2048, checkpointing full"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct fixture f;
        take_text(&f, SYNTAX_YAML, cases[i][0]);
        expect(&f, cases[i][1]);
        import_free(&f.import);
    }
    struct fixture f;
    take_text(&f, SYNTAX_YAML, "base_model: Qwen/Qwen3-8B\ngradient_accumulation_steps: 2\n");
    expect_note(&f, NOTE_UNSAID, "batch_size", 0, "axolotl asks for two of");
    import_free(&f.import);
}

/* What has an effect is not listed as having none. */
static void keys_with_an_effect_are_not_idle(void **state)
{
    static const struct {
        const char *text, *key;
        enum note_kind kind;
    } cases[] = {
        {"stage: sft\nenable_liger_kernel: true\n", "enable_liger_kernel", NOTE_TAKEN},
        {"stage: sft\nenable_liger_kernel: false\n", "enable_liger_kernel", NOTE_IDLE},
        {"stage: sft\nneat_packing: true\n", "neat_packing", NOTE_UNPLANNED},
        {"stage: sft\npacking: true\n", "packing", NOTE_IDLE},
        {"dataset_name: a\npacking: true\n", "packing", NOTE_UNPLANNED},
        {"beta: 0.1\nloss_type: [ipo]\n", "loss_type", NOTE_UNPLANNED},
        {"beta: 0.1\nloss_type: [sigmoid, sft]\n", "loss_type", NOTE_UNPLANNED},
        {"beta: 0.1\nloss_type: [sigmoid]\n", "loss_type", NOTE_IDLE},
        {"dataset_name: a\nloss_type: dft\n", "loss_type", NOTE_UNPLANNED},
        {"dataset_name: a\nper_device_batch_size: 4\n", "per_device_batch_size", NOTE_MISSPELT},
        {"dataset_name: a\ngradient_accumulation: 4\n", "gradient_accumulation", NOTE_MISSPELT},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct fixture f;
        char text[256];
        snprintf(text, sizeof text, "model_name_or_path: Qwen/Qwen3-8B\n%s", cases[i].text);
        take_text(&f, SYNTAX_YAML, text);
        if (!find_note(&f, cases[i].kind, cases[i].key))
            fail_msg("%s", cases[i].text);
        if (cases[i].kind != NOTE_IDLE)
            assert_null(find_note(&f, NOTE_IDLE, cases[i].key));
        import_free(&f.import);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_launchers_file_says_what_the_other_leaves_open),
        cmocka_unit_test(one_file_has_many_paths),
        cmocka_unit_test(the_trainers_precision_holds),
        cmocka_unit_test(what_both_say_is_said),
        cmocka_unit_test(what_is_of_no_one_job_is_refused),
        cmocka_unit_test(a_key_of_its_own_says_whose_a_file_is),
        cmocka_unit_test(what_a_trainers_file_leaves_out_is_its_default),
        cmocka_unit_test(keys_with_an_effect_are_not_idle),
    };
    return cmocka_run_group_tests_name("several files of one job", tests, make_folder, drop_folder);
}

/* test_import_objectives.c - what a trainer learns from, of which batches, as settings. */
#include "tests/frameworks/import_fixture.h"

/* A batch of pairs is one of twice as many sequences, whichever key says so, and once;
 * an option says sequences. */
static void pairs_are_two_sequences_at_once(void **state)
{
    static const struct {
        const char *text, *key, *settings, *why; /* NULL: nothing is said of a reference */
    } cases[] = {
        {"stage: dpo\nfinetuning_type: full", "stage", "micro-batch 6", "second model's weights"},
        {"stage: dpo", "stage", "micro-batch 6", "less its adapters"},
        {"stage: dpo\npref_loss: orpo", "stage", "micro-batch 6", NULL},
        {"stage: rm", "stage", "micro-batch 6", NULL},
        {"rl: dpo\nbeta: 0.1", "rl", "micro-batch 6", "second model's weights"},
        {"rl: ipo", "rl", "micro-batch 6", "second model's weights"},
        {"rl: orpo", "rl", "micro-batch 6", NULL},
        {"rl: simpo", "rl", "micro-batch 6", NULL},
        {"reward_model: true", "reward_model", "micro-batch 6", NULL},
        {"beta: 0.1", "beta", "loss dpo, micro-batch 6", "every token that is no padding counts"},
        {"beta: 0.1\nlabel_smoothing_factor: 0.1", "beta", "micro-batch 6",
         "second model's weights"},
        {"beta: 0.1\nprecompute_ref_log_probs: true", "beta",
         "loss dpo, precompute-ref-log-probs on, micro-batch 6", NULL},
        {"beta: 0.1\nloss_type: simpo", "beta", "micro-batch 6", NULL},
        {"beta: 0.1\nuse_peft: true", "beta", "loss dpo, micro-batch 6",
         "every token that is no padding counts"},
        {"beta: 0.1\nuse_peft: true\nloss_type: hinge", "beta", "loss dpo, micro-batch 6",
         "with DPO's loss of TRL 1.16"},
        {"beta: 0.1\nuse_peft: true\nlabel_smoothing_factor: 0.1", "beta", "micro-batch 6",
         "less its adapters"},
        {"center_rewards_coefficient: 0.0", "center_rewards_coefficient",
         "loss reward, micro-batch 6", "of a model with one label"},
        {"center_rewards_coefficient: 0.01", "center_rewards_coefficient",
         "loss reward, micro-batch 6", "the term that centers rewards is not there"},
        {"center_rewards_coefficient: 0.01\nload_in_8bit: true", "center_rewards_coefficient",
         "micro-batch 6", NULL},
        {"beta: 0.1\ndesirable_weight: 1.0", "beta", "micro-batch 3", "another objective"},
    };
    static const struct setting_given option = {"micro-batch", "5"};
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct fixture f;
        struct err err = {0};
        char text[256];
        snprintf(text, sizeof text,
                 "model_name_or_path: Qwen/Qwen3-8B\nper_device_train_batch_size: 3\n%s\n",
                 cases[i].text);
        take_text(&f, SYNTAX_YAML, text);
        expect(&f, cases[i].settings);
        expect_note(&f, NOTE_UNPLANNED, cases[i].key, 3, cases[i].why ? cases[i].why : "both");
        const bool pairs = strstr(cases[i].settings, "micro-batch 6") != NULL;
        if (pairs)
            expect_note(&f, NOTE_UNPLANNED, cases[i].key, 3, "6 at once");
        if (pairs && !cases[i].why)
            assert_null(strstr(find_note(&f, NOTE_UNPLANNED, cases[i].key)->text, "reference"));
        import_free(&f.import);
        assert_int_equal(take_with(&f, "x", SYNTAX_YAML, text, &option, 1, &err), ERR_OK);
        if (pairs) /* the option is the settings' own already */
            expect_note(&f, NOTE_UNPLANNED, cases[i].key, 3, ", 5 at once");
        import_free(&f.import);
    }
}

/* ... by its `dtype`, where that is what it computes in. */
static void a_second_model_stays_as_it_is_loaded(void **state)
{
    static const char text[] = "model_name_or_path: Qwen/Qwen3-8B\nper_device_train_batch_size: 3\n"
                               "beta: 0.1\nbf16: true\ndtype: bfloat16\n";
    static const struct setting_given fsdp1 = {"strategy", "fsdp1"};
    struct fixture f;
    struct err err = {0};
    (void)state;
    assert_int_equal(take_with(&f, "x", SYNTAX_YAML, text, &fsdp1, 1, &err), ERR_OK);
    expect(&f, "loss dpo, store-dtype fp32, frozen-dtype param");
    import_free(&f.import);
}

#define TRL "model_name_or_path: Qwen/Qwen3-8B\nper_device_train_batch_size: 1\n"

/* Batches of several sequences that are not packed have a mask, as a pair has. */
static void what_collators_pad_is_planned(void **state)
{
    static const struct {
        const char *text;
        uint32_t tokens;
    } cases[] = {
        {"base_model: Qwen/Qwen3-8B\nmicro_batch_size: 2\n", 1},
        {"base_model: Qwen/Qwen3-8B\nmicro_batch_size: 2\nsample_packing: true\n", 0},
        {"base_model: Qwen/Qwen3-8B\nmicro_batch_size: 1\n", 0},
        {"base_model: Qwen/Qwen3-8B\nmicro_batch_size: 1\npad_to_sequence_len: true\n", 1},
        {"base_model: Qwen/Qwen3-8B\nmicro_batch_size: 1\nrl: dpo\n", 1},
        {"base_model: Qwen/Qwen3-8B\nmicro_batch_size: 2\nreward_model: true\n", 1},
        {"base_model: Qwen/Qwen3-8B\nmicro_batch_size: 2\nrl: kto\n", 0},
        {TRL "beta: 0.1\n", 1},
        {TRL "beta: 0.1\npadding_free: true\n", 1},
        {TRL "beta: 0.1\ntorch_compile: true\n", 0},
        {TRL "beta: 0.1\nnum_generations: 8\n", 0},
        {TRL "center_rewards_coefficient: 0.0\n", 1},
        {"model_name_or_path: Qwen/Qwen3-8B\nstage: dpo\nfinetuning_type: full\n"
         "dataset: x\ntemplate: qwen\nper_device_train_batch_size: 1\n",
         1},
        {"model_name_or_path: Qwen/Qwen3-8B\nstage: sft\nfinetuning_type: full\n"
         "dataset: x\ntemplate: qwen\nper_device_train_batch_size: 4\n",
         1},
        {"model_name_or_path: Qwen/Qwen3-8B\nstage: pt\nfinetuning_type: full\n"
         "dataset: x\ntemplate: qwen\nper_device_train_batch_size: 4\n",
         0},
        {"model_name_or_path: Qwen/Qwen3-8B\ndataset_text_field: text\n"
         "per_device_train_batch_size: 4\n",
         1},
        {"model_name_or_path: Qwen/Qwen3-8B\ndataset_text_field: text\npacking: true\n"
         "per_device_train_batch_size: 4\n",
         0},
        {"model_name_or_path: Qwen/Qwen3-8B\nper_device_train_batch_size: 4\n", 0},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct fixture f;
        take_text(&f, SYNTAX_YAML, cases[i].text);
        if (f.settings.job.model.padding_tokens != cases[i].tokens)
            fail_msg("%s: %u", cases[i].text, f.settings.job.model.padding_tokens);
        import_free(&f.import);
    }
}

/* Keys that change a step, each with why it is not planned, or what it is without effect. */
static void other_trainers_steps_are_listed(void **state)
{
    static const struct {
        const char *text, *key, *why; /* NULL: it changes nothing */
    } cases[] = {
        {"stage: sft", "stage", NULL},
        {"stage: pt", "stage", NULL},
        {"stage: ppo", "stage", "another objective"},
        {"rl: kto", "rl", "another objective"},
        {"rl: grpo", "rl", "another objective"},
        {"reward_model: false", "reward_model", NULL},
        {"flash_attention: false", "flash_attention", NULL},
        {"flash_attn: sdpa", "flash_attn", NULL},
        {"flash_attn: fa3", "flash_attn", "--attention"},
        {"gemma4_hybrid_attn_impl: true", "gemma4_hybrid_attn_impl", "where layers have a window"},
        {"sample_packing: true", "sample_packing", "each of the samples"},
        {"packing: false", "packing", NULL},
        {"use_unsloth: true", "use_unsloth", "Unsloth"},
        {"pure_bf16: true", "pure_bf16", "--store-dtype bf16"},
        {"pure_bf16: false", "pure_bf16", NULL},
        {"use_galore: true", "use_galore", "planned as AdamW's"},
        {"use_badam: true", "use_badam", "a block at a time"},
        {"shift_attn: true", "shift_attn", "planned as the model's own"},
        {"mixture_of_depths: convert", "mixture_of_depths", "through all"},
        {"model_type: LlamaForCausalLM", "model_type", NULL},
        {"model_type: AutoModelForSequenceClassification", "model_type", "another class"},
        {"strict: false", "strict", NULL},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct fixture f;
        char text[256];
        snprintf(text, sizeof text, "model_name_or_path: Qwen/Qwen3-8B\nbf16: true\n%s\n",
                 cases[i].text);
        take_text(&f, SYNTAX_YAML, text);
        expect_note(&f, cases[i].why ? NOTE_UNPLANNED : NOTE_IDLE, cases[i].key, 3, cases[i].why);
        assert_null(find_note(&f, NOTE_UNKNOWN, cases[i].key));
        import_free(&f.import);
    }
    struct fixture f;
    take_text(&f, SYNTAX_YAML, "base_model: Qwen/Qwen3-8B\neager_attention: true\nrl:\n");
    expect(&f, "attention eager");
    assert_null(find_note(&f, NOTE_UNPLANNED, "rl"));
    import_free(&f.import);
    take_text(&f, SYNTAX_YAML, "base_model: Qwen/Qwen3-8B\nflash_attention: true\n");
    expect(&f, "attention flash-attn");
    import_free(&f.import);
    take_text(&f, SYNTAX_YAML, "model_name_or_path: Qwen/Qwen3-8B\nflash_attn: fa2\n");
    expect(&f, "attention flash-attn");
    import_free(&f.import);
    take_text(&f, SYNTAX_YAML, "model_name_or_path: Qwen/Qwen3-8B\nflash_attn: disabled\n");
    expect(&f, "attention eager");
    import_free(&f.import);
}

/* What a note ends with is no advice to who has given it, and is to who gave something else. */
static void advice_that_was_taken_is_not_given(void **state)
{
    static const struct {
        const char *text, *key;
        struct setting_given option;
        const char *said; /* NULL: the note stays */
    } cases[] = {
        {"pure_bf16: true", "pure_bf16", {"store-dtype", "bf16"}, "--store-dtype bf16"},
        {"pure_bf16: true", "pure_bf16", {"store-dtype", "bfloat16"}, "--store-dtype bfloat16"},
        {"pure_bf16: true", "pure_bf16", {"store-dtype", "fp16"}, NULL},
        {"pure_bf16: true", "pure_bf16", {"seq", "512"}, NULL},
        {"assistant_only_loss: true",
         "assistant_only_loss",
         {"prompt-tokens", "9"},
         "--prompt-tokens 9"},
        {"selective_checkpointing: true",
         "selective_checkpointing",
         {"checkpointing", "selective"},
         "--checkpointing selective"},
        {"selective_checkpointing: true",
         "selective_checkpointing",
         {"checkpointing", "full"},
         NULL},
        {"unfrozen_parameters: [a]", "unfrozen_parameters", {"freeze", "*b"}, "--freeze *b"},
        {"sample_packing: true", "sample_packing", {"sample-tokens", "64"}, "--sample-tokens 64"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct fixture f;
        struct err err = {0};
        char text[256];
        snprintf(text, sizeof text, "model_name_or_path: Qwen/Qwen3-8B\nbf16: true\n%s\n",
                 cases[i].text);
        assert_int_equal(take_with(&f, "x", SYNTAX_YAML, text, &cases[i].option, 1, &err), ERR_OK);
        const enum note_kind kind = cases[i].said ? NOTE_OVERRIDDEN : NOTE_UNPLANNED;
        const enum note_kind other = cases[i].said ? NOTE_UNPLANNED : NOTE_OVERRIDDEN;
        expect_note(&f, kind, cases[i].key, 3, cases[i].said ? cases[i].said : "; --");
        assert_null(find_note(&f, other, cases[i].key));
        import_free(&f.import);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_are_two_sequences_at_once),
        cmocka_unit_test(a_second_model_stays_as_it_is_loaded),
        cmocka_unit_test(advice_that_was_taken_is_not_given),
        cmocka_unit_test(other_trainers_steps_are_listed),
        cmocka_unit_test(what_collators_pad_is_planned),
    };
    return cmocka_run_group_tests_name("import of objectives", tests, NULL, NULL);
}

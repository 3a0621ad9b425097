/* test_import_policies.c - TRL's files of policies (GRPOConfig) as settings. */
#include "tests/frameworks/import_fixture.h"

#define FILE_OF_GRPO                                                                               \
    "model_name_or_path: Qwen/Qwen3-8B\nper_device_train_batch_size: 4\nnum_generations: 8\n"

static void keys_are_settings(void **state)
{
    static const struct {
        const char *text, *settings;
    } cases[] = {
        {"", "loss grpo, prompt-tokens 512, seq 1024, padding-tokens 1, micro-batch 4, "
             "grpo-loss dapo, grpo-beta 0, grpo-vllm off, checkpointing full"},
        {"max_completion_length: 1536\n", "loss grpo, prompt-tokens 512, seq 2048"},
        {"max_completion_length: 1536\nmax_prompt_length: 64\n",
         "loss grpo, prompt-tokens 64, seq 1600"},
        {"loss_type: dr_grpo\n", "loss grpo, grpo-loss dr_grpo"},
        {"loss_type: sapo\n", "loss grpo, grpo-loss dapo"},
        {"beta: 0.04\n", "loss grpo, grpo-beta 0, padding-tokens 1"},
        {"beta: 0.04\nuse_peft: true\n", "loss grpo, grpo-beta 0.04, padding-tokens 1"},
        {"num_iterations: 2\nsteps_per_generation: 8\n",
         "loss grpo, grpo-iterations 2, grpo-steps-per-generation 8"},
        {"use_vllm: true\n", "loss grpo, grpo-vllm sequence, memory-of-others 0.3"},
        {"use_vllm: true\nvllm_mode: server\nvllm_importance_sampling_mode: token_truncate\n",
         "loss grpo, grpo-vllm token, memory-of-others 0"},
        {"use_vllm: true\nvllm_gpu_memory_utilization: 0.45\n"
         "vllm_importance_sampling_correction: false\n",
         "loss grpo, grpo-vllm off, memory-of-others 0.45"},
        {"use_vllm: true\nvllm_enable_sleep_mode: true\n", "loss grpo, memory-of-others 0"},
        {"normalize_advantages: true\n", "loss fused-lm-head, prompt-tokens 0"},
        {"max_completion_length: 1536.0\n", "prompt-tokens 512, seq 2048"},
        /* what vLLM holds, of RLOO as well */
        {"normalize_advantages: true\nuse_vllm: true\n",
         "loss fused-lm-head, memory-of-others 0.3"},
        {"reward_clip_range: [-1, 1]\nuse_vllm: true\nvllm_gpu_memory_utilization: 0.2\n",
         "loss fused-lm-head, memory-of-others 0.2"},
        {"normalize_advantages: true\nuse_vllm: true\nvllm_mode: server\n",
         "loss fused-lm-head, memory-of-others 0"},
        /* layers' kernels alone, beside TRL's head */
        {"use_liger_kernel: true\nliger_kernel_config:\n  rope: false\n  rms_norm: false\n",
         "loss grpo, liger glu"},
        {"use_liger_kernel: true\nliger_kernel_config:\n  rope: false\n  swiglu: false\n",
         "loss grpo, liger rms_norm"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct fixture f;
        char text[512];
        snprintf(text, sizeof text, FILE_OF_GRPO "%s", cases[i].text);
        take_text(&f, SYNTAX_YAML, text);
        expect(&f, cases[i].settings);
        import_free(&f.import);
    }
}

/* Each by its own name, not by that of the key which makes the file a policy's. */
static void keys_are_taken_by_their_names(void **state)
{
    static const struct {
        const char *text, *key, *setting;
    } cases[] = {
        {"loss_type: grpo", "loss_type", "--grpo-loss grpo"},
        {"num_iterations: 2", "num_iterations", "--grpo-iterations 2"},
        {"steps_per_generation: 8", "steps_per_generation", "--grpo-steps-per-generation 8"},
        {"use_vllm: true", "use_vllm", "--grpo-vllm sequence"},
        {"use_vllm: true\nnormalize_advantages: true", "use_vllm", "--memory-of-others 0.3"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct fixture f;
        char text[512];
        snprintf(text, sizeof text, FILE_OF_GRPO "%s\n", cases[i].text);
        take_text(&f, SYNTAX_YAML, text);
        expect_note(&f, NOTE_TAKEN, cases[i].key, 4, cases[i].setting);
        import_free(&f.import);
    }
}

/* No key of an RLOO file, and none that does nothing, is in no list. */
static void what_does_nothing_is_listed(void **state)
{
    static const char *const cases[][2] = {
        {"normalize_advantages: true", "normalize_advantages"},
        {"reward_clip_range: [-1, 1]", "reward_clip_range"},
        {"use_vllm: false", "use_vllm"},
        {"use_vllm: true\nnormalize_advantages: true\nvllm_mode: server", "use_vllm"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct fixture f;
        char text[512];
        snprintf(text, sizeof text, FILE_OF_GRPO "%s\n", cases[i][0]);
        take_text(&f, SYNTAX_YAML, text);
        expect_note(&f, NOTE_IDLE, cases[i][1], 4, NULL);
        assert_null(find_note(&f, NOTE_UNKNOWN, cases[i][1]));
        import_free(&f.import);
    }
}

static void bad_values_are_refused_by_key_and_line(void **state)
{
    static const char *const cases[][2] = {
        {"use_vllm: true\nvllm_gpu_memory_utilization: 1.0",
         "x:5: vllm_gpu_memory_utilization 1.0: "},
        {"steps_per_generation: 0.5", "x:4: steps_per_generation 0.5: "},
        {"num_iterations: 0", "x:4: num_iterations 0: "},
        {"max_completion_length: -5", "x:4: max_completion_length -5: allowed are integers from 1"},
        {"max_completion_length: 1e30", "x:4: max_completion_length 1e30: "},
        {"max_completion_length: 100000000000", "x:4: max_completion_length 100000000000: --seq"},
        {"max_completion_length: [5]", "x:4: max_completion_length: it is a list"},
        {"max_completion_length: long", "x:4: max_completion_length long: "},
        {"max_prompt_length: 0", "x:4: max_prompt_length 0: allowed are integers from 1"},
        {"loss_type: [grpo, x]", "x:4: loss_type: it is a list; of policies there is one loss"},
        {"use_liger_kernel: true\nliger_kernel_config: {fused_linear_cross_entropy: true}",
         "x:5: liger_kernel_config.fused_linear_cross_entropy true: TRL 1.16 refuses it"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct fixture f;
        struct err err = {0};
        char text[512];
        snprintf(text, sizeof text, FILE_OF_GRPO "%s\n", cases[i][0]);
        if (take_with(&f, "x", SYNTAX_YAML, text, NULL, 0, &err) != ERR_INVALID ||
            !strstr(err.text, cases[i][1]))
            fail_msg("%s: %s", cases[i][0], err.text);
        import_free(&f.import);
    }
}

/* What changes the step and is not planned, each with why. */
static void others_are_listed(void **state)
{
    static const struct {
        const char *text, *key, *why;
    } cases[] = {
        {"loss_type: vespo", "loss_type", "planned as dapo"},
        {"importance_sampling_level: sequence", "importance_sampling_level", "each sequence"},
        {"top_entropy_quantile: 0.2", "top_entropy_quantile", "little entropy"},
        {"entropy_coef: 0.01", "entropy_coef", "bonus of entropy"},
        {"delta: 4.0", "delta", "planned without"},
        {"off_policy_mask_threshold: 0.5", "off_policy_mask_threshold", "sequences left out"},
        {"beta: 0.1", "beta", "a second model"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct fixture f;
        char text[512];
        snprintf(text, sizeof text, FILE_OF_GRPO "%s\n", cases[i].text);
        take_text(&f, SYNTAX_YAML, text);
        expect_note(&f, NOTE_UNPLANNED, cases[i].key, 4, cases[i].why);
        expect_note(&f, NOTE_UNPLANNED, "num_generations", 3, "before it, are not planned");
        import_free(&f.import);
    }
}

/* --seq is prompt and completion. */
static void options_say_how_long_prompts_are(void **state)
{
    static const struct setting_given longer = {"seq", "3000"}, shorter = {"seq", "512"},
                                      loss = {"loss", "fused-lm-head"};
    struct fixture f;
    struct err err = {0};
    (void)state;
    assert_int_equal(take_with(&f, "x", SYNTAX_YAML, FILE_OF_GRPO, &longer, 1, &err), ERR_OK);
    expect(&f, "prompt-tokens 2488");
    import_free(&f.import);
    assert_int_equal(take_with(&f, "x", SYNTAX_YAML, FILE_OF_GRPO, &shorter, 1, &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "completions are of up to 512 tokens"));
    import_free(&f.import);
    assert_int_equal(take_with(&f, "x", SYNTAX_YAML, FILE_OF_GRPO, &loss, 1, &err), ERR_OK);
    expect(&f, "prompt-tokens 0");
    expect_note(&f, NOTE_UNPLANNED, "num_generations", 3, "planned as fine-tuning");
    import_free(&f.import);
    assert_int_equal(
        take_with(&f, "x", SYNTAX_YAML, FILE_OF_GRPO "use_vllm: true\n", &loss, 1, &err), ERR_OK);
    expect(&f, "memory-of-others 0.3");
    import_free(&f.import);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_are_settings),
        cmocka_unit_test(keys_are_taken_by_their_names),
        cmocka_unit_test(what_does_nothing_is_listed),
        cmocka_unit_test(bad_values_are_refused_by_key_and_line),
        cmocka_unit_test(others_are_listed),
        cmocka_unit_test(options_say_how_long_prompts_are),
    };
    return cmocka_run_group_tests_name("import_policies", tests, NULL, NULL);
}

/* test_import_trainers.c - TrainingArguments, DeepSpeed's files and those of trainers upon them as
 * settings: what each key becomes, what two files say together, what is listed and refused.
 *
 * Expected values are those of the frameworks' own sources, written down by hand. */
#include "tests/frameworks/import_fixture.h"

/* ---- transformers ---- */

static void training_arguments_give_their_job(void **state)
{
    (void)state;
    struct fixture f;
    take_file(&f, DATA "training_arguments.json");
    expect(&f, "strategy fsdp2, micro-batch 2, accumulate 4, clip 1, optimizer-impl foreach, "
               "param-dtype bf16, reduce-dtype bf16, checkpointing full, reshard default, "
               "units torchtitan, offload none");
    import_free(&f.import);

    take_file(&f, DATA "fsdp_config.json");
    expect(&f, "strategy fsdp2, reshard never, offload cpu, micro-batch 8, clip 1, "
               "optimizer-impl fused");
    import_free(&f.import);

    take_text(&f, SYNTAX_JSON, "{\"fsdp\": \"shard_grad_op auto_wrap offload\", \"bf16\": true}");
    expect(&f, "strategy fsdp2, reshard never, offload cpu, param-dtype bf16");
    import_free(&f.import);

    take_text(&f, SYNTAX_JSON, "{\"per_device_train_batch_size\": 4, \"bf16\": true}");
    expect(&f, "strategy ddp, micro-batch 4, autocast bf16, outputs fp32");
    import_free(&f.import);
}

/* ---- systems that may not be planned yet ---- */

/* With its system, if this version plans it; else the refusal that the table of settings gives. */
static bool take_planned(struct fixture *f, const char *path, enum system_kind system)
{
    struct err err = {0};
    const enum err_code rc = take_with(f, path, 0, NULL, NULL, 0, &err);
    if (system_is_planned(system)) {
        if (rc != ERR_OK)
            fail_msg("%s", err.text);
        assert_int_equal(f->settings.job.strategy.system, system);
        return true;
    }
    assert_int_equal(rc, ERR_INVALID);
    assert_non_null(strstr(err.text, system_name(system)));
    assert_non_null(strstr(err.text, ": allowed are "));
    import_free(&f->import);
    return false;
}

static void other_systems_have_their_names(void **state)
{
    (void)state;
    struct fixture f;
    if (take_planned(&f, DATA "accelerate_fsdp1.yaml", SYSTEM_FSDP1)) {
        expect(&f, "gpus 2, param-dtype bf16, reduce-dtype bf16, offload none, autocast bf16, "
                   "outputs fp32");
        import_free(&f.import);
    }
    if (take_planned(&f, DATA "accelerate_deepspeed.yaml", SYSTEM_ZERO3)) {
        expect(&f, "gpus 8, accumulate 4, clip 1, param-dtype bf16");
        import_free(&f.import);
    }
    if (take_planned(&f, DATA "deepspeed_zero3.json", SYSTEM_ZERO3)) {
        expect(&f, "gpus 8, micro-batch 2, accumulate 4, clip 0.5, param-dtype bf16");
        import_free(&f.import);
    }
    if (take_planned(&f, DATA "deepspeed_auto.json", SYSTEM_ZERO2))
        import_free(&f.import);
}

/* What the Trainer fills in is what it has by default, but for a dtype: a file that leaves the
 * choice among half precisions open is for one of them. */
static void auto_is_said_and_planned_as_the_trainer_would(void **state)
{
    static const struct {
        const char *text, *holds, *open;
    } cases[] = {
        {"\"bf16\": {\"enabled\": \"auto\"}", "param-dtype bf16, clip 1", "bf16.enabled"},
        {"\"fp16\": {\"enabled\": \"auto\"}", "param-dtype fp16", "fp16.enabled"},
        {"\"bf16\": {\"enabled\": \"auto\"}, \"fp16\": {\"enabled\": \"auto\"}", "param-dtype bf16",
         "bf16.enabled"},
        {"\"bf16\": {\"enabled\": \"auto\"}, \"fp16\": {\"enabled\": true}", "param-dtype fp16",
         "bf16.enabled"},
        {"\"gradient_clipping\": \"auto\"", "clip 1, param-dtype fp32", "gradient_clipping"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct fixture f;
        char text[256];
        snprintf(text, sizeof text, "{\"zero_optimization\": {\"stage\": 2}, %s}", cases[i].text);
        take_text(&f, SYNTAX_JSON, text);
        expect(&f, cases[i].holds);
        assert_non_null(find_note(&f, NOTE_UNSAID, cases[i].open));
        import_free(&f.import);
    }
}

/* Where one process is started nothing is wrapped; who starts it is not in every file. */
static void one_process_trains_alone(void **state)
{
    static const struct {
        enum document_syntax syntax;
        const char *text, *alone, *together;
    } cases[] = {
        {SYNTAX_JSON, "{\"bf16\": true, \"per_device_train_batch_size\": 2}",
         "strategy single, autocast bf16, outputs fp32",
         "strategy ddp, autocast bf16, outputs fp32"},
        {SYNTAX_JSON, "{\"fsdp\": \"full_shard\", \"per_device_train_batch_size\": 2}",
         "strategy fsdp2", "strategy fsdp2"},
        {SYNTAX_TOML, "[model]\nname = \"llama3\"\n[training]\nseq_len = 2048\n",
         "strategy single, autocast bf16", "strategy fsdp2, param-dtype bf16"},
        {SYNTAX_YAML, "distributed_type: 'NO'\nmixed_precision: bf16\n",
         "strategy single, gpus 1, autocast bf16, outputs fp32", NULL},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++)
        for (int many = 0; many < 2; many++) {
            const struct setting_given gpus = {.name = "gpus", .text = many ? "4" : "1"};
            struct fixture f;
            struct err err = {0};
            if (many && !cases[i].together)
                continue;
            if (take_with(&f, "x", cases[i].syntax, cases[i].text, &gpus, cases[i].together ? 1 : 0,
                          &err) != ERR_OK)
                fail_msg("%s", err.text);
            expect(&f, many ? cases[i].together : cases[i].alone);
            import_free(&f.import);
        }
}

/* What accelerate's DeepSpeedPlugin makes of its own keys; parameters only go at stage 3. */
static void devices_of_accelerate_are_offloading(void **state)
{
    static const struct {
        int stage;
        const char *optimizer, *param, *holds, *listed;
        enum note_kind kind;
    } cases[] = {
        {3, "cpu", "cpu", "offload cpu", NULL, 0},
        {3, "cpu", "none", "offload optimizer", NULL, 0},
        {2, "cpu", "cpu", "offload optimizer", "offload_param_device", NOTE_IDLE},
        {3, "none", "cpu", "offload none", "offload_param_device", NOTE_UNPLANNED},
        {2, "nvme", "none", "offload none", "offload_optimizer_device", NOTE_UNPLANNED},
        {3, "none", "none", "offload none", NULL, 0},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct fixture f;
        char text[320], key[64];
        snprintf(text, sizeof text,
                 "{\"distributed_type\": \"DEEPSPEED\", \"deepspeed_config\": {\"zero_stage\": %d, "
                 "\"offload_optimizer_device\": \"%s\", \"offload_param_device\": \"%s\"}}",
                 cases[i].stage, cases[i].optimizer, cases[i].param);
        take_text(&f, SYNTAX_JSON, text);
        expect(&f, cases[i].holds);
        if (cases[i].listed) {
            snprintf(key, sizeof key, "deepspeed_config.%s", cases[i].listed);
            if (!find_note(&f, cases[i].kind, key))
                fail_msg("%s is not listed: %s", key, text);
        }
        import_free(&f.import);
    }
}

/* HfTrainerDeepSpeedConfig.trainer_config_process, DeepSpeedPlugin: who names DeepSpeed's file
 * fills in what it leaves open; what it says itself the other may say alike alone. */
static void a_file_that_is_named_is_read_too(void **state)
{
    (void)state;
    struct fixture f;
    take_file(&f, DATA "training_arguments_zero.json");
    expect(&f, "strategy zero2, param-dtype bf16, micro-batch 2, accumulate 4, clip 0.5, "
               "checkpointing full, optimizer-impl foreach, zero " DATA "deepspeed_auto.json");
    assert_null(find_note(&f, NOTE_UNSAID, "bf16.enabled"));
    assert_null(find_note(&f, NOTE_UNSAID, "gradient_clipping"));
    assert_true(leaves_open(&f, "--gpus"));
    import_free(&f.import);
    take_file(&f, DATA "accelerate_zero_file.yaml");
    expect(&f, "strategy zero2, gpus 4, param-dtype fp16, clip 1, accumulate 1");
    import_free(&f.import);
    take_text(&f, SYNTAX_JSON, /* said twice, alike */
              "{\"deepspeed\": \"" DATA "deepspeed_zero3.json\", \"max_grad_norm\": 0.50, "
              "\"per_device_train_batch_size\": 2, \"bf16\": true, \"optim\": \"adamw_torch\"}");
    expect(&f, "strategy zero3, micro-batch 2, clip 0.5, param-dtype bf16");
    assert_null(find_note(&f, NOTE_OVERRIDDEN, "max_grad_norm"));
    assert_null(find_note(&f, NOTE_OVERRIDDEN, "per_device_train_batch_size"));
    import_free(&f.import);
}

/* HfTrainerDeepSpeedConfig.fill_match ("Please correct the following DeepSpeed config values that
 * mismatch TrainingArguments values"), DeepSpeedPlugin.set_mixed_precision and Trainer.__init__. */
static void what_two_files_say_otherwise_is_refused(void **state)
{
    static const char *const cases[][2] = {
        {"\"per_device_train_batch_size\": 1",
         "x:1: per_device_train_batch_size 1: " DATA "deepspeed_zero3.json says "
         "train_micro_batch_size_per_gpu 2"},
        {"\"gradient_accumulation_steps\": 2",
         "x:1: gradient_accumulation_steps 2: " DATA "deepspeed_zero3.json says "
         "gradient_accumulation_steps 4"},
        {"\"max_grad_norm\": 0.3", "max_grad_norm 0.3: " DATA "deepspeed_zero3.json says "
                                   "gradient_clipping 0.5;"},
        {"\"bf16\": false", "x:1: bf16 false: " DATA "deepspeed_zero3.json says bf16.enabled true"},
        {"\"fp16\": true", "x:1: fp16 true: " DATA "deepspeed_zero3.json says bf16.enabled true"},
        {"\"fsdp\": true", "x:1: fsdp true: transformers refuses it beside deepspeed"},
        {"\"fsdp\": [\"full_shard\"]", "transformers refuses it beside deepspeed"},
    };
    static const struct setting_given given[] = {{"micro-batch", "1"}};
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct fixture f;
        struct err err = {0};
        char text[256];
        snprintf(text, sizeof text, "{\"deepspeed\": \"" DATA "deepspeed_zero3.json\", %s}",
                 cases[i][0]);
        assert_int_equal(take_with(&f, "x", SYNTAX_JSON, text, NULL, 0, &err), ERR_INVALID);
        if (!strstr(err.text, cases[i][1]))
            fail_msg("%s: %s", cases[i][0], err.text);
        import_free(&f.import);
        if (i > 0)
            continue; /* what an option says is said once */
        assert_int_equal(take_with(&f, "x", SYNTAX_JSON, text, given, COUNT(given), &err), ERR_OK);
        expect_note(&f, NOTE_OVERRIDDEN, "per_device_train_batch_size", 1, "--micro-batch 1");
        import_free(&f.import);
    }
}

static void a_file_that_is_named_has_to_be_there(void **state)
{
    static const char *const cases[][2] = {
        {"{\"deepspeed\": \"nowhere.json\"}", "x:1: deepspeed: "},
        {"{\"deepspeed\": \"" DATA "fsdp_config.json\"}", "it is no configuration of DeepSpeed"},
        {"{\"deepspeed\": {\"zero_optimization\": {}}}", "a file of its own"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct fixture f;
        struct err err = {0};
        char text[256];
        snprintf(text, sizeof text, "%.*s, \"per_device_train_batch_size\": 1}",
                 (int)strlen(cases[i][0]) - 1, cases[i][0]);
        assert_int_not_equal(take_with(&f, "x", SYNTAX_JSON, text, NULL, 0, &err), ERR_OK);
        if (!strstr(err.text, cases[i][1]))
            fail_msg("%s", err.text);
        import_free(&f.import);
    }
}

/* axolotl's examples/llama-3/qlora-fsdp-70b.yml and its fsdp2 ones; LLaMA-Factory's
 * llama3_full_sft.
 */
static void other_trainers_have_their_names(void **state)
{
    (void)state;
    struct fixture f;
    take_text(&f, SYNTAX_YAML,
              "base_model: meta-llama/Llama-3.1-8B\nsequence_len: 1_024\nmicro_batch_size: 2\n"
              "gradient_accumulation_steps: 4\nbf16: auto\nfsdp:\n"
              "  - full_shard\n  - auto_wrap\nfsdp_config:\n  fsdp_offload_params: true\n"
              "  fsdp_sharding_strategy: FULL_SHARD\n  fsdp_use_orig_params: false\n");
    expect(&f, "strategy fsdp1, model llama-3.1-8b, seq 1024, micro-batch 2, accumulate 4, "
               "param-dtype bf16, autocast bf16, outputs fp32, offload cpu, sharding FULL_SHARD, "
               "use-orig-params off");
    import_free(&f.import);
    take_text(&f, SYNTAX_YAML,
              "base_model: Qwen/Qwen3-8B\noptimizer: adamw_torch_8bit\nbf16: true\nfsdp_version: "
              "2\nfsdp_config:\n"
              "  offload_params: false\n  reshard_after_forward: false\n");
    expect(&f, "strategy fsdp2, model qwen3-8b, optimizer adamw-torch-8bit, offload none, reshard "
               "never");
    import_free(&f.import);
    take_text(&f, SYNTAX_YAML, /* both spellings: axolotl's FSDPConfig reads the later */
              "base_model: Qwen/Qwen3-8B\nfsdp_version: 2\nfsdp_config:\n"
              "  sharding_strategy: FULL_SHARD\n  reshard_after_forward: false\n");
    expect(&f, "strategy fsdp2, reshard never");
    expect_note(&f, NOTE_OVERRIDDEN, "fsdp_config.sharding_strategy", 4,
                "its later name fsdp_config.reshard_after_forward says it");
    assert_null(f.settings.misspelt);
    import_free(&f.import);
    take_text(&f, SYNTAX_YAML, /* a table, which is no other spelling of a word */
              "base_model: Qwen/Qwen3-8B\noptimizer:\n  name: sgd\n");
    assert_null(find_note(&f, NOTE_OVERRIDDEN, "optimizer.name"));
    assert_null(f.settings.misspelt);
    import_free(&f.import);
    take_text(&f, SYNTAX_YAML,
              "model_name_or_path: meta-llama/Llama-3.1-8B\nstage: sft\ncutoff_len: 2048\n"
              "per_device_train_batch_size: 1\ngradient_accumulation_steps: 2\nbf16: true\n"
              "deepspeed: " DATA "deepspeed_auto.json\n");
    expect(&f, "strategy zero2, model llama-3.1-8b, seq 2048, micro-batch 1, accumulate 2, "
               "param-dtype bf16, clip 1");
    import_free(&f.import);
}

static void optimizers_are_planned_as_they_are(void **state)
{
    (void)state;
    static const struct {
        const char *optim, *holds;
    } cases[] = {
        {"adamw_bnb_8bit", "optimizer adamw-8bit"},
        {"adamw_8bit", "optimizer adamw-8bit"},
        {"paged_adamw_8bit", "optimizer paged-adamw-8bit"},
        {"paged_adamw_32bit", "optimizer paged-adamw-32bit"},
        {"adamw_torch_8bit", "optimizer adamw-torch-8bit"},
        {"adamw_torch_4bit", "optimizer adamw-torch-4bit"},
        {"adamw_torch", "optimizer adamw, optimizer-impl foreach"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture f;
        char text[256];
        snprintf(text, sizeof text,
                 "base_model: Qwen/Qwen3-8B\noptimizer: %s\nbf16: true\nmicro_batch_size: 1\n",
                 cases[i].optim);
        take_text(&f, SYNTAX_YAML, text);
        expect(&f, cases[i].holds);
        import_free(&f.import);
    }
}

/* The dtype of the model is the naming file's, where DeepSpeed's leaves it open or has no key of
 * it (DeepSpeedPlugin.set_mixed_precision). */
static void gradients_add_up_in_the_naming_files_dtype(void **state)
{
    static const struct {
        enum document_syntax syntax;
        const char *text, *holds;
        bool planned;
    } cases[] = {
        {SYNTAX_JSON, "{\"deepspeed\": \"" DATA "deepspeed_accumulated.json\", \"bf16\": true}",
         "strategy zero1, param-dtype bf16, grad-accum-dtype same", true},
        {SYNTAX_JSON, "{\"deepspeed\": \"" DATA "deepspeed_accumulated.json\", \"fp16\": true}",
         "param-dtype fp16, grad-accum-dtype same", false},
        {SYNTAX_JSON, "{\"deepspeed\": \"" DATA "deepspeed_bare.json\", \"bf16\": true}",
         "strategy zero2, param-dtype bf16, grad-accum-dtype fp32", true},
        {SYNTAX_JSON, "{\"deepspeed\": \"" DATA "deepspeed_bare.json\"}",
         "param-dtype fp32, grad-accum-dtype same", true},
        {SYNTAX_YAML,
         "distributed_type: DEEPSPEED\nmixed_precision: bf16\ndeepspeed_config:\n"
         "  deepspeed_config_file: " DATA "deepspeed_accumulated.json\n",
         "param-dtype bf16, grad-accum-dtype same", true},
        {SYNTAX_YAML,
         "distributed_type: DEEPSPEED\ndeepspeed_config:\n"
         "  deepspeed_config_file: " DATA "deepspeed_bare.json\n",
         "param-dtype fp32, grad-accum-dtype same", true},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct fixture f;
        take_text(&f, cases[i].syntax, cases[i].text);
        expect(&f, cases[i].holds);
        assert_null(find_note(&f, NOTE_IDLE, "data_types.grad_accum_dtype"));
        assert_int_equal(find_note(&f, NOTE_UNPLANNED, "data_types.grad_accum_dtype") == NULL,
                         cases[i].planned);
        import_free(&f.import);
    }
}

/* Adapters as axolotl's loaders/adapter.py and LLaMA-Factory's model/adapter.py make them of keys,
 * LLaMA-Factory's own defaults (adapters, checkpoints) among them. */
static void adapters_are_the_trainers_own(void **state)
{
    static const struct {
        const char *text, *holds;
    } cases[] = {
        {"base_model: Qwen/Qwen3-8B\nbf16: auto\nadapter: lora\nlora_r: 16\nlora_alpha: 32\n"
         "lora_target_modules:\n  - q_proj\n  - v_proj\nfsdp_version: 2\nfsdp_config:\n"
         "  reshard_after_forward: true\n",
         "lora 16;q_proj;v_proj, frozen-dtype param, checkpointing none"},
        {"base_model: Qwen/Qwen3-8B\nadapter: qlora\nload_in_4bit: true\nlora_r: 32\n"
         "lora_target_linear: true\ngradient_checkpointing: true\n",
         "lora 32;all-linear, checkpointing full"},
        /* peft's own all-linear is more of Mixtral, and the same of gpt-oss */
        {"base_model: mistralai/Mixtral-8x7B-v0.1\nadapter: lora\nlora_r: 8\n"
         "lora_target_linear: true\n",
         "lora 8;q_proj;k_proj;v_proj;o_proj, checkpointing none"},
        {"model_name_or_path: Qwen/Qwen3-30B-A3B\nstage: sft\nlora_target: all\n",
         "lora 8;q_proj;k_proj;v_proj;o_proj, checkpointing full"},
        {"base_model: openai/gpt-oss-20b\nadapter: lora\nlora_r: 8\nlora_target_linear: true\n",
         "lora 8;all-linear, checkpointing none"},
        {"base_model: Qwen/Qwen3-8B\nadapter: lora\nlora_r: 8\nlora_target_modules: "
         "'model.layers.[\\d]+.(mlp|self_attn).(up|q)_proj'\n",
         "lora 8;model.layers.[\\d]+.(mlp|self_attn).(up|q)_proj, checkpointing none"},
        {"base_model: Qwen/Qwen3-8B\nadapter:\n", "checkpointing none"},
        {"model_name_or_path: Qwen/Qwen3-8B\nstage: sft\nfinetuning_type: lora\nlora_rank: 4\n"
         "lora_target: q_proj, v_proj\nbf16: true\n",
         "lora 4;q_proj;v_proj, frozen-dtype bf16, autocast bf16, checkpointing full, "
         "find-unused-parameters off"},
        {"base_model: Qwen/Qwen3-8B\nbf16: true\nadapter: lora\nlora_r: 4\n"
         "lora_target_linear: true\nfsdp:\n  - full_shard\n  - auto_wrap\nfsdp_config:\n"
         "  fsdp_use_orig_params: false\n",
         "lora 4;all-linear, strategy fsdp1, units peft, frozen-dtype param, autocast bf16"},
        {"base_model: Qwen/Qwen3-8B\nbf16: true\nadapter: lora\nlora_r: 4\n"
         "lora_target_linear: true\npeft_autocast_adapter_dtype: false\n",
         "lora 4;all-linear, store-dtype bf16, frozen-dtype store, autocast bf16"},
        {"base_model: Qwen/Qwen3-8B\nbf16: true\nadapter: lora\nlora_r: 4\n"
         "lora_target_linear: true\npeft_autocast_adapter_dtype: true\n",
         "lora 4;all-linear, store-dtype fp32, frozen-dtype bf16, lora-dropout 0"},
        {"base_model: Qwen/Qwen3-8B\nbf16: true\nadapter: lora\nlora_r: 4\nlora_dropout: 0.05\n"
         "lora_target_linear: true\n",
         "lora 4;all-linear, lora-dropout 0.05"},
        {"model_name_or_path: Qwen/Qwen3-8B\ncutoff_len: 512\nfinetuning_type: full\n"
         "lora_dropout: 0.1\n",
         "lora-dropout 0"},
        {"model_name_or_path: Qwen/Qwen3-8B\ntemplate: qwen3\nlora_target: all\n",
         "lora 8;all-linear, checkpointing full"},
        {"model_name_or_path: Qwen/Qwen3-8B\ntemplate: qwen3\n"
         "disable_gradient_checkpointing: true\n",
         "lora 8;all-linear, checkpointing none"},
        {"model_name_or_path: Qwen/Qwen3-8B\ncutoff_len: 512\nfinetuning_type: full\n"
         "gradient_checkpointing: false\n",
         "checkpointing full, seq 512"},
        {"model_name_or_path: Qwen/Qwen3-8B\nbf16: true\n", "checkpointing none"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct fixture f;
        char buffer[NUMBER_TEXT], expected[256], *at;
        take_text(&f, SYNTAX_YAML, cases[i].text);
        const char *lora = settings_get(&f.settings, "lora", buffer);
        assert_int_equal(lora != NULL, strncmp(cases[i].holds, "lora ", 5) == 0);
        snprintf(expected, sizeof expected, "%s", cases[i].holds);
        if (lora) { /* its commas are not the list's */
            const size_t length = strcspn(expected, ",");
            for (at = expected; at < expected + length; at++)
                *at = *at == ';' ? ',' : *at;
            assert_int_equal(strlen(lora), length - 5);
            assert_memory_equal(lora, expected + 5, length - 5);
            memmove(expected, expected + length + 1, strlen(expected + length));
        }
        expect(&f, expected);
        import_free(&f.import);
    }
}

/* What became another key is quoted as it stands; weights in few bits say what they are planned in.
 */
static void a_value_is_quoted_as_the_file_has_it(void **state)
{
    struct fixture f;
    (void)state;
    take_text(&f, SYNTAX_YAML,
              "base_model: Qwen/Qwen3-8B\nadapter: qlora\nload_in_4bit: true\nbf16: auto\n"
              "lora_r: 32\nlora_target_linear: true\nfsdp_version: 2\nfsdp_config:\n"
              "  offload_params: true\n");
    expect_note(&f, NOTE_TAKEN, "adapter", 2, "--lora 32,all-linear");
    assert_string_equal(find_note(&f, NOTE_TAKEN, "adapter")->value, "qlora");
    assert_string_equal(find_note(&f, NOTE_TAKEN, "bf16")->value, "auto");
    expect(&f, "load-in-4bit nf4, bnb-quant-storage bf16, offload cpu");
    import_free(&f.import);
    take_text(&f, SYNTAX_YAML,
              "base_model: Qwen/Qwen3-8B\nadapter: lora\nload_in_8bit: true\nbf16: auto\n"
              "lora_r: 32\nlora_target_linear: true\nfsdp_version: 2\nfsdp_config:\n"
              "  offload_params: true\n");
    expect_note(&f, NOTE_UNPLANNED, "load_in_8bit", 3,
                "frozen weights in 8 bits, which are not planned of fsdp2: planned in bf16");
    import_free(&f.import);
    take_text(&f, SYNTAX_YAML,
              "base_model: Qwen/Qwen3-8B\nadapter: lora\nload_in_8bit: true\nload_in_4bit: "
              "false\nbf16: auto\nlora_r: 32\nlora_target_linear: true\n");
    expect_note(&f, NOTE_TAKEN, "load_in_8bit", 3, "--load-in-8bit on");
    assert_non_null(find_note(&f, NOTE_IDLE, "load_in_4bit"));
    import_free(&f.import);
    take_text(&f, SYNTAX_YAML, /* a plugin's own */
              "base_model: Qwen/Qwen3-8B\nadapter: mora\nplugins:\n  - a.MoraPlugin\n");
    expect_note(&f, NOTE_UNPLANNED, "adapter", 2, "planned as all trained");
    import_free(&f.import);
    take_text(&f, SYNTAX_YAML, "base_model: Qwen/Qwen3-8B\nadapter: ''\n");
    assert_null(find_note(&f, NOTE_UNPLANNED, "adapter"));
    import_free(&f.import);
}

/* What the trainer itself would stop at, and what is not planned, say what to give instead. */
static void adapters_and_checkpoints_are_refused_with_a_way_out(void **state)
{
    static const char *const cases[][2] = {
        {"adapter: lora\nlora_target_linear: true\n", "x:2: adapter lora: peft asks for a rank"},
        {"adapter: lora\nlora_r: 8\n", "x:2: adapter lora: peft asks for layers"},
        {"adapter: lora\nlora_r: 8\nlora_target_modules: [.*_proj]\n", "a pattern is a text"},
        {"gradient_checkpointing: offload_disk\n",
         "offload_disk: checkpoints that wait on the host are not planned: give true"},
        {"gradient_checkpointing: offload\nfsdp: full_shard\nfsdp_config:\n  version: 1\n",
         "offload: checkpoints that wait on the host are not planned: give true"},
        {"adapter: loraa\n", "x:2: adapter loraa: allowed are lora, qlora, llama-adapter; did you "
                             "mean lora?"},
        {"adapter: qlora\nload_in_4bit: true\n", "x:2: adapter qlora: peft asks for a rank"},
        {"gradient_checkpointing: maybe\n", "maybe: allowed are true, false"},
    };
    const struct setting_given given = {"checkpointing", "full"};
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct fixture f;
        struct err err = {0};
        char text[256];
        snprintf(text, sizeof text, "base_model: Qwen/Qwen3-8B\n%s", cases[i][0]);
        assert_int_equal(take_with(&f, "x", SYNTAX_YAML, text, NULL, 0, &err), ERR_INVALID);
        if (!strstr(err.text, cases[i][1]))
            fail_msg("%s", err.text);
        import_free(&f.import);
    }
    struct fixture f;
    struct err err = {0};
    assert_int_equal(take_with(&f, "x", SYNTAX_YAML,
                               "base_model: Qwen/Qwen3-8B\ngradient_checkpointing: unsloth\n",
                               &given, 1, &err),
                     ERR_OK);
    expect_note(&f, NOTE_OVERRIDDEN, "gradient_checkpointing", 2, "--checkpointing full");
    import_free(&f.import);
}

/* What changes a step and has no plan is with the settings, for whoever says a verdict. */
static void what_is_not_planned_goes_with_the_settings(void **state)
{
    (void)state;
    struct fixture f;
    take_text(&f, SYNTAX_YAML,
              "base_model: Qwen/Qwen3-8B\ntensor_parallel_size: 8\nfp16: true\n"
              "lora_dropout: 0.0\ncontext_parallel_size: 1\n");
    assert_non_null(f.settings.unplanned);
    assert_string_equal(f.settings.unplanned,
                        "    fp16 = true (line 3): autocast to this dtype: planned in fp32\n"
                        "    tensor_parallel_size = 8 (line 2): tensor parallelism\n");
    import_free(&f.import);
    take_text(&f, SYNTAX_YAML, "base_model: Qwen/Qwen3-8B\nfp16: false\nbf16: false\n");
    assert_null(f.settings.unplanned);
    import_free(&f.import);
}

/* Accelerator.prepare_model's native_amp, FSDP1's MixedPrecision beside it; with fp16 listed. */
static void mixed_precision_is_around_the_forward(void **state)
{
#define FSDP(version) "fsdp_config:\n  fsdp_version: " version "\n"
#define FULL "\"fsdp\": \"full_shard auto_wrap\", \"fsdp_config\": {\"version\": 1}"
    static const struct {
        enum document_syntax syntax;
        const char *text, *becomes, *lists; /* NULL: nothing */
    } cases[] = {
        {SYNTAX_YAML, "distributed_type: FSDP\nmixed_precision: bf16\n" FSDP("1"),
         "strategy fsdp1, param-dtype bf16, autocast bf16, outputs fp32", NULL},
        {SYNTAX_YAML, "distributed_type: FSDP\nmixed_precision: 'no'\n" FSDP("1"),
         "strategy fsdp1, param-dtype same, autocast none, outputs same", NULL},
        {SYNTAX_YAML, "distributed_type: FSDP\nmixed_precision: fp16\n" FSDP("1"),
         "strategy fsdp1, param-dtype fp16, autocast none, outputs same", "mixed_precision"},
        {SYNTAX_YAML, "distributed_type: FSDP\nmixed_precision: bf16\n" FSDP("2"),
         "strategy fsdp2, param-dtype bf16", NULL},
        {SYNTAX_YAML, "distributed_type: MULTI_GPU\nmixed_precision: bf16\n",
         "strategy ddp, autocast bf16, outputs fp32", NULL},
        {SYNTAX_YAML, "distributed_type: MULTI_GPU\nmixed_precision: 'no'\n",
         "strategy ddp, autocast none, outputs same", NULL},
        {SYNTAX_JSON, "{" FULL ", \"bf16\": true}",
         "strategy fsdp1, param-dtype bf16, autocast bf16, outputs fp32", NULL},
        {SYNTAX_JSON, "{" FULL ", \"fp16\": true}",
         "strategy fsdp1, param-dtype fp16, autocast none, outputs same", "fp16"},
        {SYNTAX_JSON, "{" FULL "}", "strategy fsdp1, autocast none, outputs same", NULL},
    };
#undef FSDP
#undef FULL
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct fixture f;
        take_text(&f, cases[i].syntax, cases[i].text);
        expect(&f, cases[i].becomes);
        if (cases[i].lists)
            assert_non_null(find_note(&f, NOTE_UNPLANNED, cases[i].lists));
        import_free(&f.import);
    }
}

/* An older file keeps "fsdp:" with nothing in it beside the fsdp_config that shards. */
static void an_empty_key_says_nothing(void **state)
{
    static const char *const cases[][2] = {
        {"fsdp: []\nfsdp_config:\n  fsdp_version: 2\n", "strategy fsdp2"},
        {"fsdp:\nfsdp_config:\n  fsdp_offload_params: true\n", "strategy fsdp1, offload cpu"},
        {"fsdp: [full_shard]\nfsdp_config:\n", "strategy fsdp1"},
        {"fsdp: []\nfsdp_config: {}\n", "strategy ddp"},
        {"fsdp: []\n", "strategy ddp"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct fixture f;
        char text[256];
        snprintf(text, sizeof text, "base_model: Qwen/Qwen3-8B\nbf16: true\n%s", cases[i][0]);
        take_text(&f, SYNTAX_YAML, text);
        expect(&f, cases[i][1]);
        import_free(&f.import);
    }
}

/* DeepSpeedEngine.get_data_types: without the key it is the model's dtype. */
static void gradients_add_up_in_a_dtype(void **state)
{
    static const struct {
        const char *text, *holds;
        bool planned;
    } cases[] = {
        {"\"bf16\": {\"enabled\": true}, \"data_types\": {\"grad_accum_dtype\": \"fp32\"}",
         "grad-accum-dtype fp32", true},
        {"\"bf16\": {\"enabled\": true}, \"data_types\": {\"grad_accum_dtype\": \"bf16\"}",
         "grad-accum-dtype same", true},
        {"\"fp16\": {\"enabled\": true}, \"data_types\": {\"grad_accum_dtype\": \"half\"}",
         "grad-accum-dtype same", true},
        {"\"data_types\": {\"grad_accum_dtype\": \"fp32\"}", "grad-accum-dtype same", true},
        {"\"data_types\": {\"grad_accum_dtype\": \"bf16\"}", "grad-accum-dtype same", false},
        {"\"fp16\": {\"enabled\": true}, \"data_types\": {\"grad_accum_dtype\": \"bf16\"}",
         "grad-accum-dtype same", false},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct fixture f;
        char text[256];
        snprintf(text, sizeof text, "{\"zero_optimization\": {\"stage\": 1}, %s}", cases[i].text);
        take_text(&f, SYNTAX_JSON, text);
        expect(&f, cases[i].holds);
        assert_int_equal(find_note(&f, NOTE_UNPLANNED, "data_types.grad_accum_dtype") == NULL,
                         cases[i].planned);
        import_free(&f.import);
    }
}

/* FullyShardedDataParallelPlugin.set_auto_wrap_policy, and the launcher's size. */
static void units_by_size_are_fsdp1s(void **state)
{
    static const struct {
        enum document_syntax syntax;
        const char *text, *holds;
    } cases[] = {
        {SYNTAX_YAML,
         "distributed_type: FSDP\nfsdp_config:\n  fsdp_auto_wrap_policy: SIZE_BASED_WRAP\n",
         "strategy fsdp1, units 100000000"},
        {SYNTAX_YAML,
         "distributed_type: FSDP\nfsdp_config:\n  fsdp_auto_wrap_policy: SIZE_BASED_WRAP\n"
         "  fsdp_min_num_params: 2000\n",
         "units 2000"},
        {SYNTAX_JSON,
         "{\"fsdp\": true, \"fsdp_config\": {\"version\": 1, \"auto_wrap_policy\": "
         "\"SIZE_BASED_WRAP\", \"min_num_params\": 2000}}",
         "strategy fsdp1, units 2000"},
        {SYNTAX_JSON,
         "{\"fsdp\": true, \"fsdp_config\": {\"version\": 1, \"auto_wrap_policy\": "
         "\"SIZE_BASED_WRAP\"}}",
         "strategy fsdp1, units none"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct fixture f;
        take_text(&f, cases[i].syntax, cases[i].text);
        expect(&f, cases[i].holds);
        assert_null(find_note(&f, NOTE_UNPLANNED, "fsdp_config.fsdp_auto_wrap_policy"));
        import_free(&f.import);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training_arguments_give_their_job),
        cmocka_unit_test(other_systems_have_their_names),
        cmocka_unit_test(auto_is_said_and_planned_as_the_trainer_would),
        cmocka_unit_test(one_process_trains_alone),
        cmocka_unit_test(devices_of_accelerate_are_offloading),
        cmocka_unit_test(a_file_that_is_named_is_read_too),
        cmocka_unit_test(what_two_files_say_otherwise_is_refused),
        cmocka_unit_test(a_file_that_is_named_has_to_be_there),
        cmocka_unit_test(other_trainers_have_their_names),
        cmocka_unit_test(optimizers_are_planned_as_they_are),
        cmocka_unit_test(gradients_add_up_in_the_naming_files_dtype),
        cmocka_unit_test(adapters_are_the_trainers_own),
        cmocka_unit_test(a_value_is_quoted_as_the_file_has_it),
        cmocka_unit_test(adapters_and_checkpoints_are_refused_with_a_way_out),
        cmocka_unit_test(what_is_not_planned_goes_with_the_settings),
        cmocka_unit_test(an_empty_key_says_nothing),
        cmocka_unit_test(gradients_add_up_in_a_dtype),
        cmocka_unit_test(units_by_size_are_fsdp1s),
        cmocka_unit_test(mixed_precision_is_around_the_forward),
    };
    return cmocka_run_group_tests_name("import of trainers", tests, NULL, NULL);
}

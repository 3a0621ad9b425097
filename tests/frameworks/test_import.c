/* test_import.c - frameworks' configurations as settings: what each key becomes, what holds when it
 * is absent, what is listed, what is refused and how.
 *
 * Expected values are those of the frameworks' own sources (their defaults, their batch
 * arithmetic), written down by hand. */
#include "tests/frameworks/import_fixture.h"

/* ---- torchtitan ---- */

static void torchtitans_file_gives_its_job(void **state)
{
    (void)state;
    struct fixture f;
    take_file(&f, DATA "torchtitan_8b.toml");
    expect(&f, "model llama-3.1-8b, strategy fsdp2, code torchtitan, units torchtitan, seq 8192, "
               "micro-batch 1, accumulate 1, accumulate-sync each, replicate 1, reshard default, "
               "param-dtype bf16, reduce-dtype fp32, store-dtype fp32, checkpointing selective, "
               "early-stop off, optimizer adamw, optimizer-impl fused, clip 1, offload none");
    expect_note(&f, NOTE_TAKEN, "training.seq_len", 19, "--seq 8192");
    expect_note(&f, NOTE_IDLE, "metrics.log_freq", 5, NULL);
    assert_true(leaves_open(&f, "--gpus")); /* -1: what is left of the world */
    import_free(&f.import);
}

static uint32_t count_launched(const struct fixture *f, const char *text)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < f->import.note_count; i++)
        count += f->import.notes[i].kind == NOTE_LAUNCHED &&
                 (!text || strstr(f->import.notes[i].text, text) != NULL);
    return count;
}

/* run_train.sh of v0.1.0 and newer: no key of the file says it, and no file of another framework
 * has it. */
static void torchtitans_launcher_expands_segments(void **state)
{
    (void)state;
    const struct setting_given off = {"expandable-segments", "off"};
    struct err err = {0};
    struct fixture f;
    take_file(&f, DATA "torchtitan_8b.toml");
    expect(&f, "expandable-segments on");
    assert_int_equal(count_launched(&f, "run_train.sh"), 1);
    import_free(&f.import);

    assert_int_equal(take_with(&f, DATA "torchtitan_8b.toml", 0, NULL, &off, 1, &err), ERR_OK);
    expect(&f, "expandable-segments off");
    assert_int_equal(count_launched(&f, NULL), 0);
    import_free(&f.import);

    take_file(&f, DATA "accelerate_fsdp2.yaml");
    expect(&f, "expandable-segments off");
    assert_int_equal(count_launched(&f, NULL), 0);
    import_free(&f.import);
}

static void torchtitans_defaults_hold_where_it_is_silent(void **state)
{
    (void)state;
    struct fixture f;
    take_text(&f, SYNTAX_TOML, "[training]\n");
    expect(&f, "seq 2048, micro-batch 8, clip 1, param-dtype bf16, reduce-dtype fp32, "
               "optimizer-impl fused, early-stop off, reshard default");
    expect(&f, "checkpointing full, checkpoint-blocks every-2");
    import_free(&f.import);
}

static void torchtitans_option_says_which_blocks_are_checkpointed(void **state)
{
    (void)state;
    static const struct {
        const char *option, *expected;
    } cases[] = {
        {"op", "checkpointing selective, checkpoint-blocks all"},
        {"0", "checkpointing full, checkpoint-blocks all"},
        {"1", "checkpointing full, checkpoint-blocks all"},
        {"3", "checkpointing full, checkpoint-blocks every-3"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct fixture f;
        char text[128];
        snprintf(text, sizeof text,
                 "[training]\n[activation_checkpoint]\nmode = \"selective\"\nselective_ac_option = "
                 "\"%s\"\n",
                 cases[i].option);
        take_text(&f, SYNTAX_TOML, text);
        expect(&f, cases[i].expected);
        import_free(&f.import);
    }
}

/* Each block on its own (parallelize_llama's apply_compile); older versions had the key in
 * [training]. accelerate compiles the whole model, which is not planned. */
static void compiled_blocks_are_torchtitans(void **state)
{
    (void)state;
    struct fixture f;
    take_text(&f, SYNTAX_TOML,
              "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[compile]\nenable = true\n");
    expect(&f, "compile on, loss compiled");
    assert_null(find_note(&f, NOTE_UNPLANNED, "compile.enable"));
    import_free(&f.import);
    take_text(&f, SYNTAX_TOML,
              "[training]\nseq_len = 64\n[compile]\nenable = true\ncomponents = [\"model\"]\n");
    expect(&f, "compile on, loss eager");
    assert_null(find_note(&f, NOTE_UNPLANNED, "compile.components"));
    import_free(&f.import);
    take_text(&f, SYNTAX_TOML,
              "[training]\nseq_len = 64\n[compile]\nenable = true\ncomponents = [\"loss\"]\n");
    expect(&f, "compile off, loss compiled");
    import_free(&f.import);
    take_text(&f, SYNTAX_TOML, /* v0.1.0: build_cross_entropy_loss compiles it */
              "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\ncompile = true\n");
    expect(&f, "compile on, loss compiled");
    import_free(&f.import);
    take_text(&f, SYNTAX_YAML,
              "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\ndynamo_config:\n"
              "  dynamo_backend: INDUCTOR\n");
    expect(&f, "compile model, code hf");
    assert_null(find_note(&f, NOTE_UNPLANNED, "dynamo_config.dynamo_backend"));
    import_free(&f.import);
    take_text(&f, SYNTAX_YAML, /* utils/other.py, compile_regions_fsdp2 */
              "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\ndynamo_config:\n"
              "  dynamo_backend: INDUCTOR\n  dynamo_use_regional_compilation: true\n");
    expect(&f, "compile on, code hf");
    expect_note(&f, NOTE_UNPLANNED, "dynamo_config.dynamo_backend", 5, "beside blocks");
    import_free(&f.import);
    take_text(&f, SYNTAX_YAML, /* compile_regions fails with a RecursionError */
              "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 1\ndynamo_config:\n"
              "  dynamo_backend: INDUCTOR\n  dynamo_use_regional_compilation: true\n");
    expect(&f, "compile off");
    import_free(&f.import);
    take_text(&f, SYNTAX_YAML,
              "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\ndynamo_config:\n"
              "  dynamo_backend: 'NO'\n  dynamo_use_regional_compilation: true\n");
    expect(&f, "compile off");
    import_free(&f.import);
}

#define FLOAT8                                                                                     \
    "[training]\nseq_len = 64\n[model]\nconverters = [\"quantize.linear.float8\"]\n"               \
    "[quantize.linear.float8]\nfilter_fqns = [\"output\"]\n"

static void torchtitans_float8_is_ours(void **state)
{
    (void)state;
    struct fixture f;
    take_text(&f, SYNTAX_TOML, FLOAT8 "recipe_name = \"rowwise\"\n[compile]\nenable = true\n");
    expect(&f, "float8 rowwise, compile on");
    assert_null(find_note(&f, NOTE_UNPLANNED, "model.converters"));
    assert_null(find_note(&f, NOTE_UNPLANNED, "filter_fqns"));
    assert_null(find_note(&f, NOTE_IDLE, "quantize.linear.float8.recipe_name"));
    assert_null(find_note(&f, NOTE_IDLE, "quantize.linear.float8.filter_fqns"));
    import_free(&f.import);
    take_text(&f, SYNTAX_TOML,
              FLOAT8 "enable_fsdp_float8_all_gather = true\n"
                     "precompute_float8_dynamic_scale_for_fsdp = true\n");
    expect(&f, "float8 tensorwise, float8-gather precomputed");
    import_free(&f.import);
    take_text(&f, SYNTAX_TOML,
              FLOAT8 "enable_fsdp_float8_all_gather = true\n[compile]\nenable = true\n");
    expect(&f, "float8 tensorwise, float8-gather dynamic, compile on");
    import_free(&f.import);
    take_text(&f, SYNTAX_TOML,
              "[training]\nseq_len = 64\n[quantize.linear.float8]\nrecipe_name = \"rowwise\"\n");
    expect(&f, "float8 none");
    expect_note(&f, NOTE_IDLE, "quantize.linear.float8.recipe_name", 4, NULL);
    import_free(&f.import);
}

/* train_configs/llama3_8b.toml of December 2024 (9dec370), and what the keys were until February
 * and April 2025. */
static void torchtitans_older_keys_are_read(void **state)
{
    (void)state;
    struct fixture f;
    take_text(&f, SYNTAX_TOML,
              "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nbatch_size = 1\n"
              "seq_len = 8192\ndata_parallel_replicate_degree = 2\n"
              "data_parallel_shard_degree = 4\ntensor_parallel_degree = 1\ncompile = true\n"
              "[experimental]\npipeline_parallel_degree = 1\n[float8]\n"
              "enable_float8_linear = true\nenable_fsdp_float8_all_gather = true\n");
    expect(&f, "micro-batch 1, gpus 8, replicate 2, compile on, loss eager, float8 tensorwise, "
               "float8-gather dynamic");
    assert_null(find_note(&f, NOTE_UNKNOWN, "training.batch_size"));
    assert_null(find_note(&f, NOTE_UNPLANNED, "float8.enable_float8_linear"));
    import_free(&f.import);
    take_text(&f, SYNTAX_TOML,
              "[training]\nseq_len = 64\n[model]\nconverters = \"float8,mx\"\n[float8]\n"
              "filter_fqns = \"output\"\nrecipe_name = \"rowwise\"\n");
    expect(&f, "float8 rowwise");
    expect_note(&f, NOTE_UNPLANNED, "model.converters", 4, "MX");
    assert_null(find_note(&f, NOTE_UNPLANNED, "filter_fqns"));
    import_free(&f.import);
    take_text(&f, SYNTAX_TOML, /* a section that is none, and both spellings */
              "parallelism = 3\n[training]\nbatch_size = 1\nlocal_batch_size = 2\n"
              "data_parallel_shard_degree = 4\n");
    expect(&f, "micro-batch 2");
    expect_note(&f, NOTE_OVERRIDDEN, "training.batch_size", 3, "training.local_batch_size");
    expect_note(&f, NOTE_MISSPELT, "training.data_parallel_shard_degree", 5,
                "did you mean parallelism.data_parallel_shard_degree?");
    import_free(&f.import);
    take_text(&f, SYNTAX_TOML, /* train_configs/debug_model.toml of July 2024 (69fe8defc) */
              "[model]\nname = \"llama3\"\nnorm_type = \"fused_rmsnorm\"\n[training]\n"
              "batch_size = 8\nseq_len = 2048\nwarmup_steps = 2\nmax_norm = 1.0\n"
              "data_parallel_degree = 16\ntensor_parallel_degree = 2\ncompile = false\n"
              "enable_float8_linear = true\nenable_fsdp_float8_all_gather = true\n");
    expect(&f, "micro-batch 8, gpus 16, float8 tensorwise, float8-gather dynamic, compile off");
    expect_note(&f, NOTE_UNPLANNED, "model.norm_type", 3, "another kind");
    expect_note(&f, NOTE_UNPLANNED, "training.tensor_parallel_degree", 10, "tensor");
    expect_note(&f, NOTE_UNPLANNED, "training.enable_float8_linear", 12,
                "all but the head"); /* the head was, too */
    assert_null(find_note(&f, NOTE_UNPLANNED, "filter_fqns"));
    assert_null(find_note(&f, NOTE_UNKNOWN, "training.warmup_steps"));
    import_free(&f.import);
    take_text(&f, SYNTAX_TOML, "[training]\ncompile = true\n[compile]\nenable = false\n");
    expect(&f, "compile off");
    expect_note(&f, NOTE_OVERRIDDEN, "training.compile", 2, "compile.enable");
    import_free(&f.import);
    take_text(&f, SYNTAX_TOML, "[training]\nfp8_linear = \"dynamic\"\nseq_len = 64\n");
    expect(&f, "float8 tensorwise");
    import_free(&f.import);
}

static void torchtitans_batch_and_mesh_multiply(void **state)
{
    (void)state;
    struct fixture f;
    take_file(&f, DATA "torchtitan_70b_tp.toml");
    expect(&f, "model llama-3.1-70b, gpus 32, replicate 2, micro-batch 8, accumulate 2, "
               "float8 tensorwise, reshard never, checkpointing full");
    expect_note(&f, NOTE_UNPLANNED, "parallelism.tensor_parallel_degree", 15, "tensor");
    expect_note(&f, NOTE_UNPLANNED, "model.converters", 4, "all but the head");
    expect_note(&f, NOTE_UNKNOWN, "training.mystery", 10, NULL);
    assert_null(find_note(&f, NOTE_UNKNOWN, "activation_checkpoint"));
    import_free(&f.import);

    take_file(&f, DATA "torchtitan_ddp.toml");
    expect(&f, "strategy ddp, gpus 8, bucket-cap-mb 100, autocast bf16, checkpointing none, "
               "model qwen3-1.7b, accumulate-sync each");
    import_free(&f.import);
}

static void torchtitans_python_gives_the_same_settings(void **state)
{
    (void)state;
    struct fixture f;
    take_file(&f, DATA "torchtitan_registry.py:llama3_8b");
    expect(&f, "model llama-3.1-8b, gpus 32, seq 8192, micro-batch 2, accumulate 2, units "
               "torchtitan, checkpointing selective, early-stop off, reshard default");
    import_free(&f.import);

    take_file(&f, DATA "torchtitan_registry.py:llama3_8b_full_ac");
    expect(&f, "gpus 32, checkpointing full, reshard always, micro-batch 2");
    expect_note(&f, NOTE_UNPLANNED, "training.mixed_precision_param", 33, "without running it");
    import_free(&f.import);
}

/* Ranks that share a batch are data-parallel ones of the plan: the sentence has the numbers. */
static void shared_batches_say_what_is_planned_in_their_place(void **state)
{
    (void)state;
    static const struct {
        const char *text, *key, *why;
    } cases[] = {
        {"[training]\nlocal_batch_size = 2\n[parallelism]\ntensor_parallel_degree = 8\n",
         "parallelism.tensor_parallel_degree",
         "planned with 64 data-parallel ranks and 128 sequences a step, where the file's 64 GPUs "
         "are 8 ranks with 16 sequences"},
        {"[training]\nlocal_batch_size = 1\n[parallelism]\ntensor_parallel_degree = 8\n"
         "pipeline_parallel_degree = 2\ncontext_parallel_degree = 1\n",
         "parallelism.tensor_parallel_degree", "are 4 ranks with 4 sequences"},
        {"[training]\nlocal_batch_size = 1\nglobal_batch_size = 128\n[parallelism]\n"
         "context_parallel_degree = 4\n",
         "parallelism.context_parallel_degree", "are 16, and with its 128 sequences a step"},
        {"[parallelism]\npipeline_parallel_degree = 3\n", "parallelism.pipeline_parallel_degree",
         "planned with 64 data-parallel ranks, where 3 GPUs share the work of each"},
    };
    static const struct setting_given given[] = {{"gpus", "64"}};
    struct fixture f;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct err err = {0};
        assert_int_equal(take_with(&f, "x", SYNTAX_TOML, cases[i].text, given, 1, &err), ERR_OK);
        const struct note *note = find_note(&f, NOTE_UNPLANNED, cases[i].key);
        if (!note || !strstr(note->text, cases[i].why))
            fail_msg("%s: %s", cases[i].text, note ? note->text : "no note");
        assert_null(find_note(&f, NOTE_UNKNOWN, cases[i].key));
        import_free(&f.import);
    }
    take_file(&f, DATA "torchtitan_70b_tp.toml");
    expect_note(&f, NOTE_UNPLANNED, "parallelism.tensor_parallel_degree", 15,
                "on the 32 GPUs of its data-parallel ranks alone, where the file's job has 256");
    import_free(&f.import);
}

/* A key that nobody knows but for a slip is told from a foreign one; by other names, too. */
static void slips_are_answered_with_the_key_that_is_meant(void **state)
{
    (void)state;
    static const struct {
        enum document_syntax syntax;
        const char *text, *key, *meant;
        uint32_t line;
    } cases[] = {
        {SYNTAX_TOML, "[training]\nseqlen = 8192\n", "training.seqlen",
         "did you mean training.seq_len?", 2},
        {SYNTAX_TOML, "[parallelism]\ntensor_paralel_degree = 8\n",
         "parallelism.tensor_paralel_degree", "did you mean parallelism.tensor_parallel_degree?",
         2},
        {SYNTAX_TOML, "[training]\nbatch_sise = 8\n", "training.batch_sise",
         "did you mean training.batch_size?", 2},
        {SYNTAX_TOML, "[training]\nseq_len = 64\n[paralelism]\ntensor_parallel_degree = 8\n",
         "paralelism.tensor_parallel_degree", "did you mean parallelism.tensor_parallel_degree?",
         4},
        {SYNTAX_YAML, "model_name_or_path: Qwen/Qwen3-8B\nlora_rnk: 8\n", "lora_rnk",
         "did you mean lora_rank?", 2},
        {SYNTAX_YAML, "base_model: Qwen/Qwen3-8B\nmicro_batch_siz: 8\n", "micro_batch_siz",
         "did you mean micro_batch_size?", 2},
        /* right but for its section, which no slip explains */
        {SYNTAX_TOML, "[model]\nseq_len = 8192\n", "model.seq_len",
         "did you mean training.seq_len?", 2},
        {SYNTAX_TOML, "[training]\nseq_len = 64\n[optimizer]\nmax_norm = 1.0\n",
         "optimizer.max_norm", "did you mean training.max_norm?", 4},
    };
    struct fixture f;
    for (size_t i = 0; i < COUNT(cases); i++) {
        take_text(&f, cases[i].syntax, cases[i].text);
        expect_note(&f, NOTE_MISSPELT, cases[i].key, cases[i].line, cases[i].meant);
        assert_null(find_note(&f, NOTE_UNKNOWN, cases[i].key));
        assert_non_null(strstr(f.settings.misspelt, cases[i].meant));
        import_free(&f.import);
    }
    take_text(&f, SYNTAX_YAML, /* of TrainingArguments, and of others */
              "base_model: Qwen/Qwen3-8B\nlocal_rank: 0\nfp16_full_eval: false\n"
              "average_tokens_across_devices: true\ntorch_compile_mode: default\nmystery: 1\n");
    assert_null(f.settings.misspelt);
    assert_non_null(find_note(&f, NOTE_UNKNOWN, "average_tokens_across_devices"));
    import_free(&f.import);
    take_text(&f, SYNTAX_TOML, /* the file has the key where it belongs */
              "[training]\nseq_len = 64\n[model]\nseq_len = 8192\n");
    assert_non_null(find_note(&f, NOTE_UNKNOWN, "model.seq_len"));
    import_free(&f.import);
}

/* A tokenizer of another model does not say what is trained. */
static void an_unknown_flavor_is_no_other_model(void **state)
{
    (void)state;
    struct fixture f;
    take_text(&f, SYNTAX_TOML,
              "[model]\nname = \"gpt_oss\"\nflavor = \"20b\"\n"
              "hf_assets_path = \"./assets/hf/Llama-3.1-8B\"\n");
    expect_note(&f, NOTE_UNPLANNED, "model.flavor", 3, "give MODEL");
    assert_null(f.settings.model);
    import_free(&f.import);
}

/* DeepSeek's 671B is V3, and has FlexAttention; Qwen3's mixture has not. */
static void a_flavor_with_experts_is_torchtitans_code(void **state)
{
    (void)state;
    struct fixture f;
    take_text(&f, SYNTAX_TOML, "[model]\nname = \"deepseek_v3\"\nflavor = \"671B\"\n");
    expect_note(&f, NOTE_UNPLANNED, "model.flavor", 3, "FlexAttention");
    assert_string_equal(f.settings.model, "deepseek-v3");
    assert_int_equal(f.settings.job.model.code, CODE_TORCHTITAN);
    import_free(&f.import);
    take_text(&f, SYNTAX_TOML, "[model]\nname = \"qwen3\"\nflavor = \"30B-A3B\"\n");
    assert_string_equal(f.settings.model, "qwen3-30b-a3b");
    assert_int_equal(f.settings.job.model.code, CODE_TORCHTITAN);
    import_free(&f.import);
}

/* A model that no preset is, with what is near it; the command then asks for one. */
static void a_model_without_a_preset_is_said(void **state)
{
    (void)state;
    static const struct {
        const char *name, *says;
    } cases[] = {
        {"Qwen/Qwen3-5B", "no preset is called \"Qwen/Qwen3-5B\"; the nearest are qwen3-"},
        {"TheBloke/Llama-2-7B-GPTQ", "weights in GPTQ are not planned; llama-2-7b is the same"},
        {"nobody/unheard-of", "none is near"},
    };
    struct fixture f;
    for (size_t i = 0; i < COUNT(cases); i++) {
        char text[128];
        snprintf(text, sizeof text, "base_model: %s\nmicro_batch_size: 1\n", cases[i].name);
        take_text(&f, SYNTAX_YAML, text);
        expect_note(&f, NOTE_UNPLANNED, "base_model", 1, "give MODEL");
        if (!f.settings.no_preset || !strstr(f.settings.no_preset, cases[i].says))
            fail_msg("%s: %s", cases[i].name, f.settings.no_preset ? f.settings.no_preset : "-");
        import_free(&f.import);
    }
}

/* ---- accelerate ---- */

static void accelerates_file_gives_its_job(void **state)
{
    (void)state;
    struct fixture f;
    take_file(&f, DATA "accelerate_fsdp2.yaml");
    expect(&f, "strategy fsdp2, code hf, units torchtitan, gpus 8, gpus-per-node 4, replicate 2, "
               "reshard never, param-dtype bf16, reduce-dtype bf16, store-dtype fp32, "
               "checkpointing full, offload none, accumulate-sync last, early-stop on");
    assert_true(leaves_open(&f, "--micro-batch") && leaves_open(&f, "--clip") &&
                leaves_open(&f, "MODEL"));
    import_free(&f.import);

    take_file(&f, DATA "accelerate_ddp.yaml");
    expect(&f, "strategy ddp, gpus 4, autocast bf16, outputs fp32");
    import_free(&f.import);

    take_text(&f, SYNTAX_YAML,
              "distributed_type: FSDP\nmixed_precision: no\nfsdp_config:\n"
              "  fsdp_version: '2'\n  fsdp_auto_wrap_policy: SIZE_BASED_WRAP\n"
              "  fsdp_backward_prefetch: BACKWARD_PRE\n");
    expect(&f,
           "strategy fsdp2, param-dtype same, reduce-dtype same, reshard default, units blocks");
    expect_note(&f, NOTE_UNPLANNED, "fsdp_config.fsdp_auto_wrap_policy", 5, "blocks");
    expect_note(&f, NOTE_IDLE, "fsdp_config.fsdp_backward_prefetch", 6, "fsdp2 does not use it");
    import_free(&f.import);
}

/* ---- options ---- */

static void options_override_and_are_listed(void **state)
{
    (void)state;
    static const struct setting_given given[] = {{"gpus", "64"}, {"seq", "4096"}, {"reshard", "8"}};
    struct fixture f;
    struct err err = {0};
    assert_int_equal(
        take_with(&f, DATA "torchtitan_70b_tp.toml", 0, NULL, given, COUNT(given), &err), ERR_OK);
    /* what they make is computed with them: 512 sequences of 8 on 64 GPUs are one micro-batch */
    expect(&f, "accumulate 1, replicate 2");
    expect_note(&f, NOTE_OVERRIDDEN, "training.seq_len", 9, "--seq 4096");
    expect_note(&f, NOTE_OVERRIDDEN, "parallelism.fsdp_reshard_after_forward", 16, "--reshard 8");
    expect_note(&f, NOTE_OVERRIDDEN, "parallelism.data_parallel_shard_degree", 14, "--gpus 64");
    import_free(&f.import);
}

static void another_system_leaves_out_what_it_has_not(void **state)
{
    (void)state;
    static const struct setting_given given[] = {{"strategy", "ddp"}, {"gpus", "16"}};
    struct fixture f;
    struct err err = {0};
    assert_int_equal(
        take_with(&f, DATA "accelerate_fsdp2.yaml", 0, NULL, given, COUNT(given), &err), ERR_OK);
    expect(&f, "strategy ddp, autocast bf16");
    expect_note(&f, NOTE_IDLE, "fsdp_config.fsdp_reshard_after_forward", 10, "ddp does not use it");
    import_free(&f.import);
}

/* Options that a file of ours carries hold below those of the command line. */
static void a_file_carries_options(void **state)
{
    (void)state;
    static const char text[] =
        "# shardplan: gpt2 --gpu a100-sxm-80gb --seq 512 --profile 'my file.json'\n"
        "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n";
    static const struct setting_given given[] = {{"seq", "64"}};
    struct fixture f;
    struct err err = {0};
    assert_int_equal(take_with(&f, "x", SYNTAX_YAML, text, given, 1, &err), ERR_OK);
    expect(&f, "model gpt2, gpu a100-sxm-80gb, profile my file.json");
    import_free(&f.import);
    take_text(&f, SYNTAX_YAML, text);
    expect(&f, "seq 512");
    import_free(&f.import);
    assert_int_equal(take_with(&f, "x", SYNTAX_YAML,
                               "# shardplan: gpt2 seq\ndistributed_type: FSDP\n", NULL, 0, &err),
                     ERR_INVALID);
    assert_non_null(strstr(err.text, "\"seq\" is no option"));
    import_free(&f.import);
}

/* ---- mistakes ---- */

static void mistakes_name_line_key_and_what_is_allowed(void **state)
{
    (void)state;
    static const struct {
        enum document_syntax syntax;
        const char *text, *message;
    } cases[] = {
        {SYNTAX_TOML, "[parallelism]\n\nfsdp_reshard_after_forward = \"alway\"\n",
         "x:3: parallelism.fsdp_reshard_after_forward alway: allowed are default, always, never; "
         "did you mean always?"},
        {SYNTAX_TOML, "[training]\nseq_len = \"8192\"\n",
         "x:2: training.seq_len 8192: it is a text; allowed are integers"},
        {SYNTAX_TOML, "[training]\nseq_len = 0\n",
         "x:2: training.seq_len 0: allowed are integers from 1 on"},
        {SYNTAX_TOML, "[training]\nseq_len = 99999999999\n",
         "x:2: training.seq_len 99999999999: --seq 99999999999: allowed are integers 1 ..."},
        {SYNTAX_TOML, "[training]\nenable_cpu_offload = \"no\"\n",
         "x:2: training.enable_cpu_offload no: it is a text; allowed are true, false"},
        {SYNTAX_TOML, "[training]\nglobal_batch_size = 100\n",
         "x:2: training.global_batch_size 100: it is no multiple of 64, what 8 GPUs take at once"},
        {SYNTAX_TOML, "[parallelism]\ndata_parallel_shard_degree = 0\n",
         "x:2: parallelism.data_parallel_shard_degree 0: allowed are -1 and integers from 1 on"},
        {SYNTAX_TOML, "[training]\nmixed_precision_reduce = \"bfloat16\"\n",
         "x:2: training.mixed_precision_reduce bfloat16: allowed are float32"},
        {SYNTAX_YAML, "distributed_type: FSPD\n",
         "x:1: distributed_type FSPD: allowed are FSDP, MULTI_GPU, DEEPSPEED"},
        {SYNTAX_YAML, "distributed_type: MEGATRON_LM\n",
         "x:1: distributed_type MEGATRON_LM: shardplan plans FSDP, MULTI_GPU, DEEPSPEED and NO"},
        {SYNTAX_YAML, "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 3\n",
         "x:3: fsdp_config.fsdp_version 3: allowed are 1, 2"},
        {SYNTAX_YAML, "num_machines: 3\nnum_processes: 8\ndistributed_type: MULTI_GPU\n",
         "x:2: num_processes 8: num_machines does not divide it"},
        {SYNTAX_YAML,
         "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n"
         "  fsdp_reshard_after_forward: 8\n",
         "x:4: fsdp_config.fsdp_reshard_after_forward 8: it is an integer; allowed are true, "
         "false"},
        {SYNTAX_JSON, "{\"zero_optimization\": {\n\"stage\": 0}}",
         "x:2: zero_optimization.stage 0: allowed are 1, 2, 3: without ZeRO every rank updates "
         "whole fp32 copies"},
        {SYNTAX_JSON, "{\"zero_optimization\": {\n\"stage\": 4}}",
         "x:2: zero_optimization.stage 4: allowed are 1, 2, 3"},
        {SYNTAX_YAML,
         "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 4\n"
         "mixed_precision: bf16\n",
         "x:3: deepspeed_config.zero_stage 4: allowed are 1, 2, 3"},
        {SYNTAX_JSON, "{\"fsdp\": \"full_shart\"}",
         "x:1: fsdp full_shart: allowed are true, full_shard"},
        {SYNTAX_JSON, "{\"a\": 1}", "x: it is no configuration of torchtitan, accelerate"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct fixture f;
        struct err err = {0};
        const enum err_code rc = take_with(&f, "x", cases[i].syntax, cases[i].text, NULL, 0, &err);
        if (rc != ERR_INVALID || strncmp(err.text, cases[i].message, strlen(cases[i].message)) != 0)
            fail_msg("%s\n gives \"%s\"\n not   \"%s\"", cases[i].text, err.text, cases[i].message);
        import_free(&f.import);
    }
}

/* ---- the tables ---- */

/* Every word of a row is a value of its setting, and what a key is by default is one of its own. */
static void rows_speak_of_values_that_there_are(void **state)
{
    (void)state;
    static const struct framework *const all[] = {&framework_torchtitan, &framework_accelerate,
                                                  &framework_deepspeed, &framework_transformers};
    uint32_t count, values = 0;
    const struct setting *rows = setting_rows(&count);
    for (size_t f = 0; f < COUNT(all); f++)
        for (uint32_t i = 0; i < all[f]->row_count; i++) {
            const struct key_row *row = &all[f]->rows[i];
            const bool has_initial = row->initial && row->kind == KEY_WORD && row->words;
            bool initial = false;
            for (const struct key_word *w = row->words; w && w->key; w++) {
                initial = initial || (has_initial && strcmp(w->key, row->initial) == 0);
                for (uint32_t s = 0; s < count && w->setting; s++) {
                    struct settings settings;
                    struct err err = {0};
                    const uint32_t systems = row->systems ? row->systems : ~0U;
                    if (strcmp(rows[s].name, row->setting) != 0 ||
                        !setting_is_of(&rows[s], COMMAND_PLAN) ||
                        (rows[s].systems && !(rows[s].systems & systems)))
                        continue;
                    settings_defaults(&settings, COMMAND_PLAN);
                    if (setting_write(&rows[s], &settings, w->setting, &err) != ERR_OK)
                        fail_msg("%s: %s: %s", all[f]->name, row->path, err.text);
                    values++;
                }
            }
            if (has_initial && !initial)
                fail_msg("%s: %s is never %s", all[f]->name, row->path, row->initial);
        }
    assert_true(values > 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(torchtitans_file_gives_its_job),
        cmocka_unit_test(torchtitans_launcher_expands_segments),
        cmocka_unit_test(torchtitans_defaults_hold_where_it_is_silent),
        cmocka_unit_test(torchtitans_option_says_which_blocks_are_checkpointed),
        cmocka_unit_test(compiled_blocks_are_torchtitans),
        cmocka_unit_test(torchtitans_float8_is_ours),
        cmocka_unit_test(torchtitans_older_keys_are_read),
        cmocka_unit_test(torchtitans_batch_and_mesh_multiply),
        cmocka_unit_test(torchtitans_python_gives_the_same_settings),
        cmocka_unit_test(shared_batches_say_what_is_planned_in_their_place),
        cmocka_unit_test(slips_are_answered_with_the_key_that_is_meant),
        cmocka_unit_test(accelerates_file_gives_its_job),
        cmocka_unit_test(an_unknown_flavor_is_no_other_model),
        cmocka_unit_test(a_flavor_with_experts_is_torchtitans_code),
        cmocka_unit_test(a_model_without_a_preset_is_said),
        cmocka_unit_test(options_override_and_are_listed),
        cmocka_unit_test(another_system_leaves_out_what_it_has_not),
        cmocka_unit_test(a_file_carries_options),
        cmocka_unit_test(mistakes_name_line_key_and_what_is_allowed),
        cmocka_unit_test(rows_speak_of_values_that_there_are),
    };
    return cmocka_run_group_tests_name("import", tests, NULL, NULL);
}

/* test_import_dynamo.c - torch.compile as accelerate's and transformers' files ask for it: what
 * each becomes, and what is listed. Expected values are what accelerate 1.15 compiles, as recorded
 * (tests/data/truth/compile_steps_accelerate.jsonl). */
#include "tests/frameworks/import_fixture.h"

#define INDUCTOR "dynamo_config:\n  dynamo_backend: INDUCTOR\n"
#define BF16 "mixed_precision: bf16\n"
#define FSDP(version)                                                                              \
    "distributed_type: FSDP\nfsdp_config:\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"      \
    "  fsdp_version: " version "\n"

static void accelerates_model_is_whole(void **state)
{
    (void)state;
    static const struct {
        const char *text, *becomes;
    } cases[] = {
        {"distributed_type: MULTI_GPU\n" BF16 INDUCTOR,
         "compile model, code hf, autocast bf16, outputs fp32"},
        {"distributed_type: MULTI_GPU\n" INDUCTOR, "compile model, autocast none, outputs same"},
        {"distributed_type: 'NO'\n" BF16 INDUCTOR,
         "strategy single, compile model, autocast bf16, outputs fp32"},
        {FSDP("1") BF16 INDUCTOR,
         "compile model, param-dtype bf16, autocast bf16, outputs fp32, units blocks"},
        {FSDP("1") INDUCTOR, "compile model, autocast none, outputs same"},
        {FSDP("2") BF16 INDUCTOR, "compile model, param-dtype bf16, units torchtitan"},
        {"distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 2\n" BF16 INDUCTOR,
         "strategy zero2, compile model"},
    };
    struct fixture f;
    for (size_t i = 0; i < COUNT(cases); i++) {
        take_text(&f, SYNTAX_YAML, cases[i].text);
        expect(&f, cases[i].becomes);
        assert_null(find_note(&f, NOTE_UNPLANNED, "dynamo_config.dynamo_backend"));
        import_free(&f.import);
    }
}

static void accelerates_regions_are_blocks(void **state)
{
    (void)state;
    struct fixture f;
    take_text(&f, SYNTAX_YAML,
              "distributed_type: MULTI_GPU\n" BF16 INDUCTOR
              "  dynamo_use_regional_compilation: true\n");
    expect(&f, "compile on, autocast bf16, outputs fp32");
    expect_note(&f, NOTE_UNPLANNED, "dynamo_config.dynamo_backend", 4, "beside blocks");
    import_free(&f.import);
}

static void what_is_otherwise_is_listed(void **state)
{
    (void)state;
    static const struct {
        const char *text, *becomes, *key, *why;
        uint32_t line;
    } cases[] = {
        {"distributed_type: MULTI_GPU\n" INDUCTOR "  dynamo_mode: reduce-overhead\n",
         "compile model", "dynamo_config.dynamo_mode", "CUDA graphs", 4},
        {"distributed_type: MULTI_GPU\n" INDUCTOR "  dynamo_mode: max-autotune-no-cudagraphs\n",
         "compile model", "dynamo_config.dynamo_mode", "measuring", 4},
        {"distributed_type: MULTI_GPU\n" INDUCTOR "  dynamo_use_dynamic: true\n", "compile model",
         "dynamo_config.dynamo_use_dynamic", "symbolic", 4},
        {"distributed_type: MULTI_GPU\ndynamo_config:\n  dynamo_backend: EAGER\n", "compile off",
         "dynamo_config.dynamo_backend", "not Inductor", 3},
        {"distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 3\n" BF16 INDUCTOR,
         "strategy zero3", "dynamo_config.dynamo_backend", "ZeRO-3", 6},
        {"distributed_type: FSDP\nfsdp_config:\n  fsdp_auto_wrap_policy: SIZE_BASED_WRAP\n"
         "  fsdp_min_num_params: 5000000\n  fsdp_version: 1\n" BF16 INDUCTOR,
         "compile off, units 5000000", "dynamo_config.dynamo_backend", "--units 5000000", 8},
    };
    struct fixture f;
    for (size_t i = 0; i < COUNT(cases); i++) {
        take_text(&f, SYNTAX_YAML, cases[i].text);
        expect(&f, cases[i].becomes);
        expect_note(&f, NOTE_UNPLANNED, cases[i].key, cases[i].line, cases[i].why);
        import_free(&f.import);
    }
}

#define MODEL "\"model_name_or_path\": \"meta-llama/Llama-3.2-1B\", "

static void trainers_model_is_whole(void **state)
{
    (void)state;
    struct fixture f;
    take_text(&f, SYNTAX_JSON, "{" MODEL "\"bf16\": true, \"torch_compile\": true}");
    expect(&f, "compile model, autocast bf16, outputs fp32, find-unused-parameters on");
    import_free(&f.import);
    take_text(&f, SYNTAX_JSON, /* __post_init__: it turns torch_compile on */
              "{" MODEL "\"torch_compile_mode\": \"max-autotune\"}");
    expect(&f, "compile model, outputs same");
    expect_note(&f, NOTE_UNPLANNED, "torch_compile_mode", 1, "CUDA graphs");
    import_free(&f.import);
    take_text(&f, SYNTAX_JSON, "{" MODEL "\"torch_compile\": false}");
    expect(&f, "compile off");
    import_free(&f.import);
    take_text(
        &f, SYNTAX_JSON,
        "{\"model_name_or_path\": \"microsoft/Phi-3.5-MoE-instruct\", \"torch_compile\": true}");
    expect(&f, "compile off");
    expect_note(&f, NOTE_UNPLANNED, "torch_compile", 1, "phimoe");
    import_free(&f.import);
    take_text(&f, SYNTAX_JSON, "{\"model_name_or_path\": \"gpt2\", \"torch_compile\": true}");
    expect(&f, "model gpt2, compile model");
    import_free(&f.import);
}

#define ADAPTERS                                                                                   \
    "model_name_or_path: meta-llama/Llama-3.2-1B\nfinetuning_type: lora\n"                         \
    "per_device_train_batch_size: 1\ntorch_compile: true\nbf16: true\n"

/* As is recorded in compile_steps_frozen.jsonl and compile_steps_peft.jsonl: where FSDP1 has
 * adapters in units of their own, hooks are inside of blocks, and of checkpointed ones nothing is.
 */
static void trainers_adapters_are_compiled(void **state)
{
#define FULL_SHARD(version) "fsdp: full_shard auto_wrap\nfsdp_config:\n  version: " version "\n"
    static const struct {
        const char *text, *becomes, *why; /* NULL: it is compiled */
    } cases[] = {
        {ADAPTERS "lora_dropout: 0.1\n", "compile off, lora-dropout 0.1, checkpointing full",
         "dropout"},
        {ADAPTERS, "compile model, frozen-dtype bf16, autocast bf16", NULL},
        {ADAPTERS FULL_SHARD("2"), "compile model, frozen-dtype param", NULL},
        {ADAPTERS FULL_SHARD("1"), "compile off, units peft", "--units peft in checkpointed"},
        {ADAPTERS "disable_gradient_checkpointing: true\n" FULL_SHARD("1"),
         "compile model, units peft, checkpointing none", NULL},
    };
    (void)state;
    struct fixture f;
    for (size_t i = 0; i < COUNT(cases); i++) {
        take_text(&f, SYNTAX_YAML, cases[i].text);
        expect(&f, cases[i].becomes);
        if (cases[i].why)
            expect_note(&f, NOTE_UNPLANNED, "torch_compile", 4, cases[i].why);
        else
            assert_null(find_note(&f, NOTE_UNPLANNED, "torch_compile"));
        import_free(&f.import);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accelerates_model_is_whole),
        cmocka_unit_test(accelerates_regions_are_blocks),
        cmocka_unit_test(what_is_otherwise_is_listed),
        cmocka_unit_test(trainers_model_is_whole),
        cmocka_unit_test(trainers_adapters_are_compiled),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

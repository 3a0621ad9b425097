/* test_import_llama_factory.c - files of LLaMA-Factory v1. */
#include "tests/frameworks/import_fixture.h"

#define V1 "model: Qwen/Qwen3-0.6B\ntrain_dataset: x\n"
#define SHARDED V1 "dist_config:\n  name: fsdp2\n"

static void take_given(struct fixture *f, const char *text, const char *option, const char *value)
{
    const struct setting_given given[] = {{option, value}};
    struct err err = {0};
    if (take_with(f, "x", SYNTAX_YAML, text, given, 1, &err) != ERR_OK)
        fail_msg("%s\n%s", text, err.text);
}

static void expect_refused(const char *text, const char *why)
{
    struct fixture f;
    struct err err = {0};
    assert_int_equal(take_with(&f, "x", SYNTAX_YAML, text, NULL, 0, &err), ERR_INVALID);
    if (!strstr(err.text, why))
        fail_msg("%s\n%s", text, err.text);
    import_free(&f.import);
}

/* What FSDP2Engine shards, casts and keeps, and what BatchGenerator and the launcher do. */
static void a_model_is_trained_whole(void **state)
{
    (void)state;
    struct fixture f;
    take_file(&f, DATA "llama_factory_v1_full.yaml");
    assert_string_equal(f.import.about, "a configuration of LLaMA-Factory v1");
    expect(&f, "model qwen3-0.6b, code hf, strategy fsdp2, units blocks, reshard always");
    expect(&f, "param-dtype bf16, reduce-dtype fp32, store-dtype fp32, offload none");
    expect(&f, "checkpointing full, checkpoint-reentrant off, attention flash-attn");
    expect(&f, "seq 8192, sample-tokens 2048, micro-batch 1, accumulate 2, accumulate-sync each");
    expect(&f, "optimizer adamw, optimizer-impl foreach, clip 1, expandable-segments on");
    expect(&f, "loss per-token");
    expect_note(&f, NOTE_UNSAID, "batching_strategy", 17, "4 of 2048 tokens in one sequence");
    expect_note(&f, NOTE_IDLE, "kernel_config.name", 5, NULL);
    assert_true(leaves_open(&f, "--gpus"));
    import_free(&f.import);
}

/* Beside adapters the model is in the dtype of its checkpoint. */
static void adapters_are_beside_frozen_weights(void **state)
{
    (void)state;
    struct fixture f;
    take_file(&f, DATA "llama_factory_v1_lora.yaml");
    expect(&f, "lora-dropout 0.1, frozen-dtype param, store-dtype fp32, reshard never");
    expect(&f, "units embeddings, input-grads on");
    expect(&f, "load-in-4bit nf4, bnb-double-quant on, bnb-compute-dtype bf16");
    expect(&f, "bnb-quant-storage bf16, seq 2048, micro-batch 2");
    assert_memory_equal(f.settings.job.model.lora, "16,", 3);
    expect(&f, "adapter-units off");
    expect_note(&f, NOTE_UNPLANNED, "peft_config.name", 5, "units of their own");
    import_free(&f.import);
    take_text(&f, SYNTAX_YAML,
              V1 "peft_config:\n  name: lora\n  target_modules: [q_proj, v_proj]\n");
    assert_string_equal(f.settings.job.model.lora, "8,q_proj,v_proj");
    expect(&f, "strategy ddp, lora-dropout 0.05, frozen-dtype bf16, input-grads off");
    import_free(&f.import);
    take_text(&f, SYNTAX_YAML,
              SHARDED "peft_config:\n  name: lora\nquant_config:\n  name: auto\n"
                      "  quantization_bit: 4\n");
    expect(&f, "bnb-compute-dtype bf16, bnb-quant-storage bf16, adapter-units on");
    expect_note(&f, NOTE_UNPLANNED, "quant_config.compute_dtype", 0, "their bits are lost");
    import_free(&f.import);
    take_text(&f, SYNTAX_YAML, SHARDED "quant_config:\n  name: bnb\n");
    expect_note(&f, NOTE_UNPLANNED, "quant_config.name", 6, "a model without adapters");
    import_free(&f.import);
}

static void layers_are_frozen(void **state)
{
    (void)state;
    struct fixture f;
    take_text(&f, SYNTAX_YAML,
              SHARDED "peft_config:\n  name: freeze\n  freeze_trainable_layers: 27\n"
                      "  freeze_extra_modules: null\n");
    assert_string_equal(f.settings.job.model.frozen,
                        "*embed_tokens*,model.norm.*,lm_head.*,*.layers.0.*");
    expect(&f, "frozen-dtype param, store-dtype fp32");
    import_free(&f.import);
    take_text(&f, SYNTAX_YAML,
              SHARDED "peft_config:\n  name: freeze\n  freeze_trainable_layers: -27\n"
                      "  freeze_extra_modules: [norm]\n"
                      "  cast_trainable_params_to_fp32: false\n");
    assert_string_equal(f.settings.job.model.frozen,
                        "*embed_tokens*,model.norm.*,lm_head.*,*.layers.27.*");
    expect(&f, "store-dtype bf16, frozen-dtype store");
    expect_note(&f, NOTE_UNPLANNED, "peft_config.freeze_extra_modules", 8, "planned as frozen");
    import_free(&f.import);
}

/* The system that the file and the launcher make, and what is cast under it. */
static void systems_are_as_the_trainer_has_them(void **state)
{
    (void)state;
    struct fixture f;
    take_text(&f, SYNTAX_YAML, V1);
    expect(&f, "strategy ddp, autocast none, store-dtype fp32, accumulate-sync each");
    import_free(&f.import);
    take_given(&f, SHARDED, "gpus", "1");
    expect(&f, "strategy single, autocast none, store-dtype fp32, expandable-segments off");
    import_free(&f.import);
    take_text(&f, SYNTAX_YAML, SHARDED "bf16: false\nmp_replicate_size: 2\nmp_shard_size: 4\n");
    expect(&f, "strategy fsdp2, param-dtype fp32, gpus 8, replicate 2");
    import_free(&f.import);
    take_text(&f, SYNTAX_YAML, V1 "dist_config:\n  name: fsdpturbo\n  ep_size: 4\n");
    expect(&f, "strategy fsdp2, param-dtype bf16, store-dtype bf16");
    expect_note(&f, NOTE_UNPLANNED, "dist_config.ep_size", 5, "tokens are sent to");
    import_free(&f.import);
    take_text(&f, SYNTAX_YAML, SHARDED "dp_size: 4\ncp_size: 2\nglobal_batch_size: 16\n");
    expect(&f, "gpus 8, accumulate 4");
    expect_note(&f, NOTE_UNPLANNED, "cp_size", 6, "2 GPUs share the tokens");
    import_free(&f.import);
}

/* v0's launcher has the environment of v1's. */
static void its_launcher_expands_segments(void **state)
{
    static const char v0[] = "model_name_or_path: Qwen/Qwen3-8B\nstage: sft\n";
    (void)state;
    struct fixture f;
    take_text(&f, SYNTAX_YAML, v0);
    expect(&f, "strategy ddp, expandable-segments on");
    import_free(&f.import);
    take_given(&f, v0, "gpus", "1");
    expect(&f, "strategy single, expandable-segments off");
    import_free(&f.import);
    take_text(&f, SYNTAX_YAML, "base_model: Qwen/Qwen3-8B\nbf16: true\n");
    expect(&f, "expandable-segments off");
    import_free(&f.import);
}

static void deepspeed_has_a_file_of_its_own(void **state)
{
    (void)state;
    struct fixture f;
    take_file(&f, DATA "llama_factory_v1_zero.yaml");
    expect(&f, "strategy zero2, param-dtype bf16, optimizer-impl foreach, clip 1");
    expect(&f, "micro-batch 1, seq 2048, checkpointing full");
    assert_string_equal(f.settings.job.model.liger, "rope,rms_norm,glu");
    expect(&f, "loss per-token-liger");
    expect_note(&f, NOTE_IDLE, "max_grad_norm", 11, NULL);
    import_free(&f.import);
}

static void what_changes_a_step_is_listed(void **state)
{
    static const struct {
        const char *keys, *key, *why;
        uint32_t line;
    } cases[] = {
        {"optim_config:\n  name: muon\n", "optim_config.name", "planned as AdamW", 4},
        {"pref_loss: sigmoid\n", "pref_loss", "the reference's forward", 3},
        {"pref_loss: orpo\n", "pref_loss", "a pair is one sequence of both", 3},
        {"model_class: cls\n", "model_class", "another class", 3},
        {"enable_activation_checkpointing: false\n", "enable_activation_checkpointing", "cache", 3},
        {"kernel_config:\n  name: auto, cuda_fused_moe\n", "kernel_config.name", "cuda_fused_moe",
         4},
    };
    (void)state;
    struct fixture f;
    for (size_t i = 0; i < COUNT(cases); i++) {
        char text[256];
        snprintf(text, sizeof text, V1 "%s", cases[i].keys);
        take_text(&f, SYNTAX_YAML, text);
        expect_note(&f, NOTE_UNPLANNED, cases[i].key, cases[i].line, cases[i].why);
        import_free(&f.import);
    }
    take_text(&f, SYNTAX_YAML, V1 "batching_strategy: dynamic_batching\nmicro_batch_size: 2\n");
    expect(&f, "seq 2048, micro-batch 2, sample-tokens 0");
    expect_note(&f, NOTE_UNSAID, "batching_strategy", 3, "how many samples are in 4096 tokens");
    import_free(&f.import);
}

static void what_is_no_such_job_is_refused(void **state)
{
    (void)state;
    expect_refused(V1 "peft_config:\n  name: lora\n  export_dir: out\n", "no training job");
    expect_refused(V1 "batching_strategy: padding_free\n", "flash_attention_2");
    expect_refused(V1 "global_batch_size: 9\nmicro_batch_size: 2\n", "does not divide it");
    expect_refused(V1 "dist_config:\n  name: deepspeed\n", "config_file is missing");
    expect_refused(V1 "dist_config:\n  name: fsdp\n", "did you mean fsdp2");
    expect_refused(SHARDED "quant_config:\n  name: bnb\n  quantization_bit: 2\n", "4, 8");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_is_trained_whole),
        cmocka_unit_test(adapters_are_beside_frozen_weights),
        cmocka_unit_test(layers_are_frozen),
        cmocka_unit_test(systems_are_as_the_trainer_has_them),
        cmocka_unit_test(its_launcher_expands_segments),
        cmocka_unit_test(deepspeed_has_a_file_of_its_own),
        cmocka_unit_test(what_changes_a_step_is_listed),
        cmocka_unit_test(what_is_no_such_job_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

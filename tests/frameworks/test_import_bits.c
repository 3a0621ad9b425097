/* test_import_bits.c - weights in few bits, as axolotl, LLaMA-Factory and TRL load them of their
 * files' keys.
 *
 * Expected values are those of the trainers' own sources, written down by hand. */
#include "tests/frameworks/import_fixture.h"

/* Weights in 4 or 8 bits, with what axolotl's loaders/model.py, LLaMA-Factory's model_args.py and
 * TRL's trainer/utils.py give BitsAndBytesConfig; and where they are not planned. */
static void weights_in_few_bits_are_the_trainers_own(void **state)
{
    static const struct {
        const char *text, *holds, *unplanned;
    } cases[] = {
        {"base_model: Qwen/Qwen3-8B\nadapter: qlora\nload_in_4bit: true\nbf16: auto\n"
         "lora_r: 32\nlora_target_linear: true\n",
         "load-in-4bit nf4, bnb-double-quant on, bnb-compute-dtype bf16, "
         "frozen-dtype bf16, store-dtype fp32, autocast bf16",
         NULL},
        {"base_model: Qwen/Qwen3-8B\nadapter: qlora\nload_in_4bit: true\nbf16: auto\n"
         "lora_r: 32\nlora_target_linear: true\nbnb_config_kwargs:\n"
         "  bnb_4bit_use_double_quant: false\n  bnb_4bit_quant_type: fp4\n",
         "load-in-4bit fp4, bnb-double-quant off", NULL},
        {"base_model: Qwen/Qwen3-8B\nadapter: qlora\nload_in_4bit: true\nlora_r: 32\n"
         "bf16: false\nlora_target_linear: true\n",
         "load-in-4bit nf4, bnb-compute-dtype fp32, frozen-dtype store", NULL},
        {"base_model: Qwen/Qwen3-8B\nadapter: qlora\nload_in_4bit: true\nbf16: true\nlora_r: 32\n"
         "lora_target_linear: true\nfsdp_version: 2\nfsdp_config:\n"
         "  reshard_after_forward: true\n",
         "strategy fsdp2, load-in-4bit nf4, bnb-quant-storage bf16, param-dtype bf16, "
         "frozen-dtype param",
         NULL},
        {"base_model: Qwen/Qwen3-8B\nadapter: qlora\nload_in_4bit: true\nbf16: true\nlora_r: 32\n"
         "lora_target_linear: true\nfsdp:\n  - full_shard\n  - auto_wrap\nfsdp_config:\n"
         "  fsdp_use_orig_params: false\n",
         "strategy fsdp1, load-in-4bit nf4, bnb-quant-storage bf16, frozen-dtype param, units peft",
         NULL},
        {"model_name_or_path: Qwen/Qwen3-8B\nstage: sft\nfinetuning_type: lora\n"
         "quantization_bit: 4\nbf16: true\ndeepspeed: tests/data/frameworks/deepspeed_auto.json\n",
         "strategy zero2, load-in-4bit nf4, bnb-quant-storage bf16, bnb-compute-dtype bf16", NULL},
        {"model_name_or_path: Qwen/Qwen3-8B\nstage: sft\nfinetuning_type: lora\n"
         "quantization_bit: 8\nbf16: true\ndeepspeed: tests/data/frameworks/deepspeed_auto.json\n",
         "strategy zero2, load-in-8bit on", NULL},
        {"model_name_or_path: Qwen/Qwen3-8B\nstage: sft\nfinetuning_type: lora\n"
         "quantization_bit: 4\ndeepspeed: tests/data/frameworks/deepspeed_zero3.json\n",
         "strategy zero3, load-in-4bit none, param-dtype bf16",
         "not planned of zero3: planned in bf16"},
        {"base_model: Qwen/Qwen3-8B\nadapter: lora\nload_in_4bit: true\nlora_r: 32\n"
         "bf16: true\nlora_target_linear: true\n",
         "load-in-4bit none", "adapter: lora"},
        {"base_model: mistralai/Mixtral-8x7B-v0.1\nadapter: qlora\nload_in_4bit: true\n"
         "lora_r: 32\nbf16: true\nlora_target_modules: [q_proj, v_proj]\n",
         "load-in-4bit nf4, frozen-dtype bf16", NULL},
        {"model_name_or_path: Qwen/Qwen3-8B\nstage: sft\nfinetuning_type: lora\n"
         "quantization_bit: 4\nbf16: true\n",
         "load-in-4bit nf4, bnb-double-quant on, bnb-compute-dtype bf16, "
         "frozen-dtype bf16",
         NULL},
        {"model_name_or_path: Qwen/Qwen3-8B\nstage: sft\nfinetuning_type: lora\n"
         "quantization_bit: 4\ndouble_quantization: false\nquantization_type: fp4\nfp16: true\n",
         "load-in-4bit fp4, bnb-double-quant off, bnb-compute-dtype fp16, "
         "bnb-quant-storage fp16",
         NULL},
        {"model_name_or_path: Qwen/Qwen3-8B\nstage: sft\nfinetuning_type: lora\n"
         "quantization_bit: 8\nbf16: true\n",
         "load-in-4bit none, load-in-8bit on, frozen-dtype bf16", NULL},
        {"model_name_or_path: Qwen/Qwen3-8B\nstage: sft\nfinetuning_type: lora\n"
         "quantization_bit: 3\nquantization_method: hqq\nbf16: true\n",
         "load-in-4bit none", "frozen weights in few bits: planned in bf16"},
        {"base_model: Qwen/Qwen3-8B\nadapter: lora\nload_in_8bit: true\nbf16: auto\n"
         "lora_r: 32\nlora_target_linear: true\n",
         "load-in-8bit on, load-in-4bit none, frozen-dtype bf16, store-dtype fp32", NULL},
        {"base_model: Qwen/Qwen3-30B-A3B\nadapter: qlora\nload_in_4bit: true\n"
         "quantize_moe_experts: true\nlora_r: 32\nbf16: true\nlora_target_modules: [q_proj]\n",
         "load-in-4bit nf4, quantize-moe-experts on, frozen-dtype bf16", NULL},
        {"base_model: Qwen/Qwen3-30B-A3B\nadapter: lora\nload_in_8bit: true\n"
         "quantize_moe_experts: true\nlora_r: 32\nbf16: true\nlora_target_modules: [q_proj]\n",
         "load-in-8bit on, quantize-moe-experts off",
         "experts in few bits, which are planned beside linear layers in 4 bits"},
        {"base_model: Qwen/Qwen3-8B\nadapter: qlora\nload_in_4bit: true\n"
         "quantize_moe_experts: true\nlora_r: 32\nbf16: true\nlora_target_modules: [q_proj]\n",
         "load-in-4bit nf4, quantize-moe-experts off", NULL},
        {"base_model: tiiuae/Falcon-H1-7B-Base\nadapter: qlora\nload_in_4bit: true\n"
         "lora_r: 32\nbf16: true\nlora_target_modules: [q_proj, in_proj]\n",
         "load-in-4bit nf4, llm-int8-skip-modules out_proj, frozen-dtype bf16", NULL},
        {"base_model: tiiuae/Falcon-H1-7B-Base\nadapter: qlora\nload_in_4bit: true\n"
         "lora_r: 32\nbf16: true\nlora_target_modules: [q_proj, in_proj]\n"
         "bnb_config_kwargs:\n  llm_int8_skip_modules: [mamba.out_proj]\n",
         "load-in-4bit nf4, llm-int8-skip-modules mamba.out_proj", NULL},
        {"base_model: nvidia/Nemotron-H-8B-Base-8K\nadapter: qlora\nload_in_4bit: true\n"
         "lora_r: 32\nbf16: true\nlora_target_modules: [q_proj]\n",
         "load-in-4bit none", "mat1 and mat2 shapes cannot be multiplied"},
        {"base_model: deepseek-ai/DeepSeek-V3\nadapter: lora\nload_in_8bit: true\n"
         "bf16: true\nlora_r: 32\nlora_target_modules: [o_proj]\n",
         "load-in-8bit off, frozen-dtype bf16", "Only two or three dimensional matrices"},
        {"model_name_or_path: Qwen/Qwen3-8B\nuse_peft: true\nload_in_8bit: true\n"
         "dtype: bfloat16\n",
         "load-in-8bit on, lora 16, store-dtype bf16", NULL},
        {"model_name_or_path: Qwen/Qwen3-8B\nstage: sft\nfinetuning_type: lora\n"
         "quantization_bit: 4\nquantization_method: hqq\nbf16: true\n",
         "load-in-4bit none", "another method"},
        {"model_name_or_path: Qwen/Qwen3-8B\nstage: sft\nfinetuning_type: full\n"
         "quantization_bit: 4\nbf16: true\n",
         "load-in-4bit none", "a model without adapters"},
        {"model_name_or_path: Qwen/Qwen3-8B\nuse_peft: true\nload_in_4bit: true\n"
         "dtype: bfloat16\nuse_bnb_nested_quant: true\n",
         "load-in-4bit nf4, bnb-double-quant on, bnb-compute-dtype bf16, lora 16, "
         "lora-dropout 0.05, store-dtype bf16, frozen-dtype store, autocast bf16, seq 1024, "
         "checkpointing full",
         NULL},
        {"model_name_or_path: Qwen/Qwen3-8B\nuse_peft: true\nload_in_4bit: true\nlora_r: 8\n"
         "gradient_checkpointing: false\nmax_length: 2048\nlora_dropout: 0\n",
         "load-in-4bit nf4, bnb-double-quant off, bnb-compute-dtype fp32, lora 8, "
         "lora-dropout 0, store-dtype fp32, frozen-dtype store, autocast bf16, seq 2048, "
         "checkpointing none",
         "TRL casts adapters"},
        {"model_name_or_path: Qwen/Qwen3-8B\nuse_peft: true\nmodel_init_kwargs:\n"
         "  dtype: bfloat16\n",
         "load-in-4bit none, lora 16, store-dtype fp32, frozen-dtype bf16", NULL},
        {"model_name_or_path: Qwen/Qwen3-8B\nuse_peft: true\ndtype: bfloat16\n",
         "load-in-4bit none, lora 16, store-dtype fp32, frozen-dtype bf16", NULL},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct fixture f;
        take_text(&f, SYNTAX_YAML, cases[i].text);
        expect(&f, cases[i].holds);
        const char *listed = import_lines(&f.import, NOTE_UNPLANNED);
        const char *lines = listed ? listed : "nothing is listed";
        if (cases[i].unplanned ? !strstr(lines, cases[i].unplanned)
                               : strstr(lines, "4 bits") || strstr(lines, "8 bits"))
            fail_msg("%s\n%s", cases[i].text, lines);
        import_free(&f.import);
    }
}

/* axolotl casts norms and embeddings back to bf16 behind prepare_model_for_kbit_training, which it
 * does not call where experts are in 4 bits, or where anything is sharded. */
static void experts_are_cast_as_axolotl_does(void **state)
{
    static const char text[] = "base_model: Qwen/Qwen3-30B-A3B\nadapter: qlora\n"
                               "load_in_4bit: true\nlora_r: 32\nbf16: true\n"
                               "lora_target_modules: [q_proj]\n";
    static const struct {
        const char *more, *globs;
    } cases[] = {
        {"", "*norm*,*embed*,*lm_head*"},
        {"quantize_moe_experts: true\n", NULL},
        {"fsdp_version: 2\nfsdp_config:\n  reshard_after_forward: true\n", NULL},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct fixture f;
        char whole[512], buffer[NUMBER_TEXT];
        snprintf(whole, sizeof whole, "%s%s", text, cases[i].more);
        take_text(&f, SYNTAX_YAML, whole);
        const char *globs = settings_get(&f.settings, "kbit-cast-back", buffer);
        if (!globs != !cases[i].globs || (globs && strcmp(globs, cases[i].globs) != 0))
            fail_msg("%s: %s", whole, globs ? globs : "none");
        import_free(&f.import);
    }
}

/* torchao's states are the host's where parameters are, and what is not planned is listed. */
static void optimizers_on_the_host_are_listed(void **state)
{
    (void)state;
    struct fixture f;
    take_text(&f, SYNTAX_YAML,
              "base_model: Qwen/Qwen3-8B\nbf16: true\noptimizer: adamw_torch_4bit\n"
              "fsdp_config:\n  fsdp_version: 2\n  offload_params: true\n");
    expect(&f, "strategy fsdp2, offload cpu, optimizer adamw");
    expect_note(&f, NOTE_UNPLANNED, "optimizer", 3, "on the host");
    import_free(&f.import);
    take_text(&f, SYNTAX_YAML, "base_model: Qwen/Qwen3-8B\noptimizer: muon\n");
    expect_note(&f, NOTE_UNPLANNED, "optimizer", 2, "planned as AdamW");
    import_free(&f.import);
}

/* A file of DeepSpeed's that is not there is somebody's to put there. */
static void where_a_file_comes_from_is_said(void **state)
{
    static const char *const cases[][2] = {
        {"deepspeed_configs/nowhere.json", "`axolotl fetch deepspeed_configs`"},
        {"examples/nowhere.json", "LLaMA-Factory's folder"},
        {"nowhere.json", "nowhere.json: No such file"},
    };
    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct fixture f;
        struct err err = {0};
        char text[128];
        snprintf(text, sizeof text, "base_model: Qwen/Qwen3-8B\ndeepspeed: %s\n", cases[i][0]);
        assert_int_not_equal(take_with(&f, "x", SYNTAX_YAML, text, NULL, 0, &err), ERR_OK);
        if (!strstr(err.text, cases[i][1]))
            fail_msg("%s", err.text);
        import_free(&f.import);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_in_few_bits_are_the_trainers_own),
        cmocka_unit_test(experts_are_cast_as_axolotl_does),
        cmocka_unit_test(optimizers_on_the_host_are_listed),
        cmocka_unit_test(where_a_file_comes_from_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* test_presets.c - presets, and the names that stand for them. */
#include "families/config.h"
#include "families/families.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void every_preset_passes_the_checks_of_a_file(void **state)
{
    (void)state;
    const struct model_preset *preset;
    uint32_t count = 0;
    for (; (preset = model_preset_at(count)) != NULL; count++) {
        struct err err = {0};
        if (model_config_check(&preset->config, preset->name, &err) != ERR_OK)
            fail_msg("%s", err.text);
        for (uint32_t j = 0; j < count; j++)
            assert_string_not_equal(preset->name, model_preset_at(j)->name);
    }
    assert_true(count > 50);
}

static void an_unknown_preset_is_answered_with_the_nearest(void **state)
{
    (void)state;
    static const struct {
        const char *asked, *nearest;
    } cases[] = {
        {"lama-3.1-8b", "the nearest are llama-3.1-8b,"},
        {"meta-llama/Llama-3.1-71B", "the nearest are llama-3.1-70b,"},
        {"GPT2-XXL", "the nearest are gpt2-xl,"},
        {"qwen2.5-7", "the nearest are qwen2.5-7b,"},
        {"katanemo/Plano-Orchestrator-4B", "; none is near, `shardplan models` lists them"},
        {"Qwen/Qwen3-6B-Instruct-2601-BF16", "the nearest are qwen3-4b-2507,"},
        {"tiiuae/Falcon-H1-2B-Base", "falcon-h1-"},
        {"TheBloke/Llama-2-7B-GPTQ",
         "weights in GPTQ are not planned; llama-2-7b is the same model without"},
        {"nobody/Plano-AWQ-4B", "; none is near"},
        {"xyz/abc-7b", "; none is near"},
        {"gpt-5", "the nearest are gpt2, gpt2-xl and gpt"},
        {"bert", "the nearest are bert-"},
        {"", "no preset is called \"\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct model_config config;
        struct err err = {0};
        assert_int_equal(model_preset_find(cases[i].asked, &config, &err), ERR_INVALID);
        assert_non_null(strstr(err.text, cases[i].nearest));
        assert_int_equal(config.hidden + config.layers, 0);
    }
}

/* The left ones are names on Hugging Face, or how people write them. */
static void a_preset_is_found_by_the_names_people_have_for_it(void **state)
{
    (void)state;
    static const char *const names[][2] = {
        {"Llama-3.1-8B", "llama-3.1-8b"},
        {"llama3.1-8b", "llama-3.1-8b"},
        {"meta-llama/Llama-3.1-8B", "llama-3.1-8b"},
        {"meta-llama/Meta-Llama-3.1-8B", "llama-3.1-8b"},
        {"meta-llama/Meta-Llama-3-70B", "llama-3-70b"},
        {"meta-llama/Llama-2-7b-hf", "llama-2-7b"},
        {"meta-llama/Llama-3.3-70B-Instruct", "llama-3.3-70b"},
        {"mistralai/Mixtral-8x7B-v0.1", "mixtral-8x7b"},
        {"Qwen/Qwen2.5-7B", "qwen2.5-7b"},
        {"openai-community/gpt2-xl", "gpt2-xl"},
        {"gpt-2", "gpt2"},
        {"EleutherAI/pythia-1.4b", "pythia-1.4b"},
        {"google-bert/bert-base-uncased", "bert-base"},
        /* other weights of the same shape, and how they are stored */
        {"Qwen/Qwen3-4B-Instruct-2507", "qwen3-4b-2507"},
        {"Qwen/Qwen3-4B", "qwen3-4b"},
        {"Qwen/Qwen3-235B-A22B-Thinking-2507", "qwen3-235b-a22b-2507"},
        {"microsoft/phi-1_5", "phi-1.5"},
        {"stabilityai/stablelm-2-1_6b", "stablelm-2-1.6b"},
        {"EleutherAI/pythia-12b-deduped", "pythia-12b"},
        {"casperhansen/llama-3-70b-fp16", "llama-3-70b"},
        {"deepseek-ai/DeepSeek-V3-0324-BF16", "deepseek-v3"},
        {"unsloth/Meta-Llama-3.1-8B-Instruct-unsloth-bnb-4bit", "llama-3.1-8b"},
        {"hugging-quants/Meta-Llama-3.1-405B-BNB-NF4-BF16", "llama-3.1-405b"},
        {"TinyLlama/TinyLlama_v1.1", "tinyllama-1.1b"},
        {"TinyLlama/TinyLlama-1.1B-Chat-v1.0", "tinyllama-1.1b"},
        {"deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", "deepseek-r1-distill-qwen-1.5b"}, /* untied */
        {"deepseek-ai/DeepSeek-R1-Distill-Llama-70B", "llama-3.3-70b"},
        /* what looks like other weights of one shape, and is not */
        {"mistralai/Mistral-7B-Instruct-v0.1", "mistral-7b"},
        {"mistralai/Mistral-7B-Instruct-v0.2", "mistral-7b-v0.2"},
        {"mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b-v0.3"},
        {"codellama/CodeLlama-7b-Python-hf", "codellama-7b-python"},
        {"codellama/CodeLlama-7b-Instruct-hf", "codellama-7b"},
        {"codellama/CodeLlama-70b-Instruct-hf", "codellama-70b-instruct"},
        {"mistralai/Mixtral-8x22B-Instruct-v0.1", "mixtral-8x22b-instruct"}, /* 768 tokens more */
        {"mistral-community/Mixtral-8x22B-v0.1", "mixtral-8x22b"},
        {"arcee-ai/AFM-4.5B-Base", "afm-4.5b-base"},
        {"arcee-ai/AFM-4.5B", "afm-4.5b"},
        {"bigcode/starcoder2-15b-instruct-v0.1", "starcoder2-15b-instruct"},
        {"ibm-granite/granite-3.1-1b-a400m-instruct", "granite-3.1-1b-a400m"},
        {"ibm-granite/granite-3.1-1b-a400m-base", "granite-3.1-1b-a400m-base"},
        {"THUDM/glm-4-9b-chat-hf", "glm-4-9b-chat-hf"},
        {"teknium/OpenHermes-2.5-Mistral-7B", "openhermes-2-mistral-7b"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct model_preset *found = model_preset_of(names[i][0]);
        if (!found || strcmp(found->name, names[i][1]) != 0)
            fail_msg("%s: %s", names[i][0], found ? found->name : "nothing");
    }
    assert_null(model_preset_of("/models/llama-3.1-8b"));
    assert_null(model_preset_of("./llama-3.1-8b"));
    assert_null(model_preset_of("a/b/llama-3.1-8b"));
    assert_null(model_preset_of("llama-27b"));
    static const char *const other_shapes[] = {
        "PY007/TinyLlama-1.1B-Chat-v0.1", /* a token more */
        "tiiuae/Falcon-H1-7B-Instruct",   /* one more */
        "THUDM/glm-4-9b-chat",            /* another class's */
        "HuggingFaceH4/starchat2-15b-sft-v0.1",
        "CohereForAI/c4ai-command-r-08-2024",
        "TheBloke/Llama-2-7B-GPTQ",
        "TechxGenus/Meta-Llama-3-8B-Instruct-AWQ",
        "ISTA-DASLab/Meta-Llama-3-8B-Instruct-AQLM-2Bit-1x16",
        "nvidia/Qwen3-30B-A3B-NVFP4",
        "Qwen/Qwen3-8B-FP8",
        "mlx-community/Qwen3-8B-4bit",
        "unsloth/Qwen3-8B-GGUF",
        "unsloth/llama-3-8b-bnb-8bit",
        "base",
        "instruct-chat",
    };
    for (size_t i = 0; i < sizeof other_shapes / sizeof *other_shapes; i++)
        if (model_preset_of(other_shapes[i]))
            fail_msg("%s: %s", other_shapes[i], model_preset_of(other_shapes[i])->name);
    static const char *const copies[] = {"/models/llama-3.1-8b", "./Meta-Llama-3.1-8B/",
                                         "a/b/llama-3.1-8b", "meta-llama/Llama-3.1-8B",
                                         "llama-3.1-8b"};
    char name[PRESET_NAME_SIZE];
    for (size_t i = 0; i < sizeof copies / sizeof *copies; i++) {
        const struct model_preset *found = model_preset_of_path(copies[i], name);
        if (!found || strcmp(found->name, name) != 0 || strcmp(name, "llama-3.1-8b") != 0)
            fail_msg("%s: %s", copies[i], found ? found->name : "nothing");
    }
    assert_null(model_preset_of_path("llama-3.1-8b/checkpoint-500", name));
    assert_null(model_preset_of_path("/", name));
    assert_non_null(model_preset_of_path("/models/gemma-3-4b-it", name));
    assert_string_equal(name, "gemma-3-4b-it");
}

/* bitsandbytes' weights are those of the same modules: their name says what their file would. */
static void weights_in_4_bits_are_said(void **state)
{
    (void)state;
    struct model_config config;
    char text[512], name[PRESET_NAME_SIZE];
    static const char hub[] = "unsloth/llama-3-8b-Instruct-bnb-4bit";
    assert_int_equal(model_preset_find(hub, &config, NULL), ERR_OK);
    assert_true(model_note(&config, &(struct model_job){.code = CODE_HF}, 0, text, sizeof text));
    assert_non_null(strstr(text, "quantization_config (bitsandbytes)"));
    assert_non_null(strstr(text, "in 4 bits with --load-in-4bit"));
    assert_non_null(model_preset_of_path(hub, name));
    assert_string_equal(name, "llama-3-8b-Instruct-bnb-4bit");
    assert_int_equal(model_preset_find("unsloth/llama-3-8b-Instruct", &config, NULL), ERR_OK);
    assert_false(model_note(&config, &(struct model_job){.code = CODE_HF}, 0, text, sizeof text));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_preset_passes_the_checks_of_a_file),
        cmocka_unit_test(an_unknown_preset_is_answered_with_the_nearest),
        cmocka_unit_test(a_preset_is_found_by_the_names_people_have_for_it),
        cmocka_unit_test(weights_in_4_bits_are_said),
    };
    return cmocka_run_group_tests_name("presets", tests, NULL, NULL);
}

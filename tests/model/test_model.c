/* test_model.c - config.json files good and bad. */
#include "families/config.h"
#include "families/families.h"
#include "tests/support/folder.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define CONFIGS "tests/data/configs/"
#define BAD "tests/data/bad/"

static struct model_config from_text(const char *text)
{
    struct model_config config;
    struct err err = {0};
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    if (model_config_from_json(root, "text", &config, &err) != ERR_OK)
        fail_msg("%s", err.text);
    json_decref(root);
    return config;
}

static struct model_config preset(const char *name)
{
    struct model_config config;
    assert_int_equal(model_preset_find(name, &config, NULL), ERR_OK);
    return config;
}

static void assert_same_config(const struct model_config *a, const struct model_config *b)
{
#define SAME(field) assert_int_equal(a->field, b->field)
#define SAME_FLOAT(field) assert_true(a->field == b->field)
    SAME(arch);
    SAME(hidden);
    SAME(layers);
    SAME(heads);
    SAME(kv_heads);
    SAME(head_dim);
    SAME(ffn);
    SAME(vocab);
    SAME(max_positions);
    SAME(type_vocab);
    SAME(decoder_layers);
    SAME(relative_buckets);
    SAME(experts);
    SAME(experts_per_token);
    SAME(batched_experts);
    SAME(expert_ffn);
    SAME(shared_experts);
    SAME(shared_ffn);
    SAME(dense_first);
    SAME(sparse_step);
    assert_memory_equal(a->dense_layers, b->dense_layers, sizeof a->dense_layers);
    SAME(norm_topk);
    SAME(shared_gate);
    SAME(expert_bias);
    SAME(groups);
    SAME(topk_groups);
    SAME(limited_groups);
    SAME(kv_lora);
    SAME(q_lora);
    SAME(nope_dim);
    SAME(v_dim);
    SAME(rope_interleave);
    SAME(sinks);
    SAME_FLOAT(swiglu_alpha);
    SAME_FLOAT(swiglu_limit);
    SAME_FLOAT(routed_scaling);
    SAME(word_embed);
    SAME(tied);
    SAME(attention_bias);
    SAME(output_bias);
    SAME(mlp_bias);
    SAME(qk_norm);
    SAME(gated);
    SAME(parallel_residual);
    SAME(post_norm);
    SAME(rotary_dim);
    SAME(sliding_window);
    SAME(full_layers);
    SAME(window_period);
    SAME(plain_period);
    assert_string_equal(a->activation, b->activation);
    SAME_FLOAT(dropout);
    SAME_FLOAT(attention_dropout);
    SAME_FLOAT(embedding_dropout);
    SAME_FLOAT(norm_eps);
    SAME_FLOAT(init_std);
    SAME_FLOAT(window_theta);
    SAME_FLOAT(position_beta);
    SAME(position_step);
    SAME_FLOAT(embedding_multiplier);
    SAME_FLOAT(attention_multiplier);
    SAME_FLOAT(residual_multiplier);
    SAME_FLOAT(logits_scaling);
    SAME_FLOAT(query_scalar);
    SAME_FLOAT(attention_softcap);
    SAME_FLOAT(logits_softcap);
    SAME(rope.scaling);
    SAME(rope.original_positions);
    SAME_FLOAT(rope.theta);
    SAME_FLOAT(rope.factor);
    SAME_FLOAT(rope.attention_factor);
    SAME_FLOAT(rope.low_freq_factor);
    SAME_FLOAT(rope.high_freq_factor);
    SAME_FLOAT(rope.beta_fast);
    SAME_FLOAT(rope.beta_slow);
    SAME(rope.truncate);
}

/* Good files */

static void published_config_files_are_the_presets(void **state)
{
    (void)state;
    static const char *const names[] = {
        "llama-3.1-8b",   "mistral-7b",       "qwen2.5-7b",    "qwen3-8b",      "mixtral-8x7b",
        "gpt2",           "gpt-neox-20b",     "opt-1.3b",      "bert-base",     "t5-small",
        "fsdp2-tutorial", "phi-3-mini-4k",    "olmo-2-7b",     "smollm3-3b",    "granite-3.3-8b",
        "gemma-2-2b",     "gemma-3-1b",       "glm-4-9b-0414", "qwen3-30b-a3b", "gpt-oss-20b",
        "deepseek-v3",    "deepseek-v2-lite", "glm-4.5-air",   "olmoe-1b-7b",   "falcon-40b",
        "falcon-rw-1b",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[128];
        struct model_config read;
        struct err err = {0};
        const struct model_config expected = preset(names[i]);
        snprintf(path, sizeof path, CONFIGS "%s/config.json", names[i]);
        if (model_config_read(path, &read, &err) != ERR_OK)
            fail_msg("%s", err.text);
        assert_same_config(&read, &expected);
    }
}

static void llama_3_1_8b_is_read_as_meta_publishes_it(void **state)
{
    (void)state;
    struct model_config c;
    assert_int_equal(model_config_read(CONFIGS "llama-3.1-8b/config.json", &c, NULL), ERR_OK);
    assert_int_equal(c.arch, ARCH_LLAMA);
    assert_int_equal(c.hidden, 4096);
    assert_int_equal(c.layers, 32);
    assert_int_equal(c.heads, 32);
    assert_int_equal(c.kv_heads, 8);
    assert_int_equal(c.head_dim, 128);
    assert_int_equal(c.ffn, 14336);
    assert_int_equal(c.vocab, 128256);
    assert_false(c.tied);
    assert_string_equal(c.activation, "silu");
    assert_true(c.rope.theta == 500000.0F);
    assert_true(c.norm_eps == 1e-5F);
    assert_int_equal(c.rope.scaling, ROPE_LLAMA3);
    assert_int_equal(c.rope.original_positions, 8192);
    assert_true(c.rope.factor == 8 && c.rope.low_freq_factor == 1 && c.rope.high_freq_factor == 4);
}

static void a_folder_stands_for_the_config_in_it(void **state)
{
    (void)state;
    struct model_config a, b;
    assert_int_equal(model_config_read(CONFIGS "gpt2", &a, NULL), ERR_OK);
    assert_int_equal(model_config_read(CONFIGS "gpt2/", &b, NULL), ERR_OK);
    assert_same_config(&a, &b);
    assert_int_equal(model_find(CONFIGS "gpt2", &b, NULL), ERR_OK);
    assert_same_config(&a, &b);
}

#define LLAMA_SIZES                                                                                \
    "\"model_type\": \"llama\", \"vocab_size\": 100, \"hidden_size\": 64, \"num_hidden_layers\": " \
    "2, \"num_attention_heads\": 4, \"intermediate_size\": 128"

static void absent_keys_have_the_defaults_of_the_config_class(void **state)
{
    (void)state;
    const struct model_config llama = from_text("{" LLAMA_SIZES "}");
    assert_int_equal(llama.kv_heads, 4);
    assert_int_equal(llama.head_dim, 16);
    assert_int_equal(llama.max_positions, 2048);
    assert_true(llama.norm_eps == 1e-6F);
    assert_true(llama.rope.theta == 10000.0F);
    assert_false(llama.tied || llama.attention_bias || llama.mlp_bias);

    const struct model_config gpt2 =
        from_text("{\"model_type\": \"gpt2\", \"vocab_size\": 100, \"n_embd\": 64, \"n_layer\": 2, "
                  "\"n_head\": 4}");
    assert_int_equal(gpt2.ffn, 256);
    assert_int_equal(gpt2.max_positions, 1024);
    assert_true(gpt2.tied);
    assert_string_equal(gpt2.activation, "gelu_new");
    assert_true(gpt2.dropout == 0.1F && gpt2.attention_dropout == 0.1F);

    const struct model_config qwen3 = from_text(
        "{\"model_type\": \"qwen3\", \"vocab_size\": 100, \"hidden_size\": 64, "
        "\"num_hidden_layers\": 2, \"num_attention_heads\": 32, \"intermediate_size\": 128}");
    assert_int_equal(qwen3.head_dim, 128); /* whatever the hidden size is */
    assert_int_equal(qwen3.kv_heads, 32);
    assert_true(qwen3.qk_norm);

    const struct model_config t5 = from_text(
        "{\"model_type\": \"t5\", \"vocab_size\": 100, \"d_model\": 64, \"num_layers\": 3, "
        "\"num_heads\": 2, \"d_ff\": 128}");
    assert_int_equal(t5.decoder_layers, 3);
    assert_int_equal(t5.head_dim, 64);
    assert_int_equal(t5.relative_buckets, 32);
    assert_true(t5.tied && !t5.gated);
    assert_string_equal(t5.activation, "relu");
}

static void null_means_what_the_config_class_makes_of_it(void **state)
{
    (void)state;
    const struct model_config llama =
        from_text("{" LLAMA_SIZES ", \"num_key_value_heads\": null, \"head_dim\": null, "
                  "\"rope_parameters\": null, \"attention_dropout\": null}");
    assert_int_equal(llama.kv_heads, 4);
    assert_int_equal(llama.head_dim, 16);
    assert_true(llama.rope.theta == 10000.0F);
    const struct model_config mistral = from_text(
        "{\"model_type\": \"mistral\", \"vocab_size\": 100, \"hidden_size\": 64, "
        "\"num_hidden_layers\": 2, \"num_attention_heads\": 8, \"intermediate_size\": 128, "
        "\"sliding_window\": null}");
    assert_int_equal(mistral.sliding_window, 0);
    assert_int_equal(mistral.kv_heads, 8);
}

#define GEMMA3_SIZES                                                                               \
    "\"model_type\": \"gemma3_text\", \"hidden_size\": 64, \"num_hidden_layers\": 7, "             \
    "\"intermediate_size\": 128"

static void rope_may_be_of_each_type_of_layer(void **state)
{
    (void)state;
    const struct model_config old =
        from_text("{" GEMMA3_SIZES ", \"rope_theta\": 2e6, \"rope_local_base_freq\": 3e4, "
                  "\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 8.0}}");
    const struct model_config newer = from_text(
        "{" GEMMA3_SIZES ", \"rope_parameters\": {\"full_attention\": {\"rope_type\": \"linear\", "
        "\"factor\": 8.0, \"rope_theta\": 2e6}, \"sliding_attention\": {\"rope_type\": "
        "\"default\", "
        "\"rope_theta\": 3e4}}}");
    assert_same_config(&old, &newer);
    assert_int_equal(old.rope.scaling, ROPE_LINEAR);
    assert_true(old.rope.theta == 2e6F && old.window_theta == 3e4F);
    for (uint32_t i = 0; i < 7; i++)
        assert_int_equal(model_has_window(&old, i), i != 5);
}

#define GEMMA4_SIZES                                                                               \
    "\"model_type\": \"gemma4_text\", \"hidden_size\": 64, \"num_hidden_layers\": 7, "             \
    "\"intermediate_size\": 128, \"hidden_size_per_layer_input\": 0, \"attention_k_eq_v\": true"

/* The last layer of all has no window, whatever a list says. */
static void layers_without_a_window_may_have_heads_of_their_own(void **state)
{
    (void)state;
    const struct model_config by_type =
        from_text("{" GEMMA4_SIZES ", \"global_head_dim\": 64, \"num_global_key_value_heads\": 2}");
    const struct model_config by_layer =
        from_text("{" GEMMA4_SIZES ", \"per_layer_config\": {\"5\": {\"head_dim\": 64, "
                  "\"num_key_value_heads\": 2}, \"6\": {\"head_dim\": 64, "
                  "\"num_key_value_heads\": 2}}, \"rope_parameters\": null}");
    const struct model_config other = from_text("{" GEMMA4_SIZES "}");
    const struct model_config padded =
        from_text("{" GEMMA4_SIZES ", \"per_layer_config\": {\"05\": {\"head_dim\": 64, "
                  "\"num_key_value_heads\": 2}, \"06\": {\"head_dim\": 64, "
                  "\"num_key_value_heads\": 2}}}");
    assert_same_config(&by_type, &by_layer);
    assert_same_config(&by_type, &padded);
    assert_int_equal(by_type.full_head_dim, 64);
    assert_int_equal(by_type.full_kv_heads, 2);
    assert_int_equal(other.full_head_dim, 512);
    assert_int_equal(other.full_kv_heads, 4);
    assert_int_equal(by_type.rope.scaling, ROPE_PROPORTIONAL);
    assert_true(by_type.rope.share == 0.25F && by_type.rope.theta == 1e6F);
    for (uint32_t i = 0; i < 7; i++)
        assert_int_equal(model_has_window(&by_type, i), i < 5);
}

/* google/gemma-3-4b-pt has its text model's numbers in an object, but for those that are its
 * class's.
 */
static void a_multimodal_file_is_planned_with_text_and_that_is_said(void **state)
{
    (void)state;
    struct model_config c;
    struct err err = {0};
    char text[512];
    if (model_config_read(CONFIGS "gemma-3-4b", &c, &err) != ERR_OK)
        fail_msg("%s", err.text);
    const struct model_config expected = preset("gemma-3-4b-text");
    assert_same_config(&c, &expected);
    assert_true(model_note(&c, &(struct model_job){.code = CODE_HF}, 0, text, sizeof text));
    assert_non_null(strstr(text, "a \"gemma3\" is planned with batches of text alone"));
    assert_false(model_note(&c, &(struct model_job){.code = CODE_HF}, 1, text, sizeof text));
    assert_false(model_note(&expected, &(struct model_job){.code = CODE_HF}, 0, text, sizeof text));
}

/* Files of Qwen2.5-VL have the text model's keys beside the tower's object, later ones an object
 * for each; whether the head is tied says the whole. */
static void a_text_model_is_read_from_a_flat_file_and_from_a_nested_one(void **state)
{
    (void)state;
    char text[512];
    const struct model_config flat = from_text(
        "{\"model_type\": \"qwen2_5_vl\", \"hidden_size\": 3584, \"num_hidden_layers\": 28, "
        "\"num_attention_heads\": 28, \"num_key_value_heads\": 4, \"intermediate_size\": 18944, "
        "\"vocab_size\": 152064, \"max_position_embeddings\": 128000, \"rms_norm_eps\": 1e-6, "
        "\"rope_theta\": 1e6, \"rope_scaling\": {\"type\": \"mrope\", \"mrope_section\": "
        "[16, 24, 24]}, \"vision_config\": {\"depth\": 32}}");
    const struct model_config nested = from_text(
        "{\"model_type\": \"qwen3_vl\", \"tie_word_embeddings\": true, \"text_config\": "
        "{\"model_type\": \"qwen3_vl_text\", \"hidden_size\": 2560, \"num_hidden_layers\": 36, "
        "\"num_attention_heads\": 32, \"num_key_value_heads\": 8, \"head_dim\": 128, "
        "\"intermediate_size\": 9728, \"vocab_size\": 151936, \"max_position_embeddings\": "
        "262144, \"rope_theta\": 5e6, \"rope_scaling\": {\"rope_type\": \"default\", "
        "\"mrope_interleaved\": true, \"mrope_section\": [24, 20, 20]}}}");
    const struct model_config qwen2_5 = preset("qwen2.5-vl-7b-text");
    const struct model_config qwen3 = preset("qwen3-vl-4b-text");
    assert_same_config(&flat, &qwen2_5);
    assert_same_config(&nested, &qwen3);
    assert_true(model_note(&flat, &(struct model_job){.code = CODE_HF}, 0, text, sizeof text));
    assert_non_null(strstr(text, "a \"qwen2_5_vl\" is planned with batches of text alone"));
    assert_true(model_note(&nested, &(struct model_job){.code = CODE_HF}, 0, text, sizeof text));
}

static void what_a_file_says_beside_its_numbers_is_said(void **state)
{
    (void)state;
    char text[512];
    const struct model_config plain =
        from_text("{" LLAMA_SIZES ", \"architectures\": [\"LlamaForCausalLM\"]}");
    assert_false(model_note(&plain, &(struct model_job){.code = CODE_HF}, 0, text, sizeof text));
    const struct model_config other =
        from_text("{" LLAMA_SIZES ", \"architectures\": [\"LlamaForSequenceClassification\"], "
                  "\"quantization_config\": {\"quant_method\": \"gptq\", \"bits\": 4}}");
    assert_true(model_note(&other, &(struct model_job){.code = CODE_HF}, 0, text, sizeof text));
    assert_string_equal(text, "the file's \"architectures\" is LlamaForSequenceClassification: "
                              "planned is LlamaForCausalLM, with its head "
                              "(--task sequence-classification plans the other)");
    assert_true(model_note(&other, &(struct model_job){.code = CODE_HF}, 1, text, sizeof text));
    assert_non_null(strstr(text, "quantization_config (gptq)"));
    assert_false(model_note(&other, &(struct model_job){.code = CODE_HF}, 2, text, sizeof text));
}

static void newer_files_keep_rope_in_an_object(void **state)
{
    (void)state;
    const struct model_config llama =
        from_text("{" LLAMA_SIZES ", \"rope_parameters\": {\"rope_type\": \"default\", "
                  "\"rope_theta\": 500000.0}}");
    assert_true(llama.rope.theta == 500000.0F);
    const struct model_config neox = from_text(
        "{\"model_type\": \"gpt_neox\", \"vocab_size\": 100, \"hidden_size\": 64, "
        "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"intermediate_size\": 256, "
        "\"rope_parameters\": {\"rope_theta\": 777, \"partial_rotary_factor\": 0.5}}");
    assert_true(neox.rope.theta == 777.0F);
    assert_int_equal(neox.rotary_dim, 8);
}

/* Numbers of published files, and what transformers makes of those that they leave out. */
static void rope_scaling_is_read_under_both_names(void **state)
{
    (void)state;
    const struct model_config linear =
        from_text("{" LLAMA_SIZES ", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 4}}");
    assert_int_equal(linear.rope.scaling, ROPE_LINEAR);
    assert_true(linear.rope.factor == 4 && linear.rope.attention_factor == 1);
    assert_true(linear.rope.theta == 10000);

    const struct model_config dynamic =
        from_text("{" LLAMA_SIZES ", \"max_position_embeddings\": 512, \"rope_parameters\": "
                  "{\"rope_type\": \"dynamic\", \"factor\": 2.0, \"rope_theta\": 777}}");
    assert_int_equal(dynamic.rope.scaling, ROPE_DYNAMIC);
    assert_int_equal(dynamic.rope.original_positions, 512);
    assert_true(dynamic.rope.factor == 2 && dynamic.rope.theta == 777);

    const struct model_config yarn = from_text(
        "{" LLAMA_SIZES ", \"max_position_embeddings\": 32768, \"rope_scaling\": {\"factor\": 4.0, "
        "\"original_max_position_embeddings\": 32768, \"type\": \"yarn\", \"finetuned\": true}}");
    assert_int_equal(yarn.rope.scaling, ROPE_YARN);
    assert_int_equal(yarn.rope.original_positions, 32768);
    assert_true(yarn.rope.beta_fast == 32 && yarn.rope.beta_slow == 1 && yarn.rope.truncate);
    assert_true(yarn.rope.attention_factor == 1.13862944F); /* 0.1 ln 4 + 1 */

    const struct model_config derived =
        from_text("{" LLAMA_SIZES
                  ", \"max_position_embeddings\": 4096, \"original_max_position_embeddings\": "
                  "1024, \"rope_parameters\": {\"factor\": null, \"rope_type\": \"yarn\", "
                  "\"truncate\": false, "
                  "\"mscale\": 1, \"mscale_all_dim\": 1}}");
    assert_true(derived.rope.factor == 4 && derived.rope.attention_factor == 1);
    assert_false(derived.rope.truncate);

    const struct model_config longrope = from_text(
        "{" LLAMA_SIZES ", \"head_dim\": 4, \"max_position_embeddings\": 131072, "
        "\"rope_scaling\": {\"type\": \"longrope\", \"original_max_position_embeddings\": 4096, "
        "\"short_factor\": [1, 1.25], \"long_factor\": [1.5, 60]}}");
    assert_int_equal(longrope.rope.original_positions, 4096);
    assert_true(longrope.rope.short_factor[1] == 1.25F && longrope.rope.long_factor[1] == 60);
    assert_true(longrope.rope.attention_factor == 1.19023807F); /* sqrt(1 + ln 32 / ln 4096) */
    assert_true(from_text("{" LLAMA_SIZES ", \"rope_scaling\": null}").rope.attention_factor == 1);
}

static void a_setting_may_be_spelled_either_way(void **state)
{
    (void)state;
    const struct model_config gpt2 =
        from_text("{\"model_type\": \"gpt2\", \"vocab_size\": 50257, \"hidden_size\": 768, "
                  "\"num_hidden_layers\": 12, \"num_attention_heads\": 12, \"n_head\": 12}");
    const struct model_config expected = preset("gpt2");
    assert_same_config(&gpt2, &expected);
}

static void qwen_has_a_window_only_when_it_uses_it(void **state)
{
    (void)state;
#define QWEN                                                                                       \
    "{\"model_type\": \"qwen2\", \"vocab_size\": 100, \"hidden_size\": 64, "                       \
    "\"num_hidden_layers\": 4, \"num_attention_heads\": 32, \"intermediate_size\": 128, "          \
    "\"sliding_window\": 512, \"max_window_layers\": 2"
    assert_int_equal(from_text(QWEN "}").sliding_window, 0);
    const struct model_config used = from_text(QWEN ", \"use_sliding_window\": true}");
    assert_int_equal(used.sliding_window, 512);
    assert_int_equal(used.full_layers, 2);
    /* newer files say of each layer what follows from the rest */
    const struct model_config listed =
        from_text(QWEN ", \"use_sliding_window\": true, \"layer_types\": [\"full_attention\", "
                       "\"full_attention\", \"sliding_attention\", \"sliding_attention\"]}");
    assert_same_config(&listed, &used);
}

static void biases_and_gates_follow_their_keys(void **state)
{
    (void)state;
    const struct model_config llama =
        from_text("{" LLAMA_SIZES ", \"attention_bias\": true, \"mlp_bias\": true}");
    assert_true(llama.attention_bias && llama.output_bias && llama.mlp_bias);
    assert_true(preset("qwen2.5-7b").attention_bias); /* always */
    assert_false(preset("qwen2.5-7b").output_bias);
    const struct model_config t5 = from_text(
        "{\"model_type\": \"t5\", \"vocab_size\": 100, \"d_model\": 64, \"num_layers\": 3, "
        "\"num_heads\": 2, \"d_ff\": 128, \"feed_forward_proj\": \"gated-gelu\"}");
    assert_true(t5.gated);
    assert_string_equal(t5.activation, "gelu_new");
    const struct model_config opt = from_text(
        "{\"model_type\": \"opt\", \"vocab_size\": 50272, \"hidden_size\": 1024, \"ffn_dim\": "
        "4096, \"num_hidden_layers\": 24, \"num_attention_heads\": 16, \"word_embed_proj_dim\": "
        "512, \"do_layer_norm_before\": false}");
    const struct model_config expected = preset("opt-350m");
    assert_same_config(&opt, &expected);
}

/* Bad files */

static void assert_all_zero(const struct model_config *config)
{
    const struct model_config zero = {.layers = 0};
    assert_int_equal(config->hidden, zero.hidden);
    assert_int_equal(config->layers, zero.layers);
    assert_null(config->activation);
}

static void assert_refused(const char *path, const char *expected)
{
    struct model_config config;
    struct err err = {0};
    const enum err_code rc = model_find(path, &config, &err);
    if (rc != ERR_INVALID || err.code != rc || !strstr(err.text, expected))
        fail_msg("%s: expected \"%s\", got %s: %s", path, expected, err_name(rc), err.text);
    assert_all_zero(&config);
    for (const char *c = err.text; *c; c++)
        if (*c < ' ' || *c > '~')
            fail_msg("%s: the message has a byte 0x%02x", path, (unsigned)*c & 0xff);
}

static int is_json(const struct dirent *entry)
{
    const char *dot = strrchr(entry->d_name, '.');
    return dot && strcmp(dot, ".json") == 0;
}

static void every_bad_config_is_refused_with_the_reason_beside_it(void **state)
{
    (void)state;
    struct dirent **entries = NULL;
    const int count = scandir(BAD, &entries, is_json, alphasort);
    assert_true(count >= 45);
    for (int i = 0; i < count; i++) {
        char path[512], expected[512];
        const int stem = (int)(strlen(entries[i]->d_name) - strlen(".json"));
        snprintf(path, sizeof path, BAD "%.*s.expect", stem, entries[i]->d_name);
        FILE *file = fopen(path, "r");
        if (!file || !fgets(expected, sizeof expected, file))
            fail_msg("%s is missing or empty", path);
        fclose(file);
        expected[strcspn(expected, "\n")] = '\0';
        snprintf(path, sizeof path, BAD "%s", entries[i]->d_name);
        assert_refused(path, expected);
        free(entries[i]);
    }
    free(entries);
    printf("note: %d bad config files refused\n", count);
}

static void every_message_about_a_file_begins_with_its_name(void **state)
{
    (void)state;
    static const char *const names[] = {"truncated", "array", "vocab-zero", "empty"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[128];
        struct model_config config;
        struct err err = {0};
        snprintf(path, sizeof path, BAD "%s.json", names[i]);
        assert_int_equal(model_config_read(path, &config, &err), ERR_INVALID);
        assert_memory_equal(err.text, path, strlen(path));
        assert_int_equal(err.text[strlen(path)], ':');
    }
}

static void what_is_no_config_file_is_refused(void **state)
{
    (void)state;
    char folder[] = "/tmp/shardplan-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    assert_refused(folder, "/config.json: the folder holds no config.json");

    snprintf(path, sizeof path, "%s/pipe", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_refused(path, "pipe: not a regular file");
    assert_int_equal(unlink(path), 0);
    assert_refused("/dev/null", "/dev/null: not a regular file");

    snprintf(path, sizeof path, "%s/model.gguf", folder);
    file_write(path, "GGUF\3\0\0", 7);
    assert_refused(path, "model.gguf: weights in GGUF; the config.json of the model");
    assert_int_equal(unlink(path), 0);

    snprintf(path, sizeof path, "%s/config.json", folder);
    assert_int_equal(symlink("config.json", path), 0);
    assert_refused(folder, "config.json: Too many levels of symbolic links");
    assert_int_equal(unlink(path), 0);

    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(ftruncate(fileno(file), (16 << 20) + 1), 0);
    fclose(file);
    assert_refused(folder, "config.json: larger than 16 MiB");

    assert_int_equal(chmod(path, 0), 0);
    if (geteuid() != 0) /* root reads everything */
        assert_refused(folder, "config.json: Permission denied");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
    assert_refused("", "the path of the model is empty");
}

/* Any value in place of any key's is read or refused, and what is read passes the checks. */
static void no_value_of_any_key_gets_past_the_limits(void **state)
{
    (void)state;
    static const char *const values[] = {
        "null",
        "true",
        "false",
        "-1",
        "0",
        "1",
        "2",
        "3",
        "1048576",
        "65536",
        "1e9",
        "1e300",
        "1e-300",
        "0.5",
        "\"\"",
        "\"silu\"",
        "[]",
        "{}",
        "4294967297",
        "9223372036854775807",
        "-9223372036854775808",
        "16777216",
    };
    static const char *const names[] = {
        "llama-3.1-8b", "mistral-7b",    "qwen2.5-7b",          "qwen3-8b",
        "mixtral-8x7b", "gpt2",          "gpt-neox-20b",        "opt-1.3b",
        "bert-base",    "t5-small",      "fsdp2-tutorial",      "phi-3-mini-4k",
        "olmo-2-7b",    "smollm3-3b",    "granite-3.3-8b",      "gemma-2-2b",
        "gemma-3-1b",   "glm-4-9b-0414", "phi-4-mini-reasoning"};
    uint32_t accepted = 0, refused = 0;
    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
        char path[128];
        snprintf(path, sizeof path, CONFIGS "%s/config.json", names[n]);
        json_t *root = json_load_file(path, 0, NULL);
        assert_non_null(root);
        const char *key;
        json_t *old;
        json_object_foreach(root, key, old)
        {
            json_t *copy = json_copy(root);
            for (size_t v = 0; v < sizeof values / sizeof values[0]; v++) {
                struct model_config config;
                struct err err = {0};
                json_object_set_new(copy, key, json_loads(values[v], JSON_DECODE_ANY, NULL));
                if (model_config_from_json(copy, "x", &config, &err) == ERR_OK) {
                    accepted++;
                    assert_int_equal(model_config_check(&config, "x", NULL), ERR_OK);
                    assert_true(model_config_parameters(&config) <= 1e15);
                } else {
                    refused++;
                    assert_int_equal(err.code, ERR_INVALID);
                    assert_memory_equal(err.text, "x: ", 3);
                    assert_all_zero(&config);
                }
            }
            json_decref(copy);
        }
        json_decref(root);
    }
    assert_true(accepted > 500 && refused > 500);
}

static void no_prefix_of_a_config_is_a_config(void **state)
{
    (void)state;
    char folder[] = "/tmp/shardplan-XXXXXX", path[64], text[4096];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/config.json", folder);
    FILE *source = fopen(CONFIGS "gpt2/config.json", "r");
    assert_non_null(source);
    const size_t bytes = fread(text, 1, sizeof text, source);
    fclose(source);
    const size_t end = (size_t)(strrchr(text, '}') - text);
    assert_true(end < bytes);
    for (size_t length = 0; length <= end; length++) {
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        fwrite(text, 1, length, file);
        fclose(file);
        assert_refused(path, length ? "config.json:" : "the file is empty");
    }
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
}

static void what_is_neither_preset_nor_path_is_told_both(void **state)
{
    (void)state;
    assert_refused("lama-3.1-8b", "\"lama-3.1-8b\" is no file or folder (No such file or "
                                  "directory) and no preset: the nearest are llama-3.1-8b");
    assert_refused("Makefile/config.json", "(Not a directory) and no preset");
    char name[5000];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    assert_refused(name, "(File name too long) and no preset");
}

static void a_check_catches_a_config_made_by_hand(void **state)
{
    (void)state;
    struct err err = {0};
    struct model_config config = preset("gpt2");
    config.heads = 0;
    assert_int_equal(model_config_check(&config, "here", &err), ERR_INVALID);
    assert_string_equal(err.text, "here: \"n_head\": expected an integer 1 ... 16384, got 0");
    config = preset("llama-3.1-8b");
    config.activation = NULL;
    assert_int_equal(model_config_check(&config, "here", NULL), ERR_INVALID);
    config = preset("llama-3.1-8b");
    config.arch = ARCH_COUNT;
    assert_int_equal(model_config_check(&config, "here", NULL), ERR_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_config_files_are_the_presets),
        cmocka_unit_test(llama_3_1_8b_is_read_as_meta_publishes_it),
        cmocka_unit_test(a_folder_stands_for_the_config_in_it),
        cmocka_unit_test(absent_keys_have_the_defaults_of_the_config_class),
        cmocka_unit_test(null_means_what_the_config_class_makes_of_it),
        cmocka_unit_test(rope_may_be_of_each_type_of_layer),
        cmocka_unit_test(layers_without_a_window_may_have_heads_of_their_own),
        cmocka_unit_test(a_multimodal_file_is_planned_with_text_and_that_is_said),
        cmocka_unit_test(a_text_model_is_read_from_a_flat_file_and_from_a_nested_one),
        cmocka_unit_test(what_a_file_says_beside_its_numbers_is_said),
        cmocka_unit_test(newer_files_keep_rope_in_an_object),
        cmocka_unit_test(rope_scaling_is_read_under_both_names),
        cmocka_unit_test(a_setting_may_be_spelled_either_way),
        cmocka_unit_test(qwen_has_a_window_only_when_it_uses_it),
        cmocka_unit_test(biases_and_gates_follow_their_keys),
        cmocka_unit_test(every_bad_config_is_refused_with_the_reason_beside_it),
        cmocka_unit_test(every_message_about_a_file_begins_with_its_name),
        cmocka_unit_test(what_is_no_config_file_is_refused),
        cmocka_unit_test(no_value_of_any_key_gets_past_the_limits),
        cmocka_unit_test(no_prefix_of_a_config_is_a_config),
        cmocka_unit_test(what_is_neither_preset_nor_path_is_told_both),
        cmocka_unit_test(a_check_catches_a_config_made_by_hand),
    };
    return cmocka_run_group_tests_name("model", tests, NULL, NULL);
}

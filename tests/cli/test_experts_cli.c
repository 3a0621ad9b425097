/* test_experts_cli.c - mixtures of experts from the command line: what padding costs where ranks
 * outnumber experts, what views of gathered experts hold, and what every family is good for. */
#include "tests/support/folder.h"
#include "tests/support/local_ranks.h"
#include "tests/support/program.h"
#include "tests/support/temp_folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static json_int_t integer(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

static json_int_t device_bytes(const json_t *root)
{
    return integer(json_object_get(root, "peak"), "device_bytes");
}

/* Qwen3-30B-A3B, fp32, over 256 ranks. Of each of 48 layers: 128 experts' gate_up (1536 · 2048) and
 * down (2048 · 768) and the router (2048) have 128 rows too few; so have two norms of 128 numbers.
 * The vocabulary is 151936 = 593.5 · 256: embedding and head lack 128 rows of 2048. */
static void padding_is_counted_and_columns_have_none(void **state)
{
    (void)state;
    const json_int_t layer = (json_int_t)128 * (1536 * 2048 + 2048 * 768 + 2048) + 2 * 128;
    const json_int_t bytes = 4 * (48 * layer + 2 * 128 * 2048);
    assert_int_equal(shardplan("fit qwen3-30b-a3b --gpus 256 --json"), 0);
    json_t *rows = program_object();
    const json_t *padding = json_object_get(rows, "padding");
    assert_int_equal(integer(padding, "bytes"), bytes);
    assert_int_equal(integer(padding, "parameter_bytes"), 4 * 30532122624);
    assert_int_equal(integer(padding, "parameters"), 48 * 5 + 2);
    assert_int_equal(integer(padding, "rows"), 128);
    assert_int_equal(integer(padding, "idle_ranks"), 128);

    assert_int_equal(shardplan("fit qwen3-30b-a3b --gpus 256 --placement columns --json"), 0);
    json_t *columns = program_object();
    assert_int_equal(device_bytes(columns), integer(padding, "columns_device_bytes"));
    assert_true(device_bytes(columns) < device_bytes(rows));
    assert_null(json_object_get(columns, "padding"));
    json_decref(columns);
    json_decref(rows);
}

/* Mixtral in bf16: when the first pass ends, nodes of 31 of 32 layers hold the views that
 * transformers multiplies by, of 8 experts' gate_up (28672 * 4096) and down (4096 * 14336); the
 * last layer's are not released, as backward begins with it. */
static void views_that_hold_gathered_experts_are_told(void **state)
{
    (void)state;
    const json_int_t layer = (json_int_t)2 * 8 * (28672 * 4096 + 4096 * 14336);
    static const char *const none[] = {
        "mixtral-8x7b --gpus 64 --seq 4096 --gpu b300",
        "llama-3.2-1b --gpus 8 --seq 512 --strategy zero3",
    };
    assert_int_equal(shardplan("fit mixtral-8x7b --gpus 64 --seq 4096 --gpu b300 --strategy zero3 "
                               "--json"),
                     0);
    json_t *held = program_object();
    const json_t *views = json_object_get(held, "saved_views");
    assert_int_equal(integer(views, "bytes"), 31 * layer);
    assert_int_equal(shardplan("fit mixtral-8x7b --gpus 64 --seq 4096 --gpu b300 --strategy zero3 "
                               "--checkpointing full --json"),
                     0);
    json_t *full = program_object();
    assert_int_equal(device_bytes(full), integer(views, "checkpointed_device_bytes"));
    assert_null(json_object_get(full, "saved_views"));
    assert_int_equal(shardplan("plan mixtral-8x7b --gpus 64 --seq 4096 --gpu b300 --strategy zero3 "
                               "-q -o %s",
                               path_of("views")),
                     0);
    assert_int_equal(shell("grep -c 'saved views: up to %.2f GiB' %s/report.html",
                           (double)(31 * layer) / (1 << 30), path_of("views")),
                     0);
    json_decref(full);
    json_decref(held);
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        (void)shardplan("fit %s --json", none[i]);
        json_t *object = program_object();
        assert_null(json_object_get(object, "saved_views"));
        json_decref(object);
    }
}

static void refuses(const char *arguments, const char *sentence)
{
    assert_int_equal(shardplan("fit %s", arguments), 2);
    if (!strstr(program_output(), sentence))
        fail_msg("%s: %s", arguments, program_output());
}

static void what_such_experts_cannot_be_is_refused(void **state)
{
    (void)state;
    refuses("llama-3.1-8b --experts-replicate 1", "the model has no module of experts to wrap");
    refuses("mixtral-8x7b --experts-replicate 3", "--experts-replicate 3 does not divide --gpus 8");
    refuses("mixtral-8x7b --experts-replicate 2 --clip 1", "takes no gradients of two meshes");
    refuses("mixtral-8x7b --experts-replicate 2 --reshard 2", "on another mesh is not planned");
    refuses("mixtral-8x7b --experts-replicate 1 --torch 2.12", "not known of torch 2.12");
    refuses("mixtral-8x7b --experts-replicate 1 --start-up", "--start-up is not planned with");
    refuses("mixtral-8x7b --experts-replicate 1 --strategy zero3", "it belongs to fsdp2");
    refuses("mixtral-8x7b --strategy zero3 --seq 128 --freeze '*embed*,*self_attn*,*layernorm*'",
            "nothing before");
}

/* What torch.compile traces of experts was recorded in bf16, multiplied in groups, of more than 512
 * rows; a unit inside of a block has hooks there. */
static void what_of_experts_is_not_compiled_is_refused(void **state)
{
    (void)state;
    refuses("olmoe-1b-7b --compile on --param-dtype fp32", "grouped_mm_fallback");
    refuses("qwen3-30b-a3b --compile on --seq 64", "no more than 512 numbers");
    refuses("qwen3-30b-a3b --compile on --experts-replicate 1", "hooks of units inside of blocks");
    refuses("qwen3-30b-a3b --compile on --seq 2048 --torch 2.13", "--compile: not known");
    assert_int_equal(shardplan("fit qwen3-30b-a3b --gpus 16 --compile on --seq 2048 --json"), 0);
    json_t *result = program_object();
    assert_true(device_bytes(result) > 0);
    json_decref(result);
}

/* As many ranks as experts, half as many, or fewer: each has whole rows. So it has of experts on a
 * mesh of their own; what is left, routers and norms, is not worth a line. */
static void rows_that_share_out_are_not_mentioned(void **state)
{
    (void)state;
    static const char *const jobs[] = {"qwen3-30b-a3b --gpus 128", "qwen3-30b-a3b --gpus 64",
                                       "qwen3-30b-a3b --gpus 256 --experts-replicate 2",
                                       "llama-3.1-8b --gpus 256"};
    for (size_t i = 0; i < sizeof jobs / sizeof jobs[0]; i++) {
        assert_int_equal(shardplan("fit %s --json", jobs[i]), 0);
        json_t *root = program_object();
        assert_null(json_object_get(root, "padding"));
        json_decref(root);
    }
}

static void people_are_told_the_cost_and_the_way_out(void **state)
{
    (void)state;
    assert_int_equal(shardplan("fit qwen3-30b-a3b --gpus 256"), 0);
    assert_non_null(strstr(program_output(), "128 rows over 256 ranks, of which 128 hold nothing"));
    assert_non_null(strstr(program_output(), "with --placement columns"));
    /* 24 ranks: 8 experts are too few, and 4096 columns do not share out */
    assert_int_equal(shardplan("fit mixtral-8x7b --gpus 24 --gpu b300"), 0);
    assert_non_null(strstr(program_output(), "8 rows over 24 ranks, of which 16 hold nothing"));
    assert_non_null(strstr(program_output(), "nor by columns: --placement columns: fully_shard"));
}

#define SIZES                                                                                      \
    "\"vocab_size\": 256, \"hidden_size\": 64, \"num_hidden_layers\": 2, "                         \
    "\"num_attention_heads\": "                                                                    \
    "4, \"intermediate_size\": 96, \"num_experts_per_tok\": 2"
#define LATENT                                                                                     \
    ", \"n_routed_experts\": 8, \"n_group\": 2, \"topk_group\": 1, \"moe_intermediate_size\": "    \
    "48, "                                                                                         \
    "\"first_k_dense_replace\": 1"

/* No device has a kernel for experts: a run says which it lacks, and trains nothing. */
static void every_family_is_planned_and_run(void **state)
{
    (void)state;
    static const char *const configs[] = {
        "\"qwen2_moe\", \"num_key_value_heads\": 2, \"num_experts\": 8",
        "\"qwen3_moe\", \"num_key_value_heads\": 2, \"num_experts\": 8",
        "\"olmoe\", \"num_experts\": 8",
        "\"gpt_oss\", \"num_key_value_heads\": 2, \"num_local_experts\": 8",
        "\"glm4_moe\", \"num_key_value_heads\": 2" LATENT,
        "\"deepseek_v2\"" LATENT,
        "\"deepseek_v3\"" LATENT,
    };
    for (size_t i = 0; i < sizeof configs / sizeof configs[0]; i++) {
        char text[512];
        const int length =
            snprintf(text, sizeof text, "{\"model_type\": %s, " SIZES "}", configs[i]);
        put_text("a.json", text, (size_t)length);
        char config[128];
        snprintf(config, sizeof config, "%s", path_of("a.json"));
        if (shardplan("plan %s --gpus 2 --seq 32 --files plan -q -o %s", config, path_of("plan")) !=
            0)
            fail_msg("%s: %s", text, program_output());
        if (local_ranks(2, "%s/plan.json --steps 1", path_of("plan")) != 0)
            fail_msg("%s: %s", text, program_output());
        shell("^/shardplan run %s/plan.json --device cuda --steps 1 2>&1", path_of("plan"));
        if (strstr(program_output(), "has no kernel for"))
            fail_msg("%s: %s", text, program_output());
        assert_int_equal(shell("rm -r %s", path_of("plan")), 0);
    }
}

static int make_folder(void **state)
{
    (void)state;
    return temp_folder_make("experts_cli") != 0 ? -1 : folder_draws_at_once(path_of("."));
}

static int remove_folder(void **state)
{
    (void)state;
    return temp_folder_remove();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(padding_is_counted_and_columns_have_none),
        cmocka_unit_test(views_that_hold_gathered_experts_are_told),
        cmocka_unit_test(what_such_experts_cannot_be_is_refused),
        cmocka_unit_test(what_of_experts_is_not_compiled_is_refused),
        cmocka_unit_test(rows_that_share_out_are_not_mentioned),
        cmocka_unit_test(people_are_told_the_cost_and_the_way_out),
        cmocka_unit_test(every_family_is_planned_and_run),
    };
    return cmocka_run_group_tests_name("experts_cli", tests, make_folder, remove_folder);
}

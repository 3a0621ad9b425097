/* test_answers_cli.c - what is answered to input that is nearly right: with what to write. */
#include "tests/support/program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/shardplan-answers-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int drop_folder(void **state)
{
    char line[128];
    (void)state;
    snprintf(line, sizeof line, "rm -r %s", folder);
    return system(line);
}

/* A file of the folder. */
static const char *write_file(const char *name, const char *text, char path[128])
{
    snprintf(path, 128, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
    return path;
}

/* Of each model whose experts' blocks ZeRO-3 has as leaf modules alone: the file that the message
 * shows is taken. */
static void a_leaf_module_is_answered_with_its_file(void **state)
{
    static const char *const jobs[] = {
        "fit qwen3-next-80b-a3b --gpus 64 --seq 64 --strategy zero3 --no-remedies",
        "fit lfm2-8b-a1b --gpus 8 --seq 64 --strategy zero3 --no-remedies"};
    (void)state;
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        char path[128], json[256];
        shardplan_says(2, "give --zero FILE, and in FILE {", "%s", jobs[i]);
        const char *from = strstr(program_output(), "in FILE {") + strlen("in FILE ");
        snprintf(json, sizeof json, "%.*s", (int)(strstr(from, "}}") + 2 - from), from);
        const int status = shardplan("%s --zero %s", jobs[i], write_file("zero.json", json, path));
        if (status > 1)
            fail_msg("%s: %s", json, program_output());
    }
    shardplan_says(0, "leaf_module", "help fit zero");
}

static void ranges_may_be_in_thousands(void **state)
{
    (void)state;
    assert_int_equal(shardplan("sweep gpt2 --code hf --over seq=256..1kx2 --json"), 0);
    json_t *sweep = program_object();
    assert_int_equal(json_array_size(json_object_get(sweep, "points")), 3);
    json_decref(sweep);
    assert_int_equal(shardplan("sweep llama-3.1-8b --gpus 64 --over seq=1k..2k+512 --json"), 0);
    sweep = program_object();
    assert_int_equal(json_array_size(json_object_get(sweep, "points")), 3);
    json_decref(sweep);
    shardplan_says(2, "micro-batch",
                   "sweep gpt2 --over micro-batch=1k..2kx2"); /* has no thousands */
}

static void a_profiles_number_is_named_with_its_file(void **state)
{
    char path[128];
    (void)state;
    shardplan_says(2, "profile.json: \"nics\" is 0, and the job is on 2 nodes",
                   "fit gpt2 --gpus 16 --profile %s",
                   write_file("profile.json", "{\"gpu\": \"h100-sxm\", \"nics\": 0}", path));
    assert_int_equal(shardplan("fit gpt2 --gpus 8 --profile %s", path), 0);
}

static void a_config_is_quoted_as_it_stands(void **state)
{
    static const char *const cases[][2] = {
        {"{\"model_type\": \"llama\", \"hidden_size\": Infinity, \"vocab_size\": 32000,\n"
         "\"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"intermediate_size\": 64}",
         "got Infinity"},
        {"{\"model_type\": \"ll\\u0000ama\"}", "a text holds a NUL"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[128];
        shardplan_says(2, cases[i][1], "fit %s", write_file("config.json", cases[i][0], path));
        assert_null(strstr(program_output(), "JSON_"));
    }
}

static void it_is_said_whose_peak_is_gone_beyond(void **state)
{
    static const char job[] = "fit llama-3.1-8b --gpus 8 --seq 2048 --checkpointing full --time";
    (void)state;
    shardplan_says(0, " of the bf16 peak", "%s --compile on --float8 tensorwise", job);
    shardplan_says(0, "HFU", "%s", job);
    assert_null(strstr(program_output(), "of the bf16 peak"));
}

/* A run's folder stands for its trace, as a plan's for its plan.json. */
static void a_runs_folder_is_its_trace(void **state)
{
    (void)state;
    assert_int_equal(
        shardplan("plan tests/data/configs/toy-llama --seq 32 --gpus 1 -q -o %s/p", folder), 0);
    assert_int_equal(shardplan("run %s/p --steps 2 -q -o %s/r", folder, folder), 0);
    assert_int_equal(shardplan("compare %s/p %s/r/trace.json", folder, folder), 0);
    assert_int_equal(shardplan("compare %s/p %s/r", folder, folder), 0);
    shardplan_says(2, "/trace.json: No such file", "compare %s/p %s", folder, folder);
}

/* One GPU shards nothing; what keeps parameters on the host is looked for where nothing else fits.
 */
static void one_gpu_is_searched_alone(void **state)
{
    (void)state;
    shardplan_says(0, "(one GPU, so of --strategy single",
                   "tune gpt2 --gpus 1 --gpu rtx-3090 --global-batch 8");
    assert_non_null(strstr(program_output(), "shardplan plan gpt2 --strategy single"));
    shardplan_says(0, "--strategy fsdp",
                   "tune gpt2 --gpus 1 --gpu rtx-3090 --global-batch 8 --param-dtype bf16");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_leaf_module_is_answered_with_its_file),
        cmocka_unit_test(ranges_may_be_in_thousands),
        cmocka_unit_test(a_profiles_number_is_named_with_its_file),
        cmocka_unit_test(a_config_is_quoted_as_it_stands),
        cmocka_unit_test(it_is_said_whose_peak_is_gone_beyond),
        cmocka_unit_test(a_runs_folder_is_its_trace),
        cmocka_unit_test(one_gpu_is_searched_alone),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}

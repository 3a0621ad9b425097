/* test_systems_cli.c - fit and plan of several systems, as people and scripts call them. SHARDPLAN
 * names the program. */
#include "tests/support/folder.h"
#include "tests/support/program.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define TOY "tests/data/configs/toy-llama --seq 256"
#define ALL "ddp,zero1,zero2,zero3,fsdp1,fsdp2"

static double number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

static const char *text(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static void expect_says(int status, int expected, const char *says)
{
    if (status != expected || !strstr(program_output(), says))
        fail_msg("exit %d, no \"%s\" in: %s", status, says, program_output());
}

/* The command's answer for one system is its column. */
static void expect_column(const json_t *column, const char *options)
{
    static const char *const bytes[] = {"requested_bytes", "allocated_bytes", "reserved_bytes",
                                        "device_bytes"};
    const char *category;
    json_t *value;
    const int status = shardplan("fit " TOY " --strategy %s --time --json", options);
    json_t *fit = program_object();
    const json_t *peak = json_object_get(fit, "peak"), *time = json_object_get(fit, "time");
    const json_t *device = json_object_get(json_object_get(fit, "device"), "categories");
    assert_int_equal(status, 0);
    assert_string_equal(text(column, "verdict"), "fits");
    for (size_t i = 0; i < sizeof bytes / sizeof bytes[0]; i++)
        assert_true(number(column, bytes[i]) == number(peak, bytes[i]));
    json_object_foreach((json_t *)(uintptr_t)device, category, value)
    {
        const double planned = number(json_object_get(column, "categories"), category);
        assert_true(planned == json_number_value(value));
    }
    assert_true(number(column, "step_s") == number(time, "step_s"));
    assert_true(number(column, "tokens_per_s_per_gpu") == number(time, "tokens_per_s_per_gpu"));
    assert_true(number(column, "exposed_communication_s") ==
                number(time, "exposed_communication_s"));
    assert_true(json_equal(json_object_get(column, "settings"), json_object_get(fit, "settings")));
    json_decref(fit);
}

static void a_column_is_what_fit_says_of_that_system(void **state)
{
    (void)state;
    static const char *const systems[] = {"ddp", "zero1", "zero2", "zero3", "fsdp1", "fsdp2"};
    assert_int_equal(shardplan("fit " TOY " --strategy " ALL " --json"), 0);
    json_t *answer = program_object();
    const json_t *columns = json_object_get(answer, "systems");
    double most = 0;
    assert_int_equal(json_array_size(columns), 6);
    for (size_t i = 0; i < 6; i++) {
        const json_t *column = json_array_get(columns, i);
        assert_string_equal(text(column, "name"), systems[i]);
        assert_string_equal(text(column, "system"), systems[i]);
        expect_column(column, systems[i]);
        const double tokens = number(column, "tokens_per_s_per_gpu");
        most = tokens > most ? tokens : most;
    }
    const json_t *best =
        json_array_get(columns, (size_t)json_integer_value(json_object_get(answer, "best")));
    assert_true(number(best, "tokens_per_s_per_gpu") == most);
    json_decref(answer);
}

/* Options go to the systems that have them, and a system may have settings of its own. */
static void a_column_has_settings_of_its_own(void **state)
{
    (void)state;
    assert_int_equal(shardplan("plan " TOY " --bucket-cap-mb 3 --units 2 --clip 1 --strategy "
                               "ddp+autocast=bf16,fsdp2,fsdp2+reshard=never+offload=cpu --json"),
                     0);
    json_t *answer = program_object();
    const json_t *columns = json_object_get(answer, "systems");
    assert_int_equal(json_array_size(columns), 3);
    assert_string_equal(text(json_array_get(columns, 0), "without"), "--units");
    assert_string_equal(text(json_array_get(columns, 1), "without"), "--bucket-cap-mb");
    assert_string_equal(text(answer, "given"), "tests/data/configs/toy-llama --seq 256 "
                                               "--bucket-cap-mb 3 --units 2 --clip 1");
    static const char *const same[] = {"ddp --bucket-cap-mb 3 --clip 1 --autocast bf16",
                                       "fsdp2 --units 2 --clip 1",
                                       "fsdp2 --units 2 --clip 1 --reshard never --offload cpu"};
    for (size_t i = 0; i < 3; i++) {
        /* `plan` echoes settings that `fit` has not */
        json_object_del(json_array_get(columns, i), "settings");
        shardplan("fit " TOY " --strategy %s --json", same[i]);
        json_t *fit = program_object();
        json_object_set(json_array_get(columns, i), "settings", json_object_get(fit, "settings"));
        json_decref(fit);
        expect_column(json_array_get(columns, i), same[i]);
    }
    json_decref(answer);
}

static void a_system_that_cannot_says_why(void **state)
{
    (void)state;
    expect_says(shardplan("fit " TOY " --strategy ddp,fsdp2+reshard=3"), 0,
                "fsdp2+reshard=3: --reshard 3 does not divide the 8 ranks");
    assert_non_null(strstr(program_output(), "refused"));
    assert_null(strstr(program_output(), "\x1b"));
    expect_says(shardplan("fit " TOY " --strategy fsdp2+reshard=3,fsdp2+reshard=5"), 2,
                "--reshard 3 does not divide the 8 ranks");
    expect_says(shardplan("fit llama-3.1-70b --strategy ddp,zero2"), 1, "too large");
    /* one rule for one and for several: what none has is an error, what some have is theirs */
    expect_says(shardplan("fit " TOY " --strategy fsdp1 --reshard never"), 2,
                "--reshard: fsdp1 does not have it; it belongs to fsdp2");
    expect_says(shardplan("fit " TOY " --strategy fsdp1,zero3 --reshard never"), 2,
                "--reshard: fsdp1 does not have it; it belongs to fsdp2");
    expect_says(shardplan("fit " TOY " --strategy fsdp1,fsdp2 --reshard never"), 0,
                " --reshard never\n  fsdp1 is planned without --reshard, which it does not have\n");
    /* what changes what is trained is no option to be left out */
    expect_says(shardplan("fit " TOY " --strategy ddp,fsdp2 --param-dtype bf16"), 0,
                "ddp: --param-dtype: ddp computes in the stored dtype");
    expect_says(shardplan("fit " TOY " --strategy fsdp2,zero3 --store-dtype bf16"), 0,
                "zero3: --store-dtype: zero3 keeps a copy in fp32");
    expect_says(shardplan("fit " TOY " --strategy zero3 --checkpointing full --early-stop off"), 2,
                "Cannot reduce scatter gradients");
    expect_says(shardplan("fit " TOY " --ignore '*norm*'"), 2, "--param-dtype same");
    expect_says(shardplan("fit " TOY " --param-dtype same --ignore norms"), 2,
                "no parameter has such a name");
    expect_says(shardplan("fit " TOY " --param-dtype same --ignore '*norm*' --clip 1"), 2,
                "no DTensors together with tensors");
    expect_says(shardplan("fit " TOY " --ignore '*norm*' --strategy zero3"), 2, "wraps no modules");
}

static void what_is_wrong_is_said_once(void **state)
{
    (void)state;
    expect_says(shardplan("fit " TOY " --strategy ddp,zer1"), 2, "did you mean zero1?");
    static const char *const torn[] = {",",      "fsdp2,", ",fsdp2",  "fsdp2,,ddp",
                                       "fsdp2+", "+fsdp2", "fsdp2+,", "ddp++autocast=bf16"};
    for (size_t i = 0; i < sizeof torn / sizeof *torn; i++)
        expect_says(shardplan("fit " TOY " --strategy %s", torn[i]), 2, "a name is missing beside");
    expect_says(shardplan("fit " TOY " --strategy ddp,zero1 --reshard never"), 2,
                "--reshard: ddp shards no parameters; it belongs to fsdp2");
    expect_says(shardplan("fit " TOY " --strategy ddp,fsdp2+reshard=alway"), 2,
                "did you mean always?");
    expect_says(shardplan("fit " TOY " --strategy ddp,fsdp2 --seq x"), 2, "--seq x");
    expect_says(shardplan("fit " TOY " --strategy ddp,fsdp2 --explain"), 2,
                "--explain is of one system");
    expect_says(
        shardplan("fit --from tests/data/frameworks/torchtitan_8b.toml --strategy ddp,fsdp2"), 2,
        "is the configuration of one system");
    expect_says(shardplan("sweep " TOY " --strategy ddp,fsdp2 --over seq=64"), 2,
                "--strategy ddp,fsdp2: allowed are");
}

/* One system with settings of its own is one answer, as ever. */
static void one_system_is_no_table(void **state)
{
    (void)state;
    assert_int_equal(shardplan("fit " TOY " --strategy fsdp2+reshard=never --json"), 0);
    json_t *own = program_object();
    assert_int_equal(shardplan("fit " TOY " --strategy fsdp2 --reshard never --json"), 0);
    json_t *option = program_object();
    assert_true(json_equal(own, option));
    json_decref(own);
    json_decref(option);
}

static void files_are_written_where_asked(void **state)
{
    (void)state;
    char *folder = folder_new("systems");
    assert_int_equal(shardplan("plan " TOY " --strategy ddp,fsdp2+reshard=never -o %s", folder), 0);
    assert_int_equal(shardplan("run %s/fsdp2+reshard=never/plan.json --steps 1 -n 8 -o %s/run "
                               "--memory 64MB",
                               folder, folder),
                     0);
    assert_int_equal(shell("cat %s/systems.json", folder), 0);
    json_t *systems = program_object();
    assert_int_equal(json_array_size(json_object_get(systems, "systems")), 2);
    json_decref(systems);
    folder_drop(folder);
}

/* What a text batch does not run has no borders; what is said instead is planned. */
static void a_unit_without_borders_is_answered_with_another_way(void **state)
{
    static const char *const cases[][3] = {
        {"--strategy fsdp1 --use-orig-params on --autocast bf16 --units peft",
         "lora_A.default, of which it is not known where it begins and ends; --tower bare",
         "--tower bare"},
        {"--adapter-units on", "begins and ends; --tower bare", "--tower bare"},
        {"--strategy fsdp1 --use-orig-params on --autocast bf16 --units 1000000",
         "ends; --units blocks", "--units blocks"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char line[512];
        snprintf(
            line, sizeof line,
            "fit Qwen/Qwen2.5-VL-7B-Instruct --code hf --gpus 4 --seq 128 --no-remedies --lora "
            "8,all-linear %s",
            cases[i][0]);
        expect_says(shardplan("%s", line), 2, cases[i][1]);
        const int status = shardplan("%s %s", line, cases[i][2]);
        if (status != 0 && status != 1)
            fail_msg("%s %s: %s", line, cases[i][2], program_output());
    }
}

/* ZeRO-3's parameters come one by one: its partitions are only reduced together. What DeepSpeed
 * leaves alone on one node is said. */
static void zeros_units_and_what_does_nothing_are_said(void **state)
{
    static const char options[] = "/tmp/test_systems_zero.json";
    (void)state;
    FILE *file = fopen(options, "w");
    assert_non_null(file);
    fputs("{\"zero_optimization\": {\"stage\": 3, \"zero_quantized_gradients\": true}}", file);
    assert_int_equal(fclose(file), 0);
    expect_says(
        shardplan("fit " TOY " --strategy zero3 --code hf --lora 4,q_proj --zero %s", options), 0,
        "zero_quantized_gradients does nothing on one node");
    assert_non_null(strstr(program_output(), "units: 2, reduced in bf16: group 0 "));
    assert_null(strstr(program_output(), "0.00 GiB; "));
    unlink(options);
    shardplan_says(0, "--checkpoint-reentrant does nothing without checkpoints",
                   "fit llama-3.2-1b --code hf --gpus 8 --checkpoint-reentrant on");
    shardplan_says(0, "--early-stop does nothing without checkpoints",
                   "fit llama-3.2-1b --gpus 8 --early-stop off");
    shardplan_says(0, "--checkpoint-blocks does nothing without checkpoints",
                   "fit " TOY " --checkpoint-blocks first-1");
    assert_int_equal(shardplan("fit " TOY " --checkpoint-blocks first-1 --checkpointing full"), 0);
    assert_null(strstr(program_output(), "does nothing"));
}

/* The fastest of each set of dtypes, and what is reserved by blocks that come back late. */
static void what_is_compared_is_said(void **state)
{
    (void)state;
    shardplan_says(0, "in other dtypes:   ", "fit " TOY " --strategy zero3,fsdp2");
    shardplan_says(0, "ddp computes in fp32: its mixed precision is ddp+autocast=bf16",
                   "fit " TOY " --strategy ddp,fsdp2");
    assert_int_equal(shardplan("fit " TOY " --strategy fsdp1,fsdp2"), 0);
    assert_null(strstr(program_output(), "in other dtypes"));
    /* adapters are no faster training of the same */
    shardplan_says(0, "fastest that fits: fsdp2, ", "fit " TOY " --strategy fsdp2,zero3+lora=4");
    assert_non_null(strstr(program_output(), "  trains otherwise:  zero3+lora=4, "));
    assert_int_equal(shardplan("fit " TOY " --strategy fsdp2,fsdp2+lora=4,fsdp1 --json"), 0);
    json_t *answer = program_object();
    assert_int_not_equal(json_integer_value(json_object_get(answer, "best")), 1);
    json_decref(answer);
    shardplan_says(0, "late frees: blocks that another stream uses (record_stream)",
                   "fit llama-3.1-8b --gpus 8 --strategy zero3 --seq 4096");
    assert_int_equal(shardplan("fit llama-3.1-8b --gpus 8 --seq 4096"), 0);
    assert_null(strstr(program_output(), "late frees"));
}

/* One GPU that trains alone is one, unless more are asked for; beside others how many is said. */
static void one_gpu_alone_is_one(void **state)
{
    (void)state;
    shardplan_says(0, "single on 1 x ", "fit llama-3.2-1b --strategy single");
    shardplan_says(0, "GPUs                               8          1",
                   "fit llama-3.2-1b --strategy fsdp2,single");
    shardplan_says(0, "single on 1 x ", "fit llama-3.2-1b --gpus 1 --strategy single");
    shardplan_says(2, "one GPU trains alone, and --gpus is 2",
                   "fit llama-3.2-1b --gpus 2 --strategy single");
    assert_int_equal(shardplan("fit llama-3.2-1b --strategy fsdp2,ddp"), 0);
    assert_null(strstr(program_output(), "  GPUs "));
}

static int times_in(const char *text, const char *line)
{
    int times = 0;
    for (const char *at = text; (at = strstr(at, line)) != NULL; at += strlen(line))
        times++;
    return times;
}

/* Six systems are one table; what a line has no room for is below, with the same rows. */
static void what_is_too_wide_is_in_blocks(void **state)
{
    (void)state;
    static const char *const rows[] = {"\n  updated in ", "\n  activations ", "\n  device ",
                                       "\n  tokens/s of a GPU ", "\n  ZeRO's paper "};
    char six[8192], seven[8192];
    assert_int_equal(shardplan("fit " TOY " --strategy " ALL), 0);
    assert_true((size_t)snprintf(six, sizeof six, "%s", program_output()) < sizeof six);
    assert_int_equal(shardplan("fit " TOY " --strategy " ALL ",fsdp2+reshard=never"), 0);
    assert_true((size_t)snprintf(seven, sizeof seven, "%s", program_output()) < sizeof seven);
    char *end = strstr(six, "\n\n  ddp computes"); /* what is said below the table */
    assert_non_null(end);
    end[1] = '\0';
    assert_int_equal(strncmp(seven, six, strlen(six)), 0);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(times_in(six, rows[i]), 1);
        assert_int_equal(times_in(seven, rows[i]), 2);
    }
    assert_int_equal(times_in(seven, "\n  ddp computes in fp32"), 1);
    assert_int_equal(times_in(seven, "  fsdp2+reshard=never\n"), 1);
    for (char *line = strtok(seven, "\n"); line; line = strtok(NULL, "\n"))
        assert_true(strlen(line) <= 100);
}

/* peft takes requires_grad from adapters for the reference's forward, which FSDP1 sees. */
static void fsdp1_drops_gradients_behind_a_reference(void **state)
{
    (void)state;
#define DPO "fit llama-3.2-1b --code hf --gpus 4 --seq 64 --micro-batch 2 --loss dpo --lora 8 "
    assert_int_equal(shardplan(DPO "--strategy fsdp1 --use-orig-params on"), 0);
    shardplan_says(2, "the last alone would be trained on",
                   DPO "--strategy fsdp1 --use-orig-params on --accumulate 2");
    assert_int_equal(shardplan(DPO "--strategy fsdp1 --use-orig-params on --accumulate 2 "
                                   "--sharding SHARD_GRAD_OP"),
                     0);
    assert_int_equal(shardplan(DPO "--strategy fsdp2 --accumulate 2"), 0);
#undef DPO
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_unit_without_borders_is_answered_with_another_way),
        cmocka_unit_test(zeros_units_and_what_does_nothing_are_said),
        cmocka_unit_test(a_column_is_what_fit_says_of_that_system),
        cmocka_unit_test(a_column_has_settings_of_its_own),
        cmocka_unit_test(a_system_that_cannot_says_why),
        cmocka_unit_test(what_is_wrong_is_said_once),
        cmocka_unit_test(one_system_is_no_table),
        cmocka_unit_test(files_are_written_where_asked),
        cmocka_unit_test(what_is_compared_is_said),
        cmocka_unit_test(one_gpu_alone_is_one),
        cmocka_unit_test(what_is_too_wide_is_in_blocks),
        cmocka_unit_test(fsdp1_drops_gradients_behind_a_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

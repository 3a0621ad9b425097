/* test_tune_cli.c - shardplan tune as people and scripts call it. SHARDPLAN names the program. */
#include "tests/support/folder.h"
#include "tests/support/program.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define TOY "tests/data/configs/toy-llama --gpus 4 --seq 256 --strategy fsdp2 --units blocks"

static char group[] = "/tmp/shardplan_tune.XXXXXX";

/* A profile of a GPU that has so many bytes. */
static const char *with_memory(const char *bytes)
{
    char text[128];
    snprintf(text, sizeof text, "{\"capacity_bytes\": {\"value\": %s, \"source\": \"a test\"}}",
             bytes);
    const char *path = file_in(group, "profile.json");
    file_write(path, text, strlen(text));
    return path;
}

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

static void expect(int status, int expected, const char *says)
{
    if (status != expected || !strstr(program_output(), says))
        fail_msg("exit %d, no \"%s\" in: %s", status, says, program_output());
}

/* The command that it prints plans what it chose, and the files are there. */
static void what_is_chosen_is_what_plan_says(void **state)
{
    (void)state;
    char folder[] = "/tmp/shardplan_tune.XXXXXX", again[] = "/tmp/shardplan_tune.XXXXXX";
    assert_non_null(mkdtemp(folder));
    assert_non_null(mkdtemp(again));
    assert_int_equal(shardplan("tune " TOY " --global-batch 16 --json -o %s", folder), 0);
    json_t *tuned = program_object();
    const json_t *chosen = json_object_get(tuned, "chosen");
    const json_t *search = json_object_get(tuned, "search");
    const char *command = json_string_value(json_object_get(chosen, "command"));
    assert_int_equal(strncmp(command, "shardplan plan ", 15), 0);
    assert_int_equal(shardplan("%s --json -o %s", command + 10, again), 0);
    json_t *plan = program_object();
    assert_true(fabs(number(json_object_get(plan, "time"), "step_s") / number(chosen, "step_s") -
                     1) < 1e-9);
    assert_true(number(json_object_get(plan, "peak"), "device_bytes") ==
                number(chosen, "device_bytes"));
    assert_true(number(chosen, "low_s") < number(chosen, "high_s"));
    assert_true(number(search, "excluded_by_bounds") + number(search, "simulated") ==
                number(search, "configurations"));
    assert_true(json_array_size(json_object_get(tuned, "pareto")) > 0);
    assert_int_equal(shell("cd %s && ls tune.json plan.json trace.json report.html", folder), 0);
    json_decref(plan);
    json_decref(tuned);
    shell("rm -r %s %s", folder, again);
}

/* Options that the default system does not have are searched under those that do. */
static void systems_without_an_option_are_left_out(void **state)
{
    (void)state;
    static const struct {
        const char *options, *begins,
            *left_out; /* what is chosen begins with the first that has them */
    } cases[] = {
        {"--autocast bf16", "--strategy ", "zero1, zero2, zero3"},
        {"--bucket-cap-mb 25", "--strategy ddp ", "fsdp2, fsdp1: no --bucket-cap-mb"},
        {"--fix bucket-cap-mb=25", "--strategy ddp ", "fsdp2, fsdp1: no --bucket-cap-mb"},
        {"--offload optimizer", "--strategy zero", "no --offload"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        expect(shardplan("tune tests/data/configs/toy-llama --gpus 4 --seq 256 --code hf %s",
                         cases[i].options),
               0, cases[i].left_out);
        const char *chosen = strstr(program_output(), "  chosen                ");
        assert_non_null(chosen);
        if (strncmp(chosen + 24, cases[i].begins, strlen(cases[i].begins)) != 0)
            fail_msg("%s: %.80s", cases[i].options, chosen);
        const char *line = strstr(program_output(), "\n  shardplan plan ");
        assert_non_null(line);
        char command[512];
        snprintf(command, sizeof command, "%.*s", (int)strcspn(line + 13, "\n"), line + 13);
        assert_int_equal(shardplan("%s --no-files", command), 0);
    }
    expect(shardplan("tune " TOY " --autocast bf16"), 2, "fsdp2 has --param-dtype for that");
    expect(shardplan("tune gpt2 --fix strategy=fsdp2 --autocast bf16"), 2,
           "fsdp2 has --param-dtype for that");
    expect(shardplan("tune gpt2 --reshard never --bucket-cap-mb 25"), 2, "fsdp2 has no buckets");
}

static void tables_say_what_was_proven(void **state)
{
    (void)state;
    expect(shardplan("tune " TOY), 0, "optimal over ");
    expect(shardplan("tune " TOY), 0, "  shardplan plan tests/data/configs/toy-llama ");
    expect(shardplan("tune " TOY " --quiet"), 0, "");
    assert_string_equal(program_output(), "");
}

/* The card's own capacity with the headroom apart, what rows have in common once, and what was not
 * searched below the answer. */
static void the_answer_is_above_what_it_is_not_over(void **state)
{
    (void)state;
    expect(shardplan("tune " TOY), 0, " of 79.10 GiB, ");
    expect(0, 0, " free (1.27 of it kept as headroom: --headroom)\n");
    expect(0, 0, "\n  next, each with --reshard never:\n");
    const char *command = strstr(program_output(), "\n  shardplan plan ");
    const char *scope = strstr(program_output(), "\n  (--allow also searches ");
    assert_true(command && scope && command < scope);
    expect(shardplan("tune " TOY " --headroom 0"), 0, " of 79.10 GiB, ");
    assert_null(strstr(program_output(), "kept as headroom"));
}

/* Its command plans it: within a hundredth of the choice, with fewer settings. */
static void what_is_simpler_is_told_with_its_command(void **state)
{
    (void)state;
    static const char job[] = "llama-3.1-8b --gpus 8 --strategy fsdp2 --units torchtitan --offload "
                              "none --replicate 1 --checkpointing none";
    expect(shardplan("tune %s", job), 0, "\n  simpler, +0.");
    expect(0, 0, " GiB: shardplan plan llama-3.1-8b ");
    assert_int_equal(shardplan("tune %s --json", job), 0);
    json_t *tuned = program_object();
    const json_t *chosen = json_object_get(tuned, "chosen");
    const json_t *simpler = json_object_get(chosen, "simpler");
    const char *command = json_string_value(json_object_get(simpler, "command"));
    assert_true(number(simpler, "departures") < number(chosen, "departures"));
    assert_true(number(simpler, "step_s") <= 1.01 * number(chosen, "step_s"));
    assert_int_equal(shardplan("%s --no-files --json", command + 10), 0);
    json_t *plan = program_object();
    assert_true(number(json_object_get(plan, "peak"), "device_bytes") ==
                number(simpler, "device_bytes"));
    json_decref(plan);
    json_decref(tuned);
}

static void an_impossible_wish_exits_with_1_and_says_what_is_near(void **state)
{
    (void)state;
    expect(shardplan("tune llama-3.1-8b --gpus 8 --gpu l4 --seq 4096 --strategy fsdp2 --units "
                     "torchtitan --reshard always --offload none --optimizer-impl fused "
                     "--replicate 1"),
           1, "nothing fits");
    expect(shardplan("tune " TOY " --max-memory 1GiB"), 1,
           "nothing fits 1.00 GiB without giving cached memory back:\n        the least takes ");
    /* what takes too much by its blocks alone is bounded, not simulated, and said so */
    expect(shardplan("tune " TOY " --max-memory 1MiB"), 1, "the least of those worked out takes ");
    expect(1, 1, " or more\n");
    assert_int_equal(shardplan("tune " TOY " --max-memory 1GiB --json"), 1);
    json_t *none = program_object();
    assert_true(json_is_false(json_object_get(none, "fits")));
    assert_true(number(json_object_get(none, "search"), "least_bound_bytes") > 0x1p30);
    json_decref(none);
}

/* Four of Mixtral's blocks, on GPUs that are as much too small for them. What is said where nothing
 * fits is what `fit` says of the same settings. */
static void what_takes_least_is_judged_as_by_fit(void **state)
{
    (void)state;
    char job[256], roomy[128];
    assert_int_equal(shell("sed 's/\"num_hidden_layers\": 32/\"num_hidden_layers\": 4/' "
                           "tests/data/configs/mixtral-8x7b/config.json >%s/four.json",
                           group),
                     0);
    snprintf(roomy, sizeof roomy, "%s/four.json --gpus 64 --seq 4096 --strategy zero3", group);
    snprintf(job, sizeof job, "%s --profile %s", roomy, with_memory("19e9"));
    expect(shardplan("tune %s", job), 1, "of headroom, without giving cached memory back:");
    expect(1, 1, "fits, tight");
    expect(1, 1, "only by giving cached memory back, slower steps");
    assert_int_equal(shardplan("tune %s --json", job), 1);
    json_t *none = program_object();
    const json_t *least = json_object_get(none, "least"), *tight = json_object_get(none, "tight");
    const double limit = number(none, "limit_bytes");
    assert_true(json_is_true(json_object_get(least, "proven")));
    assert_int_equal(
        shardplan("fit %s %s --json", job, json_string_value(json_object_get(least, "change"))), 0);
    json_t *fit = program_object();
    assert_true(number(json_object_get(fit, "model"), "parameters") > 5e9);
    assert_true(number(json_object_get(fit, "device"), "unconstrained_bytes") ==
                number(least, "device_bytes"));
    assert_true(number(least, "device_bytes") > limit);
    json_decref(fit);
    assert_int_equal(
        shardplan("fit %s %s --json", job, json_string_value(json_object_get(tight, "change"))), 0);
    fit = program_object();
    assert_true(json_is_true(json_object_get(fit, "tight")));
    assert_true(json_is_true(json_object_get(fit, "fits_after_releasing_cached_segments")));
    assert_true(json_is_true(json_object_get(tight, "after_release")));
    assert_true(number(json_object_get(fit, "peak"), "device_bytes") ==
                number(tight, "device_bytes"));
    assert_true(number(tight, "device_bytes") > limit);
    json_decref(fit);
    /* nor does any take less, one by one, where there is room for all */
    static const char *const others[] = {"", "--checkpointing full", "--expandable-segments on",
                                         "--expandable-segments on --checkpointing full",
                                         "--optimizer-impl fused"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        assert_int_equal(shardplan("fit %s %s --json", roomy, others[i]), 0);
        fit = program_object();
        assert_true(number(json_object_get(fit, "device"), "unconstrained_bytes") >=
                    number(least, "device_bytes"));
        json_decref(fit);
    }
    json_decref(none);
}

/* The same of what is chosen where the machine's clock decides. */
static void what_fits_by_the_clock_is_chosen_as_fit_judges(void **state)
{
    (void)state;
    char job[256];
    assert_int_equal(shell("sed 's/\"num_hidden_layers\": 32/\"num_hidden_layers\": 4/' "
                           "tests/data/configs/mixtral-8x7b/config.json >%s/four.json",
                           group),
                     0);
    snprintf(job, sizeof job, "%s/four.json --gpus 64 --seq 4096 --strategy zero3 --profile %s",
             group, with_memory("22.8e9"));
    expect(shardplan("tune %s", job), 0, "by this machine's clock, as blocks");
    assert_int_equal(shardplan("tune %s --json", job), 0);
    json_t *root = program_object();
    const json_t *chosen = json_object_get(root, "chosen");
    assert_true(json_is_true(json_object_get(chosen, "fits_by_clock")));
    assert_int_equal(
        shardplan("fit %s %s --json", job, json_string_value(json_object_get(chosen, "change"))),
        0);
    json_t *fit = program_object();
    assert_true(json_is_true(json_object_get(fit, "fits_by_clock")));
    assert_true(number(json_object_get(fit, "peak"), "device_bytes") ==
                number(chosen, "device_bytes"));
    assert_true(number(json_object_get(fit, "device"), "unconstrained_bytes") >
                number(root, "limit_bytes"));
    json_decref(fit);
    json_decref(root);
}

/* A dtype by its name holds for systems whose words for it are their own, and 4 bits are sharded
 * where they are packed in what is gathered. */
static void frozen_weights_are_searched_in_other_systems(void **state)
{
    (void)state;
    static const char job[] = "llama-3.1-8b --gpus 2 --gpu rtx-4090 --lora 16 --seq 512 "
                              "--load-in-4bit nf4 --checkpointing full";
    assert_int_equal(shardplan("tune %s --strategy zero3 --allow strategy --frozen-dtype bf16 "
                               "--bnb-quant-storage bf16 --max-memory 5GiB --json",
                               job),
                     0);
    json_t *root = program_object();
    const char *change =
        json_string_value(json_object_get(json_object_get(root, "chosen"), "change"));
    assert_non_null(strstr(change, "--strategy fsdp"));
    json_decref(root);
    expect(shardplan("fit %s --strategy zero3 --frozen-dtype fp16", job), 2,
           "--frozen-dtype fp16: zero3 stores all parameters in one dtype, that of --param-dtype: "
           "bf16");
    assert_int_equal(shardplan("fit %s --strategy zero3 --frozen-dtype bf16", job), 0);
    expect(
        shardplan("fit llama-2-70b --gpus 4 --gpu rtx-4090 --lora 16 --seq 512 --load-in-4bit nf4 "
                  "--strategy ddp"),
        1, "--strategy fsdp2 --checkpointing full --bnb-quant-storage bf16 --frozen-dtype param");
}

static void bad_input_exits_with_2(void **state)
{
    (void)state;
    expect(shardplan("tune " TOY " --fix reshard"), 2, "NAME=VALUE");
    expect(shardplan("tune " TOY " --fix bucket-cap-mb=5"), 2, "belongs to ddp");
    expect(shardplan("tune " TOY " --allow seq"), 2, "no values to search");
    expect(shardplan("tune " TOY " --allow loss,lss"), 2,
           "--lss: `shardplan tune` does not have it");
    expect(shardplan("tune " TOY " --allow loss,"), 2, "--allow");
    expect(shardplan("tune " TOY " --global-batch 6"), 2, "cannot be split among 4 GPUs");
    expect(shardplan("tune " TOY " --global-batch 16 --micro-batch 3"), 2, "does not come to");
    expect(shardplan("tune"), 2, "MODEL is missing");
}

/* The file says what the plan beside it was made with: read back, it is the same job. */
static void the_choice_is_exported_beside_its_plan(void **state)
{
    (void)state;
    static const char *const targets[][3] = {
        {"fsdp2", "fsdp2.py", ""},
        {"torchtitan", "torchtitan.toml", "--units torchtitan --reshard default --clip 1"},
    };
    char folder[] = "/tmp/shardplan_tune.XXXXXX";
    assert_non_null(mkdtemp(folder));
    for (size_t i = 0; i < sizeof targets / sizeof targets[0]; i++) {
        assert_int_equal(shardplan("tune tests/data/configs/toy-llama --gpus 4 --seq 256 %s "
                                   "--strategy fsdp2 --checkpointing full --checkpoint-blocks "
                                   "every-2 --keep-unsharded 0 --forward-prefetch 0 "
                                   "--backward-prefetch 0 --accumulate 1 --param-dtype bf16 "
                                   "--offload none --json --to %s -o %s",
                                   targets[i][2], targets[i][0], folder),
                         0);
        json_t *tuned = program_object();
        const json_t *chosen = json_object_get(tuned, "chosen");
        assert_int_equal(shardplan("fit --from %s/%s --json", folder, targets[i][1]), 0);
        json_t *again = program_object();
        assert_true(number(json_object_get(again, "peak"), "device_bytes") ==
                    number(chosen, "device_bytes"));
        assert_string_equal(json_string_value(json_object_get(json_object_get(again, "settings"),
                                                              "checkpoint_blocks")),
                            "every-2");
        json_decref(again);
        json_decref(tuned);
    }
    expect(shardplan("tune " TOY " --reshard never --to torchtitan -o %s", folder), 2,
           "torchtitan cannot say --units blocks");
    expect(shardplan("tune " TOY " --to fsdp2"), 2, "Give -o, too");
    /* its only word for units is not the command's default */
    assert_int_equal(
        shardplan("tune tests/data/configs/toy-llama --gpus 4 --seq 256 --strategy fsdp2 "
                  "--json --to accelerate -o %s",
                  folder),
        0);
    json_t *tuned = program_object();
    const json_t *command = json_object_get(json_object_get(tuned, "chosen"), "command");
    assert_non_null(strstr(json_string_value(command), " --units torchtitan"));
    json_decref(tuned);
    shell("rm -r %s", folder);
}

/* The units that stay unsharded are named in the answer, in what it writes, and read back. */
static void kept_units_are_exported(void **state)
{
    (void)state;
    static const char job[] = "tests/data/configs/glm-4.5-air --gpus 128 --seq 2048 "
                              "--strategy fsdp2 --units blocks --checkpointing full "
                              "--checkpoint-blocks all --optimizer-impl fused --replicate 1 "
                              "--forward-prefetch 0 --backward-prefetch 0 --offload none "
                              "--micro-batch 1 --expandable-segments on";
    char folder[] = "/tmp/shardplan_tune.XXXXXX", counted[64];
    assert_non_null(mkdtemp(folder));
    assert_int_equal(shardplan("tune %s --to fsdp2 -o %s", job, folder), 0);
    json_t *tuned = json_load_file(file_in(folder, "tune.json"), 0, NULL);
    assert_non_null(tuned);
    const json_t *chosen = json_object_get(tuned, "chosen");
    const json_t *units = json_object_get(tuned, "per_unit");
    assert_string_equal(json_string_value(json_object_get(units, "state")), "searched");
    assert_true(json_is_true(json_object_get(units, "taken")));
    snprintf(counted, sizeof counted, "reshard=never on %.0f of 46 units", number(units, "kept"));
    assert_non_null(strstr(program_output(), counted));
    assert_true(json_equal(json_object_get(chosen, "settings"),
                           json_object_get(json_object_get(tuned, "fastest"), "settings")));
    const json_t *front = json_object_get(tuned, "pareto"), *before = NULL, *at;
    size_t i;
    json_array_foreach(front, i, at)
    {
        assert_true(!before || (number(at, "step_s") > number(before, "step_s") &&
                                number(at, "device_bytes") < number(before, "device_bytes")));
        before = at;
    }
    assert_true(i > 1 && number(json_array_get(front, 0), "step_s") == number(chosen, "step_s"));
    assert_int_equal(shardplan("fit --from %s/fsdp2.py --json", folder), 0);
    json_t *again = program_object();
    assert_true(number(json_object_get(again, "peak"), "device_bytes") ==
                number(chosen, "device_bytes"));
    const char *names[] = {"keep_units", "keep_unsharded"};
    for (i = 0; i < 2; i++)
        assert_true(json_equal(json_object_get(json_object_get(again, "settings"), names[i]),
                               json_object_get(json_object_get(chosen, "settings"), names[i])));
    json_decref(again);
    shell("test `grep -c '\\], False, ' %s/fsdp2.py` = %.0f", folder, number(units, "kept"));
    json_decref(tuned);
    expect(shardplan("tune %s --to torchtitan -o %s", job, folder), 2, "torchtitan cannot say");
    shell("rm -r %s", folder);
}

/* What was asked for and only spends memory is taken back where that makes it fit. */
static void what_spends_memory_is_taken_back(void **state)
{
    (void)state;
    expect(shardplan("fit llama-3.2-1b --gpus 8 --seq 8192 --checkpointing selective "
                     "--checkpoint-blocks every-2 --profile %s",
                     with_memory("20e9")),
           1, "  --checkpointing full --checkpoint-blocks all\n");
}

/* One of FSDP2's flags, which a training loop has to set: where it was allowed there are twice the
 * points, and none is faster without it. */
static void flags_are_opened_by_allow(void **state)
{
    (void)state;
    double step[2], count[2];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(shardplan("tune " TOY " --global-batch 16 --json%s",
                                   i ? " --allow reshard-after-backward" : ""),
                         0);
        json_t *answer = program_object();
        count[i] = number(json_object_get(answer, "search"), "points");
        step[i] = number(json_object_get(answer, "fastest"), "step_s");
        json_decref(answer);
    }
    assert_true(count[1] == 2 * count[0]);
    assert_true(step[1] <= step[0]);
}

/* What shards states under DDP is opened by --allow, and where nothing else helps. What has no
 * values is said not to have been searched. */
static void what_is_not_searched_is_opened_or_said(void **state)
{
    (void)state;
    expect(shardplan("tune " TOY " --allow zero-redundancy"), 0, "chosen");
    assert_int_equal(shell("sed 's/\"num_hidden_layers\": 8/\"num_hidden_layers\": 2/' "
                           "tests/data/configs/wide-llama/config.json >%s/two.json",
                           group),
                     0); /* of more, all would be compiled for each try */
    expect(shardplan("fit %s/two.json --gpus 8 --seq 512 --compile model --optimize-ddp off "
                     "--strategy ddp --store-dtype bf16 --profile %s",
                     group, with_memory("36e9")),
           1, "--zero-redundancy ");
    assert_null(strstr(program_output(), "not searched"));
    expect(shardplan("fit llama-3.2-1b --gpus 1 --seq 2048 --static-graph on --strategy ddp "
                     "--profile %s",
                     with_memory("2e9")),
           1,
           "no change of up to 5 of the settings searched makes it fit without giving cached "
           "memory back\n  not searched, of ddp: ");
    assert_non_null(strstr(program_output(), "--find-unused-parameters"));
    assert_non_null(strstr(program_output(), "--loss"));
    assert_null(strstr(program_output(), "--bucket-cap-mb"));
    assert_null(strstr(program_output(), "--zero-redundancy"));
    assert_null(strstr(program_output(), "--reshard"));
}

/* The next of names by commas, which may be in several lines, up to one of `ends`; NULL: none. */
static char *next_name(char **at, const char *ends)
{
    *at += strspn(*at, ", \n");
    if (!**at || strchr(ends, **at))
        return NULL;
    char *name = *at;
    *at += strcspn(*at, ",;)\n ");
    return name;
}

#define FEW "tests/data/configs/toy-llama --seq 256 --strategy zero1 --expandable-segments off"

/* What is said to be opened by --allow makes the search larger, each name by itself. */
static void what_allow_would_open_is_said(void **state)
{
    (void)state;
    static const char opens[] = "(--allow also searches ", wider[] = "more values of";
    char said[2048], *at, *name;
    int names = 0;
    assert_int_equal(shardplan("tune " FEW), 0);
    snprintf(said, sizeof said, "%s", program_output());
    assert_non_null(strstr(said, "\n  (not searched, as given or by default: "));
    assert_non_null(strstr(said, " compile,"));
    assert_int_equal(shardplan("tune " FEW " --json"), 0);
    json_t *answer = program_object();
    const double points = number(json_object_get(answer, "search"), "points");
    json_decref(answer);
    for (int list = 0; list < 2; list++) {
        at = strstr(said, list ? wider : opens);
        assert_non_null(at);
        at += strlen(list ? wider : opens);
        while ((name = next_name(&at, ";)")) != NULL) {
            const int length = (int)(at - name);
            assert_int_equal(shardplan("tune " FEW " --allow %.*s --json", length, name), 0);
            answer = program_object();
            if (!(number(json_object_get(answer, "search"), "points") > points))
                fail_msg("--allow %.*s opens nothing", length, name);
            json_decref(answer);
            names++;
        }
    }
    assert_true(names >= 6);
    /* where nothing fits, remedies are searched further */
    expect(shardplan("tune " TOY " --max-memory 1MiB"), 1, "");
    assert_null(strstr(program_output(), opens));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_chosen_is_what_plan_says),
        cmocka_unit_test(systems_without_an_option_are_left_out),
        cmocka_unit_test(tables_say_what_was_proven),
        cmocka_unit_test(the_answer_is_above_what_it_is_not_over),
        cmocka_unit_test(what_is_simpler_is_told_with_its_command),
        cmocka_unit_test(an_impossible_wish_exits_with_1_and_says_what_is_near),
        cmocka_unit_test(what_takes_least_is_judged_as_by_fit),
        cmocka_unit_test(what_fits_by_the_clock_is_chosen_as_fit_judges),
        cmocka_unit_test(frozen_weights_are_searched_in_other_systems),
        cmocka_unit_test(bad_input_exits_with_2),
        cmocka_unit_test(the_choice_is_exported_beside_its_plan),
        cmocka_unit_test(kept_units_are_exported),
        cmocka_unit_test(what_spends_memory_is_taken_back),
        cmocka_unit_test(what_is_not_searched_is_opened_or_said),
        cmocka_unit_test(what_allow_would_open_is_said),
        cmocka_unit_test(flags_are_opened_by_allow),
    };
    return cmocka_run_group_tests(tests, folder_set_up_undrawn(group), folder_tear_down);
}

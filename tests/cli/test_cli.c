/* test_cli.c - the program as scripts call it: options, exit status, JSON, files left behind.
 *
 * SHARDPLAN names the program (tests/run sets it). Each test works in a folder of its own. */
#include "tests/support/program.h"

#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* A model whose step takes milliseconds, where runs are started and ended. */
#define SMALL "tests/data/configs/toy-llama --seq 8"

static char folder[] = "/tmp/shardplan_cli.XXXXXX";

static int files_in(const char *path)
{
    int count = 0;
    DIR *dir = opendir(path);
    if (!dir)
        return 0;
    for (const struct dirent *entry; (entry = readdir(dir));)
        count += entry->d_name[0] != '.';
    closedir(dir);
    return count;
}

static void help_and_version_go_to_standard_output(void **state)
{
    (void)state;
    assert_int_equal(shell("^/shardplan --help 2>/dev/null"), 0);
    assert_non_null(strstr(program_output(), "fit"));
    assert_int_equal(shell("^/shardplan --version 2>/dev/null"), 0);
    assert_non_null(strstr(program_output(), "shardplan "));
    assert_int_equal(shell("^/shardplan fit --help 2>/dev/null"), 0);
    assert_non_null(strstr(program_output(), "--micro-batch"));
    assert_int_equal(shell("^/shardplan plan --help 2>/dev/null"), 0);
    assert_non_null(strstr(program_output(), "--output"));
}

static void bad_usage_says_what_is_allowed_and_exits_with_2(void **state)
{
    (void)state;
    static const struct {
        const char *arguments, *says;
    } cases[] = {
        {"fit tests/data/configs/tiny-llama --code hf --gpus 2 --seq 32 --micro-batch 2 --loss dpo "
         "--activation-offloading on",
         "with --activation-offloading: the reference is a second model"},
        {"", "Usage"},
        {"fot llama-3.1-8b", "not a command; did you mean fit?"},
        {"fit", "MODEL is missing"},
        {"fit gpt2 gpt2-xl", "one MODEL only"},
        {"fit gpt2 --gpus 0", "1 ... 1000000"},
        {"fit gpt2 --gpus four", "integers"},
        {"fit gpt2 --gpus 99999999999999999999", "integers"},
        {"fit gpt2 --gpu h1000", "did you mean h100-sxm?"},
        {"fit gpt2 --strategy zero7", "allowed are fsdp2"},
        {"fit gpt2 --reshard sometimes", "default, always, never"},
        {"fit gpt2 --gpus 8 --reshard 3", "does not divide"},
        {"fit gpt2 --gpus 8 --replicate 3", "does not divide"},
        {"fit gpt2 --gpus 8 --rank 8", "0 ... 7"},
        {"fit gpt2 --units 3XB", "500MB"},
        {"fit gpt2 --clip -1", "allowed are off, norms"},
        {"fit gpt2 --seq 4096", "1024"},
        {"fit gpt2 --param-dtype int8", "bf16, fp32, fp16, same"},
        {"fit gpt2 --checkpointing some", "none, full, selective"},
        {"fit no-such-model", "no-such-model"},
        {"fit gpt2 --profile /no/such/file.json", "/no/such/file.json"},
        {"plan gpt2 --node p6", "p6-b200"},
        {"plan gpt2 --profile tests/data/bad/two-objects.json", "two-objects.json:"},
        {"plan tests/data/recorded/funnel_fp32.stream.json.gz --micro-batch 2 --strategy ddp "
         "--find-unused-parameters on",
         "what a recorded model returns is not in its recording"},
        {"plan tests/data/recorded/bert.stream.json.gz --micro-batch 2 --strategy zero1 "
         "--param-dtype bf16 --grad-accum-dtype fp32",
         "is not planned of recorded models"},
        {"plan gpt2 --gpus 12 --seq 64 -o /tmp/none-of-these", "--gpus-per-node"},
        {"fit gpt2 --goodput", "unrecognized"},
        {"fit gpt2 --strategy fsdp1 --start-up --offload cpu --sharding NO_SHARD", "--offload cpu"},
        {"fit nosuch/config.json", "shardplan: nosuch/config.json: No such file or directory\n"},
        {"fit model.stream.json.gz",
         "shardplan: model.stream.json.gz: No such file or directory\n"},
        {"fit nobody/nothing", "`hf download nobody/nothing config.json`"},
        {"models --what", "`shardplan models --help` lists its options"},
        {"gpus extra", "no arguments but options"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const int status = shardplan("%s", cases[i].arguments);
        if (status != 2 || !strstr(program_output(), cases[i].says))
            fail_msg("shardplan %s: exit %d, said: %s", cases[i].arguments, status,
                     program_output());
    }
}

static void a_job_that_fits_exits_with_0_and_one_that_does_not_with_1(void **state)
{
    (void)state;
    assert_int_equal(shardplan("fit gpt2 --gpus 8 --seq 1024"), 0);
    assert_non_null(strstr(program_output(), "fits"));
    assert_int_equal(shardplan("fit tests/data/configs/toy-llama --seq 128 --micro-batch 524288"),
                     1);
    assert_non_null(strstr(program_output(), "does not fit"));
}

static void what_would_make_it_fit_really_fits(void **state)
{
    (void)state;
    assert_int_equal(shardplan("fit llama-3.1-8b --gpus 8 --seq 8192 --micro-batch 2 --json"), 1);
    json_t *result = json_loads(program_output(), 0, NULL);
    const json_t *remedies = json_object_get(result, "remedies");
    assert_true(json_array_size(remedies) >= 2);
    double tokens = INFINITY;
    bool before = false;
    for (size_t i = 0; i < json_array_size(remedies); i++) {
        const json_t *remedy = json_array_get(remedies, i);
        const char *change = json_string_value(json_object_get(remedy, "change"));
        assert_int_equal(
            shardplan("fit llama-3.1-8b --gpus 8 --seq 8192 --micro-batch 2 --json %s", change), 0);
        json_t *changed = json_loads(program_output(), 0, NULL);
        assert_int_equal(
            json_integer_value(json_object_get(remedy, "device_bytes")),
            json_integer_value(json_object_get(json_object_get(changed, "peak"), "device_bytes")));
        const bool otherwise = json_is_true(json_object_get(remedy, "changes_numerics"));
        const double own = json_number_value(json_object_get(remedy, "tokens_per_s_per_gpu"));
        assert_true(otherwise || !before);
        assert_true(otherwise != before || 0.99 * own <= tokens);
        before = otherwise;
        tokens = own;
        json_decref(changed);
    }
    json_decref(result);
}

/* What trains the same is apart from what does not, and the time of what cannot be is marked. */
static void what_does_not_fit_is_told_apart(void **state)
{
    (void)state;
    assert_int_equal(shardplan("fit mixtral-8x7b --gpus 16 --seq 4096 --checkpointing full --time"),
                     1);
    const char *same = strstr(program_output(), "\n  what would make it fit, same training, ");
    const char *columns = strstr(program_output(), "  --placement columns\n");
    const char *other =
        strstr(program_output(), "\n  what would make it fit, but trains otherwise");
    const char *dtype = strstr(program_output(), " --reduce-dtype bf16");
    const char *time = strstr(program_output(), "\n  if it fitted:\n  step ");
    assert_true(same && columns && other && dtype && time);
    assert_true(same < columns && columns < other && other < dtype && dtype < time);
    /* a note that proposes what is not among them says why */
    assert_int_equal(shardplan("fit mixtral-8x7b --gpus 32 --seq 1024 --gpu a100-40gb --strategy "
                               "zero3"),
                     1);
    assert_non_null(strstr(program_output(), ", only by giving cached memory back\n"));
    assert_int_equal(shardplan("fit gpt2 --gpus 8 --seq 1024 --time"), 0);
    assert_non_null(strstr(program_output(), "\n  step "));
    assert_null(strstr(program_output(), "if it fitted"));
}

static json_int_t bytes_at(const json_t *root, const char *object, const char *key)
{
    const json_t *value = json_object_get(json_object_get(root, object), key);
    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

static void fit_json_has_the_keys_that_scripts_read(void **state)
{
    (void)state;
    assert_int_equal(shell("^/shardplan fit tests/data/configs/toy-llama --gpus 4 --seq 128 "
                           "--micro-batch 2 --autograd recorded --json 2>/dev/null"),
                     0);
    json_t *root = json_loads(program_output(), 0, NULL);
    assert_non_null(root);
    static const char *const top[] = {"shardplan",      "model",          "settings",   "fits",
                                      "peak",           "capacity_bytes", "categories", "live",
                                      "headroom_bytes", "segment_peaks"};
    for (size_t i = 0; i < sizeof top / sizeof top[0]; i++)
        assert_non_null(json_object_get(root, top[i]));
    /* the numbers are those recorded for toy-w4 in tests/data/truth/events.jsonl */
    assert_int_equal(bytes_at(root, "model", "parameters"), 2688768);
    assert_int_equal(bytes_at(root, "peak", "requested_bytes"), 22285232);
    assert_int_equal(bytes_at(root, "categories", "activation"), 4575284);
    assert_int_equal(bytes_at(root, "categories", "reduce_scatter"), 3627520);
    assert_int_equal(bytes_at(root, "live", "after_logits"), 17294272);
    assert_int_equal(bytes_at(root, "segment_peaks", "backward_head"), 19854280);
    assert_string_equal(json_string_value(json_object_get(json_object_get(root, "peak"), "phase")),
                        "backward_blocks");
    json_decref(root);
}

/* The events of a config.json through the program, beside what PyTorch did. */
static void what_the_models_file_says_besides_is_shown_with_every_plan(void **state)
{
    (void)state;
    static const char note[] = "a \"gemma3\" is planned with batches of text alone";
    const char *model = "tests/data/configs/gemma-3-4b --gpus 8 --seq 64";
    assert_int_equal(shardplan("fit %s", model), 0);
    assert_non_null(strstr(program_output(), "note: a \"gemma3\" is planned"));
    assert_int_equal(shell("^/shardplan fit %s --json 2>/dev/null", model), 0);
    json_t *root = program_object();
    const json_t *notes = json_object_get(root, "notes");
    assert_int_equal(json_array_size(notes), 1);
    assert_non_null(strstr(json_string_value(json_array_get(notes, 0)), note));
    json_decref(root);
    assert_int_equal(shell("^/shardplan sweep %s --over micro-batch=1,2 2>&1 >/dev/null", model),
                     0);
    assert_non_null(strstr(program_output(), note));
    assert_int_equal(shell("^/shardplan fit gemma-3-4b-text --gpus 8 --seq 64 2>/dev/null"), 0);
    assert_null(strstr(program_output(), "note:"));
}

static void patterns_that_freeze_nothing_are_refused(void **state)
{
    (void)state;
    assert_int_equal(shell("^/shardplan fit tests/data/configs/toy-llama --freeze 'layer.*' 2>&1"),
                     2);
    assert_non_null(strstr(program_output(), "no parameter has such a name"));
    assert_non_null(strstr(program_output(), "tok_embeddings.weight"));
}

static double number_at(const json_t *root, const char *object, const char *key)
{
    return json_number_value(json_object_get(json_object_get(root, object), key));
}

/* Llama-3.1-8B offloaded: parameters, gradients and states of a rank are on the host, 16 bytes a
 * parameter in eight parts, and none of them on the device. */
static void what_is_offloaded_is_on_the_host(void **state)
{
    (void)state;
    assert_int_equal(shell("^/shardplan fit llama-3.1-8b --gpus 8 --seq 4096 --offload cpu "
                           "--json 2>/dev/null"),
                     0);
    json_t *root = json_loads(program_output(), 0, NULL);
    const json_t *device = json_object_get(root, "device"), *host = json_object_get(root, "host");
    assert_non_null(host);
    const double parameters = number_at(root, "model", "parameters");
    const double bytes = number_at(root, "host", "requested_bytes");
    /* parameters, gradients, two states, and what AdamW (foreach) takes for its time, all of fp32
     */
    assert_true(bytes >= 20 * parameters / 8 && bytes < 20.01 * parameters / 8);
    assert_true(number_at(device, "categories", "optimizer") < 1e6);
    assert_true(number_at(device, "categories", "sharded_param") == 0);
    assert_true(number_at(host, "categories", "optimizer") >= parameters);
    /* at the peak, too: no more is requested than allocated, and allocated than reserved */
    const double requested = number_at(root, "peak", "requested_bytes");
    assert_true(requested == number_at(root, "device", "requested_bytes"));
    assert_true(requested <= number_at(root, "peak", "allocated_bytes"));
    assert_true(number_at(root, "categories", "optimizer") < 1e6);
    assert_true(number_at(root, "segment_peaks", "optimizer") < requested);
    assert_true(number_at(root, "live", "start") < 2 * parameters);
    json_decref(root);
}

/* What fits only by giving segments back has room left, needs no less than its allocations, and
 * says so. */
static void the_verdict_is_between_least_and_unconstrained(void **state)
{
    (void)state;
    static const char *const segments[] = {"off", "on"};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(shell("^/shardplan fit llama-3.1-8b --gpus 8 --seq 8192 --micro-batch 2 "
                               "--checkpointing selective --expandable-segments %s --json "
                               "2>/dev/null",
                               segments[i]),
                         0);
        json_t *root = json_loads(program_output(), 0, NULL);
        const double capacity = json_number_value(json_object_get(root, "capacity_bytes"));
        const double peak = number_at(root, "peak", "device_bytes");
        assert_true(json_is_true(json_object_get(root, "fits_after_releasing_cached_segments")));
        assert_true(json_is_true(json_object_get(root, "tight")));
        assert_true(json_number_value(json_object_get(root, "headroom_bytes")) >= 0);
        assert_true(number_at(root, "device", "unconstrained_bytes") > capacity);
        assert_true(number_at(root, "device", "least_bytes") <= peak);
        assert_true(peak <= capacity);
        json_decref(root);
    }
}

static void plan_leaves_every_file_it_names(void **state)
{
    (void)state;
    static const char *const names[] = {"plan.json", "trace.json", "snapshot.pickle",
                                        "report.html"};
    char path[512];
    struct stat st;
    assert_int_equal(
        shardplan("plan tests/data/configs/toy-llama --gpus 4 --seq 128 -q -o %s/plan", folder), 0);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(path, sizeof path, "%s/plan/%s", folder, names[i]);
        assert_int_equal(stat(path, &st), 0);
        assert_true(st.st_size > 1000);
    }
    snprintf(path, sizeof path, "%s/plan/trace.json", folder);
    json_t *trace = json_load_file(path, 0, NULL);
    assert_non_null(trace);
    json_decref(trace);
    snprintf(path, sizeof path, "%s/plan/picture.gp.tmp", folder);
    assert_int_not_equal(stat(path, &st), 0);
}

/* Each rank's, where they do not follow from rank 0's; the same as beside the other files. */
static void the_plan_alone_is_written_where_that_is_asked(void **state)
{
    (void)state;
    static const char job[] = "tests/data/configs/toy-llama --gpus 2 --seq 64 --strategy zero1";
    assert_int_equal(shardplan("plan %s -q -o %s/every", job, folder), 0);
    assert_int_equal(shardplan("plan %s --files plan -o %s/alone", job, folder), 0);
    assert_non_null(
        strstr(program_output(), "/alone/: plan.json, plan-1.json (the other rank's)\n"));
    assert_int_equal(
        shell("cd %s && cmp alone/plan.json every/plan.json && "
              "cmp alone/plan-1.json every/plan-1.json && test $(ls alone | wc -l) = 2",
              folder),
        0);
}

static json_int_t start_up_at(const json_t *said, const char *part, const char *way,
                              const char *key)
{
    const json_t *found =
        json_object_get(json_object_get(json_object_get(said, "start_up"), part), way);
    assert_true(json_is_integer(json_object_get(found, key)));
    return json_integer_value(json_object_get(found, key));
}

static void start_up_counts_models_by_hand(void **state)
{
    (void)state;
    assert_int_equal(shardplan("fit tests/data/configs/toy-llama --gpus 16 --seq 128 --start-up "
                               "--json"),
                     0);
    json_t *said = json_loads(program_output(), 0, NULL);
    assert_non_null(said);
    const json_int_t parameters =
        json_integer_value(json_object_get(json_object_get(said, "model"), "parameters"));
    assert_int_equal(start_up_at(said, "checkpoints", "full", "storage_bytes"), 4 * parameters);
    assert_int_equal(start_up_at(said, "checkpoints", "full_optimizer", "storage_bytes"),
                     12 * parameters);
    assert_int_equal(start_up_at(said, "checkpoints", "sharded", "storage_bytes"), 12 * parameters);
    assert_int_equal(start_up_at(said, "initialisation", "cpu", "host_node_bytes"),
                     8 * start_up_at(said, "initialisation", "cpu", "host_rank0_bytes"));
    assert_int_equal(start_up_at(said, "initialisation", "meta", "host_node_bytes"), 0);
    assert_int_equal(start_up_at(said, "initialisation", "broadcast", "host_other_bytes"), 0);
    json_decref(said);
    assert_int_equal(shardplan("fit llama-3.1-70b --gpus 64 --seq 128 --start-up"), 0);
    assert_non_null(strstr(program_output(), "does not fit: whole on the GPU"));
}

/* Each system has ways of its own, and says none that it has not. */
static void start_up_is_each_systems(void **state)
{
    (void)state;
    static const struct {
        const char *strategy, *part, *way;
        json_int_t bytes; /* of storage for a parameter */
    } cases[] = {
        {"fsdp1", "checkpoints", "full", 4},
        {"fsdp1", "checkpoints", "sharded_optimizer", 12},
        {"ddp", "checkpoints", "full_optimizer", 12},
        {"zero1", "checkpoints", "save", 14},
        {"zero2", "checkpoints", "save", 14},
        {"zero3", "checkpoints", "gather_16bit", 2},
        {"zero3", "initialisation", "zero_init", 0},
        {"fsdp1 --sharding NO_SHARD", "checkpoints", "full", 4},
        {"zero3 --gpus 1", "checkpoints", "save", 12},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(shardplan("fit tests/data/configs/toy-llama --gpus 16 --seq 128 "
                                   "--start-up --json --strategy %s",
                                   cases[i].strategy),
                         0);
        json_t *said = json_loads(program_output(), 0, NULL);
        const json_int_t parameters =
            json_integer_value(json_object_get(json_object_get(said, "model"), "parameters"));
        const json_int_t bytes = start_up_at(said, cases[i].part, cases[i].way, "storage_bytes");
        const json_t *ways = json_object_get(json_object_get(said, "start_up"), "checkpoints");
        assert_null(json_object_get(ways, "async"));
        /* vectors end with less than 4 bytes of padding a rank and dtype */
        assert_true(bytes >= cases[i].bytes * parameters);
        assert_true(bytes < cases[i].bytes * parameters + (json_int_t)16 * 16 * 4);
        json_decref(said);
    }
}

static void plan_says_how_fast_and_the_files_say_the_same(void **state)
{
    (void)state;
    char path[512];
    assert_int_equal(
        shardplan("plan tests/data/configs/toy-llama --gpus 16 --seq 128 --accumulate 3 --goodput "
                  "--json -o %s/timed",
                  folder),
        0);
    json_t *said = json_loads(program_output(), 0, NULL);
    const double step_s = number_at(said, "time", "step_s");
    assert_true(step_s > 0 && number_at(said, "time", "step_low_s") <= step_s);
    assert_true(number_at(said, "time", "step_high_s") >= step_s);
    assert_true(fabs(number_at(said, "time", "tokens_per_s_per_gpu") - 3 * 128 / step_s) < 1e-6);
    assert_true(number_at(said, "time", "mfu") > 0);
    assert_true(number_at(said, "time", "exposed_communication_s") > 0);
    assert_null(json_object_get(json_object_get(said, "goodput"), "step_s")); /* there is one */
    const json_t *spent = json_object_get(json_object_get(said, "time"), "spent_s");
    const char *what;
    json_t *seconds_spent;
    double all_s = 0;
    json_object_foreach((json_t *)spent, what, seconds_spent) all_s +=
        json_number_value(seconds_spent);
    assert_true(fabs(all_s / step_s - 1) < 1e-9);
    assert_true(number_at(said, "time", "waiting_s") <= number_at(said, "time", "communication_s"));
    const json_t *slowest = json_object_get(json_object_get(said, "time"), "slowest_rank");
    assert_int_equal(json_integer_value(json_object_get(slowest, "ranks")), 16);
    assert_true(json_number_value(json_object_get(slowest, "arithmetic")) > 1);
    assert_true(fabs(number_at(said, "goodput", "useful") +
                     number_at(said, "goodput", "checkpointing") +
                     number_at(said, "goodput", "restarting") +
                     number_at(said, "goodput", "repeating") - 1) < 1e-9);
    json_decref(said);

    snprintf(path, sizeof path, "%s/timed/plan.json", folder);
    json_t *plan = json_load_file(path, 0, NULL);
    assert_true(fabs(number_at(plan, "time", "step_s") - step_s) < 1e-9);
    const json_t *seconds = json_object_get(json_object_get(plan, "time"), "instruction_s");
    const json_t *instructions = json_object_get(plan, "instructions");
    assert_int_equal(json_array_size(seconds), json_array_size(instructions));
    snprintf(path, sizeof path, "%s/timed/trace.json", folder);
    json_t *trace = json_load_file(path, 0, NULL);
    const json_t *events = json_object_get(trace, "traceEvents"), *event;
    size_t i, joined = 0;
    json_array_foreach((json_t *)events, i, event)
    {
        const json_t *id = json_object_get(json_object_get(event, "args"), "id");
        if (!json_is_integer(id) ||
            strcmp(json_string_value(json_object_get(event, "ph")), "X") != 0)
            continue;
        const json_t *own = json_array_get(seconds, (size_t)json_integer_value(id));
        const double us = json_number_value(json_object_get(event, "dur"));
        assert_true(fabs(json_number_value(own) * 1e6 - us) < 0.002); /* nanoseconds are kept */
        joined++;
    }
    assert_true(joined > 100);
    json_decref(plan);
    json_decref(trace);
}

static void bad_models_leave_no_output(void **state)
{
    (void)state;
    int tried = 0;
    DIR *dir = opendir("tests/data/bad");
    assert_non_null(dir);
    for (const struct dirent *entry; (entry = readdir(dir));) {
        char out[512];
        const size_t length = strlen(entry->d_name);
        if (length < 5 || strcmp(entry->d_name + length - 5, ".json") != 0)
            continue;
        snprintf(out, sizeof out, "%s/bad", folder);
        const int status = shardplan("plan tests/data/bad/%s -o %s", entry->d_name, out);
        if (status != 2 || files_in(out) != 0)
            fail_msg("%s: exit %d: %s", entry->d_name, status, program_output());
        tried++;
    }
    closedir(dir);
    assert_true(tried >= 40);
}

/* A gnuplot that leaves a trace of having been started, and draws nothing. */
static void put_gnuplot_there(void)
{
    char command[1024];
    snprintf(command, sizeof command,
             "cd %s && mkdir bin asked && cd bin && "
             "printf '#!/bin/sh\\ntouch %s/asked/drawn\\nexit 1\\n' >gnuplot && chmod +x gnuplot",
             folder, folder);
    assert_int_equal(system(command), 0);
}

static bool is_there(const char *name)
{
    char path[512];
    struct stat st;
    snprintf(path, sizeof path, "%s/asked/%s", folder, name);
    return stat(path, &st) == 0;
}

static json_t *answer_of(const char *arguments)
{
    assert_int_equal(
        shell("there=$(cd ^ && pwd) && cd %s/asked && PATH=%s/bin:$PATH $there/shardplan %s "
              "--json 2>/dev/null",
              folder, folder, arguments),
        0);
    json_t *answer = json_loads(program_output(), 0, NULL);
    assert_non_null(answer);
    return answer;
}

/* fit --time and plan say the same of a step; what is written is what was asked for. */
static void nothing_is_written_or_drawn_unasked(void **state)
{
    (void)state;
    put_gnuplot_there();
    json_t *plain = answer_of("fit gpt2 --gpus 8 --seq 256");
    json_t *timed = answer_of("fit gpt2 --gpus 8 --seq 256 --time");
    json_t *planned = answer_of("plan gpt2 --gpus 8 --seq 256 --no-files");
    assert_null(json_object_get(plain, "time"));
    assert_true(json_equal(json_object_get(timed, "time"), json_object_get(planned, "time")));
    assert_true(json_equal(json_object_get(timed, "peak"), json_object_get(planned, "peak")));
    assert_false(is_there("plan.json") || is_there("plan") || is_there("drawn"));

    json_decref(answer_of("plan gpt2 --gpus 8 --seq 256")); /* into plan/, without pictures */
    assert_true(is_there("plan/plan.json") && is_there("plan/report.html"));
    assert_false(is_there("drawn"));
    json_decref(answer_of("plan gpt2 --gpus 8 --seq 256 -o a/b/c")); /* and the folders above */
    assert_true(is_there("a/b/c/plan.json") && is_there("drawn"));
    json_decref(plain);
    json_decref(timed);
    json_decref(planned);
}

static void a_step_is_explained(void **state)
{
    (void)state;
    json_t *answer = answer_of("fit gpt2 --gpus 8 --seq 1024 --micro-batch 8 --explain");
    const json_t *explained = json_object_get(answer, "explain");
    const json_t *spent = json_object_get(explained, "spent");
    const json_t *numbers = json_object_get(explained, "numbers");
    const double step_s = number_at(answer, "time", "step_s");
    const char *kind;
    json_t *part;
    double sum_s = 0;
    size_t i;
    json_object_foreach((json_t *)spent, kind, part)
    {
        const json_t *kernel;
        double kernels_s = 0;
        json_array_foreach(json_object_get(part, "kernels"), i, kernel)
        {
            kernels_s += json_number_value(json_object_get(kernel, "seconds"));
        }
        assert_true(fabs(kernels_s - json_number_value(json_object_get(part, "seconds"))) <
                    1e-9 * step_s);
        sum_s += kernels_s;
    }
    assert_true(fabs(sum_s / step_s - 1) < 1e-9);
    assert_true(json_array_size(numbers) > 10);
    const json_t *number;
    json_array_foreach(numbers, i, number)
    {
        assert_true(json_is_string(json_object_get(number, "source")));
        assert_true(json_number_value(json_object_get(number, "step_change")) != 0);
    }
    json_decref(answer);
    assert_int_equal(shardplan("plan gpt2 --gpus 8 --seq 1024 --no-files --explain"), 0);
    assert_non_null(strstr(program_output(), "what 10 % of a number changes"));
    assert_non_null(strstr(program_output(), "host_op_s"));
}

static void a_folder_that_cannot_be_made_is_a_failure(void **state)
{
    (void)state;
    assert_int_equal(shardplan("plan gpt2 --seq 64 -o /proc/no/such/folder"), 3);
    assert_non_null(strstr(program_output(), "/proc/no/such/folder"));
}

static void lists_are_valid_json(void **state)
{
    (void)state;
    assert_int_equal(shell("^/shardplan models --json 2>/dev/null"), 0);
    json_t *models = json_loads(program_output(), 0, NULL);
    assert_true(json_array_size(models) >= 30);
    json_decref(models);
    assert_int_equal(shell("^/shardplan gpus --json 2>/dev/null"), 0);
    json_t *gpus = json_loads(program_output(), 0, NULL);
    assert_true(json_array_size(gpus) >= 20);
    json_decref(gpus);
}

/* Systems differ in how many categories of memory they have. */
static void pictures_are_drawn_of_every_system(void **state)
{
    (void)state;
    static const char *const systems[] = {"fsdp2", "fsdp1", "ddp", "zero1", "zero2", "zero3"};
    if (shell("command -v gnuplot") != 0)
        skip();
    for (size_t i = 0; i < sizeof systems / sizeof *systems; i++)
        if (shell("^/shardplan plan fsdp2-tutorial --gpus 2 --accumulate 2 --strategy %s -q "
                  "-o %s/%s 2>&1 && cd %s/%s && ls memory.svg memory-time.svg timeline.svg",
                  systems[i], folder, systems[i], folder, systems[i]) != 0)
            fail_msg("%s: %s", systems[i], program_output());
}

static void what_cannot_be_printed_is_a_failure(void **state)
{
    (void)state;
    static const char *const commands[] = {"fit gpt2", "fit gpt2 --json", "--help",   "fit --help",
                                           "models",   "--man",           "--version"};
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        assert_int_equal(shell("^/shardplan %s 2>&1 >/dev/full", commands[i]), 3);
        if (!strstr(program_output(), "standard output: No space left on device"))
            fail_msg("%s: %s", commands[i], program_output());
    }
    assert_int_equal(shell("^/shardplan models >&-"), 0); /* whoever closes it wants none */
}

/* Not only of one rank: mpirun would not say it. */
static void steps_that_cannot_be_printed_are_a_failure(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 2; ranks++) {
        if (ranks > 1 && shell("command -v mpirun") != 0)
            skip();
        assert_int_equal(
            shardplan("plan " SMALL " --gpus %d --files plan -q -o %s/unsaid", ranks, folder), 0);
        assert_int_equal(
            shell("^/shardplan run %s/unsaid/plan.json --steps 1 2>&1 >/dev/full", folder), 3);
        assert_non_null(strstr(program_output(), "standard output: No space left on device"));
        assert_int_equal(shell("^/shardplan run %s/unsaid/plan.json --steps 1 | grep 1/1", folder),
                         0);
    }
}

static void inputs_without_end_are_refused(void **state)
{
    (void)state;
    static const char *const commands[] = {"fit /dev/zero", "fit gpt2 --profile /dev/zero",
                                           "run /dev/zero",
                                           "calibrate --from-nccl-tests /dev/zero"};
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        assert_int_equal(shardplan("%s", commands[i]), 2);
        assert_non_null(strstr(program_output(), "/dev/zero: "));
    }
}

/* Memory that an input asks for, and is not there. */
static void a_file_larger_than_memory_is_an_error(void **state)
{
    (void)state;
    const char *checked = getenv("SHARDPLAN");
    if (checked && (strstr(checked, "san"))) /* which take address space by the terabyte */
        skip();
    assert_int_equal(shell("truncate -s 300M %s/large.json; ulimit -v 250000; "
                           "^/shardplan run %s/large.json 2>&1",
                           folder, folder),
                     3);
    assert_non_null(strstr(program_output(), "no memory for its "));
    assert_int_equal(shell("rm %s/large.json", folder), 0);
}

/* What is large is not on the stack, and nothing follows what a file nests. */
static void little_stack_is_enough(void **state)
{
    (void)state;
    static const struct {
        const char *arguments;
        int status;
    } commands[] = {
        {"fit gpt2", 0},
        {"fit gpt2 --strategy ddp,fsdp2", 0},
        {"fit tests/data/configs/wide-llama --gpus 8 --seq 8192 --micro-batch 2", 1},
        {"tune gpt2 --gpus 8 --seq 128 --global-batch 8", 0},
        {"fit tests/data/bad/deep-arrays.json", 2},
        {"fit tests/data/bad/deep-objects.json", 2},
    };
    const char *checked = getenv("SHARDPLAN");
    if (checked && (strstr(checked, "san"))) /* which have larger frames */
        skip();
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        assert_int_equal(shell("ulimit -s 128; ^/shardplan %s 2>&1", commands[i].arguments),
                         commands[i].status);
    }
    assert_int_equal(shell("ulimit -s 128; ^/shardplan plan gpt2 -q -o %s/stack", folder), 0);
    assert_int_equal(shell("ulimit -s 128; ^/shardplan fit tests/data/bad/open-brackets.json 2>&1"),
                     2);
    assert_non_null(strstr(program_output(), "it is nested deeper than 64"));
}

static void runs_that_no_machine_can_hold_are_refused_before_they_start(void **state)
{
    (void)state;
    assert_int_equal(
        shardplan("plan fsdp2-tutorial --gpus 4096 --files plan -q -o %s/many", folder), 0);
    assert_int_equal(shardplan("run %s/many/plan.json", folder), 2);
    assert_non_null(
        strstr(program_output(), "is a plan for 4096 ranks: one machine starts at most"));
    assert_int_equal(
        shardplan("plan llama-2-70b --gpus 256 --seq 128 --files plan -q -o %s/large", folder), 0);
    assert_int_equal(shardplan("run %s/large/plan.json", folder), 2);
    assert_non_null(strstr(program_output(), "256 ranks of "));
    assert_non_null(strstr(program_output(), "GiB of memory; --force starts them"));
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    (void)state;
    char command[256];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

static double optimizer_bytes(const char *options)
{
    const int status =
        shardplan("fit llama-3.2-1b --seq 16 --checkpointing full %s --json", options);
    assert_in_range(status, 0, 1);
    json_t *root = program_object();
    const json_t *categories = json_object_get(root, "categories");
    const double bytes = json_number_value(json_object_get(categories, "optimizer"));
    json_decref(root);
    return bytes;
}

/* What fit says of the optimizer's temporaries, and what it says without them. */
static void a_fused_optimizer_has_less_where_that_is_said(void **state)
{
    (void)state;
    static const struct {
        const char *options;
        bool less;
    } jobs[] = {
        {"--replicate 8 --gpu h200", true},
        {"--strategy ddp --gpu b200", true},
        {"--strategy zero2 --accumulate 2", false}, /* copies of its own */
        {"--strategy zero2 --optimizer sgd", false},
    };
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        char fused[256];
        snprintf(fused, sizeof fused, "%s --optimizer-impl fused", jobs[i].options);
        assert_true((optimizer_bytes(fused) < optimizer_bytes(jobs[i].options)) == jobs[i].less);
        shardplan("fit llama-3.2-1b --seq 16 --checkpointing full %s", jobs[i].options);
        assert_true((strstr(program_output(), "--optimizer-impl fused has less") != NULL) ==
                    jobs[i].less);
    }
}

static void what_was_not_given_and_decides_is_said(void **state)
{
    (void)state;
    shardplan_says(0, "assumed: --seq 2048 --checkpointing none\n", "fit llama-3.2-1b");
    shardplan_says(0, "assumed: --checkpointing none\n", "fit llama-3.2-1b --seq 2048");
    shardplan_says(0, "as torchtitan writes it (--code hf: as transformers does)\n",
                   "fit llama-3.2-1b --seq 2048 --checkpointing full");
    assert_null(strstr(program_output(), "assumed"));
    shardplan_says(0, "as torchtitan writes it\n", "fit llama-3.2-1b --code torchtitan");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(help_and_version_go_to_standard_output),
        cmocka_unit_test(bad_usage_says_what_is_allowed_and_exits_with_2),
        cmocka_unit_test(a_job_that_fits_exits_with_0_and_one_that_does_not_with_1),
        cmocka_unit_test(what_would_make_it_fit_really_fits),
        cmocka_unit_test(what_does_not_fit_is_told_apart),
        cmocka_unit_test(fit_json_has_the_keys_that_scripts_read),
        cmocka_unit_test(what_the_models_file_says_besides_is_shown_with_every_plan),
        cmocka_unit_test(patterns_that_freeze_nothing_are_refused),
        cmocka_unit_test(what_is_offloaded_is_on_the_host),
        cmocka_unit_test(the_verdict_is_between_least_and_unconstrained),
        cmocka_unit_test(plan_leaves_every_file_it_names),
        cmocka_unit_test(the_plan_alone_is_written_where_that_is_asked),
        cmocka_unit_test(plan_says_how_fast_and_the_files_say_the_same),
        cmocka_unit_test(bad_models_leave_no_output),
        cmocka_unit_test(nothing_is_written_or_drawn_unasked),
        cmocka_unit_test(a_step_is_explained),
        cmocka_unit_test(start_up_counts_models_by_hand),
        cmocka_unit_test(start_up_is_each_systems),
        cmocka_unit_test(a_folder_that_cannot_be_made_is_a_failure),
        cmocka_unit_test(lists_are_valid_json),
        cmocka_unit_test(pictures_are_drawn_of_every_system),
        cmocka_unit_test(what_cannot_be_printed_is_a_failure),
        cmocka_unit_test(steps_that_cannot_be_printed_are_a_failure),
        cmocka_unit_test(inputs_without_end_are_refused),
        cmocka_unit_test(a_file_larger_than_memory_is_an_error),
        cmocka_unit_test(little_stack_is_enough),
        cmocka_unit_test(runs_that_no_machine_can_hold_are_refused_before_they_start),
        cmocka_unit_test(a_fused_optimizer_has_less_where_that_is_said),
        cmocka_unit_test(what_was_not_given_and_decides_is_said),
    };
    return cmocka_run_group_tests_name("cli", tests, make_folder, remove_folder);
}

/* test_frameworks_cli.c - --from and export as a user types them. */
#include "tests/support/folder.h"
#include "tests/support/program.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define DATA "tests/data/frameworks/"
#define TOY "tests/data/configs/toy-llama"

static char *folder;

enum { PLANS = 2 };
static char *plans[PLANS]; /* folders, too */

static int make_folders(void **state)
{
    (void)state;
    folder = folder_new("from");
    for (int i = 0; i < PLANS; i++)
        plans[i] = folder_new("plan");
    return folder_draws_at_once(folder);
}

static int drop_folders(void **state)
{
    (void)state;
    folder_remove(folder); /* with a program's folder in it */
    free(folder);
    for (int i = 0; i < PLANS; i++)
        folder_drop(plans[i]);
    return 0;
}

static void prints(const char *text)
{
    if (!strstr(program_output(), text))
        fail_msg("%s\nis not in\n%s", text, program_output());
}

static void a_file_says_all_that_fit_needs(void **state)
{
    (void)state;
    assert_int_equal(shardplan("fit --from " DATA "torchtitan_8b.toml"), 0);
    prints("llama-3.1-8b, 8,030,261,248 parameters, as torchtitan writes it");
    prints("micro-batch 1 x 8192 tokens, bf16 compute, fp32 reduce, fp32 stored");
    prints("from " DATA "torchtitan_8b.toml, a configuration of torchtitan: ");
    prints("left open    not in the file, assumed 8 (--gpus)");
}

/* The same bytes as with the options that the file stands for. */
static void a_file_is_its_options(void **state)
{
    (void)state;
    assert_int_equal(shardplan("fit --from " DATA "torchtitan_8b.toml --gpus 16 --quiet --events "
                               "%s",
                               file_in(folder, "a")),
                     0);
    assert_int_equal(shardplan("fit llama-3.1-8b --gpus 16 --seq 8192 --units torchtitan "
                               "--checkpointing selective --early-stop off --clip 1 "
                               "--optimizer-impl fused --quiet --events %s",
                               file_in(folder, "b")),
                     0);
    size_t a, b;
    char *first = file_text(file_in(folder, "a"), &a),
         *second = file_text(file_in(folder, "b"), &b);
    assert_true(a > 10000 && a == b && strcmp(first, second) == 0);
    free(first);
    free(second);
}

static void programs_get_every_note(void **state)
{
    (void)state;
    json_error_t error;
    assert_int_equal(shardplan("fit --from " DATA "torchtitan_70b_tp.toml --gpus 64 --seq 4096 "
                               "--gpu b300 --json"),
                     0);
    json_t *json = json_loads(program_output(), 0, &error);
    const json_t *from = json_object_get(json, "from");
    const json_t *unknown = json_array_get(json_object_get(from, "unknown"), 0);
    const json_t *unplanned = json_array_get(json_object_get(from, "not_planned"), 1);
    const json_t *overridden = json_object_get(from, "overridden");
    assert_string_equal(json_string_value(json_object_get(from, "framework")), "torchtitan");
    assert_string_equal(json_string_value(json_object_get(unknown, "key")), "training.mystery");
    assert_int_equal(json_integer_value(json_object_get(unknown, "line")), 10);
    assert_string_equal(json_string_value(json_object_get(unplanned, "key")),
                        "parallelism.tensor_parallel_degree");
    assert_int_equal(json_array_size(overridden), 2);
    assert_true(json_array_size(json_object_get(from, "taken")) > 10);
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(json, "settings"), "from")),
        DATA "torchtitan_70b_tp.toml");
    json_decref(json);
}

/* A verdict that leaves out what the file asks for says so at once, not at the end of a list. */
static void what_is_not_planned_is_beside_the_verdict(void **state)
{
    (void)state;
    assert_int_equal(shardplan("fit --from " DATA "torchtitan_70b_tp.toml --gpus 64 --seq 4096 "
                               "--gpu b300"),
                     0);
    const char *verdict = strstr(program_output(), "  fits: ");
    assert_non_null(verdict);
    verdict = strchr(verdict, '\n') + 1;
    static const char said[] = "  this is not quite the file's job; not modelled:\n"
                               "    model.converters = [...] (line 4): which layers are in float8: "
                               "planned as all but the head\n";
    assert_memory_equal(verdict, said, sizeof said - 1);
    prints("    parallelism.tensor_parallel_degree = 8 (line 15): tensor parallelism: planned with "
           "64 data-parallel ranks, where the file's 64 GPUs are 8, and with its 512 sequences a "
           "step\n");
}

/* A slip changes the job as much as what is not planned does. */
static void what_may_be_misspelt_is_beside_the_verdict(void **state)
{
    (void)state;
    FILE *file = fopen(file_in(folder, "slip.toml"), "w");
    assert_non_null(file);
    fputs("[training]\nseqlen = 8192\nforeign = 1\nseq_len = 64\n", file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(shardplan("fit " TOY " --from %s", file_in(folder, "slip.toml")), 0);
    const char *verdict = strstr(program_output(), "fits: ");
    assert_non_null(verdict);
    static const char said[] = "  the file has keys that are not known, and may be misspelt:\n"
                               "    training.seqlen = 8192 (line 2): did you mean "
                               "training.seq_len?\n\n";
    assert_memory_equal(strchr(verdict, '\n') + 1, said, sizeof said - 1);
    prints("    not known    training.foreign = 1 (line 3)\n");
}

/* The adapters that a file has already, given once more: no byte more or less. */
static void adapters_given_beside_a_file_change_nothing(void **state)
{
    (void)state;
    char *both[2];
    const char *given[2] = {"", "--lora 16,q_proj,v_proj"};
    char path[256];
    snprintf(path, sizeof path, "%s/lora.yml", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("base_model: Qwen/Qwen3-8B\nbf16: true\nadapter: lora\nlora_r: 16\nlora_alpha: 32\n"
          "lora_target_modules:\n  - q_proj\n  - v_proj\nfsdp_version: 2\nfsdp_config:\n"
          "  auto_wrap_policy: TRANSFORMER_BASED_WRAP\nsequence_len: 512\n",
          file);
    fclose(file);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(shardplan("fit qwen3-8b --from %s --gpus 8 %s", path, given[i]), 0);
        const char *line = strstr(program_output(), "sharded parameters");
        assert_non_null(line);
        both[i] = strndup(line, strcspn(line, "\n"));
    }
    assert_string_equal(both[0], both[1]);
    free(both[0]);
    free(both[1]);
}

static void a_sweep_starts_from_a_file(void **state)
{
    (void)state;
    json_error_t error;
    assert_int_equal(shardplan("sweep --from " DATA "torchtitan_8b.toml --gpus 64 --over "
                               "reshard=default,never --quiet --json"),
                     0);
    json_t *json = json_loads(program_output(), 0, &error);
    const json_t *file = json_object_get(json_object_get(json, "from"), "file");
    assert_string_equal(json_string_value(file), DATA "torchtitan_8b.toml");
    json_decref(json);
}

static void a_model_may_be_in_the_file_or_on_the_line(void **state)
{
    (void)state;
    assert_int_equal(shardplan("fit --from " DATA "accelerate_fsdp2.yaml"), 2);
    prints("accelerate_fsdp2.yaml does not say which model it is for: give MODEL");
    assert_int_equal(shardplan("fit " TOY " --seq 128 --from " DATA "accelerate_fsdp2.yaml"), 0);
    assert_int_equal(shardplan("fit gpt2 --from nowhere.toml"), 2);
    prints("nowhere.toml");
    assert_int_equal(shardplan("fit --seq 128"), 2);
    prints("MODEL is missing");
}

/* plan -> export -> --from gives the same plan: all of plan.json but for names. */
/* A setting that says where the others are, or stands there. */
static void forget(json_t *plan, const char *setting)
{
    json_object_del(json_object_get(plan, "settings"), setting);
    json_object_del(json_object_get(json_object_get(plan, "memory"), "settings"), setting);
}

static json_t *plan_of(const char *dir)
{
    json_error_t error;
    const char *path = file_in(dir, "plan.json");
    json_t *plan = json_load_file(path, 0, &error);
    if (!plan)
        fail_msg("%s: %s", path, error.text);
    forget(plan, "from");
    return plan;
}

/* By the table of --from: the file would be there, and read by nobody. */
static void a_name_that_could_not_be_read_back_is_refused(void **state)
{
    static const struct {
        const char *target, *file, *ends; /* NULL: it is taken */
    } cases[] = {
        {"fsdp2", "job", "end: .py\n"},           {"torchtitan", "job.cfg", "end: .toml\n"},
        {"torchtitan", "job.py", "end: .toml\n"}, {"accelerate", "job.json", "end: .yaml, .yml\n"},
        {"accelerate", "job.yml", NULL},          {"torchtitan", "job.toml", NULL},
    };
    (void)state;
    if (shardplan("plan " TOY
                  " --units torchtitan --clip 1 --optimizer-impl fused --files plan -q -o %s",
                  plans[0]) != 0)
        fail_msg("%s", program_output());
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *path = file_in(folder, cases[i].file);
        const int status = shardplan("export %s --to %s -q -o %s", plans[0], cases[i].target, path);
        const char *said = program_output();
        if (cases[i].ends ? status != 2 || !strstr(said, cases[i].ends) : status != 0)
            fail_msg("%s: exit %d: %s", cases[i].file, status, said);
        assert_int_equal(access(path, F_OK) == 0, !cases[i].ends);
        if (!cases[i].ends && shardplan("fit --from %s -q", path) != 0)
            fail_msg("%s: %s", cases[i].file, program_output());
    }
}

static void comes_back(const char *options, const char *target, const char *file)
{
    if (shardplan("plan " TOY " --seq 128 %s --files plan -q -o %s", options, plans[0]) != 0 ||
        shardplan("export %s --to %s -o %s", plans[0], target, file_in(folder, file)) != 0 ||
        shardplan("plan --from %s --files plan -q -o %s", file_in(folder, file), plans[1]) != 0)
        fail_msg("%s", program_output());
    json_t *there = plan_of(plans[0]), *back = plan_of(plans[1]);
    const int status = shardplan("fit --from %s", file_in(folder, file));
    if ((status != 0 && status != 1) || strstr(program_output(), "not quite the file") ||
        strstr(program_output(), "init") || strstr(program_output(), "shardplan.options"))
        fail_msg("exit %d: %s", status, program_output());
    assert_true(json_array_size(json_object_get(there, "instructions")) > 100);
    if (strcmp(target, "deepspeed") == 0) /* the file itself */
        for (int i = 0; i < 2; i++)
            forget(i ? back : there, "zero");
    assert_true(json_equal(there, back));
    json_decref(there);
    json_decref(back);
}

static void an_exported_plan_comes_back_whole(void **state)
{
    (void)state;
    comes_back("--gpus 8 --replicate 2 --units torchtitan --accumulate 2 --accumulate-sync each "
               "--clip 1 --checkpointing selective --gpu a100-sxm-80gb --init model",
               "torchtitan", "x.toml");
    comes_back("--gpus 8 --code hf --units torchtitan --reduce-dtype bf16 --checkpointing full "
               "--reshard never --micro-batch 2",
               "accelerate", "x.yaml");
    comes_back("--gpus 8 --units 2 --reshard 4 --forward-prefetch 1 --store-dtype bf16 --freeze "
               "'*norm*'",
               "fsdp2", "x.py");
    comes_back("--strategy zero3 --code hf --gpus 4 --offload cpu --optimizer-impl fused",
               "deepspeed", "x.json");
    comes_back("--strategy zero2 --code hf --gpus 4 --offload optimizer --optimizer-impl fused",
               "deepspeed", "x.json");
    comes_back("--strategy zero3 --code hf --gpus 4 --offload cpu --optimizer-impl fused --clip 1",
               "accelerate", "y.yaml");
    comes_back("--strategy zero2 --code hf --gpus 4 --offload optimizer --optimizer-impl fused "
               "--clip 1",
               "accelerate", "y.yaml");
    comes_back("--strategy single --code hf --gpus 1 --autocast bf16 --outputs fp32", "accelerate",
               "y.yaml");
    comes_back("--strategy fsdp1 --code hf --gpus 4 --reduce-dtype bf16 --autocast bf16 --outputs "
               "fp32",
               "accelerate", "y.yaml");
    comes_back("--strategy single --gpus 1 --autocast bf16 --clip 1 --accumulate 2", "torchtitan",
               "y.toml");
    comes_back("--strategy ddp --gpus 4 --bucket-cap-mb 100 --autocast bf16 --clip 1 "
               "--accumulate-sync each",
               "torchtitan", "y.toml");
}

static void an_export_says_what_it_cannot(void **state)
{
    (void)state;
    assert_int_equal(
        shardplan(
            "plan " TOY
            " --seq 128 --code hf --units torchtitan --reshard 4 --gpus 8 --files plan -q -o %s",
            plans[0]),
        0);
    assert_int_equal(shardplan("export %s/plan.json --to accelerate", plans[0]), 2);
    prints("accelerate cannot say --reshard 4 (it would be default)");
    assert_int_equal(shardplan("export %s/plan.json --to deepspeed", plans[0]), 2);
    prints("deepspeed does not run fsdp2; these do: fsdp2, torchtitan, accelerate");
    assert_int_equal(shardplan("export %s/plan.json --to megatron", plans[0]), 2);
    prints("--to megatron: allowed are fsdp2, torchtitan, accelerate, deepspeed");
    assert_int_equal(shardplan("export %s/plan.json --to fsdp2", plans[0]), 0);
    prints("def apply(model, mesh, experts_mesh=None):");
    prints("the training script has to say:"); /* on standard error */
    assert_int_equal(shardplan("export nothing.json"), 2);
    assert_int_equal(shardplan("export %s/plan.json --to fsdp2 --json", plans[0]), 0);
    prints("\"written_for\": \"torch 2.4 and later\"");
}

/* Its code and its sequences are what they were when it was recorded, and its casts. */
static void a_recorded_model_goes_with_a_file(void **state)
{
    (void)state;
    static const struct {
        const char *file, *says;
    } cases[] = {
        {"accelerate_fsdp1.yaml",
         "autocast around the forward of a recorded model: planned without"},
        {"accelerate_fsdp2.yaml", "of a recorded model planned with its blocks"},
        {"training_arguments.json", "of a recorded model planned with its blocks"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(shardplan("fit tests/data/recorded/gpt2.stream.json.gz --gpus 4 "
                                   "--micro-batch 2 --from tests/data/frameworks/%s",
                                   cases[i].file),
                         0);
        prints(cases[i].says);
        assert_null(strstr(program_output(), "left open    --code"));
    }
}

/* accelerate's and what it starts, in any order. */
static void a_job_may_have_two_files(void **state)
{
    static const char first[] = DATA "accelerate_fsdp2.yaml", second[] = DATA "trl_sft.yaml";
    (void)state;
    for (int swapped = 0; swapped < 2; swapped++) {
        assert_int_equal(shardplan("fit --from %s --from %s", swapped ? second : first,
                                   swapped ? first : second),
                         0);
        prints("fsdp2 on 8 x NVIDIA H100");
        prints("micro-batch 2 x 1024 tokens x 2, bf16 compute, bf16 reduce, fp32 stored");
        prints("from " DATA "accelerate_fsdp2.yaml, a configuration of accelerate: ");
        prints("from " DATA "trl_sft.yaml, a configuration of TRL: ");
        assert_null(strstr(program_output(), "(--gpus)"));
    }
    assert_int_equal(shardplan("fit --from %s --from %s --gpus 16 --json", first, second), 0);
    json_t *json = json_loads(program_output(), 0, NULL);
    const json_t *from = json_object_get(json, "from");
    assert_string_equal(json_string_value(json_object_get(from, "file")), second);
    assert_string_equal(json_string_value(json_object_get(json_object_get(from, "before"), "file")),
                        first);
    json_decref(json);
    assert_int_equal(shardplan("fit --from %s --from %s", second, second), 2);
    prints("as another one is");
}

/* peft passes over names that no layer has; a plan is no model. */
static void what_would_be_passed_over_is_said(void **state)
{
    (void)state;
    assert_int_equal(shardplan("fit llama-3.2-1b --gpus 2 --seq 128 --lora 8,q_proj,vproj"), 0);
    prints("note: --lora: no linear layer is called vproj, which is passed over; did you mean "
           "v_proj?");
    assert_int_equal(shardplan("fit llama-3.2-1b --gpus 2 --seq 128 --lora 8,q_proj --json"), 0);
    assert_null(strstr(program_output(), "adapters_passed_over"));
    assert_int_equal(shardplan("plan " TOY " --gpus 2 --seq 128 --files plan -q -o %s", plans[0]),
                     0);
    assert_int_equal(shardplan("fit %s", file_in(plans[0], "plan.json")), 2);
    prints("it is a plan, no model: `shardplan diff`, `export` and `run` take it");
    assert_int_equal(shardplan("fit llama-3.2-1b --gpus 2 --seq 128 --micro-batch 2 --loss dpo"),
                     0);
    prints("as hf writes it");
}

/* A model that a file names by its path is found from the file's folder, wherever one is. */
static void a_model_on_disk_is_named_by_its_path(void **state)
{
    static const struct {
        const char *key, *path;
    } cases[] = {{"base_model", "../saved"},
                 {"base_model", "../saved.json"},
                 {"model_name_or_path", "../saved/config.json"}};
    const char *toy = "tests/data/configs/toy-llama/config.json";
    size_t length;
    char *config = file_text(toy, &length), line[1024];
    (void)state;
    snprintf(line, sizeof line, "%s/saved", folder);
    assert_int_equal(mkdir(line, 0700), 0);
    snprintf(line, sizeof line, "%s/jobs", folder);
    assert_int_equal(mkdir(line, 0700), 0);
    file_write(file_in(folder, "saved.json"), config, length);
    file_write(file_in(folder, "saved/config.json"), config, length);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[256];
        const char *job = file_in(folder, "jobs/job.yml");
        snprintf(text, sizeof text,
                 "%s: %s\nper_device_train_batch_size: 1\nmax_length: 64\nbf16: true\n",
                 cases[i].key, cases[i].path);
        file_write(job, text, strlen(text));
        if (shardplan("fit --from %s --seq 64 --gpus 2", job) != 0)
            fail_msg("%s: %s", cases[i].path, program_output());
        snprintf(line, sizeof line, "%s/jobs/%s, ", folder, cases[i].path);
        prints(line);
        if (shardplan("fit --from %s --from " DATA "accelerate_fsdp2.yaml --seq 64", job) != 0)
            fail_msg("%s: %s", cases[i].path, program_output());
    }
    free(config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_that_could_not_be_read_back_is_refused),
        cmocka_unit_test(a_file_says_all_that_fit_needs),
        cmocka_unit_test(a_file_is_its_options),
        cmocka_unit_test(programs_get_every_note),
        cmocka_unit_test(what_is_not_planned_is_beside_the_verdict),
        cmocka_unit_test(adapters_given_beside_a_file_change_nothing),
        cmocka_unit_test(what_may_be_misspelt_is_beside_the_verdict),
        cmocka_unit_test(a_sweep_starts_from_a_file),
        cmocka_unit_test(a_model_may_be_in_the_file_or_on_the_line),
        cmocka_unit_test(an_exported_plan_comes_back_whole),
        cmocka_unit_test(an_export_says_what_it_cannot),
        cmocka_unit_test(a_recorded_model_goes_with_a_file),
        cmocka_unit_test(a_job_may_have_two_files),
        cmocka_unit_test(what_would_be_passed_over_is_said),
        cmocka_unit_test(a_model_on_disk_is_named_by_its_path),
    };
    return cmocka_run_group_tests_name("frameworks (command line)", tests, make_folders,
                                       drop_folders);
}

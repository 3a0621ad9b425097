/* test_run.c - plans executed on real ranks: the numbers of PyTorch, the memory that was planned.
 *
 * tests/data/numerics/reference.json holds 20 AdamW steps of a small Llama and a small GPT-2 in
 * fp32, each with and without clipping, recorded from PyTorch 2.14.1 (see the README there).
 * Whatever the strategy, a run must give the same losses and gradient norms; and each rank's
 * recorded memory must be what the plan says, at every instruction, to the byte. */
#include "tests/support/program.h"
#include "tests/support/trajectory.h"

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
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { STEPS = 20 };

static char folder[] = "/tmp/shardplan_run.XXXXXX";
static json_t *references;
static const char *device = ""; /* options of every run */

/* ---- the reference models ---- */

static int integer(const json_t *object, const char *key)
{
    return (int)json_integer_value(json_object_get(object, key));
}

static bool is_llama(const json_t *reference)
{
    return strcmp(json_string_value(json_object_get(reference, "kind")), "llama") == 0;
}

static void write_config(const json_t *reference)
{
    char path[256];
    const json_t *c = json_object_get(reference, "config");
    snprintf(path, sizeof path, "%s/config.json", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    if (is_llama(reference))
        fprintf(file,
                "{\"model_type\": \"llama\", \"hidden_size\": %d, \"num_hidden_layers\": %d, "
                "\"num_attention_heads\": %d, \"num_key_value_heads\": %d, "
                "\"intermediate_size\": %d, \"vocab_size\": %d, \"max_position_embeddings\": %d, "
                "\"rms_norm_eps\": 1e-5, \"tie_word_embeddings\": false}",
                integer(c, "dim"), integer(c, "layers"), integer(c, "heads"),
                integer(c, "kv_heads"), integer(c, "ffn"), integer(c, "vocab"), integer(c, "seq"));
    else
        fprintf(file,
                "{\"model_type\": \"gpt2\", \"n_embd\": %d, \"n_layer\": %d, \"n_head\": %d, "
                "\"vocab_size\": %d, \"n_positions\": %d, \"tie_word_embeddings\": true}",
                integer(c, "dim"), integer(c, "layers"), integer(c, "heads"), integer(c, "vocab"),
                integer(c, "seq"));
    fclose(file);
}

/* The reference leaves out the names of the modules in between: "h.0.c_proj.weight" is
 * "h.0.attn.c_proj.weight", and "m_proj" the MLP's c_proj. */
static void plan_name(const char *name, char *out, size_t size)
{
    static const char *const moved[][2] = {
        {".wq.", ".attention.wq."},    {".wk.", ".attention.wk."},    {".wv.", ".attention.wv."},
        {".wo.", ".attention.wo."},    {".w1.", ".feed_forward.w1."}, {".w2.", ".feed_forward.w2."},
        {".w3.", ".feed_forward.w3."}, {".c_attn.", ".attn.c_attn."}, {".c_proj.", ".attn.c_proj."},
        {".c_fc.", ".mlp.c_fc."},      {".m_proj.", ".mlp.c_proj."},
    };
    for (size_t i = 0; i < sizeof moved / sizeof moved[0]; i++) {
        const char *at = strstr(name, moved[i][0]);
        if (!at)
            continue;
        snprintf(out, size, "%.*s%s%s", (int)(at - name), name, moved[i][1],
                 at + strlen(moved[i][0]));
        return;
    }
    snprintf(out, size, "%s", name);
}

/* The formula of tests/data/numerics/README.md. */
static float initial_value(const char *name, size_t rank, uint64_t p, uint64_t i)
{
    const size_t length = strlen(name);
    if (strcmp(name + length - 4, "bias") == 0)
        return 0.0F;
    if (rank == 1)
        return 1.0F;
    uint32_t x = (uint32_t)(i * 2654435761U + (p + 1) * 40503U * 65537U + 12345U);
    x = (x ^ (x >> 16)) * 2246822519U;
    return (float)(((double)x / 4294967296.0 - 0.5) * 0.2);
}

static uint64_t elements(const json_t *shape)
{
    uint64_t count = 1;
    for (size_t i = 0; i < json_array_size(shape); i++)
        count *= (uint64_t)json_integer_value(json_array_get(shape, i));
    return count;
}

/* Initial parameters as one safetensors file. */
static void write_initial(const json_t *reference)
{
    char path[256], name[256];
    const json_t *parameters = json_object_get(reference, "parameters");
    json_t *header = json_object();
    json_int_t offset = 0;
    for (size_t p = 0; p < json_array_size(parameters); p++) {
        const json_t *entry = json_array_get(parameters, p);
        json_t *shape = json_array_get(entry, 1);
        const json_int_t bytes = 4 * (json_int_t)elements(shape);
        plan_name(json_string_value(json_array_get(entry, 0)), name, sizeof name);
        json_object_set_new(header, name,
                            json_pack("{s:s, s:O, s:[I,I]}", "dtype", "F32", "shape", shape,
                                      "data_offsets", offset, offset + bytes));
        offset += bytes;
    }
    char *text = json_dumps(header, JSON_COMPACT);
    const uint64_t length = strlen(text);
    snprintf(path, sizeof path, "%s/initial.safetensors", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fwrite(&length, sizeof length, 1, file);
    fwrite(text, 1, length, file);
    for (size_t p = 0; p < json_array_size(parameters); p++) {
        const json_t *entry = json_array_get(parameters, p);
        const json_t *shape = json_array_get(entry, 1);
        const char *plain = json_string_value(json_array_get(entry, 0));
        for (uint64_t i = 0; i < elements(shape); i++) {
            const float value = initial_value(plain, json_array_size(shape), p, i);
            fwrite(&value, sizeof value, 1, file);
        }
    }
    fclose(file);
    free(text);
    json_decref(header);
}

/* ---- one run ---- */

struct variation {
    int ranks, batch; /* batch: sequences a rank and micro-batch; ranks·batch·accumulate = 8 */
    const char *options;
};

static void check_memory(int ranks, const char *what)
{
    for (int r = 0; r < ranks; r++) {
        char name[32] = "trace.json";
        if (r > 0)
            snprintf(name, sizeof name, "trace-%d.json", r);
        if (shardplan("compare %s/plan/plan.json %s/run/%s --quiet", folder, folder, name) != 0)
            fail_msg("%s: rank %d: %s", what, r, program_output());
    }
}

static void plan_variation(const json_t *reference, const struct variation *v, const char *dtypes)
{
    char clip[48] = "";
    const json_t *max_norm = json_object_get(reference, "clip");
    if (json_is_number(max_norm))
        snprintf(clip, sizeof clip, "--clip %g", json_number_value(max_norm));
    const int seq = integer(json_object_get(reference, "config"), "seq");
    if (shardplan("plan %s/config.json --gpus %d --seq %d --micro-batch %d %s %s %s -q -o %s/plan",
                  folder, v->ranks, seq, v->batch, dtypes, v->options, clip, folder) != 0)
        fail_msg("%s: %s", v->options, program_output());
}

static void check_run(const json_t *reference, const struct variation *v, const char *dtypes,
                      double tolerance)
{
    size_t steps;
    plan_variation(reference, v, dtypes);
    if (shardplan("run %s/plan/plan.json -n %d --steps %d --json -o %s/run --load-full "
                  "%s/initial.safetensors %s",
                  folder, v->ranks, STEPS, folder, folder, device) != 0)
        fail_msg("%d ranks %s: %s", v->ranks, v->options, program_output());
    const double worst = compare_steps(reference, &steps);
    assert_int_equal(steps, STEPS);
    if (!(worst <= tolerance))
        fail_msg("%d ranks %s: largest error %.3g", v->ranks, v->options, worst);
    check_memory(v->ranks, v->options);
}

static void check_all(const struct variation *variations, size_t count, const char *dtypes,
                      double tolerance)
{
    for (size_t r = 0; r < json_array_size(references); r++) {
        const json_t *reference = json_array_get(references, r);
        write_config(reference);
        write_initial(reference);
        for (size_t i = 0; i < count; i++)
            check_run(reference, &variations[i], dtypes, tolerance);
    }
}

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define FP32 "--param-dtype fp32 --reduce-dtype fp32"

static void trajectories_are_pytorchs_on_any_number_of_ranks(void **state)
{
    (void)state;
    static const struct variation variations[] = {{1, 8, ""}, {2, 4, ""}, {4, 2, ""}};
    check_all(variations, COUNT(variations), FP32, 1e-5);
}

static void trajectories_are_pytorchs_under_every_strategy(void **state)
{
    (void)state;
    static const struct variation variations[] = {
        {4, 2, "--reshard always"},
        {4, 2, "--reshard never"},
        {4, 2, "--reshard 2"},
        {4, 2, "--replicate 2"},
        {4, 2, "--units 2 --optimizer-impl fused"},
        {2, 4, "--forward-prefetch 1 --backward-prefetch 1"},
        {4, 2, "--forward-prefetch 3 --backward-prefetch 3 --optimizer-impl loop"},
        {2, 4, "--checkpointing full"},
        {2, 4, "--checkpointing selective"},
        {2, 2, "--accumulate 2"},
        {2, 2, "--accumulate 2 --accumulate-sync each"},
        {4, 1, "--accumulate 2 --replicate 2 --checkpointing full"},
        {2, 4, "--offload cpu"},
        {2, 2, "--offload cpu --accumulate 2 --accumulate-sync each"},
        {2, 2, "--accumulate 2 --reshard-after-backward last --last-backward last"},
        {2, 2, "--accumulate 2 --accumulate-sync each --last-backward last --reduce-buffers 2"},
        {4, 1, "--accumulate 2 --accumulate-sync each --replicate 2 --all-reduce last"},
        {2, 4, "--placement columns"},
        {4, 1, "--placement columns --accumulate 2 --accumulate-sync each"},
    };
    check_all(variations, COUNT(variations), FP32, 1e-5);
}

static void trajectories_are_pytorchs_under_ddp(void **state)
{
    (void)state;
    static const struct variation exact[] = {
        {1, 8, "--strategy ddp"},
        {4, 2, "--strategy ddp --bucket-cap-mb 0.02"},
        {2, 4,
         "--strategy ddp --gradient-as-bucket-view on --bucket-cap-mb 0.05 --checkpointing full"},
        {4, 1, "--strategy ddp --accumulate 2 --optimizer-impl fused"},
        {2, 2, "--strategy ddp --accumulate 2 --accumulate-sync each --gradient-as-bucket-view on"},
        {2, 4,
         "--strategy ddp --static-graph on --gradient-as-bucket-view on --optimizer-impl loop"},
    };
    static const struct variation rounded[] = {
        {4, 2, "--strategy ddp --comm-hook bf16_compress"},
        {2, 4, "--strategy ddp --autocast bf16"},
        {2, 4, "--strategy ddp --autocast bf16 --checkpointing full --gradient-as-bucket-view on"},
    };
    check_all(exact, COUNT(exact), "", 1e-5);
    check_all(rounded, COUNT(rounded), "", 2e-2);
}

static void write_options(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

/* Small buckets, so that parameters are cut, flushed and gathered together in every way. */
static void trajectories_are_pytorchs_under_zero(void **state)
{
    (void)state;
    char options[8][256];
    write_options("small.json", "{\"reduce_bucket_size\": 9000}");
    write_options("round.json", "{\"reduce_bucket_size\": 9000, \"round_robin_gradients\": true, "
                                "\"overlap_comm\": true}");
    write_options("apart.json", "{\"reduce_bucket_size\": 9000, \"contiguous_gradients\": false}");
    write_options("whole.json", "{\"reduce_bucket_size\": 9000, \"reduce_scatter\": false}");
    write_options("tight.json",
                  "{\"reduce_bucket_size\": 9000, \"stage3_prefetch_bucket_size\": 5000, "
                  "\"stage3_param_persistence_threshold\": 40, \"sub_group_size\": 8000, "
                  "\"stage3_max_live_parameters\": 20000, \"stage3_max_reuse_distance\": 9000}");
    write_options("tight-hpz.json",
                  "{\"reduce_bucket_size\": 9000, \"stage3_prefetch_bucket_size\": 5000, "
                  "\"stage3_param_persistence_threshold\": 40, \"zero_hpz_partition_size\": 2, "
                  "\"stage3_max_live_parameters\": 20000, \"stage3_max_reuse_distance\": 0}");
    static const char *const formats[] = {
        "--strategy zero1 --zero %s/small.json --accumulate 2",
        "--strategy zero1 --zero %s/round.json --checkpointing full",
        "--strategy zero2 --zero %s/whole.json --optimizer-impl fused --accumulate 2",
        "--strategy zero2 --zero %s/apart.json",
        "--strategy zero3 --zero %s/tight.json --accumulate 2 --checkpointing full",
        "--strategy zero3 --zero %s/tight-hpz.json",
    };
    const struct variation variations[] = {
        {4, 1, options[0]},         {2, 4, options[1]},         {2, 2, options[2]},
        {4, 2, options[3]},         {2, 2, options[4]},         {4, 2, options[5]},
        {1, 8, "--strategy zero3"}, {2, 4, "--strategy zero3"},
    };
    for (size_t i = 0; i < COUNT(formats); i++)
        snprintf(options[i], sizeof options[i], formats[i], folder);
    check_all(variations, COUNT(variations), "--param-dtype fp32", 1e-5);
}

static void mixed_precision_follows_the_same_trend(void **state)
{
    (void)state;
    static const struct variation variations[] = {
        {1, 8, ""}, {4, 2, ""}, {2, 2, "--accumulate 2"}, {4, 2, "--replicate 2 --reshard 2"}};
    check_all(variations, COUNT(variations), "--param-dtype bf16 --reduce-dtype fp32", 2e-2);
}

/* Eight sequences do not divide by three: six do, and one rank must agree with three. */
static void three_ranks_agree_with_one(void **state)
{
    (void)state;
    static const struct variation one = {1, 6, ""}, three = {3, 2, ""};
    const json_t *reference = json_array_get(references, 0);
    char *alone = NULL;
    write_config(reference);
    write_initial(reference);
    for (int i = 0; i < 2; i++) {
        const struct variation *v = i ? &three : &one;
        plan_variation(reference, v, FP32);
        assert_int_equal(shardplan("run %s/plan/plan.json --steps 5 --json -o %s/run --load-full "
                                   "%s/initial.safetensors",
                                   folder, folder, folder),
                         0);
        check_memory(v->ranks, "three ranks");
        plan_variation(reference, v, FP32);
        assert_int_equal(shardplan("run %s/plan/plan.json --steps 5 --json --load-full "
                                   "%s/initial.safetensors",
                                   folder, folder),
                         0);
        if (i == 0)
            alone = strdup(program_output());
    }
    char *save_a = NULL, *save_b = NULL;
    char *a = strtok_r(alone, "\n", &save_a), *b = strtok_r(program_output(), "\n", &save_b);
    for (int n = 0; n < 5; n++) {
        json_t *x = json_loads(a, 0, NULL), *y = json_loads(b, 0, NULL);
        assert_true(relative(json_number_value(json_object_get(x, "loss")),
                             json_number_value(json_object_get(y, "loss"))) <= 1e-6);
        json_decref(x);
        json_decref(y);
        a = strtok_r(NULL, "\n", &save_a);
        b = strtok_r(NULL, "\n", &save_b);
    }
    free(alone);
}

static void first_gradients_are_pytorchs_parameter_by_parameter(void **state)
{
    (void)state;
    static const struct variation v = {4, 2, "--reshard 2"};
    for (size_t r = 0; r < json_array_size(references); r += 2) {
        const json_t *reference = json_array_get(references, r);
        const json_t *norms = json_object_get(reference, "first_step_grad_norm_by_parameter");
        size_t compared = 0;
        write_config(reference);
        write_initial(reference);
        plan_variation(reference, &v, FP32);
        assert_int_equal(shardplan("run %s/plan/plan.json --steps 1 --json --param-norms "
                                   "--load-full %s/initial.safetensors",
                                   folder, folder),
                         0);
        const char *name;
        json_t *theirs;
        json_object_foreach((json_t *)(uintptr_t)norms, name, theirs)
        {
            char renamed[256], wanted[300];
            plan_name(name, renamed, sizeof renamed);
            snprintf(wanted, sizeof wanted, "\"%s\", \"grad_norm\": ", renamed);
            const char *at = strstr(program_output(), wanted);
            assert_non_null(at);
            assert_true(relative(strtod(at + strlen(wanted), NULL), json_number_value(theirs)) <=
                        1e-4);
            compared++;
        }
        assert_true(compared > 10);
    }
}

/* ---- checkpoints ---- */

static void a_run_continues_on_another_number_of_ranks(void **state)
{
    (void)state;
    static const struct {
        struct variation first, second;
    } pairs[] = {
        {{4, 2, ""}, {2, 4, "--replicate 2"}},
        {{2, 4, "--reshard never"}, {4, 2, "--units 2"}},
        {{1, 8, ""}, {4, 2, "--replicate 2"}},
        {{4, 2, "--reshard 2"}, {1, 8, ""}},
    };
    const json_t *reference = json_array_get(references, 1);
    write_config(reference);
    write_initial(reference);
    for (size_t i = 0; i < COUNT(pairs); i++) {
        size_t steps;
        plan_variation(reference, &pairs[i].first, FP32);
        assert_int_equal(shardplan("run %s/plan/plan.json --steps 10 --quiet --save %s/saved "
                                   "--load-full %s/initial.safetensors",
                                   folder, folder, folder),
                         0);
        plan_variation(reference, &pairs[i].second, FP32);
        if (shardplan("run %s/plan/plan.json --steps 20 --json --load %s/saved", folder, folder) !=
            0)
            fail_msg("%s", program_output());
        assert_true(compare_steps(reference, &steps) <= 1e-5);
        assert_int_equal(steps, 10); /* 10 ... 19 */
        char command[128];
        snprintf(command, sizeof command, "rm -rf %s/saved", folder);
        assert_int_equal(system(command), 0);
    }
}

/* ---- faults: each ends the whole run within ten seconds, with one message ---- */

static void check_fault(int status, const char *says, const char *fmt, ...)
{
    char arguments[1024], path[256];
    struct stat signalled;
    va_list args;
    va_start(args, fmt);
    vsnprintf(arguments, sizeof arguments, fmt, args);
    va_end(args);
    snprintf(path, sizeof path, "%s/signalled", folder);
    unlink(path);
    time_t start = time(NULL);
    const int got = shardplan("%s", arguments);
    if (stat(path, &signalled) == 0)
        start = signalled.st_mtime;
    if (got != status || !strstr(program_output(), says) || time(NULL) - start > 10)
        fail_msg("%s: exit %d after %ld s: %s", arguments, got, (long)(time(NULL) - start),
                 program_output());
}

/* Sends a signal to one rank when the run has written the trace of a first step into `traces`: it
 * is then in the midst of its work, however long starting took. */
static void signal_later(const char *name, const char *traces)
{
    char command[1024];
    snprintf(command, sizeof command,
             "(timeout 60 sh -c 'until [ -e %s/%s/trace.json ]; do sleep 0.1; done'; "
             "touch %s/signalled; pkill -%s -n -f 'shardrun %s') &",
             folder, traces, folder, name, folder);
    assert_int_equal(system(command), 0);
}

static void faults_end_the_run_with_one_message(void **state)
{
    (void)state;
    static const struct variation v = {2, 4, ""};
    const json_t *reference = json_array_get(references, 0);
    char command[1024], programs[256];
    snprintf(programs, sizeof programs, "%s",
             getenv("SHARDPLAN") ? getenv("SHARDPLAN") : "build/shardplan");
    *strrchr(programs, '/') = '\0';
    write_config(reference);
    write_initial(reference);
    plan_variation(reference, &v, FP32);
    check_fault(3, "out of memory at instruction", "run %s/plan/plan.json --memory 4MiB", folder);
    check_fault(3, "/no/such/tokens", "run %s/plan/plan.json --data /no/such/tokens", folder);
    check_fault(3, "the loss is", "run %s/plan/plan.json --steps 60 --lr 1e30", folder);
    check_fault(2, "is a plan for 2 ranks", "run %s/plan/plan.json -n 3", folder);
    check_fault(2, "PLAN.json is missing", "run");

    /* ranks on two machines with different files under one name */
    snprintf(command, sizeof command,
             "cp %s/plan/plan.json %s/other.json && echo >>%s/other.json && "
             "timeout -k 2 30 mpirun --allow-run-as-root --oversubscribe -n 1 %s/shardrun "
             "%s/plan/plan.json : -n 1 %s/shardrun %s/other.json >%s/says 2>&1",
             folder, folder, folder, programs, folder, programs, folder, folder);
    assert_int_equal(WEXITSTATUS(system(command)), 3);
    snprintf(command, sizeof command,
             "grep -q 'rank 1: .*is not the plan that rank 0 runs' %s/says", folder);
    assert_int_equal(system(command), 0);

    /* a disk that takes no more: files are limited to 16 KiB, a trace is larger (one rank: mpirun
     * writes files of its own) */
    static const struct variation alone = {1, 8, ""};
    plan_variation(reference, &alone, FP32);
    snprintf(command, sizeof command,
             "timeout -k 2 60 sh -c 'ulimit -f 32; %s run %s/plan/plan.json --quiet -o %s/full' "
             ">%s/says 2>&1",
             getenv("SHARDPLAN") ? getenv("SHARDPLAN") : "build/shardplan", folder, folder, folder);
    assert_int_equal(WEXITSTATUS(system(command)), 3);
    snprintf(command, sizeof command, "grep -q 'shardrun: rank .*trace' %s/says", folder);
    assert_int_equal(system(command), 0);
    plan_variation(reference, &v, FP32);

    signal_later("KILL", "killed");
    check_fault(3, "killed at step", "run %s/plan/plan.json --steps 1000000 --quiet -o %s/killed",
                folder, folder);
    signal_later("STOP", "stopped");
    check_fault(3, "has waited 2 s for the others",
                "run %s/plan/plan.json --steps 1000000 --quiet --timeout 2 -o %s/stopped", folder,
                folder);
    snprintf(command, sizeof command, "%s/killed/trace.json", folder);
    json_t *trace = json_load_file(command, 0, NULL); /* the trace so far can be read */
    assert_non_null(trace);
    json_decref(trace);
}

/* A GPU sums in another order than PyTorch's CPU does: 1e-4 instead of 1e-5. */
static void trajectories_are_pytorchs_on_a_gpu(void **state)
{
    (void)state;
    static const struct variation alone[] = {
        {1, 8, ""},
        {1, 4, "--accumulate 2"},
        {1, 8, "--checkpointing full --optimizer-impl fused"},
        {1, 8, "--offload cpu"},
    };
    static const struct variation shared[] = {{2, 4, "--reshard always"}};
    write_config(json_array_get(references, 0));
    plan_variation(json_array_get(references, 0), alone, FP32);
    if (shardplan("run %s/plan/plan.json --device cuda --steps 1 -q", folder) != 0) {
        printf("note: %s", program_output());
        skip();
    }
    device = "--device cuda";
    check_all(alone, COUNT(alone), FP32, 1e-4);
    check_all(alone, COUNT(alone), "", 2e-2); /* bf16 beside fp32 */
    device = "--device cuda --share-gpu";
    check_all(shared, COUNT(shared), FP32, 1e-4);
    device = "";
}

static int set_up(void **state)
{
    (void)state;
    /* Under a sanitizer: Open MPI leaks at exit and orders its locks as it likes. */
    setenv("ASAN_OPTIONS", "detect_leaks=0", 0);
    setenv("TSAN_OPTIONS", "detect_deadlocks=0", 0);
    references = json_load_file("tests/data/numerics/reference.json", 0, NULL);
    return references && mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state)
{
    char command[128];
    (void)state;
    json_decref(references);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trajectories_are_pytorchs_on_any_number_of_ranks),
        cmocka_unit_test(trajectories_are_pytorchs_under_every_strategy),
        cmocka_unit_test(trajectories_are_pytorchs_under_ddp),
        cmocka_unit_test(trajectories_are_pytorchs_under_zero),
        cmocka_unit_test(mixed_precision_follows_the_same_trend),
        cmocka_unit_test(three_ranks_agree_with_one),
        cmocka_unit_test(first_gradients_are_pytorchs_parameter_by_parameter),
        cmocka_unit_test(a_run_continues_on_another_number_of_ranks),
        cmocka_unit_test(faults_end_the_run_with_one_message),
        cmocka_unit_test(trajectories_are_pytorchs_on_a_gpu),
    };
    return cmocka_run_group_tests_name("run", tests, set_up, tear_down);
}

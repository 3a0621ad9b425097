/* test_run.c - plans executed on real ranks: the numbers of PyTorch, the memory that was planned.
 *
 * tests/data/numerics/reference.json holds 20 AdamW steps of a small Llama and a small GPT-2 in
 * fp32, each with and without clipping, recorded from PyTorch 2.14.1 (see the README there).
 * Whatever the strategy, a run must give the same losses and gradient norms; and each rank's
 * recorded memory must be what the plan says, at every instruction, to the byte. */
#include "tests/support/program.h"
#include "tests/support/reference.h"
#include "tests/support/trajectory.h"
#include "traces/trace.h"

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
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static const char *folder;
static const json_t *references;

#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define FP32 "--param-dtype fp32 --reduce-dtype fp32"

static void trajectories_are_pytorchs_on_any_number_of_ranks(void **state)
{
    (void)state;
    static const struct variation variations[] = {{1, 8, ""}, {2, 4, ""}, {4, 2, ""}};
    reference_check_all(variations, COUNT(variations), FP32, 1e-5);
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
        {2, 4, "--checkpointing full --checkpoint-blocks every-2"},
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
    reference_check_each(variations, COUNT(variations), FP32, 1e-5);
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
        {2, 4, "--strategy ddp --find-unused-parameters on --bucket-cap-mb 0.02"},
        {4, 1,
         "--strategy ddp --find-unused-parameters on --accumulate 2 --gradient-as-bucket-view on"},
        {2, 4, "--strategy ddp --zero-redundancy plain --comm-hook allreduce"},
        {4, 2, "--strategy ddp --zero-redundancy bucket_view --broadcast-buffers off"},
    };
    static const struct variation rounded[] = {
        {4, 2, "--strategy ddp --comm-hook bf16_compress"},
        {2, 4, "--strategy ddp --comm-hook fp16_compress"},
        {2, 4, "--strategy ddp --autocast bf16"},
        {2, 4, "--strategy ddp --autocast bf16 --checkpointing full --gradient-as-bucket-view on"},
    };
    reference_check_each(exact, COUNT(exact), "", 1e-5);
    reference_check_each(rounded, COUNT(rounded), "", 2e-2);
}

static void mixed_precision_follows_the_same_trend(void **state)
{
    (void)state;
    static const struct variation variations[] = {
        {1, 8, ""}, {4, 2, ""}, {2, 2, "--accumulate 2"}, {4, 2, "--replicate 2 --reshard 2"}};
    reference_check_each(variations, COUNT(variations), "--param-dtype bf16 --reduce-dtype fp32",
                         2e-2);
}

/* Eight sequences do not divide by three: six do, and one rank must agree with three. */
static void three_ranks_agree_with_one(void **state)
{
    (void)state;
    static const struct variation one = {1, 6, ""}, three = {3, 2, ""};
    const json_t *reference = json_array_get(references, 0);
    char *said[2];
    reference_write_config(reference);
    reference_write_initial(reference);
    for (int i = 0; i < 2; i++) {
        const struct variation *v = i ? &three : &one;
        reference_plan(reference, v, FP32);
        assert_int_equal(shardplan("run %s/plan/plan.json --steps 5 --json -o %s/run --load-full "
                                   "%s/initial.safetensors",
                                   folder, folder, folder),
                         0);
        said[i] = strdup(program_output());
        reference_check_memory(v->ranks, "three ranks");
    }
    char *save_a = NULL, *save_b = NULL;
    char *a = strtok_r(said[0], "\n", &save_a), *b = strtok_r(said[1], "\n", &save_b);
    for (int n = 0; n < 5; n++) {
        json_t *x = json_loads(a, 0, NULL), *y = json_loads(b, 0, NULL);
        assert_true(relative(json_number_value(json_object_get(x, "loss")),
                             json_number_value(json_object_get(y, "loss"))) <= 1e-6);
        json_decref(x);
        json_decref(y);
        a = strtok_r(NULL, "\n", &save_a);
        b = strtok_r(NULL, "\n", &save_b);
    }
    free(said[0]);
    free(said[1]);
}

static void first_gradients_are_pytorchs_parameter_by_parameter(void **state)
{
    (void)state;
    static const struct variation v = {4, 2, "--reshard 2"};
    for (size_t r = 0; r < json_array_size(references); r += 2) {
        const json_t *reference = json_array_get(references, r);
        const json_t *norms = json_object_get(reference, "first_step_grad_norm_by_parameter");
        size_t compared = 0;
        reference_write_config(reference);
        reference_write_initial(reference);
        reference_plan(reference, &v, FP32);
        shardplan_says(0, "\"step\": 0",
                       "run %s/plan/plan.json --steps 1 --json --param-norms --load-full "
                       "%s/initial.safetensors",
                       folder, folder);
        const char *name;
        json_t *theirs;
        json_object_foreach((json_t *)(uintptr_t)norms, name, theirs)
        {
            char renamed[256], wanted[300];
            reference_name(name, renamed, sizeof renamed);
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
    for (size_t i = 0; i < COUNT(pairs); i++)
        reference_check_continued(&pairs[i].first, &pairs[i].second, FP32);
}

/* ---- faults: each ends the whole run, with one message ---- */

/* Sends a signal to one rank when the run has written to a file what it writes of a step: it is
 * then in the midst of its work, however long starting took. */
static void signal_later(const char *name, const char *file)
{
    char command[1024];
    snprintf(command, sizeof command,
             "(timeout 600 sh -c 'until [ -s %s/%s ]; do sleep 0.1; done'; "
             "pkill -%s -n -f 'shardrun %s') &",
             folder, file, name, folder);
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
    reference_write_config(reference);
    reference_write_initial(reference);
    reference_plan(reference, &v, FP32);
    shardplan_says(3, "out of memory at instruction", "run %s/plan/plan.json --memory 4MiB",
                   folder);
    shardplan_says(2, "/no/such/tokens", "run %s/plan/plan.json --data /no/such/tokens", folder);
    shardplan_says(3, "the loss is", "run %s/plan/plan.json --steps 60 --lr 1e30", folder);
    shardplan_says(2, "is a plan for 2 ranks", "run %s/plan/plan.json -n 3", folder);
    shardplan_says(2, "PLAN.json is missing", "run");

    /* ranks on two machines with different files under one name */
    snprintf(command, sizeof command,
             "cp %s/plan/plan.json %s/other.json && echo >>%s/other.json && "
             "timeout -k 2 600 mpirun --allow-run-as-root --oversubscribe -n 1 %s/shardrun "
             "%s/plan/plan.json : -n 1 %s/shardrun %s/other.json >%s/says 2>&1",
             folder, folder, folder, programs, folder, programs, folder, folder);
    assert_int_equal(WEXITSTATUS(system(command)), 3);
    snprintf(command, sizeof command,
             "grep -q 'rank 1: .*is not the plan that rank 0 runs' %s/says", folder);
    assert_int_equal(system(command), 0);

    /* a disk that takes no more: files are limited to 16 KiB, a trace is larger (one rank: mpirun
     * writes files of its own) */
    static const struct variation alone = {1, 8, ""};
    reference_plan(reference, &alone, FP32);
    snprintf(command, sizeof command,
             "timeout -k 2 600 sh -c 'ulimit -f 32; %s run %s/plan/plan.json --quiet -o %s/full' "
             ">%s/says 2>&1",
             getenv("SHARDPLAN") ? getenv("SHARDPLAN") : "build/shardplan", folder, folder, folder);
    assert_int_equal(WEXITSTATUS(system(command)), 3);
    snprintf(command, sizeof command, "grep -q 'shardrun: rank .*trace' %s/says", folder);
    assert_int_equal(system(command), 0);
    reference_plan(reference, &v, FP32);

    signal_later("KILL", "killed/trace.json");
    shardplan_says(3, ", by signal 9: this machine may have run out of memory",
                   "run %s/plan/plan.json --steps 1000000 --quiet -o %s/killed", folder, folder);
    signal_later("STOP", "stopped");
    assert_int_equal(shell(PROGRAM_LIMITS "^/shardplan run %s/plan/plan.json --steps 1000000 "
                                          "--timeout 2 2>&1 >%s/stopped",
                           folder, folder),
                     3);
    assert_non_null(strstr(program_output(), "has waited 2 s for the others"));
    snprintf(command, sizeof command, "%s/killed/trace.json", folder);
    json_t *trace = json_load_file(command, 0, NULL); /* the trace so far can be read */
    assert_non_null(trace);
    json_decref(trace);
}

/* Of the kernel with that id; NULL: there is none. */
static const char *module_in(const struct trace *trace, uint32_t id)
{
    for (uint32_t i = 0; i < trace->event_count; i++)
        if (trace->events[i].id == id && trace->events[i].kind == TRACE_SPAN)
            return trace->events[i].module ? trace->events[i].module : "";
    return NULL;
}

/* By instruction: a plan's file carries the names from the planner to those who run it. */
static void recorded_slices_are_of_the_modules_that_were_planned(void **state)
{
    (void)state;
    static const struct variation two = {2, 4, "--files all"};
    struct trace *planned, *recorded;
    struct err err = {0};
    char path[4096];
    uint32_t named = 0;
    reference_write_config(json_array_get(references, 0));
    reference_plan(json_array_get(references, 0), &two, FP32);
    assert_int_equal(shardplan("run %s/plan/plan.json -q --steps 2 -o %s/named", folder, folder),
                     0);
    snprintf(path, sizeof path, "%s/plan/trace.json", folder);
    assert_int_equal(trace_read(path, &planned, &err), ERR_OK);
    for (int rank = 0; rank < 2; rank++) {
        snprintf(path, sizeof path, "%s/named/trace%s.json", folder, rank ? "-1" : "");
        assert_int_equal(trace_read(path, &recorded, &err), ERR_OK);
        for (uint32_t i = 0; i < recorded->event_count; i++) {
            const struct trace_event *event = &recorded->events[i];
            const char *module = event->id == TRACE_NO_ID ? NULL : module_in(planned, event->id);
            if (!module)
                continue;
            assert_string_equal(event->module ? event->module : "", module);
            named += module[0] != '\0';
        }
        trace_free(recorded);
    }
    trace_free(planned);
    assert_true(named > 100);
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
    reference_write_config(json_array_get(references, 0));
    reference_plan(json_array_get(references, 0), alone, FP32);
    if (shardplan("run %s/plan/plan.json --device cuda --steps 1 -q", folder) != 0) {
        printf("note: %s", program_output());
        skip();
    }
    reference_on("--device cuda");
    reference_check_all(alone, COUNT(alone), FP32, 1e-4);
    reference_check_all(alone, COUNT(alone), "", 2e-2); /* bf16 beside fp32 */
    reference_on("--device cuda --share-gpu");
    reference_check_all(shared, COUNT(shared), FP32, 1e-4);
    reference_on("");
}

static int set_up(void **state)
{
    const int rc = reference_open(state);
    folder = reference_folder();
    references = reference_models();
    return rc;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trajectories_are_pytorchs_on_any_number_of_ranks),
        cmocka_unit_test(trajectories_are_pytorchs_under_every_strategy),
        cmocka_unit_test(trajectories_are_pytorchs_under_ddp),
        cmocka_unit_test(mixed_precision_follows_the_same_trend),
        cmocka_unit_test(three_ranks_agree_with_one),
        cmocka_unit_test(first_gradients_are_pytorchs_parameter_by_parameter),
        cmocka_unit_test(a_run_continues_on_another_number_of_ranks),
        cmocka_unit_test(faults_end_the_run_with_one_message),
        cmocka_unit_test(recorded_slices_are_of_the_modules_that_were_planned),
        cmocka_unit_test(trajectories_are_pytorchs_on_a_gpu),
    };
    return cmocka_run_group_tests_name("run", tests, set_up, trajectories_close);
}

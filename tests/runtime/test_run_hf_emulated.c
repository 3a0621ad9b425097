/* test_run_hf_emulated.c - plans of transformers' code on the cuda backend over tests/emulate: a
 * step of every family as on the host, which follows transformers (test_run_hf.c). */
#include "tests/support/program.h"
#include "tests/support/soak.h"
#include "tests/support/trajectory.h"

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

#define FP32 "--param-dtype fp32 --reduce-dtype fp32"

static const char *folder;
static const json_t *models;

static int open_models(void **state)
{
    (void)state;
    const int rc = trajectories_open("hf");
    folder = trajectories_folder();
    models = trajectories();
    return rc;
}

static void need_emulation(void)
{
    const char *file = getenv("SHARDRUN_EMULATED");
    if (file && access(file, R_OK) == 0)
        return;
    printf("note: the emulated backend is not built\n");
    skip();
}

/* Loss and norm of one step. */
static void run_step(const char *name, const char *options, double out[2])
{
    static const char *const keys[] = {"\"loss\": ", "\"grad_norm\": "};
    if (shardplan("run %s/plan/plan.json --steps 1 --json %s", folder, options) != 0)
        fail_msg("%s: %s", name, program_output());
    for (int i = 0; i < 2; i++) {
        const char *at = strstr(program_output(), keys[i]);
        if (!at)
            fail_msg("%s: %s", name, program_output());
        else
            out[i] = strtod(at + strlen(keys[i]), NULL);
    }
}

/* 16-bit results are rounded by products that sum in another order. */
static void compare_with_the_host(const json_t *model, int ranks, const char *options, double room)
{
    const json_t *config = json_object_get(model, "config");
    const char *type = json_string_value(json_object_get(config, "model_type"));
    const char *file = getenv("SHARDRUN_EMULATED"), *before = getenv("SHARDRUN_CUDA");
    char path[128], kept[4096];
    double host[2] = {0}, cuda[2] = {0};
    snprintf(path, sizeof path, "%s/config.json", folder);
    assert_int_equal(json_dump_file(config, path, 0), 0);
    if (shardplan(
            "plan %s --code hf --gpus %d --seq %d --micro-batch 1 %s --files plan -q -o %s/plan",
            path, ranks, (int)json_integer_value(json_object_get(model, "seq")), options,
            folder) != 0)
        fail_msg("%s: %s", type, program_output());
    run_step(type, "", host);
    snprintf(kept, sizeof kept, "%s", before ? before : "");
    setenv("SHARDRUN_CUDA", file ? file : "", 1);
    setenv("SHARDRUN_EMULATED_FOLDER", folder, 1);
    run_step(type, "--device cuda --share-gpu", cuda);
    if (before)
        setenv("SHARDRUN_CUDA", kept, 1);
    else
        unsetenv("SHARDRUN_CUDA");
    for (int i = 0; i < 2; i++)
        if (!(relative(cuda[i], host[i]) <= room))
            fail_msg("%s %s: %.9g instead of %.9g", type, options, cuda[i], host[i]);
}

static void families_step_as_on_the_host(void **state)
{
    (void)state;
    need_emulation();
    for (size_t i = 0; i < json_array_size(models); i++)
        if (is_taken(i, 4, 0))
            compare_with_the_host(json_array_get(models, i), 1, FP32, 2e-6);
}

static void sixteen_bits_stay_near(void **state)
{
    (void)state;
    need_emulation();
    for (size_t i = 1; i < json_array_size(models); i += 2) {
        const json_t *model = json_array_get(models, i);
        const bool casts = i % 4 == 1 && trajectory_autocasts(model);
        if (is_taken(i, 14, 1))
            compare_with_the_host(model, 1, casts ? "--strategy ddp --autocast bf16" : "", 3e-3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(families_step_as_on_the_host),
        cmocka_unit_test(sixteen_bits_stay_near),
    };
    return cmocka_run_group_tests_name("run_hf_emulated", tests, open_models, trajectories_close);
}

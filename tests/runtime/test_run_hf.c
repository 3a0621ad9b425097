/* test_run_hf.c - plans of transformers' code train what transformers trains.
 *
 * tests/data/numerics/hf.json has 20 AdamW steps of a small model of each family, by the model's
 * own forward and loss, recorded by tests/truth/numerics_hf.py. Each is planned from the
 * config.json that the model was made of. */
#include "tests/support/local_ranks.h"
#include "tests/support/program.h"
#include "tests/support/soak.h"
#include "tests/support/trajectory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define HF "--code hf "
#define FSDP2 HF "--param-dtype fp32 --reduce-dtype fp32 "

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

static const json_t *first_of(const char *type)
{
    for (size_t i = 0; i < json_array_size(models); i++)
        if (strcmp(trajectory_type(json_array_get(models, i)), type) == 0)
            return json_array_get(models, i);
    fail_msg("no %s was recorded", type);
    return NULL;
}

/* Losses are within 1e-6; a gradient norm of Gemma's is not. */
static void check_model(const json_t *model, int ranks, const char *options, int steps)
{
    trajectory_check(model, ranks, options, steps, 2e-5);
}

/* With the first gradients, parameter by parameter. One in sixteen in all recorded steps: models
 * next to each other are of a kind. */
static void every_family_follows_transformers(void **state)
{
    (void)state;
    assert_true(json_array_size(models) >= 39);
    for (size_t i = 0; i < json_array_size(models); i++)
        check_model(json_array_get(models, i), 1, FSDP2,
                    is_taken(i, 16, 0) ? TRAJECTORY_STEPS : TRAJECTORY_SOME);
}

/* Their operators run on one rank above: this is of what is between ranks. */
static void families_follow_transformers_on_two_ranks(void **state)
{
    (void)state;
    for (size_t i = 0; i < json_array_size(models); i++)
        if (is_taken(i, 5, 0))
            check_model(json_array_get(models, i), 2, i % 2 ? FSDP2 : FSDP2 "--checkpointing full",
                        TRAJECTORY_SOME);
}

static void experts_on_their_own_mesh_follow_transformers(void **state)
{
    static const char *const types[] = {"qwen3_moe", "mixtral", "deepseek_v3"};
    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        check_model(first_of(types[i]), 2, FSDP2 "--replicate 2 --experts-replicate 1",
                    TRAJECTORY_SOME);
        check_model(first_of(types[i]), 2, FSDP2 "--experts-replicate 2 --checkpointing full",
                    TRAJECTORY_SOME);
    }
}

/* Nothing is kept between uses, so blocks of experts are gathered, released and held by nodes. */
static void experts_under_zero3_follow_transformers(void **state)
{
    static const char *const types[] = {"qwen3_moe", "mixtral", "deepseek_v3", "gpt_oss"};
    char options[256];
    (void)state;
    snprintf(options, sizeof options, "%s/zero.json", folder);
    FILE *file = fopen(options, "w");
    assert_non_null(file);
    fputs("{\"stage3_param_persistence_threshold\": 0, "
          "\"stage3_prefetch_bucket_size\": 5000, "
          "\"stage3_max_reuse_distance\": 0, \"reduce_bucket_size\": 9000}",
          file);
    fclose(file);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        snprintf(options, sizeof options,
                 HF "--strategy zero3 --param-dtype fp32 --zero %s/zero.json%s", folder,
                 i % 2 ? "" : " --checkpointing full");
        check_model(first_of(types[i]), 2, options, TRAJECTORY_SOME);
    }
}

static void other_systems_follow_transformers(void **state)
{
    static const char *const types[] = {"qwen3", "gpt2", "gemma2", "qwen3_moe"};
    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        check_model(first_of(types[i]), 2, HF "--strategy ddp", TRAJECTORY_SOME);
        check_model(first_of(types[i]), 2, "--strategy fsdp1 " FSDP2, TRAJECTORY_SOME);
        check_model(first_of(types[i]), 2, HF "--strategy zero1 --param-dtype fp32",
                    TRAJECTORY_SOME);
        check_model(first_of(types[i]), 1, HF "--strategy single", TRAJECTORY_SOME);
    }
}

/* What the last run printed, as a reference for others. The caller owns it. */
static json_t *printed_steps(void)
{
    json_t *losses = json_array(), *norms = json_array();
    for (char *save = NULL, *line = strtok_r(program_output(), "\n", &save); line;
         line = strtok_r(NULL, "\n", &save)) {
        json_t *step = json_loads(line, 0, NULL), *loss = json_object_get(step, "loss");
        if (loss) {
            json_array_append(losses, loss);
            json_array_append(norms, json_object_get(step, "grad_norm"));
        }
        json_decref(step);
    }
    return json_pack("{s:o, s:o}", "loss", losses, "grad_norm", norms);
}

/* Adapters drawn as peft draws them: under every system what DDP trains. */
static void adapters_are_trained_alike(void **state)
{
    static const char *const systems[] = {"--strategy fsdp2 --reduce-dtype fp32 --param-dtype fp32",
                                          "--strategy zero1 --param-dtype fp32",
                                          "--strategy zero2 --param-dtype fp32",
                                          "--strategy zero3 --param-dtype fp32"};
    size_t steps;
    char options[256];
    (void)state;
    trajectory_plan(first_of("llama"), 2, HF "--lora 4,all-linear --clip 1 --strategy ddp");
    assert_int_equal(local_ranks(2, "%s/plan/plan.json --steps %d --json", folder, TRAJECTORY_SOME),
                     0);
    json_t *ddp = printed_steps();
    assert_int_equal(json_array_size(json_object_get(ddp, "loss")), TRAJECTORY_SOME);
    for (size_t i = 0; i < sizeof systems / sizeof *systems; i++) {
        snprintf(options, sizeof options, HF "--lora 4,all-linear --clip 1 %s", systems[i]);
        trajectory_plan(first_of("llama"), 2, options);
        if (local_ranks(2, "%s/plan/plan.json --steps %d --json", folder, TRAJECTORY_SOME) != 0)
            fail_msg("%s: %s", systems[i], program_output());
        const double worst = compare_steps(ddp, &steps);
        assert_int_equal(steps, TRAJECTORY_SOME);
        if (!(worst <= 1e-5))
            fail_msg("%s: largest error %.3g", systems[i], worst);
    }
    json_decref(ddp);
}

/* ... and beside a model of 16 bits nearly what is trained beside one of fp32, in the memory that
 * is planned. transformers and peft themselves are as near (the same models and values, 8 steps of
 * Llama, GPT-2 and Mixtral: losses within 3e-3, of fp16 within 2e-4). */
static void adapters_beside_16_bits_stay_near(void **state)
{
    static const struct {
        const char *type, *lora, *options;
        int ranks;
    } cases[] = {
        {"llama", "4,all-linear", "--strategy single --frozen-dtype bf16 --autocast bf16", 1},
        {"gpt2", "4,all-linear", "--strategy ddp --frozen-dtype bf16 --autocast bf16", 2},
        {"gemma2", "4,q_proj,v_proj",
         "--strategy ddp --frozen-dtype bf16 --autocast bf16 --checkpointing full", 2},
        {"mixtral", "4,q_proj,v_proj", "--strategy single --frozen-dtype bf16", 1},
        {"qwen3", "4,all-linear", "--strategy ddp --frozen-dtype fp16", 2},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char options[256];
        size_t steps;
        snprintf(options, sizeof options, HF "--lora %s --strategy ddp", cases[i].lora);
        trajectory_plan(first_of(cases[i].type), 2, options);
        assert_int_equal(local_ranks(2, "%s/plan/plan.json --steps 3 --json", folder), 0);
        json_t *wide = printed_steps();
        snprintf(options, sizeof options, HF "--lora %s %s", cases[i].lora, cases[i].options);
        trajectory_plan(first_of(cases[i].type), cases[i].ranks, options);
        if (local_ranks(cases[i].ranks, "%s/plan/plan.json --steps 3 --json -o %s/plan", folder,
                        folder) != 0)
            fail_msg("%s %s: %s", cases[i].type, options, program_output());
        const double worst = compare_losses(wide, &steps);
        json_decref(wide);
        if (steps != 3 || !(worst <= 3e-3))
            fail_msg("%s %s: largest error %.3g", cases[i].type, options, worst);
        assert_int_equal(shardplan("compare %s/plan/plan.json %s/plan/trace.json", folder, folder),
                         0);
        if (!strstr(program_output(), "memory is equal to the byte"))
            fail_msg("%s %s: %s", cases[i].type, options, program_output());
    }
}

/* Flash attention with fewer heads of keys, casts, losses in 16 bits: what fp32 has not. With
 * autocast also as accelerate runs it, outputs in fp32, under FSDP1 beside parameters in bf16. */
static void sixteen_bits_stay_near(void **state)
{
    static const char *const with_casts[] = {
        HF "--strategy ddp --autocast bf16",
        HF "--strategy ddp --autocast bf16 --outputs fp32 --find-unused-parameters on",
        HF "--strategy fsdp1 --use-orig-params on --autocast bf16 --outputs fp32",
    };
    (void)state;
    for (size_t i = 0; i < json_array_size(models); i++) {
        const json_t *model = json_array_get(models, i);
        const bool casts = i % 2 && trajectory_autocasts(model);
        size_t steps;
        if (!is_taken(i, 5, 1))
            continue;
        trajectory_plan(model, 2,
                        casts ? with_casts[i / 2 % (sizeof with_casts / sizeof *with_casts)] : HF);
        if (local_ranks(2, "%s/plan/plan.json --steps 3 --json", folder) != 0)
            fail_msg("%s: %s", trajectory_type(model), program_output());
        const double worst = compare_losses(model, &steps);
        if (steps != 3 || !(worst <= 3e-3))
            fail_msg("%s: largest error %.3g of %zu steps", trajectory_type(model), worst, steps);
    }
}

/* Before any rank is started, all of it: what devices lack, and tokens that no model has. */
static void what_cannot_run_is_said_first(void **state)
{
    (void)state;
    static const char *const devices[] = {"host", "cuda"};
    json_t *model = json_deep_copy(first_of("gpt2"));
    json_object_set_new(json_object_get(model, "config"), "resid_pdrop", json_real(0.1));
    trajectory_plan(model, 2, FSDP2);
    json_decref(model);
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
        char said[64];
        snprintf(said, sizeof said, "the %s backend has no kernel for: dropout (", devices[i]);
        assert_int_equal(shardplan("run %s/plan/plan.json --device %s", folder, devices[i]), 2);
        if (!strstr(program_output(), said) || !strstr(program_output(), "the first: instruction"))
            fail_msg("no \"%s\" in: %s", said, program_output());
    }
    trajectory_plan(first_of("llama"), 2, FSDP2);
    char path[128];
    snprintf(path, sizeof path, "%s/tokens", folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int i = 0; i < 2000; i++) /* 8 sequences of 24 a step: the 194th is read in the second */
        fputc(i == 193 ? 97 : i % 97, file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(shardplan("run %s/plan/plan.json --steps 1 --data %s", folder, path), 0);
    assert_int_equal(shardplan("run %s/plan/plan.json --steps 2 --data %s", folder, path), 2);
    assert_non_null(strstr(program_output(), "token 97 at byte 193: the model has 97"));
}

static void recorded_memory_is_the_plans(void **state)
{
    static const char *const types[] = {"qwen3", "gpt2", "gemma2", "gpt_oss", "deepseek_v2"};
    (void)state;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        trajectory_plan(first_of(types[i]), 2, FSDP2);
        assert_int_equal(
            local_ranks(2, "%s/plan/plan.json --steps 3 -q -o %s/plan", folder, folder), 0);
        assert_int_equal(shardplan("compare %s/plan/plan.json %s/plan/trace.json", folder, folder),
                         0);
        if (!strstr(program_output(), "memory is equal to the byte"))
            fail_msg("%s: %s", types[i], program_output());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_family_follows_transformers),
        cmocka_unit_test(families_follow_transformers_on_two_ranks),
        cmocka_unit_test(experts_on_their_own_mesh_follow_transformers),
        cmocka_unit_test(adapters_are_trained_alike),
        cmocka_unit_test(adapters_beside_16_bits_stay_near),
        cmocka_unit_test(experts_under_zero3_follow_transformers),
        cmocka_unit_test(other_systems_follow_transformers),
        cmocka_unit_test(sixteen_bits_stay_near),
        cmocka_unit_test(what_cannot_run_is_said_first),
        cmocka_unit_test(recorded_memory_is_the_plans),
    };
    return cmocka_run_group_tests_name("run_hf", tests, open_models, trajectories_close);
}

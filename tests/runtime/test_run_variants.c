/* test_run_variants.c - a plan trains the model that config.json asks for, to its last number.
 *
 * tests/data/numerics/variants.json has 20 AdamW steps of transformers' own models with unusual
 * eps, theta, activations, biases, and every kind of RoPE scaling, recorded by
 * tests/truth/numerics.py. Each is planned from the config.json that the model was made of, and
 * starts from the values that the plan says. */
#include "tests/support/folder.h"
#include "tests/support/program.h"
#include "tests/support/trajectory.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { STEPS = 20 };
#define FSDP2 "--param-dtype fp32 --reduce-dtype fp32 "

static char folder[] = "/tmp/shardplan_variants.XXXXXX";
static json_t *variants;

static int open_variants(void **state)
{
    (void)state;
    variants = trajectories_open("variants", folder);
    return variants ? 0 : -1;
}

static int close_variants(void **state)
{
    (void)state;
    json_decref(variants);
    return folder_remove(folder);
}

static const char *name_of(const json_t *variant)
{
    return json_string_value(json_object_get(variant, "name"));
}

static void plan_variant(const json_t *variant, int ranks, const char *options)
{
    const int batch = (int)json_integer_value(json_object_get(variant, "batch"));
    const int seq = (int)json_integer_value(json_object_get(variant, "seq"));
    char path[128];
    snprintf(path, sizeof path, "%s/config.json", folder);
    assert_int_equal(json_dump_file(json_object_get(variant, "config"), path, 0), 0);
    if (shardplan("plan %s/config.json --gpus %d --seq %d --micro-batch %d %s -q "
                  "-o %s/plan",
                  folder, ranks, seq, batch / ranks, options, folder) != 0)
        fail_msg("%s: %s", name_of(variant), program_output());
}

static void check_variant(const json_t *variant, int ranks, const char *options)
{
    size_t steps;
    plan_variant(variant, ranks, options);
    if (shardplan("run %s/plan/plan.json --steps %d --json", folder, STEPS) != 0)
        fail_msg("%s: %s", name_of(variant), program_output());
    const double worst = compare_steps(variant, &steps);
    assert_int_equal(steps, STEPS);
    if (!(worst <= 1e-5))
        fail_msg("%s on %d ranks: largest error %.3g", name_of(variant), ranks, worst);
}

static void every_variant_follows_pytorch_on_one_rank(void **state)
{
    (void)state;
    assert_true(json_array_size(variants) >= 17);
    for (size_t i = 0; i < json_array_size(variants); i++)
        check_variant(json_array_get(variants, i), 1, FSDP2);
}

static void every_variant_follows_pytorch_on_two_ranks(void **state)
{
    (void)state;
    for (size_t i = 0; i < json_array_size(variants); i++)
        check_variant(json_array_get(variants, i), 2,
                      i % 2 ? "--strategy ddp" : FSDP2 "--checkpointing full");
}

/* Parameter by parameter, so that no two errors hide behind one norm. */
static void first_gradients_are_pytorchs(void **state)
{
    (void)state;
    for (size_t i = 0; i < json_array_size(variants); i++) {
        const json_t *variant = json_array_get(variants, i);
        json_t *norms = json_object_get(variant, "first_step_grad_norm_by_parameter"), *theirs;
        const char *name;
        size_t compared = 0;
        plan_variant(variant, 1, FSDP2);
        assert_int_equal(shardplan("run %s/plan/plan.json --steps 1 --json --param-norms", folder),
                         0);
        json_object_foreach(norms, name, theirs)
        {
            char wanted[128];
            snprintf(wanted, sizeof wanted, "\"%s\", \"grad_norm\": ", name);
            const char *at = strstr(program_output(), wanted);
            if (!at ||
                relative(strtod(at + strlen(wanted), NULL), json_number_value(theirs)) > 1e-4)
                fail_msg("%s: %s: %.40s, PyTorch's is %g", name_of(variant), name,
                         at ? at + strlen(wanted) : "nothing", json_number_value(theirs));
            compared++;
        }
        assert_int_equal(compared, json_array_size(json_object_get(variant, "parameters")));
    }
}

/* Losses of 3 steps of a model that is drawn as its code draws it, and its gradient norms. */
static json_t *drawn(const json_t *variant, int ranks)
{
    json_t *losses = json_array(), *norms = json_array();
    plan_variant(variant, ranks, FSDP2 "--init model");
    assert_int_equal(shardplan("run %s/plan/plan.json --steps 3 --json", folder), 0);
    for (char *save = NULL, *line = strtok_r(program_output(), "\n", &save); line;
         line = strtok_r(NULL, "\n", &save)) {
        json_t *step = json_loads(line, 0, NULL);
        json_array_append(losses, json_object_get(step, "loss"));
        json_array_append(norms, json_object_get(step, "grad_norm"));
        json_decref(step);
    }
    return json_pack("{s:o, s:o}", "loss", losses, "grad_norm", norms);
}

static void a_drawn_model_is_the_same_on_any_number_of_ranks(void **state)
{
    (void)state;
    const json_t *variant = json_array_get(variants, 0);
    size_t steps;
    json_t *alone = drawn(variant, 1);
    plan_variant(variant, 4, FSDP2 "--init model");
    assert_int_equal(shardplan("run %s/plan/plan.json --steps 3 --json", folder), 0);
    assert_true(compare_steps(alone, &steps) <= 1e-5);
    assert_int_equal(steps, 3);
    /* rows of norm 1 times a head of deviation 1/sqrt(h): logits of deviation 1, which cost ln v
     * and half their variance */
    const double first = json_number_value(json_array_get(json_object_get(alone, "loss"), 0));
    assert_true(fabs(first - (log(97) + 0.5)) < 0.35); /* of 192 tokens */
    json_decref(alone);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_variant_follows_pytorch_on_one_rank),
        cmocka_unit_test(every_variant_follows_pytorch_on_two_ranks),
        cmocka_unit_test(first_gradients_are_pytorchs),
        cmocka_unit_test(a_drawn_model_is_the_same_on_any_number_of_ranks),
    };
    return cmocka_run_group_tests_name("run_variants", tests, open_variants, close_variants);
}

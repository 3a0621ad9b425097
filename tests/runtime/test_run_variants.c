/* test_run_variants.c - a plan trains the model that config.json asks for, to its last number.
 *
 * tests/data/numerics/variants.json has 20 AdamW steps of transformers' own models with unusual
 * eps, theta, activations, biases, and every kind of RoPE scaling, recorded by
 * tests/truth/numerics.py. Each is planned from the config.json that the model was made of, and
 * starts from the values that the plan says. */
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

#include <cmocka.h>

#define FSDP2 "--param-dtype fp32 --reduce-dtype fp32 "

static const char *folder;
static const json_t *variants;

static int open_variants(void **state)
{
    (void)state;
    const int rc = trajectories_open("variants");
    folder = trajectories_folder();
    variants = trajectories();
    return rc;
}

static void check_variant(const json_t *variant, int ranks, const char *options, int steps)
{
    trajectory_check(variant, ranks, options, steps, 1e-5);
}

/* With the first gradients, parameter by parameter. */
static void every_variant_follows_pytorch_on_one_rank(void **state)
{
    (void)state;
    assert_true(json_array_size(variants) >= 17);
    for (size_t i = 0; i < json_array_size(variants); i++)
        check_variant(json_array_get(variants, i), 1, FSDP2,
                      is_taken(i, 4, 0) ? TRAJECTORY_STEPS : TRAJECTORY_SOME);
}

/* Their operators run on one rank above: this is of what is between ranks. */
static void variants_follow_pytorch_on_two_ranks(void **state)
{
    (void)state;
    for (size_t i = 0; i < json_array_size(variants); i++)
        if (is_taken(i, 3, 0))
            check_variant(json_array_get(variants, i), 2,
                          i % 2 ? "--strategy ddp" : FSDP2 "--checkpointing full", TRAJECTORY_SOME);
}

/* Losses of 3 steps of a model that is drawn as its code draws it, and its gradient norms. */
static json_t *drawn(const json_t *variant, int ranks)
{
    json_t *losses = json_array(), *norms = json_array();
    trajectory_plan(variant, ranks, FSDP2 "--init model");
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
    trajectory_plan(variant, 4, FSDP2 "--init model");
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
        cmocka_unit_test(variants_follow_pytorch_on_two_ranks),
        cmocka_unit_test(a_drawn_model_is_the_same_on_any_number_of_ranks),
    };
    return cmocka_run_group_tests_name("run_variants", tests, open_variants, trajectories_close);
}

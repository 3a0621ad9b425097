/* test_run_padded.c - plans of padded batches train what transformers trains when it is given such
 * a batch and its mask.
 *
 * tests/data/numerics/hf_padded.json has 20 AdamW steps of small models, of families in each way of
 * leaving padding out, and of sequences that begin with a prompt, recorded by
 * tests/truth/numerics_hf.py. On one rank: a mean over the tokens of a rank is another where ranks
 * have different numbers of them. */
#include "tests/support/trajectory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

static int open_models(void **state)
{
    (void)state;
    return trajectories_open("hf_padded");
}

static void check(const json_t *model, const char *more)
{
    char options[256];
    const json_int_t padding = json_integer_value(json_object_get(model, "padding_tokens")),
                     prompt = json_integer_value(json_object_get(model, "prompt_tokens"));
    assert_true(padding + prompt > 0);
    snprintf(options, sizeof options,
             "--code hf --strategy single --padding-tokens %lld --prompt-tokens %lld %s",
             (long long)padding, (long long)prompt, more);
    trajectory_check(model, 1, options, TRAJECTORY_STEPS, 2e-5);
}

static void padding_is_left_out_as_transformers_does(void **state)
{
    const json_t *models = trajectories();
    (void)state;
    assert_true(json_array_size(models) >= 18);
    for (size_t i = 0; i < json_array_size(models); i++)
        check(json_array_get(models, i), i % 2 ? "" : "--checkpointing full");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(padding_is_left_out_as_transformers_does),
    };
    return cmocka_run_group_tests_name("run_padded", tests, open_models, trajectories_close);
}

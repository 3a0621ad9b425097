/* test_run_attention.c - attention in single ops, executed: the same losses as by the one kernel,
 * and the planned memory. */
#include "tests/support/folder.h"
#include "tests/support/program.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char folder[] = "/tmp/shardplan_run_attention.XXXXXX";

/* The losses of three steps of rank 0 of two, recorded beside the plan. */
static void run_steps(const char *options, double losses[3])
{
    if (shardplan(
            "plan tests/data/configs/tiny-llama --gpus 2 --seq 32 --micro-batch 2 %s -q -o %s",
            options, folder) != 0 ||
        shardplan("run %s/plan.json --rehearse 0/2 --steps 3 --json -o %s/run", folder, folder) !=
            0)
        fail_msg("%s: %s", options, program_output());
    const char *at = program_output();
    for (int i = 0; i < 3; i++) {
        at = strstr(at, "\"loss\": ");
        assert_non_null(at);
        at += strlen("\"loss\": ");
        losses[i] = strtod(at, NULL);
    }
    if (shardplan("compare %s/plan.json %s/run/trace.json", folder, folder) != 0 ||
        !strstr(program_output(), "memory is equal to the byte at all"))
        fail_msg("%s: %s", options, program_output());
}

static void single_ops_give_the_losses_of_the_kernel(void **state)
{
    (void)state;
    static const struct {
        const char *options;
        double near;
    } jobs[] = {
        {"--code torchtitan --param-dtype fp32 --reduce-dtype fp32", 1e-6},
        {"--code hf --param-dtype fp32 --reduce-dtype fp32", 1e-6},
        {"--code torchtitan", 1e-3}, /* in bf16 they round elsewhere */
        {"--code hf --checkpointing full", 1e-3},
    };
    static const char *const composed[] = {"math", "eager"};
    for (size_t i = 0; i < sizeof jobs / sizeof jobs[0]; i++) {
        double kernel[3], single[3];
        run_steps(jobs[i].options, kernel);
        for (size_t k = 0; k < 2; k++) {
            char options[256];
            if (k == 1 && !strstr(jobs[i].options, "--code hf"))
                continue; /* Python's is transformers' alone */
            snprintf(options, sizeof options, "%s --attention %s", jobs[i].options, composed[k]);
            run_steps(options, single);
            for (int step = 0; step < 3; step++)
                if (!(fabs(single[step] - kernel[step]) <= jobs[i].near * kernel[step]))
                    fail_msg("%s: step %d: loss %.9g instead of %.9g", options, step, single[step],
                             kernel[step]);
        }
    }
}

static void what_is_not_planned_of_it_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *options, *says;
    } cases[] = {
        {"--code torchtitan --attention eager", "it is transformers' code that has it"},
        {"--code hf --attention eager --param-dtype fp16", "bf16 is"},
        {"--attention math --compile on", "what torch.compile fuses of it is not planned"},
        {"--attention math --checkpointing selective --checkpoint-blocks first-1",
         "planned where all blocks are checkpointed"},
        {"--attention math --torch 2.8", "as torch 2.9 and newer compute it"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        if (shardplan("fit tests/data/configs/tiny-llama --gpus 2 %s", cases[i].options) != 2 ||
            !strstr(program_output(), cases[i].says))
            fail_msg("%s: %s", cases[i].options, program_output());
    if (shardplan("fit tests/data/configs/t5-small --gpus 2 --attention eager") != 2 ||
        !strstr(program_output(), "--attention math is PyTorch's in single ops"))
        fail_msg("%s", program_output());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(single_ops_give_the_losses_of_the_kernel),
        cmocka_unit_test(what_is_not_planned_of_it_is_refused),
    };
    return cmocka_run_group_tests_name("run attention", tests, folder_set_up_undrawn(folder),
                                       folder_tear_down);
}

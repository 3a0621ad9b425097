/* test_llama_factory_cli.c - what LLaMA-Factory v1's trainer has, from the command line: its loss,
 * adapters as units, gradients of what frozen embeddings return; and what they do not go with. */
#include "tests/support/program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define QWEN "fit qwen3-0.6b --code hf --gpus 8 --seq 512 "

static void a_loss_of_each_token(void **state)
{
    (void)state;
    assert_int_equal(shardplan(QWEN "--loss per-token"), 0);
    shardplan_says(2, "--loss per-token: LLaMA-Factory has transformers' models",
                   "fit qwen3-0.6b --gpus 8 --loss per-token");
    shardplan_says(2, "--loss per-token with --compile is not planned",
                   QWEN "--loss per-token --compile on");
    shardplan_says(2, "--loss per-token with --keep-outputs",
                   QWEN "--loss per-token --keep-outputs backward");
    shardplan_says(2, "--loss per-token of t5 is not planned",
                   "fit t5-small --gpus 2 --seq 64 --loss per-token");
    shardplan_says(2, "the next one", "fit qwen3-0.6b --code hf --gpus 8 --seq 1 --loss per-token");
}

static void adapters_are_units(void **state)
{
    (void)state;
    assert_int_equal(shardplan(QWEN "--lora 8 --adapter-units on --checkpointing full"), 0);
    shardplan_says(2, "--adapter-units on is of models with adapters", QWEN "--adapter-units on");
    shardplan_says(2, "--units blocks, embeddings or torchtitan",
                   QWEN "--lora 8 --adapter-units on --units 2");
    shardplan_says(2, "cast to --param-dtype",
                   QWEN "--lora 8 --adapter-units on --param-dtype fp32");
    shardplan_says(2, "call no module of adapters",
                   QWEN "--lora 8,all-linear --adapter-units on --lora-kernels mlp,qkv,o");
    shardplan_says(2, "is seen sharded in forward, in fp32, and gathered later, in bf16",
                   QWEN "--lora 8 --adapter-units on --reshard never --checkpointing full");
    shardplan_says(2, "--compile with --adapter-units on is not planned",
                   QWEN "--lora 8 --adapter-units on --compile on");
    shardplan_says(2, "ddp has no such units", QWEN "--strategy ddp --adapter-units on");
}

static void inputs_need_gradients(void **state)
{
    (void)state;
    assert_int_equal(shardplan(QWEN "--lora 8 --input-grads on"), 0);
    shardplan_says(2, "nothing changes", QWEN "--input-grads on");
    shardplan_says(2, "nothing changes", QWEN "--input-grads on --freeze *norm*");
    shardplan_says(2, "--input-grads on with --keep-outputs next",
                   QWEN "--lora 8 --input-grads on --keep-outputs next");
    assert_int_equal(shardplan(QWEN "--lora 8 --input-grads on --keep-outputs backward"), 0);
    shardplan_says(2, "--compile with --input-grads on is not planned",
                   QWEN "--lora 8 --input-grads on --compile on");
    shardplan_says(2, "such as those of attention alone, --lora 8,q_a_proj,q_b_proj",
                   "fit deepseek-v3 --gpus 64 --seq 64 --lora 8,all-linear");
}

/* v0's files of `export`, `chat` and prediction. */
static void what_trains_nothing_is_refused(void **state)
{
    (void)state;
    static const char *const keys[] = {"export_dir: out", "infer_backend: huggingface",
                                       "do_predict: true"};
    char group[] = "/tmp/shardplan_factory.XXXXXX";
    assert_non_null(mkdtemp(group));
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        assert_int_equal(shell("printf 'model_name_or_path: Qwen/Qwen3-0.6B\\ntemplate: qwen3\\n"
                               "finetuning_type: lora\\n%s\\n' >%s/file.yaml",
                               keys[i], group),
                         0);
        char command[128];
        snprintf(command, sizeof command, "fit --from %s/file.yaml", group);
        shardplan_says(2, "it is no training job: do_train: true", command);
        assert_int_equal(shell("echo 'do_train: true' >>%s/file.yaml", group), 0);
        assert_int_equal(shardplan("%s", command), 0);
    }
    assert_int_equal(shell("rm -r %s", group), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_loss_of_each_token),
        cmocka_unit_test(adapters_are_units),
        cmocka_unit_test(inputs_need_gradients),
        cmocka_unit_test(what_trains_nothing_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

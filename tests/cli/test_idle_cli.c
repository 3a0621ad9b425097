/* test_idle_cli.c - what is said to do nothing does nothing, and does something elsewhere.
 * SHARDPLAN names the program. */
#include "tests/support/program.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define TOY "tests/data/configs/toy-llama --seq 128"
#define MODEL "llama-3.2-1b --seq 512 --code hf"

/* All that `plan` says but what it was asked. */
static json_t *planned(const char *job, const char *option)
{
    const int status = shardplan("plan %s %s --no-files --no-remedies --json", job, option);
    if (status != 0 && status != 1)
        fail_msg("%s %s: %d, %s", job, option, status, program_output());
    json_t *root = program_object();
    json_object_del(root, "settings");
    return root;
}

static bool is_said(const json_t *root, const char *option)
{
    const json_t *notes = json_object_get(root, "no_effect");
    size_t i;
    const json_t *note;
    json_array_foreach(notes, i, note)
    {
        if (strncmp(json_string_value(note), option, strcspn(option, " ")) == 0)
            return true;
    }
    return false;
}

static void expect_equal(const char *job, const char *option, bool equal)
{
    json_t *without = planned(job, ""), *with = planned(job, option);
    if (is_said(with, option) != equal)
        fail_msg("%s %s: %s", job, option, equal ? "not said" : "said");
    json_object_del(with, "no_effect");
    json_object_del(without, "no_effect");
    if (json_equal(with, without) != equal)
        fail_msg("%s: %s changes %s", job, option, equal ? "something" : "nothing");
    json_decref(with);
    json_decref(without);
}

static void what_does_nothing_is_said(void **state)
{
    static const struct {
        const char *option, *idle, *used; /* a job of each kind */
    } cases[] = {
        {"--accumulate-sync each", TOY " --gpus 4", TOY " --gpus 4 --accumulate 2"},
        {"--accumulate-sync each", TOY " --gpus 4 --strategy ddp",
         TOY " --gpus 4 --strategy ddp --accumulate 2"},
        {"--last-backward last", TOY " --gpus 4",
         TOY " --gpus 4 --accumulate 2 --accumulate-sync each"},
        {"--reshard-after-backward last", TOY " --gpus 4", TOY " --gpus 4 --accumulate 2"},
        {"--all-reduce last", TOY " --gpus 4 --accumulate 2 --accumulate-sync each",
         TOY " --gpus 4 --accumulate 2 --accumulate-sync each --replicate 2"},
        {"--all-reduce last", TOY " --gpus 4 --accumulate 2 --replicate 2",
         TOY " --gpus 4 --accumulate 2 --accumulate-sync each --replicate 2"},
        {"--all-reduce last", TOY " --gpus 4 --replicate 2",
         TOY " --gpus 4 --accumulate 2 --accumulate-sync each --replicate 2"},
        {"--embedding-states 8", MODEL, MODEL " --strategy ddp --optimizer adamw-8bit"},
        {"--embedding-states 8", MODEL " --strategy ddp --optimizer paged-adamw-32bit",
         MODEL " --strategy ddp --optimizer paged-adamw-8bit"},
        {"--optimizer-impl fused", MODEL " --strategy ddp --optimizer adamw-8bit", MODEL},
        {"--tower none", MODEL, "tests/data/configs/gemma-3-4b --seq 512"},
        {"--frozen-dtype bf16", MODEL, MODEL " --lora 8"},
        {"--frozen-dtype bf16", MODEL " --strategy fsdp1 --use-orig-params on",
         MODEL " --lora 8 --strategy ddp"},
        {"--optimize-ddp off", TOY " --gpus 4 --strategy ddp --code hf",
         MODEL " --gpus 4 --strategy ddp --compile model"},
        {"--early-stop off", MODEL, MODEL " --checkpointing full"},
        {"--checkpoint-blocks first-1", MODEL, MODEL " --checkpointing full"},
        {"--checkpoint-reentrant on", MODEL, MODEL " --checkpointing full"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        expect_equal(cases[i].idle, cases[i].option, true);
        expect_equal(cases[i].used, cases[i].option, false);
    }
}

static void expect_no_note(const char *line)
{
    const int status = shardplan("%s", line);
    if ((status != 0 && status != 1) || strstr(program_output(), "does nothing"))
        fail_msg("%s: %d, %s", line, status, program_output());
}

/* Nobody asked for what is so anyway, nor for what a program has by default. */
static void what_nobody_asked_for_is_not_said(void **state)
{
    (void)state;
    expect_no_note("fit " TOY " --accumulate-sync last --embedding-states 32 --tower frozen");
    /* torchtitan recomputes to the end of blocks */
    expect_no_note("fit --from tests/data/frameworks/torchtitan_8b.toml --checkpointing none");
    shardplan_says(0, "--early-stop does nothing without checkpoints",
                   "fit --from tests/data/frameworks/torchtitan_8b.toml --checkpointing none "
                   "--early-stop off");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_does_nothing_is_said),
        cmocka_unit_test(what_nobody_asked_for_is_not_said),
    };
    return cmocka_run_group_tests_name("idle_cli", tests, NULL, NULL);
}

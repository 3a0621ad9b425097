/* test_run_snapshot.c - a run leaves a memory snapshot, with the names of what it is for, and one
 * that ran out of memory does, too. That PyTorch's tools read it: tests/peer/test_snapshot_viz.c.
 */
#include "tests/support/folder.h"
#include "tests/support/program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char folder[] = "/tmp/shardplan_run_snapshot.XXXXXX";

static void plan_and_run(const char *options, int status)
{
    if (shardplan("plan tests/data/configs/toy-llama --gpus 2 --seq 32 --files plan -q -o %s",
                  folder) != 0)
        fail_msg("%s", program_output());
    const int got =
        shardplan("run %s/plan.json --rehearse 0/2 -o %s/run %s", folder, folder, options);
    if (got != status)
        fail_msg("%s: exit %d: %s", options, got, program_output());
}

/* A pickle's strings are plain in it. */
static void expect_in_snapshot(const char *text)
{
    size_t length;
    char *bytes = file_text(file_in(folder, "run/snapshot.pickle"), &length);
    assert_non_null(bytes);
    if (!memmem(bytes, length, text, strlen(text)))
        fail_msg("no \"%s\" in the snapshot", text);
    free(bytes);
}

static void a_run_leaves_what_its_memory_was_for(void **state)
{
    (void)state;
    plan_and_run("--steps 2 -q", 0);
    expect_in_snapshot("tok_embeddings.weight: new_zeros [128000] float32");
    expect_in_snapshot("layers.0.attention: ");
}

static void memory_that_ran_out_is_shown_as_it_was_then(void **state)
{
    (void)state;
    plan_and_run("--steps 2 --memory 24MiB -q", 3);
    expect_in_snapshot("oom");
    expect_in_snapshot("device_free");
    assert_false(file_exists(folder, "run/trace.json"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_that_ran_out_is_shown_as_it_was_then),
        cmocka_unit_test(a_run_leaves_what_its_memory_was_for),
    };
    return cmocka_run_group_tests_name("run snapshot", tests, folder_set_up(folder),
                                       folder_tear_down);
}

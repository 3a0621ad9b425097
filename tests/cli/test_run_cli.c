/* test_run_cli.c - `shardplan run` and the ranks that it starts: how they end, and what is heard of
 * them. */
#include "tests/support/folder.h"
#include "tests/support/program.h"

#include <jansson.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* A model whose step takes milliseconds. */
#define SMALL "tests/data/configs/toy-llama --seq 8"

static char folder[] = "/tmp/shardplan_run.XXXXXX";

/* Each rank has its own file, of which one is of a run of four. */
static void plans_of_two_jobs_do_not_run_together(void **state)
{
    (void)state;
    if (shell("command -v mpirun") != 0)
        skip();
    for (int ranks = 2; ranks <= 4; ranks += 2)
        assert_int_equal(shardplan("plan " SMALL
                                   " --gpus %d --strategy zero1 --files plan -q -o %s/own%d",
                                   ranks, folder, ranks),
                         0);
    assert_int_equal(shell("cp %s/own4/plan-1.json %s/own2", folder, folder), 0);
    assert_int_equal(shardplan("run %s/own2/plan.json --steps 1", folder), 3);
    assert_non_null(strstr(program_output(), "plan-1.json has other groups of ranks than "));
}

static void names_in_a_plan_are_json_in_what_is_printed(void **state)
{
    (void)state;
    assert_int_equal(
        shell("^/shardplan plan tests/data/configs/toy-llama --gpus 1 --seq 8 --files plan -q -o "
              "%s/named && "
              "sed -i 's/\"output.weight\"/\"output\\\\\\\"weight\"/' %s/named/plan.json && "
              "^/shardplan run %s/named/plan.json --steps 1 --json --param-norms | tail -1",
              folder, folder, folder),
        0);
    json_t *last = program_object();
    assert_string_equal(json_string_value(json_object_get(last, "parameter")), "output\"weight");
    json_decref(last);
}

/* Its ranks go with it, whatever ends it. Tests that were started under nohup ignore SIGHUP
 * themselves: its default is asked for. */
static void a_run_that_is_ended_leaves_no_ranks(void **state)
{
    (void)state;
    if (shell("command -v mpirun && command -v pgrep") != 0)
        skip();
    assert_int_equal(shardplan("plan " SMALL " --gpus 2 --files plan -q -o %s/ended", folder), 0);
    static const char *const signals[] = {"TERM", "HUP", "KILL"};
    static const int statuses[] = {143, 129, 137};
    for (int i = 0; i < 3; i++) {
        /* a path that the shell's own line, which is a process, too, does not have */
        const int status = shell(
            "exec 2>&1; plan=%s/end; plan=${plan}ed/plan.json; "
            "env --default-signal=HUP ^/shardplan run $plan --steps 1000000 >%s/steps & run=$!; "
            "n=0; until grep -q step %s/steps || [ $((n+=1)) = 300 ]; do sleep 0.1; done; "
            "kill -%s $run; wait $run; status=$?; "
            "n=0; while pgrep -f $plan && [ $((n+=1)) != 100 ]; do sleep 0.1; done; "
            "[ $n -lt 100 ] && exit $status",
            folder, folder, folder, signals[i]);
        if (status != statuses[i])
            fail_msg("%s: %d: %s", signals[i], status, program_output());
    }
}

/* nohup ignores SIGHUP, so what follows it is what ends the run. */
static void a_run_under_nohup_outlives_its_terminal(void **state)
{
    (void)state;
    if (shell("command -v mpirun && command -v nohup") != 0)
        skip();
    assert_int_equal(shardplan("plan " SMALL " --gpus 2 --files plan -q -o %s/alone", folder), 0);
    const int status =
        shell("exec 2>&1; nohup ^/shardplan run %s/alone/plan.json --steps 1000000 >%s/alone/steps "
              "& run=$!; "
              "n=0; until grep -q step %s/alone/steps || [ $((n+=1)) = 300 ]; do sleep 0.1; done; "
              "kill -HUP $run; kill -TERM $run; wait $run",
              folder, folder, folder);
    if (status != 128 + SIGTERM)
        fail_msg("%d: %s", status, program_output());
}

/* What mpirun says when it cannot start anything. */
static void words_of_others_are_shown_where_no_rank_says_why(void **state)
{
    (void)state;
    if (shell("command -v mpirun") != 0)
        skip();
    assert_int_equal(shardplan("plan " SMALL " --gpus 2 --files plan -q -o %s/words", folder), 0);
    assert_int_equal(
        shell("mkdir %s/others && printf '#!/bin/sh\necho not enough slots >&2\nexit 1' "
              ">%s/others/mpirun && chmod +x %s/others/mpirun && "
              "PATH=%s/others:$PATH ^/shardplan run %s/words/plan.json 2>&1",
              folder, folder, folder, folder, folder),
        3);
    assert_string_equal(program_output(), "not enough slots\n");
}

/* Not in the one that all runs of a user would share, which one removes while another begins. */
static void mpirun_works_in_a_folder_of_the_runs_own(void **state)
{
    (void)state;
    assert_int_equal(shardplan("plan " SMALL " --gpus 2 --files plan -q -o %s/session", folder), 0);
    assert_int_equal(
        shell("mkdir %s/session/bin %s/session/temporary && "
              "printf '#!/bin/sh\necho \"$@\"; ls -d %s/session/temporary/*\n' "
              ">%s/session/bin/mpirun && chmod +x %s/session/bin/mpirun && TMPDIR=%s/session/"
              "temporary PATH=%s/session/bin:$PATH ^/shardplan run %s/session/plan.json",
              folder, folder, folder, folder, folder, folder, folder, folder),
        0);
    const char *own = strstr(program_output(), " --mca orte_tmpdir_base ");
    const char *line = strchr(program_output(), '\n');
    assert_non_null(own);
    assert_non_null(line);
    own += strlen(" --mca orte_tmpdir_base ");
    const char *there = line + 1; /* the only folder there is, while mpirun runs */
    assert_memory_equal(own, there, strcspn(there, "\n"));
    assert_string_equal(there + strcspn(there, "\n"), "\n");
    assert_int_equal(shell("ls %s/session/temporary", folder), 0);
    assert_string_equal(program_output(), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_of_two_jobs_do_not_run_together),
        cmocka_unit_test(names_in_a_plan_are_json_in_what_is_printed),
        cmocka_unit_test(a_run_that_is_ended_leaves_no_ranks),
        cmocka_unit_test(a_run_under_nohup_outlives_its_terminal),
        cmocka_unit_test(words_of_others_are_shown_where_no_rank_says_why),
        cmocka_unit_test(mpirun_works_in_a_folder_of_the_runs_own),
    };
    return cmocka_run_group_tests_name("run_cli", tests, folder_set_up_undrawn(folder),
                                       folder_tear_down);
}

/* test_folders.c - what a command leaves in a folder is of one command: a second one waits. */
#include "tests/support/folder.h"
#include "tests/support/program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define TOY "tests/data/configs/toy-llama"

static char folder[] = "/tmp/test_folders.XXXXXX";

/* Runs the command into a folder that this shell holds. Once it has that open, which it has for the
 * lock alone, there is nothing in it; with the folder given back, it ends and leaves `file`. */
static void waits_for_the_folder(const char *arguments, const char *file)
{
    const int status = shell(
        "mkdir %s/held && exec 9<%s/held && flock 9 || exit 99; "
        "^/shardplan %s -q -o %s/held 9<&- & "
        "while kill -0 $! && ! readlink /proc/$!/fd/* | grep -qx %s/held; do sleep 0.01; done; "
        "kill -0 $! || { echo it did not wait; exit 98; }; "
        "[ -z \"$(ls -A %s/held)\" ] || { ls -A %s/held; exit 97; }; "
        "exec 9<&-; wait $! && [ -s %s/held/%s ] && rm -r %s/held",
        folder, folder, arguments, folder, folder, folder, folder, folder, file, folder);
    if (status != 0)
        fail_msg("%s: status %d: %s", arguments, status, program_output());
}

static void commands_wait_until_nobody_else_writes_there(void **state)
{
    (void)state;
    if (access("/proc/self/fd", R_OK) != 0)
        skip();
    waits_for_the_folder("plan " TOY " --gpus 2 --seq 64", "report.html");
    waits_for_the_folder("plan " TOY " --gpus 2 --seq 64 --strategy fsdp2,ddp", "systems.json");
    waits_for_the_folder("sweep " TOY " --gpus 2 --seq 64 --over units=1,2", "sweep.json");
    waits_for_the_folder("diff " TOY " gpus=4 --seq 64", "diff.json");
    waits_for_the_folder("tune " TOY " --gpus 2 --seq 64 --strategy fsdp2 --to fsdp2", "tune.json");
    assert_int_equal(shell("^/shardplan plan " TOY
                           " --gpus 1 --seq 16 --files plan -q -o %s/plan && "
                           "^/shardplan run %s/plan/plan.json --steps 2 -q -o %s/run",
                           folder, folder, folder),
                     0);
    char compare[128];
    snprintf(compare, sizeof compare, "compare %s/plan/plan.json %s/run/trace.json", folder,
             folder);
    waits_for_the_folder(compare, "compare.json");
}

/* The folder is the first thing that is opened and stays so. Before it is shardplan, the process is
 * a copy of the shell, which has the folder open, too. */
static void what_is_opened_is_no_standard_stream(void **state)
{
    (void)state;
    if (access("/proc/self/fd", R_OK) != 0)
        skip();
    const int status =
        shell("mkdir %s/closed && exec 9<%s/closed && flock 9 || exit 99; "
              "^/shardplan plan " TOY " --gpus 2 --seq 64 -o %s/closed 9<&- <&- >&- 2>&- & "
              "until { readlink /proc/$!/exe | grep -q /shardplan && "
              "readlink /proc/$!/fd/* | grep -qx %s/closed; } || ! kill -0 $!; do sleep 0.01; "
              "done; for fd in 0 1 2; do [ $(readlink /proc/$!/fd/$fd) = /dev/null ] || exit 98; "
              "done; exec 9<&-; wait $!",
              folder, folder, folder, folder);
    if (status != 0)
        fail_msg("status %d: %s", status, program_output());
}

/* Ends a command that writes into `ended` as soon as a file is being written there. The first word
 * of the output is "seen", or "unseen" where the command was through before one was; what is left
 * under a temporary name comes behind it. The shell looks by itself: a program that does would come
 * too late. */
static bool end(const char *arguments, const char *signal)
{
    const int status =
        shell("exec 2>/dev/null; mkdir -p %s/ended; env --default-signal ^/shardplan %s "
              "-o %s/ended >/dev/null & seen=un; while [ $seen ] && kill -0 $!; do "
              "for f in %s/ended/*.tmp; do [ -e \"$f\" ] && seen=; done; done; kill -s %s $!; "
              "wait $!; echo ${seen}seen; ls -A %s/ended | grep tmp; rm -r %s/ended",
              folder, arguments, folder, folder, signal, folder, folder);
    assert_int_equal(status, 0);
    const bool was_seen = strcmp(program_output(), "seen\n") == 0;
    if (!was_seen && strcmp(program_output(), "unseen\n") != 0)
        fail_msg("%s: %s", arguments, program_output());
    return was_seen;
}

/* Until each signal came in the midst of a file: another program may have the processor then. */
static void end_by_each(const char *arguments)
{
    static const char *const signals[] = {"TERM", "HUP", "INT"};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        int times = 0;
        while (!end(arguments, signals[i]))
            assert_true(++times < 60);
    }
}

/* Of the plan, a page or a picture. */
static void a_command_that_is_ended_leaves_whole_files(void **state)
{
    (void)state;
    end_by_each("plan gpt2 --gpus 8 -q");
}

/* A rank has threads beside the one that writes. */
static void a_run_that_is_ended_does(void **state)
{
    (void)state;
    char arguments[1024];
    assert_int_equal(
        shell("^/shardplan plan " TOY " --gpus 1 --seq 16 --files plan -q -o %s/planned", folder),
        0);
    snprintf(arguments, sizeof arguments, "run %s/planned/plan.json --steps 1", folder);
    end_by_each(arguments);
}

/* It ends by the signal, as every command does; with nothing left of what it measured with. */
static void a_calibration_that_is_ended_does(void **state)
{
    (void)state;
    if (shell("command -v mpirun") != 0)
        skip();
    const int status =
        shell("exec 2>&1; mkdir %s/temporary || exit 99; export TMPDIR=%s/temporary; "
              "^/shardplan calibrate --quick -q -o %s/ended.json & run=$!; "
              "until ls $TMPDIR/calibrate.*/plan.json >/dev/null 2>&1 || ! kill -0 $run; do "
              "sleep 0.01; done; kill -TERM $run; wait $run; status=$?; "
              "ls $TMPDIR | grep calibrate && exit 98; [ -e %s/ended.json ] && exit 97; "
              "exit $status",
              folder, folder, folder, folder);
    if (status != 143)
        fail_msg("status %d: %s", status, program_output());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commands_wait_until_nobody_else_writes_there),
        cmocka_unit_test(what_is_opened_is_no_standard_stream),
        cmocka_unit_test(a_command_that_is_ended_leaves_whole_files),
        cmocka_unit_test(a_run_that_is_ended_does),
        cmocka_unit_test(a_calibration_that_is_ended_does),
    };
    return cmocka_run_group_tests_name("folders", tests, folder_set_up_undrawn(folder),
                                       folder_tear_down);
}

/* test_faults.c - whatever call of the system fails, or is a program's last: a command ends with a
 * status and a sentence, leaves whole files or none, and no checkpoint is lost.
 *
 * tests/faults/fault.c, preloaded, lets the n-th call of a kind fail: for every n where there are
 * few, else for the first ones and some of the rest; for sixteen times as many under `make soak`.
 */
#include "tests/support/folder.h"
#include "tests/support/program.h"
#include "tests/support/soak.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { FEW = 6, SAMPLES = 4, SOAK_TIMES = 32 };

static char folder[] = "/tmp/shardplan_faults.XXXXXX";

/* Sanitizers have allocators of their own, and want to be first. */
static void need_faults(void)
{
    const char *program = getenv("SHARDPLAN");
    if ((program && strstr(program, "san")) || shell("test -e ^/fault.so") != 0)
        skip();
}

/* Runs a line of the shell with `fault` (a kind, or empty) in processes of a name; PLAN stands for
 * nothing: it is only the folder's. */
static int under(const char *fault, const char *program, unsigned long at, bool end,
                 const char *line)
{
    return shell("cd %s; export FAULT=%s FAULT_PROGRAM=%s FAULT_AT=%lu FAULT_FILE=%s/calls %s; "
                 "here=$OLDPWD; case ^ in /*) p=^;; *) p=$here/^;; esac; "
                 "preload() { LD_PRELOAD=$p/fault.so \"$@\"; }; %s",
                 folder, fault, program, at, folder, end ? "FAULT_END=1" : "", line);
}

/* How many calls of the kind the line makes. */
static unsigned long calls_of(const char *fault, const char *program, const char *line)
{
    char path[64];
    struct stat st;
    snprintf(path, sizeof path, "%s/calls", folder);
    unlink(path);
    if (under(fault, program, 0, false, line) != 0)
        fail_msg("%s: %s", line, program_output());
    return stat(path, &st) == 0 ? (unsigned long)st.st_size : 0;
}

/* The next number of a call to try: all at first, then some. */
static unsigned long after(unsigned long n, unsigned long calls)
{
    const unsigned long times = is_soak() ? SOAK_TIMES : 1;
    if (n < FEW * times || calls < 2 * FEW * times)
        return n + 1;
    return n + 1 + (calls - FEW * times) / (SAMPLES * times);
}

/* Of a command that writes OUT: what is there is as in WHOLE (but for a page without pictures), and
 * there are no partial files, unless it ended for want of memory. */
#define COMPARE                                                                                    \
    "; s=$?; for f in out/*; do case $f in out/*tmp*) [ $FAULT = memory ] || exit 99;; esac; "     \
    "case $f in *.html|*.tmp|*\\*) continue;; esac; "                                              \
    "[ -e whole/${f#out/} ] || continue; cmp -s $f whole/${f#out/} || { echo $f differs; exit "    \
    "98; }; done; exit $s"

static void expect_plain_failure(int status, const char *fault, unsigned long n)
{
    if (status != 0 && (status != 3 || !strstr(program_output(), "shardplan: ")))
        fail_msg("%s %lu: status %d: %s", fault, n, status, program_output());
}

static void plans_are_whole_or_not_there(void **state)
{
    (void)state;
    need_faults();
    static const char *const faults[] = {"write", "rename", "fork", "memory"};
    static const char line[] = "rm -rf out; preload $p/shardplan plan fsdp2-tutorial --gpus 2 -q "
                               "-o out 2>&1" COMPARE;
    assert_int_equal(shell("^/shardplan plan fsdp2-tutorial --gpus 2 -q -o %s/whole", folder), 0);
    for (int f = 0; f < 4; f++) {
        const unsigned long calls = calls_of(faults[f], "shardplan", line);
        unsigned failed = 0;
        assert_true(calls > 0);
        for (unsigned long n = 1; n <= calls; n = after(n, calls)) {
            const int status = under(faults[f], "shardplan", n, false, line);
            expect_plain_failure(status, faults[f], n);
            failed += status != 0;
        }
        assert_true(failed > 0 || strcmp(faults[f], "fork") == 0); /* pictures are done without */
    }
}

/* A plan that is interrupted in its writing leaves the older one. */
static void an_older_plan_is_kept(void **state)
{
    (void)state;
    need_faults();
    static const char line[] =
        "rm -rf out; cp -r whole out; preload $p/shardplan plan fsdp2-tutorial --gpus 2 -q -o out "
        "2>&1; s=$?; cmp -s out/plan.json whole/plan.json || exit 98; exit $s";
    assert_int_equal(shell("^/shardplan plan fsdp2-tutorial --gpus 2 -q -o %s/whole", folder), 0);
    const unsigned long calls = calls_of("write", "shardplan", line);
    for (unsigned long n = 1; n <= calls; n = after(n, calls))
        assert_int_not_equal(under("write", "shardplan", n, true, line), 98);
}

/* Every other command that writes a folder. Files that two healthy runs make alike are held to be
 * so; the rest says how long something took. */
static void every_command_leaves_whole_files_or_none(void **state)
{
    (void)state;
    need_faults();
    static const char *const faults[] = {"write", "rename", "fork", "thread", "memory"};
    static const char *const commands[] = {
        "fit least.json --code nanogpt --gpus 2 --seq 6 --events out/events.jsonl",
        "tune least.json --code nanogpt --gpus 2 --seq 6 --strategy zero1 --checkpointing none",
        "sweep least.json --code nanogpt --gpus 2 --seq 6 --over micro-batch=1,2 --over reshard",
        "diff one/plan.json two/plan.json",
        "compare one/plan.json one/run/trace.json",
        "plan least.json --code nanogpt --gpus 2 --seq 6 --strategy zero3",
        "export one/plan.json --to fsdp2 -o out/fsdp2.py",
        "calibrate --from-nccl-tests nccl.txt -o out/profile.json",
    };
    assert_int_equal(
        shell(
            "cp tests/data/fuzz/least.json %s && cp tests/data/nccl-tests/named.txt %s/nccl.txt && "
            "^/shardplan plan tests/data/fuzz/least.json --code nanogpt --gpus 1 --seq 6 -q -o "
            "%s/one && ^/shardplan plan fsdp2-tutorial --gpus 2 -q -o %s/two && "
            "^/shardrun %s/one/plan.json --steps 2 -q -o %s/one/run",
            folder, folder, folder, folder, folder, folder),
        0);
    for (size_t c = 0; c < sizeof commands / sizeof *commands; c++) {
        char line[1024];
        const char *out = strstr(commands[c], " out/") ? "" : "-o out";
        snprintf(line, sizeof line,
                 "rm -rf out; mkdir out; preload $p/shardplan %s -q %s 2>&1" COMPARE, commands[c],
                 out);
        assert_int_equal(shell("cd %s; case ^ in /*) p=^;; *) p=$OLDPWD/^;; esac; "
                               "for again in whole other; do rm -rf out $again; mkdir out; "
                               "$p/shardplan %s -q %s || exit; mv out $again; done; "
                               "for f in whole/*; do cmp -s $f other/${f#whole/} || rm $f; done",
                               folder, commands[c], out),
                         0);
        for (int f = 0; f < 5; f++) {
            const unsigned long calls = calls_of(faults[f], "shardplan", line);
            for (unsigned long n = 1; n <= calls; n = after(n, calls))
                expect_plain_failure(under(faults[f], "shardplan", n, false, line), faults[f], n);
        }
    }
}

static void an_answer_is_whole_or_there_is_none(void **state)
{
    (void)state;
    need_faults();
    static const char line[] = "preload $p/shardplan fit fsdp2-tutorial --gpus 2 --json 2>&1";
    const unsigned long calls = calls_of("memory", "shardplan", line);
    char *whole = strdup(program_output());
    assert_true(calls > 100);
    for (unsigned long n = 1; n <= calls; n = after(n, calls)) {
        const int status = under("memory", "shardplan", n, false, line);
        expect_plain_failure(status, "memory", n);
        if (status == 0 && strcmp(program_output(), whole) != 0)
            fail_msg("memory %lu: status 0, and another answer: %s", n, program_output());
    }
    free(whole);
}

/* A checkpoint of step 1 is replaced by one of step 2: afterwards one of both can be loaded. */
#define SAVE                                                                                       \
    "rm -rf ck; cp -r first ck; "                                                                  \
    "preload $p/shardrun one/plan.json --steps 2 --load ck --save ck -q 2>&1; s=$?; "              \
    "[ $s -ge 128 ] && s=3; [ -e ck/index.json.tmp ] && [ -z \"$FAULT_END\" ] && exit 97; "        \
    "$p/shardrun one/plan.json --steps 3 --load ck -q || exit 98; exit $s"

static void a_checkpoint_is_never_lost(void **state)
{
    (void)state;
    need_faults();
    static const char *const faults[] = {"write", "rename", "sync", "unlink"};
    assert_int_equal(shell("^/shardplan plan tests/data/fuzz/least.json --code nanogpt --gpus 1 "
                           "--seq 6 -q -o %s/one "
                           "&& ^/shardrun %s/one/plan.json --steps 1 --save %s/first -q",
                           folder, folder, folder),
                     0);
    for (int f = 0; f < 4; f++) {
        const unsigned long calls = calls_of(faults[f], "shardrun", SAVE);
        assert_true(calls > 0);
        for (unsigned long n = 1; n <= calls; n = after(n, calls))
            for (int end = 0; end < 2; end++) {
                const int status = under(faults[f], "shardrun", n, end, SAVE);
                if (status != 0 && status != 3)
                    fail_msg("%s %lu%s: %d: %s", faults[f], n, end ? ", the last" : "", status,
                             program_output());
                if (status == 3 && !end)
                    assert_non_null(strstr(program_output(), "shardrun: rank 0: "));
            }
    }
}

static void ranks_that_cannot_be_started_are_an_error(void **state)
{
    (void)state;
    need_faults();
    static const char line[] = "preload $p/shardplan run one/plan.json --steps 1 -q 2>&1";
    assert_int_equal(shell("^/shardplan plan tests/data/fuzz/least.json --code nanogpt --gpus 1 "
                           "--seq 6 -q -o %s/one",
                           folder),
                     0);
    assert_int_equal(calls_of("fork", "shardplan", line), 1);
    assert_int_equal(under("fork", "shardplan", 1, false, line), 3);
    assert_non_null(strstr(program_output(), "start a process: "));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plans_are_whole_or_not_there),
        cmocka_unit_test(an_older_plan_is_kept),
        cmocka_unit_test(every_command_leaves_whole_files_or_none),
        cmocka_unit_test(an_answer_is_whole_or_there_is_none),
        cmocka_unit_test(a_checkpoint_is_never_lost),
        cmocka_unit_test(ranks_that_cannot_be_started_are_an_error),
    };
    return cmocka_run_group_tests_name("faults", tests, folder_set_up_undrawn(folder),
                                       folder_tear_down);
}

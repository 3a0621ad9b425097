/* test_snapshot_viz.c - PyTorch's own tools (torch.cuda._memory_viz) read the memory snapshots of a
 * plan and of its run, and their sums are the allocator's (snapshot_viz.py).
 *
 * Python is SHARDPLAN_PYTHON, else python3; the test is skipped where torch is not there. */
#include "tests/support/folder.h"
#include "tests/support/program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include <cmocka.h>

enum { ABSENT = 77, NOT_FOUND = 127 };

static char folder[] = "/tmp/shardplan_viz.XXXXXX";

/* "snapshot.pickle" and "trace.json" of the folder's `place`. */
static void check(const char *options, const char *place)
{
    char command[1024];
    size_t length;
    snprintf(command, sizeof command,
             PROGRAM_LIMITS "%s tests/peer/snapshot_viz.py %s%s/snapshot.pickle "
                            "%s%s/trace.json >%s/said 2>&1",
             program_python(), folder, place, folder, place, folder);
    const int status = system(command);
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (code == ABSENT || code == NOT_FOUND) {
        print_message("note: torch is not installed for this Python\n");
        skip();
    }
    if (code != 0)
        fail_msg("%s, %s: exit status %d: %s", options, place, code,
                 file_text(file_in(folder, "said"), &length));
}

static void pytorchs_tools_read_what_a_plan_and_a_run_write(void **state)
{
    (void)state;
    static const char *const jobs[] = {
        "tests/data/configs/toy-llama --gpus 8 --seq 32",
        "tests/data/configs/toy-llama --gpus 8 --seq 32 --strategy fsdp1 --checkpointing full",
        "tests/data/configs/toy-llama --gpus 8 --seq 32 --code hf --strategy ddp --accumulate 2",
    };
    for (size_t i = 0; i < sizeof jobs / sizeof jobs[0]; i++) {
        if (shardplan("plan %s -q -o %s", jobs[i], folder) != 0 ||
            shardplan("run %s/plan.json --rehearse 0/8 --steps 3 -q -o %s/run", folder, folder) !=
                0)
            fail_msg("%s: %s", jobs[i], program_output());
        check(jobs[i], "");
        check(jobs[i], "/run");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pytorchs_tools_read_what_a_plan_and_a_run_write),
    };
    return cmocka_run_group_tests_name("snapshot_viz", tests, folder_set_up(folder),
                                       folder_tear_down);
}

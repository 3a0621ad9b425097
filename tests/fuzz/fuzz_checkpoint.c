/* fuzz_checkpoint.c - any bytes as a checkpoint's index.json, beside files that are whole: it is
 * loaded, or refused before anything is written (tests/support/fake_execution.h). */
#include "tests/support/fake_execution.h"

#include <stdio.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[64];

static void put_index(const uint8_t *data, size_t size)
{
    char path[128];
    snprintf(path, sizeof path, "%s/index.json", folder);
    FILE *file = fopen(path, "w");
    if (!file || fwrite(data, 1, size, file) != size || fclose(file) != 0)
        abort();
}

static void remove_folder(void)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    if (system(command) != 0)
        abort();
}

/* What a save of one rank leaves, once for all inputs. */
static void save_once(struct plan *plan)
{
    struct err err = {0};
    snprintf(folder, sizeof folder, "/tmp/fuzz_checkpoint.XXXXXX");
    struct execution *execution = make_execution(plan, true, true);
    if (!mkdtemp(folder) || checkpoint_save(execution, plan, NULL, 7, folder, &err) != ERR_OK)
        abort();
    free_execution(execution);
    atexit(remove_folder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct plan *plan = mesh_plan((struct mesh){ROWS, 1, 1}, 0, ADAMW);
    struct err err = {0};
    uint64_t step = 0;
    if (!folder[0])
        save_once(plan);
    put_index(data, size);
    struct execution *execution = make_execution(plan, true, false);
    const enum err_code rc = checkpoint_load(execution, plan, NULL, folder, &step, &err);
    if ((rc == ERR_OK) != (err.code == ERR_OK) || (rc != ERR_OK && execution->writes > 0))
        abort();
    free_execution(execution);
    plan_free(plan);
    return 0;
}

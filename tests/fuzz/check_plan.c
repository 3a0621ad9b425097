/* check_plan.c - for least_plans.py: reads names of plans, a line each, and says of each whether it
 * is read and runs ("1"), or not ("0"). */
#include "base/file.h"
#include "tests/support/guarded_run.h"

#include <stdio.h>
#include <string.h>

static bool runs(const char *path)
{
    struct err err = {0};
    size_t length;
    bool ran = false;
    char *text = file_read(path, &length, &err);
    const bool ok = text && guarded_run(text, length, 0, &ran, &err) == ERR_OK;
    free(text);
    return ok && ran;
}

int main(void)
{
    char path[4096];
    while (fgets(path, sizeof path, stdin)) {
        path[strcspn(path, "\n")] = '\0';
        puts(runs(path) ? "1" : "0");
        fflush(stdout);
    }
    return 0;
}

/* fuzz_plan.c - any bytes as a plan.json: what is read and verified can be replayed. */
#include "memory/replay.h"
#include "plan/plan_json.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[] = "/tmp/fuzz_plan.XXXXXX";
    const int file = mkstemp(path);
    if (file < 0 || write(file, data, size) != (ssize_t)size)
        abort();
    close(file);
    struct plan *plan = NULL;
    struct err err = {0};
    struct memory memory;
    const struct memory_options options = {.without_allocator = true};
    if (plan_read_json(path, &plan, &err) == ERR_OK && plan_verify(plan, &err) == ERR_OK)
        memory_replay(plan, &options, NULL, NULL, &memory, &err);
    plan_free(plan);
    unlink(path);
    return 0;
}

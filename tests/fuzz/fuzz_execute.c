/* fuzz_execute.c - a plan.json with places changed: what can be read runs two steps, on the rank
 * that the file is of, without touching anything but its buffers (tests/support/guarded_run.h). */
#include "tests/support/guarded_run.h"
#include "tests/support/mutation.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);
const char *__asan_default_options(void);

/* Memory that is not there is an error of the plan's. */
const char *__asan_default_options(void)
{
    return "allocator_may_return_null=1:max_allocation_size_mb=2048";
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[] = "/tmp/fuzz_execute.XXXXXX";
    const int file = mkstemp(path);
    if (file < 0 || write(file, data, size) != (ssize_t)size)
        abort();
    close(file);
    struct err err = {0};
    bool ran;
    if (guarded_run(path, size % 2, &ran, &err) != ERR_OK && !err.text[0])
        abort();
    unlink(path);
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed)
{
    uint64_t state = seed;
    json_t *tree = json_loadb((const char *)data, size, 0, NULL);
    if (!json_is_object(tree)) {
        json_decref(tree);
        return size;
    }
    mutate_json(tree, &state);
    char *text = json_dumps(tree, JSON_COMPACT);
    const size_t length = text ? strlen(text) : most + 1;
    if (text && length <= most)
        memcpy(data, text, length);
    free(text);
    json_decref(tree);
    return length <= most ? length : size;
}

/* fuzz_execute.c - a plan.json with places changed: what can be read runs two steps, on the rank
 * that the file is of, without touching anything but its buffers (tests/support/guarded_run.h). */
#include "tests/support/guarded_run.h"
#include "tests/support/mutation.h"

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
    struct err err = {0};
    bool ran;
    if (guarded_run((const char *)data, size, size % 2, &ran, &err) != ERR_OK && !err.text[0])
        abort();
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed)
{
    return mutate_json_text(data, size, most, seed);
}

/* fuzz_plan.c - any bytes as a plan.json: what is read and verified can be replayed. One change in
 * two is of places of the document, the others are of bytes. */
#include "memory/replay.h"
#include "plan/plan_json.h"
#include "tests/support/mutation.h"

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most); /* libFuzzer's */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct plan *plan = NULL;
    struct err err = {0};
    struct memory memory;
    const struct memory_options options = {.without_allocator = true};
    if (plan_parse_json("plan.json", (const char *)data, size, &plan, &err) == ERR_OK)
        memory_replay(plan, &options, NULL, NULL, &memory, &err);
    plan_free(plan);
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed)
{
    return seed % 2 ? LLVMFuzzerMutate(data, size, most) : mutate_json_text(data, size, most, seed);
}

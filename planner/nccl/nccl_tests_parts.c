/* nccl_tests_parts.c - see nccl_tests_parts.h. */
#include "nccl/nccl_tests_parts.h"

#include "base/arena.h"

#include <stdlib.h>
#include <string.h>

enum program nccl_tests_program(const char *text, enum collective *out)
{
    const char *end = strstr(text, "_perf");
    if (!end)
        return PROGRAM_UNKNOWN;
    const char *start = end;
    while (start > text && ((start[-1] >= 'a' && start[-1] <= 'z') || start[-1] == '_'))
        start--;
    for (enum collective c = 0; c < COLLECTIVE_COUNT; c++) {
        const char *name = collective_name(c);
        if (strlen(name) == (size_t)(end - start) && strncmp(start, name, strlen(name)) == 0) {
            *out = c;
            return PROGRAM_PLANNED;
        }
    }
    return start == end ? PROGRAM_UNKNOWN : PROGRAM_OTHER;
}

void host_set_add(struct host_set *set, const char *name)
{
    if (!set->names)
        set->names = json_object();
    json_object_set_new_nocheck(set->names, name, json_true()); /* names need not be UTF-8 */
    set->count = (uint32_t)json_object_size(set->names);
}

void host_set_free(struct host_set *set)
{
    json_decref(set->names);
    *set = (struct host_set){0};
}

void nccl_tests_add(struct nccl_tests_builder *builder, struct collective_point point,
                    bool in_place)
{
    struct nccl_tests *out = builder->out;
    ARRAY_GROW(out->points, out->count, builder->cap);
    out->points[out->count++] = point;
    out->in_place += in_place;
}

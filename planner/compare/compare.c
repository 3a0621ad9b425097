/* compare.c - see compare.h. What is made of the join is in compare_memory.c and compare_time.c. */
#include "compare/compare_parts.h"

enum err_code compare_run(const struct plan *plan, const json_t *time, const struct trace *trace,
                          struct comparison *out, struct err *err)
{
    *out = (struct comparison){.step = trace_get_info(trace, "step"),
                               .kernels = trace_get_info(trace, "kernels"),
                               .rank = plan->rank};
    struct join join = {.plan = plan, .trace = trace, .arena = &out->arena};
    enum err_code rc;
    TRY_GOTO(rc, join_build(&join, err), fail);
    TRY_GOTO(rc, compare_memory(&join, &out->memory, err), fail);
    TRY_GOTO(rc, compare_time(&join, time, &out->time, err), fail);
    out->rank = join.rank;
    return ERR_OK;
fail:
    compare_free(out);
    return rc;
}

void compare_free(struct comparison *comparison)
{
    arena_free(&comparison->arena);
}

bool compare_memory_equal(const struct comparison *comparison)
{
    return comparison->memory.differing == 0 && comparison->memory.missing == 0;
}

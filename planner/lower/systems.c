/* systems.c - the sharding systems: their names, and the lowering of those that have one. */
#include "lower/lowering.h"

#include "base/names.h"

ENUM_NAME(system_name, enum system_kind, SYSTEM_MAP)

static const struct system *system_of(enum system_kind kind)
{
    static const struct system *const systems[SYSTEM_COUNT] = {
        [SYSTEM_FSDP2] = &system_fsdp2,
        [SYSTEM_DDP] = &system_ddp,
    };
    return systems[kind];
}

bool system_has_input_nodes(enum system_kind kind)
{
    return system_of(kind) && system_of(kind)->input_nodes;
}

bool system_is_planned(enum system_kind kind)
{
    return system_of(kind) != NULL;
}

enum err_code lower_plan(const struct graph *graph, const struct stream *stream,
                         const struct strategy *strategy, struct plan **out, struct err *err)
{
    const struct system *system = system_of(strategy->system);
    *out = NULL;
    if (!system)
        return err_set(err, ERR_UNSUPPORTED, "%s cannot be planned by this version",
                       system_name(strategy->system));
    return lower_with(system, graph, stream, strategy, out, err);
}

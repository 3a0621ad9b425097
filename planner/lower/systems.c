/* systems.c - the sharding systems: their names, and the lowering of those that have one. */
#include "lower/lowering.h"
#include "lower/outline.h"

#include "base/names.h"

ENUM_NAME(system_name, enum system_kind, SYSTEM_MAP)

static const struct system *system_of(enum system_kind kind)
{
    static const struct system *const systems[SYSTEM_COUNT] = {
#define X(name, text, of) &system_##of,
        SYSTEM_MAP(X)
#undef X
    };
    return systems[kind];
}

void system_tape(const struct strategy *strategy, struct tape_options *options)
{
    const struct system *system = system_of(strategy->system);
    options->input_nodes = system && system->input_nodes;
    options->saved_end_last = options->replays_views = system && system->dtensors;
    options->saves_weights =
        system && (system->dtensors || (strategy->system == SYSTEM_DDP &&
                                        strategy->zero_redundancy == ZERO_REDUNDANCY_VIEW));
    options->call_hooks = system && system->call_hooks;
    options->own_linear = system && system->own_linear;
    options->scaled_loss = system && system->scaled_loss;
    options->divided_loss = system && system->unscaled && system->unscaled(strategy);
    options->grad_dtypes = system && system->casts_gradient;
    if (system && system->unit_hooks && strategy->units != UNITS_NONE &&
        options->compiled == COMPILED_MODEL)
        options->compiled = COMPILED_FRAMES;
    options->head_hooks =
        options->compiled == COMPILED_FRAMES && strategy->units == UNITS_TORCHTITAN;
    const bool splits = options->compiled || options->compiled_loss;
    options->bucket_bytes =
        splits && system && system->bucket_bytes ? system->bucket_bytes(strategy) : 0;
}

bool system_fetches_apart(enum system_kind kind)
{
    return system_of(kind) && system_of(kind)->fetches_apart;
}

bool system_has_views(enum system_kind kind)
{
    return system_of(kind) && system_of(kind)->views;
}

bool system_has_node_hooks(enum system_kind kind)
{
    return system_of(kind) && system_of(kind)->node_hooks;
}

bool system_computes_as_stored(enum system_kind kind)
{
    return system_of(kind) && system_of(kind)->as_stored;
}

uint32_t system_zero_stage(enum system_kind kind)
{
    return system_of(kind) ? system_of(kind)->zero_stage : 0;
}

enum dtype system_made(const struct strategy *strategy)
{
    const struct system *system = system_of(strategy->system);
    return system && system->casts_params ? DTYPE_FP32
           : strategy->frozen_low         ? strategy->compute
                                          : strategy->store;
}

bool system_trains_wide(const struct strategy *strategy)
{
    return system_computes_as_stored(strategy->system) && strategy->frozen_low &&
           strategy->store == DTYPE_FP32;
}

uint64_t system_parts_adapters(const struct strategy *s)
{
    if (s->system == SYSTEM_FSDP2)
        return s->adapter_units && s->store != s->compute ? 1 : 0;
    if (s->system != SYSTEM_FSDP1 || s->store == s->compute)
        return 0;
    return s->units == UNITS_TRAINED ? 1 : s->units == UNITS_ELEMENTS ? s->unit_elements : 0;
}

/* With use_orig_params; but what is prefetched is seen gathered. */
bool system_shows_shards(const struct strategy *s)
{
    const bool kept = s->use_orig_params && s->forward_prefetch == 0;
    return system_parts_adapters(s) > 0 && (s->system == SYSTEM_FSDP2 || kept);
}

bool system_casts_inputs(const struct strategy *strategy)
{
    const struct system *system = system_of(strategy->system);
    return system && system->casts_inputs &&
           (strategy->names_compute || strategy->compute != strategy->store);
}

bool system_casts_root(const struct strategy *strategy)
{
    const struct system *system = system_of(strategy->system);
    return system && system->casts_root && strategy->compute != strategy->store;
}

bool system_copies_outputs(const struct strategy *strategy)
{
    return strategy->system == SYSTEM_DDP && strategy->find_unused && !strategy->static_graph;
}

void system_prepare(const struct strategy *strategy, struct graph *graph)
{
    const struct system *system = system_of(strategy->system);
    if (system && system->prepare)
        system->prepare(strategy, graph);
}

bool system_is_planned(enum system_kind kind)
{
    return system_of(kind) != NULL;
}

bool system_is_alone(enum system_kind kind)
{
    return system_of(kind) && system_of(kind)->alone;
}

static enum err_code find(enum system_kind kind, const struct system **system, struct err *err)
{
    *system = system_of(kind);
    return *system ? ERR_OK
                   : err_set(err, ERR_UNSUPPORTED, "%s cannot be planned by this version",
                             system_name(kind));
}

enum err_code lower_check(const struct graph *graph, const struct stream *stream,
                          const struct strategy *strategy, struct err *err)
{
    const struct system *system;
    TRY(find(strategy->system, &system, err));
    return lower_check_with(system, graph, stream, strategy, err);
}

enum err_code lower_plan(const struct graph *graph, const struct stream *stream,
                         const struct strategy *strategy, struct plan **out, struct err *err)
{
    const struct system *system;
    *out = NULL;
    TRY(find(strategy->system, &system, err));
    return lower_with(system, graph, stream, strategy, out, err);
}

enum err_code lower_nameless(const struct graph *graph, const struct stream *stream,
                             const struct strategy *strategy, struct plan **plan, struct err *err)
{
    const struct system *system;
    TRY(find(strategy->system, &system, err));
    return lower_nameless_with(system, graph, stream, strategy, plan, err);
}

enum err_code lower_outline(const struct graph *graph, const struct outline *outline,
                            const struct strategy *strategy, struct outlined *out, struct err *err)
{
    const struct system *system;
    TRY(find(strategy->system, &system, err));
    return lower_outline_with(system, graph, outline, strategy, out, err);
}

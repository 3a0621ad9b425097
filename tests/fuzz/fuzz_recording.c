/* fuzz_recording.c - any bytes as a recorded model: what is read can be planned by every system,
 * and the plan holds or is refused. */
#include "lower/lower.h"
#include "plan/plan.h"
#include "recorded/recording.h"

#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* As job.c asks for a system's. */
static struct recording_choice choice_of(const struct recording_info *info, enum system_kind system,
                                         uint32_t batch)
{
    const struct strategy strategy = {.system = system, .store = DTYPE_FP32, .compute = DTYPE_BF16};
    struct tape_options tape = {.checkpointing = CHECKPOINTING_NONE};
    system_tape(&strategy, &tape);
    return (struct recording_choice){.batch = batch,
                                     .seq = info->seq,
                                     .input_nodes = tape.input_nodes,
                                     .root_casts = system_casts_root(&strategy),
                                     .module_hooks = tape.call_hooks || tape.own_linear,
                                     .scaled_loss = tape.scaled_loss,
                                     .node_hooks = system_has_node_hooks(system),
                                     .views = system_has_views(system),
                                     .compute = info->dtype,
                                     .autocast = info->autocast,
                                     .autograd = batch % 2 ? AUTOGRAD_RECORDED : AUTOGRAD_GPU};
}

static void plan(const struct recording *recording, enum system_kind system, uint32_t batch)
{
    struct err err = {0};
    struct graph *graph = NULL;
    struct stream *stream = NULL;
    struct plan *made = NULL;
    const struct recording_info info = recording_info(recording);
    const struct recording_choice choice = choice_of(&info, system, batch);
    struct strategy strategy = {.world = 2,
                                .replicate = 1,
                                .per_unit = 1,
                                .system = system,
                                .store = info.dtype,
                                .compute = info.dtype,
                                .reduce = info.dtype,
                                .accumulate = 2,
                                .reduce_buffers = 1};
    if (system_zero_stage(system) > 0)
        strategy.zero = zero_defaults(system_zero_stage(system));
    strategy.zero.node_ranks = 2;
    if (recording_graph(recording, &choice, &graph, &err) == ERR_OK) {
        system_prepare(&strategy, graph);
        if (recording_stream(recording, &choice, &stream, &err) == ERR_OK &&
            lower_plan(graph, stream, &strategy, &made, &err) == ERR_OK)
            plan_verify(made, &err);
    }
    plan_free(made);
    stream_free(stream);
    graph_free(graph);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct recording *recording;
    struct err err = {0};
    if (recording_parse("fuzz.stream.json", (const char *)data, size, &recording, &err) != ERR_OK)
        return 0;
    for (uint32_t system = 0; system < SYSTEM_COUNT; system++)
        for (uint32_t batch = 1; batch <= 2; batch++)
            plan(recording, (enum system_kind)system, batch);
    recording_free(recording);
    return 0;
}

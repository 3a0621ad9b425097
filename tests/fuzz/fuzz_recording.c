/* fuzz_recording.c - any bytes as a recorded model: what is read can be planned, and the plan holds
 * or is refused. */
#include "lower/lower.h"
#include "plan/plan.h"
#include "recorded/recording.h"

#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void plan(const struct recording *recording, bool input_nodes)
{
    struct err err = {0};
    struct graph *graph = NULL;
    struct stream *stream = NULL;
    struct plan *made = NULL;
    const struct recording_info info = recording_info(recording);
    const struct recording_choice choice = {
        .batch = 1, .seq = info.seq, .input_nodes = input_nodes, .compute = info.dtype};
    const struct strategy strategy = {.world = 2,
                                      .replicate = 1,
                                      .per_unit = 1,
                                      .system = input_nodes ? SYSTEM_FSDP2 : SYSTEM_DDP,
                                      .store = info.dtype,
                                      .compute = info.dtype,
                                      .reduce = info.dtype,
                                      .accumulate = 1,
                                      .reduce_buffers = 1};
    if (recording_graph(recording, &choice, &graph, &err) == ERR_OK &&
        recording_stream(recording, &choice, &stream, &err) == ERR_OK &&
        lower_plan(graph, stream, &strategy, &made, &err) == ERR_OK)
        plan_verify(made, &err);
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
    plan(recording, true);
    plan(recording, false);
    recording_free(recording);
    return 0;
}

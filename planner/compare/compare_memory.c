/* compare_memory.c - both memory curves at every instruction that has a say in them.
 *
 *     bytes |        _____      predicted: the plan replayed through the allocator
 *           |   ____/.....\     recorded:  a sample after each alloc, free and mark
 *           |__/           \__
 *           +------------------> instruction
 *
 * The runtime uses the same allocator, so one byte of difference already means that the replay or
 * the runtime is wrong. The prediction is made anew here, with the settings that the run had, and
 * of the very step that was recorded: segments may still be added in the third step or later, when
 * what the second one left is cut up unluckily. */
#include "base/number.h"
#include "compare/compare_parts.h"

#include <stdlib.h>
#include <string.h>

enum { STEPS_REPLAYED = 32 }; /* of longer runs: by then the segments have long settled */

struct curves {
    const struct join *join;
    struct compare_point *points;
    struct compare_memory *out;
};

static void note_difference(struct compare_difference *d, const struct compare_point *point, int q)
{
    const int64_t off = (int64_t)point->predicted[q] - (int64_t)point->recorded[q];
    if (off == 0)
        return;
    if (d->points++ == 0)
        d->first = point->instruction;
    if (llabs(off) > llabs(d->largest_bytes)) {
        d->largest_bytes = off;
        d->largest = point->instruction;
    }
}

static void note_peaks(struct compare_difference *d, const struct compare_point *point, int q)
{
    if (point->predicted[q] > d->predicted_peak)
        d->predicted_peak = point->predicted[q];
    if (point->recorded[q] > d->recorded_peak)
        d->recorded_peak = point->recorded[q];
}

static void add_point(void *context, const struct plan *plan, const struct memory_point *point)
{
    const struct curves *curves = context;
    const uint32_t id = point->instruction;
    const struct compare_sample *sample = &curves->join->samples[id];
    struct compare_memory *out = curves->out;
    (void)plan;
    struct compare_point *added = &curves->points[out->point_count++];
    *added = (struct compare_point){
        .instruction = id,
        .sampled = sample->there,
        .predicted = {point->allocated, point->reserved},
    };
    memcpy(added->recorded, sample->bytes, sizeof added->recorded);
    for (int q = 0; q < COMPARE_QUANTITIES; q++) {
        note_peaks(&out->of[q], added, q);
        if (sample->there)
            note_difference(&out->of[q], added, q);
    }
    out->missing += !sample->there;
    out->differing +=
        sample->there && memcmp(added->predicted, added->recorded, sizeof added->predicted) != 0;
}

static enum err_code settings_of(const struct trace *trace, struct memory_options *options,
                                 struct err *err)
{
    const char *expandable = trace_get_info(trace, "expandable_segments");
    const char *workspace = trace_get_info(trace, "workspace_bytes");
    *options = (struct memory_options){0};
    options->allocator.expandable_segments = expandable && strcmp(expandable, "1") == 0;
    if (!workspace)
        return ERR_OK;
    uint64_t bytes;
    if (!number_integer(workspace, &bytes))
        return err_set(err, ERR_INVALID, "\"workspace_bytes\" is \"%s\": a number is expected",
                       workspace);
    options->workspace_bytes[0] = options->workspace_bytes[1] = bytes;
    return ERR_OK;
}

/* Which step was recorded, counted from 0; 1 where the trace does not tell. */
static uint32_t recorded_step(const struct trace *trace)
{
    const char *text = trace_get_info(trace, "step");
    uint64_t step = 1;
    if (text && !number_integer(text, &step))
        step = 1;
    return step < 1 ? 1 : step > STEPS_REPLAYED ? STEPS_REPLAYED : (uint32_t)step;
}

enum err_code compare_memory(const struct join *join, struct compare_memory *out, struct err *err)
{
    struct memory_options options;
    uint32_t most = 0;
    for (uint32_t i = 0; i < join->plan->instruction_count; i++)
        most += compare_is_sampled((enum plan_op)join->plan->instructions[i].op);
    struct curves curves = {
        .join = join,
        .points = arena_alloc(join->arena, most * sizeof *curves.points),
        .out = out,
    };
    *out = (struct compare_memory){.points = curves.points};
    for (int q = 0; q < COMPARE_QUANTITIES; q++)
        out->of[q].first = out->of[q].largest = COMPARE_NONE;
    TRY(settings_of(join->trace, &options, err));
    options.steps_before = recorded_step(join->trace);
    struct memory memory;
    return memory_replay(join->plan, &options, add_point, &curves, &memory, err);
}

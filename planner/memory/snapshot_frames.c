/* snapshot_frames.c - see snapshot_frames.h. */
#include "memory/snapshot_frames.h"

#include "plan/modules.h"

#include <stdio.h>
#include <stdlib.h>

struct contents {           /* of a buffer: parameters' pieces, in the plan's order */
    uint32_t pieces, first; /* how many there are; whose the first is */
};

struct snapshot_frames {
    const struct plan *plan;
    struct snapshot *snapshot;
    struct arena arena;
    const char **modules;      /* (instructions) */
    const char **names;        /* (instructions) of frames, once they were asked for */
    struct contents *contents; /* (buffers) */
};

struct snapshot_frames *snapshot_frames_new(const struct plan *plan, struct snapshot *snapshot)
{
    struct snapshot_frames *frames = xmalloc(sizeof *frames);
    *frames = (struct snapshot_frames){.plan = plan, .snapshot = snapshot};
    frames->modules = plan_module_names(plan, &frames->arena);
    frames->names = xcalloc(plan->instruction_count + 1, sizeof *frames->names);
    frames->contents = xcalloc(plan->buffer_count + 1, sizeof *frames->contents);
    for (uint32_t p = 0; p < plan->piece_count; p++) {
        struct contents *of = &frames->contents[plan->pieces[p].buffer];
        if (of->pieces++ == 0)
            of->first = plan->pieces[p].param;
    }
    return frames;
}

void snapshot_frames_free(struct snapshot_frames *frames)
{
    if (!frames)
        return;
    free(frames->contents);
    free(frames->names);
    arena_free(&frames->arena);
    free(frames);
}

static const char *name_of(struct snapshot_frames *frames, uint32_t id)
{
    char what[160], scope[256];
    const struct plan_instruction *i = &frames->plan->instructions[id];
    const bool of_buffer = i->op == PLAN_ALLOC || i->op == PLAN_FREE;
    const char *module = frames->modules[id];
    return arena_printf(&frames->arena, "%s%s%s, in %s", module, module[0] ? ": " : "",
                        of_buffer ? plan_buffer_text(frames->plan, &frames->plan->buffers[i->arg],
                                                     what, sizeof what)
                                  : plan_op_name((enum plan_op)i->op),
                        plan_scope_text(frames->plan, i, scope, sizeof scope));
}

void snapshot_frames_instruction(struct snapshot_frames *frames, uint32_t id, uint64_t time_us)
{
    if (!frames->names[id])
        frames->names[id] = name_of(frames, id);
    snapshot_set_frame(frames->snapshot, frames->names[id], "plan.json", (int)id, time_us);
}

void snapshot_frames_buffer(struct snapshot_frames *frames, uint32_t buffer, uint64_t time_us)
{
    const struct plan *plan = frames->plan;
    const struct contents *of = &frames->contents[buffer];
    const char *first = of->pieces ? plan->params[of->first].name : "";
    char what[160], more[32] = "";
    if (of->pieces > 1)
        snprintf(more, sizeof more, " and %u more", of->pieces - 1);
    plan_buffer_text(plan, &plan->buffers[buffer], what, sizeof what);
    const char *name =
        arena_printf(&frames->arena, "%s%s%s%s", first, more, of->pieces ? ": " : "", what);
    snapshot_set_frame(frames->snapshot, name, "plan.json", 0, time_us);
}

/* outline.c - see outline.h: a stream's spans, and the tally that stands for a program's allocs and
 * frees. */
#include "lower/tally.h"

#include <stdlib.h>
#include <string.h>

/* ---- bytes ---- */

static inline struct outline_bytes bytes_of(const struct buffer *buffer)
{
    return (struct outline_bytes){
        .requested = buffer->scratch || buffer->paged ? 0 : (int64_t)buffer->bytes,
        .rounded = ledger_has(buffer) ? (int64_t)ledger_round(buffer->bytes) : 0,
    };
}

static int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static void grow(struct outline_bytes *live, struct outline_bytes *most, struct outline_bytes more)
{
    live->requested += more.requested;
    live->rounded += more.rounded;
    most->requested = larger(most->requested, live->requested);
    most->rounded = larger(most->rounded, live->rounded);
}

static void shrink(struct outline_bytes *live, struct outline_bytes less)
{
    live->requested -= less.requested;
    live->rounded -= less.rounded;
}

void tally_begin(struct tally *tally)
{
    tally->most = tally->live;
    if (tally->gaps)
        gaps_begin(tally->gaps);
    if (!tally->ledger)
        return;
    ledger_begin(tally->ledger, tally->outline->own_slots);
    tally->ledger->broken = tally->outline->no_ledger;
}

static uint32_t ledger_flags(const struct lowering *low)
{
    return (low->here.flags & PLAN_FIRST_STEP ? (uint32_t)LEDGER_FIRST_STEP : 0) |
           (low->here.flags & PLAN_LATER_STEPS ? (uint32_t)LEDGER_LATER_STEPS : 0);
}

void tally_alloc(struct lowering *low, uint32_t index)
{
    struct tally *tally = low->tally;
    const struct buffer *buffer = &low->plan->buffers[index];
    if (!(low->here.flags & PLAN_FIRST_STEP)) {
        grow(&tally->live, &tally->most, bytes_of(buffer));
        if (tally->gaps)
            gaps_alloc(tally->gaps, buffer);
    }
    if (tally->ledger)
        ledger_note(tally->ledger, index, buffer, ledger_flags(low));
}

void tally_free(struct lowering *low, uint32_t index, uint8_t lane)
{
    struct tally *tally = low->tally;
    const struct buffer *buffer = &low->plan->buffers[index];
    shrink(&tally->live, bytes_of(buffer));
    if (tally->gaps)
        gaps_free(tally->gaps, buffer, low->here.flags);
    if (!tally->ledger)
        return;
    ledger_note(tally->ledger, index, buffer, ledger_flags(low) | LEDGER_FREE);
    tally->ledger->broken |= lane != buffer->pool && ledger_has(buffer);
}

struct outline_bytes tally_bytes(const struct lowering *low, uint32_t count,
                                 const uint32_t *buffers)
{
    struct outline_bytes all = {0};
    for (uint32_t i = 0; i < count; i++) {
        const struct outline_bytes bytes = bytes_of(&low->plan->buffers[buffers[i]]);
        all.requested += bytes.requested;
        all.rounded += bytes.rounded;
    }
    return all;
}

void tally_alloc_all(struct lowering *low, const struct bundle *bundle)
{
    struct tally *tally = low->tally;
    grow(&tally->live, &tally->most, bundle->bytes);
    for (uint32_t i = 0; i < bundle->count && tally->gaps; i++)
        gaps_alloc(tally->gaps, &low->plan->buffers[bundle->buffers[i]]);
}

void tally_free_all(struct lowering *low, const struct bundle *bundle)
{
    struct tally *tally = low->tally;
    shrink(&tally->live, bundle->bytes);
    for (uint32_t i = 0; i < bundle->count && tally->gaps; i++)
        gaps_free(tally->gaps, &low->plan->buffers[bundle->buffers[i]], low->here.flags);
}

void tally_mark(struct lowering *low, enum plan_mark mark)
{
    if (low->tally->gaps && (mark == PLAN_MARK_MICRO_BATCH || mark == PLAN_MARK_OPTIMIZER))
        gaps_apart(low->tally->gaps);
}

bool outline_is_short(const struct lowering *low)
{
    return low->tally && !low->tally->ledger;
}

void again_resident(struct lowering *low, uint32_t buffer, uint32_t times)
{
    if (buffer == NONE)
        return;
    const struct outline_bytes bytes = bytes_of(&low->plan->buffers[buffer]);
    low->tally->resident.requested += times * bytes.requested;
    low->tally->resident.rounded += times * bytes.rounded;
    if (low->tally->gaps)
        gaps_resident(low->tally->gaps, &low->plan->buffers[buffer], times);
}

void tally_micro_batch(struct lowering *low)
{
    low->tally->at = 0;
    low->tally->event = 0;
    if (low->tally->ledger)
        ledger_micro_batch(low->tally->ledger);
}

static void note_events(struct lowering *low, uint32_t count)
{
    struct tally *tally = low->tally;
    struct ledger *ledger = tally->ledger;
    const struct outline_event *events = tally->outline->events + tally->event;
    for (uint32_t i = 0; i < count; i++) {
        const struct outline_event *e = &events[i];
        if (e->gradient != NONE) {
            const uint32_t index = low->base + e->gradient;
            ledger_note(ledger, index, &low->plan->buffers[index], e->event.what);
        } else if (!e->once || low->micro_batch == 0) {
            ledger_add(&ledger->pools[e->pool].step, e->event);
        }
    }
}

void tally_span(struct lowering *low, const struct outline_span *span)
{
    struct tally *tally = low->tally;
    const struct outline_bytes before = tally->live;
    grow(&tally->live, &tally->most, span->most);
    tally->live.requested = before.requested + span->end.requested;
    tally->live.rounded = before.rounded + span->end.rounded;
    tally->pending += span->kernels;
    if (tally->gaps)
        gaps_span(tally->gaps, (uint32_t)(span - tally->outline->spans), span->end.rounded);
    if (tally->ledger)
        note_events(low, span->events);
    tally->event += span->events;
}

void tally_result(const struct tally *tally, const struct plan *plan, struct outlined *out)
{
    struct outline_bytes resident = tally->resident, most = tally->resident;
    for (uint32_t b = 0; b < plan->buffer_count; b++)
        if (plan->buffers[b].resident)
            grow(&resident, &most, bytes_of(&plan->buffers[b]));
    out->requested_bytes = (uint64_t)(most.requested + tally->most.requested);
    out->rounded_bytes = (uint64_t)(most.rounded + tally->most.rounded);
    if (tally->ledger)
        ledger_close(tally->ledger, plan);
    if (tally->gaps)
        gaps_finish(tally->gaps, plan);
}

/* ---- a stream's spans ---- */

struct outlining {
    struct outline *outline;
    bool *adds;      /* (kernels) of what uses give */
    uint32_t *slots; /* (buffers) of the device's, in their pools; NONE: none yet */
    uint32_t alive;  /* of those that are no gradients */
    uint64_t workspace_bytes[2];
};

static void add_event(struct outlining *o, struct outline_span *span, struct outline_event event)
{
    o->outline->events[o->outline->event_count++] = event;
    span->events++;
}

static void add_birth_or_death(struct outlining *o, struct outline_span *span, uint32_t index,
                               uint32_t flags)
{
    struct outline *outline = o->outline;
    const struct buffer *buffer = &outline->stream->buffers[index];
    if (!ledger_has(buffer))
        return;
    struct outline_event event = {
        .event = {.what = flags, .units = flags ? 0 : ledger_units(buffer->bytes)},
        .pool = ledger_pool_of(buffer->pool, buffer->bytes),
        .gradient = outline->gradient_of[index],
    };
    if (event.gradient == NONE) {
        if (o->slots[index] == NONE)
            o->slots[index] = outline->own_slots[event.pool]++;
        event.event.what |= o->slots[index] << LEDGER_SHIFT;
        o->alive += flags ? UINT32_MAX : 1; /* modulo 2^32 */
        outline->no_ledger |= buffer->bytes > LEDGER_LARGEST;
    }
    add_event(o, span, event);
}

/* memory/replay.c: the first matmul of each thread makes its cuBLAS handle allocate. */
static void add_workspace(struct outlining *o, struct outline_span *span, uint32_t kernel,
                          bool backward)
{
    struct outline *outline = o->outline;
    const uint64_t bytes = o->workspace_bytes[backward];
    const enum work_kind work = (enum work_kind)outline->stream->kernels->kernels[kernel].work;
    if (bytes == 0 || !work_is_matmul(work))
        return;
    const uint32_t pool = ledger_pool_of(LANE_COMPUTE, bytes);
    const uint32_t slot = outline->own_slots[pool]++;
    add_event(o, span,
              (struct outline_event){
                  .event = {slot << LEDGER_SHIFT | LEDGER_FIRST_STEP, ledger_units(bytes)},
                  .pool = pool,
                  .gradient = NONE,
                  .once = true,
              });
    o->workspace_bytes[backward] = 0;
}

static void extend(struct outlining *o, struct outline_span *span, struct stream_step step,
                   bool backward)
{
    struct outline *outline = o->outline;
    const struct buffer *buffers = outline->stream->buffers;
    if (step.kind == STEP_BIRTH) {
        grow(&span->end, &span->most, bytes_of(&buffers[step.arg]));
        add_birth_or_death(o, span, step.arg, 0);
    } else if (step.kind == STEP_DEATH) {
        shrink(&span->end, bytes_of(&buffers[step.arg]));
        add_birth_or_death(o, span, step.arg, LEDGER_FREE);
    } else {
        add_workspace(o, span, step.arg, backward);
        outline->kernels[outline->kernel_count++] = step.arg;
        span->kernels++;
    }
}

static uint32_t *nothing_of(uint32_t count)
{
    uint32_t *array = xmalloc((count + 1) * sizeof *array);
    memset(array, 0xff, (count + 1) * sizeof *array);
    return array;
}

static void add_gradient(struct outline *outline, uint32_t buffer)
{
    outline->gradient_of[buffer] = outline->gradient_count;
    outline->gradients[outline->gradient_count++] = outline->stream->buffers[buffer];
}

static void find_gradients(struct outlining *o)
{
    struct outline *outline = o->outline;
    const struct stream *stream = outline->stream;
    for (uint32_t g = 0; g < stream->grad_count; g++) {
        outline->no_ledger |= outline->gradient_of[stream->grads[g].buffer] != NONE;
        add_gradient(outline, stream->grads[g].buffer);
    }
    for (uint32_t b = 0; b < stream->buffer_count; b++)
        if (stream->buffers[b].pool != LANE_COMPUTE)
            add_gradient(outline, b);
    for (uint32_t i = 0; i < stream->given_count; i++) {
        const struct stream_given *given = &stream->given[i];
        const uint32_t buffers[] = {given->buffer, given->before, given->sum};
        for (size_t k = 0; k < sizeof buffers / sizeof buffers[0]; k++)
            if (buffers[k] != NONE && outline->gradient_of[buffers[k]] == NONE)
                add_gradient(outline, buffers[k]);
        if (given->sum != NONE)
            o->adds[given->kernel] = true;
    }
}

/* Whether it is the same under every strategy: whose lanes have other numbers, of the pools that
 * they add. */
static bool is_within(const struct outlining *o, struct stream_step step)
{
    const bool lives = step.kind == STEP_BIRTH || step.kind == STEP_DEATH;
    if (lives && o->outline->stream->buffers[step.arg].pool != LANE_COMPUTE)
        return false;
    if (!stream_step_is_within(step) || o->outline->stream->given_count == 0)
        return stream_step_is_within(step);
    return step.kind == STEP_KERNEL ? !o->adds[step.arg]
                                    : o->outline->gradient_of[step.arg] == NONE;
}

static void add_spans(struct outlining *o)
{
    struct outline *outline = o->outline;
    const struct stream *stream = outline->stream;
    struct outline_span span = {0};
    bool backward = false;
    for (uint32_t i = 0; i < stream->step_count; i++) {
        const struct stream_step step = stream->steps[i];
        if (is_within(o, step)) {
            extend(o, &span, step, backward);
            continue;
        }
        if (step.kind == STEP_MARK && step.arg == STREAM_AFTER_FORWARD) {
            outline->forward_count = outline->kernel_count;
            backward = true;
        }
        if (step.kind == STEP_KERNEL)
            outline->kernels[outline->kernel_count++] = step.arg;
        outline->hooks[outline->span_count] = step;
        outline->spans[outline->span_count++] = span;
        span = (struct outline_span){0};
    } /* the last step is a mark: nothing is left over */
}

struct outline *outline_new(const struct stream *stream, const uint64_t workspace_bytes[2])
{
    struct outline *outline = xmalloc(sizeof *outline);
    *outline = (struct outline){
        .stream = stream,
        .gradients =
            xmalloc((stream->grad_count + 3UL * stream->given_count + stream->buffer_count + 1) *
                    sizeof *outline->gradients),
        .gradient_of = nothing_of(stream->buffer_count),
        .spans = xmalloc((stream->step_count + 1) * sizeof *outline->spans),
        .hooks = xmalloc((stream->step_count + 1) * sizeof *outline->hooks),
        .kernels = xmalloc((stream->step_count + 1) * sizeof *outline->kernels),
        .events = xmalloc((stream->step_count + 2) * sizeof *outline->events),
    };
    struct outlining o = {
        .outline = outline,
        .adds = xcalloc(stream->kernels->kernel_count + 1UL, sizeof *o.adds),
        .slots = nothing_of(stream->buffer_count),
        .workspace_bytes = {workspace_bytes[0], workspace_bytes[1]},
    };
    find_gradients(&o);
    add_spans(&o);
    outline->no_ledger |= o.alive != 0;
    free(o.adds);
    free(o.slots);
    return outline;
}

void outline_free(struct outline *outline)
{
    if (!outline)
        return;
    free(outline->gradients);
    free(outline->gradient_of);
    free(outline->spans);
    free(outline->hooks);
    free(outline->kernels);
    free(outline->events);
    free(outline);
}

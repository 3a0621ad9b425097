/* join.c - a recorded trace, by instruction id of its plan.
 *
 * A trace says little about the plan it was made from, so every event is a chance to notice that
 * it was another one: its id must exist, its kind and its lane must be those of the instruction,
 * and memory may be sampled only where the plan changes it. */
#include "compare/compare_parts.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char track_name[] = "memory recorded";

static bool ends_with(const char *text, const char *tail)
{
    const size_t length = strlen(text), end = strlen(tail);
    return length >= end && strcmp(text + length - end, tail) == 0;
}

/* ---- whose events ---- */

/* The plan's own rank if it was recorded, else any rank: curves of other ranks are alike. */
static uint32_t find_process(const struct join *join)
{
    char own[64];
    uint32_t found = COMPARE_NONE;
    snprintf(own, sizeof own, "rank %" PRIu32 " (recorded)", join->plan->rank);
    for (uint32_t p = 0; p < join->trace->process_count; p++) {
        const char *name = join->trace->processes[p].name;
        if (!name || !ends_with(name, "(recorded)"))
            continue;
        if (strcmp(name, own) == 0)
            return p;
        if (found == COMPARE_NONE)
            found = p;
    }
    return found;
}

static bool is_predicted(const struct trace *trace)
{
    for (uint32_t p = 0; p < trace->process_count; p++)
        if (trace->processes[p].name && ends_with(trace->processes[p].name, "(predicted)"))
            return true;
    return false;
}

static enum err_code pick_process(struct join *join, struct err *err)
{
    const char *clock = trace_get_info(join->trace, "clock");
    join->process = find_process(join);
    if (is_predicted(join->trace) &&
        (join->process == COMPARE_NONE || !clock || strcmp(clock, "seconds") != 0))
        return err_set(
            err, ERR_INVALID,
            "this is a predicted trace; the one that `shardplan run` recorded is needed");
    if (join->process == COMPARE_NONE)
        return err_set(err, ERR_INVALID,
                       "no process is named \"rank %" PRIu32
                       " (recorded)\": this is no trace of `shardplan run`",
                       join->plan->rank);
    if (!clock || strcmp(clock, "seconds") != 0)
        return err_set(err, ERR_INVALID, "\"clock\" is \"%s\": allowed is \"seconds\"",
                       clock ? clock : "");
    const char *name = join->trace->processes[join->process].name;
    join->rank = join->plan->rank;
    if (strncmp(name, "rank ", 5) == 0)
        join->rank = (uint32_t)strtoul(name + 5, NULL, 10);
    return ERR_OK;
}

/* ---- is it this plan, and a later step of it? ---- */

static enum err_code refuse_first_step(struct err *err)
{
    return err_set(err, ERR_INVALID,
                   "it records the first step, which also makes the optimizer's states; predicted "
                   "is the steady state: record two steps or more");
}

static enum err_code check_id(const struct join *join, double id, struct err *err)
{
    const struct plan *plan = join->plan;
    if (!(id >= 0 && id < plan->instruction_count && id == floor(id)))
        return err_set(err, ERR_INVALID,
                       "instruction %.10g is not in the plan, which ends at %" PRIu32
                       ": the trace is of another plan",
                       id, plan->instruction_count - 1);
    return compare_runs(plan, (uint32_t)id) ? ERR_OK : refuse_first_step(err);
}

static bool is_op_name(const char *text)
{
    for (int i = 0; i < PLAN_OP_COUNT; i++)
        if (strcmp(text, plan_op_name((enum plan_op)i)) == 0)
            return true;
    return false;
}

static enum err_code check_kind(const struct join *join, const struct trace_event *event,
                                struct err *err)
{
    const struct plan_instruction *instruction = &join->plan->instructions[event->id];
    const enum plan_op op = (enum plan_op)instruction->op;
    const char *lane = join->trace->lanes[event->lane].name;
    const char *stream = join->plan->lanes[instruction->lane].name;
    if (event->op && is_op_name(event->op)) {
        if (strcmp(event->op, plan_op_name(op)) != 0)
            return err_set(err, ERR_INVALID,
                           "instruction %" PRIu32 " (%s) was recorded as %s, but is %s in the "
                           "plan: the trace is of another plan",
                           event->id, event->name, event->op, plan_op_name(op));
    } else if (event->kind == TRACE_SPAN && !plan_op_is_kernel(op)) {
        return err_set(err, ERR_INVALID,
                       "instruction %" PRIu32 " (%s) was recorded at work, but is %s in the plan: "
                       "the trace is of another plan",
                       event->id, event->name, plan_op_name(op));
    }
    if (plan_op_is_kernel(op) && lane && plan_lane_named(join->plan, lane) < LANES_MOST &&
        strcmp(lane, stream) != 0)
        return err_set(err, ERR_INVALID,
                       "instruction %" PRIu32 " (%s) was recorded on the lane %s, but is on %s in "
                       "the plan: the trace is of another plan",
                       event->id, event->name, lane, stream);
    return ERR_OK;
}

static enum err_code refuse_second(uint32_t id, const char *what, struct err *err)
{
    return err_set(err, ERR_INVALID,
                   "%s of instruction %" PRIu32 " was recorded twice: one step of one rank is "
                   "needed",
                   what, id);
}

/* ---- spans ---- */

/* A part of a chain and the kernel that ran for it are of one kind. */
static enum err_code take_part(struct join *join, const struct trace_event *event, struct err *err)
{
    const char *fused = strstr(event->name, TRACE_FUSED);
    if (!fused)
        return ERR_OK;
    const unsigned long into = strtoul(fused + strlen(TRACE_FUSED), NULL, 10);
    TRY(check_id(join, (double)into, err));
    join->fused_into[event->id] = join->fused_into[into] = (uint32_t)into + 1;
    return ERR_OK;
}

static enum err_code take_event(struct join *join, const struct trace_event *event, struct err *err)
{
    if (event->id == TRACE_NO_ID || join->trace->lanes[event->lane].process != join->process)
        return ERR_OK;
    TRY(check_id(join, event->id, err));
    TRY(check_kind(join, event, err));
    const enum plan_op op = (enum plan_op)join->plan->instructions[event->id].op;
    if (event->kind != TRACE_SPAN || !plan_op_is_kernel(op))
        return ERR_OK;
    if (!isnan(join->spans[event->id].begin_s))
        return refuse_second(event->id, event->name, err);
    join->spans[event->id] = (struct compare_interval){event->begin_s, event->end_s};
    join->names[event->id] = event->name;
    return take_part(join, event, err);
}

/* ---- memory ---- */

static enum err_code series_value(const struct join *join, const struct trace_sample *sample,
                                  const char *series, double *out, struct err *err)
{
    const struct trace_track *track = &join->trace->tracks[sample->track];
    for (uint32_t i = 0; i < track->series_count; i++) {
        if (strcmp(track->series[i], series) != 0)
            continue;
        *out = join->trace->values[sample->first + i];
        if (*out >= 0 && *out == floor(*out) && *out < 9007199254740992.0)
            return ERR_OK;
        return err_set(err, ERR_INVALID, "counter \"%s\": %s is %g: allowed are whole numbers",
                       track_name, series, *out);
    }
    return err_set(err, ERR_INVALID, "counter \"%s\" has no series \"%s\"", track_name, series);
}

static enum err_code take_sample(struct join *join, const struct trace_sample *sample,
                                 struct err *err)
{
    static const char *const names[COMPARE_QUANTITIES] = {"allocated", "reserved"};
    double number = 0;
    TRY(series_value(join, sample, "instruction", &number, err));
    TRY(check_id(join, number, err));
    const uint32_t id = (uint32_t)number;
    const enum plan_op op = (enum plan_op)join->plan->instructions[id].op;
    if (!compare_is_sampled(op))
        return err_set(err, ERR_INVALID,
                       "memory was sampled after instruction %" PRIu32 ", which is %s in the plan: "
                       "the trace is of another plan",
                       id, plan_op_name(op));
    if (join->samples[id].there)
        return refuse_second(id, "memory", err);
    join->samples[id].there = true;
    for (int q = 0; q < COMPARE_QUANTITIES; q++) {
        TRY(series_value(join, sample, names[q], &number, err));
        join->samples[id].bytes[q] = (uint64_t)number;
    }
    return ERR_OK;
}

static enum err_code take_samples(struct join *join, struct err *err)
{
    const struct trace *trace = join->trace;
    bool any = false;
    for (uint32_t i = 0; i < trace->sample_count; i++) {
        const struct trace_track *track = &trace->tracks[trace->samples[i].track];
        if (track->process != join->process || strcmp(track->name, track_name) != 0)
            continue;
        any = true;
        TRY(take_sample(join, &trace->samples[i], err));
    }
    return any ? ERR_OK
               : err_set(err, ERR_INVALID, "no counter \"%s\": the memory was not recorded",
                         track_name);
}

enum err_code join_build(struct join *join, struct err *err)
{
    const uint32_t count = join->plan->instruction_count;
    const char *step = trace_get_info(join->trace, "step");
    TRY(pick_process(join, err));
    if (step && strcmp(step, "0") == 0)
        return refuse_first_step(err);
    join->spans = arena_alloc(join->arena, count * sizeof *join->spans);
    join->samples = arena_alloc(join->arena, count * sizeof *join->samples);
    join->names = arena_alloc(join->arena, count * sizeof *join->names);
    join->fused_into = arena_alloc(join->arena, count * sizeof *join->fused_into);
    for (uint32_t i = 0; i < count; i++)
        join->spans[i] = (struct compare_interval){NAN, NAN};
    for (uint32_t i = 0; i < join->trace->event_count; i++)
        TRY(take_event(join, &join->trace->events[i], err));
    return take_samples(join, err);
}

/* zero3_trace.c - what the coordinator of ZeRO stage 3 knows of the order of a micro-batch's calls
 * (partitioned_param_coordinator.py).
 *
 *     reset     the root module is called: what was recorded so far is a complete trace; or, where
 *               there is none, recording begins
 *     a call    is recorded; of a complete trace it is the next, or that is of no use any more, and
 *               there is none until the root is called again
 *
 * A model that is called once a micro-batch is recorded in the first, and its trace is good for all
 * others. Called twice, first with adapters and then without, it is recorded anew in each first
 * call, taken for complete at the second, and given up where that comes to the first adapter's
 * layer; so nothing is gathered ahead but before that, and all that a module has goes when it
 * returns, small parameters, too. */
#include "lower/zero3.h"

enum { STEPS_BEFORE = 2 }; /* as often as it takes until a micro-batch begins as the one before */

static bool is_call(const struct stream_step *step)
{
    return step->kind == STEP_CALL_FORWARD || step->kind == STEP_CALL_BACKWARD;
}

bool zero3_is_beside(const struct zero3 *z, uint32_t call)
{
    return z->calls->beside != GRAPH_NONE && graph_call_within(z->calls, call, z->calls->beside);
}

bool zero3_calls_root(const struct zero3 *z, enum step_kind kind, uint32_t call)
{
    return kind == STEP_CALL_FORWARD && call == z->root;
}

/* Whether a step is a call of the coordinator's own. */
static bool is_own_call(const struct zero3 *z, const struct stream_step *step)
{
    return is_call(step) && zero3_is_beside(z, step->arg) == (z->root == z->calls->beside);
}

/* Elements of every call's parameters and of those in it, each counted once. */
static void count_whole(struct lowering *low)
{
    struct zero3 *z = low->state;
    z->whole = arena_alloc(&low->scratch, (z->calls->count + 1) * sizeof *z->whole);
    z->home_call = none_array(low, low->plan->param_count);
    for (uint32_t c = 0; c < z->calls->count; c++) {
        const struct graph_call *call = &z->calls->at[c];
        for (uint32_t i = 0; i < call->params; i++) {
            const uint32_t p = z->calls->params[call->first_param + i];
            const uint32_t home = z->home_call[p];
            for (uint32_t a = c;
                 a != GRAPH_NONE && !(home != NONE && graph_call_within(z->calls, home, a));
                 a = z->calls->at[a].parent)
                z->whole[a] += zero3_elements(low, p);
            if (home == NONE)
                z->home_call[p] = c;
        }
    }
}

static void forget(struct zero3 *z)
{
    z->trace_count = z->use_count = 0;
}

void zero3_trace_restarts(struct zero3 *z)
{
    z->step = 0;
    if (z->tracing == ZERO3_TRACE_NONE)
        z->tracing = ZERO3_TRACE_RECORDED;
    else if (z->tracing == ZERO3_TRACE_RECORDED)
        z->tracing = ZERO3_TRACE_COMPLETE;
}

bool zero3_trace_breaks(struct zero3 *z, uint32_t call)
{
    if (z->tracing == ZERO3_TRACE_COMPLETE) {
        if (z->step < z->trace_count && z->trace[z->step] == call)
            return false;
        z->tracing = ZERO3_TRACE_NONE;
        forget(z);
        return true;
    }
    if (z->tracing == ZERO3_TRACE_RECORDED) {
        const struct graph_call *c = &z->calls->at[call];
        for (uint32_t p = 0; p < c->params; p++)
            z->uses[z->use_count++] =
                (struct zero3_use){z->calls->params[c->first_param + p], z->trace_count};
        z->trace[z->trace_count++] = call;
    }
    return false;
}

/* A micro-batch as the coordinator sees it. */
static void follow(struct lowering *low)
{
    struct zero3 *z = low->state;
    for (uint32_t i = 0; i < low->hook_count; i++) {
        if (!is_own_call(z, &low->hooks[i]))
            continue;
        if (zero3_calls_root(z, (enum step_kind)low->hooks[i].kind, low->hooks[i].arg))
            zero3_trace_restarts(z);
        zero3_trace_breaks(z, low->hooks[i].arg);
        z->step++;
    }
}

void zero3_trace(struct lowering *low)
{
    struct zero3 *z = low->state;
    if (!z->whole)
        count_whole(low);
    uint32_t calls = 0, uses = 0;
    for (uint32_t i = 0; i < low->hook_count; i++)
        if (is_own_call(z, &low->hooks[i])) {
            calls++;
            uses += z->calls->at[low->hooks[i].arg].params;
        }
    z->trace = arena_alloc(&low->scratch, (calls + 1) * sizeof *z->trace);
    z->uses = arena_alloc(&low->scratch, (uses + 1) * sizeof *z->uses);
    z->active = arena_alloc(&low->scratch, (calls + 1) * sizeof *z->active);
    z->owned = none_array(low, low->plan->param_count);
    for (uint32_t before = 0; before < STEPS_BEFORE; before++)
        follow(low);
}

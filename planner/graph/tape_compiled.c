/* tape_compiled.c - see tape_compiled.h. */
#include "graph/tape_compiled.h"

#include "graph/ready_queue.h"
#include "graph/tape_emit.h"
#include "graph/tape_state.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct later { /* a name that Python lets go of before item `end` */
    uint32_t item, end;
};

struct running {
    struct tape *tape;
    const struct tape_compiled *compiled; /* (count) */
    uint32_t **buffers; /* (count) of the memory of its forward program, while its node lives */
    uint32_t **kept;    /* (count) likewise of what the selective policy keeps of it, or NO_BUFFER,
                           until it runs again; NULL: it did not run */
    uint32_t count;
    struct later *later; /* (items) names that go later */
    uint32_t later_count;
};

/* ---- where memory is ---- */

static uint32_t slot_root(const struct tape *tape, uint32_t tensor)
{
    return tape->root[tensor];
}

/* Where memory from outside is; NO_BUFFER: it is not born yet. */
static uint32_t buffer_of(const struct tape *tape, const struct tape_compiled *c,
                          const struct tape_memory *memory, const uint32_t *forward)
{
    switch ((enum tape_memory_from)memory->from) {
    case TAPE_MEMORY_TENSOR:
        return tape_buffer(tape, memory->of);
    case TAPE_MEMORY_SAVED:
        assert(forward);
        return forward[memory->of];
    case TAPE_MEMORY_GRADIENT:
        return tape->slot[slot_root(tape, c->results[memory->of].tensor)];
    default:
        return NO_BUFFER;
    }
}

/* ---- running a program ---- */

static void emit_kernel(struct tape *tape, const struct tape_program *p, const struct tape_act *act,
                        const uint32_t *buffers)
{
    struct kernel_table *table = tape->stream->kernels;
    struct kernel kernel = act->kernel;
    kernel.bytes = 0;
    kernel.backward = tape->backward;
    kernel.recomputed |= tape->recomputing;
    for (uint32_t i = 0; i < (uint32_t)kernel.ins + kernel.outs; i++) {
        struct operand operand = act->kernel.operands[i];
        const struct tape_memory *memory = &p->memory[operand.place];
        operand.place = memory->from == TAPE_MEMORY_PLACE ? memory->of : buffers[operand.place];
        assert(memory->from == TAPE_MEMORY_PLACE || tape->holds[operand.place] > 0);
        tape_operand(tape, operand);
        kernel.bytes += (double)shape_bytes(&operand.shape, (enum dtype)operand.dtype);
    }
    kernel.operands = NULL;
    tape_step(tape, STEP_KERNEL, kernel_table_add(table, &kernel));
}

static void birth(struct tape *tape, const struct tape_program *p, const struct tape_act *act,
                  uint32_t *buffers)
{
    for (uint32_t w = 0; w < act->write_count; w++) {
        const struct tape_memory *m = &p->memory[act->writes[w]];
        buffers[act->writes[w]] =
            act->over[w] != GRAPH_NONE
                ? buffers[act->over[w]]
                : tape_new_buffer(tape, (enum aten)m->label, (enum dtype)m->dtype, m->shape,
                                  shape_bytes(&m->shape, (enum dtype)m->dtype));
    }
}

/* Memory that the program may let go of: its own, what its forward saved, the gradient that it was
 * handed. */
static void let_go(struct tape *tape, const struct tape_program *p, uint32_t memory,
                   const uint32_t *buffers)
{
    const enum tape_memory_from from = (enum tape_memory_from)p->memory[memory].from;
    if (from != TAPE_MEMORY_TENSOR && from != TAPE_MEMORY_PLACE)
        tape_release(tape, buffers[memory]);
}

/* What the cache has of a call that ran before. */
static bool take_kept(const struct tape_act *act, uint32_t *kept, uint32_t *buffers)
{
    bool any = false;
    for (uint32_t w = 0; kept && w < act->write_count; w++) {
        uint32_t *buffer = &kept[act->writes[w]];
        any |= *buffer != NO_BUFFER;
        if (*buffer != NO_BUFFER)
            buffers[act->writes[w]] = *buffer;
        *buffer = NO_BUFFER;
    }
    return any;
}

/* Checkpoint's dispatch modes see what programs call by PyTorch's dispatcher: of what the policy
 * keeps that is attention. A product is called as its variant that writes into memory, mm.out,
 * which the policy does not name, and Triton's kernels are none of the dispatcher's
 * (torch/utils/checkpoint.py, ignore_compile_internals; torch/_inductor/ir.py, ExternKernelOut). */
static void keep(struct tape *tape, const struct tape_act *act, uint32_t *kept,
                 const uint32_t *buffers)
{
    const enum work_kind work = (enum work_kind)act->kernel.work;
    const bool attends = work == WORK_ATTENTION || work == WORK_EFFICIENT_ATTENTION;
    for (uint32_t w = 0; kept && attends && w < act->write_count; w++) {
        kept[act->writes[w]] = buffers[act->writes[w]];
        tape_hold(tape, buffers[act->writes[w]]);
    }
}

/* `kept`: of the selective policy, where it is asked; NULL: it is not. */
static uint32_t *run_program(struct tape *tape, const struct tape_compiled *c,
                             const struct tape_program *p, const uint32_t *forward, uint32_t *kept)
{
    uint32_t *buffers = xmalloc((p->memory_count + 1) * sizeof *buffers);
    for (uint32_t m = 0; m < p->memory_count; m++)
        buffers[m] = buffer_of(tape, c, &p->memory[m], forward);
    tape->current_op = GRAPH_NONE;
    for (uint32_t i = 0; i < p->act_count; i++) {
        const struct tape_act *act = &p->acts[i];
        if (!take_kept(act, kept, buffers)) {
            birth(tape, p, act, buffers);
            emit_kernel(tape, p, act, buffers);
            if (!tape->recomputing)
                keep(tape, act, kept, buffers);
        }
        for (uint32_t d = 0; d < act->die_count; d++)
            let_go(tape, p, act->dies[d], buffers);
    }
    return buffers;
}

/* ---- forward ---- */

static bool is_result(const struct tape_compiled *c, uint32_t memory)
{
    for (uint32_t i = 0; i < c->result_count; i++)
        if (c->results[i].memory == memory)
            return true;
    return false;
}

/* What its node saves: its own, or, in a checkpointed block that has yet to run again, nobody's. */
static void save(struct tape *tape, const struct tape_compiled *c, const uint32_t *buffers)
{
    const bool holds = tape->entered == GRAPH_NONE;
    for (uint32_t i = 0; i < c->saved_count; i++) {
        const uint32_t memory = c->saved[i];
        const bool others =
            c->forward.memory[memory].from == TAPE_MEMORY_TENSOR || is_result(c, memory);
        if (holds && others)
            tape_hold(tape, buffers[memory]);
        if (!holds && !others)
            tape_release(tape, buffers[memory]);
    }
}

/* Where the policy keeps what the program calls; NULL: it is not asked. */
static uint32_t *kept_of(struct running *r, uint32_t index)
{
    const uint32_t count = r->compiled[index].forward.memory_count;
    if (r->tape->options->checkpointing != CHECKPOINTING_SELECTIVE ||
        r->tape->part_region[index] == GRAPH_NONE)
        return NULL;
    if (!r->kept[index]) {
        r->kept[index] = xmalloc((count + 1) * sizeof **r->kept);
        memset(r->kept[index], 0xff, (count + 1) * sizeof **r->kept);
    }
    return r->kept[index];
}

static void forward(struct tape *tape, void *with, uint32_t index)
{
    struct running *r = with;
    const struct tape_compiled *c = &r->compiled[index];
    uint32_t *buffers = run_program(tape, c, &c->forward, NULL, kept_of(r, index));
    save(tape, c, buffers);
    for (uint32_t i = 0; i < c->result_count; i++) {
        const struct tape_result *result = &c->results[i];
        const uint32_t storage = tape->graph->tensors[result->tensor].storage;
        tape->where[storage] = buffers[result->memory]; /* the program's hold is Python's */
        tape->python[storage] = 1;
    }
    for (uint32_t i = 0; i < c->let_go_count; i++)
        tape_drop(tape, c->lets_go[i]);
    free(r->buffers[index]);
    r->buffers[index] = buffers;
}

/* ---- backward ---- */

static bool is_given_before(const struct tape_compiled *c, const uint32_t *buffers, uint32_t index)
{
    for (uint32_t i = 0; i < index; i++)
        if (buffers[c->given[i].memory] == buffers[c->given[index].memory])
            return true;
    return false;
}

/* Gradients arrive where they go to, and are added to those that are there before any node behind
 * runs; what was added is the engine's until then. */
static void arrive(struct tape *tape, const struct tape_compiled *c, const uint32_t *buffers)
{
    uint32_t *added = xmalloc((c->given_count + 1) * sizeof *added), count = 0;
    for (uint32_t i = 0; i < c->given_count; i++) {
        const struct tape_given *given = &c->given[i];
        const uint32_t tensor =
            given->of_param ? tape->graph->params[given->index].tensor : given->index;
        if (is_given_before(c, buffers, i)) /* of a sum: what came, to both */
            tape_hold(tape, buffers[given->memory]);
        if (tape_accumulate(tape, tensor, buffers[given->memory]))
            added[count++] = buffers[given->memory];
    }
    for (uint32_t i = 0; i < count; i++)
        tape_release(tape, added[i]);
    free(added);
}

/* Nodes of parameters that have all of their gradients become ready, and the node of forward that
 * is next, with the last of what it made. */
static void give(struct tape *tape, const struct tape_compiled *c, const uint32_t *buffers)
{
    uint32_t *nodes = xmalloc(3 * (c->given_count + 1UL) * sizeof *nodes), count = 0, inner = 0;
    uint32_t *numbers = nodes + c->given_count + 1, *order = numbers + c->given_count + 1;
    bool any = false;
    arrive(tape, c, buffers);
    tape_count_uses(tape, c->first_item, c->end_item, -1);
    for (uint32_t i = 0; i < c->given_count; i++) {
        const struct tape_given *given = &c->given[i];
        if (!given->of_param && !given->later) {
            any = true;
            inner = count;
        } else if (given->of_param && tape->param_uses[given->index] == 0) {
            nodes[count++] = given->index;
        }
    }
    if (any) /* behind those that it is the last after */
        memmove(nodes + inner + 1, nodes + inner, (count++ - inner) * sizeof *nodes);
    for (uint32_t i = 0; i < count; i++)
        numbers[i] = any && i == inner ? 0 : READY_QUEUE_PARAM;
    ready_queue_order(count, numbers, order);
    for (uint32_t i = 0; i < count; i++)
        if (numbers[order[i]])
            tape_give_out(tape, nodes[order[i]]);
    free(nodes);
}

/* Whether the program lets go of the gradient of an output that it was handed, or hands it on. */
static bool takes_gradient(const struct tape_compiled *c, uint32_t output)
{
    const struct tape_program *p = &c->backward;
    for (uint32_t i = 0; i < p->act_count; i++)
        for (uint32_t d = 0; d < p->acts[i].die_count; d++) {
            const struct tape_memory *dies = &p->memory[p->acts[i].dies[d]];
            if (dies->from == TAPE_MEMORY_GRADIENT && dies->of == output)
                return true;
        }
    for (uint32_t i = 0; i < c->given_count; i++) {
        const struct tape_memory *given = &p->memory[c->given[i].memory];
        if (given->from == TAPE_MEMORY_GRADIENT && given->of == output)
            return true;
    }
    return false;
}

static bool has_gradient(const struct tape *tape, const struct tape_compiled *c)
{
    for (uint32_t i = 0; i < c->result_count; i++)
        if (tape->slot[slot_root(tape, c->results[i].tensor)] != NO_BUFFER)
            return true;
    return false;
}

static void zero_gradients(struct tape *tape, const struct tape_compiled *c)
{
    uint32_t *tensors = xmalloc((c->result_count + 1) * sizeof *tensors);
    for (uint32_t i = 0; i < c->result_count; i++)
        tensors[i] = c->results[i].tensor;
    tape_zero_gradients(tape, c->result_count, tensors);
    free(tensors);
}

static void backward(struct running *r, uint32_t index)
{
    const struct tape_compiled *c = &r->compiled[index];
    struct tape *tape = r->tape;
    if (!has_gradient(tape, c))
        return;
    zero_gradients(tape, c);
    struct region *region = tape->part_region[index] == GRAPH_NONE || c->saved_count == 0
                                ? NULL
                                : &tape->regions[tape->part_region[index]];
    tape->current_op = GRAPH_NONE;
    if (region && !region->recomputed)
        tape_recompute(tape, region);
    uint32_t *buffers = run_program(tape, c, &c->backward, r->buffers[index], NULL);
    for (uint32_t i = 0; i < c->result_count; i++) {
        uint32_t *slot = &tape->slot[slot_root(tape, c->results[i].tensor)];
        const uint32_t gradient = *slot;
        *slot = NO_BUFFER;
        if (gradient != NO_BUFFER && !takes_gradient(c, i))
            tape_release(tape, gradient);
    }
    if (region && --region->holders == 0)
        tape_end_region(tape, region);
    give(tape, c, buffers);
    free(buffers);
}

/* ---- the script ---- */

/* A function that was cut has its arguments, where what goes on behind the cut has let go of them.
 */
static void let_go_later(struct running *r, uint32_t item)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < r->later_count; i++)
        if (r->later[i].end == item)
            tape_forward_item(r->tape, r->tape->graph->items[r->later[i].item]);
        else
            r->later[kept++] = r->later[i];
    r->later_count = kept;
}

/* Names that Python lets go of there go, too, where they are of what is from outside. */
static void run_forward(struct running *r)
{
    const struct graph *graph = r->tape->graph;
    for (uint32_t i = 0, next = 0; i < graph->item_count; i++) {
        let_go_later(r, i);
        if (next == r->count || i != r->compiled[next].first_item) {
            tape_forward_item(r->tape, graph->items[i]);
            continue;
        }
        forward(r->tape, r, next);
        for (; i < r->compiled[next].end_item; i++)
            if (graph->items[i].kind == ITEM_DROP && r->compiled[next].frame_end)
                r->later[r->later_count++] = (struct later){i, r->compiled[next].frame_end};
            else if (graph->items[i].kind == ITEM_DROP)
                tape_forward_item(r->tape, graph->items[i]);
        next++;
        i--;
    }
}

static void run_backward(struct running *r)
{
    const struct graph *graph = r->tape->graph;
    for (uint32_t end = graph->item_count, last = r->count; end > 0;) {
        if (last == 0 || end != r->compiled[last - 1].end_item) {
            tape_backward_item(r->tape, graph->items[--end]);
            continue;
        }
        backward(r, --last);
        end = r->compiled[last].first_item;
    }
}

struct stream *tape_run_compiled(const struct graph *graph, const struct tape_options *options,
                                 const struct tape_compiled *compiled, uint32_t count)
{
    struct tape tape;
    struct running r = {&tape,
                        compiled,
                        xcalloc(count + 1, sizeof *r.buffers),
                        xcalloc(count + 1, sizeof *r.kept),
                        count,
                        xcalloc(graph->item_count + 1UL, sizeof *r.later),
                        0};
    const struct tape_parts parts = {.of = compiled, .count = count, .run = forward, .with = &r};
    tape_open_parts(&tape, graph, options, &parts);
    run_forward(&r);
    tape_begin_backward(&tape);
    run_backward(&r);
    tape_end_backward(&tape);
    for (uint32_t i = 0; i < count; i++) {
        free(r.buffers[i]);
        free(r.kept[i]);
    }
    free(r.buffers);
    free(r.kept);
    free(r.later);
    return tape_close(&tape);
}

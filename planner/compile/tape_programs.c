/* tape_programs.c - see tape_programs.h. */
#include "compile/tape_programs.h"

#include "base/arena.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

struct making {
    const struct graph *graph;
    const struct stream *stream; /* eager */
    const struct tape_region *region;
    const struct joint *joint;
    const struct program *from;
    const struct program *forward; /* NULL while that is made itself */
    struct tape_program *to;
};

static const struct joint_node *at(const struct making *m, uint32_t node)
{
    return joint_at(m->joint, node);
}

/* ---- memory ---- */

static uint32_t memory_of_home(const struct program *program, uint32_t home)
{
    for (uint32_t i = 0; i < program->memory_count; i++)
        if (program->memory[i].node == home && !program->memory[i].parts &&
            program->memory[i].only == JOINT_NONE)
            return i;
    return JOINT_NONE;
}

static uint32_t tensor_of_input(const struct making *m, uint32_t place)
{
    for (uint32_t i = 0; i < m->region->input_count; i++)
        if (m->region->inputs[i].buffer == (place & ~PLACE_MASK))
            return m->region->inputs[i].tensor;
    assert(!"an argument that the region does not have");
    return GRAPH_NONE;
}

static uint32_t output_of_gradient(const struct making *m, uint32_t place)
{
    for (uint32_t i = 0; i < m->region->output_count; i++)
        if (m->region->outputs[i].gradient == (place & ~PLACE_MASK))
            return i;
    assert(!"a gradient that did not come");
    return GRAPH_NONE;
}

static bool is_argument(const struct joint_node *node)
{
    return node->name == JOINT_INPUT && (node->of & PLACE_MASK) == PLACE_BUFFER;
}

static struct tape_memory memory_from(const struct making *m, uint32_t index)
{
    const struct program_memory *memory = &m->from->memory[index];
    const struct joint_node *node = at(m, memory->node);
    const struct operand operand = program_operand(m->joint, m->from, index);
    struct tape_memory out = {.from = TAPE_MEMORY_NEW,
                              .dtype = operand.dtype,
                              .label = ATEN_EMPTY_STRIDED,
                              .shape = operand.shape};
    if (!memory->outside)
        return out;
    if (node->name == JOINT_INPUT && !is_argument(node)) {
        out.from = TAPE_MEMORY_PLACE;
        out.of = node->of;
    } else if (node->name == JOINT_INPUT && node->source == SOURCE_GRADIENT) {
        out.from = TAPE_MEMORY_GRADIENT;
        out.of = output_of_gradient(m, node->of);
    } else if (m->forward) {
        out.from = TAPE_MEMORY_SAVED;
        out.of = memory_of_home(m->forward, memory->node);
    } else {
        out.from = TAPE_MEMORY_TENSOR;
        out.of = tensor_of_input(m, node->of);
    }
    return out;
}

/* ---- kernels ---- */

static bool shows_part(const struct making *m, uint32_t node)
{
    const uint32_t home = program_home(m->joint, node);
    for (; node != home; node = at(m, node)->arg[0])
        if (at(m, node)->name == JOINT_PART || at(m, node)->name == JOINT_SLICE)
            return true;
    return false;
}

/* The memory of an argument: its own or that of what it is made of, whichever the program has. */
static uint32_t memory_of_node(const struct making *m, uint32_t node)
{
    return memory_of_home(m->from, program_home(m->joint, node));
}

/* Likewise, or the copy that the call reads by itself. */
static uint32_t memory_for_call(const struct making *m, uint32_t call, uint32_t node)
{
    const uint32_t home = program_home(m->joint, node);
    for (uint32_t i = 0; i < m->from->memory_count; i++)
        if (m->from->memory[i].only == call && m->from->memory[i].node == home)
            return i;
    return memory_of_node(m, node);
}

static const struct joint_node *call_of(const struct making *m, const struct program_act *act)
{
    return at(m, act->call);
}

static struct operand as_operand(const struct making *m, uint32_t memory, uint32_t node)
{
    const struct joint_node *n = at(m, node);
    return (struct operand){.place = memory, .dtype = n->dtype, .shape = n->shape};
}

/* A product that a sum was made part of (joint_add_to_products). */
static bool is_sum(const struct joint_node *call, const struct kernel *eager)
{
    return call->name == JOINT_CALL && call->args == 3 && eager->ins == 2;
}

static bool is_library(const struct joint_node *call)
{
    return call->name == JOINT_CALL || call->name == JOINT_CALL_OWN ||
           call->name == JOINT_CALL_MANY;
}

/* A library's kernel is the eager one, on the program's memory. */
static void library_kernel(const struct making *m, const struct program_act *act,
                           struct tape_act *to)
{
    const struct joint_node *call = call_of(m, act);
    const struct kernel *eager = &m->stream->kernels->kernels[call->of];
    const uint32_t added = is_sum(call, eager); /* operands that the eager kernel has not */
    struct operand *operands =
        xcalloc((size_t)eager->ins + added + eager->outs + 1, sizeof *operands);
    to->kernel = *eager;
    to->kernel.recomputed = m->forward && !call->in_backward;
    for (uint32_t i = 0; i < eager->ins; i++) {
        operands[i] = eager->operands[i];
        operands[i].place = memory_for_call(m, act->call, call->arg[i]);
        if (!shows_part(m, call->arg[i]))
            operands[i].offset = operands[i].pitch = 0;
    }
    if (added) {
        operands[eager->ins] =
            as_operand(m, memory_for_call(m, act->call, call->arg[2]), call->arg[2]);
        to->kernel.label = ATEN_ADDMM;
        to->kernel.ins++;
    }
    for (uint32_t i = 0; i < eager->outs; i++) {
        struct operand *out = &operands[eager->ins + added + i];
        *out = eager->operands[eager->ins + i];
        out->offset = out->pitch = 0;
        out->place = memory_of_home(m->from, act->call);
        for (uint32_t w = 0; call->name == JOINT_CALL_MANY && w < act->write_count; w++) {
            const struct joint_node *result = at(m, m->from->memory[act->writes[w]].node);
            if (result->detail == i)
                out->place = act->writes[w];
        }
    }
    to->kernel.operands = operands;
}

/* Complex numbers: eager PyTorch's kernel, called from the program. */
static void fallback_kernel(const struct making *m, const struct program_act *act,
                            struct tape_act *to)
{
    const struct joint_node *call = call_of(m, act);
    struct operand *operands = xcalloc(call->args + 2U, sizeof *operands);
    const bool product = call->name == JOINT_MUL;
    for (uint32_t i = 0; i < call->args; i++)
        operands[i] = as_operand(m, memory_of_node(m, call->arg[i]), call->arg[i]);
    operands[call->args] = as_operand(m, act->writes[0], act->call);
    to->kernel = (struct kernel){.label = product ? ATEN_MUL : ATEN_CLONE,
                                 .work = product ? WORK_MUL : WORK_CONJUGATE,
                                 .ins = call->args,
                                 .outs = 1,
                                 .operands = operands,
                                 .flops = (double)shape_elements(&call->shape)};
}

/* Reads each memory once and writes each result once. */
static void fused_kernel(const struct making *m, const struct program_act *act, struct tape_act *to)
{
    struct operand *operands =
        xcalloc((size_t)act->read_count + act->write_count + 1, sizeof *operands);
    for (uint32_t i = 0; i < act->read_count; i++) {
        operands[i] = program_operand(m->joint, m->from, act->reads[i]);
        if (act->picks[i] != JOINT_NONE)
            operands[i].shape = at(m, act->picks[i])->shape;
    }
    double elements = 0;
    for (uint32_t i = 0; i < act->write_count; i++) {
        struct operand *out = &operands[act->read_count + i];
        *out = program_operand(m->joint, m->from, act->writes[i]);
        elements += (double)shape_elements(&out->shape);
    }
    to->kernel = (struct kernel){.label = act->reduces ? ATEN_FUSED_REDUCTION : ATEN_FUSED,
                                 .work = act->reduces ? WORK_FUSED_REDUCTION : WORK_FUSED,
                                 .ins = (uint16_t)act->read_count,
                                 .outs = (uint16_t)act->write_count,
                                 .operands = operands,
                                 .flops = elements};
}

static void make_act(const struct making *m, const struct program_act *act, struct tape_act *to)
{
    *to = (struct tape_act){.writes = act->writes,
                            .over = act->over,
                            .dies = act->dies,
                            .write_count = act->write_count,
                            .die_count = act->die_count};
    if (act->call == JOINT_NONE)
        fused_kernel(m, act, to);
    else if (is_library(call_of(m, act)))
        library_kernel(m, act, to);
    else
        fallback_kernel(m, act, to);
    to->kernel.compiled = true;
    for (uint32_t w = 0; w < act->write_count; w++) /* fallbacks allocate themselves */
        if (act->call != JOINT_NONE && call_of(m, act)->name != JOINT_CALL)
            m->to->memory[act->writes[w]].label = to->kernel.label;
}

static void make_program(const struct making *m)
{
    const struct program *from = m->from;
    m->to->memory_count = from->memory_count;
    m->to->act_count = from->act_count;
    m->to->memory = xcalloc(from->memory_count + 1, sizeof *m->to->memory);
    m->to->acts = xcalloc(from->act_count + 1, sizeof *m->to->acts);
    for (uint32_t i = 0; i < from->memory_count; i++)
        m->to->memory[i] = memory_from(m, i);
    for (uint32_t i = 0; i < from->act_count; i++)
        make_act(m, &from->acts[i], &m->to->acts[i]);
}

/* ---- what the node holds, and what it gives ---- */

static void list_saved(const struct making *m, const struct compiled_region *c,
                       struct tape_compiled *out)
{
    const struct partition *partition = compiled_region_partition(c);
    uint32_t *saved = xcalloc(partition->saved_count + 1, sizeof *saved);
    for (uint32_t i = 0; i < partition->saved_count; i++) {
        const uint32_t memory = memory_of_node(m, partition->saved[i]);
        bool twice = m->to->memory[memory].from == TAPE_MEMORY_PLACE;
        for (uint32_t k = 0; k < out->saved_count; k++)
            twice |= saved[k] == memory;
        if (!twice)
            saved[out->saved_count++] = memory;
    }
    out->saved = saved;
}

static void list_results(const struct making *m, const struct compiled_region *c,
                         struct tape_compiled *out)
{
    struct tape_result *results = xcalloc(c->result_count + 1, sizeof *results);
    for (uint32_t i = 0; i < c->result_count; i++)
        results[i] =
            (struct tape_result){m->region->outputs[i].tensor, memory_of_node(m, c->results[i])};
    out->results = results;
    out->result_count = c->result_count;
}

static struct tape_given given_of(const struct making *m, const struct region_gradient *gradient)
{
    return (struct tape_given){memory_of_node(m, gradient->node), gradient->of_param,
                               gradient->later, gradient->index};
}

/* The place of what a gradient is of among what the graph is called with. */
static uint32_t place_of(const struct making *m, const struct region_gradient *gradient)
{
    const uint32_t root =
        gradient->of_param ? m->graph->params[gradient->index].tensor : gradient->index;
    const uint32_t count = m->region->argument_count, *arguments = m->region->arguments;
    uint32_t i = 0, k = 0;
    while (i < count && arguments[i] != root)
        i++;
    /* else a view of it, which its first call made before */
    while (i == count && k < count &&
           m->graph->tensors[arguments[k]].storage != m->graph->tensors[root].storage)
        k++;
    return i == count ? k : i;
}

static void list_given(const struct making *m, const struct compiled_region *c,
                       struct tape_compiled *out)
{
    struct tape_given *given = xcalloc(c->gradient_count + 1, sizeof *given);
    uint32_t *places = xcalloc(c->gradient_count + 1, sizeof *places);
    for (uint32_t i = 0; i < c->gradient_count; i++) {
        const uint32_t place = place_of(m, &c->gradients[i]);
        uint32_t k = out->given_count++;
        for (; k > 0 && places[k - 1] > place; k--) {
            places[k] = places[k - 1];
            given[k] = given[k - 1];
        }
        places[k] = place;
        given[k] = given_of(m, &c->gradients[i]);
    }
    free(places);
    out->given = given;
}

void tape_programs_of(const struct graph *graph, const struct stream *stream,
                      const struct tape_region *region, const struct compiled_region *compiled,
                      struct tape_compiled *out)
{
    *out = (struct tape_compiled){.first_item = region->first_item,
                                  .end_item = region->end_item,
                                  .frame_end = region->frame_end,
                                  .lets_go = region->lets_go,
                                  .let_go_count = region->let_go_count};
    struct making m = {.graph = graph,
                       .stream = stream,
                       .region = region,
                       .joint = compiled->joint,
                       .from = compiled_region_forward(compiled),
                       .to = &out->forward};
    make_program(&m);
    list_results(&m, compiled, out);
    list_saved(&m, compiled, out);
    m.forward = m.from;
    m.from = compiled_region_backward(compiled);
    m.to = &out->backward;
    if (!m.from)
        return;
    make_program(&m);
    list_given(&m, compiled, out);
}

static void free_program(struct tape_program *program)
{
    for (uint32_t i = 0; i < program->act_count; i++)
        free(program->acts[i].kernel.operands);
    free(program->acts);
    free(program->memory);
}

void tape_programs_free(struct tape_compiled *programs)
{
    free_program(&programs->forward);
    free_program(&programs->backward);
    free((void *)(uintptr_t)programs->saved);
    free((void *)(uintptr_t)programs->given);
    free((void *)(uintptr_t)programs->results);
    *programs = (struct tape_compiled){0};
}

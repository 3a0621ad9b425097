/* program_memory.c - what a node's memory is, and how large; see program.h. */
#include "compile/program_parts.h"

uint32_t program_home(const struct joint *joint, uint32_t node)
{
    while (joint_is_seen_through(joint_at(joint, node)))
        node = joint_at(joint, node)->arg[0];
    return node;
}

uint32_t found_at(const struct building *b, uint32_t node)
{
    while (!b->there[node] && joint_is_seen_through(joint_at(b->joint, node)))
        node = joint_at(b->joint, node)->arg[0];
    return node;
}

struct operand program_operand(const struct joint *joint, const struct program *program,
                               uint32_t memory)
{
    const struct program_memory *m = &program->memory[memory];
    const struct joint_node *node = joint_at(joint, m->node);
    struct operand out = {.place = memory, .dtype = node->dtype, .shape = node->shape};
    if (!m->parts)
        return out;
    out.shape = SHAPE(m->parts, (uint32_t)shape_elements(&node->shape));
    if (node->dtype == DTYPE_BF16 || node->dtype == DTYPE_FP16)
        out.dtype = DTYPE_FP32; /* "keep the intermediate in fp32" */
    return out;
}

uint64_t program_bytes(const struct joint *joint, const struct program *program, uint32_t memory)
{
    const struct operand operand = program_operand(joint, program, memory);
    return shape_bytes(&operand.shape, (enum dtype)operand.dtype);
}

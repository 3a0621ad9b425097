/* joint_float8.c - what Inductor's decompositions make of a Float8Linear: the scale of a tensor or
 * of each of its rows, the cast, and _scaled_mm, a kernel of a library (joint.h).
 *
 * Source: the graphs that AOTAutograd traced of torchao 0.18's Float8Linear (tests/data/truth,
 * compile_float8.jsonl), where a tensor in float8 is its bits and its scale. */
#include "compile/joint.h"

static const struct operand *result(const struct kernel *kernel)
{
    return &kernel->operands[kernel->ins];
}

/* In x's shape and dtype. */
static uint32_t element(struct joint *joint, enum joint_name name, uint32_t x, float number)
{
    const struct joint_node *node = joint_at(joint, x);
    return joint_node(joint, &(struct joint_want){.name = name,
                                                  .dtype = (enum dtype)node->dtype,
                                                  .shape = node->shape,
                                                  .args = 1,
                                                  .arg = {x},
                                                  .number = number});
}

/* max() of eager PyTorch makes what it reads contiguous first; a loop does not need that. */
static uint32_t largest(struct joint *joint, const struct kernel *kernel, uint32_t x)
{
    if (kernel->work == WORK_MAXIMUM && joint_at(joint, x)->name == JOINT_CLONE)
        x = joint_at(joint, x)->arg[0];
    const struct operand *out = result(kernel);
    return joint_node(joint, &(struct joint_want){.name = JOINT_LARGEST,
                                                  .dtype = (enum dtype)out->dtype,
                                                  .shape = out->shape,
                                                  .args = 1,
                                                  .arg = {x}});
}

/* An amax is kept from being 0, which its reciprocal could not be, and is not limited above; what
 * is cast to float8 is limited on both sides. */
static uint32_t within(struct joint *joint, const struct kernel *kernel, uint32_t x)
{
    const uint32_t above = element(joint, JOINT_AT_LEAST, x, -kernel->attr.p);
    return joint_at(joint, x)->dtype == DTYPE_FP64
               ? above
               : element(joint, JOINT_AT_MOST, above, kernel->attr.p);
}

/* What stands for a scale that is multiplied by afterwards. */
static uint32_t fill(struct joint *joint, const struct kernel *kernel)
{
    const struct operand *out = result(kernel);
    return joint_node(joint, &(struct joint_want){.name = JOINT_FULL,
                                                  .dtype = (enum dtype)out->dtype,
                                                  .shape = out->shape,
                                                  .number = kernel->attr.p});
}

/* The second factor is given with its columns one after the other. */
static uint32_t product(struct joint *joint, const struct kernel *kernel, uint32_t index,
                        const uint32_t *in)
{
    const struct operand *out = result(kernel);
    return joint_node(
        joint, &(struct joint_want){.name = JOINT_CALL,
                                    .dtype = (enum dtype)out->dtype,
                                    .shape = out->shape,
                                    .args = 4,
                                    .arg = {in[0], joint_transposed(joint, in[1]), in[2], in[3]},
                                    .of = index});
}

bool joint_float8(struct joint *joint, const struct kernel *kernel, uint32_t index,
                  const uint32_t *in)
{
    uint32_t node;
    switch ((enum work_kind)kernel->work) {
    case WORK_ABS:
        node = element(joint, JOINT_ABS, in[0], 0);
        break;
    case WORK_RECIPROCAL:
        node = element(joint, JOINT_RECIPROCAL, in[0], 0);
        break;
    case WORK_LOG2:
        node = element(joint, JOINT_LOG2, in[0], 0);
        break;
    case WORK_FLOOR:
        node = element(joint, JOINT_FLOOR, in[0], 0);
        break;
    case WORK_EXP2:
        node = element(joint, JOINT_EXP2, in[0], 0);
        break;
    case WORK_MAXIMUM:
    case WORK_LARGEST:
        node = largest(joint, kernel, in[0]);
        break;
    case WORK_WITHIN:
        node = within(joint, kernel, in[0]);
        break;
    case WORK_FILL:
        if (kernel->label != ATEN_NEW_ONES)
            return false;
        node = fill(joint, kernel);
        break;
    case WORK_SCALED_MM_NT:
        node = product(joint, kernel, index, in);
        break;
    default:
        return false;
    }
    joint_write(joint, result(kernel), node);
    return true;
}

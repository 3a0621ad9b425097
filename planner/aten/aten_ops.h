/* aten_ops.h - for this folder alone: the calls of PyTorch's dispatcher that have a work here. */
#ifndef SHARDPLAN_ATEN_OPS_H
#define SHARDPLAN_ATEN_OPS_H

#include "aten/aten_kernel.h"

struct aten_op {
    const char *name;
    enum aten_family family;
    enum work_kind work;
    /* Products: the argument that is the left matrix; of convolutions, that is x. Attention: that
     * is q; `causal` the argument that says so; heads_first: (b, a, s, d). */
    uint8_t first, causal;
    bool heads_first;
};

/* The row of a name, or NULL. "add_" is "add" into its first tensor. */
const struct aten_op *aten_op_find(const char *name, bool *in_place);

#endif

/* op_table.c - see op_table.h: the list of ops.h, once more as classes and names. */
#include "graph/op_table.h"

const struct op_class *op_class(const struct graph_op *op)
{
    static const struct op_class *const classes[OP_KIND_COUNT] = {
#define X(KIND, name, autocast) [OP_##KIND] = &name##_class,
        OP_MAP(X)
#undef X
    };
    return classes[op->kind];
}

const char *const *op_names(void)
{
    static const char *const names[OP_KIND_COUNT] = {[OP_NONE] = "",
#define X(KIND, name, autocast) [OP_##KIND] = #name,
                                                     OP_MAP(X)
#undef X
    };
    return names;
}

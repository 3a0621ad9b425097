/* op_table.h - the class of every kind of operator, for whoever runs them. */
#ifndef SHARDPLAN_OP_TABLE_H
#define SHARDPLAN_OP_TABLE_H

#include "graph/op_class.h"

/* The class of an op: lent, for good. */
const struct op_class *op_class(const struct graph_op *op);

/* (OP_KIND_COUNT) names: "linear"; "" of OP_NONE. Lent, for good. */
const char *const *op_names(void);

#endif

/* op_table.h - the class of every kind of operator, for whoever runs them. */
#ifndef SHARDPLAN_OP_TABLE_H
#define SHARDPLAN_OP_TABLE_H

#include "graph/op_class.h"

/* The class of an op: lent, for good. */
const struct op_class *op_class(const struct graph_op *op);

/* "linear"; "" for OP_NONE. */
const char *op_name(enum op_kind kind);

#endif

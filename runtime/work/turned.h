/* turned.h - products of matrices whose columns lie one after the other. */
#ifndef SHARDPLAN_TURNED_H
#define SHARDPLAN_TURNED_H

#include "runtime/work/work.h"

enum { TURNED_OPERANDS = 4 }; /* of a MATMUL with a bias */

/* A MATMUL whose factors are such views (rank 2, strides (1, rows or more)) is another MATMUL of
 * what lies there in rows: x y of a turned x is TN. False: the work is no MATMUL, its operands lie
 * otherwise, or both factors would be turned, which no kind says. *out, whose operands are
 * `operand`, is the work itself where nothing is turned. */
bool work_turned(const struct work *work, struct work_operand operand[TURNED_OPERANDS],
                 struct work *out);

#endif

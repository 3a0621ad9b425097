/* verify_values.h - for verify.c: what a plan says that memory holds at first makes sense. */
#ifndef SHARDPLAN_VERIFY_VALUES_H
#define SHARDPLAN_VERIFY_VALUES_H

#include "plan/plan.h"

/* Kinds are known, numbers are within base/rope.h's limits, and each goes with the dtype and shape
 * of its buffer. Buffers have been checked. ERR_INTERNAL names the row. */
enum err_code verify_values(const struct plan *plan, struct err *err);

#endif

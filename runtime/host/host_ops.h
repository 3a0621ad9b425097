/* host_ops.h - the kernels of the host backend, on the calling thread.
 *
 * They keep no state, so any number of threads may run them at once on operands that do not
 * overlap; what an operand means is in work.h. Shapes are checked against each other before memory
 * is touched, so a plan that is wrong fails with a sentence. */
#ifndef SHARDPLAN_HOST_OPS_H
#define SHARDPLAN_HOST_OPS_H

#include "base/err.h"
#include "runtime/work/work.h"

/* Runs one piece of work (lent for the call) that is not a collective. ERR_INVALID: operands do not
 * fit together or an index is out of range; ERR_UNSUPPORTED: a dtype or form that has no kernel;
 * ERR_NOMEM: no scratch memory. Each names the instruction. */
enum err_code host_run(const struct work *work, struct err *err);

#endif

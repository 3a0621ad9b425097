/* order.h - whether lanes that share memory are kept apart.
 *
 * Lanes run side by side. What comes first on one of them is over before something on another only
 * where the plan says so:
 *
 *     lane A    k1      record e
 *     lane B                       wait e     k2          k1 is over before k2
 *     host                                                a wait of the host's holds back all that
 *                                                         is issued later, on any lane
 *     group     collective | collective | ...             one after the other, whatever their lanes
 *
 * Two kernels that reach the same bytes, one of which writes them, must be in order. So must
 * memory: a block of a lane's pool may have been another buffer's before, which that lane is done
 * with, and nobody else; it may be another's afterwards. */
#ifndef SHARDPLAN_ORDER_H
#define SHARDPLAN_ORDER_H

#include "plan/plan.h"

/* The last part of plan_verify, behind what it checks besides: three steps, one after the other
 * without a pause. Of each lane it is known how far every other must have come (a vector clock);
 * takes instructions times lanes. ERR_INTERNAL names the first two instructions that nothing keeps
 * apart, and the buffer. */
enum err_code plan_check_order(const struct plan *plan, struct err *err);

#endif

/* streams.h - which copy, collective and product must have happened before which: what recorded
 * streams and events say, and what a plan's say. Equal lists leave the same freedom to overlap. */
#ifndef SHARDPLAN_TEST_STREAMS_H
#define SHARDPLAN_TEST_STREAMS_H

#include "plan/plan.h"

#include <jansson.h>
#include <stddef.h>

/* Compares the `streams` of a row of tests/data/truth/streams.jsonl with a plan: each operation
 * that both can tell, in the order of its lane, with how many of every other lane must be over
 * before it begins. Prints the first difference. False: there is one. *ops: how many were compared.
 */
bool streams_equal(const json_t *row, const struct plan *plan, size_t *ops);

#endif

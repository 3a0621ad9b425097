/* step_spans.h - a simulated step as intervals by instruction, as the spans of a recorded one. */
#ifndef SHARDPLAN_STEP_SPANS_H
#define SHARDPLAN_STEP_SPANS_H

#include "compare/compare.h"
#include "job/step_time.h"

/* When each kernel of the plan that was timed runs, in seconds from the begin of the step: writes
 * plan->instruction_count intervals, NAN where nothing runs. */
void step_spans(const struct plan *plan, const struct step_time *time,
                struct compare_interval *out);

#endif

/* record.h - the last step of an execution as a trace, in the form of the predicted one. */
#ifndef SHARDPLAN_RECORD_H
#define SHARDPLAN_RECORD_H

#include "runtime/execute.h"
#include "traces/trace.h"

/* Writes the trace of this rank's last step: a span for each instruction that ran work, on the lane
 * of its stream, and one counter track "memory recorded" with the series instruction, allocated and
 * reserved (bytes), a sample after every alloc, free and mark. */
enum err_code record_write(const struct plan *plan, const struct execution *execution,
                           uint32_t step, const char *path, struct err *err);

#endif

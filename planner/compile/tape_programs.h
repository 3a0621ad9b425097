/* tape_programs.h - programs of a region as the tape runs them: with kernels, and memory that the
 * tape finds. */
#ifndef SHARDPLAN_TAPE_PROGRAMS_H
#define SHARDPLAN_TAPE_PROGRAMS_H

#include "compile/region.h"
#include "graph/tape_compiled.h"

/* `stream` and `region` (lent to *out) are of the graph's eager tape, whose kernels the region was
 * traced from. The caller owns *out: tape_programs_free. */
void tape_programs_of(const struct graph *graph, const struct stream *stream,
                      const struct tape_region *region, const struct compiled_region *compiled,
                      struct tape_compiled *out);
void tape_programs_free(struct tape_compiled *programs);

#endif

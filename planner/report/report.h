/* report.h - the files that `shardplan plan` leaves in its folder. */
#ifndef SHARDPLAN_REPORT_H
#define SHARDPLAN_REPORT_H

#include "job/step_time.h"
#include "report/result.h"

/* Writes into a folder that is held (report/files.h), each file under a temporary name first:
 *   plan.json        the program, complete: enough to execute
 *   plan-1.json, ... those of the other ranks (report_last_rank)
 *   trace.json       Chrome trace events, for Perfetto
 *   snapshot.pickle  for PyTorch's memory viewer (pytorch.org/memory_viz)
 *   memory.svg, memory-time.svg, timeline.svg
 *                    with `pictures`: the memory curve, over instructions and over seconds, and the
 *                    lanes, by gnuplot (left out, with a note in *note, when gnuplot is not there)
 *   report.html      one page: tables, and the pictures
 * Of a plan that is wanted alone (settings.plan_alone) the first two.
 * `note` receives a lent sentence or NULL. */
enum err_code report_write(const struct settings *settings, const struct job *job,
                           const struct machine *machine, const struct prediction *prediction,
                           const struct step_time *time, bool pictures, const char **note,
                           struct err *err);

/* The last rank that has a plan of its own in a file beside plan.json, plan-R.json; 0: none has, as
 * the others' programs follow from plan.json, or as there are too many. */
uint32_t report_last_rank(const struct plan *plan);

#endif

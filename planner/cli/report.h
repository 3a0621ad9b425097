/* report.h - the files that `shardplan plan` leaves in its folder. */
#ifndef SHARDPLAN_REPORT_H
#define SHARDPLAN_REPORT_H

#include "cli/result.h"

/* Makes the folder if needed and writes into it, each file under a temporary name first:
 *   plan.json        the program, complete: enough to execute
 *   trace.json       Chrome trace events, for Perfetto; time is instruction order
 *   snapshot.pickle  for PyTorch's memory viewer (pytorch.org/memory_viz)
 *   memory.svg       the memory curve, by gnuplot (left out, with a note in *note, when gnuplot is
 *                    not there)
 *   report.html      one page: tables and the curve
 * `note` receives a lent sentence or NULL. */
enum err_code report_write(const struct settings *settings, const struct job *job,
                           const struct placement *placement, const struct prediction *prediction,
                           const char **note, struct err *err);

#endif

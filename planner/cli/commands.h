/* commands.h - one function a command; each returns the exit status: 0 done (fit: fits), 1 does
 * not fit (compare: differs), 2 bad usage or bad input, 3 runtime failure. argv[0] is the command's
 * name. */
#ifndef SHARDPLAN_COMMANDS_H
#define SHARDPLAN_COMMANDS_H

#include "base/err.h"

#include <jansson.h>

enum { EXIT_DONE = 0, EXIT_NO_FIT = 1, EXIT_DIFFERS = 1, EXIT_BAD_INPUT = 2, EXIT_FAILED = 3 };

int command_fit(int argc, char **argv);
int command_plan(int argc, char **argv);
int command_tune(int argc, char **argv);
int command_sweep(int argc, char **argv);
int command_diff(int argc, char **argv);
int command_run(int argc, char **argv);
int command_compare(int argc, char **argv);
int command_export(int argc, char **argv);
int command_calibrate(int argc, char **argv);
int command_models(int argc, char **argv);
int command_gpus(int argc, char **argv);
int command_kernels(int argc, char **argv);

/* Prints "shardplan: <sentence>" to standard error; returns the exit status for the code. */
int report_error(const struct err *err);

/* Writes the answer of --json to standard output, and gives the value up. */
void report_json(json_t *value);

#endif

/* completion.h - what bash completes, made from the table of settings. */
#ifndef SHARDPLAN_COMPLETION_H
#define SHARDPLAN_COMPLETION_H

#include <stdio.h>

/* A script for bash-completion, or to be sourced: commands, options, their values, built-in names,
 * files and folders, of shardplan and of shardrun. */
void completion_write(FILE *file);

#endif

/* help.h - what a command says of itself: all of its options, the most used ones, or one. */
#ifndef SHARDPLAN_HELP_H
#define SHARDPLAN_HELP_H

#include "settings/command.h"

#include <stdbool.h>
#include <stdio.h>

/* Usage, what it does, examples, every option that can be planned: the most used ones first. */
void help_write(FILE *file, enum command command);

/* A screen of it: the most used options in a line each; of a command with few options all. */
void help_write_brief(FILE *file, enum command command);

/* Whether these are two. */
bool help_is_brief(enum command command);

/* An option, "seq" or "--seq", of each system that has one; false: the command has none. */
bool help_write_option(FILE *file, enum command command, const char *name);

#endif

/* manual.h - the manual page, made from the table of settings. */
#ifndef SHARDPLAN_MANUAL_H
#define SHARDPLAN_MANUAL_H

#include <stdio.h>

/* shardplan(1) in man(7)'s macros: every command, and every option that --help shows. */
void manual_write(FILE *file);

#endif

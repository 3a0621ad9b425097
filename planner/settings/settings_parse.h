/* settings_parse.h - a command line becomes settings: the one place that calls argp. */
#ifndef SHARDPLAN_SETTINGS_PARSE_H
#define SHARDPLAN_SETTINGS_PARSE_H

#include "settings/settings.h"

/* The settings of a command from its arguments, which are lent as long as *out; argv[0] becomes
 * the command's title. Prints help or the version and exits with 0 when asked to; exits with 2
 * after argp's message on bad usage and after ours on a bad value. */
void settings_parse(enum command command, int argc, char **argv, struct settings *out);

#endif

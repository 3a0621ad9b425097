/* several.h - for `fit` and `plan`: one job under several systems, side by side. */
#ifndef SHARDPLAN_SEVERAL_H
#define SHARDPLAN_SEVERAL_H

#include "settings/settings_parse.h"

/* Plans and times each system of the list and prints the table or its JSON; with an -o that was
 * given, writes systems.json and a folder a system, as of `plan`. Returns the exit status: 0 one
 * fits, 1 none does, 2 none can do the job or bad input. */
int several_answer(const struct settings_list *list);

#endif

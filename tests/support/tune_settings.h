/* tune_settings.h - for the tests of searches: settings of `tune` by name and value. */
#ifndef SHARDPLAN_TUNE_SETTINGS_H
#define SHARDPLAN_TUNE_SETTINGS_H

#include "settings/settings.h"

/* A model whose searches take little. */
#define TOY "model", "tests/data/configs/toy-llama", "seq", "512"

/* Pairs of a name and a value, then NULL; fails the test where one is refused. */
struct settings tune_settings_of(const char *const *pairs);

#endif

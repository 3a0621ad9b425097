/* refused.h - models of presets that are built, or refused with a sentence. */
#ifndef SHARDPLAN_TESTS_REFUSED_H
#define SHARDPLAN_TESTS_REFUSED_H

#include "families/families.h"

/* model_build of a preset; *graph is the caller's. */
enum err_code preset_build(const char *preset, const struct model_job *job, struct graph **graph,
                           struct err *err);

/* Fails the test unless the preset's model is refused in words that have `says`. */
void expect_refused(const char *preset, const struct model_job *job, const char *says);

#endif

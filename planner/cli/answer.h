/* answer.h - for `fit` and `plan`: what is asked about one job on one machine, and its answer. */
#ifndef SHARDPLAN_ANSWER_H
#define SHARDPLAN_ANSWER_H

#include "frameworks/import.h"
#include "job/explain.h"
#include "job/long_run.h"
#include "job/start_up.h"
#include "settings/settings.h"

#include <stdio.h>

struct answer { /* zero-initialise; `settings` and `import` are filled by who asks */
    struct settings settings;
    struct import import; /* of --from */
    struct job job;
    struct machine machine;
    struct prediction prediction;
    bool is_timed;
    struct step_time time;          /* when it is */
    struct long_run run;            /* with --goodput */
    struct explanation explanation; /* with --explain */
    struct start_up start_up;       /* with --start-up */
};

/* Predicts memory and, with `timed` or where the settings ask for it, time. The caller calls
 * answer_free, whatever is returned. */
enum err_code answer_make(struct answer *answer, bool timed, struct err *err);
void answer_free(struct answer *answer);

/* Prints it as JSON or as tables, or nothing, as the settings say. */
void answer_show(const struct answer *answer);

/* The command: parses its words, answers with `run`, which has answer->settings and leaves the rest
 * to be freed, or of several systems (several.h); returns the exit status. */
int answer_command(enum command command, int argc, char **argv,
                   enum err_code (*run)(struct answer *answer, struct err *err));

#endif

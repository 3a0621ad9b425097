/* long_run.h - weeks of steps: failures and checkpoints. */
#ifndef SHARDPLAN_LONG_RUN_H
#define SHARDPLAN_LONG_RUN_H

#include "cost/goodput.h"
#include "job/step_time.h"

struct long_run {
    uint64_t checkpoint_bytes; /* that one node writes: its ranks' parameters and states, of which
                                  replicas share the writing */
    double checkpoint_s;       /* for which training stands still */
    struct goodput goodput;    /* at the best interval */
    double tokens_per_s;       /* of one GPU, over everything */
};

/* What a job whose step was timed makes of a long run on the machine, with the profile's "mtbf_s",
 * "restart_s" and "checkpoint_bytes_per_s". Errors as goodput_best. */
enum err_code long_run(const struct plan *plan, const struct machine *machine,
                       const struct step_time *step, struct long_run *out, struct err *err);

#endif

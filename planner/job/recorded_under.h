/* recorded_under.h - of what is planned, under which versions of PyTorch it was recorded.
 *
 * base/torch.h says what versions do otherwise; that is known of what was recorded under them. A
 * row here is something that was recorded under some of them alone: before the first of these it is
 * refused, or planned and said; after the last it is planned as the last does it, and said. What
 * has no row was recorded under all of them from TORCH_OLDEST to TORCH_NEWEST, in samples. */
#ifndef SHARDPLAN_RECORDED_UNDER_H
#define SHARDPLAN_RECORDED_UNDER_H

#include "job/job.h"

struct recorded_under {
    const char *what;                       /* "--compile": an option, or a word for it */
    uint32_t first, last;                   /* 2.x */
    bool (*is_used)(const struct job *job); /* NULL: not of a job's step */
    bool is_planned_before; /* what came before `first` is planned as that does it */
    const char *source;     /* of tests/data/truth */
};

/* ERR_UNSUPPORTED: the job uses what is not known of its version. */
enum err_code recorded_under_check(const struct job *job, struct err *err);

/* The i-th row that the job uses and whose versions its own is not among, though it is planned;
 * NULL: there are no more. Lent. */
const struct recorded_under *recorded_under_not(const struct job *job, uint32_t i);

/* The row of --start-up, which is no part of a step: NULL where it was recorded under the job's
 * version. Lent. */
const struct recorded_under *recorded_under_start_up(const struct job *job);

/* The version that is planned of a row in the place of `torch`, 2.x. */
uint32_t recorded_under_instead(const struct recorded_under *row, uint32_t torch);

#endif

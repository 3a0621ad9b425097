/* padding.h - what rows that do not share out evenly cost.
 *
 * fully_shard gives every rank ceil(d/N) rows of a parameter's dim 0. Of a mixture of experts,
 * whose dim 0 is experts, N may be more than there are: then ranks at the end hold nothing, and all
 * of them set aside a row, in the shard, in every gather and in every reduction. */
#ifndef SHARDPLAN_PADDING_H
#define SHARDPLAN_PADDING_H

#include "job/predict.h"
#include "settings/settings.h"

struct padding {
    uint32_t parameters;            /* that are padded */
    uint64_t bytes;                 /* of padding on all ranks of a group together, as stored */
    uint64_t parameter_bytes;       /* of all parameters */
    const struct plan_param *param; /* the one with the most: the plan's, lent */
    uint32_t ranks, idle;           /* that it is spread over, and that hold nothing of it */
    uint64_t columns_bytes;         /* of a device, with --placement columns; 0: it cannot be */
    bool columns_release;           /* ... only by giving cached segments back */
    struct err refusal;             /* and why */
};

/* Whether padding is more than a hundredth of the parameters' bytes; plans the same job by columns
 * then. */
bool padding_find(const struct settings *settings, const struct job *job,
                  const struct machine *machine, const struct prediction *prediction,
                  struct padding *out);

#endif

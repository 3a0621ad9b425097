/* saved_views.h - what views of gathered parameters cost.
 *
 * DeepSpeed's ZeRO-3 releases a parameter by putting another tensor in its place
 * (partition_parameters.py, free_param). A node that saved a view of it, as those of experts'
 * transposed matrices do, holds the memory until its backward. Checkpointed, blocks save none in
 * the first pass. What a context has, as bitsandbytes' of a weight in 4 bits, it keeps until the
 * node is deleted, with the loss, and checkpoints' nodes as well but for reentrant ones, whose
 * forward makes none. */
#ifndef SHARDPLAN_SAVED_VIEWS_H
#define SHARDPLAN_SAVED_VIEWS_H

#include "job/predict.h"
#include "settings/settings.h"

struct saved_views {
    uint64_t bytes;              /* of released parameters that nodes hold, most at once */
    bool until_loss_goes;        /* hold, by contexts: checkpoints have to be reentrant
                                    (reentrant_frees_gathered) */
    uint64_t checkpointed_bytes; /* of a device, with such checkpoints of all; 0: it cannot be */
    bool checkpointed_release;   /* ... only by giving cached segments back */
    struct err refusal;          /* and why */
};

/* Whether more than one parameter's bytes are held so, and not all blocks are checkpointed as it
 * takes to be without; plans the same job so then. Of a plan that was lowered, not read. */
bool saved_views_find(const struct settings *settings, const struct job *job,
                      const struct machine *machine, const struct prediction *prediction,
                      struct saved_views *out);

#endif

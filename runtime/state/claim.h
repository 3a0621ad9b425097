/* claim.h - before the first step: where a run is to save can be written to, by every rank, has
 * room, and no other run saves there, nor records where this one does. */
#ifndef SHARDPLAN_CLAIM_H
#define SHARDPLAN_CLAIM_H

#include "plan/plan.h"
#include "runtime/comm/comm.h"

struct claim; /* opaque */

struct claim_places {   /* NULL: none */
    const char *save;   /* the folder of a checkpoint; made if missing */
    const char *full;   /* the path of a full file */
    const char *output; /* the folder of traces; made if missing */
};

/* Collective, as checkpoint.h's. Holds the folders until claim_release, or until the process ends,
 * however it does. Of an output folder rank 0 alone knows: its trace is the run's, and others may
 * have disks of their own. ERR_IO: a place cannot be written to, or has too little room, or another
 * run has it. The caller owns *out. */
enum err_code claim_open(const struct plan *plan, struct comm *comm,
                         const struct claim_places *places, struct claim **out, struct err *err);
void claim_release(struct claim *claim); /* NULL is allowed */

#endif

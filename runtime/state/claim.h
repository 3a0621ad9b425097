/* claim.h - before the first step: where a run is to save can be written to, by every rank, has
 * room, and no other run saves there. */
#ifndef SHARDPLAN_CLAIM_H
#define SHARDPLAN_CLAIM_H

#include "plan/plan.h"
#include "runtime/comm/comm.h"

struct claim; /* opaque */

/* Collective, as checkpoint.h's. `dir`: of a checkpoint (NULL: none), made if missing; `full`: the
 * path of a full file (NULL: none). Holds the folder of the checkpoint until claim_release, or
 * until the process ends, however it does. ERR_IO: it cannot be written to, or has too little room,
 * or another run has it. The caller owns *out. */
enum err_code claim_open(const struct plan *plan, struct comm *comm, const char *dir,
                         const char *full, struct claim **out, struct err *err);
void claim_release(struct claim *claim); /* NULL is allowed */

#endif

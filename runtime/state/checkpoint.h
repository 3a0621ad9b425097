/* checkpoint.h - parameters and optimizer states of a run, in files that outlive its mesh.
 *
 *     DIR/index.json                           rank 0, last: what there is, and that it is whole
 *     DIR/shard-RRRRR-of-NNNNN.S.safetensors   rank R of the first replica: its parts, in save S
 *
 * The first replica is rank 0's group of those that parameters are spread over, as they are
 * updated; where every rank has all of them (DDP) it is rank 0 alone.
 *
 * A shard file has for each parameter the tensors NAME, NAME/exp_avg and NAME/exp_avg_sq (frozen
 * parameters have no states), and in its metadata the step and the first element of its part of
 * each parameter ("first/NAME"). Tensors are F32. The index has the save's name ("step-7") and the
 * hash (base/hash.h) of each file.
 *
 * Every function is collective: all ranks call it with the same arguments, see the same folder and
 * return the same verdict; where one rank failed the others say which and why. `execution` and
 * `plan` belong together; comm NULL: this is the only rank, or, for checkpoint_load and
 * checkpoint_load_full, one that needs no agreement with others. */
#ifndef SHARDPLAN_CHECKPOINT_H
#define SHARDPLAN_CHECKPOINT_H

#include "plan/plan.h"
#include "runtime/comm/comm.h"
#include "runtime/execution/execute.h"

/* Saves the state after `step` steps into `dir`, made if missing (its parent must exist). States
 * that the optimizer has not made yet are left out, which index.json says. An older checkpoint in
 * `dir` is the one that is there until every new file is complete on disk; then index.json,
 * renamed, makes the new one that, and files of others go. A failure up to then leaves no new file;
 * one save at a time (checkpoint_claim). */
enum err_code checkpoint_save(struct execution *execution, const struct plan *plan,
                              struct comm *comm, uint64_t step, const char *dir, struct err *err);

/* Loads from `dir` whatever mesh or strategy it was saved from; a parameter that is stored beside
 * what is updated is loaded in both places. All is checked before anything is
 * written; only a failure to read or write values after that leaves the execution half loaded.
 * States are needed where the plan has them, unless *step is 0: then they become zeros.
 * ERR_INVALID: torn, truncated, damaged or foreign (names the first parameter that differs), states
 * that are missing. ERR_IO: a file that is missing or cannot be read. */
enum err_code checkpoint_load(struct execution *execution, const struct plan *plan,
                              struct comm *comm, const char *dir, uint64_t *step, struct err *err);

/* Saves the whole parameters into one file, as other programs expect them. Rank 0 holds its own
 * rows of one parameter and a piece of bounded size of everyone's. */
enum err_code checkpoint_save_full(struct execution *execution, const struct plan *plan,
                                   struct comm *comm, const char *path, struct err *err);

/* Loads parameters from such a file (F32, BF16 or F16), which must have these and no others.
 * States and the step stay what they are. */
enum err_code checkpoint_load_full(struct execution *execution, const struct plan *plan,
                                   struct comm *comm, const char *path, struct err *err);

#endif

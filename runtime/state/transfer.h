/* transfer.h - one save or load of a checkpoint, for the files of this folder only.
 *
 * An operation is a row of stages. A stage is local to a rank; after it all ranks agree whether it
 * went well everywhere, and nobody begins the next one otherwise. */
#ifndef SHARDPLAN_TRANSFER_H
#define SHARDPLAN_TRANSFER_H

#include "runtime/state/checkpoint.h"
#include "runtime/state/safetensors.h"

#include <jansson.h>

#define CHECKPOINT_FORMAT "shardplan-checkpoint"
enum { CHECKPOINT_VERSION = 3, CHECKPOINT_STATES = 2, CHECKPOINT_SAVE_TEXT = 32 };

struct transfer { /* one call of checkpoint.h */
    struct execution *execution;
    const struct plan *plan;
    struct comm *comm;
    const char *dir;      /* or the full file's path */
    struct arena arena;   /* texts */
    uint32_t rank, ranks; /* of the group that updated pieces are spread over: those that save */
    uint32_t stride;      /* between them in the world */
    uint64_t step;
    char save[CHECKPOINT_SAVE_TEXT]; /* the name of the save, which its files have */
    uint64_t sum;                    /* of this rank's file */
    bool states;                     /* saved, or to be loaded */
    const char *temporary;           /* of this rank's file */
    const char *temporary_index;     /* on rank 0 */
    uint32_t file_ranks;             /* those that saved */
    uint64_t *sums;                  /* (file_ranks) of their files */
    struct placement *placed;        /* (params) how they did */
    struct safetensors **files;      /* (file_ranks) NULL: not opened */
    struct safetensors *full;        /* read instead of those */
    struct safetensors_writer *writer;
};

struct transfer transfer_begin(struct execution *execution, const struct plan *plan,
                               struct comm *comm, const char *dir);

typedef enum err_code transfer_stage(struct transfer *t, struct err *err);

/* Runs the stages (NULL behind the last) and ends the transfer. What was begun beside the files of
 * an older checkpoint is gone after a failure. */
enum err_code transfer_run(struct transfer *t, transfer_stage *const *stages, struct err *err);

/* ERR_OK if rc is so on every rank; the first failure otherwise. *flag becomes true where it is on
 * any rank. Nobody returns before everybody has called. */
enum err_code transfer_agree(struct comm *comm, enum err_code rc, bool *flag, struct err *err);

/* ERR_INVALID: the plan is for other ranks than these. ERR_UNSUPPORTED: its parameters are spread
 * over more groups than one. */
enum err_code transfer_check_world(const struct transfer *t, struct err *err);

/* This rank's part of a parameter as it is updated, and of its states; that of rank r of those that
 * save. */
struct part transfer_own_part(const struct transfer *t, uint32_t p);
struct part transfer_part_of(const struct transfer *t, uint32_t p, uint32_t r);

/* Room for the elements of a part, and one more: the caller frees it. */
float *part_room(const struct part *part);

/* What is saved or loaded of a parameter: from EXECUTION_PARAM to below this. */
int transfer_states_end(const struct transfer *t, const struct plan_param *param);

/* A state as PyTorch names it: EXECUTION_EXP_AVG is "exp_avg". */
const char *transfer_state_name(int state);

/* Texts of the transfer's arena, or of what lives as long. */
const char *transfer_tensor_name(struct transfer *t, const struct plan_param *param, int state);
const char *transfer_index_path(struct transfer *t);
const char *transfer_shard_path(struct transfer *t, uint32_t rank, uint32_t ranks);

struct safetensor transfer_tensor(const char *name, const struct shape *shape);
bool transfer_same_shape(const struct safetensor *a, const struct safetensor *b);
json_t *transfer_shape_json(const struct shape *shape); /* the caller's */

/* What was renamed or removed is so for good once the folder is on disk; a file system that cannot
 * say so has not failed. */
enum err_code transfer_sync_folder(struct transfer *t, const char *path, struct err *err);
enum err_code transfer_rename(const char *temporary, const char *path, struct err *err);

/* A stage of both loads (checkpoint_load.c): reads this rank's parts from the files that are open.
 */
transfer_stage transfer_restore;

#endif

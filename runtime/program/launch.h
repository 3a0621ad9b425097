/* launch.h - who started this process: mpirun, or a launcher that says so in the environment. */
#ifndef SHARDPLAN_LAUNCH_H
#define SHARDPLAN_LAUNCH_H

#include "runtime/comm/comm.h"

/* Joins the other ranks: over MPI when mpirun started this process; over TCP, as RANK, WORLD_SIZE,
 * MASTER_ADDR and MASTER_PORT say, when torchrun did, even under srun; over MPI when srun did, with
 * an MPI plugin; else over TCP by those variables, or by SLURM_PROCID, SLURM_NTASKS and the first
 * host of SLURM_STEP_NODELIST or MASTER_ADDR (srun). Over TCP ranks know each other by
 * SHARDPLAN_TOKEN, or else by the launcher's name of the job. Groups, time-out and ownership as
 * comm_open_mpi. */
enum err_code launch_open_comm(const struct comm_group *groups, uint32_t group_count,
                               double timeout_s, struct comm **out, struct err *err);

/* This process's number among those on its machine, as its launcher says; 0: it does not say. */
uint32_t launch_local_rank(void);

#endif

/* launch.c - see launch.h. */
#include "runtime/program/launch.h"

#include "base/number.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* PyTorch's own store listens at MASTER_PORT; ours takes the next one. */
enum { PORT_ABOVE_MASTER = 1, DEFAULT_PORT = 29500 };

/* A number below `bound` from the environment; false: the variable is not set. */
static enum err_code read_number(const char *name, unsigned long bound, uint32_t *out, bool *set,
                                 struct err *err)
{
    const char *text = getenv(name);
    uint64_t value;
    *set = text != NULL;
    if (!text)
        return ERR_OK;
    if (!number_integer(text, &value) || value >= bound)
        return err_set(err, ERR_INVALID, "%s=%s: a number below %lu is expected", name, text,
                       bound);
    *out = (uint32_t)value;
    return ERR_OK;
}

/* "node[03-06,9]" is node03, "a,b" is a. */
static void first_host(const char *list, char *out, size_t size)
{
    const size_t prefix = strcspn(list, "[,");
    const char *number = list[prefix] == '[' ? list + prefix + 1 : "";
    snprintf(out, size, "%.*s%.*s", (int)prefix, list, (int)strcspn(number, "-,]"), number);
}

/* What the launcher says of the job to all its ranks, unless the user says it. */
static const char *job_token(char *out, size_t size)
{
    static const char *const names[] = {COMM_TOKEN_VARIABLE, "TORCHELASTIC_RUN_ID", "SLURM_JOB_ID"};
    out[0] = '\0';
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *text = getenv(names[i]);
        const char *step = i == 2 ? getenv("SLURM_STEP_ID") : NULL;
        if (!text)
            continue;
        snprintf(out, size, "%s%s%s", text, step ? "." : "", step ? step : "");
        break;
    }
    return out;
}

static enum err_code open_tcp(uint32_t rank, uint32_t ranks, const struct comm_group *groups,
                              uint32_t group_count, double timeout_s, struct comm **out,
                              struct err *err)
{
    char host[256] = "";
    uint32_t port = DEFAULT_PORT;
    bool set;
    const char *master = getenv("MASTER_ADDR"), *nodes = getenv("SLURM_STEP_NODELIST");
    if (!nodes)
        nodes = getenv("SLURM_JOB_NODELIST");
    if (master)
        snprintf(host, sizeof host, "%s", master);
    else if (nodes)
        first_host(nodes, host, sizeof host);
    TRY(read_number("MASTER_PORT", 65535, &port, &set, err));
    if (!host[0])
        return err_set(err, ERR_INVALID,
                       "rank %u of %u: MASTER_ADDR says not where rank 0 is; mpirun needs none",
                       rank, ranks);
    char token[COMM_TOKEN_BYTES + 1];
    const struct comm_meeting at = {host, (uint16_t)(port + PORT_ABOVE_MASTER),
                                    job_token(token, sizeof token)};
    return comm_open_tcp(&at, rank, ranks, groups, group_count, timeout_s, out, err);
}

/* Whether torchrun, or what sets the same variables, started this process: itself perhaps by srun,
 * whose variables of MPI then say how many torchruns there are. */
static bool is_by_torchrun(void)
{
    return getenv("TORCHELASTIC_RUN_ID") || (getenv("RANK") && getenv("WORLD_SIZE") &&
                                             getenv("LOCAL_RANK") && getenv("MASTER_ADDR"));
}

static bool is_by_mpi(void)
{
    if (getenv("OMPI_COMM_WORLD_SIZE"))
        return true;
    return !is_by_torchrun() && (getenv("PMIX_RANK") || getenv("PMI_RANK"));
}

enum err_code launch_open_comm(const struct comm_group *groups, uint32_t group_count,
                               double timeout_s, struct comm **out, struct err *err)
{
    static const char *const pairs[][2] = {{"RANK", "WORLD_SIZE"},
                                           {"SLURM_PROCID", "SLURM_NTASKS"}};
    *out = NULL;
    if (is_by_mpi())
        return comm_open_mpi(groups, group_count, timeout_s, out, err);
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        uint32_t rank = 0, ranks = 0;
        bool rank_set, ranks_set;
        TRY(read_number(pairs[i][0], UINT32_MAX, &rank, &rank_set, err));
        TRY(read_number(pairs[i][1], UINT32_MAX, &ranks, &ranks_set, err));
        if (rank_set && ranks_set && ranks > 1)
            return open_tcp(rank, ranks, groups, group_count, timeout_s, out, err);
    }
    return comm_open_mpi(groups, group_count, timeout_s, out, err);
}

uint32_t launch_local_rank(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "LOCAL_RANK", "SLURM_LOCALID",
                                        "MPI_LOCALRANKID"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *text = getenv(names[i]);
        uint64_t rank;
        if (text && number_integer(text, &rank) && rank < UINT32_MAX)
            return (uint32_t)rank;
    }
    return 0;
}

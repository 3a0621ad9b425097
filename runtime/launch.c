#include "runtime/launch.h"
#include <stdlib.h>
enum err_code launch_open_comm(const struct comm_group *groups, uint32_t group_count,
                               double timeout_s, struct comm **out, struct err *err)
{
    return comm_open_mpi(groups, group_count, timeout_s, out, err);
}

uint32_t launch_local_rank(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "LOCAL_RANK", "SLURM_LOCALID",
                                        "MPI_LOCALRANKID"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *text = getenv(names[i]);
        if (text)
            return (uint32_t)strtoul(text, NULL, 10);
    }
    return 0;
}

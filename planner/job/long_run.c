/* long_run.c - see long_run.h. */
#include "job/long_run.h"

#include <string.h>

/* How many ranks hold the same shards: the mesh's replicas, of which each writes a part. */
static uint32_t replicas(const struct plan *plan)
{
    for (uint32_t i = 0; i < plan->group_count; i++)
        if (strcmp(plan->groups[i].name, "replicate") == 0)
            return plan->groups[i].ranks;
    return 1;
}

/* Sharded parameters and optimizer states of one rank: what a sharded checkpoint holds of it. */
static uint64_t state_bytes(const struct plan *plan)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < plan->param_count; i++) {
        const struct plan_param *p = &plan->params[i];
        const uint32_t buffers[] = {p->shard_buffer, p->state_buffer[0], p->state_buffer[1]};
        for (int b = 0; b < 3; b++)
            if (buffers[b] != PLACE_NONE)
                bytes += plan->buffers[buffers[b]].bytes;
    }
    return bytes;
}

enum err_code long_run(const struct plan *plan, const struct machine *machine,
                       const struct step_time *step, struct long_run *out, struct err *err)
{
    const struct profile *p = &machine->profile;
    const uint32_t local =
        plan->world < machine->gpus_per_node ? plan->world : machine->gpus_per_node;
    double slowest = 1;
    *out = (struct long_run){.checkpoint_bytes = state_bytes(plan) * local / replicas(plan)};
    TRY(straggler_factor(JITTER_NORMAL, profile_value(p, PROFILE_JITTER), plan->world, &slowest,
                         err));
    out->step_s = step->timeline.step_s * slowest;
    out->checkpoint_s = (double)out->checkpoint_bytes / profile_value(p, PROFILE_STORE);
    const struct failures failures = {
        .gpu_mtbf_s = profile_value(p, PROFILE_MTBF),
        .gpus = plan->world,
        .checkpoint_s = out->checkpoint_s,
        .restart_s = profile_value(p, PROFILE_RESTART),
    };
    TRY(goodput_best(&failures, &out->goodput, err));
    out->tokens_per_s = step->tokens_per_s / slowest * out->goodput.useful;
    return ERR_OK;
}

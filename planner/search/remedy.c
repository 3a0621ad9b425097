/* remedy.c - see remedy.h.
 *
 * The order is the cost model: what a change takes from throughput, from first principles.
 * Resharding a unit costs one more all-gather; a fused optimizer nothing; reducing in bf16 halves
 * the reduce-scatter and costs precision; selective checkpointing recomputes about half of the
 * matmuls that are not attention; full checkpointing recomputes the forward (4/3 of the compute);
 * halving the micro-batch doubles the collectives a token; more GPUs cost GPUs; offload moves
 * every parameter over PCIe twice a step. */
#include "search/remedy.h"

#include <stdio.h>
#include <string.h>

struct change {
    bool (*apply)(struct job *job, char *text, size_t size); /* false: changes nothing here */
    const char *cost;
};

static bool reshard(struct job *job, char *text, size_t size)
{
    if (job->strategy.reshard == RESHARD_ALWAYS)
        return false;
    job->strategy.reshard = RESHARD_ALWAYS;
    snprintf(text, size, "--reshard always");
    return true;
}

static bool fused(struct job *job, char *text, size_t size)
{
    if (job->strategy.optimizer != OPTIMIZER_ADAMW || job->strategy.impl == IMPL_FUSED)
        return false;
    job->strategy.impl = IMPL_FUSED;
    snprintf(text, size, "--optimizer-impl fused");
    return true;
}

static bool sync_each(struct job *job, char *text, size_t size)
{
    if (job->strategy.accumulate == 1 || job->strategy.accumulate_sync)
        return false;
    job->strategy.accumulate_sync = true;
    snprintf(text, size, "--accumulate-sync each");
    return true;
}

static bool selective(struct job *job, char *text, size_t size)
{
    if (job->tape.checkpointing != CHECKPOINTING_NONE)
        return false;
    job->tape.checkpointing = CHECKPOINTING_SELECTIVE;
    snprintf(text, size, "--checkpointing selective");
    return true;
}

static bool full(struct job *job, char *text, size_t size)
{
    if (job->tape.checkpointing == CHECKPOINTING_FULL)
        return false;
    job->tape.checkpointing = CHECKPOINTING_FULL;
    snprintf(text, size, "--checkpointing full");
    return true;
}

static bool divide_batch(struct job *job, uint32_t by, char *text, size_t size)
{
    if (job->model.batch % by != 0)
        return false;
    job->model.batch /= by;
    job->strategy.accumulate *= by;
    snprintf(text, size, "--micro-batch %u --accumulate %u", job->model.batch,
             job->strategy.accumulate);
    return true;
}

static bool half_batch(struct job *job, char *text, size_t size)
{
    job->strategy.accumulate_sync = true; /* no-sync would hold unsharded gradients instead */
    if (!divide_batch(job, 2, text, size))
        return false;
    strncat(text, " --accumulate-sync each", size - strlen(text) - 1);
    return true;
}

static bool quarter_batch(struct job *job, char *text, size_t size)
{
    job->strategy.accumulate_sync = true;
    if (!divide_batch(job, 4, text, size))
        return false;
    strncat(text, " --accumulate-sync each", size - strlen(text) - 1);
    return true;
}

static bool more_gpus(struct job *job, uint32_t times, char *text, size_t size)
{
    if ((uint64_t)job->strategy.world * times > 1000000)
        return false;
    job->strategy.world *= times;
    snprintf(text, size, "--gpus %u", job->strategy.world);
    return true;
}

static bool twice_gpus(struct job *job, char *text, size_t size)
{
    return more_gpus(job, 2, text, size);
}

static bool four_times_gpus(struct job *job, char *text, size_t size)
{
    return more_gpus(job, 4, text, size);
}

static bool eight_times_gpus(struct job *job, char *text, size_t size)
{
    return more_gpus(job, 8, text, size);
}

static bool offload(struct job *job, char *text, size_t size)
{
    if (job->strategy.offload)
        return false;
    job->strategy.offload = true;
    snprintf(text, size, "--offload cpu");
    return true;
}

static const struct change changes[] = {
    {fused, "no time: no list of square roots in the optimizer step"},
    {reshard, "one more all-gather of the units that kept their parameters"},
    {sync_each, "a reduce-scatter after every micro-batch"},
    {selective, "recomputes every second matmul and what is cheap"},
    {full, "recomputes every block: a third more compute"},
    {half_batch, "twice the gathers a token"},
    {quarter_batch, "four times the gathers a token"},
    {twice_gpus, "twice the GPUs"},
    {four_times_gpus, "four times the GPUs"},
    {eight_times_gpus, "eight times the GPUs"},
    {offload, "parameters, gradients and optimizer on the CPU"},
};
enum { CHANGES = sizeof changes / sizeof changes[0] };

static bool try_job(const struct job *job, const struct machine *machine, struct remedy *remedy)
{
    struct prediction prediction;
    struct err err = {0};
    if (predict(job, machine, &prediction, &err) != ERR_OK)
        return false;
    remedy->device_bytes = prediction.device_bytes;
    const bool fits = prediction.fits;
    prediction_free(&prediction);
    return fits;
}

uint32_t remedies_find(const struct job *job, const struct machine *machine,
                       struct remedy found[REMEDIES])
{
    uint32_t count = 0;
    for (int i = 0; i < CHANGES && count < REMEDIES; i++) {
        struct job changed = *job;
        struct remedy *remedy = &found[count];
        if (!changes[i].apply(&changed, remedy->change, sizeof remedy->change) ||
            !try_job(&changed, machine, remedy))
            continue;
        snprintf(remedy->cost, sizeof remedy->cost, "%s", changes[i].cost);
        count++;
    }
    for (int j = 1; j < CHANGES && count < REMEDIES; j++)
        for (int i = 0; i < j && count < REMEDIES; i++) {
            struct job changed = *job;
            struct remedy *remedy = &found[count];
            char first[48], second[48];
            if (!changes[i].apply(&changed, first, sizeof first) ||
                !changes[j].apply(&changed, second, sizeof second) ||
                !try_job(&changed, machine, remedy))
                continue;
            snprintf(remedy->change, sizeof remedy->change, "%.46s %.46s", first, second);
            snprintf(remedy->cost, sizeof remedy->cost, "both: %s", changes[j].cost);
            count++;
        }
    return count;
}

/* offloading.c - see offloading.h. */
#include "job/offloading.h"

#define OPTION "--activation-offloading"

bool offloading_is_used(const struct job *job)
{
    return job->tape.saved_on != SAVED_ON_DEVICE;
}

/* What no recording has of it. */
static const char *not_planned_with(const struct job *job)
{
    const struct tape_options tape = job_tape(job);
    if (job->model.code == CODE_TORCHTITAN || job->model.code == CODE_NANOGPT)
        return "--code torchtitan or nanogpt, which TRL trains no models of (--code hf)";
    if (job->config.arch == ARCH_T5)
        return "an encoder-decoder, which TRL trains no models of";
    if (tape.compiled || tape.compiled_loss)
        return "--compile";
    if (job->model.float8)
        return "--float8";
    if (tape.checkpointing == CHECKPOINTING_SELECTIVE)
        return "--checkpointing selective";
    if (tape.checkpointing != CHECKPOINTING_NONE && tape.reentrant)
        return "--checkpoint-reentrant on";
    if (job->strategy.replicate > 1 || job->strategy.experts_replicate)
        return "--replicate, --experts-replicate";
    return NULL;
}

enum err_code offloading_check(const struct job *job, struct err *err)
{
    const enum system_kind system = job->strategy.system;
    if (!offloading_is_used(job))
        return ERR_OK;
    if (system != SYSTEM_FSDP2 && system != SYSTEM_DDP && system != SYSTEM_SINGLE)
        return err_set(err, ERR_UNSUPPORTED,
                       OPTION ": planned of fsdp2, ddp and one GPU alone, not of %s",
                       system_name(system));
    const char *what = not_planned_with(job);
    if (what)
        return err_set(err, ERR_UNSUPPORTED, OPTION " with %s: not planned; " OPTION " off", what);
    return ERR_OK;
}

enum err_code offloading_check_graph(const struct job *job, const struct graph *graph,
                                     struct err *err)
{
    const bool checkpoints = job->tape.checkpointing != CHECKPOINTING_NONE;
    if (offloading_is_used(job) && checkpoints && graph->handed_count)
        return err_set(err, ERR_UNSUPPORTED,
                       OPTION " with --checkpointing, of keys and values that blocks hand on to "
                              "others: not planned; " OPTION " off");
    return ERR_OK;
}

/* small_jobs.c - see small_jobs.h. */
#include "tests/support/small_jobs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

struct job small_job(enum arch arch)
{
    const struct model_config config = {
        .arch = arch,
        .hidden = 48,
        .layers = 3,
        .heads = 4,
        .kv_heads = arch == ARCH_LLAMA ? 2 : 4,
        .head_dim = 12,
        .ffn = 100,
        .vocab = 131,
        .max_positions = 64,
        .tied = arch == ARCH_GPT2,
        .dropout = arch == ARCH_GPT2 ? 0.1F : 0,
        .norm_eps = 1e-5F,
        .rope = {.theta = 1e4F, .attention_factor = 1},
        .activation = arch == ARCH_LLAMA  ? "silu"
                      : arch == ARCH_GPT2 ? "gelu_new"
                                          : "relu",
    };
    struct job job;
    job_defaults(&job, &config);
    job.model.batch = 2;
    job.model.seq = 20;
    job.strategy.world = 4;
    return job;
}

struct job small_job_of_kind(int kind)
{
    struct job job = small_job(kind % 3 == 0   ? ARCH_LLAMA
                               : kind % 3 == 1 ? ARCH_GPT2
                                               : ARCH_FSDP2_TUTORIAL);
    struct strategy *s = &job.strategy;
    switch (kind) {
    case 1:
        s->replicate = 2; /* HSDP */
        break;
    case 2:
        s->reshard = RESHARD_INT;
        s->reshard_ranks = 2;
        break;
    case 3:
        s->accumulate = 3;
        break;
    case 4:
        s->accumulate = 2;
        s->accumulate_sync = true;
        break;
    case 5:
        job.tape.checkpointing = CHECKPOINTING_FULL;
        break;
    case 6:
        job.tape.checkpointing = CHECKPOINTING_SELECTIVE;
        s->max_norm = 1.0F;
        break;
    case 7:
        s->world = 1;
        break;
    case 8:
        s->offload = true;
        break;
    case 9:
        s->units = UNITS_TORCHTITAN;
        s->forward_prefetch = s->backward_prefetch = 2;
        break;
    case 10:
        s->optimizer = OPTIMIZER_SGD;
        s->world = 7;
        s->rank = 6;
        break;
    case 11:
        s->impl = IMPL_FUSED;
        s->reshard = RESHARD_NEVER;
        break;
    case 12:
        s->impl = IMPL_LOOP;
        s->replicate = 2;
        s->accumulate = 2;
        break;
    case 13:
        job.model.frozen = "*layers.0*,*h.0*,*layer.0*,*block.0*,*blocks.0*";
        break;
    default:
        break;
    }
    return job;
}

struct plan *small_plan_of(const struct job *job)
{
    struct err err = {0};
    struct plan *plan = NULL;
    if (job_plan(job, &plan, NULL, &err) != ERR_OK)
        fail_msg("%s", err.text);
    return plan;
}

struct plan *small_plan(void)
{
    const struct job job = small_job(ARCH_LLAMA);
    return small_plan_of(&job);
}

/* random_jobs.c - see random_jobs.h. */
#include "tests/support/random_jobs.h"

static uint32_t below(gsl_rng *rng, uint32_t n)
{
    return (uint32_t)gsl_rng_uniform_int(rng, n);
}

static uint32_t one_of(gsl_rng *rng, uint32_t count, const uint32_t *values)
{
    return values[below(rng, count)];
}

static void random_model(gsl_rng *rng, struct model_config *c)
{
    static const enum arch archs[] = {ARCH_LLAMA, ARCH_GPT2, ARCH_FSDP2_TUTORIAL};
    static const char *const activations[] = {"silu", "gelu_new", "relu"};
    const uint32_t kind = below(rng, 3);
    *c = (struct model_config){
        .arch = archs[kind],
        .activation = activations[kind],
        .norm_eps = 1e-5F,
        .rope = {.theta = 1e4F, .attention_factor = 1},
    };
    c->layers = 1 + below(rng, 5);
    c->kv_heads = 1 + below(rng, 3);
    c->heads = c->kv_heads * (1 + below(rng, 3));
    c->head_dim = 2 * (1 + below(rng, 12));
    if (c->arch != ARCH_LLAMA)
        c->kv_heads = c->heads;
    c->hidden = c->heads * c->head_dim;
    c->ffn = 1 + below(rng, 200);
    c->vocab = 2 + below(rng, 300);
    c->max_positions = 64;
    c->tied = c->arch == ARCH_GPT2 && below(rng, 2);
}

static void random_strategy(gsl_rng *rng, struct strategy *s)
{
    static const uint32_t worlds[] = {1, 2, 3, 4, 5, 6, 8, 12, 16, 64};
    static const enum dtype dtypes[] = {DTYPE_FP32, DTYPE_BF16, DTYPE_FP16};
    s->world = one_of(rng, 10, worlds);
    s->replicate = s->world % 2 == 0 && below(rng, 4) == 0 ? 2 : 1;
    s->rank = below(rng, s->world);
    s->units = below(rng, 3) == 0 ? UNITS_TORCHTITAN : UNITS_BLOCKS;
    s->per_unit = 1 + below(rng, 3);
    s->reshard = (enum reshard_kind)below(rng, 3);
    const uint32_t shard = s->world / s->replicate;
    if (below(rng, 4) == 0 && shard % 2 == 0) {
        s->reshard = RESHARD_INT;
        s->reshard_ranks = 2;
    }
    s->forward_prefetch = below(rng, 4) == 0 ? below(rng, 4) : 0;
    s->backward_prefetch = below(rng, 4) == 0 ? below(rng, 4) : 0;
    s->store = below(rng, 4) == 0 ? DTYPE_BF16 : DTYPE_FP32;
    s->compute = dtypes[below(rng, 3)];
    s->reduce = dtypes[below(rng, 3)];
    s->accumulate = 1 + below(rng, 3);
    s->accumulate_sync = below(rng, 2);
    s->optimizer = below(rng, 5) == 0 ? OPTIMIZER_SGD : OPTIMIZER_ADAMW;
    s->impl = (enum optimizer_impl)below(rng, 3);
    s->max_norm = below(rng, 2) ? 1.0F : 0.0F;
    s->offload = below(rng, 8) == 0;
    if (!s->offload && s->impl == IMPL_LOOP && s->max_norm > 0) /* of what is drawn already */
        s->optimizer = s->accumulate_sync ? OPTIMIZER_AO_8BIT : OPTIMIZER_AO_4BIT;
}

struct job random_job(gsl_rng *rng)
{
    static const char *const frozen[] = {NULL, NULL, NULL, "*.0.*", "*norm*,*ln_*,*Norm*"};
    struct model_config config;
    struct job job;
    random_model(rng, &config);
    job_defaults(&job, &config);
    job.model.batch = 1 + below(rng, 3);
    job.model.seq = 1 + below(rng, 40);
    job.model.frozen = frozen[below(rng, 5)];
    job.tape.checkpointing = (enum checkpointing)below(rng, 3);
    job.tape.checkpointed = (enum checkpointed_blocks)below(rng, 4);
    job.tape.checkpointed_number = job.tape.checkpointed ? 1 + below(rng, 4) : 0;
    if (job.tape.checkpointed == CHECKPOINTED_SHARE)
        job.tape.checkpointed_number *= 25;
    random_strategy(rng, &job.strategy);
    job.model.compute = job.strategy.compute;
    return job;
}

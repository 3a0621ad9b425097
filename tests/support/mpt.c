/* mpt.c - see mpt.h. */
#include "tests/support/mpt.h"

#include <string.h>

/* MPT is GPT-2 as nanoGPT writes it: tied embeddings, learned positions, biases. */
struct job mpt_job(const struct csv *csv, size_t row)
{
    struct job job;
    const uint32_t hidden = (uint32_t)csv_number(csv, row, "d_model");
    const uint32_t heads = (uint32_t)csv_number(csv, row, "n_heads");
    const uint32_t seq = (uint32_t)csv_number(csv, row, "seq_len_tokens");
    const struct model_config config = {
        .arch = ARCH_GPT2,
        .hidden = hidden,
        .layers = (uint32_t)csv_number(csv, row, "n_layers"),
        .heads = heads,
        .kv_heads = heads,
        .head_dim = hidden / heads,
        .ffn = 4 * hidden,
        .vocab = (uint32_t)csv_number(csv, row, "vocab_size"),
        .max_positions = seq,
        .tied = true,
        .attention_bias = true,
        .mlp_bias = true,
        .activation = "gelu_new",
        .norm_eps = 1e-5F,
    };
    job_defaults(&job, &config);
    job.model.batch = (uint32_t)csv_number(csv, row, "micro_batch_size_seqs");
    job.model.seq = seq;
    job.strategy.world = (uint32_t)csv_number(csv, row, "n_gpus");
    job.strategy.accumulate = (uint32_t)csv_number(csv, row, "grad_accum");
    job.strategy.accumulate_sync = true; /* Composer does not enter no_sync with FSDP */
    job.strategy.max_norm = 1;
    job.model.loss = CROSS_ENTROPY_FUSED;
    if (strcmp(csv_text(csv, row, "sharding_strategy"), "SHARD_GRAD_OP") == 0)
        job.strategy.reshard = RESHARD_NEVER;
    if (strcmp(csv_text(csv, row, "mp_mode"), "PURE") == 0)
        job.strategy.reduce = DTYPE_BF16;
    if (strcmp(csv_text(csv, row, "activation_checkpointing"), "True") == 0)
        job.tape.checkpointing = CHECKPOINTING_FULL;
    return job;
}

struct job mpt_timed_job(const struct csv *csv, size_t row)
{
    struct job job = mpt_job(csv, row);
    job.model.loss = CROSS_ENTROPY_EAGER;
    return job;
}

const char *mpt_gpu(const struct csv *csv, size_t row)
{
    const char *gpu = csv_text(csv, row, "gpu");
    return strcmp(gpu, "a100_40gb") == 0   ? "a100-sxm-40gb"
           : strcmp(gpu, "a100_80gb") == 0 ? "a100-sxm-80gb"
                                           : "h100-sxm";
}

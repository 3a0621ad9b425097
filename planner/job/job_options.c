/* job_options.c - what a job is before anything is chosen, and what its tape is told; see job.h. */
#include "families/families.h"
#include "job/job.h"

void job_defaults(struct job *job, const struct model_config *config)
{
    *job = (struct job){
        .config = *config,
        .model = {.batch = 1,
                  .seq = 1024,
                  .code = model_default_code(config->arch),
                  .compute = DTYPE_BF16,
                  .bits4 = {.compute = DTYPE_BF16, .storage = DTYPE_UINT8},
                  .grpo = {.iterations = 1},
                  .torch = TORCH_WHOLE},
        .strategy = {.world = 8,
                     .replicate = 1,
                     .per_unit = 1,
                     .store = DTYPE_FP32,
                     .compute = DTYPE_BF16,
                     .names_compute = true,
                     .reduce = DTYPE_FP32,
                     .accumulate = 1,
                     .reduce_buffers = 1},
    };
}

struct tape_options job_tape(const struct job *job)
{
    struct tape_options options = job->tape;
    options.compiled_loss = job->model.loss == CROSS_ENTROPY_COMPILED;
    system_tape(&job->strategy, &options);
    return options;
}

/* job.c - see job.h. */
#include "job/job.h"

void job_defaults(struct job *job, const struct model_config *config)
{
    *job = (struct job){
        .config = *config,
        .model = {.batch = 1,
                  .seq = 1024,
                  .code = model_default_code(config->arch),
                  .compute = DTYPE_BF16},
        .strategy = {.world = 8,
                     .replicate = 1,
                     .per_unit = 1,
                     .store = DTYPE_FP32,
                     .compute = DTYPE_BF16,
                     .reduce = DTYPE_FP32,
                     .accumulate = 1,
                     .reduce_buffers = 1},
    };
}

struct tape_options job_tape(const struct job *job)
{
    struct tape_options options = job->tape;
    system_tape(job->strategy.system, &options);
    return options;
}

enum err_code job_plan(const struct job *job, struct plan **out, uint64_t *parameters,
                       struct err *err)
{
    struct graph *graph = NULL;
    *out = NULL;
    if (!system_is_planned(job->strategy.system))
        return err_set(err, ERR_UNSUPPORTED, "%s cannot be planned by this version",
                       system_name(job->strategy.system));
    TRY(model_build(&job->config, &job->model, &graph, err));
    if (parameters)
        *parameters = graph_parameter_elements(graph);
    const struct tape_options options = job_tape(job);
    struct stream *stream = tape_run(graph, &options);
    const enum err_code rc = lower_plan(graph, stream, &job->strategy, out, err);
    stream_free(stream);
    graph_free(graph);
    return rc;
}

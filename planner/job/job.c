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

enum err_code job_graph(const struct job *job, struct graph **out, struct err *err)
{
    struct model_job model = job->model;
    model.views = system_has_views(job->strategy.system);
    TRY(model_build(&job->config, &model, out, err));
    system_prepare(&job->strategy, *out);
    return ERR_OK;
}

/* No tensor of a job that can be had is larger: an exbibyte, a thousand times the memory of the
 * largest clusters. What is below leaves room for sums of them in 64 bits. */
#define LARGEST_BYTES (1ULL << 60)

static bool is_too_large(const struct shape *shape, enum dtype dtype)
{
    uint64_t bytes = dtype_bytes(dtype);
    for (uint32_t i = 0; i < shape->rank; i++)
        if (__builtin_mul_overflow(bytes, shape->dim[i], &bytes) || bytes > LARGEST_BYTES)
            return true;
    return false;
}

static enum err_code check_sizes(const struct graph *graph, const struct stream *stream,
                                 struct err *err)
{
    for (uint32_t p = 0; p < graph->param_count; p++)
        if (is_too_large(&graph->params[p].shape, DTYPE_FP32))
            return err_set(err, ERR_INVALID, "parameter %s takes more than an exbibyte",
                           graph->params[p].name);
    for (uint32_t b = 0; b < stream->buffer_count; b++)
        if (is_too_large(&stream->buffers[b].shape, (enum dtype)stream->buffers[b].dtype))
            return err_set(err, ERR_INVALID,
                           "a tensor of this job takes more than an exbibyte: fewer sequences "
                           "(--micro-batch), or shorter ones (--seq)");
    return ERR_OK;
}

static enum err_code check_trained(const struct job *job, const struct graph *graph,
                                   struct err *err)
{
    for (uint32_t p = 0; p < graph->param_count; p++)
        if (graph->params[p].trainable)
            return ERR_OK;
    return err_set(err, ERR_INVALID, "--freeze %s: no parameter is left to train",
                   job->model.frozen ? job->model.frozen : "");
}

enum err_code job_plan(const struct job *job, struct plan **out, uint64_t *parameters,
                       struct err *err)
{
    struct graph *graph = NULL;
    *out = NULL;
    if (!system_is_planned(job->strategy.system))
        return err_set(err, ERR_UNSUPPORTED, "%s cannot be planned by this version",
                       system_name(job->strategy.system));
    TRY(job_graph(job, &graph, err));
    if (parameters)
        *parameters = graph_parameter_elements(graph);
    enum err_code rc = check_trained(job, graph, err);
    struct stream *stream = NULL;
    if (rc == ERR_OK) {
        const struct tape_options options = job_tape(job);
        stream = tape_run(graph, &options);
        rc = check_sizes(graph, stream, err);
    }
    if (rc == ERR_OK)
        rc = lower_plan(graph, stream, &job->strategy, out, err);
    stream_free(stream);
    graph_free(graph);
    return rc;
}

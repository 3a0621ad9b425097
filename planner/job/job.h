/* job.h - everything a user chose, and the way from there to a plan.
 *
 *     config.json --model_find--> model_config --model_build--> graph --tape_run--> stream
 *                                                     stream + strategy --lower_*--> plan
 *     recording --recording_stream--> stream */
#ifndef SHARDPLAN_JOB_H
#define SHARDPLAN_JOB_H

#include "graph/tape.h"
#include "lower/lower.h"
#include "model/model.h"

struct job {
    struct model_config config;
    struct model_job model;
    struct tape_options tape;
    struct strategy strategy;
};

/* The defaults of every option that has one, for a model: fp32 store and reduce, bf16 compute,
 * AdamW foreach, one micro-batch, fully_shard on blocks and root. */
void job_defaults(struct job *job, const struct model_config *config);

/* The options of a job's tape: what the user chose, and what the strategy's system does to it. */
struct tape_options job_tape(const struct job *job);

/* The model as it is built under the job's strategy. Jobs that have it and their tape in common,
 * and where parameters are frozen their units, have one stream. */
struct model_job job_model(const struct job *job);

/* What is known not to go together before anything is built: ERR_INVALID, ERR_UNSUPPORTED. */
enum err_code job_check(const struct job *job, struct err *err);

/* The graph of a job's forward pass, as the strategy's system makes it of the model. Errors are
 * model_build's; ERR_UNSUPPORTED: units within blocks that are compiled. The caller
 * owns *out: graph_free. */
enum err_code job_graph(const struct job *job, struct graph **out, struct err *err);

/* The same with its stream, of which plans are made. ERR_INVALID: nothing is left to train, or a
 * tensor is larger than any there is. ERR_UNSUPPORTED: no lowering for the strategy's system, or
 * none of what was recorded. The caller owns both: graph_free, stream_free. */
enum err_code job_stream(const struct job *job, struct graph **graph, struct stream **stream,
                         struct err *err);

/* Builds the program of one step. `parameters`, if not NULL, receives the element count of all
 * parameters. ERR_UNSUPPORTED: no lowering for the strategy's system. The caller owns *out:
 * plan_free. */
enum err_code job_plan(const struct job *job, struct plan **out, uint64_t *parameters,
                       struct err *err);

#endif

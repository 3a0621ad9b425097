/* main.c - shardrun: one rank of a run. `shardplan run` starts as many as a plan asks for.
 *
 * Every rank reads the same plan.json, checks it, and plays the rank that MPI gave it. Rank 0
 * prints. The first rank that fails prints one message with its rank and ends the whole run. */
#include "plan/plan_json.h"
#include "plan/plan_rank.h"
#include "runtime/checkpoint.h"
#include "runtime/options.h"
#include "runtime/record.h"
#include "runtime/status.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_BAD_INPUT = 2, EXIT_FAILED = 3 };

struct run {
    struct run_options options;
    struct plan *plan;
    struct comm *comm;
    struct device *device;
    struct data *data;
    struct execution *execution;
    bool terminal;       /* steps overwrite one line */
    bool started;        /* the plan was accepted: what fails now is a failure of the run */
    uint64_t first_step; /* 0, or where a checkpoint continues */
};

static bool is_speaker(const struct run *run)
{
    return !run->comm || comm_rank(run->comm) == 0;
}

/* FNV-1a of a file; 0 when it cannot be read (the reader has said so by then). */
static uint64_t file_hash(const char *path)
{
    uint64_t hash = 14695981039346656037ULL;
    FILE *file = fopen(path, "r");
    if (!file)
        return 0;
    for (int c; (c = getc(file)) != EOF;)
        hash = (hash ^ (uint64_t)(unsigned char)c) * 1099511628211ULL;
    fclose(file);
    return hash;
}

/* Ranks on several machines may read different files under one name. */
static enum err_code check_same_plan(const struct run *run, struct err *err)
{
    const uint64_t own = file_hash(run->options.plan);
    uint64_t first = own;
    TRY(comm_broadcast(run->comm, &first, sizeof first, 0, err));
    if (own != first)
        return err_set(err, ERR_INVALID, "%s is not the plan that rank 0 runs", run->options.plan);
    return ERR_OK;
}

static enum err_code open_comm(struct run *run, struct err *err)
{
    struct comm_group groups[4];
    if (run->plan->world == 1)
        return ERR_OK;
    for (uint32_t i = 0; i < run->plan->group_count; i++)
        groups[i] = (struct comm_group){run->plan->groups[i].ranks, run->plan->groups[i].stride};
    TRY(comm_open_mpi(groups, run->plan->group_count, run->options.timeout_s, &run->comm, err));
    if (comm_ranks(run->comm) != run->plan->world)
        return err_set(err, ERR_INVALID, "the plan is for %u ranks, %u were started",
                       run->plan->world, comm_ranks(run->comm));
    TRY(check_same_plan(run, err));
    return plan_for_rank(run->plan, comm_rank(run->comm), err);
}

static uint32_t vocabulary(const struct plan *plan)
{
    return plan->params[0].shape.dim[0]; /* the token embedding comes first in every model we run */
}

static enum err_code open_all(struct run *run, struct err *err)
{
    const struct run_options *o = &run->options;
    TRY(plan_read_json(o->plan, &run->plan, err));
    TRY(plan_verify(run->plan, err));
    run->started = true;
    TRY(open_comm(run, err));
    TRY(data_open(o->data, o->data_kind, vocabulary(run->plan), &run->data, err));
    TRY(device_open_host(o->memory_bytes, run->plan->event_count, run->comm, &run->device, err));
    const struct run_settings settings = {
        .lr = o->lr,
        .beta1 = o->beta1,
        .beta2 = o->beta2,
        .eps = o->eps,
        .weight_decay = o->weight_decay,
        .rope_theta = o->rope_theta,
    };
    TRY(execution_open(run->plan, run->device, run->comm, run->data, &settings, &run->execution,
                       err));
    if (o->load_full)
        TRY(checkpoint_load_full(run->execution, run->plan, run->comm, o->load_full, err));
    if (o->load)
        TRY(checkpoint_load(run->execution, run->plan, run->comm, o->load, &run->first_step, err));
    return ERR_OK;
}

static void print_step(const struct run *run, uint32_t step, const struct step_result *result)
{
    const struct buffer *tokens = &run->plan->buffers[run->plan->input_buffers[0]];
    const double count = (double)shape_elements(&tokens->shape) * run->plan->world *
                         execution_micro_batches(run->execution);
    if (!is_speaker(run) || run->options.quiet)
        return;
    if (run->options.json)
        printf("{\"step\": %u, \"loss\": %.9g, \"grad_norm\": %.9g, \"seconds\": %.6f}\n", step,
               result->loss, result->grad_norm, result->seconds);
    else
        printf("%sstep %4u/%u  loss %8.5f  grad norm %8.5f  %7.0f tokens/s%s",
               run->terminal ? "\r" : "", step + 1, run->options.steps, result->loss,
               result->grad_norm, count / result->seconds,
               run->terminal && step + 1 < run->options.steps ? "\x1b[K" : "\n");
    fflush(stdout);
}

static void print_param_norms(const struct run *run)
{
    const double *norms = execution_param_norms(run->execution);
    for (uint32_t p = 0; p < run->plan->param_count && is_speaker(run); p++)
        printf("{\"parameter\": \"%s\", \"grad_norm\": %.9g}\n", run->plan->params[p].name,
               norms[p]);
}

static enum err_code write_trace(const struct run *run, uint32_t step, struct err *err)
{
    char path[4096];
    if (!run->options.out_dir)
        return ERR_OK;
    if (run->plan->rank == 0)
        snprintf(path, sizeof path, "%s/trace.json", run->options.out_dir);
    else
        snprintf(path, sizeof path, "%s/trace-%u.json", run->options.out_dir, run->plan->rank);
    return record_write(run->plan, run->execution, step, path, err);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The trace is written anew now and then, so that a run that dies leaves its last one. */
static enum err_code train(struct run *run, struct err *err)
{
    const double seconds_between_traces = 2.0;
    double written = 0.0;
    for (uint32_t step = (uint32_t)run->first_step; step < run->options.steps; step++) {
        struct step_result result;
        TRY(execution_step(run->execution, step, &result, err));
        print_step(run, step, &result);
        if (!isfinite(result.loss))
            return err_set(err, ERR_DEVICE, "step %u: the loss is %f", step, result.loss);
        if (step == run->first_step && run->options.param_norms)
            print_param_norms(run);
        if (step + 1 == run->options.steps || now() - written > seconds_between_traces) {
            TRY(write_trace(run, step, err));
            written = now();
        }
    }
    return ERR_OK;
}

static enum err_code save(const struct run *run, struct err *err)
{
    const struct run_options *o = &run->options;
    if (o->save)
        TRY(checkpoint_save(run->execution, run->plan, run->comm, o->steps, o->save, err));
    if (o->save_full)
        TRY(checkpoint_save_full(run->execution, run->plan, run->comm, o->save_full, err));
    return ERR_OK;
}

/* One rank's failure is everybody's: the others would wait for it in a collective. */
static int fail(struct run *run, const struct err *err)
{
    const uint32_t rank = run->comm ? comm_rank(run->comm) : 0;
    const bool bad_input =
        err->code == ERR_UNSUPPORTED || (err->code == ERR_INVALID && !run->started);
    const int status = bad_input ? EXIT_BAD_INPUT : EXIT_FAILED;
    char message[1200];
    snprintf(message, sizeof message, "shardrun: rank %u: %s", rank, err->text);
    if (run->comm)
        comm_abort(run->comm, status, message);
    fprintf(stderr, "%s\n", message);
    return status;
}

int main(int argc, char **argv)
{
    struct run run = {.plan = NULL};
    struct err err = {0};
    signal(SIGXFSZ, SIG_IGN); /* a file that grows too large is an error, not a death */
    run_options_parse(argc, argv, &run.options);
    const char *terminal = getenv(TERMINAL_VARIABLE); /* under mpirun, ours is a pipe */
    run.terminal = terminal ? terminal[0] == '1' : isatty(STDOUT_FILENO) != 0;
    enum err_code rc = open_all(&run, &err);
    if (rc == ERR_OK)
        rc = train(&run, &err);
    if (rc == ERR_OK)
        rc = save(&run, &err);
    const int status = rc == ERR_OK ? 0 : fail(&run, &err);
    execution_close(run.execution);
    device_close(run.device);
    data_close(run.data);
    comm_close(run.comm);
    plan_free(run.plan);
    return status;
}

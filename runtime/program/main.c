/* main.c - shardrun: one rank of a run. `shardplan run` starts as many as a plan asks for.
 *
 * Every rank reads the same plan.json, checks it, and plays the rank that MPI gave it. Rank 0
 * prints. The first rank that fails prints one message with its rank and ends the whole run. */
#include "base/file.h"
#include "base/hash.h"
#include "base/standard_output.h"
#include "plan/plan_json.h"
#include "plan/plan_rank.h"
#include "runtime/device/clock.h"
#include "runtime/execution/record.h"
#include "runtime/execution/status.h"
#include "runtime/host/blas_environment.h"
#include "runtime/host/host_device.h"
#include "runtime/loader/cuda_load.h"
#include "runtime/program/launch.h"
#include "runtime/program/rehearsal.h"
#include "runtime/state/checkpoint.h"
#include "runtime/state/claim.h"
#include "settings/settings_parse.h"

#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_BAD_INPUT = 2, EXIT_FAILED = 3 };

/* Address space of a host rank's arena; pages are taken when they are touched. */
#define DEFAULT_HOST_BYTES ((uint64_t)64 << 30)

enum { SNAPSHOT_ACTIONS = 100000 }; /* of former steps, as many as torchtitan has PyTorch keep */

struct run {
    struct settings settings;
    struct plan *plan;
    struct comm *comm;
    struct device *device;
    struct data *data;
    struct execution *execution;
    struct claim *claim;          /* on what it writes */
    struct plan_json_extra extra; /* of its plan */
    bool waits;                   /* kernels compute nothing */
    struct err lacking;           /* ... for want of these; an empty text: it was asked for */
    double *wait_s;      /* (instructions) what is not there in a rehearsal takes; NULL: no time */
    bool terminal;       /* steps overwrite one line */
    bool started;        /* the plan was accepted: what fails now is a failure of the run */
    uint64_t first_step; /* 0, or where a checkpoint continues */
    struct snapshot *snapshot;      /* of memory; NULL: there is no folder for it */
    struct snapshot_frames *frames; /* likewise */
    double *step_s; /* (step_count) of steps that were not recorded, without the first */
    uint32_t step_count, step_cap;
};

static bool is_speaker(const struct run *run)
{
    return !run->comm || comm_rank(run->comm) == 0;
}

/* 0 when it cannot be read (the reader has said so by then). */
static uint64_t file_hash(const char *path)
{
    struct hash hash;
    size_t length;
    char *text = file_read(path, &length, NULL);
    if (!text)
        return 0;
    hash_begin(&hash);
    hash_add(&hash, text, length);
    free(text);
    return hash_end(&hash);
}

/* Ranks on several machines may read different files under one name. */
static enum err_code check_same_plan(const struct run *run, struct err *err)
{
    const uint64_t own = file_hash(run->settings.plan);
    uint64_t first = own;
    TRY(comm_broadcast(run->comm, &first, sizeof first, 0, err));
    if (own != first)
        return err_set(err, ERR_INVALID, "%s is not the plan that rank 0 runs", run->settings.plan);
    return ERR_OK;
}

/* The caller frees them. */
static struct comm_group *list_groups(const struct plan *plan)
{
    struct comm_group *groups = xmalloc((plan->group_count + 1) * sizeof *groups);
    for (uint32_t i = 0; i < plan->group_count; i++)
        groups[i] = (struct comm_group){plan->groups[i].ranks, plan->groups[i].stride};
    return groups;
}

static enum err_code open_comm(struct run *run, struct err *err)
{
    if (run->settings.run.rehearse_world) {
        if (run->settings.run.rehearse_world != run->plan->world)
            return err_set(err, ERR_UNSUPPORTED, "--rehearse %u/%u: the plan is for %u ranks",
                           run->settings.run.rehearse_rank, run->settings.run.rehearse_world,
                           run->plan->world);
        return plan_read_rank(run->settings.plan, run->settings.run.rehearse_rank, &run->plan,
                              &run->extra, err);
    }
    if (run->plan->world == 1)
        return ERR_OK;
    struct comm_group *groups = list_groups(run->plan);
    const enum err_code rc = launch_open_comm(groups, run->plan->group_count,
                                              run->settings.run.timeout_s, &run->comm, err);
    free(groups);
    TRY(rc);
    if (comm_ranks(run->comm) != run->plan->world)
        return err_set(err, ERR_INVALID, "the plan is for %u ranks, %u were started",
                       run->plan->world, comm_ranks(run->comm));
    TRY(check_same_plan(run, err));
    return plan_read_rank(run->settings.plan, comm_rank(run->comm), &run->plan, &run->extra, err);
}

/* 1 where no input is tokens: execution_open then says so. */
static uint32_t vocabulary(const struct plan *plan)
{
    const struct plan_input *tokens = plan_input_of(plan, INPUT_TOKENS);
    return tokens ? tokens->values.vocab : 1;
}

static enum err_code open_device(struct run *run, struct err *err)
{
    const struct run_options *o = &run->settings.run;
    const struct lane_list lanes = {run->plan->lanes, run->plan->lane_count};
    if (!run->settings.cuda)
        return device_open_host(o->memory_bytes ? o->memory_bytes : DEFAULT_HOST_BYTES,
                                run->plan->event_count, lanes, run->comm, &run->device, err);
    struct comm_group *groups = list_groups(run->plan);
    const struct cuda_settings settings = {
        .memory_bytes = o->memory_bytes,
        .events = run->plan->event_count,
        .lanes = lanes,
        .comm = run->comm,
        .rank = run->plan->rank,
        .ranks = run->comm ? comm_ranks(run->comm) : 1,
        .local_rank = run->comm ? launch_local_rank() : 0,
        .group_count = run->plan->group_count,
        .groups = groups,
        .timeout_s = o->timeout_s,
        .share_gpu = o->share_gpu,
        .register_buffers = o->register_buffers,
        .attention = o->attention,
        .deterministic = o->deterministic,
        .products = o->products,
    };
    const enum err_code rc = device_open_cuda(&settings, &run->device, err);
    free(groups);
    return rc;
}

static enum err_code open_all(struct run *run, struct err *err)
{
    const struct run_options *o = &run->settings.run;
    TRY(plan_read_json_extra(run->settings.plan, &run->plan, &run->extra, err));
    TRY(plan_check_whole(run->plan, run->settings.plan, err));
    run->started = true;
    TRY(rehearsal_choose(run->plan, &run->settings, &run->waits, &run->lacking, err));
    TRY(open_comm(run, err));
    TRY(data_open(o->data, data_kind_of(o->token_bytes), vocabulary(run->plan), &run->data, err));
    const struct claim_places places = {o->save, o->save_full, run->settings.output};
    TRY(claim_open(run->plan, run->comm, &places, &run->claim, err));
    TRY(open_device(run, err));
    if (o->rehearse_world || run->waits)
        TRY(rehearsal_times(run->plan, run->extra.time, o->predicted, &run->wait_s, err));
    if (run->settings.output) {
        run->snapshot = snapshot_new();
        run->frames = snapshot_frames_new(run->plan, run->snapshot);
    }
    const struct run_settings settings = {
        .lr = o->lr,
        .beta1 = o->beta1,
        .beta2 = o->beta2,
        .eps = o->eps,
        .weight_decay = o->weight_decay,
        .wait_s = run->wait_s,
        .waits = run->waits,
        .fuse = o->fuse,
        .frames = run->frames,
        .allocator.on_action = run->snapshot ? snapshot_on_action : NULL,
        .allocator.action_context = run->snapshot,
    };
    TRY(execution_open(run->plan, run->device, run->comm, run->data, &settings, &run->execution,
                       err));
    if (o->load_full)
        TRY(checkpoint_load_full(run->execution, run->plan, run->comm, o->load_full, err));
    if (o->load)
        TRY(checkpoint_load(run->execution, run->plan, run->comm, o->load, &run->first_step, err));
    if (run->first_step > o->steps)
        return err_set(err, ERR_INVALID, "--steps %u: %s is after step %llu already", o->steps,
                       o->load, (unsigned long long)run->first_step);
    return ERR_OK;
}

/* What must not be taken for a measurement, or a loss, says so. */
static void announce(const struct run *run)
{
    const struct run_options *o = &run->settings.run;
    const char *const time = run->wait_s ? "take the predicted time"
                                         : "take no time, as neither plan nor --predicted has any";
    if (!is_speaker(run) || run->settings.quiet)
        return;
    if (run->waits && run->lacking.text[0])
        fprintf(stderr, "note: %s\n", run->lacking.text);
    if (o->rehearse_world && run->waits)
        fprintf(stderr,
                "note: rehearsal of rank %u of %u: memory and copies are real; kernels compute "
                "nothing and, as collectives, which are local copies, %s\n",
                o->rehearse_rank, o->rehearse_world, time);
    else if (o->rehearse_world)
        fprintf(
            stderr,
            "note: rehearsal of rank %u of %u: memory, compute and copies are real; collectives "
            "are local copies that %s; the loss means nothing\n",
            o->rehearse_rank, o->rehearse_world, time);
    else if (run->waits)
        fprintf(stderr,
                "note: rehearsal of %u rank%s: memory, copies and collectives are real; kernels "
                "compute nothing and %s\n",
                run->plan->world, run->plan->world == 1 ? "" : "s", time);
    if (o->share_gpu)
        fprintf(stderr, "note: --share-gpu: ranks take turns on a GPU; times mean nothing\n");
}

/* Of all ranks in a step; 0: the inputs are no tokens. */
static double tokens_of_step(const struct run *run)
{
    const struct plan_input *tokens = plan_input_of(run->plan, INPUT_TOKENS);
    return tokens ? (double)shape_elements(&run->plan->buffers[tokens->buffer].shape) *
                        run->plan->world * execution_micro_batches(run->execution)
                  : 0;
}

/* Of what nothing computed there is no loss. */
static void print_values(const struct run *run, const struct step_result *result)
{
    if (run->waits)
        return;
    if (run->settings.json)
        printf("\"loss\": %.9g, \"grad_norm\": %.9g, ", result->loss, result->grad_norm);
    else
        printf("loss %8.5f  grad norm %8.5f  ", result->loss, result->grad_norm);
}

/* A rehearsal may be of a model that reads no tokens. */
static void print_speed(const struct run *run, double seconds)
{
    const double tokens = tokens_of_step(run);
    if (run->waits)
        printf("%10.3f ms", 1e3 * seconds);
    if (tokens > 0)
        printf("%s%7.0f tokens/s", run->waits ? "  " : "", tokens / seconds);
}

/* `recorded`: the step was timed piece by piece, which on a GPU makes it slower. */
static void print_step(const struct run *run, uint32_t step, const struct step_result *result,
                       bool recorded)
{
    if (!is_speaker(run) || run->settings.quiet)
        return;
    if (run->settings.json) {
        printf("{\"step\": %u, ", step);
        print_values(run, result);
        printf("\"seconds\": %.6f%s}\n", result->seconds, recorded ? ", \"recorded\": true" : "");
    } else {
        printf("%sstep %4u/%u  ", run->terminal ? "\r" : "", step + 1, run->settings.run.steps);
        print_values(run, result);
        print_speed(run, result->seconds);
        printf("%s%s", recorded ? ", recorded" : "",
               run->terminal && step + 1 < run->settings.run.steps ? "\x1b[K" : "\n");
    }
    fflush(stdout);
}

static void print_param_norms(const struct run *run)
{
    const double *norms = execution_param_norms(run->execution);
    for (uint32_t p = 0; p < run->plan->param_count && is_speaker(run); p++) {
        json_t *name = json_string(run->plan->params[p].name); /* which a plan.json may have */
        char *quoted = json_dumps(name, JSON_ENCODE_ANY);
        printf("{\"parameter\": %s, \"grad_norm\": %.9g}\n", quoted, norms[p]);
        free(quoted);
        json_decref(name);
    }
}

static void note_seconds(struct run *run, double seconds)
{
    ARRAY_GROW(run->step_s, run->step_count, run->step_cap);
    run->step_s[run->step_count++] = seconds;
}

static struct run_steps steps_of(const struct run *run)
{
    double *copy = xmalloc((run->step_count + 1) * sizeof *copy);
    for (uint32_t i = 0; i < run->step_count; i++)
        copy[i] = run->step_s[i];
    const struct run_steps steps = run_steps_of(copy, run->step_count);
    free(copy);
    return steps;
}

static enum err_code write_trace(const struct run *run, uint32_t step, struct err *err)
{
    char path[4096];
    if (!run->settings.output)
        return ERR_OK;
    if (run->plan->rank == 0)
        snprintf(path, sizeof path, "%s/trace.json", run->settings.output);
    else
        snprintf(path, sizeof path, "%s/trace-%u.json", run->settings.output, run->plan->rank);
    const struct record_about about = {
        .device = run->device->ops->name,
        .workspace_bytes = run->device->workspace_bytes,
        .attention = run->device->attention,
        .rehearsal = run->settings.run.rehearse_world > 0,
        .waits = run->waits,
        .shared_gpu = run->settings.run.share_gpu,
        .steps = steps_of(run),
    };
    return record_write(run->plan, run->execution, &about, step, path, err);
}

/* What PyTorch's memory viewer opens: what the allocator did last, by the instructions' names. */
static enum err_code write_snapshot(const struct run *run, struct err *err)
{
    char path[4096];
    if (!run->snapshot)
        return ERR_OK;
    if (run->plan->rank == 0)
        snprintf(path, sizeof path, "%s/snapshot.pickle", run->settings.output);
    else
        snprintf(path, sizeof path, "%s/snapshot-%u.pickle", run->settings.output, run->plan->rank);
    return snapshot_write(run->snapshot, execution_memory(run->execution), path, err);
}

/* A step, and, where memory ran out, what was held then. */
static enum err_code one_step(const struct run *run, uint32_t step, struct step_result *result,
                              struct err *err)
{
    if (run->snapshot)
        snapshot_forget(run->snapshot, SNAPSHOT_ACTIONS);
    const enum err_code rc = execution_step(run->execution, step, result, err);
    struct err lost = {0}; /* the first failure is the one to tell */
    if (rc == ERR_NOMEM)
        write_snapshot(run, &lost);
    return rc;
}

/* The trace is written anew now and then, so that a run that dies leaves its last one. Only the
 * steps that it is of are recorded, never two in a row but at the end: speeds are those of the
 * others. */
static enum err_code train(struct run *run, struct err *err)
{
    const double seconds_between_traces = 2.0;
    double written = clock_now_s();
    bool recorded = false;
    for (uint32_t step = (uint32_t)run->first_step; step < run->settings.run.steps; step++) {
        struct step_result result;
        const bool due = !recorded && clock_now_s() - written > seconds_between_traces;
        recorded = run->settings.output && (step + 1 == run->settings.run.steps || due);
        execution_record(run->execution, recorded);
        TRY(one_step(run, step, &result, err));
        print_step(run, step, &result, recorded);
        if (!recorded && step > run->first_step)
            note_seconds(run, result.seconds);
        if (!isfinite(result.loss) && !run->waits &&
            !run->settings.run.rehearse_world) /* there it means nothing */
            return err_set(err, ERR_DEVICE, "step %u: the loss is %f", step, result.loss);
        if (step == run->first_step && run->settings.run.param_norms)
            print_param_norms(run);
        if (recorded) {
            TRY(write_trace(run, step, err));
            written = clock_now_s();
        }
    }
    return write_snapshot(run, err);
}

static enum err_code save(const struct run *run, struct err *err)
{
    const struct run_options *o = &run->settings.run;
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
    claim_release(run->claim);
    run->claim = NULL;
    if (run->comm)
        comm_abort(run->comm, status, message);
    fprintf(stderr, "%s\n", message);
    return status;
}

/* Begins anew where OpenBLAS was loaded otherwise than it should, before anything has happened.
 * Where that fails it is slower, and nothing else. */
static void begin_with_blas(char **argv)
{
    char self[4096];
    const ssize_t length =
        blas_environment() ? readlink("/proc/self/exe", self, sizeof self - 1) : -1;
    if (length <= 0)
        return;
    self[length] = '\0';
    execv(self, argv); /* by its path: its name is what ps shows */
}

int main(int argc, char **argv)
{
    struct run run = {.plan = NULL};
    struct err err = {0};
    begin_with_blas(argv);
    standard_output_check_at_exit();
    json_set_alloc_funcs(xmalloc, free); /* half a document is none */
    signal(SIGXFSZ, SIG_IGN);            /* a file that grows too large is an error, not a death */
    settings_parse(COMMAND_RANK, argc, argv, &run.settings);
    const char *terminal = getenv(TERMINAL_VARIABLE); /* under mpirun, ours is a pipe */
    run.terminal = terminal ? terminal[0] == '1' : isatty(STDOUT_FILENO) != 0;
    enum err_code rc = open_all(&run, &err);
    if (rc == ERR_OK)
        announce(&run);
    if (rc == ERR_OK)
        rc = train(&run, &err);
    if (rc == ERR_OK)
        rc = save(&run, &err);
    const int status = rc == ERR_OK ? 0 : fail(&run, &err);
    claim_release(run.claim);
    execution_close(run.execution);
    snapshot_frames_free(run.frames);
    snapshot_free(run.snapshot);
    device_close(run.device);
    data_close(run.data);
    comm_close(run.comm);
    plan_free(run.plan);
    plan_json_extra_free(&run.extra);
    free(run.wait_s);
    free(run.step_s);
    return status;
}

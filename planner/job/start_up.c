/* start_up.c - see start_up.h. */
#include "job/start_up.h"

#include "cost/cost.h"
#include "job/start_up_parts.h"

struct seconds {
    double copies, collectives;
};

/* A state dict is walked by a host that waits for every tensor: one thing after the other. */
static enum err_code time_of(const struct plan *program, const struct machine *machine,
                             struct seconds *out, struct err *err)
{
    struct costs costs = {.kernels = NULL};
    *out = (struct seconds){0, 0};
    TRY(costs_of_plan(program, &machine->profile, machine->gpus_per_node, &costs, err));
    for (uint32_t i = 0; i < program->instruction_count; i++) {
        const struct plan_instruction *in = &program->instructions[i];
        if (!plan_op_is_kernel((enum plan_op)in->op))
            continue;
        const struct cost *cost = &costs.kernels[in->arg - costs.first];
        *(plan_op_is_collective((enum plan_op)in->op) ? &out->collectives : &out->copies) +=
            cost->device_s + cost->host_s;
    }
    costs_free(&costs);
    return ERR_OK;
}

static uint64_t resident_bytes(const struct plan *program, bool host)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < program->buffer_count; i++)
        if (program->buffers[i].resident && (program->buffers[i].pool == LANE_HOST) == host)
            bytes += program->buffers[i].bytes;
    return bytes;
}

void start_up_memory(const struct start_up_job *job, enum start_up_way way, bool first,
                     struct memory *out)
{
    const struct memory_options sums = {.without_allocator = true};
    struct plan *program = start_up_program(job, way, first);
    memory_replay(program, &sums, NULL, NULL, out, NULL); /* without an allocator it cannot fail */
    /* peaks are those of allocs: who makes none has what is there */
    const uint64_t device = resident_bytes(program, false), host = resident_bytes(program, true);
    out->device.bytes = out->device.bytes > device ? out->device.bytes : device;
    out->host.bytes = out->host.bytes > host ? out->host.bytes : host;
    plan_free(program);
}

static uint32_t ranks_on_node(const struct plan *plan, const struct machine *machine)
{
    return plan->world < machine->gpus_per_node ? plan->world : machine->gpus_per_node;
}

/* What storage reads or writes: by this rank, or by the first one where others do it alone. */
static void count_files(const struct start_up_job *job, const struct start_up_method *method,
                        const struct machine *machine, struct start_up_row *row)
{
    if (!method->files)
        return;
    for (uint32_t rank = 0; rank < job->plan->world; rank++) {
        const uint64_t bytes = method->files(job, method->way, rank);
        row->node_bytes += rank < ranks_on_node(job->plan, machine) ? bytes : 0;
        row->bytes += bytes;
        if (rank == 0 || (rank == job->plan->rank && bytes))
            row->rank_bytes = bytes;
    }
}

/* What the device must have; where the allocator's segments are too many, it gives cached ones back
 * before it gives up. */
static enum err_code place(const struct plan *program, uint64_t outside,
                           const struct machine *machine, struct start_up_row *row, struct err *err)
{
    const uint64_t capacity = profile_bytes(&machine->profile, PROFILE_CAPACITY);
    struct memory_options options = {.allocator = machine_memory(machine).allocator};
    struct memory memory;
    TRY(memory_replay(program, &options, NULL, NULL, &memory, err));
    row->device_bytes = outside + (memory.out_of_memory ? row->gpu_bytes : memory.reserved_bytes);
    row->fits_gpu = !memory.out_of_memory && row->device_bytes <= capacity;
    if (row->fits_gpu || memory.out_of_memory || outside >= capacity)
        return ERR_OK;
    options.allocator.capacity_bytes = capacity - outside;
    TRY(memory_replay(program, &options, NULL, NULL, &memory, err));
    row->fits_gpu = !memory.out_of_memory;
    return ERR_OK;
}

/* DeepSpeed's stages 1 and 2 make the flat vector where there is room for it. */
static bool has_no_room(const struct start_up_job *job, uint64_t outside,
                        const struct machine *machine)
{
    const uint64_t capacity = profile_bytes(&machine->profile, PROFILE_CAPACITY);
    uint64_t bytes = outside;
    for (uint32_t i = 0; i < job->plan->param_count; i++)
        bytes += 2 * shape_bytes(&job->plan->params[i].shape, job->strategy->compute);
    return bytes > capacity;
}

static enum err_code make_row(const struct prediction *prediction, const struct start_up_job *job,
                              const struct start_up_method *method, const struct machine *machine,
                              struct start_up_row *row, struct err *err)
{
    const struct plan *plan = job->plan;
    const enum start_up_way way = method->way;
    const double store = profile_value(&machine->profile, PROFILE_STORE);
    struct memory first, other;
    struct seconds seconds;
    row->title = method->title;
    start_up_memory(job, way, true, &first);
    start_up_memory(job, way, false, &other);

    row->gpu_bytes = (plan->rank == 0 ? &first : &other)->device.bytes;
    struct plan *own = start_up_program(job, way, plan->rank == 0);
    row->resident_bytes = resident_bytes(own, false);
    enum err_code rc = place(own, prediction->outside_bytes, machine, row, err);
    plan_free(own);
    TRY(rc);
    struct plan *rank0 = start_up_program(job, way, true);
    rc = time_of(rank0, machine, &seconds, err);
    plan_free(rank0);
    TRY(rc);

    row->host_rank0_bytes = first.host.bytes;
    row->host_other_bytes = other.host.bytes;
    const uint32_t others =
        profile_host_ranks(&machine->profile, plan->world, machine->gpus_per_node) - 1;
    const uint64_t there = profile_bytes(&machine->profile, PROFILE_HOST_CAPACITY);
    row->host_node_bytes = first.host.bytes + other.host.bytes * others;
    row->host_needed_bytes = first.host_held_bytes + other.host_held_bytes * others;
    row->host_capacity_bytes = there;
    row->fits_host = !there || row->host_needed_bytes <= there;
    count_files(job, method, machine, row);
    const double files_s = (double)row->node_bytes / store;
    row->seconds = seconds.copies + seconds.collectives + files_s;
    row->blocking_s = way == START_UP_ASYNC ? seconds.copies : row->seconds;
    return ERR_OK;
}

/* What no recording says. */
static enum err_code check(const struct job *job, const struct plan *plan, struct err *err)
{
    const struct strategy *s = &job->strategy;
    const struct plan_piece *store = plan->param_count ? plan_piece(plan, 0, PIECE_STORE) : NULL;
    const bool whole = store && store->placement.kind == PLACEMENT_WHOLE;
    const char *with = s->offload && s->system == SYSTEM_FSDP1 && whole
                           ? "with --offload cpu where fsdp1 shards nothing"
                       : job->model.bits4.kind ? "with --load-in-4bit"
                       : job->model.bits8      ? "with --load-in-8bit"
                       : s->ignore             ? "with --ignore"
                       : s->experts_replicate  ? "with --experts-replicate"
                       : s->columns            ? "for parameters sharded by columns"
                       : s->zero_redundancy    ? "with ZeroRedundancyOptimizer"
                       : s->optimizer > OPTIMIZER_SGD
                           ? "with optimizers of bitsandbytes and torchao"
                       : s->system == SYSTEM_ZERO1 && s->grad_accum_fp32
                           ? "with --grad-accum-dtype fp32 under zero1"
                       : s->system == SYSTEM_ZERO2 && s->grad_accum_fp32 && s->zero.optimizer.on
                           ? "with --grad-accum-dtype fp32 and offload_optimizer under zero2"
                           : NULL;
    return with ? err_set(err, ERR_UNSUPPORTED,
                          "--start-up is not planned %s by this version: no recording says what "
                          "happens then",
                          with)
                : ERR_OK;
}

/* The plan less another model's parameters, which are the last ones, and its units: what loading it
 * takes is not planned. */
static struct plan own_part(const struct plan *plan)
{
    struct plan own = *plan;
    own.param_count = plan_own_params(plan);
    if (own.param_count == plan->param_count)
        return own;
    own.unit_count = plan->params[own.param_count].unit;
    for (uint32_t p = 0; p < own.param_count; p++) /* as frozen ones of DDP's are */
        if (plan->params[p].unit >= own.unit_count)
            own.unit_count = plan->params[p].unit + 1;
    return own;
}

enum err_code start_up(const struct prediction *prediction, const struct job *job,
                       const struct machine *machine, struct start_up *out, struct err *err)
{
    const struct plan own = own_part(prediction->plan);
    TRY(check(job, &own, err));
    struct start_up_job of = {
        .plan = &own,
        .strategy = &job->strategy,
        .tied = !job->config.recording && job->config.tied,
    };
    of.flatten_on_host = has_no_room(&of, prediction->outside_bytes, machine);
    *out = (struct start_up){.rows = {{.title = NULL}}};
    for (int way = 0; way < START_UP_WAYS; way++) {
        const struct start_up_method *method = start_up_method(&of, (enum start_up_way)way);
        if (method)
            TRY(make_row(prediction, &of, method, machine, &out->rows[way], err));
    }
    return ERR_OK;
}

const char *start_up_name(enum start_up_way way)
{
    static const char *const names[START_UP_WAYS] = {
#define X(name, text) text,
        START_UP_MAP(X)
#undef X
    };
    return names[way];
}

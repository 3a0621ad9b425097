/* start_up.c - see start_up.h. */
#include "job/start_up.h"

#include "cost/cost.h"
#include "job/start_up_program.h"

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

void start_up_memory(const struct plan *plan, bool tied, enum start_up_way way, bool first,
                     struct memory *out)
{
    const struct memory_options sums = {.without_allocator = true};
    struct plan *program = start_up_program(plan, tied, way, first);
    memory_replay(program, &sums, NULL, NULL, out, NULL); /* without an allocator it cannot fail */
    plan_free(program);
}

static uint64_t resident_bytes(const struct plan *program)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < program->buffer_count; i++)
        if (program->buffers[i].resident && program->buffers[i].pool != LANE_HOST)
            bytes += program->buffers[i].bytes;
    return bytes;
}

/* Ranks that hold the same shards and share the writing of them. */
static uint32_t replicas_of(const struct plan *plan)
{
    return plan_group_ranks(plan, plan_group_of_role(plan, GROUP_REPLICATE));
}

static uint32_t ranks_on_node(const struct plan *plan, const struct machine *machine)
{
    return plan->world < machine->gpus_per_node ? plan->world : machine->gpus_per_node;
}

/* What storage reads or writes. A full state dict is one file of rank 0, read or written; shards
 * are each rank's. */
static void count_files(const struct plan *plan, bool tied, enum start_up_way way,
                        const struct machine *machine, struct start_up_row *row)
{
    const struct start_up_bytes whole = start_up_whole(plan, tied);
    const uint32_t replicas = replicas_of(plan);
    if (way == START_UP_BROADCAST || way == START_UP_FULL || way == START_UP_FULL_OPTIMIZER) {
        row->bytes = whole.parameters + (way == START_UP_FULL_OPTIMIZER ? whole.states : 0);
        row->rank_bytes = row->node_bytes = row->bytes;
    } else if (way == START_UP_LOAD || way == START_UP_RESHARD) {
        const uint32_t saved_by = start_up_saved_by(plan, way),
                       ranks = ranks_on_node(plan, machine);
        for (uint32_t rank = 0; rank < plan->world; rank++) {
            const struct start_up_bytes reads = start_up_reads(plan, tied, rank, saved_by);
            const uint64_t bytes = reads.parameters + reads.states;
            row->rank_bytes = rank == plan->rank ? bytes : row->rank_bytes;
            row->node_bytes += rank < ranks ? bytes : 0;
            row->bytes += bytes;
        }
    } else if (start_up_is_checkpoint(way)) {
        for (uint32_t rank = 0; rank < ranks_on_node(plan, machine); rank++) {
            const struct start_up_bytes own = start_up_shards(plan, tied, rank);
            row->node_bytes += own.parameters + own.states;
        }
        const struct start_up_bytes own = start_up_shards(plan, tied, plan->rank);
        row->rank_bytes = (own.parameters + own.states) / replicas;
        row->node_bytes /= replicas;
        row->bytes = whole.parameters + whole.states;
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
    row->fits = !memory.out_of_memory && row->device_bytes <= capacity;
    if (row->fits || memory.out_of_memory || outside >= capacity)
        return ERR_OK;
    options.allocator.capacity_bytes = capacity - outside;
    TRY(memory_replay(program, &options, NULL, NULL, &memory, err));
    row->fits = !memory.out_of_memory;
    return ERR_OK;
}

static enum err_code make_row(const struct prediction *prediction, bool tied, enum start_up_way way,
                              const struct machine *machine, struct start_up_row *row,
                              struct err *err)
{
    const struct plan *plan = prediction->plan;
    const double store = profile_value(&machine->profile, PROFILE_STORE);
    struct memory first, other;
    struct seconds seconds;
    *row = (struct start_up_row){.gpu_bytes = 0};
    start_up_memory(plan, tied, way, true, &first);
    start_up_memory(plan, tied, way, false, &other);

    row->gpu_bytes = (plan->rank == 0 ? &first : &other)->device.bytes;
    struct plan *own = start_up_program(plan, tied, way, plan->rank == 0);
    row->resident_bytes = resident_bytes(own);
    enum err_code rc = place(own, prediction->outside_bytes, machine, row, err);
    plan_free(own);
    TRY(rc);
    struct plan *rank0 = start_up_program(plan, tied, way, true);
    rc = time_of(rank0, machine, &seconds, err);
    plan_free(rank0);
    TRY(rc);

    row->host_rank0_bytes = first.host.bytes;
    row->host_other_bytes = other.host.bytes;
    row->host_node_bytes = first.host.bytes + other.host.bytes * (ranks_on_node(plan, machine) - 1);
    count_files(plan, tied, way, machine, row);
    const double files_s = (double)row->node_bytes / store;
    row->seconds = seconds.copies + seconds.collectives + files_s;
    row->blocking_s = way == START_UP_ASYNC ? seconds.copies : row->seconds;
    return ERR_OK;
}

static enum err_code check(const struct job *job, struct err *err)
{
    const struct strategy *s = &job->strategy;
    if (s->system != SYSTEM_FSDP2)
        return err_set(err, ERR_UNSUPPORTED,
                       "--start-up is not planned for --strategy %s by this version: how it makes "
                       "and saves a model is known of fsdp2 alone",
                       system_name(s->system));
    if (s->offload)
        return err_set(err, ERR_UNSUPPORTED,
                       "--start-up is not planned with --offload cpu by this version");
    if (s->experts_replicate)
        return err_set(err, ERR_UNSUPPORTED,
                       "--start-up is not planned with --experts-replicate by this version");
    if (s->columns)
        return err_set(err, ERR_UNSUPPORTED,
                       "--start-up is not planned for parameters sharded by columns by this "
                       "version");
    return ERR_OK;
}

enum err_code start_up(const struct prediction *prediction, const struct job *job,
                       const struct machine *machine, struct start_up *out, struct err *err)
{
    TRY(check(job, err));
    const bool tied = !job->config.recording && job->config.tied;
    for (int way = 0; way < START_UP_WAYS; way++)
        TRY(make_row(prediction, tied, (enum start_up_way)way, machine, &out->rows[way], err));
    return ERR_OK;
}

const char *start_up_name(enum start_up_way way)
{
    static const char *const names[START_UP_WAYS] = {
#define X(name, text, what) text,
        START_UP_MAP(X)
#undef X
    };
    return names[way];
}

const char *start_up_title(enum start_up_way way)
{
    static const char *const titles[START_UP_WAYS] = {
#define X(name, text, what) what,
        START_UP_MAP(X)
#undef X
    };
    return titles[way];
}

/* predict.c - see predict.h. */
#include "job/predict.h"

#include "cost/cost.h"
#include "plan/repeat.h"

#include <assert.h>
#include <stdlib.h>

uint64_t machine_page_over(const struct machine *machine)
{
    return machine->expandable_segments ? 20ULL << 20 : 0;
}

struct memory_options machine_memory(const struct machine *machine)
{
    /* The autograd thread has a cuBLAS handle of its own, and workspaces belong to handles. */
    const uint64_t workspace = profile_bytes(&machine->profile, PROFILE_CUBLAS_WORKSPACE);
    return (struct memory_options){
        .allocator = {.expandable_segments = machine->expandable_segments,
                      .device_bytes = profile_bytes(&machine->profile, PROFILE_CAPACITY)},
        .workspace_bytes = {workspace, workspace},
    };
}

static const struct deferred_clock *clock_of(const struct prediction *prediction)
{
    return prediction->clock.host_s ? &prediction->clock : NULL;
}

struct memory_options prediction_memory(const struct prediction *prediction,
                                        const struct machine *machine)
{
    struct memory_options options = machine_memory(machine);
    if (prediction->after_release) {
        options.allocator.capacity_bytes = profile_bytes(&machine->profile, PROFILE_CAPACITY) -
                                           prediction->outside_bytes - machine_page_over(machine);
        options.steps_before = STEPS_TO_SETTLE;
    }
    options.clock = clock_of(prediction);
    return options;
}

uint64_t communicators_bytes(const struct plan *plan, const struct machine *machine)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < plan->group_count; i++) {
        const struct plan_group *group = &plan->groups[i];
        const uint64_t span = (uint64_t)group->ranks * group->stride;
        bytes += profile_communicator_bytes(&machine->profile, group->ranks,
                                            span > machine->gpus_per_node);
    }
    return bytes;
}

uint64_t machine_outside_bytes(const struct plan *plan, const struct machine *machine)
{
    return profile_bytes(&machine->profile, PROFILE_CONTEXT) + communicators_bytes(plan, machine);
}

uint64_t machine_host_limit(const struct machine *machine, uint32_t world)
{
    const uint64_t capacity = profile_bytes(&machine->profile, PROFILE_HOST_CAPACITY);
    const uint32_t ranks = profile_host_ranks(&machine->profile, world, machine->gpus_per_node);
    return capacity ? capacity / ranks : UINT64_MAX;
}

/* ---- what giving segments back costs ---- */

struct call_counter {
    struct prediction *out;
    uint32_t instruction, cap;
    bool steady;
};

static void note_instruction(void *context, const struct plan *plan, uint32_t instruction,
                             bool first_step)
{
    struct call_counter *c = context;
    (void)plan;
    if (instruction == 0 && !first_step) /* another step: what was counted is of one before */
        c->out->call_count = 0;
    c->instruction = instruction;
    c->steady = !first_step;
}

static void count_call(void *context, enum allocator_action action, uint64_t address,
                       uint64_t bytes, int stream)
{
    struct call_counter *c = context;
    struct prediction *p = c->out;
    const bool frees = action == ALLOCATOR_SEGMENT_FREE || action == ALLOCATOR_SEGMENT_UNMAP;
    const bool mallocs = action == ALLOCATOR_SEGMENT_ALLOC || action == ALLOCATOR_SEGMENT_MAP;
    (void)address;
    (void)bytes;
    (void)stream;
    if (!c->steady || !(frees || mallocs))
        return;
    const uint32_t times = plan_times(p->plan, c->instruction);
    p->settling_frees += times * frees;
    p->settling_mallocs += times * mallocs;
    if (!p->call_count || p->calls[p->call_count - 1].instruction != c->instruction) {
        ARRAY_GROW(p->calls, p->call_count, c->cap);
        p->calls[p->call_count++] = (struct segment_calls){.instruction = c->instruction};
    }
    p->calls[p->call_count - 1].frees += frees;
    p->calls[p->call_count - 1].mallocs += mallocs;
}

enum attention_kernel attention_of(const struct job *job, const struct machine *machine)
{
    struct profile there = machine->profile;      /* lent parts are not touched */
    if (job->model.autograd == AUTOGRAD_RECORDED) /* which knows no GPU, but what is given */
        return attention_is_asked(there.attention) || there.attention == ATTENTION_CUDNN
                   ? there.attention
                   : job->model.attention;
    if (job->model.attention != ATTENTION_AUTO)
        there.attention = job->model.attention;
    return attention_chosen(&there, job->model.autocast ? DTYPE_BF16 : job->model.compute);
}

/* The allocator refused a tensor that is larger than any device: what is asked for is what tensors
 * take together, and nobody asks how it would be laid out. */
static enum err_code count_only(struct prediction *out, struct err *err)
{
    const struct memory_moment failure = out->memory.failure;
    const bool repeats = out->memory.repeats;
    const struct memory_options options = {.without_allocator = true};
    TRY(memory_replay(out->plan, &options, NULL, NULL, &out->memory, err));
    out->memory.out_of_memory = true;
    out->memory.failure = failure;
    out->memory.repeats &= repeats;
    out->memory.allocated = out->memory.requested;
    out->memory.allocated.bytes = out->memory.requested_rounded_bytes;
    out->memory.reserved_bytes = out->memory.requested_rounded_bytes;
    return ERR_OK;
}

static enum attention_gpu attention_gpu_of(const struct profile *profile)
{
    switch (profile->generation) {
    case GENERATION_AMPERE:
    case GENERATION_ADA:
        return ATTENTION_GPU_AMPERE;
    case GENERATION_HOPPER:
        return ATTENTION_GPU_HOPPER;
    case GENERATION_BLACKWELL:
        return ATTENTION_GPU_BLACKWELL;
    default:
        return ATTENTION_GPU_UNKNOWN;
    }
}

enum err_code job_on_machine(const struct job *job, const struct machine *machine, struct job *out,
                             struct err *err)
{
    *out = *job;
    out->model.attention = attention_of(job, machine);
    out->model.attention_gpu = attention_gpu_of(&machine->profile);
    out->model.attention_fell = attention_is_composed(out->model.attention) &&
                                !attention_is_composed(job->model.attention) &&
                                !attention_is_composed(machine->profile.attention);
    if (model_has_mamba(&job->config)) /* elsewhere streams are the same of all such GPUs */
        out->model.multiprocessors = (uint32_t)profile_value(&machine->profile, PROFILE_SMS);
    if (job->model.float8 && profile_value(&machine->profile, PROFILE_FP8) <= 0)
        return err_set(err, ERR_UNSUPPORTED,
                       "--float8: %s multiplies no float8 (compute capability 8.9 and newer do; "
                       "fp8_flops in a profile)",
                       machine->profile.title);
    const enum attention_kernel asked =
        job->model.attention != ATTENTION_AUTO ? job->model.attention : machine->profile.attention;
    if (asked == ATTENTION_FLASH_ATTN && machine->profile.generation == GENERATION_VOLTA)
        return err_set(
            err, ERR_UNSUPPORTED,
            "--attention flash-attn on %s: \"FlashAttention only supports Ampere GPUs or "
            "newer\"",
            machine->profile.title);
    if (asked == ATTENTION_FLASH_3 && machine->profile.generation != GENERATION_HOPPER)
        return err_set(err, ERR_UNSUPPORTED,
                       "--attention flash-3: FlashAttention-3 is Hopper's; %s has auto, flash or "
                       "efficient",
                       machine->profile.title);
    return ERR_OK;
}

static bool keeps_host_apart(const struct job *job)
{
    return strategy_offloads(&job->strategy) && job->model.autograd == AUTOGRAD_GPU;
}

enum err_code predict(const struct job *job, const struct machine *machine, struct prediction *out,
                      struct err *err)
{
    struct plan *plan;
    uint64_t parameters;
    struct job there;
    *out = (struct prediction){0};
    TRY(job_on_machine(job, machine, &there, err));
    TRY(job_plan(&there, &plan, &parameters, err));
    const enum err_code rc = predict_plan(plan, machine, out, err);
    out->parameters = parameters;
    out->host_apart = keeps_host_apart(job);
    return rc;
}

/* One more plan of few micro-batches; *done: it stands for the whole step. */
static enum err_code try_few(struct job *few, uint32_t repeats, const struct machine *machine,
                             struct prediction *out, bool *done, struct err *err)
{
    struct plan *plan;
    uint64_t parameters;
    *done = false;
    TRY(job_plan(few, &plan, &parameters, err));
    if (!plan_repeats(plan)) {
        plan_free(plan);
        return ERR_OK;
    }
    plan->repeats = repeats;
    TRY(predict_plan(plan, machine, out, err));
    out->parameters = parameters;
    *done = out->memory.repeats;
    if (!*done)
        prediction_free(out);
    return ERR_OK;
}

enum err_code predict_few(const struct job *job, const struct machine *machine,
                          struct prediction *out, struct err *err)
{
    struct job few;
    bool done;
    *out = (struct prediction){0};
    TRY(job_on_machine(job, machine, &few, err));
    for (uint32_t count = REPEAT_FEW; count < job->strategy.accumulate; count *= 2) {
        few.strategy.accumulate = count;
        TRY(try_few(&few, job->strategy.accumulate - count, machine, out, &done, err));
        if (done) {
            out->host_apart = keeps_host_apart(job);
            return ERR_OK;
        }
    }
    return predict(job, machine, out, err);
}

/* ---- blocks that another stream uses ---- */

/* By the machine's clock, on a device without end. On ERR_OK the moments are in p->clock. */
static enum err_code replay_clocked(struct prediction *p, const struct machine *machine,
                                    struct memory *out, struct err *err)
{
    struct memory_options options = machine_memory(machine);
    TRY(clocked_moments(p->plan, machine, &p->clock, err));
    options.clock = &p->clock;
    const enum err_code rc = memory_replay(p->plan, &options, NULL, NULL, out, err);
    if (rc == ERR_OK && !out->out_of_memory)
        p->clocked_bytes = out->reserved_bytes;
    return rc;
}

bool prediction_frees_late(const struct prediction *p)
{
    const uint64_t allocated = p->memory.allocated.bytes;
    return clocked_any(p->plan) && p->memory.reserved_bytes - allocated > allocated / 10;
}

enum err_code predict_clocked(struct prediction *p, const struct machine *machine, struct err *err)
{
    struct memory clocked;
    if (p->clocked_bytes || !p->fits_gpu || !prediction_frees_late(p))
        return ERR_OK;
    const enum err_code rc = replay_clocked(p, machine, &clocked, err);
    clocked_free(&p->clock);
    if (p->clocked_bytes + p->outside_bytes > profile_bytes(&machine->profile, PROFILE_CAPACITY))
        p->tight = true; /* where waits show that less is held */
    return rc;
}

/* ---- the verdict of the GPU ---- */

static void note_sums(struct prediction *out, const struct machine *machine)
{
    const struct memory_options options = machine_memory(machine);
    out->context_bytes = profile_bytes(&machine->profile, PROFILE_CONTEXT);
    out->nccl_bytes = communicators_bytes(out->plan, machine);
    out->outside_bytes = out->context_bytes + out->nccl_bytes;
    out->workspace_bytes = options.workspace_bytes[0] + options.workspace_bytes[1];
    out->device_bytes = out->memory.reserved_bytes + out->outside_bytes;
    out->least_bytes = out->memory.allocated.bytes + out->outside_bytes;
    out->unconstrained_bytes = out->device_bytes;
}

/* Of what fits, whether there is less free than predictions have been off by. */
static bool is_tight(const struct prediction *out, uint64_t capacity)
{
    return (double)(capacity - out->device_bytes) < RESERVED_ERROR * (double)capacity;
}

static void count_settling(struct prediction *out)
{
    for (uint32_t i = 0; i < out->call_count; i++) {
        const uint32_t times = plan_times(out->plan, out->calls[i].instruction);
        out->settling_frees -= times * out->calls[i].frees;
        out->settling_mallocs -= times * out->calls[i].mallocs;
    }
}

/* The step under the device's capacity: PyTorch gives segments back before it gives up. */
static enum err_code replay_capped(struct prediction *out, const struct machine *machine,
                                   struct memory *capped, struct err *err)
{
    struct call_counter counter = {.out = out};
    struct memory_options options = machine_memory(machine);
    options.clock = clock_of(out);
    options.allocator.on_action = count_call;
    options.allocator.action_context = &counter;
    options.before = note_instruction;
    options.hook_context = &counter;
    options.allocator.capacity_bytes = profile_bytes(&machine->profile, PROFILE_CAPACITY) -
                                       out->outside_bytes - machine_page_over(machine);
    options.steps_before = STEPS_TO_SETTLE;
    TRY(memory_replay(out->plan, &options, NULL, NULL, capped, err));
    capped->repeats &= out->memory.repeats;
    if (capped->out_of_memory)
        out->call_count = 0; /* of a step that never ended */
    else
        count_settling(out);
    return ERR_OK;
}

/* What the allocator goes by is what is told, whether it fits or not. */
static void tell_clocked(struct prediction *out, const struct memory *clocked)
{
    const bool repeats =
        out->memory.repeats; /* few micro-batches, and their moments, stand for all */
    out->memory = *clocked;
    out->memory.repeats = repeats;
    out->device_bytes = clocked->reserved_bytes + out->outside_bytes;
}

static void take_clocked(struct prediction *out, const struct memory *clocked, uint64_t capacity)
{
    tell_clocked(out, clocked);
    out->fits_gpu = out->by_clock = true;
    out->tight = is_tight(out, capacity);
}

static void take_capped(struct prediction *out, const struct memory *capped)
{
    if (capped->out_of_memory) {
        out->memory.repeats = capped->repeats;
        out->memory.out_of_memory = true;
        out->memory.failure = capped->failure;
        return;
    }
    out->memory = *capped;
    out->device_bytes = capped->reserved_bytes + out->outside_bytes;
    out->fits_gpu = out->after_release = out->tight = true;
}

/* What waits alone show to be free leaves too much held. */
static enum err_code judge_held(const struct machine *machine, struct prediction *out,
                                struct err *err)
{
    const uint64_t capacity = profile_bytes(&machine->profile, PROFILE_CAPACITY);
    struct memory clocked = {0}, capped;
    if (clocked_any(out->plan))
        TRY(replay_clocked(out, machine, &clocked, err));
    if (out->clocked_bytes &&
        out->clocked_bytes + out->outside_bytes + machine_page_over(machine) <= capacity) {
        take_clocked(out, &clocked, capacity);
    } else {
        TRY(replay_capped(out, machine, &capped, err));
        if (capped.out_of_memory && out->clocked_bytes)
            tell_clocked(out, &clocked);
        take_capped(out, &capped);
    }
    assert(!out->fits_gpu || out->device_bytes <= capacity);
    return ERR_OK;
}

static enum err_code judge_gpu(const struct machine *machine, struct prediction *out,
                               struct err *err)
{
    const struct memory_options options = machine_memory(machine);
    const uint64_t capacity = profile_bytes(&machine->profile, PROFILE_CAPACITY);
    TRY(costs_check(out->plan, &machine->profile, machine->gpus_per_node, err));
    TRY(memory_replay(out->plan, &options, NULL, NULL, &out->memory, err));
    if (out->memory.out_of_memory)
        TRY(count_only(out, err));
    note_sums(out, machine);
    out->fits_gpu = out->device_bytes <= capacity && !out->memory.out_of_memory;
    out->tight = out->fits_gpu && is_tight(out, capacity);
    if (out->fits_gpu || out->memory.out_of_memory ||
        out->least_bytes + machine_page_over(machine) > capacity)
        return ERR_OK;
    return judge_held(machine, out, err);
}

static enum err_code predict_gpu(const struct machine *machine, struct prediction *out,
                                 struct err *err)
{
    const enum err_code rc = judge_gpu(machine, out, err);
    if (rc != ERR_OK)
        prediction_free(out);
    return rc;
}

uint64_t plan_paged_bytes(const struct plan *plan)
{
    uint64_t bytes = 0;
    for (uint32_t b = 0; b < plan->buffer_count; b++)
        bytes += plan->buffers[b].paged ? plan->buffers[b].bytes : 0;
    return bytes;
}

uint64_t machine_paged_out(const struct machine *machine, uint64_t paged_bytes,
                           uint64_t device_bytes)
{
    const uint64_t capacity = profile_bytes(&machine->profile, PROFILE_CAPACITY);
    const uint64_t free = capacity > device_bytes ? capacity - device_bytes : 0;
    return paged_bytes > free ? paged_bytes - free : 0;
}

static void place_pages(const struct machine *machine, struct prediction *out)
{
    out->paged_bytes = plan_paged_bytes(out->plan);
    out->paged_out_bytes = machine_paged_out(machine, out->paged_bytes, out->device_bytes);
    out->plan->pages_move = out->paged_out_bytes > 0;
}

static void judge_host(const struct machine *machine, struct prediction *out)
{
    const uint64_t held = out->memory.host_held_bytes + out->paged_out_bytes;
    out->host_capacity_bytes = profile_bytes(&machine->profile, PROFILE_HOST_CAPACITY);
    out->host_ranks =
        profile_host_ranks(&machine->profile, out->plan->world, machine->gpus_per_node);
    out->host_needed_bytes = held * out->host_ranks;
    out->fits_host = held <= machine_host_limit(machine, out->plan->world);
}

enum err_code predict_plan(struct plan *plan, const struct machine *machine, struct prediction *out,
                           struct err *err)
{
    *out = (struct prediction){.plan = plan};
    TRY(predict_gpu(machine, out, err));
    place_pages(machine, out);
    judge_host(machine, out);
    out->fits = out->fits_gpu && out->fits_host;
    out->tight = out->tight && out->fits;
    return ERR_OK;
}

void prediction_free(struct prediction *prediction)
{
    plan_free(prediction->plan);
    free(prediction->calls);
    clocked_free(&prediction->clock);
    prediction->plan = NULL;
    prediction->calls = NULL;
}

void prediction_calls(const struct prediction *p, uint32_t *mallocs, uint32_t *frees)
{
    *mallocs = *frees = 0;
    for (uint32_t i = 0; i < p->call_count; i++) {
        const uint32_t times = plan_times(p->plan, p->calls[i].instruction);
        *mallocs += times * p->calls[i].mallocs;
        *frees += times * p->calls[i].frees;
    }
}

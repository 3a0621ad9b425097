/* test_simulate.c - what must hold of any simulated step, and steps worked out by hand. */
#include "families/families.h"
#include "job/step_time.h"
#include "tests/support/small_jobs.h"

#include "compare/compare.h"
#include "tests/support/lanes.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- a program by hand ---- */

enum { KERNELS = 8 };

struct by_hand {
    struct plan *plan;
    struct cost costs[KERNELS];
    struct costs all;
    struct stall stalls[2];
    uint32_t stall_count;
};

static struct by_hand begin_program(void)
{
    struct by_hand p = {.plan = plan_new()};
    for (uint32_t lane = COPY_IN_LANE; lane < TEST_LANES; lane++)
        plan_add_lane(p.plan, test_lane_infos[lane].name, false);
    plan_add_group(p.plan, "shard", GROUP_SHARD, 2, 1);
    plan_add_group(p.plan, "replicate", GROUP_REPLICATE, 2, 2);
    return p;
}

static void add(struct by_hand *p, enum plan_op op, uint8_t stream, uint32_t arg, uint8_t group)
{
    const struct plan_instruction instruction = {
        .op = (uint8_t)op, .lane = stream, .arg = arg, .group = group};
    if (op == PLAN_RECORD && arg >= p->plan->event_count)
        p->plan->event_count = arg + 1;
    plan_add_instruction(p->plan, &instruction);
}

static void add_kernel(struct by_hand *p, enum plan_op op, uint8_t stream, uint8_t group,
                       struct cost cost)
{
    const uint32_t kernel = plan_add_kernel(p->plan, WORK_MATMUL_NT, ATEN_MM, 0, NULL, 0, NULL);
    assert_true(kernel < KERNELS);
    p->costs[kernel] = cost;
    add(p, op, stream, kernel, group);
}

static struct cost gemm(double device_s, double host_s)
{
    return (struct cost){.use = {1}, .device_s = device_s, .host_s = host_s, .class = COST_GEMM};
}

static struct cost talk(double device_s, float link, float compute)
{
    return (struct cost){.use = {[RESOURCE_COMPUTE] = compute, [RESOURCE_LINK] = link},
                         .device_s = device_s,
                         .class = COST_COLLECTIVE};
}

static struct timeline run(struct by_hand *p)
{
    struct simulation *simulation = simulation_new(p->plan, p->stalls, p->stall_count);
    struct timeline timeline = timeline_new(simulation);
    p->all.kernels = p->costs;
    simulate(simulation, &p->all, NULL, &timeline);
    simulation_free(simulation);
    plan_free(p->plan);
    return timeline;
}

#define assert_seconds(a, b) assert_float_equal(a, b, 1e-9)

static void kernels_of_a_stream_follow_each_other(void **state)
{
    (void)state;
    struct by_hand p = begin_program();
    add_kernel(&p, PLAN_COMPUTE, LANE_COMPUTE, PLAN_NO_GROUP, gemm(3, 0.5));
    add_kernel(&p, PLAN_COMPUTE, LANE_COMPUTE, PLAN_NO_GROUP, gemm(2, 0.5));
    struct timeline t = run(&p);
    assert_seconds(t.begin_s[0], 0.5);
    assert_seconds(t.begin_s[1], 3.5);
    assert_seconds(t.step_s, 5.5);
    assert_seconds(t.spent_s[SPENT_HOST], 0.5);
    assert_seconds(t.spent_s[SPENT_COMPUTE], 5);
    timeline_free(&t);
}

static void a_slow_host_starves_the_device(void **state)
{
    (void)state;
    struct by_hand p = begin_program();
    for (int i = 0; i < 4; i++)
        add_kernel(&p, PLAN_COMPUTE, LANE_COMPUTE, PLAN_NO_GROUP, gemm(1, 2));
    struct timeline t = run(&p);
    assert_seconds(t.step_s, 9); /* issued at 2, 4, 6, 8 */
    assert_seconds(t.spent_s[SPENT_HOST], 5);
    timeline_free(&t);
}

static void a_wait_holds_for_its_record_and_what_follows_it(void **state)
{
    (void)state;
    struct by_hand p = begin_program();
    add_kernel(&p, PLAN_ALL_GATHER, ALL_GATHER_LANE, 0, talk(4, 1, 0));
    add(&p, PLAN_RECORD, ALL_GATHER_LANE, 0, PLAN_NO_GROUP);
    add(&p, PLAN_WAIT, LANE_COMPUTE, 0, PLAN_NO_GROUP);
    add_kernel(&p, PLAN_COMPUTE, LANE_COMPUTE, PLAN_NO_GROUP, gemm(3, 0));
    struct timeline t = run(&p);
    assert_seconds(t.begin_s[3], 4);
    assert_seconds(t.step_s, 7);
    assert_seconds(t.exposed_s, 4);
    assert_seconds(t.communication_s, 4);
    timeline_free(&t);
}

static void kernels_that_ask_for_too_much_share(void **state)
{
    (void)state;
    struct by_hand p = begin_program(); /* 1 and 0.25 of the multiprocessors: 0.8 speed each */
    add_kernel(&p, PLAN_ALL_GATHER, ALL_GATHER_LANE, 0, talk(4, 1, 0.25F));
    add_kernel(&p, PLAN_COMPUTE, LANE_COMPUTE, PLAN_NO_GROUP, gemm(10, 0));
    struct timeline t = run(&p);
    assert_seconds(t.end_s[0], 5);
    assert_seconds(t.end_s[1], 5 + (10 - 0.8 * 5));
    assert_seconds(t.exposed_s, 0);
    timeline_free(&t);

    p = begin_program(); /* what is served first runs as alone, the other on what is left */
    struct cost first = talk(4, 1, 0.25F);
    first.first = true;
    add_kernel(&p, PLAN_ALL_GATHER, ALL_GATHER_LANE, 0, first);
    add_kernel(&p, PLAN_COMPUTE, LANE_COMPUTE, PLAN_NO_GROUP, gemm(10, 0));
    t = run(&p);
    assert_seconds(t.end_s[0], 4);
    assert_seconds(t.end_s[1], 4 + (10 - 0.75 * 4));
    timeline_free(&t);
}

static void a_communicator_is_one_fifo_and_two_share_the_link(void **state)
{
    (void)state;
    struct by_hand p = begin_program();
    add_kernel(&p, PLAN_ALL_GATHER, ALL_GATHER_LANE, 0, talk(2, 1, 0));
    add_kernel(&p, PLAN_REDUCE_SCATTER, REDUCE_SCATTER_LANE, 0, talk(3, 1, 0));
    struct timeline t = run(&p);
    assert_seconds(t.begin_s[1], 2);
    assert_seconds(t.step_s, 5);
    timeline_free(&t);

    p = begin_program();
    add_kernel(&p, PLAN_ALL_GATHER, ALL_GATHER_LANE, 0, talk(2, 1, 0));
    add_kernel(&p, PLAN_ALL_REDUCE, ALL_REDUCE_LANE, 1, talk(3, 1, 0));
    t = run(&p);
    assert_seconds(t.begin_s[1], 0);
    assert_seconds(t.end_s[0], 4); /* both at half speed */
    assert_seconds(t.step_s, 5);
    timeline_free(&t);
}

static void the_host_blocks_where_the_program_says_so(void **state)
{
    (void)state;
    struct by_hand p = begin_program();
    add_kernel(&p, PLAN_COMPUTE, LANE_COMPUTE, PLAN_NO_GROUP, gemm(3, 1));
    add(&p, PLAN_RECORD, LANE_COMPUTE, 0, PLAN_NO_GROUP);
    add(&p, PLAN_WAIT, LANE_HOST, 0, PLAN_NO_GROUP);
    add_kernel(&p, PLAN_OPTIMIZER, LANE_HOST, PLAN_NO_GROUP, gemm(5, 0));
    add_kernel(&p, PLAN_COMPUTE, LANE_COMPUTE, PLAN_NO_GROUP, gemm(1, 1));
    struct timeline t = run(&p);
    assert_seconds(t.begin_s[3], 4);
    assert_seconds(t.end_s[3], 9);
    assert_seconds(t.begin_s[4], 10);
    assert_seconds(t.step_s, 11);
    timeline_free(&t);
}

/* A stream may wait for what the host does itself, and has done only later. */
static void a_stream_waits_for_the_host(void **state)
{
    (void)state;
    struct by_hand p = begin_program();
    add_kernel(&p, PLAN_OPTIMIZER, LANE_HOST, PLAN_NO_GROUP, gemm(5, 0));
    add(&p, PLAN_RECORD, LANE_HOST, 0, PLAN_NO_GROUP);
    add(&p, PLAN_WAIT, COPY_IN_LANE, 0, PLAN_NO_GROUP);
    add_kernel(&p, PLAN_COPY_IN, COPY_IN_LANE, PLAN_NO_GROUP, gemm(1, 0));
    struct timeline t = run(&p);
    assert_seconds(t.begin_s[3], 5);
    assert_seconds(t.step_s, 6);
    timeline_free(&t);
}

static void giving_memory_back_waits_for_the_device(void **state)
{
    (void)state;
    struct by_hand p = begin_program();
    add_kernel(&p, PLAN_COMPUTE, LANE_COMPUTE, PLAN_NO_GROUP, gemm(3, 1));
    add(&p, PLAN_ALLOC, LANE_COMPUTE, 0, PLAN_NO_GROUP);
    add_kernel(&p, PLAN_COMPUTE, LANE_COMPUTE, PLAN_NO_GROUP, gemm(1, 1));
    p.stalls[0] = (struct stall){.instruction = 1, .host_s = 0.5, .idle = true};
    p.stall_count = 1;
    struct timeline t = run(&p);
    assert_seconds(t.begin_s[1], 4); /* the first kernel's end */
    assert_seconds(t.begin_s[2], 5.5);
    assert_seconds(t.step_s, 6.5);
    assert_seconds(t.spent_s[SPENT_HOST], 2.5);
    timeline_free(&t);
}

/* ---- FSDP2's own programs with times worked out by others ---- */

struct layer_times { /* of every block; all else takes none */
    double forward, backward, gather, scatter;
};

static bool is_block(const struct plan *plan, const struct plan_instruction *in)
{
    const uint32_t unit = plan_scope_unit(plan, in);
    return unit != PLAN_NO_UNIT && plan->units[unit].name[0] != '\0';
}

/* Gives the first kernel after a block's parameters arrived all of its time. */
static struct costs block_costs(const struct plan *plan, const struct layer_times *times)
{
    struct costs costs = {.kernels = calloc(plan->kernel_count, sizeof *costs.kernels)};
    bool arrived = false;
    for (uint32_t i = 0; i < plan->instruction_count; i++) {
        const struct plan_instruction *in = &plan->instructions[i];
        const bool block = is_block(plan, in);
        if (in->op == PLAN_COPY_OUT)
            arrived = block;
        else if (in->op == PLAN_ALL_GATHER || in->op == PLAN_REDUCE_SCATTER)
            costs.kernels[in->arg].device_s = !block                      ? 0
                                              : in->op == PLAN_ALL_GATHER ? times->gather
                                                                          : times->scatter;
        else if (in->op == PLAN_COMPUTE && in->lane == LANE_COMPUTE && arrived && in->scope == 0) {
            costs.kernels[in->arg].device_s =
                in->phase == PLAN_FORWARD ? times->forward : times->backward;
            arrived = false;
        }
        if (plan_op_is_kernel((enum plan_op)in->op))
            costs.kernels[in->arg].class =
                plan_op_is_collective((enum plan_op)in->op) ? COST_COLLECTIVE : COST_GEMM;
    }
    return costs;
}

/* Ends of the forward pass and of the step, in the times' unit. */
static void run_layers(uint32_t layers, const struct layer_times *times, bool own_communicator,
                       double *forward, double *step)
{
    struct job job = small_job(ARCH_LLAMA);
    struct err err = {0};
    struct plan *plan;
    job.config.layers = layers;
    assert_int_equal(job_plan(&job, &plan, NULL, &err), ERR_OK);
    struct costs costs = block_costs(plan, times);
    if (own_communicator)
        plan->groups[plan->group_count++] = plan->groups[0];
    for (uint32_t i = 0; own_communicator && i < plan->instruction_count; i++)
        if (plan->instructions[i].op == PLAN_REDUCE_SCATTER)
            plan->instructions[i].group = (uint8_t)(plan->group_count - 1);
    struct simulation *simulation = simulation_new(plan, NULL, 0);
    struct timeline t = timeline_new(simulation);
    simulate(simulation, &costs, NULL, &t);
    *forward = 0;
    for (uint32_t i = 0; i < simulation_tasks(simulation); i++) {
        const struct plan_instruction *in =
            &plan->instructions[simulation_instruction(simulation, i)];
        if (in->op == PLAN_COMPUTE && in->phase == PLAN_FORWARD && t.end_s[i] > *forward &&
            in->lane == LANE_COMPUTE && t.end_s[i] > t.begin_s[i])
            *forward = t.end_s[i];
    }
    *step = t.step_s;
    simulation_free(simulation);
    timeline_free(&t);
    free(costs.kernels);
    plan_free(plan);
}

/* PyTorch's test_fully_shard_overlap.py: three layers, 25 ms forward, 10 ms a collective; it
 * expects 10 + 3·25 forward. Backward, 50 a layer: the first gather hides under the last forward
 * layer, the last reduction is exposed, so 10 + 3·50 from the end of the forward pass on. */
static void overlap_is_that_of_pytorchs_own_test(void **state)
{
    (void)state;
    const struct layer_times times = {25, 50, 10, 10};
    double forward, step;
    run_layers(3, &times, false, &forward, &step);
    assert_seconds(forward, 85);
    assert_seconds(step, 85 + 160);
}

/* Four layers whose reductions outlast the backward pass: one communicator makes gathers and
 * reductions wait for each other; with one of their own they do not. */
static void a_shared_communicator_costs_what_it_must(void **state)
{
    (void)state;
    const struct layer_times times = {20, 40, 15, 45};
    double forward, step;
    run_layers(4, &times, false, &forward, &step);
    assert_seconds(forward, 95);
    assert_seconds(step, 345);
    run_layers(4, &times, true, &forward, &step);
    assert_seconds(step, 315);
}

/* ---- properties of real plans ---- */

struct planned {
    struct prediction prediction;
    struct plan *plan; /* the prediction's */
    struct machine machine;
    struct step_time time;
};

static struct job toy(void)
{
    struct job job;
    struct model_config config;
    struct err err = {0};
    assert_int_equal(model_find("llama-3.2-1b", &config, &err), ERR_OK);
    config.layers = 6;
    job_defaults(&job, &config);
    job.model.seq = 2048;
    return job;
}

static struct planned plan_on(const struct job *job, const char *gpu)
{
    struct planned p = {.machine = {.gpus_per_node = 8}};
    struct err err = {0};
    assert_int_equal(profile_find(gpu, &p.machine.profile, &err), ERR_OK);
    p.machine.profile.of[PROFILE_CAPACITY].value = 1e12; /* memory is not what is looked at */
    assert_int_equal(predict(job, &p.machine, &p.prediction, &err), ERR_OK);
    p.plan = p.prediction.plan;
    assert_int_equal(step_time(&p.prediction, job, &p.machine, 0, &p.time, &err), ERR_OK);
    return p;
}

static void planned_free(struct planned *p)
{
    step_time_free(&p->time);
    profile_free(&p->machine.profile);
    prediction_free(&p->prediction);
}

static double step_of(const struct job *job, const char *gpu)
{
    struct planned p = plan_on(job, gpu);
    const double step_s = p.time.timeline.step_s;
    planned_free(&p);
    return step_s;
}

static const char *const gpus[] = {"h100-sxm", "a100-sxm-80gb", "l40s", "rtx-4090"};
enum { GPUS = sizeof gpus / sizeof gpus[0] };

/* Where the network bounds a step, what the other kernels do only decides which of them the copies
 * around collectives fall beside: that may move the step by a thousandth either way. */
#define NO_SLOWER 1.001

static void settings_that_move_less_are_no_slower(void **state)
{
    (void)state;
    for (int g = 0; g < GPUS; g++) {
        struct job job = toy(), other = toy();
        job.strategy.reshard = RESHARD_ALWAYS;
        other.strategy.reshard = RESHARD_NEVER;
        assert_true(step_of(&other, gpus[g]) <= step_of(&job, gpus[g]) * NO_SLOWER);

        other = toy();
        other.tape.checkpointing = CHECKPOINTING_SELECTIVE;
        job = toy();
        assert_true(step_of(&job, gpus[g]) <= step_of(&other, gpus[g]) * NO_SLOWER);
        job.tape.checkpointing = CHECKPOINTING_FULL;
        assert_true(step_of(&other, gpus[g]) <= step_of(&job, gpus[g]) * NO_SLOWER);
    }
}

static double step_with(const struct job *job, enum profile_key key, double factor)
{
    struct planned p = plan_on(job, "a100-sxm-80gb");
    struct err err = {0};
    step_time_free(&p.time);
    p.machine.profile.of[key].value *= factor;
    assert_int_equal(step_time(&p.prediction, job, &p.machine, 0, &p.time, &err), ERR_OK);
    const double step_s = p.time.timeline.step_s;
    planned_free(&p);
    return step_s;
}

static void a_faster_machine_is_no_slower(void **state)
{
    (void)state;
    static const enum profile_key keys[] = {PROFILE_BF16, PROFILE_MEMORY, PROFILE_NIC,
                                            PROFILE_LINK};
    for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++)
        for (uint32_t replicate = 1; replicate <= 4; replicate *= 4) {
            struct job job = toy();
            job.strategy.world = 32;
            job.strategy.replicate = replicate;
            assert_true(step_with(&job, keys[k], 1.5) <= step_with(&job, keys[k], 1) * NO_SLOWER);
        }
}

/* Eight replicate groups of a node reduce at once: what leaves the node goes through its ports. */
static void a_node_sends_no_faster_than_its_ports(void **state)
{
    (void)state;
    static const char *const nodes[] = {"p4d", "pcie", "dgx-a100"};
    for (size_t n = 0; n < sizeof nodes / sizeof nodes[0]; n++) {
        struct job job = toy();
        struct err err = {0};
        job.strategy.world = 64;
        job.strategy.replicate = 8;
        struct planned p = plan_on(&job, "a100-sxm-80gb");
        step_time_free(&p.time);
        assert_int_equal(profile_set_node(nodes[n], &p.machine.profile, &err), ERR_OK);
        assert_int_equal(step_time(&p.prediction, &job, &p.machine, 0, &p.time, &err), ERR_OK);
        const double ports = profile_value(&p.machine.profile, PROFILE_NICS) *
                             profile_value(&p.machine.profile, PROFILE_NIC);
        double sent = 0, took_s = 0;
        for (uint32_t i = 0; i < p.plan->instruction_count; i++) {
            const struct plan_instruction *in = &p.plan->instructions[i];
            if (in->op != PLAN_ALL_REDUCE)
                continue;
            const struct operand *o = plan_kernel(p.plan, in->arg)->operands;
            sent += 8 * 2 * 7 / 8.0 * (double)shape_bytes(&o->shape, (enum dtype)o->dtype);
            took_s += p.time.costs.kernels[in->arg].device_s;
        }
        assert_true(sent > 0 && sent / took_s <= ports);
        planned_free(&p);
    }
}

static void prefetching_exposes_no_more(void **state)
{
    (void)state;
    for (int g = 0; g < GPUS; g++) {
        struct job job = toy(), other = toy();
        other.strategy.forward_prefetch = other.strategy.backward_prefetch = 1;
        struct planned implicit = plan_on(&job, gpus[g]), explicit = plan_on(&other, gpus[g]);
        assert_true(explicit.time.timeline.exposed_s <=
                    implicit.time.timeline.exposed_s * 1.01 + 1e-4);
        planned_free(&implicit);
        planned_free(&explicit);
    }
}

/* Every shard group of one rank: parameters are gathered from nobody, as in DDP. */
static void a_mesh_of_replicas_gathers_nothing(void **state)
{
    (void)state;
    struct job job = toy();
    job.strategy.replicate = job.strategy.world;
    struct planned p = plan_on(&job, "h100-sxm");
    double reduced_s = 0;
    for (uint32_t i = 0; i < simulation_tasks(p.time.simulation); i++) {
        const struct plan_instruction *in =
            &p.plan->instructions[simulation_instruction(p.time.simulation, i)];
        const double took_s = p.time.timeline.end_s[i] - p.time.timeline.begin_s[i];
        if (in->op == PLAN_ALL_GATHER)
            assert_true(took_s < 1e-3); /* a copy within the device at most */
        if (in->op == PLAN_ALL_REDUCE)
            reduced_s += took_s;
    }
    assert_true(reduced_s > 0);
    planned_free(&p);
}

static double class_seconds(const struct planned *p, bool talks)
{
    double sum = 0;
    for (uint32_t i = 0; i < simulation_tasks(p->time.simulation); i++) {
        const struct plan_instruction *in =
            &p->plan->instructions[simulation_instruction(p->time.simulation, i)];
        if (plan_op_is_kernel((enum plan_op)in->op) &&
            plan_op_is_collective((enum plan_op)in->op) == talks)
            sum += p->time.costs.kernels[in->arg].device_s;
    }
    return sum;
}

static void check_bounds(const struct job *job, const char *gpu)
{
    struct planned p = plan_on(job, gpu);
    const struct timeline *t = &p.time.timeline;
    double spent_s = 0;
    for (int i = 0; i < SPENT_COUNT; i++)
        spent_s += t->spent_s[i];
    assert_float_equal(spent_s, t->step_s, (float)(1e-9 * t->step_s));
    assert_true(t->step_s >= fmax(t->compute_s, t->communication_s) * (1 - 1e-9));
    assert_true(t->step_s <=
                (class_seconds(&p, true) + class_seconds(&p, false) + t->host_s) * (1 + 1e-9));
    assert_true(p.time.mfu > 0 && p.time.mfu < 1 && p.time.hfu >= p.time.mfu);
    planned_free(&p);
}

static void a_step_lies_between_its_bounds(void **state)
{
    (void)state;
    for (int g = 0; g < GPUS; g++)
        for (int kind = 0; kind < SMALL_JOBS; kind++) {
            const struct job job = small_job_of_kind(kind);
            check_bounds(&job, gpus[g]);
        }
}

/* The same costs with one kind of them gone. */
static void simulate_without(struct planned *p, bool collectives, struct timeline *out)
{
    for (uint32_t i = 0; i < p->plan->instruction_count; i++) {
        const struct plan_instruction *in = &p->plan->instructions[i];
        if (!plan_op_is_kernel((enum plan_op)in->op) || in->flags & PLAN_FIRST_STEP)
            continue;
        struct cost *cost = &p->time.costs.kernels[in->arg];
        if (!collectives)
            cost->host_s = 0;
        else if (plan_op_is_collective((enum plan_op)in->op))
            cost->device_s = 0;
    }
    if (!collectives)
        p->time.costs.event_s = 0;
    simulate(p->time.simulation, &p->time.costs, NULL, out);
}

static void what_costs_nothing_is_waited_for_by_nobody(void **state)
{
    (void)state;
    const struct job job = toy();
    struct planned p = plan_on(&job, "h100-sxm");
    assert_true(p.time.timeline.exposed_s > 0);
    simulate_without(&p, true, &p.time.timeline);
    assert_true(p.time.timeline.exposed_s == 0);
    simulate_without(&p, false, &p.time.timeline);
    assert_true(p.time.timeline.spent_s[SPENT_HOST] == 0);
    planned_free(&p);
}

static void overlap_is_what_comparing_would_measure(void **state)
{
    (void)state;
    const struct job job = toy();
    struct planned p = plan_on(&job, "a100-sxm-80gb");
    struct arena arena = {0};
    struct compare_interval *spans = arena_alloc(&arena, p.plan->instruction_count * sizeof *spans);
    for (uint32_t i = 0; i < p.plan->instruction_count; i++)
        spans[i] = (struct compare_interval){NAN, NAN};
    for (uint32_t i = 0; i < simulation_tasks(p.time.simulation); i++) {
        const uint32_t id = simulation_instruction(p.time.simulation, i);
        if (plan_op_is_kernel((enum plan_op)p.plan->instructions[id].op))
            spans[id] =
                (struct compare_interval){p.time.timeline.begin_s[i], p.time.timeline.end_s[i]};
    }
    struct compare_time time = {.span_count = 0};
    compare_overlap(p.plan, spans, &arena, &time);
    const struct timeline *t = &p.time.timeline;
    assert_float_equal(time.communication_s, t->communication_s, (float)(1e-6 * t->step_s));
    assert_float_equal(time.exposed_s, t->exposed_s, (float)(1e-6 * t->step_s));
    assert_float_equal(time.compute_s, t->compute_s, (float)(1e-6 * t->step_s));
    arena_free(&arena);
    planned_free(&p);
}

static void the_same_plan_has_the_same_time_and_range(void **state)
{
    (void)state;
    const struct job job = toy();
    struct err err = {0};
    struct planned a = plan_on(&job, "h100-sxm");
    struct step_time again;
    step_time_free(&a.time);
    assert_int_equal(step_time(&a.prediction, &job, &a.machine, 50, &a.time, &err), ERR_OK);
    assert_int_equal(step_time(&a.prediction, &job, &a.machine, 50, &again, &err), ERR_OK);
    const uint32_t tasks = simulation_tasks(a.time.simulation);
    assert_memory_equal(a.time.timeline.end_s, again.timeline.end_s, tasks * sizeof(double));
    assert_true(a.time.low_s == again.low_s && a.time.high_s == again.high_s);
    assert_true(a.time.low_s < a.time.timeline.step_s && a.time.timeline.step_s < a.time.high_s);
    step_time_free(&again);
    planned_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_of_a_stream_follow_each_other),
        cmocka_unit_test(a_slow_host_starves_the_device),
        cmocka_unit_test(a_wait_holds_for_its_record_and_what_follows_it),
        cmocka_unit_test(kernels_that_ask_for_too_much_share),
        cmocka_unit_test(a_communicator_is_one_fifo_and_two_share_the_link),
        cmocka_unit_test(the_host_blocks_where_the_program_says_so),
        cmocka_unit_test(a_stream_waits_for_the_host),
        cmocka_unit_test(giving_memory_back_waits_for_the_device),
        cmocka_unit_test(overlap_is_that_of_pytorchs_own_test),
        cmocka_unit_test(a_shared_communicator_costs_what_it_must),
        cmocka_unit_test(settings_that_move_less_are_no_slower),
        cmocka_unit_test(a_faster_machine_is_no_slower),
        cmocka_unit_test(a_node_sends_no_faster_than_its_ports),
        cmocka_unit_test(prefetching_exposes_no_more),
        cmocka_unit_test(a_mesh_of_replicas_gathers_nothing),
        cmocka_unit_test(a_step_lies_between_its_bounds),
        cmocka_unit_test(what_costs_nothing_is_waited_for_by_nobody),
        cmocka_unit_test(overlap_is_what_comparing_would_measure),
        cmocka_unit_test(the_same_plan_has_the_same_time_and_range),
    };
    return cmocka_run_group_tests_name("simulate", tests, NULL, NULL);
}

/* test_short_cut.c - the simulator with and without its short cut: the same to the bit.
 *
 * Kernels that follow each other undisturbed are passed in one go (run_on in simulate.c). What
 * comes out must be what one event after the other gives, on plans of every model and every
 * strategy, with the times of each class of kernels scaled at random. With kernels joined to spans
 * (joined.h) it is the same to a rounding. */
#include "families/families.h"
#include "job/step_time.h"
#include "simulate/joined.h"
#include "tests/support/lanes.h"
#include "tests/support/small_jobs.h"
#include "tests/support/soak.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t random_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* A quarter to four times, as likely above as below one; now and then nothing at all. */
static double random_scale(uint64_t *state)
{
    const double share = (double)(random_next(state) >> 11) * 0x1p-53;
    return random_next(state) % 16 == 0 ? 0 : exp2(4 * share - 2);
}

static void assert_same_bits(const char *name, const void *a, const void *b, size_t bytes)
{
    if (memcmp(a, b, bytes) != 0)
        fail_msg("%s: the short cut changes the timeline", name);
}

static void assert_same_timeline(const char *name, const struct timeline *a,
                                 const struct timeline *b, uint32_t tasks)
{
    assert_same_bits(name, a->issue_s, b->issue_s, tasks * sizeof *a->issue_s);
    assert_same_bits(name, a->begin_s, b->begin_s, tasks * sizeof *a->begin_s);
    assert_same_bits(name, a->end_s, b->end_s, tasks * sizeof *a->end_s);
    assert_same_bits(name, &a->step_s, &b->step_s, sizeof a->step_s);
    assert_same_bits(name, &a->compute_s, &b->compute_s, sizeof a->compute_s);
    assert_same_bits(name, &a->communication_s, &b->communication_s, sizeof a->communication_s);
    assert_same_bits(name, &a->exposed_s, &b->exposed_s, sizeof a->exposed_s);
    assert_same_bits(name, &a->host_s, &b->host_s, sizeof a->host_s);
    assert_same_bits(name, a->spent_s, b->spent_s, sizeof a->spent_s);
}

/* The preset with two blocks, sharded and trained as jobs of this kind are. */
static struct job job_of(const struct model_preset *preset, int kind, uint64_t *seed)
{
    struct job job = small_job_of_kind(kind);
    job.config = preset->config;
    job.config.layers = 2;
    job.config.decoder_layers = job.config.decoder_layers ? 2 : 0;
    job.model.code = model_default_code(preset->config.arch);
    job.model.seq = 32U << (random_next(seed) % 5); /* the host is slower, or the device */
    if (job.config.arch == ARCH_FALCON_H1)
        job.strategy.store = job.strategy.compute; /* PyTorch would stop */
    return job;
}

/* Rounding of sums of thousands of kernels' times. */
#define TOLERANCE 1e-11

static void assert_near(const char *name, double a, double b, double step_s)
{
    if (!(fabs(a - b) <= TOLERANCE * step_s))
        fail_msg("%s: %.17g s, and %.17g s joined", name, a, b);
}

/* `t` is the simulation's timeline with these costs and scales. */
static void assert_same_joined(const char *name, const struct simulation *simulation,
                               const struct costs *costs, const double *scale,
                               const struct timeline *t)
{
    struct joined joined = joined_new(simulation, costs);
    struct timeline of = timeline_new(joined.simulation);
    simulate(joined.simulation, &joined.costs, scale, &of);
    assert_near(name, t->step_s, of.step_s, t->step_s);
    assert_near(name, t->compute_s, of.compute_s, t->step_s);
    assert_near(name, t->communication_s, of.communication_s, t->step_s);
    assert_near(name, t->exposed_s, of.exposed_s, t->step_s);
    assert_near(name, t->host_s, of.host_s, t->step_s);
    timeline_free(&of);
    joined_free(&joined);
}

enum { SCALES = 4, GPUS = 4 };

static void compare(const struct job *job, const char *name, const struct profile *gpu,
                    uint64_t *seed)
{
    const uint32_t world = job->strategy.world;
    struct machine machine = {.gpus_per_node = world % 2 ? world : 2, .profile = *gpu};
    struct prediction prediction = {.plan = NULL};
    struct step_time time = {.low_s = 0};
    struct err err = {0};
    machine.profile.of[PROFILE_CAPACITY].value = 1e12; /* memory is not what is looked at */
    if (predict(job, &machine, &prediction, &err) != ERR_OK ||
        step_time(&prediction, job, &machine, 0, &time, &err) != ERR_OK)
        fail_msg("%s: %s", name, err.text);
    struct timeline each = timeline_new(time.simulation);
    for (int i = 0; i < SCALES; i++) {
        double scale[COST_CLASSES];
        for (int class = 0; class < COST_CLASSES; class ++)
            scale[class] = i == 0 ? 1 : random_scale(seed);
        simulate(time.simulation, &time.costs, scale, &time.timeline);
        simulate_each_event(time.simulation, &time.costs, scale, NULL, &each);
        assert_same_timeline(name, &time.timeline, &each, simulation_tasks(time.simulation));
        assert_same_joined(name, time.simulation, &time.costs, scale, &each);
    }
    timeline_free(&each);
    step_time_free(&time);
    prediction_free(&prediction);
}

static void the_short_cut_changes_no_bit(void **state)
{
    (void)state;
    static const char *const gpus[GPUS] = {"h100-sxm", "a100-sxm-80gb", "l40s", "rtx-4090"};
    const struct model_preset *preset;
    struct profile profiles[GPUS];
    uint64_t seed = 1;
    int plans = 0;
    for (int g = 0; g < GPUS; g++)
        assert_int_equal(profile_find(gpus[g], &profiles[g], NULL), ERR_OK);
    for (uint32_t i = 0; (preset = model_preset_at(i)) != NULL; i++) {
        for (int kind = 0; kind < SMALL_JOBS; kind++) {
            if (!is_taken(i + (uint32_t)kind, 2, 0))
                continue;
            const struct job job = job_of(preset, kind, &seed);
            char name[96];
            snprintf(name, sizeof name, "%s, kind %d", preset->name, kind);
            compare(&job, name, &profiles[random_next(&seed) % GPUS], &seed);
            plans++;
        }
    }
    for (int g = 0; g < GPUS; g++)
        profile_free(&profiles[g]);
    printf("note: %d plans, %d timelines each\n", plans, SCALES);
}

/* ---- programs made at random ---- */

enum { INSTRUCTIONS = 120, PROGRAMS = 2000 };

static uint32_t below(uint64_t *state, uint32_t n)
{
    return (uint32_t)(random_next(state) >> 33) % n;
}

static struct cost random_cost(enum plan_op op, uint64_t *seed)
{
    struct cost cost = {.device_s = below(seed, 4),
                        .host_s = below(seed, 4) == 0,
                        .first = below(seed, op == PLAN_COMPUTE ? 4 : 2) == 0};
    for (int k = 0; k < RESOURCE_COUNT; k++)
        cost.use[k] = (float)below(seed, 5) / 4;
    if (op != PLAN_COMPUTE) {
        cost.slowdown = below(seed, 2) ? 1.25F : 0;
        cost.class = COST_COLLECTIVE;
    }
    return cost;
}

/* Kernels, mostly, in runs on one lane; collectives of two communicators on any lane; records,
 * and waits for what has been recorded. */
static struct plan *random_program(struct cost costs[INSTRUCTIONS], uint64_t *seed)
{
    static const enum plan_op kernels[] = {PLAN_COMPUTE,    PLAN_COMPUTE,    PLAN_COMPUTE,
                                           PLAN_COMPUTE,    PLAN_ALL_GATHER, PLAN_REDUCE_SCATTER,
                                           PLAN_ALL_REDUCE, PLAN_RECORD,     PLAN_WAIT};
    struct plan *plan = plan_new();
    for (uint32_t i = COPY_IN_LANE; i < TEST_LANES; i++)
        plan_add_lane(plan, test_lane_infos[i].name, false);
    plan_add_group(plan, "shard", GROUP_SHARD, 2, 1);
    plan_add_group(plan, "replicate", GROUP_REPLICATE, 2, 2);
    uint8_t lane = LANE_COMPUTE;
    for (int i = 0; i < INSTRUCTIONS; i++) {
        enum plan_op op = kernels[below(seed, sizeof kernels / sizeof *kernels)];
        if (below(seed, 4) == 0)
            lane = (uint8_t)below(seed, TEST_LANES);
        if (op == PLAN_WAIT && plan->event_count == 0)
            op = PLAN_RECORD;
        if (lane == LANE_HOST && plan_op_is_collective(op))
            op = PLAN_COMPUTE;
        struct plan_instruction in = {.op = (uint8_t)op, .lane = lane, .group = PLAN_NO_GROUP};
        if (op == PLAN_RECORD) {
            in.arg = plan->event_count++;
        } else if (op == PLAN_WAIT) {
            in.arg = below(seed, plan->event_count);
        } else {
            in.arg = plan_add_kernel(plan, WORK_MATMUL_NT, ATEN_MM, 0, NULL, 0, NULL);
            costs[in.arg] = random_cost(op, seed);
        }
        if (plan_op_is_collective(op))
            in.group = (uint8_t)below(seed, 2);
        plan_add_instruction(plan, &in);
    }
    return plan;
}

static void nor_does_it_where_much_happens_at_once(void **state)
{
    (void)state;
    uint64_t seed = 2;
    for (int i = 0; i < PROGRAMS; i++) {
        struct cost kernels[INSTRUCTIONS];
        const struct costs costs = {.kernels = kernels, .event_s = below(&seed, 2)};
        struct plan *plan = random_program(kernels, &seed);
        struct simulation *simulation = simulation_new(plan, NULL, 0);
        struct timeline a = timeline_new(simulation), b = timeline_new(simulation);
        char name[32];
        snprintf(name, sizeof name, "program %d", i);
        simulate(simulation, &costs, NULL, &a);
        simulate_each_event(simulation, &costs, NULL, NULL, &b);
        assert_same_timeline(name, &a, &b, simulation_tasks(simulation));
        assert_same_joined(name, simulation, &costs, NULL, &b);
        timeline_free(&a);
        timeline_free(&b);
        simulation_free(simulation);
        plan_free(plan);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_short_cut_changes_no_bit),
        cmocka_unit_test(nor_does_it_where_much_happens_at_once),
    };
    return cmocka_run_group_tests_name("short_cut", tests, NULL, NULL);
}

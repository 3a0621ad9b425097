/* test_ranks.c - the step of a job whose ranks are not alike. */
#include "families/families.h"
#include "job/step_time.h"
#include "tests/support/csv.h"
#include "tests/support/lanes.h"
#include "tests/support/planned.h"
#include "tests/support/small_jobs.h"

#include <gsl/gsl_randist.h>
#include <gsl/gsl_rng.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define assert_seconds(a, b) assert_float_equal(a, b, 1e-9)

/* ---- by hand ---- */

static void add(struct plan *plan, enum plan_op op, uint8_t lane, uint32_t arg)
{
    const bool talks = plan_op_is_collective(op);
    const struct plan_instruction in = {
        .op = (uint8_t)op, .lane = lane, .arg = arg, .group = talks ? 0 : PLAN_NO_GROUP};
    if (op == PLAN_RECORD && arg >= plan->event_count)
        plan->event_count = arg + 1;
    plan_add_instruction(plan, &in);
}

static void add_kernel(struct plan *plan, enum plan_op op, uint8_t lane)
{
    add(plan, op, lane, plan_add_kernel(plan, WORK_MATMUL_NT, ATEN_MM, 0, NULL, 0, NULL));
}

/* A product of 10 s, a reduction of its result that takes 2 and is waited for, another of 4. A rank
 * that is twice as slow is through with the first after 20 and with the reduction after 22, at 30
 * with all. The other waits from 12 to 22, and, done at 26, for the next step from there on. */
static void others_wait_inside_the_collective(void **state)
{
    (void)state;
    struct plan *plan = plan_new();
    for (uint32_t lane = COPY_IN_LANE; lane < TEST_LANES; lane++)
        plan_add_lane(plan, test_lane_infos[lane].name, false);
    plan_add_group(plan, "shard", GROUP_SHARD, 2, 1);
    add_kernel(plan, PLAN_COMPUTE, LANE_COMPUTE);
    add(plan, PLAN_RECORD, LANE_COMPUTE, 0);
    add(plan, PLAN_WAIT, REDUCE_SCATTER_LANE, 0);
    add_kernel(plan, PLAN_REDUCE_SCATTER, REDUCE_SCATTER_LANE);
    add(plan, PLAN_RECORD, REDUCE_SCATTER_LANE, 1);
    add(plan, PLAN_WAIT, LANE_COMPUTE, 1);
    add_kernel(plan, PLAN_COMPUTE, LANE_COMPUTE);
    struct cost kernels[] = {
        {.device_s = 10, .use = {1}, .class = COST_GEMM},
        {.device_s = 2, .use = {[RESOURCE_LINK] = 1}, .class = COST_COLLECTIVE},
        {.device_s = 4, .use = {1}, .class = COST_GEMM},
    };
    const struct costs costs = {.kernels = kernels};
    const double twice[COST_CLASSES] = {2, 2, 1, 1, 1, 1};
    struct simulation *simulation = simulation_new(plan, NULL, 0);
    struct timeline slow = timeline_new(simulation), other = timeline_new(simulation);
    simulate(simulation, &costs, twice, &slow);
    simulate_beside(simulation, &costs, NULL, &slow, &other);
    assert_seconds(slow.step_s, 30);
    assert_seconds(slow.spent_s[SPENT_RANKS], 0);
    assert_seconds(other.begin_s[3], 10);
    assert_seconds(other.end_s[3], 22);
    assert_seconds(other.end_s[6], 26);
    assert_seconds(other.step_s, 30);
    assert_seconds(other.spent_s[SPENT_COMPUTE], 14);
    assert_seconds(other.spent_s[SPENT_NETWORK], 2);
    assert_seconds(other.spent_s[SPENT_RANKS], 10 + 4);
    assert_seconds(other.communication_s, 2 + 10 + 4);
    assert_seconds(other.waiting_s, 10 + 4);
    assert_seconds(other.exposed_s, 2 + 10 + 4);
    assert_seconds(slow.waiting_s, 0);
    timeline_free(&slow);
    timeline_free(&other);
    simulation_free(simulation);
    plan_free(plan);
}

/* ---- jobs ---- */

static struct planned plan_on(const struct job *job, double card, double jitter)
{
    struct planned p = planned_on("h100-sxm");
    p.machine.profile.of[PROFILE_RANK_SPREAD].value = card;
    p.machine.profile.of[PROFILE_JITTER].value = jitter;
    planned_job(&p, job);
    return p;
}

/* Blocks large enough for arithmetic to matter beside launches. */
static struct job wide_job(int kind)
{
    struct job job = small_job_of_kind(kind);
    struct model_config *c = &job.config;
    c->hidden = 2048;
    c->heads = c->kv_heads = 16;
    c->head_dim = 128;
    c->ffn = 8192;
    c->vocab = 32000;
    c->max_positions = 4096;
    job.model.batch = 4;
    job.model.seq = 2048;
    return job;
}

static void arithmetic_times(double scale[COST_CLASSES], double factor)
{
    for (int k = 0; k < COST_CLASSES; k++)
        scale[k] = k == COST_GEMM || k == COST_ATTENTION ? factor : 1;
}

/* What holds for every rank of a job beside the slowest one: no collective ends before all are
 * there, nobody is later than the slowest, the parts add up, and the short cut changes no bit. */
static void check_rank(const char *name, const struct planned *p, const struct timeline *slowest,
                       double factor)
{
    const struct simulation *s = p->time.simulation;
    const struct plan *plan = p->prediction.plan;
    struct timeline rank = timeline_new(s), each = timeline_new(s);
    double scale[COST_CLASSES], spent_s = 0;
    arithmetic_times(scale, factor);
    simulate_beside(s, &p->time.costs, scale, slowest, &rank);
    simulate_each_event(s, &p->time.costs, scale, slowest, &each);
    for (uint32_t i = 0; i < simulation_tasks(s); i++) {
        const struct plan_instruction *in = &plan->instructions[simulation_instruction(s, i)];
        const bool talks = plan_op_is_collective((enum plan_op)in->op);
        assert_true(rank.begin_s[i] == each.begin_s[i] && rank.end_s[i] == each.end_s[i]);
        if (talks && !(rank.end_s[i] >= slowest->end_s[i]))
            fail_msg("%s: a collective ends before the slowest rank is there", name);
    }
    for (int i = 0; i < SPENT_COUNT; i++)
        spent_s += rank.spent_s[i];
    assert_true(fabs(spent_s / rank.step_s - 1) < 1e-9);
    assert_true(rank.step_s == each.step_s);
    assert_true(fabs(rank.step_s / slowest->step_s - 1) < 1e-9);
    timeline_free(&rank);
    timeline_free(&each);
}

static void nobody_is_later_than_the_slowest(void **state)
{
    (void)state;
    for (int kind = 0; kind < SMALL_JOBS; kind++) {
        const struct job job = wide_job(kind);
        struct planned p = plan_on(&job, .2, 0);
        char name[32];
        snprintf(name, sizeof name, "kind %d", kind);
        struct timeline slowest = timeline_new(p.time.simulation);
        double scale[COST_CLASSES];
        arithmetic_times(scale, 1.5);
        simulate(p.time.simulation, &p.time.costs, scale, &slowest);
        for (int i = 0; i <= 5; i++)
            check_rank(name, &p, &slowest, .9 + .12 * i);
        timeline_free(&slowest);
        planned_free(&p);
    }
}

/* Jobs on cards that are drawn one by one, each step simulated with the slowest of them: their mean
 * step is the step that is predicted. */
static void the_predicted_step_is_the_mean_of_drawn_jobs(void **state)
{
    (void)state;
    enum { JOBS = 400, RANKS = 64 };
    struct job job = wide_job(0);
    job.strategy.world = RANKS;
    struct planned p = plan_on(&job, .04, .03);
    struct planned alike = plan_on(&job, 0, 0);
    gsl_rng *rng = gsl_rng_alloc(gsl_rng_mt19937);
    struct timeline t = timeline_new(p.time.simulation);
    double sum = 0, squares = 0;
    for (int i = 0; i < JOBS; i++) {
        double most = 0, scale[COST_CLASSES];
        for (int r = 0; r < RANKS; r++)
            most = fmax(most, 1 + gsl_ran_laplace(rng, .04 / sqrt(2)) + gsl_ran_gaussian(rng, .03));
        arithmetic_times(scale, most);
        simulate(p.time.simulation, &p.time.costs, scale, &t);
        sum += t.step_s;
        squares += t.step_s * t.step_s;
    }
    const double mean = sum / JOBS, error = sqrt((squares / JOBS - mean * mean) / JOBS);
    assert_true(fabs(p.time.timeline.step_s - mean) < 4 * error);
    assert_true(p.time.timeline.step_s > alike.time.timeline.step_s + 8 * error);
    assert_true(alike.time.timeline.spent_s[SPENT_RANKS] == 0);
    assert_true(p.time.timeline.spent_s[SPENT_RANKS] > 0);
    gsl_rng_free(rng);
    timeline_free(&t);
    planned_free(&p);
    planned_free(&alike);
}

/* ---- beside a recording ---- */

enum { BLOCK_ELEMENTS = 855654400 }; /* of a block of Llama-70B's flat parameter */

/* Mean seconds of the blocks' collectives of a kind, on a timeline. */
static double mean_seconds(const struct planned *p, const struct timeline *t, enum plan_op op)
{
    const struct simulation *s = p->time.simulation;
    const struct plan *plan = p->prediction.plan;
    double sum = 0;
    uint32_t count = 0;
    for (uint32_t i = 0; i < simulation_tasks(s); i++) {
        const struct plan_instruction *in = &plan->instructions[simulation_instruction(s, i)];
        const uint32_t unit = plan_scope_unit(plan, in);
        if (in->op != op || unit == PLAN_NO_UNIT || !plan->units[unit].name[0])
            continue;
        sum += t->end_s[i] - t->begin_s[i];
        count++;
    }
    assert_true(count > 0);
    return sum / count;
}

/* The same of the recording, over all ranks and of the one that waits least. */
static void recorded_seconds(const char *collective, double *mean, double *least)
{
    struct csv csv = csv_read("tests/data/gpu/mi300x_fsdp1_collectives.csv");
    double sum = 0;
    int ranks = 0;
    *least = INFINITY;
    for (size_t i = 0; i < csv.rows; i++) {
        if (strcmp(csv_text(&csv, i, "collective"), collective) != 0 ||
            csv_number(&csv, i, "elements") != BLOCK_ELEMENTS)
            continue;
        const double s = 1e-6 * csv_number(&csv, i, "mean_us");
        sum += s;
        *least = fmin(*least, s);
        ranks++;
    }
    assert_int_equal(ranks, 8);
    *mean = sum / ranks;
    csv_free(&csv);
}

static void time_70b(uint32_t seq, double *gather, double *reduce, double least[2])
{
    struct planned p = {.machine = {.gpus_per_node = 8}};
    struct model_config config;
    struct job job;
    struct err err = {0};
    assert_int_equal(model_preset_find("llama-3.1-70b", &config, &err), ERR_OK);
    job_defaults(&job, &config);
    job.strategy.system = SYSTEM_FSDP1;
    job.strategy.world = 8;
    job.model.seq = seq;
    job.tape.checkpointing = CHECKPOINTING_FULL;
    assert_int_equal(profile_find("mi300x", &p.machine.profile, &err), ERR_OK);
    if (predict(&job, &p.machine, &p.prediction, &err) != ERR_OK ||
        step_time(&p.prediction, &job, &p.machine, 0, &p.time, &err) != ERR_OK)
        fail_msg("%s", err.text);
    double scale[COST_CLASSES];
    struct timeline slowest = timeline_new(p.time.simulation);
    arithmetic_times(scale, p.time.costs.slowest.factor);
    simulate(p.time.simulation, &p.time.costs, scale, &slowest);
    *gather = mean_seconds(&p, &p.time.timeline, PLAN_ALL_GATHER);
    *reduce = mean_seconds(&p, &p.time.timeline, PLAN_REDUCE_SCATTER);
    least[0] = mean_seconds(&p, &slowest, PLAN_ALL_GATHER);
    least[1] = mean_seconds(&p, &slowest, PLAN_REDUCE_SCATTER);
    timeline_free(&slowest);
    planned_free(&p);
}

/* Llama-70B under FSDP1 on 8 MI300X: what the profiler of a rank calls communication is mostly
 * waiting. The recording's batch is not stated: its mean collectives lie between those of two and
 * of eight thousand tokens, where the slowest rank's own do not depend on it. */
static void a_profiler_sees_communication_where_ranks_wait(void **state)
{
    (void)state;
    double gather[2], reduce[2], least[2][2], mean, own;
    time_70b(2048, &gather[0], &reduce[0], least[0]);
    time_70b(8192, &gather[1], &reduce[1], least[1]);
    recorded_seconds("all_gather", &mean, &own);
    assert_true(mean > gather[0] && mean < gather[1]);
    assert_true(fabs(least[0][0] / own - 1) < .25 && fabs(least[1][0] / own - 1) < .25);
    recorded_seconds("reduce_scatter", &mean, &own);
    assert_true(mean > reduce[0] && mean < reduce[1]);
    assert_true(fabs(least[0][1] / own - 1) < .25 && fabs(least[1][1] / own - 1) < .25);
}

/* Of a card whose training was measured, kernels are off together by what steps were: the range of
 * a step that waits for nothing else holds 90 % of a normal error of that size. */
static void the_range_is_what_steps_were_off(void **state)
{
    (void)state;
    static const double spread = 0.03;
    struct job job = wide_job(0);
    job.strategy.world = 1;
    job.model.batch = 64; /* the host is far ahead */
    struct planned p = plan_on(&job, 0, 0);
    struct step_time time;
    struct err err = {0};
    p.machine.profile.of[PROFILE_STEPS].value = spread;
    assert_int_equal(step_time(&p.prediction, &job, &p.machine, 2000, &time, &err), ERR_OK);
    assert_true(fabs(log(time.high_s / time.low_s) / (2 * 1.645 * spread) - 1) < 0.06);
    step_time_free(&time);
    planned_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(others_wait_inside_the_collective),
        cmocka_unit_test(nobody_is_later_than_the_slowest),
        cmocka_unit_test(the_predicted_step_is_the_mean_of_drawn_jobs),
        cmocka_unit_test(a_profiler_sees_communication_where_ranks_wait),
        cmocka_unit_test(the_range_is_what_steps_were_off),
    };
    return cmocka_run_group_tests_name("ranks", tests, NULL, NULL);
}

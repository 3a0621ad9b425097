/* test_system.c - a system of one's own is one struct, and the rest comes by rule.
 *
 * The toy below replicates everything and reduces each gradient by itself, as soon as it is there:
 * what one writes before knowing of buckets. Its program is held against what that sentence says.
 */
#include "families/families.h"
#include "job/job.h"
#include "lower/lowering.h"
#include "memory/replay.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

/* ---- the system ---- */

struct toy {
    uint8_t group, lane;
};

static void set_up(struct lowering *low)
{
    struct toy *toy = low->state;
    struct plan *plan = low->plan;
    toy->lane = plan_add_lane(plan, "all_reduce", false);
    toy->group = plan_add_group(plan, "data", GROUP_DATA, low->strategy->world, 1);
    plan->unit_count = 1;
    plan->units = arena_alloc(&plan->arena, sizeof *plan->units);
    plan->units[0] = (struct plan_unit){.name = "", .params = plan->param_count};
    plan->unit_params = arena_alloc(&plan->arena, plan->param_count * sizeof(uint32_t));
    for (uint32_t p = 0; p < plan->param_count; p++) {
        plan->unit_params[p] = p;
        new_piece(low, p, PIECE_STORE,
                  new_resident(low, CATEGORY_PARAM, LANE_COMPUTE, ATEN_EMPTY, low->strategy->store,
                               plan->params[p].shape),
                  0, (struct placement){.kind = PLACEMENT_WHOLE}, PLAN_NO_GROUP);
    }
}

static void gradient(struct lowering *low, uint32_t p)
{
    const struct toy *toy = low->state;
    const uint32_t buffer = low->grad[p].place;
    emit_sync(low, toy->lane, LANE_COMPUTE);
    emit_work(low, PLAN_ALL_REDUCE, toy->lane, WORK_ALL_REDUCE_AVG, ATEN_ALL_REDUCE, toy->group, 1,
              &buffer, 1, &buffer);
}

static void final(struct lowering *low)
{
    emit_sync(low, LANE_COMPUTE, ((const struct toy *)low->state)->lane);
}

static void before_step(struct lowering *low)
{
    for (uint32_t p = 0; p < low->plan->param_count; p++)
        set_gradient(low, p, low->grad[p].place, 0, true);
}

static void zero_grad(struct lowering *low)
{
    for (uint32_t p = 0; p < low->plan->param_count; p++)
        emit_free(low, low->grad[p].place);
}

static const struct system toy_system = {
    .name = "toy",
    .state_bytes = sizeof(struct toy),
    .set_up = set_up,
    .gradient = gradient,
    .final = final,
    .before_step = before_step,
    .close = zero_grad,
};

/* ---- what must come of it ---- */

static struct plan *plan_toy(struct job *job, uint64_t *elements)
{
    struct err err = {0};
    struct graph *graph;
    struct plan *plan;
    struct model_config config;
    assert_int_equal(model_preset_find("gpt2", &config, &err), ERR_OK);
    config.layers = 2;
    job_defaults(job, &config);
    job->model.compute = job->strategy.compute = job->strategy.reduce = DTYPE_FP32;
    assert_int_equal(model_build(&job->config, &job->model, &graph, &err), ERR_OK);
    struct stream *stream = tape_run(graph, &job->tape);
    *elements = graph_parameter_elements(graph);
    if (lower_with(&toy_system, graph, stream, &job->strategy, &plan, &err) != ERR_OK ||
        plan_verify(plan, &err) != ERR_OK)
        fail_msg("%s", err.text);
    stream_free(stream);
    graph_free(graph);
    return plan;
}

static void each_gradient_is_reduced_by_itself(void **state)
{
    (void)state;
    struct job job;
    uint64_t elements, reduced = 0;
    uint32_t reductions = 0;
    struct plan *plan = plan_toy(&job, &elements);
    for (uint32_t i = 0; i < plan->instruction_count; i++) {
        const struct plan_instruction *at = &plan->instructions[i];
        if (at->op != PLAN_ALL_REDUCE)
            continue;
        const struct kernel *kernel = plan_kernel(plan, at->arg);
        reduced += shape_bytes(&kernel->operands[0].shape, DTYPE_FP32);
        reductions++;
    }
    assert_int_equal(reductions, plan->param_count);
    assert_int_equal(reduced, 4 * elements);
    plan_free(plan);
}

/* Behind backward there are parameters, two states and a gradient each, four bytes an element, a
 * step counter a parameter, the batch and its targets. */
static void memory_is_what_is_written_down(void **state)
{
    (void)state;
    struct job job;
    struct err err = {0};
    struct memory memory;
    const struct memory_options options = {.without_allocator = true};
    uint64_t elements;
    struct plan *plan = plan_toy(&job, &elements);
    assert_int_equal(memory_replay(plan, &options, NULL, NULL, &memory, &err), ERR_OK);
    const uint64_t batch = 2 * 8 * (uint64_t)job.model.batch * job.model.seq;
    const uint64_t rest = 4 * (uint64_t)plan->param_count + batch;
    assert_int_equal(memory.live[PLAN_MARK_AFTER_BACKWARD], 16 * elements + rest);
    assert_int_equal(memory.live[PLAN_MARK_END], 12 * elements + rest);
    plan_free(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_gradient_is_reduced_by_itself),
        cmocka_unit_test(memory_is_what_is_written_down),
    };
    return cmocka_run_group_tests_name("system", tests, NULL, NULL);
}

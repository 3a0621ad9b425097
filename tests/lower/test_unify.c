/* test_unify.c - strategies that are said to come to one program: their programs. */
#include "families/families.h"
#include "job/job.h"
#include "tests/support/random_jobs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

enum { JOBS = 1500, SEED = 20261122 };

struct scene {
    struct graph *graph;
    struct stream *stream;
};

static struct scene set_up(const struct job *job)
{
    struct scene scene;
    struct err err = {0};
    assert_int_equal(model_build(&job->config, &job->model, &scene.graph, &err), ERR_OK);
    const struct tape_options options = job_tape(job);
    scene.stream = tape_run(scene.graph, &options);
    return scene;
}

static void tear_down(struct scene *scene)
{
    stream_free(scene->stream);
    graph_free(scene->graph);
}

/* Everything but scopes, which are names. */
static void assert_same(const struct plan *a, const struct plan *b)
{
    assert_int_equal(a->instruction_count, b->instruction_count);
    assert_int_equal(a->buffer_count, b->buffer_count);
    assert_int_equal(a->kernel_count, b->kernel_count);
    for (uint32_t i = 0; i < a->instruction_count; i++) {
        const struct plan_instruction *x = &a->instructions[i], *y = &b->instructions[i];
        assert_int_equal(x->op, y->op);
        assert_int_equal(x->lane, y->lane);
        assert_int_equal(x->phase, y->phase);
        assert_int_equal(x->flags, y->flags);
        assert_int_equal(x->group, y->group);
        assert_int_equal(x->arg, y->arg);
        assert_int_equal(x->base, y->base);
        if (plan_op_is_kernel((enum plan_op)x->op)) /* what the host pays for a kernel */
            assert_int_equal(x->scope == 0, y->scope == 0);
    }
    for (uint32_t i = 0; i < a->buffer_count; i++) {
        assert_int_equal(a->buffers[i].bytes, b->buffers[i].bytes);
        assert_int_equal(a->buffers[i].pool, b->buffers[i].pool);
    }
}

/* Whether it stands for another; then both have one program. */
static bool compare(const struct scene *scene, const struct strategy *strategy)
{
    struct strategy same = *strategy;
    struct plan *a, *b;
    struct err err = {0};
    strategy_unify(&same, stream_blocks_follow(scene->graph, scene->stream));
    if (same.backward_prefetch == strategy->backward_prefetch)
        return false;
    assert_int_equal(lower_plan(scene->graph, scene->stream, strategy, &a, &err), ERR_OK);
    assert_int_equal(lower_plan(scene->graph, scene->stream, &same, &b, &err), ERR_OK);
    assert_same(a, b);
    plan_free(a);
    plan_free(b);
    return true;
}

static void random_strategies_have_one_program(void **state)
{
    gsl_rng *rng = gsl_rng_alloc(gsl_rng_mt19937);
    uint32_t unified = 0;
    (void)state;
    gsl_rng_set(rng, SEED);
    for (int i = 0; i < JOBS; i++) {
        struct job job = random_job(rng);
        struct scene scene = set_up(&job);
        for (uint32_t prefetch = 0; prefetch < 3; prefetch++) {
            job.strategy.backward_prefetch = prefetch;
            const bool same = compare(&scene, &job.strategy);
            assert_true(!same || prefetch == 1);
            unified += same;
        }
        tear_down(&scene);
    }
    assert_true(unified > JOBS / 2);
    gsl_rng_free(rng);
}

/* Two units more than were listed, and blocks in another order: lists say something there. */
static void what_does_not_follow_stays(void **state)
{
    struct model_config config;
    struct job job;
    struct err err = {0};
    (void)state;
    assert_int_equal(model_preset_find("llama-3.2-1b", &config, &err), ERR_OK);
    job_defaults(&job, &config);
    struct scene scene = set_up(&job);
    job.strategy.backward_prefetch = 1;
    assert_true(compare(&scene, &job.strategy));
    uint32_t blocks[2] = {0}, count = 0;
    for (uint32_t i = 0; i < scene.stream->step_count && count < 2; i++) {
        const struct stream_step step = scene.stream->steps[i];
        if (step.kind == STEP_POST_FORWARD && step.arg != MODULE_ROOT &&
            scene.graph->modules[step.arg].role == ROLE_BLOCK)
            blocks[count++] = i;
    }
    assert_int_equal(count, 2);
    const struct stream_step first = scene.stream->steps[blocks[0]];
    scene.stream->steps[blocks[0]] = scene.stream->steps[blocks[1]];
    scene.stream->steps[blocks[1]] = first;
    assert_false(compare(&scene, &job.strategy));
    scene.stream->steps[blocks[1]] = scene.stream->steps[blocks[0]];
    assert_false(compare(&scene, &job.strategy)); /* one twice, one never */
    tear_down(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_strategies_have_one_program),
        cmocka_unit_test(what_does_not_follow_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

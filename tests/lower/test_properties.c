/* test_properties.c - what must hold for every job, tried on random ones (seeded).
 *
 * Each job is small (1-5 layers, odd sizes) so that thousands can be planned, verified and
 * replayed through the allocator; sizes are drawn to hit rows that do not divide by the ranks. */
#include "job/job.h"
#include "memory/replay.h"

#include <gsl/gsl_rng.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { JOBS = 10000, SEED = 20261121 };

static gsl_rng *rng;

static uint32_t below(uint32_t n)
{
    return (uint32_t)gsl_rng_uniform_int(rng, n);
}

static uint32_t one_of(uint32_t count, const uint32_t *values)
{
    return values[below(count)];
}

static void random_model(struct model_config *c)
{
    static const enum arch archs[] = {ARCH_LLAMA, ARCH_GPT2, ARCH_FSDP2_TUTORIAL};
    static const char *const activations[] = {"silu", "gelu_new", "relu"};
    const uint32_t kind = below(3);
    *c = (struct model_config){
        .arch = archs[kind],
        .activation = activations[kind],
        .norm_eps = 1e-5F,
        .rope = {.theta = 1e4F, .attention_factor = 1},
    };
    c->layers = 1 + below(5);
    c->kv_heads = 1 + below(3);
    c->heads = c->kv_heads * (1 + below(3));
    c->head_dim = 2 * (1 + below(12));
    if (c->arch != ARCH_LLAMA)
        c->kv_heads = c->heads;
    c->hidden = c->heads * c->head_dim;
    c->ffn = 1 + below(200);
    c->vocab = 2 + below(300);
    c->max_positions = 64;
    c->tied = c->arch == ARCH_GPT2 && below(2);
}

static void random_strategy(struct strategy *s)
{
    static const uint32_t worlds[] = {1, 2, 3, 4, 5, 6, 8, 12, 16, 64};
    static const enum dtype dtypes[] = {DTYPE_FP32, DTYPE_BF16, DTYPE_FP16};
    s->world = one_of(10, worlds);
    s->replicate = s->world % 2 == 0 && below(4) == 0 ? 2 : 1;
    s->rank = below(s->world);
    s->units = below(3) == 0 ? UNITS_TORCHTITAN : UNITS_BLOCKS;
    s->per_unit = 1 + below(3);
    s->reshard = (enum reshard_kind)below(3);
    const uint32_t shard = s->world / s->replicate;
    if (below(4) == 0 && shard % 2 == 0) {
        s->reshard = RESHARD_INT;
        s->reshard_ranks = 2;
    }
    s->forward_prefetch = below(4) == 0 ? below(4) : 0;
    s->backward_prefetch = below(4) == 0 ? below(4) : 0;
    s->store = below(4) == 0 ? DTYPE_BF16 : DTYPE_FP32;
    s->compute = dtypes[below(3)];
    s->reduce = dtypes[below(3)];
    s->accumulate = 1 + below(3);
    s->accumulate_sync = below(2);
    s->optimizer = below(5) == 0 ? OPTIMIZER_SGD : OPTIMIZER_ADAMW;
    s->impl = (enum optimizer_impl)below(3);
    s->max_norm = below(2) ? 1.0F : 0.0F;
    s->offload = below(8) == 0;
}

static struct job random_job(void)
{
    static const char *const frozen[] = {NULL, NULL, NULL, "*.0.*", "*norm*,*ln_*"};
    struct model_config config;
    struct job job;
    random_model(&config);
    job_defaults(&job, &config);
    job.model.batch = 1 + below(3);
    job.model.seq = 1 + below(40);
    job.model.frozen = frozen[below(5)];
    job.tape.checkpointing = (enum checkpointing)below(3);
    random_strategy(&job.strategy);
    job.model.compute = job.strategy.compute;
    return job;
}

static void plan_and_replay(const struct job *job, struct memory *memory)
{
    struct err err = {0};
    struct plan *plan = NULL;
    const struct memory_options options = {.workspace_bytes = {1 << 20, 1 << 20}};
    assert_int_equal(job_plan(job, &plan, NULL, &err), ERR_OK);
    if (plan_verify(plan, &err) != ERR_OK)
        fail_msg("%s", err.text);
    assert_int_equal(memory_replay(plan, &options, NULL, NULL, memory, &err), ERR_OK);
    plan_free(plan);
}

static void check_sums(const struct memory *m)
{
    uint64_t sum = 0;
    for (int i = 0; i < CATEGORY_COUNT; i++) {
        assert_true(m->categories[i] <= m->requested.bytes); /* none below zero */
        sum += m->categories[i];
    }
    assert_int_equal(sum, m->requested.bytes);
    assert_int_equal(m->live[PLAN_MARK_START], m->live[PLAN_MARK_END]);
    assert_true(m->reserved_bytes >= m->allocated.bytes);
    assert_true(m->requested_rounded_bytes >= m->requested.bytes);
    for (int i = 0; i < PART_COUNT; i++)
        assert_true(m->part_peaks[i] <= m->requested.bytes);
}

static void sums_hold_and_everything_is_freed(void **state)
{
    (void)state;
    for (int i = 0; i < JOBS; i++) {
        const struct job job = random_job();
        struct memory memory;
        plan_and_replay(&job, &memory);
        check_sums(&memory);
    }
}

static void keeping_parameters_never_takes_less_than_resharding(void **state)
{
    (void)state;
    for (int i = 0; i < JOBS / 10; i++) {
        struct job job = random_job();
        struct memory always, never;
        job.strategy.reshard = RESHARD_ALWAYS;
        plan_and_replay(&job, &always);
        job.strategy.reshard = RESHARD_NEVER;
        plan_and_replay(&job, &never);
        assert_true(never.part_peaks[PART_FORWARD] >= always.part_peaks[PART_FORWARD]);
        assert_true(never.live[PLAN_MARK_AFTER_FORWARD] >= always.live[PLAN_MARK_AFTER_FORWARD]);
    }
}

static void more_ranks_never_hold_more_at_rest(void **state)
{
    (void)state;
    for (int i = 0; i < JOBS / 10; i++) {
        struct job job = random_job();
        struct memory few, many;
        job.strategy.rank = 0;
        job.strategy.replicate = 1;
        job.strategy.reshard = RESHARD_ALWAYS;
        plan_and_replay(&job, &few);
        job.strategy.world *= 2;
        plan_and_replay(&job, &many);
        assert_true(many.live[PLAN_MARK_START] <= few.live[PLAN_MARK_START]);
    }
}

static void checkpointing_never_keeps_more_activations(void **state)
{
    (void)state;
    for (int i = 0; i < JOBS / 10; i++) {
        struct job job = random_job();
        struct memory none, selective, full;
        job.tape.checkpointing = CHECKPOINTING_NONE;
        plan_and_replay(&job, &none);
        job.tape.checkpointing = CHECKPOINTING_SELECTIVE;
        plan_and_replay(&job, &selective);
        job.tape.checkpointing = CHECKPOINTING_FULL;
        plan_and_replay(&job, &full);
        const enum plan_mark mark = PLAN_MARK_AFTER_FORWARD;
        assert_true(full.live[mark] <= none.live[mark]);
        assert_true(full.live[mark] <= selective.live[mark]);
    }
}

static void tying_the_head_saves_one_table(void **state)
{
    (void)state;
    for (int i = 0; i < JOBS / 100; i++) {
        struct err err = {0};
        struct job job = random_job();
        uint64_t tied, untied;
        struct plan *plan = NULL;
        job.config.arch = ARCH_GPT2;
        job.model.code = CODE_NANOGPT;
        job.config.kv_heads = job.config.heads;
        job.config.tied = true;
        assert_int_equal(job_plan(&job, &plan, &tied, &err), ERR_OK);
        plan_free(plan);
        job.config.tied = false;
        assert_int_equal(job_plan(&job, &plan, &untied, &err), ERR_OK);
        plan_free(plan);
        assert_int_equal(untied - tied, (uint64_t)job.config.vocab * job.config.hidden);
    }
}

static int set_up(void **state)
{
    (void)state;
    rng = gsl_rng_alloc(gsl_rng_mt19937);
    gsl_rng_set(rng, SEED);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    gsl_rng_free(rng);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_hold_and_everything_is_freed),
        cmocka_unit_test(keeping_parameters_never_takes_less_than_resharding),
        cmocka_unit_test(more_ranks_never_hold_more_at_rest),
        cmocka_unit_test(checkpointing_never_keeps_more_activations),
        cmocka_unit_test(tying_the_head_saves_one_table),
    };
    return cmocka_run_group_tests_name("properties", tests, set_up, tear_down);
}

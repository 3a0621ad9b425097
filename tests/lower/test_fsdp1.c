/* test_fsdp1.c - FSDP1 beside a published run, what it refuses, and plans of random jobs. */
#include "families/families.h"
#include "job/estimate.h"
#include "job/predict.h"
#include "job/step_time.h"
#include "plan/plan_rank.h"
#include "tests/support/random_jobs.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { JOBS = 400, SEED = 20261121 };

/* ---- a published run ---- */

struct count {
    uint64_t elements; /* of the unsharded side */
    uint32_t gathers, reductions;
};

static void count_collectives(const struct plan *plan, struct count *counts, size_t n)
{
    for (uint32_t i = 0; i < plan->instruction_count; i++) {
        const struct plan_instruction *in = &plan->instructions[i];
        if (in->op != PLAN_ALL_GATHER && in->op != PLAN_REDUCE_SCATTER)
            continue;
        const struct kernel *kernel = plan_kernel(plan, in->arg);
        const bool gather = in->op == PLAN_ALL_GATHER;
        const struct operand *sharded = &kernel->operands[gather ? 0 : 1];
        const struct operand *whole = &kernel->operands[gather ? 1 : 0];
        assert_int_equal(whole->dtype, gather ? DTYPE_BF16 : DTYPE_FP32);
        assert_int_equal(shape_elements(&whole->shape), 8 * shape_elements(&sharded->shape));
        for (size_t c = 0; c < n; c++)
            if (counts[c].elements == shape_elements(&whole->shape)) {
                counts[c].gathers += gather;
                counts[c].reductions += !gather;
            }
    }
}

/* Every collective of two steps of Llama-70B under FSDP1 on 8 MI300X, from profiler traces
 * published with TraceLens (AMD): reduce-scatters of 855,654,400 floats to 106,956,800, 160 of
 * them, and of 2,101,354,496 to 262,669,312, two; all-gathers of the same sizes in bfloat16, two of
 * the latter. */
static void flat_parameters_are_those_of_a_published_run(void **state)
{
    (void)state;
    struct count counts[] = {{.elements = 855654400}, {.elements = 2101354496}};
    struct model_config config;
    struct job job;
    struct err err = {0};
    struct plan *plan;
    assert_int_equal(model_preset_find("llama-3.1-70b", &config, &err), ERR_OK);
    job_defaults(&job, &config);
    job.model.seq = 128;
    job.strategy.system = SYSTEM_FSDP1;
    assert_int_equal(job_plan(&job, &plan, NULL, &err), ERR_OK);
    count_collectives(plan, counts, 2);
    assert_int_equal(counts[0].reductions, 160 / 2);
    assert_int_equal(counts[1].reductions, 2 / 2);
    assert_int_equal(counts[1].gathers, 2 / 2); /* the root keeps its own */
    assert_int_equal(counts[0].gathers, 2 * 80);
    plan_free(plan);
}

/* ---- what it refuses ---- */

static struct job small_job(enum arch arch)
{
    const struct model_config config = {.arch = arch,
                                        .activation = arch == ARCH_LLAMA ? "silu" : "gelu_new",
                                        .hidden = 16,
                                        .layers = 2,
                                        .heads = 2,
                                        .kv_heads = 2,
                                        .head_dim = 8,
                                        .ffn = 48,
                                        .vocab = 64,
                                        .max_positions = 64,
                                        .tied = arch == ARCH_GPT2,
                                        .norm_eps = 1e-5F,
                                        .rope = {.theta = 1e4F, .attention_factor = 1}};
    struct job job;
    job_defaults(&job, &config);
    job.model.seq = 8;
    job.strategy.system = SYSTEM_FSDP1;
    job.strategy.world = 4;
    return job;
}

static void expect_refusal(const struct job *job, enum err_code code, const char *says)
{
    struct err err = {0};
    struct plan *plan = NULL;
    assert_int_equal(job_plan(job, &plan, NULL, &err), code);
    assert_null(plan);
    if (!strstr(err.text, says))
        fail_msg("\"%s\" does not say \"%s\"", err.text, says);
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    struct job job = small_job(ARCH_LLAMA);
    job.strategy.replicate = 2;
    expect_refusal(&job, ERR_INVALID, "only HYBRID_SHARD and _HYBRID_SHARD_ZERO2");
    job.strategy.sharding = SHARDING_HYBRID;
    job.strategy.replicate = 1;
    expect_refusal(&job, ERR_INVALID, "the hybrid ones need --replicate");
    job.strategy.replicate = 4; /* shards of one rank: torch would not shard, nor average */
    expect_refusal(&job, ERR_INVALID, "the hybrid ones need --replicate");
    job.strategy.replicate = 3;
    expect_refusal(&job, ERR_INVALID, "--replicate 3 does not divide --gpus 4");

    job = small_job(ARCH_LLAMA);
    job.model.frozen = "*.wq.*";
    expect_refusal(&job, ERR_INVALID, "layers.0 has frozen and trained parameters");

    job = small_job(ARCH_LLAMA);
    job.strategy.units = UNITS_EMBEDDINGS;
    job.strategy.sharding = SHARDING_GRAD_OP;
    job.model.frozen = "tok_embeddings.*,layers.0.*";
    expect_refusal(&job, ERR_UNSUPPORTED, "no gradient reaches tok_embeddings");

    job = small_job(ARCH_LLAMA);
    job.strategy.units = UNITS_ELEMENTS;
    job.strategy.unit_elements = 1000; /* attention has 1,024, feed-forward 2,304 parameters */
    job.strategy.use_orig_params = true;
    job.tape.compiled = COMPILED_BLOCKS;
    expect_refusal(&job, ERR_UNSUPPORTED, "would wrap layers.0.attention");

    job = small_job(ARCH_LLAMA);
    job.strategy.offload = true;
    job.strategy.keep_low_precision_grads = true;
    expect_refusal(&job, ERR_INVALID, "torch refuses a .grad of another dtype");
    job.strategy.keep_low_precision_grads = false;
    job.strategy.accumulate = 2;
    job.strategy.accumulate_sync = true;
    expect_refusal(&job, ERR_INVALID, "gradients that are on the host");

    job = small_job(ARCH_GPT2);
    job.strategy.units = UNITS_EMBEDDINGS;
    expect_refusal(&job, ERR_INVALID, "wte.weight is shared");

    job = small_job(ARCH_GPT2); /* torch fails with and without shards */
    job.strategy.use_orig_params = job.strategy.keep_low_precision_grads = true;
    expect_refusal(&job, ERR_INVALID,
                   "refuses a .grad of another dtype than its parameter's where");
    job.strategy.sharding = SHARDING_NONE;
    expect_refusal(&job, ERR_INVALID,
                   "refuses a .grad of another dtype than its parameter's where");
}

/* ---- random jobs ---- */

static uint32_t below(gsl_rng *rng, uint32_t n)
{
    return (uint32_t)gsl_rng_uniform_int(rng, n);
}

static struct job random_fsdp1_job(gsl_rng *rng)
{
    static const enum units_kind units[] = {UNITS_BLOCKS, UNITS_BLOCKS, UNITS_NONE,
                                            UNITS_EMBEDDINGS, UNITS_ELEMENTS};
    struct job job = random_job(rng);
    struct strategy *s = &job.strategy;
    s->system = SYSTEM_FSDP1;
    s->units = units[below(rng, 5)];
    s->per_unit = 1;
    s->unit_elements = 1 + below(rng, 20000);
    s->sharding = (enum sharding)below(rng, 3);
    if (s->replicate > 1)
        s->sharding = below(rng, 2) ? SHARDING_HYBRID : SHARDING_HYBRID_ZERO2;
    s->prefetch = (enum backward_prefetch)below(rng, 3);
    s->forward_prefetch = below(rng, 2);
    s->use_orig_params = below(rng, 2);
    s->unlimited_gathers = below(rng, 2);
    s->keep_low_precision_grads = below(rng, 3) == 0;
    s->offload = below(rng, 4) == 0 && !s->use_orig_params && !s->keep_low_precision_grads &&
                 (s->accumulate == 1 || !s->accumulate_sync);
    if (s->offload || s->use_orig_params) /* not planned; each rank has its own program */
        s->optimizer = OPTIMIZER_ADAMW;
    job.model.autocast = s->compute == DTYPE_FP32 && below(rng, 2);
    return job;
}

static uint64_t requested(const struct plan *plan)
{
    struct err err = {0};
    struct memory memory;
    const struct memory_options options = {.without_allocator = true};
    assert_int_equal(memory_replay(plan, &options, NULL, NULL, &memory, &err), ERR_OK);
    return memory.requested.bytes;
}

/* The program of another rank is what follows from that of rank 0, but for what depends on which
 * parameters a rank has something of. */
static void check_other_rank(const struct job *job, struct plan *first, uint32_t rank)
{
    struct job other = *job;
    struct plan *plan;
    struct err err = {0};
    other.strategy.rank = rank;
    assert_int_equal(job_plan(&other, &plan, NULL, &err), ERR_OK);
    assert_int_equal(plan_for_rank(first, rank, &err), ERR_OK);
    if (plan_verify(first, &err) != ERR_OK)
        fail_msg("rank %u: %s", rank, err.text);
    if (!job->strategy.use_orig_params)
        assert_int_equal(requested(first), requested(plan));
    plan_free(plan);
}

static void plans_of_random_jobs_are_right_on_every_rank(void **state)
{
    gsl_rng *rng = gsl_rng_alloc(gsl_rng_mt19937);
    uint32_t planned = 0;
    (void)state;
    gsl_rng_set(rng, SEED);
    for (int i = 0; i < JOBS; i++) {
        struct job job = random_fsdp1_job(rng);
        const uint32_t rank = job.strategy.rank;
        struct plan *plan;
        struct err err = {0};
        job.strategy.rank = 0;
        if (job_plan(&job, &plan, NULL, &err) != ERR_OK)
            continue;
        if (plan_verify(plan, &err) != ERR_OK)
            fail_msg("job %d: %s", i, err.text);
        check_other_rank(&job, plan, rank);
        plan_free(plan);
        planned++;
    }
    gsl_rng_free(rng);
    assert_true(planned > JOBS / 3);
}

static void estimates_are_the_predictions(void **state)
{
    struct machine machine = {.gpus_per_node = 8};
    gsl_rng *rng = gsl_rng_alloc(gsl_rng_mt19937);
    uint32_t compared = 0;
    struct err err = {0};
    (void)state;
    gsl_rng_set(rng, SEED + 1);
    assert_int_equal(profile_find("h100-sxm", &machine.profile, &err), ERR_OK);
    for (int i = 0; i < JOBS / 4; i++) {
        struct job job = random_fsdp1_job(rng);
        struct graph *graph;
        struct prediction prediction;
        struct estimate found;
        struct err none = {0};
        job.strategy.world = job.strategy.world > 8 ? 64 : job.strategy.world;
        job.strategy.rank %= job.strategy.world;
        job.model.attention = attention_of(&job, &machine);
        assert_int_equal(job_graph(&job, &graph, &none), ERR_OK);
        const struct tape_options options = job_tape(&job);
        struct stream *stream = tape_run(graph, &options);
        struct estimator *estimator = estimator_new(graph, stream, &machine);
        if (estimate(estimator, &job.strategy, &found, &none) == ERR_OK) {
            assert_int_equal(predict(&job, &machine, &prediction, &err), ERR_OK);
            assert_int_equal(found.requested_bytes, prediction.memory.requested.bytes);
            assert_true(found.least_bytes <= prediction.device_bytes);
            prediction_free(&prediction);
            compared++;
        }
        estimator_free(estimator);
        stream_free(stream);
        graph_free(graph);
    }
    profile_free(&machine.profile);
    gsl_rng_free(rng);
    assert_true(compared > JOBS / 12);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flat_parameters_are_those_of_a_published_run),
        cmocka_unit_test(what_cannot_be_is_refused),
        cmocka_unit_test(plans_of_random_jobs_are_right_on_every_rank),
        cmocka_unit_test(estimates_are_the_predictions),
    };
    return cmocka_run_group_tests_name("fsdp1", tests, NULL, NULL);
}

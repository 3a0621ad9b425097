/* test_zero.c - ZeRO beyond the recordings: random jobs, options, and what DeepSpeed itself
 * estimates.
 *
 * The estimates are deepspeed 0.19.8's estimate_zero2_model_states_mem_needs and
 * estimate_zero3_model_states_mem_needs (runtime/zero/stage_1_and_2.py, stage3.py) with the numbers
 * that they print. */
#include "base/request.h"
#include "families/families.h"
#include "job/job.h"
#include "lower/outline.h"
#include "memory/replay.h"
#include "tests/support/random_jobs.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { JOBS = 1500, SEED = 20261122 };

/* ---- random jobs ---- */

static struct job random_zero_job(gsl_rng *rng)
{
    struct job job = random_job(rng);
    struct strategy *s = &job.strategy;
    const uint32_t stage = 1 + (uint32_t)gsl_rng_uniform_int(rng, 3);
    s->system = stage == 1 ? SYSTEM_ZERO1 : stage == 2 ? SYSTEM_ZERO2 : SYSTEM_ZERO3;
    s->zero = zero_defaults(stage);
    s->store = DTYPE_FP32;
    s->offload = false;
    s->grad_accum_fp32 =
        gsl_rng_uniform_int(rng, 2) && (stage > 1 || s->compute == DTYPE_BF16); /* BF16_Optimizer */
    s->zero.reduce_bucket_size = 1 + gsl_rng_uniform_int(rng, 20000);
    s->zero.contiguous_gradients = gsl_rng_uniform_int(rng, 3) != 0;
    s->zero.overlap_comm = gsl_rng_uniform_int(rng, 2);
    s->zero.round_robin_gradients = gsl_rng_uniform_int(rng, 2);
    s->zero.reduce_scatter = gsl_rng_uniform_int(rng, 2);
    s->zero.sub_group_size = 1 + gsl_rng_uniform_int(rng, 20000);
    s->zero.prefetch_bucket_size = gsl_rng_uniform_int(rng, 20000);
    s->zero.param_persistence_threshold = gsl_rng_uniform_int(rng, 1000);
    s->zero.max_live_parameters = gsl_rng_uniform_int(rng, 100000);
    s->zero.max_reuse_distance = gsl_rng_uniform_int(rng, 50000);
    s->zero.hpz_partition_size = s->world % 2 == 0 && gsl_rng_uniform_int(rng, 3) == 0 ? 2 : 1;
    struct zero_offload *optimizer = &s->zero.optimizer, *param = &s->zero.param;
    optimizer->on = gsl_rng_uniform_int(rng, 3) == 0 && !(stage < 3 && s->grad_accum_fp32);
    optimizer->ratio = stage == 3 ? (double)gsl_rng_uniform_int(rng, 5) / 4 : 1;
    optimizer->pageable = gsl_rng_uniform_int(rng, 2);
    param->on = stage == 3 && gsl_rng_uniform_int(rng, 3) == 0;
    param->pageable = gsl_rng_uniform_int(rng, 2);
    s->zero.quantized_weights = stage == 3 && !param->on && gsl_rng_uniform_int(rng, 3) == 0;
    s->zero.node_ranks = s->world % 2 == 0 ? 2 : 1;
    s->zero.quantized_gradients = stage == 3 && s->zero.reduce_scatter && !optimizer->on &&
                                  s->compute == DTYPE_FP16 && gsl_rng_uniform_int(rng, 2);
    if (strategy_offloads(s)) /* they are planned where nothing is */
        s->optimizer = OPTIMIZER_ADAMW;
    return job;
}

/* The peak of the job's outline, which is to be the program's. */
static uint64_t outlined_peak(const struct job *job)
{
    struct err err = {0};
    struct graph *graph;
    assert_int_equal(model_build(&job->config, &job->model, &graph, &err), ERR_OK);
    const struct tape_options options = job_tape(job);
    struct stream *stream = tape_run(graph, &options);
    const uint64_t no_workspace[2] = {0};
    struct outline *outline = outline_new(stream, no_workspace);
    struct outlined out = {.plan = NULL};
    assert_int_equal(lower_outline(graph, outline, &job->strategy, &out, &err), ERR_OK);
    plan_free(out.plan);
    outline_free(outline);
    stream_free(stream);
    graph_free(graph);
    return out.requested_bytes;
}

static void random_programs_hold_together(void **state)
{
    (void)state;
    gsl_rng *rng = gsl_rng_alloc(gsl_rng_mt19937);
    gsl_rng_set(rng, SEED);
    uint32_t planned = 0;
    for (int i = 0; i < JOBS; i++) {
        const struct job job = random_zero_job(rng);
        const struct memory_options options = {.without_allocator = true};
        struct err err = {0};
        struct memory memory;
        struct plan *plan;
        if (job_plan(&job, &plan, NULL, &err) != ERR_OK) {
            assert_true(strstr(err.text, "trained and not used") ||
                        strstr(err.text, "quantises multiples of 8"));
            continue;
        }
        planned++;
        if (plan_verify(plan, &err) != ERR_OK)
            fail_msg("job %d: %s", i, err.text);
        assert_int_equal(memory_replay(plan, &options, NULL, NULL, &memory, &err), ERR_OK);
        assert_int_equal(memory.live[PLAN_MARK_START], memory.live[PLAN_MARK_END]);
        assert_int_equal(memory.requested.bytes, outlined_peak(&job));
        plan_free(plan);
    }
    gsl_rng_free(rng);
    assert_true(planned > JOBS / 2);
}

/* ---- what DeepSpeed estimates ---- */

static uint64_t estimate_zero2(uint64_t params, uint64_t ranks)
{
    return 2 * params + (uint64_t)(18.0 * (double)params / (double)ranks);
}

static uint64_t estimate_zero3(uint64_t params, uint64_t largest, uint64_t ranks)
{
    return 4 * largest + (uint64_t)(18.0 * (double)params / (double)ranks);
}

static void estimates_are_deepspeeds(void **state)
{
    (void)state;
    const double gib = 1024.0 * 1024 * 1024;
    assert_true(fabs((double)estimate_zero2(2851000000, 8) / gib - 11.285) < 0.0005);
    assert_true(fabs((double)estimate_zero2(7000000000, 32) / gib - 16.706) < 0.0005);
    assert_true(fabs((double)estimate_zero3(2851000000, 32000000, 8) / gib - 6.093) < 0.0005);
    assert_true(fabs((double)estimate_zero3(7000000000, 131072000, 32) / gib - 4.155) < 0.0005);
}

/* One block on `ranks` ranks, all of whose parameters have a multiple of 8 elements. */
static struct job even_job(enum system_kind system, uint32_t stage, uint32_t ranks)
{
    struct model_config config = {
        .arch = ARCH_FSDP2_TUTORIAL,
        .activation = "relu",
        .layers = 1,
        .heads = 1,
        .kv_heads = 1,
        .head_dim = 64,
        .hidden = 64,
        .ffn = 256,
        .vocab = 128,
        .max_positions = 8,
        .norm_eps = 1e-5F,
    };
    struct job job;
    job_defaults(&job, &config);
    job.model.batch = 1;
    job.model.seq = 8;
    job.strategy.system = system;
    job.strategy.world = ranks;
    job.strategy.zero = zero_defaults(stage);
    job.strategy.zero.reduce_bucket_size = 1000;
    job.strategy.zero.param_persistence_threshold = 0;
    return job;
}

struct states { /* of a step, without its inputs */
    uint64_t params, rest,
        updating; /* bytes between steps; once the fp32 gradient is there alone */
};

/* `updating`: what lives when the update's first instruction runs, but its scalars. */
static struct states states_of(const struct job *job)
{
    struct err err = {0};
    struct plan *plan;
    struct states states = {0};
    uint64_t live = 0, inputs = 0, small = 0;
    assert_int_equal(job_plan(job, &plan, &states.params, &err), ERR_OK);
    for (uint32_t b = 0; b < plan->buffer_count; b++) {
        const struct buffer *buffer = &plan->buffers[b];
        if (buffer->resident)
            live += buffer->bytes;
        if (buffer->category == CATEGORY_INPUT)
            inputs += buffer->bytes;
        else if (buffer->resident && buffer->bytes <= 8)
            small += buffer->bytes;
    }
    states.rest = live - inputs - small;
    for (uint32_t i = 0; i < plan->instruction_count && !states.updating; i++) {
        const struct plan_instruction *x = &plan->instructions[i];
        const bool state = x->flags & PLAN_FIRST_STEP;
        if (x->op == PLAN_ALLOC && !state && plan->buffers[x->arg].bytes > 8)
            live += plan->buffers[x->arg].bytes;
        if (x->op == PLAN_FREE && plan->buffers[x->arg].bytes > 8)
            live -= plan->buffers[x->arg].bytes;
        if (x->op == PLAN_ALLOC && state) /* AdamW's, before its temporaries */
            states.updating = live - inputs - small;
    }
    plan_free(plan);
    return states;
}

/* 2 bytes a parameter for computing, and 2 + 4 + 4 + 4 + 4 a rank's share: the paper's 2 + (2 +
 * K)/N with fp32 gradients. The estimate counts the 16-bit gradients, too, which are gone by then.
 */
static void zero2_is_as_estimated_but_for_gradients_that_are_gone(void **state)
{
    (void)state;
    for (uint32_t ranks = 1; ranks <= 4; ranks *= 2) {
        const struct job job = even_job(SYSTEM_ZERO2, 2, ranks);
        const struct states states = states_of(&job);
        assert_int_equal(states.rest, 2 * states.params + 12 * states.params / ranks);
        assert_int_equal(states.updating, states.rest + 4 * states.params / ranks);
        assert_int_equal(estimate_zero2(states.params, ranks) - states.updating,
                         2 * states.params / ranks);
    }
}

/* What the estimate leaves out: the 16-bit shards, the buffer of reduced gradients that is always
 * there, and the bucket. What it adds are two copies of the largest layer while it computes. */
static void zero3_is_more_than_estimated(void **state)
{
    (void)state;
    for (uint32_t ranks = 2; ranks <= 8; ranks *= 2) {
        const struct job job = even_job(SYSTEM_ZERO3, 3, ranks);
        const struct states states = states_of(&job);
        const uint64_t bucket = 2 * job.strategy.zero.reduce_bucket_size;
        assert_int_equal(states.rest, (2 + 2 + 12) * states.params / ranks + bucket);
        assert_int_equal(states.updating, states.rest + 4 * states.params / ranks);
        assert_int_equal(states.updating - bucket - estimate_zero3(states.params, 0, ranks),
                         2 * states.params / ranks);
    }
}

/* ---- options ---- */

static enum err_code read_text_of(uint32_t version, const char *text, uint32_t stage,
                                  struct zero_options *out, struct err *err)
{
    json_t *object = json_loads(text, 0, NULL);
    *out = zero_defaults_of(version, stage);
    const enum err_code rc = zero_read_json(object, "f.json", stage, 64, out, err);
    json_decref(object);
    return rc;
}

static enum err_code read_text(const char *text, uint32_t stage, struct zero_options *out,
                               struct err *err)
{
    return read_text_of(ZERO_NEWEST, text, stage, out, err);
}

static void options_are_deepspeeds(void **state)
{
    (void)state;
    struct err err = {0};
    struct zero_options o = {0};
    assert_int_equal(read_text("{\"stage\": 3, \"stage3_prefetch_bucket_size\": 1e6, "
                               "\"offload_param\": {\"device\": \"none\"}, \"overlap_comm\": null}",
                               3, &o, &err),
                     ERR_OK);
    assert_int_equal(o.prefetch_bucket_size, 1000000);
    assert_int_equal(o.reduce_bucket_size, 500000000);
    assert_true(o.overlap_comm); /* on in stage 3, off below it */
    assert_false(zero_defaults(2).overlap_comm);
    assert_int_equal(read_text("{\"train_batch_size\": 8, \"zero_optimization\": "
                               "{\"reduce_scatter\": false}}",
                               2, &o, &err),
                     ERR_OK);
    assert_false(o.reduce_scatter);
    assert_false(o.optimizer.on || o.param.on);
}

/* transformers.integrations.deepspeed: HfTrainerDeepSpeedConfig.trainer_config_finalize of a model
 * whose hidden_size is 64. */
static void auto_is_what_the_trainer_fills_in(void **state)
{
    (void)state;
    struct err err = {0};
    struct zero_options o = {0};
    assert_int_equal(
        read_text("{\"reduce_bucket_size\": \"auto\", \"stage3_prefetch_bucket_size\": "
                  "\"auto\", \"stage3_param_persistence_threshold\": \"auto\", "
                  "\"stage3_gather_16bit_weights_on_model_save\": \"auto\"}",
                  3, &o, &err),
        ERR_OK);
    assert_int_equal(o.reduce_bucket_size, 4096);
    assert_int_equal(o.prefetch_bucket_size, 3686);
    assert_int_equal(o.param_persistence_threshold, 640);
    assert_int_equal(read_text("{\"overlap_comm\": \"auto\"}", 3, &o, &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "f.json: overlap_comm: \"auto\""));
    err = (struct err){0};
    json_t *object = json_loads("{\"reduce_bucket_size\": \"auto\"}", 0, NULL);
    assert_int_equal(zero_read_json(object, "f.json", 2, 0, &o, &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "give a number"));
    json_decref(object);
}

static void offload_options_are_read(void **state)
{
    (void)state;
    struct err err = {0};
    struct zero_options o = {0};
    assert_int_equal(read_text("{\"offload_optimizer\": {\"device\": \"cpu\", \"ratio\": 0.25, "
                               "\"pin_memory\": false, \"buffer_count\": 5, \"fast_init\": true}, "
                               "\"offload_param\": {\"device\": \"cpu\"}}",
                               3, &o, &err),
                     ERR_OK);
    assert_true(o.optimizer.on && o.optimizer.pageable && o.optimizer.ratio == 0.25);
    assert_true(o.param.on && !o.param.pageable);
    /* Stages 1 and 2 do without offload_param. */
    assert_int_equal(read_text("{\"offload_param\": {\"device\": \"cpu\"}}", 2, &o, &err), ERR_OK);
    assert_false(o.param.on);
}

/* What is on the device without offloading is on the host with it: the bytes of ZeRO-2 are those of
 * DeepSpeed's own estimate with cpu_offload, 2 a parameter on the device; on the host 16 a rank's
 * parameter and its 16-bit copy. */
static void what_is_no_key_is_refused_with_the_nearest(void **state)
{
    static const char *const cases[][2] = {
        {"{\"nope\": 1}", "f.json: nope: zero_optimization of DeepSpeed 0.19.8 has no such key"},
        {"{\"reduce_buket_size\": 1}", "f.json: reduce_buket_size: zero_optimization of DeepSpeed "
                                       "0.19.8 has no such key; did you "
                                       "mean reduce_bucket_size?"},
    };
    struct zero_options o;
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err err = {0};
        assert_int_equal(read_text(cases[i][0], 3, &o, &err), ERR_INVALID);
        assert_string_equal(err.text, cases[i][1]);
    }
}

/* config.py and offload_config.py by tags of DeepSpeed's repository: v0.19.4 has pin_memory False,
 * v0.19.5 True; leaf_module came with v0.18.0, super_offload too, ratio with v0.12.3. */
static void keys_and_defaults_are_of_a_version(void **state)
{
    static const char offload[] = "{\"offload_optimizer\": {\"device\": \"cpu\"}, "
                                  "\"offload_param\": {\"device\": \"cpu\"}}";
    static const struct {
        uint32_t version;
        const char *text, *message;
    } cases[] = {
        {1706, "{\"leaf_module\": {\"names\": []}}",
         "f.json: leaf_module: DeepSpeed 0.17.6 has no such key: it came with 0.18.0"},
        {1102, "{\"offload_optimizer\": {\"device\": \"cpu\", \"ratio\": 1}}",
         "it came with 0.12.3"},
        {1609, "{\"enable_sanity_checks\": false}", "it came with 0.17.6"},
    };
    struct zero_options o;
    struct err err = {0};
    (void)state;
    for (uint32_t version = 1904; version <= 1905; version++) {
        assert_int_equal(read_text_of(version, offload, 3, &o, &err), ERR_OK);
        assert_int_equal(o.param.pageable, version == 1904);
        assert_int_equal(o.optimizer.pageable, version == 1904);
    }
    assert_string_equal(zero_defaults_of(1706, 3).leaf_classes, "");
    assert_string_equal(zero_defaults_of(1809, 3).leaf_classes, zero_defaults(3).leaf_classes);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        err = (struct err){0};
        assert_int_equal(read_text_of(cases[i].version, cases[i].text, 3, &o, &err), ERR_INVALID);
        if (!strstr(err.text, cases[i].message))
            fail_msg("%s", err.text);
        assert_int_equal(read_text(cases[i].text, 3, &o, &err), ERR_OK);
    }
}

/* leaf_module_config.py: a name alone is a list of one, classes may be named in full, and what is
 * not named keeps its default. */
static void leaf_modules_are_read(void **state)
{
    (void)state;
    struct err err = {0};
    struct zero_options o = {0};
    const char *const defaults =
        "MixtralSparseMoeBlock,Qwen2MoeSparseMoeBlock,Qwen3MoeSparseMoeBlock";
    assert_int_equal(
        read_text("{\"leaf_module\": {\"names\": \"model.layers.0.mlp\", \"name_suffixes\": "
                  "[\".mlp\", \".moe\"]}}",
                  3, &o, &err),
        ERR_OK);
    assert_string_equal(o.leaf_classes, defaults);
    assert_string_equal(o.leaf_names, "model.layers.0.mlp");
    assert_string_equal(o.leaf_suffixes, ".mlp,.moe");
    assert_int_equal(read_text("{\"leaf_module\": {\"classes\": [\"transformers.models.qwen3_moe."
                               "modeling_qwen3_moe.Qwen3MoeSparseMoeBlock\", "
                               "\"MixtralSparseMoeBlock\"], \"names\": []}}",
                               3, &o, &err),
                     ERR_OK);
    assert_string_equal(o.leaf_classes, "Qwen3MoeSparseMoeBlock,MixtralSparseMoeBlock");
    assert_string_equal(o.leaf_names, "");
    assert_int_equal(read_text("{\"leaf_module\": {\"classes\": []}}", 3, &o, &err), ERR_OK);
    assert_string_equal(o.leaf_classes, "");
    assert_int_equal(read_text("{\"leaf_module\": null}", 3, &o, &err), ERR_OK);
    assert_string_equal(o.leaf_classes, defaults);
    assert_true(zero_is_listed(o.leaf_classes, "Qwen2MoeSparseMoeBlock.x", 22));
    assert_false(zero_is_listed(o.leaf_classes, "SparseMoeBlock", 14));
    assert_true(zero_has_suffix(".mlp,.moe", "model.layers.3.moe.gate", 18));
    assert_false(zero_has_suffix(".mlp,.moe", "model.layers.3.moe.gate", 23));
}

static void what_is_offloaded_is_on_the_host(void **state)
{
    (void)state;
    struct job job = even_job(SYSTEM_ZERO2, 2, 4), off = job;
    off.strategy.zero.optimizer = (struct zero_offload){.on = true, .ratio = 1};
    struct plan *plans[2];
    struct err err = {0};
    assert_int_equal(job_plan(&job, &plans[0], NULL, &err), ERR_OK);
    assert_int_equal(job_plan(&off, &plans[1], NULL, &err), ERR_OK);
    uint64_t device[2] = {0}, host[2] = {0}, pinned = 0, largest = 0, all = 0;
    for (int i = 0; i < 2; i++)
        for (uint32_t b = 0; b < plans[i]->buffer_count; b++) {
            const struct buffer *buffer = &plans[i]->buffers[b];
            if (!buffer->resident || buffer->scratch)
                continue;
            *(buffer->pool == LANE_HOST ? &host[i] : &device[i]) += buffer->bytes;
            pinned += i == 1 && buffer->pinned ? buffer->bytes : 0;
        }
    for (uint32_t p = 0; p < plans[0]->param_count; p++) {
        const uint64_t n = shape_elements(&plans[0]->params[p].shape);
        all += n;
        largest = n > largest ? n : largest;
    }
    /* master, two states, and their norm go; room for the largest gradient comes */
    const uint64_t part = (all + 7) / 8 * 2;
    assert_int_equal(device[0] - device[1], 12 * part + 4 - 2 * largest);
    assert_int_equal(host[1] - host[0], 12 * part + 4 * part + 2 * part + 2 * largest);
    assert_int_equal(pinned, 4 * part + 4 * part + 2 * part + 2 * largest);
    plan_free(plans[0]);
    plan_free(plans[1]);
}

/* Bytes that gathers bring. */
static uint64_t gathered_bytes(const struct job *job, uint32_t *quantized)
{
    struct err err = {0};
    struct plan *plan;
    uint64_t bytes = 0;
    assert_int_equal(job_plan(job, &plan, NULL, &err), ERR_OK);
    *quantized = 0;
    for (uint32_t i = 0; i < plan->instruction_count; i++) {
        const struct plan_instruction *in = &plan->instructions[i];
        if (!plan_op_is_kernel((enum plan_op)in->op))
            continue;
        const struct kernel *kernel = plan_kernel(plan, in->arg);
        const struct operand *out = &kernel->operands[kernel->ins];
        *quantized += kernel->work == WORK_QUANTIZE;
        if (in->op == PLAN_ALL_GATHER)
            bytes += shape_bytes(&out->shape, (enum dtype)out->dtype);
    }
    plan_free(plan);
    return bytes;
}

/* Blocks of the allocator that pads take: of all that the ranks from n / part on have too little.
 */
static uint64_t pad_blocks(const struct plan *plan, uint64_t ranks, uint64_t element)
{
    uint64_t bytes = 0;
    for (uint32_t p = 0; p < plan->param_count; p++) {
        const uint64_t n = shape_elements(&plan->params[p].shape);
        const uint64_t part = placement_chunk(n, (uint32_t)ranks);
        for (uint64_t rank = 0; rank < ranks; rank++) {
            const uint64_t before = rank * part < n ? rank * part : n;
            const uint64_t own = n - before < part ? n - before : part;
            bytes += request_round((part - own) * element);
        }
    }
    return bytes;
}

/* Up to 1,024 ranks each pad is a tensor; of more, which would be millions in a step, they are one
 * a gradient. The blocks are the same. */
static void pads_take_their_blocks_one_by_one_or_at_once(void **state)
{
    (void)state;
    static const uint32_t worlds[] = {7, 96, 1000, 5000, 20000};
    struct err err = {0};
    for (size_t w = 0; w < sizeof worlds / sizeof *worlds; w++) {
        struct plan *plan;
        struct job job = even_job(SYSTEM_ZERO3, 3, worlds[w]);
        uint64_t bytes = 0, pads = 0;
        assert_int_equal(job_plan(&job, &plan, NULL, &err), ERR_OK);
        for (uint32_t i = 0; i < plan->instruction_count; i++) {
            const struct plan_instruction *in = &plan->instructions[i];
            const struct buffer *buffer = &plan->buffers[in->arg];
            if (in->op != PLAN_ALLOC || buffer->category != CATEGORY_REDUCE_SCATTER ||
                strncmp(plan->labels[buffer->label], "empty", 5) != 0)
                continue;
            bytes += request_round(buffer->bytes);
            pads++;
        }
        const uint64_t element = dtype_bytes(job.strategy.compute);
        assert_true(bytes > 0);
        assert_int_equal(bytes, pad_blocks(plan, worlds[w], element));
        if (worlds[w] > 1024)
            assert_true(pads <= 1024 * (uint64_t)plan->param_count);
        plan_free(plan);
    }
}

/* A byte an element in place of two, and four for at most 8,000 of them; what hpZ gathers, too. */
static void quantised_gathers_bring_half_the_bytes(void **state)
{
    (void)state;
    for (uint64_t hpz = 1; hpz <= 2; hpz++) {
        struct job job = even_job(SYSTEM_ZERO3, 3, 4);
        uint32_t none, some;
        job.strategy.zero.param_persistence_threshold = 0;
        job.strategy.zero.hpz_partition_size = hpz;
        const uint64_t whole = gathered_bytes(&job, &none);
        job.strategy.zero.quantized_weights = true;
        const uint64_t half = gathered_bytes(&job, &some);
        assert_int_equal(none, 0);
        assert_true(some > 0);
        assert_true(2 * half > whole);
        assert_true((double)half < 0.51 * (double)whole);
    }
}

/* qgZ, across nodes: half a byte an element in the node, a node's share of that across, scales of
 * 4 bytes a group, as many as the longer of rows and columns; what 2 N does not divide goes as
 * ever. */
static void quantised_reductions_send_a_quarter_of_the_bytes(void **state)
{
    (void)state;
    struct err err = {0};
    struct plan *plan;
    struct job job = even_job(SYSTEM_ZERO3, 3, 4);
    uint64_t within = 0, across = 0, want = 0, scattered = 0;
    job.strategy.zero.param_persistence_threshold = 0;
    job.strategy.zero.quantized_gradients = true;
    job.strategy.zero.node_ranks = 2;
    job.strategy.compute = job.model.compute = DTYPE_FP16;
    assert_int_equal(job_plan(&job, &plan, NULL, &err), ERR_OK);
    for (uint32_t i = 0; i < plan->instruction_count; i++) {
        const struct plan_instruction *in = &plan->instructions[i];
        if (in->op != PLAN_ALL_TO_ALL && in->op != PLAN_REDUCE_SCATTER)
            continue;
        const struct operand *x = plan_kernel(plan, in->arg)->operands;
        const uint64_t bytes = shape_bytes(&x->shape, (enum dtype)x->dtype);
        if (in->op == PLAN_REDUCE_SCATTER)
            scattered += shape_elements(&x->shape);
        else
            *(plan->groups[in->group].stride == 1 ? &within : &across) += bytes;
    }
    for (uint32_t p = 0; p < plan->param_count; p++) {
        const struct shape *shape = &plan->params[p].shape;
        const uint64_t n = shape_elements(shape);
        if (shape->rank < 2 || n % 8 != 0) {
            assert_true(scattered >= n);
            scattered -= n;
        } else {
            const uint64_t rows = shape->dim[0], columns = shape->dim[1];
            want += n / 2 + 4 * (rows > columns ? rows : columns);
        }
    }
    assert_true(want > 0);
    assert_int_equal(within, want);
    assert_int_equal(across, want / 2);
    assert_true(scattered < 4 * (uint64_t)plan->param_count); /* what pads them */
    plan_free(plan);

    job.strategy.zero.node_ranks = 4; /* within one node it is not done */
    assert_int_equal(job_plan(&job, &plan, NULL, &err), ERR_OK);
    for (uint32_t i = 0; i < plan->instruction_count; i++)
        assert_int_not_equal(plan->instructions[i].op, PLAN_ALL_TO_ALL);
    plan_free(plan);
}

static void quantised_reductions_that_cannot_be_are_refused(void **state)
{
    (void)state;
    static const struct {
        uint32_t world, node;
        enum dtype dtype;
        bool all_reduce, offload;
        enum err_code code;
        const char *message;
    } cases[] = {
        {4, 2, DTYPE_BF16, false, false, ERR_INVALID, "become other numbers"},
        {4, 2, DTYPE_FP16, true, false, ERR_INVALID, "asks for reduce_scatter"},
        {6, 4, DTYPE_FP16, false, false, ERR_INVALID, "6 ranks are no multiple of 4"},
        {4, 2, DTYPE_FP16, false, true, ERR_UNSUPPORTED, "with offload_optimizer"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct job job = even_job(SYSTEM_ZERO3, 3, cases[i].world);
        struct plan *plan;
        struct err err = {0};
        job.strategy.zero.quantized_gradients = true;
        job.strategy.zero.node_ranks = cases[i].node;
        job.strategy.zero.reduce_scatter = !cases[i].all_reduce;
        job.strategy.zero.optimizer.on = cases[i].offload;
        job.strategy.compute = job.model.compute = cases[i].dtype;
        assert_int_equal(job_plan(&job, &plan, NULL, &err), cases[i].code);
        if (!strstr(err.text, cases[i].message))
            fail_msg("%s", err.text);
    }
}

static void what_is_wrong_or_not_planned_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint32_t stage;
        enum err_code code;
        const char *message;
    } cases[] = {
        {"{\"reduce_bucket\": 1}", 2, ERR_INVALID, "did you mean reduce_bucket_size?"},
        {"{\"reduce_bucket_size\": 0}", 2, ERR_INVALID, "f.json: reduce_bucket_size: allowed are"},
        {"{\"overlap_comm\": 1}", 2, ERR_INVALID, "overlap_comm: allowed are true, false"},
        {"{\"stage\": 2}", 3, ERR_INVALID, "stage: allowed is 3"},
        {"[]", 3, ERR_INVALID, "allowed is one object"},
        {"{\"offload_optimizer\": {\"device\": \"disk\"}}", 2, ERR_INVALID, "none, cpu or nvme"},
        {"{\"offload_optimizer\": {\"device\": \"nvme\"}}", 3, ERR_UNSUPPORTED,
         "a disk's, of which no machine here has a number; on the host it would keep 4 buffers"},
        {"{\"offload_param\": {\"device\": \"nvme\"}}", 3, ERR_UNSUPPORTED,
         "on each rank's host it would keep 0.93 GiB of buffers"},
        {"{\"offload_param\": {\"device\": \"nvme\", \"buffer_count\": 16, "
         "\"buffer_size\": 1073741824}}",
         3, ERR_UNSUPPORTED, "on each rank's host it would keep 32.00 GiB of buffers"},
        {"{\"offload_optimizer\": {\"device\": \"cpu\", \"ratio\": 0.5}}", 2, ERR_INVALID,
         "offload_optimizer: ratio: allowed are numbers from 0 to 1, and 1 below stage 3"},
        {"{\"offload_optimizer\": {\"device\": \"cpu\", \"super_offload\": true}}", 3,
         ERR_UNSUPPORTED, "SuperOffload"},
        {"{\"offload_optimizer\": {\"device\": \"cpu\", \"pin_memory\": 1}}", 3, ERR_INVALID,
         "pin_memory: allowed are true, false"},
        {"{\"offload_param\": {\"device\": \"cpu\", \"ratio\": 1}}", 3, ERR_INVALID,
         "no such key: ratio"},
        {"{\"cpu_offload\": true}", 2, ERR_UNSUPPORTED, "has offload_optimizer in its place"},
        {"{\"leaf_module\": [\".mlp\"]}", 3, ERR_INVALID, "leaf_module: allowed is an object"},
        {"{\"leaf_module\": {\"suffixes\": [\".mlp\"]}}", 3, ERR_INVALID,
         "suffixes: allowed are lists: classes, names, name_suffixes"},
        {"{\"leaf_module\": {\"names\": [1]}}", 3, ERR_INVALID, "names: allowed are names"},
        {"{\"leaf_module\": {\"names\": [\"a,b\"]}}", 3, ERR_INVALID, "names: allowed are names"},
        {"{\"mics_shard_size\": 4}", 3, ERR_UNSUPPORTED, "gone from DeepSpeed 0.19.8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct err err = {0};
        struct zero_options o;
        assert_int_equal(read_text(cases[i].text, cases[i].stage, &o, &err), cases[i].code);
        if (!strstr(err.text, cases[i].message))
            fail_msg("%s: %s", cases[i].text, err.text);
    }
}

static void strategies_that_cannot_be_are_refused(void **state)
{
    (void)state;
    struct err first = {0};
    struct plan *plan;
    struct job job = even_job(SYSTEM_ZERO3, 3, 6);
    job.strategy.zero.hpz_partition_size = 4;
    assert_int_equal(job_plan(&job, &plan, NULL, &first), ERR_INVALID);
    assert_non_null(strstr(first.text, "does not divide the 6 ranks"));
    struct err second = {0};
    job = even_job(SYSTEM_ZERO3, 3, 7);
    job.strategy.zero.quantized_weights = true;
    assert_int_equal(job_plan(&job, &plan, NULL, &second), ERR_INVALID);
    assert_non_null(strstr(second.text, "quantises multiples of 8"));
    struct err unknown = {0};
    job = even_job(SYSTEM_ZERO3, 3, 8);
    snprintf(job.strategy.zero.leaf_classes, ZERO_LEAVES, "MixtralSparseMoeBlock,MyBlock");
    assert_int_equal(job_plan(&job, &plan, NULL, &unknown), ERR_UNSUPPORTED);
    assert_non_null(strstr(unknown.text, "which modules are a MyBlock is not known"));
    /* DeepSpeed's reduce_scatter_coalesced makes a tensor for each rank that has none of a bias */
    struct err third = {0};
    job = even_job(SYSTEM_ZERO3, 3, 1000000);
    assert_int_equal(job_plan(&job, &plan, NULL, &third), ERR_UNSUPPORTED);
    assert_non_null(strstr(third.text, "fill up the short ones"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_programs_hold_together),
        cmocka_unit_test(estimates_are_deepspeeds),
        cmocka_unit_test(zero2_is_as_estimated_but_for_gradients_that_are_gone),
        cmocka_unit_test(zero3_is_more_than_estimated),
        cmocka_unit_test(options_are_deepspeeds),
        cmocka_unit_test(auto_is_what_the_trainer_fills_in),
        cmocka_unit_test(offload_options_are_read),
        cmocka_unit_test(leaf_modules_are_read),
        cmocka_unit_test(what_is_no_key_is_refused_with_the_nearest),
        cmocka_unit_test(keys_and_defaults_are_of_a_version),
        cmocka_unit_test(what_is_offloaded_is_on_the_host),
        cmocka_unit_test(pads_take_their_blocks_one_by_one_or_at_once),
        cmocka_unit_test(quantised_gathers_bring_half_the_bytes),
        cmocka_unit_test(quantised_reductions_send_a_quarter_of_the_bytes),
        cmocka_unit_test(quantised_reductions_that_cannot_be_are_refused),
        cmocka_unit_test(what_is_wrong_or_not_planned_is_named),
        cmocka_unit_test(strategies_that_cannot_be_are_refused),
    };
    return cmocka_run_group_tests_name("zero", tests, NULL, NULL);
}

/* suite.c - see suite.h. */
#include "calibrate/suite.h"

#include "base/aten.h"
#include "job/job.h"

#include <stdio.h>

/* ---- models ---- */

struct size {
    uint32_t hidden, heads, ffn, vocab, seq, batch;
};

/* Widths and lengths from what fits into the first caches to what does not. */
static const struct size sizes[] = {
    {96, 4, 256, 600, 64, 2},
    {192, 6, 512, 1500, 160, 1},
    {320, 5, 864, 900, 96, 3},
    {384, 6, 1024, 2400, 224, 2},
};

static const struct size quick_sizes[] = {
    {32, 4, 96, 100, 32, 1}, {64, 4, 160, 200, 48, 1}, {96, 4, 256, 300, 64, 1}};

/* What a plan is made for, beside its size: together they show every kernel that the plans of these
 * models may hold, forward and backward, in both precisions. */
struct variant {
    enum arch arch;
    enum dtype compute;
    bool together; /* all ranks; else one */
    enum optimizer_impl impl;
    enum optimizer_kind optimizer;
    float clip;
    bool offload;
};

static const struct variant variants[] = {
    {ARCH_LLAMA, DTYPE_FP32, .together = false},
    {ARCH_LLAMA, DTYPE_BF16, .together = true},
    {ARCH_GPT2, DTYPE_FP32, .together = true},
    {ARCH_GPT2, DTYPE_BF16, .together = false},
    {ARCH_FSDP2_TUTORIAL, DTYPE_FP32, .together = true},
    {ARCH_FSDP2_TUTORIAL, DTYPE_BF16, .together = false},
    {ARCH_LLAMA, DTYPE_FP32, .together = true, .impl = IMPL_FUSED},
    {ARCH_LLAMA, DTYPE_BF16, .together = false, .clip = 1.0F},
    {ARCH_LLAMA, DTYPE_FP32, .together = true, .clip = 1.0F, .optimizer = OPTIMIZER_SGD},
    {ARCH_GPT2, DTYPE_FP32, .together = false, .optimizer = OPTIMIZER_SGD},
    {ARCH_GPT2, DTYPE_BF16, .together = false, .impl = IMPL_FUSED},
    {ARCH_LLAMA, DTYPE_FP32, .together = false, .offload = true},
};

enum {
    VARIANTS = sizeof variants / sizeof variants[0],
    SIZES = sizeof sizes / sizeof sizes[0],
    QUICK_SIZES = sizeof quick_sizes / sizeof quick_sizes[0],
    QUICK_VARIANTS = 2,
    MICRO_BATCHES = 4,
    LAYERS = 2
};

static struct job job_of(const struct variant *v, const struct size *size, uint32_t ranks)
{
    const struct model_config config = {
        .arch = v->arch,
        .hidden = size->hidden,
        .layers = LAYERS,
        .heads = size->heads,
        .kv_heads = v->arch == ARCH_LLAMA && size->heads % 2 == 0 ? size->heads / 2 : size->heads,
        .head_dim = size->hidden / size->heads,
        .ffn = v->arch == ARCH_LLAMA ? size->ffn : 4 * size->hidden,
        .vocab = size->vocab,
        .max_positions = size->seq,
        .tied = v->arch == ARCH_GPT2,
        .norm_eps = 1e-5F,
        .rope_theta = 10000,
        .activation = v->arch == ARCH_LLAMA ? "silu" : "gelu_new",
    };
    struct job job;
    job_defaults(&job, &config);
    job.model.batch = size->batch;
    job.model.seq = size->seq;
    job.model.compute = job.strategy.compute = v->compute;
    job.strategy.world = v->together ? ranks : 1;
    job.strategy.accumulate = MICRO_BATCHES;
    job.strategy.impl = v->impl;
    job.strategy.optimizer = v->optimizer;
    job.strategy.max_norm = v->clip;
    job.strategy.offload = v->offload;
    return job;
}

static enum err_code make_model(const struct suite_options *options, uint32_t i,
                                struct suite_item *out, struct err *err)
{
    const uint32_t count = options->quick ? QUICK_SIZES : SIZES;
    const struct variant *v = &variants[i / count];
    const struct size *size = options->quick ? &quick_sizes[i % count] : &sizes[i % count];
    const struct job job = job_of(v, size, options->ranks);
    out->purpose = SUITE_KERNELS;
    snprintf(out->name, sizeof out->name, "%s %u x %u, %s, %u rank%s", arch_name(v->arch),
             size->seq * size->batch, size->hidden, dtype_brief(v->compute), job.strategy.world,
             job.strategy.world == 1 ? "" : "s");
    return job_plan(&job, &out->plan, NULL, err);
}

/* ---- plans with something at their end ---- */

struct tail {
    struct plan *plan;
};

static void add(struct tail *t, enum plan_op op, enum stream_id stream, uint32_t arg)
{
    plan_add_instruction(t->plan, &(struct plan_instruction){
                                      .op = (uint8_t)op,
                                      .stream = (uint8_t)stream,
                                      .phase = PLAN_STEP,
                                      .group = plan_op_is_collective(op) ? 0 : PLAN_NO_GROUP,
                                      .unit = PLAN_NO_UNIT,
                                      .outer_unit = PLAN_NO_UNIT,
                                      .arg = arg,
                                  });
}

/* The plan of a tiny model, its mark "end" taken off: tail_close puts it back. */
static enum err_code tail_open(const struct suite_options *options, struct tail *t, struct err *err)
{
    static const struct variant plain = {
        .arch = ARCH_LLAMA, .compute = DTYPE_FP32, .together = true};
    const struct job job = job_of(&plain, &quick_sizes[0], options->ranks);
    *t = (struct tail){.plan = NULL};
    TRY(job_plan(&job, &t->plan, NULL, err));
    t->plan->instruction_count--;
    return ERR_OK;
}

static void tail_close(struct tail *t)
{
    add(t, PLAN_MARK, STREAM_HOST, PLAN_MARK_END);
}

static uint32_t tail_buffer(struct tail *t, enum stream_id pool, uint64_t elements)
{
    const struct shape shape = SHAPE((uint32_t)elements);
    const uint32_t buffer = plan_add_buffer(t->plan, &(struct buffer){
                                                         .bytes = shape_bytes(&shape, DTYPE_FP32),
                                                         .label = ATEN_EMPTY,
                                                         .dtype = DTYPE_FP32,
                                                         .category = CATEGORY_ACTIVATION,
                                                         .pool = (uint8_t)pool,
                                                         .shape = shape,
                                                     });
    add(t, PLAN_ALLOC, pool, buffer);
    return buffer;
}

/* `bytes` as nccl-tests counts them: the larger buffer of the two. */
static void add_collectives(struct tail *t, enum plan_op op, enum aten label, uint64_t bytes,
                            uint32_t ranks)
{
    const enum stream_id stream = op == PLAN_ALL_GATHER       ? STREAM_ALL_GATHER
                                  : op == PLAN_REDUCE_SCATTER ? STREAM_REDUCE_SCATTER
                                                              : STREAM_ALL_REDUCE;
    const uint64_t part = bytes / 4 / ranks, all = part * ranks;
    const uint32_t whole = tail_buffer(t, stream, all);
    const uint32_t slice = op == PLAN_REDUCE_SCATTER ? tail_buffer(t, stream, part) : PLACE_NONE;
    const struct operand in = plan_whole_buffer(t->plan, whole);
    const struct operand out = slice == PLACE_NONE ? in : plan_whole_buffer(t->plan, slice);
    const uint32_t kernel = plan_add_kernel(t->plan, label, 1, &in, 1, &out);
    for (int i = 0; i < SUITE_REPEATS; i++)
        add(t, op, stream, kernel);
    /* The next size is of another stream or buffer: it must not begin before this one has ended. */
    const uint32_t event = t->plan->event_count++;
    add(t, PLAN_RECORD, stream, event);
    add(t, PLAN_WAIT, STREAM_ALL_GATHER, event);
    add(t, PLAN_WAIT, STREAM_REDUCE_SCATTER, event);
    add(t, PLAN_WAIT, STREAM_ALL_REDUCE, event);
    add(t, PLAN_FREE, stream, whole);
    if (slice != PLACE_NONE)
        add(t, PLAN_FREE, stream, slice);
}

/* The streams of collectives begin when the model's step has ended. */
static void wait_for_step(struct tail *t)
{
    for (int s = 0; s < STREAM_HOST; s++) {
        const uint32_t event = t->plan->event_count++;
        add(t, PLAN_RECORD, (enum stream_id)s, event);
        for (int other = 0; other < STREAM_HOST; other++)
            if (other != s)
                add(t, PLAN_WAIT, (enum stream_id)other, event);
    }
}

static enum err_code make_collectives(const struct suite_options *options, struct suite_item *out,
                                      struct err *err)
{
    struct tail t;
    TRY(tail_open(options, &t, err));
    wait_for_step(&t);
    for (uint64_t bytes = 4096; bytes <= options->largest_bytes; bytes *= 4) {
        add_collectives(&t, PLAN_ALL_GATHER, ATEN_ALL_GATHER_INTO_TENSOR, bytes, options->ranks);
        add_collectives(&t, PLAN_REDUCE_SCATTER, ATEN_REDUCE_SCATTER_TENSOR, bytes, options->ranks);
        add_collectives(&t, PLAN_ALL_REDUCE, ATEN_ALL_REDUCE, bytes, options->ranks);
    }
    tail_close(&t);
    out->purpose = SUITE_COLLECTIVES;
    out->plan = t.plan;
    snprintf(out->name, sizeof out->name, "collectives, %u ranks", options->ranks);
    return ERR_OK;
}

static enum err_code make_launches(const struct suite_options *options, struct suite_item *out,
                                   struct err *err)
{
    const struct suite_options alone = {.ranks = 1, .quick = options->quick};
    struct operand parts[SUITE_PARTS];
    struct tail t;
    TRY(tail_open(&alone, &t, err));
    const uint32_t from = tail_buffer(&t, STREAM_COMPUTE, 1);
    const uint32_t to = tail_buffer(&t, STREAM_COMPUTE, SUITE_PARTS);
    const struct operand in = plan_whole_buffer(t.plan, from);
    const struct operand all = plan_whole_buffer(t.plan, to);
    struct operand one = all;
    one.shape = in.shape;
    for (int i = 0; i < SUITE_PARTS; i++)
        parts[i] = in;
    const uint32_t plain = plan_add_kernel(t.plan, SUITE_LAUNCH_PLAIN, 1, &in, 1, &one);
    const uint32_t events = plan_add_kernel(t.plan, SUITE_LAUNCH_EVENTS, 1, &in, 1, &one);
    const uint32_t wide = plan_add_kernel(t.plan, SUITE_LAUNCH_PARTS, SUITE_PARTS, parts, 1, &all);
    wait_for_step(&t);
    for (int i = 0; i < SUITE_LAUNCH_COUNT; i++)
        add(&t, PLAN_COMPUTE, STREAM_COMPUTE, plain);
    for (int i = 0; i < SUITE_LAUNCH_COUNT; i++) {
        const uint32_t event = t.plan->event_count++;
        add(&t, PLAN_RECORD, STREAM_COMPUTE, event);
        add(&t, PLAN_WAIT, STREAM_COMPUTE, event);
        add(&t, PLAN_COMPUTE, STREAM_COMPUTE, events);
    }
    for (int i = 0; i < SUITE_LAUNCH_COUNT; i++)
        add(&t, PLAN_COMPUTE, STREAM_COMPUTE, wide);
    add(&t, PLAN_FREE, STREAM_COMPUTE, from);
    add(&t, PLAN_FREE, STREAM_COMPUTE, to);
    tail_close(&t);
    out->purpose = SUITE_LAUNCHES;
    out->plan = t.plan;
    snprintf(out->name, sizeof out->name, "launches");
    return ERR_OK;
}

/* ---- the suite ---- */

static uint32_t model_count(const struct suite_options *options)
{
    return options->quick ? QUICK_SIZES * QUICK_VARIANTS : SIZES * VARIANTS;
}

/* Launches first, then collectives where there is more than one rank, then models. */
uint32_t suite_count(const struct suite_options *options)
{
    return model_count(options) + (options->ranks > 1 ? 2 : 1);
}

enum err_code suite_make(const struct suite_options *options, uint32_t i, struct suite_item *out,
                         struct err *err)
{
    const uint32_t first_model = options->ranks > 1 ? 2 : 1;
    *out = (struct suite_item){.plan = NULL};
    const enum err_code rc = i == 0            ? make_launches(options, out, err)
                             : i < first_model ? make_collectives(options, out, err)
                                               : make_model(options, i - first_model, out, err);
    if (rc == ERR_OK && plan_verify(out->plan, err) == ERR_OK)
        return ERR_OK;
    plan_free(out->plan);
    out->plan = NULL;
    return err_context(err, "calibration plan \"%s\"", out->name);
}

/* suite.c - see suite.h. */
#include "calibrate/suite.h"

#include "base/vocabulary.h"
#include "families/families.h"
#include "job/job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* On a GPU, where a kernel of those takes as long as its launch: from what a second cache of tens
 * of MiB holds to what it does not, with heads as models have them. Sequences are short for the
 * sake of attention in fp32, which has no tensor cores. */
static const struct size gpu_sizes[] = {
    {1024, 8, 2816, 16000, 512, 1},
    {2048, 16, 5632, 32000, 1024, 2},
    {4096, 32, 11008, 32000, 2048, 1},
    {4096, 32, 14336, 64000, 1024, 4},
};

static const struct size gpu_quick_sizes[] = {{1024, 8, 2816, 16000, 512, 1},
                                              {2048, 16, 5632, 32000, 1024, 1},
                                              {4096, 32, 14336, 64000, 2048, 1}};

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

_Static_assert(sizeof gpu_sizes == sizeof sizes, "as many sizes on a GPU");
_Static_assert(sizeof gpu_quick_sizes == sizeof quick_sizes, "and of the quick ones");

static const struct size *size_of(const struct suite_options *options, uint32_t i)
{
    if (options->quick)
        return options->gpu ? &gpu_quick_sizes[i] : &quick_sizes[i];
    return options->gpu ? &gpu_sizes[i] : &sizes[i];
}

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
        .rope = {.theta = 1e4F, .attention_factor = 1},
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
    const struct size *size = size_of(options, i % count);
    const struct job job = job_of(v, size, options->ranks);
    out->purpose = SUITE_KERNELS;
    snprintf(out->name, sizeof out->name, "%s %u x %u, %s, %u rank%s", arch_name(v->arch),
             size->seq * size->batch, size->hidden, dtype_brief(v->compute), job.strategy.world,
             job.strategy.world == 1 ? "" : "s");
    return job_plan(&job, &out->plan, NULL, err);
}

/* ---- plans with something at their start ---- */

/* What is measured goes behind the end of a tiny model's plan; head_close moves it to the start,
 * where the device is idle and the host has not run ahead. */
struct head {
    struct plan *plan;
    uint32_t own;                               /* instructions of the model's step */
    uint8_t gather, reduce_scatter, all_reduce; /* lanes */
};

static void add(struct head *h, enum plan_op op, uint8_t lane, uint32_t arg)
{
    plan_add_instruction(h->plan, &(struct plan_instruction){
                                      .op = (uint8_t)op,
                                      .lane = lane,
                                      .phase = PLAN_FORWARD,
                                      .group = plan_op_is_collective(op) ? 0 : PLAN_NO_GROUP,
                                      .arg = arg,
                                  });
}

static enum err_code head_open(uint32_t ranks, struct head *h, struct err *err)
{
    static const struct variant plain = {.compute = DTYPE_FP32, .together = true};
    const struct job job = job_of(&plain, &quick_sizes[0], ranks);
    *h = (struct head){.plan = NULL};
    TRY(job_plan(&job, &h->plan, NULL, err));
    h->own = h->plan->instruction_count;
    h->gather = (uint8_t)plan_lane_named(h->plan, "all_gather");
    h->reduce_scatter = (uint8_t)plan_lane_named(h->plan, "reduce_scatter");
    h->all_reduce = (uint8_t)plan_lane_named(h->plan, "all_reduce");
    return ERR_OK;
}

/* The first instruction is mark "start", before which nothing may stand. */
static void head_close(struct head *h)
{
    struct plan *plan = h->plan;
    const uint32_t added = plan->instruction_count - h->own, moved = h->own - 1;
    struct plan_instruction *step = xmalloc((moved + 1) * sizeof *step);
    memcpy(step, plan->instructions + 1, moved * sizeof *step);
    memmove(plan->instructions + 1, plan->instructions + h->own, added * sizeof *step);
    memcpy(plan->instructions + 1 + added, step, moved * sizeof *step);
    free(step);
}

/* The lanes wait for one another: what comes next begins when all before it has ended. */
static void meet(struct head *h)
{
    const uint8_t lanes[] = {h->gather, h->reduce_scatter, h->all_reduce, LANE_COMPUTE};
    for (int i = 0; i < 4; i++) {
        const uint32_t event = h->plan->event_count++;
        add(h, PLAN_RECORD, lanes[i], event);
        for (int other = 0; other < 4; other++)
            if (other != i)
                add(h, PLAN_WAIT, lanes[other], event);
    }
}

static uint32_t head_buffer(struct head *h, uint8_t pool, uint64_t elements)
{
    const struct shape shape = SHAPE((uint32_t)elements);
    const uint32_t buffer = plan_add_buffer(h->plan, &(struct buffer){
                                                         .bytes = shape_bytes(&shape, DTYPE_FP32),
                                                         .label = ATEN_EMPTY,
                                                         .dtype = DTYPE_FP32,
                                                         .category = CATEGORY_ACTIVATION,
                                                         .pool = (uint8_t)pool,
                                                         .shape = shape,
                                                     });
    add(h, PLAN_ALLOC, pool, buffer);
    return buffer;
}

/* ---- matrix products ---- */

/* A matrix product of a few tenths of a millisecond on a core, in caches. */
static uint32_t add_product(struct head *h, uint32_t x, uint32_t y)
{
    const uint32_t n = 256;
    struct operand in[2] = {plan_whole_buffer(h->plan, x), plan_whole_buffer(h->plan, x)};
    struct operand out = plan_whole_buffer(h->plan, y);
    in[0].shape = in[1].shape = out.shape = SHAPE(n, n);
    const uint32_t kernel = plan_add_kernel(h->plan, WORK_MATMUL_NT, ATEN_MM, 2, in, 1, &out);
    plan_own_kernel(h->plan, kernel)->flops = 2.0 * n * n * n;
    return kernel;
}

/* ---- collectives ---- */

struct message_kernel { /* a collective and the buffers it works on */
    enum plan_op op;
    uint8_t lane;
    uint32_t kernel, whole, slice; /* slice: PLACE_NONE where it is part of the whole */
};

/* `bytes` as nccl-tests counts them: the larger buffer of the two. */
static struct message_kernel message_open(struct head *h, enum plan_op op, uint64_t bytes)
{
    const uint32_t ranks = h->plan->groups[0].ranks;
    const uint64_t part = bytes / 4 / ranks;
    struct message_kernel m = {.op = op, .slice = PLACE_NONE};
    enum work_kind work = WORK_ALL_REDUCE_AVG;
    enum aten label = ATEN_ALL_REDUCE;
    m.lane = h->all_reduce;
    if (op == PLAN_ALL_GATHER) {
        m.lane = h->gather;
        work = WORK_ALL_GATHER;
        label = ATEN_ALL_GATHER_INTO_TENSOR;
    } else if (op == PLAN_REDUCE_SCATTER) {
        m.lane = h->reduce_scatter;
        work = WORK_REDUCE_SCATTER_AVG;
        label = ATEN_REDUCE_SCATTER_TENSOR;
    } else if (op == PLAN_BROADCAST) {
        work = WORK_BROADCAST;
        label = ATEN_C10D_BROADCAST;
    }
    m.whole = head_buffer(h, m.lane, part * ranks);
    if (op == PLAN_REDUCE_SCATTER)
        m.slice = head_buffer(h, m.lane, part);
    const struct operand in = plan_whole_buffer(h->plan, m.whole);
    const struct operand out = m.slice == PLACE_NONE ? in : plan_whole_buffer(h->plan, m.slice);
    m.kernel = plan_add_kernel(h->plan, work, label, 1, &in, 1, &out);
    if (op == PLAN_BROADCAST) /* rank 0 is recorded: it shall be one that receives */
        plan_own_kernel(h->plan, m.kernel)->attr.dim = ranks - 1;
    return m;
}

static void message_close(struct head *h, const struct message_kernel *m)
{
    add(h, PLAN_FREE, m->lane, m->whole);
    if (m->slice != PLACE_NONE)
        add(h, PLAN_FREE, m->lane, m->slice);
}

/* Each repetition comes after compute that its stream waited for, as in a step: ranks do not arrive
 * at once, and threads of a CPU have to be woken. */
static enum err_code make_collectives(const struct suite_options *options, struct suite_item *out,
                                      struct err *err)
{
    static const enum plan_op ops[] = {PLAN_ALL_GATHER, PLAN_REDUCE_SCATTER, PLAN_ALL_REDUCE,
                                       PLAN_BROADCAST};
    struct head h;
    TRY(head_open(options->ranks, &h, err));
    const uint32_t x = head_buffer(&h, LANE_COMPUTE, 256 * 256);
    const uint32_t y = head_buffer(&h, LANE_COMPUTE, 256 * 256);
    const uint32_t product = add_product(&h, x, y);
    for (uint64_t bytes = 4096; bytes <= options->largest_bytes; bytes *= 4)
        for (int op = 0; op < 4; op++) {
            const struct message_kernel m = message_open(&h, ops[op], bytes);
            for (int i = 0; i < SUITE_REPEATS; i++) {
                add(&h, PLAN_COMPUTE, LANE_COMPUTE, product);
                meet(&h);
                add(&h, m.op, m.lane, m.kernel);
                meet(&h);
            }
            message_close(&h, &m);
        }
    add(&h, PLAN_FREE, LANE_COMPUTE, x);
    add(&h, PLAN_FREE, LANE_COMPUTE, y);
    head_close(&h);
    out->purpose = SUITE_COLLECTIVES;
    out->plan = h.plan;
    snprintf(out->name, sizeof out->name, "collectives, %u ranks", options->ranks);
    return ERR_OK;
}

/* ---- collectives beside compute ---- */

/* In each repetition products alone, collectives alone, then both: what each loses shows in the
 * difference. Kernels of their own tell the two apart in the trace. */
static enum err_code make_overlap(const struct suite_options *options, struct suite_item *out,
                                  struct err *err)
{
    const uint64_t bytes = options->quick ? 1 << 20 : 8 << 20;
    const int products = options->quick ? 20 : 100; /* they take longer than the collectives */
    struct head h;
    TRY(head_open(options->ranks, &h, err));
    const uint32_t x = head_buffer(&h, LANE_COMPUTE, 256 * 256);
    const uint32_t y = head_buffer(&h, LANE_COMPUTE, 256 * 256);
    const struct message_kernel messages[] = {
        message_open(&h, PLAN_ALL_GATHER, bytes), message_open(&h, PLAN_REDUCE_SCATTER, bytes),
        message_open(&h, PLAN_ALL_GATHER, bytes), message_open(&h, PLAN_REDUCE_SCATTER, bytes)};
    out->round[ROUND_COMPUTE_ALONE] = add_product(&h, x, y);
    out->round[ROUND_COMPUTE_BESIDE] = add_product(&h, x, y);
    out->round[ROUND_GATHER_ALONE] = messages[0].kernel;
    out->round[ROUND_REDUCE_ALONE] = messages[1].kernel;
    out->round[ROUND_GATHER_BESIDE] = messages[2].kernel;
    out->round[ROUND_REDUCE_BESIDE] = messages[3].kernel;
    for (int i = 0; i < SUITE_REPEATS; i++) {
        for (int k = 0; k < products; k++)
            add(&h, PLAN_COMPUTE, LANE_COMPUTE, out->round[ROUND_COMPUTE_ALONE]);
        meet(&h);
        add(&h, PLAN_ALL_GATHER, h.gather, out->round[ROUND_GATHER_ALONE]);
        meet(&h);
        add(&h, PLAN_REDUCE_SCATTER, h.reduce_scatter, out->round[ROUND_REDUCE_ALONE]);
        meet(&h);
        add(&h, PLAN_ALL_GATHER, h.gather, out->round[ROUND_GATHER_BESIDE]);
        add(&h, PLAN_REDUCE_SCATTER, h.reduce_scatter, out->round[ROUND_REDUCE_BESIDE]);
        for (int k = 0; k < products; k++)
            add(&h, PLAN_COMPUTE, LANE_COMPUTE, out->round[ROUND_COMPUTE_BESIDE]);
        meet(&h);
    }
    for (int i = 0; i < 4; i++)
        message_close(&h, &messages[i]);
    add(&h, PLAN_FREE, LANE_COMPUTE, x);
    add(&h, PLAN_FREE, LANE_COMPUTE, y);
    head_close(&h);
    out->purpose = SUITE_OVERLAP;
    out->plan = h.plan;
    snprintf(out->name, sizeof out->name, "collectives beside compute, %u ranks", options->ranks);
    return ERR_OK;
}

/* ---- launches ---- */

static enum err_code make_launches(struct suite_item *out, struct err *err)
{
    struct operand parts[SUITE_PARTS];
    struct head h;
    TRY(head_open(1, &h, err));
    const uint32_t from = head_buffer(&h, LANE_COMPUTE, 1);
    const uint32_t to = head_buffer(&h, LANE_COMPUTE, SUITE_PARTS);
    const struct operand in = plan_whole_buffer(h.plan, from);
    const struct operand all = plan_whole_buffer(h.plan, to);
    struct operand one = all;
    one.shape = in.shape;
    for (int i = 0; i < SUITE_PARTS; i++)
        parts[i] = in;
    const uint32_t plain = plan_add_kernel(h.plan, SUITE_LAUNCH_PLAIN, ATEN_RELU, 1, &in, 1, &one);
    const uint32_t events =
        plan_add_kernel(h.plan, SUITE_LAUNCH_EVENTS, ATEN_SILU, 1, &in, 1, &one);
    const uint32_t wide = plan_add_kernel(h.plan, SUITE_LAUNCH_PARTS, ATEN_FOREACH_COPY_,
                                          SUITE_PARTS, parts, 1, &all);
    for (int i = 0; i < SUITE_LAUNCH_COUNT; i++)
        add(&h, PLAN_COMPUTE, LANE_COMPUTE, plain);
    for (int i = 0; i < SUITE_LAUNCH_COUNT; i++) {
        const uint32_t event = h.plan->event_count++;
        add(&h, PLAN_RECORD, LANE_COMPUTE, event);
        add(&h, PLAN_WAIT, LANE_COMPUTE, event);
        add(&h, PLAN_COMPUTE, LANE_COMPUTE, events);
    }
    for (int i = 0; i < SUITE_LAUNCH_COUNT; i++)
        add(&h, PLAN_COMPUTE, LANE_COMPUTE, wide);
    add(&h, PLAN_FREE, LANE_COMPUTE, from);
    add(&h, PLAN_FREE, LANE_COMPUTE, to);
    head_close(&h);
    out->purpose = SUITE_LAUNCHES;
    out->plan = h.plan;
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
    return model_count(options) + (options->ranks > 1 ? 3 : 1);
}

enum err_code suite_make(const struct suite_options *options, uint32_t i, struct suite_item *out,
                         struct err *err)
{
    const uint32_t first_model = options->ranks > 1 ? 3 : 1;
    *out = (struct suite_item){.plan = NULL};
    const enum err_code rc = i >= first_model ? make_model(options, i - first_model, out, err)
                             : i == 0         ? make_launches(out, err)
                             : i == 1         ? make_collectives(options, out, err)
                                              : make_overlap(options, out, err);
    if (rc == ERR_OK && plan_verify(out->plan, err) == ERR_OK)
        return ERR_OK;
    plan_free(out->plan);
    out->plan = NULL;
    return err_context(err, "calibration plan \"%s\"", out->name);
}

/* samples.c - see samples.h. */
#include "calibrate/samples.h"

#include "cost/cost.h"

#include <gsl/gsl_sort.h>
#include <gsl/gsl_statistics_double.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Kernels that follow one another without a wait in between are closer than this; a longer gap has
 * another cause. */
#define LONGEST_GAP_S 50e-6

struct span { /* of a kernel or collective that ran */
    uint32_t id;
    uint8_t stream;
    bool collective;
    double begin_s, end_s;
};

struct reading {
    const struct plan *plan;
    struct samples *out;
    struct span *spans; /* by begin */
    uint32_t count;
    struct sample *kernels; /* one a kernel that nothing disturbed */
    uint32_t kernel_count, kernel_cap;
};

double samples_median(double *values, uint32_t count)
{
    if (count == 0)
        return 0;
    gsl_sort(values, 1, count);
    return gsl_stats_median_from_sorted_data(values, 1, count);
}

double samples_spread(double *values, uint32_t count)
{
    const double median = samples_median(values, count);
    if (median == 0)
        return 0;
    for (uint32_t i = 0; i < count; i++)
        values[i] = fabs(values[i] / median - 1);
    return 1.4826 * samples_median(values, count);
}

/* ---- spans ---- */

static int by_begin(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    if (x->begin_s != y->begin_s)
        return x->begin_s < y->begin_s ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static enum err_code take_spans(struct reading *r, const struct trace *trace, struct err *err)
{
    const char *step = trace_get_info(trace, "step");
    if (!step || strcmp(step, "0") == 0)
        return err_set(err, ERR_INVALID, "the trace is of step %s: expected a later one than 0",
                       step ? step : "(none)");
    r->spans = xmalloc((trace->event_count + 1) * sizeof *r->spans);
    for (uint32_t i = 0; i < trace->event_count; i++) {
        const struct trace_event *event = &trace->events[i];
        if (event->kind != TRACE_SPAN || event->id == TRACE_NO_ID)
            continue;
        if (event->id >= r->plan->instruction_count ||
            !plan_op_is_kernel((enum plan_op)r->plan->instructions[event->id].op))
            return err_set(err, ERR_INVALID,
                           "the trace has instruction %u, which is no kernel of "
                           "the plan",
                           event->id);
        const struct plan_instruction *in = &r->plan->instructions[event->id];
        r->spans[r->count++] = (struct span){
            .id = event->id,
            .stream = in->lane,
            .collective = plan_op_is_collective((enum plan_op)in->op),
            .begin_s = event->begin_s,
            .end_s = event->end_s,
        };
    }
    qsort(r->spans, r->count, sizeof *r->spans, by_begin);
    return r->count ? ERR_OK : err_set(err, ERR_INVALID, "the trace has no kernel of the plan");
}

static bool is_beside_collective(const struct reading *r, const struct span *own)
{
    for (uint32_t j = 0; j < r->count && r->spans[j].begin_s < own->end_s; j++)
        if (r->spans[j].collective && r->spans[j].end_s > own->begin_s)
            return true;
    return false;
}

/* Whether another kernel ran inside it on its own stream: the executor adds the norms it reports to
 * the optimizer's span, which then holds whatever lies between. */
static bool spans_others(const struct reading *r, uint32_t i)
{
    for (uint32_t j = i + 1; j < r->count && r->spans[j].begin_s < r->spans[i].end_s; j++)
        if (r->spans[j].stream == r->spans[i].stream)
            return true;
    return false;
}

/* ---- kernels ---- */

static struct sample sample_of(const struct reading *r, const struct span *span)
{
    const struct plan_instruction *in = &r->plan->instructions[span->id];
    const struct kernel *kernel = plan_kernel(r->plan, in->arg);
    return (struct sample){
        .key = {(enum work_kind)kernel->work, kernel_dtype(kernel), kernel_result_dtype(kernel),
                kernel_is_backward(kernel)},
        .arithmetic = kernel_class(kernel) != COST_MEMORY,
        .flops = kernel->flops,
        .bytes = kernel_traffic(kernel),
        .seconds = span->end_s - span->begin_s,
        .repeats = 1,
    };
}

static void take_transfer(struct reading *r, const struct span *span)
{
    const struct plan_instruction *in = &r->plan->instructions[span->id];
    const struct kernel *kernel = plan_kernel(r->plan, in->arg);
    struct samples *out = r->out;
    ARRAY_GROW(out->transfers, out->transfer_count, out->transfer_cap);
    out->transfers[out->transfer_count++] = (struct transfer){
        .of_optimizer = in->lane == LANE_HOST,
        .bytes = in->lane == LANE_HOST ? kernel_traffic(kernel) : kernel->bytes,
        .seconds = span->end_s - span->begin_s,
    };
}

static double message_bytes(const struct plan *plan, const struct plan_instruction *in)
{
    const struct kernel *kernel = plan_kernel(plan, in->arg);
    double most = 0;
    for (uint32_t i = 0; i < (uint32_t)kernel->ins + kernel->outs; i++) {
        const struct operand *operand = &kernel->operands[i];
        most = fmax(most, (double)shape_bytes(&operand->shape, (enum dtype)operand->dtype));
    }
    return most;
}

static void take_kernel(struct reading *r, uint32_t i)
{
    const struct span *span = &r->spans[i];
    const struct plan_instruction *in = &r->plan->instructions[span->id];
    if (in->op == PLAN_HOST_TO_DEVICE || in->op == PLAN_DEVICE_TO_HOST || in->lane == LANE_HOST) {
        take_transfer(r, span);
        return;
    }
    if (span->end_s <= span->begin_s || spans_others(r, i) || is_beside_collective(r, span))
        return;
    ARRAY_GROW(r->kernels, r->kernel_count, r->kernel_cap);
    r->kernels[r->kernel_count++] = sample_of(r, span);
}

static void take_gaps(struct reading *r)
{
    double end_s = -1;
    struct samples *out = r->out;
    for (uint32_t i = 0; i < r->count; i++) {
        const struct span *span = &r->spans[i];
        if (span->stream != LANE_COMPUTE)
            continue;
        const double gap = span->begin_s - end_s;
        if (end_s >= 0 && gap >= 0 && gap < LONGEST_GAP_S) {
            ARRAY_GROW(out->gaps, out->gap_count, out->gap_cap);
            out->gaps[out->gap_count++] = gap;
        }
        end_s = fmax(end_s, span->end_s);
    }
}

/* ---- medians ---- */

static int by_kind(const void *a, const void *b)
{
    const struct sample *x = a, *y = b;
    if (x->key.work != y->key.work)
        return x->key.work < y->key.work ? -1 : 1;
    if (x->key.dtype != y->key.dtype)
        return x->key.dtype < y->key.dtype ? -1 : 1;
    if (x->key.to != y->key.to)
        return x->key.to < y->key.to ? -1 : 1;
    if (x->key.backward != y->key.backward)
        return x->key.backward ? 1 : -1;
    if (x->flops != y->flops)
        return x->flops < y->flops ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static void add_medians(struct reading *r)
{
    double *seconds = xmalloc((r->kernel_count + 1) * sizeof *seconds);
    struct samples *out = r->out;
    if (r->kernel_count)
        qsort(r->kernels, r->kernel_count, sizeof *r->kernels, by_kind);
    for (uint32_t i = 0; i < r->kernel_count;) {
        uint32_t n = 0;
        struct sample sample = r->kernels[i];
        while (i < r->kernel_count && by_kind(&r->kernels[i], &sample) == 0)
            seconds[n++] = r->kernels[i++].seconds;
        sample.seconds = samples_median(seconds, n);
        sample.repeats = n;
        ARRAY_GROW(out->kernels, out->kernel_count, out->kernel_cap);
        out->kernels[out->kernel_count++] = sample;
    }
    free(seconds);
}

static void take_model(struct reading *r)
{
    for (uint32_t i = 0; i < r->count; i++)
        if (!r->spans[i].collective)
            take_kernel(r, i);
    take_gaps(r);
    add_medians(r);
}

/* ---- collectives and launches ---- */

/* Runs of one kernel index: the repetitions of one size. */
static void take_messages(struct reading *r)
{
    struct samples *out = r->out;
    for (uint32_t i = 0; i < r->count; i++) {
        const struct plan_instruction *in = &r->plan->instructions[r->spans[i].id];
        double seconds[SUITE_REPEATS];
        uint32_t n = 0, seen = 0;
        if (!r->spans[i].collective)
            continue;
        for (uint32_t j = i; j < r->count; j++)
            if (r->plan->instructions[r->spans[j].id].arg == in->arg && ++seen > SUITE_WARM_UP &&
                n < SUITE_REPEATS)
                seconds[n++] = r->spans[j].end_s - r->spans[j].begin_s;
        if (seen < SUITE_REPEATS)
            continue; /* the small model's own, or not the first of its size */
        ARRAY_GROW(out->messages, out->message_count, out->message_cap);
        out->messages[out->message_count++] = (struct message){
            .op = (enum plan_op)in->op,
            .ranks = r->plan->groups[in->group].ranks,
            .bytes = message_bytes(r->plan, in),
            .seconds = samples_median(seconds, n),
        };
    }
}

/* Of the rounds' kernels with index `kernel`, in one round after the other: from the first one's
 * begin to the last one's end. */
static double round_seconds(const struct reading *r, uint32_t kernel, double *spread)
{
    double seconds[SUITE_REPEATS];
    uint32_t all = 0, seen = 0, rounds = 0;
    double begin_s = 0;
    for (uint32_t i = 0; i < r->count; i++)
        all += r->plan->instructions[r->spans[i].id].arg == kernel;
    const uint32_t each = all / SUITE_REPEATS;
    for (uint32_t i = 0; i < r->count && each > 0; i++) {
        if (r->plan->instructions[r->spans[i].id].arg != kernel)
            continue;
        if (seen % each == 0)
            begin_s = r->spans[i].begin_s;
        if (++seen % each == 0 && seen / each > SUITE_WARM_UP && rounds < SUITE_REPEATS)
            seconds[rounds++] = r->spans[i].end_s - begin_s;
    }
    const double median = samples_median(seconds, rounds);
    *spread = samples_spread(seconds, rounds);
    return median;
}

static void take_overlap(struct reading *r, const struct suite_item *item)
{
    for (int part = 0; part < ROUND_PARTS; part++)
        r->out->overlap.part_s[part] =
            round_seconds(r, item->round[part], &r->out->overlap.spread[part]);
}

/* Of the run whose kernels do this work; it comes before the model's step, which may do it too. */
static struct pace pace(const struct reading *r, enum work_kind work)
{
    double *steps = xmalloc(SUITE_LAUNCH_COUNT * sizeof *steps), first = 0, last = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->count && n < SUITE_LAUNCH_COUNT; i++) {
        const struct span *span = &r->spans[i];
        if (plan_kernel(r->plan, r->plan->instructions[span->id].arg)->work != work)
            continue;
        first = n == 0 ? span->begin_s : first;
        if (n > 0)
            steps[n - 1] = span->begin_s - last;
        last = span->begin_s;
        n++;
    }
    struct pace pace = {0, 0};
    if (n == SUITE_LAUNCH_COUNT)
        pace = (struct pace){(last - first) / (n - 1), samples_spread(steps, n - 1)};
    free(steps);
    return pace;
}

static void take_launches(struct reading *r)
{
    r->out->launches = (struct launches){.plain = pace(r, SUITE_LAUNCH_PLAIN),
                                         .events = pace(r, SUITE_LAUNCH_EVENTS),
                                         .parts = pace(r, SUITE_LAUNCH_PARTS)};
}

enum err_code samples_add(struct samples *samples, const struct suite_item *item,
                          const struct trace *trace, struct err *err)
{
    struct reading r = {.plan = item->plan, .out = samples};
    enum err_code rc = take_spans(&r, trace, err);
    if (rc == ERR_OK && item->purpose == SUITE_KERNELS)
        take_model(&r);
    else if (rc == ERR_OK && item->purpose == SUITE_COLLECTIVES)
        take_messages(&r);
    else if (rc == ERR_OK && item->purpose == SUITE_OVERLAP)
        take_overlap(&r, item);
    else if (rc == ERR_OK)
        take_launches(&r);
    free(r.spans);
    free(r.kernels);
    return rc;
}

void samples_free(struct samples *samples)
{
    free(samples->kernels);
    free(samples->transfers);
    free(samples->messages);
    free(samples->gaps);
    *samples = (struct samples){0};
}

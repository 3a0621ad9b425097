/* paces.c - see paces.h. */
#include "calibrate/paces.h"

#include "calibrate/samples.h"
#include "cost/cost.h"

#include <math.h>
#include <stdlib.h>

/* Seconds that a rank's products and attention took. */
static double arithmetic_seconds(const struct plan *plan, const struct trace *trace)
{
    double seconds = 0;
    for (uint32_t i = 0; i < trace->event_count; i++) {
        const struct trace_event *event = &trace->events[i];
        if (event->kind != TRACE_SPAN || event->id >= plan->instruction_count ||
            plan->instructions[event->id].op != PLAN_COMPUTE)
            continue;
        const struct kernel *kernel = plan_kernel(plan, plan->instructions[event->id].arg);
        if (cost_class_is_arithmetic(kernel_class(kernel)))
            seconds += event->end_s - event->begin_s;
    }
    return seconds;
}

void paces_add(struct paces *p, const struct suite_item *item, const struct trace *const *traces)
{
    const uint32_t ranks = item->plan->world;
    if (item->purpose != SUITE_KERNELS || ranks < 2 || (p->plans && ranks != p->ranks))
        return;
    p->ranks = ranks;
    while ((p->plans + 1) * ranks > p->cap)
        ARRAY_GROW(p->seconds, p->cap, p->cap);
    double *row = &p->seconds[p->plans * ranks];
    for (uint32_t rank = 0; rank < ranks; rank++) {
        row[rank] = traces[rank] ? arithmetic_seconds(item->plan, traces[rank]) : 0;
        if (row[rank] <= 0)
            return;
    }
    p->plans++;
}

/* ln of a plan's seconds on a rank, beside the mean of all ranks. */
static double beside_mean(const struct paces *p, uint32_t plan, uint32_t rank)
{
    const double *row = &p->seconds[plan * p->ranks];
    double sum = 0;
    for (uint32_t i = 0; i < p->ranks; i++)
        sum += log(row[i]);
    return log(row[rank]) - sum / p->ranks;
}

/* How much less is known from medians than from means of normal values: the variance of a median is
 * pi/2 of a mean's, the deviation by the median's tells as much as 0.37 of them. */
#define MEDIAN_VARIANCE 1.57
#define MEDIAN_WORTH 0.37

/* By medians over plans: a step that something else on the machine held up says nothing of ranks.
 */
bool paces_find(const struct paces *p, struct paces_found *out)
{
    const uint32_t count = p->plans * p->ranks;
    double of_ranks = 0;
    *out = (struct paces_found){0, 0, 0, 0};
    if (p->plans < 2 || p->ranks < 2)
        return false;
    double *own = xmalloc((count + p->plans) * sizeof *own), *rests = own + p->plans;
    for (uint32_t rank = 0; rank < p->ranks; rank++) {
        for (uint32_t plan = 0; plan < p->plans; plan++)
            own[plan] = beside_mean(p, plan, rank);
        const double middle = samples_median(own, p->plans);
        for (uint32_t plan = 0; plan < p->plans; plan++)
            rests[rank * p->plans + plan] = fabs(own[plan] - middle);
        of_ranks += middle * middle / (p->ranks - 1.0);
    }
    /* Of so many rests, only so many are free: means over plans and over ranks were taken off. */
    const double freely = (p->plans - 1.0) * (p->ranks - 1.0);
    out->step = 1.4826 * samples_median(rests, count) * sqrt(count / freely);
    out->rank = sqrt(fmax(0, of_ranks - MEDIAN_VARIANCE * out->step * out->step / p->plans));
    /* A standard deviation from n degrees of freedom is known to 1/sqrt(2 n) of it. */
    out->rank_spread = 1 / sqrt(2 * (p->ranks - 1.0));
    out->step_spread = 1 / sqrt(2 * MEDIAN_WORTH * freely);
    free(own);
    return true;
}

void paces_free(struct paces *paces)
{
    free(paces->seconds);
    *paces = (struct paces){.seconds = NULL};
}

/* steps.c - see steps.h. */
#include "traces/steps.h"

#include "base/number.h"

#include <gsl/gsl_sort.h>
#include <gsl/gsl_statistics_double.h>
#include <math.h>

struct run_steps run_steps_of(double *seconds, uint32_t count)
{
    if (count == 0)
        return (struct run_steps){0};
    gsl_sort(seconds, 1, count);
    const double median_s = gsl_stats_median_from_sorted_data(seconds, 1, count);
    for (uint32_t i = 0; i < count; i++)
        seconds[i] = fabs(seconds[i] - median_s);
    gsl_sort(seconds, 1, count);
    const double off_s = gsl_stats_median_from_sorted_data(seconds, 1, count);
    return (struct run_steps){count, median_s, median_s > 0 ? 1.4826 * off_s / median_s : 0};
}

static void note(struct trace *trace, const char *key, double value)
{
    char text[NUMBER_TEXT];
    trace_set_info(trace, key, number_real_text(value, false, text));
}

void run_steps_note(const struct run_steps *steps, struct trace *trace)
{
    if (steps->count == 0)
        return;
    note(trace, "steps", steps->count);
    note(trace, "step_median_s", steps->median_s);
    note(trace, "step_spread", steps->spread);
}

static double noted(const struct trace *trace, const char *key)
{
    double value;
    const char *text = trace_get_info(trace, key);
    return text && number_real(text, &value) && value >= 0 && value < UINT32_MAX ? value : NAN;
}

struct run_steps run_steps_read(const struct trace *trace)
{
    const double count = noted(trace, "steps");
    const struct run_steps steps = {.median_s = noted(trace, "step_median_s"),
                                    .spread = noted(trace, "step_spread")};
    if (!(count >= 1 && steps.median_s > 0 && steps.spread >= 0))
        return (struct run_steps){0};
    return (struct run_steps){(uint32_t)count, steps.median_s, steps.spread};
}

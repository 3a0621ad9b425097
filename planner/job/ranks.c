/* ranks.c - see ranks.h. */
#include "job/ranks.h"

void ranks_slow_down(double scale[COST_CLASSES], double factor)
{
    for (int k = 0; k < COST_CLASSES; k++)
        scale[k] *= cost_class_is_arithmetic((enum cost_class)k) ? factor : 1;
}

struct timeline ranks_slowest(const struct simulation *simulation, const struct costs *costs)
{
    double scale[COST_CLASSES];
    for (int k = 0; k < COST_CLASSES; k++)
        scale[k] = 1;
    ranks_slow_down(scale, costs->slowest.factor);
    struct timeline slowest = timeline_new(simulation);
    simulate(simulation, costs, scale, &slowest);
    return slowest;
}

/* A rank that waits for the slowest ends with it, to a rounding. */
#define ENDS_WITH_IT (1 + 1e-9)

bool ranks_mean(const struct simulation *simulation, const struct costs *costs, double delay_s,
                struct timeline *mean, double period_s[2])
{
    struct timeline slowest = ranks_slowest(simulation, costs);
    const bool steady = simulation_is_steady(simulation, &slowest, &period_s[0]);
    simulation_delay(simulation, delay_s, &slowest);
    simulate_beside(simulation, costs, NULL, &slowest, mean);
    const bool both = steady && simulation_is_steady(simulation, mean, &period_s[1]);
    if (mean->step_s > slowest.step_s * ENDS_WITH_IT) {
        timeline_free(mean);
        *mean = slowest;
    } else {
        timeline_free(&slowest);
    }
    return both;
}

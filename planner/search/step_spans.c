/* step_spans.c - see step_spans.h. */
#include "search/step_spans.h"

#include <math.h>

void step_spans(const struct plan *plan, const struct step_time *time, struct compare_interval *out)
{
    const struct timeline *t = &time->timeline;
    for (uint32_t i = 0; i < plan->instruction_count; i++)
        out[i] = (struct compare_interval){NAN, NAN};
    for (uint32_t i = 0; i < simulation_tasks(time->simulation); i++) {
        const uint32_t id = simulation_instruction(time->simulation, i);
        if (plan_op_is_kernel((enum plan_op)plan->instructions[id].op))
            out[id] = (struct compare_interval){t->begin_s[i], t->end_s[i]};
    }
}

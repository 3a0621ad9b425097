/* compare_json.c - the object of `compare --json`; see compare_print.h. Bytes and seconds. */
#include "report/compare_print.h"

#include <math.h>

enum { GAPS_LISTED = 20 };

static json_t *bytes_json(uint64_t bytes)
{
    return json_integer((json_int_t)bytes);
}

/* null where the number is not known. */
static json_t *number_json(double number)
{
    return isfinite(number) ? json_real(number) : json_null();
}

static json_t *instruction_json(uint32_t instruction)
{
    return instruction == COMPARE_NONE ? json_null() : json_integer(instruction);
}

static json_t *what_json(const struct plan *plan, uint32_t instruction)
{
    char text[512];
    return json_string(compare_what(plan, instruction, text, sizeof text));
}

static json_t *place_json(const struct plan *plan, uint32_t instruction, int64_t error_bytes)
{
    if (instruction == COMPARE_NONE)
        return json_null();
    return json_pack("{s:I, s:I, s:o}", "instruction", (json_int_t)instruction, "error_bytes",
                     (json_int_t)error_bytes, "what", what_json(plan, instruction));
}

static json_t *quantity_json(const struct plan *plan, const struct compare_memory *m,
                             enum compare_quantity q)
{
    const struct compare_difference *d = &m->of[q];
    int64_t first_bytes = 0;
    for (uint32_t i = 0; i < m->point_count && d->points; i++)
        if (m->points[i].instruction == d->first)
            first_bytes = (int64_t)m->points[i].predicted[q] - (int64_t)m->points[i].recorded[q];
    return json_pack("{s:o, s:o, s:I, s:o, s:o}", "predicted_peak_bytes",
                     bytes_json(d->predicted_peak), "recorded_peak_bytes",
                     bytes_json(d->recorded_peak), "differing", (json_int_t)d->points, "first",
                     place_json(plan, d->first, first_bytes), "largest",
                     place_json(plan, d->largest, d->largest_bytes));
}

static json_t *memory_json(const struct plan *plan, const struct compare_memory *m, bool equal)
{
    return json_pack("{s:b, s:I, s:I, s:I, s:o, s:o}", "equal", equal, "points",
                     (json_int_t)m->point_count, "differing", (json_int_t)m->differing, "missing",
                     (json_int_t)m->missing, "allocated", quantity_json(plan, m, COMPARE_ALLOCATED),
                     "reserved", quantity_json(plan, m, COMPARE_RESERVED));
}

static json_t *error_json(double predicted, double recorded)
{
    return recorded > 0 ? number_json(100.0 * (predicted / recorded - 1.0)) : json_null();
}

static json_t *kinds_json(const struct compare_time *t)
{
    json_t *array = json_array();
    for (uint32_t k = 0; k < t->kind_count; k++) {
        const struct compare_kind *kind = &t->kinds[k];
        json_array_append_new(
            array, json_pack("{s:s, s:I, s:o, s:f, s:f, s:f, s:o}", "kind", kind->name, "count",
                             (json_int_t)kind->count, "predicted_s", number_json(kind->predicted_s),
                             "recorded_s", kind->recorded_s, "median_s", kind->median_s, "p90_s",
                             kind->p90_s, "error_percent",
                             error_json(kind->predicted_s, kind->recorded_s)));
    }
    return array;
}

static json_t *gaps_json(const struct plan *plan, const struct compare_time *t)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < t->gap_count && i < GAPS_LISTED; i++) {
        const struct compare_gap *gap = &t->gaps[i];
        json_array_append_new(
            array, json_pack("{s:f, s:f, s:I, s:o, s:o, s:o}", "begin_s", gap->when.begin_s,
                             "seconds", gap->when.end_s - gap->when.begin_s, "before",
                             (json_int_t)gap->next, "before_what", what_json(plan, gap->next),
                             "waited_for", instruction_json(gap->waited_for), "waited_for_what",
                             what_json(plan, gap->waited_for)));
    }
    return array;
}

static json_t *time_json(const struct plan *plan, const struct compare_time *t,
                         const struct compare_verdict *verdict)
{
    json_t *time = json_object();
    json_object_set_new(time, "step",
                        json_pack("{s:o, s:o, s:o, s:f, s:o}", "predicted_s",
                                  number_json(t->predicted_step_s), "predicted_low_s",
                                  number_json(t->predicted_low_s), "predicted_high_s",
                                  number_json(t->predicted_high_s), "recorded_s", t->step_s,
                                  "error_percent", error_json(t->predicted_step_s, t->step_s)));
    json_object_set_new(
        time, "steps",
        t->steps.count ? json_pack("{s:i, s:f, s:f, s:o}", "count", (int)t->steps.count, "median_s",
                                   t->steps.median_s, "spread", t->steps.spread, "error_percent",
                                   error_json(t->predicted_step_s, t->steps.median_s))
                       : json_null());
    json_object_set_new(time, "busy",
                        t->busy == BUSY_NO    ? json_null()
                        : t->busy == BUSY_NOW ? json_string("now")
                                              : json_string("at calibration"));
    json_object_set_new(time, "profile", t->profile ? json_string(t->profile) : json_null());
    json_object_set_new(time, "within_tolerance",
                        verdict->time_checked ? json_boolean(verdict->time_within) : json_null());
    json_object_set_new(time, "recorded_kernels", json_integer(t->span_count));
    json_object_set_new(time, "missing_kernels", json_integer(t->missing));
    json_object_set_new(time, "compute_s", json_real(t->compute_s));
    json_object_set_new(time, "communication_s", json_real(t->communication_s));
    json_object_set_new(time, "exposed_communication",
                        json_pack("{s:o, s:f, s:o}", "predicted_s",
                                  number_json(t->predicted_exposed_s), "recorded_s", t->exposed_s,
                                  "error_percent",
                                  error_json(t->predicted_exposed_s, t->exposed_s)));
    json_object_set_new(time, "overlap_share",
                        t->communication_s > 0 ? json_real(1 - t->exposed_s / t->communication_s)
                                               : json_null());
    json_object_set_new(time, "kinds", kinds_json(t));
    json_object_set_new(time, "gaps", gaps_json(plan, t));
    return time;
}

json_t *compare_json(const struct plan *plan, const struct comparison *c,
                     const struct compare_verdict *verdict)
{
    json_t *root = json_object();
    json_object_set_new(root, "shardplan", json_string(SHARDPLAN_VERSION));
    json_object_set_new(root, "rank", json_integer(c->rank));
    json_object_set_new(root, "world", json_integer(plan->world));
    json_object_set_new(root, "step", c->step ? json_string(c->step) : json_null());
    if (c->kernels)
        json_object_set_new(root, "kernels", json_string(c->kernels));
    json_object_set_new(root, "instructions", json_integer(plan->instruction_count));
    json_object_set_new(root, "memory", memory_json(plan, &c->memory, verdict->memory_equal));
    json_object_set_new(root, "time", time_json(plan, &c->time, verdict));
    return root;
}

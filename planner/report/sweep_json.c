/* sweep_json.c - the object of `sweep --json`; see sweep_report.h. */
#include "report/sweep_report.h"

static const char *verdict_text(enum point_verdict verdict)
{
    return verdict == POINT_FITS ? "fits" : verdict == POINT_TOO_LARGE ? "too large" : "refused";
}

static json_t *bytes_json(uint64_t bytes)
{
    return json_integer((json_int_t)bytes);
}

static json_t *exposures_json(const struct point *p)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < p->exposure_count; i++)
        json_array_append_new(array, json_pack("{s:s, s:f}", "what", p->exposures[i].what,
                                               "seconds", p->exposures[i].seconds));
    return array;
}

/* Into `object`: bytes and seconds under the names that fit and plan have for them. */
static void add_point(json_t *object, const struct point *p)
{
    json_object_set_new(object, "verdict", json_string(verdict_text(p->verdict)));
    if (p->verdict == POINT_REFUSED) {
        json_object_set_new(object, "reason", json_string(p->reason));
        return;
    }
    json_t *spent = json_object();
    json_object_set_new(object, "fits_after_releasing_cached_segments",
                        json_boolean(p->after_release));
    json_object_set_new(object, "requested_bytes", bytes_json(p->requested_bytes));
    json_object_set_new(object, "allocated_bytes", bytes_json(p->allocated_bytes));
    json_object_set_new(object, "reserved_bytes", bytes_json(p->reserved_bytes));
    json_object_set_new(object, "device_bytes", bytes_json(p->device_bytes));
    json_object_set_new(object, "capacity_bytes", bytes_json(p->capacity_bytes));
    json_object_set_new(object, "step_s", json_real(p->step_s));
    json_object_set_new(object, "tokens_per_s_per_gpu", json_real(p->tokens_per_s));
    json_object_set_new(object, "mfu", json_real(p->mfu));
    json_object_set_new(object, "hfu", json_real(p->hfu));
    json_object_set_new(object, "communication_s", json_real(p->communication_s));
    json_object_set_new(object, "exposed_communication_s", json_real(p->exposed_s));
    json_object_set_new(object, "compute_s", json_real(p->compute_s));
    json_object_set_new(object, "host_s", json_real(p->host_s));
    json_object_set_new(object, "bound", json_string(spent_name(p->bound)));
    for (int i = 0; i < SPENT_COUNT; i++)
        json_object_set_new(spent, spent_name((enum spent)i), json_real(p->spent_s[i]));
    json_object_set_new(object, "spent_s", spent);
    json_object_set_new(object, "most_exposed", exposures_json(p));
}

static json_t *text_or_null(const char *text)
{
    return text[0] ? json_string(text) : json_null();
}

static json_t *points_json(const struct sweep_question *q, const struct sweep *sweep)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < sweep->count; i++) {
        const struct sweep_point *at = &sweep->points[i];
        json_t *object = json_object(), *values = json_object();
        for (uint32_t k = 0; k < q->axis_count; k++)
            json_object_set_new(values, q->axes[k].name,
                                json_string(q->axes[k].values[sweep_index(q, i, k)]));
        json_object_set_new(object, "values", values);
        if (q->searches) {
            json_object_set_new(object, "answer", text_or_null(at->found));
            json_object_set_new(object, "does_not_fit", text_or_null(at->beyond));
            json_object_set_new(object, "monotone", json_boolean(!at->jumped));
        }
        add_point(object, &at->point);
        json_array_append_new(array, object);
    }
    return array;
}

static json_t *trials_json(const struct turn *turn)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < turn->count; i++) {
        json_t *object = json_object();
        json_object_set_new(object, "value", json_string(turn->trials[i].value));
        add_point(object, &turn->trials[i].point);
        json_array_append_new(array, object);
    }
    return array;
}

static json_t *axes_json(const struct sweep_question *q)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < q->axis_count; i++) {
        json_t *values = json_array();
        for (uint32_t k = 0; k < q->axes[i].count; k++)
            json_array_append_new(values, json_string(q->axes[i].values[k]));
        json_array_append_new(array,
                              json_pack("{s:s, s:o}", "name", q->axes[i].name, "values", values));
    }
    return array;
}

json_t *sweep_json(const struct sweep_question *question, const struct sweep *sweep)
{
    json_t *root = json_object();
    json_object_set_new(root, "shardplan", json_string(SHARDPLAN_VERSION));
    json_object_set_new(root, "settings", settings_echo(question->base));
    json_object_set_new(root, "axes", axes_json(question));
    if (question->searches)
        json_object_set_new(root, question->kind == TURN_LARGEST ? "largest" : "fewest",
                            json_string(question->along.name));
    json_object_set_new(root, "points", points_json(question, sweep));
    if (question->searches && !question->axis_count)
        json_object_set_new(root, "tried", trials_json(&sweep->turn));
    json_object_set_new(root, "best",
                        sweep->best == SWEEP_NONE ? json_null() : json_integer(sweep->best));
    json_object_set_new(root, "same_step", json_boolean(sweep->same_step));
    json_object_set_new(root, "same_memory", json_boolean(sweep->same_memory));
    return root;
}

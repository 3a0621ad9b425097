/* sweep_json.c - the object of `sweep --json`; see sweep_report.h. */
#include "report/point_json.h"
#include "report/sweep_report.h"

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
        point_set(object, &at->point);
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
        point_set(object, &turn->trials[i].point);
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

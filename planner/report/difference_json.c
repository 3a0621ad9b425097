/* difference_json.c - the object of `diff --json`; see difference_report.h. */
#include "report/difference_report.h"

static json_t *copy_or_null(const json_t *value)
{
    return value ? json_deep_copy(value) : json_null();
}

static json_t *settings_json(const struct difference *d)
{
    json_t *object = json_object();
    for (uint32_t i = 0; i < d->setting_count; i++)
        json_object_set_new(object, d->settings[i].name,
                            json_pack("[o, o]", copy_or_null(d->settings[i].value[0]),
                                      copy_or_null(d->settings[i].value[1])));
    return object;
}

static json_t *totals_json(const struct difference_total *totals, uint32_t count, bool timed)
{
    json_t *object = json_object();
    for (uint32_t i = 0; i < count; i++) {
        const struct difference_total *t = &totals[i];
        json_t *total = json_pack("{s:[i, i]}", "count", (int)t->count[0], (int)t->count[1]);
        if (timed)
            json_object_set_new(total, "seconds",
                                json_pack("[f, f]", t->seconds[0], t->seconds[1]));
        json_object_set_new(object, t->name, total);
    }
    return object;
}

static json_t *pair_json(uint64_t a, uint64_t b)
{
    return json_pack("[I, I]", (json_int_t)a, (json_int_t)b);
}

static json_t *unit_json(const struct difference_unit *u, bool timed)
{
    json_t *object = json_pack("{s:s, s:[b, b], s:i}", "name", u->name, "there", u->there[0],
                               u->there[1], "group", (int)u->group);
    json_t *work = json_object();
    for (int op = 0; op < PLAN_OP_COUNT; op++) {
        const struct difference_work *a = &u->work[0][op], *b = &u->work[1][op];
        if (a->count || b->count)
            json_object_set_new(work, plan_op_name((enum plan_op)op),
                                json_pack("{s:o, s:o}", "count", pair_json(a->count, b->count),
                                          "bytes", pair_json(a->bytes, b->bytes)));
    }
    json_object_set_new(object, "work", work);
    json_object_set_new(object, "held_bytes", pair_json(u->held_bytes[0], u->held_bytes[1]));
    if (!timed)
        return object;
    json_object_set_new(object, "compute_s", json_pack("[f, f]", u->compute_s[0], u->compute_s[1]));
    json_object_set_new(object, "communication_s",
                        json_pack("[f, f]", u->communication_s[0], u->communication_s[1]));
    return object;
}

static json_t *units_json(const struct difference *d)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < d->unit_count; i++)
        json_array_append_new(array, unit_json(&d->units[i], d->timed));
    return array;
}

static json_t *groups_json(const struct difference *d)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < d->group_count; i++)
        json_array_append_new(
            array, json_pack("{s:s, s:i, s:b}", "first", d->units[d->groups[i].first].name, "units",
                             (int)d->groups[i].count, "changed", d->groups[i].changed));
    return array;
}

/* All of a side's time but what is by instruction. */
static json_t *time_of(const json_t *time)
{
    json_t *copy = copy_or_null(time);
    json_object_del(copy, "instruction_s");
    return copy;
}

json_t *difference_json(const struct difference_report *report)
{
    const struct difference *d = report->difference;
    json_t *root = json_object();
    json_object_set_new(root, "shardplan", json_string(SHARDPLAN_VERSION));
    for (int s = 0; s < SIDES; s++)
        json_object_set_new(root, s ? "b" : "a",
                            json_pack("{s:s, s:o, s:o}", "label", report->label[s], "memory",
                                      copy_or_null(report->memory[s]), "time",
                                      time_of(report->side[s].time)));
    json_object_set_new(root, "settings", settings_json(d));
    json_object_set_new(root, "lanes", totals_json(d->lanes, d->lane_count, d->timed));
    json_object_set_new(root, "kinds", totals_json(d->kinds, d->kind_count, d->timed));
    json_object_set_new(root, "units", units_json(d));
    json_object_set_new(root, "groups", groups_json(d));
    return root;
}

/* calibration_json.c - a calibration as a profile: see machine/profile.h for the form. */
#include "calibrate/calibrate.h"

#include <math.h>

static json_t *quantity(const struct calibrated *q)
{
    return json_pack("{s:f, s:f, s:s}", "value", q->value, "spread", q->spread, "source",
                     q->source);
}

/* A kernel's own seconds, and the gap to the next one on its stream. */
static json_t *kernel_line(const struct calibration *c, const struct kernel_fit *fit)
{
    json_t *line = json_pack("{s:f, s:f, s:f, s:f}", "latency_s",
                             fit->latency_s + c->of[PROFILE_LATENCY].value, "seconds_per_flop",
                             fit->seconds_per_flop, "seconds_per_byte", fit->seconds_per_byte,
                             "spread", fmin(fit->spread, 10));
    if (!fit->any_kind) {
        json_object_set_new(line, "dtype", json_string(dtype_name(fit->key.dtype)));
        json_object_set_new(line, "to", json_string(dtype_name(fit->key.to)));
        json_object_set_new(line, "backward", json_boolean(fit->key.backward));
    }
    json_object_set_new(line, "source",
                        json_sprintf("calibrate, %s, %s, %u samples", c->options.date,
                                     c->options.device, fit->points));
    return line;
}

static json_t *kernels(const struct calibration *c)
{
    json_t *object = json_object();
    for (uint32_t i = 0; i < c->fit_count; i++) {
        const char *name = work_name(c->fits[i].key.work);
        json_t *lines = json_object_get(object, name);
        if (!lines) {
            lines = json_array();
            json_object_set_new(object, name, lines);
        }
        json_array_append_new(lines, kernel_line(c, &c->fits[i]));
    }
    return object;
}

static json_t *collectives(const struct calibration *c)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < c->samples.message_count; i++) {
        const struct message *m = &c->samples.messages[i];
        json_array_append_new(array, json_pack("{s:s, s:i, s:i, s:f, s:f}", "collective",
                                               plan_op_name(m->op), "ranks", (int)m->ranks, "nodes",
                                               1, "bytes", m->bytes, "seconds", m->seconds));
    }
    return array;
}

json_t *calibration_profile(const struct calibration *c)
{
    const struct calibrate_options *o = &c->options;
    json_t *profile = json_object();
    if (o->base) {
        json_object_set_new(profile, "gpu", json_string(o->base));
    } else {
        json_object_set_new(profile, "name", json_sprintf("%s-%s", o->device, o->date));
        json_object_set_new(
            profile, "title",
            json_sprintf("this machine's %s backend, %u ranks", o->device, o->suite.ranks));
        json_object_set_new(profile, "generation", json_string("cpu"));
        json_object_set_new(profile, "link", json_string("host"));
        json_object_set_new(profile, "network", json_string("socket"));
    }
    json_object_set_new(
        profile, "source",
        json_sprintf("calibrate, %s, %s, %u ranks", o->date, o->device, o->suite.ranks));
    for (int key = 0; key < PROFILE_KEYS; key++)
        if (c->of[key].known)
            json_object_set_new(profile, profile_key_name((enum profile_key)key),
                                quantity(&c->of[key]));
    json_object_set_new(profile, "kernels", kernels(c));
    json_object_set_new(profile, "collectives", collectives(c));
    return profile;
}

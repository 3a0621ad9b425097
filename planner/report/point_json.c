/* point_json.c - see point_json.h. */
#include "report/point_json.h"

const char *point_verdict_text(enum point_verdict verdict)
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

void point_set(json_t *object, const struct point *p)
{
    json_object_set_new(object, "verdict", json_string(point_verdict_text(p->verdict)));
    if (p->verdict == POINT_REFUSED) {
        json_object_set_new(object, "reason", json_string(p->reason));
        return;
    }
    json_t *spent = json_object();
    json_object_set_new(object, "fits_gpu", json_boolean(p->fits_gpu));
    json_object_set_new(object, "fits_host",
                        p->host_capacity_bytes ? json_boolean(p->fits_host) : json_null());
    json_object_set_new(object, "fits_after_releasing_cached_segments",
                        json_boolean(p->after_release));
    json_object_set_new(object, "requested_bytes", bytes_json(p->requested_bytes));
    json_object_set_new(object, "allocated_bytes", bytes_json(p->allocated_bytes));
    json_object_set_new(object, "reserved_bytes", bytes_json(p->reserved_bytes));
    json_object_set_new(object, "device_bytes", bytes_json(p->device_bytes));
    json_object_set_new(object, "capacity_bytes", bytes_json(p->capacity_bytes));
    json_object_set_new(object, "host_needed_bytes", bytes_json(p->host_needed_bytes));
    json_object_set_new(object, "host_capacity_bytes",
                        p->host_capacity_bytes ? bytes_json(p->host_capacity_bytes) : json_null());
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

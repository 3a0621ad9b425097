/* systems.h - one model and job under several systems: a point each. */
#ifndef SHARDPLAN_SYSTEMS_H
#define SHARDPLAN_SYSTEMS_H

#include "job/closed_form.h"
#include "search/point.h"
#include "settings/settings_parse.h"

struct system_point {
    const char *name, *without; /* as in the list: lent */
    struct settings settings;   /* resolved, where it is not refused */
    struct point point;         /* refused: `reason` says why this system cannot do the job */
    struct closed_form form;    /* of what is not */
    enum dtype store, compute, reduce;
    bool autocast;
};

struct systems {
    struct system_point of[SETTINGS_MOST_SYSTEMS];
    uint32_t count;
    const char *given; /* for all: lent */
    uint32_t best;     /* that fits, with most tokens/s of a GPU of those that train what the first
                          that fits does (numerics.h): the first of equals; SWEEP_NONE */
    uint32_t refused;
};

/* Called with each that is not refused, before its parts are freed: for who writes files of it. */
typedef enum err_code systems_visitor(void *context, const struct settings *settings,
                                      const char *name, const struct job *job,
                                      const struct machine *machine,
                                      const struct prediction *prediction,
                                      const struct step_time *time, struct err *err);

/* Plans and times each of the list, which is lent as long as *out. What one system cannot do is its
 * column's, not an error: errors are the visitor's. `draws` as of step_time. `visit` may be NULL.
 */
enum err_code systems_run(const struct settings_list *list, uint32_t draws, systems_visitor *visit,
                          void *context, struct systems *out, struct err *err);

#endif

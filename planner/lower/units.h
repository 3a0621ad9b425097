/* units.h - which parameters are gathered and reduced together: how modules are wrapped. For the
 * systems that wrap modules. */
#ifndef SHARDPLAN_UNITS_H
#define SHARDPLAN_UNITS_H

#include "lower/lowering.h"

struct wrapping {        /* arrays in an arena */
    uint32_t units;      /* [0] is the root: what no other unit holds */
    uint32_t *of_module; /* (modules) the unit that its own parameters are in; NONE: the root's */
    uint32_t *first_module, *last_module; /* (units) MODULE_ROOT for the root */
    bool *ignored;                        /* (params) in no unit; NULL: none is */
};

/* Chooses units as strategy->units says; arrays are in `arena`. UNITS_ELEMENTS may choose modules
 * that the graph has no borders of: then *borderless is the first one's name, in the arena, else
 * NULL. `borderless` may be NULL. */
void choose_units(const struct graph *graph, const struct strategy *strategy, struct arena *arena,
                  struct wrapping *out, const char **borderless);

/* The way round a unit without borders: --tower bare, where it is an adapter of what the model has
 * beside its text model, else `otherwise`. */
const char *units_instead(const struct graph *graph, const char *borderless, const char *otherwise);

/* The same, with borders for all modules that are to be units: from the leaves up. */
void choose_units_inside(struct graph *graph, const struct strategy *strategy, struct arena *arena,
                         struct wrapping *out);

/* Whether a parameter is in no unit (strategy->ignore). */
static inline bool is_ignored(const struct wrapping *wrapping, uint32_t param)
{
    return wrapping->ignored && wrapping->ignored[param];
}

/* Both systems refuse a parameter without dimensions. */
enum err_code check_scalars(const struct strategy *strategy, const struct graph *graph,
                            struct err *err);

/* What of strategy->ignore is not planned, or names nothing. */
enum err_code check_ignored(const struct strategy *strategy, const struct graph *graph,
                            struct err *err);

/* A unit whose module is never called is never gathered: Liger's loss reads the head so. */
enum err_code check_called(const struct strategy *strategy, const struct graph *graph,
                           const struct stream *stream, struct err *err);

/* Declares the stored piece of each ignored parameter, in no unit: the plan has one more for them,
 * behind wrapping->units. */
void declare_ignored(struct lowering *low, const struct wrapping *wrapping);

/* Says where the gradients of ignored parameters are, before the update. */
void place_ignored_gradients(struct lowering *low, const struct wrapping *wrapping);
/* zero_grad(set_to_none=True) of one: its .grad, if it has one, dies. */
void drop_gradient(struct lowering *low, uint32_t param);

/* The unit of a parameter that is in one. */
uint32_t unit_of_param(const struct graph *graph, const struct wrapping *wrapping, uint32_t param);

/* Chooses units, arrays in low->scratch, and declares the plan's, with their parameters in the
 * order of `order` (NULL: as they are listed). */
void wrap_modules(struct lowering *low, const uint32_t *order, struct wrapping *out);

/* The unit whose hooks run where a module begins (`first`) or ends; NONE: none. */
uint32_t hooked_unit(const struct wrapping *wrapping, uint32_t module, bool first);

/* Whether a unit is [norm, head], which torchtitan wraps together. */
bool is_tail_unit(const struct lowering *low, const struct wrapping *wrapping, uint32_t unit);

/* A table that another operator uses, too, as a head or another stack does: a parameter; NONE:
 * there is none. The arena is lent for room. */
uint32_t units_shared_table(const struct graph *graph, struct arena *arena);

#endif

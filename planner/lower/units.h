/* units.h - which parameters are gathered and reduced together: how modules are wrapped. For the
 * systems that wrap modules. */
#ifndef SHARDPLAN_UNITS_H
#define SHARDPLAN_UNITS_H

#include "lower/lowering.h"

struct wrapping {                         /* arrays in low->scratch */
    uint32_t units;                       /* [0] is the root: what no other unit holds */
    uint32_t *of_module;                  /* (modules) the unit that wraps it; NONE: the root's */
    uint32_t *first_module, *last_module; /* (units) MODULE_ROOT for the root */
};

/* Wraps modules as strategy->units says, and declares the plan's units with their parameters, in
 * fully_shard's order. */
void wrap_modules(struct lowering *low, struct wrapping *out);

/* The unit whose hooks run where a module begins (`first`) or ends; NONE: none. */
uint32_t hooked_unit(const struct wrapping *wrapping, uint32_t module, bool first);

/* Whether a unit is [norm, head], which torchtitan wraps together. */
bool is_tail_unit(const struct lowering *low, const struct wrapping *wrapping, uint32_t unit);

#endif

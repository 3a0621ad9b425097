/* modules.h - which module an instruction is of, by the name that users know:
 * "layers.31.mlp.down_proj".
 *
 * The driver notes where the host enters and leaves modules that may be wrapped
 * (plan.module_spans); what is within them follows from the parameters: a kernel that reads one is
 * of the parameter's module, and a kernel between two such is of the module around both. What is
 * allocated is for the next kernel, what is freed was of the one before. What a system does for a
 * unit is of the unit. A plan that was read from a file has the names that were found then.
 *
 *     enter layers.0 | norm | wq wk wv | rope, attention | wo | add | norm ... leave
 *                      norm   attention.wq ...  attention  attention.wo  layers.0 */
#ifndef SHARDPLAN_MODULES_H
#define SHARDPLAN_MODULES_H

#include "plan/plan.h"

/* (instructions) Names, of the arena or the plan: "" is the root module or nothing known; "loss"
 * and "optimizer" are what is outside of the model. */
const char **plan_module_names(const struct plan *plan, struct arena *arena);

/* That of one instruction, written into text, which it returns. */
const char *plan_module_text(const struct plan *plan, uint32_t instruction, char *text,
                             size_t size);

#endif

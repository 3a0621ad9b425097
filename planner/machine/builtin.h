/* builtin.h - the GPUs and node types that travel inside the program: files of
 * planner/machine/profiles and nodes, by name. */
#ifndef SHARDPLAN_BUILTIN_H
#define SHARDPLAN_BUILTIN_H

#include <stdint.h>

struct builtins {
    const char *const *names, *const *texts; /* (count) file names without ".json"; the JSON */
    uint32_t count;
};

/* Lent, for ever. */
const struct builtins *builtin_gpus(void);
const struct builtins *builtin_nodes(void);

/* The one that `text` means, or `count`: its name, one of its "aliases" or its "title", however
 * spelled (names_alike) and with or without a maker's words in front: "H100", "a100_80gb",
 * "NVIDIA A100-SXM4-80GB". */
uint32_t builtin_find(const struct builtins *list, const char *text);

/* The one that a mistyped `text` most likely means (names_near), by name or alias, or `count`. */
uint32_t builtin_nearest(const struct builtins *list, const char *text);

#endif

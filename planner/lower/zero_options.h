/* zero_options.h - DeepSpeed's `zero_optimization` object: its keys, their defaults by version, and
 * what of it is planned.
 *
 * Keys and defaults are those of deepspeed 0.19.8 (runtime/zero/config.py and offload_config.py),
 * or as those files have them in an older version: of that one, what it allocates and when was not
 * recorded.
 * Sizes are in elements of parameters, as DeepSpeed counts them. */
#ifndef SHARDPLAN_ZERO_OPTIONS_H
#define SHARDPLAN_ZERO_OPTIONS_H

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define ZERO_VERSION "0.19.8"
enum { ZERO_NEWEST = 1908 }; /* a version 0.M.P is 100 M + P */

enum { ZERO_LEAVES = 256 }; /* characters of such a list */

struct zero_offload {  /* to the memory of the node */
    bool on, pageable; /* device cpu; pin_memory false */
    double ratio;      /* of stage 3's groups of parameters, the last ones; 1: all */
};

enum zero_offloading { /* what --offload adds to what a file says */
                       ZERO_OFFLOAD_NONE,
                       ZERO_OFFLOAD_OPTIMIZER, /* offload_optimizer: {"device": "cpu"} */
                       ZERO_OFFLOAD_ALL,       /* ... and, of stage 3, offload_param likewise */
};

struct zero_options {
    uint32_t version;           /* whose keys and defaults these are */
    bool contiguous_gradients;  /* gradients are copied into buckets */
    bool reduce_scatter;        /* each slice of a bucket is for the rank that owns it */
    bool overlap_comm;          /* reductions on a stream of their own, two buckets by turns */
    bool round_robin_gradients; /* parameters in the flat group: 0, N, 2N, ..., 1, N + 1, ... */
    uint64_t reduce_bucket_size;
    /* stage 3 */
    uint64_t sub_group_size; /* of the partition, updated at once */
    uint64_t prefetch_bucket_size;
    uint64_t param_persistence_threshold; /* smaller parameters are never released */
    uint64_t model_persistence_threshold; /* of all those together */
    uint64_t max_live_parameters, max_reuse_distance;
    bool auto_prefetch, auto_persistence; /* they are "auto" in the file: of another model's engine
                                             DeepSpeed's defaults, which drops the word */
    bool quantized_weights;               /* parameters are gathered in 8 bits */
    bool quantized_gradients;             /* matrices are reduced in 4 bits, across nodes */
    uint32_t node_ranks;                  /* of a node, which DeepSpeed asks the driver; 0: all */
    uint64_t hpz_partition_size;          /* ranks that share a secondary copy; 1: none */
    /* Modules whose parameters are fetched at once, without hooks within them: by the last part of
     * their class, by name, by what a name ends in; each a list with commas. */
    char leaf_classes[ZERO_LEAVES], leaf_names[ZERO_LEAVES], leaf_suffixes[ZERO_LEAVES];
    struct zero_offload optimizer, param; /* offload_optimizer; offload_param (stage 3) */
};

/* The defaults of a stage (1, 2, 3), on which overlap_comm depends, in ZERO_NEWEST; or in another
 * version, from 0.10 on. */
struct zero_options zero_defaults(uint32_t stage);
struct zero_options zero_defaults_of(uint32_t version, uint32_t stage);
/* Stage 3's, as the engine of another model beside has them (TRL's prepare_deepspeed). */
struct zero_options zero_options_beside(const struct zero_options *options);
/* As if the file had these objects with a device alone, where it has none of them. */
void zero_offload_also(struct zero_options *options, uint32_t stage,
                       enum zero_offloading offloading);

/* Whether a list with commas has the first `length` characters of a name; or, of suffixes, one that
 * they end in. */
bool zero_is_listed(const char *list, const char *name, size_t length);
bool zero_has_suffix(const char *list, const char *name, size_t length);
/* From the character *at on, the next of leaf_classes that is none of DeepSpeed's own, lent, of
 * *length characters; *at is behind it then. NULL: there is none. */
const char *zero_unusual_leaf(const struct zero_options *options, size_t *at, size_t *length);

/* Reads a `zero_optimization` object, or a DeepSpeed configuration that has one, on top of *out,
 * which the caller sets to defaults; `path` is the file of messages. A key that came after the
 * version of *out is ERR_INVALID, as it is there. "auto" is what transformers' Trainer and
 * accelerate put in its place, which follows from the model's `hidden` size (0: it has none).
 * ERR_INVALID names file, key and what is allowed; ERR_UNSUPPORTED: DeepSpeed knows the value, this
 * version does not plan it, and why. */
enum err_code zero_read_json(const json_t *object, const char *path, uint32_t stage,
                             uint32_t hidden, struct zero_options *out, struct err *err);
enum err_code zero_read(const char *path, uint32_t stage, uint32_t hidden, struct zero_options *out,
                        struct err *err);

/* The keys of a whole configuration that are not read here: all but zero_optimization. An array of
 * names, empty where there is nothing else. The caller owns it; NULL: the file cannot be read. */
json_t *zero_passed_over(const char *path);

#endif

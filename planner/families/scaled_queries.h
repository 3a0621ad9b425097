/* scaled_queries.h - queries that their positions scale, as Ministral 3 and Mistral 4 have them:
 * for the files of this folder only. */
#ifndef SHARDPLAN_FAMILIES_SCALED_QUERIES_H
#define SHARDPLAN_FAMILIES_SCALED_QUERIES_H

#include "families/family.h"

/* ERR_INVALID: RoPE's object is there and lacks what queries are scaled by. A family's `read`. */
enum err_code scaled_queries_read(const json_t *root, const char *where,
                                  struct model_config *config, struct err *err);

/* clang-format off */
/* What the class has where the file has no object for RoPE. */
#define SCALED_QUERIES(step)                                                                       \
    {NUMBER("rope_parameters.llama_4_scaling_beta", position_beta, 0.1, 1e-9, 1e6)},               \
    {COUNT("rope_parameters.original_max_position_embeddings", position_step, step, POSITIONS_MAX)}
/* clang-format on */

#endif

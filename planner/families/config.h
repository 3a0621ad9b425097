/* config.h - what config.c offers beyond families.h. */
#ifndef SHARDPLAN_FAMILIES_CONFIG_H
#define SHARDPLAN_FAMILIES_CONFIG_H

#include "model/model.h"

#include <jansson.h>

/* Reads a parsed config.json (lent). `where`, the file's name, goes in front of every message. On
 * failure *out is all zeros. */
enum err_code model_config_from_json(const json_t *root, const char *where,
                                     struct model_config *out, struct err *err);

/* Parameters, shared ones counted once, by closed formula: exact below 2^53, and safe to call
 * before anything is built. */
double model_config_parameters(const struct model_config *config);

#endif

/* towers.h - which tower a model has besides text (model/tower.h): by its config.json, or by the
 * name of a preset. */
#ifndef SHARDPLAN_FAMILIES_TOWERS_H
#define SHARDPLAN_FAMILIES_TOWERS_H

#include "model/model.h"

#include <jansson.h>

/* Of the file of a model that sees, whose text model is read: its vision_config, and keys beside
 * it. A model_type that is not known, or a tower, leaves out->tower.kind TOWER_NONE. ERR_INVALID
 * names file and key. */
enum err_code tower_read(const json_t *root, const char *where, struct model_config *out,
                         struct err *err);

/* The same of a preset's name, "qwen2.5-vl-7b-text": the tower, and out->stated.outer where the
 * family has it by another one. */
void tower_of_preset(const char *name, struct model_config *out);

/* ERR_INVALID: a tower is to be trained, and there is none, or adapters alone are trained.
 * ERR_UNSUPPORTED: the class around the text model is traced by torch.compile. */
enum err_code tower_check(const struct model_config *config, const struct model_job *job,
                          struct err *err);

#endif

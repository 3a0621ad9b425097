/* stated.h - what a config.json says beside the model's numbers: for the files of this folder only.
 */
#ifndef SHARDPLAN_FAMILIES_STATED_H
#define SHARDPLAN_FAMILIES_STATED_H

#include "model/model.h"

#include <jansson.h>

/* The object that a model's keys are in (lent): the file's own; or, of a model_type that is not
 * known, a part of it ("text_config", "llm_config", "language_config"), if that one's is, and then
 * *name is the part's name, and out->outer names the former. */
const json_t *stated_part(const json_t *root, const char **name, struct model_stated *out);

/* The class and the quantization that the file names, beside the class that is planned (or NULL).
 */
void stated_read(const json_t *root, const char *class_name, struct model_stated *out);

/* Whether a model_type is known, and which it is. */
bool stated_arch(const json_t *object, enum arch *arch);

/* Says of a model_type that it is not the family's own. */
void stated_kin(const json_t *object, const char *kin, struct model_stated *out);

#endif

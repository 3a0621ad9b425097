/* classifier.h - models that classify sequences (`--task sequence-classification`, `--loss
 * reward`): transformers' class with that head, of a family that has one. */
#ifndef SHARDPLAN_CLASSIFIER_H
#define SHARDPLAN_CLASSIFIER_H

#include "families/family.h"

/* Fills in what a job leaves to the model, or to transformers: its task, labels and what they are.
 */
struct model_job classifier_settled(const struct model_config *config, const struct model_job *job);

/* Before the model is built, of what is settled. ERR_UNSUPPORTED or ERR_INVALID with a sentence:
 * there is no such class, or something that does not go with it. */
enum err_code classifier_check(const struct family *family, const struct model_config *config,
                               const struct model_job *job, struct err *err);

/* Of the graph: ERR_UNSUPPORTED where adapters are in what is trained whole. */
enum err_code classifier_check_built(const struct graph *graph, struct err *err);

#endif

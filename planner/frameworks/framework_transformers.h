/* framework_transformers.h - rules of TrainingArguments that are a file of their own. */
#ifndef SHARDPLAN_FRAMEWORK_TRANSFORMERS_H
#define SHARDPLAN_FRAMEWORK_TRANSFORMERS_H

#include "frameworks/framework.h"

/* Brings names of axolotl and LLaMA-Factory into transformers' own
 * (framework_transformers_others.c). */
void transformers_others(struct document *document);

#endif

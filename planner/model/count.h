/* count.h - parameters by closed formula: the pieces that families share. */
#ifndef SHARDPLAN_COUNT_H
#define SHARDPLAN_COUNT_H

#include "model/model.h"

/* A Linear's, with or without a bias. */
double count_linear(double out, double in, bool biased);

/* A block of attention from one fused or three Linears and another, two more for the feed-forward,
 * and two LayerNorms. */
double count_classic_block(const struct model_config *config);

/* A decoder of the Llama kind, experts or not, with its embedding, last norm and head. */
double count_llama(const struct model_config *config);

/* The same where the feed-forward has no gate. */
double count_ungated(const struct model_config *config);
/* And each norm has biases, too. */
double count_ungated_biased(const struct model_config *config);

#endif

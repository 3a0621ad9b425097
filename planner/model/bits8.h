/* bits8.h - linear layers whose weights are stored in 8 bits, as transformers makes them with
 * load_in_8bit: bitsandbytes' Linear8bitLt in the place of nn.Linear and Conv1D, but for the head
 * (LLM.int8()). Their adapters are lora.h's (peft's tuners/lora/bnb.py). */
#ifndef SHARDPLAN_BITS8_H
#define SHARDPLAN_BITS8_H

#include "model/model.h"

#include <stdbool.h>

/* What of a model keeps it from being planned so, a word for it, lent; NULL: nothing does. */
const char *bits8_unplanned(const struct model_config *config);

/* Whether a linear layer of the current module is stored so. */
bool bits8_wants(const struct graph *graph, const char *prefix, const char *name);
/* Declares its weight (out, in), and the bias: GRAPH_NONE where there is none. */
uint32_t bits8_declare(struct graph *graph, const char *prefix, const char *name, uint32_t out,
                       uint32_t in, bool biased, uint32_t *bias);
/* Whether a weight is. */
bool bits8_is(const struct graph *graph, uint32_t weight);
/* Linear8bitLt.forward, whose first call casts the bias to x's dtype for good. */
uint32_t bits8_apply(struct graph *graph, uint32_t x, uint32_t weight, uint32_t bias);

#endif

/* bits4.h - linear layers whose weights are stored in 4 bits, as transformers makes them with
 * load_in_4bit: bitsandbytes' Linear4bit in the place of nn.Linear and Conv1D, but for the head or
 * what llm_int8_skip_modules names.
 *
 *     y = x.to(compute) W.to(compute)ᵀ + b, in the dtype that x had
 *
 * What a layer's input and adapter are is lora.h's, which knows of such layers what peft does
 * otherwise with them (tuners/lora/bnb.py). */
#ifndef SHARDPLAN_BITS4_H
#define SHARDPLAN_BITS4_H

#include "model/model.h"

#include <stdbool.h>

/* What of a model keeps it from being planned so, a word for it, lent: layers that are none of
 * nn.Linear; NULL: nothing does. */
const char *bits4_unplanned(const struct model_config *config);

/* Whether names, by commas, are some that should_convert_module leaves a module for: of one that it
 * is in, from the start, or what its path ends with. */
bool bits4_skips(const char *names, const char *path);
/* Whether linear layers of that name are among those that few bits are for: all but the head, or,
 * where llm_int8_skip_modules names some, all but these, the head, too. */
bool bits4_converts(const struct graph *graph, const char *prefix, const char *name);
/* What cannot be of a head that is, and of what is cast back; and of a weight that kernels read as
 * it is stored. */
enum err_code bits4_check_head(const struct model_config *config, const struct model_job *job,
                               struct err *err);
enum err_code bits4_check_built(const struct graph *graph, struct err *err);

/* Whether a linear layer of the current module is stored so. */
bool bits4_wants(const struct graph *graph, const char *prefix, const char *name);
/* Declares its weight (out, in), and the bias: GRAPH_NONE where there is none. */
uint32_t bits4_declare(struct graph *graph, const char *prefix, const char *name, uint32_t out,
                       uint32_t in, bool biased, uint32_t *bias);
/* The layer is called, and casts its bias for good. */
void bits4_cast_bias(struct graph *graph, uint32_t bias);
/* Whether a weight is. */
bool bits4_is(const struct graph *graph, uint32_t weight);
/* Experts' matrices, which --quantize-moe-experts has in 4 bits, too: a parameter, and what is
 * multiplied by, the parameter itself or a new tensor. That is made when it is first asked for and
 * is parametrize's until the module returns (bitsandbytes' nn/parametrize.py). */
uint32_t bits4_experts(struct graph *graph, struct shape whole, const char *prefix,
                       const char *name);
uint32_t bits4_whole(struct graph *graph, uint32_t weight);
/* The module returns: `whole` goes, unless it is the parameter. */
void bits4_drop(struct graph *graph, uint32_t weight, uint32_t whole);
/* Linear4bit.forward. */
uint32_t bits4_apply(struct graph *graph, uint32_t x, uint32_t weight, uint32_t bias);

#endif

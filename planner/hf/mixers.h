/* mixers.h - what some layers of a decoder have in the place of attention. A family whose layers
 * are of two kinds names one in its struct hf_decoder; which layers have it is config's
 * (model_is_linear). */
#ifndef SHARDPLAN_HF_MIXERS_H
#define SHARDPLAN_HF_MIXERS_H

#include "hf/delta.h"
#include "hf/mamba.h"
#include "hf/mamba1.h"
#include "hf/short_conv.h"

union hf_mixing { /* its parameters */
    struct hf_delta delta;
    struct hf_short_conv conv;
    struct hf_mamba mamba;
    struct hf_mamba1 mamba1;
};

struct hf_mixer {
    const char *module; /* of the layer, which calls it by keywords alone (graph->by_name) */
    /* The parameters of the module `prefix` ("model.layers.0.conv."), in transformers' order. */
    union hf_mixing (*declare)(struct graph *graph, const struct model_config *config,
                               const char *prefix);
    /* y (b, s, h), which stays the caller's: (b, s, h). Of a batch that is padded what is padding
     * is made zero first. */
    uint32_t (*run)(struct graph *graph, const struct model_config *config,
                    const union hf_mixing *mixing, uint32_t y);
};

extern const struct hf_mixer hf_mixer_delta, hf_mixer_short_conv, hf_mixer_mamba, hf_mixer_mamba1;

#endif

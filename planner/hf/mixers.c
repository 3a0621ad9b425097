/* mixers.c - see mixers.h. */
#include "hf/mixers.h"

static union hf_mixing declare_delta(struct graph *graph, const struct model_config *c,
                                     const char *prefix)
{
    return (union hf_mixing){.delta = hf_delta_declare(graph, c, prefix)};
}

static uint32_t run_delta(struct graph *graph, const struct model_config *c,
                          const union hf_mixing *mixing, uint32_t y)
{
    return hf_delta(graph, c, &mixing->delta, y);
}

const struct hf_mixer hf_mixer_delta = {".linear_attn", declare_delta, run_delta};

static union hf_mixing declare_conv(struct graph *graph, const struct model_config *c,
                                    const char *prefix)
{
    return (union hf_mixing){.conv = hf_short_conv_declare(graph, c, prefix)};
}

static uint32_t run_conv(struct graph *graph, const struct model_config *c,
                         const union hf_mixing *mixing, uint32_t y)
{
    (void)c;
    return hf_short_conv(graph, &mixing->conv, y);
}

const struct hf_mixer hf_mixer_short_conv = {".conv", declare_conv, run_conv};

static union hf_mixing declare_mamba(struct graph *graph, const struct model_config *c,
                                     const char *prefix)
{
    return (union hf_mixing){.mamba = hf_mamba_declare(graph, c, prefix)};
}

static uint32_t run_mamba(struct graph *graph, const struct model_config *c,
                          const union hf_mixing *mixing, uint32_t y)
{
    return hf_mamba(graph, c, &mixing->mamba, y);
}

const struct hf_mixer hf_mixer_mamba = {".mamba", declare_mamba, run_mamba};

static union hf_mixing declare_mamba1(struct graph *graph, const struct model_config *c,
                                      const char *prefix)
{
    return (union hf_mixing){.mamba1 = hf_mamba1_declare(graph, c, prefix)};
}

static uint32_t run_mamba1(struct graph *graph, const struct model_config *c,
                           const union hf_mixing *mixing, uint32_t y)
{
    return hf_mamba1(graph, c, &mixing->mamba1, y);
}

const struct hf_mixer hf_mixer_mamba1 = {".mamba", declare_mamba1, run_mamba1};

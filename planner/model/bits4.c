/* bits4.c - see bits4.h. */
#include "model/bits4.h"

#include "base/names.h"
#include "base/pattern.h"
#include "graph/ops.h"

#include <stdio.h>
#include <string.h>

/* FalconLinear is a class of its own, which replace_with_bnb_linear leaves as it is. Experts and
 * routers are parameters of their modules, which stay what they are. */
const char *bits4_unplanned(const struct model_config *config)
{
    return config->recording ? "a recorded model" : config->arch == ARCH_FALCON ? "falcon" : NULL;
}

/* re.match of a name up to where a module's ends, or endswith; a point is any character to the
 * first, which names of modules make no difference of. */
static bool skips(const char *name, size_t size, const char *path)
{
    const size_t length = strlen(path);
    if (size == 0 || size > length)
        return false;
    const char after = path[size];
    return (strncmp(path, name, size) == 0 && (after == '\0' || after == '.')) ||
           strncmp(path + length - size, name, size) == 0;
}

bool bits4_skips(const char *names, const char *path)
{
    for (const char *at = names; *at;) {
        const size_t size = strcspn(at, ",");
        if (skips(at, size, path))
            return true;
        at += size + (at[size] == ',');
    }
    return false;
}

bool bits4_converts(const struct graph *graph, const char *prefix, const char *name)
{
    char path[256];
    const uint32_t module = graph->current_module;
    if (!graph->bits_skipped) /* get_keys_to_not_convert, of a whole model */
        return module == GRAPH_NONE || graph->modules[module].role != ROLE_HEAD;
    snprintf(path, sizeof path, "%s%s", prefix, name);
    return !bits4_skips(graph->bits_skipped, path);
}

bool bits4_wants(const struct graph *graph, const char *prefix, const char *name)
{
    return graph->bits4.kind != BITS4_NOT && bits4_converts(graph, prefix, name);
}

static const char *option_of(const struct model_job *job)
{
    return job->bits8 ? "--load-in-8bit" : "--load-in-4bit";
}

/* Mamba-2's kernels were recorded of a layer's input in autocast's dtype, which a norm in fp32 does
 * not give where in_proj is in few bits. */
static enum err_code check_cast_back(const struct model_config *config, const struct model_job *job,
                                     bool few, struct err *err)
{
    if (!job->cast_back)
        return ERR_OK;
    if (!few)
        return err_set(err, ERR_INVALID, "--kbit-cast-back: of --load-in-4bit and --load-in-8bit");
    if (!job->autocast)
        return err_set(err, ERR_UNSUPPORTED,
                       "--kbit-cast-back is planned under --autocast bf16, without which layers in "
                       "fp32 fail with what is in 16 bits");
    if (model_has_mamba(config) && !names_match(job->cast_back, "model.layers.0.norm.weight"))
        return err_set(err, ERR_UNSUPPORTED,
                       "--kbit-cast-back %s: Mamba-2 behind norms in fp32 was not recorded, and is "
                       "not planned; *norm* is",
                       job->cast_back);
    return ERR_OK;
}

enum err_code bits4_check_head(const struct model_config *config, const struct model_job *job,
                               struct err *err)
{
    const bool few = job->bits8 || job->bits4.kind != BITS4_NOT;
    const char *names = job->bits_skipped;
    TRY(check_cast_back(config, job, few, err));
    if (names && !few)
        return err_set(err, ERR_INVALID,
                       "--llm-int8-skip-modules: of --load-in-4bit and --load-in-8bit");
    if (names && pattern_is(names))
        return err_set(err, ERR_UNSUPPORTED,
                       "--llm-int8-skip-modules %s: names of modules are planned, by commas, not "
                       "regular expressions",
                       names);
    if (!few || !names || bits4_skips(names, "lm_head"))
        return ERR_OK;
    if (config->tied)
        return err_set(err, ERR_INVALID,
                       "%s with --llm-int8-skip-modules %s: modules that are named are the only "
                       "ones that are skipped, and a head that has the embedding's weight then "
                       "fails (\"%s\"); --llm-int8-skip-modules %s,lm_head",
                       option_of(job), names,
                       job->bits8 ? "'Parameter' object has no attribute 'CB'"
                                  : "assert module.weight.shape[1] == 1",
                       names);
    return loss_has_head(job->loss)
               ? err_set(err, ERR_UNSUPPORTED,
                         "%s with --llm-int8-skip-modules %s: modules that are named are the only "
                         "ones that are skipped, and this --loss reads the head's weight as it is "
                         "stored; --llm-int8-skip-modules %s,lm_head",
                         option_of(job), names, names)
               : ERR_OK;
}

enum err_code bits4_check_built(const struct graph *graph, struct err *err)
{
    if (!graph->bits_read)
        return ERR_OK;
    return err_set(err, ERR_UNSUPPORTED,
                   "%s: Mamba-2's kernels read %s as it is stored (\"%s\"); "
                   "--llm-int8-skip-modules out_proj,lm_head leaves such layers as they are, and "
                   "the head",
                   graph->bits8 ? "--load-in-8bit" : "--load-in-4bit", graph->bits_read,
                   graph->bits8 ? "expected mat1 and mat2 to have the same dtype"
                                : "mat1 and mat2 shapes cannot be multiplied");
}

uint32_t bits4_declare(struct graph *graph, const char *prefix, const char *name, uint32_t out,
                       uint32_t in, bool biased, uint32_t *bias)
{
    char path[160];
    snprintf(path, sizeof path, "%s%s.weight", prefix, name);
    const uint32_t weight = graph_packed(graph, SHAPE(out, in), graph->bits4.storage, path);
    *bias = GRAPH_NONE;
    if (biased)
        *bias = graph_param(graph, PARAM_BIAS, SHAPE(out), "%s%s.bias", prefix, name);
    return weight;
}

void bits4_cast_bias(struct graph *graph, uint32_t bias)
{
    if (bias != GRAPH_NONE)
        graph_own_dtype(graph, bias, graph->bits4.compute);
}

bool bits4_is(const struct graph *graph, uint32_t weight)
{
    const struct graph_param *param = graph_param_of(graph, weight);
    return param && param->whole.rank > 0;
}

uint32_t bits4_apply(struct graph *graph, uint32_t x, uint32_t weight, uint32_t bias)
{
    const enum dtype dtype = (enum dtype)graph->tensors[x].dtype;
    const uint32_t cast = op_to(graph, x, graph->bits4.compute);
    const uint32_t y = op_linear_4bit(graph, cast, weight, bias);
    const uint32_t out = op_to(graph, y, dtype);
    if (out != y)
        graph_drop(graph, y);
    if (cast != x)
        graph_drop(graph, cast);
    return out;
}

/* Whatever bnb_4bit_quant_storage is: quantize_4bit's own default. */
uint32_t bits4_experts(struct graph *graph, struct shape whole, const char *prefix,
                       const char *name)
{
    char path[160];
    if (!graph->bits4.experts)
        return graph_param(graph, PARAM_WEIGHT, whole, "%s%s", prefix, name);
    snprintf(path, sizeof path, "%s%s", prefix, name);
    return graph_packed(graph, whole, DTYPE_UINT8, path);
}

uint32_t bits4_whole(struct graph *graph, uint32_t weight)
{
    return graph->bits4.experts && bits4_is(graph, weight) ? op_dequantize_4bit(graph, weight)
                                                           : weight;
}

void bits4_drop(struct graph *graph, uint32_t weight, uint32_t whole)
{
    if (whole != weight)
        graph_drop(graph, whole);
}

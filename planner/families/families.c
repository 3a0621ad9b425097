/* families.c - the list of families, and the builder that a job asks for: see families.h and
 * family.h. */
#include "families/families.h"

#include "families/classifier.h"
#include "families/cut.h"
#include "families/family.h"
#include "families/liger.h"
#include "families/lm_head.h"
#include "families/lora_kernels.h"
#include "families/lora_targets.h"
#include "families/per_token.h"
#include "families/towers.h"
#include "model/bits4.h"
#include "model/build.h"
#include "model/dpo.h"
#include "model/grpo.h"
#include "model/lora.h"
#include "model/padded.h"
#include "model/tower.h"

#include <assert.h>
#include <stdio.h>

const struct family *family_of(enum arch arch)
{
    static const struct family *const families[ARCH_COUNT] = {
#define X(arch, file) [ARCH_##arch] = &family_##file,
        ARCH_MAP(X)
#undef X
    };
    assert((unsigned)arch < ARCH_COUNT);
    return families[arch];
}

const struct model_preset *model_preset_at(uint32_t index)
{
    for (enum arch arch = 0; arch < ARCH_COUNT; arch++) {
        const struct family *family = family_of(arch);
        if (index < family->preset_count)
            return &family->presets[index];
        index -= family->preset_count;
    }
    return NULL;
}

uint32_t model_longest(const struct model_config *config)
{
    const uint32_t before = family_of(config->arch)->counted_positions ? config->padding : 0;
    return config->max_positions > before ? config->max_positions - before : 0;
}

enum code model_default_code(enum arch arch)
{
    return family_of(arch)->code;
}

bool model_has_code(enum arch arch, enum code code)
{
    return family_of(arch)->builder[code] != NULL;
}

const char *arch_name(enum arch arch)
{
    return family_of(arch)->name;
}

const char *code_name(enum code code)
{
    static const char *const names[] = {"torchtitan", "nanogpt", "hf", "recorded"};
    return names[code];
}

static enum err_code no_builder(const struct family *family, enum code code, struct err *err)
{
    char written[64] = "";
    size_t used = 0;
    for (int c = 0; c < CODE_COUNT && used < sizeof written; c++)
        if (family->builder[c])
            used += (size_t)snprintf(written + used, sizeof written - used, "%s%s",
                                     used ? " or " : "", code_name((enum code)c));
    return err_set(err, ERR_INVALID, "--code %s: %s is planned as %s", code_name(code),
                   family->name, written);
}

/* Patterns that freeze nothing are a mistake. */
static enum err_code check_frozen(const struct graph *graph, struct err *err)
{
    bool frozen = graph->frozen == NULL;
    for (uint32_t p = 0; p < graph->param_count && !frozen; p++)
        frozen = !graph->params[p].trainable;
    if (frozen)
        return ERR_OK;
    return err_set(
        err, ERR_INVALID, "--freeze %s: no parameter has such a name; the first is %s, the last %s",
        graph->frozen, graph->params[0].name, graph->params[graph->param_count - 1].name);
}

const struct tower *model_tower(const struct model_config *config, const struct model_job *job)
{
    const bool there = job->code == CODE_HF && tower_is_there(&config->tower, job->tower);
    return there ? &config->tower : NULL;
}

/* All of a model: what it has besides text, too. */
static void build_whole(struct graph *graph, const struct model_config *config,
                        const struct model_job *job)
{
    const struct tower *tower = model_tower(config, job);
    if (tower)
        tower_declare(graph, tower, config->hidden, job->tower);
    family_of(config->arch)->builder[job->code](graph, config, job);
}

enum err_code model_build(const struct model_config *config, const struct model_job *given,
                          struct graph **out, struct err *err)
{
    const struct family *family = family_of(config->arch);
    const struct model_job settled = classifier_settled(config, given), *job = &settled;
    *out = NULL;
    const uint32_t longest = model_longest(config);
    if (family->learned_positions && longest && job->seq > longest)
        return err_set(err, ERR_INVALID, "--seq %u is longer than the model's %u learned positions",
                       job->seq, longest);
    if (!family->builder[job->code])
        return no_builder(family, job->code, err);
    TRY(tower_check(config, job, err));
    TRY(classifier_check(family, config, job, err));
    TRY(build_check(family, config, job, err));
    if (job->loss == CROSS_ENTROPY_CUT)
        TRY(cut_check(family, job, err));
    TRY(lm_head_check(family, job, err));
    TRY(per_token_check(job, err));
    TRY(bits4_check_head(config, job, err));
    struct graph_liger liger;
    TRY(liger_read(family, config, job, &liger, err));
    struct graph *graph = graph_new(job->compute, job->frozen);
    struct graph_lora lora = {.rank = 0};
    enum err_code rc =
        job->lora ? lora_read(job->lora, config, job, &graph->arena, &lora, err) : ERR_OK;
    if (rc == ERR_OK)
        rc = lora_kernels_read(family, config, job, &lora, err);
    if (rc != ERR_OK) {
        graph_free(graph);
        return rc;
    }
    lora.dropout = job->lora_dropout;
    lora.apart_from = job->adapters_apart;
    lora.apart = job->apart;
    lora_begin(graph, &lora);
    graph->bits4 = job->bits4;
    graph->bits8 = job->bits8;
    graph->bits_skipped = job->bits_skipped;
    graph->cast_back = job->cast_back;
    graph->liger = liger;
    graph->own_init = job->own_init;
    graph->multiprocessors = job->multiprocessors;
    graph->made = job->made;
    graph->compiled = job->compiled;
    graph->wide_trained = job->wide_trained;
    graph->views = job->views;
    graph->own_experts = job->own_experts;
    graph->casts_inputs = job->casts_inputs;
    graph->copies_outputs = job->copies_outputs;
    graph->outputs_fp32 = job->outputs_fp32;
    graph->outputs_kept = job->outputs_kept;
    graph->returns_nodes = job->returns_nodes;
    graph->autograd = job->autograd;
    graph->watched = job->watched;
    graph->cross_entropy = job->loss;
    graph->attention = job->attention;
    graph->attention_gpu = job->attention_gpu;
    graph->float8 = job->float8;
    graph->float8_gather = job->float8_gather;
    graph->torch = job->torch;
    if (job->autocast)
        graph_autocast(graph, DTYPE_BF16);
    graph->padded = job->padding_tokens;
    graph->prompt = job->prompt_tokens;
    if (job->loss == CROSS_ENTROPY_DPO)
        dpo_build(graph, build_whole, config, job);
    else if (job->loss == CROSS_ENTROPY_GRPO)
        grpo_build(graph, build_whole, config, job);
    else
        padded_call(graph, build_whole, config, job);
    graph_list_groups(graph);
    rc = check_frozen(graph, err);
    if (rc == ERR_OK)
        rc = classifier_check_built(graph, err);
    if (rc == ERR_OK)
        rc = lora_check(graph, config, err);
    if (rc == ERR_OK)
        rc = lora_kernels_check_built(graph, err);
    if (rc == ERR_OK)
        rc = bits4_check_built(graph, err);
    if (rc == ERR_OK)
        rc = cut_check_built(family, graph, err);
    if (rc == ERR_OK)
        rc = lm_head_check_built(family, graph, err);
    if (rc == ERR_OK)
        rc = per_token_check_built(family, graph, err);
    if (rc != ERR_OK) {
        graph_free(graph);
        return rc;
    }
    *out = graph;
    return ERR_OK;
}

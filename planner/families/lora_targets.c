/* lora_targets.c - see lora_targets.h. */
#include "families/lora_targets.h"

#include "base/number.h"
#include "base/pattern.h"
#include "families/families.h"

#include <string.h>

enum { LORA_ALPHA = 8, MOST_RANK = 65536 };

static const char ALL_LINEAR[] = "all-linear";

/* What peft asks its table for: of a model that sees, the type of the whole. */
static const char *type_of(const struct model_config *config, const struct model_job *job)
{
    return model_tower(config, job) ? config->stated.outer : arch_name(config->arch);
}

/* TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING, of the model types that are built here. */
static const char *own_targets(const char *type)
{
    static const char *const rows[][2] = {
        {"gpt2", "c_attn"},
        {"opt", "q_proj,v_proj"},
        {"gptj", "q_proj,v_proj"},
        {"gpt_neo", "q_proj,v_proj"},
        {"gpt_bigcode", "c_attn"},
        {"mpt", "Wqkv"},
        {"bloom", "query_key_value"},
        {"falcon", "query_key_value"},
        {"mixtral", "q_proj,v_proj"},
        {"codegen", "qkv_proj"},
        {"gpt_neox", "query_key_value"},
        {"llama", "q_proj,v_proj"},
        {"mistral", "q_proj,v_proj"},
        {"stablelm", "q_proj,v_proj"},
        {"phi", "q_proj,v_proj,fc1,fc2"},
        {"gemma", "q_proj,v_proj"},
        {"gemma2", "q_proj,v_proj"},
        {"gemma3_text", "q_proj,v_proj"},
        {"qwen2", "q_proj,v_proj"},
        {"qwen3", "q_proj,v_proj"},
        {"bert", "query,value"},
        {"roberta", "query,value"},
        {"xlm-roberta", "query,value"},
        {"electra", "query,value"},
        {"llama4", "q_proj,v_proj"},
        {"gemma4", "q_proj,v_proj"}, /* of the text model: the tower's have another name */
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(rows[i][0], type) == 0)
            return rows[i][1];
    return NULL;
}

/* Layers that a model has, for those who named none that it can adapt. */
static const char *advised(const struct model_config *config)
{
    const bool attends = model_attends(config);
    if (model_has_mamba(config) || model_has_mamba1(config))
        return attends ? "in_proj,q_proj,v_proj" : "in_proj";
    return attends ? "q_proj,v_proj" : model_mixes(config) ? "out_proj" : "up_proj";
}

/* All linear layers of a decoder's attention. */
static const char *of_attention(const struct model_config *config)
{
    return !config->kv_lora ? "q_proj,k_proj,v_proj,o_proj"
           : config->q_lora ? "q_a_proj,q_b_proj,kv_a_proj_with_mqa,kv_b_proj,o_proj"
                            : "q_proj,kv_a_proj_with_mqa,kv_b_proj,o_proj";
}

static bool is_one_of(const char *type, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i], type) == 0)
            return true;
    return false;
}

/* Families of which peft takes names of single experts' layers and of the router for the parameters
 * that transformers 5 has in their place (_MODEL_TO_CONVERSION_PATTERN of 0.21.2's
 * utils/transformers_weight_conversion.py), so that all-linear is those, too. Of others it is the
 * layers that are there. */
static bool experts_are_renamed(const char *type)
{
    static const char *const names[] = {
        "afmoe",
        "cohere2_moe",
        "deepseek_v2",
        "deepseek_v3",
        "deepseek_v32",
        "dots1",
        "ernie4_5_moe",
        "exaone_moe",
        "flex_olmo",
        "glm4_moe",
        "glm4_moe_lite",
        "glm_moe_dsa",
        "hunyuan_v1_moe",
        "mellum",
        "minimax",
        "minimax_m2",
        "mixtral",
        "olmoe",
        "qwen3_moe",
        "qwen3_next",
        "solar_open",
        "glm4v_moe",
        "glm4v_moe_text",
        "qwen3_omni_moe_thinker",
        "qwen3_omni_moe_text",
    };
    return is_one_of(type, names, sizeof names / sizeof *names);
}

const char *lora_linear_names(const struct model_config *config)
{
    static const char *const attention_alone[] = {"flex_olmo", "mellum", "minimax_m2",
                                                  "mixtral",   "olmoe",  "qwen3_moe"};
    const char *type =
        config->tower.kind != TOWER_NONE ? config->stated.outer : arch_name(config->arch);
    if (!experts_are_renamed(type))
        return ALL_LINEAR;
    return is_one_of(type, attention_alone, sizeof attention_alone / sizeof *attention_alone)
               ? of_attention(config)
               : NULL;
}

/* Of encoders their classes for sequence classification were recorded. */
static bool is_planned_of(const struct model_config *config, const struct model_job *job)
{
    const bool classifies = job->task == TASK_SEQUENCE_CLASSIFICATION && !config->decoder_layers;
    return job->code == CODE_HF && (classifies || model_is_decoder(config));
}

enum err_code lora_read(const char *text, const struct model_config *config,
                        const struct model_job *job, struct arena *arena, struct graph_lora *out,
                        struct err *err)
{
    char *rank = arena_strdup(arena, text), *targets = strchr(rank, ',');
    uint64_t number;
    if (targets)
        *targets++ = '\0';
    if (!number_integer(rank, &number) || number == 0 || number > MOST_RANK)
        return err_set(
            err, ERR_INVALID,
            "--lora %.100s: expected a rank, 1 ... %d, and by commas the names of linear "
            "layers, a regular expression of their paths, or all-linear",
            text, MOST_RANK);
    if (!is_planned_of(config, job))
        return err_set(err, ERR_UNSUPPORTED,
                       "--lora: peft's adapters are planned for transformers' decoders, not for %s "
                       "as %s writes it%s",
                       arch_name(config->arch), code_name(job->code),
                       classifier_has(config) && job->code == CODE_HF
                           ? " (--task sequence-classification has them)"
                           : "");
    const char *type = type_of(config, job);
    *out = (struct graph_lora){
        .rank = (uint32_t)number, .scale = (float)LORA_ALPHA / (float)number, .targets = targets};
    if (!targets)
        out->targets = own_targets(type);
    if (!out->targets)
        return err_set(err, ERR_INVALID,
                       "--lora %s: peft has no targets of its own for %s: name layers "
                       "(--lora %s,%s)%s",
                       text, type, rank, advised(config),
                       model_has_mamba(config) || config->scan_rank || experts_are_renamed(type)
                           ? ""
                           : ", or all-linear");
    if (pattern_is(out->targets)) {
        struct pattern *pattern;
        TRY(pattern_read(out->targets, "--lora: layers", arena, &pattern, err));
        out->pattern = pattern;
        return ERR_OK;
    }
    if (strcmp(out->targets, ALL_LINEAR) != 0)
        return ERR_OK;
    if (experts_are_renamed(type))
        return err_set(err, ERR_UNSUPPORTED,
                       "--lora %s: of a %s peft takes that for its experts' parameters and the "
                       "router's, too, which is not planned: name layers, such as those of "
                       "attention alone, --lora %s,%s",
                       text, type, rank, of_attention(config));
    if (is_one_of(arch_name(config->arch), (const char *const[]){"llama4_text", "phimoe"}, 2))
        return err_set(err, ERR_UNSUPPORTED,
                       "--lora %s: of %s that has its router, too, which returns two tensors: peft "
                       "fails with it; name layers",
                       text, arch_name(config->arch));
    out->targets = NULL;
    return ERR_OK;
}

bool lora_takes_experts(const struct model_config *config, const char *param)
{
    static const char *const layers[] = {".gate.", ".gate_proj.", ".up_proj.", ".down_proj."};
    const char *outer = config->stated.outer, *type = *outer ? outer : arch_name(config->arch);
    bool named = false;
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++)
        named = named || strstr(param, layers[i]);
    return named && experts_are_renamed(type);
}

enum err_code lora_check(const struct graph *graph, const struct model_config *config,
                         struct err *err)
{
    const char *targets = graph->lora.targets ? graph->lora.targets : ALL_LINEAR;
    bool any = graph->lora.rank == 0;
    for (uint32_t p = 0; p < graph->param_count; p++) {
        const struct graph_param *param = &graph->params[p];
        if (param->adapter == GRAPH_NONE)
            continue;
        any = true;
        if (param->read_by_model)
            return err_set(err, ERR_UNSUPPORTED,
                           "--lora %u,%s: --loss %s reads %s past an adapter, which would get "
                           "no gradient: name others, or another --loss",
                           graph->lora.rank, targets, cross_entropy_name(graph->cross_entropy),
                           param->name);
        if (param->read_around)
            return err_set(err, ERR_UNSUPPORTED,
                           "--lora %u,%s: %s %s past an adapter, which would get no gradient: "
                           "name others (--lora %u,%s)",
                           graph->lora.rank, targets,
                           config->altup_inputs ? "layers read" : "Mamba's kernels read",
                           param->name, graph->lora.rank, advised(config));
    }
    return any ? ERR_OK
               : err_set(err, ERR_INVALID,
                         "--lora %u,%s: no linear layer is called so; parameters are called as %s",
                         graph->lora.rank, targets, graph->params[graph->param_count / 2].name);
}

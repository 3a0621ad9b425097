/* job.c - see job.h. */
#include "job/job.h"

#include "graph/reuse.h"

#include "compile/compile.h"
#include "families/families.h"
#include "job/offloading.h"
#include "job/policies.h"
#include "job/preferences.h"
#include "job/recorded_under.h"
#include "job/reentrant.h"
#include "model/bits4.h"
#include "model/bits8.h"
#include "model/lora.h"

#include <assert.h>
#include <string.h>

/* ---- recorded models ---- */

static struct recording_choice choice_of(const struct job *job)
{
    const struct tape_options tape = job_tape(job);
    return (struct recording_choice){
        .batch = job->model.batch,
        .seq = job->model.seq,
        .checkpointing = job->tape.checkpointing,
        .input_nodes = tape.input_nodes,
        .root_casts = system_casts_root(&job->strategy),
        .module_hooks = tape.call_hooks || tape.own_linear,
        .scaled_loss = tape.scaled_loss,
        .node_hooks = system_has_node_hooks(job->strategy.system),
        .views = system_has_views(job->strategy.system),
        .compute = job->model.compute,
        .autocast = job->model.autocast,
        .autograd = job->model.autograd,
        .attention = job->model.attention,
        .attention_gpu = job->model.attention_gpu,
        .torch = job->model.torch,
        .frozen = job->model.frozen,
    };
}

/* Whether torch's _auto_wrap wraps batch norms by themselves, without mixed precision. */
static bool is_wrapped_in_fp32(const struct strategy *s)
{
    const bool mixed = s->compute != s->store || s->reduce != s->compute;
    return s->system == SYSTEM_FSDP1 && s->units != UNITS_NONE && mixed;
}

/* What was decided when the model was recorded, and what a recording has not. */
static enum err_code check_recorded(const struct job *job, struct err *err)
{
    const struct tape_options tape = job_tape(job);
    const struct model_job *m = &job->model;
    if (job->strategy.units == UNITS_TORCHTITAN || job->strategy.units == UNITS_EMBEDDINGS ||
        strategy_wraps_inside(&job->strategy))
        return err_set(err, ERR_UNSUPPORTED,
                       "--units: of a recorded model, the members of its lists of modules may be "
                       "units: blocks, or N of them");
    if (tape.compiled)
        return err_set(err, ERR_UNSUPPORTED,
                       "--compile: a recorded model is the calls that eager PyTorch made; what it "
                       "was written as is not in a recording");
    if (tape.checkpointing && tape.checkpointed)
        return err_set(err, ERR_UNSUPPORTED,
                       "--checkpoint-blocks: of a recorded model, all blocks are checkpointed or "
                       "none");
    if (m->autocast && system_has_views(job->strategy.system))
        return err_set(
            err, ERR_UNSUPPORTED,
            "--autocast: a recorded model's parameters are no views, whose casts autocast "
            "does not keep: under %s that cannot be planned from a recording",
            system_name(job->strategy.system));
    if (m->outputs_fp32)
        return err_set(err, ERR_UNSUPPORTED,
                       "--outputs fp32: a recorded model returns what it returned when it was "
                       "recorded, without accelerate's cast, which is not planned of it");
    const char *norm = recording_info(job->config.recording).batch_norm;
    if (norm && is_wrapped_in_fp32(&job->strategy))
        return err_set(
            err, ERR_UNSUPPORTED,
            "%s: fsdp1's auto_wrap_policy makes a unit of each BatchNorm, which computes "
            "in fp32 (MixedPrecision's _module_classes_to_ignore), and the model was "
            "recorded with its norms in %s: --units none, which wraps nothing but the "
            "model, or record it with --dtype fp32",
            norm, dtype_brief(recording_info(job->config.recording).dtype));
    const char *option = m->code != CODE_RECORDED               ? "--code"
                         : m->loss != CROSS_ENTROPY_EAGER       ? "--loss"
                         : m->task                              ? "--task"
                         : m->padding_tokens                    ? "--padding-tokens"
                         : m->prompt_tokens                     ? "--prompt-tokens"
                         : m->lora                              ? "--lora"
                         : m->outputs_kept                      ? "--keep-outputs"
                         : m->float8                            ? "--float8"
                         : m->input_grads                       ? "--input-grads on"
                         : m->attention == ATTENTION_MATH       ? "--attention math"
                         : m->attention == ATTENTION_EAGER      ? "--attention eager"
                         : m->attention == ATTENTION_FLASH_ATTN ? "--attention flash-attn"
                         : tape.no_early_stop                   ? "--early-stop off"
                         : reentrant_is_used(job)               ? "--checkpoint-reentrant on"
                         : offloading_is_used(job)              ? "--activation-offloading"
                                                                : NULL;
    const char *made = recording_info(job->config.recording).torch;
    if (m->torch != 0 && m->torch != TORCH_WHOLE && m->torch != torch_minor(made))
        return err_set(err, ERR_INVALID,
                       "--torch 2.%u: the model was recorded with torch %s, whose calls it has; "
                       "record it again with that version",
                       m->torch, made);
    if (option)
        return err_set(err, ERR_INVALID,
                       "%s: a recorded model is what it was when it was recorded; record it again "
                       "that way",
                       option);
    return ERR_OK;
}

/* What a recorded model kept for backward follows from what was frozen then: a system cannot give
 * more of it a gradient. Frees the graph that it refuses. */
static enum err_code check_gradients(const struct job *job, struct graph **out, struct err *err)
{
    struct graph *graph = *out;
    system_prepare(&job->strategy, graph);
    for (uint32_t p = 0; p < graph->param_count; p++) {
        const struct graph_param *param = &graph->params[p];
        if (param->trainable || !graph->tensors[param->tensor].requires_grad)
            continue;
        const enum err_code rc = err_set(
            err, ERR_UNSUPPORTED,
            "%s: frozen in a unit with trained parameters, which under %s all need a gradient: "
            "that cannot be planned from a recording",
            param->name, system_name(job->strategy.system));
        graph_free(graph);
        *out = NULL;
        return rc;
    }
    return ERR_OK;
}

/* Units within blocks, whose hooks end the graphs of a compiled block (frame_parts.h): of adapters'
 * Linears that was recorded. Frees the graph that it refuses. */
static enum err_code check_inner(const struct job *job, struct graph **out, struct err *err)
{
    const struct tape_options tape = job_tape(job);
    for (uint32_t m = 0; m < (*out)->module_count && tape.compiled; m++) {
        if ((*out)->modules[m].role != ROLE_INNER ||
            (strstr((*out)->modules[m].name, ".lora_") && !tape.checkpointing))
            continue;
        const enum err_code rc =
            err_set(err, ERR_UNSUPPORTED,
                    "--units would wrap %s, whose hooks end graphs within a block: with --compile "
                    "that is planned of adapters without --checkpointing",
                    (*out)->modules[m].name);
        graph_free(*out);
        *out = NULL;
        return rc;
    }
    return ERR_OK;
}

/* Whether a weight that is seen gathered in forward is so where that is computed again, and one
 * that is seen sharded likewise: the first where it is prefetched, the second where forward leaves
 * it gathered. */
static bool sees_it_again(const struct strategy *s)
{
    const bool shards = s->world / s->replicate > 1;
    const bool keeps = s->sharding == SHARDING_GRAD_OP || s->sharding == SHARDING_HYBRID_ZERO2;
    return !s->use_orig_params || (s->forward_prefetch > 0) == (keeps && shards);
}

/* Under FSDP2 peft's layers see the stored dtype of an adapter that is a unit, while it is sharded:
 * not where blocks are computed again and forward left it gathered, or a part of it, nor in later
 * micro-batches that backward did. */
static enum err_code check_seen(const struct job *job, const char *name, struct err *err)
{
    const struct strategy *s = &job->strategy;
    const bool resharded = (s->reshard == RESHARD_DEFAULT || s->reshard == RESHARD_ALWAYS) &&
                           !s->keep_last && !s->keep_units;
    const bool checkpointed = job->tape.checkpointing != CHECKPOINTING_NONE;
    const bool kept = s->reshard_last && s->accumulate > 1;
    if (!kept && (resharded || !checkpointed))
        return ERR_OK;
    return err_set(
        err, ERR_UNSUPPORTED,
        "--adapter-units on: %s is seen sharded in forward, in %s, and gathered later, in "
        "%s, so peft casts in one alone: planned where forward and backward reshard it",
        name, dtype_brief(s->store), dtype_brief(s->compute));
}

/* What peft's layers cast their input to is the dtype that they see of lora_A.weight. In a unit of
 * its own that is the stored one while it is sharded: always with use_orig_params, else until it
 * was gathered for the first time. */
static enum err_code check_apart(const struct job *job, const struct graph *graph, struct err *err)
{
    const struct strategy *s = &job->strategy;
    const uint64_t least = system_parts_adapters(s);
    const uint32_t adapter = least ? lora_of_elements(graph, least) : GRAPH_NONE;
    const bool checkpointed = job->tape.checkpointing != CHECKPOINTING_NONE;
    if (s->system == SYSTEM_FSDP2) /* whose hooks cast what modules are called with */
        return adapter != GRAPH_NONE ? check_seen(job, graph->params[adapter].name, err) : ERR_OK;
    if (adapter == GRAPH_NONE || (!s->use_orig_params && !checkpointed))
        return ERR_OK;
    if (job->model.autocast && (!checkpointed || sees_it_again(s)))
        return ERR_OK;
    if (job->model.autocast)
        return err_set(err, ERR_UNSUPPORTED,
                       "--use-orig-params on with --checkpointing: %s is seen gathered in one of "
                       "forward and its recomputation, and sharded in the other, so peft casts in "
                       "one alone: planned where --forward-prefetch is on with --sharding "
                       "SHARD_GRAD_OP, or off with another",
                       graph->params[adapter].name);
    const char *name = graph->params[adapter].name, *stored = dtype_brief(s->store);
    if (s->use_orig_params)
        return err_set(
            err, ERR_INVALID,
            "--use-orig-params on: %s is a unit of its own, whose shard peft sees, in %s, "
            "and casts to: torch refuses the product with the gathered weight (mat1 and "
            "mat2 must have the same dtype), but not under --autocast bf16, as accelerate "
            "runs it",
            name, stored);
    return err_set(
        err, ERR_INVALID,
        "--checkpointing: %s is a unit of its own, whose dtype peft sees and casts to: %s "
        "in the first forward, another when that is computed again, which torch refuses "
        "(CheckpointError), but not under --autocast bf16, as accelerate runs it",
        name, stored);
}

/* create_selective_checkpoint_contexts sees calls by a TorchDispatchMode. */
static bool is_watched(const struct job *job)
{
    const struct tape_options tape = job_tape(job);
    return tape.checkpointing == CHECKPOINTING_SELECTIVE && tape.checkpointed == CHECKPOINTED_ALL;
}

static bool is_traced(const struct job *job)
{
    const struct tape_options tape = job_tape(job);
    return tape.compiled == COMPILED_MODEL || tape.compiled == COMPILED_FRAMES;
}

static bool is_split(const struct job *job)
{
    const struct tape_options tape = job_tape(job);
    return tape.compiled && tape.bucket_bytes > 0 && !tape.whole_graphs;
}

/* The recorded GPT-2 has no modules in its blocks, which might be wrapped, and of what DeepSpeed
 * was recorded with Llama has none either, whose hooks would gather. */
static bool is_flat(const struct job *job)
{
    const bool zero = system_zero_stage(job->strategy.system) > 0;
    return job->model.autograd == AUTOGRAD_RECORDED && (zero || job->model.code == CODE_NANOGPT);
}

struct model_job job_model(const struct job *job)
{
    struct model_job model = job->model;
    model.made = system_made(&job->strategy);
    model.adapters_apart =
        system_shows_shards(&job->strategy) ? system_parts_adapters(&job->strategy) : 0;
    model.apart = job->strategy.store;
    model.wide_trained = system_trains_wide(&job->strategy);
    model.bits4.made = model.compute == DTYPE_FP32 ? model.bits4.compute : model.compute;
    if (model.bits4.kind != BITS4_NOT && system_zero_stage(job->strategy.system) > 0)
        model.made = model.bits4.made; /* as it was loaded; DeepSpeed casts its parameters alone */
    model.as_stored = system_computes_as_stored(job->strategy.system);
    model.views = system_has_views(job->strategy.system);
    model.casts_inputs = system_casts_inputs(&job->strategy);
    model.casts_root = model.casts_inputs || system_casts_root(&job->strategy);
    model.copies_outputs = system_copies_outputs(&job->strategy);
    model.bare_reference = model.outputs_fp32 && job->strategy.system == SYSTEM_FSDP1;
    if (model.micro_batches == 0) /* a plan's: settings_job says another */
        model.micro_batches = job->strategy.accumulate;
    model.ranks = job->strategy.world;
    model.own_experts = job->strategy.experts_replicate > 0;
    model.watched = is_watched(job);
    model.compiled = job_tape(job).compiled != COMPILED_NOT;
    model.traced = is_traced(job);
    model.split = is_split(job);
    model.flat = is_flat(job);
    model.returns_nodes = loss_is_per_token(model.loss) && job->strategy.system == SYSTEM_ZERO3;
    return model;
}

/* Frees the graph that it refuses. */
static enum err_code check_nested(const struct job *job, struct graph **out, struct err *err)
{
    enum err_code rc = reentrant_check_graph(job, *out, err);
    if (rc == ERR_OK)
        rc = offloading_check_graph(job, *out, err);
    if (rc != ERR_OK) {
        graph_free(*out);
        *out = NULL;
    }
    return rc;
}

enum err_code job_graph(const struct job *job, struct graph **out, struct err *err)
{
    *out = NULL;
    if (job->config.recording) {
        const struct recording_choice choice = choice_of(job);
        TRY(check_recorded(job, err));
        TRY(recording_graph(job->config.recording, &choice, out, err));
        return check_gradients(job, out, err);
    }
    const struct model_job model = job_model(job);
    TRY(model_build(&job->config, &model, out, err));
    const enum err_code rc = check_apart(job, *out, err);
    if (rc != ERR_OK) {
        graph_free(*out);
        *out = NULL;
        return rc;
    }
    if (reentrant_is_used(job) || job->model.input_grads)
        graph_need_input_gradients(*out);
    system_prepare(&job->strategy, *out);
    TRY(check_nested(job, out, err));
    return check_inner(job, out, err);
}

/* No tensor of a job that can be had is larger: an exbibyte, a thousand times the memory of the
 * largest clusters. What is below leaves room for sums of them in 64 bits. */
#define LARGEST_BYTES (1ULL << 60)

static bool is_too_large(const struct shape *shape, enum dtype dtype)
{
    uint64_t bytes = dtype_bytes(dtype);
    for (uint32_t i = 0; i < shape->rank; i++)
        if (__builtin_mul_overflow(bytes, shape->dim[i], &bytes) || bytes > LARGEST_BYTES)
            return true;
    return false;
}

static enum err_code check_sizes(const struct graph *graph, const struct stream *stream,
                                 struct err *err)
{
    for (uint32_t p = 0; p < graph->param_count; p++)
        if (is_too_large(&graph->params[p].shape, DTYPE_FP32))
            return err_set(err, ERR_INVALID, "parameter %s takes more than an exbibyte",
                           graph->params[p].name);
    for (uint32_t b = 0; b < stream->buffer_count; b++)
        if (is_too_large(&stream->buffers[b].shape, (enum dtype)stream->buffers[b].dtype))
            return err_set(err, ERR_INVALID,
                           "a tensor of this job takes more than an exbibyte: fewer sequences "
                           "(--micro-batch), or shorter ones (--seq)");
    return ERR_OK;
}

static enum err_code check_trained(const struct job *job, const struct graph *graph,
                                   struct err *err)
{
    assert(graph); /* made without an error */
    uint32_t trained = 0;
    for (uint32_t p = graph->param_count; p-- > 0;)
        trained = graph->params[p].trainable ? p + 1 : trained;
    if (trained == 0)
        return err_set(err, ERR_INVALID, "--freeze %s: no parameter is left to train",
                       job->model.frozen ? job->model.frozen : "");
    if (!graph->is_recording && !graph->tensors[graph->loss].requires_grad)
        return err_set(err, ERR_INVALID,
                       "the loss depends on nothing that is trained, which is %s and its like: "
                       "PyTorch fails (\"element 0 of tensors does not require grad and does not "
                       "have a grad_fn\")",
                       graph->params[trained - 1].name);
    return ERR_OK;
}

/* Of other code than transformers' it was not recorded. */
static bool copies_others(const struct job *job)
{
    return system_copies_outputs(&job->strategy) && job->model.code != CODE_HF;
}

/* What was recorded, and is otherwise than planned (tests/data/truth/README.md); NULL: nothing. All
 * but the first are of functions between hooks. */
static const char *recorded_otherwise(const struct job *job)
{
    const struct model_config *c = &job->config;
    const bool single_ops =
        c->arch == ARCH_CODEGEN || (c->arch == ARCH_FALCON && c->one_kv_head && !c->grouped_qkv);
    if (c->arch == ARCH_GPT_OSS && job->tape.checkpointing != CHECKPOINTING_NONE)
        return "--checkpointing, of gpt-oss";
    if (job->model.code != CODE_HF || job_tape(job).compiled != COMPILED_FRAMES)
        return NULL;
    if (single_ops && job->model.autocast)
        return "--autocast, of a model whose attention is in single ops";
    if (c->embedding_multiplier > 0 && job->strategy.units == UNITS_TORCHTITAN)
        return "--units torchtitan, of an embedding whose rows are multiplied";
    return NULL;
}

/* Which modules size_based_auto_wrap_policy wraps is not known before there is a graph: blocks, or
 * what is before or behind them alone, where one graph is left. Of the rest, what was recorded. */
static enum err_code check_compiled_model(const struct job *job, struct err *err)
{
    if (job->strategy.units == UNITS_ELEMENTS)
        return err_set(err, ERR_UNSUPPORTED,
                       "--compile model with --units %u: where the model's graph breaks depends on "
                       "which modules are that large; it is planned with blocks, embeddings or "
                       "none",
                       job->strategy.unit_elements);
    if (job->model.code == CODE_HF && job_tape(job).compiled == COMPILED_FRAMES &&
        job->strategy.units != UNITS_BLOCKS && job->strategy.units != UNITS_TORCHTITAN &&
        job->strategy.units != UNITS_TRAINED)
        return err_set(err, ERR_UNSUPPORTED,
                       "--compile model with --code hf is planned with blocks as units, with "
                       "adapters' within them, or none: what the hooks of others break (the "
                       "embedding's) was not recorded");
    const char *what = job->model.float8    ? "--float8"
                       : copies_others(job) ? "--find-unused-parameters"
                                            : recorded_otherwise(job);
    if (what)
        return err_set(err, ERR_UNSUPPORTED,
                       "--compile model with %s: what torch.compile makes of it is not "
                       "planned",
                       what);
    return ERR_OK;
}

/* Dynamo asserts that FSDP1's parameters are the original ones. Autocast's casts are traced with
 * the block. */
static enum err_code check_compiled(const struct job *job, struct err *err)
{
    if (!job_tape(job).compiled || job->config.recording)
        return ERR_OK;
    if (job->model.input_grads)
        return err_set(err, ERR_UNSUPPORTED, "--compile with --input-grads on is not planned");
    if (job->strategy.adapter_units)
        return err_set(err, ERR_UNSUPPORTED, "--compile with --adapter-units on is not planned");
    if (job->tape.compiled == COMPILED_MODEL)
        TRY(check_compiled_model(job, err));
    const struct tape_options tape = job_tape(job);
    if (tape.bucket_bytes > 0 && tape.bucket_bytes < 1 << 20 && !tape.whole_graphs)
        return err_set(
            err, ERR_INVALID,
            "--compile with --bucket-cap-mb %g: DDPOptimizer asserts that buckets have a "
            "MiB or more; --optimize-ddp off takes any",
            (double)job->strategy.bucket_cap_mb);
    if (job->strategy.system == SYSTEM_FSDP1 && !job->strategy.use_orig_params)
        return err_set(err, ERR_UNSUPPORTED,
                       "--compile with FSDP1: torch.compile takes it with --use-orig-params on "
                       "alone");
    return ERR_OK;
}

static enum err_code run(const struct job *job, const struct graph *graph, struct stream **out,
                         struct err *err)
{
    const struct tape_options options = job_tape(job);
    if (job->config.recording) {
        const struct recording_choice choice = choice_of(job);
        return recording_stream(job->config.recording, &choice, out, err);
    }
    if (options.compiled || options.compiled_loss)
        return compile_run(graph, &options, out, err);
    *out = tape_run(graph, &options);
    return ERR_OK;
}

static enum err_code check_version(const struct job *job, struct err *err)
{
    const struct tape_options tape = job_tape(job);
    const uint32_t torch = job->model.torch;
    if (tape.checkpointing == CHECKPOINTING_SELECTIVE &&
        !torch_does(torch, TORCH_SELECTIVE_CHECKPOINTS))
        return err_set(err, ERR_INVALID,
                       "--checkpointing selective: torch 2.%u has no "
                       "create_selective_checkpoint_contexts; 2.%u does",
                       torch, torch_row(TORCH_SELECTIVE_CHECKPOINTS)->until);
    return recorded_under_check(job, err);
}

static enum err_code check_float8(const struct job *job, struct err *err)
{
    const struct tape_options tape = job_tape(job);
    if (job->model.float8 && tape.compiled && job->model.compute == DTYPE_FP32)
        return err_set(err, ERR_UNSUPPORTED,
                       "--float8 with --compile on is planned of activations in 16 bits alone: "
                       "products of fp32 were not recorded");
    if (job->model.float8_gather && !job->model.float8)
        return err_set(err, ERR_INVALID, "--float8-gather: of --float8 tensorwise");
    return ERR_OK;
}

/* Of weights in 4 bits that are cut: fsdp2 gathers all in one dtype, fsdp1 flattens a unit to one,
 * and both cast that. DeepSpeed casts numbers that are packed in another floating dtype than its
 * own, which makes others of them; under zero3 layers that compute in another dtype cast within the
 * hooks of their modules. */
static enum err_code check_bits4_cut(const struct job *job, struct err *err)
{
    const struct strategy *s = &job->strategy;
    const struct graph_bits4 *bits4 = &job->model.bits4;
    const bool fsdp2 = s->system == SYSTEM_FSDP2, fsdp1 = s->system == SYSTEM_FSDP1;
    const bool zero3 = s->system == SYSTEM_ZERO3, zero = system_zero_stage(s->system) > 0;
    const enum dtype stored = s->frozen_low ? s->compute : s->store;
    const bool other = bits4->storage != s->compute;
    const char *dtype = dtype_brief(s->compute);
    char options[128] = "";
    size_t used = 0;
    if (other && (fsdp2 || fsdp1 || (zero && bits4->storage != DTYPE_UINT8)))
        used += (size_t)snprintf(options, sizeof options, " --bnb-quant-storage %s", dtype);
    if (bits4->compute != s->compute && (fsdp2 || zero3))
        used += (size_t)snprintf(options + used, sizeof options - used, " --bnb-compute-dtype %s",
                                 dtype);
    if (stored != s->compute && (fsdp2 || fsdp1))
        used += (size_t)snprintf(options + used, sizeof options - used, " --frozen-dtype param");
    if (used == 0)
        return ERR_OK;
    return err_set(err, ERR_UNSUPPORTED,
                   "--load-in-4bit under %s: planned where weights in 4 bits are %s; %sadd%s",
                   system_name(s->system),
                   fsdp2   ? "packed, gathered and computed with in the one dtype of --param-dtype"
                   : fsdp1 ? "packed and stored in --param-dtype, to which fsdp1 casts them"
                   : zero3
                       ? "packed in uint8 or in --param-dtype, and computed with in --param-dtype"
                       : "packed in uint8 or in --param-dtype, to which DeepSpeed casts the rest",
                   s->world == 1 ? "--strategy single, which has no wrapper, or " : "", options);
}

/* Weights in so few bits: adapters beside them are trained, and not with `what` (NULL: nothing). */
static enum err_code check_few_bits(const struct model_job *m, int bits, const char *what,
                                    struct err *err)
{
    if (!m->lora)
        return err_set(err, ERR_INVALID,
                       "--load-in-%dbit: weights in %d bits are not trained; adapters beside them "
                       "are (--lora)",
                       bits, bits);
    return what ? err_set(err, ERR_UNSUPPORTED,
                          "--load-in-%dbit with %s: what runs then was not recorded, and is not "
                          "planned",
                          bits, what)
                : ERR_OK;
}

/* Of weights in 8 bits likewise. */
static enum err_code check_bits8(const struct job *job, struct err *err)
{
    const struct model_job *m = &job->model;
    if (!m->bits8)
        return ERR_OK;
    if (m->bits4.kind != BITS4_NOT)
        return err_set(err, ERR_INVALID,
                       "--load-in-8bit with --load-in-4bit: weights are in one of them");
    const struct strategy *s = &job->strategy;
    const char *what = m->float8                       ? "--float8"
                       : job_tape(job).compiled        ? "--compile"
                       : s->columns                    ? "--placement columns"
                       : s->ignore                     ? "--ignore"
                       : m->outputs_kept               ? "--keep-outputs"
                       : bits8_unplanned(&job->config) ? bits8_unplanned(&job->config)
                                                       : NULL;
    return check_few_bits(m, 8, what, err);
}

/* Of weights in 4 bits what was recorded. */
static enum err_code check_bits4(const struct job *job, struct err *err)
{
    const struct model_job *m = &job->model;
    if (m->bits4.kind == BITS4_NOT)
        return m->bits4.twice ? err_set(err, ERR_INVALID, "--bnb-double-quant: of --load-in-4bit")
               : m->bits4.experts
                   ? err_set(err, ERR_INVALID, "--quantize-moe-experts: of --load-in-4bit")
                   : ERR_OK;
    if (m->bits4.experts && !model_has_experts(&job->config))
        return err_set(err, ERR_INVALID, "--quantize-moe-experts: the model has no experts");
    const struct strategy *s = &job->strategy;
    const char *what = m->float8                       ? "--float8"
                       : job_tape(job).compiled        ? "--compile"
                       : s->columns                    ? "--placement columns"
                       : s->ignore                     ? "--ignore"
                       : s->zero.quantized_weights     ? "zero_quantized_weights"
                       : bits4_unplanned(&job->config) ? bits4_unplanned(&job->config)
                       : m->bits4.compute == DTYPE_FP16 && m->autocast
                           ? "--bnb-compute-dtype fp16 and --autocast bf16"
                           : NULL;
    TRY(check_few_bits(m, 4, what, err));
    return check_bits4_cut(job, err);
}

/* Recomputation to a block's end runs the hook behind its last module, too, which lets go of what
 * backward reads next: DeepSpeed then finds gradients of no elements ("0 != 11264 Cannot reduce
 * scatter gradients whose size is not same as the params"). */
static enum err_code check_early_stop(const struct job *job, struct err *err)
{
    const struct tape_options tape = job_tape(job);
    if (job->strategy.system == SYSTEM_ZERO3 && tape.no_early_stop && tape.checkpointing)
        return err_set(
            err, ERR_INVALID,
            "--early-stop off with --checkpointing under zero3: DeepSpeed lets go of a "
            "block's last parameters when it was computed again to its end, and fails "
            "(\"Cannot reduce scatter gradients whose size is not same as the params\"); "
            "--early-stop on");
    return ERR_OK;
}

/* Of attention in single ops what was recorded: not what torch.compile fuses of it, nor some blocks
 * that a dispatch mode watches, where ATen adds its mask otherwise. */
static enum err_code check_attention(const struct job *job, struct err *err)
{
    const struct tape_options tape = job_tape(job);
    const char *word = attention_name(job->model.attention);
    const char *why = job->model.attention_fell ? ", which is all that the GPU has in bf16 "
                                                  "(--param-dtype fp16 has a kernel)"
                                                : "";
    if (!attention_is_composed(job->model.attention))
        return ERR_OK;
    if (tape.compiled)
        return err_set(err, ERR_UNSUPPORTED,
                       "--attention %s with --compile: what torch.compile fuses of it is not "
                       "planned%s",
                       word, why);
    if (tape.checkpointing == CHECKPOINTING_SELECTIVE && tape.checkpointed != CHECKPOINTED_ALL)
        return err_set(err, ERR_UNSUPPORTED,
                       "--attention %s with --checkpointing selective: planned where all blocks "
                       "are checkpointed, not with --checkpoint-blocks%s",
                       word, why);
    if (!torch_does(job->model.torch, TORCH_INDEX_OF_ALL))
        return err_set(err, ERR_UNSUPPORTED,
                       "--attention %s: planned as torch 2.9 and newer compute it%s", word, why);
    return ERR_OK;
}

/* What torchtitan's mixtures were not recorded under: its trainer has no DeepSpeed. */
static enum err_code check_mixture(const struct job *job, struct err *err)
{
    const enum system_kind system = job->strategy.system;
    const bool zero = system == SYSTEM_ZERO1 || system == SYSTEM_ZERO2 || system == SYSTEM_ZERO3;
    if (job->model.code != CODE_TORCHTITAN || !zero || !model_has_experts(&job->config))
        return ERR_OK;
    return err_set(err, ERR_UNSUPPORTED,
                   "--strategy %s with torchtitan's mixtures of experts (--code torchtitan): not "
                   "recorded, and not planned; transformers' (--code hf) are",
                   system_name(system));
}

enum err_code job_check(const struct job *job, struct err *err)
{
    if (!system_is_planned(job->strategy.system))
        return err_set(err, ERR_UNSUPPORTED, "%s cannot be planned by this version",
                       system_name(job->strategy.system));
    if (system_is_alone(job->strategy.system) && job->strategy.world > 1)
        return err_set(err, ERR_INVALID,
                       "--strategy %s: one GPU trains alone, and --gpus is %u; ddp, fsdp2 and the "
                       "others are for several",
                       system_name(job->strategy.system), job->strategy.world);
    TRY(check_version(job, err));
    TRY(check_early_stop(job, err));
    TRY(reentrant_check(job, err));
    TRY(offloading_check(job, err));
    TRY(preferences_check(job, err));
    TRY(policies_check(job, err));
    if (job->model.autocast && job->strategy.ignore)
        return err_set(err, ERR_UNSUPPORTED, "--ignore with --autocast is not planned");
    if (job->model.lora_kernels && strcmp(job->model.lora_kernels, "off") != 0 &&
        job->tape.checkpointing == CHECKPOINTING_SELECTIVE)
        return err_set(err, ERR_INVALID,
                       "--lora-kernels with --checkpointing selective: axolotl's sums change "
                       "products that the policy keeps, which fails (\"Tensor cached during "
                       "selective activation checkpoint has been mutated\")");
    if (job->model.lora_dropout > 0 && !job->model.lora)
        return err_set(err, ERR_INVALID, "--lora-dropout: of adapters, which --lora adds");
    TRY(check_bits4(job, err));
    TRY(check_bits8(job, err));
    TRY(check_float8(job, err));
    TRY(check_attention(job, err));
    TRY(check_mixture(job, err));
    TRY(check_compiled(job, err));
    return job->config.recording ? check_recorded(job, err) : ERR_OK;
}

enum err_code job_stream(const struct job *job, struct graph **graph, struct stream **stream,
                         struct err *err)
{
    *graph = NULL;
    *stream = NULL;
    TRY(job_check(job, err));
    TRY(job_graph(job, graph, err));
    enum err_code rc = check_trained(job, *graph, err);
    if (rc == ERR_OK)
        rc = run(job, *graph, stream, err);
    if (rc == ERR_OK)
        rc = check_sizes(*graph, *stream, err);
    if (rc == ERR_OK) {
        stream_find_reuse(*stream);
        return ERR_OK;
    }
    stream_free(*stream);
    graph_free(*graph);
    *stream = NULL;
    *graph = NULL;
    return rc;
}

enum err_code job_plan(const struct job *job, struct plan **out, uint64_t *parameters,
                       struct err *err)
{
    struct graph *graph;
    struct stream *stream;
    *out = NULL;
    TRY(job_stream(job, &graph, &stream, err));
    if (parameters)
        *parameters = graph_parameter_elements(graph);
    enum err_code rc = lower_plan(graph, stream, &job->strategy, out, err);
    stream_free(stream);
    graph_free(graph);
    /* A builder's streams hold by construction, and tests; a file may say anything. */
    if (rc == ERR_OK && job->config.recording && plan_verify(*out, err) != ERR_OK) {
        plan_free(*out);
        *out = NULL;
        rc = err_context(err, "the recording does not hold together");
    }
    return rc;
}

/* result.c - see result.h. Bytes in JSON, GiB with two decimals in tables. */
#include "report/result.h"

#include "families/families.h"
#include "job/policies.h"
#include "plan/modules.h"
#include "plan/repeat.h"
#include "report/adapter_notes.h"
#include "report/idle_notes.h"
#include "report/model_notes.h"
#include "report/palette.h"
#include "report/style.h"
#include "report/units_result.h"
#include "report/verdict.h"
#include "report/version_notes.h"
#include "search/losses.h"
#include "search/padding.h"
#include "search/saved_views.h"

#include <inttypes.h>
#include <string.h>

static double gib(uint64_t bytes)
{
    return (double)bytes / 1073741824.0;
}

/* "layers.31.feed_forward.w2", or where there is no such name nothing. */
static const char *module_text(const struct prediction *p, uint32_t instruction, char text[160])
{
    return plan_module_text(p->plan, instruction, text, 160);
}

const char *result_what(const struct plan *plan, uint32_t instruction, char *text, size_t size)
{
    char what[160], scope[256];
    const struct plan_instruction *i = &plan->instructions[instruction];
    if (i->op != PLAN_ALLOC && i->op != PLAN_FREE) {
        snprintf(text, size, "%s, in %s", plan_op_name((enum plan_op)i->op),
                 plan_scope_text(plan, i, scope, sizeof scope));
        return text;
    }
    const struct buffer *buffer = &plan->buffers[i->arg];
    snprintf(text, size, "%s, in %s", plan_buffer_text(plan, buffer, what, sizeof what),
             plan_scope_text(plan, i, scope, sizeof scope));
    return text;
}

static json_t *bytes_json(uint64_t bytes)
{
    return json_integer((json_int_t)bytes);
}

/* What is told of requested bytes (prediction.host_apart). */
struct told {
    const struct memory_moment *peak;
    const uint64_t *categories, *live, *part_peaks;
};

static struct told told_of(const struct prediction *p)
{
    const struct memory *m = &p->memory;
    if (p->host_apart)
        return (struct told){&m->device, m->device_categories, m->device_live,
                             m->device_part_peaks};
    return (struct told){&m->requested, m->categories, m->live, m->part_peaks};
}

static json_t *peak_json(const struct prediction *p, const struct memory_moment *requested)
{
    char what[512], module[160];
    const struct memory *m = &p->memory;
    json_t *peak = json_object();
    json_object_set_new(peak, "requested_bytes", bytes_json(requested->bytes));
    json_object_set_new(peak, "allocated_bytes", bytes_json(m->allocated.bytes));
    json_object_set_new(peak, "reserved_bytes", bytes_json(m->reserved_bytes));
    json_object_set_new(peak, "device_bytes", bytes_json(p->device_bytes));
    json_object_set_new(peak, "phase", json_string(step_part_name(requested->part)));
    json_object_set_new(peak, "instruction",
                        json_integer(plan_place_in_step(p->plan, requested->instruction)));
    json_object_set_new(peak, "module",
                        json_string(module_text(p, requested->instruction, module)));
    json_object_set_new(
        peak, "what", json_string(result_what(p->plan, requested->instruction, what, sizeof what)));
    return peak;
}

static json_t *categories_json(const struct prediction *p, const uint64_t *requested)
{
    json_t *categories = json_object();
    for (int i = 0; i < CATEGORY_COUNT; i++) {
        uint64_t bytes = requested[i];
        if (i == CATEGORY_WORKSPACE)
            bytes = p->workspace_bytes;
        if (i == CATEGORY_OUTSIDE_ALLOCATOR)
            bytes = p->outside_bytes;
        json_object_set_new(categories, category_name((enum category)i), bytes_json(bytes));
    }
    return categories;
}

/* The device or the host: requested bytes at its own peak, which the first `count` categories sum
 * to, and the range of what it must have. */
static json_t *place_json(const struct memory_moment *peak, const uint64_t *categories, int count,
                          uint64_t least, uint64_t most)
{
    json_t *place = json_object(), *parts = json_object();
    for (int i = 0; i < count; i++)
        json_object_set_new(parts, category_name((enum category)i), bytes_json(categories[i]));
    json_object_set_new(place, "requested_bytes", bytes_json(peak->bytes));
    json_object_set_new(place, "least_bytes", bytes_json(least));
    json_object_set_new(place, "unconstrained_bytes", bytes_json(most));
    json_object_set_new(place, "categories", parts);
    return place;
}

static json_t *marks_json(const uint64_t *requested)
{
    static const enum plan_mark marks[] = {
        PLAN_MARK_START,          PLAN_MARK_AFTER_LOGITS, PLAN_MARK_AFTER_FORWARD,
        PLAN_MARK_AFTER_BACKWARD, PLAN_MARK_AFTER_STEP,   PLAN_MARK_END,
    };
    json_t *live = json_object();
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++)
        json_object_set_new(live, plan_mark_name(marks[i]), bytes_json(requested[marks[i]]));
    return live;
}

json_t *remedies_json(const struct remedy *remedies, uint32_t count)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < count; i++)
        json_array_append_new(
            array,
            json_pack("{s:s, s:s, s:b, s:b, s:b, s:I, s:I, s:f, s:f}", "change", remedies[i].change,
                      "cost", remedies[i].cost, "changes_numerics", remedies[i].changes_numerics,
                      "tight", remedies[i].tight, "after_release", remedies[i].after_release,
                      "device_bytes", (json_int_t)remedies[i].device_bytes, "host_needed_bytes",
                      (json_int_t)remedies[i].host_needed_bytes, "step_s", remedies[i].step_s,
                      "tokens_per_s_per_gpu", remedies[i].tokens_per_s));
    return array;
}

static json_t *recording_json(const struct recording *recording, uint64_t parameters)
{
    const struct recording_info info = recording_info(recording);
    char unknown[512];
    const uint32_t count = recording_unknown(recording, unknown, sizeof unknown);
    return json_pack("{s:I, s:s, s:s, s:s, s:i, s:i, s:s}", "parameters", (json_int_t)parameters,
                     "model_type", "recorded", "name", info.name, "torch", info.torch, "units",
                     (int)info.units, "calls_costed_by_bytes", (int)count, "their_names", unknown);
}

static json_t *model_json(const struct model_config *config, uint64_t parameters)
{
    if (config->recording)
        return recording_json(config->recording, parameters);
    return json_pack("{s:I, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:b}", "parameters",
                     (json_int_t)parameters, "model_type", arch_name(config->arch), "hidden_size",
                     (int)config->hidden, "num_hidden_layers", (int)config->layers,
                     "num_attention_heads", (int)config->heads, "num_key_value_heads",
                     (int)config->kv_heads, "head_dim", (int)config->head_dim, "intermediate_size",
                     (int)config->ffn, "vocab_size", (int)config->vocab, "tie_word_embeddings",
                     config->tied);
}

/* What giving cached segments back asks of the driver: in a settled step, and in all before it but
 * the first. */
static json_t *calls_json(const struct prediction *p)
{
    uint32_t mallocs, frees;
    prediction_calls(p, &mallocs, &frees);
    return json_pack("{s:i, s:i, s:i, s:i}", "cuda_frees_a_step", (int)frees, "cuda_mallocs_a_step",
                     (int)mallocs, "cuda_frees_until_settled", (int)p->settling_frees,
                     "cuda_mallocs_until_settled", (int)p->settling_mallocs);
}

/* bitsandbytes 0.50's gemm_4bit: how few, by GPU and shape, its table says up to so many. */
enum { DEQUANTIZED_TOKENS = 1536 };

static const char *approximated(const struct job *job)
{
    const uint64_t tokens = (uint64_t)job->model.batch * job->model.seq;
    if (job->model.bits8)
        return "which columns of a layer's input have numbers of 6 and more is data, and planned "
               "is none: bitsandbytes multiplies each in 16 bits besides, and keeps it";
    return job->model.bits4.kind && tokens <= DEQUANTIZED_TOKENS
               ? "of 1,536 tokens and fewer bitsandbytes may multiply by packed weights in "
                 "forward, as "
                 "GPU and layer are: planned is a weight of 16 bits at a time, as of more tokens"
               : NULL;
}

/* The job with the attention that runs: it was planned, so it is possible there. */
static struct job on_machine(const struct job *job, const struct machine *machine)
{
    struct job there = *job;
    there.model.attention = attention_of(job, machine);
    return there;
}

/* null: it is not known what a host has. */
static json_t *fits_host_json(const struct prediction *p)
{
    return p->host_capacity_bytes ? json_boolean(p->fits_host) : json_null();
}

json_t *result_json(const struct settings *settings, const struct job *job,
                    const struct machine *machine, const struct prediction *p,
                    const struct remedy *remedies, uint32_t remedy_count)
{
    const struct memory *m = &p->memory;
    const struct told told = told_of(p);
    json_t *root = json_object();
    json_object_set_new(root, "shardplan", json_string(SHARDPLAN_VERSION));
    json_object_set_new(root, "model", model_json(&job->config, p->parameters));
    model_notes_set(root, job);
    adapter_notes_set(root, job, p->plan);
    const struct job there = on_machine(job, machine);
    version_notes_set(root, &there);
    if (approximated(job))
        json_object_set_new(root, "approximated", json_string(approximated(job)));
    if (policies_note(job))
        json_object_set_new(root, "not_in_step", json_string(policies_note(job)));
    json_object_set_new(root, "settings", settings_echo(settings));
    json_object_set_new(root, "fits", json_boolean(p->fits));
    json_object_set_new(root, "tight", json_boolean(p->tight));
    json_object_set_new(root, "fits_after_releasing_cached_segments",
                        json_boolean(p->fits && p->after_release));
    json_object_set_new(root, "fits_by_clock", json_boolean(p->fits && p->by_clock));
    json_object_set_new(root, "fits_gpu", json_boolean(p->fits_gpu));
    json_object_set_new(root, "fits_host", fits_host_json(p));
    if (p->after_release)
        json_object_set_new(root, "segment_calls", calls_json(p));
    json_object_set_new(root, "capacity_bytes",
                        bytes_json(profile_bytes(&machine->profile, PROFILE_CAPACITY)));
    json_object_set_new(
        root, "headroom_bytes",
        json_integer((json_int_t)profile_bytes(&machine->profile, PROFILE_CAPACITY) -
                     (json_int_t)p->device_bytes));
    json_object_set_new(root, "peak", peak_json(p, told.peak));
    json_object_set_new(root, "categories", categories_json(p, told.categories));
    json_object_set_new(root, "live", marks_json(told.live));
    json_t *parts = json_object();
    for (int i = 0; i < PART_COUNT; i++)
        json_object_set_new(parts, step_part_name((enum step_part)i),
                            bytes_json(told.part_peaks[i]));
    json_object_set_new(root, "segment_peaks", parts);
    json_object_set_new(root, "outside_allocator",
                        json_pack("{s:I, s:I, s:s}", "context_bytes", (json_int_t)p->context_bytes,
                                  "nccl_bytes", (json_int_t)p->nccl_bytes, "nccl_source",
                                  machine->profile.of[PROFILE_NCCL_INIT].source));
    json_object_set_new(root, "host_bytes", bytes_json(m->host_bytes));
    /* Where it decides: what else a clock says is no part of the plan's memory. */
    json_t *device = place_json(&m->device, m->device_categories, CATEGORY_WORKSPACE,
                                p->least_bytes, p->unconstrained_bytes);
    json_object_set_new(device, "clocked_bytes",
                        p->clock.host_s ? bytes_json(p->clocked_bytes + p->outside_bytes)
                                        : json_null());
    json_object_set_new(root, "device", device);
    json_t *host = place_json(&m->host, m->host_categories, CATEGORY_WORKSPACE + 1, m->host.bytes,
                              m->host.bytes);
    json_object_set_new(host, "pinned_bytes", bytes_json(m->host_pinned_bytes));
    json_object_set_new(host, "held_bytes", bytes_json(m->host_held_bytes + p->paged_out_bytes));
    if (p->paged_bytes) {
        json_object_set_new(host, "paged_bytes", bytes_json(p->paged_bytes));
        json_object_set_new(host, "paged_out_bytes", bytes_json(p->paged_out_bytes));
    }
    json_object_set_new(host, "ranks", json_integer(p->host_ranks));
    json_object_set_new(host, "needed_bytes", bytes_json(p->host_needed_bytes));
    json_object_set_new(host, "capacity_bytes",
                        p->host_capacity_bytes ? bytes_json(p->host_capacity_bytes) : json_null());
    json_object_set_new(host, "capacity_source",
                        json_string(machine->profile.of[PROFILE_HOST_CAPACITY].source));
    json_object_set_new(root, "host", host);
    json_object_set_new(root, "units", units_json(p->plan));
    if (!p->fits && !settings->no_remedies)
        json_object_set_new(root, "remedies", remedies_json(remedies, remedy_count));
    return root;
}

/* ---- tables ---- */

/* "  name          1.23", with the numbers below each other though a name is a little longer. */
static void put_gib(FILE *file, const char *name, uint64_t bytes)
{
    const int over = (int)strlen(name) - 24;
    fprintf(file, "  %-24s%*.2f", name, 10 - (over > 0 ? over : 0), gib(bytes));
}

/* What a table of two decimals shows as more than nothing. */
static bool shows(uint64_t bytes)
{
    return gib(bytes) >= 0.005;
}

/* How much of the optimizer's memory at the peak is of one step: temporaries of foreach, or what
 * ZeRO updates from, as opposed to what is kept between steps. */
static uint64_t optimizer_temporaries(const struct plan *plan, uint32_t peak)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i <= peak; i++) {
        const struct plan_instruction *instruction = &plan->instructions[i];
        if ((instruction->op != PLAN_ALLOC && instruction->op != PLAN_FREE) ||
            !plan_is_issued(instruction, false))
            continue;
        const struct buffer *buffer = &plan->buffers[instruction->arg];
        if (buffer->category == CATEGORY_OPTIMIZER && buffer->pool != LANE_HOST)
            bytes += instruction->op == PLAN_ALLOC ? buffer->bytes : -buffer->bytes;
    }
    return bytes;
}

/* ZeRO's copies are there with any of them, and SGD has no other. */
static bool fused_has_less(const struct strategy *s)
{
    return s->impl == IMPL_FOREACH && s->optimizer == OPTIMIZER_ADAMW &&
           system_zero_stage(s->system) == 0;
}

static void print_category(FILE *file, const struct job *job, const struct prediction *p,
                           enum category category)
{
    const struct memory *m = &p->memory;
    const uint64_t bytes = m->device_categories[category];
    if (!shows(bytes))
        return;
    put_gib(file, palette_category(category).name, bytes);
    style_bar(file, p->device_bytes ? (double)bytes / (double)p->device_bytes : 0.0, STYLE_BAR);
    const uint64_t brief =
        category == CATEGORY_OPTIMIZER ? optimizer_temporaries(p->plan, m->device.instruction) : 0;
    if (shows(brief))
        fprintf(file, "  %.2f of it for this step alone%s", gib(brief),
                fused_has_less(&job->strategy) ? "; --optimizer-impl fused has less" : "");
    fputc('\n', file);
}

static void print_recording(FILE *file, const struct recording *recording)
{
    const struct recording_info info = recording_info(recording);
    char unknown[256];
    const uint32_t count = recording_unknown(recording, unknown, sizeof unknown);
    fprintf(file, "%s recorded with torch %s: %u units\n", info.name, info.torch, info.units);
    if (count > 0)
        fprintf(file, "%u calls have no cost of their own, and take as long as their bytes: %s\n",
                count, unknown);
}

/* The code was not chosen, and transformers' is another one. */
static bool other_code(const struct settings *settings, const struct job *job)
{
    return !settings_is_given(settings, settings_find(settings, "code", NULL)) &&
           job->model.code != CODE_HF && model_has_code(job->config.arch, CODE_HF);
}

/* What decides about the verdict and was not given. */
static void print_assumed(FILE *file, const struct style *s, const struct settings *settings,
                          const struct job *job)
{
    static const char *const names[] = {"seq", "checkpointing"};
    bool any = false;
    char text[NUMBER_TEXT];
    const struct setting *autocast = settings_find(settings, "autocast", NULL);
    const bool wide = autocast && !settings_is_given(settings, autocast) && !job->model.autocast &&
                      job->strategy.compute == DTYPE_FP32;
    if (job->config.recording)
        return; /* which says what it is of */
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct setting *row = settings_find(settings, names[i], NULL);
        if (!row || settings_is_given(settings, row))
            continue;
        fprintf(file, "%s%s--%s %s%s", s->dim, any ? " " : "assumed: ", names[i],
                settings_get(settings, names[i], text), s->off);
        any = true;
    }
    if (wide)
        fprintf(file, "%s%s--autocast none (fp32 compute)%s", s->dim,
                any ? " " : "assumed: ", s->off);
    if (any || wide)
        fputc('\n', file);
}

static void print_title(FILE *file, const struct style *s, const struct settings *settings,
                        const struct job *job, const struct machine *machine,
                        const struct prediction *p)
{
    char number[32];
    const struct strategy *t = &job->strategy;
    fprintf(file, "%s%s%s, %s parameters, ", s->bold, settings->model, s->off,
            style_grouped(p->parameters, number));
    if (job->config.recording)
        print_recording(file, job->config.recording);
    else
        fprintf(file, "as %s writes it%s\n", code_name(job->model.code),
                other_code(settings, job) ? " (--code hf: as transformers does)" : "");
    fprintf(file, "%s on %u x %s", system_name(t->system), t->world, machine->profile.title);
    if (t->replicate > 1)
        fprintf(file, " (HSDP %u x %u)", t->replicate, t->world / t->replicate);
    fprintf(file, ", rank %u", t->rank);
    if (settings->memory_of_others > 0)
        fprintf(file, ", %.0f %% of each GPU's memory held by others",
                100.0 * settings->memory_of_others);
    fprintf(file, "\nmicro-batch %u x %u tokens", job->model.batch, job->model.seq);
    if (job->model.sample_tokens)
        fprintf(file, " of samples of %u", job->model.sample_tokens);
    if (job->model.padding_tokens)
        fprintf(file, " (%u padding)", job->model.padding_tokens);
    if (job->model.prompt_tokens)
        fprintf(file, ", %u of them prompt", job->model.prompt_tokens);
    if (t->accumulate > 1)
        fprintf(file, " x %u", t->accumulate);
    fprintf(file, ", %s compute, %s reduce, %s stored", dtype_brief(t->compute),
            dtype_brief(t->reduce), dtype_brief(t->store));
    if (t->frozen_low && t->compute != t->store)
        fprintf(file, ", %s where frozen", dtype_brief(t->compute));
    if (job->model.bits4.kind)
        fprintf(file, ", linear layers%s in 4 bits (%s%s), computed in %s",
                job->model.bits4.experts ? " and experts" : "",
                job->model.bits4.kind == BITS4_NF4 ? "nf4" : "fp4",
                job->model.bits4.twice ? ", double quantization" : "",
                dtype_brief(job->model.bits4.compute));
    if (job->model.bits8)
        fprintf(file, ", linear layers in 8 bits");
    if (job->model.cast_back)
        fprintf(file, ", what else is frozen in fp32 but for %s", job->model.cast_back);
    fprintf(file, "%s\n", job->model.autocast ? ", forward under autocast (bf16)" : "");
    print_assumed(file, s, settings, job);
    fputc('\n', file);
}

static void print_notes(FILE *file, const struct settings *settings, const struct job *job,
                        const struct plan *plan)
{
    char first[2];
    const bool other = version_notes_any(job), idle = idle_notes_any(settings, job, plan);
    const char *near = approximated(job), *before = policies_note(job);
    if (!model_note(&job->config, &job->model, 0, first, sizeof first) && !other && !idle &&
        !near && !before && !adapter_notes_any(job, plan))
        return;
    model_notes_print(file, "", job);
    adapter_notes_print(file, job, plan);
    version_notes_print(file, job, settings->explain);
    idle_notes_print(file, settings, job, plan);
    if (near)
        fprintf(file, "%s\n", near);
    if (before)
        fprintf(file, "note: %s\n", before);
    fputc('\n', file);
}

static void print_categories(FILE *file, const struct style *s, const struct job *job,
                             const struct prediction *p)
{
    const struct memory *m = &p->memory;
    fprintf(file, "  %sat the peak                   GiB%s\n", s->dim, s->off);
    for (int i = 0; i < CATEGORY_WORKSPACE; i++)
        print_category(file, job, p, (enum category)i);
    fprintf(file, "  %-24s %9.2f\n\n", "requested by tensors", gib(m->device.bytes));
    fprintf(file, "  %-24s %9.2f  rounded to blocks, with kernel workspaces\n", "allocated",
            gib(m->allocated.bytes));
    fprintf(file, "  %-24s %9.2f  held by PyTorch's caching allocator\n", "reserved",
            gib(m->reserved_bytes));
    fprintf(file, "  %-24s %9.2f  CUDA context %.2f, NCCL %.2f\n", "outside the allocator",
            gib(p->outside_bytes), gib(p->context_bytes), gib(p->nccl_bytes));
    fprintf(file, "  %s%-24s %9.2f%s  what nvidia-smi shows%s\n", s->bold, "device",
            gib(p->device_bytes), s->off, p->paged_bytes ? ", pages aside" : "");
}

/* More than step counters. */
static bool has_host(const struct prediction *p)
{
    return (p->memory.host.bytes + p->paged_out_bytes) >> 20;
}

/* Managed memory is where there is room, and counts as the host's where there is none. */
static void print_pages(FILE *file, const struct prediction *p)
{
    if (p->paged_bytes == 0)
        return;
    fprintf(file, "\n  %-24s %9.2f  managed memory: ", "paged states", gib(p->paged_bytes));
    if (p->paged_out_bytes == 0)
        fputs("on the GPU, in what is free of it\n", file);
    else
        fprintf(file,
                "%.2f of it on the host, as the GPU has no more room: every update\n"
                "                                      moves its pages out and in\n",
                gib(p->paged_out_bytes));
}

static uint64_t host_bytes(const struct prediction *p, enum category category)
{
    return p->memory.host_categories[category] +
           (category == CATEGORY_OPTIMIZER ? p->paged_out_bytes : 0);
}

static void print_host(FILE *file, const struct style *s, const struct machine *machine,
                       const struct prediction *p)
{
    const struct memory *m = &p->memory;
    print_pages(file, p);
    if (!has_host(p))
        return;
    fprintf(file, "\n  %son the host, a rank           GiB%s\n", s->dim, s->off);
    for (int i = 0; i <= CATEGORY_WORKSPACE; i++)
        if (host_bytes(p, (enum category)i) >> 20) {
            put_gib(file, palette_category((enum category)i).name, host_bytes(p, (enum category)i));
            fputc('\n', file);
        }
    const uint64_t all = m->host.bytes + p->paged_out_bytes;
    fprintf(file, "  %-24s %9.2f  %.2f pinned, %.2f pageable\n", "host", gib(all),
            gib(m->host_pinned_bytes), gib(all - m->host_pinned_bytes));
    fprintf(file, "  %-24s %9.2f  pinned memory comes in powers of two, and is kept\n", "held",
            gib(m->host_held_bytes + p->paged_out_bytes));
    fprintf(file, "  %-24s %9.2f  ", "a host", gib(p->host_needed_bytes));
    if (p->host_capacity_bytes)
        fprintf(file, "of %.2f, %u ranks (%s)\n", gib(p->host_capacity_bytes), p->host_ranks,
                machine->profile.of[PROFILE_HOST_CAPACITY].source);
    else
        fprintf(file, "of %u ranks: that it has so much is not checked; --host-memory says it\n",
                p->host_ranks);
    fputs("                                      tensors alone: Python, CUDA, data loaders and the "
          "page cache come on top\n",
          file);
}

void result_print_unplanned(FILE *file, const struct settings *settings)
{
    const struct style s = style_of(file);
    if (settings->unplanned)
        fprintf(file, "  %sthis is not quite the file's job%s; not modelled:\n%s", s.bad, s.off,
                settings->unplanned);
    if (settings->misspelt)
        fprintf(file, "  %sthe file has keys that are not known%s, and may be misspelt:\n%s", s.bad,
                s.off, settings->misspelt);
}

static void print_peak(FILE *file, const struct prediction *p)
{
    char what[512], module[160];
    const struct memory *m = &p->memory;
    const char *part = step_part_name(m->device.part);
    module_text(p, m->device.instruction, module);
    const bool inside = module[0] && strcmp(module, part) != 0;
    const struct plan_instruction *at = &p->plan->instructions[m->device.instruction];
    fprintf(file, "\n  peak: %s", result_what(p->plan, m->device.instruction, what, sizeof what));
    if (at->op == PLAN_ALLOC && shows(p->plan->buffers[at->arg].bytes))
        fprintf(file, ", %.2f GiB", gib(p->plan->buffers[at->arg].bytes));
    fprintf(file, " (%s%s%s, instruction %u)\n", part, inside ? ", " : "", inside ? module : "",
            plan_place_in_step(p->plan, m->device.instruction));
    const char *before = "  highest in";
    for (int i = 0; i < PART_COUNT; i++) {
        if (m->device_part_peaks[i] ==
            0) /* a loss that is within the model is no part of its own */
            continue;
        fprintf(file, "%s %s %.2f", before, step_part_name((enum step_part)i),
                gib(m->device_part_peaks[i]));
        before = ",";
    }
    fprintf(file, " GiB\n");
}

static void remedy_print(FILE *file, const struct style *s, const struct remedy *r)
{
    char number[32];
    fprintf(file, "  %7.2f GiB  %7s tokens/s a GPU  %s", gib(r->device_bytes),
            style_grouped((uint64_t)(r->tokens_per_s + 0.5), number),
            r->change[0] ? r->change : "as it is, without --fix");
    if (r->tight || r->cost[0])
        fprintf(file, "  %s%s%s%s%s", s->dim, r->tight ? "tight" : "",
                r->tight && r->cost[0] ? "; " : "", r->cost, s->off);
    fputc('\n', file);
}

void remedies_print(FILE *file, const struct style *s, const char *title,
                    const struct remedy *remedies, uint32_t count)
{
    static const char *const how[] = {
        [REMEDY_SAME] = ", same training",
        [REMEDY_OTHER_LOSS] = ", by another loss of the same function (rounded otherwise)",
        [REMEDY_OTHERWISE] = ", but trains otherwise",
        [REMEDY_BY_RELEASING] = " only by giving cached memory back (a risk, and slow)",
    };
    for (uint32_t i = 0; i < count; i++) {
        const enum remedy_group group = remedy_group(&remedies[i]);
        if (i == 0 || group != remedy_group(&remedies[i - 1]))
            fprintf(file, "\n  %s%s, fastest first (of two within 1 %% the simpler):\n", title,
                    how[group]);
        remedy_print(file, s, &remedies[i]);
    }
}

void remedies_unsearched_print(FILE *file, const struct settings *settings)
{
    struct arena arena = {0};
    const char *list = remedies_unsearched(settings, &arena);
    if (*list)
        fprintf(file, "  not searched, of %s: %s\n", system_name(settings->job.strategy.system),
                list);
    arena_free(&arena);
}

static json_t *padding_json(const struct padding *p)
{
    json_t *columns = p->columns_bytes ? bytes_json(p->columns_bytes) : json_null();
    return json_pack("{s:i, s:I, s:I, s:s, s:i, s:i, s:i, s:o, s:s}", "parameters",
                     (int)p->parameters, "bytes", (json_int_t)p->bytes, "parameter_bytes",
                     (json_int_t)p->parameter_bytes, "most", p->param->name, "rows",
                     (int)p->param->shape.dim[0], "ranks", (int)p->ranks, "idle_ranks",
                     (int)p->idle, "columns_device_bytes", columns, "columns_refusal",
                     p->columns_bytes ? "" : p->refusal.text);
}

/* Why what is proposed is not among what would make it fit. */
static const char *by_release(bool after_release)
{
    return after_release ? ", only by giving cached memory back" : "";
}

static void padding_print(FILE *file, const struct padding *p, uint64_t device_bytes)
{
    fprintf(
        file,
        "\n  padding: rows of %u parameters do not share out evenly: %.2f GiB beside their %.2f, "
        "in\n  shards, gathers and reductions. Most has %s,\n  %u rows over %u ranks",
        p->parameters, gib(p->bytes), gib(p->parameter_bytes), p->param->name,
        p->param->shape.dim[0], p->ranks);
    if (p->idle)
        fprintf(file, ", of which %u hold nothing of it", p->idle);
    if (p->columns_bytes)
        fprintf(file,
                "\n  with --placement columns, Shard(1), as torchtitan has experts that ranks "
                "outnumber: %.2f GiB, not %.2f%s\n",
                gib(p->columns_bytes), gib(device_bytes), by_release(p->columns_release));
    else
        fprintf(file, "\n  nor by columns: %s\n", p->refusal.text);
}

static json_t *saved_views_json(const struct saved_views *v)
{
    json_t *checkpointed = v->checkpointed_bytes ? bytes_json(v->checkpointed_bytes) : json_null();
    return json_pack("{s:I, s:o, s:s}", "bytes", (json_int_t)v->bytes, "checkpointed_device_bytes",
                     checkpointed, "checkpointed_refusal",
                     v->checkpointed_bytes ? "" : v->refusal.text);
}

static void saved_views_print(FILE *file, const struct saved_views *v, uint64_t device_bytes)
{
    const char *how = v->until_loss_goes ? "--checkpointing full --checkpoint-reentrant on"
                                         : "--checkpointing full";
    fprintf(file,
            "\n  saved views: up to %.2f GiB of gathered parameters are released and not freed: "
            "%s\n",
            gib(v->bytes),
            v->until_loss_goes
                ? "nodes\n  of layers in 4 bits have them until the loss goes"
                : "autograd\n  saved views of them, which hold their memory until backward");
    if (v->checkpointed_bytes)
        fprintf(file, "  with %s, a block's at a time: %.2f GiB, not %.2f%s\n", how,
                gib(v->checkpointed_bytes), gib(device_bytes), by_release(v->checkpointed_release));
    else
        fprintf(file, "  %s: %s\n", how, v->refusal.text);
}

static json_t *losses_json(const struct other_loss *losses, uint32_t count)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < count; i++)
        json_array_append_new(array, json_pack("{s:s*, s:s, s:I}", "code", losses[i].code, "loss",
                                               losses[i].loss, "device_bytes",
                                               (json_int_t)losses[i].device_bytes));
    return array;
}

/* Of what fits nobody asks, nor for what saves less than a quarter. */
static uint32_t losses_worth(const struct settings *settings, const struct job *job,
                             const struct machine *machine, const struct prediction *prediction,
                             struct other_loss losses[LOSSES_MOST])
{
    const uint32_t count =
        prediction->fits ? 0 : losses_find(settings, job, machine, prediction, losses);
    const uint64_t asked = prediction->device_bytes;
    return count && losses[0].device_bytes <= asked - asked / 4 ? count : 0;
}

static void losses_print(FILE *file, const struct other_loss *losses, uint32_t count,
                         uint64_t device_bytes)
{
    fputs(
        "\n  the peak is in the loss; the same function by other kernels, nothing else changed:\n",
        file);
    for (uint32_t i = 0; i < count; i++)
        fprintf(file, "  %7.2f GiB, not %.2f  %s%s%s--loss %s\n", gib(losses[i].device_bytes),
                gib(device_bytes), losses[i].code ? "--code " : "",
                losses[i].code ? losses[i].code : "", losses[i].code ? " " : "", losses[i].loss);
}

void result_json_causes(json_t *root, const struct settings *settings, const struct job *job,
                        const struct machine *machine, const struct prediction *prediction)
{
    struct padding padding;
    struct saved_views views;
    struct other_loss losses[LOSSES_MOST];
    const uint32_t count = losses_worth(settings, job, machine, prediction, losses);
    if (count)
        json_object_set_new(root, "other_losses", losses_json(losses, count));
    if (padding_find(settings, job, machine, prediction, &padding))
        json_object_set_new(root, "padding", padding_json(&padding));
    if (saved_views_find(settings, job, machine, prediction, &views))
        json_object_set_new(root, "saved_views", saved_views_json(&views));
    json_object_set_new(root, "frees_late", json_boolean(prediction_frees_late(prediction)));
    if (prediction->clocked_bytes) /* whether the verdict rests on it or not */
        json_object_set_new(root, "clocked_reserved_bytes", bytes_json(prediction->clocked_bytes));
}

void result_print_causes(FILE *file, const struct settings *settings, const struct job *job,
                         const struct machine *machine, const struct prediction *prediction)
{
    struct padding padding;
    struct saved_views views;
    struct other_loss losses[LOSSES_MOST];
    const uint32_t count = losses_worth(settings, job, machine, prediction, losses);
    if (count)
        losses_print(file, losses, count, prediction->device_bytes);
    if (padding_find(settings, job, machine, prediction, &padding))
        padding_print(file, &padding, prediction->device_bytes);
    if (saved_views_find(settings, job, machine, prediction, &views))
        saved_views_print(file, &views, prediction->device_bytes);
}

void result_print(FILE *file, const struct settings *settings, const struct job *job,
                  const struct machine *machine, const struct prediction *p)
{
    const struct style s = style_of(file);
    print_title(file, &s, settings, job, machine, p);
    const struct job there = on_machine(job, machine);
    print_notes(file, settings, &there, p->plan);
    print_categories(file, &s, job, p);
    print_host(file, &s, machine, p);
    fputc('\n', file);
    verdict_print(file, &s, machine, p);
    result_print_unplanned(file, settings);
    print_peak(file, p);
    units_print_line(file, &job->strategy, p->plan);
}

void result_print_remedies(FILE *file, const struct settings *settings,
                           const struct remedy *remedies, uint32_t remedy_count)
{
    const struct style s = style_of(file);
    if (!remedy_count || remedies[0].after_release) {
        fprintf(file,
                "\n  no change of up to %d of the settings searched makes it fit without giving "
                "cached memory back\n",
                REMEDY_CHANGES);
        remedies_unsearched_print(file, settings);
    }
    remedies_print(file, &s, "what would make it fit", remedies, remedy_count);
}

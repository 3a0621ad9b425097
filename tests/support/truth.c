/* truth.c - see truth.h. */
#include "tests/support/truth.h"

#include "base/json_file.h"
#include "compile/compile.h"
#include "families/config.h"
#include "families/families.h"
#include "memory/replay.h"
#include "tests/support/truth_strategy.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

const char *truth_text(const json_t *object, const char *key, const char *otherwise)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : otherwise;
}

uint32_t truth_number(const json_t *object, const char *key, uint32_t otherwise)
{
    const json_t *value = json_object_get(object, key);
    return json_is_integer(value) ? (uint32_t)json_integer_value(value) : otherwise;
}

bool truth_bool(const json_t *object, const char *key, bool otherwise)
{
    const json_t *value = json_object_get(object, key);
    return json_is_boolean(value) ? json_is_true(value) : otherwise;
}

bool truth_read_written(const json_t *row, struct model_config *c, struct model_job *job)
{
    const json_t *m = json_object_get(row, "model");
    job->batch = truth_number(m, "batch", 1);
    job->seq = truth_number(m, "seq", 1);
    const char *kind = truth_text(m, "kind", "");
    *c = (struct model_config){
        .hidden = truth_number(m, "dim", 0),
        .layers = truth_number(m, "layers", 0),
        .heads = truth_number(m, "heads", 1),
        .vocab = truth_number(m, "vocab", 0),
        .max_positions = truth_number(m, "seq", 0),
        .tied = truth_bool(m, "tied", true),
        .norm_eps = 1e-5F,
        .rope = {.theta = 1e4F, .attention_factor = 1},
    };
    c->kv_heads = truth_number(m, "kv_heads", c->heads);
    c->ffn = truth_number(m, "ffn", 4 * c->hidden);
    c->head_dim = c->hidden / c->heads;
    c->arch = strcmp(kind, "gpt2") == 0    ? ARCH_GPT2
              : strcmp(kind, "guide") == 0 ? ARCH_FSDP2_TUTORIAL
                                           : ARCH_LLAMA;
    c->activation = c->arch == ARCH_GPT2 ? "gelu_new" : c->arch == ARCH_LLAMA ? "silu" : "relu";
    if (c->arch == ARCH_LLAMA)
        c->tied = truth_bool(m, "tied", false);
    job->code = model_default_code(c->arch);
    return true;
}

bool truth_read_hf(const json_t *row, struct model_config *config, struct model_job *job)
{
    struct err err = {0};
    const json_t *m = json_object_get(row, "model");
    if (model_config_from_json(m, truth_text(row, "name", ""), config, &err) != ERR_OK) {
        print_error("%s\n", err.text);
        return false;
    }
    job->batch = truth_number(m, "batch", 1);
    job->seq = truth_number(m, "seq", 1);
    job->sample_tokens = truth_number(m, "sample_tokens", 0);
    job->padding_tokens = truth_number(m, "padding_tokens", 0);
    job->prompt_tokens = truth_number(m, "prompt_tokens", 0);
    const char *code = truth_text(json_object_get(row, "strategy"), "code", "hf");
    job->code = strcmp(code, "torchtitan") == 0 ? CODE_TORCHTITAN : CODE_HF;
    return true;
}

bool truth_read_either(const json_t *row, struct model_config *config, struct model_job *job)
{
    const bool hf = strcmp(truth_text(json_object_get(row, "model"), "kind", ""), "hf") == 0;
    return hf ? truth_read_hf(row, config, job) : truth_read_written(row, config, job);
}

bool truth_read_recorded(const json_t *row, struct model_config *config, struct model_job *job)
{
    struct err err = {0};
    const json_t *m = json_object_get(row, "model");
    *config = (struct model_config){.layers = 0};
    if (recording_read(truth_text(m, "recording", ""), &config->recording, &err) != ERR_OK) {
        print_error("%s\n", err.text);
        return false;
    }
    job->batch = truth_number(m, "batch", 1);
    job->seq = truth_number(m, "seq", 1);
    job->code = CODE_RECORDED;
    return true;
}

static bool is_floating(enum dtype dtype)
{
    return dtype == DTYPE_FP32 || dtype == DTYPE_BF16 || dtype == DTYPE_FP16;
}

/* Module buffers that a row has besides the model's own: [[dtype, shape], ...]; floating ones are
 * cast once, where `cast` is a dtype. */
static void add_buffers(const json_t *buffers, enum dtype cast, struct graph *graph)
{
    size_t i;
    const json_t *buffer;
    json_array_foreach(buffers, i, buffer)
    {
        const char *name = json_string_value(json_array_get(buffer, 0));
        const json_t *dims = json_array_get(buffer, 1);
        struct shape shape = {.rank = (uint32_t)json_array_size(dims)};
        for (uint32_t d = 0; d < shape.rank; d++)
            shape.dim[d] = (uint32_t)json_integer_value(json_array_get(dims, d));
        for (int dtype = 0; dtype < DTYPE_COUNT; dtype++)
            if (strcmp(dtype_name((enum dtype)dtype), name) == 0)
                graph_buffer(graph,
                             cast != DTYPE_COUNT && is_floating((enum dtype)dtype)
                                 ? cast
                                 : (enum dtype)dtype,
                             shape, &(struct buffer_values){.kind = VALUES_ZEROS});
    }
}

/* Where a checkpoint wraps a block, names go through its wrapper; a tied head has a module of its
 * own. Here {our name, its name}. */
static const char *const zero_names[][2] = {
    {"._checkpoint_wrapped_module", ""},
    {"wte (tied)", "lm_head"},
};

/* In place: new names are not longer. */
static void rename_modules(char *text)
{
    for (size_t i = 0; i < sizeof zero_names / sizeof zero_names[0]; i++) {
        const char *from = zero_names[i][0], *to = zero_names[i][1];
        char *found = strstr(text, from);
        if (!found)
            continue;
        const char *rest = found + strlen(from);
        while (*to)
            *found++ = *to++;
        memmove(found, rest, strlen(rest) + 1);
    }
}

static bool is_zero(const json_t *row)
{
    return strcmp(truth_text(json_object_get(row, "strategy"), "system", ""), "deepspeed") == 0;
}

/* The graph and the stream of a row's job, with what the row has besides. */
static enum err_code row_stream(const json_t *row, const struct job *job, struct graph **graph,
                                struct stream **stream, struct err *err)
{
    if (job->config.recording)
        return job_stream(job, graph, stream, err);
    TRY(job_graph(job, graph, err));
    const char *cast = truth_text(json_object_get(row, "strategy"), "buffer_dtype", NULL);
    add_buffers(json_object_get(json_object_get(row, "model"), "buffers"),
                truth_dtype(cast, DTYPE_COUNT), *graph);
    const struct tape_options options = job_tape(job);
    if (options.compiled)
        return compile_run(*graph, &options, stream, err);
    *stream = tape_run(*graph, &options);
    return ERR_OK;
}

struct plan *truth_plan(const json_t *row, truth_read_model read)
{
    struct err err = {0};
    struct model_config config;
    struct job job;
    struct model_job model_job = {.batch = 1, .seq = 1};
    if (!read(row, &config, &model_job))
        return NULL;
    job_defaults(&job, &config);
    job.model.batch = model_job.batch;
    job.model.seq = model_job.seq;
    job.model.sample_tokens = model_job.sample_tokens;
    job.model.padding_tokens = model_job.padding_tokens;
    job.model.prompt_tokens = model_job.prompt_tokens;
    job.model.code = model_job.code;
    job.model.autograd =
        strcmp(truth_text(row, "autograd", ""), "gpu") == 0 ? AUTOGRAD_GPU : AUTOGRAD_RECORDED;
    job.model.torch = torch_minor(truth_text(row, "torch", "2.14"));
    truth_read_strategy(row, &job);
    struct plan *plan = NULL;
    struct graph *graph = NULL;
    struct stream *stream = NULL;
    uint64_t parameters = 0;
    enum err_code rc = row_stream(row, &job, &graph, &stream, &err);
    if (rc == ERR_OK) {
        parameters = graph_parameter_elements(graph);
        rc = lower_plan(graph, stream, &job.strategy, &plan, &err);
    }
    if (rc == ERR_OK)
        rc = plan_verify(plan, &err);
    stream_free(stream);
    graph_free(graph);
    model_release(&config);
    if (rc != ERR_OK) {
        print_error("%s: %s\n", truth_text(row, "name", ""), err.text);
        plan_free(plan);
        return NULL;
    }
    const json_t *counted = json_object_get(row, "parameters");
    if (counted && parameters != (uint64_t)json_integer_value(counted)) {
        print_error("%s: %llu parameters\n", truth_text(row, "name", ""),
                    (unsigned long long)parameters);
        plan_free(plan);
        return NULL;
    }
    return plan;
}

void truth_strategy(const json_t *row, struct strategy *out)
{
    struct model_config config = {.layers = 1};
    struct job job;
    job_defaults(&job, &config);
    truth_read_strategy(row, &job);
    *out = job.strategy;
}

static const char *event_text(const json_t *row, const struct plan *plan,
                              const struct plan_instruction *i, char *text, size_t size)
{
    char scope[256], what[160];
    const struct buffer *b = &plan->buffers[i->arg];
    plan_scope_text(plan, i, scope, sizeof scope);
    plan_buffer_text(plan, b, what, sizeof what);
    if (is_zero(row)) { /* its rows' categories say where a buffer was born: the scope does, too */
        const bool on_host = json_object_get(row, "host_peak_bytes") && b->pool == LANE_HOST;
        rename_modules(scope);
        snprintf(text, size, "%s%llu %s %s%s", i->op == PLAN_FREE ? "-" : "",
                 (unsigned long long)b->bytes, scope, what,
                 !on_host    ? ""
                 : b->pinned ? " pinned"
                             : " host");
        return text;
    }
    snprintf(text, size, "%s%llu %s %s %s", i->op == PLAN_FREE ? "-" : "",
             (unsigned long long)b->bytes, category_name((enum category)b->category), scope, what);
    return text;
}

bool truth_same_event(const json_t *row, const json_t *event, const struct plan *plan,
                      const struct plan_instruction *i, char ours[TRUTH_EVENT],
                      char theirs[TRUTH_EVENT])
{
    const char *category = "", *where = "", *what = "";
    json_int_t bytes = 0; /* of no event: an empty one */
    json_unpack((json_t *)(uintptr_t)event, "[I,s,s,s]", &bytes, &category, &where, &what);
    snprintf(theirs, TRUTH_EVENT, "%lld%s%s %s %s", (long long)bytes,
             *category && !is_zero(row) ? " " : "", is_zero(row) ? "" : category, where, what);
    if (is_zero(row))
        rename_modules(theirs);
    return strcmp(event_text(row, plan, i, ours, TRUTH_EVENT), theirs) == 0;
}

static bool is_event(const struct plan *plan, const struct plan_instruction *i)
{
    return (i->op == PLAN_ALLOC || i->op == PLAN_FREE) && !(i->flags & PLAN_FIRST_STEP) &&
           !plan->buffers[i->arg].scratch && plan->buffers[i->arg].bytes > 0;
}

/* A static graph's buckets are rebuilt in the third step, which rows of step 3 begin with and which
 * no later step has: two copies of indices and of sizes, born and gone, one bucket gone, all born.
 */
static size_t rebuild_events(const json_t *row)
{
    const json_t *s = json_object_get(row, "strategy");
    const bool rebuilt = truth_bool(s, "static_graph", false) &&
                         truth_number(row, "step", 3) == 3 && truth_number(s, "accumulate", 1) == 1;
    return rebuilt ? 9 + json_array_size(json_object_get(row, "buckets")) : 0;
}

size_t truth_compare_events(const json_t *row, const struct plan *plan)
{
    const json_t *list = json_object_get(row, "event_list");
    size_t next = rebuild_events(row), wrong = 0;
    char ours[TRUTH_EVENT], theirs[TRUTH_EVENT];
    for (uint32_t n = 0; n < plan->instruction_count; n++) {
        const struct plan_instruction *i = &plan->instructions[n];
        if (!is_event(plan, i))
            continue;
        const json_t *event = json_array_get(list, next++);
        if (!truth_same_event(row, event, plan, i, ours, theirs) && wrong++ < 3)
            print_error("%s: event %zu\n  recorded %s\n  planned  %s\n",
                        truth_text(row, "name", ""), next - 1, theirs, ours);
    }
    if (next != json_array_size(list)) {
        print_error("%s: %zu events, recorded %zu\n", truth_text(row, "name", ""), next,
                    json_array_size(list));
        wrong++;
    }
    return wrong;
}

/* Whether a plan's first step makes a state of the optimizer there. */
static bool is_state(const struct plan *plan, const struct plan_instruction *i)
{
    return i->op == PLAN_ALLOC && (i->flags & PLAN_FIRST_STEP) && i->phase == PLAN_STEP &&
           plan->buffers[i->arg].bytes > 0 && !plan->buffers[i->arg].paged;
}

static bool is_born_in_update(const json_t *event)
{
    return json_integer_value(json_array_get(event, 0)) > 0 &&
           strcmp(json_string_value(json_array_get(event, 2)), "opt") == 0;
}

size_t truth_compare_states(const json_t *row, const struct plan *plan)
{
    const json_t *list = json_object_get(row, "event_list");
    const size_t count = json_array_size(list);
    size_t next = 0, wrong = 0, states = 0;
    char ours[TRUTH_EVENT], theirs[TRUTH_EVENT];
    for (uint32_t n = 0; n < plan->instruction_count; n++) {
        const struct plan_instruction *i = &plan->instructions[n];
        if (!is_state(plan, i))
            continue;
        while (next < count && !is_born_in_update(json_array_get(list, next)))
            next++;
        states++;
        if (!truth_same_event(row, json_array_get(list, next++), plan, i, ours, theirs) &&
            wrong++ < 3)
            print_error("%s: state %zu\n  recorded %s\n  planned  %s\n",
                        truth_text(row, "name", ""), states, theirs, ours);
    }
    while (next < count && !is_born_in_update(json_array_get(list, next)))
        next++;
    if (next < count || states == 0) {
        print_error("%s: %zu states, and others recorded\n", truth_text(row, "name", ""), states);
        wrong++;
    }
    return wrong;
}

enum { NUMBER_BYTES = 16 }; /* record_real.py leaves out what is no larger */

size_t truth_compare_bytes(const json_t *row, const struct plan *plan)
{
    const json_t *list = json_object_get(row, "event_list");
    size_t next = 0, wrong = 0;
    char ours[512];
    for (uint32_t n = 0; n < plan->instruction_count; n++) {
        const struct plan_instruction *i = &plan->instructions[n];
        if (!is_event(plan, i) || plan->buffers[i->arg].bytes <= NUMBER_BYTES)
            continue;
        const json_int_t theirs = json_integer_value(json_array_get(list, next++));
        const json_int_t bytes = (json_int_t)plan->buffers[i->arg].bytes;
        if (theirs != (i->op == PLAN_FREE ? -bytes : bytes) && wrong++ < 3)
            print_error("%s: event %zu\n  recorded %lld\n  planned  %s\n",
                        truth_text(row, "name", ""), next - 1, (long long)theirs,
                        event_text(row, plan, i, ours, sizeof ours));
    }
    if (next != json_array_size(list)) {
        print_error("%s: %zu events, recorded %zu\n", truth_text(row, "name", ""), next,
                    json_array_size(list));
        wrong++;
    }
    return wrong;
}

static uint32_t count_events(const struct plan *plan)
{
    uint32_t count = 0;
    for (uint32_t n = 0; n < plan->instruction_count; n++)
        count += is_event(plan, &plan->instructions[n]);
    return count;
}

static double check_number(const char *name, const char *what, uint64_t ours, const json_t *theirs,
                           size_t *unequal)
{
    if (!json_is_integer(theirs))
        return 0.0;
    const double truth = (double)json_integer_value(theirs);
    const double error = truth > 0 ? ((double)ours - truth) / truth : 0.0;
    if ((double)ours != truth) {
        ++*unequal;
        print_message("  %-32s %-24s %+.6f %% (%llu, recorded %.0f)\n", name, what, 100 * error,
                      (unsigned long long)ours, truth);
    }
    return fabs(error);
}

/* The highest bytes of tensors on the host, or on the device, in a steady step. */
static uint64_t place_peak(const struct plan *plan, bool on_host)
{
    bool *initial = plan_initial_buffers(plan);
    uint64_t live = 0, peak = 0;
    for (uint32_t b = 0; b < plan->buffer_count; b++)
        if ((initial[b] || plan->buffers[b].resident) && !plan->buffers[b].scratch &&
            (plan->buffers[b].pool == LANE_HOST) == on_host)
            live += plan->buffers[b].bytes;
    peak = live;
    for (uint32_t n = 0; n < plan->instruction_count; n++) {
        const struct plan_instruction *i = &plan->instructions[n];
        if (!is_event(plan, i) || (plan->buffers[i->arg].pool == LANE_HOST) != on_host)
            continue;
        live = i->op == PLAN_FREE ? live - plan->buffers[i->arg].bytes
                                  : live + plan->buffers[i->arg].bytes;
        peak = live > peak ? live : peak;
    }
    free(initial);
    return peak;
}

/* Largest relative error over all numbers of the row. */
static double compare_numbers(const json_t *row, const struct plan *plan, size_t *unequal,
                              uint64_t *peak)
{
    struct err err = {0};
    struct memory memory;
    const struct memory_options options = {.without_allocator = true};
    const char *name = truth_text(row, "name", "");
    assert_int_equal(memory_replay(plan, &options, NULL, NULL, &memory, &err), ERR_OK);
    *peak = memory.requested.bytes;
    double worst = check_number(name, "peak", *peak, json_object_get(row, "peak_bytes"), unequal);
    worst = fmax(worst, check_number(name, "device", place_peak(plan, false),
                                     json_object_get(row, "device_peak_bytes"), unequal));
    worst = fmax(worst, check_number(name, "host", place_peak(plan, true),
                                     json_object_get(row, "host_peak_bytes"), unequal));
    uint64_t pinned = 0;
    for (uint32_t b = 0; b < plan->buffer_count; b++)
        if (plan->buffers[b].resident && plan->buffers[b].pinned)
            pinned += plan->buffers[b].bytes;
    worst = fmax(
        worst, check_number(name, "pinned", pinned, json_object_get(row, "pinned_bytes"), unequal));
    const json_t *live = json_object_get(row, "live");
    for (int i = 0; i < PLAN_MARK_COUNT; i++) {
        const char *mark = plan_mark_name((enum plan_mark)i);
        worst = fmax(
            worst, check_number(name, mark, memory.live[i], json_object_get(live, mark), unequal));
    }
    const json_t *peaks = json_object_get(row, "segment_peaks");
    for (int i = 0; i < PART_COUNT; i++)
        worst =
            fmax(worst,
                 check_number(name, step_part_name((enum step_part)i), memory.part_peaks[i],
                              json_object_get(peaks, step_part_name((enum step_part)i)), unequal));
    /* Without a list of buckets the events of their rebuilding are not known. */
    const bool countable = !truth_bool(json_object_get(row, "strategy"), "static_graph", false) ||
                           json_object_get(row, "buckets");
    if (countable)
        worst = fmax(worst, check_number(name, "events", count_events(plan) + rebuild_events(row),
                                         json_object_get(row, "events"), unequal));
    return worst;
}

enum { TRUTH_NO_PLAN = 1U << 30 };

/* What fully_shard can be asked for that no strategy of ours has: reshard_after_forward by module,
 * but for false. */
static bool has_fsdp2s_rest(const json_t *strategy)
{
    const char *name;
    json_t *value;
    json_object_foreach(json_object_get(strategy, "reshard_units"), name, value)
    {
        if (!json_is_false(value))
            return true;
    }
    return false;
}

/* What is left out: other systems; the rest of FSDP2; parameters of two dtypes under DDP; steps
 * that are not the steady state. */
bool truth_is_planned(const json_t *row)
{
    const json_t *s = json_object_get(row, "strategy");
    const char *system = truth_text(s, "system", "fsdp2");
    if (strcmp(system, "fsdp2") == 0)
        return !has_fsdp2s_rest(s);
    if (strcmp(system, "deepspeed") == 0 || strcmp(system, "fsdp1") == 0)
        return true;
    return (strcmp(system, "ddp") == 0 || strcmp(system, "single") == 0) &&
           !json_object_get(s, "store_fp32") &&
           strcmp(truth_text(s, "autocast", "bf16"), "bf16") == 0 &&
           truth_number(row, "step", 3) >= 3 &&
           strcmp(truth_text(row, "name", ""), "d-guide-buffers-5") != 0; /* has float64 */
}

bool truth_is_of(const json_t *row, enum system_kind system)
{
    const json_t *s = json_object_get(row, "strategy");
    if (is_zero(row))
        return truth_zero_system(s) == system;
    return strcmp(truth_text(s, "system", "fsdp2"), system_name(system)) == 0;
}

/* Behind a JSON array or a string that begins there. */
static const char *behind(const char *at)
{
    int depth = 0;
    bool quoted = false;
    for (; *at; at++) {
        if (quoted && *at == '\\' && at[1])
            at++;
        else if (*at == '"')
            quoted = !quoted;
        else if (!quoted)
            depth += (*at == '[') - (*at == ']');
        if (depth == 0 && !quoted)
            return at + 1;
    }
    return at;
}

json_t *truth_row(const char *line)
{
    json_error_t at;
    return json_text_read(line, strlen(line), 0, &at);
}

json_t *truth_row_head(const char *line)
{
    static const char name[] = "\"event_list\":";
    const char *begin = strstr(line, name);
    begin = begin ? begin + sizeof name - 1 : line;
    begin += strspn(begin, " ");
    if (*begin != '[')
        return truth_row(line);
    const char *end = behind(begin);
    char *head = xmalloc(strlen(line) + 3);
    sprintf(head, "%.*s[]%s", (int)(begin - line), line, end);
    json_t *row = truth_row(head);
    free(head);
    return row;
}

static bool is_asked_for(const char *line, enum system_kind system)
{
    json_t *row = truth_row_head(line);
    const bool asked = !row || (truth_is_of(row, system) && truth_is_planned(row));
    json_decref(row);
    return asked;
}

static void visit_row(const json_t *row, bool events, truth_read_model read,
                      void (*visit)(void *context, const struct truth_result *result),
                      void *context)
{
    struct plan *plan = row ? truth_plan(row, read) : NULL;
    struct truth_result result = {.name = truth_text(row, "name", "?"),
                                  .wrong_events = TRUTH_NO_PLAN};
    if (plan) {
        result.recorded_peak = (uint64_t)json_integer_value(json_object_get(row, "peak_bytes"));
        result.events = count_events(plan);
        result.wrong_events = events ? truth_compare_events(row, plan) : 0;
        result.worst_error = compare_numbers(row, plan, &result.unequal, &result.planned_peak);
    }
    visit(context, &result);
    plan_free(plan);
}

bool truth_each(const char *path, enum system_kind system, bool events, truth_read_model read,
                void (*visit)(void *context, const struct truth_result *result), void *context)
{
    FILE *file = fopen(path, "r");
    if (!file)
        return false;
    char *line = NULL;
    size_t size = 0;
    while (getline(&line, &size, file) > 0) {
        if (!is_asked_for(line, system))
            continue;
        json_t *row = events ? truth_row(line) : truth_row_head(line);
        visit_row(row, events, read, visit, context);
        size_t i;
        json_t *version;
        json_array_foreach(json_object_get(row, "torch_also"), i, version)
        {
            json_object_set(row, "torch", version);
            visit_row(row, events, read, visit, context);
        }
        json_decref(row);
    }
    free(line);
    fclose(file);
    return true;
}

struct tally_rows {
    size_t rows, bad_rows, unequal_rows;
    double worst;
};

static void tally_row(void *context, const struct truth_result *result)
{
    struct tally_rows *t = context;
    t->rows++;
    t->bad_rows += result->wrong_events != 0;
    t->unequal_rows += result->unequal != 0;
    t->worst = fmax(t->worst, result->worst_error);
}

void truth_check_file(const char *path, enum system_kind system, bool events, truth_read_model read)
{
    struct tally_rows t = {0};
    assert_true(truth_each(path, system, events, read, tally_row, &t));
    print_message("%s: %zu rows, %zu with other events, %zu with a number that differs "
                  "(largest error %.4f %%)\n",
                  path, t.rows, t.bad_rows, t.unequal_rows, 100 * t.worst);
    assert_true(t.rows > 0);
    assert_int_equal(t.bad_rows, 0);
    assert_true(t.worst <= 0.001);
}

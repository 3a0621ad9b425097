/* options.c - see options.h. argp does the parsing; the table below tells it what there is. */
#include "settings/options.h"

#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { NUMBER, CHOICE, TEXT, FLAG };

struct option_row {
    const char *name, *arg, *help, *values; /* values: comma-separated choices, in enum order */
    enum kind kind;
    size_t offset;
    const char *initial; /* default, as it would be typed; NULL: depends on the model, or none */
    uint32_t min, max;
    unsigned commands;
    int group;
    char key; /* short option, 0: none */
};

#define AT(field) offsetof(struct settings, field)
#define NUM(name, field, initial, min, max, group, help)                                           \
    {                                                                                              \
        name, "N", help, NULL, NUMBER, AT(field), initial, min, max, FOR_JOB, group, 0             \
    }
#define PICK(name, field, initial, values, group, help)                                            \
    {                                                                                              \
        name, "NAME", help, values, CHOICE, AT(field), initial, 0, 0, FOR_JOB, group, 0            \
    }
#define WORD(name, arg, field, initial, group, help)                                               \
    {                                                                                              \
        name, arg, help, NULL, TEXT, AT(field), initial, 0, 0, FOR_JOB, group, 0                   \
    }

enum { GROUP_MODEL = 1, GROUP_JOB, GROUP_CLUSTER, GROUP_STRATEGY, GROUP_OUTPUT };
enum { STRATEGY_FSDP2 };

static const struct option_row rows[] = {
    PICK("code", code, NULL, "torchtitan,nanogpt,hf", GROUP_MODEL,
         "Whose op sequence runs (default: torchtitan for the Llama family, nanogpt for gpt2, hf "
         "for the rest)"),
    {"init", "NAME", "What parameters hold at first: test values, or drawn as that code draws them",
     "test,model", CHOICE, AT(init), "test", 0, 0, FOR_PLAN, GROUP_MODEL, 0},
    NUM("gpus", gpus, "8", 1, 1000000, GROUP_JOB, "World size"),
    NUM("rank", rank, "0", 0, 999999, GROUP_JOB, "Whose memory"),
    NUM("seq", seq, NULL, 1, 16777216, GROUP_JOB,
        "Tokens a sequence (default: 2048, or the model's positions if fewer)"),
    NUM("micro-batch", micro_batch, "1", 1, 1048576, GROUP_JOB, "Sequences a GPU"),
    NUM("accumulate", accumulate, "1", 1, 4096, GROUP_JOB, "Micro-batches a step"),
    PICK("accumulate-sync", accumulate_sync, "last", "last,each", GROUP_JOB,
         "When gradients are reduced"),
    WORD("gpu", "NAME", gpu, "h100-sxm", GROUP_CLUSTER, "A GPU of `shardplan gpus`"),
    NUM("gpus-per-node", gpus_per_node, "8", 1, 1024, GROUP_CLUSTER, "GPUs a node"),
    WORD("node", "NAME", node, NULL, GROUP_CLUSTER,
         "A node type of `shardplan gpus`: links and NICs (default: the GPU's usual one)"),
    WORD("profile", "FILE", profile, NULL, GROUP_CLUSTER,
         "A hardware profile, from `shardplan calibrate` or by hand, on top of --gpu and --node"),
    PICK("expandable-segments", expandable, "off", "off,on", GROUP_CLUSTER,
         "PYTORCH_ALLOC_CONF=expandable_segments:True"),
    PICK("strategy", strategy, "fsdp2", "fsdp2,fsdp1,ddp,zero1,zero2,zero3", GROUP_STRATEGY,
         "The sharding system"),
    NUM("replicate", replicate, "1", 1, 1000000, GROUP_STRATEGY,
        "HSDP replicas: the mesh is R x N/R"),
    WORD("units", "UNITS", units, "blocks", GROUP_STRATEGY,
         "blocks, torchtitan, a number of blocks a unit, or a size such as 500MB"),
    WORD("reshard", "WHEN", reshard, "default", GROUP_STRATEGY,
         "reshard_after_forward: default, always, never, or a number of ranks"),
    NUM("forward-prefetch", forward_prefetch, "0", 0, 16, GROUP_STRATEGY,
        "Units to prefetch explicitly in forward; 0: implicit"),
    NUM("backward-prefetch", backward_prefetch, "0", 0, 16, GROUP_STRATEGY,
        "Units to prefetch explicitly in backward; 0: implicit, one ahead"),
    PICK("param-dtype", param_dtype, "bf16", "bf16,fp32,fp16,same", GROUP_STRATEGY,
         "MixedPrecisionPolicy.param_dtype; same: no cast"),
    PICK("reduce-dtype", reduce_dtype, "fp32", "bf16,fp32,fp16,same", GROUP_STRATEGY,
         "MixedPrecisionPolicy.reduce_dtype; same: the gradients' own"),
    PICK("store-dtype", store_dtype, "fp32", "bf16,fp32,fp16", GROUP_STRATEGY,
         "Dtype of sharded parameters and optimizer states"),
    PICK("checkpointing", checkpointing, "none", "none,full,selective", GROUP_STRATEGY,
         "Activation checkpointing of each block"),
    PICK("optimizer", optimizer, "adamw", "adamw,sgd", GROUP_STRATEGY, "Optimizer"),
    PICK("optimizer-impl", optimizer_impl, "foreach", "foreach,fused,loop", GROUP_STRATEGY,
         "Its implementation"),
    WORD("clip", "MAXNORM", clip, "off", GROUP_STRATEGY, "clip_grad_norm_ to this norm, or off"),
    PICK("offload", offload, "none", "none,cpu", GROUP_STRATEGY, "CPUOffloadPolicy"),
    WORD("freeze", "GLOBS", frozen, NULL, GROUP_STRATEGY,
         "Comma-separated globs of parameter names that are not trained"),
    {"events", "FILE", "Write every allocation and free, one JSON array a line", NULL, TEXT,
     AT(events), NULL, 0, 0, FOR_FIT, GROUP_OUTPUT, 0},
    {"output", "DIR", "Folder for plan.json, trace.json, snapshot.pickle, report.html, *.svg", NULL,
     TEXT, AT(out_dir), "plan", 0, 0, FOR_PLAN, GROUP_OUTPUT, 'o'},
    {"goodput", NULL,
     "Also a long run: the slowest rank, failures, the best checkpoint interval and what is left",
     NULL, FLAG, AT(goodput), NULL, 0, 0, FOR_PLAN, GROUP_OUTPUT, 0},
    {"json", NULL, "One JSON object on standard output and nothing else", NULL, FLAG, AT(json),
     NULL, 0, 0, FOR_JOB, GROUP_OUTPUT, 0},
    {"quiet", NULL, "Print nothing but errors", NULL, FLAG, AT(quiet), NULL, 0, 0, FOR_JOB,
     GROUP_OUTPUT, 'q'},
};
enum { ROWS = sizeof rows / sizeof rows[0], FIRST_KEY = 1000 };

/* ---- one value ---- */

/* Index of `text` in a comma-separated list, -1: not there. */
static int choice_index(const char *values, const char *text)
{
    const size_t length = strlen(text);
    for (int i = 0; *values; i++) {
        const size_t span = strcspn(values, ",");
        if (span == length && strncmp(values, text, span) == 0)
            return i;
        values += span + (values[span] == ',');
    }
    return -1;
}

static void choice_text(const char *values, uint32_t index, char *text, size_t size)
{
    for (; index > 0; index--)
        values += strcspn(values, ",") + 1;
    snprintf(text, size, "%.*s", (int)strcspn(values, ","), values);
}

static enum err_code set_number(const struct option_row *row, struct settings *s, const char *text,
                                struct err *err)
{
    char *end = NULL;
    errno = 0;
    const long long value = strtoll(text, &end, 10);
    if (errno || end == text || *end || value < row->min || value > row->max)
        return err_set(err, ERR_INVALID, "--%s %s: allowed are integers %" PRIu32 " ... %" PRIu32,
                       row->name, text, row->min, row->max);
    *(uint32_t *)((char *)s + row->offset) = (uint32_t)value;
    return ERR_OK;
}

static enum err_code set_value(const struct option_row *row, struct settings *s, const char *text,
                               struct err *err)
{
    char *field = (char *)s + row->offset;
    int index;
    switch (row->kind) {
    case NUMBER:
        return set_number(row, s, text, err);
    case CHOICE:
        index = choice_index(row->values, text);
        if (index < 0)
            return err_set(err, ERR_INVALID, "--%s %s: allowed are %s", row->name, text,
                           row->values);
        *(uint32_t *)field = (uint32_t)index;
        return ERR_OK;
    case TEXT:
        *(const char **)field = text;
        return ERR_OK;
    default:
        *(bool *)field = true;
        return ERR_OK;
    }
}

/* ---- argp ---- */

struct parse {
    struct settings *settings;
    const struct option_row *by_key[ROWS];
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct parse *parse = state->input;
    struct err err = {0};
    if (key == ARGP_KEY_ARG) {
        if (parse->settings->model)
            argp_error(state, "one MODEL only: \"%s\" is too much", arg);
        parse->settings->model = arg;
        return 0;
    }
    if (key == ARGP_KEY_END) {
        if (!parse->settings->model)
            argp_error(state, "MODEL is missing: a preset (shardplan models) or a config.json");
        return 0;
    }
    for (int i = 0; i < ROWS; i++)
        if (key == (rows[i].key ? rows[i].key : FIRST_KEY + i)) {
            if (set_value(&rows[i], parse->settings, arg, &err) != ERR_OK)
                argp_error(state, "%s", err.text);
            return 0;
        }
    return ARGP_ERR_UNKNOWN;
}

static char *help_text(const struct option_row *row)
{
    char *text = NULL;
    const char *tail = row->initial ? row->initial : NULL;
    if (asprintf(&text, "%s%s%s%s%s%s", row->help, row->values ? ": " : "",
                 row->values ? row->values : "", tail ? " (default " : "", tail ? tail : "",
                 tail ? ")" : "") < 0)
        return NULL;
    return text;
}

static void set_defaults(struct settings *s)
{
    *s = (struct settings){.code = UINT32_MAX};
    for (int i = 0; i < ROWS; i++)
        if (rows[i].initial)
            set_value(&rows[i], s, rows[i].initial, NULL);
}

void options_parse(enum command_mask command, int argc, char **argv, struct settings *out)
{
    static const char *const titles[] = {"", "Model:", "Job:", "Cluster:", "Strategy:", "Output:"};
    struct argp_option options[ROWS + 8] = {{0}};
    char *texts[ROWS] = {NULL};
    int count = 0, group = 0;
    for (int i = 0; i < ROWS; i++) {
        if (!(rows[i].commands & command))
            continue;
        if (rows[i].group != group) {
            group = rows[i].group;
            options[count++] = (struct argp_option){.doc = titles[group], .group = group};
        }
        options[count++] = (struct argp_option){
            .name = rows[i].name,
            .key = rows[i].key ? rows[i].key : FIRST_KEY + i,
            .arg = rows[i].arg,
            .doc = texts[i] = help_text(&rows[i]),
            .group = group,
        };
    }
    const struct argp argp = {
        .options = options,
        .parser = parse_option,
        .args_doc = "MODEL",
        .doc = command == FOR_FIT
                   ? "Bytes per GPU and the verdict. MODEL is a preset or a config.json (or its "
                     "folder)."
                   : "One training step: memory and timeline, written to a folder. MODEL is a "
                     "preset or a config.json (or its folder).",
    };
    static char names[][16] = {"shardplan fit", "shardplan plan"};
    argv[0] = names[command == FOR_PLAN]; /* what usage and errors call this program */
    set_defaults(out);
    struct parse parse = {.settings = out};
    argp_err_exit_status = 2;
    argp_parse(&argp, argc, argv, 0, NULL, &parse);
    for (int i = 0; i < ROWS; i++)
        free(texts[i]);
}

/* ---- settings -> job ---- */

static enum err_code resolve_units(const char *text, struct strategy *s, struct err *err)
{
    s->per_unit = 1;
    if (strcmp(text, "blocks") == 0) {
        s->units = UNITS_BLOCKS;
        return ERR_OK;
    }
    if (strcmp(text, "torchtitan") == 0) {
        s->units = UNITS_TORCHTITAN;
        return ERR_OK;
    }
    static const struct {
        const char *suffix;
        double bytes;
    } sizes[] = {{"KB", 1e3},     {"MB", 1e6},        {"GB", 1e9},
                 {"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0}};
    char *end = NULL;
    const double value = strtod(text, &end);
    if (end != text && value >= 1 && value <= 1e9) {
        if (*end == '\0' && value == (double)(uint32_t)value) {
            s->units = UNITS_BLOCKS;
            s->per_unit = (uint32_t)value;
            return ERR_OK;
        }
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
            if (strcmp(end, sizes[i].suffix) == 0) {
                s->units = UNITS_BYTES;
                s->unit_bytes = (uint64_t)(value * sizes[i].bytes);
                return ERR_OK;
            }
    }
    return err_set(err, ERR_INVALID,
                   "--units %s: allowed are blocks, torchtitan, a number of blocks a unit, or a "
                   "size such as 500MB",
                   text);
}

static enum err_code resolve_reshard(const char *text, struct strategy *s, struct err *err)
{
    static const char names[] = "default,always,never";
    const int index = choice_index(names, text);
    if (index >= 0) {
        s->reshard = (enum reshard_kind)index;
        return ERR_OK;
    }
    char *end = NULL;
    const long value = strtol(text, &end, 10);
    if (end == text || *end || value < 1 || value > 1000000)
        return err_set(err, ERR_INVALID,
                       "--reshard %s: allowed are default, always, never, or a number of ranks",
                       text);
    s->reshard = RESHARD_INT;
    s->reshard_ranks = (uint32_t)value;
    return ERR_OK;
}

static enum err_code resolve_clip(const char *text, struct strategy *s, struct err *err)
{
    if (strcmp(text, "off") == 0)
        return ERR_OK;
    char *end = NULL;
    const double value = strtod(text, &end);
    if (end == text || *end || !(value > 0))
        return err_set(err, ERR_INVALID, "--clip %s: allowed are off or a positive norm", text);
    s->max_norm = (float)value;
    return ERR_OK;
}

static void resolve_dtypes(const struct settings *s, struct job *job)
{
    static const enum dtype dtypes[] = {DTYPE_BF16, DTYPE_FP32, DTYPE_FP16};
    enum { SAME = 3 };
    struct strategy *t = &job->strategy;
    t->store = dtypes[s->store_dtype];
    t->compute = s->param_dtype == SAME ? t->store : dtypes[s->param_dtype];
    t->reduce = s->reduce_dtype == SAME ? t->compute : dtypes[s->reduce_dtype];
    job->model.compute = t->compute;
}

static enum err_code resolve_placement(const struct settings *s, struct placement *placement,
                                       struct err *err)
{
    *placement = (struct placement){
        .gpus_per_node = s->gpus_per_node,
        .expandable_segments = s->expandable != 0,
    };
    TRY(profile_find(s->gpu, &placement->profile, err));
    enum err_code rc = ERR_OK;
    if (s->node)
        rc = profile_set_node(s->node, &placement->profile, err);
    if (rc == ERR_OK && s->profile)
        rc = profile_read(s->profile, &placement->profile, err);
    if (rc != ERR_OK)
        profile_free(&placement->profile);
    return rc;
}

static enum err_code resolve_strategy(const struct settings *s, struct strategy *t, struct err *err)
{
    if (s->strategy != STRATEGY_FSDP2)
        return err_set(err, ERR_UNSUPPORTED,
                       "--strategy: only fsdp2 can be planned by this version");
    t->world = s->gpus;
    t->rank = s->rank;
    t->replicate = s->replicate;
    t->forward_prefetch = s->forward_prefetch;
    t->backward_prefetch = s->backward_prefetch;
    t->accumulate = s->accumulate;
    t->accumulate_sync = s->accumulate_sync != 0;
    t->optimizer = (enum optimizer_kind)s->optimizer;
    t->impl = (enum optimizer_impl)s->optimizer_impl;
    t->offload = s->offload != 0;
    TRY(resolve_units(s->units, t, err));
    TRY(resolve_reshard(s->reshard, t, err));
    return resolve_clip(s->clip, t, err);
}

enum err_code options_resolve(struct settings *s, struct job *job, struct placement *placement,
                              struct err *err)
{
    struct model_config config;
    TRY(model_find(s->model, &config, err));
    job_defaults(job, &config);
    if (s->code == UINT32_MAX)
        s->code = model_default_code(config.arch);
    if (s->seq == 0)
        s->seq = config.max_positions && config.max_positions < 2048 ? config.max_positions : 2048;
    job->model.code = (enum code)s->code;
    job->model.batch = s->micro_batch;
    job->model.seq = s->seq;
    job->model.frozen = s->frozen;
    job->model.own_init = s->init != 0;
    if ((uint64_t)s->micro_batch * s->seq > 1U << 28)
        return err_set(err, ERR_INVALID,
                       "--micro-batch %" PRIu32 " x --seq %" PRIu32
                       " is over 2^28 tokens a micro-batch",
                       s->micro_batch, s->seq);
    resolve_dtypes(s, job);
    job->tape.checkpointing = (enum checkpointing)s->checkpointing;
    TRY(resolve_strategy(s, &job->strategy, err));
    return resolve_placement(s, placement, err);
}

json_t *options_echo(const struct settings *settings)
{
    json_t *echo = json_object();
    char name[64], text[64];
    json_object_set_new(echo, "model", json_string(settings->model));
    for (int i = 0; i < ROWS; i++) {
        if (rows[i].group == GROUP_OUTPUT)
            continue;
        snprintf(name, sizeof name, "%s", rows[i].name);
        for (char *c = name; *c; c++)
            if (*c == '-')
                *c = '_';
        const char *field = (const char *)settings + rows[i].offset;
        json_t *value;
        if (rows[i].kind == NUMBER) {
            value = json_integer(*(const uint32_t *)field);
        } else if (rows[i].kind == CHOICE) {
            choice_text(rows[i].values, *(const uint32_t *)field, text, sizeof text);
            value = json_string(text);
        } else {
            const char *word = *(const char *const *)field;
            value = word ? json_string(word) : json_null();
        }
        json_object_set_new(echo, name, value);
    }
    return echo;
}

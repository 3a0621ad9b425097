/* options.c - see options.h. */
#include "runtime/program/options.h"

#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    KEY_STEPS = 1000,
    KEY_DATA,
    KEY_TOKENS,
    KEY_MEMORY,
    KEY_TIMEOUT,
    KEY_LR,
    KEY_BETA1,
    KEY_BETA2,
    KEY_EPS,
    KEY_DECAY,
    KEY_LOAD,
    KEY_SAVE,
    KEY_LOAD_FULL,
    KEY_SAVE_FULL,
    KEY_JSON,
    KEY_NORMS,
    KEY_DEVICE,
    KEY_REHEARSE,
    KEY_PREDICTED,
    KEY_SHARE_GPU,
    KEY_REGISTER,
    KEY_DETERMINISTIC,
};

static const struct argp_option options[] = {
    {"output", 'o', "DIR", 0, "Folder for trace.json (rank 0) and trace-R.json", 0},
    {"device", KEY_DEVICE, "NAME", 0, "host or cuda (default host)", 0},
    {"rehearse", KEY_REHEARSE, "RANK/WORLD", 0,
     "One process plays one rank of a plan for WORLD: absent peers' collectives are local copies "
     "that take the predicted time",
     0},
    {"predicted", KEY_PREDICTED, "FILE", 0,
     "Trace with a rehearsal's times (default: trace.json beside the plan)", 0},
    {"share-gpu", KEY_SHARE_GPU, NULL, 0,
     "Several ranks may have one GPU: for correctness only, its times mean nothing", 0},
    {"register-buffers", KEY_REGISTER, NULL, 0,
     "Memory that NCCL may use without copies of its own (ncclMemAlloc, ncclCommRegister)", 0},
    {"deterministic", KEY_DETERMINISTIC, NULL, 0,
     "cuda: the same bits every time, with a slow attention", 0},
    {"steps", KEY_STEPS, "N", 0, "Training steps (default 3)", 0},
    {"data", KEY_DATA, "FILE", 0, "Tokens to train on (default: a generator)", 0},
    {"tokens", KEY_TOKENS, "KIND", 0, "bytes, uint16, uint32 (default bytes)", 0},
    {"memory", KEY_MEMORY, "SIZE", 0,
     "Device memory of a rank, such as 4GiB (default 64GiB on the host, on a GPU what it has)", 0},
    {"timeout", KEY_TIMEOUT, "SECONDS", 0,
     "Longest collective before the run is ended (default 60)", 0},
    {"lr", KEY_LR, "X", 0, "Learning rate (default 1e-3)", 0},
    {"beta1", KEY_BETA1, "X", 0, "AdamW (default 0.9)", 0},
    {"beta2", KEY_BETA2, "X", 0, "AdamW (default 0.95)", 0},
    {"eps", KEY_EPS, "X", 0, "AdamW (default 1e-8)", 0},
    {"weight-decay", KEY_DECAY, "X", 0, "AdamW and SGD (default 0.1)", 0},
    {"load", KEY_LOAD, "DIR", 0, "Continue from a sharded checkpoint", 0},
    {"save", KEY_SAVE, "DIR", 0, "Write a sharded checkpoint after the last step", 0},
    {"load-full", KEY_LOAD_FULL, "FILE", 0, "Initial parameters from a safetensors file", 0},
    {"save-full", KEY_SAVE_FULL, "FILE", 0, "Write all parameters to one safetensors file", 0},
    {"json", KEY_JSON, NULL, 0, "One JSON object a step", 0},
    {"param-norms", KEY_NORMS, NULL, 0, "Print each parameter's gradient norm of the first step",
     0},
    {"quiet", 'q', NULL, 0, "Print nothing but errors", 0},
    {0},
};

static double number(struct argp_state *state, const char *name, const char *text, double least)
{
    char *end = NULL;
    const double value = strtod(text, &end);
    if (end == text || *end || !(value >= least))
        argp_error(state, "--%s %s: a number of at least %g is expected", name, text, least);
    return value;
}

static uint64_t size(struct argp_state *state, const char *text)
{
    static const struct {
        const char *suffix;
        double bytes;
    } units[] = {{"", 1.0},       {"MB", 1e6},        {"GB", 1e9},
                 {"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0}};
    char *end = NULL;
    const double value = strtod(text, &end);
    for (size_t i = 0; end != text && value > 0 && i < sizeof units / sizeof units[0]; i++)
        if (strcmp(end, units[i].suffix) == 0)
            return (uint64_t)(value * units[i].bytes);
    argp_error(state, "--memory %s: a size such as 512MiB or 4GiB is expected", text);
    return 0;
}

static enum data_kind token_kind(struct argp_state *state, const char *text)
{
    static const char *const names[] = {"bytes", "uint16", "uint32"};
    for (int i = 0; i < 3; i++)
        if (strcmp(text, names[i]) == 0)
            return (enum data_kind)i;
    argp_error(state, "--tokens %s: allowed are bytes, uint16, uint32", text);
    return DATA_BYTES;
}

static bool is_cuda(struct argp_state *state, const char *text)
{
    if (strcmp(text, "host") != 0 && strcmp(text, "cuda") != 0)
        argp_error(state, "--device %s: allowed are host, cuda", text);
    return strcmp(text, "cuda") == 0;
}

static void parse_rehearsal(struct argp_state *state, const char *text, struct run_options *o)
{
    unsigned rank = 0, world = 0;
    int end = 0;
    if (sscanf(text, "%u/%u%n", &rank, &world, &end) != 2 || text[end] || rank >= world)
        argp_error(state, "--rehearse %s: RANK/WORLD is expected, such as 0/64", text);
    o->rehearse_rank = rank;
    o->rehearse_world = world;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct run_options *o = state->input;
    switch (key) {
    case 'o':
        o->out_dir = arg;
        return 0;
    case 'q':
        o->quiet = true;
        return 0;
    case KEY_STEPS:
        o->steps = (uint32_t)number(state, "steps", arg, 1);
        return 0;
    case KEY_DATA:
        o->data = arg;
        return 0;
    case KEY_TOKENS:
        o->data_kind = token_kind(state, arg);
        return 0;
    case KEY_MEMORY:
        o->memory_bytes = size(state, arg);
        return 0;
    case KEY_TIMEOUT:
        o->timeout_s = number(state, "timeout", arg, 0);
        return 0;
    case KEY_LR:
        o->lr = (float)number(state, "lr", arg, 0);
        return 0;
    case KEY_BETA1:
        o->beta1 = (float)number(state, "beta1", arg, 0);
        return 0;
    case KEY_BETA2:
        o->beta2 = (float)number(state, "beta2", arg, 0);
        return 0;
    case KEY_EPS:
        o->eps = (float)number(state, "eps", arg, 0);
        return 0;
    case KEY_DECAY:
        o->weight_decay = (float)number(state, "weight-decay", arg, 0);
        return 0;
    case KEY_LOAD:
        o->load = arg;
        return 0;
    case KEY_SAVE:
        o->save = arg;
        return 0;
    case KEY_LOAD_FULL:
        o->load_full = arg;
        return 0;
    case KEY_SAVE_FULL:
        o->save_full = arg;
        return 0;
    case KEY_JSON:
        o->json = true;
        return 0;
    case KEY_NORMS:
        o->param_norms = true;
        return 0;
    case KEY_DEVICE:
        o->cuda = is_cuda(state, arg);
        return 0;
    case KEY_REHEARSE:
        parse_rehearsal(state, arg, o);
        return 0;
    case KEY_PREDICTED:
        o->predicted = arg;
        return 0;
    case KEY_SHARE_GPU:
        o->share_gpu = true;
        return 0;
    case KEY_REGISTER:
        o->register_buffers = true;
        return 0;
    case KEY_DETERMINISTIC:
        o->deterministic = true;
        return 0;
    case ARGP_KEY_ARG:
        if (o->plan)
            argp_error(state, "one PLAN.json only: \"%s\" is too much", arg);
        o->plan = arg;
        return 0;
    case ARGP_KEY_END:
        if (!o->plan)
            argp_error(state, "PLAN.json is missing");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

void run_options_parse(int argc, char **argv, struct run_options *out)
{
    static const struct argp argp = {
        .options = options,
        .parser = parse,
        .args_doc = "PLAN.json",
        .doc = "One rank of a run: executes the plan on the host or on a GPU. `shardplan run` "
               "starts as "
               "many ranks as the plan asks for.",
    };
    *out = (struct run_options){
        .steps = 3,
        .timeout_s = 60,
        .lr = 1e-3F,
        .beta1 = 0.9F,
        .beta2 = 0.95F,
        .eps = 1e-8F,
        .weight_decay = 0.1F,
    };
    argp_err_exit_status = 2;
    argp_parse(&argp, argc, argv, 0, NULL, out);
}

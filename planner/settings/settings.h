/* settings.h - what a user chose, for any command, and its settings by name.
 *
 *     text --settings_set--> struct settings --settings_resolve--> job and machine
 *
 * Fields are those of the parts that read them, where there is one: `job` is the job as asked,
 * without a model's config. So a setting is one row of the table, and the field it sets. */
#ifndef SHARDPLAN_SETTINGS_H
#define SHARDPLAN_SETTINGS_H

#include "base/arena.h"
#include "job/job.h"
#include "machine/profile.h"
#include "settings/setting.h"

enum {
    SETTINGS_MOST_FILES = 16,
    SETTINGS_MOST_ROWS = 192,
    SETTINGS_ROW_WORDS = SETTINGS_MOST_ROWS / 64 /* a bit a row */
};

/* In which dtype parameters are that are not trained, where none is named. */
enum frozen_dtype {
    FROZEN_STORED = DTYPE_COUNT, /* as the others */
    FROZEN_COMPUTED              /* as all are computed with, and gathered */
};

struct text_list {
    const char *at[SETTINGS_MOST_FILES];
    uint32_t count;
};

/* What the kernels of a run do. */
enum run_kernels {
    RUN_KERNELS_AUTO, /* compute; in a rehearsal of a plan that cannot be run wait */
    RUN_KERNELS_REAL,
    RUN_KERNELS_WAITS
};

struct run_options { /* of `run`, and of shardrun */
    uint32_t ranks;  /* 0: as the plan says */
    uint32_t steps;
    const char *data;      /* NULL: the reference generator */
    uint32_t token_bytes;  /* of a token in the file */
    uint64_t memory_bytes; /* 0: the device's default */
    double timeout_s;
    float lr, beta1, beta2, eps, weight_decay;
    const char *load, *save, *load_full, *save_full;
    bool param_norms, share_gpu, register_buffers, deterministic, fuse;
    enum attention_kernel attention;
    const char *products;
    bool force; /* ranks are started though this machine has not the memory */
    uint32_t rehearse_rank, rehearse_world; /* world 0: all ranks are there */
    enum run_kernels kernels;
    const char *predicted; /* trace with the times of what a rehearsal waits for; NULL: the plan's
                              own, if it has any */
};

struct calibrate_settings {
    uint32_t ranks;       /* 0: 2, or as nccl-tests' files say */
    uint32_t largest_mib; /* 0: by device */
    bool quick;
    struct text_list nccl; /* what nccl-tests wrote: then nothing is run */
};

#define HEADROOM_MOST 0x1p50

struct tune_settings {
    uint32_t global_batch;         /* sequences; 0: gpus x micro-batch x accumulate */
    struct text_list fix, allow;   /* "name=value"; names */
    uint64_t max_memory, headroom; /* bytes of a GPU; max_memory 0: its capacity; headroom above
                                      HEADROOM_MOST: not given */
};

enum export_target {
    EXPORT_FSDP2,
    EXPORT_TORCHTITAN,
    EXPORT_ACCELERATE,
    EXPORT_DEEPSPEED,
    EXPORT_NONE,
};

enum point_measure { /* a number of a job that can be shown */
                     MEASURE_TOKENS,
                     MEASURE_STEP,
                     MEASURE_MFU,
                     MEASURE_EXPOSED,
                     MEASURE_DEVICE,
                     MEASURE_RESERVED,
                     MEASURE_REQUESTED,
                     MEASURE_COUNT
};

struct sweep_settings { /* as typed: search/axis.h reads them */
    struct text_list over;
    const char *largest, *fewest;
    uint32_t show; /* enum point_measure */
};

/* Settings of dtypes, of which a system may have none: bits of settings.dtypes. */
enum settings_dtype {
    HAS_FROZEN = 1 << 0,
    HAS_PARAM = 1 << 1,
    HAS_STORE = 1 << 2,
    HAS_REDUCE = 1 << 3,
    HAS_AUTOCAST = 1 << 4,
    HAS_OUTPUTS = 1 << 5
};

struct settings { /* copied freely: it owns nothing, texts are lent */
    enum command command;
    uint8_t dtypes[SYSTEM_COUNT];       /* which of them the command has under each system: looked
                                           up once, as each job of a search asks */
    uint64_t given[SETTINGS_ROW_WORDS]; /* a bit a row: set by other than its default */
    uint64_t typed[SETTINGS_ROW_WORDS]; /* ... of the command line, and not of a file */
    const char *model;
    const char *from;      /* a framework's file that settings were taken from; NULL */
    const char *unplanned; /* what it asks for beyond any plan, in lines: whoever gives a verdict
                              says it beside that; NULL: nothing */
    const char *no_preset; /* what it says of a model that no preset is, a sentence; NULL */
    const char *misspelt;  /* the same of keys that nobody knows but that nearly are known ones */
    struct job job;        /* `config` is empty; batch, seq, code, dtypes as asked */
    uint32_t frozen;       /* of what is not trained: enum frozen_dtype, else an enum dtype */
    const char *zero;      /* a file; NULL: the defaults */
    enum zero_offloading zero_offload; /* beside what that says */
    uint32_t deepspeed;                /* the version of these: zero_options.h */
    const char *gpu, *node, *profile;
    uint32_t gpus_per_node;
    uint64_t host_memory;   /* bytes of one host; 0: as the profile says */
    float memory_of_others; /* share of a GPU's memory that is not there */
    bool expandable_segments;
    enum clock clock;
    enum attention_kernel attention;
    const char *table;        /* of `kernels` */
    const char *plan, *trace; /* of `run`, `compare` */
    bool cuda;                /* of `run`, `calibrate`: the device; else the host */
    struct run_options run;
    struct calibrate_settings calibrate;
    struct tune_settings tune;
    struct sweep_settings sweep;
    const char *a, *b;        /* of `diff` */
    double tolerance_percent; /* of `compare`; NAN: time is not checked */
    enum export_target to;    /* of `export`, `tune` */
    const char *events, *output;
    bool time, explain; /* of `fit` and `plan` */
    bool no_remedies;   /* of what does not fit, nothing is searched */
    bool no_files;      /* of `plan`, as the next */
    bool plan_alone;    /* of the files plan.json, and other ranks' */
    bool goodput, start_up, json, quiet;
};

/* Every setting of a command at its default. */
void settings_defaults(struct settings *settings, enum command command);

/* The row of a name ("micro-batch", "micro_batch", "--micro-batch") that the command and the chosen
 * system have; NULL with ERR_INVALID: it names the nearest, or whose it is. */
const struct setting *settings_find(const struct settings *settings, const char *name,
                                    struct err *err);

/* Whether a name is of settings that only other commands have: what `plan` wrote into a file. */
bool settings_is_others(const struct settings *settings, const char *name);

/* Sets a setting by name, from text that the caller keeps. Errors are those of settings_find and
 * setting_write. The system (`strategy`) is to be set before what belongs to it. */
enum err_code settings_set(struct settings *settings, const char *name, const char *text,
                           struct err *err);

/* As `strategy` set by who looks for a system: it counts as given no more than before. */
void settings_set_system(struct settings *settings, enum system_kind system);

/* As `gpus` set by a search: it counts as given no more than before. GPUs of a node that nobody
 * gave follow. */
void settings_set_gpus(struct settings *settings, uint32_t gpus);

/* Its value as text, lent or in `buffer`; NULL: there is no such setting here, or it has none. */
const char *settings_get(const struct settings *settings, const char *name,
                         char buffer[NUMBER_TEXT]);

/* Whether a row was set by other than its default. */
bool settings_is_given(const struct settings *settings, const struct setting *row);

/* As settings_set, of what the command line says; whether that set a row. */
enum err_code settings_type(struct settings *settings, const char *name, const char *text,
                            struct err *err);
bool settings_is_typed(const struct settings *settings, const struct setting *row);

/* Every setting of the command that the system has, but for what is printed and where, under its
 * own name with '-' as '_'. The caller owns the object. */
json_t *settings_echo(const struct settings *settings);

/* Sets what an echo says, such as a plan.json's: null says nothing, and what is so already is not
 * given. Texts go into the arena. ERR_INVALID names the setting. */
enum err_code settings_take_echo(struct settings *settings, const json_t *echo, struct arena *arena,
                                 struct err *err);

/* What makes `to` of `from`, as options: "--gpus 16 --checkpointing full", cut where `text` is
 * full; returns text. Empty: nothing. Both are of one command. What follows from the rest (GPUs of
 * a node that nobody gave) is not said. */
const char *settings_difference(const struct settings *from, const struct settings *to, char *text,
                                size_t size);

/* What was given of the job and its machine, as one would type it: "llama-3.1-8b --gpus 16", cut
 * where `text` is full; returns text. */
const char *settings_given_text(const struct settings *settings, char *text, size_t size);

/* What was given, of what `command` has too, as its arguments: "--steps", "20". They are in the
 * arena or lent; *count of them. */
const char **settings_arguments(const struct settings *settings, enum command command,
                                struct arena *arena, uint32_t *count);

#endif

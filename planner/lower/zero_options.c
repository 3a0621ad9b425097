/* zero_options.c - see zero_options.h. */
#include "lower/zero_options.h"

#include "base/json_file.h"
#include "base/names.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum key_kind {
    KEY_BOOL,
    KEY_ELEMENTS, /* a whole number, as 500000000 or 5e8 */
    KEY_STAGE,
    KEY_OFFLOAD, /* an object with a device, or null */
    KEY_SHARE,   /* a number from 0 to 1 */
    KEY_OBJECT,
    KEY_LEAVES,  /* an object of lists of names */
    KEY_IGNORED, /* of checkpoints, messages or checks: changes no byte of a step */
};

enum { ZERO12 = 1 << 1 | 1 << 2, ZERO3 = 1 << 3 };
enum { NO_FIELD = UINT16_MAX };

struct zero_key {
    const char *name;
    uint8_t kind;   /* enum key_kind */
    uint8_t stages; /* that read it; the others do without */
    uint16_t field; /* of struct zero_options; NO_FIELD: only `initial` is planned */
    double initial; /* false and true are 0 and 1 */
    double least;
    const char *why; /* nothing else is planned */
};

#define AT(member) offsetof(struct zero_options, member)

/* Defaults of ZERO_VERSION. overlap_comm's is that of stages 1 and 2. */
static const struct zero_key keys[] = {
    {"stage", KEY_STAGE, ZERO12 | ZERO3, NO_FIELD, 0, 0, NULL},
    {"contiguous_gradients", KEY_BOOL, ZERO12, AT(contiguous_gradients), 1, 0, NULL},
    {"reduce_scatter", KEY_BOOL, ZERO12, AT(reduce_scatter), 1, 0, NULL},
    {"reduce_bucket_size", KEY_ELEMENTS, ZERO12 | ZERO3, AT(reduce_bucket_size), 5e8, 1, NULL},
    {"use_multi_rank_bucket_allreduce", KEY_BOOL, ZERO12, NO_FIELD, 1, 0,
     "reductions to one rank are not planned"},
    {"allgather_partitions", KEY_IGNORED, ZERO12, NO_FIELD, 1, 0, NULL},
    {"allgather_bucket_size", KEY_IGNORED, ZERO12, NO_FIELD, 5e8, 0, NULL}, /* dead with NCCL */
    {"overlap_comm", KEY_BOOL, ZERO12 | ZERO3, AT(overlap_comm), 0, 0, NULL},
    {"compute_grad_norm", KEY_BOOL, ZERO12, NO_FIELD, 1, 0, "the norm is always planned"},
    {"load_from_fp32_weights", KEY_IGNORED, ZERO12 | ZERO3, NO_FIELD, 1, 0, NULL},
    {"elastic_checkpoint", KEY_IGNORED, ZERO12 | ZERO3, NO_FIELD, 0, 0, NULL},
    {"offload_param", KEY_OFFLOAD, ZERO3, AT(param), 0, 0, NULL},
    {"offload_optimizer", KEY_OFFLOAD, ZERO12 | ZERO3, AT(optimizer), 0, 0, NULL},
    {"zenflow", KEY_OBJECT, ZERO12 | ZERO3, NO_FIELD, 0, 0, "ZenFlow is not planned"},
    {"sub_group_size", KEY_ELEMENTS, ZERO3, AT(sub_group_size), 1e9, 0, NULL},
    {"cpu_offload_param", KEY_BOOL, ZERO3, NO_FIELD, 0, 0,
     "DeepSpeed " ZERO_VERSION " has offload_param in its place"},
    {"cpu_offload_use_pin_memory", KEY_IGNORED, ZERO12 | ZERO3, NO_FIELD, 0, 0, NULL},
    {"cpu_offload", KEY_BOOL, ZERO12 | ZERO3, NO_FIELD, 0, 0,
     "DeepSpeed " ZERO_VERSION " has offload_optimizer in its place"},
    {"stage3_prefetch_bucket_size", KEY_ELEMENTS, ZERO3, AT(prefetch_bucket_size), 5e7, 0, NULL},
    {"prefetch_bucket_size", KEY_ELEMENTS, ZERO3, AT(prefetch_bucket_size), 5e7, 0, NULL},
    {"stage3_param_persistence_threshold", KEY_ELEMENTS, ZERO3, AT(param_persistence_threshold),
     1e5, 0, NULL},
    {"param_persistence_threshold", KEY_ELEMENTS, ZERO3, AT(param_persistence_threshold), 1e5, 0,
     NULL},
    {"stage3_model_persistence_threshold", KEY_ELEMENTS, ZERO3, AT(model_persistence_threshold),
     0x1p62, 0, NULL},
    {"model_persistence_threshold", KEY_ELEMENTS, ZERO3, AT(model_persistence_threshold), 0x1p62, 0,
     NULL},
    {"stage3_max_live_parameters", KEY_ELEMENTS, ZERO3, AT(max_live_parameters), 1e9, 0, NULL},
    {"max_live_parameters", KEY_ELEMENTS, ZERO3, AT(max_live_parameters), 1e9, 0, NULL},
    {"stage3_max_reuse_distance", KEY_ELEMENTS, ZERO3, AT(max_reuse_distance), 1e9, 0, NULL},
    {"max_reuse_distance", KEY_ELEMENTS, ZERO3, AT(max_reuse_distance), 1e9, 0, NULL},
    {"stage3_gather_16bit_weights_on_model_save", KEY_IGNORED, ZERO3, NO_FIELD, 0, 0, NULL},
    {"gather_16bit_weights_on_model_save", KEY_IGNORED, ZERO3, NO_FIELD, 0, 0, NULL},
    {"stage3_gather_fp16_weights_on_model_save", KEY_IGNORED, ZERO3, NO_FIELD, 0, 0, NULL},
    {"stage3_module_granularity_threshold", KEY_ELEMENTS, ZERO3, NO_FIELD, 0, 0,
     "every module fetches its own parameters"},
    {"module_granularity_threshold", KEY_ELEMENTS, ZERO3, NO_FIELD, 0, 0,
     "every module fetches its own parameters"},
    {"stage3_use_all_reduce_for_fetch_params", KEY_BOOL, ZERO3, NO_FIELD, 0, 0,
     "parameters are gathered, not summed"},
    {"use_all_reduce_for_fetch_params", KEY_BOOL, ZERO3, NO_FIELD, 0, 0,
     "parameters are gathered, not summed"},
    {"stage3_allgather_sequential", KEY_BOOL, ZERO3, NO_FIELD, 0, 0,
     "parameters of one call are gathered together"},
    {"allgather_sequential", KEY_BOOL, ZERO3, NO_FIELD, 0, 0,
     "parameters of one call are gathered together"},
    {"ignore_unused_parameters", KEY_IGNORED, ZERO12, NO_FIELD, 1, 0, NULL},
    {"legacy_stage1", KEY_BOOL, ZERO12, NO_FIELD, 0, 0, "the old stage 1 is gone from DeepSpeed"},
    {"round_robin_gradients", KEY_BOOL, ZERO12, AT(round_robin_gradients), 0, 0, NULL},
    {"parameter_alignment", KEY_BOOL, ZERO12, NO_FIELD, 0, 0,
     "parameters follow each other without padding"},
    {"zero_hpz_partition_size", KEY_ELEMENTS, ZERO3, AT(hpz_partition_size), 1, 1, NULL},
    {"zero_quantized_weights", KEY_BOOL, ZERO3, AT(quantized_weights), 0, 0, NULL},
    {"zero_quantized_nontrainable_weights", KEY_BOOL, ZERO3, NO_FIELD, 0, 0,
     "frozen parameters are kept as they are computed with"},
    {"zero_quantized_gradients", KEY_BOOL, ZERO3, AT(quantized_gradients), 0, 0, NULL},
    {"mics_shard_size", KEY_ELEMENTS, ZERO3, NO_FIELD, -1, -1,
     "MiCS is not planned, and gone from DeepSpeed " ZERO_VERSION},
    {"mics_hierarchical_params_gather", KEY_BOOL, ZERO3, NO_FIELD, 0, 0,
     "MiCS is not planned, and gone from DeepSpeed " ZERO_VERSION},
    {"memory_efficient_linear", KEY_BOOL, ZERO3, NO_FIELD, 1, 0,
     "linear layers are DeepSpeed's own"},
    {"pipeline_loading_checkpoint", KEY_IGNORED, ZERO3, NO_FIELD, 0, 0, NULL},
    {"override_module_apply", KEY_IGNORED, ZERO3, NO_FIELD, 1, 0, NULL},
    {"log_trace_cache_warnings", KEY_IGNORED, ZERO3, NO_FIELD, 0, 0, NULL},
    {"enable_sanity_checks", KEY_IGNORED, ZERO12 | ZERO3, NO_FIELD, 0, 0, NULL},
    {"save_muon_momentum_buffer_in_memory", KEY_IGNORED, ZERO3, NO_FIELD, 0, 0, NULL},
    {"leaf_module", KEY_LEAVES, ZERO3, NO_FIELD, 0, 0, NULL},
};

enum { KEYS = sizeof keys / sizeof keys[0] };

/* What came later than 0.10.3: the history of those two files, by tags of DeepSpeed's repository.
 * Beside that, offload's pin_memory is on since 0.19.5, and leaf_module had no classes before it
 * was there. */
static const struct {
    const char *name;
    uint32_t since;
} later[] = {
    {"use_multi_rank_bucket_allreduce", 1204},
    {"ratio", 1203},
    {"use_all_reduce_for_fetch_params", 1403},
    {"stage3_use_all_reduce_for_fetch_params", 1403},
    {"module_granularity_threshold", 1600},
    {"stage3_module_granularity_threshold", 1600},
    {"log_trace_cache_warnings", 1604},
    {"zenflow", 1705},
    {"enable_sanity_checks", 1706},
    {"leaf_module", 1800},
    {"super_offload", 1800},
    {"cpuadam_cores_perc", 1800},
    {"allgather_sequential", 1805},
    {"stage3_allgather_sequential", 1805},
    {"save_muon_momentum_buffer_in_memory", 1809},
    {"compute_grad_norm", 1906}, /* or 1907, 1908: it has no tags of these */
    {"parameter_alignment", 1906},
};

enum { PINNED_SINCE = 1905 };

static uint32_t since(const char *name)
{
    for (size_t i = 0; i < sizeof later / sizeof later[0]; i++)
        if (strcmp(later[i].name, name) == 0)
            return later[i].since;
    return 0;
}

static void set_field(struct zero_options *o, const struct zero_key *key, double value)
{
    char *field = (char *)o + key->field;
    if (key->kind == KEY_BOOL)
        *(bool *)field = value != 0;
    else
        *(uint64_t *)(void *)field = (uint64_t)value;
}

/* DEFAULT_LEAF_MODULE_CLASSES. */
#define LEAF_CLASSES "MixtralSparseMoeBlock,Qwen2MoeSparseMoeBlock,Qwen3MoeSparseMoeBlock"

/* Whether one of a list is the end of a name's first `length` characters, or with `whole` all. */
static bool is_end(const char *list, const char *name, size_t length, bool whole)
{
    for (const char *at = list; *at;) {
        const size_t n = strcspn(at, ",");
        if ((whole ? n == length : n <= length) && strncmp(at, name + length - n, n) == 0)
            return true;
        at += n + (at[n] == ',');
    }
    return false;
}

bool zero_is_listed(const char *list, const char *name, size_t length)
{
    return is_end(list, name, length, true);
}

const char *zero_unusual_leaf(const struct zero_options *o, size_t *at, size_t *length)
{
    while (o->leaf_classes[*at]) {
        const char *name = o->leaf_classes + *at;
        *length = strcspn(name, ",");
        *at += *length + (name[*length] == ',');
        if (!zero_is_listed(LEAF_CLASSES, name, *length))
            return name;
    }
    return NULL;
}

bool zero_has_suffix(const char *list, const char *name, size_t length)
{
    return is_end(list, name, length, false);
}

struct zero_options zero_defaults(uint32_t stage)
{
    return zero_defaults_of(ZERO_NEWEST, stage);
}

struct zero_options zero_defaults_of(uint32_t version, uint32_t stage)
{
    struct zero_options o = {.version = version};
    for (int i = 0; i < KEYS; i++)
        if (keys[i].field != NO_FIELD && keys[i].kind != KEY_OFFLOAD)
            set_field(&o, &keys[i], keys[i].initial);
    o.optimizer.ratio = o.param.ratio = 1;
    if (version >= since("leaf_module"))
        memcpy(o.leaf_classes, LEAF_CLASSES, sizeof LEAF_CLASSES);
    o.overlap_comm = stage == 3; /* overlap_comm_valid */
    return o;
}

void zero_offload_also(struct zero_options *o, uint32_t stage, enum zero_offloading offloading)
{
    const struct zero_offload own = {.on = true, .pageable = o->version < PINNED_SINCE, .ratio = 1};
    if (offloading != ZERO_OFFLOAD_NONE && !o->optimizer.on)
        o->optimizer = own;
    if (offloading == ZERO_OFFLOAD_ALL && stage == 3 && !o->param.on)
        o->param = own;
}

struct reading {
    const char *path;
    uint32_t stage, hidden;
    struct zero_options *out;
    struct err *err;
};

/* Whether the version that is asked for has a key that the newest has. */
static enum err_code check_version(const struct reading *r, const char *name)
{
    const uint32_t from = since(name), version = r->out->version;
    if (version >= from)
        return ERR_OK;
    return err_set(r->err, ERR_INVALID,
                   "%s: %s: DeepSpeed 0.%u.%u has no such key: it came with 0.%u.%u (--deepspeed)",
                   r->path, name, version / 100, version % 100, from / 100, from % 100);
}

/* NULL: none is near. */
static const char *nearest_key(const char *name)
{
    const char *nearest = NULL;
    for (int i = 0; i < KEYS; i++)
        if (names_near(name, keys[i].name) && names_nearer(name, keys[i].name, nearest))
            nearest = keys[i].name;
    return nearest;
}

static enum err_code wrong(const struct reading *r, const struct zero_key *key, const char *allowed)
{
    return err_set(r->err, ERR_INVALID, "%s: %s: allowed are %s", r->path, key->name, allowed);
}

struct zero_options zero_options_beside(const struct zero_options *options)
{
    struct zero_options beside = *options;
    const struct zero_options own = zero_defaults_of(options->version, 3);
    if (options->auto_prefetch)
        beside.prefetch_bucket_size = own.prefetch_bucket_size;
    if (options->auto_persistence)
        beside.param_persistence_threshold = own.param_persistence_threshold;
    return beside;
}

/* What transformers (integrations/deepspeed.py) and accelerate (accelerator.py) fill in. */
static const struct auto_key {
    const char *name;
    double of_square, of_hidden; /* times the hidden size's square, times itself; rounded down */
    const char *is;
} auto_keys[] = {
    {"reduce_bucket_size", 1, 0, "its square"},
    {"stage3_prefetch_bucket_size", 0.9, 0, "0.9 of its square"},
    {"stage3_param_persistence_threshold", 0, 10, "ten times that"},
};

static enum err_code read_auto(const struct reading *r, const struct zero_key *key)
{
    const double hidden = r->hidden;
    r->out->auto_prefetch |= strcmp(key->name, "stage3_prefetch_bucket_size") == 0;
    r->out->auto_persistence |= strcmp(key->name, "stage3_param_persistence_threshold") == 0;
    for (size_t i = 0; i < sizeof auto_keys / sizeof auto_keys[0]; i++) {
        const struct auto_key *own = &auto_keys[i];
        if (strcmp(own->name, key->name) != 0)
            continue;
        if (r->hidden == 0)
            return err_set(r->err, ERR_INVALID,
                           "%s: %s: \"auto\" is of the model's hidden size (%s), and this one has "
                           "none: give a number",
                           r->path, key->name, own->is);
        set_field(r->out, key, floor(own->of_square * hidden * hidden + own->of_hidden * hidden));
        return ERR_OK;
    }
    return err_set(r->err, ERR_INVALID,
                   "%s: %s: \"auto\": transformers' Trainer fills in reduce_bucket_size, "
                   "stage3_prefetch_bucket_size and stage3_param_persistence_threshold alone, and "
                   "DeepSpeed would refuse it: give a value",
                   r->path, key->name);
}

static enum err_code read_number(const struct reading *r, const struct zero_key *key,
                                 const json_t *value)
{
    double number;
    if (key->kind == KEY_BOOL) {
        if (!json_is_boolean(value))
            return wrong(r, key, "true, false");
        number = json_is_true(value);
    } else {
        char allowed[64];
        number = json_number_value(value);
        snprintf(allowed, sizeof allowed, "whole numbers from %.0f", key->least);
        if (!json_is_number(value) || number < key->least || number != floor(number) ||
            number > 0x1p63)
            return wrong(r, key, allowed);
    }
    if (key->field != NO_FIELD)
        set_field(r->out, key, number);
    else if (number != key->initial)
        return err_set(r->err, ERR_UNSUPPORTED, "%s: %s: %s", r->path, key->name, key->why);
    return ERR_OK;
}

/* ---- offload_optimizer, offload_param ---- */

/* Members beside `device` (offload_config.py), and what is planned of them. */
struct offload_key {
    const char *name;
    bool optimizer, param; /* whose */
    uint8_t kind;          /* KEY_BOOL, KEY_ELEMENTS, KEY_IGNORED */
    const char *why;       /* other than false is not planned */
};

static const struct offload_key offload_keys[] = {
    {"pin_memory", true, true, KEY_BOOL, NULL},
    {"ratio", true, false, KEY_SHARE, NULL},
    {"super_offload", true, false, KEY_BOOL, "SuperOffload's optimizer is not planned"},
    /* of NVMe, or of SuperOffload; the rest changes no byte of a step */
    {"nvme_path", true, true, KEY_IGNORED, NULL},
    {"buffer_count", true, true, KEY_IGNORED, NULL},
    {"buffer_size", false, true, KEY_IGNORED, NULL},
    {"max_in_cpu", false, true, KEY_IGNORED, NULL},
    {"pipeline_read", true, false, KEY_IGNORED, NULL},
    {"pipeline_write", true, false, KEY_IGNORED, NULL},
    {"fast_init", true, false, KEY_IGNORED, NULL},
    {"cpuadam_cores_perc", true, false, KEY_IGNORED, NULL},
};

static enum err_code read_offload_key(const struct reading *r, const struct zero_key *key,
                                      const char *name, const json_t *value,
                                      struct zero_offload *out)
{
    const bool optimizer = key->field == AT(optimizer);
    const struct offload_key *own = NULL;
    for (size_t i = 0; i < sizeof offload_keys / sizeof offload_keys[0]; i++)
        if (strcmp(offload_keys[i].name, name) == 0 &&
            (optimizer ? offload_keys[i].optimizer : offload_keys[i].param))
            own = &offload_keys[i];
    if (!own)
        return err_set(r->err, ERR_INVALID,
                       "%s: %s: DeepSpeed " ZERO_VERSION " has no such key: %s", r->path, key->name,
                       name);
    TRY(check_version(r, name));
    if (own->kind == KEY_BOOL && !json_is_boolean(value))
        return err_set(r->err, ERR_INVALID, "%s: %s: %s: allowed are true, false", r->path,
                       key->name, name);
    if (own->why && json_is_true(value))
        return err_set(r->err, ERR_UNSUPPORTED, "%s: %s: %s: %s", r->path, key->name, name,
                       own->why);
    if (own->kind == KEY_BOOL && !own->why)
        out->pageable = !json_is_true(value);
    if (own->kind != KEY_SHARE)
        return ERR_OK;
    out->ratio = json_number_value(value);
    if (!json_is_number(value) || out->ratio < 0 || out->ratio > 1 ||
        (out->ratio < 1 && r->stage != 3)) /* DeepSpeed's own assertion */
        return err_set(r->err, ERR_INVALID,
                       "%s: %s: ratio: allowed are numbers from 0 to 1, and 1 below stage 3",
                       r->path, key->name);
    return ERR_OK;
}

/* A member that is a number, or DeepSpeed's default of it. */
static double number_or(const json_t *value, const char *name, double otherwise)
{
    const json_t *member = json_object_get(value, name);
    return json_is_number(member) ? json_number_value(member) : otherwise;
}

/* What is swapped passes through pinned buffers of the host, which are there from the beginning to
 * the end (swap_tensor/partitioned_param_swapper.py: elements of 16 bits, each buffer rounded up to
 * 1,024 bytes; swap_tensor/utils.py, SwapBufferManager: fp32). Defaults are offload_config.py's. */
static enum err_code refuse_nvme(const struct reading *r, const struct zero_key *key,
                                 const json_t *value)
{
    enum { ALIGNED = 512 }; /* elements: AIO_ALIGNED_BYTES, with one thread */
    static const char why[] = "swapping to files is not planned: its time is a disk's, of which no "
                              "machine here has a number";
    if (key->field == AT(optimizer))
        return err_set(r->err, ERR_UNSUPPORTED,
                       "%s: %s: device nvme: %s; on the host it would keep %.0f buffers, each of a "
                       "rank's part of the largest sub-group in fp32",
                       r->path, key->name, why, number_or(value, "buffer_count", 4));
    const double elements = ceil(number_or(value, "buffer_size", 1e8) / ALIGNED) * ALIGNED;
    return err_set(r->err, ERR_UNSUPPORTED,
                   "%s: %s: device nvme: %s; on each rank's host it would keep %.2f GiB of buffers",
                   r->path, key->name, why,
                   number_or(value, "buffer_count", 5) * elements * 2 / 1073741824.0);
}

/* {"device": "none" | "cpu" | "nvme", ...}; the rest says where and how, which "none" has no use
 * for. */
static enum err_code read_offload(const struct reading *r, const struct zero_key *key,
                                  const json_t *value)
{
    const char *device = json_string_value(json_object_get(value, "device")), *name;
    struct zero_offload *out = (struct zero_offload *)(void *)((char *)r->out + key->field);
    json_t *member;
    if (json_is_null(value) || (json_is_object(value) && !json_object_get(value, "device")))
        return ERR_OK;
    if (!device ||
        (strcmp(device, "none") != 0 && strcmp(device, "cpu") != 0 && strcmp(device, "nvme") != 0))
        return wrong(r, key, "null, or an object whose device is none, cpu or nvme");
    /* stages 1 and 2 ask only whether the device is none (stage_1_and_2.py): nvme is cpu */
    if (strcmp(device, "nvme") == 0 && r->stage == 3)
        return refuse_nvme(r, key, value);
    if (strcmp(device, "none") == 0)
        return ERR_OK;
    out->on = (r->stage == 3) || key->field == AT(optimizer);
    out->pageable = r->out->version < PINNED_SINCE;
    json_object_foreach((json_t *)(uintptr_t)value, name, member)
    {
        if (strcmp(name, "device") != 0)
            TRY(read_offload_key(r, key, name, member, out));
    }
    return ERR_OK;
}

/* ---- leaf_module ---- */

/* One name, or a list; of a class "package.module.Class" the last part. */
static enum err_code read_leaf_names(const struct reading *r, const char *member,
                                     const json_t *value, bool classes, char *out)
{
    const size_t count = json_is_string(value) ? 1 : json_array_size(value);
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < count; i++) {
        const json_t *one = json_is_string(value) ? value : json_array_get(value, i);
        const char *name = json_string_value(one);
        const char *dot = name && classes ? strrchr(name, '.') : NULL;
        name = dot ? dot + 1 : name;
        if (!name || !*name || strchr(name, ','))
            return err_set(r->err, ERR_INVALID, "%s: leaf_module: %s: allowed are names", r->path,
                           member);
        if (used + strlen(name) + 2 > ZERO_LEAVES)
            return err_set(r->err, ERR_UNSUPPORTED,
                           "%s: leaf_module: %s: more than %d characters are not planned", r->path,
                           member, ZERO_LEAVES);
        used += (size_t)snprintf(out + used, ZERO_LEAVES - used, "%s%s", used ? "," : "", name);
    }
    return ERR_OK;
}

static enum err_code read_leaves(const struct reading *r, const json_t *value)
{
    const char *member;
    json_t *names;
    if (!json_is_object(value) && !json_is_null(value))
        return err_set(r->err, ERR_INVALID,
                       "%s: leaf_module: allowed is an object: classes, names, name_suffixes",
                       r->path);
    json_object_foreach((json_t *)(uintptr_t)value, member, names)
    {
        char *out = strcmp(member, "classes") == 0         ? r->out->leaf_classes
                    : strcmp(member, "names") == 0         ? r->out->leaf_names
                    : strcmp(member, "name_suffixes") == 0 ? r->out->leaf_suffixes
                                                           : NULL;
        if (!out || (!json_is_array(names) && !json_is_string(names)))
            return err_set(r->err, ERR_INVALID,
                           "%s: leaf_module: %s: allowed are lists: classes, names, name_suffixes",
                           r->path, member);
        TRY(read_leaf_names(r, member, names, out == r->out->leaf_classes, out));
    }
    return ERR_OK;
}

static enum err_code read_key(const struct reading *r, const char *name, const json_t *value)
{
    const struct zero_key *key = NULL;
    for (int i = 0; i < KEYS && !key; i++)
        if (strcmp(keys[i].name, name) == 0)
            key = &keys[i];
    if (!key) {
        const char *nearest = nearest_key(name);
        return err_set(r->err, ERR_INVALID,
                       "%s: %s: zero_optimization of DeepSpeed " ZERO_VERSION
                       " has no such key%s%s%s",
                       r->path, name, nearest ? "; did you mean " : "", nearest ? nearest : "",
                       nearest ? "?" : "");
    }
    TRY(check_version(r, name));
    if (key->kind != KEY_IGNORED && json_is_string(value) &&
        strcmp(json_string_value(value), "auto") == 0)
        return read_auto(r, key);
    switch (key->kind) {
    case KEY_STAGE:
        if (!json_is_integer(value) || json_integer_value(value) != (json_int_t)r->stage)
            return err_set(r->err, ERR_INVALID,
                           "%s: stage: allowed is %" PRIu32 " with --strategy "
                           "zero%" PRIu32,
                           r->path, r->stage, r->stage);
        return ERR_OK;
    case KEY_IGNORED:
        return ERR_OK;
    case KEY_OFFLOAD:
        return read_offload(r, key, value);
    case KEY_LEAVES:
        return read_leaves(r, value);
    case KEY_OBJECT:
        if (json_is_null(value) || (json_is_object(value) && json_object_size(value) == 0))
            return ERR_OK;
        return err_set(r->err, ERR_UNSUPPORTED, "%s: %s: %s", r->path, key->name, key->why);
    default:
        if (strcmp(name, "overlap_comm") == 0 && json_is_null(value))
            return ERR_OK;
        return read_number(r, key, value);
    }
}

enum err_code zero_read_json(const json_t *object, const char *path, uint32_t stage,
                             uint32_t hidden, struct zero_options *out, struct err *err)
{
    const struct reading reading = {path, stage, hidden, out, err};
    const json_t *inner = json_object_get(object, "zero_optimization");
    const char *name;
    json_t *value;
    if (!json_is_object(object) || (inner && !json_is_object(inner)))
        return err_set(err, ERR_INVALID, "%s: allowed is one object: zero_optimization", path);
    json_object_foreach((json_t *)(uintptr_t)(inner ? inner : object), name, value)
    {
        TRY(read_key(&reading, name, value));
    }
    return ERR_OK;
}

enum err_code zero_read(const char *path, uint32_t stage, uint32_t hidden, struct zero_options *out,
                        struct err *err)
{
    struct err found = {0};
    json_t *file = json_file_read(path, &found);
    if (!file)
        return err_set(err, found.code, "--zero: %s", found.text);
    const enum err_code rc = zero_read_json(file, path, stage, hidden, out, err);
    json_decref(file);
    return rc;
}

json_t *zero_passed_over(const char *path)
{
    struct err err = {0};
    json_t *file = json_file_read(path, &err), *names = NULL, *value;
    const char *name;
    if (!file)
        return NULL;
    names = json_array();
    json_object_foreach(file, name, value)
    {
        if (json_object_get(file, "zero_optimization") && strcmp(name, "zero_optimization") != 0)
            json_array_append_new(names, json_string(name));
    }
    json_decref(file);
    return names;
}

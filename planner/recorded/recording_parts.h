/* recording_parts.h - for this folder alone: a recording in memory. */
#ifndef SHARDPLAN_RECORDING_PARTS_H
#define SHARDPLAN_RECORDING_PARTS_H

#include "aten/aten_kernel.h"
#include "base/arena.h"
#include "recorded/recording.h"

#include <jansson.h>

/* What a call is beyond its cost, where autograd or a GPU do otherwise than the recording. */
enum op_kind_recorded {
    RECORDED_OTHER,
    RECORDED_NORM,                /* statistics are in fp32 on a GPU */
    RECORDED_GROUP_NORM_BACKWARD, /* dy, x ...: of dy as one piece */
    RECORDED_FLASH, /* forward: which library, and so what it keeps, is the GPU's choice */
    RECORDED_FLASH_BACKWARD,
    RECORDED_PUT,          /* autograd puts into its first operand where that is no subclass */
    RECORDED_SAFE_SOFTMAX, /* more than one kernel on real tensors */
    RECORDED_SCATTER,      /* x, mask, rows ... -> x with rows where the mask says */
    RECORDED_SELECT,       /* x, mask -> elements of x where the mask says */
};

struct recorded_op {
    const char *name; /* as the dispatcher has it: "mul.Tensor" */
    enum op_kind_recorded kind;
    uint16_t label, in_place_label; /* index of struct kernel_table's labels */
    uint16_t cudnn_label, efficient_label;
};

struct recorded_type { /* of a storage at birth */
    uint32_t op;
    enum dtype dtype;
    struct shape shape;
    uint64_t bytes;
};

struct recorded_call {
    uint32_t op, places;           /* storages that a step names with it */
    struct kernel kernel;          /* operands' places are numbers among these */
    const struct strides *strides; /* (ins + outs) */
    bool known;
};

struct recorded_variant {
    uint32_t batch;
    enum checkpointing checkpointing;
    bool input_nodes, module_hooks, root_casts;
    const bool *frozen; /* of each parameter, beyond what the model has frozen; NULL: none */
    const char *line;   /* of the file's text */
    size_t length;
    uint32_t number; /* of that line */
};

struct recording {
    struct arena arena; /* owns what is not owned below */
    char *path, *text;
    json_t *header;
    struct recording_info info;
    bool says_saved; /* of hooks on every module: what nodes save, and leaf modules */
    struct recorded_op *ops;
    struct recorded_type *types;
    struct recorded_call *calls;
    struct recorded_variant *variants;
    const char **labels;
    uint32_t op_count, type_count, call_count, variant_count, label_count;
};

/* Of a row [dtype, shape, strides (0: dense), position]; false: it is none. Shapes of more dims
 * than ours have the outer ones joined. */
bool recorded_shape(const json_t *sizes, struct shape *out);
bool recorded_dtype(const char *name, enum dtype *out);

/* The variant that was chosen, or ERR_INVALID with those that there are. */
enum err_code recording_choose(const struct recording *recording,
                               const struct recording_choice *choice,
                               const struct recorded_variant **out, struct err *err);

/* A variant's line as JSON. The caller owns it: json_decref. */
enum err_code recording_line(const struct recording *recording,
                             const struct recorded_variant *variant, json_t **out, struct err *err);

/* Which kernel calls of flash attention have as things are chosen: cuDNN's where it takes them all.
 */
enum attention_kernel recorded_attention(const struct recording *recording,
                                         const struct recording_choice *choice);

/* Reads the table "calls" of the header. */
enum err_code recording_read_calls(struct recording *recording, struct err *err);

#endif

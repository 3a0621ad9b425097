/* family.h - a model family is a row: for the files of this folder only.
 *
 * A family (a model_type of config.json) is one file, NAME.c, with one row of this struct: its
 * keys, the presets, the closed formula of its parameters, and a builder for each op sequence that
 * is written for it. The list of rows is ARCH_MAP in model/model.h. */
#ifndef SHARDPLAN_FAMILIES_FAMILY_H
#define SHARDPLAN_FAMILIES_FAMILY_H

#include "families/families.h"
#include "model/builder.h"
#include "model/keys.h"

struct preset_alias {
    const char *alias, *name;
};

struct family {
    const char *name;       /* model_type */
    const char *class_name; /* of transformers, what is planned; NULL: it is not there */
    const char *classifier; /* likewise, with --task sequence-classification; NULL: it is not there,
                               or not planned */
    const char *block_class; /* its blocks', by commas, where it is not DecoderLayer behind what
                                `class_name` begins with (families/blocks.h); NULL: it is */
    struct key_table keys;

    /* model_type of a class that has this model inside, which is planned without the rest; its file
     * may have these keys as its own. NULL: there is none. */
    const char *outer;
    /* What that class says in place of the model inside. None: a head is tied where either says so
     * (Qwen3-VL's model inside never does). */
    struct key_table outer_keys;

    /* model_type of what sees with it, where that is not its own less "_text": a note names it for
     * a preset's name that ends in "-text". NULL: it is. */
    const char *seeing;

    /* JSON: sizes that the class has where a file has none. They hold in a part of another model's
     * file, which is written without what is as the class has it; on its own a file without them is
     * more likely a mistake. NULL: they are asked for there, too. */
    const char *part_absent;

    /* A model_type of code that came with a checkpoint, whose architecture and keys are this
     * class's. NULL: there is none. */
    const char *kin;

    /* Each preset is the config.json that its authors published on Hugging Face; its count is
     * transformers' for the class named beside it (5.23, built on the meta device), each parameter
     * once: a head tied to the embedding adds nothing. The same count comes from three sides, and
     * tests hold them together: that number, `parameters`, and the graph of the builder. */
    const struct model_preset *presets;
    uint32_t preset_count;

    /* Names on Hugging Face that are not a preset's in another spelling, though their config.json
     * says the same, but for RoPE's numbers. */
    const struct preset_alias *aliases;
    uint32_t alias_count;

    bool traced;              /* what torch.compile makes of it as a whole in transformers' code is
                                 planned */
    bool uncompiled;          /* what torch.compile makes of its blocks was not recorded */
    bool encoder;             /* of BERT's kind: it looks both ways */
    bool heads_divide_hidden; /* even where head_dim is given: the config class insists */
    bool rope;                /* on whole heads; where on part of them, rotary_dim says it */
    const char *rope_absent;  /* JSON: RoPE's object where the file has none; NULL: an empty one */
    const char *rope_lacks;   /* JSON: what of it the class takes for given where it lacks that;
                                 NULL: nothing */
    bool woven_grids;         /* mrope_section says which of three grids turns a pair, and cuts
                                 nothing: any three numbers do */
    bool learned_positions;   /* a sequence may not be longer than max_positions */
    bool counted_positions;   /* ... less what is up to pad_token_id, which pads them, too */
    uint32_t padding;         /* pad_token_id + 1 where the file has none; 0: nothing pads */
    bool unpadded;            /* ... whatever the file has: its embedding takes no notice */

    /* Parameters, shared ones counted once, as transformers' modeling_*.py has them. In double:
     * the product of limits that are each sane does not fit 64 bits. */
    double (*parameters)(const struct model_config *config);

    /* Reads what no row of a table can say, once those are read; NULL: there is nothing. */
    enum err_code (*read)(const json_t *root, const char *where, struct model_config *config,
                          struct err *err);

    /* Fills fields that follow from several keys, once all are read; NULL: there are none. */
    void (*settle)(struct model_config *config);

    /* What must hold beyond the limits of single keys; NULL: nothing. */
    enum err_code (*check)(const struct key_table *keys, const struct model_config *config,
                           const char *where, struct err *err);

    const char *newer; /* what a transformers newer than is followed does otherwise, so that the
                          peak is another: a note of every plan; NULL: nothing */

    enum code code;                     /* by default; its builder is there */
    model_builder *builder[CODE_COUNT]; /* NULL: not written */
};
#define ALIASES(rows) .aliases = (rows), .alias_count = sizeof(rows) / sizeof *(rows)
#define PRESETS(rows) .presets = (rows), .preset_count = sizeof(rows) / sizeof *(rows)

#define X(arch, file) extern const struct family family_##file;
ARCH_MAP(X)
#undef X

/* The row of an architecture: lent. */
const struct family *family_of(enum arch arch);

/* Whether the job's code can be this model. ERR_UNSUPPORTED: the config asks for something that
 * this code does not compute, named with a way out. */
enum err_code build_check(const struct family *family, const struct model_config *config,
                          const struct model_job *job, struct err *err);

/* Of a loss that `who` puts in the place of transformers', and that reads the head itself:
 * ERR_UNSUPPORTED or ERR_INVALID with a sentence where the job has other code, something that is
 * not planned beside it, or sequences without a target. */
enum err_code head_loss_check(const struct model_job *job, const char *who, struct err *err);

/* ERR_INVALID: --loss of pairs, and sequences that make none. */
enum err_code pairs_check(const struct model_job *job, struct err *err);

#endif

/* dynamo.c - see dynamo.h. */
#include "frameworks/dynamo.h"

#include "families/families.h"
#include "frameworks/native_amp.h"

#include <string.h>
#include <strings.h>

static bool says(const struct node *node, const char *word)
{
    return node && node->text && strcasecmp(node->text, word) == 0;
}

static enum system_kind system_in(const struct import *im)
{
    return im->settings->job.strategy.system;
}

#define UNDER_ZERO3 "whose graphs the hooks that ZeRO-3 has on every module end there"

/* Why graphs of the model are not planned; NULL: they are, as far as the file says which it is. */
static const char *model_reason(struct import *im)
{
    const char *what = import_of_model(im, model_untraced);
    return what ? import_text(im, "which was not recorded with %s", what) : NULL;
}

/* Units whose hooks break the graph where it was not recorded (job.c says so of a command line,
 * too): modules by size, peft's own in checkpointed blocks. NULL: there are none. */
static const char *units_reason(struct import *im)
{
    static const char *const recorded[] = {"blocks", "torchtitan", "none"};
    const enum system_kind system = system_in(im);
    if (system != SYSTEM_FSDP1 && system != SYSTEM_FSDP2)
        return NULL;
    char buffer[NUMBER_TEXT];
    const char *units = import_value(im, "units", buffer);
    const bool within = units && strcmp(units, "peft") == 0; /* blocks */
    if (within && im->settings->job.tape.checkpointing != CHECKPOINTING_NONE)
        return "which was not recorded with --units peft in checkpointed blocks";
    for (size_t i = 0; units && i < sizeof recorded / sizeof *recorded; i++)
        if (within || strcmp(units, recorded[i]) == 0)
            return NULL;
    return units ? import_text(im, "which was not recorded with --units %s", units) : NULL;
}

/* Dropout that checkpointing computes again (compile.c). NULL: there is none, as far as the file
 * says. */
static const char *dropout_reason(const struct import *im)
{
    const struct job *job = &im->settings->job;
    return job->model.lora_dropout > 0 && job->tape.checkpointing != CHECKPOINTING_NONE
               ? "which was not recorded with dropout in checkpointed blocks"
               : NULL;
}

static const char *bits_reason(const struct import *im)
{
    const struct model_job *model = &im->settings->job.model;
    return model->bits4.kind ? "which was not recorded with weights in 4 bits"
           : model->bits8    ? "which was not recorded with weights in 8 bits"
                             : NULL;
}

/* Why the model cannot be planned as one that is compiled whole; NULL: it can. */
static const char *whole_reason(struct import *im)
{
    if (system_in(im) == SYSTEM_ZERO3)
        return UNDER_ZERO3;
    if (system_in(im) == SYSTEM_FSDP1 && native_amp_is(im, "fp16"))
        return "which was not recorded under autocast to fp16";
    if (dropout_reason(im))
        return dropout_reason(im);
    if (bits_reason(im))
        return bits_reason(im);
    const char *units = units_reason(im);
    return units ? units : model_reason(im);
}

static void list_otherwise(struct import *im, const struct dynamo *d)
{
    if (d->mode && !says(d->mode, "default"))
        import_list(im, d->mode, d->mode_path,
                    says(d->mode, "max-autotune-no-cudagraphs")
                        ? "kernels are chosen by measuring: planned as mode default chooses them"
                        : "CUDA graphs, which have memory of their own: planned as mode default");
    if (says(d->dynamic, "true"))
        import_list(im, d->dynamic, d->dynamic_path,
                    "graphs of symbolic shapes: planned with the batch's own");
}

/* utils/other.py: compile_regions, compile_regions_fsdp2, compile_regions_deepspeed: blocks and
 * whatever is beside them, each by itself, where attention has no mask. compile_regions calls a
 * FullyShardedDataParallel's __getattr__ before there is what that looks in, without end. */
static enum err_code set_regions(struct import *im, const struct key_row *row,
                                 const struct dynamo *d, struct err *err)
{
    const bool fails = system_in(im) == SYSTEM_FSDP1, split = system_in(im) == SYSTEM_DDP;
    const char *reason = fails                           ? "which accelerate 1.15 fails at"
                         : system_in(im) == SYSTEM_ZERO3 ? UNDER_ZERO3
                         : dropout_reason(im)            ? dropout_reason(im)
                         : bits_reason(im)               ? bits_reason(im)
                         : split                         ? model_reason(im)
                                                         : NULL;
    if (reason) {
        import_list(im, d->on, d->path,
                    import_text(im, "torch.compile of each block, %s: planned eager", reason));
        return ERR_OK;
    }
    import_list(im, d->on, d->path,
                "torch.compile of what is beside blocks, each by itself: planned eager");
    list_otherwise(im, d);
    return import_set(im, "compile", "on", row, d->on, err);
}

enum err_code dynamo_set(struct import *im, const struct key_row *row, const struct dynamo *d,
                         struct err *err)
{
    if (d->backend && !says(d->backend, "inductor")) {
        import_list(im, d->backend, d->backend_path,
                    "a backend of torch.compile that is not Inductor: planned eager");
        return ERR_OK;
    }
    if (d->regional)
        return set_regions(im, row, d, err);
    const char *reason = whole_reason(im);
    if (reason) {
        import_list(im, d->on, d->path,
                    import_text(im, "torch.compile of the whole model, %s: planned eager", reason));
        return ERR_OK;
    }
    list_otherwise(im, d);
    return import_set(im, "compile", "model", row, d->on, err);
}

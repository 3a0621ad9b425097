/* elsewhere.c - see elsewhere.h. Names of TrainingArguments, accelerate, torchtitan, DeepSpeed,
 * Megatron, axolotl and LLaMA-Factory, and what people call it in issues. */
#include "settings/elsewhere.h"

#include "base/names.h"

#include <stddef.h>
#include <string.h>

#define SYSTEMS "fsdp2, fsdp1, ddp, zero1, zero2, zero3 or single"
#define NOT_PLANNED(kind) kind " is not planned: --gpus are those that share the data"

static const struct {
    const char *names[10];
    const char *setting; /* NULL: `text` alone */
    const char *text;
} rows[] = {
    {{"batch", "batch-size", "bs", "local-batch-size", "micro-batch-size",
      "per-device-train-batch-size", "train-micro-batch-size-per-gpu", "per-gpu-batch-size"},
     "micro-batch",
     "sequences of a GPU and micro-batch"},
    {{"grad-accum", "gradient-accumulation", "gradient-accumulation-steps", "accumulation-steps"},
     "accumulate",
     "micro-batches of a step"},
    {{"context-length", "cutoff-len", "max-length", "max-seq-length", "seq-len", "seq-length",
      "sequence-len", "sequence-length", "block-size"},
     "seq",
     "tokens of a sequence"},
    {{"devices", "n-gpus", "ngpus", "nproc", "num-gpus", "num-processes", "world-size"},
     "gpus",
     "all of them"},
    {{"n-nodes", "nnodes", "nodes", "num-nodes", "num-machines"},
     "gpus",
     "all of them; --gpus-per-node says how many a node has"},
    {{"amp", "bf16", "dtype", "fp16", "mixed-precision", "mixed-precision-param", "precision",
      "torch-dtype"},
     "param-dtype",
     "what is computed in; --reduce-dtype and --store-dtype are settings of their own"},
    {{"activation-checkpoint", "activation-checkpointing", "gradient-checkpointing", "recompute"},
     "checkpointing",
     "none, full or selective"},
    {{"cpu-offload", "offload-params", "offload-optimizer"},
     "offload",
     "none or cpu; of DeepSpeed's also optimizer"},
    {{"optim", "optimizer-name"}, "optimizer", "adamw, sgd, adamw-8bit, ..."},
    {{"clip-grad", "gradient-clipping", "max-grad-norm", "max-norm"}, "clip", "MAXNORM or off"},
    {{"fsdp", "sharding-strategy", "stage", "zero-stage"}, "strategy", SYSTEMS},
    {{"ddp", "fsdp1", "fsdp2", "zero1", "zero2", "zero3", "zero-1", "zero-2", "zero-3"},
     "strategy",
     SYSTEMS},
    {{"data-parallel-replicate-degree", "dp-replicate", "hsdp"}, "replicate", "copies of a model"},
    {{"fsdp-reshard-after-forward", "reshard-after-forward"}, "reshard", "always, never or INT"},
    {{"auto-wrap-policy", "transformer-layer-cls-to-wrap", "wrap"}, "units", "what is a unit"},
    {{"attn", "attn-implementation", "flash-attention", "flash-attn"}, "attention", "the kernel"},
    {{"fp8", "fp8-recipe"}, "float8", "torchao's recipe"},
    {{"adapter", "lora-r", "lora-rank", "peft"}, "lora", "R or R,MODULE,..."},
    {{"adapter-dropout"}, "lora-dropout", "P"},
    {{"config", "config-file", "deepspeed", "deepspeed-config"},
     "from",
     "a file of torchtitan, accelerate, DeepSpeed, TrainingArguments, axolotl, "
     "LLaMA-Factory or TRL"},
    {{"bits", "bnb-4bit-quant-type", "qlora", "quantization", "quantization-bit",
      "quantization-type", "quantize"},
     "load-in-4bit",
     "nf4 or fp4, under the adapters of --lora"},
    {{"bnb-4bit-use-double-quant", "double-quant", "double-quantization", "use-bnb-nested-quant"},
     "bnb-double-quant",
     "on or off"},
    {{"bnb-4bit-compute-dtype"}, "bnb-compute-dtype", "what linear layers of 4 bits compute in"},
    {{"bnb-4bit-quant-storage"}, "bnb-quant-storage", "what weights of 4 bits are packed in"},
    {{"modules-to-not-convert", "skip-modules"},
     "llm-int8-skip-modules",
     "names of modules, by commas"},
    {{"int8", "llm-int8", "load-in-8-bit"}, "load-in-8bit", "on, under the adapters of --lora"},
    {{"tensor-model-parallel-size", "tensor-parallel", "tensor-parallel-degree",
      "tensor-parallel-size", "tp", "tp-size"},
     NULL,
     NOT_PLANNED("tensor parallelism")},
    {{"pipeline-model-parallel-size", "pipeline-parallel", "pipeline-parallel-degree", "pp"},
     NULL,
     NOT_PLANNED("pipeline parallelism")},
    {{"context-parallel", "context-parallel-degree", "context-parallel-size", "cp",
      "sequence-parallel", "sp"},
     NULL,
     NOT_PLANNED("context parallelism")},
    {{"ep", "expert-model-parallel-size", "expert-parallel", "expert-parallel-degree"},
     NULL,
     NOT_PLANNED("expert parallelism")},
};

const char *elsewhere_say(const char *name, const char **setting)
{
    *setting = NULL;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (const char *const *known = rows[i].names; *known; known++)
            if (names_alike(name, *known)) {
                *setting = rows[i].setting;
                return rows[i].text;
            }
    return NULL;
}

/* Optimizers of TrainingArguments (OptimizerNames), of axolotl, and what else people train with:
 * states of other sizes than those that are planned. */
static const char *const optimizers[] = {
    "8bit-adam",
    "adafactor",
    "adagrad",
    "adalomo",
    "adam-8bit",
    "adam-mini",
    "adamw-4bit",
    "adan",
    "ademamix",
    "ademamix-8bit",
    "anyprecision",
    "apollo",
    "apollo-adamw",
    "came",
    "came-pytorch",
    "dion",
    "galore",
    "galore-adamw",
    "galore-adamw-8bit",
    "grokadamw",
    "lamb",
    "lion",
    "lion-8bit",
    "lomo",
    "muon",
    "optimi-adamw",
    "paged-adamw",
    "paged-lion",
    "paged-lion-8bit",
    "prodigy",
    "rmsprop",
    "schedule-free",
    "shampoo",
    "soap",
    "sophia",
    "stable-adamw",
    "q-galore",
    "paged-ademamix-8bit",
};

static const struct {
    const char *setting;
    const char *const *values;
    size_t count;
    const char *planned;
} values[] = {
    {"optimizer", optimizers, sizeof optimizers / sizeof *optimizers,
     "AdamW's of torch, bitsandbytes and torchao and sgd are"},
};

const char *elsewhere_value(const char *setting, const char *text)
{
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        for (size_t k = 0; strcmp(values[i].setting, setting) == 0 && k < values[i].count; k++)
            if (names_alike(text, values[i].values[k]))
                return values[i].planned;
    return NULL;
}

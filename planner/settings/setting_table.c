/* setting_table.c - every setting of every command, once: those of a job are here, those of
 * commands alone in setting_table_commands.def.
 *
 * A new setting is a row here, and the field that its reader reads. Rows of one name stand for
 * different commands or systems. A default may be a word, a number, or left to the model. */
#include "job/reentrant.h"
#include "plan/repeat.h"
#include "settings/setting_names.h"
#include "settings/setting_rows.h"
#include "settings/setting_words.h"

static bool is_planned(int system)
{
    return system_is_planned((enum system_kind)system);
}

static bool frees_gathered(const struct settings *settings)
{
    return reentrant_frees_gathered(&settings->job);
}

/* ---- the table: a row that names no systems is for all ---- */

/* clang-format off */
static const struct setting rows[] = {
    {.name = "model", .positional = true, .kind = SETTING_TEXT, .group = GROUP_MODEL,
     .arg = "MODEL",
     .help = "a preset (shardplan models), a config.json or its folder, a recording "
             "(tools/record.py)", .field = FIELD(model), .names = &setting_models,
     .commands = FOR_MODEL, .numerics = true},
    {.name = "from", .kind = SETTING_TEXT, .group = GROUP_MODEL, .arg = "FILE",
     .help = "A configuration of torchtitan (TOML, Python), accelerate (YAML), DeepSpeed (JSON), "
             "axolotl, LLaMA-Factory or TRL (YAML), transformers' TrainingArguments (JSON, YAML), "
             "or what `shardplan export` wrote; options override it. Twice: accelerate's or DeepSpeed's and that of "
             "what it starts",
     .brief = "the settings of a framework's configuration file", .field = FIELD(from),
     .commands = FOR_MODEL},
    /* the system comes before what belongs to a system: settings_arguments keeps this order */
    {.name = "strategy", .group = GROUP_STRATEGY, .arg = "NAME", .help = "The sharding system",
     .brief = "sharding system: ddp, zero3, ...", .initial = "fsdp2",
     .field = FIELD(job.strategy.system), .words = setting_system_words, .offers = is_planned,
     .commands = FOR_JOB},
    {.name = "code", .group = GROUP_MODEL, .arg = "NAME",
     .help = "Whose implementation of the model runs",
     .absent = "torchtitan for the Llama family, nanogpt for gpt2, hf for the rest; recorded for "
               "recordings", .unset = CODE_COUNT, .field = FIELD(job.model.code),
     .words = WORDS(WORD("torchtitan", CODE_TORCHTITAN), WORD("nanogpt", CODE_NANOGPT),
                    WORD("hf", CODE_HF), WORD("recorded", CODE_RECORDED)), .commands = FOR_JOB},
    {.name = "task", .group = GROUP_MODEL, .arg = "NAME",
     .help = "What the model is a class for: its head and loss. sequence-classification: transformers' "
             "AutoModelForSequenceClassification", .initial = "language-model",
     .field = FIELD(job.model.task),
     .words = WORDS(WORD("language-model", TASK_LANGUAGE_MODEL),
                    WORD("sequence-classification", TASK_SEQUENCE_CLASSIFICATION)),
     .commands = FOR_JOB, .numerics = true},
    {.name = "num-labels", .group = GROUP_MODEL, .arg = "N",
     .help = "Labels of a sequence (num_labels), with --task sequence-classification",
     .absent = "as many as the config.json says, or 2",
     .numbers = {INTEGER(job.model.labels, 1, LABELS_MAX)}, .commands = FOR_JOB, .numerics = true},
    {.name = "problem-type", .group = GROUP_MODEL, .arg = "NAME",
     .help = "What they are (problem_type). auto: as the config.json says, or numbers where there is "
             "one, else one of them each", .initial = "auto", .field = FIELD(job.model.problem),
     .words = WORDS(WORD("auto", PROBLEM_AUTO), WORD("regression", PROBLEM_REGRESSION),
                    WORD("single_label_classification", PROBLEM_SINGLE_LABEL),
                    WORD("multi_label_classification", PROBLEM_MULTI_LABEL)),
     .commands = FOR_JOB, .numerics = true},
    {.name = "tower", .group = GROUP_MODEL, .arg = "HOW",
     .help = "What a model that sees or hears has besides text, its tower and what joins them, in transformers' code; batches "
             "are of text, which do not use it. bare: frozen, and without adapters, too; trained: it gets no gradient, "
             "with which ddp wants --find-unused-parameters and ZeRO is not planned; none: the text model alone", .initial = "frozen", .field = FIELD(job.model.tower),
     .words = WORDS(WORD("frozen", TOWER_FROZEN), WORD("bare", TOWER_BARE), WORD("trained", TOWER_TRAINED), WORD("none", TOWER_ABSENT)),
     .commands = FOR_JOB, .numerics = true},
    {.name = "sets-pad-token", .group = GROUP_MODEL, .arg = "off|on", .initial = "off",
     .help = "The script sets pad_token_id on the configuration of a model that classifies sequences, as "
             "TRL's trainer of rewards does: decoders without one take a sequence at a time",
     .field = FIELD(job.model.sets_pad_token), .words = OFF_ON, .commands = FOR_JOB, .numerics = true},
    {.name = "init", .group = GROUP_MODEL, .arg = "NAME",
     .help = "Initial parameters: test values, or drawn as that implementation draws them", .initial = "test",
     .field = FIELD(job.model.own_init), .words = WORDS(WORD("test", false), WORD("model", true)),
     .commands = COMMAND(PLAN), .numerics = true},

    /* ---- job ---- */
    {.name = "gpus", .group = GROUP_JOB, .arg = "N", .help = "GPUs of the job, all nodes together",
     .brief = "GPUs of the job, all nodes together", .initial = "8",
     .numbers = {INTEGER(job.strategy.world, 1, 1000000)}, .commands = FOR_JOB, .numerics = true},
    {.name = "rank", .group = GROUP_JOB, .arg = "R", .help = "The rank whose memory is shown",
     .initial = "0", .numbers = {INTEGER(job.strategy.rank, 0, 999999)}, .commands = FOR_JOB},
    {.name = "seq", .group = GROUP_JOB, .arg = "T", .help = "Tokens in a sequence",
     .brief = "tokens in a sequence; 8k is 8192",
     .absent = "2048, or all positions of the model if these are fewer",
     .numbers = {{NUMBER_INTEGER, 1, 16777216, NULL, FIELD(job.model.seq), .kilo = true}},
     .commands = FOR_JOB, .numerics = true},
    {.name = "micro-batch", .group = GROUP_JOB, .arg = "B",
     .help = "Sequences in a micro-batch of one GPU",
     .brief = "sequences in a micro-batch of one GPU", .initial = "1",
     .numbers = {INTEGER(job.model.batch, 1, 1048576)}, .commands = FOR_JOB, .numerics = true,
     .axis = "1,2,4,8,16,32,64"},
    {.name = "sample-tokens", .group = GROUP_JOB, .arg = "N",
     .help = "Tokens of the samples that sequences are joined of (packing, padding-free), each of "
             "which attends to itself alone. 0: a sequence is one", .initial = "0",
     .numbers = {{NUMBER_INTEGER, 0, 16777216, NULL, FIELD(job.model.sample_tokens), .kilo = true}},
     .commands = FOR_JOB, .numerics = true},
    {.name = "padding-tokens", .group = GROUP_JOB, .arg = "N",
     .help = "Tokens of a micro-batch that are padding, behind the ends of its sequences, and the "
             "mask that says so: the first is the longest, the others lack as many each. A "
             "search keeps the micro-batch then. Of pairs the first half of them are the chosen ones. "
             "0: the model is given no mask", .initial = "0",
     .numbers = {{NUMBER_INTEGER, 0, 16777216, NULL, FIELD(job.model.padding_tokens),
                  .kilo = true}}, .commands = FOR_JOB, .numerics = true},
    {.name = "prompt-tokens", .group = GROUP_JOB, .arg = "N",
     .help = "Tokens at the start of each sequence that have no label (-100): of a prompt. What finds "
             "log-probabilities of labels alone has so many less; --loss grpo has to be told", .initial = "0",
     .numbers = {{NUMBER_INTEGER, 0, 16777216, NULL, FIELD(job.model.prompt_tokens), .kilo = true}},
     .commands = FOR_JOB, .numerics = true},
    {.name = "accumulate", .group = GROUP_JOB, .arg = "A", .help = "Micro-batches in a step",
     .brief = "micro-batches in a step", .initial = "1",
     .numbers = {INTEGER(job.strategy.accumulate, 1, MICRO_BATCHES_MOST)}, .commands = FOR_JOB,
     .numerics = true, .axis = "1,2,4,8,16,32,64"},
    {.name = "accumulate-sync", .group = GROUP_JOB, .arg = "WHEN",
     .help = "Gradients are reduced after the last micro-batch of a step, or after each",
     .initial = "last", .field = FIELD(job.strategy.accumulate_sync),
     .words = WORDS(WORD("last", false), WORD("each", true)), .commands = FOR_JOB,
     .systems = FSDP | SYSTEM(DDP), .axis = AXIS_WORDS},

    /* ---- cluster ---- */
    {.name = "gpu", .kind = SETTING_NAME, .group = GROUP_CLUSTER, .arg = "NAME",
     .help = "A GPU that `shardplan gpus` lists", .brief = "a GPU of `shardplan gpus`",
     .initial = "h100-sxm", .field = FIELD(gpu), .names = &setting_gpus, .commands = FOR_JOB},
    {.name = "gpus-per-node", .group = GROUP_CLUSTER, .arg = "N",
     .help = "GPUs in a node, or in a rack whose links join them all: of nvl72, the usual node of gb200 "
             "and gb300, 64 or 72 where it is not given", .initial = "8", .numbers = {INTEGER(gpus_per_node, 1, 1024)}, .commands = FOR_JOB},
    {.name = "node", .kind = SETTING_NAME, .group = GROUP_CLUSTER, .arg = "NAME",
     .help = "A node type that `shardplan gpus` lists: links, NICs, host memory",
     .absent = "the usual one of the GPU", .field = FIELD(node), .names = &setting_nodes,
     .commands = FOR_JOB},
    {.name = "memory-of-others", .group = GROUP_CLUSTER, .arg = "SHARE", .initial = "0",
     .help = "Which share of a GPU's memory others on it hold, such as vLLM beside the trainer (vllm_mode colocate: "
             "vllm_gpu_memory_utilization): so much less is there",
     .numbers = {{NUMBER_REAL, 0, 0.99, "shares", FIELD(memory_of_others)}}, .commands = FOR_JOB},
    {.name = "host-memory", .group = GROUP_CLUSTER, .arg = "SIZE",
     .help = "Host memory that the job may use, such as 1TiB: what is offloaded has to fit there",
     .absent = "as the profile says, where it does",
     .numbers = {SIZE(host_memory, 0x1p20, 0x1p50)}, .commands = FOR_JOB},
    {.name = "profile", .kind = SETTING_TEXT, .group = GROUP_CLUSTER, .arg = "FILE",
     .help = "A hardware profile, written by `shardplan calibrate` or by hand, on top of --gpu "
             "and --node", .field = FIELD(profile), .commands = FOR_JOB},
    {.name = "clock", .group = GROUP_CLUSTER, .arg = "WHICH",
     .help = "The clock of the GPU. sustained: what it holds for hours at its power limit; burst: "
             "what it reaches for a short time", .initial = "sustained", .field = FIELD(clock), .words = CLOCKS,
     .commands = FOR_JOB},
    {.name = "expandable-segments", .group = GROUP_CLUSTER, .arg = "WHETHER",
     .help = "PYTORCH_ALLOC_CONF=expandable_segments:True", .initial = "off",
     .field = FIELD(expandable_segments), .words = OFF_ON, .commands = FOR_JOB, .axis = AXIS_WORDS,
     .allocator = true},

    /* ---- strategy ---- */
    {.name = "attention", .group = GROUP_STRATEGY, .arg = "KERNEL",
     .help = "The kernel of attention. auto: cudnn on Hopper and Blackwell since torch 2.11, with "
             "masks, too; else flash (FlashAttention-2); with a mask, in fp32 and on V100 efficient, "
             "there in bf16 math. What one does not take, the next does. math, eager: products and a "
             "softmax, as PyTorch or transformers writes them. flash-attn: the package, which "
             "transformers' flash_attention_2 calls without masks", .initial = "auto", .field = FIELD(attention), .words = setting_attention_words,
     .commands = FOR_JOB},
    {.name = "replicate", .group = GROUP_STRATEGY, .arg = "R",
     .help = "Replicas of HSDP: the mesh is R x GPUS/R", .initial = "1",
     .numbers = {INTEGER(job.strategy.replicate, 1, 1000000)}, .commands = FOR_JOB,
     .systems = FSDP, .lacks = "shards nothing", .lacking = WHOLE,
     .axis = "1,2,4,8,16,32,64,128,256,512"},
    {.name = "experts-replicate", .group = GROUP_FSDP2, .arg = "R",
     .help = "Experts of a mixture are units of their own, on a mesh with R replicas; 0: they "
             "belong to the unit of their block", .initial = "0",
     .numbers = {INTEGER(job.strategy.experts_replicate, 0, 1000000)}, .commands = FOR_JOB,
     .systems = SYSTEM(FSDP2), .lacks = "has no units of experts",
     .lacking = SYSTEM(FSDP1) | WHOLE | ZERO},
    {.name = "units", .group = GROUP_FSDP2, .arg = "UNITS",
     .help = "What is gathered at once. blocks: each block, and the rest; embeddings: those, too; torchtitan: "
             "as torchtitan wraps; a number: so many blocks; a size: blocks up to it", .initial = "blocks",
     .field = FIELD(job.strategy.units), .words = setting_units_words,
     .numbers = {{NUMBER_INTEGER, 1, 1e9, "numbers of blocks", FIELD(job.strategy.per_unit),
                  .word = UNITS_BLOCKS, .rest = 1},
                 {NUMBER_SIZE, 1, 1e15, "sizes such as 500MB,", FIELD(job.strategy.unit_bytes),
                  .word = UNITS_BYTES}}, .commands = FOR_JOB, .systems = SYSTEM(FSDP2),
     .lacks = "has no units", .lacking = WHOLE | ZERO, .axis = "blocks,2,4,torchtitan",
     .wide = "3,8,16,500MB,1GB,2GB"},
    {.name = "adapter-units", .group = GROUP_FSDP2, .arg = "WHETHER", .initial = "off", .words = OFF_ON,
     .help = "Each module of --lora's adapters is a unit within its block (LLaMA-Factory v1)",
     .field = FIELD(job.strategy.adapter_units), .commands = FOR_JOB,
     .systems = SYSTEM(FSDP2), .lacks = "has no such units", .lacking = SYSTEM(FSDP1) | WHOLE | ZERO},
    {.name = "reshard", .group = GROUP_FSDP2, .arg = "WHEN",
     .help = "reshard_after_forward. default: None; always: True; never: False; a number: that "
             "many ranks", .initial = "default",
     .field = FIELD(job.strategy.reshard),
     .words = WORDS(WORD("default", RESHARD_DEFAULT), WORD("always", RESHARD_ALWAYS),
                    WORD("never", RESHARD_NEVER)),
     .numbers = {{NUMBER_INTEGER, 1, 1e6, "numbers of ranks", FIELD(job.strategy.reshard_ranks),
                  .word = RESHARD_INT}}, .commands = FOR_JOB, .systems = SYSTEM(FSDP2),
     .lacks = "shards no parameters", .lacking = WHOLE | ZERO12, .axis = "default,always,never,8"},
    {.name = "keep-unsharded", .group = GROUP_FSDP2, .arg = "K",
     .help = "The last K units of blocks stay unsharded after forward, whatever --reshard says",
     .initial = "0", .numbers = {INTEGER(job.strategy.keep_last, 0, 100000)}, .commands = FOR_JOB,
     .systems = SYSTEM(FSDP2), .lacks = "has no units", .lacking = WHOLE | ZERO,
     .axis = "0,1,4,16", .wide = "2,8,32,64", .spends = true, .of_blocks = true},
    {.name = "keep-units", .kind = SETTING_TEXT, .group = GROUP_FSDP2, .arg = "NAMES",
     .help = "Units that stay unsharded after forward, too: those whose names begin with one of "
             "these, such as layers.0-2,layers.30 (ranges, globs)",
     .field = FIELD(job.strategy.keep_units), .commands = FOR_JOB, .systems = SYSTEM(FSDP2),
     .lacks = "has no units", .lacking = WHOLE | ZERO},
    {.name = "forward-prefetch", .group = GROUP_FSDP2, .arg = "N",
     .help = "Units that are prefetched explicitly in forward; 0: implicit prefetch",
     .initial = "0", .words = WORDS(ALSO("implicit", 0)),
     .numbers = {INTEGER(job.strategy.forward_prefetch, 0, 16)}, .commands = FOR_JOB,
     .systems = SYSTEM(FSDP2), .lacks = "gathers no parameters", .lacking = WHOLE | ZERO12,
     .axis = "0,1,2", .wide = "3,4", .spends = true, .ahead = true},
    {.name = "backward-prefetch", .group = GROUP_FSDP2, .arg = "N",
     .help = "Units that are prefetched explicitly in backward; 0: implicit prefetch, one ahead",
     .initial = "0", .words = WORDS(ALSO("implicit", 0)),
     .numbers = {INTEGER(job.strategy.backward_prefetch, 0, 16)}, .commands = FOR_JOB,
     .systems = SYSTEM(FSDP2), .lacks = "gathers no parameters", .lacking = WHOLE | ZERO12,
     .axis = "0,1,2", .wide = "3,4", .spends = true, .ahead = true},
    {.name = "param-dtype", .group = GROUP_STRATEGY, .arg = "DTYPE",
     .help = "param_dtype of mixed precision; same: no cast", .initial = "bf16",
     .field = FIELD(job.strategy.compute), .words = WORDS(DTYPES), .commands = FOR_JOB,
     .systems = FSDP | ZERO, .lacks = "computes in the stored dtype", .lacking = WHOLE,
     .numerics = true, .axis = "bf16,fp32"},
    {.name = "reduce-dtype", .group = GROUP_STRATEGY, .arg = "DTYPE",
     .help = "reduce_dtype of mixed precision; same: that of the gradients", .initial = "fp32",
     .field = FIELD(job.strategy.reduce), .words = WORDS(DTYPES), .commands = FOR_JOB,
     .systems = FSDP, .lacks = "reduces gradients in their own dtype", .lacking = WHOLE,
     .numerics = true, .axis = "bf16,fp32"},
    {.name = "store-dtype", .group = GROUP_STRATEGY, .arg = "DTYPE",
     .help = "Dtype of stored parameters and optimizer states", .initial = "fp32",
     .field = FIELD(job.strategy.store), .words = WORDS(STORED_DTYPES), .commands = FOR_JOB,
     .systems = FSDP | WHOLE, .lacks = "keeps a copy in fp32", .lacking = ZERO, .numerics = true,
     .axis = "bf16,fp32"},
    {.name = "checkpointing", .group = GROUP_STRATEGY, .arg = "WHAT",
     .help = "Activation checkpointing of blocks",
     .brief = "recomputation: none, full, selective", .initial = "none",
     .field = FIELD(job.tape.checkpointing),
     .words = WORDS(WORD("none", CHECKPOINTING_NONE), WORD("full", CHECKPOINTING_FULL),
                    WORD("selective", CHECKPOINTING_SELECTIVE)), .commands = FOR_JOB,
     .axis = AXIS_WORDS},
    {.name = "checkpoint-blocks", .group = GROUP_STRATEGY, .arg = "WHICH",
     .help = "The blocks that --checkpointing applies to: all, the first K or so many percent, or "
             "every K-th (torchtitan's selective_ac_option)", .initial = "all",
     .field = FIELD(job.tape.checkpointed), .words = WORDS(WORD("all", CHECKPOINTED_ALL)),
     .numbers = {{NUMBER_INTEGER, 1, 99999, NULL, FIELD(job.tape.checkpointed_number),
                  .word = CHECKPOINTED_FIRST, .before = "first-"},
                 {NUMBER_INTEGER, 1, 100, NULL, FIELD(job.tape.checkpointed_number),
                  .word = CHECKPOINTED_SHARE, .before = "first-", .after = "%"},
                 {NUMBER_INTEGER, 2, 99999, NULL, FIELD(job.tape.checkpointed_number),
                  .word = CHECKPOINTED_EVERY, .before = "every-"}}, .commands = FOR_JOB,
     .axis = "all,first-50%,first-75%", .wide = "first-25%,first-90%,every-2,every-3,every-4",
     .spends = true, .refines = "checkpointing"},
    {.name = "early-stop", .group = GROUP_STRATEGY, .arg = "WHETHER",
     .help = "Recomputation. on: it stops at the last tensor that backward needs, torch's "
             "default; off: it runs to the end of the block, as torchtitan has it", .initial = "on",
     .field = FIELD(job.tape.no_early_stop), .words = WORDS(WORD("on", false), WORD("off", true)),
     .commands = FOR_JOB},
    {.name = "checkpoint-reentrant", .group = GROUP_STRATEGY, .arg = "WHETHER",
     .help = "torch.utils.checkpoint's use_reentrant. on: a block's forward makes no graph, and its "
             "backward computes all of it again and runs a backward of its own, as transformers' "
             "Trainer had it by default; what blocks are called with needs a gradient "
             "(enable_input_require_grads)", .initial = "off", .field = FIELD(job.tape.reentrant),
     .words = OFF_ON, .commands = FOR_JOB, .wide = "off,on", .pays = frees_gathered},
    {.name = "input-grads", .group = GROUP_STRATEGY, .arg = "WHETHER", .initial = "off", .words = OFF_ON,
     .help = "What a frozen embedding returns needs a gradient, too (enable_input_require_grads)",
     .field = FIELD(job.model.input_grads), .commands = FOR_JOB},
    {.name = "activation-offloading", .group = GROUP_STRATEGY, .arg = "HOW",
     .help = "What nodes save waits on the host, as TRL's OffloadActivations has it. on: copied by "
             "a stream of its own; legacy: by the compute stream (axolotl's word); weights, "
             "legacy-weights: views of weights, too, as axolotl has it with adapters",
     .initial = "off",
     .brief = "saved activations on the host: on, legacy", .field = FIELD(job.tape.saved_on),
     .words = setting_saved_words, .commands = FOR_JOB, .systems = SYSTEM(FSDP2) | WHOLE,
     .lacks = "is not planned with it", .lacking = SYSTEM(FSDP1) | ZERO, .wide = "off,on"},
    {.name = "compile", .group = GROUP_STRATEGY, .arg = "WHETHER",
     .help = "torch.compile. on: each block by itself, with fullgraph and inside its wrapper, as "
             "torchtitan does (of its mixtures of experts what blocks call); model: the model as a whole, which the hooks of fsdp2 and fsdp1 "
             "break at blocks (--loss compiled brings the loss in, too)",
     .brief = "torch.compile: off, on, model", .initial = "off",
     .field = FIELD(job.tape.compiled),
     .words = WORDS(WORD("off", COMPILED_NOT), WORD("on", COMPILED_BLOCKS),
                    WORD("model", COMPILED_MODEL)), .commands = FOR_JOB,
     .systems = SYSTEM(FSDP2) | WHOLE | SYSTEM(FSDP1) | SYSTEM(ZERO1) |
                                     SYSTEM(ZERO2),
     .lacks = "is planned eager alone: Dynamo's graphs end at the hooks that DeepSpeed has on "
              "every module, which leaves it a norm, a product, RoPE with attention at a time: "
              "recorded, and not planned",
     .lacking = SYSTEM(ZERO3)},
    {.name = "optimizer", .group = GROUP_STRATEGY, .arg = "NAME",
     .help = "The optimizer: torch's AdamW or SGD; bitsandbytes' AdamW with states in 8 bits, and "
             "paged with 8 or 32; torchao's with states in 8 or 4 bits",
     .initial = "adamw", .field = FIELD(job.strategy.optimizer),
     .words = setting_optimizer_words, .commands = FOR_JOB, .numerics = true},
    {.name = "embedding-states", .group = GROUP_STRATEGY, .arg = "BITS",
     .help = "States of embeddings beside bitsandbytes' of 8 bits: 32, as transformers' Trainer "
             "registers them, or 8, as the library has them by itself",
     .initial = "32", .field = FIELD(job.strategy.coded_embeddings),
     .words = WORDS(WORD("32", false), WORD("8", true)), .commands = FOR_JOB, .numerics = true},
    {.name = "optimizer-impl", .group = GROUP_STRATEGY, .arg = "NAME",
     .help = "Implementation of the optimizer", .initial = "foreach",
     .field = FIELD(job.strategy.impl),
     .words = WORDS(WORD("foreach", IMPL_FOREACH), WORD("fused", IMPL_FUSED),
                    WORD("loop", IMPL_LOOP)), .commands = FOR_JOB, .axis = "foreach,fused",
     .wide = "loop"},
    {.name = "clip", .group = GROUP_STRATEGY, .arg = "MAXNORM",
     .help = "clip_grad_norm_ to this norm", .initial = "off", .words = WORDS(WORD("off", 0)),
     .numbers = {{NUMBER_REAL, 1e-9, 1e9, "norms", FIELD(job.strategy.max_norm), .word = 0}},
     .commands = FOR_JOB, .numerics = true},
    {.name = "offload", .group = GROUP_STRATEGY, .arg = "WHERE",
     .help = "Parameters, gradients and optimizer states live on the host: CPUOffloadPolicy, "
             "FSDP1's CPUOffload(offload_params=True)",
     .brief = "keep shards in host memory: none, cpu", .initial = "none",
     .field = FIELD(job.strategy.offload), .words = WORDS(WORD("none", false), WORD("cpu", true)),
     .commands = FOR_JOB, .systems = FSDP, .lacks = "has no such policy", .lacking = WHOLE,
     .axis = AXIS_WORDS},
    {.name = "placement", .group = GROUP_FSDP2, .arg = "DIM",
     .help = "shard_placement_fn: every parameter is sharded by rows, Shard(0), or matrices by "
             "columns, Shard(1)", .initial = "rows", .field = FIELD(job.strategy.columns),
     .words = WORDS(WORD("rows", false), WORD("columns", true)), .commands = FOR_JOB,
     .systems = SYSTEM(FSDP2)},
    {.name = "last-backward", .group = GROUP_FSDP2, .arg = "WHEN",
     .help = "set_is_last_backward(True) is called before each micro-batch, or before the last "
             "alone", .initial = "each", .field = FIELD(job.strategy.finalize_last),
     .words = EACH_LAST, .commands = FOR_JOB, .systems = SYSTEM(FSDP2)},
    {.name = "all-reduce", .group = GROUP_FSDP2, .arg = "WHEN",
     .help = "set_requires_all_reduce(True), over the replicas of HSDP: before each micro-batch, "
             "or before the last alone", .initial = "each",
     .field = FIELD(job.strategy.all_reduce_last), .words = EACH_LAST, .commands = FOR_JOB,
     .systems = SYSTEM(FSDP2)},
    {.name = "reshard-after-backward", .group = GROUP_FSDP2, .arg = "WHEN",
     .help = "set_reshard_after_backward(True): before each micro-batch, or before the last alone",
     .initial = "each", .field = FIELD(job.strategy.reshard_last), .words = EACH_LAST,
     .commands = FOR_JOB, .systems = SYSTEM(FSDP2), .wide = "each,last"},
    {.name = "reduce-buffers", .group = GROUP_FSDP2, .arg = "N",
     .help = "set_reduce_scatter_max_input_buffers: reductions that may be in flight",
     .initial = "1", .numbers = {INTEGER(job.strategy.reduce_buffers, 1, 1024)},
     .commands = FOR_JOB, .systems = SYSTEM(FSDP2)},
    {.name = "not-in-backward", .kind = SETTING_TEXT, .group = GROUP_FSDP2, .arg = "GLOBS",
     .help = "Modules with set_unshard_in_backward(False): globs, separated by commas", .commands = FOR_JOB,
     .field = FIELD(job.strategy.not_in_backward), .systems = SYSTEM(FSDP2)},
    {.name = "ignore", .kind = SETTING_TEXT, .group = GROUP_STRATEGY, .arg = "GLOBS",
     .help = "Parameters that are in no unit (ignored_params of fully_shard, ignored_states of "
             "FullyShardedDataParallel): each rank holds them whole, and their gradients are not "
             "reduced; globs, separated by commas", .field = FIELD(job.strategy.ignore), .commands = FOR_JOB,
     .systems = FSDP, .lacks = "wraps no modules", .lacking = WHOLE | ZERO, .numerics = true},
    {.name = "freeze", .kind = SETTING_TEXT, .group = GROUP_STRATEGY, .arg = "GLOBS", .field = FIELD(job.model.frozen),
     .help = "Parameters that are not trained: globs of their names, separated by commas", .commands = FOR_JOB, .numerics = true},
    {.name = "lora", .kind = SETTING_TEXT, .group = GROUP_STRATEGY, .arg = "RANK[,NAMES]",
     .help = "peft's low-rank adapters, which alone are trained: their rank, and the linear layers that get one: "
             "names, a regular expression of their paths as Python has them "
             "(16,.*\\.layers\\.[0-3]\\..*_proj), or all-linear",
     .brief = "train LoRA adapters alone, such as 16,all-linear", .field = FIELD(job.model.lora),
     .absent = "peft's own layers for the model type", .commands = FOR_JOB, .numerics = true},
    {.name = "lora-dropout", .group = GROUP_STRATEGY, .arg = "P",
     .help = "peft's lora_dropout: the share of an adapter's input that is dropped", .initial = "0",
     .numbers = {{NUMBER_REAL, 0, 0.999, "shares", FIELD(job.model.lora_dropout)}}, .commands = FOR_JOB, .numerics = true},
    {.name = "lora-kernels", .kind = SETTING_TEXT, .group = GROUP_STRATEGY, .arg = "NAMES",
     .help = "axolotl's kernels of adapters in the place of peft's layers, where all layers of one have adapters: by "
             "commas mlp, qkv, o (lora_mlp_kernel, lora_qkv_kernel, lora_o_kernel); off: none",
     .field = FIELD(job.model.lora_kernels), .commands = FOR_JOB, .systems = WHOLE | SYSTEM(FSDP2), .numerics = true,
     .lacking = SYSTEM(FSDP1) | ZERO, .lacks = "is planned with adapters' layers as peft has them"},
    {.name = "load-in-4bit", .group = GROUP_STRATEGY, .arg = "TYPE",
     .help = "Frozen weights of linear layers, all but the head, in 4 bits of bitsandbytes, beside --lora's "
             "adapters: load_in_4bit and bnb_4bit_quant_type of BitsAndBytesConfig",
     .brief = "QLoRA: frozen weights in nf4 or fp4", .initial = "none", .field = FIELD(job.model.bits4.kind),
     .words = WORDS(WORD("none", BITS4_NOT), WORD("nf4", BITS4_NF4), WORD("fp4", BITS4_FP4)),
     .commands = FOR_JOB, .systems = WHOLE | FSDP | ZERO, .numerics = true},
    {.name = "load-in-8bit", .group = GROUP_STRATEGY, .arg = "WHETHER",
     .help = "Frozen weights of linear layers, all but the head, in 8 bits of bitsandbytes "
             "(LLM.int8()), beside --lora's adapters: load_in_8bit of BitsAndBytesConfig",
     .brief = "frozen weights in bitsandbytes' int8", .initial = "off", .field = FIELD(job.model.bits8),
     .words = OFF_ON, .commands = FOR_JOB, .systems = WHOLE | ZERO12, .lacking = FSDP | SYSTEM(ZERO3), .numerics = true,
     .lacks = "is not planned with weights in 8 bits: a sharded weight has nothing of what Linear8bitLt "
              "asks its own for (\"'Parameter' object has no attribute 'CB'\"; under zero3 each layer keeps "
              "its whole one besides, so nothing is saved; --load-in-4bit is planned)"},
    {.name = "llm-int8-skip-modules", .kind = SETTING_TEXT, .group = GROUP_STRATEGY, .arg = "NAMES",
     .help = "Modules whose weights --load-in-4bit and --load-in-8bit leave as they are, in the "
             "place of the head: by commas, names that paths end with, or begin with",
     .absent = "the head", .field = FIELD(job.model.bits_skipped), .commands = FOR_JOB, .systems = WHOLE | FSDP | ZERO, .numerics = true},
    {.name = "quantize-moe-experts", .group = GROUP_STRATEGY, .arg = "WHETHER",
     .help = "axolotl's: experts' parameters beside --load-in-4bit are in 4 bits, too, and whole while their "
             "module runs (bitsandbytes' replace_parameter_4bit)", .initial = "off", .words = OFF_ON,
     .field = FIELD(job.model.bits4.experts), .commands = FOR_JOB, .systems = WHOLE, .numerics = true,
     .lacks = "is planned with experts as they are", .lacking = FSDP | ZERO},
    {.name = "kbit-cast-back", .kind = SETTING_TEXT, .group = GROUP_STRATEGY, .arg = "GLOBS",
     .help = "peft's prepare_model_for_kbit_training: beside few bits what is frozen is in fp32, but for parameters "
             "that are cast back: globs of their names, such as axolotl's *norm*,*embed*,*lm_head*",
     .field = FIELD(job.model.cast_back), .commands = FOR_JOB, .systems = WHOLE, .numerics = true},
    {.name = "bnb-double-quant", .group = GROUP_STRATEGY, .arg = "WHETHER",
     .help = "bnb_4bit_use_double_quant: the scales of --load-in-4bit are quantised to 8 bits, too",
     .initial = "off", .field = FIELD(job.model.bits4.twice), .words = OFF_ON, .commands = FOR_JOB,
     .systems = WHOLE | FSDP | ZERO, .numerics = true},
    {.name = "bnb-quant-storage", .group = GROUP_STRATEGY, .arg = "DTYPE",
     .help = "bnb_4bit_quant_storage: dtype of the tensors that weights in 4 bits are packed in; under fsdp2 "
             "and fsdp1 it has to be that of what else is gathered, under zero3 that or uint8",
     .initial = "uint8", .field = FIELD(job.model.bits4.storage),
     .with = "load-in-4bit",
     .words = WORDS(WORD("uint8", DTYPE_UINT8), STORED_DTYPES), .commands = FOR_JOB,
     .systems = WHOLE | FSDP | ZERO, .numerics = true},
    {.name = "bnb-compute-dtype", .group = GROUP_STRATEGY, .arg = "DTYPE",
     .help = "bnb_4bit_compute_dtype: dtype that layers in 4 bits cast their input to and compute in "
             "(BitsAndBytesConfig's own default is fp32)", .initial = "bf16", .words = WORDS(STORED_DTYPES),
     .with = "load-in-4bit", .field = FIELD(job.model.bits4.compute), .commands = FOR_JOB, .systems = WHOLE | FSDP | ZERO, .numerics = true},
    {.name = "float8", .group = GROUP_STRATEGY, .arg = "RECIPE",
     .help = "torchao's Float8Linear in the place of linear layers, all but the head, as torchtitan converts them: "
             "one scale a tensor, one a row, or one a row with the weight's gradient in --param-dtype",
     .initial = "none", .field = FIELD(job.model.float8),
     .words = WORDS(WORD("none", FLOAT8_NONE), WORD("tensorwise", FLOAT8_TENSORWISE),
                    WORD("rowwise", FLOAT8_ROWWISE), WORD("rowwise_with_gw_hp", FLOAT8_ROWWISE_GW_HP)),
     .commands = FOR_JOB, .systems = FSDP | WHOLE, .lacking = ZERO, .numerics = true,
     .lacks = "is planned with products in --param-dtype alone"},
    {.name = "float8-gather", .group = GROUP_FSDP2, .arg = "SCALES",
     .help = "With --float8 tensorwise, weights are cast before they are gathered, one byte an "
             "element (torchao's enable_fsdp_float8_all_gather): with scales that are found at "
             "each gather, or for all weights after the update", .initial = "off",
     .field = FIELD(job.model.float8_gather),
     .words = WORDS(WORD("off", FLOAT8_GATHER_NOT), WORD("dynamic", FLOAT8_GATHER_DYNAMIC),
                    WORD("precomputed", FLOAT8_GATHER_PRECOMPUTED)), .commands = FOR_JOB,
     .systems = SYSTEM(FSDP2), .numerics = true},
    {.name = "frozen-dtype", .group = GROUP_STRATEGY, .arg = "DTYPE",
     .help = "Dtype of parameters that are not trained: that of --store-dtype, that of "
             "--param-dtype where there is such an option, or 16 bits by name (a model loaded in "
             "them, with peft's adapters in fp32)", .initial = "store", .field = FIELD(frozen),
     .words = WORDS(WORD("store", FROZEN_STORED), WORD("param", FROZEN_COMPUTED), FROZEN_DTYPES),
     .commands = FOR_JOB, .systems = FSDP, .numerics = true, .axis = "store,param"},
    {.name = "frozen-dtype", .group = GROUP_STRATEGY, .arg = "DTYPE",
     .help = "Dtype of parameters that are not trained, which has to be that of all (--param-dtype)",
     .initial = "store", .field = FIELD(frozen),
     .words = WORDS(WORD("store", FROZEN_STORED), WORD("param", FROZEN_COMPUTED), FROZEN_DTYPES),
     .commands = FOR_JOB, .systems = ZERO, .numerics = true},
    {.name = "frozen-dtype", .group = GROUP_STRATEGY, .arg = "DTYPE",
     .help = "Dtype of parameters that are not trained: that of --store-dtype, or 16 bits by name",
     .initial = "store", .field = FIELD(frozen),
     .words = WORDS(WORD("store", FROZEN_STORED), FROZEN_DTYPES), .commands = FOR_JOB,
     .systems = WHOLE, .numerics = true, .axis = "store,bf16"},
    {.name = "autocast", .group = GROUP_STRATEGY, .arg = "DTYPE",
     .help = "torch.autocast around the forward pass", .initial = "none",
     .field = FIELD(job.model.autocast),
     .words = WORDS(WORD("none", false), WORD("bf16", true), ALSO("bfloat16", true)),
     .commands = FOR_JOB, .systems = WHOLE | SYSTEM(FSDP1), .lacks = "has --param-dtype for that",
     .lacking = SYSTEM(FSDP2) | ZERO, .numerics = true, .axis = AXIS_WORDS},

    {.name = "outputs", .group = GROUP_STRATEGY, .arg = "DTYPE",
     .help = "What the model's forward returns: unchanged, or cast to fp32, as accelerate does "
             "beside autocast", .initial = "same", .field = FIELD(job.model.outputs_fp32),
     .words = WORDS(WORD("same", false), WORD("fp32", true)), .commands = FOR_JOB,
     .systems = WHOLE | SYSTEM(FSDP1), .lacks = "is not called under autocast",
     .lacking = SYSTEM(FSDP2) | ZERO},

    {.name = "keep-outputs", .group = GROUP_STRATEGY, .arg = "UNTIL",
     .help = "How long the training script has a name for what the model returned, its logits. none: until the "
             "loss is known (the Trainer, torchtitan); backward: until backward has run (a function's local "
             "variable); next: until the next forward pass has returned (a loop's `outputs = model(**batch)`)",
     .initial = "none", .field = FIELD(job.model.outputs_kept), .words = setting_kept_words, .commands = FOR_JOB},

    {.name = "loss", .group = GROUP_STRATEGY, .arg = "NAME",
     .help = "Cross-entropy. eager: PyTorch's on logits cast to fp32; direct: on logits as they are; fused: a kernel "
             "that writes the gradient over the logits; chunked: eight chunks of tokens, each with its head and "
             "backward; compiled: PyTorch's under torch.compile, as torchtitan compiles it; liger: Liger's fused "
             "linear cross-entropy, chunks of tokens whose gradients forward makes; liger-cross-entropy: its kernel on "
             "logits cast to fp32; cut-cross-entropy: axolotl's, head and loss in one kernel; fused-lm-head: TRL's, a "
             "tile of logits at a time; per-token: LLaMA-Factory v1's, of two copies; per-token-liger: by Liger's kernel; "
             "dpo: TRL's of preferences, with the reference's forward (--micro-batch counts sequences, two a pair); "
             "grpo: TRL's of policies, on completions that were generated before (--prompt-tokens); reward: "
             "TRL's of rewards, of a model with one label (as dpo)",
     .initial = "eager", .field = FIELD(job.model.loss), .words = setting_loss_words, .commands = FOR_JOB,
     .numerics = true, .wide = "eager,direct,fused,chunked,compiled,liger,liger-cross-entropy,cut-cross-entropy,fused-lm-head,per-token,per-token-liger"},
    {.name = "precompute-ref-log-probs", .group = GROUP_STRATEGY, .arg = "off|on", .initial = "off",
     .help = "With --loss dpo: the reference's log-probabilities are columns of the batch (precompute_ref_log_probs)",
     .field = FIELD(job.model.precomputed), .words = OFF_ON, .commands = FOR_JOB, .numerics = true},
    {.name = "grpo-loss", .group = GROUP_STRATEGY, .arg = "TYPE", .initial = "dapo",
     .help = "With --loss grpo: its loss_type, which says by what the tokens' sum is divided; cispo: other weights, too",
     .field = FIELD(job.model.grpo.loss), .words = WORDS(WORD("dapo", GRPO_DAPO), WORD("grpo", GRPO_GRPO),
     WORD("bnpo", GRPO_BNPO), WORD("dr_grpo", GRPO_DR_GRPO), WORD("cispo", GRPO_CISPO)), .commands = FOR_JOB, .numerics = true},
    {.name = "grpo-beta", .group = GROUP_STRATEGY, .arg = "B", .initial = "0",
     .help = "With --loss grpo: beta, of the divergence from a reference, whose log-probabilities are a column of the batch",
     .numbers = {{NUMBER_REAL, 0, 1e6, "factors", FIELD(job.model.grpo.beta)}}, .commands = FOR_JOB, .numerics = true},
    {.name = "grpo-vllm", .group = GROUP_STRATEGY, .arg = "HOW", .initial = "off",
     .help = "With --loss grpo: vLLM's samples are corrected (vllm_importance_sampling_correction), by a ratio of each "
             "sequence or token (vllm_importance_sampling_mode: sequence_mask is TRL's): three more columns of the batch",
     .field = FIELD(job.model.grpo.vllm), .words = WORDS(WORD("off", GRPO_VLLM_OFF), WORD("sequence", GRPO_VLLM_SEQUENCE),
     WORD("token", GRPO_VLLM_TOKEN)), .commands = FOR_JOB, .numerics = true},
    {.name = "grpo-steps-per-generation", .group = GROUP_STRATEGY, .arg = "N", .initial = "0",
     .help = "With --loss grpo: micro-batches that are generated at once and stay until they were used. 0: those of a step",
     .numbers = {INTEGER(job.model.grpo.steps, 0, 65536)}, .commands = FOR_JOB, .numerics = true},
    {.name = "grpo-iterations", .group = GROUP_STRATEGY, .arg = "N", .initial = "1",
     .help = "With --loss grpo: how often what was generated is used (num_iterations); above 1 old log-probabilities are a column",
     .numbers = {INTEGER(job.model.grpo.iterations, 1, 65536)}, .commands = FOR_JOB, .numerics = true},
    {.name = "liger", .kind = SETTING_TEXT, .group = GROUP_STRATEGY, .arg = "KERNELS",
     .help = "Liger's kernels in the place of transformers' modules: all, or by commas rope, "
             "rms_norm and swiglu or geglu (glu: either); its fused linear cross-entropy is --loss liger",
     .field = FIELD(job.model.liger), .commands = FOR_JOB, .numerics = true},
    {.name = "torch", .group = GROUP_STRATEGY, .arg = "VERSION",
     .help = "The version of PyTorch: the latest patch release of it", .initial = "2.14",
     .field = FIELD(job.model.torch), .words = setting_torch_words, .commands = FOR_JOB},
    {.name = "autograd", .group = GROUP_STRATEGY, .arg = "HOW",
     .help = "Gradients are added in place, as on a GPU, or as recordings on fake tensors have "
             "them", .initial = "gpu", .field = FIELD(job.model.autograd),
     .words = WORDS(WORD("gpu", AUTOGRAD_GPU), WORD("recorded", AUTOGRAD_RECORDED)),
     .commands = FOR_JOB},

    /* ---- FullyShardedDataParallel ---- */
    {.name = "units", .group = GROUP_FSDP1, .arg = "UNITS",
     .help = "auto_wrap_policy. blocks: each block; none: the whole model is one unit; "
             "embeddings: each block and embedding; peft: each block and each trained module; a "
             "number: modules of at least so many parameters", .initial = "blocks", .field = FIELD(job.strategy.units),
     .words = WORDS(WORD("blocks", UNITS_BLOCKS), WORD("none", UNITS_NONE),
                    WORD("embeddings", UNITS_EMBEDDINGS), WORD("peft", UNITS_TRAINED),
                    ALSO("torchtitan", UNITS_EMBEDDINGS), ALSO("titan", UNITS_EMBEDDINGS)),
     .numbers = {{NUMBER_INTEGER, 1, UINT32_MAX, "numbers of parameters",
                  FIELD(job.strategy.unit_elements), .word = UNITS_ELEMENTS}}, .commands = FOR_JOB,
     .systems = SYSTEM(FSDP1), .axis = "blocks,none,embeddings"},
    {.name = "sharding", .group = GROUP_FSDP1, .arg = "STRATEGY", .help = "sharding_strategy",
     .initial = "FULL_SHARD", .field = FIELD(job.strategy.sharding),
     .words = WORDS(WORD("FULL_SHARD", SHARDING_FULL), WORD("SHARD_GRAD_OP", SHARDING_GRAD_OP),
                    WORD("NO_SHARD", SHARDING_NONE), WORD("HYBRID_SHARD", SHARDING_HYBRID),
                    WORD("_HYBRID_SHARD_ZERO2", SHARDING_HYBRID_ZERO2)), .commands = FOR_JOB,
     .systems = SYSTEM(FSDP1), .lacks = "has --reshard for that", .lacking = SYSTEM(FSDP2),
     .axis = AXIS_WORDS},
    {.name = "use-orig-params", .group = GROUP_FSDP1, .arg = "WHETHER", .help = "use_orig_params",
     .initial = "off", .field = FIELD(job.strategy.use_orig_params), .words = OFF_ON,
     .commands = FOR_JOB, .systems = SYSTEM(FSDP1), .axis = AXIS_WORDS},
    {.name = "limit-all-gathers", .group = GROUP_FSDP1, .arg = "WHETHER",
     .help = "limit_all_gathers: the host waits before it gathers a third unit", .initial = "on",
     .field = FIELD(job.strategy.unlimited_gathers),
     .words = WORDS(WORD("on", false), WORD("off", true)), .commands = FOR_JOB,
     .systems = SYSTEM(FSDP1), .lacks = "gathers no parameters", .lacking = WHOLE | ZERO12,
     .axis = AXIS_WORDS, .ahead = true},
    {.name = "keep-low-precision-grads", .group = GROUP_FSDP1, .arg = "WHETHER",
     .help = "MixedPrecision.keep_low_precision_grads", .initial = "off",
     .field = FIELD(job.strategy.keep_low_precision_grads), .words = OFF_ON, .commands = FOR_JOB,
     .systems = SYSTEM(FSDP1), .numerics = true, .axis = AXIS_WORDS},
    {.name = "backward-prefetch", .group = GROUP_FSDP1, .arg = "WHEN",
     .help = "backward_prefetch: the next unit is gathered before or after the gradients of this "
             "one", .initial = "pre", .field = FIELD(job.strategy.prefetch),
     .words = WORDS(WORD("pre", PREFETCH_PRE), WORD("post", PREFETCH_POST),
                    WORD("none", PREFETCH_NONE)), .commands = FOR_JOB, .systems = SYSTEM(FSDP1),
     .axis = "none,post,pre", .ahead = true},
    {.name = "forward-prefetch", .group = GROUP_FSDP1, .arg = "N",
     .help = "forward_prefetch: whether the next unit is gathered before this one computes",
     .initial = "0", .numbers = {INTEGER(job.strategy.forward_prefetch, 0, 1)},
     .commands = FOR_JOB, .systems = SYSTEM(FSDP1), .axis = "0,1", .ahead = true},

    /* ---- DistributedDataParallel ---- */
    {.name = "bucket-cap-mb", .group = GROUP_DDP, .arg = "MIB",
     .help = "bucket_cap_mb; default: None, which is 25, and 1 for the first bucket (a number "
             "holds for the first one, too)", .initial = "default",
     .words = WORDS(WORD("default", 0)),
     .numbers = {{NUMBER_REAL, 0.001, 1048576, "MiB", FIELD(job.strategy.bucket_cap_mb), .word = 0}},
     .commands = FOR_JOB, .systems = SYSTEM(DDP), .lacks = "has no buckets",
     .lacking = FSDP | SYSTEM(SINGLE), .axis = "1,5,default,50,100,200"},
    {.name = "gradient-as-bucket-view", .group = GROUP_DDP, .arg = "WHETHER",
     .help = "gradient_as_bucket_view", .initial = "off", .field = FIELD(job.strategy.bucket_view),
     .words = OFF_ON, .commands = FOR_JOB, .systems = SYSTEM(DDP), .lacks = "has no buckets",
     .lacking = FSDP | SYSTEM(SINGLE), .axis = AXIS_WORDS},
    {.name = "optimize-ddp", .group = GROUP_DDP, .arg = "WHETHER",
     .help = "torch._dynamo.config.optimize_ddp: what --compile compiles is split where buckets "
             "end (DDPOptimizer), so that they are reduced while the rest of backward runs",
     .initial = "on", .field = FIELD(job.tape.whole_graphs),
     .words = WORDS(WORD("on", false), WORD("off", true)), .commands = FOR_JOB,
     .systems = SYSTEM(DDP), .lacks = "has no buckets", .lacking = FSDP | SYSTEM(SINGLE)},
    {.name = "static-graph", .group = GROUP_DDP, .arg = "WHETHER", .help = "static_graph",
     .initial = "off", .field = FIELD(job.strategy.static_graph), .words = OFF_ON,
     .commands = FOR_JOB, .systems = SYSTEM(DDP), .axis = AXIS_WORDS},
    {.name = "find-unused-parameters", .group = GROUP_DDP, .arg = "WHETHER",
     .help = "find_unused_parameters: what the model returns is copied, and buckets stay as they "
             "were at first", .initial = "off", .field = FIELD(job.strategy.find_unused),
     .words = OFF_ON, .commands = FOR_JOB, .systems = SYSTEM(DDP)},
    {.name = "broadcast-buffers", .group = GROUP_DDP, .arg = "WHETHER",
     .help = "broadcast_buffers", .initial = "on", .field = FIELD(job.strategy.keep_buffers),
     .words = WORDS(WORD("off", true), WORD("on", false)), .commands = FOR_JOB,
     .systems = SYSTEM(DDP)},
    {.name = "zero-redundancy", .group = GROUP_DDP, .arg = "HOW",
     .help = "torch's ZeroRedundancyOptimizer around the optimizer: none, plain, or with "
             "parameters_as_bucket_view", .initial = "none",
     .field = FIELD(job.strategy.zero_redundancy),
     .words = WORDS(WORD("none", ZERO_REDUNDANCY_NONE), WORD("plain", ZERO_REDUNDANCY_PLAIN),
                    WORD("bucket_view", ZERO_REDUNDANCY_VIEW)), .commands = FOR_JOB,
     .systems = SYSTEM(DDP), .lacks = "shards states anyway", .lacking = FSDP,
     .wide = "none,plain,bucket_view"},
    {.name = "comm-hook", .group = GROUP_DDP, .arg = "NAME",
     .help = "The hook that register_comm_hook is given", .initial = "none",
     .field = FIELD(job.strategy.comm_hook),
     .words = WORDS(WORD("none", COMM_HOOK_NONE), WORD("allreduce", COMM_HOOK_ALLREDUCE),
                    WORD("bf16_compress", COMM_HOOK_BF16), WORD("fp16_compress", COMM_HOOK_FP16)),
     .commands = FOR_JOB, .systems = SYSTEM(DDP), .lacks = "has --reduce-dtype for that",
     .lacking = FSDP, .numerics = true, .axis = AXIS_WORDS},

    /* ---- DeepSpeed ZeRO ---- */
    {.name = "zero", .kind = SETTING_TEXT, .group = GROUP_ZERO, .arg = "FILE",
     .help = "DeepSpeed's own `zero_optimization` object, as JSON: {\"stage\": 3, "
             "\"overlap_comm\": false}; mixtures of experts whose blocks have to be leaf modules: "
             "{\"stage\": 3, \"leaf_module\": {\"classes\": [\"Qwen3NextSparseMoeBlock\"]}}",
     .absent = "DeepSpeed's defaults", .field = FIELD(zero), .commands = FOR_JOB, .systems = ZERO,
     .lacks = "has options of its own for that", .lacking = FSDP | WHOLE},
    {.name = "deepspeed", .group = GROUP_ZERO, .arg = "VERSION",
     .help = "The version of DeepSpeed whose keys and defaults --zero has, meaning its last patch "
             "release; what is allocated, and when, is known of 0.19.8 alone", .initial = "0.19",
     .field = FIELD(deepspeed),
     .words = WORDS(WORD("0.10", 1003), WORD("0.11", 1102), WORD("0.12", 1206), WORD("0.13", 1305),
                    WORD("0.14", 1405), WORD("0.15", 1504), WORD("0.16", 1609), WORD("0.17", 1706),
                    WORD("0.18", 1809), WORD("0.19.4", 1904), WORD("0.19.5", 1905),
                    WORD("0.19", ZERO_NEWEST), ALSO("0.19.8", ZERO_NEWEST)), .commands = FOR_JOB,
     .systems = ZERO, .lacks = "is not DeepSpeed's", .lacking = FSDP | WHOLE},
    {.name = "offload", .group = GROUP_ZERO, .arg = "WHERE",
     .help = "What lives on the host, where --zero does not say it. optimizer: offload_optimizer; "
             "cpu: offload_param, too, which stage 3 alone has; each with a device and nothing "
             "else", .initial = "none",
     .field = FIELD(zero_offload),
     .words = WORDS(WORD("none", ZERO_OFFLOAD_NONE), WORD("optimizer", ZERO_OFFLOAD_OPTIMIZER),
                    WORD("cpu", ZERO_OFFLOAD_ALL)), .commands = FOR_JOB, .systems = ZERO,
     .axis = AXIS_WORDS},
    {.name = "grad-accum-dtype", .group = GROUP_ZERO, .arg = "DTYPE",
     .help = "data_types.grad_accum_dtype: dtype in which a rank adds up gradients; same: that of "
             "the parameters", .initial = "same", .field = FIELD(job.strategy.grad_accum_fp32),
     .words = WORDS(WORD("same", false), WORD("fp32", true), ALSO("float32", true)),
     .commands = FOR_JOB, .systems = ZERO, .numerics = true, .axis = AXIS_WORDS},

#include "settings/setting_table_commands.def"
};
/* clang-format on */
#define ROWS (sizeof rows / sizeof rows[0])
_Static_assert(ROWS <= SETTINGS_MOST_ROWS, "struct settings has a bit for each row");

const struct setting *setting_rows(uint32_t *count)
{
    *count = ROWS;
    return rows;
}

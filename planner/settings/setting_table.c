/* setting_table.c - every setting of every command, once.
 *
 * A new setting is a row here, and the field that its reader reads. Rows of one name stand for
 * different commands or systems. A default may be a word, a number, or left to the model. */
#include "plan/repeat.h"
#include "settings/setting_names.h"
#include "settings/setting_rows.h"

static bool is_planned(int system)
{
    return system_is_planned((enum system_kind)system);
}

static const struct setting_word attention_words[] = {
#define X(name, word, what) WORD(word, ATTENTION_##name),
    ATTENTION_MAP(X)
#undef X
        {NULL, 0, false},
};

static const struct setting_word attention_to_run_words[] = {
#define X(name, word, what) WORD(word, ATTENTION_##name),
    ATTENTION_MAP(X)
#undef X
        WORD("own", ATTENTION_OWN),
    {NULL, 0, false},
};

/* As people have it from torch.__version__, too; but 2.5.0 preferred cuDNN's attention on Hopper,
 * which 2.5.1 took back (pytorch#138522). */
static const struct setting_word torch_words[] = {
#define VERSION(minor)                                                                             \
    WORD("2." #minor, minor), ALSO("2." #minor ".0", minor), ALSO("2." #minor ".1", minor)
    VERSION(4),       WORD("2.5", 5), ALSO("2.5.1", 5), VERSION(6),  VERSION(7),
    VERSION(8),       VERSION(9),     VERSION(10),      VERSION(11), VERSION(12),
    VERSION(13),      VERSION(14),    VERSION(15),
#undef VERSION
    {NULL, 0, false},
};
_Static_assert(TORCH_OLDEST == 4 && TORCH_NEWEST == 15, "the words of --torch");

static const struct setting_word system_words[] = {
#define X(name, text, of) WORD(text, SYSTEM_##name),
    SYSTEM_MAP(X)
#undef X
        ALSO("none", SYSTEM_SINGLE),
    {NULL, 0, false},
};

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
             "or what `shardplan export` wrote; options override it",
     .brief = "the settings of a framework's configuration file", .field = FIELD(from),
     .commands = FOR_MODEL},
    /* the system comes before what belongs to a system: settings_arguments keeps this order */
    {.name = "strategy", .group = GROUP_STRATEGY, .arg = "NAME", .help = "The sharding system",
     .brief = "sharding system: ddp, zero3, ...", .initial = "fsdp2",
     .field = FIELD(job.strategy.system), .words = system_words, .offers = is_planned,
     .commands = FOR_JOB},
    {.name = "code", .group = GROUP_MODEL, .arg = "NAME",
     .help = "Whose implementation of the model runs",
     .absent = "torchtitan for the Llama family, nanogpt for gpt2, hf for the rest; recorded for "
               "recordings", .unset = CODE_COUNT, .field = FIELD(job.model.code),
     .words = WORDS(WORD("torchtitan", CODE_TORCHTITAN), WORD("nanogpt", CODE_NANOGPT),
                    WORD("hf", CODE_HF), WORD("recorded", CODE_RECORDED)), .commands = FOR_JOB},
    {.name = "init", .group = GROUP_MODEL, .arg = "NAME",
     .help = "Initial parameters: test values, or drawn as that implementation draws them",
     .initial = "test", .field = FIELD(job.model.own_init),
     .words = WORDS(WORD("test", false), WORD("model", true)), .commands = COMMAND(PLAN),
     .numerics = true},

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
    {.name = "gpus-per-node", .group = GROUP_CLUSTER, .arg = "N", .help = "GPUs in a node",
     .initial = "8", .numbers = {INTEGER(gpus_per_node, 1, 1024)}, .commands = FOR_JOB},
    {.name = "node", .kind = SETTING_NAME, .group = GROUP_CLUSTER, .arg = "NAME",
     .help = "A node type that `shardplan gpus` lists: links, NICs, host memory",
     .absent = "the usual one of the GPU", .field = FIELD(node), .names = &setting_nodes,
     .commands = FOR_JOB},
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
     .help = "The kernel of attention. auto: cudnn on Hopper and Blackwell since torch 2.11, else "
             "flash (FlashAttention-2), in fp32 efficient. math and eager: no kernel of its own, "
             "but matrix products and a softmax, as PyTorch (sdpa_kernel) or as transformers "
             "writes them", .initial = "auto", .field = FIELD(attention), .words = attention_words,
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
     .help = "What is gathered at once. blocks: each block, and the rest; torchtitan: as "
             "torchtitan wraps; a number: so many blocks; a size: blocks up to it", .initial = "blocks",
     .field = FIELD(job.strategy.units),
     .words = WORDS(WORD("blocks", UNITS_BLOCKS), WORD("torchtitan", UNITS_TORCHTITAN)),
     .numbers = {{NUMBER_INTEGER, 1, 1e9, "numbers of blocks", FIELD(job.strategy.per_unit),
                  .word = UNITS_BLOCKS, .rest = 1},
                 {NUMBER_SIZE, 1, 1e15, "sizes such as 500MB,", FIELD(job.strategy.unit_bytes),
                  .word = UNITS_BYTES}}, .commands = FOR_JOB, .systems = SYSTEM(FSDP2),
     .lacks = "has no units", .lacking = WHOLE | ZERO, .axis = "blocks,2,4,torchtitan",
     .wide = "3,8,16,500MB,1GB,2GB"},
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
     .spends = true},
    {.name = "early-stop", .group = GROUP_STRATEGY, .arg = "WHETHER",
     .help = "Recomputation. on: it stops at the last tensor that backward needs, torch's "
             "default; off: it runs to the end of the block, as torchtitan has it", .initial = "on",
     .field = FIELD(job.tape.no_early_stop), .words = WORDS(WORD("on", false), WORD("off", true)),
     .commands = FOR_JOB},
    {.name = "compile", .group = GROUP_STRATEGY, .arg = "WHETHER",
     .help = "torch.compile. on: each block by itself, with fullgraph and inside its wrapper, as "
             "torchtitan does; model: the model as a whole, which the hooks of fsdp2 and fsdp1 "
             "break at blocks (--loss compiled brings the loss in, too)",
     .brief = "torch.compile: off, on, model", .initial = "off",
     .field = FIELD(job.tape.compiled),
     .words = WORDS(WORD("off", COMPILED_NOT), WORD("on", COMPILED_BLOCKS),
                    WORD("model", COMPILED_MODEL)), .commands = FOR_JOB,
     .systems = SYSTEM(FSDP2) | WHOLE | SYSTEM(FSDP1) | SYSTEM(ZERO1) |
                                     SYSTEM(ZERO2),
     .lacks = "is planned with eager blocks alone: Dynamo's graphs end at the hooks that "
              "DeepSpeed has on every module of a block, which leaves it single calls to compile",
     .lacking = SYSTEM(ZERO3)},
    {.name = "optimizer", .group = GROUP_STRATEGY, .arg = "NAME", .help = "The optimizer",
     .initial = "adamw", .field = FIELD(job.strategy.optimizer),
     .words = WORDS(WORD("adamw", OPTIMIZER_ADAMW), WORD("sgd", OPTIMIZER_SGD)),
     .commands = FOR_JOB, .numerics = true},
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
     .help = "Modules with set_unshard_in_backward(False): globs, separated by commas",
     .field = FIELD(job.strategy.not_in_backward), .commands = FOR_JOB, .systems = SYSTEM(FSDP2)},
    {.name = "ignore", .kind = SETTING_TEXT, .group = GROUP_STRATEGY, .arg = "GLOBS",
     .help = "Parameters that are in no unit (ignored_params of fully_shard, ignored_states of "
             "FullyShardedDataParallel): each rank holds them whole, and their gradients are not "
             "reduced; globs, separated by commas", .field = FIELD(job.strategy.ignore),
     .commands = FOR_JOB, .systems = FSDP, .lacks = "wraps no modules", .lacking = WHOLE | ZERO,
     .numerics = true},
    {.name = "freeze", .kind = SETTING_TEXT, .group = GROUP_STRATEGY, .arg = "GLOBS",
     .help = "Parameters that are not trained: globs of their names, separated by commas",
     .field = FIELD(job.model.frozen), .commands = FOR_JOB, .numerics = true},
    {.name = "lora", .kind = SETTING_TEXT, .group = GROUP_STRATEGY, .arg = "RANK[,NAMES]",
     .help = "peft's low-rank adapters, which alone are trained: their rank, and the linear "
             "layers that get one: names, a regular expression of their paths as Python has "
             "them (16,.*\\.layers\\.[0-3]\\..*_proj), or all-linear",
     .brief = "train LoRA adapters alone, such as 16,all-linear",
     .absent = "peft's own layers for the model type", .field = FIELD(job.model.lora),
     .commands = FOR_JOB, .numerics = true},
    {.name = "lora-dropout", .group = GROUP_STRATEGY, .arg = "P",
     .help = "peft's lora_dropout: the share of an adapter's input that is dropped",
     .initial = "0", .numbers = {{NUMBER_REAL, 0, 0.999, "shares", FIELD(job.model.lora_dropout)}},
     .commands = FOR_JOB, .numerics = true},
    {.name = "load-in-4bit", .group = GROUP_STRATEGY, .arg = "TYPE",
     .help = "Frozen weights of linear layers, all but the head, in 4 bits of bitsandbytes, "
             "beside --lora's adapters: load_in_4bit and bnb_4bit_quant_type of "
             "BitsAndBytesConfig", .brief = "QLoRA: frozen weights in nf4 or fp4",
     .initial = "none", .field = FIELD(job.model.bits4.kind),
     .words = WORDS(WORD("none", BITS4_NOT), WORD("nf4", BITS4_NF4), WORD("fp4", BITS4_FP4)),
     .commands = FOR_JOB, .systems = WHOLE | SYSTEM(FSDP2),
     .lacks = "is not planned with weights in 4 bits, of which no recording is there",
     .lacking = SYSTEM(FSDP1) | ZERO, .numerics = true},
    {.name = "bnb-double-quant", .group = GROUP_STRATEGY, .arg = "WHETHER",
     .help = "bnb_4bit_use_double_quant: the scales of --load-in-4bit are quantised to 8 bits, "
             "too", .initial = "off", .field = FIELD(job.model.bits4.twice), .words = OFF_ON,
     .commands = FOR_JOB, .systems = WHOLE | SYSTEM(FSDP2), .numerics = true},
    {.name = "bnb-quant-storage", .group = GROUP_STRATEGY, .arg = "DTYPE",
     .help = "bnb_4bit_quant_storage: dtype of the tensors that weights in 4 bits are packed in; "
             "under fsdp2 it has to be that of --param-dtype", .initial = "uint8",
     .field = FIELD(job.model.bits4.storage),
     .words = WORDS(WORD("uint8", DTYPE_UINT8), WORD("bf16", DTYPE_BF16), WORD("fp16", DTYPE_FP16),
                    WORD("fp32", DTYPE_FP32), ALSO("bfloat16", DTYPE_BF16), ALSO("float16", DTYPE_FP16),
                    ALSO("float32", DTYPE_FP32)), .commands = FOR_JOB,
     .systems = WHOLE | SYSTEM(FSDP2), .numerics = true},
    {.name = "bnb-compute-dtype", .group = GROUP_STRATEGY, .arg = "DTYPE",
     .help = "bnb_4bit_compute_dtype: dtype that layers in 4 bits cast their input to and compute "
             "in (BitsAndBytesConfig's own default is fp32)", .initial = "bf16",
     .field = FIELD(job.model.bits4.compute), .words = WORDS(STORED_DTYPES), .commands = FOR_JOB,
     .systems = WHOLE | SYSTEM(FSDP2), .numerics = true},
    {.name = "float8", .group = GROUP_STRATEGY, .arg = "RECIPE",
     .help = "torchao's Float8Linear in the place of linear layers, all but the head, as "
             "torchtitan converts them: one scale a tensor, one a row, or one a row with the "
             "weight's gradient in --param-dtype", .initial = "none",
     .field = FIELD(job.model.float8),
     .words = WORDS(WORD("none", FLOAT8_NONE), WORD("tensorwise", FLOAT8_TENSORWISE),
                    WORD("rowwise", FLOAT8_ROWWISE),
                    WORD("rowwise_with_gw_hp", FLOAT8_ROWWISE_GW_HP)), .commands = FOR_JOB,
     .systems = FSDP | WHOLE, .lacks = "is planned with products in --param-dtype alone",
     .lacking = ZERO, .numerics = true},
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
     .commands = FOR_JOB, .systems = FSDP, .lacks = "stores all parameters in one dtype",
     .lacking = ZERO, .numerics = true, .axis = "store,param"},
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
     .help = "How long the training script has a name for what the model returned, its logits. "
             "none: until the loss is known (the Trainer, torchtitan); backward: until backward "
             "has run (a function's local variable); next: until the next forward pass has "
             "returned (a loop's `outputs = model(**batch)`)", .initial = "none",
     .field = FIELD(job.model.outputs_kept),
     .words = WORDS(WORD("none", OUTPUTS_DROPPED), WORD("backward", OUTPUTS_UNTIL_BACKWARD),
                    WORD("next", OUTPUTS_UNTIL_NEXT)), .commands = FOR_JOB},

    {.name = "loss", .group = GROUP_STRATEGY, .arg = "NAME",
     .help = "Cross-entropy. eager: PyTorch's on logits cast to fp32; direct: on logits as they "
             "are; fused: a kernel that writes the gradient over the logits; chunked: eight "
             "chunks of tokens, each with its head and backward; compiled: PyTorch's under "
             "torch.compile, as torchtitan compiles it", .initial = "eager", .field = FIELD(job.model.loss),
     .words = WORDS(WORD("eager", CROSS_ENTROPY_EAGER), WORD("direct", CROSS_ENTROPY_DIRECT),
                    WORD("fused", CROSS_ENTROPY_FUSED), WORD("chunked", CROSS_ENTROPY_CHUNKED),
                    WORD("compiled", CROSS_ENTROPY_COMPILED)), .commands = FOR_JOB,
     .numerics = true, .wide = "eager,direct,fused,chunked,compiled"},
    {.name = "torch", .group = GROUP_STRATEGY, .arg = "VERSION",
     .help = "The version of PyTorch: the latest patch release of it", .initial = "2.14",
     .field = FIELD(job.model.torch), .words = torch_words, .commands = FOR_JOB},
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
     .help = "DeepSpeed's own `zero_optimization` object, as JSON",
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

    /* ---- a search ---- */
    {.name = "global-batch", .group = GROUP_SEARCH, .arg = "B",
     .help = "Sequences in a step, all GPUs together: micro-batch x accumulate x data-parallel "
             "GPUs", .brief = "sequences in a step, all GPUs together",
     .absent = "as --micro-batch and --accumulate say",
     .numbers = {INTEGER(tune.global_batch, 1, 1e9)}, .commands = COMMAND(TUNE), .numerics = true},
    {.name = "fix", .kind = SETTING_LIST, .group = GROUP_SEARCH, .arg = "NAME=VALUE",
     .help = "A setting that is not searched but has this value; --NAME VALUE says the same",
     .field = FIELD(tune.fix), .commands = COMMAND(TUNE)},
    {.name = "allow", .kind = SETTING_LIST, .group = GROUP_SEARCH, .arg = "NAME,...",
     .help = "Search this setting, too: one that is given, one that changes what is computed, "
             "such as store-dtype, or more values of one: units, checkpoint-blocks, loss, ...",
     .brief = "search this setting, too, such as store-dtype", .field = FIELD(tune.allow),
     .commands = COMMAND(TUNE)},
    {.name = "max-memory", .group = GROUP_SEARCH, .arg = "SIZE",
     .help = "GPU memory that the job may use, such as 70GiB",
     .brief = "GPU memory that the job may use, such as 70GiB", .absent = "all there is",
     .numbers = {SIZE(tune.max_memory, 0x1p20, 0x1p50)}, .commands = COMMAND(TUNE)},
    {.name = "headroom", .group = GROUP_SEARCH, .arg = "SIZE",
     .help = "GPU memory that has to stay free, such as 4GiB",
     .absent = "1.6 % of it, by which predictions of reserved memory have been off",
     .numbers = {SIZE(tune.headroom, 0, HEADROOM_MOST)}, .commands = COMMAND(TUNE)},

    /* ---- running a plan ---- */
    {.name = "plan", .positional = true, .kind = SETTING_TEXT, .group = GROUP_RUN,
     .arg = "PLAN.json", .help = "what `shardplan plan` wrote, or its folder",
     .field = FIELD(plan), .commands = FOR_RUN | COMMAND(COMPARE) | COMMAND(EXPORT)},
    {.name = "trace", .positional = true, .kind = SETTING_TEXT, .group = GROUP_RUN,
     .arg = "TRACE.json", .help = "what `shardplan run` wrote", .field = FIELD(trace),
     .commands = COMMAND(COMPARE)},
    {.name = "ranks", .key = 'n', .group = GROUP_RUN, .arg = "RANKS", .help = "Ranks to start",
     .brief = "ranks to start (default: those of the plan)",
     .absent = "as many as the plan is for, one for a rehearsal",
     .numbers = {INTEGER(run.ranks, 1, 4096)}, .commands = COMMAND(RUN)},
    {.name = "device", .group = GROUP_RUN, .arg = "NAME", .help = "Where the ranks run",
     .brief = "where the ranks run: host, cuda", .initial = "host", .field = FIELD(cuda),
     .words = WORDS(WORD("host", false), WORD("cuda", true)),
     .commands = FOR_RUN | COMMAND(CALIBRATE)},
    {.name = "fuse", .group = GROUP_RUN, .arg = "WHETHER",
     .help = "Run chains of kernels as one: the same bits in the same memory", .initial = "on",
     .field = FIELD(run.fuse), .words = WORDS(WORD("on", true), WORD("off", false)),
     .commands = FOR_RUN},
    {.name = "steps", .group = GROUP_RUN, .arg = "N", .help = "Training steps",
     .brief = "training steps", .initial = "3", .numbers = {INTEGER(run.steps, 1, 1000000000)},
     .commands = FOR_RUN},
    {.name = "data", .kind = SETTING_TEXT, .group = GROUP_RUN, .arg = "FILE",
     .help = "A file of tokens to train on", .brief = "a file of tokens to train on",
     .absent = "tokens from a generator", .field = FIELD(run.data), .commands = FOR_RUN},
    {.name = "tokens", .group = GROUP_RUN, .arg = "KIND",
     .help = "What a token is in --data's file", .initial = "bytes",
     .field = FIELD(run.token_bytes),
     .words = WORDS(WORD("bytes", 1), WORD("uint16", 2), WORD("uint32", 4)), .commands = FOR_RUN},
    {.name = "memory", .group = GROUP_RUN, .arg = "SIZE",
     .help = "Device memory of a rank, such as 4GiB",
     .absent = "64GiB on the host, on a GPU what it has",
     .numbers = {SIZE(run.memory_bytes, 1, 0x1p50)}, .commands = FOR_RUN},
    {.name = "force", .kind = SETTING_FLAG, .group = GROUP_RUN,
     .help = "Start the ranks even if this machine has too little memory for them",
     .field = FIELD(run.force), .commands = COMMAND(RUN)},
    {.name = "timeout", .group = GROUP_RUN, .arg = "SECONDS",
     .help = "Seconds that a collective may take before the run is ended", .initial = "60",
     .numbers = {REAL(run.timeout_s, 0, 1e7)}, .commands = FOR_RUN},
    {.name = "lr", .group = GROUP_OPTIMIZER, .arg = "X", .help = "Learning rate",
     .brief = "learning rate", .initial = "0.001", .numbers = {REAL(run.lr, 0, 1e38)},
     .commands = FOR_RUN, .numerics = true},
    {.name = "beta1", .group = GROUP_OPTIMIZER, .arg = "X", .help = "beta1 of AdamW",
     .initial = "0.9", .numbers = {REAL(run.beta1, 0, 0.9999999)}, .commands = FOR_RUN,
     .numerics = true},
    {.name = "beta2", .group = GROUP_OPTIMIZER, .arg = "X", .help = "beta2 of AdamW",
     .initial = "0.95", .numbers = {REAL(run.beta2, 0, 0.9999999)}, .commands = FOR_RUN,
     .numerics = true},
    {.name = "eps", .group = GROUP_OPTIMIZER, .arg = "X", .help = "eps of AdamW",
     .initial = "1e-08", .numbers = {REAL(run.eps, 0, 1)}, .commands = FOR_RUN, .numerics = true},
    {.name = "weight-decay", .group = GROUP_OPTIMIZER, .arg = "X",
     .help = "Weight decay of AdamW and SGD", .initial = "0.1",
     .numbers = {REAL(run.weight_decay, 0, 1e6)}, .commands = FOR_RUN, .numerics = true},
    {.name = "load", .kind = SETTING_TEXT, .group = GROUP_CHECKPOINT, .arg = "DIR",
     .help = "Continue from a sharded checkpoint", .field = FIELD(run.load), .commands = FOR_RUN},
    {.name = "save", .kind = SETTING_TEXT, .group = GROUP_CHECKPOINT, .arg = "DIR",
     .help = "Write a sharded checkpoint after the last step", .field = FIELD(run.save),
     .commands = FOR_RUN},
    {.name = "load-full", .kind = SETTING_TEXT, .group = GROUP_CHECKPOINT, .arg = "FILE",
     .help = "Initial parameters from a safetensors file", .field = FIELD(run.load_full),
     .commands = FOR_RUN},
    {.name = "save-full", .kind = SETTING_TEXT, .group = GROUP_CHECKPOINT, .arg = "FILE",
     .help = "Write all parameters to one safetensors file", .field = FIELD(run.save_full),
     .commands = FOR_RUN},
    {.name = "rehearse", .kind = SETTING_PART, .group = GROUP_REHEARSAL, .arg = "RANK/WORLD",
     .help = "One process plays one rank of a plan for WORLD ranks: collectives with absent peers "
             "are local copies that take the predicted time", .field = FIELD(run.rehearse_rank),
     .numbers = {INTEGER(run.rehearse_world, 1, 1000000)}, .commands = FOR_RUN},
    {.name = "kernels", .group = GROUP_REHEARSAL, .arg = "WHICH",
     .help = "real: kernels compute; waits: each takes its predicted time and computes nothing, "
             "while memory, copies and collectives are real; auto: real, but waits in a rehearsal "
             "of a plan that the device lacks kernels for", .initial = "auto",
     .field = FIELD(run.kernels),
     .words = WORDS(WORD("auto", RUN_KERNELS_AUTO), WORD("real", RUN_KERNELS_REAL),
                    WORD("waits", RUN_KERNELS_WAITS)), .commands = FOR_RUN},
    {.name = "predicted", .kind = SETTING_TEXT, .group = GROUP_REHEARSAL, .arg = "FILE",
     .help = "A trace with the times of a rehearsal", .absent = "those in the plan",
     .field = FIELD(run.predicted), .commands = FOR_RUN},
    {.name = "share-gpu", .kind = SETTING_FLAG, .group = GROUP_CUDA,
     .help = "Several ranks may share a GPU: to check results only, as times mean nothing then",
     .field = FIELD(run.share_gpu), .commands = FOR_RUN},
    {.name = "register-buffers", .kind = SETTING_FLAG, .group = GROUP_CUDA,
     .help = "Register memory with NCCL, so that it makes no copies of its own (ncclMemAlloc, "
             "ncclCommRegister)", .field = FIELD(run.register_buffers), .commands = FOR_RUN},
    {.name = "attention", .group = GROUP_CUDA, .arg = "KERNEL",
     .help = "The kernel of attention. auto: cudnn where it takes the shape, else own, which is "
             "slow; cudnn: that one or none", .initial = "auto", .field = FIELD(run.attention),
     .words = attention_to_run_words, .commands = FOR_RUN},
    {.name = "deterministic", .kind = SETTING_FLAG, .group = GROUP_CUDA,
     .help = "The same bits every time: cudnn's deterministic backward, which is slower and takes "
             "memory that no plan counts, or --attention own; matrix products are not measured",
     .field = FIELD(run.deterministic), .commands = FOR_RUN},

    {.name = "products", .kind = SETTING_TEXT, .group = GROUP_CUDA, .arg = "FILE",
     .help = "A file with the cuBLASLt kernel of each matrix product, so that other runs take the "
             "same; what it lacks is measured before the first step and added",
     .field = FIELD(run.products), .commands = FOR_RUN},

    /* ---- tables of kernels ---- */
    {.name = "table", .positional = true, .kind = SETTING_TEXT, .group = GROUP_MEASURE,
     .arg = "FILE.csv", .help = "a table of kernels, one a row", .field = FIELD(table),
     .commands = COMMAND(KERNELS)},
    {.name = "gpu", .kind = SETTING_NAME, .group = GROUP_MEASURE, .arg = "NAME",
     .help = "A GPU that `shardplan gpus` lists", .absent = "the column gpu of each row",
     .field = FIELD(gpu), .names = &setting_gpus, .commands = COMMAND(KERNELS)},
    {.name = "clock", .group = GROUP_MEASURE, .arg = "WHICH",
     .help = "The clock of the GPU. sustained: what it holds for hours at its power limit; burst: "
             "what it reaches for a short time, as in most benchmarks", .initial = "sustained", .field = FIELD(clock),
     .words = CLOCKS, .commands = COMMAND(KERNELS)},

    /* ---- measuring and comparing ---- */
    {.name = "ranks", .key = 'n', .group = GROUP_MEASURE, .arg = "RANKS",
     .help = "Ranks that run together; with --from-nccl-tests, the ranks of files that do not say",
     .absent = "2", .numbers = {INTEGER(calibrate.ranks, 1, 64)}, .commands = COMMAND(CALIBRATE)},
    {.name = "gpu", .kind = SETTING_NAME, .group = GROUP_MEASURE, .arg = "NAME",
     .help = "The built-in GPU for what is not measured (cuda needs one; host writes every "
             "number)", .field = FIELD(gpu), .names = &setting_gpus,
     .commands = COMMAND(CALIBRATE)},
    {.name = "largest", .group = GROUP_MEASURE, .arg = "MIB",
     .help = "Size of the largest collective",
     .absent = "64 on host, 1024 on cuda, 1 with --quick",
     .numbers = {INTEGER(calibrate.largest_mib, 1, 65536)}, .commands = COMMAND(CALIBRATE)},
    {.name = "quick", .kind = SETTING_FLAG, .group = GROUP_MEASURE,
     .help = "A few small sizes only: takes seconds, and is less accurate",
     .field = FIELD(calibrate.quick), .commands = COMMAND(CALIBRATE)},
    {.name = "from-nccl-tests", .kind = SETTING_LIST, .group = GROUP_MEASURE, .arg = "FILE",
     .help = "Measure nothing: take collectives from what nccl-tests printed, or wrote as JSON "
             "(up to 16 files)", .field = FIELD(calibrate.nccl), .commands = COMMAND(CALIBRATE)},
    {.name = "profile", .kind = SETTING_TEXT, .group = GROUP_MEASURE, .arg = "FILE",
     .help = "The profile that the measurements are put into", .absent = "a new one",
     .field = FIELD(profile), .commands = COMMAND(CALIBRATE)},
    {.name = "tolerance", .group = GROUP_MEASURE, .arg = "PERCENT",
     .help = "Fail if the predicted step time is off by more than this",
     .absent = "time is not checked",
     .numbers = {{NUMBER_REAL, 0, 1e6, "percentages", FIELD(tolerance_percent), .word = 0}},
     .commands = COMMAND(COMPARE)},

    {.name = "to", .group = GROUP_OUTPUT, .arg = "NAME", .help = "The framework",
     .initial = "fsdp2", .field = FIELD(to), .words = TARGETS, .commands = COMMAND(EXPORT)},
    {.name = "to", .group = GROUP_OUTPUT, .arg = "NAME",
     .help = "Search only what this framework can say, and write the choice as its configuration, "
             "too, as `shardplan export` does, into the folder of -o",
     .brief = "search what this framework can say, and write it", .unset = EXPORT_NONE,
     .field = FIELD(to), .words = TARGETS, .commands = COMMAND(TUNE)},

    /* ---- questions ---- */
    {.name = "a", .positional = true, .kind = SETTING_TEXT, .group = GROUP_MODEL, .arg = "A",
     .help = "a plan.json or its folder, or a model as of the other commands", .field = FIELD(a),
     .names = &setting_models, .commands = COMMAND(DIFF)},
    {.name = "b", .positional = true, .kind = SETTING_TEXT, .group = GROUP_MODEL, .arg = "B",
     .help = "the same, or changes to A such as reshard=never,micro-batch=2", .field = FIELD(b),
     .commands = COMMAND(DIFF)},
    {.name = "over", .kind = SETTING_LIST, .group = GROUP_SWEEP, .arg = "AXIS",
     .help = "A setting and its values: NAME=V,V,...; NAME=1..8; NAME=1024..8192+1024; "
             "NAME=8..64x2; NAME alone (its usual values); profile.KEY=x0.5,x1. Given once or "
             "twice", .brief = "a setting and its values: seq=2k,4k or gpus=8..64x2",
     .field = FIELD(sweep.over), .commands = COMMAND(SWEEP)},
    {.name = "largest", .kind = SETTING_TEXT, .group = GROUP_SWEEP, .arg = "AXIS",
     .help = "Find the largest value that fits of an integer setting: of all values, or of those "
             "given", .brief = "find the largest value that fits, such as micro-batch",
     .field = FIELD(sweep.largest), .commands = COMMAND(SWEEP)},
    {.name = "fewest", .kind = SETTING_TEXT, .group = GROUP_SWEEP, .arg = "AXIS",
     .help = "Find the smallest value that fits of a setting that saves memory as it grows, such "
             "as gpus", .brief = "find the smallest value that fits, such as gpus",
     .field = FIELD(sweep.fewest), .commands = COMMAND(SWEEP)},
    {.name = "show", .group = GROUP_SWEEP, .arg = "WHAT",
     .help = "What heat maps, bars and the picture show", .initial = "tokens",
     .field = FIELD(sweep.show),
     .words = WORDS(WORD("tokens", MEASURE_TOKENS), WORD("step", MEASURE_STEP),
                    WORD("mfu", MEASURE_MFU), WORD("exposed", MEASURE_EXPOSED),
                    WORD("device", MEASURE_DEVICE), WORD("reserved", MEASURE_RESERVED),
                    WORD("requested", MEASURE_REQUESTED)), .commands = COMMAND(SWEEP)},

    /* ---- output ---- */
    {.name = "events", .kind = SETTING_TEXT, .group = GROUP_OUTPUT, .arg = "FILE",
     .help = "Write every allocation and free, one JSON array a line (those of the host are "
             "marked \" host\" or \" pinned\" where the peak is the GPU's)",
     .field = FIELD(events), .commands = COMMAND(FIT)},
    {.name = "time", .kind = SETTING_FLAG, .group = GROUP_OUTPUT,
     .help = "Also the time of the step and what it is spent on, with the range of 90 in 100 "
             "draws of the profile's numbers within their spreads; `plan` says it anyway",
     .brief = "also print the time of the step", .field = FIELD(time),
     .commands = COMMAND(FIT) | COMMAND(PLAN)},
    {.name = "explain", .kind = SETTING_FLAG, .group = GROUP_OUTPUT,
     .help = "Also where the time comes from: the largest kernels, the numbers of the profile "
             "that they rest on, and what 10 % on each would change", .field = FIELD(explain),
     .commands = COMMAND(FIT) | COMMAND(PLAN)},
    {.name = "no-files", .kind = SETTING_FLAG, .group = GROUP_OUTPUT,
     .help = "Write no files, only what is printed", .field = FIELD(no_files),
     .commands = COMMAND(PLAN)},
    {.name = "goodput", .kind = SETTING_FLAG, .group = GROUP_OUTPUT,
     .help = "Also a long run: failures, the best checkpoint interval, and the share of time that "
             "is left for training", .field = FIELD(goodput), .commands = COMMAND(PLAN)},
    {.name = "start-up", .kind = SETTING_FLAG, .group = GROUP_OUTPUT,
     .help = "Also ways to initialise the model and to save it: memory of the GPU and of the "
             "host, bytes of storage, time", .field = FIELD(start_up),
     .commands = COMMAND(FIT) | COMMAND(PLAN)},
    {.name = "output", .key = 'o', .kind = SETTING_TEXT, .group = GROUP_OUTPUT, .arg = "DIR",
     .help = "Folder for plan.json, trace.json, snapshot.pickle, report.html; if it is given, "
             "also for memory.svg, memory-time.svg and timeline.svg",
     .brief = "folder for what is written", .initial = "plan", .field = FIELD(output),
     .commands = COMMAND(PLAN)},
    {.name = "output", .key = 'o', .kind = SETTING_TEXT, .group = GROUP_OUTPUT, .arg = "DIR",
     .help = "Folder for tune.json, pareto.svg, and what `shardplan plan` writes, of the best "
             "settings", .brief = "folder for what is written", .field = FIELD(output),
     .commands = COMMAND(TUNE)},
    {.name = "output", .key = 'o', .kind = SETTING_TEXT, .group = GROUP_OUTPUT, .arg = "DIR",
     .help = "Folder for trace.json and snapshot.pickle (rank 0), trace-R.json and "
             "snapshot-R.pickle; if memory runs out, for the snapshot alone",
     .brief = "folder for the trace", .field = FIELD(output), .commands = FOR_RUN},
    {.name = "output", .key = 'o', .kind = SETTING_TEXT, .group = GROUP_OUTPUT, .arg = "DIR",
     .help = "Folder for compare.json, compare.html, memory-compare.svg and timeline.svg",
     .field = FIELD(output), .commands = COMMAND(COMPARE)},
    {.name = "output", .key = 'o', .kind = SETTING_TEXT, .group = GROUP_OUTPUT, .arg = "DIR",
     .help = "Folder for sweep.json and sweep.svg", .brief = "folder for what is written",
     .field = FIELD(output), .commands = COMMAND(SWEEP)},
    {.name = "output", .key = 'o', .kind = SETTING_TEXT, .group = GROUP_OUTPUT, .arg = "DIR",
     .help = "Folder for diff.json and diff.svg", .field = FIELD(output),
     .commands = COMMAND(DIFF)},
    {.name = "output", .key = 'o', .kind = SETTING_TEXT, .group = GROUP_OUTPUT, .arg = "FILE",
     .help = "The profile; calibration.html and .svg are put beside it", .initial = "profile.json",
     .field = FIELD(output), .commands = COMMAND(CALIBRATE)},
    {.name = "output", .key = 'o', .kind = SETTING_TEXT, .group = GROUP_OUTPUT, .arg = "FILE",
     .help = "The file (default: standard output)", .field = FIELD(output),
     .commands = COMMAND(EXPORT)},
    {.name = "param-norms", .kind = SETTING_FLAG, .group = GROUP_OUTPUT,
     .help = "Print the gradient norm of each parameter in the first step",
     .field = FIELD(run.param_norms), .commands = FOR_RUN},
    {.name = "json", .kind = SETTING_FLAG, .group = GROUP_OUTPUT,
     .help = "One JSON object on standard output and nothing else",
     .brief = "one JSON object on standard output", .field = FIELD(json),
     .commands = (unsigned)FOR_ANY & ~(unsigned)FOR_RUN},
    {.name = "json", .kind = SETTING_FLAG, .group = GROUP_OUTPUT, .help = "One JSON object a step",
     .field = FIELD(json), .commands = FOR_RUN},
    {.name = "quiet", .key = 'q', .kind = SETTING_FLAG, .group = GROUP_OUTPUT,
     .help = "Print nothing but errors", .field = FIELD(quiet), .commands = FOR_ANY},
};
/* clang-format on */
#define ROWS (sizeof rows / sizeof rows[0])
_Static_assert(ROWS <= SETTINGS_MOST_ROWS, "struct settings has a bit for each row");

const struct setting *setting_rows(uint32_t *count)
{
    *count = ROWS;
    return rows;
}

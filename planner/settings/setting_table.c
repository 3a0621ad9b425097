/* setting_table.c - every setting of every command, once.
 *
 * A new setting is a row here, and the field that its reader reads. Rows of one name stand for
 * different commands or systems. A default may be a word, a number, or left to the model. */
#include "plan/repeat.h"
#include "settings/setting_names.h"
#include "settings/settings.h"

/* Rows take a few lines each; what the macros hold are initialisers. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */
#define FIELD(member) {offsetof(struct settings, member), sizeof(((struct settings *)0)->member)}
#define WORDS(...) (const struct setting_word[]){__VA_ARGS__, {NULL, 0, false}}
#define WORD(text, value) {text, value, false}
#define ALSO(text, value) {text, value, true} /* another spelling of the word with this value */
#define CLOCKS WORDS(WORD("sustained", CLOCK_SUSTAINED), WORD("burst", CLOCK_BURST))
#define OFF_ON WORDS(WORD("off", false), WORD("on", true))
#define TARGETS                                                                                    \
    WORDS(WORD("fsdp2", EXPORT_FSDP2), WORD("torchtitan", EXPORT_TORCHTITAN),                      \
          WORD("accelerate", EXPORT_ACCELERATE), WORD("deepspeed", EXPORT_DEEPSPEED))
#define EACH_LAST WORDS(WORD("each", false), WORD("last", true))
#define INTEGER(member, from, to) NUMBER(INTEGER, member, from, to)
#define REAL(member, from, to) NUMBER(REAL, member, from, to)
#define SIZE(member, from, to) NUMBER(SIZE, member, from, to)
#define NUMBER(what, member, from, to)                                                             \
    {.kind = NUMBER_##what, .least = from, .most = to, .field = FIELD(member)}
/* "same" is DTYPE_COUNT until the job is made: no cast, whatever the other dtype is. */
#define STORED_DTYPES                                                                              \
    WORD("bf16", DTYPE_BF16), WORD("fp32", DTYPE_FP32), WORD("fp16", DTYPE_FP16),                  \
    ALSO("bfloat16", DTYPE_BF16), ALSO("float32", DTYPE_FP32), ALSO("float16", DTYPE_FP16)
#define DTYPES STORED_DTYPES, WORD("same", DTYPE_COUNT), ALSO("none", DTYPE_COUNT)
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

#define COMMAND(name) (1U << COMMAND_##name)
#define SYSTEM(name) (1U << SYSTEM_##name)
#define WHOLE (SYSTEM(DDP) | SYSTEM(SINGLE)) /* parameters are whole on each rank */
enum {
    FOR_MODEL = COMMAND(FIT) | COMMAND(PLAN) | COMMAND(SWEEP) | COMMAND(TUNE),
    FOR_JOB = FOR_MODEL | COMMAND(DIFF),
    FOR_RUN = COMMAND(RUN) | COMMAND(RANK),
    FOR_ANY = (1U << COMMAND_COUNT) - 1,
    ZERO12 = SYSTEM(ZERO1) | SYSTEM(ZERO2),
    ZERO = ZERO12 | SYSTEM(ZERO3),
    FSDP = SYSTEM(FSDP1) | SYSTEM(FSDP2),
};

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
     .arg = "MODEL", .help = "a preset (shardplan models), a config.json or its folder, a recording "
             "(tools/record.py)",
     .field = FIELD(model), .names = &setting_models, .commands = FOR_MODEL, .numerics = true},
    {.name = "from", .kind = SETTING_TEXT, .group = GROUP_MODEL, .arg = "FILE",
     .help = "Settings from a framework's configuration: torchtitan (TOML, Python), accelerate "
             "(YAML), DeepSpeed (JSON), TrainingArguments (JSON), `shardplan export`; options "
             "override it",
     .field = FIELD(from), .commands = FOR_MODEL},
    /* the system comes before what belongs to a system: settings_arguments keeps this order */
    {.name = "strategy", .group = GROUP_STRATEGY, .arg = "NAME", .help = "The sharding system",
     .initial = "fsdp2", .field = FIELD(job.strategy.system), .words = system_words,
     .offers = is_planned, .commands = FOR_JOB},
    {.name = "code", .group = GROUP_MODEL, .arg = "NAME",
     .help = "Whose op sequence runs (default: torchtitan for the Llama family, nanogpt for gpt2, "
             "hf for the rest; recorded for recordings)",
     .unset = CODE_COUNT, .field = FIELD(job.model.code),
     .words = WORDS(WORD("torchtitan", CODE_TORCHTITAN), WORD("nanogpt", CODE_NANOGPT),
                    WORD("hf", CODE_HF), WORD("recorded", CODE_RECORDED)),
     .commands = FOR_JOB},
    {.name = "init", .group = GROUP_MODEL, .arg = "NAME",
     .help = "What parameters hold at first: test values, or drawn as that code draws them",
     .initial = "test", .field = FIELD(job.model.own_init),
     .words = WORDS(WORD("test", false), WORD("model", true)), .commands = COMMAND(PLAN),
     .numerics = true},

    /* ---- job ---- */
    {.name = "gpus", .group = GROUP_JOB, .arg = "N", .help = "World size", .initial = "8",
     .numbers = {INTEGER(job.strategy.world, 1, 1000000)}, .commands = FOR_JOB, .numerics = true},
    {.name = "rank", .group = GROUP_JOB, .arg = "R", .help = "Whose memory", .initial = "0",
     .numbers = {INTEGER(job.strategy.rank, 0, 999999)}, .commands = FOR_JOB},
    {.name = "seq", .group = GROUP_JOB, .arg = "T",
     .help = "Tokens a sequence (default: 2048, or the model's positions if fewer)",
     .numbers = {INTEGER(job.model.seq, 1, 16777216)}, .commands = FOR_JOB, .numerics = true},
    {.name = "micro-batch", .group = GROUP_JOB, .arg = "B", .help = "Sequences a GPU",
     .initial = "1", .numbers = {INTEGER(job.model.batch, 1, 1048576)}, .commands = FOR_JOB,
     .numerics = true, .axis = "1,2,4,8,16,32,64"},
    {.name = "accumulate", .group = GROUP_JOB, .arg = "A", .help = "Micro-batches a step",
     .initial = "1", .numbers = {INTEGER(job.strategy.accumulate, 1, MICRO_BATCHES_MOST)}, .commands = FOR_JOB,
     .numerics = true, .axis = "1,2,4,8,16,32,64"},
    {.name = "accumulate-sync", .group = GROUP_JOB, .arg = "WHEN",
     .help = "When gradients are reduced", .initial = "last",
     .field = FIELD(job.strategy.accumulate_sync),
     .words = WORDS(WORD("last", false), WORD("each", true)), .commands = FOR_JOB,
     .systems = FSDP | SYSTEM(DDP), .axis = AXIS_WORDS},

    /* ---- cluster ---- */
    {.name = "gpu", .kind = SETTING_NAME, .group = GROUP_CLUSTER, .arg = "NAME",
     .help = "A GPU of `shardplan gpus`", .initial = "h100-sxm", .field = FIELD(gpu),
     .names = &setting_gpus, .commands = FOR_JOB},
    {.name = "gpus-per-node", .group = GROUP_CLUSTER, .arg = "N", .help = "GPUs a node",
     .initial = "8", .numbers = {INTEGER(gpus_per_node, 1, 1024)}, .commands = FOR_JOB},
    {.name = "node", .kind = SETTING_NAME, .group = GROUP_CLUSTER, .arg = "NAME",
     .help = "A node type of `shardplan gpus`: links, NICs and the host's memory (default: the GPU's "
             "usual one)",
     .field = FIELD(node), .names = &setting_nodes, .commands = FOR_JOB},
    {.name = "host-memory", .group = GROUP_CLUSTER, .arg = "SIZE",
     .help = "Memory of a host that a job may take, such as 1TiB: what is offloaded has to fit there "
             "(default: as the profile says, where it does)",
     .numbers = {SIZE(host_memory, 0x1p20, 0x1p50)}, .commands = FOR_JOB},
    {.name = "profile", .kind = SETTING_TEXT, .group = GROUP_CLUSTER, .arg = "FILE",
     .help = "A hardware profile, from `shardplan calibrate` or by hand, on top of --gpu and "
             "--node",
     .field = FIELD(profile), .commands = FOR_JOB},
    {.name = "clock", .group = GROUP_CLUSTER, .arg = "WHICH",
     .help = "The clock of the GPU: what hours at its power limit sustain, or that of a short burst",
     .initial = "sustained", .field = FIELD(clock), .words = CLOCKS, .commands = FOR_JOB},
    {.name = "expandable-segments", .group = GROUP_CLUSTER, .arg = "WHETHER",
     .help = "PYTORCH_ALLOC_CONF=expandable_segments:True", .initial = "off",
     .field = FIELD(expandable_segments), .words = OFF_ON, .commands = FOR_JOB,
     .axis = AXIS_WORDS, .allocator = true},

    /* ---- strategy ---- */
    {.name = "attention", .group = GROUP_STRATEGY, .arg = "KERNEL",
     .help = "Which kernel computes attention; auto: cudnn on Hopper and Blackwell since torch "
             "2.11, else flash (FlashAttention-2), in fp32 efficient; math and eager: none, but "
             "products and a softmax, by PyTorch (sdpa_kernel) or by transformers",
     .initial = "auto", .field = FIELD(attention), .words = attention_words, .commands = FOR_JOB},
    {.name = "replicate", .group = GROUP_STRATEGY, .arg = "R",
     .help = "HSDP replicas: the mesh is R x N/R", .initial = "1",
     .numbers = {INTEGER(job.strategy.replicate, 1, 1000000)}, .commands = FOR_JOB,
     .systems = FSDP, .lacks = "shards nothing", .lacking = WHOLE,
     .axis = "1,2,4,8,16,32,64,128,256,512"},
    {.name = "experts-replicate", .group = GROUP_FSDP2, .arg = "R",
     .help = "Experts of a mixture are units of their own, on a mesh of R replicas; 0: of their "
             "block's unit",
     .initial = "0", .numbers = {INTEGER(job.strategy.experts_replicate, 0, 1000000)},
     .commands = FOR_JOB, .systems = SYSTEM(FSDP2), .lacks = "has no units of experts",
     .lacking = SYSTEM(FSDP1) | WHOLE | ZERO},
    {.name = "units", .group = GROUP_FSDP2, .arg = "UNITS",
     .help = "What is gathered at once: each block and the rest, as torchtitan wraps, so many "
             "blocks, or blocks until they hold a size",
     .initial = "blocks", .field = FIELD(job.strategy.units),
     .words = WORDS(WORD("blocks", UNITS_BLOCKS), WORD("torchtitan", UNITS_TORCHTITAN)),
     .numbers = {{NUMBER_INTEGER, 1, 1e9, "numbers of blocks", FIELD(job.strategy.per_unit),
                  .word = UNITS_BLOCKS, .rest = 1},
                 {NUMBER_SIZE, 1, 1e15, "sizes such as 500MB,", FIELD(job.strategy.unit_bytes),
                  .word = UNITS_BYTES}},
     .commands = FOR_JOB, .systems = SYSTEM(FSDP2), .lacks = "has no units",
     .lacking = WHOLE | ZERO, .axis = "blocks,2,4,torchtitan",
     .wide = "3,8,16,500MB,1GB,2GB"},
    {.name = "reshard", .group = GROUP_FSDP2, .arg = "WHEN",
     .help = "reshard_after_forward: None, True, False, or that many ranks",
     .initial = "default", .field = FIELD(job.strategy.reshard),
     .words = WORDS(WORD("default", RESHARD_DEFAULT), WORD("always", RESHARD_ALWAYS),
                    WORD("never", RESHARD_NEVER)),
     .numbers = {{NUMBER_INTEGER, 1, 1e6, "numbers of ranks", FIELD(job.strategy.reshard_ranks),
                  .word = RESHARD_INT}},
     .commands = FOR_JOB, .systems = SYSTEM(FSDP2), .lacks = "shards no parameters",
     .lacking = WHOLE | ZERO12, .axis = "default,always,never,8"},
    {.name = "keep-unsharded", .group = GROUP_FSDP2, .arg = "K",
     .help = "The last K units of blocks are not resharded after forward, whatever --reshard says",
     .initial = "0", .numbers = {INTEGER(job.strategy.keep_last, 0, 100000)},
     .commands = FOR_JOB, .systems = SYSTEM(FSDP2), .lacks = "has no units",
     .lacking = WHOLE | ZERO, .axis = "0,1,4,16", .wide = "2,8,32,64",
     .spends = true, .of_blocks = true},
    {.name = "keep-units", .kind = SETTING_TEXT, .group = GROUP_FSDP2, .arg = "NAMES",
     .help = "Nor are units that begin with these modules: layers.0-2,layers.30 (ranges, globs)",
     .field = FIELD(job.strategy.keep_units), .commands = FOR_JOB, .systems = SYSTEM(FSDP2),
     .lacks = "has no units", .lacking = WHOLE | ZERO},
    {.name = "forward-prefetch", .group = GROUP_FSDP2, .arg = "N",
     .help = "Units to prefetch explicitly in forward; 0: implicit", .initial = "0",
     .words = WORDS(ALSO("implicit", 0)),
     .numbers = {INTEGER(job.strategy.forward_prefetch, 0, 16)}, .commands = FOR_JOB,
     .systems = SYSTEM(FSDP2), .lacks = "gathers no parameters", .lacking = WHOLE | ZERO12,
     .axis = "0,1,2", .wide = "3,4", .spends = true, .ahead = true},
    {.name = "backward-prefetch", .group = GROUP_FSDP2, .arg = "N",
     .help = "Units to prefetch explicitly in backward; 0: implicit, one ahead", .initial = "0",
     .words = WORDS(ALSO("implicit", 0)),
     .numbers = {INTEGER(job.strategy.backward_prefetch, 0, 16)}, .commands = FOR_JOB,
     .systems = SYSTEM(FSDP2), .lacks = "gathers no parameters", .lacking = WHOLE | ZERO12,
     .axis = "0,1,2", .wide = "3,4", .spends = true, .ahead = true},
    {.name = "param-dtype", .group = GROUP_STRATEGY, .arg = "DTYPE",
     .help = "param_dtype of mixed precision; same: no cast", .initial = "bf16",
     .field = FIELD(job.strategy.compute), .words = WORDS(DTYPES), .commands = FOR_JOB,
     .systems = FSDP | ZERO, .lacks = "computes in the stored dtype", .lacking = WHOLE,
     .numerics = true, .axis = "bf16,fp32"},
    {.name = "reduce-dtype", .group = GROUP_STRATEGY, .arg = "DTYPE",
     .help = "reduce_dtype of mixed precision; same: the gradients' own", .initial = "fp32",
     .field = FIELD(job.strategy.reduce), .words = WORDS(DTYPES), .commands = FOR_JOB,
     .systems = FSDP, .lacks = "reduces gradients in their own dtype", .lacking = WHOLE,
     .numerics = true, .axis = "bf16,fp32"},
    {.name = "store-dtype", .group = GROUP_STRATEGY, .arg = "DTYPE",
     .help = "Dtype of stored parameters and optimizer states", .initial = "fp32",
     .field = FIELD(job.strategy.store), .words = WORDS(STORED_DTYPES), .commands = FOR_JOB,
     .systems = FSDP | WHOLE, .lacks = "keeps a copy in fp32", .lacking = ZERO,
     .numerics = true, .axis = "bf16,fp32"},
    {.name = "checkpointing", .group = GROUP_STRATEGY, .arg = "WHAT",
     .help = "Activation checkpointing of each block", .initial = "none",
     .field = FIELD(job.tape.checkpointing),
     .words = WORDS(WORD("none", CHECKPOINTING_NONE), WORD("full", CHECKPOINTING_FULL),
                    WORD("selective", CHECKPOINTING_SELECTIVE)),
     .commands = FOR_JOB, .axis = AXIS_WORDS},
    {.name = "checkpoint-blocks", .group = GROUP_STRATEGY, .arg = "WHICH",
     .help = "Blocks that --checkpointing is of: all, the first K or a share of them, or each K-th "
             "(torchtitan's selective_ac_option)",
     .initial = "all", .field = FIELD(job.tape.checkpointed),
     .words = WORDS(WORD("all", CHECKPOINTED_ALL)),
     .numbers = {{NUMBER_INTEGER, 1, 99999, NULL, FIELD(job.tape.checkpointed_number),
                  .word = CHECKPOINTED_FIRST, .before = "first-"},
                 {NUMBER_INTEGER, 1, 100, NULL, FIELD(job.tape.checkpointed_number),
                  .word = CHECKPOINTED_SHARE, .before = "first-", .after = "%"},
                 {NUMBER_INTEGER, 2, 99999, NULL, FIELD(job.tape.checkpointed_number),
                  .word = CHECKPOINTED_EVERY, .before = "every-"}},
     .commands = FOR_JOB, .axis = "all,first-50%,first-75%",
     .wide = "first-25%,first-90%,every-2,every-3,every-4", .spends = true},
    {.name = "early-stop", .group = GROUP_STRATEGY, .arg = "WHETHER",
     .help = "Whether recomputation ends at the last tensor that backward needs (torch's default) "
             "or runs to a block's end (torchtitan's)",
     .initial = "on", .field = FIELD(job.tape.no_early_stop),
     .words = WORDS(WORD("on", false), WORD("off", true)), .commands = FOR_JOB},
    {.name = "compile", .group = GROUP_STRATEGY, .arg = "WHETHER",
     .help = "torch.compile: each block on its own, with fullgraph and inside of what wraps it, as "
             "torchtitan does; or the model as a whole, which hooks of fsdp2 and fsdp1 break at blocks "
             "(with the loss inside: --loss compiled, too)",
     .initial = "off", .field = FIELD(job.tape.compiled),
     .words = WORDS(WORD("off", COMPILED_NOT), WORD("on", COMPILED_BLOCKS),
                    WORD("model", COMPILED_MODEL)),
     .commands = FOR_JOB, .systems = SYSTEM(FSDP2) | WHOLE | SYSTEM(FSDP1) | SYSTEM(ZERO1) |
                                     SYSTEM(ZERO2),
     .lacks = "is planned with eager blocks alone: Dynamo's graphs end at the hooks that "
              "DeepSpeed has on every module of a block, which leaves it single calls to compile",
     .lacking = SYSTEM(ZERO3)},
    {.name = "optimizer", .group = GROUP_STRATEGY, .arg = "NAME", .help = "Optimizer",
     .initial = "adamw", .field = FIELD(job.strategy.optimizer),
     .words = WORDS(WORD("adamw", OPTIMIZER_ADAMW), WORD("sgd", OPTIMIZER_SGD)),
     .commands = FOR_JOB, .numerics = true},
    {.name = "optimizer-impl", .group = GROUP_STRATEGY, .arg = "NAME",
     .help = "Its implementation", .initial = "foreach", .field = FIELD(job.strategy.impl),
     .words = WORDS(WORD("foreach", IMPL_FOREACH), WORD("fused", IMPL_FUSED),
                    WORD("loop", IMPL_LOOP)),
     .commands = FOR_JOB, .axis = "foreach,fused", .wide = "loop"},
    {.name = "clip", .group = GROUP_STRATEGY, .arg = "MAXNORM",
     .help = "clip_grad_norm_ to this norm", .initial = "off", .words = WORDS(WORD("off", 0)),
     .numbers = {{NUMBER_REAL, 1e-9, 1e9, "norms", FIELD(job.strategy.max_norm), .word = 0}},
     .commands = FOR_JOB, .numerics = true},
    {.name = "offload", .group = GROUP_STRATEGY, .arg = "WHERE",
     .help = "Parameters, gradients and optimizer states on the host: CPUOffloadPolicy, FSDP1's "
             "CPUOffload(offload_params=True)",
     .initial = "none", .field = FIELD(job.strategy.offload),
     .words = WORDS(WORD("none", false), WORD("cpu", true)), .commands = FOR_JOB, .systems = FSDP,
     .lacks = "has no such policy", .lacking = WHOLE, .axis = AXIS_WORDS},
    {.name = "placement", .group = GROUP_FSDP2, .arg = "DIM",
     .help = "shard_placement_fn: every parameter by rows, Shard(0), or matrices by columns, "
             "Shard(1)",
     .initial = "rows", .field = FIELD(job.strategy.columns),
     .words = WORDS(WORD("rows", false), WORD("columns", true)), .commands = FOR_JOB,
     .systems = SYSTEM(FSDP2)},
    {.name = "last-backward", .group = GROUP_FSDP2, .arg = "WHEN",
     .help = "set_is_last_backward(True): for each micro-batch, or the last alone",
     .initial = "each", .field = FIELD(job.strategy.finalize_last), .words = EACH_LAST,
     .commands = FOR_JOB, .systems = SYSTEM(FSDP2)},
    {.name = "all-reduce", .group = GROUP_FSDP2, .arg = "WHEN",
     .help = "set_requires_all_reduce(True) likewise: over the replicas of HSDP",
     .initial = "each", .field = FIELD(job.strategy.all_reduce_last), .words = EACH_LAST,
     .commands = FOR_JOB, .systems = SYSTEM(FSDP2)},
    {.name = "reshard-after-backward", .group = GROUP_FSDP2, .arg = "WHEN",
     .help = "set_reshard_after_backward(True) likewise", .initial = "each",
     .field = FIELD(job.strategy.reshard_last), .words = EACH_LAST, .commands = FOR_JOB,
     .systems = SYSTEM(FSDP2), .wide = "each,last"},
    {.name = "reduce-buffers", .group = GROUP_FSDP2, .arg = "N",
     .help = "set_reduce_scatter_max_input_buffers: how many may be in flight", .initial = "1",
     .numbers = {INTEGER(job.strategy.reduce_buffers, 1, 1024)}, .commands = FOR_JOB,
     .systems = SYSTEM(FSDP2)},
    {.name = "not-in-backward", .kind = SETTING_TEXT, .group = GROUP_FSDP2, .arg = "GLOBS",
     .help = "Comma-separated globs of modules with set_unshard_in_backward(False)",
     .field = FIELD(job.strategy.not_in_backward), .commands = FOR_JOB,
     .systems = SYSTEM(FSDP2)},
    {.name = "ignore", .kind = SETTING_TEXT, .group = GROUP_STRATEGY, .arg = "GLOBS",
     .help = "Comma-separated globs of parameters that are in no unit (fully_shard's ignored_params, "
             "FullyShardedDataParallel's ignored_states): whole on each rank, which reduces none of "
             "their gradients",
     .field = FIELD(job.strategy.ignore), .commands = FOR_JOB, .systems = FSDP,
     .lacks = "wraps no modules", .lacking = WHOLE | ZERO, .numerics = true},
    {.name = "freeze", .kind = SETTING_TEXT, .group = GROUP_STRATEGY, .arg = "GLOBS",
     .help = "Comma-separated globs of parameter names that are not trained",
     .field = FIELD(job.model.frozen), .commands = FOR_JOB, .numerics = true},
    {.name = "lora", .kind = SETTING_TEXT, .group = GROUP_STRATEGY, .arg = "RANK[,NAMES]",
     .help = "peft's low-rank adapters, which alone are trained: their rank, and the linear layers "
             "that have one, or all-linear (default: peft's own of the model type)",
     .field = FIELD(job.model.lora), .commands = FOR_JOB, .numerics = true},
    {.name = "lora-dropout", .group = GROUP_STRATEGY, .arg = "P",
     .help = "peft's lora_dropout: the share of elements of what an adapter is given that are dropped",
     .initial = "0", .numbers = {{NUMBER_REAL, 0, 0.999, "shares", FIELD(job.model.lora_dropout)}},
     .commands = FOR_JOB, .numerics = true},
    {.name = "load-in-4bit", .group = GROUP_STRATEGY, .arg = "TYPE",
     .help = "Weights of linear layers but the head in 4 bits of bitsandbytes, under --lora's "
             "adapters: BitsAndBytesConfig's load_in_4bit and bnb_4bit_quant_type",
     .initial = "none", .field = FIELD(job.model.bits4.kind),
     .words = WORDS(WORD("none", BITS4_NOT), WORD("nf4", BITS4_NF4), WORD("fp4", BITS4_FP4)),
     .commands = FOR_JOB, .systems = WHOLE | SYSTEM(FSDP2),
     .lacks = "is not planned with weights in 4 bits, of which no recording is there",
     .lacking = SYSTEM(FSDP1) | ZERO, .numerics = true},
    {.name = "bnb-double-quant", .group = GROUP_STRATEGY, .arg = "WHETHER",
     .help = "bnb_4bit_use_double_quant: scales of --load-in-4bit in 8 bits, too", .initial = "off",
     .field = FIELD(job.model.bits4.twice), .words = OFF_ON, .commands = FOR_JOB,
     .systems = WHOLE | SYSTEM(FSDP2), .numerics = true},
    {.name = "bnb-quant-storage", .group = GROUP_STRATEGY, .arg = "DTYPE",
     .help = "bnb_4bit_quant_storage: in tensors of which dtype weights are packed; under fsdp2 --param-dtype",
     .initial = "uint8", .field = FIELD(job.model.bits4.storage),
     .words = WORDS(WORD("uint8", DTYPE_UINT8), WORD("bf16", DTYPE_BF16), WORD("fp16", DTYPE_FP16),
                    WORD("fp32", DTYPE_FP32), ALSO("bfloat16", DTYPE_BF16), ALSO("float16", DTYPE_FP16),
                    ALSO("float32", DTYPE_FP32)),
     .commands = FOR_JOB, .systems = WHOLE | SYSTEM(FSDP2), .numerics = true},
    {.name = "bnb-compute-dtype", .group = GROUP_STRATEGY, .arg = "DTYPE",
     .help = "bnb_4bit_compute_dtype: what such layers cast their input to and compute in "
             "(BitsAndBytesConfig's own default is fp32)",
     .initial = "bf16", .field = FIELD(job.model.bits4.compute), .words = WORDS(STORED_DTYPES),
     .commands = FOR_JOB, .systems = WHOLE | SYSTEM(FSDP2), .numerics = true},
    {.name = "float8", .group = GROUP_STRATEGY, .arg = "RECIPE",
     .help = "torchao's Float8Linear in place of linear layers but the head, as torchtitan converts "
             "them: one scale a tensor, one a row, or likewise with the weight's gradient in "
             "--param-dtype",
     .initial = "none", .field = FIELD(job.model.float8),
     .words = WORDS(WORD("none", FLOAT8_NONE), WORD("tensorwise", FLOAT8_TENSORWISE),
                    WORD("rowwise", FLOAT8_ROWWISE),
                    WORD("rowwise_with_gw_hp", FLOAT8_ROWWISE_GW_HP)),
     .commands = FOR_JOB, .systems = FSDP | WHOLE,
     .lacks = "is planned with products in --param-dtype alone", .lacking = ZERO, .numerics = true},
    {.name = "float8-gather", .group = GROUP_FSDP2, .arg = "SCALES",
     .help = "With --float8 tensorwise, weights are cast before they are gathered, a byte an element "
             "(torchao's enable_fsdp_float8_all_gather): by scales found at each gather, or all of "
             "them after the update",
     .initial = "off", .field = FIELD(job.model.float8_gather),
     .words = WORDS(WORD("off", FLOAT8_GATHER_NOT), WORD("dynamic", FLOAT8_GATHER_DYNAMIC),
                    WORD("precomputed", FLOAT8_GATHER_PRECOMPUTED)),
     .commands = FOR_JOB, .systems = SYSTEM(FSDP2), .numerics = true},
    {.name = "frozen-dtype", .group = GROUP_STRATEGY, .arg = "WHICH",
     .help = "In which dtype parameters are stored that are not trained: --store-dtype, or "
             "--param-dtype (a model loaded in 16 bits, with peft's adapters in fp32)",
     .initial = "store", .field = FIELD(job.strategy.frozen_low),
     .words = WORDS(WORD("store", false), WORD("param", true)), .commands = FOR_JOB,
     .systems = FSDP, .lacks = "stores all parameters in one dtype", .lacking = ZERO, .numerics = true, .axis = AXIS_WORDS},
    {.name = "frozen-dtype", .group = GROUP_STRATEGY, .arg = "DTYPE",
     .help = "In which dtype parameters are that are not trained: --store-dtype, or 16 bits (a model "
             "loaded in these, with peft's adapters in fp32)",
     .initial = "store", .field = FIELD(frozen),
     .words = WORDS(WORD("store", DTYPE_COUNT), WORD("bf16", DTYPE_BF16), WORD("fp16", DTYPE_FP16),
                    ALSO("bfloat16", DTYPE_BF16), ALSO("float16", DTYPE_FP16)),
     .commands = FOR_JOB, .systems = WHOLE, .numerics = true, .axis = "store,bf16"},
    {.name = "autocast", .group = GROUP_STRATEGY, .arg = "DTYPE",
     .help = "torch.autocast around the forward pass", .initial = "none",
     .field = FIELD(job.model.autocast),
     .words = WORDS(WORD("none", false), WORD("bf16", true), ALSO("bfloat16", true)),
     .commands = FOR_JOB, .systems = WHOLE | SYSTEM(FSDP1),
     .lacks = "has --param-dtype for that", .lacking = SYSTEM(FSDP2) | ZERO, .numerics = true,
     .axis = AXIS_WORDS},

    {.name = "outputs", .group = GROUP_STRATEGY, .arg = "DTYPE",
     .help = "What the model's forward returns: as it is, or cast to fp32 in it, as accelerate does "
             "beside autocast",
     .initial = "same", .field = FIELD(job.model.outputs_fp32),
     .words = WORDS(WORD("same", false), WORD("fp32", true)), .commands = FOR_JOB,
     .systems = WHOLE | SYSTEM(FSDP1), .lacks = "is not called under autocast",
     .lacking = SYSTEM(FSDP2) | ZERO},

    {.name = "loss", .group = GROUP_STRATEGY, .arg = "NAME",
     .help = "Cross-entropy: PyTorch's on fp32 logits, or on logits as they are; a fused kernel "
             "that puts the gradient where they were; eight chunks of tokens, each with the head "
             "and its backward; or PyTorch's by torch.compile, as torchtitan compiles it",
     .initial = "eager", .field = FIELD(job.model.loss),
     .words = WORDS(WORD("eager", CROSS_ENTROPY_EAGER), WORD("direct", CROSS_ENTROPY_DIRECT),
                    WORD("fused", CROSS_ENTROPY_FUSED), WORD("chunked", CROSS_ENTROPY_CHUNKED),
                    WORD("compiled", CROSS_ENTROPY_COMPILED)),
     .commands = FOR_JOB, .numerics = true, .wide = "eager,direct,fused,chunked,compiled"},
    {.name = "torch", .group = GROUP_STRATEGY, .arg = "VERSION",
     .help = "The version of PyTorch that runs it, as its last patch release",
     .initial = "2.14", .field = FIELD(job.model.torch), .words = torch_words,
     .commands = FOR_JOB},
    {.name = "autograd", .group = GROUP_STRATEGY, .arg = "HOW",
     .help = "Gradients are added in place as on a GPU, or as recordings on fake tensors have it",
     .initial = "gpu", .field = FIELD(job.model.autograd),
     .words = WORDS(WORD("gpu", AUTOGRAD_GPU), WORD("recorded", AUTOGRAD_RECORDED)),
     .commands = FOR_JOB},

    /* ---- FullyShardedDataParallel ---- */
    {.name = "units", .group = GROUP_FSDP1, .arg = "UNITS",
     .help = "auto_wrap_policy: each block; none; each block and embedding; peft's, each block and "
             "each module that is trained; or modules of at least so many parameters",
     .initial = "blocks", .field = FIELD(job.strategy.units),
     .words = WORDS(WORD("blocks", UNITS_BLOCKS), WORD("none", UNITS_NONE),
                    WORD("embeddings", UNITS_EMBEDDINGS), WORD("peft", UNITS_TRAINED),
                    ALSO("torchtitan", UNITS_EMBEDDINGS), ALSO("titan", UNITS_EMBEDDINGS)),
     .numbers = {{NUMBER_INTEGER, 1, UINT32_MAX, "numbers of parameters",
                  FIELD(job.strategy.unit_elements), .word = UNITS_ELEMENTS}},
     .commands = FOR_JOB, .systems = SYSTEM(FSDP1), .axis = "blocks,none,embeddings"},
    {.name = "sharding", .group = GROUP_FSDP1, .arg = "STRATEGY", .help = "sharding_strategy",
     .initial = "FULL_SHARD", .field = FIELD(job.strategy.sharding),
     .words = WORDS(WORD("FULL_SHARD", SHARDING_FULL), WORD("SHARD_GRAD_OP", SHARDING_GRAD_OP),
                    WORD("NO_SHARD", SHARDING_NONE), WORD("HYBRID_SHARD", SHARDING_HYBRID),
                    WORD("_HYBRID_SHARD_ZERO2", SHARDING_HYBRID_ZERO2)),
     .commands = FOR_JOB, .systems = SYSTEM(FSDP1), .lacks = "has --reshard for that",
     .lacking = SYSTEM(FSDP2), .axis = AXIS_WORDS},
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
     .help = "backward_prefetch: the unit before is gathered before or after a unit's gradients",
     .initial = "pre", .field = FIELD(job.strategy.prefetch),
     .words = WORDS(WORD("pre", PREFETCH_PRE), WORD("post", PREFETCH_POST),
                    WORD("none", PREFETCH_NONE)),
     .commands = FOR_JOB, .systems = SYSTEM(FSDP1), .axis = "none,post,pre", .ahead = true},
    {.name = "forward-prefetch", .group = GROUP_FSDP1, .arg = "N",
     .help = "forward_prefetch: the next unit is gathered before a unit's operators, or not",
     .initial = "0", .numbers = {INTEGER(job.strategy.forward_prefetch, 0, 1)},
     .commands = FOR_JOB, .systems = SYSTEM(FSDP1), .axis = "0,1", .ahead = true},

    /* ---- DistributedDataParallel ---- */
    {.name = "bucket-cap-mb", .group = GROUP_DDP, .arg = "MIB",
     .help = "bucket_cap_mb; default: None, which is 25, and 1 for the first bucket (a number holds "
             "for the first, too)",
     .initial = "default", .words = WORDS(WORD("default", 0)),
     .numbers = {{NUMBER_REAL, 0.001, 1048576, "MiB", FIELD(job.strategy.bucket_cap_mb), .word = 0}},
     .commands = FOR_JOB, .systems = SYSTEM(DDP), .lacks = "has no buckets", .lacking = FSDP | SYSTEM(SINGLE),
     .axis = "1,5,default,50,100,200"},
    {.name = "gradient-as-bucket-view", .group = GROUP_DDP, .arg = "WHETHER",
     .help = "gradient_as_bucket_view", .initial = "off", .field = FIELD(job.strategy.bucket_view),
     .words = OFF_ON, .commands = FOR_JOB, .systems = SYSTEM(DDP), .lacks = "has no buckets",
     .lacking = FSDP | SYSTEM(SINGLE), .axis = AXIS_WORDS},
    {.name = "optimize-ddp", .group = GROUP_DDP, .arg = "WHETHER",
     .help = "torch._dynamo.config.optimize_ddp: what --compile compiles is split where buckets end "
             "(on, DDPOptimizer), so that they are reduced while the rest of backward runs",
     .initial = "on", .field = FIELD(job.tape.whole_graphs),
     .words = WORDS(WORD("on", false), WORD("off", true)), .commands = FOR_JOB,
     .systems = SYSTEM(DDP), .lacks = "has no buckets", .lacking = FSDP | SYSTEM(SINGLE)},
    {.name = "static-graph", .group = GROUP_DDP, .arg = "WHETHER", .help = "static_graph",
     .initial = "off", .field = FIELD(job.strategy.static_graph), .words = OFF_ON,
     .commands = FOR_JOB, .systems = SYSTEM(DDP), .axis = AXIS_WORDS},
    {.name = "find-unused-parameters", .group = GROUP_DDP, .arg = "WHETHER",
     .help = "find_unused_parameters: what the model returns is copied, and buckets stay as they "
             "were at first",
     .initial = "off", .field = FIELD(job.strategy.find_unused), .words = OFF_ON,
     .commands = FOR_JOB, .systems = SYSTEM(DDP)},
    {.name = "broadcast-buffers", .group = GROUP_DDP, .arg = "WHETHER",
     .help = "broadcast_buffers", .initial = "on", .field = FIELD(job.strategy.keep_buffers),
     .words = WORDS(WORD("off", true), WORD("on", false)), .commands = FOR_JOB,
     .systems = SYSTEM(DDP)},
    {.name = "zero-redundancy", .group = GROUP_DDP, .arg = "HOW",
     .help = "torch's ZeroRedundancyOptimizer around the optimizer: none, plain, or with "
             "parameters_as_bucket_view",
     .initial = "none", .field = FIELD(job.strategy.zero_redundancy),
     .words = WORDS(WORD("none", ZERO_REDUNDANCY_NONE), WORD("plain", ZERO_REDUNDANCY_PLAIN),
                    WORD("bucket_view", ZERO_REDUNDANCY_VIEW)),
     .commands = FOR_JOB, .systems = SYSTEM(DDP), .lacks = "shards states anyway",
     .lacking = FSDP, .wide = "none,plain,bucket_view"},
    {.name = "comm-hook", .group = GROUP_DDP, .arg = "NAME",
     .help = "What register_comm_hook is given", .initial = "none",
     .field = FIELD(job.strategy.comm_hook),
     .words = WORDS(WORD("none", COMM_HOOK_NONE), WORD("allreduce", COMM_HOOK_ALLREDUCE),
                    WORD("bf16_compress", COMM_HOOK_BF16), WORD("fp16_compress", COMM_HOOK_FP16)),
     .commands = FOR_JOB, .systems = SYSTEM(DDP), .lacks = "has --reduce-dtype for that",
     .lacking = FSDP, .numerics = true, .axis = AXIS_WORDS},

    /* ---- DeepSpeed ZeRO ---- */
    {.name = "zero", .kind = SETTING_TEXT, .group = GROUP_ZERO, .arg = "FILE",
     .help = "DeepSpeed's own `zero_optimization` object, as JSON (default: its defaults)",
     .field = FIELD(zero), .commands = FOR_JOB, .systems = ZERO,
     .lacks = "has options of its own for that", .lacking = FSDP | WHOLE},
    {.name = "deepspeed", .group = GROUP_ZERO, .arg = "VERSION",
     .help = "The version of DeepSpeed whose keys and defaults --zero has, as its last patch "
             "release; what is allocated, and when, is known of 0.19.8 alone",
     .initial = "0.19", .field = FIELD(deepspeed),
     .words = WORDS(WORD("0.10", 1003), WORD("0.11", 1102), WORD("0.12", 1206), WORD("0.13", 1305),
                    WORD("0.14", 1405), WORD("0.15", 1504), WORD("0.16", 1609), WORD("0.17", 1706),
                    WORD("0.18", 1809), WORD("0.19.4", 1904), WORD("0.19.5", 1905),
                    WORD("0.19", ZERO_NEWEST), ALSO("0.19.8", ZERO_NEWEST)),
     .commands = FOR_JOB, .systems = ZERO,
     .lacks = "is not DeepSpeed's", .lacking = FSDP | WHOLE},
    {.name = "offload", .group = GROUP_ZERO, .arg = "WHERE",
     .help = "DeepSpeed's offload_optimizer, and (cpu, of stage 3) offload_param: each with a "
             "device and no more, where --zero does not say it",
     .initial = "none", .field = FIELD(zero_offload),
     .words = WORDS(WORD("none", ZERO_OFFLOAD_NONE), WORD("optimizer", ZERO_OFFLOAD_OPTIMIZER),
                    WORD("cpu", ZERO_OFFLOAD_ALL)),
     .commands = FOR_JOB, .systems = ZERO, .axis = AXIS_WORDS},
    {.name = "grad-accum-dtype", .group = GROUP_ZERO, .arg = "DTYPE",
     .help = "data_types.grad_accum_dtype: dtype of a rank's gradients; same: the parameters'",
     .initial = "same", .field = FIELD(job.strategy.grad_accum_fp32),
     .words = WORDS(WORD("same", false), WORD("fp32", true), ALSO("float32", true)),
     .commands = FOR_JOB, .systems = ZERO, .numerics = true, .axis = AXIS_WORDS},

    /* ---- a search ---- */
    {.name = "global-batch", .group = GROUP_SEARCH, .arg = "B",
     .help = "Sequences a step, of all GPUs: what micro-batch and accumulation come to (default: as "
             "those two say)",
     .numbers = {INTEGER(tune.global_batch, 1, 1e9)}, .commands = COMMAND(TUNE), .numerics = true},
    {.name = "fix", .kind = SETTING_LIST, .group = GROUP_SEARCH, .arg = "NAME=VALUE",
     .help = "Do not search a setting: it has this value (as --NAME VALUE does)",
     .field = FIELD(tune.fix), .commands = COMMAND(TUNE)},
    {.name = "allow", .kind = SETTING_LIST, .group = GROUP_SEARCH, .arg = "NAME,...",
     .help = "Also search a setting that is given, one that changes numerics, such as "
             "store-dtype, or all values of one: units, checkpoint-blocks, loss, ...",
     .field = FIELD(tune.allow), .commands = COMMAND(TUNE)},
    {.name = "max-memory", .group = GROUP_SEARCH, .arg = "SIZE",
     .help = "Memory of a GPU that a job may take, such as 70GiB (default: all there is)",
     .numbers = {SIZE(tune.max_memory, 0x1p20, 0x1p50)}, .commands = COMMAND(TUNE)},
    {.name = "headroom", .group = GROUP_SEARCH, .arg = "SIZE",
     .help = "Memory of a GPU that is to stay free, such as 4GiB (default: 1.6 % of it, by which "
             "predictions of reserved memory have been off)",
     .numbers = {SIZE(tune.headroom, 0, HEADROOM_MOST)}, .commands = COMMAND(TUNE)},

    /* ---- running a plan ---- */
    {.name = "plan", .positional = true, .kind = SETTING_TEXT, .group = GROUP_RUN,
     .arg = "PLAN.json", .help = "what `shardplan plan` wrote, or its folder", .field = FIELD(plan),
     .commands = FOR_RUN | COMMAND(COMPARE) | COMMAND(EXPORT)},
    {.name = "trace", .positional = true, .kind = SETTING_TEXT, .group = GROUP_RUN,
     .arg = "TRACE.json", .help = "what `shardplan run` wrote", .field = FIELD(trace),
     .commands = COMMAND(COMPARE)},
    {.name = "ranks", .key = 'n', .group = GROUP_RUN, .arg = "RANKS",
     .help = "Ranks to start (default: as many as the plan is for, one for a rehearsal)",
     .numbers = {INTEGER(run.ranks, 1, 4096)}, .commands = COMMAND(RUN)},
    {.name = "device", .group = GROUP_RUN, .arg = "NAME", .help = "Where ranks run",
     .initial = "host", .field = FIELD(cuda),
     .words = WORDS(WORD("host", false), WORD("cuda", true)),
     .commands = FOR_RUN | COMMAND(CALIBRATE)},
    {.name = "fuse", .group = GROUP_RUN, .arg = "WHETHER",
     .help = "Chains of kernels as one, with the same bits in the same memory", .initial = "on",
     .field = FIELD(run.fuse), .words = WORDS(WORD("on", true), WORD("off", false)),
     .commands = FOR_RUN},
    {.name = "steps", .group = GROUP_RUN, .arg = "N", .help = "Training steps", .initial = "3",
     .numbers = {INTEGER(run.steps, 1, 1000000000)}, .commands = FOR_RUN},
    {.name = "data", .kind = SETTING_TEXT, .group = GROUP_RUN, .arg = "FILE",
     .help = "Tokens to train on (default: a generator)", .field = FIELD(run.data),
     .commands = FOR_RUN},
    {.name = "tokens", .group = GROUP_RUN, .arg = "KIND", .help = "What a token is in that file",
     .initial = "bytes", .field = FIELD(run.token_bytes),
     .words = WORDS(WORD("bytes", 1), WORD("uint16", 2), WORD("uint32", 4)), .commands = FOR_RUN},
    {.name = "memory", .group = GROUP_RUN, .arg = "SIZE",
     .help = "Device memory of a rank, such as 4GiB (default: 64GiB on the host, on a GPU what it "
             "has)",
     .numbers = {SIZE(run.memory_bytes, 1, 0x1p50)}, .commands = FOR_RUN},
    {.name = "force", .kind = SETTING_FLAG, .group = GROUP_RUN,
     .help = "Start ranks that this machine has too little memory for", .field = FIELD(run.force),
     .commands = COMMAND(RUN)},
    {.name = "timeout", .group = GROUP_RUN, .arg = "SECONDS",
     .help = "Longest collective before the run is ended", .initial = "60",
     .numbers = {REAL(run.timeout_s, 0, 1e7)}, .commands = FOR_RUN},
    {.name = "lr", .group = GROUP_OPTIMIZER, .arg = "X", .help = "Learning rate",
     .initial = "0.001", .numbers = {REAL(run.lr, 0, 1e38)}, .commands = FOR_RUN, .numerics = true},
    {.name = "beta1", .group = GROUP_OPTIMIZER, .arg = "X", .help = "AdamW", .initial = "0.9",
     .numbers = {REAL(run.beta1, 0, 0.9999999)}, .commands = FOR_RUN, .numerics = true},
    {.name = "beta2", .group = GROUP_OPTIMIZER, .arg = "X", .help = "AdamW", .initial = "0.95",
     .numbers = {REAL(run.beta2, 0, 0.9999999)}, .commands = FOR_RUN, .numerics = true},
    {.name = "eps", .group = GROUP_OPTIMIZER, .arg = "X", .help = "AdamW", .initial = "1e-08",
     .numbers = {REAL(run.eps, 0, 1)}, .commands = FOR_RUN, .numerics = true},
    {.name = "weight-decay", .group = GROUP_OPTIMIZER, .arg = "X", .help = "AdamW and SGD",
     .initial = "0.1", .numbers = {REAL(run.weight_decay, 0, 1e6)}, .commands = FOR_RUN,
     .numerics = true},
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
     .help = "One process plays one rank of a plan for WORLD: absent peers' collectives are local "
             "copies that take the predicted time",
     .field = FIELD(run.rehearse_rank), .numbers = {INTEGER(run.rehearse_world, 1, 1000000)},
     .commands = FOR_RUN},
    {.name = "kernels", .group = GROUP_REHEARSAL, .arg = "WHICH",
     .help = "real: they compute; waits: each takes its predicted time and computes nothing, memory, "
             "copies and collectives are real; auto: real, and waits in a rehearsal of a plan that "
             "the device has not all kernels for",
     .initial = "auto", .field = FIELD(run.kernels),
     .words = WORDS(WORD("auto", RUN_KERNELS_AUTO), WORD("real", RUN_KERNELS_REAL),
                    WORD("waits", RUN_KERNELS_WAITS)),
     .commands = FOR_RUN},
    {.name = "predicted", .kind = SETTING_TEXT, .group = GROUP_REHEARSAL, .arg = "FILE",
     .help = "Trace with a rehearsal's times (default: those in the plan)",
     .field = FIELD(run.predicted), .commands = FOR_RUN},
    {.name = "share-gpu", .kind = SETTING_FLAG, .group = GROUP_CUDA,
     .help = "Several ranks may have one GPU: for correctness only, its times mean nothing",
     .field = FIELD(run.share_gpu), .commands = FOR_RUN},
    {.name = "register-buffers", .kind = SETTING_FLAG, .group = GROUP_CUDA,
     .help = "Memory that NCCL may use without copies of its own (ncclMemAlloc, ncclCommRegister)",
     .field = FIELD(run.register_buffers), .commands = FOR_RUN},
    {.name = "attention", .group = GROUP_CUDA, .arg = "KERNEL",
     .help = "Which kernel computes attention; auto: cudnn where it takes the shape, else own, "
             "which is slow; cudnn: that or nothing",
     .initial = "auto", .field = FIELD(run.attention), .words = attention_to_run_words,
     .commands = FOR_RUN},
    {.name = "deterministic", .kind = SETTING_FLAG, .group = GROUP_CUDA,
     .help = "The same bits every time: cudnn's deterministic backward, which is slower and takes "
             "memory that no plan has, or --attention own; products are not measured",
     .field = FIELD(run.deterministic), .commands = FOR_RUN},

    {.name = "products", .kind = SETTING_TEXT, .group = GROUP_CUDA, .arg = "FILE",
     .help = "Which of cuBLASLt's kernels each matrix product takes, for other runs to take the same: "
             "what FILE lacks is measured before the first step and added",
     .field = FIELD(run.products), .commands = FOR_RUN},

    /* ---- tables of kernels ---- */
    {.name = "table", .positional = true, .kind = SETTING_TEXT, .group = GROUP_MEASURE,
     .arg = "FILE.csv", .help = "kernels, a row each", .field = FIELD(table),
     .commands = COMMAND(KERNELS)},
    {.name = "gpu", .kind = SETTING_NAME, .group = GROUP_MEASURE, .arg = "NAME",
     .help = "A GPU of `shardplan gpus` (default: each row's column gpu)", .field = FIELD(gpu),
     .names = &setting_gpus, .commands = COMMAND(KERNELS)},
    {.name = "clock", .group = GROUP_MEASURE, .arg = "WHICH",
     .help = "What hours at the power limit sustain, or a short burst, as in most benchmarks",
     .initial = "sustained", .field = FIELD(clock), .words = CLOCKS, .commands = COMMAND(KERNELS)},

    /* ---- measuring and comparing ---- */
    {.name = "ranks", .key = 'n', .group = GROUP_MEASURE, .arg = "RANKS",
     .help = "Ranks that run together (default 2); with --from-nccl-tests, those of files that do "
             "not say",
     .numbers = {INTEGER(calibrate.ranks, 1, 64)}, .commands = COMMAND(CALIBRATE)},
    {.name = "gpu", .kind = SETTING_NAME, .group = GROUP_MEASURE, .arg = "NAME",
     .help = "The built-in GPU for what is not measured (cuda needs it; host writes every number)",
     .field = FIELD(gpu), .names = &setting_gpus, .commands = COMMAND(CALIBRATE)},
    {.name = "largest", .group = GROUP_MEASURE, .arg = "MIB",
     .help = "Largest collective (default: 64 on host, 1024 on cuda, 1 with --quick)",
     .numbers = {INTEGER(calibrate.largest_mib, 1, 65536)}, .commands = COMMAND(CALIBRATE)},
    {.name = "quick", .kind = SETTING_FLAG, .group = GROUP_MEASURE,
     .help = "A few small sizes only: seconds, and less true", .field = FIELD(calibrate.quick),
     .commands = COMMAND(CALIBRATE)},
    {.name = "from-nccl-tests", .kind = SETTING_LIST, .group = GROUP_MEASURE, .arg = "FILE",
     .help = "Measure nothing: take collectives from what nccl-tests printed or wrote as JSON (up "
             "to 16 files)",
     .field = FIELD(calibrate.nccl), .commands = COMMAND(CALIBRATE)},
    {.name = "profile", .kind = SETTING_TEXT, .group = GROUP_MEASURE, .arg = "FILE",
     .help = "The profile that they are put into (default: a new one)", .field = FIELD(profile),
     .commands = COMMAND(CALIBRATE)},
    {.name = "tolerance", .group = GROUP_MEASURE, .arg = "PERCENT",
     .help = "Fail when the predicted step time is off by more (default: time is not checked)",
     .numbers = {{NUMBER_REAL, 0, 1e6, "percentages", FIELD(tolerance_percent), .word = 0}},
     .commands = COMMAND(COMPARE)},

    {.name = "to", .group = GROUP_OUTPUT, .arg = "NAME", .help = "The framework",
     .initial = "fsdp2", .field = FIELD(to), .words = TARGETS, .commands = COMMAND(EXPORT)},
    {.name = "to", .group = GROUP_OUTPUT, .arg = "NAME",
     .help = "Search only what this framework can say, and write the choice for it, too, as "
             "`shardplan export` does, into -o's folder",
     .unset = EXPORT_NONE, .field = FIELD(to), .words = TARGETS, .commands = COMMAND(TUNE)},

    /* ---- questions ---- */
    {.name = "a", .positional = true, .kind = SETTING_TEXT, .group = GROUP_MODEL, .arg = "A",
     .help = "a plan.json or its folder, or a model as of the other commands", .field = FIELD(a),
     .names = &setting_models, .commands = COMMAND(DIFF)},
    {.name = "b", .positional = true, .kind = SETTING_TEXT, .group = GROUP_MODEL, .arg = "B",
     .help = "the same, or changes to A such as reshard=never,micro-batch=2", .field = FIELD(b),
     .commands = COMMAND(DIFF)},
    {.name = "over", .kind = SETTING_LIST, .group = GROUP_SWEEP, .arg = "AXIS",
     .help = "A setting and its values: k=v,v,..., k=1..8, k=1024..8192+1024, k=8..64x2, k alone "
             "(its usual ones), profile.KEY=x0.5,x1; once or twice",
     .field = FIELD(sweep.over), .commands = COMMAND(SWEEP)},
    {.name = "largest", .kind = SETTING_TEXT, .group = GROUP_SWEEP, .arg = "AXIS",
     .help = "Find the largest value of an integer setting that fits: of all, or of those given",
     .field = FIELD(sweep.largest), .commands = COMMAND(SWEEP)},
    {.name = "fewest", .kind = SETTING_TEXT, .group = GROUP_SWEEP, .arg = "AXIS",
     .help = "Find the smallest value that fits, of a setting that takes memory off, as gpus does",
     .field = FIELD(sweep.fewest), .commands = COMMAND(SWEEP)},
    {.name = "show", .group = GROUP_SWEEP, .arg = "WHAT",
     .help = "What heat maps, bars and the picture are of", .initial = "tokens",
     .field = FIELD(sweep.show),
     .words = WORDS(WORD("tokens", MEASURE_TOKENS), WORD("step", MEASURE_STEP),
                    WORD("mfu", MEASURE_MFU), WORD("exposed", MEASURE_EXPOSED),
                    WORD("device", MEASURE_DEVICE), WORD("reserved", MEASURE_RESERVED),
                    WORD("requested", MEASURE_REQUESTED)),
     .commands = COMMAND(SWEEP)},

    /* ---- output ---- */
    {.name = "events", .kind = SETTING_TEXT, .group = GROUP_OUTPUT, .arg = "FILE",
     .help = "Write every allocation and free, one JSON array a line (the host's end with \" host\" or "
             "\" pinned\" where the peak is the GPU's)",
     .field = FIELD(events), .commands = COMMAND(FIT)},
    {.name = "time", .kind = SETTING_FLAG, .group = GROUP_OUTPUT,
     .help = "Also the time of the step and what it is spent on, with the range that 90 of 100 "
             "draws of the profile's numbers within their spreads lie in; `plan` says it anyway",
     .field = FIELD(time), .commands = COMMAND(FIT) | COMMAND(PLAN)},
    {.name = "explain", .kind = SETTING_FLAG, .group = GROUP_OUTPUT,
     .help = "Also what the time comes from: the largest kernels, the profile's numbers that they "
             "rest on, and what 10 % on each would change",
     .field = FIELD(explain), .commands = COMMAND(FIT) | COMMAND(PLAN)},
    {.name = "no-files", .kind = SETTING_FLAG, .group = GROUP_OUTPUT,
     .help = "Write nothing: say what there is to say", .field = FIELD(no_files),
     .commands = COMMAND(PLAN)},
    {.name = "goodput", .kind = SETTING_FLAG, .group = GROUP_OUTPUT,
     .help = "Also a long run: failures, the best checkpoint interval and what is left",
     .field = FIELD(goodput), .commands = COMMAND(PLAN)},
    {.name = "start-up", .kind = SETTING_FLAG, .group = GROUP_OUTPUT,
     .help = "Also ways to initialise the model and to save it: memory of the GPU and of the host, "
             "bytes of storage, time",
     .field = FIELD(start_up), .commands = COMMAND(FIT) | COMMAND(PLAN)},
    {.name = "output", .key = 'o', .kind = SETTING_TEXT, .group = GROUP_OUTPUT, .arg = "DIR",
     .help = "Folder for plan.json, trace.json, snapshot.pickle, report.html; where it is given, "
             "also for memory.svg, memory-time.svg and timeline.svg",
     .initial = "plan", .field = FIELD(output), .commands = COMMAND(PLAN)},
    {.name = "output", .key = 'o', .kind = SETTING_TEXT, .group = GROUP_OUTPUT, .arg = "DIR",
     .help = "Folder for tune.json, pareto.svg, and what `shardplan plan` writes of the choice",
     .field = FIELD(output), .commands = COMMAND(TUNE)},
    {.name = "output", .key = 'o', .kind = SETTING_TEXT, .group = GROUP_OUTPUT, .arg = "DIR",
     .help = "Folder for trace.json and snapshot.pickle (rank 0), trace-R.json and snapshot-R.pickle; "
             "where memory runs out, too: the snapshot alone",
     .field = FIELD(output),
     .commands = FOR_RUN},
    {.name = "output", .key = 'o', .kind = SETTING_TEXT, .group = GROUP_OUTPUT, .arg = "DIR",
     .help = "Folder for compare.json, compare.html, memory-compare.svg and timeline.svg",
     .field = FIELD(output), .commands = COMMAND(COMPARE)},
    {.name = "output", .key = 'o', .kind = SETTING_TEXT, .group = GROUP_OUTPUT, .arg = "DIR",
     .help = "Folder for sweep.json and sweep.svg", .field = FIELD(output),
     .commands = COMMAND(SWEEP)},
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
     .help = "Print each parameter's gradient norm of the first step",
     .field = FIELD(run.param_norms), .commands = FOR_RUN},
    {.name = "json", .kind = SETTING_FLAG, .group = GROUP_OUTPUT,
     .help = "One JSON object on standard output and nothing else", .field = FIELD(json),
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

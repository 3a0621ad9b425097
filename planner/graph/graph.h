/* graph.h - one forward pass, as the host code of a training script runs it.
 *
 * A graph is a script: ops in the order Python calls them, the places where Python lets go of a
 * tensor ("drop"), and the borders of modules. Tensors are views of storages; only storages take
 * memory. Nothing here knows of sharding, but that a parameter may be handed over in float8
 * (model_job.float8_gather), and nothing of backward: the tape (tape.h) runs the script as eager
 * autograd would and finds out what is saved, when it dies and what backward does.
 *
 *     x = embedding(tokens)          enter(block 0)
 *     for block in blocks:    ->     y = rms_norm(x) ; q = linear(y) ; ... ; drop(y) ; ...
 *         x = block(x)               exit(block 0)
 *
 * Letters used for shapes: b sequences, s tokens a sequence, t = b*s tokens, h hidden size,
 * a heads, k key/value heads, d head size, f feed-forward size, v vocabulary. */
#ifndef SHARDPLAN_GRAPH_H
#define SHARDPLAN_GRAPH_H

#include "base/arena.h"
#include "base/attention.h"
#include "base/kernel.h"
#include "base/torch.h"
#include "base/values.h"
#include "base/vocabulary.h"

#include <stdbool.h>
#include <stdint.h>

#define GRAPH_NONE UINT32_MAX
enum { GRAPH_OPERANDS = 20, GRAPH_OUTPUTS = 9 };

enum storage_kind {                     /* who owns the bytes */
                    STORAGE_ACTIVATION, /* born in this pass, counted by references */
                    STORAGE_PARAM,  /* the unsharded copy of a parameter: comes and goes with its
                                       FSDP unit */
                    STORAGE_INPUT,  /* the batch: there before the step and after it */
                    STORAGE_BUFFER, /* a module's buffer (RoPE table): likewise */
};

struct graph_storage {
    uint64_t bytes;
    uint32_t index;  /* of the param, input or buffer; of the op that births it otherwise */
    uint32_t module; /* BUFFER: whose it is, one that may be wrapped; GRAPH_NONE: no such one's */
    uint16_t aten;   /* name of the call that returns it first */
    uint8_t kind;    /* enum storage_kind */
    uint8_t dtype;
    bool renamed;            /* its Python name goes to another storage, */
    uint32_t before;         /* whose `before` it is; GRAPH_NONE: none */
    uint32_t keeps, kept_by; /* graph_keeps: what goes with this one, where autograd saves, and the
                                other way round; GRAPH_NONE: none */
    uint32_t kept_for;       /* the tensor without whose gradient it is not */
    struct shape shape;      /* at birth */
};

struct graph_tensor { /* a view of a storage */
    uint32_t storage;
    uint32_t root;   /* the tensor whose gradient is this one's: itself, or what it views */
    uint32_t base;   /* the tensor that it was made a view of: itself, if of none */
    uint32_t offset; /* elements from the start of the storage to the first element */
    uint32_t pitch;  /* elements between rows of a chunk of a wider tensor; 0: contiguous */
    struct shape shape;
    uint8_t dtype;
    bool requires_grad;
    bool split;                   /* of torch.split by widths, or a view of that */
    const struct strides *layout; /* where shape and pitch do not say it; NULL: they do */
};

struct graph_op {
    uint16_t kind; /* enum op_kind, ops.h */
    uint8_t work;  /* enum work_kind of its forward kernel; WORK_NONE: what its class says */
    uint8_t ins, outs;
    uint8_t hidden;     /* the last `hidden` outputs are never Python's: saved or gone at once */
    bool requires_grad; /* becomes a node of the autograd graph */
    bool of_hook;       /* under tape_options.input_nodes only: otherwise it is not there */
    bool of_call;       /* likewise under tape_options.call_hooks */
    bool called_again;  /* the first of a second call of its module, right behind another */
    bool of_autocast;   /* a cast of an argument of the next operator that is none */
    bool of_model;      /* of the model's own forward, whosever the parameters are that it uses */
    uint32_t in[GRAPH_OPERANDS]; /* tensors; GRAPH_NONE for an absent optional operand */
    uint32_t out[GRAPH_OUTPUTS];
    struct kernel_attr attr;
    bool no_grad;     /* under torch.no_grad: it is no node, whatever goes into it */
    bool again;       /* of the model's second call (graph_begin_again) */
    const char *call; /* module whose forward it is; NULL: that of the parameters that it uses, if
                         any */
};

/* AGAIN: of the model's second call, without gradients (graph_begin_again). */
enum item_kind {
    ITEM_OP,
    ITEM_DROP,
    ITEM_ENTER,
    ITEM_EXIT,
    ITEM_MARK,
    ITEM_ENTER_AGAIN,
    ITEM_EXIT_AGAIN,
    ITEM_MARK_AGAIN,
};
struct graph_item {
    uint32_t kind : 4; /* enum item_kind */
    uint32_t arg : 28; /* op, tensor, module or enum graph_mark */
};

enum graph_mark {
    MARK_ROOT_ENTER, /* the root module is called here; without: where the script begins */
    MARK_ROOT_EXIT,  /* the root module's forward returns here */
    MARK_LOGITS,     /* the logits exist */
    MARK_LOSS,       /* the loss exists: the forward pass ends */
    MARK_FRAME, /* a function of the model's own code begins, outside of blocks: what Dynamo sees
                   as a frame (torch's own modules are none) */
    MARK_FRAME_END, /* ... and returns */
    MARK_RETURN,    /* the root's own forward returns: the rest is what wraps it */
    MARK_BREAK,     /* what Dynamo cannot trace: the graph ends, and the rest is another */
    MARK_CALLED,    /* within a block: what it calls is compiled by itself, and it is not */
    MARK_CALLED_END,
};

struct graph_param {
    const char *name; /* as the module tree spells it, "layers.0.attention.wq.weight" */
    struct shape shape;
    uint32_t tensor;
    uint32_t module;    /* innermost module of `modules` that holds it, or GRAPH_NONE: the root's */
    uint32_t cast;      /* autocast's copy of it; GRAPH_NONE: none (yet) */
    uint32_t adapter;   /* of a linear layer's weight: the first of the two parameters of its
                           low-rank adapter, A (r, in) and B (out, r); GRAPH_NONE: it has none */
    uint32_t scale;     /* gathered in float8: the tensor of its scale, a buffer; GRAPH_NONE: it is
                           not */
    uint32_t scales[2]; /* stored in 4 or 8 bits: tensors, buffers, of its scales and of the scales
                           of these; GRAPH_NONE: there are none */
    struct shape whole; /* likewise: (out, in) of what it stands for */
    uint32_t packed;    /* likewise: how many numbers of that are in each of its own */
    bool own_dtype;     /* stored in its tensor's dtype, whatever the others are */
    bool trainable;
    bool read_around;   /* the module that it is of is never called: the one around that reads it */
    bool read_by_outer; /* the module around that which it is of reads it, too */
    bool read_by_model; /* the model's own forward reads it, past the module that it is of */
    bool beside_text;   /* of what a model has beside the text model (model/tower.h) */
    struct param_init init;
};

/* What a parameter is for: decides what it holds at first. */
enum param_role { PARAM_WEIGHT, PARAM_BIAS, PARAM_NORM, PARAM_ROLES };

/* Modules that a sharding strategy may wrap: embeddings, blocks, final norm, head; tables are
 * embeddings of models that nobody wraps as torchtitan does; experts are within a block, and have
 * borders only where they are to be wrapped (model_job.own_experts); inner ones are any others that
 * got borders because they are to be (borders.h). */
enum module_role {
    ROLE_EMBEDDING,
    ROLE_BLOCK,
    ROLE_NORM,
    ROLE_HEAD,
    ROLE_TABLE,
    ROLE_EXPERTS,
    ROLE_INNER,
    ROLE_BESIDE, /* any of another model (graph_begin_again) */
};
enum { MODULE_INPUTS = 6 };
struct graph_module {
    const char *name; /* "layers.0" */
    enum module_role role;
    uint32_t like; /* of another model: the module of the first that it is as; GRAPH_NONE: it is its
                      root, or of the first */
    uint32_t input[MODULE_INPUTS]; /* tensors its forward is called with; count in `inputs` */
    uint32_t inputs, arguments;    /* the first so many of them by position */
    uint32_t output;               /* the tensor that its forward returns */
};

/* How autograd works where real tensors and others differ (op_class.h, tape_backward.c): in place
 * what it may, as it does on a GPU; or in a new tensor, as it does under a dispatch mode, which is
 * how recordings on fake tensors are made (tests/data/truth). */
enum autograd { AUTOGRAD_GPU, AUTOGRAD_RECORDED };

/* Who computes the loss, and so how often the logits exist: PyTorch, on a copy in fp32; PyTorch, on
 * the logits in their own dtype; a fused kernel, which puts their gradient where they were; a loop
 * over chunks of the tokens that has the head and its backward in it, so that there are never more
 * than a chunk's (ops_fused_loss.c); PyTorch's on fp32 by torch.compile, whose kernels read the
 * logits as they are (planner/compile); or Liger's loop over chunks, or its
 * cross-entropy of logits in fp32 (ops_liger_loss.c); or cut cross entropy, which has no logits
 * (ops_cut_loss.c); or TRL's, which has a tile of them (ops_log_probs.c); or the model's own and
 * a trainer's, of each token, on a second copy in fp32 (hf/loss.c); or that of
 * TRL's trainer of preferences (model/dpo.h), of policies (model/grpo.h), or of rewards
 * (hf/reward.c), whose model classifies.
 */
enum cross_entropy {
    CROSS_ENTROPY_EAGER,
    CROSS_ENTROPY_DIRECT,
    CROSS_ENTROPY_FUSED,
    CROSS_ENTROPY_CHUNKED,
    CROSS_ENTROPY_COMPILED,
    CROSS_ENTROPY_LIGER,
    CROSS_ENTROPY_LIGER_LOGITS,
    CROSS_ENTROPY_CUT,
    CROSS_ENTROPY_LM_HEAD,
    CROSS_ENTROPY_PER_TOKEN,
    CROSS_ENTROPY_PER_TOKEN_LIGER, /* ... both Liger's */
    CROSS_ENTROPY_DPO,
    CROSS_ENTROPY_GRPO,
    CROSS_ENTROPY_REWARD,
};
static inline bool loss_is_per_token(enum cross_entropy loss)
{
    return loss == CROSS_ENTROPY_PER_TOKEN || loss == CROSS_ENTROPY_PER_TOKEN_LIGER;
}
/* What `--loss` calls it. */
const char *cross_entropy_name(enum cross_entropy loss);
/* The model has TRL's fused LM head. */
static inline bool loss_is_of_trl(enum cross_entropy loss)
{
    return loss == CROSS_ENTROPY_LM_HEAD || loss == CROSS_ENTROPY_DPO || loss == CROSS_ENTROPY_GRPO;
}
/* The model's forward reads the head's weight for its loss, and calls no module that has it. */
static inline bool loss_has_head(enum cross_entropy loss)
{
    return loss == CROSS_ENTROPY_LIGER || loss == CROSS_ENTROPY_CUT || loss_is_of_trl(loss);
}

/* How long the training script has a name for what the model returned: until the loss is known;
 * until backward has run, as in a function that returns then; until the next forward pass has
 * returned it anew, as in a loop. */
enum outputs_kept { OUTPUTS_DROPPED, OUTPUTS_UNTIL_BACKWARD, OUTPUTS_UNTIL_NEXT };
enum { OUTPUTS_MOST = 3 };

enum { LOSS_CHUNKS = 8 }; /* torchtitan components/loss.py, num_chunks */

/* Products of linear layers in float8, by torchao's recipes: one scale a tensor; one a row of each
 * factor; likewise, but the weight's gradient in the compute dtype. */
enum float8 { FLOAT8_NONE, FLOAT8_TENSORWISE, FLOAT8_ROWWISE, FLOAT8_ROWWISE_GW_HP };

/* How FSDP2 gathers the weights of such layers: in the compute dtype, and every product casts them;
 * or cast before, a byte an element (torchao's enable_fsdp_float8_all_gather), with scales found at
 * each gather, or all of them after the update (precompute_float8_dynamic_scale_for_fsdp). */
enum float8_gather { FLOAT8_GATHER_NOT, FLOAT8_GATHER_DYNAMIC, FLOAT8_GATHER_PRECOMPUTED };

/* The region of torch.autocast that the script is in (autocast.h). */
struct graph_autocast {
    bool on;
    bool around;      /* one more is around the model's call: what leaves its own does not end it */
    enum dtype dtype; /* of products */
    uint32_t passing[GRAPH_OPERANDS]; /* casts that go with the next operator of `kind` */
    uint32_t passing_count;
    uint32_t *kept; /* casts of parameters, which go with the region, by birth */
    uint32_t kept_count, kept_cap;
    int kind;
};

struct graph_leaf { /* graph_leaf */
    const char *name, *class_name;
    size_t length; /* of the name */
    const struct graph_leaf *before;
};

struct graph_called { /* a module that a recording lists */
    const char *name;
    const uint32_t *params; /* its own, and those of others that it reads */
    uint32_t own, count;
};

/* Low-rank adapters beside linear layers, of which alone a model is then trained (model/lora.h). */
struct graph_lora {
    uint32_t rank;       /* 0: none */
    float scale;         /* lora_alpha / r */
    float dropout;       /* of what an adapter is given; 0: none */
    const char *targets; /* names of layers by commas; NULL: every linear layer but the head */
    const struct pattern *pattern; /* what their whole paths are like, in place of names; NULL */
    bool beside;                   /* paths are of what is beside the text model (model/tower.h) */
    uint64_t apart_from; /* weights of so many elements are apart: FSDP1 shows their shards, in
                            another dtype, to who asks before they are called; 0: none are */
    enum dtype apart;    /* that dtype */
    bool mlp, qkv, o; /* axolotl's kernels in the place of peft's layers (model/lora_kernels.h) */
    bool gelu;        /* the gated unit's is of GELU */
    bool mixed;       /* found: one has factors of two dtypes, which fails */
};

/* Which of Liger's kernels a model has in the place of its own (families/liger.h). */
struct graph_liger {
    bool rope, rms_norm, glu;
    bool geglu;   /* its gated unit is of GELU */
    bool apart;   /* its norms' backward is not in place */
    float offset; /* that is added to their weights */
    uint32_t
        chunks; /* of the loss's logits, as many as `chunks` times the hidden states' numbers */
};

/* Linear layers whose weights are stored in 4 bits, as transformers makes them of a
 * BitsAndBytesConfig (model/bits4.h). */
enum bits4 { BITS4_NOT, BITS4_NF4, BITS4_FP4 };
struct graph_bits4 {
    enum bits4 kind;
    bool twice;         /* bnb_4bit_use_double_quant: scales are of a byte, and have scales */
    enum dtype compute; /* bnb_4bit_compute_dtype */
    enum dtype storage; /* bnb_4bit_quant_storage: of the tensor that they are packed in */
    enum dtype made;    /* what was quantised, and is again when backward asks for it */
    bool experts;       /* experts' parameters, too, as bitsandbytes' parametrizations */
};

/* What a model with TRL's fused LM head returns; GRAPH_NONE: it was not asked for. */
struct graph_scores {
    uint32_t loss, log_probs, entropy, mean_logits, is_top1, mask;
    uint32_t count; /* that the loss's node keeps */
};

/* Of --loss dpo and grpo: inputs, and what the last call of the model returned. */
struct graph_preferences {
    bool precomputed; /* the reference's log-probabilities are columns of the batch */
    uint32_t tokens, mask, labels;
    struct graph_scores scores;
};

/* Another model like it (graph_begin_again): parameters and modules from these on are that one's,
 * the first module being its root. GRAPH_NONE: there is none. */
struct graph_beside {
    uint32_t param, module;
};

/* How far a second call of the builder has come (graph_begin_again). */
struct graph_again {
    bool on, other;
    uint32_t param, module, given;
    uint32_t embedded; /* the first call's */
};

/* What a block puts into a dictionary that all blocks are called with: a tuple of two, in the order
 * in which it lets go of them. */
enum { HANDED_MOST = 2, HANDED_PAIR = 2 };
struct graph_handed {
    uint32_t op; /* the last before it is put there */
    uint32_t tensor[HANDED_PAIR];
};

struct graph {
    struct arena arena; /* owns everything below */
    struct graph_storage *storages;
    struct graph_tensor *tensors;
    struct graph_op *ops;
    struct graph_item *items;
    struct graph_param *params;
    struct graph_module *modules;
    const struct strides **layouts; /* (layout_count) of tensors, each once */
    struct input_values *inputs;    /* (input_count) */
    struct buffer_values *buffers;  /* (buffer_count) */
    uint32_t *given;                /* (given_count) storages of inputs and buffers, in order */
    uint32_t storage_count, tensor_count, op_count, item_count, param_count, module_count;
    uint32_t storage_cap, tensor_cap, op_cap, item_cap, param_cap, module_cap;
    uint32_t input_count, buffer_count, given_count, input_cap, buffer_cap, given_cap;
    uint32_t layout_count, layout_cap;
    /* (params) their indices in the order in which fully_shard lists them: by modules, children
     * before the module's own. `params` is in the order of named_parameters(), where a module's own
     * come first; that differs where a module has both. NULL before graph_list_groups. */
    const struct graph_called *called; /* of a recorded graph: every module; else NULL */
    uint32_t called_count;
    const uint32_t *group_order;
    uint32_t loss;           /* the tensor backward starts from */
    uint32_t padded;         /* tokens of a batch that are padding */
    uint32_t prompt;         /* tokens at the start of each sequence that have no label */
    uint32_t attention_mask; /* (b, s) int64: 0 where it is; GRAPH_NONE: the model is given none */
    enum dtype compute;      /* dtype of unsharded parameters and activations */
    bool wide_trained;       /* ... but for parameters that are trained, which are in fp32 */
    bool compiled;           /* blocks or all of it, by torch.compile */
    enum dtype made;         /* the default one while the model is made */
    enum autograd autograd;
    uint32_t torch; /* 2.x, whose operators these are (base/torch.h); 0: the newest */
    enum cross_entropy cross_entropy;
    bool watched; /* a dispatch mode sees every call of the forward pass's blocks, and ATen takes
                     tensors for those of subclasses (isTensorSubclassLike) */
    enum attention_kernel attention; /* AUTO: flash where a code leaves it to PyTorch */
    enum attention_gpu attention_gpu;
    enum float8 float8;
    enum float8_gather float8_gather;
    struct graph_autocast autocast;
    struct graph_preferences preferences;
    struct graph_again again;
    bool without_grad; /* while building: in a function under torch.no_grad, whose ops are no nodes
                        */
    struct graph_beside beside;
    bool saved_adapted; /* adapters are wanted of what peft trains a copy of (hf/classify.c) */
    bool enters_root;   /* MARK_ROOT_ENTER is there ... */
    bool casts_first;   /* ... behind casts of what the root is called with, its hooks' own: these
                           begin with the script */
    struct graph_handed handed[HANDED_MOST];
    uint32_t handed_count;
    uint32_t current_module; /* while building: where new params belong */
    const char *calling[8];  /* graph_call_begin: calling_depth of them, the innermost last */
    bool calling_again;      /* graph_call_again: of the op that comes */
    uint32_t calling_depth;
    const struct graph_leaf *leaves; /* the last that was said first; NULL: none */
    const char *sequences; /* globs of nn.Sequentials: modules like others, whose children have
                              numbers for names as those of lists do; NULL: none. Lent */
    const char *uncalled; /* modules that their children are called past, by commas: names, or, from
                             a '.' on, ends of names; NULL: none. Lent */
    const char *apart;    /* a module that is not called by the one it is in, but by the one around
                             that,    earlier; NULL: none. Lent */
    uint32_t multiprocessors; /* of the GPU, by which some kernels take their buffers; 0: unknown */
    const char *by_name; /* ".linear_attn": modules of that name are called by keywords alone, so
                            hooks see no input of theirs; NULL: none. Lent */
    const char *frozen;
    bool all_frozen; /* while building: parameters declared now are not trained */
    struct graph_lora lora;
    struct graph_bits4 bits4;
    bool bits8; /* linear layers whose weights are stored in 8 bits (model/bits8.h) */
    const char
        *bits_skipped;       /* those that are not, by commas (bits4_skips); NULL: the head. Lent */
    const char *cast_back;   /* frozen parameters are in fp32, but for those that such globs match;
                                NULL: all are in `compute`. Lent */
    const char *lies_across; /* a weight whose layer is given what is no matrix of rows, as tokens
                                are the last dim; NULL: there is none */
    const char *bits_read;   /* a weight that would be, and that kernels read past its module, as it
                                is stored; NULL: none is */
    struct graph_liger liger;
    bool bits4_table; /* what tables of scales are copied from has been declared */
    bool views;       /* parameters are views of something larger: autocast keeps no cast of them */
    bool own_experts; /* experts are wrapped on their own: builders give their borders */
    bool is_recording; /* of what PyTorch ran: no builder made it */
    bool loss_breaks;  /* transformers' loss_function, of a class that none is known of, says so in
                          the log: MARK_BREAK */
    bool outputs_fp32; /* the root casts what it returns to fp32: builders do */
    enum outputs_kept outputs_kept;
    bool returns_nodes; /* what the model returns passes nodes of the system's (model_job) */
    uint32_t outputs[OUTPUTS_MOST], output_count; /* what is kept, in order; builders say it */
    bool copies_outputs; /* the root's caller gets copies of what it returns: builders make them */
    uint32_t embedded;   /* what the embedding of the tokens returns, where its builder says; else
                            GRAPH_NONE: the first lookup's */
    bool has_leaves;     /* activations that need a gradient though what makes them does not */
    bool keeps_mm_alone; /* torchtitan's mixtures: its selective policy has no other product */
    bool casts_inputs;   /* modules that are wrapped cast what they are called with to `compute` */
    bool own_init;       /* parameters start as their code draws them, not with test values */
    struct param_init weights; /* with own_init: what weights hold that are declared next */
};

/* How many tokens of a batch of so many sequences have no label of those that a label is looked
 * for: all but each sequence's first, whose label is none's target. */
uint32_t graph_unlabelled(const struct graph *graph, uint32_t batch);

/* An empty graph. `frozen` is a comma-separated list of glob patterns (fnmatch): parameters whose
 * names match need no gradient. Lent until graph_free; NULL: none. */
struct graph *graph_new(enum dtype compute, const char *frozen);
/* Runs the forward pass under torch.autocast(dtype): before the first operator. */
void graph_autocast(struct graph *graph, enum dtype dtype);
/* Ends that region: its casts of parameters are let go of. MARK_ROOT_EXIT ends it otherwise. */
void graph_leave_autocast(struct graph *graph);
void graph_free(struct graph *graph); /* NULL is allowed */

/* Modules that are blocks. */
uint32_t graph_count_blocks(const struct graph *graph);

/* A parameter of the current module, in registration order; returns its tensor. At first,
 * norms' factors are 1, biases 0, and weights what tests/data/numerics/README.md says: test
 * values. */
uint32_t graph_param(struct graph *graph, enum param_role role, struct shape shape, const char *fmt,
                     ...) __attribute__((format(printf, 4, 5)));

/* The same of a frozen weight that is stored in 4 bits, packed in `storage`, with its scales, by
 * graph->bits4; and of a frozen parameter in a dtype of its own. */
uint32_t graph_packed(struct graph *graph, struct shape whole, enum dtype storage,
                      const char *name);
/* The same in 8 bits, with a scale of each row. */
uint32_t graph_in_8bit(struct graph *graph, uint32_t out, uint32_t in, const char *name);
void graph_own_dtype(struct graph *graph, uint32_t tensor, enum dtype dtype);
/* The parameter that a tensor is; NULL: it is none. */
const struct graph_param *graph_param_of(const struct graph *graph, uint32_t tensor);

/* How the model's own code initialises it: weights declared from here on; one parameter. Both
 * count only where own_init is set, which is done before anything is declared. */
void graph_init_weights(struct graph *graph, struct param_init init);
void graph_init_param(struct graph *graph, uint32_t tensor, struct param_init init);

/* The module of a parameter is never called: the one around it reads it. */
void graph_read_around(struct graph *graph, uint32_t tensor);

/* The module of a parameter is called, and the one around it reads the parameter, too. */
void graph_read_by_outer(struct graph *graph, uint32_t tensor);

/* The last op is of the model's own forward, which reads this parameter of a module in it. */
void graph_read_by_model(struct graph *graph, uint32_t tensor);

/* The builder is called once more, for a forward pass of the same model under torch.no_grad: what
 * it declares is what it declared before, in the same order, and ops are no nodes. Adapters are
 * disabled (model/lora.h). `other`: of another model like it, which has parameters, modules and
 * buffers of its own (graph->beside). Nobody trains it, but its parameters need a gradient, which
 * autocast's cache asks for, under no_grad, too. */
void graph_begin_again(struct graph *graph, bool other);
void graph_end_again(struct graph *graph);
/* Parameters, or modules, of the model that is trained: the first ones. */
uint32_t graph_own_params(const struct graph *graph);
uint32_t graph_own_modules(const struct graph *graph);

/* A batch input (int64 token ids) or a module buffer that exists before the step; returns its
 * tensor. `values` is copied. */
uint32_t graph_input(struct graph *graph, struct shape shape, struct input_values values);
uint32_t graph_input_of(struct graph *graph, enum dtype dtype, struct shape shape,
                        struct input_values values);
uint32_t graph_buffer(struct graph *graph, enum dtype dtype, struct shape shape,
                      const struct buffer_values *values);

/* Adds an op with no operands yet; returns its index. Used by the constructors in ops_*.c. */
uint32_t graph_op_new(struct graph *graph, int kind);
/* A new storage born by `op`, as its next output; returns its tensor. */
uint32_t graph_op_birth(struct graph *graph, uint32_t op, enum aten aten, enum dtype dtype,
                        struct shape shape);
/* Closes the op: decides whether it needs a gradient and puts it in the script. */
void graph_op_done(struct graph *graph, uint32_t op);
/* An operator of `kind` is done, and with it, if it is the one that autocast made them for, casts
 * that were arguments of the call alone. graph_op_done says so; or who composes the operator. */
void graph_call_done(struct graph *graph, int kind);

/* Another shape over the same storage: no memory, and the same gradient. */
uint32_t graph_view(struct graph *graph, uint32_t tensor, struct shape shape);
/* Two dims change places: likewise. */
uint32_t graph_transpose(struct graph *graph, uint32_t tensor, uint32_t i, uint32_t j);
/* A tensor without a gradient: `count` elements of its last dim from `first` on; and stretched
 * to `shape`. */
uint32_t graph_slice(struct graph *graph, uint32_t tensor, uint32_t first, uint32_t count);
uint32_t graph_expand(struct graph *graph, uint32_t tensor, struct shape shape);

/* Elements between neighbours of each dim; and to say so of a tensor. */
struct strides graph_strides(const struct graph *graph, uint32_t tensor);
/* Its elements lie one behind the other, the last dim's first. */
bool graph_is_contiguous(const struct graph *graph, uint32_t tensor);
void graph_set_strides(struct graph *graph, uint32_t tensor, const struct strides *strides);

/* The same bytes as another dtype of the same total size (view_as_complex and back). */
uint32_t graph_view_dtype(struct graph *graph, uint32_t tensor, enum dtype dtype,
                          struct shape shape);

/* Python's last reference to the tensor's storage goes away here. */
void graph_drop(struct graph *graph, uint32_t tensor);

/* A tensor is among what the model returns, which graph.outputs_kept says until when it is kept: it
 * is dropped here, or with backward. */
void graph_output(struct graph *graph, uint32_t tensor);

/* `kept` is saved by a node that is on the way to `tensor` alone, and that no gradient will
 * reach: where autograd saves, it lives until Python lets go of `tensor`, just before that.
 * `asked`: there is such a node if this one needs a gradient. */
void graph_keeps(struct graph *graph, uint32_t tensor, uint32_t kept, uint32_t asked);

/* The same where the Python name of `tensor` is given to `next`: should an exception end the
 * function before, `tensor` dies in the order in which the name does. */
void graph_rebind(struct graph *graph, uint32_t tensor, uint32_t next);
/* The same of a result that the caller lets go of: should an exception end the function that made
 * it, `tensor` dies just before `next` does. */
void graph_dies_before(struct graph *graph, uint32_t tensor, uint32_t next);

/* The block that is built puts these into a dictionary that all blocks are called with, once its
 * last op so far has run; at most HANDED_MOST blocks do. Its name is dropped behind the last block.
 */
void graph_hand_on(struct graph *graph, const uint32_t tensors[HANDED_PAIR]);

/* Declares a module (returns its index): parameters declared from here to its exit are its own.
 * Then its borders in the script. */
uint32_t graph_module(struct graph *graph, enum module_role role, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void graph_enter(struct graph *graph, uint32_t module, uint32_t input);
void graph_also_input(struct graph *graph, uint32_t module, uint32_t input);
/* The same of what it is called with by position, as the first one is, and not by name: before any
 * of the others. */
void graph_also_argument(struct graph *graph, uint32_t module, uint32_t input);
void graph_exit(struct graph *graph, uint32_t module, uint32_t output);
/* Declares no more of a module that is never called, and so has no borders. */
void graph_leave_module(struct graph *graph);
void graph_mark(struct graph *graph, enum graph_mark mark);

/* The op that births `tensor` is the forward of a module without parameters. */
void graph_call_is(struct graph *graph, uint32_t tensor, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* A system with hooks on every module has none within this one, which brings all of its parameters
 * (DeepSpeed's leaf modules). `class_name`: the module's, where it is one by that; lent,
 * or NULL. */
void graph_leaf(struct graph *graph, const char *class_name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Whether the first `length` characters of a module's or parameter's name are such a module or are
 * in one: how many of them are the outermost one's name; 0: they are not. */
size_t graph_leaf_around(const struct graph *graph, const char *name, size_t length);

/* The ops from here to graph_call_end are the forward of this module, but for those of modules that
 * begin within it: what a system does where modules are called, it does before the first of them,
 * which need not be the first that has a parameter. */
void graph_call_begin(struct graph *graph, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void graph_call_end(struct graph *graph);
/* The module that has begun is called again from here: it has returned, and its next op is the
 * first of another call. */
void graph_call_again(struct graph *graph);

/* Parameters of which needs[i] is true need a gradient, too, trained or not; and so whatever is
 * computed with them. For a graph that is complete. */
void graph_need_gradients(struct graph *graph, const bool *needs);

/* What the embedding of the tokens returns needs a gradient, and so whatever is computed with it:
 * transformers' enable_input_require_grads. Where the embedding is not trained it is a leaf. For a
 * graph that is complete. */
void graph_need_input_gradients(struct graph *graph);

/* Once all parameters are declared: fills group_order. */
void graph_list_groups(struct graph *graph);

/* Elements of all parameters, each counted once. */
uint64_t graph_parameter_elements(const struct graph *graph);

#endif

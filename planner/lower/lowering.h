/* lowering.h - what a sharding system is, and what it builds its program with.
 *
 *     driver                                   system
 *     declares parameters                      set_up: units, where pieces of parameters are
 *     declares inputs and module buffers
 *     step, micro-batches                      begin
 *       births, deaths, kernels of the stream
 *       a module's forward begins, ends        pre_forward, post_forward
 *       its output has a gradient              pre_backward
 *       a parameter's gradient is there        gradient
 *       its gradients are all there            post_backward; back: its inputs need none
 *       autograd's final callback              final
 *     clipping, optimizer                      before_step, after_step; or update
 *     zero_grad                                close
 *
 * A system is one `struct system` in one file and a row of SYSTEM_MAP (lower.h). */
#ifndef SHARDPLAN_LOWERING_H
#define SHARDPLAN_LOWERING_H

#include "base/vocabulary.h"
#include "lower/lower.h"
#include "lower/outline.h"

#define NONE PLACE_NONE

struct lowering;
struct tally; /* tally.h */

/* Each function may be NULL: nothing happens there. Modules are the graph's, MODULE_ROOT the root's
 * own hooks. */
struct system {
    const char *name;
    size_t state_bytes; /* of lowering.state, zeroed */
    bool dtensors;      /* parameters are DTensors: clipping handles them as such */
    bool own_programs;  /* ranks run different instructions */
    bool input_nodes;   /* its hooks pass modules' inputs through nodes (tape_options.h) */
    bool call_hooks;    /* likewise: it has hooks on every module */
    bool unit_hooks;    /* likewise: on the modules that its units are */
    bool own_linear;    /* likewise: it puts a function of its own in the place of F.linear */
    bool scaled_loss;   /* likewise: its engine has the loss */
    uint64_t (*bucket_bytes)(const struct strategy *strategy); /* tape_options; NULL: none */
    bool (*unscaled)(const struct strategy *strategy); /* ... and only divides it; NULL: never */
    bool views;          /* parameters are views of larger ones (graph.h) */
    bool fetches_apart;  /* how far ahead parameters are fetched changes neither what the compute
                            stream's segments are asked for nor in which order */
    bool as_stored;      /* parameters are computed with as they are stored, each in its dtype */
    bool casts_inputs;   /* its hooks cast modules' inputs where parameters are cast (model.h) */
    bool casts_root;     /* likewise what the model is called with, and nothing else */
    bool casts_params;   /* it casts parameters of what was made in fp32, and no buffers */
    bool node_hooks;     /* recording_choice */
    uint32_t zero_stage; /* of DeepSpeed's ZeRO; 0: it is another's */
    bool marks_blocks;   /* its hooks say where the blocks' backward begins, not the stream */
    bool alone;          /* system_is_alone */
    bool settles;        /* how a step begins depends on how the one before ended, update aside */
    /* Changes what needs a gradient (graph_need_gradients), before the graph is run. */
    void (*prepare)(const struct strategy *strategy, struct graph *graph);
    /* Whether the strategy goes with the mesh (ERR_INVALID) and the system can do what the model
     * does (ERR_UNSUPPORTED); with a sentence. `stream` says which parameters get a gradient. */
    enum err_code (*check)(const struct strategy *strategy, const struct graph *graph,
                           const struct stream *stream, struct err *err);
    /* Lanes, groups, units, pieces, and what else is there before the first step. */
    void (*set_up)(struct lowering *low);
    void (*begin)(struct lowering *low); /* of a micro-batch */
    void (*pre_forward)(struct lowering *low, uint32_t module);
    void (*post_forward)(struct lowering *low, uint32_t module);
    void (*pre_backward)(struct lowering *low, uint32_t module);
    void (*post_backward)(struct lowering *low, uint32_t module);
    void (*back)(struct lowering *low, uint32_t module); /* where post_backward is not called */
    /* A backward of the module's own has come to its end (STEP_NESTED). */
    void (*nested)(struct lowering *low, uint32_t module);
    /* With call_hooks: any module (graph/calls.h) is called or returns, as `kind` says. */
    void (*called)(struct lowering *low, enum step_kind kind, uint32_t call);
    /* Likewise: a node saves the memory that a parameter has now, and lets go of it again. */
    void (*saved)(struct lowering *low, uint32_t param);
    void (*unsaved)(struct lowering *low, uint32_t param);
    /* Whether autograd casts a parameter's gradient, of dtype `from`, before AccumulateGrad is
     * called with it; then *to is set. */
    bool (*casts_gradient)(const struct lowering *low, uint32_t param, enum dtype from,
                           enum dtype *to);
    /* AccumulateGrad has run: low->grad[param] has this micro-batch's gradient in it. A system that
     * keeps .grad elsewhere copies it there and calls move_gradient. */
    void (*gradient)(struct lowering *low, uint32_t param);
    void (*final)(struct lowering *low);
    /* After the last micro-batch: says where gradients are (gradient pieces). */
    void (*before_step)(struct lowering *low);
    void (*after_step)(struct lowering *low); /* what optimizer.step() does behind the update */
    void (*close)(struct lowering *low);
    /* Frees what set_up made that is not low->scratch's, whatever was lowered since. */
    void (*tear_down)(struct lowering *low);
    /* optimizer.step() as a whole, clipping too, in place of before_step, clip_grad_norm_, one
     * update of everything and after_step. */
    void (*update)(struct lowering *low);
};

#define X(name, text, of) extern const struct system system_##of;
SYSTEM_MAP(X)
#undef X

/* What the optimizer has one tensor for: a parameter's part, usually. Buffers are NONE where there
 * is no such thing. */
struct optimized {
    uint32_t param;          /* whose part it is; NONE: of several */
    struct operand value;    /* updated in place */
    struct operand gradient; /* of several: what the update reads. One's is its gradient piece */
    bool trained;
    bool on_host;            /* it and its states: the CPU updates it */
    bool updated;            /* the update changes something of it on this rank */
    uint32_t state[2], step; /* buffers: exp_avg, exp_avg_sq, the step counter */
    uint32_t scale[2];       /* of states that are codes: their scales, a block of elements each */
    uint32_t table[2];       /* likewise: the values that they stand for */
    bool makes_tables;       /* its tables are made with its states */
};

/* Of works of one kind, the one that was issued last: as one like it costs as much where nobody
 * asks where its operands are, it serves again. */
struct issued {
    uint32_t kernel; /* NONE: there is none yet */
    uint8_t op, lane, group, phase;
    bool own; /* in a call of the system's */
};

/* What a kernel of lists is to an outline. */
struct sums {
    struct operand *first; /* (2) in and out, in the plan */
    uint32_t ins, outs;    /* so many are summed */
    double in_bytes, out_bytes;
};

/* A gradient of the stream that autograd has cast: what is in its place now. */
struct recast {
    uint32_t buffer; /* of the stream */
    struct operand now;
    const struct stream_given *given; /* NULL: it is a sum of others, or has been added */
};

enum { MODULES_DEEP = 8 }; /* modules with borders within each other, at most */

struct lowering {
    struct plan *plan;
    const struct system *system;
    void *state; /* the system's own */
    const struct graph *graph;
    const struct stream *stream;
    const struct stream_step *hooks; /* (hook_count) every hook of the stream, in order, and perhaps
                                        what is between them */
    uint32_t hook_count;
    const struct strategy *strategy;
    struct tally *tally;  /* of an outline: instead of allocs and frees; else NULL */
    uint32_t *like;       /* (params) of an outline: the earlier parameter whose pieces, buffers and
                             optimizer's states stand for this one's, or itself; the system's set_up says
                             where outline_is_short. NULL: each has its own */
    bool nameless;        /* all calls of the system are one scope */
    struct issued *last;  /* (works) of an outline; else NULL */
    struct arena scratch; /* gone with the lowering */
    struct plan_instruction here; /* phase, flags and scope of what is emitted next */
    struct operand *grad; /* (params) .grad: what AccumulateGrad adds to. The first gradient itself
                             until the system puts it elsewhere; place NONE: there is none */
    struct recast
        *recast; /* (recast_count) gradients that autograd cast and that have not arrived */
    uint32_t recast_count, recast_cap;
    struct operand *gathered; /* (params) where kernels find them from now on; NULL: always where
                                 their pieces say */
    bool *strided;            /* (params) whether .grad lies otherwise than it (stream_grad) */
    uint32_t incoming; /* the gradient that AccumulateGrad was called with; NONE outside of it */
    uint32_t base;     /* first plan buffer of this micro-batch's stream buffers */
    uint8_t aside;     /* lane of the stream's copies between host and device (aside.h) */
    uint32_t *copied;  /* (stream's kernels) event behind such a copy; NONE */
    uint32_t *used;    /* (stream's buffers) event behind who uses it; NONE */
    uint32_t micro_batch;
    bool sync;          /* this micro-batch reduces */
    bool no_grad;       /* the model is called once more, under torch.no_grad (STEP_NO_GRAD) */
    uint8_t norm_group; /* over which clipping sums norms; PLAN_NO_GROUP: a rank has all. The
                           system's set_up says */
    struct optimized *optimized; /* in the optimizer's order: one a parameter, unless set_up made
                                    others */
    uint32_t optimized_count;
    uint32_t tables[2];    /* of codes, the latest that were made; NONE */
    bool *embedding;       /* (params) whose weight is an nn.Embedding's; NULL: nobody has asked */
    uint32_t second_group; /* of the optimizer's: begins with this one; 0: there is one group */
    const char **module_names;            /* (modules) of the plan's life */
    uint32_t inside[MODULES_DEEP], depth; /* modules that the host is in, the innermost last */
    struct scope_entry *scopes;           /* hash of the scopes so far */
    uint32_t scope_slots;
};

/* ---- instructions ---- */

void emit_alloc(struct lowering *low, uint32_t buffer);
void emit_free(struct lowering *low, uint32_t buffer);
/* Buffers that come and go together, one after the other. */
struct bundle {
    uint32_t count;
    const uint32_t *buffers;    /* (count) lent */
    struct outline_bytes bytes; /* where outline_is_short: of all of them */
};
struct bundle bundle_of(const struct lowering *low, uint32_t count, const uint32_t *buffers);
void emit_alloc_all(struct lowering *low, const struct bundle *bundle);
void emit_free_all(struct lowering *low, const struct bundle *bundle);
/* The host lets go of a buffer that `lane` still works on: its block comes back when the pool's
 * lane has waited for that. */
void emit_free_after(struct lowering *low, uint32_t buffer, uint8_t lane);
/* `lane` is one that a buffer's free waits for, too (PLAN_USE); nothing where it is of its pool. */
void emit_use(struct lowering *low, uint32_t buffer, uint8_t lane);
uint32_t emit_record(struct lowering *low, uint8_t lane);
void emit_wait(struct lowering *low, uint8_t lane, uint32_t event);
void emit_mark(struct lowering *low, enum plan_mark mark);
/* `lane` waits for all that was given to `of` so far. */
void emit_sync(struct lowering *low, uint8_t lane, uint8_t of);
/* An instruction of kind `op` whose operands are whole buffers. Returns its kernel. */
uint32_t emit_work(struct lowering *low, enum plan_op op, uint8_t lane, enum work_kind work,
                   enum aten label, uint8_t group, uint32_t ins, const uint32_t *in, uint32_t outs,
                   const uint32_t *out);
/* The same with operands that are views. */
uint32_t emit_work_on(struct lowering *low, enum plan_op op, uint8_t lane, enum work_kind work,
                      enum aten label, uint8_t group, uint32_t ins, const struct operand *in,
                      uint32_t outs, const struct operand *out);
/* The same of an outline, where work_is_of_lists: from begin_sums on, each operand is added. */
struct sums begin_sums(struct lowering *low);
uint32_t emit_sums(struct lowering *low, enum plan_op op, uint8_t lane, enum work_kind work,
                   enum aten label, uint8_t group, const struct sums *sums);
void sums_add_in(struct sums *sums, const struct operand *operand);
void sums_add_out(struct sums *sums, const struct operand *operand);
/* One that is in the plan already. */
void emit_kernel(struct lowering *low, enum plan_op op, uint8_t lane, uint32_t kernel,
                 uint8_t group);
/* Of an outline: the kernel of one before on buffers of the same sizes, *kernel, serves again.
 * False if there is none yet (NONE), or in a program: it is to be made, and *kernel set. */
bool emit_again(struct lowering *low, enum plan_op op, uint8_t lane, uint8_t group,
                const uint32_t *kernel);
/* One operand in, one out, on no group. */
uint32_t emit_unary(struct lowering *low, uint8_t lane, enum work_kind work, enum aten label,
                    uint32_t in, uint32_t out);

/* The call that the host is inside of: what is emitted until leave_scope(low, the result) carries
 * "call[unit]", or "call" where `named` is false. */
uint32_t enter_scope(struct lowering *low, const char *call, uint32_t unit, bool named);
/* The same for what is no unit: "call[name]". The name is lent for the plan's life, and is told
 * from others by its address. */
uint32_t enter_named_scope(struct lowering *low, const char *call, const char *name);
void leave_scope(struct lowering *low, uint32_t before);

/* ---- buffers and pieces ---- */

/* Declares a buffer without allocating it. Inline, as the next: shapes that are passed on in memory
 * would cost more than all the rest. */
static inline uint32_t new_buffer(struct lowering *low, enum category category, uint8_t pool,
                                  enum aten label, enum dtype dtype, struct shape shape)
{
    *plan_push_buffer(low->plan) = (struct buffer){
        .bytes = shape_bytes(&shape, dtype),
        .label = (uint16_t)label,
        .dtype = (uint8_t)dtype,
        .category = (uint8_t)category,
        .pool = pool,
        .shape = shape,
    };
    return low->plan->buffer_count - 1;
}

/* One that is there before the first step. */
static inline uint32_t new_resident(struct lowering *low, enum category category, uint8_t pool,
                                    enum aten label, enum dtype dtype, struct shape shape)
{
    const uint32_t buffer = new_buffer(low, category, pool, label, dtype, shape);
    low->plan->buffers[buffer].resident = true;
    return buffer;
}

/* Declares and allocates. */
uint32_t alloc_buffer(struct lowering *low, enum category category, uint8_t pool, enum aten label,
                      enum dtype dtype, struct shape shape);
/* A piece of a parameter; `group`: over which the placement spreads it. */
static inline void new_piece(struct lowering *low, uint32_t param, enum piece_role role,
                             uint32_t buffer, uint64_t offset, struct placement placement,
                             uint8_t group)
{
    *plan_push_piece(low->plan, param, role) = (struct plan_piece){
        .param = param,
        .buffer = buffer,
        .offset = offset,
        .placement = placement,
        .role = (uint8_t)role,
        .group = placement.kind == PLACEMENT_WHOLE ? PLAN_NO_GROUP : group,
    };
}

/* .grad is `to` from now on; what it was dies, unless the engine still holds it. */
void move_gradient(struct lowering *low, uint32_t param, struct operand to);
/* The same where .grad's storage is exchanged (`grad.data = to`): that dies even if the engine
 * holds the tensor. `lane` may still work on it. */
void exchange_gradient(struct lowering *low, uint32_t param, struct operand to, uint8_t lane);

/* Whether buffers are summed up and nothing else: one may stand for others of its size. */
bool outline_is_short(const struct lowering *low);
/* There: so many more residents like `buffer`, which may be NONE. */
void again_resident(struct lowering *low, uint32_t buffer, uint32_t times);

/* Nothing was issued so far. */
void forget_issued(struct lowering *low);

/* An array of `count` indices, all NONE, in low->scratch. */
uint32_t *none_array(struct lowering *low, uint32_t count);

/* A parameter that is trained and gets no gradient; NONE: there is none. For a system's check. */
uint32_t find_unused(const struct graph *graph, const struct stream *stream);
/* Has no such parameter trained in the plan: its .grad is None, so it is neither reduced nor
 * updated, as if it were frozen (FSDPParamGroup.post_backward lists those with a gradient; the
 * optimizer skips None). */
void leave_out_unused(struct lowering *low);

/* ---- whole parameters on a rank, with gradients that are autograd's: ddp.c, single.c ---- */

/* The dtype in which a parameter is stored. */
static inline enum dtype stored_dtype(const struct lowering *low, uint32_t param)
{
    const struct strategy *s = low->strategy;
    const struct graph_param *own = &low->graph->params[param];
    if (own->own_dtype)
        return (enum dtype)low->graph->tensors[own->tensor].dtype;
    return s->frozen_low && !own->trainable ? s->compute : s->store;
}

/* Of parameters that a rank has whole: whether what is frozen may be in another dtype than the
 * rest. ERR_INVALID or ERR_UNSUPPORTED, with a sentence. */
enum err_code check_frozen_dtype(const struct strategy *strategy, const struct graph *graph,
                                 struct err *err);
/* What the unit of parameters that are not trained is called. */
const char *frozen_unit(const struct plan *plan);
/* Each that has no store yet gets one of its own, in the stored dtype. */
void declare_whole_params(struct lowering *low);
/* before_step: a gradient is where .grad is. */
void gradients_are_whole(struct lowering *low);
/* close: zero_grad(set_to_none=True). */
void free_gradients(struct lowering *low);

/* An operand that is nowhere. */
static inline struct operand no_operand(void)
{
    return (struct operand){.place = NONE};
}

/* ---- the optimizer part of a step: optimizer.c ---- */

/* One tensor a parameter for the optimizer, in this order of `count` parameters (NULL: all, as they
 * are listed): its updated piece, and states of the same part and dtype. */
void optimize_params(struct lowering *low, const uint32_t *order, uint32_t count);
/* Sets one of low->optimized: the tensor of a parameter. */
void optimize_param(struct lowering *low, struct optimized *o, uint32_t param);
/* The gradient of parameter `param` is `offset` elements from the start of `buffer`: the part that
 * is updated, or (whole) all of it. */
void set_gradient(struct lowering *low, uint32_t param, uint32_t buffer, uint64_t offset,
                  bool whole);
/* clip_grad_norm_ over all gradients. */
void emit_clip(struct lowering *low);
/* Declares the states of a tensor that is updated in place, and its step counter. */
void add_states(struct lowering *low, struct optimized *o);
/* optimizer.step(): states in the first step, transients, the update; of `count` from `first` on,
 * or of all. */
void emit_update_of(struct lowering *low, uint32_t first, uint32_t count);
void emit_optimizer(struct lowering *low);

#endif

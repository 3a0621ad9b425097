/* states.c - see states.h; births as recorded in tests/data/truth (optimizers_events.jsonl). */
#include "lower/states.h"

#include "graph/ops.h"

enum {
    LEAST_CODED = 4096,  /* min_8bit_size, and torchao's: smaller tensors have no codes */
    LEAST_PAGED = 100000 /* get_state_buffer: smaller ones are not managed memory */
};

static const struct optimizer_rule rules[] = {
    [OPTIMIZER_ADAMW] = {"torch's AdamW", LIBRARY_TORCH, .has_states = true},
    [OPTIMIZER_SGD] = {"torch's SGD", LIBRARY_TORCH},
    [OPTIMIZER_BNB_8BIT] = {"bitsandbytes' AdamW8bit", LIBRARY_BITSANDBYTES, true, 8},
    [OPTIMIZER_BNB_PAGED_8BIT] = {"bitsandbytes' PagedAdamW8bit", LIBRARY_BITSANDBYTES, true, 8,
                                  true},
    [OPTIMIZER_BNB_PAGED] = {"bitsandbytes' PagedAdamW", LIBRARY_BITSANDBYTES, true, 0, true},
    [OPTIMIZER_AO_8BIT] = {"torchao's AdamW8bit", LIBRARY_TORCHAO, true, 8},
    [OPTIMIZER_AO_4BIT] = {"torchao's AdamW4bit", LIBRARY_TORCHAO, true, 4},
};

const struct optimizer_rule *optimizer_rule(enum optimizer_kind kind)
{
    return &rules[kind];
}

/* ---- which go with which system ---- */

static enum err_code check_bitsandbytes(const struct system *system, const struct strategy *s,
                                        const char *name, struct err *err)
{
    if (system->dtensors)
        return err_set(err, ERR_UNSUPPORTED,
                       "%s has no kernels for DTensors, which parameters are under %s: --optimizer "
                       "adamw-torch-8bit, torchao's, has; bitsandbytes' work under fsdp1, ddp, "
                       "zero1 to zero3 and single",
                       name, system->name);
    if (s->keep_low_precision_grads && s->compute != s->store)
        return err_set(err, ERR_INVALID,
                       "%s takes gradients in their parameters' dtype alone (%s): "
                       "--keep-low-precision-grads on leaves them in %s",
                       name, dtype_brief(s->store), dtype_brief(s->compute));
    return ERR_OK;
}

enum err_code check_optimizer(const struct system *system, const struct strategy *s,
                              struct err *err)
{
    const struct optimizer_rule *rule = optimizer_rule(s->optimizer);
    if (!updates_each(rule))
        return ERR_OK;
    if (strategy_offloads(s))
        return err_set(err, ERR_UNSUPPORTED,
                       "%s is planned with what it updates on the GPU: --offload is planned with "
                       "--optimizer adamw",
                       rule->name);
    if (s->zero_redundancy != ZERO_REDUNDANCY_NONE)
        return err_set(err, ERR_UNSUPPORTED,
                       "ZeroRedundancyOptimizer is planned around --optimizer adamw, not around %s",
                       rule->name);
    return rule->library == LIBRARY_BITSANDBYTES ? check_bitsandbytes(system, s, rule->name, err)
                                                 : ERR_OK;
}

/* ---- whose weights are of nn.Embedding ---- */

static void find_in_graph(const struct graph *graph, bool *embedding)
{
    for (uint32_t i = 0; i < graph->op_count; i++)
        for (uint32_t p = 0; graph->ops[i].kind == OP_EMBEDDING && p < graph->param_count; p++)
            for (uint32_t k = 0; k < graph->ops[i].ins; k++)
                embedding[p] |= graph->ops[i].in[k] == graph->params[p].tensor;
}

static void find_in_kernels(const struct kernel_table *kernels, uint32_t count, bool *embedding)
{
    for (uint32_t k = 0; k < kernels->kernel_count; k++) {
        const struct kernel *kernel = &kernels->kernels[k];
        for (uint32_t o = 0; kernel->work == WORK_EMBEDDING && o < kernel->ins; o++) {
            const uint32_t place = kernel->operands[o].place;
            if ((place & PLACE_MASK) == PLACE_PARAM && (place & ~PLACE_MASK) < count)
                embedding[place & ~PLACE_MASK] = true;
        }
    }
}

/* Whether a parameter is one that something is looked up in: by the model's operators, or, where
 * these are not known, by its kernels. */
static bool is_embedding(struct lowering *low, uint32_t param)
{
    if (!low->embedding) {
        const uint32_t count = low->graph->param_count;
        low->embedding = arena_alloc(&low->scratch, (count + 1) * sizeof *low->embedding);
        find_in_graph(low->graph, low->embedding);
        find_in_kernels(low->stream->kernels, count, low->embedding);
    }
    return low->embedding[param];
}

/* ---- the states of a tensor ---- */

bool optimized_has_elements(const struct lowering *low, const struct optimized *o)
{
    if (shape_elements(&o->value.shape) != 0)
        return true;
    return o->param != NONE &&
           plan_updated_piece(low->plan, o->param)->placement.kind == PLACEMENT_FLAT;
}

/* What Trainer registers is found among what the optimizer was given: flat tensors are no module's
 * weight. */
static bool is_wide_embedding(struct lowering *low, const struct optimizer_rule *rule,
                              const struct optimized *o)
{
    return rule->library == LIBRARY_BITSANDBYTES && !low->strategy->coded_embeddings &&
           o->param != NONE && is_embedding(low, o->param);
}

static bool is_coded(struct lowering *low, const struct optimizer_rule *rule,
                     const struct optimized *o)
{
    const uint64_t elements = shape_elements(&o->value.shape);
    const bool divides = rule->library != LIBRARY_TORCHAO || elements % STATES_BLOCK == 0;
    return rule->bits && elements >= LEAST_CODED && divides && !is_wide_embedding(low, rule, o);
}

static uint32_t new_small(struct lowering *low, enum aten label, uint64_t elements)
{
    return new_resident(low, CATEGORY_OPTIMIZER, LANE_COMPUTE, label, DTYPE_FP32, flat(elements));
}

static uint32_t new_state(struct lowering *low, const struct optimizer_rule *rule,
                          const struct optimized *o, bool coded)
{
    const bool paged = rule->paged && shape_elements(&o->value.shape) >= LEAST_PAGED;
    const bool wide = rule->library == LIBRARY_BITSANDBYTES;
    const enum dtype dtype = coded ? DTYPE_UINT8 : wide ? DTYPE_FP32 : (enum dtype)o->value.dtype;
    const enum aten label =
        coded && rule->library == LIBRARY_TORCHAO ? ATEN_ZEROS : ATEN_ZEROS_LIKE;
    const bool packed = coded && !codes_are_bytes(rule);
    const struct shape shape = packed ? flat(shape_elements(&o->value.shape) / 2) : o->value.shape;
    const uint32_t buffer =
        new_resident(low, CATEGORY_OPTIMIZER, o->on_host || paged ? LANE_HOST : LANE_COMPUTE, label,
                     dtype, shape);
    low->plan->buffers[buffer].local = packed ? 0 : o->value.local;
    low->plan->buffers[buffer].paged = paged;
    return buffer;
}

/* bitsandbytes' are everyone's, and come to the device when the first states that are codes are
 * made; torchao's are each state's own. */
static void add_tables(struct lowering *low, const struct optimizer_rule *rule, struct optimized *o)
{
    const bool shared = rule->library == LIBRARY_BITSANDBYTES;
    o->makes_tables = !shared || low->tables[0] == NONE;
    for (uint32_t i = 0; i < 2; i++) {
        o->table[i] = o->makes_tables ? new_small(low, shared ? ATEN_TO_COPY : ATEN_LIFT_FRESH,
                                                  1U << rule->bits)
                                      : low->tables[i];
        low->tables[i] = o->table[i];
    }
}

static void add_counter(struct lowering *low, struct optimized *o)
{
    const uint8_t pool =
        low->strategy->impl == IMPL_FUSED && !o->on_host ? LANE_COMPUTE : LANE_HOST;
    const struct shape one = {.rank = 0};
    o->step = new_resident(low, CATEGORY_OPTIMIZER, pool, ATEN_ZEROS, DTYPE_FP32,
                           o->param == NONE ? one : plan_step_shape(low->plan, o->param));
    low->plan->buffers[o->step].local = o->value.local;
    low->plan->buffers[o->step].scratch = is_cpu_adam(low, o); /* which counts in Python */
}

/* torchao's is on the CPU; bitsandbytes counts in Python. */
static void add_own_counter(struct lowering *low, const struct optimizer_rule *rule,
                            struct optimized *o)
{
    if (rule->library != LIBRARY_TORCHAO)
        return;
    o->step = new_resident(low, CATEGORY_OPTIMIZER, LANE_HOST, ATEN_LIFT_FRESH, DTYPE_FP32,
                           (struct shape){.rank = 0});
}

/* A part of a flat parameter that has nothing on this rank has no gradient there: libraries that
 * look at one tensor after the other make nothing of it. */
static bool is_passed_over(const struct lowering *low, const struct optimizer_rule *rule,
                           const struct optimized *o)
{
    return updates_each(rule) && o->param != NONE && shape_elements(&o->value.shape) == 0 &&
           plan_updated_piece(low->plan, o->param)->placement.kind == PLACEMENT_FLAT;
}

void add_states(struct lowering *low, struct optimized *o)
{
    const struct optimizer_rule *rule = optimizer_rule(low->strategy->optimizer);
    o->step = NONE;
    o->makes_tables = false;
    for (uint32_t i = 0; i < 2; i++)
        o->state[i] = o->scale[i] = o->table[i] = NONE;
    if (!rule->has_states || !o->trained || is_passed_over(low, rule, o))
        return;
    if (updates_each(rule))
        add_own_counter(low, rule, o);
    else
        add_counter(low, o);
    if (!optimized_has_elements(low, o))
        return;
    const bool coded = is_coded(low, rule, o);
    if (coded)
        add_tables(low, rule, o);
    for (uint32_t i = 0; i < 2; i++)
        o->state[i] = new_state(low, rule, o, coded);
    for (uint32_t i = 0; i < 2 && coded; i++)
        o->scale[i] = new_small(low, ATEN_ZEROS,
                                placement_chunk(shape_elements(&o->value.shape), STATES_BLOCK));
}

uint32_t state_buffers(const struct lowering *low, const struct optimized *o,
                       uint32_t buffers[STATE_BUFFERS])
{
    const uint32_t *s = o->state, *c = o->scale;
    const uint32_t t[2] = {o->makes_tables ? o->table[0] : NONE,
                           o->makes_tables ? o->table[1] : NONE};
    const uint32_t orders[2][STATE_BUFFERS] = {
        {o->step, t[0], t[1], s[0], s[1], c[0], c[1]},
        {o->step, s[0], c[0], t[0], s[1], c[1], t[1]}, /* torchao: one state after the other */
    };
    const bool each = optimizer_rule(low->strategy->optimizer)->library == LIBRARY_TORCHAO;
    uint32_t count = 0;
    for (uint32_t i = 0; i < STATE_BUFFERS; i++)
        if (orders[each][i] != NONE)
            buffers[count++] = orders[each][i];
    return count;
}

uint32_t state_piece(const struct lowering *low, const struct optimized *o, uint32_t state)
{
    const bool packed =
        o->scale[0] != NONE && !codes_are_bytes(optimizer_rule(low->strategy->optimizer));
    return packed ? NONE : o->state[state];
}

/* Whether a rank has as much of a parameter as any other. */
static bool is_even(const struct plan *plan, uint32_t param)
{
    const struct plan_piece *piece = plan_updated_piece(plan, param);
    if (piece->placement.kind == PLACEMENT_WHOLE)
        return true;
    const struct part first = plan_part(plan, piece, 0);
    const struct part last = plan_part(plan, piece, plan->world - 1);
    return piece->placement.kind != PLACEMENT_FLAT && part_elements(&first) == part_elements(&last);
}

bool states_differ_by_rank(const struct lowering *low)
{
    const struct optimizer_rule *rule = optimizer_rule(low->strategy->optimizer);
    for (uint32_t i = 0; i < low->optimized_count && (rule->bits || rule->paged); i++)
        if (low->optimized[i].param != NONE && !is_even(low->plan, low->optimized[i].param))
            return true;
    return false;
}

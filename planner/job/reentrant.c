/* reentrant.c - see reentrant.h. */
#include "job/reentrant.h"

#include "graph/ops.h"

#define OPTION "--checkpoint-reentrant on"
#define OFF "; --checkpoint-reentrant off"
#define INPUTS "--input-grads on"

bool reentrant_is_used(const struct job *job)
{
    return job->tape.reentrant && job->tape.checkpointing != CHECKPOINTING_NONE;
}

bool reentrant_frees_gathered(const struct job *job)
{
    return job->strategy.system == SYSTEM_ZERO3 && job->model.bits4.kind != BITS4_NOT;
}

enum err_code reentrant_check(const struct job *job, struct err *err)
{
    const bool next = job->model.outputs_kept == OUTPUTS_UNTIL_NEXT;
    if (!reentrant_is_used(job) && job->model.input_grads && next)
        return err_set(err, ERR_UNSUPPORTED,
                       INPUTS " with --keep-outputs next: the embedding's gradient would wait for "
                              "the next forward pass, too, which is not planned; --keep-outputs "
                              "backward");
    if (!reentrant_is_used(job))
        return ERR_OK;
    if (job->tape.checkpointing == CHECKPOINTING_SELECTIVE)
        return err_set(err, ERR_INVALID,
                       OPTION " with --checkpointing selective: torch.utils.checkpoint takes no "
                              "context_fn with use_reentrant; --checkpointing full");
    const char *what = job_tape(job).compiled ? "--compile"
                       : job->model.float8    ? "--float8"
                       : next                 ? "--keep-outputs next"
                                              : NULL;
    if (what)
        return err_set(err, ERR_UNSUPPORTED, OPTION " with %s: not planned" OFF, what);
    return ERR_OK;
}

/* ---- of the graph ---- */

static bool is_block(const struct graph *graph, uint32_t module)
{
    return graph->modules[module].role == ROLE_BLOCK;
}

/* of_op: (ops) the checkpointed block that each is in; GRAPH_NONE: none. */
static void find_blocks(const struct job *job, const struct graph *graph, uint32_t *of_op)
{
    const struct tape_options tape = job_tape(job);
    const uint32_t count = graph_count_blocks(graph);
    uint32_t block = 0, in = GRAPH_NONE;
    for (uint32_t i = 0; i < graph->item_count; i++) {
        const struct graph_item item = graph->items[i];
        if (item.kind == ITEM_ENTER && is_block(graph, item.arg))
            in = tape_options_checkpoint(&tape, block++, count) ? item.arg : GRAPH_NONE;
        else if (item.kind == ITEM_EXIT && is_block(graph, item.arg))
            in = GRAPH_NONE;
        else if (item.kind == ITEM_OP)
            of_op[item.arg] = in;
    }
}

static bool is_passed(const struct graph *graph, uint32_t module, uint32_t storage)
{
    const uint32_t output = graph->modules[module].output;
    return output != GRAPH_NONE && graph->tensors[output].storage == storage;
}

/* The block of `of_op` that op `index` has something of, without being in it, but for what it
 * returns or a parameter of its own; GRAPH_NONE: there is none. `users`: (params) the block that
 * uses it, + 1; 0: nothing has so far. */
static uint32_t shared_block(const struct graph *graph, const uint32_t *of_op, uint32_t index,
                             uint32_t *users)
{
    const struct graph_op *op = &graph->ops[index];
    for (uint32_t i = 0; i < op->ins && !op->no_grad; i++) {
        if (op->in[i] == GRAPH_NONE)
            continue;
        const uint32_t storage = graph->tensors[op->in[i]].storage;
        const struct graph_storage *s = &graph->storages[storage];
        if (s->kind == STORAGE_ACTIVATION) {
            const uint32_t made = of_op[s->index];
            if (made != GRAPH_NONE && made != of_op[index] && !is_passed(graph, made, storage))
                return made;
        } else if (s->kind == STORAGE_PARAM && graph->tensors[op->in[i]].requires_grad) {
            uint32_t *user = &users[s->index];
            const uint32_t mine = of_op[index] == GRAPH_NONE ? GRAPH_NONE : of_op[index] + 1;
            if (*user != 0 && *user != mine)
                return *user == GRAPH_NONE ? of_op[index] : *user - 1;
            *user = mine;
        }
    }
    return GRAPH_NONE;
}

static enum err_code check_shared(const struct graph *graph, const uint32_t *of_op, uint32_t *users,
                                  struct err *err)
{
    for (uint32_t i = 0; i < graph->op_count; i++) {
        const uint32_t block = shared_block(graph, of_op, i, users);
        if (block != GRAPH_NONE)
            return err_set(err, ERR_UNSUPPORTED,
                           OPTION ": others have something of %s besides what it returns first, "
                                  "which has no graph then: not planned" OFF,
                           graph->modules[block].name);
    }
    return ERR_OK;
}

/* What the reducer looks for from the model's output on is not there before blocks run again. */
static enum err_code check_unused(const struct strategy *s, struct err *err)
{
    if (s->system != SYSTEM_DDP || !s->find_unused || s->static_graph)
        return ERR_OK;
    return err_set(err, ERR_INVALID,
                   OPTION " with --find-unused-parameters on: DDP takes what checkpointed blocks "
                          "have for unused, and fails (\"Expected to mark a variable ready only "
                          "once\"); --find-unused-parameters off or --static-graph on");
}

static enum err_code check_inputs(const struct graph *graph, uint32_t module, struct err *err)
{
    const struct graph_module *m = &graph->modules[module];
    if (m->output == GRAPH_NONE || !graph->tensors[m->output].requires_grad)
        return ERR_OK;
    if (m->inputs == 0 || !graph->tensors[m->input[0]].requires_grad)
        return err_set(err, ERR_INVALID,
                       OPTION ": what %s is called with needs no gradient, so nothing of it is "
                              "trained (\"None of the inputs have requires_grad=True\")",
                       m->name);
    for (uint32_t i = 1; i < m->inputs; i++)
        if (graph->tensors[m->input[i]].requires_grad)
            return err_set(err, ERR_UNSUPPORTED,
                           OPTION ": %s is called with several tensors that need a gradient, "
                                  "which is not planned" OFF,
                           m->name);
    return ERR_OK;
}

static enum err_code check_block(const struct job *job, const struct graph *graph, uint32_t module,
                                 struct err *err)
{
    TRY(check_unused(&job->strategy, err));
    return check_inputs(graph, module, err);
}

/* Autocast keeps its cast of a leaf for as long as its region lasts, forward too. */
static bool casts_leaf(const struct graph *graph, const struct graph_op *op)
{
    const struct graph_tensor *in = &graph->tensors[op->in[0]];
    const struct graph_storage *s = &graph->storages[in->storage];
    return op->of_autocast && s->kind == STORAGE_ACTIVATION && in->requires_grad &&
           !graph->ops[s->index].requires_grad;
}

/* Autocast keeps the cast of a leaf. */
static enum err_code check_leaf(const struct graph *graph, const char *option, struct err *err)
{
    for (uint32_t i = 0; i < graph->op_count && graph->has_leaves; i++)
        if (casts_leaf(graph, &graph->ops[i]))
            return err_set(err, ERR_UNSUPPORTED,
                           "%s on with --autocast, of an embedding that is not trained and that "
                           "autocast casts: not planned; %s off",
                           option, option);
    return ERR_OK;
}

/* What it asks for has to be missing. */
static enum err_code check_input_gradients(const struct graph *graph, struct err *err)
{
    if (!graph->has_leaves)
        return err_set(err, ERR_INVALID,
                       INPUTS ": what the embedding returns needs a gradient anyway, for it is "
                              "trained: nothing changes; --input-grads off, or --lora or --freeze");
    return check_leaf(graph, "--input-grads", err);
}

enum err_code reentrant_check_graph(const struct job *job, const struct graph *graph,
                                    struct err *err)
{
    struct arena arena = {0};
    enum err_code rc = ERR_OK;
    if (!reentrant_is_used(job))
        return job->model.input_grads ? check_input_gradients(graph, err) : ERR_OK;
    uint32_t *of_op = arena_alloc(&arena, (graph->op_count + 1) * sizeof *of_op);
    uint32_t *users = arena_alloc(&arena, (graph->param_count + 1) * sizeof *users);
    find_blocks(job, graph, of_op);
    if (graph->handed_count)
        rc = err_set(err, ERR_UNSUPPORTED,
                     OPTION ": keys and values that blocks hand on to others have no graph then: "
                            "not planned" OFF);
    if (rc == ERR_OK)
        rc = check_shared(graph, of_op, users, err);
    for (uint32_t i = 0; i < graph->op_count && rc == ERR_OK; i++)
        if (of_op[i] != GRAPH_NONE && (i == 0 || of_op[i - 1] != of_op[i]))
            rc = check_block(job, graph, of_op[i], err);
    if (rc == ERR_OK)
        rc = check_leaf(graph, "--checkpoint-reentrant", err);
    arena_free(&arena);
    return rc;
}

/* calls.c - see calls.h. */
#include "graph/calls.h"

#include "base/hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a name is found by while calls are listed: a graph of experts has thousands. */
struct names {
    const char **lists; /* what blocks are in, in the calls' arena */
    uint32_t list_count;
    uint32_t *slots; /* 1 + the call, by the hash of its name; 0: none */
    size_t mask;
};

/* What a module of another model is as, or one of the first is. */
static enum module_role role_of(const struct graph *graph, uint32_t module)
{
    const uint32_t like = graph->modules[module].like;
    return graph->modules[like == GRAPH_NONE ? module : like].role;
}

/* The root that what reads a parameter is in. */
static uint32_t root_of(const struct graph *graph, const struct graph_calls *calls, uint32_t param)
{
    return param < graph_own_params(graph) ? calls->model : calls->beside;
}

static size_t parent_length(const char *name, size_t length)
{
    while (length > 0 && name[length - 1] != '.')
        length--;
    return length ? length - 1 : 0;
}

static bool ends_with(const char *name, size_t length, const char *end)
{
    const size_t size = strlen(end);
    return length > size && strncmp(name + length - size, end, size) == 0;
}

/* peft's dicts of adapters, in which the layers find theirs, and of modules that are trained in the
 * place of others. */
static bool is_dict(const struct graph *graph, const char *name, size_t length)
{
    static const char *const dicts[] = {".lora_A", ".lora_B", ".lora_dropout", ".modules_to_save"};
    for (size_t i = 0; graph->lora.rank && i < sizeof dicts / sizeof *dicts; i++) {
        if (ends_with(name, length, dicts[i]))
            return true;
    }
    return false;
}

static bool is_called(const char *name, const char *text, size_t length)
{
    return strncmp(name, text, length) == 0 && name[length] == '\0';
}

/* The same of a module of another model that is as the one of the text. */
static bool is_called_beside(const struct graph *graph, const char *name, const char *text,
                             size_t length)
{
    const uint32_t root = graph_own_modules(graph);
    const size_t own = root < graph->module_count ? strlen(graph->modules[root].name) + 1 : 0;
    return is_called(name, text, length) ||
           (own && length > own && strncmp(text, graph->modules[root].name, own - 1) == 0 &&
            text[own - 1] == '.' && is_called(name, text + own, length - own));
}

/* graph.uncalled, which separates its entries by commas. */
static bool is_uncalled(const struct graph *graph, const char *name, size_t length)
{
    const char *entry = graph->uncalled;
    while (entry && *entry) {
        const size_t size = strcspn(entry, ",");
        char text[96];
        snprintf(text, sizeof text, "%.*s", (int)size, entry);
        if (*text == '.' ? ends_with(name, length, text)
                         : is_called_beside(graph, text, name, length))
            return true;
        entry += size + (entry[size] == ',');
    }
    return false;
}

/* Whether the first `length` characters name the list that blocks are in, or what else is never
 * called. */
static bool is_list(const struct graph *graph, const struct names *names, const char *name,
                    size_t length)
{
    if (is_uncalled(graph, name, length))
        return true;
    if (is_dict(graph, name, length))
        return true;
    for (uint32_t i = 0; i < names->list_count; i++)
        if (is_called(names->lists[i], name, length))
            return true;
    return false;
}

/* Each list once: most models have one. */
static void find_lists(const struct graph *graph, struct graph_calls *calls, struct names *names)
{
    names->lists = arena_alloc(&calls->arena, (graph->module_count + 1) * sizeof *names->lists);
    for (uint32_t m = 0; m < graph->module_count; m++) {
        const char *block = graph->modules[m].name;
        const size_t length = parent_length(block, strlen(block));
        bool is_new = role_of(graph, m) == ROLE_BLOCK && length > 0;
        for (uint32_t i = 0; is_new && i < names->list_count; i++)
            is_new = !is_called(names->lists[i], block, length);
        if (is_new)
            names->lists[names->list_count++] =
                arena_printf(&calls->arena, "%.*s", (int)length, block);
    }
}

/* Where the name's call is, or would be. */
static uint32_t *slot_of(const struct graph_calls *calls, const struct names *names,
                         const char *name, size_t length)
{
    struct hash hash;
    hash_begin(&hash);
    hash_add(&hash, name, length);
    size_t at = (size_t)hash_end(&hash) & names->mask;
    while (names->slots[at] && !is_called(calls->at[names->slots[at] - 1].name, name, length))
        at = (at + 1) & names->mask;
    return &names->slots[at];
}

/* The call of that name; GRAPH_NONE: there is none. */
static uint32_t call_named(const struct graph_calls *calls, const struct names *names,
                           const char *name)
{
    const uint32_t found = *slot_of(calls, names, name, strlen(name));
    return found ? found - 1 : GRAPH_NONE;
}

/* The call of a name, and those around it. */
static uint32_t call_of(const struct graph *graph, struct graph_calls *calls,
                        const struct names *names, const char *name, size_t length)
{
    const size_t leaf = graph_leaf_around(graph, name, length);
    length = leaf ? leaf : length;
    while (is_list(graph, names, name, length))
        length = parent_length(name, length);
    if (length == 0)
        return calls->model;
    const uint32_t found = *slot_of(calls, names, name, length);
    if (found)
        return found - 1;
    size_t around = parent_length(name, length);
    if (graph->apart && is_called_beside(graph, graph->apart, name, length))
        around = parent_length(name, around);
    const uint32_t parent = call_of(graph, calls, names, name, around);
    calls->at[calls->count] = (struct graph_call){
        .name = arena_printf(&calls->arena, "%.*s", (int)length, name),
        .parent = parent,
        .depth = calls->at[parent].depth + 1,
        .leaf = leaf > 0,
    };
    *slot_of(calls, names, name, length) = ++calls->count;
    return calls->count - 1;
}

/* The parameter that an op uses first; GRAPH_NONE: none. */
static uint32_t param_of(const struct graph *graph, const struct graph_op *op)
{
    for (uint32_t i = 0; i < op->ins; i++) {
        if (op->in[i] == GRAPH_NONE)
            continue;
        const struct graph_storage *s = &graph->storages[graph->tensors[op->in[i]].storage];
        if (s->kind == STORAGE_PARAM)
            return s->index;
    }
    return GRAPH_NONE;
}

/* The call of each block whose op one is; GRAPH_NONE: of none. The caller's arena has it. */
static uint32_t *blocks_of_ops(const struct graph *graph, struct graph_calls *calls,
                               const struct names *names)
{
    uint32_t *block_of = arena_alloc(&calls->arena, (graph->op_count + 1) * sizeof *block_of);
    uint32_t now = GRAPH_NONE;
    for (uint32_t i = 0; i < graph->item_count; i++) {
        const struct graph_item item = graph->items[i];
        const bool enters = item.kind == ITEM_ENTER || item.kind == ITEM_ENTER_AGAIN;
        if (item.kind == ITEM_OP)
            block_of[item.arg] = now;
        else if (enters && role_of(graph, item.arg) == ROLE_BLOCK)
            now = call_named(calls, names, graph->modules[item.arg].name);
        else if ((item.kind == ITEM_EXIT || item.kind == ITEM_EXIT_AGAIN) &&
                 role_of(graph, item.arg) == ROLE_BLOCK)
            now = GRAPH_NONE;
    }
    return block_of;
}

/* The call in which an op runs, as far as it is known. */
static uint32_t made_in(const struct graph_calls *calls, const uint32_t *block_of, uint32_t op)
{
    return calls->of_op[op] != GRAPH_NONE ? calls->of_op[op] : block_of[op];
}

/* Whether the op takes what was computed outside of the call, and that needs a gradient. */
static bool takes_tracked(const struct graph *graph, const struct graph_calls *calls,
                          const uint32_t *block_of, const struct graph_op *op, uint32_t call)
{
    for (uint32_t i = 0; i < op->ins; i++) {
        if (op->in[i] == GRAPH_NONE)
            continue;
        const struct graph_tensor *t = &graph->tensors[op->in[i]];
        const struct graph_storage *s = &graph->storages[t->storage];
        if (s->kind == STORAGE_ACTIVATION && t->requires_grad &&
            !graph_call_within(calls, made_in(calls, block_of, s->index), call))
            return true;
    }
    return false;
}

/* Another module that has the same parameter: a tied one. */
static uint32_t tied_call(const struct graph *graph, struct graph_calls *calls, uint32_t call,
                          uint32_t param)
{
    const uint32_t root = root_of(graph, calls, param);
    calls->at[calls->count] = (struct graph_call){
        .name = arena_printf(&calls->arena, "%s (tied)", calls->at[call].name),
        .parent = root,
        .depth = calls->at[root].depth + 1,
        .tied = param + 1,
    };
    return calls->count++;
}

/* The call that the builder says, or within it that of the parameter (of_param's, or none): one
 * that the said call does not have is a tied one. */
static uint32_t called_by(const struct graph *graph, struct graph_calls *calls,
                          const struct names *names, const struct graph_op *op, uint32_t param,
                          uint32_t own)
{
    if (!op->call)
        return own;
    const uint32_t call = call_of(graph, calls, names, op->call, strlen(op->call));
    if (own == GRAPH_NONE)
        return call;
    if (graph_call_within(calls, own, call))
        return own;
    calls->at[call].tied = param + 1;
    return call;
}

/* Whether hooks see what a call is called with. */
static bool has_inputs(const struct graph *graph, const struct graph_call *call)
{
    const size_t length = strlen(call->name), suffix = graph->by_name ? strlen(graph->by_name) : 0;
    return !suffix || length < suffix || strcmp(call->name + length - suffix, graph->by_name) != 0;
}

/* Of a module that is never called, but what is in it or a function of its own (graph.uncalled): a
 * parameter that the call around has to read as another's. */
static bool is_past(const struct graph *graph, uint32_t param)
{
    const char *name = graph->params[param].name;
    return is_uncalled(graph, name, parent_length(name, strlen(name)));
}

/* Whether a call reads it that is around its module, and that alone. */
static bool is_read_by_outer(const struct graph *graph, uint32_t param)
{
    return graph->params[param].read_around || is_past(graph, param);
}

/* Whose op each is, and what is first in each call. A module is called once: parameters that are
 * used again, after others, are another module's. */
static void assign_ops(const struct graph *graph, struct graph_calls *calls,
                       const struct names *names, const uint32_t *of_param, size_t most)
{
    bool *met = arena_alloc(&calls->arena, most * sizeof *met);
    const uint32_t *block_of = blocks_of_ops(graph, calls, names);
    uint32_t before = GRAPH_NONE; /* the last op that had one */
    uint32_t node = GRAPH_NONE;   /* the call of the last that has a node, too */
    for (uint32_t i = 0; i < graph->op_count; i++) {
        const struct graph_op *op = &graph->ops[i];
        if (op->again && i > 0 && !graph->ops[i - 1].again) { /* the model is called again */
            memset(met, 0, most * sizeof *met);
            before = GRAPH_NONE;
        }
        const uint32_t param = op->of_hook ? GRAPH_NONE : param_of(graph, op);
        uint32_t own = param == GRAPH_NONE ? GRAPH_NONE : of_param[param];
        if (param != GRAPH_NONE && graph->params[param].read_around)
            own = calls->at[own].parent;
        uint32_t call = op->of_hook ? GRAPH_NONE : called_by(graph, calls, names, op, param, own);
        if (op->of_model)
            call = param == GRAPH_NONE ? calls->model : root_of(graph, calls, param);
        calls->of_op[i] = calls->next[i] = calls->last[i] = GRAPH_NONE;
        if (call == GRAPH_NONE)
            continue;
        const bool reads = param != GRAPH_NONE && is_read_by_outer(graph, param);
        if (!op->call && param != GRAPH_NONE && !reads && met[call] &&
            calls->of_op[before] != call && call != calls->model && call != calls->beside)
            call = tied_call(graph, calls, call, param);
        calls->of_op[i] = call;
        if (before != GRAPH_NONE) {
            calls->next[before] = call;
            calls->returns[before] = op->called_again;
        }
        before = i;
        calls->last[i] = node;
        node = op->requires_grad ? call : node;
        for (uint32_t c = call; c != GRAPH_NONE; c = calls->at[c].parent) {
            if (!calls->at[c].input_grad && has_inputs(graph, &calls->at[c]))
                calls->at[c].input_grad = takes_tracked(graph, calls, block_of, op, c);
            met[c] = true;
        }
    }
}

/* peft's layers ask for lora_A.weight.dtype, of a module that is theirs: each reads that weight. So
 * does a module that has another for its parameters alone or asks for their dtype, and a model
 * whose loss has its head in it. The call that does, by a parameter, and the one that it reads;
 * GRAPH_NONE: none. */
static uint32_t reader_of(const struct graph *graph, const struct graph_calls *calls,
                          const uint32_t *of_param, uint32_t param, uint32_t *read)
{
    const struct graph_param *p = &graph->params[param];
    const bool outer = p->read_around || p->read_by_outer;
    *read = outer || p->read_by_model ? param : p->adapter;
    if (p->read_by_model)
        return root_of(graph, calls, param);
    return outer || (graph->lora.rank && p->adapter != GRAPH_NONE)
               ? calls->at[of_param[param]].parent
               : GRAPH_NONE;
}

/* The parameter that a call shares and that is not in it anyway. */
static bool is_shared(const struct graph_calls *calls, const uint32_t *of_param, uint32_t call)
{
    const uint32_t tied = calls->at[call].tied;
    return tied && of_param[tied - 1] != call;
}

static void list_param(struct graph_calls *calls, uint32_t call, uint32_t param)
{
    struct graph_call *c = &calls->at[call];
    calls->params[c->first_param + c->params++] = param;
}

/* Lists a parameter behind those of the call that reads it, if one does. */
static void list_read(const struct graph *graph, struct graph_calls *calls,
                      const uint32_t *of_param, uint32_t param)
{
    uint32_t read = param;
    const uint32_t reader =
        is_past(graph, param) ? of_param[param] : reader_of(graph, calls, of_param, param, &read);
    if (reader == GRAPH_NONE)
        return;
    list_param(calls, reader, read);
    calls->at[reader].external++;
}

static bool is_read_around(const struct graph *graph, uint32_t param)
{
    return graph->params[param].read_by_outer || is_read_by_outer(graph, param);
}

/* What calls read of others, in the order in which they do. */
static void list_all_read(const struct graph *graph, struct graph_calls *calls,
                          const uint32_t *of_param)
{
    bool *listed = arena_alloc(&calls->arena, graph->param_count + 1);
    for (uint32_t i = 0; i < graph->op_count; i++)
        for (uint32_t n = 0; n < graph->ops[i].ins; n++) {
            const uint32_t tensor = graph->ops[i].in[n];
            if (tensor == GRAPH_NONE)
                continue;
            const struct graph_storage *s = &graph->storages[graph->tensors[tensor].storage];
            if (s->kind != STORAGE_PARAM || listed[s->index] || !is_read_around(graph, s->index))
                continue;
            listed[s->index] = true;
            list_read(graph, calls, of_param, s->index);
        }
    for (uint32_t p = 0; p < graph->param_count; p++)
        if (!listed[p])
            list_read(graph, calls, of_param, p);
}

/* Each call's in the order of the graph, and behind them what it reads of others. */
static void list_params(const struct graph *graph, struct graph_calls *calls,
                        const uint32_t *of_param)
{
    uint32_t *lists = arena_alloc(&calls->arena, (calls->count + 1) * sizeof *lists), all = 0, read;
    for (uint32_t p = 0; p < graph->param_count; p++) {
        lists[of_param[p]]++;
        const uint32_t reader = reader_of(graph, calls, of_param, p, &read);
        if (reader != GRAPH_NONE && !is_past(graph, p))
            lists[reader]++;
    }
    for (uint32_t c = 0; c < calls->count; c++) {
        calls->at[c].first_param = all;
        all += lists[c] + is_shared(calls, of_param, c);
    }
    calls->params = arena_alloc(&calls->arena, (all + 1) * sizeof *calls->params);
    for (uint32_t p = 0; p < graph->param_count; p++)
        if (!is_past(graph, p))
            list_param(calls, of_param[p], p);
    for (uint32_t c = 0; c < calls->count; c++) {
        if (!is_shared(calls, of_param, c))
            continue;
        list_param(calls, c, calls->at[c].tied - 1);
        uint32_t *params = &calls->params[calls->at[c].first_param];
        for (uint32_t i = calls->at[c].params - 1; i > 0 && params[i - 1] > params[i]; i--) {
            const uint32_t later = params[i - 1];
            params[i - 1] = params[i];
            params[i] = later;
        }
    }
    list_all_read(graph, calls, of_param);
}

static void find_borders(const struct graph *graph, struct graph_calls *calls,
                         const struct names *names)
{
    calls->of_module =
        arena_alloc(&calls->arena, (graph->module_count + 1) * sizeof *calls->of_module);
    for (uint32_t m = 0; m < graph->module_count; m++) {
        const struct graph_module *module = &graph->modules[m];
        calls->of_module[m] =
            role_of(graph, m) == ROLE_BLOCK ? call_named(calls, names, module->name) : GRAPH_NONE;
        if (calls->of_module[m] != GRAPH_NONE)
            calls->at[calls->of_module[m]].bordered = true;
    }
}

/* The innermost of those before that a name is in: modules are listed behind those around them. */
static uint32_t listed_around(const struct graph_calls *calls, uint32_t before, const char *name)
{
    for (size_t n = parent_length(name, strlen(name)); n > 0; n = parent_length(name, n))
        for (uint32_t c = before; c-- > 0;)
            if (is_called(calls->at[c].name, name, n))
                return c;
    return CALL_ROOT;
}

/* Those that a recording lists. */
static struct graph_calls *listed_calls(const struct graph *graph)
{
    struct graph_calls *calls = xmalloc(sizeof *calls);
    uint32_t params = 0;
    *calls = (struct graph_calls){.count = graph->called_count, .beside = GRAPH_NONE};
    for (uint32_t c = 0; c < graph->called_count; c++)
        params += graph->called[c].count;
    calls->at = arena_alloc(&calls->arena, (calls->count + 1) * sizeof *calls->at);
    calls->params = arena_alloc(&calls->arena, (params + 1) * sizeof *calls->params);
    params = 0;
    for (uint32_t c = 0; c < graph->called_count; c++) {
        const struct graph_called *called = &graph->called[c];
        calls->at[c] = (struct graph_call){
            .name = called->name,
            .parent = c ? listed_around(calls, c, called->name) : GRAPH_NONE,
            .leaf = graph_leaf_around(graph, called->name, strlen(called->name)) > 0,
            .first_param = params,
            .params = called->count,
            .external = called->count - called->own,
        };
        for (uint32_t p = 0; p < called->count; p++)
            calls->params[params++] = called->params[p];
    }
    return calls;
}

/* The root; PeftModel's base_model (LoraModel), and the model that is in that. */
static void call_roots(const struct graph *graph, struct graph_calls *calls,
                       const struct names *names)
{
    static const char *const roots[] = {"", "base_model", "base_model.model"};
    const uint32_t count = graph->lora.rank ? 3 : 1;
    for (uint32_t c = 0; c < count; c++) {
        calls->at[c] =
            (struct graph_call){.name = roots[c], .parent = c ? c - 1 : GRAPH_NONE, .depth = c};
        *slot_of(calls, names, roots[c], strlen(roots[c])) = c + 1;
    }
    calls->count = count;
    calls->model = count - 1;
    calls->beside = GRAPH_NONE;
    if (graph->beside.module == GRAPH_NONE)
        return;
    const char *name = graph->modules[graph->beside.module].name;
    calls->at[count] = (struct graph_call){.name = name, .parent = GRAPH_NONE};
    calls->beside = calls->count++;
    *slot_of(calls, names, name, strlen(name)) = calls->count;
}

struct graph_calls *graph_calls_new(const struct graph *graph)
{
    if (graph->called)
        return listed_calls(graph);
    struct graph_calls *calls = xmalloc(sizeof *calls);
    *calls = (struct graph_calls){.count = 0};
    const size_t most =
        (size_t)graph->param_count * 6 + graph->module_count + 3 * (size_t)graph->op_count + 3;
    const size_t ops = graph->op_count + 1;
    struct names names = {.mask = 1};
    while (names.mask < 2 * most)
        names.mask *= 2;
    names.slots = xcalloc(names.mask--, sizeof *names.slots);
    calls->at = arena_alloc(&calls->arena, most * sizeof *calls->at);
    find_lists(graph, calls, &names);
    call_roots(graph, calls, &names);
    calls->of_op = arena_alloc(&calls->arena, ops * sizeof *calls->of_op);
    calls->returns = arena_alloc(&calls->arena, ops * sizeof *calls->returns);
    calls->next = arena_alloc(&calls->arena, ops * sizeof *calls->next);
    calls->last = arena_alloc(&calls->arena, ops * sizeof *calls->last);
    uint32_t *of_param = arena_alloc(&calls->arena, (graph->param_count + 1) * sizeof *of_param);
    for (uint32_t p = 0; p < graph->param_count; p++) {
        const char *name = graph->params[p].name;
        of_param[p] = call_of(graph, calls, &names, name, parent_length(name, strlen(name)));
    }
    assign_ops(graph, calls, &names, of_param, most);
    list_params(graph, calls, of_param);
    find_borders(graph, calls, &names);
    free(names.slots);
    return calls;
}

void graph_calls_free(struct graph_calls *calls)
{
    if (!calls)
        return;
    struct arena arena = calls->arena;
    arena_free(&arena);
    free(calls);
}

bool graph_call_within(const struct graph_calls *calls, uint32_t call, uint32_t outer)
{
    while (call != GRAPH_NONE && call != outer)
        call = calls->at[call].parent;
    return call == outer;
}

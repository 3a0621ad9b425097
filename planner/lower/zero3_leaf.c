/* zero3_leaf.c - modules that are fetched as one (deepspeed/utils/z3_leaf_module.py).
 *
 * DeepSpeed puts no hooks within a leaf module: its own bring all parameters in it and let them go,
 * and its gradients are reduced when all of it has run backward. Classes of blocks of experts are
 * so by default; `leaf_module` says which classes, names and endings of names are. */
#include "lower/zero3.h"

#include <string.h>

void zero3_prepare(const struct strategy *s, struct graph *graph)
{
    const struct zero_options *o = &s->zero;
    if (!o->leaf_names[0] && !o->leaf_suffixes[0])
        return;
    for (uint32_t p = 0; p < graph->param_count; p++) {
        const char *name = graph->params[p].name;
        for (const char *dot = strchr(name, '.'); dot; dot = strchr(dot + 1, '.')) {
            const size_t n = (size_t)(dot - name);
            if ((zero_is_listed(o->leaf_names, name, n) ||
                 zero_has_suffix(o->leaf_suffixes, name, n)) &&
                !graph_leaf_around(graph, name, n))
                graph_leaf(graph, NULL, "%.*s", (int)n, name);
        }
    }
}

/* A recording has neither what nodes save of parameters nor classes of modules. */
static enum err_code check_recorded(const struct graph *graph, struct err *err)
{
    for (uint32_t p = 0; graph->called && p < graph->param_count; p++)
        if (strstr(graph->params[p].name, "experts."))
            return err_set(err, ERR_UNSUPPORTED,
                           "%s: a recorded mixture of experts under zero3 is not planned: a "
                           "recording does not say which views of gathered parameters autograd "
                           "saves, nor which modules DeepSpeed fetches as one; from its "
                           "config.json it is, where that is built in",
                           graph->params[p].name);
    return ERR_OK;
}

static bool is_of_experts(const struct graph *graph, const char *leaf)
{
    const size_t n = strlen(leaf);
    for (uint32_t p = 0; p < graph->param_count; p++) {
        const char *name = graph->params[p].name;
        if (strncmp(name, leaf, n) == 0 && strncmp(name + n, ".experts.", 9) == 0)
            return true;
    }
    return false;
}

/* DeepSpeed reduces a leaf module's gradients in its hook behind backward, which comes only to a
 * module whose input needs a gradient. */
static enum err_code check_inputs(const struct graph *graph, struct err *err)
{
    enum err_code code = ERR_OK;
    struct graph_calls *calls = graph_calls_new(graph);
    for (uint32_t c = 0; c < calls->count && code == ERR_OK; c++) {
        const struct graph_call *call = &calls->at[c];
        bool trained = false;
        for (uint32_t i = 0; i < call->params; i++)
            trained = trained || graph->params[calls->params[call->first_param + i]].trainable;
        if (call->leaf && trained && !call->input_grad)
            code = err_set(err, ERR_UNSUPPORTED,
                           "--freeze: nothing before %s is trained, so its input needs no "
                           "gradient: when DeepSpeed reduces the gradients of such a leaf module "
                           "is not planned; train an embedding, or --strategy zero2",
                           call->name);
    }
    graph_calls_free(calls);
    return code;
}

enum err_code zero3_check_leaves(const struct strategy *s, const struct graph *graph,
                                 struct err *err)
{
    const struct zero_options *o = &s->zero;
    TRY(check_recorded(graph, err));
    for (const struct graph_leaf *leaf = graph->leaves; leaf; leaf = leaf->before) {
        const size_t n = strlen(leaf->name);
        const char *class_name = leaf->class_name;
        if (!is_of_experts(graph, leaf->name) || strchr(leaf->name, '.') == NULL)
            return err_set(err, ERR_UNSUPPORTED,
                           "--zero: leaf_module: %s: of leaf modules, blocks of experts are "
                           "planned; DeepSpeed itself fails with most others",
                           leaf->name);
        if (class_name && !zero_is_listed(o->leaf_classes, class_name, strlen(class_name)) &&
            !zero_is_listed(o->leaf_names, leaf->name, n) &&
            !zero_has_suffix(o->leaf_suffixes, leaf->name, n))
            return err_set(err, ERR_UNSUPPORTED,
                           "--zero: leaf_module: classes: %s, of which %s is one, is planned as a "
                           "leaf module alone",
                           class_name, leaf->name);
    }
    return graph->leaves ? check_inputs(graph, err) : ERR_OK;
}

/* reduce_leaf_module_grads. */
void zero3_reduce_leaf(struct lowering *low, uint32_t index)
{
    struct zero3 *z = low->state;
    const struct graph_call *call = &z->calls->at[index];
    for (uint32_t i = 0; i < call->params; i++) {
        const uint32_t p = z->calls->params[call->first_param + i];
        if (z->waits[p])
            zero3_reduce(low, p);
        z->waits[p] = false;
    }
}

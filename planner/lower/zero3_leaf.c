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

/* DeepSpeed reduces a leaf module's gradients in its hook behind backward. Where its input needs no
 * gradient, torch runs that hook when the gradient of its output is there: no parameter has one
 * then, nor its memory, and zeros of no elements are what is reduced (recorded: a RuntimeError). */
static enum err_code check_inputs(const struct graph *graph, const struct stream *stream,
                                  struct err *err)
{
    enum err_code code = ERR_OK;
    struct graph_calls *calls = graph_calls_new(graph);
    bool *returns = arena_alloc(&calls->arena, (calls->count + 1) * sizeof *returns);
    for (uint32_t i = 0; i < stream->step_count; i++)
        if (stream->steps[i].kind == STEP_RETURN_BACKWARD)
            returns[stream->steps[i].arg] = true;
    for (uint32_t c = 0; c < calls->count && code == ERR_OK; c++) {
        const struct graph_call *call = &calls->at[c];
        bool trained = false;
        for (uint32_t i = 0; i < call->params; i++)
            trained = trained || graph->params[calls->params[call->first_param + i]].trainable;
        if (call->leaf && trained && !returns[c])
            code = err_set(err, ERR_UNSUPPORTED,
                           "--freeze: nothing before %s is trained, so its input needs no "
                           "gradient: DeepSpeed " ZERO_VERSION " reduces the gradients of such a "
                           "leaf module before there are any, and fails (\"Cannot reduce scatter "
                           "gradients whose size is not same as the params\"); train an "
                           "embedding, or --strategy zero2",
                           call->name);
    }
    graph_calls_free(calls);
    return code;
}

static bool is_class(const struct graph *graph, const char *name, size_t length)
{
    for (const struct graph_leaf *leaf = graph->leaves; leaf; leaf = leaf->before)
        if (leaf->class_name && strlen(leaf->class_name) == length &&
            strncmp(leaf->class_name, name, length) == 0)
            return true;
    return false;
}

enum err_code zero3_check_leaves(const struct strategy *s, const struct graph *graph,
                                 const struct stream *stream, struct err *err)
{
    const struct zero_options *o = &s->zero;
    const char *name;
    for (size_t at = 0, length; (name = zero_unusual_leaf(o, &at, &length)) != NULL;)
        if (!is_class(graph, name, length))
            return err_set(err, ERR_UNSUPPORTED,
                           "--zero: leaf_module: classes: which modules are a %.*s is not known "
                           "here: give names or name_suffixes",
                           (int)length, name);
    for (const struct graph_leaf *leaf = graph->leaves; leaf; leaf = leaf->before) {
        const size_t n = strlen(leaf->name);
        const char *class_name = leaf->class_name;
        if (graph->called && !class_name)
            return err_set(err, ERR_UNSUPPORTED,
                           "--zero: leaf_module: %s: it was recorded with hooks of its own; of "
                           "recordings, DeepSpeed's own leaf modules alone are planned",
                           leaf->name);
        if (!is_of_experts(graph, leaf->name) || strchr(leaf->name, '.') == NULL)
            return err_set(err, ERR_UNSUPPORTED,
                           "--zero: leaf_module: %s: of leaf modules, blocks of experts are "
                           "planned; DeepSpeed itself fails with most others",
                           leaf->name);
        if (class_name && !zero_is_listed(o->leaf_classes, class_name, strlen(class_name)) &&
            !zero_is_listed(o->leaf_names, leaf->name, n) &&
            !zero_has_suffix(o->leaf_suffixes, leaf->name, n))
            return err_set(err, ERR_UNSUPPORTED,
                           "%s (%s) is planned under ZeRO-3 as a leaf module of DeepSpeed's alone: "
                           "give --zero FILE, and in FILE {\"stage\": 3, \"leaf_module\": "
                           "{\"classes\": [\"%s\"]}}%s; without one, --strategy zero2 and fsdp2",
                           class_name, leaf->name, class_name,
                           o->version < ZERO_NEWEST ? ", which DeepSpeed reads since 0.18" : "");
    }
    return graph->leaves ? check_inputs(graph, stream, err) : ERR_OK;
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

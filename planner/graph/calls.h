/* calls.h - the modules that a forward pass calls, down to those that own the parameters.
 *
 * A graph has borders for modules that a strategy may wrap (graph_enter, graph_exit). Systems with
 * hooks on every module need more, and it follows from the parameters: a module is what a
 * parameter's name says up to its last dot, and is called around the operators that use its
 * parameters; modules around it are called from before the first of those that they contain to
 * behind the last. Lists of blocks are never called. A module without parameters is known if its
 * builder named it (graph_call_is).
 *
 *     root   layers.0   layers.0.mlp   layers.0.mlp.0   linear   (out)   layers.0.mlp.2   linear
 * ... */
#ifndef SHARDPLAN_CALLS_H
#define SHARDPLAN_CALLS_H

#include "graph/graph.h"

enum { CALL_ROOT, CALLS_DEEP = 16 }; /* the root's index; modules within each other, at most */

struct graph_call {
    const char *name; /* "layers.0.mlp.0"; "" for the root. Of the calls' arena */
    uint32_t parent;  /* GRAPH_NONE: the root */
    uint32_t depth;   /* modules around it */
    bool leaf;       /* what is in it is not called (graph_leaf): its parameters are all of those */
    bool bordered;   /* a block: graph_enter and graph_exit say when */
    bool input_grad; /* what it is called with needs a gradient: a hook behind backward */
    uint32_t first_param, params; /* range of `params`: its own */
    uint32_t external;            /* that many of them, the last ones, are others' which it reads */
    uint32_t tied; /* the parameter + 1 that it shares with another module; 0: it shares none */
};

struct graph_calls {
    struct arena arena;
    struct graph_call *at;
    uint32_t count;
    uint32_t
        model; /* what named modules are in: the root, or behind it peft's two modules around it */
    uint32_t beside;  /* another model's root (graph->beside), in nothing; GRAPH_NONE: there is none
                       */
    uint32_t *params; /* of every call, in the order of the graph */
    uint32_t *of_op;  /* (ops) the call whose parameters an op uses; GRAPH_NONE: none */
    bool *returns;    /* (ops) the next such op is of a second call of the same module */
    uint32_t *next, *last; /* (ops that have one) of_op of the next such op, of the one before
                               that has a node */
    uint32_t *of_module;   /* (modules) the bordered call; GRAPH_NONE: none */
};

/* The calls of a graph (lent for the call); of a recorded one those that it lists, with what they
 * are in and their parameters (a name is the graph's). The caller owns them: graph_calls_free. */
struct graph_calls *graph_calls_new(const struct graph *graph);
void graph_calls_free(struct graph_calls *calls); /* NULL is allowed */

/* Whether `call` is `outer` or within it. */
bool graph_call_within(const struct graph_calls *calls, uint32_t call, uint32_t outer);

#endif

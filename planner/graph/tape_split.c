/* tape_split.c - see tape_split.h. */
#include "graph/tape_split.h"

#include "base/arena.h"

#include <stdlib.h>

enum { FIRST_BUCKET = 1 << 20 }; /* dist._DEFAULT_FIRST_BUCKET_BYTES */

struct call { /* what Dynamo has as one call, or several of which at most one has parameters */
    uint32_t first; /* item */
    uint64_t bytes; /* of parameters */
};

static uint64_t param_bytes(const struct graph *graph, const struct graph_op *op)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < op->ins; i++) {
        if (op->in[i] == GRAPH_NONE)
            continue;
        const struct graph_storage *storage = &graph->storages[graph->tensors[op->in[i]].storage];
        if (storage->kind == STORAGE_PARAM && graph->params[storage->index].trainable)
            bytes += storage->bytes;
    }
    return bytes;
}

/* A checkpointed block is one call, whatever is inside. Returns their number. */
static uint32_t list_calls(const struct graph *graph, const struct tape_options *options,
                           uint32_t first, uint32_t end, uint32_t block, struct call *calls)
{
    uint32_t blocks = 0, count = 0, inside = GRAPH_NONE; /* the module that is one call */
    for (uint32_t i = 0; i < graph->module_count; i++)
        blocks += graph->modules[i].role == ROLE_BLOCK;
    for (uint32_t i = first; i < end; i++) {
        const struct graph_item item = graph->items[i];
        const bool is_block =
            item.kind == ITEM_ENTER && graph->modules[item.arg].role == ROLE_BLOCK;
        if (is_block && tape_options_checkpoint(options, block++, blocks)) {
            inside = item.arg;
            calls[count++] = (struct call){i, 0};
        } else if (item.kind == ITEM_EXIT && item.arg == inside) {
            inside = GRAPH_NONE;
        } else if (item.kind == ITEM_OP && inside != GRAPH_NONE) {
            calls[count - 1].bytes += param_bytes(graph, &graph->ops[item.arg]);
        } else if (item.kind == ITEM_OP) {
            calls[count++] = (struct call){i, param_bytes(graph, &graph->ops[item.arg])};
        }
    }
    return count;
}

uint32_t tape_split(const struct graph *graph, const struct tape_options *options, uint32_t first,
                    uint32_t end, uint32_t block, uint32_t *begins)
{
    struct call *calls = xcalloc(end - first + 1, sizeof *calls);
    const uint32_t count = list_calls(graph, options, first, end, block, calls);
    uint64_t bytes = 0;
    uint32_t cuts = 0;
    for (uint32_t i = count; options->split_bytes && i-- > 0;) {
        if (bytes >= options->split_bytes || (cuts == 0 && bytes >= FIRST_BUCKET)) {
            begins[cuts++] = calls[i + 1].first;
            bytes = 0;
        }
        bytes += calls[i].bytes;
    }
    if (cuts > 0 && bytes == 0) /* "a small preamble graph" without parameters is not its own */
        cuts--;
    begins[cuts++] = first;
    for (uint32_t i = 0; i < cuts / 2; i++) {
        const uint32_t kept = begins[i];
        begins[i] = begins[cuts - 1 - i];
        begins[cuts - 1 - i] = kept;
    }
    free(calls);
    return cuts;
}

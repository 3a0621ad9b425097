/* bucket_parts.c - see bucket_parts.h. */
#include "graph/bucket_parts.h"

#include "base/arena.h"
#include "graph/ops.h"

#include <stdlib.h>
#include <string.h>

enum { LAST_PART_BYTES = 1 << 20 }; /* c10d's kDefaultFirstBucketBytes, whatever is asked for */

struct call { /* one node of Dynamo's graph */
    uint32_t item;
    uint64_t bytes; /* of trained parameters among its arguments */
};

/* ---- arguments ---- */

/* The tensor that a cast of autocast's is of, or the tensor itself. */
static uint32_t uncast(const struct graph *graph, uint32_t tensor)
{
    const struct graph_storage *s = &graph->storages[graph->tensors[tensor].storage];
    if (s->kind != STORAGE_ACTIVATION || !graph->ops[s->index].of_autocast)
        return tensor;
    return graph->ops[s->index].in[0];
}

static uint64_t bytes_of(const struct graph *graph, uint32_t tensor)
{
    const struct graph_storage *s = &graph->storages[graph->tensors[tensor].storage];
    return s->kind == STORAGE_PARAM && graph->params[s->index].trainable ? s->bytes : 0;
}

static uint64_t bytes_given(const struct graph *graph, const struct graph_op *op)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < op->ins; i++)
        if (op->in[i] != GRAPH_NONE)
            bytes += bytes_of(graph, uncast(graph, op->in[i]));
    return bytes;
}

/* Which of the op's arguments is the k-th that Python's calls are given: transformers' Conv1D is
 * addmm(bias, x.view(...), weight). */
static uint32_t called_at(const struct graph_op *op, uint32_t k)
{
    return op->kind == OP_CONV1D && k > 0 ? op->ins - k : k;
}

uint32_t bucket_arguments(const struct graph *graph, uint32_t first, uint32_t end, uint32_t *out)
{
    bool *seen = xcalloc(graph->tensor_count + 1, sizeof *seen);
    uint32_t count = 0;
    for (uint32_t i = first; i < end; i++) {
        const struct graph_op *op = &graph->ops[graph->items[i].arg];
        if (graph->items[i].kind != ITEM_OP || op->of_autocast)
            continue;
        for (uint32_t k = 0; k < op->ins; k++) {
            const uint32_t in = op->in[called_at(op, k)];
            if (in == GRAPH_NONE)
                continue;
            const uint32_t root = graph->tensors[uncast(graph, in)].root;
            if (!seen[root])
                out[count++] = root;
            seen[root] = true;
        }
    }
    free(seen);
    return count;
}

/* ---- calls ---- */

static uint32_t exit_of(const struct graph *graph, uint32_t item)
{
    const uint32_t module = graph->items[item].arg;
    while (graph->items[item].kind != ITEM_EXIT || graph->items[item].arg != module)
        item++;
    return item;
}

/* A function with a graph of its own, which is given each parameter once. */
static struct call checkpointed_call(const struct graph *graph, uint32_t first, uint32_t end)
{
    struct call call = {first, 0};
    uint32_t *given = xmalloc((graph->tensor_count + 1) * sizeof *given);
    const uint32_t count = bucket_arguments(graph, first, end, given);
    for (uint32_t i = 0; i < count; i++)
        call.bytes += bytes_of(graph, given[i]);
    free(given);
    return call;
}

static bool enters_block(const struct graph *graph, uint32_t item)
{
    return graph->items[item].kind == ITEM_ENTER &&
           graph->modules[graph->items[item].arg].role == ROLE_BLOCK;
}

static uint32_t list_calls(const struct graph *graph, const struct tape_options *options,
                           uint32_t first, uint32_t end, struct call *out)
{
    const uint32_t blocks = graph_count_blocks(graph);
    uint32_t count = 0, begins = GRAPH_NONE, block = 0;
    for (uint32_t i = 0; i < first; i++)
        block += enters_block(graph, i);
    /* a block that is compiled on its own is checkpointed within what is compiled */
    if (options->compiled == COMPILED_BLOCKS && block > 0 &&
        tape_options_checkpoint(options, block - 1, blocks))
        return 0;
    for (uint32_t i = first; i < end; i++) {
        if (enters_block(graph, i) && tape_options_checkpoint(options, block++, blocks)) {
            const uint32_t last = exit_of(graph, i);
            out[count++] = checkpointed_call(graph, i, last);
            i = last;
        }
        if (graph->items[i].kind != ITEM_OP)
            continue;
        const struct graph_op *op = &graph->ops[graph->items[i].arg];
        begins = begins == GRAPH_NONE ? i : begins;
        if (op->of_autocast)
            continue;
        out[count++] = (struct call){begins, bytes_given(graph, op)};
        begins = GRAPH_NONE;
    }
    return count;
}

/* ---- parts ---- */

static uint32_t cut(const struct call *calls, uint32_t count, uint64_t limit, uint32_t *cuts)
{
    uint64_t bytes = 0;
    uint32_t cut_count = 0;
    for (uint32_t i = count; i-- > 0;) {
        if (bytes >= limit || (cut_count == 0 && bytes >= LAST_PART_BYTES)) {
            cuts[cut_count++] = calls[i + 1].item;
            bytes = 0;
        }
        bytes += calls[i].bytes;
    }
    if (cut_count > 0 && bytes == 0)
        cut_count--;
    for (uint32_t i = 0; i < cut_count / 2; i++) {
        const uint32_t other = cuts[i];
        cuts[i] = cuts[cut_count - 1 - i];
        cuts[cut_count - 1 - i] = other;
    }
    return cut_count;
}

uint32_t bucket_parts(const struct graph *graph, const struct tape_options *options, uint32_t first,
                      uint32_t end, uint32_t *cuts)
{
    if (options->bucket_bytes == 0 || options->whole_graphs)
        return 0;
    struct call *calls = xmalloc((end - first + 1) * sizeof *calls);
    const uint32_t count = list_calls(graph, options, first, end, calls);
    const uint32_t out = cut(calls, count, options->bucket_bytes, cuts);
    free(calls);
    return out;
}

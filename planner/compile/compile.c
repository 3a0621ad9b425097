/* compile.c - see compile.h. Blocks that are traced alike share one partition and its programs, as
 * they share one entry of torch.compile's cache. */
#include "compile/compile.h"

#include "base/arena.h"
#include "compile/region.h"
#include "compile/tape_programs.h"
#include "graph/ops.h"

#include <stdlib.h>

struct model {
    const struct graph *graph;
    struct tape_regions regions;
    struct compiled_region *compiled; /* (regions) */
    struct tape_compiled *programs;   /* (regions) */
    uint32_t count;                   /* of `compiled` */
};

/* Of each block of the model; the caller frees it. */
static enum joint_checkpoint *checkpoints(const struct graph *graph,
                                          const struct tape_options *options)
{
    enum joint_checkpoint *out = xcalloc(graph->module_count + 1, sizeof *out);
    uint32_t blocks = 0;
    for (uint32_t i = 0; i < graph->module_count; i++)
        blocks += graph->modules[i].role == ROLE_BLOCK;
    for (uint32_t i = 0; i < blocks; i++)
        if (tape_options_checkpoint(options, i, blocks))
            out[i] = options->checkpointing == CHECKPOINTING_SELECTIVE ? CHECKPOINT_SELECTIVE
                                                                       : CHECKPOINT_AGAIN;
    return out;
}

static bool draws(const struct graph_op *op)
{
    const bool attends = op->kind == OP_FLASH_ATTENTION || op->kind == OP_EFFICIENT_ATTENTION;
    return op->kind == OP_DROPOUT || (attends && op->attr.p > 0);
}

/* Where what draws numbers is computed again, the generator's state becomes an input of the graphs
 * (torch/_functorch/partitioners.py, functionalize_rng_ops), which takes a GPU to record. */
static enum err_code check_random(const struct graph *graph, const enum joint_checkpoint *blocks,
                                  struct err *err)
{
    uint32_t block = 0;
    bool again = false;
    for (uint32_t i = 0; i < graph->item_count; i++) {
        const struct graph_item item = graph->items[i];
        const bool enters = item.kind == ITEM_ENTER;
        if ((enters || item.kind == ITEM_EXIT) && graph->modules[item.arg].role == ROLE_BLOCK)
            again = enters && blocks[block++] != CHECKPOINT_NOT;
        if (again && item.kind == ITEM_OP && draws(&graph->ops[item.arg]))
            return err_set(err, ERR_UNSUPPORTED,
                           "--compile with --checkpointing of what has dropout: what torch.compile "
                           "makes of random numbers that are drawn again was not recorded, and is "
                           "not planned; without dropout, or with one of the two, it is");
    }
    return ERR_OK;
}

static enum err_code compile_regions(struct model *m, const enum joint_checkpoint *blocks,
                                     struct err *err)
{
    for (uint32_t i = 0; i < m->regions.count; i++) {
        const struct tape_region *region = &m->regions.of[i];
        m->count++;
        TRY(compiled_region_trace(m->graph, &m->regions, region, blocks, &m->compiled[i], err));
        for (uint32_t k = 0; k < i && !m->compiled[i].like; k++)
            if (!m->compiled[k].like && compiled_region_is_like(&m->compiled[k], &m->compiled[i]))
                m->compiled[i].like = &m->compiled[k];
        TRY(compiled_region_finish(&m->compiled[i], err));
        tape_programs_of(m->graph, m->regions.stream, region, &m->compiled[i], &m->programs[i]);
    }
    return ERR_OK;
}

enum err_code compile_run(const struct graph *graph, const struct tape_options *options,
                          struct stream **out, struct err *err)
{
    struct model m = {.graph = graph};
    *out = NULL;
    tape_run_regions(graph, options, &m.regions);
    m.compiled = xcalloc(m.regions.count + 1, sizeof *m.compiled);
    m.programs = xcalloc(m.regions.count + 1, sizeof *m.programs);
    enum joint_checkpoint *blocks = checkpoints(graph, options);
    enum err_code rc = check_random(graph, blocks, err);
    if (rc == ERR_OK)
        rc = compile_regions(&m, blocks, err);
    free(blocks);
    if (rc == ERR_OK)
        *out = tape_run_compiled(graph, options, m.programs, m.count);
    for (uint32_t i = 0; i < m.count; i++) {
        compiled_region_free(&m.compiled[i]);
        tape_programs_free(&m.programs[i]);
    }
    free(m.compiled);
    free(m.programs);
    tape_regions_free(&m.regions);
    return rc;
}

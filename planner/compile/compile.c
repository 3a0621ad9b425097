/* compile.c - see compile.h. Blocks that are traced alike share one partition and its programs, as
 * they share one entry of torch.compile's cache. */
#include "compile/compile.h"

#include "compile/region.h"
#include "compile/tape_programs.h"

#include <stdlib.h>

struct model {
    const struct graph *graph;
    struct tape_regions regions;
    struct compiled_region *compiled; /* (regions) */
    struct tape_compiled *programs;   /* (regions) */
    uint32_t count;                   /* of `compiled` */
};

static enum joint_checkpoint checkpoint_of(const struct tape_options *options, bool is_block,
                                           uint32_t block, uint32_t blocks)
{
    if (!is_block || !tape_options_checkpoint(options, block, blocks))
        return CHECKPOINT_NOT;
    return options->checkpointing == CHECKPOINTING_SELECTIVE ? CHECKPOINT_SELECTIVE
                                                             : CHECKPOINT_AGAIN;
}

static enum err_code compile_regions(struct model *m, const struct tape_options *options,
                                     struct err *err)
{
    const uint32_t blocks = m->regions.count - options->compiled_loss; /* which come first */
    for (uint32_t i = 0; i < m->regions.count; i++) {
        const struct tape_region *region = &m->regions.of[i];
        const enum joint_checkpoint checkpoint = checkpoint_of(options, i < blocks, i, blocks);
        m->count++;
        TRY(compiled_region_trace(m->graph, &m->regions, region, checkpoint, &m->compiled[i], err));
        for (uint32_t k = 0; k < i && !m->compiled[i].like; k++)
            if (!m->compiled[k].like && compiled_region_is_like(&m->compiled[k], &m->compiled[i]))
                m->compiled[i].like = &m->compiled[k];
        TRY(compiled_region_finish(&m->compiled[i], err));
        tape_programs_of(m->regions.stream, region, &m->compiled[i], &m->programs[i]);
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
    const enum err_code rc = compile_regions(&m, options, err);
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

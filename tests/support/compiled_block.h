/* compiled_block.h - rows of tests/data/truth/compile*.jsonl, and their first blocks, or the parts
 * of models that they are of, as this project compiles them. */
#ifndef SHARDPLAN_COMPILED_BLOCK_H
#define SHARDPLAN_COMPILED_BLOCK_H

#include "compile/region.h"
#include "tests/support/truth.h"

struct compiled_block {
    json_t *row;
    struct graph *graph;
    struct tape_options options; /* what is compiled and checkpointed */
    struct tape_regions regions;
    struct compiled_region region;
};

/* Row `index`; false: there is none. Fails the test where the block cannot be compiled. */
bool compiled_block_read(size_t index, struct compiled_block *out);
void compiled_block_free(struct compiled_block *block);

#endif

/* tape_options.c - see tape_options.h. */
#include "graph/tape_options.h"

bool tape_options_checkpoint(const struct tape_options *options, uint32_t block, uint32_t count)
{
    const uint32_t number = options->checkpointed_number;
    if (options->checkpointing == CHECKPOINTING_NONE)
        return false;
    switch (options->checkpointed) {
    case CHECKPOINTED_FIRST:
        return block < number;
    case CHECKPOINTED_SHARE:
        return 100ULL * block < (uint64_t)number * count;
    case CHECKPOINTED_EVERY:
        return (block + 1) % number == 0;
    default:
        return true;
    }
}

void tape_options_simplify(struct tape_options *options, uint32_t blocks)
{
    uint32_t first = 0, chosen = 0;
    for (uint32_t i = 0; i < blocks; i++) {
        const bool one = tape_options_checkpoint(options, i, blocks);
        first += one && first == i;
        chosen += one;
    }
    if (chosen == 0) {
        options->checkpointing = CHECKPOINTING_NONE;
        options->reentrant = false;
    }
    if (chosen == 0 || options->reentrant)
        options->no_early_stop = false; /* there is nothing to stop, or nothing stops it */
    if (!options->compiled)
        options->whole_graphs = false;
    if (chosen == 0 || chosen == blocks) {
        options->checkpointed = CHECKPOINTED_ALL;
        options->checkpointed_number = 0;
    } else if (chosen == first) {
        options->checkpointed = CHECKPOINTED_FIRST;
        options->checkpointed_number = first;
    }
}

/* palette.h - one colour is one thing, in every picture, and one name in words.
 *
 * What a phase does and what it holds have the phase's colour: activations are forward's. What is
 * for communication is green, parameters are of the deep blues. */
#ifndef SHARDPLAN_PALETTE_H
#define SHARDPLAN_PALETTE_H

#include "base/vocabulary.h"
#include "plan/plan.h"

enum {
    PALETTE_FORWARD = 0x4c72b0,
    PALETTE_BACKWARD = 0xdd8452,
    PALETTE_OPTIMIZER = 0x8172b3,
    PALETTE_COLLECTIVE = 0x55a868,
    PALETTE_COPY = 0xaaaaaa,
    PALETTE_HOST = 0x937860,
    PALETTE_EXPOSED = 0xc44e52,
};

struct palette_entry {
    unsigned rgb;
    const char *name; /* "unsharded parameters" */
};

/* Of what memory is held for. */
struct palette_entry palette_category(enum category category);

/* Of what a lane is busy with. */
unsigned palette_instruction(const struct plan_instruction *instruction);

#endif

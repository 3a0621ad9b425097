/* palette.h - one colour is one thing, in every picture, and one name in words.
 *
 * What a phase does and what it holds have the phase's colour: activations are forward's. What is
 * for communication is green, parameters are of the blues. Phases and communication have colours of
 * Okabe and Ito's, which people who see red and green alike tell apart; tests/report holds each two
 * that one picture may have to that. */
#ifndef SHARDPLAN_PALETTE_H
#define SHARDPLAN_PALETTE_H

#include "base/vocabulary.h"
#include "plan/plan.h"

enum {
    PALETTE_FORWARD = 0x0072b2,
    PALETTE_BACKWARD = 0xe69f00,
    PALETTE_OPTIMIZER = 0xcc79a7,
    PALETTE_COLLECTIVE = 0x009e73,
    PALETTE_WAITING = 0xa8dccb, /* a collective that waits for slower ranks */
    PALETTE_COPY = 0x606060,
    PALETTE_HOST = 0x1c1c1c,
    PALETTE_EXPOSED = 0xd55e00,
};

enum { PALETTE_WORKS = 8 }; /* what a timeline shows: those above */

struct palette_entry {
    unsigned rgb;
    const char *name; /* "unsharded parameters" */
};

/* Of what memory is held for. */
struct palette_entry palette_category(enum category category);

/* One of PALETTE_WORKS. */
struct palette_entry palette_work(uint32_t i);

/* Of what a lane is busy with. */
unsigned palette_instruction(const struct plan_instruction *instruction);

#endif

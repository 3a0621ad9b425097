/* triples.h - numbers for triples of numbers: the same for the same, from 1 on in the order of
 * arrival. */
#ifndef SHARDPLAN_TRIPLES_H
#define SHARDPLAN_TRIPLES_H

#include <stdbool.h>
#include <stdint.h>

struct triple {
    uint32_t a, b, c;
};

struct triples { /* zero-initialise; triples_free */
    struct triple *of;
    uint32_t *slots; /* (slot_count, a power of two) numbers; 0: none */
    uint32_t count, cap, slot_count;
};

/* The number of a triple; *is_new (may be NULL): it had none before. */
uint32_t triples_number(struct triples *triples, struct triple triple, bool *is_new);
void triples_free(struct triples *triples);

#endif

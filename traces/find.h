/* find.h - items of a list by what they are, in constant time: a hash table of their numbers. What
 * an item is, its owner knows. */
#ifndef SHARDPLAN_TRACES_FIND_H
#define SHARDPLAN_TRACES_FIND_H

#include <stdbool.h>
#include <stdint.h>

#define FIND_NONE UINT32_MAX

struct find_slot {
    uint64_t hash;
    uint32_t item; /* + 1; 0: the slot is free */
};

struct find { /* {0} to begin with */
    struct find_slot *slots;
    uint32_t count, cap;
};

/* The item of that hash that `same` says yes to; FIND_NONE: none. */
uint32_t find_item(const struct find *find, uint64_t hash,
                   bool (*same)(const void *what, uint32_t item), const void *what);
/* Adds an item, which is not in it. */
void find_add(struct find *find, uint64_t hash, uint32_t item);
void find_free(struct find *find);

/* A hash of some numbers, pointers among them. */
uint64_t find_hash(const uint64_t *numbers, uint32_t count);

#endif

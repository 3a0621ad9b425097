/* keys.h - what of a search is the same, by 128 bits of its contents. */
#ifndef SHARDPLAN_KEYS_H
#define SHARDPLAN_KEYS_H

#include <stddef.h>
#include <stdint.h>

struct key {
    uint64_t a, b;
};

/* Of bytes, and of what `from` is the key of: what is equal has equal bytes where it was made by
 * the same assignments. If not, two of the same are told apart, which costs time and nothing else.
 */
struct key key_of(struct key from, const void *bytes, size_t size);

struct key_table { /* of keys to indices */
    struct key *keys;
    uint32_t *indices;
    uint32_t slots;
};

/* Room for so many. The caller frees it. */
struct key_table key_table_new(size_t most);
void key_table_free(struct key_table *table);

/* The index of a key; a new key gets `next`. */
uint32_t key_table_index(struct key_table *table, struct key key, uint32_t next);

#endif

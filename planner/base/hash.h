/* hash.h - XXH64, a 64-bit hash of any number of bytes, in pieces of any size: finds what disks and
 * cables do to them, and nothing that somebody does on purpose.
 *
 * Source: github.com/Cyan4973/xxHash, doc/xxhash_spec.md (seed 0). */
#ifndef SHARDPLAN_HASH_H
#define SHARDPLAN_HASH_H

#include <stddef.h>
#include <stdint.h>

struct hash {
    uint64_t lane[4];
    uint64_t bytes; /* so far */
    unsigned char rest[32];
};

void hash_begin(struct hash *hash);
void hash_add(struct hash *hash, const void *data, size_t bytes);
/* Of all that was added; more may follow. */
uint64_t hash_end(const struct hash *hash);

#endif

/* free_set.h - free blocks in order: for the files of the allocator only.
 *
 * Every pool and stream has a set; a call to the allocator does about one search, one removal and
 * one insertion in it, and this is what takes time.
 *
 *     free_set    words   0100...0010  one bit per bin; lowest bit from a size on = best bin
 *                           |       |
 *                 bins    [   ] ... [   ]   32 size ranges per power of two
 *                           |       |
 *                 leaf    {key, block} ...  sorted, highest key first, at most LEAF_MAX entries;
 *                                           a bin that outgrows its leaf gets a list of leaves
 *
 * A key is 64 bits and orders a bin by (size, address). With 2^m the power of two below the
 * size, two free blocks of one size are at least 2^m apart, so address >> m still tells them
 * apart; size / 512 in front of it just fits. A search therefore compares plain integers, and in
 * a training step it mostly looks at the last entry of one leaf: memory is freed in the reverse
 * order of allocation, and the last entry is the lowest address of the smallest size.
 *
 * PyTorch keeps a balanced tree of blocks. That would be shorter here too, but every level of a
 * tree is a jump to memory that is likely not in cache. One sorted array is as fast while it is
 * small, but moves kilobytes per call once there are thousands of free blocks. Here n free blocks
 * of one size cost O(log n) comparisons and moving at most LEAF_MAX entries per call.
 *
 * What every call does is in this header, to be inlined; free_set.c has what is rare. */
#ifndef SHARDPLAN_FREE_SET_H
#define SHARDPLAN_FREE_SET_H

#include "memory/block.h"

#include <assert.h>
#include <string.h>

enum {
    BIN_COUNT = 1024, /* 32 per power of two, up to 32 TiB */
    BIN_WORDS = BIN_COUNT / 64,
    LEAF_MAX = 128,
};

struct free_entry {
    uint64_t key;
    struct allocator_block *block;
};

struct free_leaf {
    uint32_t count, capacity;
    struct free_entry entries[]; /* highest key first */
};

struct free_bin {
    uint32_t leaf_count, list_capacity;
    union {
        struct free_leaf *leaf;  /* leaf_count 1 */
        struct free_leaf **list; /* leaf_count > 1, highest keys first */
    };
};

struct free_set {
    uint64_t words_in_use;     /* bit w: words[w] is not 0 */
    uint64_t words[BIN_WORDS]; /* bit b: bin b has entries */
    struct free_bin bins[BIN_COUNT];

    struct allocator_block **unmapped; /* of expandable ranges, by address; rarely more than one */
    size_t unmapped_count;
};

struct free_spot { /* a place in a free set, valid until the set changes; leaf NULL: none */
    struct free_leaf *leaf;
    uint32_t bin, leaf_index, entry;
};

/* An empty set; the caller owns it: free_set_free, which leaves the blocks alone. NULL is allowed.
 */
struct free_set *free_set_new(void);
void free_set_free(struct free_set *set);

/* The free blocks in order; the caller frees the array. `set` may be NULL: none. */
struct allocator_block **free_set_list(const struct free_set *set, size_t *count);

/* The next block in order after `spot`. */
struct free_spot free_set_after(const struct free_set *set, struct free_spot spot);

/* Whether the set is in order, its bits, counts and keys are those of its blocks, and these are
 * free ones of this pool and stream; ERR_INTERNAL names what is not so. Counts the mapped ones. */
enum err_code free_set_check(const struct free_set *set, enum pool_kind pool, int stream,
                             size_t *count, struct err *err);

/* ---- rare parts of what follows ---- */

/* How many leaves of a list begin with a key of at least `key`. */
uint32_t bin_list_rank(const struct free_bin *bin, uint64_t key);

/* The leaf of `bin` where `key` belongs, with room for it. */
struct free_leaf *bin_make_room(struct free_bin *bin, uint64_t key);

/* Takes the emptied leaf at `leaf_index` out of the list of leaves. */
void bin_drop_leaf(struct free_bin *bin, uint32_t leaf_index);

/* ---- what every call does ---- */

static inline uint32_t floor_log2(uint64_t n)
{
    return 63 - (uint32_t)__builtin_clzll(n);
}

static inline uint32_t bin_of(uint64_t bytes)
{
    const uint64_t units = bytes / MIN_BLOCK_BYTES;
    const uint32_t shift = floor_log2(units | 32) - 5;
    return (shift << 5) + (uint32_t)(units >> shift);
}

static inline uint64_t key_of(uint64_t bytes, uint64_t address)
{
    const uint32_t log2 = floor_log2(bytes);
    return (bytes / MIN_BLOCK_BYTES) << (64 - log2) | address >> log2;
}

/* How many entries have a key of at least `key`. */
static inline uint32_t leaf_rank(const struct free_leaf *leaf, uint64_t key)
{
    uint32_t rank = 0, left = leaf->count;
    if (left && leaf->entries[left - 1].key >= key)
        return left;
    while (left) {
        const uint32_t half = left / 2;
        const bool high = leaf->entries[rank + half].key >= key;
        rank += high ? half + 1 : 0;
        left = high ? left - half - 1 : half;
    }
    return rank;
}

/* The lowest entry of the first used bin from `bin` on. */
static inline struct free_spot free_set_first(const struct free_set *set, uint32_t bin)
{
    const struct free_spot none = {0};
    uint32_t word = bin / 64;
    uint64_t bits = bin < BIN_COUNT ? set->words[word] >> (bin % 64) << (bin % 64) : 0;
    if (!bits) {
        const uint64_t later = word + 1 < BIN_WORDS ? set->words_in_use >> (word + 1) : 0;
        if (!later)
            return none;
        word += 1 + (uint32_t)__builtin_ctzll(later);
        bits = set->words[word];
    }
    const uint32_t found = 64 * word + (uint32_t)__builtin_ctzll(bits);
    const struct free_bin *in = &set->bins[found];
    const uint32_t last = in->leaf_count - 1;
    struct free_leaf *leaf = last ? in->list[last] : in->leaf;
    return (struct free_spot){leaf, found, last, leaf->count - 1};
}

/* The lowest entry of `bin` with at least `key`. */
static inline struct free_spot bin_find(const struct free_set *set, uint32_t bin, uint64_t key)
{
    const struct free_spot none = {0};
    const struct free_bin *in = &set->bins[bin];
    uint32_t leaf_index = 0;
    if (!(set->words[bin / 64] >> (bin % 64) & 1))
        return none;
    if (in->leaf_count > 1) {
        leaf_index = bin_list_rank(in, key);
        if (!leaf_index)
            return none;
        leaf_index--;
    }
    struct free_leaf *leaf = in->leaf_count > 1 ? in->list[leaf_index] : in->leaf;
    const uint32_t rank = leaf_rank(leaf, key);
    return rank ? (struct free_spot){leaf, bin, leaf_index, rank - 1} : none;
}

/* The smallest block of at least `bytes`, at the lowest address among equals. */
static inline struct free_spot free_set_find(const struct free_set *set, uint64_t bytes)
{
    const uint32_t bin = bin_of(bytes);
    const struct free_spot spot = bin_find(set, bin, key_of(bytes, 0));
    return spot.leaf ? spot : free_set_first(set, bin + 1);
}

static inline struct allocator_block *spot_block(struct free_spot spot)
{
    return spot.leaf->entries[spot.entry].block;
}

/* Takes in a block that is free, mapped and in no set. */
static inline void free_set_insert(struct free_set *set, struct allocator_block *block)
{
    assert(!block->allocated && block->mapped && block->bytes >= MIN_BLOCK_BYTES);
    const uint64_t key = key_of(block->bytes, block->address);
    const uint32_t index = bin_of(block->bytes);
    struct free_bin *bin = &set->bins[index];
    struct free_leaf *leaf = bin->leaf;
    if (bin->leaf_count != 1 || leaf->count == leaf->capacity)
        leaf = bin_make_room(bin, key);

    const uint32_t rank = leaf_rank(leaf, key);
    struct free_entry *at = leaf->entries + rank;
    if (rank < leaf->count)
        memmove(at + 1, at, (leaf->count - rank) * sizeof *at);
    *at = (struct free_entry){key, block};
    leaf->count++;
    set->words[index / 64] |= (uint64_t)1 << (index % 64);
    set->words_in_use |= (uint64_t)1 << (index / 64);
}

static inline void free_set_remove_at(struct free_set *set, struct free_spot spot)
{
    struct free_leaf *leaf = spot.leaf;
    leaf->count--;
    struct free_entry *at = leaf->entries + spot.entry;
    if (spot.entry < leaf->count)
        memmove(at, at + 1, (leaf->count - spot.entry) * sizeof *at);
    if (leaf->count)
        return;
    struct free_bin *bin = &set->bins[spot.bin];
    if (bin->leaf_count > 1) {
        bin_drop_leaf(bin, spot.leaf_index);
        return;
    }
    uint64_t *word = &set->words[spot.bin / 64]; /* the leaf stays for the next block */
    *word &= ~((uint64_t)1 << (spot.bin % 64));
    set->words_in_use &= ~((uint64_t)(*word == 0) << (spot.bin / 64));
}

static inline void free_set_remove(struct free_set *set, const struct allocator_block *block)
{
    const struct free_spot spot =
        bin_find(set, bin_of(block->bytes), key_of(block->bytes, block->address));
    assert(spot.leaf && spot_block(spot) == block);
    free_set_remove_at(set, spot);
}

#endif

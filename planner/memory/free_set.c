/* free_set.c - see free_set.h: what is rare. */
#include "memory/free_set.h"

#include "base/arena.h"

#include <inttypes.h>
#include <stdlib.h>

enum { LEAF_START = 4, LIST_START = 8 };

struct free_set *free_set_new(void)
{
    struct free_set *set = xmalloc(sizeof *set);
    memset(set, 0, sizeof *set);
    return set;
}

void free_set_free(struct free_set *set)
{
    if (!set)
        return;
    for (size_t i = 0; i < BIN_COUNT; i++) {
        struct free_bin *bin = &set->bins[i];
        if (bin->leaf_count == 1)
            free(bin->leaf);
        for (uint32_t leaf = 0; bin->leaf_count > 1 && leaf < bin->leaf_count; leaf++)
            free(bin->list[leaf]);
        if (bin->leaf_count > 1)
            free(bin->list);
    }
    free(set->unmapped);
    free(set);
}

struct allocator_block **free_set_list(const struct free_set *set, size_t *count)
{
    *count = 0;
    if (!set)
        return NULL;
    for (struct free_spot spot = free_set_first(set, 0); spot.leaf;
         spot = free_set_after(set, spot))
        ++*count;
    struct allocator_block **blocks = xmalloc(*count * sizeof(struct allocator_block *));
    struct allocator_block **next = blocks;
    for (struct free_spot spot = free_set_first(set, 0); spot.leaf;
         spot = free_set_after(set, spot))
        *next++ = spot_block(spot);
    return blocks;
}

struct free_spot free_set_after(const struct free_set *set, struct free_spot spot)
{
    if (spot.entry) {
        spot.entry--;
        return spot;
    }
    if (!spot.leaf_index)
        return free_set_first(set, spot.bin + 1);
    spot.leaf = set->bins[spot.bin].list[--spot.leaf_index];
    spot.entry = spot.leaf->count - 1;
    return spot;
}

uint32_t bin_list_rank(const struct free_bin *bin, uint64_t key)
{
    uint32_t rank = 0, left = bin->leaf_count;
    while (left) {
        const uint32_t half = left / 2;
        if (bin->list[rank + half]->entries[0].key >= key) {
            rank += half + 1;
            left -= half + 1;
        } else {
            left = half;
        }
    }
    return rank;
}

static struct free_leaf *leaf_resize(struct free_leaf *leaf, uint32_t capacity)
{
    const uint32_t count = leaf ? leaf->count : 0;
    struct free_leaf *resized = xrealloc(leaf, sizeof *leaf + capacity * sizeof leaf->entries[0]);
    resized->count = count;
    resized->capacity = capacity;
    return resized;
}

/* Moves the lower half of the full leaf at `index` to a new leaf behind it. */
static void bin_split_leaf(struct free_bin *bin, uint32_t index)
{
    if (bin->leaf_count == 1) {
        struct free_leaf *only = bin->leaf;
        bin->list_capacity = LIST_START;
        bin->list = xmalloc(bin->list_capacity * sizeof(struct free_leaf *));
        bin->list[0] = only;
    } else if (bin->leaf_count == bin->list_capacity) {
        bin->list_capacity *= 2;
        bin->list = xrealloc(bin->list, bin->list_capacity * sizeof(struct free_leaf *));
    }
    struct free_leaf *full = bin->list[index];
    assert(full->count == LEAF_MAX && index < bin->leaf_count);
    struct free_leaf *lower = leaf_resize(NULL, LEAF_MAX);
    full->count = LEAF_MAX / 2;
    lower->count = LEAF_MAX - full->count;
    memcpy(lower->entries, full->entries + full->count, lower->count * sizeof lower->entries[0]);
    memmove(bin->list + index + 2, bin->list + index + 1,
            (bin->leaf_count - index - 1) * sizeof(struct free_leaf *));
    bin->list[index + 1] = lower;
    bin->leaf_count++;
}

struct free_leaf *bin_make_room(struct free_bin *bin, uint64_t key)
{
    for (;;) {
        if (!bin->leaf_count) {
            bin->leaf = leaf_resize(NULL, LEAF_START);
            bin->leaf_count = 1;
        }
        uint32_t index = bin->leaf_count > 1 ? bin_list_rank(bin, key) : 0;
        index -= index > 0;
        struct free_leaf *leaf = bin->leaf_count > 1 ? bin->list[index] : bin->leaf;
        if (leaf->count < leaf->capacity)
            return leaf;
        if (leaf->capacity == LEAF_MAX)
            bin_split_leaf(bin, index);
        else /* only a single leaf is ever small */
            return bin->leaf = leaf_resize(leaf, 2 * leaf->capacity);
    }
}

void bin_drop_leaf(struct free_bin *bin, uint32_t leaf_index)
{
    assert(bin->leaf_count > 1 && bin->list[leaf_index]->count == 0);
    free(bin->list[leaf_index]);
    bin->leaf_count--;
    memmove(bin->list + leaf_index, bin->list + leaf_index + 1,
            (bin->leaf_count - leaf_index) * sizeof(struct free_leaf *));
    if (bin->leaf_count == 1) {
        struct free_leaf **list = bin->list;
        bin->leaf = list[0];
        free(list);
    }
}

/* ---- what is always true ---- */

#define BROKEN(...) err_set(err, ERR_INTERNAL, __VA_ARGS__)

/* A marked bin: it has entries, highest key first through all its leaves. */
static enum err_code check_bin(const struct free_set *set, uint32_t bin, size_t *count,
                               struct err *err)
{
    const struct free_bin *in = &set->bins[bin];
    uint64_t last = UINT64_MAX;
    if (in->leaf_count == 0 || (in->leaf_count == 1 && in->leaf->count == 0))
        return BROKEN("bin %u is marked and has no blocks", bin);
    if (in->leaf_count > 1 && in->leaf_count > in->list_capacity)
        return BROKEN("bin %u lists %u leaves in room for %u", bin, in->leaf_count,
                      in->list_capacity);
    for (uint32_t l = 0; l < in->leaf_count; l++) {
        const struct free_leaf *leaf = in->leaf_count > 1 ? in->list[l] : in->leaf;
        if (leaf->count == 0 || leaf->count > leaf->capacity || leaf->capacity > LEAF_MAX)
            return BROKEN("a leaf of bin %u has %u entries in room for %u", bin, leaf->count,
                          leaf->capacity);
        for (uint32_t i = 0; i < leaf->count; i++) {
            const struct allocator_block *block = leaf->entries[i].block;
            const uint64_t key = leaf->entries[i].key;
            if (block->bytes == 0 || key >= last || key != key_of(block->bytes, block->address) ||
                bin != bin_of(block->bytes))
                return BROKEN("free block %#" PRIx64 " is not where its size and address belong",
                              block->address);
            last = key;
        }
        *count += leaf->count;
    }
    return ERR_OK;
}

static enum err_code check_member(const struct allocator_block *block, bool mapped,
                                  enum pool_kind pool, int stream, struct err *err)
{
    if (block->bytes == 0 || block->allocated || block->mapped != mapped || block->pool != pool ||
        block->stream != stream)
        return BROKEN("block %#" PRIx64 " is in the set of pool %d, stream %d and does not belong",
                      block->address, pool, stream);
    return ERR_OK;
}

static enum err_code check_members(const struct free_set *set, enum pool_kind pool, int stream,
                                   struct err *err)
{
    uint64_t last = 0;
    for (struct free_spot spot = free_set_first(set, 0); spot.leaf;
         spot = free_set_after(set, spot))
        TRY(check_member(spot_block(spot), true, pool, stream, err));
    for (size_t i = 0; i < set->unmapped_count; i++) {
        TRY(check_member(set->unmapped[i], false, pool, stream, err));
        if (set->unmapped[i]->address <= last)
            return BROKEN("unmapped block %#" PRIx64 " is listed out of order",
                          set->unmapped[i]->address);
        last = set->unmapped[i]->address;
    }
    return ERR_OK;
}

enum err_code free_set_check(const struct free_set *set, enum pool_kind pool, int stream,
                             size_t *count, struct err *err)
{
    *count = 0;
    for (uint32_t word = 0; word < BIN_WORDS; word++) {
        if ((set->words_in_use >> word & 1) != (set->words[word] != 0))
            return BROKEN("word %u of the bins is %#" PRIx64 " and marked otherwise", word,
                          set->words[word]);
        /* What no bit marks is never read: blocks that are lost there are missing in the count. */
        for (uint64_t bits = set->words[word]; bits; bits &= bits - 1)
            TRY(check_bin(set, 64 * word + (uint32_t)__builtin_ctzll(bits), count, err));
    }
    return check_members(set, pool, stream, err);
}

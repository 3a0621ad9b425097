/* find.c - see find.h. */
#include "traces/find.h"

#include "base/arena.h"
#include "base/hash.h"

#include <stdlib.h>

uint32_t find_item(const struct find *find, uint64_t hash,
                   bool (*same)(const void *what, uint32_t item), const void *what)
{
    for (uint64_t i = hash; find->cap; i++) {
        const struct find_slot *slot = &find->slots[i % find->cap];
        if (!slot->item)
            break;
        if (slot->hash == hash && same(what, slot->item - 1))
            return slot->item - 1;
    }
    return FIND_NONE;
}

static void put(struct find *find, struct find_slot item)
{
    uint64_t i = item.hash;
    while (find->slots[i % find->cap].item)
        i++;
    find->slots[i % find->cap] = item;
}

/* Half of the slots are free at any time, so that searches end, and soon. */
void find_add(struct find *find, uint64_t hash, uint32_t item)
{
    if (2 * (find->count + 1) > find->cap) {
        const struct find old = *find;
        find->cap = old.cap ? 2 * old.cap : 64;
        find->slots = xcalloc(find->cap, sizeof *find->slots);
        for (uint32_t i = 0; i < old.cap; i++)
            if (old.slots[i].item)
                put(find, old.slots[i]);
        free(old.slots);
    }
    put(find, (struct find_slot){hash, item + 1});
    find->count++;
}

void find_free(struct find *find)
{
    free(find->slots);
    *find = (struct find){0};
}

uint64_t find_hash(const uint64_t *numbers, uint32_t count)
{
    struct hash hash;
    hash_begin(&hash);
    hash_add(&hash, numbers, count * sizeof *numbers);
    return hash_end(&hash);
}

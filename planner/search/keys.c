/* keys.c - see keys.h. */
#include "search/keys.h"

#include "base/arena.h"

#include <stdlib.h>
#include <string.h>

enum { NO_INDEX = UINT32_MAX };

static uint64_t mix(uint64_t h, uint64_t word)
{
    h = (h ^ word) * 0x9e3779b97f4a7c15U;
    return h ^ h >> 32;
}

struct key key_of(struct key from, const void *bytes, size_t size)
{
    enum { LANES = 4 }; /* side by side, as each word waits for the one before it in its own */
    const unsigned char *at = bytes;
    uint64_t lanes[LANES] = {from.a, from.b, 0x632be59bd9b4e019U, 0xd6e8feb86659fd93U};
    uint64_t words[LANES];
    for (; size >= sizeof words; at += sizeof words, size -= sizeof words) {
        memcpy(words, at, sizeof words);
        for (int i = 0; i < LANES; i++)
            lanes[i] = mix(lanes[i], words[i]);
    }
    memset(words, 0, sizeof words);
    memcpy(words, at, size);
    for (int i = 0; i < LANES; i++)
        lanes[i] = mix(lanes[i], words[i] + size);
    return (struct key){mix(mix(mix(lanes[0], lanes[1]), lanes[2]), lanes[3]),
                        mix(mix(mix(lanes[3], lanes[2]), lanes[1]), lanes[0])};
}

struct key_table key_table_new(size_t most)
{
    struct key_table t = {.slots = 64};
    while (t.slots < 2 * most)
        t.slots *= 2;
    t.keys = xmalloc(t.slots * sizeof *t.keys);
    t.indices = xmalloc(t.slots * sizeof *t.indices);
    memset(t.indices, 0xff, t.slots * sizeof *t.indices);
    return t;
}

void key_table_free(struct key_table *t)
{
    free(t->keys);
    free(t->indices);
}

uint32_t key_table_index(struct key_table *t, struct key key, uint32_t next)
{
    uint32_t slot = (uint32_t)key.a & (t->slots - 1);
    while (t->indices[slot] != NO_INDEX) {
        if (t->keys[slot].a == key.a && t->keys[slot].b == key.b)
            return t->indices[slot];
        slot = (slot + 1) & (t->slots - 1);
    }
    t->keys[slot] = key;
    t->indices[slot] = next;
    return next;
}

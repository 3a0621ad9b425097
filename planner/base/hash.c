/* hash.c - see hash.h. Little-endian machines only, as all our files are. */
#include "base/hash.h"

#include <string.h>

static const uint64_t prime[6] = {
    0,
    0x9e3779b185ebca87ULL,
    0xc2b2ae3d27d4eb4fULL,
    0x165667b19e3779f9ULL,
    0x85ebca77c2b2ae63ULL,
    0x27d4eb2f165667c5ULL,
};

static uint64_t turn(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

static uint64_t word(const unsigned char *at)
{
    uint64_t x;
    memcpy(&x, at, sizeof x);
    return x;
}

static uint64_t mix(uint64_t lane, uint64_t input)
{
    return turn(lane + input * prime[2], 31) * prime[1];
}

void hash_begin(struct hash *hash)
{
    *hash = (struct hash){.lane = {prime[1] + prime[2], prime[2], 0, 0 - prime[1]}};
}

static void add_stripe(struct hash *hash, const unsigned char *at)
{
    for (int i = 0; i < 4; i++)
        hash->lane[i] = mix(hash->lane[i], word(at + 8 * i));
}

void hash_add(struct hash *hash, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    const size_t held = hash->bytes % sizeof hash->rest;
    hash->bytes += bytes;
    if (held > 0) {
        const size_t room = sizeof hash->rest - held, n = bytes < room ? bytes : room;
        memcpy(hash->rest + held, at, n);
        if (n < room)
            return;
        add_stripe(hash, hash->rest);
        at += n;
        bytes -= n;
    }
    for (; bytes >= sizeof hash->rest; at += sizeof hash->rest, bytes -= sizeof hash->rest)
        add_stripe(hash, at);
    if (bytes > 0)
        memcpy(hash->rest, at, bytes);
}

/* Of the lanes, where there was a stripe at least. */
static uint64_t gathered(const struct hash *hash)
{
    static const int bits[4] = {1, 7, 12, 18};
    uint64_t x = 0;
    if (hash->bytes < sizeof hash->rest)
        return prime[5];
    for (int i = 0; i < 4; i++)
        x += turn(hash->lane[i], bits[i]);
    for (int i = 0; i < 4; i++)
        x = (x ^ mix(0, hash->lane[i])) * prime[1] + prime[4];
    return x;
}

uint64_t hash_end(const struct hash *hash)
{
    const unsigned char *at = hash->rest;
    size_t left = hash->bytes % sizeof hash->rest;
    uint64_t x = gathered(hash) + hash->bytes;
    for (; left >= 8; at += 8, left -= 8)
        x = turn(x ^ mix(0, word(at)), 27) * prime[1] + prime[4];
    if (left >= 4) {
        uint32_t half;
        memcpy(&half, at, sizeof half);
        x = turn(x ^ half * prime[1], 23) * prime[2] + prime[3];
        at += 4;
        left -= 4;
    }
    for (; left > 0; at++, left--)
        x = turn(x ^ *at * prime[5], 11) * prime[1];
    x = (x ^ x >> 33) * prime[2];
    x = (x ^ x >> 29) * prime[3];
    return x ^ x >> 32;
}

/* arena.c - see arena.h. */
#include "base/arena.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OUT_OF_MEMORY = 3 }; /* the exit status of failures */

enum { CHUNK_BYTES = 64 * 1024, ALIGNMENT = 16 };

struct arena_chunk {
    struct arena_chunk *older;
    size_t capacity;
    _Alignas(ALIGNMENT) unsigned char bytes[];
};

static void *checked(void *memory, size_t count, size_t bytes)
{
    if (!memory) {
        fprintf(stderr, "shardplan: out of host memory (%zu x %zu bytes asked)\n", count, bytes);
        _exit(OUT_OF_MEMORY);
    }
    return memory;
}

void *xmalloc(size_t bytes)
{
    return xrealloc(NULL, bytes);
}

void *xcalloc(size_t count, size_t bytes)
{
    const bool none = count == 0 || bytes == 0;
    return checked(none ? calloc(1, 1) : calloc(count, bytes), count, bytes);
}

void *xrealloc(void *ptr, size_t bytes)
{
    return checked(realloc(ptr, bytes ? bytes : 1), 1, bytes);
}

static void add_chunk(struct arena *arena, size_t capacity)
{
    struct arena_chunk *chunk = xmalloc(sizeof *chunk + capacity);
    chunk->older = arena->chunk;
    chunk->capacity = capacity;
    arena->chunk = chunk;
    arena->used = 0;
}

void *arena_lend(struct arena *arena, size_t bytes)
{
    const size_t rounded = (bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
    if (!arena->chunk || arena->chunk->capacity - arena->used < rounded)
        add_chunk(arena, rounded > CHUNK_BYTES ? rounded : CHUNK_BYTES);
    void *lent = arena->chunk->bytes + arena->used;
    arena->used += rounded;
    return lent;
}

void *arena_alloc(struct arena *arena, size_t bytes)
{
    return memset(arena_lend(arena, bytes), 0, bytes);
}

char *arena_printf(struct arena *arena, const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    const int length = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    char *text = arena_alloc(arena, (size_t)length + 1);
    vsnprintf(text, (size_t)length + 1, fmt, again);
    va_end(again);
    return text;
}

char *arena_strdup(struct arena *arena, const char *text)
{
    const size_t bytes = strlen(text) + 1;
    return memcpy(arena_alloc(arena, bytes), text, bytes);
}

void arena_reset(struct arena *arena)
{
    size_t capacity = 0;
    for (const struct arena_chunk *chunk = arena->chunk; chunk; chunk = chunk->older)
        capacity += chunk->capacity;
    if (arena->chunk && arena->chunk->older) { /* one chunk for as much as it took */
        arena_free(arena);
        add_chunk(arena, capacity);
    }
    arena->used = 0;
}

void arena_free(struct arena *arena)
{
    struct arena_chunk *chunk = arena->chunk;
    while (chunk) {
        struct arena_chunk *older = chunk->older;
        free(chunk);
        chunk = older;
    }
    *arena = (struct arena){0};
}

/* arena.h - allocate forward, free all at once.
 *
 * One arena holds everything a plan is made of, so the objects in it need no free functions of
 * their own. Memory is zeroed and aligned to 16 bytes. Running out of host memory ends the
 * process with a message and status 3: a planner that cannot get a few megabytes has nothing useful
 * left to do. What is as large as its input asks for it otherwise, and has an error to return. */
#ifndef SHARDPLAN_ARENA_H
#define SHARDPLAN_ARENA_H

#include <stddef.h>

struct arena_chunk;

struct arena { /* zero-initialise to get an empty arena */
    struct arena_chunk *chunk;
    size_t used; /* bytes of the newest chunk in use */
};

/* Lends `bytes` zeroed bytes, valid until arena_free. bytes may be 0. */
void *arena_alloc(struct arena *arena, size_t bytes);

/* The same with anything in it, for those who fill it in at once. */
void *arena_lend(struct arena *arena, size_t bytes);

/* A formatted string in the arena, valid until arena_free. */
char *arena_printf(struct arena *arena, const char *fmt, ...)
    __attribute__((format(printf, 2, 3), nonnull(2)));

/* A copy of `text` in the arena, valid until arena_free. */
char *arena_strdup(struct arena *arena, const char *text);

/* Takes everything back for other use: what was lent is gone, and lent again without asking the
 * system for it. */
void arena_reset(struct arena *arena);

/* Frees everything the arena lent. The arena is empty and usable afterwards. */
void arena_free(struct arena *arena);

/* malloc, calloc and realloc that never return NULL (see the note at the top); sizes may be 0. */
void *xmalloc(size_t bytes) __attribute__((returns_nonnull));
void *xcalloc(size_t count, size_t bytes) __attribute__((returns_nonnull));
void *xrealloc(void *ptr, size_t bytes) __attribute__((returns_nonnull));

/* Makes room for one more element in a growing array: `*cap` doubles when `count` reaches it.
 * Usage: ARRAY_GROW(items, count, cap); items[count++] = item; */
#define ARRAY_GROW(items, count, cap)                                                              \
    do {                                                                                           \
        if ((count) == (cap)) {                                                                    \
            (cap) = (cap) ? 2 * (cap) : 64;                                                        \
            (items) = xrealloc((items), (size_t)(cap) * sizeof *(items));                          \
        }                                                                                          \
    } while (0)

#endif

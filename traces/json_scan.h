/* json_scan.h - for the files of this folder only: a pull parser of JSON.
 *
 * The caller asks for what it expects next and is told whether it was there. Nothing is built, so
 * a file of any size is read in the memory of its text. Every function returns false from the
 * first error on; `problem` then says what is wrong and `at` where.
 *
 * Why not a library: jansson, which reads everything else here, builds a tree of values first, and
 * a trace is tens of megabytes. yyjson, made for speed, has no package in Debian 12 (bookworm). */
#ifndef SHARDPLAN_JSON_SCAN_H
#define SHARDPLAN_JSON_SCAN_H

#include "base/arena.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct slice { /* of the text, or of the arena when it had escapes */
    const char *text;
    size_t length;
};

struct scan {
    const char *start, *at, *end; /* the text: lent */
    struct arena *arena;          /* lent: where strings with escapes are decoded to */
    const char *problem;          /* NULL: none yet */
};

static inline bool slice_is(struct slice slice, const char *text)
{
    return slice.length == strlen(text) && memcmp(slice.text, text, slice.length) == 0;
}

/* Records a problem unless there is one; false. */
bool scan_fail(struct scan *s, const char *problem);

/* The next character that is no space; '\0' at the end. */
char scan_peek(struct scan *s);
/* Takes `c` if it comes next. */
bool scan_accept(struct scan *s, char c);
/* As scan_accept; it is a problem when something else comes. */
bool scan_expect(struct scan *s, char c, const char *problem);

/* Decoded, without its quotes. A character that C strings cannot hold becomes U+FFFD. */
bool scan_string(struct scan *s, struct slice *out);
bool scan_number(struct scan *s, double *out);
/* Checks a value of any kind and passes over it. */
bool scan_skip(struct scan *s);

/* Walks an object: call before each member, with *first true before the first. False at the
 * object's end, and after a problem. */
bool scan_member(struct scan *s, bool *first, struct slice *key);

/* Lines up to where the scan is. */
size_t scan_line(const struct scan *s);

#endif

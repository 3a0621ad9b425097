/* style.h - how tables look: bold and colors on a terminal, numbers in groups of three. */
#ifndef SHARDPLAN_STYLE_H
#define SHARDPLAN_STYLE_H

#include <stdint.h>
#include <stdio.h>

/* Escape sequences to write before and (`off`) after a text; empty where none are wanted. */
struct style {
    const char *bold, *dim, *good, *bad, *off;
};

/* Sequences if `file` is a terminal, empty texts for a pipe, a regular file or memory. */
struct style style_of(FILE *file);

/* 8030261248 as "8,030,261,248". Writes to and returns `text`. */
const char *style_grouped(uint64_t number, char text[32]);

/* Bytes in the largest unit that they are a hundredth of: "1.96 GiB", "0.50 MiB", "8.00 KiB".
 * Writes to and returns `text`. */
const char *style_bytes(uint64_t bytes, char text[32]);

/* What a table may take of a line where `file` is no terminal: one number, so that what is written
 * is the same everywhere. Six systems side by side take 93. */
enum { STYLE_COLUMNS = 100 };

/* Characters of a line: the terminal's, if `file` is one that knows, else STYLE_COLUMNS. */
int style_columns(FILE *file);

/* A text and a newline, `indent` blanks before it and two more before what goes on in lines below:
 * broken at its blanks so that no line is longer than that, but for a longer word. */
void style_wrapped(FILE *file, int indent, const char *text);

enum { STYLE_BAR = 32 }; /* characters of a whole bar in the tables of fit and plan */

/* Two blanks and a bar as long as a share (0 ... 1) of `width` characters; nothing where that is
 * less than half a character. */
void style_bar(FILE *file, double share, int width);

#endif

/* odd_lines.h - command lines drawn from the table of settings, and what became of them: for tests
 * that hold commands to what the manual says of all of them.
 *
 *     a command, a few of its rows, a value of each --a process of its own--> status, answer, error
 */
#ifndef SHARDPLAN_ODD_LINES_H
#define SHARDPLAN_ODD_LINES_H

#include "settings/settings.h"

#include <stdbool.h>
#include <stdint.h>

/* ---- a line ---- */

enum { ODD_WORDS = 48 };

struct odd_line {
    enum command command;
    char *words[ODD_WORDS]; /* owned; words[0] is the program's name, and NULL ends them */
    uint32_t count;
};

void odd_add(struct odd_line *line, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void odd_free(struct odd_line *line);

/* ---- draws: each depends on odd_begin's seed and those before ---- */

void odd_begin(uint64_t seed);
uint64_t odd_below(uint64_t n); /* 0 of 0 */

#define ODD_ONE_OF(list) ((list)[odd_below(sizeof(list) / sizeof *(list))])

/* A model that is planned in milliseconds; one of the files of odd_set_up, or what is none. */
const char *odd_model(void);
const char *odd_file(void);

/* A row of the command; more often than not one that the system has. */
const struct setting *odd_row(enum command command, uint32_t system);
/* A value that the row allows, that is at its limits, or (1 of 25) that nobody should give. */
void odd_value(const struct setting *row, enum command command, char *text, size_t size);
/* The words of a row; or the ways to write it as a number. */
uint64_t odd_words(const struct setting *row);

/* An option of that row with such a value. */
void odd_add_option(struct odd_line *line, const struct setting *row);

/* ---- a process ---- */

struct odd_outcome {
    int status;        /* as the shell's: 128 and the signal's number */
    char *out, *error; /* owned: odd_outcome_free */
};

/* A folder with the files that lines name, in which they run; 0: it is there. SHARDPLAN names the
 * program. */
int odd_set_up(void **state);
int odd_tear_down(void **state);
const char *odd_folder(void);

struct odd_outcome odd_outcome_of(char **words);
void odd_outcome_free(struct odd_outcome *outcome);

/* What of an outcome no command may do: another end than the manual has, a sanitizer's finding, an
 * answer that is no JSON or whose numbers do not add up. NULL: nothing. */
const char *odd_wrong(const struct odd_line *line, const struct odd_outcome *outcome);

/* Prints line, outcome and what is wrong with it. */
void odd_show(const struct odd_line *line, uint64_t number, const struct odd_outcome *outcome,
              const char *what);

/* Which lines a test tries: so many from SOAK_FIRST (0) on, SOAK_JOBS in place of `count`. */
struct odd_span {
    uint64_t begin, end;
};
struct odd_span odd_span_of(uint64_t count);

#endif

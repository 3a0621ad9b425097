/* program.h - runs the programs that are tested, as a user would. SHARDPLAN in the environment
 * names the first one, and the others are beside it. */
#ifndef SHARDPLAN_TESTS_PROGRAM_H
#define SHARDPLAN_TESTS_PROGRAM_H

#include <jansson.h>

/* Runs "shardplan ARGUMENTS", for TEST_SECONDS at most. Returns its exit status, -1 when it was
 * ended; what it printed, on both streams, is in program_output(). */
int shardplan(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Runs a line of the shell, in which ^ stands for the folder of the programs. The same, but of the
 * streams only what the line lets through to standard output. */
int shell(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* What the last run said; good until the next one, and may be cut up. */
char *program_output(void);

/* ... as one JSON object, which the caller owns; the test fails where it is none. */
json_t *program_object(void);

#endif

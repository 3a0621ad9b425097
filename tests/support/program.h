/* program.h - runs the programs that are tested, as a user would. SHARDPLAN in the environment
 * names the first one, and the others are beside it. */
#ifndef SHARDPLAN_TESTS_PROGRAM_H
#define SHARDPLAN_TESTS_PROGRAM_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* Runs "shardplan ARGUMENTS", as a shell would and within PROGRAM_LIMITS, in a group of processes
 * of its own. Returns its exit status, -1 when it was ended; what it printed, on both streams, is
 * in program_output(). */
int shardplan(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* The same; the test fails unless it ends with `status` and says `says`. */
void shardplan_says(int status, const char *says, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Runs a line of the shell, in which ^ stands for the folder of the programs. The same, but of the
 * streams only what the line lets through to standard output. */
int shell(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* What a command line of the shell begins with, so that it ends: TEST_SECONDS of a processor, and
 * four times that by the clock, as the machine may be others', too. */
#define PROGRAM_LIMITS                                                                             \
    "ulimit -t ${TEST_SECONDS:-300}; exec timeout -k 2 $((4 * ${TEST_SECONDS:-300})) "

/* TEST_SECONDS. */
int program_seconds(void);

/* The path of the program of that name in the folder of the programs. */
void program_beside(const char *name, char *path, size_t size);

/* What programs that a test has started itself write to a pipe, as what the last run said. False:
 * it had not ended after so many seconds. */
bool program_read(int from, int seconds);

/* The Python that tests run beside: SHARDPLAN_PYTHON, else (not set, or empty) python3. */
const char *program_python(void);

/* What the last run said; good until the next one, and may be cut up. */
char *program_output(void);

/* ... as one JSON object, which the caller owns; the test fails where it is none. */
json_t *program_object(void);

#endif

/* program.h - runs the program that is tested, as a user would. */
#ifndef SHARDPLAN_TESTS_PROGRAM_H
#define SHARDPLAN_TESTS_PROGRAM_H

/* Runs "shardplan ARGUMENTS" (SHARDPLAN in the environment names it) for two minutes at most.
 * Returns its exit status, -1 when it was ended; what it printed is in program_output(). */
int shardplan(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Both streams of the last run; good until the next one, and may be cut up. */
char *program_output(void);

#endif

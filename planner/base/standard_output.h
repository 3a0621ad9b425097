/* standard_output.h - what was printed has arrived. */
#ifndef SHARDPLAN_STANDARD_OUTPUT_H
#define SHARDPLAN_STANDARD_OUTPUT_H

/* For main, first of all: standard streams that are closed lead nowhere from now on, instead of
 * into whatever is opened next. And when the process exits, however it came to that, standard
 * output is closed, and when that fails (a full disk) a message says so and the exit status is 3.
 */
void standard_output_check_at_exit(void);

#endif

/* folder.h - folders that a test makes, looks into and takes away with all there is. */
#ifndef SHARDPLAN_FOLDER_H
#define SHARDPLAN_FOLDER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* "/tmp/test_NAME.XXXXXX", made; the caller gives it to folder_drop, which removes its files too.
 */
char *folder_new(const char *name);
void folder_drop(char *folder);

/* A program's own folder: `path` ends in XXXXXX, which becomes its name; removed with all that is
 * in it. Both return 0, or what a set-up or tear-down of cmocka returns where it failed. */
int folder_make(char *path);
int folder_remove(const char *path);

/* The same as set-up and tear-down of a group of tests, for a program that needs no more:
 * cmocka_run_group_tests_name(name, tests, folder_set_up(folder), folder_tear_down). `path` is lent
 * as long as the program runs. */
typedef int folder_fixture(void **state);
folder_fixture *folder_set_up(char *path);
int folder_tear_down(void **state);

/* From now on commands find a gnuplot, in a program's own folder, that draws nothing. The same. */
int folder_draws_nothing(const char *path);
/* ... one that puts the rest of its script into a picture, and the data, in no time: who
 * asks for a picture, starts it and takes the file as ever. */
int folder_draws_at_once(const char *path);
/* Set-up of a group of tests in a folder that folder_set_up would make, with that gnuplot. */
folder_fixture *folder_set_up_undrawn(char *path);

/* "FOLDER/NAME", good for the next three calls as well. */
const char *file_in(const char *folder, const char *name);

bool file_exists(const char *folder, const char *name);
uint32_t files_in(const char *folder);

/* The file's bytes, at most 65,535, ended by '\0', to be freed; *length without that. */
char *file_text(const char *path, size_t *length);

/* Writes the file anew. */
void file_write(const char *path, const void *bytes, size_t length);

/* Puts `to` where `from`, of the same length, stands first in the file. */
void file_replace(const char *folder, const char *name, const char *from, const char *to);

#endif

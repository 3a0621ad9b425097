/* temp_folder.h - a folder of files that one test program writes and takes away again. */
#ifndef SHARDPLAN_TEMP_FOLDER_H
#define SHARDPLAN_TEMP_FOLDER_H

#include <stddef.h>

/* "/tmp/NAME.XXXXXX", made. Returns 0, or -1 as a cmocka set-up does. One at a time. */
int temp_folder_make(const char *name);

/* Removes a.json and b.json and then the folder: fails when anything else was left in it. */
int temp_folder_remove(void);

/* The folder's path. */
const char *temp_folder(void);

/* "FOLDER/NAME"; good until the next call. */
const char *path_of(const char *name);

/* The file's text, ended by '\0', to be freed, and its length in bytes without that. */
char *text_of(const char *name, size_t *length);

/* Writes the file anew. */
void put_text(const char *name, const char *text, size_t length);

/* a.json and b.json hold the same bytes. */
void assert_same_files(void);

#endif

/* file.h - files that are whole or not there at all, and files read whole. */
#ifndef SHARDPLAN_FILE_H
#define SHARDPLAN_FILE_H

#include "base/err.h"

#include <signal.h>
#include <stddef.h>
#include <stdio.h>

struct file_writer {
    FILE *file; /* to write to */
    char *path, *partial;
    int direct; /* a device or a pipe: it has no content to protect, and renaming onto it would
                   replace it */
    sigset_t before;
};

/* Opens a file beside `path` under a temporary name. ERR_IO: nothing is open and nothing is left.
 * On ERR_OK the caller must call file_commit; until then signals that ask this thread to end wait,
 * so that nothing is left under that name. Of two files the later one is committed first. */
enum err_code file_create(const char *path, struct file_writer *out, struct err *err);

/* Closes the file. When `rc` is ERR_OK and every byte was written, it gets its name; else it is
 * removed, and a file that was there under `path` is kept. Returns rc, or ERR_IO. */
enum err_code file_commit(struct file_writer *writer, enum err_code rc, struct err *err);

/* The whole file and a '\0' behind its *length bytes: owned by the caller (free). NULL:
 * ERR_INVALID: it cannot be read, or is a pipe or a device that goes on for 256 MiB: bad input;
 * ERR_NOMEM: it is larger than memory; ERR_IO: the system has no more files, or a disk failed. */
char *file_read(const char *path, size_t *length, struct err *err);

/* The file that a path means: of a folder the one called `name` in it. Returns `text`. */
char *file_meant(const char *path, const char *name, char *text, size_t size);

#endif

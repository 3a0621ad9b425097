/* file.c - see file.h. */
#include "base/file.h"

#include "base/arena.h"
#include "base/ending_signals.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUFFER_BYTES = 1 << 18, PIPE_MOST = 1 << 28 };

enum err_code file_create(const char *path, struct file_writer *out, struct err *err)
{
    struct stat st;
    const size_t room = strlen(path) + 32;
    *out = (struct file_writer){.path = xmalloc(room), .partial = xmalloc(room)};
    out->direct = lstat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
    snprintf(out->path, room, "%s", path);
    snprintf(out->partial, room, out->direct ? "%s" : "%s.%ld.tmp", path, (long)getpid());
    if (!out->direct) /* whoever opens a pipe may wait for long */
        ending_signals_hold(&out->before);
    out->file = fopen(out->partial, "w");
    if (out->file) {
        setvbuf(out->file, NULL, _IOFBF, BUFFER_BYTES);
        errno = 0; /* what it is at the end is the reason of a failed write */
        return ERR_OK;
    }
    const enum err_code rc = err_set(err, ERR_IO, "create %s: %s", path, strerror(errno));
    if (!out->direct)
        ending_signals_release(&out->before);
    free(out->path);
    free(out->partial);
    return rc;
}

enum err_code file_commit(struct file_writer *w, enum err_code rc, struct err *err)
{
    if (rc == ERR_OK && (fflush(w->file) != 0 || ferror(w->file)))
        rc = err_set(err, ERR_IO, "write %s: %s", w->path, strerror(errno ? errno : EIO));
    if (fclose(w->file) != 0 && rc == ERR_OK)
        rc = err_set(err, ERR_IO, "write %s: %s", w->path, strerror(errno));
    if (!w->direct && rc == ERR_OK && rename(w->partial, w->path) != 0)
        rc = err_set(err, ERR_IO, "rename %s to %s: %s", w->partial, w->path, strerror(errno));
    if (!w->direct && rc != ERR_OK)
        remove(w->partial);
    if (!w->direct)
        ending_signals_release(&w->before);
    free(w->path);
    free(w->partial);
    return rc;
}

/* The rest of a file, and a zero; NULL: it has no end, or there is no memory for it. */
static char *read_rest(FILE *file, const char *path, size_t most, size_t *length, struct err *err)
{
    size_t capacity = 1 << 16, got;
    char *text = malloc(capacity);
    *length = 0;
    while (text && (got = fread(text + *length, 1, capacity - *length, file)) > 0) {
        *length += got;
        if (*length < capacity)
            continue;
        if (*length >= most) {
            err_set(err, ERR_INVALID, "%s: more than %zu bytes, and no file", path, most);
            free(text);
            return NULL;
        }
        char *wider = realloc(text, capacity *= 2);
        if (!wider)
            free(text);
        text = wider;
    }
    if (!text)
        err_set(err, ERR_NOMEM, "%s: no memory for its %zu bytes and more", path, *length);
    else
        text[*length] = '\0';
    return text;
}

/* Of a file that cannot be read: what is named wrongly, or what the system has no more of. */
static enum err_code code_of(int error)
{
    return error == ENOMEM                                      ? ERR_NOMEM
           : error == EMFILE || error == ENFILE || error == EIO ? ERR_IO
                                                                : ERR_INVALID;
}

char *file_read(const char *path, size_t *length, struct err *err)
{
    struct stat st;
    FILE *file = fopen(path, "r");
    if (!file) {
        err_set(err, code_of(errno), "open %s: %s", path, strerror(errno));
        return NULL;
    }
    const bool endless = fstat(fileno(file), &st) == 0 && !S_ISREG(st.st_mode);
    char *text = read_rest(file, path, endless ? PIPE_MOST : SIZE_MAX, length, err);
    if (text && ferror(file)) {
        err_set(err, code_of(errno), "read %s: %s", path, strerror(errno));
        free(text);
        text = NULL;
    }
    fclose(file);
    return text;
}

char *file_meant(const char *path, const char *name, char *text, size_t size)
{
    struct stat status;
    const bool folder = stat(path, &status) == 0 && S_ISDIR(status.st_mode);
    const bool slash = *path && path[strlen(path) - 1] == '/';
    snprintf(text, size, "%s%s%s", path, folder && !slash ? "/" : "", folder ? name : "");
    return text;
}

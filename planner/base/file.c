/* file.c - see file.h. */
#include "base/file.h"

#include "base/arena.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUFFER_BYTES = 1 << 18 };

enum err_code file_create(const char *path, struct file_writer *out, struct err *err)
{
    struct stat st;
    const size_t room = strlen(path) + 32;
    *out = (struct file_writer){.path = xmalloc(room), .partial = xmalloc(room)};
    out->direct = lstat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
    snprintf(out->path, room, "%s", path);
    snprintf(out->partial, room, out->direct ? "%s" : "%s.%ld.tmp", path, (long)getpid());
    out->file = fopen(out->partial, "w");
    if (out->file) {
        setvbuf(out->file, NULL, _IOFBF, BUFFER_BYTES);
        errno = 0; /* what it is at the end is the reason of a failed write */
        return ERR_OK;
    }
    const enum err_code rc = err_set(err, ERR_IO, "create %s: %s", out->partial, strerror(errno));
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
    free(w->path);
    free(w->partial);
    return rc;
}

char *file_read(const char *path, size_t *length, struct err *err)
{
    size_t capacity = 1 << 16, got;
    FILE *file = fopen(path, "r");
    if (!file) {
        err_set(err, ERR_IO, "open %s: %s", path, strerror(errno));
        return NULL;
    }
    char *text = xmalloc(capacity);
    *length = 0;
    while ((got = fread(text + *length, 1, capacity - *length, file)) > 0) {
        *length += got;
        if (*length == capacity)
            text = xrealloc(text, capacity *= 2);
    }
    if (ferror(file)) {
        err_set(err, ERR_IO, "read %s: %s", path, strerror(errno));
        free(text);
        text = NULL;
    }
    fclose(file);
    if (text)
        text[*length] = '\0'; /* there is room: what fills it is made larger */
    return text;
}

/* config_file.c - config.json as a file: opened, read whole, parsed. */
#include "model/config_parts.h"

#include "base/arena.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_BYTES_MAX = 16 << 20 };

/* Opens path, or the config.json in it. `where` receives the name for messages. */
static enum err_code open_config(const char *path, char *where, size_t room, int *fd,
                                 struct err *err)
{
    struct stat status;
    snprintf(where, room, "%s", path);
    if (stat(path, &status) != 0)
        return err_set(err, ERR_INVALID, "%s: %s", path, strerror(errno));
    if (S_ISDIR(status.st_mode)) {
        snprintf(where, room, "%s%sconfig.json", path, path[strlen(path) - 1] == '/' ? "" : "/");
        if (stat(where, &status) != 0)
            return err_set(err, ERR_INVALID, "%s: %s", where,
                           errno == ENOENT ? "the folder holds no config.json" : strerror(errno));
    }
    if (!S_ISREG(status.st_mode))
        return err_set(err, ERR_INVALID, "%s: not a regular file", where);
    *fd = open(where, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (*fd < 0)
        return err_set(err, ERR_INVALID, "%s: %s", where, strerror(errno));
    return ERR_OK;
}

/* Reads all there is, one byte beyond the limit at most. The caller owns *text. */
static enum err_code read_all(int fd, const char *where, char **text, size_t *bytes,
                              struct err *err)
{
    const size_t room = (size_t)FILE_BYTES_MAX + 1;
    size_t used = 0;
    *text = xmalloc(room);
    while (used < room) {
        const ssize_t got = read(fd, *text + used, room - used);
        if (got == 0)
            break;
        if (got < 0 && errno != EINTR)
            return err_set(err, ERR_IO, "%s: read: %s", where, strerror(errno));
        used += got > 0 ? (size_t)got : 0;
    }
    *bytes = used;
    if (used == 0)
        return err_set(err, ERR_INVALID, "%s: the file is empty", where);
    if (used == room)
        return err_set(err, ERR_INVALID, "%s: larger than 16 MiB: not a config.json", where);
    return ERR_OK;
}

static enum err_code parse(const char *text, size_t bytes, const char *where,
                           struct model_config *out, struct err *err)
{
    if (bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
        return err_set(err, ERR_INVALID,
                       "%s:1:1: starts with a byte order mark; save it as UTF-8 without one",
                       where);
    json_error_t at;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &at);
    if (!root) {
        char message[JSON_ERROR_TEXT_LENGTH];
        config_printable(at.text, message, sizeof message);
        return err_set(err, ERR_INVALID, "%s:%d:%d: %s", where, at.line, at.column, message);
    }
    const enum err_code rc = model_config_from_json(root, where, out, err);
    json_decref(root);
    return rc;
}

enum err_code model_config_read(const char *path, struct model_config *out, struct err *err)
{
    char where[PATH_MAX + sizeof "/config.json"];
    char *text = NULL;
    size_t bytes = 0;
    int fd = -1;
    enum err_code rc;
    *out = (struct model_config){.layers = 0};
    if (!*path)
        return err_set(err, ERR_INVALID, "the path of the model is empty");
    TRY(open_config(path, where, sizeof where, &fd, err));
    TRY_GOTO(rc, read_all(fd, where, &text, &bytes, err), done);
    rc = parse(text, bytes, where, out, err);
done:
    free(text);
    close(fd);
    return rc;
}

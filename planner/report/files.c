/* files.c - see files.h. */
#include "report/files.h"

#include "base/ending_signals.h"
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static bool is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* One of the folders of `dir`, whose parent is there. Another process may make it first. */
static enum err_code make_one(const char *path, const char *dir, struct err *err)
{
    if (mkdir(path, 0777) == 0 || (errno == EEXIST && is_folder(path)))
        return ERR_OK;
    const int why = errno == EEXIST ? ENOTDIR : errno; /* a file has the name */
    if (strcmp(path, dir) == 0)
        return err_set(err, ERR_IO, "create folder \"%s\": %s", dir, strerror(why));
    return err_set(err, ERR_IO, "create folder %s: %s: %s", dir, path, strerror(why));
}

enum err_code files_make_folder(const char *dir, struct err *err)
{
    char path[4096];
    if (is_folder(dir))
        return ERR_OK;
    if (snprintf(path, sizeof path, "%s", dir) >= (int)sizeof path)
        return err_set(err, ERR_IO, "create folder %.100s...: the name is too long", dir);
    for (char *end = path; *end; end++) {
        if (*end != '/' || end == path || end[-1] == '/')
            continue;
        *end = 0;
        if (!is_folder(path))
            TRY(make_one(path, dir, err));
        *end = '/';
    }
    return make_one(path, dir, err);
}

enum err_code files_check_folder(const char *dir, struct err *err)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s", dir) >= (int)sizeof path)
        return err_set(err, ERR_IO, "create folder %.100s...: the name is too long", dir);
    while (access(path, F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR)) {
        char *end = strrchr(path, '/');
        if (!end)
            memcpy(path, ".", sizeof ".");
        else
            end[end == path] = 0; /* the root's own stays */
    }
    if (access(path, F_OK) == 0 && !is_folder(path))
        return err_set(err, ERR_IO, "create folder %s: %s: %s", dir, path, strerror(ENOTDIR));
    if (access(path, W_OK | X_OK) != 0)
        return err_set(err, ERR_IO, "create folder %s: %s: %s", dir, path, strerror(errno));
    return ERR_OK;
}

static int remove_one(const char *path, const struct stat *stat, int kind, struct FTW *walk)
{
    (void)stat, (void)kind, (void)walk;
    remove(path);
    return 0;
}

void files_remove_folder(const char *dir)
{
    if (dir[0])
        nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

enum err_code files_make_parent(const char *file, struct err *err)
{
    char path[4096];
    snprintf(path, sizeof path, "%s", file);
    char *end = strrchr(path, '/');
    if (!end || end == path)
        return ERR_OK;
    *end = 0;
    return files_make_folder(path, err);
}

const char *files_path(const char *dir, const char *name, char *path, size_t size)
{
    snprintf(path, size, "%s/%s", dir, name);
    return path;
}

enum err_code files_write_json(const char *dir, const char *name, json_t *value, struct err *err)
{
    char path[4096];
    struct file_writer to;
    enum err_code rc = file_create(files_path(dir, name, path, sizeof path), &to, err);
    if (rc == ERR_OK) {
        json_dumpf(value, to.file, JSON_INDENT(1));
        fputc('\n', to.file);
        rc = file_commit(&to, ERR_OK, err);
    }
    json_decref(value);
    return rc;
}

enum err_code files_take_folder(const char *dir, int *hold, struct err *err)
{
    *hold = -1;
    TRY(files_make_folder(dir, err));
    *hold = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*hold >= 0)
        while (flock(*hold, LOCK_EX) != 0 && errno == EINTR)
            ;
    return ERR_OK;
}

void files_give_folder(int hold)
{
    if (hold >= 0)
        close(hold);
}

bool files_gnuplot(const char *dir, const char *script)
{
    const pid_t child = fork();
    if (child == 0) {
        sigset_t signals; /* what the caller holds back is not held back from it */
        ending_signals(&signals);
        sigprocmask(SIG_UNBLOCK, &signals, NULL);
        if (!freopen("/dev/null", "w", stderr) || !freopen("/dev/null", "w", stdout) ||
            chdir(dir) != 0)
            _exit(127);
        execlp("gnuplot", "gnuplot", script, (char *)NULL);
        _exit(127);
    }
    int status = 0;
    return child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) &&
           WEXITSTATUS(status) == 0;
}

void files_inline_svg(FILE *to, const char *path)
{
    char line[4096];
    bool inside = false;
    FILE *from = fopen(path, "r");
    if (!from)
        return;
    while (fgets(line, sizeof line, from)) {
        inside = inside || strncmp(line, "<svg", 4) == 0;
        if (inside)
            fputs(line, to);
    }
    fclose(from);
}

/* Bytes of the character that begins there; 0: it is no UTF-8 (RFC 3629). */
static size_t character_bytes(const char *text)
{
    static const unsigned char least[] = {[0] = 0xa0, [16] = 0x90},
                               most[] = {[13] = 0x9f, [20] = 0x8f};
    const unsigned char first = (unsigned char)text[0], second = (unsigned char)text[1];
    if (first < 0x80)
        return 1;
    if (first < 0xc2 || first > 0xf4)
        return 0;
    const size_t bytes = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    const size_t row = first - 0xe0U; /* of three and four bytes: some second ones are not used */
    if (bytes > 2 && ((row < sizeof least && second < least[row]) ||
                      (row < sizeof most && most[row] && second > most[row])))
        return 0;
    for (size_t i = 1; i < bytes; i++)
        if (((unsigned char)text[i] & 0xc0) != 0x80)
            return 0;
    return bytes;
}

/* One character, '?' for a byte that begins none: names of files are any bytes, a page or picture
 * is not. Returns the last byte of it. */
static const char *put_character(FILE *to, const char *text)
{
    const size_t bytes = character_bytes(text);
    if (bytes == 0)
        fputc('?', to);
    else
        fwrite(text, 1, bytes, to);
    return text + (bytes > 1 ? bytes - 1 : 0);
}

void files_html_text(FILE *to, const char *text)
{
    for (; *text; text++) {
        if (*text == '<')
            fputs("&lt;", to);
        else if (*text == '&')
            fputs("&amp;", to);
        else
            text = put_character(to, text);
    }
}

void files_html_begin(FILE *to, const char *title)
{
    fputs("<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\n<title>shardplan: ", to);
    files_html_text(to, title);
    fputs("</title>\n"
          "<meta name=\"viewport\" content=\"width=device-width\">\n"
          "<style>:root{color-scheme:light dark}body{font:15px/1.45 Helvetica,Arial,sans-serif;"
          "max-width:1150px;margin:1em auto;padding:0 12px;color:#222;background:#fff}"
          "pre{background:#f6f6f6;padding:1em;overflow:auto;font:13px/1.4 monospace}"
          ".picture{overflow-x:auto;position:relative}svg{width:100%;min-width:720px;height:auto}"
          ".verdict{font-size:1.25em;margin:.6em 0}.good{color:#2a7f3f}.bad{color:#b3261e}"
          "h2{font-size:1.15em;margin:1.2em 0 .4em}dl{display:grid;"
          "grid-template-columns:max-content 1fr;gap:.1em 1em}dt{font-weight:bold}dd{margin:0}"
          ".reading{min-height:1.45em;color:#666;font-size:13px}"
          "@media(prefers-color-scheme:dark){body{color:#ddd;background:#16181b}"
          "pre{background:#202327}svg{filter:invert(.91) hue-rotate(180deg)}"
          ".good{color:#7bc98d}.bad{color:#ff8a80}.reading{color:#999}}</style>\n<h1>",
          to);
    files_html_text(to, title);
    fputs("</h1>\n", to);
}

void files_html_pre(FILE *to, void (*print)(FILE *to, const void *context), const void *context)
{
    char *text = NULL;
    size_t size = 0;
    FILE *memory = open_memstream(&text, &size);
    if (memory) {
        print(memory, context);
        fclose(memory);
    }
    fputs("<pre>", to);
    if (text)
        files_html_text(to, text);
    fputs("</pre>\n", to);
    free(text);
}

void files_gnuplot_text(FILE *to, const char *text)
{
    fputc('\'', to);
    for (; *text; text++) {
        if (*text == '\'')
            fputc('\'', to);
        if ((unsigned char)*text >= ' ')
            text = put_character(to, text);
    }
    fputc('\'', to);
}

/* folder.c - see folder.h. */
#include "tests/support/folder.h"

#include "base/arena.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

const char *file_in(const char *folder, const char *name)
{
    static char path[4][1024];
    static unsigned turn;
    char *lent = path[turn++ % 4];
    snprintf(lent, sizeof path[0], "%s/%s", folder, name);
    return lent;
}

char *folder_new(const char *name)
{
    char *folder = xmalloc(64);
    snprintf(folder, 64, "/tmp/test_%s.XXXXXX", name);
    assert_non_null(mkdtemp(folder));
    return folder;
}

void folder_drop(char *folder)
{
    DIR *dir = opendir(folder);
    for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir))
        if (entry->d_name[0] != '.')
            unlink(file_in(folder, entry->d_name));
    closedir(dir);
    rmdir(folder);
    free(folder);
}

int folder_make(char *path)
{
    return mkdtemp(path) ? 0 : -1;
}

int folder_remove(const char *path)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", path);
    return system(command);
}

static char *groups_path; /* of folder_set_up */

static int make_groups(void **state)
{
    (void)state;
    return folder_make(groups_path);
}

folder_fixture *folder_set_up(char *path)
{
    groups_path = path;
    return make_groups;
}

int folder_tear_down(void **state)
{
    (void)state;
    return folder_remove(groups_path);
}

/* A folder that programs are looked for in first. *program: gnuplot's place there. */
static int own_programs(const char *path, char program[1100])
{
    char folder[1024], search[4096];
    const char *before = getenv("PATH");
    snprintf(folder, sizeof folder, "%s/bin", path);
    snprintf(program, 1100, "%s/gnuplot", folder);
    snprintf(search, sizeof search, "%s:%s", folder, before ? before : "");
    return mkdir(folder, 0777) != 0 ? -1 : setenv("PATH", search, 1);
}

int folder_draws_nothing(const char *path)
{
    char program[1100];
    return own_programs(path, program) != 0 ? -1 : symlink("/bin/false", program);
}

/* The first two lines of a script are data = 'FILE' and out = 'FILE' (planner/report/picture.c). */
int folder_draws_at_once(const char *path)
{
    static const char script[] =
        "#!/bin/sh\n{ read -r _ _ data; read -r _ _ out\n"
        "eval \"{ echo '<svg>'; cat - $data; echo '</svg>'; } >$out\"; } <\"$1\"\n";
    char program[1100];
    if (own_programs(path, program) != 0)
        return -1;
    file_write(program, script, sizeof script - 1);
    return chmod(program, 0755);
}

static int make_undrawn(void **state)
{
    return make_groups(state) != 0 ? -1 : folder_draws_at_once(groups_path);
}

folder_fixture *folder_set_up_undrawn(char *path)
{
    groups_path = path;
    return make_undrawn;
}

bool file_exists(const char *folder, const char *name)
{
    return access(file_in(folder, name), F_OK) == 0;
}

uint32_t files_in(const char *folder)
{
    uint32_t files = 0;
    DIR *dir = opendir(folder);
    for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir))
        files += entry->d_name[0] != '.';
    closedir(dir);
    return files;
}

char *file_text(const char *path, size_t *length)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    char *text = xmalloc(1 << 16);
    *length = fread(text, 1, (1 << 16) - 1, file);
    text[*length] = '\0';
    fclose(file);
    return text;
}

void file_write(const char *path, const void *bytes, size_t length)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, length, file), length);
    fclose(file);
}

void file_replace(const char *folder, const char *name, const char *from, const char *to)
{
    size_t length = 0;
    char *text = file_text(file_in(folder, name), &length);
    char *at = memmem(text, length, from, strlen(from));
    assert_non_null(at);
    assert_int_equal(strlen(from), strlen(to));
    for (; *to; to++)
        *at++ = *to;
    file_write(file_in(folder, name), text, length);
    free(text);
}

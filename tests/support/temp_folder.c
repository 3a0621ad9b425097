/* temp_folder.c - see temp_folder.h. */
#include "tests/support/temp_folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64];

int temp_folder_make(const char *name)
{
    snprintf(folder, sizeof folder, "/tmp/%s.XXXXXX", name);
    return mkdtemp(folder) ? 0 : -1;
}

const char *temp_folder(void)
{
    return folder;
}

const char *path_of(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

int temp_folder_remove(void)
{
    const char *const names[] = {"a.json", "b.json"};
    for (int i = 0; i < 2; i++)
        unlink(path_of(names[i]));
    return rmdir(folder);
}

char *text_of(const char *name, size_t *length)
{
    FILE *file = fopen(path_of(name), "r");
    assert_non_null(file);
    fseek(file, 0, SEEK_END);
    *length = (size_t)ftell(file);
    rewind(file);
    char *text = malloc(*length + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, *length, file), *length);
    text[*length] = '\0';
    fclose(file);
    return text;
}

void put_text(const char *name, const char *text, size_t length)
{
    FILE *file = fopen(path_of(name), "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
}

void assert_same_files(void)
{
    size_t length_a, length_b;
    char *a = text_of("a.json", &length_a), *b = text_of("b.json", &length_b);
    assert_int_equal(length_a, length_b);
    assert_memory_equal(a, b, length_a);
    free(a);
    free(b);
}

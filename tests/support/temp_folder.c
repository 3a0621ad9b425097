/* temp_folder.c - see temp_folder.h. */
#include "tests/support/temp_folder.h"

#include "tests/support/folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static char folder[64];

int temp_folder_make(const char *name)
{
    snprintf(folder, sizeof folder, "/tmp/%s.XXXXXX", name);
    return folder_make(folder);
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
    return folder_remove(folder);
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

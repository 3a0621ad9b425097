/* replay.c - a fuzz target as a test: its saved inputs (tests/data/fuzz/NAME), those cut short, and
 * with bits changed. The name is the program's, without "test_". */
#include "tests/support/mutation.h"

#include "base/file.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SEED = 20261122, CHANGES = 60 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);

static char folder[256];

/* libFuzzer's, which is not here. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most)
{
    (void)data;
    (void)most;
    return size;
}

/* In memory that ends where the input does, so that reading beyond it is found. */
static void try(const char *text, size_t length)
{
    uint8_t *copy = malloc(length ? length : 1);
    assert_non_null(copy);
    memcpy(copy, text, length);
    LLVMFuzzerTestOneInput(copy, length);
    free(copy);
}

static void try_around(char *text, size_t length, uint64_t *place)
{
    try(text, length);
    for (int i = 0; i < CHANGES && length > 0; i++) {
        const size_t at = mutation_draw(place) % length;
        const char old = text[at];
        try(text, at);
        text[at] = (char)(text[at] ^ 1 << mutation_draw(place) % 8);
        try(text, length);
        text[at] = old;
    }
}

static void saved_inputs_and_their_neighbours_do_no_harm(void **state)
{
    (void)state;
    uint64_t place = SEED;
    unsigned inputs = 0;
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (const struct dirent *entry; (entry = readdir(dir));) {
        char path[600];
        size_t length;
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        char *text = file_read(path, &length, NULL);
        assert_non_null(text);
        try_around(text, length, &place);
        free(text);
        inputs++;
    }
    closedir(dir);
    assert_true(inputs > 0);
}

int main(int argc, char **argv)
{
    const char *slash = strrchr(argv[0], '/'), *name = slash ? slash + 1 : argv[0];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(saved_inputs_and_their_neighbours_do_no_harm),
    };
    (void)argc;
    snprintf(folder, sizeof folder, "tests/data/fuzz/%s", name + strlen("test_"));
    return cmocka_run_group_tests_name(name, tests, NULL, NULL);
}

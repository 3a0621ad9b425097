/* test_style.c - how wide a table may be: as a terminal says, and the same everywhere else. */
#include "report/style.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmocka.h>

static void a_terminal_is_as_wide_as_it_says(void **state)
{
    (void)state;
    const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    if (terminal < 0 || grantpt(terminal) != 0 || unlockpt(terminal) != 0)
        skip(); /* this machine has none to give */
    FILE *file = fopen(ptsname(terminal), "r+");
    assert_non_null(file);
    for (unsigned short columns = 40; columns <= 240; columns += 40) {
        const struct winsize size = {.ws_row = 24, .ws_col = columns};
        assert_int_equal(ioctl(terminal, TIOCSWINSZ, &size), 0);
        assert_int_equal(style_columns(file), columns);
    }
    const struct winsize unknown = {.ws_row = 0};
    assert_int_equal(ioctl(terminal, TIOCSWINSZ, &unknown), 0);
    assert_int_equal(style_columns(file), 100);
    fclose(file);
    close(terminal);
}

static void files_pipes_and_memory_are_a_hundred_wide(void **state)
{
    (void)state;
    int ends[2];
    char text[16];
    assert_int_equal(pipe(ends), 0);
    FILE *const files[] = {tmpfile(), fdopen(ends[1], "w"), fmemopen(text, sizeof text, "w")};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        assert_non_null(files[i]);
        assert_int_equal(style_columns(files[i]), 100);
        fclose(files[i]);
    }
    close(ends[0]);
}

static void lines_are_broken_at_blanks(void **state)
{
    (void)state;
    char text[1024] = "", words[512] = "";
    for (int i = 0; i < 30; i++)
        snprintf(words + strlen(words), sizeof words - strlen(words), "%sreshard", i ? ", " : "");
    FILE *file = fmemopen(text, sizeof text, "w");
    assert_non_null(file);
    style_wrapped(file, 2, "short");
    style_wrapped(file, 2, words); /* 10 words of 8 characters and their blanks are 91 */
    style_wrapped(file, 2, "");
    fclose(file);
    assert_int_equal(strncmp(text, "  short\n  reshard, ", 19), 0);
    size_t lines = 0, count = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"), lines++) {
        assert_true(strlen(line) <= 100 && strncmp(line, "  ", 2) == 0);
        assert_true(line[strlen(line) - 1] != ' ' || strcmp(line, "  ") == 0);
        for (const char *at = line; (at = strstr(at, "reshard")) != NULL; at++)
            count++;
    }
    assert_int_equal(count, 30);
    assert_int_equal(lines, 1 + 3 + 1); /* of words, ten, eleven at most, to a line */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_terminal_is_as_wide_as_it_says),
        cmocka_unit_test(files_pipes_and_memory_are_a_hundred_wide),
        cmocka_unit_test(lines_are_broken_at_blanks),
    };
    return cmocka_run_group_tests_name("style", tests, NULL, NULL);
}

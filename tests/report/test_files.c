/* test_files.c - what goes into pages and scripts is text, whatever the names of files are. */
#include "base/file.h"
#include "report/files.h"
#include "tests/support/folder.h"
#include "tests/support/program.h"

#include <iconv.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char folder[] = "/tmp/test_files.XXXXXX";

/* The C library's opinion. */
static bool is_utf8(iconv_t convert, char *text)
{
    char out[256], *to = out;
    size_t left = strlen(text), room = sizeof out;
    iconv(convert, NULL, NULL, NULL, NULL);
    return iconv(convert, &text, &left, &to, &room) != (size_t)-1 && left == 0;
}

static char *written(void (*write)(FILE *to, const char *text), const char *text)
{
    char *out = NULL;
    size_t size;
    FILE *memory = open_memstream(&out, &size);
    assert_non_null(memory);
    write(memory, text);
    assert_int_equal(fclose(memory), 0);
    return out;
}

/* All first and second bytes, with third and fourth ones at the ends of what they may be. */
static void what_is_written_is_utf8(void **state)
{
    (void)state;
    enum { MORE = 5 };
    static const unsigned char more[MORE] = {'!', 0x7f, 0x80, 0xbf, 0xc0};
    iconv_t convert = iconv_open("UTF-32LE", "UTF-8");
    assert_true(convert != (iconv_t)-1);
    unsigned good = 0;
    for (unsigned first = 0x80; first < 0x100; first++)
        for (unsigned second = ' '; second < 0x100; second++)
            for (size_t i = 0; i < MORE * MORE; i++) {
                char text[] = {(char)first, (char)second, (char)more[i % MORE],
                               (char)more[i / MORE], '\0'};
                char *page = written(files_html_text, text);
                char *script = written(files_gnuplot_text, text);
                const bool is = is_utf8(convert, text);
                if (!is_utf8(convert, page) || !is_utf8(convert, script) ||
                    (is && strcmp(page, text) != 0) || (!is && !strchr(page, '?')))
                    fail_msg("%02x %02x %zu: \"%s\"", first, second, i, page);
                good += is;
                free(page);
                free(script);
            }
    assert_true(good > 10000);
    iconv_close(convert);
}

/* Where nothing can be written the name is the one that was asked for, once. */
static void what_cannot_be_written_is_named(void **state)
{
    struct file_writer writer;
    struct err err = {0};
    (void)state;
    assert_int_equal(files_make_folder("/dev/null", &err), ERR_IO);
    assert_string_equal(err.text, "create folder \"/dev/null\": Not a directory");
    err = (struct err){0};
    assert_int_equal(files_make_folder("", &err), ERR_IO);
    assert_string_equal(err.text, "create folder \"\": No such file or directory");
    err = (struct err){0};
    assert_int_equal(files_make_folder("/dev/null/x", &err), ERR_IO);
    assert_string_equal(err.text, "create folder /dev/null/x: /dev/null: Not a directory");
    err = (struct err){0};
    assert_int_equal(file_create("/nowhere/at/all.json", &writer, &err), ERR_IO);
    assert_string_equal(err.text, "create /nowhere/at/all.json: No such file or directory");
}

/* A folder and a model with names that no script can say. */
static void pictures_are_drawn_in_any_folder(void **state)
{
    (void)state;
    if (shell("command -v gnuplot >/dev/null") != 0)
        skip();
    const int status = shell(
        "here=$PWD; case ^ in /*) p=^;; *) p=$here/^;; esac; cd %s && "
        "n=$(printf 'a\\nb\\377c') && mkdir \"$n\" && cp "
        "$here/tests/data/configs/toy-llama/config.json \"$n\" && "
        "$p/shardplan plan ./\"$n\" --gpus 2 --seq 64 -q -o \"$n/out\" 2>&1 && "
        "for f in timeline memory; do iconv -f UTF-8 -t UTF-8 \"$n/out/$f.svg\" | grep -q '</svg>' "
        "|| exit 9; done; iconv -f UTF-8 -t UTF-8 \"$n/out/report.html\" >/dev/null",
        folder);
    if (status != 0)
        fail_msg("status %d: %s", status, program_output());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_cannot_be_written_is_named),
        cmocka_unit_test(what_is_written_is_utf8),
        cmocka_unit_test(pictures_are_drawn_in_any_folder),
    };
    return cmocka_run_group_tests_name("files", tests, folder_set_up(folder), folder_tear_down);
}

/* test_page.c - report.html: the verdict comes first, what its script reads is JSON in order, and
 * nothing of it is fetched; the modules' names are in the memory snapshot. */
#include "report/page.h"
#include "tests/support/program.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char folder[] = "/tmp/page.XXXXXX";

static int make_report(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    return shardplan("plan tests/data/configs/toy-llama --gpus 4 --seq 128 -q -o %s", folder);
}

static int remove_report(void **state)
{
    (void)state;
    return shell("rm -r %s", folder);
}

static char *bytes_of(const char *name, size_t *length)
{
    char path[256], *text = malloc(1U << 24);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_non_null(text);
    *length = fread(text, 1, (1U << 24) - 1, file);
    text[*length] = '\0';
    fclose(file);
    return text;
}

static void the_verdict_is_first_and_nothing_is_fetched(void **state)
{
    (void)state;
    size_t length;
    char *page = bytes_of("report.html", &length);
    const char *verdict = strstr(page, "class=\"verdict\"");
    assert_non_null(verdict);
    assert_non_null(strstr(verdict, "<b class=\"good\">fits</b>"));
    assert_true(verdict < strstr(page, "<pre>"));
    assert_null(strstr(page, "src="));
    assert_null(strstr(page, "@import"));
    assert_non_null(strstr(page, "prefers-color-scheme:dark"));
    assert_non_null(strstr(page, "units")); /* the table */
    free(page);
}

/* In the words of the terminal (result.c). */
static void a_tight_fit_is_called_so(void **state)
{
    (void)state;
    static const struct {
        struct prediction prediction;
        const char *says;
    } cases[] = {
        {{.fits = true}, "<b class=\"good\">fits</b>: "},
        {{.fits = true, .tight = true}, "<b class=\"good\">fits</b>, tight: "},
        {{.fits = false}, "<b class=\"bad\">does not fit</b>: "},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct settings settings = {.unplanned = NULL};
        const struct profile profile = {.title = ""};
        const struct step_time time = {.mfu = 0};
        char *text = NULL;
        size_t size = 0;
        FILE *file = open_memstream(&text, &size);
        assert_non_null(file);
        page_verdict(file, &settings, &cases[i].prediction, &profile, &time);
        fclose(file);
        if (!strstr(text, cases[i].says))
            fail_msg("no \"%s\" in: %s", cases[i].says, text);
        free(text);
    }
}

/* Rows of [x, text], by x: the script looks them up by halves. Without gnuplot there are none. */
static void what_the_script_reads_is_in_order(void **state)
{
    static const char begin[] = "<script type=\"application/json\">";
    (void)state;
    size_t length;
    char *page = bytes_of("report.html", &length);
    uint32_t pictures = 0;
    bool of_module = false;
    for (char *at = strstr(page, begin); at; at = strstr(at, begin)) {
        at += strlen(begin);
        json_t *rows = json_loadb(at, (size_t)(strstr(at, "</script>") - at), 0, NULL);
        assert_non_null(rows);
        assert_true(json_array_size(rows) > 20);
        double last = -1;
        for (size_t i = 0; i < json_array_size(rows); i++) {
            const json_t *row = json_array_get(rows, i);
            assert_true(json_number_value(json_array_get(row, 0)) >= last);
            last = json_number_value(json_array_get(row, 0));
            of_module |= strstr(json_string_value(json_array_get(row, 1)), "attention") != NULL;
        }
        json_decref(rows);
        pictures++;
    }
    if (pictures == 0)
        skip();
    assert_int_equal(pictures, 3); /* lanes, memory over instructions and over time */
    assert_true(of_module);
    free(page);
}

static void frames_of_the_snapshot_are_named_by_module(void **state)
{
    static const char frame[] = "layers.1.feed_forward: silu";
    (void)state;
    size_t length;
    char *snapshot = bytes_of("snapshot.pickle", &length);
    assert_non_null(memmem(snapshot, length, frame, strlen(frame)));
    free(snapshot);
}

/* What is offloaded is no part of the device's stack: its peak is what `fit` says of the device. */
static void the_hosts_bytes_are_apart(void **state)
{
    (void)state;
    size_t length;
    assert_int_equal(shardplan("plan tests/data/configs/toy-llama --gpus 4 --seq 128 --offload cpu "
                               "-q --json -o %s",
                               folder),
                     0);
    json_t *result = program_object();
    char device[64];
    snprintf(
        device, sizeof device, ": %.2f GiB requested",
        json_number_value(json_object_get(json_object_get(result, "device"), "requested_bytes")) /
            1073741824.0);
    json_decref(result);
    char *page = bytes_of("report.html", &length);
    if (!strstr(page, "GiB requested"))
        skip();
    assert_non_null(strstr(page, device));
    assert_non_null(strstr(page, " on the host\"]"));
    assert_non_null(strstr(page, ">on the host<")); /* the line's name */
    free(page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_verdict_is_first_and_nothing_is_fetched),
        cmocka_unit_test(a_tight_fit_is_called_so),
        cmocka_unit_test(what_the_script_reads_is_in_order),
        cmocka_unit_test(frames_of_the_snapshot_are_named_by_module),
        cmocka_unit_test(the_hosts_bytes_are_apart),
    };
    return cmocka_run_group_tests_name("page", tests, make_report, remove_report);
}

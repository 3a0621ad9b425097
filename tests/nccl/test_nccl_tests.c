/* test_nccl_tests.c - nccl-tests output, text and JSON, whole and broken. */
#include "nccl/nccl_tests.h"

#include "base/file.h"
#include "tests/support/temp_folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define DATA "tests/data/nccl-tests/"

static void point_is(const struct collective_point *p, enum collective collective, uint32_t ranks,
                     uint32_t nodes, uint64_t bytes, double us)
{
    assert_int_equal(p->collective, collective);
    assert_int_equal(p->ranks, ranks);
    assert_int_equal(p->nodes, nodes);
    assert_true(p->bytes == bytes);
    assert_true(p->seconds == 1e-6 * us);
}

static void read_ok(const char *path, const struct nccl_tests_known *known, struct nccl_tests *out)
{
    struct err err = {0};
    if (nccl_tests_read(path, known, out, &err) != ERR_OK)
        fail_msg("%s", err.text);
}

static void runs_in_one_file_are_told_apart(void **state)
{
    (void)state;
    struct nccl_tests t;
    read_ok(DATA "named.txt", NULL, &t);
    assert_int_equal(t.count, 28);
    assert_int_equal(t.in_place, 28);
    assert_int_equal(t.left_out, 14); /* alltoall */
    point_is(&t.points[0], COLLECTIVE_ALL_GATHER, 8, 1, 1048576, 45.43);
    point_is(&t.points[13], COLLECTIVE_ALL_GATHER, 8, 1, 8589934592, 20741);
    point_is(&t.points[14], COLLECTIVE_REDUCE_SCATTER, 8, 1, 1048576, 43.24);
    nccl_tests_free(&t);
    assert_null(t.points);
}

static void a_run_without_a_name_is_known_by_its_bandwidths(void **state)
{
    (void)state;
    struct nccl_tests t;
    read_ok(DATA "tagged.txt", NULL, &t);
    point_is(&t.points[0], COLLECTIVE_ALL_REDUCE, 16, 2, 8, 72.43);
    point_is(&t.points[t.count - 1], COLLECTIVE_ALL_REDUCE, 16, 2, 17179869184, 66109);
    nccl_tests_free(&t);
}

static void json_is_read_and_falls_back_to_out_of_place(void **state)
{
    (void)state;
    struct nccl_tests t;
    read_ok(DATA "run.json", NULL, &t);
    assert_int_equal(t.count, 6);
    assert_int_equal(t.in_place, 5);
    point_is(&t.points[0], COLLECTIVE_ALL_GATHER, 16, 2, 1024, 54.07);
    point_is(&t.points[1], COLLECTIVE_ALL_GATHER, 16, 2, 2048, 55.31);
    nccl_tests_free(&t);
}

#define DEVICE "#  Rank  0 Group  0 Pid 1 on node-1 device  0 [0000:19:00] NVIDIA H100\n"
#define DEVICE_1 "#  Rank  1 Group  0 Pid 2 on node-1 device  1 [0000:1a:00] NVIDIA H100\n"
#define HEADER                                                                                     \
    "#       size         count      type   redop    root     time   algbw   busbw #wrong     "    \
    "time   algbw   busbw #wrong\n"
#define ROW(redop, root, algbw, busbw)                                                             \
    "  4194304  1048576  float  " redop "  " root "  57.93  " algbw "  " busbw                     \
    "  0  58.22  " algbw "  " busbw "  0\n"

static void read_text(const char *text, const struct nccl_tests_known *known,
                      struct nccl_tests *out)
{
    put_text("a.json", text, strlen(text));
    read_ok(path_of("a.json"), known, out);
}

static void what_a_file_does_not_say_may_be_given(void **state)
{
    (void)state;
    const struct nccl_tests_known known = {COLLECTIVE_ALL_GATHER, 32, 4};
    struct nccl_tests t;
    read_text(HEADER ROW("none", "-1", "72.04", "69.79"), &known, &t);
    point_is(&t.points[0], COLLECTIVE_ALL_GATHER, 32, 4, 4194304, 58.22);
    nccl_tests_free(&t);
    /* what it does say goes before */
    read_text(
        "$ ./all_reduce_perf -b 4M\n" DEVICE DEVICE_1 HEADER ROW("sum", "-1", "72.04", "72.04"),
        &known, &t);
    point_is(&t.points[0], COLLECTIVE_ALL_REDUCE, 2, 1, 4194304, 58.22);
    nccl_tests_free(&t);
}

static void sums_and_roots_tell_collectives_apart(void **state)
{
    (void)state;
    struct nccl_tests t;
    read_text(DEVICE DEVICE_1 HEADER ROW("sum", "-1", "72.04", "36.02"), NULL, &t);
    assert_int_equal(t.points[0].collective, COLLECTIVE_REDUCE_SCATTER);
    nccl_tests_free(&t);
    read_text(DEVICE DEVICE_1 HEADER ROW("sum", "-1", "72.04", "72.04"), NULL, &t);
    assert_int_equal(t.points[0].collective, COLLECTIVE_ALL_REDUCE);
    nccl_tests_free(&t);
    read_text(DEVICE DEVICE_1 HEADER ROW("none", "0", "72.04", "72.04"), NULL, &t);
    assert_int_equal(t.points[0].collective, COLLECTIVE_BROADCAST);
    nccl_tests_free(&t);
}

/* Versions before 2.10: no columns redop and root, "error" for "#wrong". */
static void older_columns_are_read(void **state)
{
    (void)state;
    struct nccl_tests t;
    read_text("# all_gather_perf\n# Collective test starting: all_gather_perf\n" DEVICE DEVICE_1
              "#  size  count  type  time  algbw  busbw  error  time  algbw  busbw  error\n"
              "  1024  128  float  12.5  0.08  0.04  0e+00  1.3e+01  0.08  0.04  0e+00\n",
              NULL, &t);
    point_is(&t.points[0], COLLECTIVE_ALL_GATHER, 2, 1, 1024, 13);
    nccl_tests_free(&t);
}

static void broken_files_are_refused_where_they_break(void **state)
{
    (void)state;
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"", "no measured row"},
        {"hello\nworld\n", "#  size  count"},
        {HEADER ROW("sum", "-1", "72.04", "72.04"), ":2: a table whose ranks"},
        {DEVICE HEADER "  1024  256  float  sum  -1  12.5\n", ":3: a row of 6 columns"},
        {DEVICE HEADER ROW("sum", "-1", "x", "y") "1\n", ":4: a row of 1 columns"},
        {DEVICE HEADER "1 1 float sum -1 ten 1 1 0 9 1 1 0\n", ":3: ten; expected a time"},
        {DEVICE HEADER "1 1 float sum -1 10 1 1 0 -9 1 1 0\n", ":3: -9; expected a time"},
        {DEVICE HEADER "1 1 float sum -1 10 1 1 0 9 1 1 7\n", ":3: a row whose results"},
        {DEVICE HEADER "99999999999999999999 1 float sum -1 10 1 1 0 9 1 1 7\n", "64 bits"},
        {DEVICE "#  size  count  type\n", ":2: a table without the columns"},
        {"#  Rank 0 Group 0 Pid 1\n", ":1: a rank without a host"},
        {DEVICE DEVICE_1 HEADER ROW("none", "-1", "72.04", "36.02"), "does not say which"},
        {"# Collective test starting: alltoall_perf\n" DEVICE HEADER ROW("none", "-1", "72.04",
                                                                         "36.02"),
         "1 rows left out"},
        {"{\n\"results\": [\n", ":3: "},
        {"{}", "results: expected an array"},
        {"{\"results\": []}", "args[0]"},
        {"{\"args\": [\"x/all_gather_perf\"], \"results\": []}", "config.devices"},
        {"{\"args\": [\"all_gather_perf\"], \"config\": {\"ngpus\": 0}, \"results\": []}",
         "config.ngpus"},
        {"{\"args\": [\"all_gather_perf\"], \"config\": {\"devices\": [{}]}, \"results\": []}",
         "hostname"},
        {"{\"args\": [\"all_gather_perf\"], \"config\": {\"devices\": [{\"hostname\": \"a\"}]}, "
         "\"results\": [{\"size\": 4, \"in_place\": {\"time\": \"nan\"}}]}",
         "results[0].in_place"},
        {"{\"args\": [\"all_gather_perf\"], \"config\": {\"devices\": [{\"hostname\": \"a\"}]}, "
         "\"results\": [{\"size\": -4}]}",
         "results[0].size"},
        {"{\"args\": [\"all_gather_perf\"], \"config\": {\"devices\": [{\"hostname\": \"a\"}, "
         "{\"hostname\": \"a\"}]}, \"results\": [{\"size\": 1024, \"in_place\": {\"time\": "
         "1e13}}]}",
         "all_gather of 1024 bytes on 2 ranks took 1e+07 s"},
        {"{\"args\": [\"all_gather_perf\"], \"config\": {\"devices\": [{\"hostname\": \"a\"}, "
         "{\"hostname\": \"a\"}]}, \"results\": [{\"size\": 1000000000000000000, "
         "\"in_place\": {\"time\": 3}}]}",
         "at most 1e+15 bytes"},
        {" \t\r\n", "no measured row"}, /* nothing but what is skipped */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct nccl_tests t;
        struct err err = {0};
        put_text("a.json", cases[i].text, strlen(cases[i].text));
        assert_int_equal(nccl_tests_read(path_of("a.json"), NULL, &t, &err), ERR_INVALID);
        if (!strstr(err.text, cases[i].words) || !strstr(err.text, path_of("a.json")))
            fail_msg("case %zu: \"%s\" does not say \"%s\"", i, err.text, cases[i].words);
        assert_null(t.points);
    }
}

static void several_groups_are_not_supported(void **state)
{
    (void)state;
    const char *text = DEVICE "#  Rank  0 Group  1 Pid 2 on node-1 device  1 [0] NVIDIA H100\n";
    struct nccl_tests t;
    struct err err = {0};
    put_text("a.json", text, strlen(text));
    assert_int_equal(nccl_tests_read(path_of("a.json"), NULL, &t, &err), ERR_UNSUPPORTED);
    err = (struct err){0};
    assert_int_equal(nccl_tests_read("no/such/file", NULL, &t, &err), ERR_INVALID);
}

/* Cut anywhere, a file is read or refused; it is never half-read in silence at a broken row. */
static void files_cut_anywhere_are_read_or_refused(void **state)
{
    (void)state;
    static const char *const files[] = {DATA "named.txt", DATA "tagged.txt", DATA "run.json"};
    size_t read = 0, refused = 0;
    for (size_t f = 0; f < 3; f++) {
        size_t length;
        char *text = file_read(files[f], &length, NULL);
        assert_non_null(text);
        for (size_t cut = 0; cut < length; cut += 61) {
            struct nccl_tests t;
            struct err err = {0};
            put_text("a.json", text, cut);
            if (nccl_tests_read(path_of("a.json"), NULL, &t, &err) == ERR_OK) {
                read++;
                assert_true(t.count > 0);
            } else {
                refused++;
                assert_true(err.text[0] != '\0');
            }
            nccl_tests_free(&t);
        }
        free(text);
    }
    assert_true(read > 10 && refused > 10);
}

static int set_up(void **state)
{
    (void)state;
    return temp_folder_make("test_nccl_tests");
}

static int tear_down(void **state)
{
    (void)state;
    return temp_folder_remove();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_in_one_file_are_told_apart),
        cmocka_unit_test(a_run_without_a_name_is_known_by_its_bandwidths),
        cmocka_unit_test(json_is_read_and_falls_back_to_out_of_place),
        cmocka_unit_test(what_a_file_does_not_say_may_be_given),
        cmocka_unit_test(sums_and_roots_tell_collectives_apart),
        cmocka_unit_test(older_columns_are_read),
        cmocka_unit_test(broken_files_are_refused_where_they_break),
        cmocka_unit_test(several_groups_are_not_supported),
        cmocka_unit_test(files_cut_anywhere_are_read_or_refused),
    };
    return cmocka_run_group_tests_name("nccl_tests", tests, set_up, tear_down);
}

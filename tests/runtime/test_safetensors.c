/* test_safetensors.c - the format's rules, one by one, on bytes written by hand. */
#include "runtime/state/safetensors.h"
#include "tests/support/folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static enum err_code open_bytes(const char *folder, uint64_t length, const char *header,
                                size_t data, struct err *err)
{
    char bytes[4096] = {0};
    struct safetensors *file = NULL;
    memcpy(bytes, &length, 8);
    snprintf(bytes + 8, sizeof bytes - 8, "%s", header);
    file_write(file_in(folder, "case"), bytes, 8 + strlen(header) + data);
    const enum err_code rc = safetensors_open(file_in(folder, "case"), &file, err);
    assert_true((rc == ERR_OK) == (file != NULL));
    safetensors_close(file);
    return rc;
}

#define TENSOR(name, dtype, shape, begin, end)                                                     \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end \
    "]}"

static const struct {
    const char *header;
    size_t data;
    const char *message; /* NULL: it is good */
} cases[] = {
    {"{}", 0, NULL},
    {"{}   ", 0, NULL},
    {"{" TENSOR("a", "F32", "[]", 0, 4) "}", 4, NULL},
    {"{" TENSOR("b", "F16", "[2]", 4, 8) "," TENSOR("a", "F32", "[1,1]", 0, 4) "}", 8, NULL},
    {"{" TENSOR("z", "F32", "[0,7]", 0, 0) "," TENSOR("a", "I64", "[1]", 0, 8) "}", 8, NULL},
    {"{\"__metadata__\":{\"k\":\"v\"}}", 0, NULL},
    {"", 0, "does not begin with '{'"},
    {" {}", 0, "does not begin with '{'"},
    {"[]", 0, "does not begin with '{'"},
    {"{]", 0, "not an object of JSON"},
    {"{}x", 0, "not an object of JSON"},
    {"{}", 1, "bytes after the last tensor"},
    {"{\"__metadata__\":{\"k\":1}}", 0, "not a map of texts"},
    {"{\"__metadata__\":[]}", 0, "not a map of texts"},
    {"{\"a\":3}", 0, "no dtype"},
    {"{\"a\":{\"shape\":[],\"data_offsets\":[0,0]}}", 0, "no dtype"},
    {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,0]}}", 0, "no shape"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[0]}}", 0, "data_offsets"},
    {"{" TENSOR("a", "F31", "[1]", 0, 4) "}", 4, "dtype that is not known"},
    {"{" TENSOR("a", "F32", "[1,1,1,1,1,1,1,1,1]", 0, 4) "}", 4, "more than 8 dims"},
    {"{" TENSOR("a", "F32", "[-1]", 0, 4) "}", 4, "not a size"},
    {"{" TENSOR("a", "F32", "[1.0]", 0, 4) "}", 4, "not a size"},
    {"{" TENSOR("a", "F32", "[4611686018427387905]", 0, 4) "}", 4, "not a size"},
    {"{" TENSOR("a", "F32", "[99999999999999999999]", 0, 4) "}", 4, "not an object of JSON"},
    {"{" TENSOR("a", "F32", "[2]", 0, 4) "}", 4, "data_offsets and shape disagree"},
    {"{" TENSOR("a", "F32", "[1]", 4, 0) "}", 4, "not a range"},
    {"{" TENSOR("a", "F32", "[1]", -4, 0) "}", 4, "not a range"},
    {"{" TENSOR("a", "F32", "[1]", 0, 4) "}", 3, "out of range"},
    {"{" TENSOR("a", "F32", "[2]", 0, 8) "," TENSOR("b", "F32", "[1]", 4, 8) "}", 8, "b: overlaps"},
    {"{" TENSOR("a", "F32", "[1]", 0, 4) "," TENSOR("b", "F32", "[1]", 0, 4) "}", 4, "overlaps"},
    {"{" TENSOR("a", "F32", "[1]", 0, 4) "," TENSOR("b", "F32", "[1]", 8, 12) "}", 12, "nothing"},
    {"{" TENSOR("a", "F32", "[1]", 0, 4) "," TENSOR("a", "F32", "[1]", 4, 8) "}", 8, "duplicate"},
};

static void every_rule_of_the_format_is_checked(void **state)
{
    (void)state;
    char *folder = folder_new("safetensors");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct err err = {0};
        const enum err_code rc =
            open_bytes(folder, strlen(cases[i].header), cases[i].header, cases[i].data, &err);
        if (cases[i].message ? !strstr(err.text, cases[i].message) : rc != ERR_OK)
            fail_msg("%s: %s", cases[i].header, err.text);
    }
    static const struct {
        uint64_t length;
        const char *message;
    } lengths[] = {{100000001, "over 100 MB"}, {UINT64_MAX, "over 100 MB"}, {3, "truncated"}};
    for (size_t i = 0; i < 3; i++) {
        struct err err = {0};
        assert_int_equal(open_bytes(folder, lengths[i].length, "{}", 0, &err), ERR_INVALID);
        assert_non_null(strstr(err.text, lengths[i].message));
    }
    struct safetensors *file = NULL;
    assert_int_equal(safetensors_open(folder, &file, NULL), ERR_INVALID); /* a folder */
    folder_drop(folder);
}

static void halves_are_widened_exactly(void **state)
{
    (void)state;
    char *folder = folder_new("safetensors");
    const char *header = "{" TENSOR("b", "BF16", "[3]", 0, 6) "," TENSOR(
        "h", "F16", "[7]", 6, 20) "," TENSOR("i", "I32", "[1]", 20, 24) "}";
    const uint64_t length = strlen(header);
    const uint16_t data[12] = {0x3f80, 0xff80, 0x0001, 0x3c00, 0x0001, 0x83ff,
                               0x7c00, 0xfe01, 0x7bff, 0x8000, 0,      0};
    const uint32_t wanted[10] = {0x3f800000, 0xff800000, 0x00010000, 0x3f800000, 0x33800000,
                                 0xb87fc000, 0x7f800000, 0xffc02000, 0x477fe000, 0x80000000};
    char bytes[1024];
    memcpy(bytes, &length, 8);
    snprintf(bytes + 8, sizeof bytes - 8, "%s", header);
    memcpy(bytes + 8 + length, data, sizeof data);
    file_write(file_in(folder, "halves"), bytes, 8 + length + sizeof data);
    struct safetensors *file = NULL;
    float values[10];
    struct err err = {0};
    assert_int_equal(safetensors_open(file_in(folder, "halves"), &file, &err), ERR_OK);
    assert_int_equal(safetensors_read(file, safetensors_find(file, "b"), 0, 3, values, &err),
                     ERR_OK);
    assert_int_equal(safetensors_read(file, safetensors_find(file, "h"), 0, 7, values + 3, &err),
                     ERR_OK);
    assert_memory_equal(values, wanted, sizeof wanted);
    assert_int_equal(safetensors_read(file, safetensors_find(file, "h"), 2, 3, values, &err),
                     ERR_OK);
    assert_memory_equal(values, wanted + 5, 3 * sizeof *wanted);
    assert_int_equal(safetensors_read(file, safetensors_find(file, "i"), 0, 1, values, &err),
                     ERR_UNSUPPORTED);
    assert_null(safetensors_find(file, "x"));
    safetensors_close(file);
    folder_drop(folder);
}

static void a_writer_refuses_names_it_cannot_keep_apart(void **state)
{
    (void)state;
    char *folder = folder_new("safetensors");
    const struct safetensor twice[] = {{.name = "a", .rank = 1, .dim = {1}},
                                       {.name = "a", .rank = 1, .dim = {1}}};
    const struct safetensor reserved = {.name = "__metadata__"}, broken = {.name = "\xff"};
    struct safetensors_writer *writer = NULL;
    const char *path = file_in(folder, "names");
    assert_int_equal(safetensors_create(path, twice, 2, NULL, 0, &writer, NULL), ERR_INVALID);
    assert_int_equal(safetensors_create(path, &reserved, 1, NULL, 0, &writer, NULL), ERR_INVALID);
    assert_int_equal(safetensors_create(path, &broken, 1, NULL, 0, &writer, NULL), ERR_INVALID);
    assert_int_equal(files_in(folder), 0);
    assert_int_equal(safetensors_create(path, twice, 1, NULL, 0, &writer, NULL), ERR_OK);
    assert_int_equal(safetensors_finish(writer, ERR_OK, NULL), ERR_INTERNAL); /* nothing written */
    folder_drop(folder);
}

/* Eight bytes of length, little endian, the header, padded with spaces to a multiple of 8, data. */
static void a_file_is_written_byte_for_byte(void **state)
{
    (void)state;
    char *folder = folder_new("safetensors");
    const struct safetensor tensors[] = {{.name = "b", .rank = 2, .dim = {1, 2}},
                                         {.name = "a", .rank = 1, .dim = {1}}};
    const struct safetensors_note note = {.key = "format", .text = "pt"};
    const float values[3] = {1, 2, 3};
    struct safetensors_writer *writer = NULL;
    struct err err = {0};
    const char *path = file_in(folder, "written");
    assert_int_equal(safetensors_create(path, tensors, 2, &note, 1, &writer, &err), ERR_OK);
    assert_int_equal(safetensors_write(writer, 0, 0, 2, values, &err), ERR_OK);
    assert_int_equal(safetensors_write(writer, 1, 0, 1, values + 2, &err), ERR_OK);
    assert_int_equal(safetensors_finish(writer, ERR_OK, &err), ERR_OK);
    size_t length;
    char *bytes = file_text(path, &length);
    const char *header = "{\"__metadata__\":{\"format\":\"pt\"}," TENSOR(
        "b", "F32", "[1,2]", 0, 8) "," TENSOR("a", "F32", "[1]", 8, 12) "}";
    const size_t padded = (strlen(header) + 7) / 8 * 8;
    uint64_t said;
    memcpy(&said, bytes, sizeof said);
    assert_int_equal(said, padded);
    assert_int_equal(length, 8 + padded + sizeof values);
    assert_memory_equal(bytes + 8, header, strlen(header));
    for (size_t i = strlen(header); i < padded; i++)
        assert_int_equal(bytes[8 + i], ' ');
    assert_memory_equal(bytes + 8 + padded, values, sizeof values);
    free(bytes);
    folder_drop(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_rule_of_the_format_is_checked),
        cmocka_unit_test(halves_are_widened_exactly),
        cmocka_unit_test(a_writer_refuses_names_it_cannot_keep_apart),
        cmocka_unit_test(a_file_is_written_byte_for_byte),
    };
    return cmocka_run_group_tests_name("safetensors", tests, NULL, NULL);
}

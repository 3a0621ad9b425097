/* What is plain is read by json_tree.c itself, and must be what jansson makes of it: the same
 * documents are accepted, with the same values, and what is refused is refused in jansson's words.
 */
#include "base/json_tree.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static bool equals(const struct json_value *a, json_t *b)
{
    if (!a || !b || a->type != json_typeof(b))
        return false;
    if (json_is_string(b))
        return a->count == json_string_length(b) && strlen(a->text) == a->count &&
               strcmp(a->text, json_string_value(b)) == 0;
    if (json_is_integer(b))
        return a->integer == json_integer_value(b) && json_value_number(a) == json_number_value(b);
    if (json_is_real(b))
        return a->real == json_real_value(b);
    if (json_is_array(b)) {
        if (json_value_size(a) != json_array_size(b))
            return false;
        for (size_t i = 0; i < json_array_size(b); i++)
            if (!equals(json_value_item(a, i), json_array_get(b, i)))
                return false;
        return json_value_item(a, json_array_size(b)) == NULL;
    }
    if (json_is_object(b)) {
        const char *key;
        json_t *value;
        size_t i = 0;
        uint32_t near = 0;
        if (json_value_size(a) != json_object_size(b))
            return false;
        json_object_foreach(b, key, value)
        {
            const struct json_value *member = json_value_item(a, i++);
            uint32_t far = (uint32_t)(3 * i); /* wherever one begins to look */
            if (member->key_length != strlen(key) ||
                memcmp(member->key, key, member->key_length) != 0 || !equals(member, value) ||
                json_value_member(a, key, &near) != member ||
                json_value_member(a, key, &far) != member)
                return false;
        }
        return json_value_member(a, "no such name", &near) == NULL;
    }
    return true;
}

/* Returns whether it is a document. */
static bool check(const char *text, size_t length)
{
    struct json_tree tree;
    json_error_t at, theirs;
    json_t *jansson = json_loadb(text, length, JSON_REJECT_DUPLICATES, &theirs);
    const bool read = json_tree_read(text, length, false, &tree, &at);
    if (read != (jansson != NULL) || (read && !equals(tree.root, jansson)) ||
        (!read && (strcmp(at.text, theirs.text) != 0 || at.line != theirs.line)))
        fail_msg("%.*s", (int)length, text);
    if (read)
        json_tree_free(&tree);
    json_decref(jansson);
    return read;
}

static bool check_text(const char *text)
{
    return check(text, strlen(text));
}

static const char document[] =
    "{\"id\": 12, \"a\": [1, -2, 0, -0, 3.5, 1e3, -0.25E-2, 123456789012345678],\n"
    " \"flags\": {\"on\": true, \"off\": false, \"none\": null, \"\": []},\t\"text\": "
    "\"plain\",\r\n"
    " \"deep\": [[[{}], []], {\"a\": {\"a\": \"a\"}}], \"ab\": \"x\", \"ba\": \"\"}";

static void plain_documents_are_jansson_s(void **state)
{
    static const char *const good[] = {document,
                                       "[]",
                                       "{}",
                                       " [ ] ",
                                       "[9223372036854775807]",
                                       "[-9223372036854775808]",
                                       "[\"\\u00e9\\n\"]",
                                       "[\"\xc3\xa9\"]",
                                       "[1.0]",
                                       "[1E5]",
                                       "[0.1e-5]",
                                       "{\"\\n\": 1}",
                                       "[\"\x7f\"]",
                                       "[1e-400]"};
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_true(check_text(good[i]));
}

static void what_is_none_is_refused_as_jansson_does(void **state)
{
    static const char *const bad[] = {"",
                                      " ",
                                      "1",
                                      "\"a\"",
                                      "true",
                                      "[",
                                      "]",
                                      "{",
                                      "[1",
                                      "[1,]",
                                      "[,1]",
                                      "[1 2]",
                                      "[01]",
                                      "[-]",
                                      "[+1]",
                                      "[1.]",
                                      "[.5]",
                                      "[1e]",
                                      "[1e+]",
                                      "[1e999]",
                                      "[tru]",
                                      "[truex]",
                                      "[nul]",
                                      "[9223372036854775808]",
                                      "{\"a\"}",
                                      "{\"a\":}",
                                      "{\"a\":1,}",
                                      "{a:1}",
                                      "{\"a\":1 \"b\":2}",
                                      "{\"a\":1,\"a\":2}",
                                      "{\"a\":1,\"b\":2,\"c\":[],\"b\":3}",
                                      "[\"a]",
                                      "[\"\\x\"]",
                                      "[\"\n\"]",
                                      "[\"\xff\"]",
                                      "[1]]",
                                      "[1] x",
                                      "[\"\\u0000\"]",
                                      "{\"\\u0000\": 1}"};
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (check_text(bad[i]))
            fail_msg("%s", bad[i]);
    assert_false(check("[\"a\0b\"]", 7));
    assert_false(check("[1]\0", 4));
}

static void every_beginning_and_every_changed_byte_is_jansson_s(void **state)
{
    static const char bytes[] = "\"\\{}[]:,.0123e-+ \n\ttfna\x80\x7f";
    char text[sizeof document];
    (void)state;
    for (size_t length = 0; length < sizeof document; length++)
        check(document, length);
    for (size_t i = 0; i + 1 < sizeof document; i++)
        for (size_t b = 0; b < sizeof bytes; b++) {
            memcpy(text, document, sizeof text);
            text[i] = bytes[b];
            check(text, sizeof document - 1);
        }
}

static void it_is_there_beside_the_other(void **state)
{
    struct json_tree tree;
    json_error_t at;
    (void)state;
    assert_true(json_tree_read(document, sizeof document - 1, true, &tree, &at));
    assert_true(equals(tree.root, tree.jansson));
    json_tree_free(&tree);
}

static void many_names_and_deep_lists_are_not_slow_and_not_endless(void **state)
{
    enum { NAMES = 6000, DEEP = 70 };
    struct json_tree tree;
    json_error_t at;
    char *text = malloc(NAMES * 16), *end = text;
    (void)state;
    for (int i = 0; i < NAMES; i++)
        end += sprintf(end, "%c\"n%d\":%d", i ? ',' : '{', i, i);
    *end++ = '}';
    assert_true(check(text, (size_t)(end - text)));
    memset(text, '[', DEEP);
    memset(text + DEEP, ']', DEEP);
    assert_false(json_tree_read(text, 2 * DEEP, false, &tree, &at));
    assert_non_null(strstr(at.text, "deeper than 64"));
    assert_true(check(text + DEEP - 64, 128));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_documents_are_jansson_s),
        cmocka_unit_test(what_is_none_is_refused_as_jansson_does),
        cmocka_unit_test(every_beginning_and_every_changed_byte_is_jansson_s),
        cmocka_unit_test(it_is_there_beside_the_other),
        cmocka_unit_test(many_names_and_deep_lists_are_not_slow_and_not_endless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

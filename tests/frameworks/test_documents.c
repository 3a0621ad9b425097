/* test_documents.c - the four syntaxes as one tree, and where each says that it is wrong. */
#include "frameworks/document.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(list) (sizeof(list) / sizeof(list)[0])

static const char *const ends[SYNTAX_COUNT] = {
    [SYNTAX_TOML] = "x.toml",
    [SYNTAX_YAML] = "x.yaml",
    [SYNTAX_JSON] = "x.json",
    [SYNTAX_PYTHON] = "x.py",
};

static struct document parse(enum document_syntax syntax, const char *text)
{
    struct document document;
    struct err err = {0};
    if (document_parse(ends[syntax], syntax, text, NULL, &document, &err) != ERR_OK)
        fail_msg("%s", err.text);
    return document;
}

static void expect(const struct document *document, const char *path, enum node_kind kind,
                   const char *text, uint32_t line)
{
    const struct node *node = document_find(document, path);
    if (!node) {
        fail_msg("%s: there is no %s", document->path, path);
        return;
    }
    if (node->kind != kind || (text && strcmp(node->text, text) != 0) || node->line != line)
        fail_msg("%s: %s is %s %s in line %u", document->path, path, node_kind_name(node->kind),
                 node->text ? node->text : "", node->line);
}

/* ---- the same tree ---- */

static void all_syntaxes_give_one_tree(void **state)
{
    (void)state;
    static const char *const texts[SYNTAX_COUNT] = {
        [SYNTAX_TOML] = "[training]\nseq_len = 8_192\nmax_norm = 1.0\ncompile = false\n"
                        "dtype = \"bf\\u0031\\\"6\"\n",
        [SYNTAX_YAML] = "training:\n  seq_len: 8192\n  max_norm: 1.0\n  compile: no\n"
                        "  dtype: 'bf1\"6'\n",
        [SYNTAX_JSON] = "{\"training\": {\n\"seq_len\": 8192,\n\"max_norm\": 1.0,\n"
                        "\"compile\": false,\n\"dtype\": \"bf1\\\"6\"}}",
        [SYNTAX_PYTHON] = "SETTINGS = 1\ntraining = {\"seq_len\": 8 * 1_024,\n"
                          " 'max_norm': 1.0, \"compile\": False,\n 'dtype': 'bf' '1\"6'}\n",
    };
    for (enum document_syntax syntax = 0; syntax < SYNTAX_COUNT; syntax++) {
        struct document document = parse(syntax, texts[syntax]);
        const bool python = syntax == SYNTAX_PYTHON;
        expect(&document, "training.seq_len", NODE_INTEGER, "8192", 2);
        expect(&document, "training.max_norm", NODE_REAL, NULL, 3);
        expect(&document, "training.compile", NODE_BOOL, "false", python ? 3 : 4);
        expect(&document, "training.dtype", NODE_TEXT, "bf1\"6", python ? 4 : 5);
        assert_null(document_find(&document, "training.seq"));
        assert_null(document_find(&document, "training.seq_len.x"));
        document_free(&document);
    }
}

/* ---- TOML ---- */

static void toml_has_all_its_values(void **state)
{
    (void)state;
    struct document d = parse(SYNTAX_TOML, "a.b.\"c d\" = 1 # one\n"
                                           "hex = 0xFF\noct = 0o17\nbin = 0b101\nplus = +7\n"
                                           "real = -1.5e3\nflat = 5e8\nbig = inf\n"
                                           "date = 1979-05-27T07:32:00Z\nraw = 'C:\\n'\n"
                                           "lines = \"\"\"\nfirst \\\n   second\"\"\"\n"
                                           "many = [1, [2, 3],\n # inside\n 4,]\n"
                                           "inline = { x = 1, y.z = \"w\" }\n"
                                           "[[list]]\nk = 1\n[[list]]\nk = 2\n[list.sub]\nm = 3\n");
    expect(&d, "a.b.c d", NODE_INTEGER, "1", 1);
    expect(&d, "hex", NODE_INTEGER, "255", 2);
    expect(&d, "oct", NODE_INTEGER, "15", 3);
    expect(&d, "bin", NODE_INTEGER, "5", 4);
    expect(&d, "plus", NODE_INTEGER, "7", 5);
    expect(&d, "real", NODE_REAL, "-1.5e3", 6);
    expect(&d, "flat", NODE_REAL, "5e8", 7);
    expect(&d, "big", NODE_REAL, "inf", 8);
    expect(&d, "date", NODE_OTHER, "1979-05-27T07:32:00Z", 9);
    expect(&d, "raw", NODE_TEXT, "C:\\n", 10);
    expect(&d, "lines", NODE_TEXT, "first second", 11);
    expect(&d, "many", NODE_LIST, NULL, 14);
    assert_string_equal(document_find(&d, "many")->first->next->first->text, "2");
    assert_int_equal(document_find(&d, "many")->last->line, 16);
    expect(&d, "inline.y.z", NODE_TEXT, "w", 17);
    const struct node *list = document_find(&d, "list");
    assert_int_equal(list->kind, NODE_LIST);
    assert_string_equal(node_child(list->first, "k")->text, "1");
    assert_string_equal(node_child(node_child(list->last, "sub"), "m")->text, "3");
    document_free(&d);
}

/* ---- YAML ---- */

static void yaml_has_pyyamls_types(void **state)
{
    (void)state;
    struct document d = parse(SYNTAX_YAML, "a: &x {k: 1e8, l: 1.0e+8, m: ~}\nb: *x\n"
                                           "c: [yes, 'yes', Off]\nd:\n- 007\n- text # not this\n");
    expect(&d, "a.k", NODE_TEXT, "1e8", 1); /* a real needs its dot */
    expect(&d, "a.l", NODE_REAL, NULL, 1);
    expect(&d, "b.m", NODE_NULL, NULL, 1);
    const struct node *c = document_find(&d, "c");
    assert_int_equal(c->first->kind, NODE_BOOL);
    assert_int_equal(c->first->next->kind, NODE_TEXT);
    assert_string_equal(c->last->text, "false");
    assert_string_equal(document_find(&d, "d")->last->text, "text");
    document_free(&d);
}

/* ---- Python ---- */

static const char registry[] =
    "\"\"\"Configurations: def wrong(): return Config()\"\"\"\n"
    "from torchtitan.trainer import Trainer\n"
    "\n"
    "\n"
    "def small() -> Trainer.Config:\n"
    "    \"\"\"A docstring.\"\"\"\n"
    "    spec = model_registry(\"8B\", attn_backend='sdpa')\n"
    "    if spec:\n"
    "        spec = None\n"
    "    return Trainer.Config(\n"
    "        model_spec=spec,  # a comment, with a comma\n"
    "        training=TrainingConfig(tokens=1 * 8192, name=NAMES[\"a, b\"], steps=(10)),\n"
    "        lists=[\"x\", ['y', -2.5]],\n"
    "        none=None,\n"
    "    )\n"
    "\n"
    "\n"
    "def changed():\n"
    "    config = small()\n"
    "    config.training.steps = 20\n"
    "    config.compile = CompileConfig(enable=True)\n"
    "    return config\n"
    "\n"
    "\n"
    "def helper(x):\n"
    "    return x + 1\n";

static void python_is_read_and_not_run(void **state)
{
    (void)state;
    struct document d;
    struct err err = {0};
    assert_int_equal(document_parse("r.py", SYNTAX_PYTHON, registry, "small", &d, &err), ERR_OK);
    assert_string_equal(d.root->text, "Trainer.Config");
    expect(&d, "model_spec", NODE_TABLE, "model_registry", 11);
    expect(&d, "model_spec.0", NODE_TEXT, "8B", 7);
    expect(&d, "model_spec.attn_backend", NODE_TEXT, "sdpa", 7);
    expect(&d, "training.tokens", NODE_INTEGER, "8192", 12);
    expect(&d, "training.name", NODE_OTHER, "NAMES[\"a, b\"]", 12);
    expect(&d, "lists", NODE_LIST, NULL, 13);
    expect(&d, "none", NODE_NULL, NULL, 14);
    document_free(&d);

    assert_int_equal(document_parse("r.py", SYNTAX_PYTHON, registry, "changed", &d, &err), ERR_OK);
    expect(&d, "training.steps", NODE_INTEGER, "20", 20);
    expect(&d, "training.tokens", NODE_INTEGER, "8192", 12);
    expect(&d, "compile.enable", NODE_BOOL, "true", 21);
    document_free(&d);

    assert_int_equal(document_parse("r.py", SYNTAX_PYTHON, registry, NULL, &d, &err), ERR_INVALID);
    assert_string_equal(err.text, "r.py: which configuration? Write FILE.py:NAME; there are small, "
                                  "changed");
    document_free(&d);
}

/* ---- what is wrong ---- */

static void mistakes_have_their_line(void **state)
{
    (void)state;
    static const struct {
        enum document_syntax syntax;
        const char *text, *message;
    } cases[] = {
        {SYNTAX_TOML, "a = 1\nb = \"x\n", "x.toml:2: a string does not end"},
        {SYNTAX_TOML, "a = 1\n\na = 2\n", "x.toml:3: \"a\" is there twice"},
        {SYNTAX_TOML, "[a]\nb = fp32\n", "x.toml:2: fp32 is no value: texts have quotes"},
        {SYNTAX_TOML, "a = 1 2\n", "x.toml:1: more stands here than one value"},
        {SYNTAX_TOML, "a\n", "x.toml:1: here should be '='"},
        {SYNTAX_TOML, "[a\n", "x.toml:1: here should be ']'"},
        {SYNTAX_TOML, "a = [1\n2]\n", "x.toml:2: here should be ',' or ']'"},
        {SYNTAX_TOML, "a = {b = 1,}\n", "x.toml:1: here should be a key"},
        {SYNTAX_TOML, "a = 1\n[a]\n", "x.toml:2: a table is wanted where there is a value already"},
        {SYNTAX_TOML, "a = 1__0\n", "x.toml:1: a '_' that is not between digits"},
        {SYNTAX_TOML, "a = \"\\q\"\n", "x.toml:1: a backslash that stands for nothing"},
        {SYNTAX_TOML, "a = \"\\ud800\"\n", "x.toml:1: an escape that is no character"},
        {SYNTAX_YAML, "a: 1\nb: [\n", "x.yaml:3: did not find expected node content"},
        {SYNTAX_YAML, "a: 1\na: 2\n", "x.yaml:2: \"a\" is there twice"},
        {SYNTAX_YAML, "- a\n", "x.yaml: it is no table of keys"},
        {SYNTAX_JSON, "{\"a\": 1,\n\"a\": 2}", "x.json:2: duplicate object key"},
        {SYNTAX_JSON, "[1]", "x.json: it is no object of keys"},
        {SYNTAX_PYTHON, "SETTINGS = {\n'a': 'x\n}", "x.py:2: a string does not end"},
        {SYNTAX_PYTHON, "SETTINGS = {'a' 1}", "x.py:1: here should be ':'"},
        {SYNTAX_PYTHON, "x = 1\n",
         "x.py: no function of it returns a configuration that can be read without running it"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct document d;
        struct err err = {0};
        const enum err_code rc =
            document_parse(ends[cases[i].syntax], cases[i].syntax, cases[i].text, NULL, &d, &err);
        if (rc != ERR_INVALID || strncmp(err.text, cases[i].message, strlen(cases[i].message)) != 0)
            fail_msg("%s\n gives \"%s\"\n not   \"%s\"", cases[i].text, err.text, cases[i].message);
        document_free(&d);
    }
}

/* Aliases that stand for very many nodes, and brackets without end. */
static void small_files_stay_small(void **state)
{
    (void)state;
    char deep[4096] = "a = ", bomb[2048] = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
    struct document d;
    struct err err = {0};
    memset(deep + 4, '[', 2000);
    assert_int_equal(document_parse("x.toml", SYNTAX_TOML, deep, NULL, &d, &err), ERR_INVALID);
    document_free(&d);
    deep[1] = ':';
    err = (struct err){0};
    assert_int_equal(document_parse("x.yaml", SYNTAX_YAML, deep, NULL, &d, &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "nested too deep"));
    document_free(&d);
    deep[1] = ' ';
    memset(deep + 4, '(', 2000);
    deep[0] = 'A';
    err = (struct err){0};
    assert_int_equal(document_parse("x.py", SYNTAX_PYTHON, deep, NULL, &d, &err), ERR_INVALID);
    document_free(&d);
    for (int i = 1; i < 20; i++)
        snprintf(bomb + strlen(bomb), sizeof bomb - strlen(bomb),
                 "a%d: &a%d [*a%d, *a%d, *a%d, *a%d]\n", i, i, i - 1, i - 1, i - 1, i - 1);
    err = (struct err){0};
    assert_int_equal(document_parse("x.yaml", SYNTAX_YAML, bomb, NULL, &d, &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "nested too deep, or too large"));
    document_free(&d);
}

/* In every syntax: more than anybody configures, which would be looked up again and again. */
static void what_is_too_large_is_refused(void **state)
{
    (void)state;
    static const struct {
        enum document_syntax syntax;
        const char *first, *each, *last;
    } kinds[] = {
        {SYNTAX_TOML, "", "k%d = 1\n", ""},
        {SYNTAX_TOML, "", "[t%d]\n", ""},
        {SYNTAX_TOML, "a = [", "%d,", "]\n"},
        {SYNTAX_TOML, "a = {", "k%d = 1,", "b = 1}\n"},
        {SYNTAX_YAML, "", "k%d: 1\n", ""},
        {SYNTAX_YAML, "a: [", "%d,", "1]\n"},
        {SYNTAX_JSON, "{", "\"k%d\": 1,", "\"last\": 1}"},
        {SYNTAX_PYTHON, "a = A(", "k%d=1,", ")\n"},
        {SYNTAX_PYTHON, "a = A()\n", "a.k%d = 1\n", ""},
        {SYNTAX_PYTHON, "def f():\n  return A(", "b%d=f(),", ")\n"},
    };
    for (size_t k = 0; k < COUNT(kinds); k++) {
        for (int count = 20000; count <= 200000; count *= 10) { /* of values, of bytes */
            struct document d;
            struct err err = {0};
            char *text = NULL;
            size_t size;
            FILE *memory = open_memstream(&text, &size);
            assert_non_null(memory);
            fputs(kinds[k].first, memory);
            for (int i = 0; i < count; i++) {
                const char *each = kinds[k].each, *at = strchr(each, '%');
                fprintf(memory, "%.*s%d%s", (int)(at - each), each, i, at + 2);
            }
            fputs(kinds[k].last, memory);
            assert_int_equal(fclose(memory), 0);
            assert_int_equal(document_parse("x", kinds[k].syntax, text, NULL, &d, &err),
                             ERR_INVALID);
            if (!strstr(err.text, "too large") && !strstr(err.text, "more than") &&
                !strstr(err.text, "no function of it"))
                fail_msg("%s%s: %s", kinds[k].first, kinds[k].each, err.text);
            document_free(&d);
            free(text);
        }
    }
}

static void a_copy_fills_and_does_not_overwrite(void **state)
{
    (void)state;
    struct document to = parse(SYNTAX_JSON, "{\"zero\": {\"stage\": 3, \"param\": {\"a\": 1}}}");
    struct document from =
        parse(SYNTAX_TOML, "stage = 2\nlist = [1, [2]]\n[param]\na = 9\nb = 4\n");
    document_copy(&to, document_find(&to, "zero"), from.root);
    document_free(&from);
    expect(&to, "zero.stage", NODE_INTEGER, "3", 1);
    expect(&to, "zero.param.a", NODE_INTEGER, "1", 1);
    expect(&to, "zero.param.b", NODE_INTEGER, "4", 5);
    assert_string_equal(document_find(&to, "zero.list")->last->first->text, "2");
    document_free(&to);
}

static void a_file_has_a_syntax_by_its_end(void **state)
{
    (void)state;
    struct document d;
    struct err err = {0};
    assert_int_equal(document_read("config.ini", &d, &err), ERR_INVALID);
    assert_non_null(strstr(err.text, ".toml, .yaml, .yml, .json, .py"));
    document_free(&d);
    err = (struct err){0};
    assert_int_equal(document_read("/nowhere/x.toml", &d, &err), ERR_INVALID);
    document_free(&d);
}

/* "<<" as PyYAML's safe_load has it: a table's own keys hold. */
static void yaml_merges_what_it_names(void **state)
{
    static const char text[] = "first: &a {one: 1, two: 2}\nsecond: &b {two: 3, four: 4, <<: *a}\n"
                               "third:\n  four: 9\n  <<: *b\n"
                               "fourth: {<<: [*a, {five: 5, one: 1}]}\n\"<<\": kept\n";
    static const char *const expected[][2] = {
        {"second.one", "1"}, {"second.two", "3"}, {"third.one", "1"},   {"third.two", "3"},
        {"third.four", "9"}, {"fourth.two", "2"}, {"fourth.five", "5"}, {"<<", "kept"}};
    struct document document;
    struct err err = {0};
    (void)state;
    if (document_parse("x", SYNTAX_YAML, text, NULL, &document, &err) != ERR_OK)
        fail_msg("%s", err.text);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        const struct node *node = document_find(&document, expected[i][0]);
        assert_non_null(node);
        assert_string_equal(node->text, expected[i][1]);
    }
    assert_null(document_find(&document, "third.<<"));
    document_free(&document);
}

static void yaml_is_one_document_and_merges_tables(void **state)
{
    static const char *const cases[][2] = {
        {"a: 1\n---\nb: 2\n", "x:2: another document"},
        {"a: 1\n---\n", "x:2: another document"},
        {"a: 1\n---\n[\n", "x:"},
        {"a:\n  <<: 3\n", "x:2: << takes a table"},
        {"a: &a\n  <<: *a\n", "too deep"},
        {"a: &a {k: 1}\nb: &b {k: 2}\nc:\n  <<: [*a, *b]\n",
         "x:4: of what << names, two say \"k\""},
    };
    struct document document;
    struct err err = {0};
    char text[4096] = "a0: &a0 {x: 1}\n"; /* four times as much with each line */
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(document_parse("x", SYNTAX_YAML, cases[i][0], NULL, &document, &err),
                         ERR_INVALID);
        if (!strstr(err.text, cases[i][1]))
            fail_msg("%s: %s", cases[i][0], err.text);
        document_free(&document);
        err = (struct err){0};
    }
    for (int i = 1; i < 20; i++) {
        const size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "a%d: &a%d {<<: [*a%d, *a%d, *a%d, *a%d]}\n", i,
                 i, i - 1, i - 1, i - 1, i - 1);
    }
    assert_int_equal(document_parse("x", SYNTAX_YAML, text, NULL, &document, &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "too large"));
    document_free(&document);
    assert_int_equal(document_parse("x", SYNTAX_YAML, "---\na: 1\n...\n", NULL, &document, NULL),
                     ERR_OK);
    document_free(&document);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(yaml_merges_what_it_names),
        cmocka_unit_test(yaml_is_one_document_and_merges_tables),
        cmocka_unit_test(all_syntaxes_give_one_tree),
        cmocka_unit_test(toml_has_all_its_values),
        cmocka_unit_test(yaml_has_pyyamls_types),
        cmocka_unit_test(python_is_read_and_not_run),
        cmocka_unit_test(mistakes_have_their_line),
        cmocka_unit_test(small_files_stay_small),
        cmocka_unit_test(what_is_too_large_is_refused),
        cmocka_unit_test(a_copy_fills_and_does_not_overwrite),
        cmocka_unit_test(a_file_has_a_syntax_by_its_end),
    };
    return cmocka_run_group_tests_name("documents", tests, NULL, NULL);
}

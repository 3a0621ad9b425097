/* fuzz_documents.c - any bytes as a configuration file of each syntax, and as settings. */
#include "frameworks/import.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Children of tables have keys, scalars have texts, and who is last is last. */
static void check_node(const struct node *node)
{
    const struct node *last = NULL;
    if (node->kind != NODE_TABLE && node->kind != NODE_LIST && !node->text)
        abort();
    for (const struct node *n = node->first; n; n = n->next) {
        if ((node->kind == NODE_TABLE) != (n->key != NULL))
            abort();
        check_node(n);
        last = n;
    }
    if (last != node->last)
        abort();
}

static void check_syntax(enum document_syntax syntax, const char *text)
{
    struct document document;
    struct settings settings;
    struct import import;
    struct err err = {0};
    const enum err_code rc = document_parse("x", syntax, text, NULL, &document, &err);
    if ((rc == ERR_OK) != (err.code == ERR_OK))
        abort();
    if (rc != ERR_OK) {
        document_free(&document);
        return;
    }
    check_node(document.root);
    settings_defaults(&settings, COMMAND_PLAN);
    if ((import_document(&import, &settings, &document, NULL, 0, &err) == ERR_OK) !=
        (err.code == ERR_OK))
        abort();
    json_decref(import_json(&import));
    json_decref(settings_echo(&settings));
    import_free(&import);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    memcpy(text, data, size);
    text[size] = '\0';
    for (int syntax = 0; syntax < SYNTAX_COUNT; syntax++)
        check_syntax((enum document_syntax)syntax, text);
    free(text);
    return 0;
}

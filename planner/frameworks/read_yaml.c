/* read_yaml.c - YAML as a document, by libyaml.
 *
 * Plain scalars get the types that PyYAML's safe_load gives them, because that is what accelerate
 * reads with: "no" is false, "1e8" is a text (a real has a dot). Tags ("!!str") are not looked at.
 */
#include "frameworks/read_parts.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <yaml.h>

enum { BRACKETS_MOST = 1000 };

struct yaml {
    struct document *document;
    yaml_document_t tree;
    struct err *err;
};

static bool is_one_of(const char *text, const char *const *words)
{
    for (; *words; words++)
        if (strcmp(text, *words) == 0)
            return true;
    return false;
}

/* "500_000" is an integer of YAML 1.1; NULL: it is none. */
static const char *without_underscores(struct yaml *y, const char *text)
{
    char digits[32];
    size_t count = 0;
    if (!strchr(text, '_') || *text < '1' || *text > '9')
        return NULL;
    for (; *text && count + 1 < sizeof digits; text++) {
        if (*text != '_' && (*text < '0' || *text > '9'))
            return NULL;
        if (*text != '_')
            digits[count++] = *text;
    }
    digits[count] = '\0';
    return *text ? NULL : arena_strdup(&y->document->arena, digits);
}

/* YAML 1.1 as PyYAML has it: three spellings of each word, no "y" and "n". */
static enum node_kind plain_kind(struct yaml *y, const char *text, const char **value)
{
    static const char *const yes[] = {"true", "True", "TRUE", "yes", "Yes",
                                      "YES",  "on",   "On",   "ON",  NULL};
    static const char *const no[] = {"false", "False", "FALSE", "no",  "No",
                                     "NO",    "off",   "Off",   "OFF", NULL};
    static const char *const null[] = {"", "~", "null", "Null", "NULL", NULL};
    *value = text;
    if (is_one_of(text, null))
        return NODE_NULL;
    if (is_one_of(text, yes) || is_one_of(text, no)) {
        *value = is_one_of(text, yes) ? "true" : "false";
        return NODE_BOOL;
    }
    const char *digits = without_underscores(y, text);
    if (digits) {
        *value = digits;
        return NODE_INTEGER;
    }
    const enum node_kind kind = node_number_kind(text);
    if (kind == NODE_REAL && !strchr(text, '.'))
        return NODE_TEXT;
    return kind;
}

static enum err_code add_value(struct yaml *y, struct node *node, const yaml_node_t *value,
                               int depth);

/* "<<", which stands for the keys of other tables. In quotes it is a key. */
static bool is_merge(const yaml_node_t *key)
{
    return key->type == YAML_SCALAR_NODE && key->data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
           strcmp((const char *)key->data.scalar.value, "<<") == 0;
}

static enum err_code add_own(struct yaml *y, struct node *node, const yaml_node_t *value, int depth)
{
    struct document *document = y->document;
    for (const yaml_node_pair_t *pair = value->data.mapping.pairs.start;
         pair < value->data.mapping.pairs.top; pair++) {
        const yaml_node_t *key = yaml_document_get_node(&y->tree, pair->key);
        const uint32_t line = (uint32_t)key->start_mark.line + 1;
        if (is_merge(key))
            continue;
        if (key->type != YAML_SCALAR_NODE)
            return err_set(y->err, ERR_INVALID, "%s:%u: a key is no word", document->path, line);
        const char *name = (const char *)key->data.scalar.value;
        if (node_child(node, name))
            return err_set(y->err, ERR_INVALID, "%s:%u: \"%.100s\" is there twice", document->path,
                           line, name);
        TRY(add_value(y, node_add(document, node, name, NODE_NULL, NULL, line),
                      yaml_document_get_node(&y->tree, pair->value), depth + 1));
    }
    return ERR_OK;
}

static bool is_same(const struct node *a, const struct node *b)
{
    if (a->kind != b->kind || !a->text != !b->text || (a->text && strcmp(a->text, b->text) != 0))
        return false;
    const struct node *one = a->first, *other = b->first;
    for (; one && other && is_same(one, other); one = one->next)
        other = other->next;
    return !one && !other;
}

/* The keys of a table that "<<" names, behind the `own` ones, which hold. Which of two such tables
 * holds where they differ has changed (PyYAML up to 6.0.3: of a list the first; 6.0.4: the last).
 */
static enum err_code join(struct yaml *y, struct node *node, const struct node *own,
                          struct node *from, uint32_t line)
{
    for (struct node *n = from->first, *next; n; n = next) {
        const struct node *there = node_child(node, n->key);
        bool is_own = false;
        next = n->next;
        for (const struct node *o = own ? node->first : NULL; o; o = o == own ? NULL : o->next)
            is_own = is_own || o == there;
        if (there && !is_own && !is_same(there, n))
            return err_set(y->err, ERR_INVALID,
                           "%s:%u: of what << names, two say \"%.100s\" otherwise, and versions of "
                           "PyYAML differ in which holds: say it in the table itself",
                           y->document->path, line, n->key);
        if (there)
            continue;
        n->next = NULL;
        if (node->last)
            node->last->next = n;
        else
            node->first = n;
        node->last = n;
    }
    return ERR_OK;
}

static enum err_code add_table(struct yaml *y, struct node *node, const yaml_node_t *value,
                               int depth);

/* What a "<<" names: a table, or a list of them, each with what it merges itself. */
static enum err_code add_merged(struct yaml *y, struct node *node, const struct node *own,
                                const yaml_node_t *from, uint32_t line, int depth)
{
    const bool list = from->type == YAML_SEQUENCE_NODE;
    const size_t count =
        list ? (size_t)(from->data.sequence.items.top - from->data.sequence.items.start) : 1;
    for (size_t i = 0; i < count; i++) {
        const yaml_node_t *table =
            list ? yaml_document_get_node(&y->tree, from->data.sequence.items.start[i]) : from;
        struct node apart = {.kind = NODE_TABLE};
        if (table->type != YAML_MAPPING_NODE)
            return err_set(y->err, ERR_INVALID,
                           "%s:%u: << takes a table of keys, or a list of them", y->document->path,
                           line);
        TRY(add_table(y, node_add(y->document, &apart, NULL, NODE_TABLE, NULL, line), table,
                      depth + 1));
        TRY(join(y, node, own, apart.first, line));
    }
    return ERR_OK;
}

static enum err_code add_table(struct yaml *y, struct node *node, const yaml_node_t *value,
                               int depth)
{
    if (depth > DOCUMENT_DEEPEST || y->document->node_count > DOCUMENT_MOST)
        return err_set(y->err, ERR_INVALID, "%s:%u: it is nested too deep, or too large",
                       y->document->path, node->line);
    node->kind = NODE_TABLE;
    TRY(add_own(y, node, value, depth));
    const struct node *own = node->last;
    for (const yaml_node_pair_t *pair = value->data.mapping.pairs.start;
         pair < value->data.mapping.pairs.top; pair++) {
        const yaml_node_t *key = yaml_document_get_node(&y->tree, pair->key);
        if (is_merge(key))
            TRY(add_merged(y, node, own, yaml_document_get_node(&y->tree, pair->value),
                           (uint32_t)key->start_mark.line + 1, depth));
    }
    return ERR_OK;
}

static enum err_code add_value(struct yaml *y, struct node *node, const yaml_node_t *value,
                               int depth)
{
    struct document *document = y->document;
    /* an alias is expanded: a small file may stand for very many */
    if (depth > DOCUMENT_DEEPEST || document->node_count > DOCUMENT_MOST)
        return err_set(y->err, ERR_INVALID, "%s:%u: it is nested too deep, or too large",
                       document->path, node->line);
    if (value->type == YAML_SCALAR_NODE) {
        const char *text = arena_strdup(&document->arena, (const char *)value->data.scalar.value);
        const bool plain = value->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
        node->text = text;
        node->kind = plain ? plain_kind(y, text, &node->text) : NODE_TEXT;
        return ERR_OK;
    }
    if (value->type == YAML_SEQUENCE_NODE) {
        node->kind = NODE_LIST;
        for (const yaml_node_item_t *i = value->data.sequence.items.start;
             i < value->data.sequence.items.top; i++) {
            const yaml_node_t *item = yaml_document_get_node(&y->tree, *i);
            TRY(add_value(y,
                          node_add(document, node, NULL, NODE_NULL, NULL,
                                   (uint32_t)item->start_mark.line + 1),
                          item, depth + 1));
        }
        return ERR_OK;
    }
    return add_table(y, node, value, depth);
}

/* For each word libyaml looks at each bracket that is open: those of a text, in comments and
 * strings, too, are counted first. */
static bool is_deep(const char *text)
{
    int open = 0;
    for (; *text && open < BRACKETS_MOST; text++)
        open += (*text == '[' || *text == '{') - (open > 0 && (*text == ']' || *text == '}'));
    return open >= BRACKETS_MOST;
}

/* What stands behind the first document, which safe_load refuses. */
static enum err_code check_end(yaml_parser_t *parser, const struct document *document,
                               struct err *err)
{
    yaml_document_t next;
    if (!yaml_parser_load(parser, &next))
        return err_set(err, ERR_INVALID, "%s:%zu: %s", document->path,
                       parser->problem_mark.line + 1,
                       parser->problem ? parser->problem : "no YAML");
    const bool another = yaml_document_get_root_node(&next) != NULL;
    const size_t line = next.start_mark.line + 1;
    yaml_document_delete(&next);
    return another ? err_set(err, ERR_INVALID,
                             "%s:%zu: another document begins (---): a configuration is one",
                             document->path, line)
                   : ERR_OK;
}

enum err_code read_yaml(struct document *document, const char *text, struct err *err)
{
    yaml_parser_t parser;
    struct yaml y = {.document = document, .err = err};
    enum err_code rc = ERR_OK;
    if (is_deep(text))
        return err_set(err, ERR_INVALID, "%s: it is nested too deep", document->path);
    if (!yaml_parser_initialize(&parser))
        return err_set(err, ERR_NOMEM, "%s: libyaml: out of memory", document->path);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, strlen(text));
    if (!yaml_parser_load(&parser, &y.tree)) {
        rc = err_set(err, ERR_INVALID, "%s:%zu: %s", document->path, parser.problem_mark.line + 1,
                     parser.problem ? parser.problem : "no YAML");
    } else {
        const yaml_node_t *root = yaml_document_get_root_node(&y.tree);
        if (!root || root->type != YAML_MAPPING_NODE)
            rc = err_set(err, ERR_INVALID, "%s: it is no table of keys", document->path);
        else
            rc = add_value(&y, document->root, root, 0);
        yaml_document_delete(&y.tree);
        if (rc == ERR_OK)
            rc = check_end(&parser, document, err);
    }
    yaml_parser_delete(&parser);
    return rc;
}

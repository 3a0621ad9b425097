/* document.h - a configuration file as a tree of keys and values, whatever it is written in.
 *
 *     TOML    read_toml.c     v1.0, as torchtitan's files are written
 *     YAML    read_yaml.c     by libyaml; plain scalars have YAML 1.1's types, as in PyYAML
 *     JSON    read_json.c     by jansson, with the line of each key found beside it
 *     Python  read_python.c   read, not run: literals, calls of them, names bound to them
 *
 * A scalar is its text and what kind of value the file's syntax makes of it; who reads a key
 * decides what it must be. Texts and nodes are in the document's arena. */
#ifndef SHARDPLAN_DOCUMENT_H
#define SHARDPLAN_DOCUMENT_H

#include "base/arena.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum document_syntax { SYNTAX_TOML, SYNTAX_YAML, SYNTAX_JSON, SYNTAX_PYTHON, SYNTAX_COUNT };

enum node_kind {
    NODE_NULL,
    NODE_BOOL,    /* "true", "false" */
    NODE_INTEGER, /* decimal, with a sign only if it is negative */
    NODE_REAL,
    NODE_TEXT,
    NODE_LIST,
    NODE_TABLE, /* of a call: `text` is what is called, and its positional arguments have the keys
                   "0", "1", ... */
    NODE_OTHER, /* a date, an expression: its source is the text */
};

struct node {
    const char *key; /* NULL in a list */
    enum node_kind kind;
    const char *text;                 /* of a scalar, a call or NODE_OTHER */
    uint32_t line;                    /* from 1; 0: it was in no file */
    struct node *first, *last, *next; /* children of a list or table, in the file's order */
    const char *was;   /* of what another key of the file says: that one's path; NULL */
    const char *said;  /* the value as the file has it, where `text` was made of it; NULL */
    bool read;         /* somebody knew the key */
    const char *meant; /* why the program does not have the key, which another one has: no path
                          finds it, and it is listed so; NULL */
};

struct document { /* zero-initialise; document_free */
    struct arena arena;
    const char *path; /* in messages: lent */
    enum document_syntax syntax;
    struct node *root;   /* a NODE_TABLE */
    uint32_t node_count; /* that node_add has made: more than DOCUMENT_MOST is refused */
    const char *options; /* what a comment or key "shardplan" holds (frameworks/export.h); NULL */
};

/* Deepest nesting that is read, most nodes, most bytes: configurations have four or five, some
 * hundred, some ten thousand. What is larger is refused, so that nothing that readers do for each
 * node (YAML's aliases, Python's calls, keys looked up) can take long. */
enum { DOCUMENT_DEEPEST = 64, DOCUMENT_MOST = 10000, DOCUMENT_BYTES = 1 << 20 };

enum { DOCUMENT_ENDS = 64 };

/* What a file is written in, by its name's end; SYNTAX_COUNT: it has none of these. */
enum document_syntax document_syntax_of(const char *path);
/* The ends that names of such files have, ".yaml, .yml", in `text`; SYNTAX_COUNT: of all. */
const char *document_ends(enum document_syntax syntax, char text[DOCUMENT_ENDS]);

/* Reads a file; what it is written in follows from its name's end (.toml, .yaml, .yml, .json, .py),
 * and "FILE.py:NAME" names the function or variable that holds the configuration. ERR_INVALID: it
 * cannot be read; ERR_INVALID with file, line and what is wrong. On any return the caller owns
 * *out. */
enum err_code document_read(const char *path, struct document *out, struct err *err);

/* The same of a text in memory; `name` chooses among a Python file's configurations or is NULL. */
enum err_code document_parse(const char *path, enum document_syntax syntax, const char *text,
                             const char *name, struct document *out, struct err *err);

void document_free(struct document *document);

/* The node at a path of keys with dots between them ("training.seq_len"), or NULL. */
struct node *document_find(const struct document *document, const char *path);

/* Whether there is a key at the top that the program does not have (`meant`). */
bool document_aside(const struct document *document, const char *key);

/* The child of a table with that key, or NULL. */
struct node *node_child(const struct node *table, const char *key);

/* Adds a child behind the last: key and text are copied; key NULL in a list. */
struct node *node_add(struct document *document, struct node *parent, const char *key,
                      enum node_kind kind, const char *text, uint32_t line);

/* Puts a scalar at a path; tables on the way are made where they are missing. */
struct node *document_put(struct document *document, const char *path, enum node_kind kind,
                          const char *text);

/* Says what the node at `was_path` says under another path, in its place: unless that is there, or
 * its section is no table: then the node is left as it is, to be listed. */
void document_say(struct document *document, struct node *was, const char *was_path,
                  const char *path, enum node_kind kind, const char *text);

/* Adds copies of a table's children, of another document, to a table; keys that are there stay, and
 * tables are filled. */
void document_copy(struct document *document, struct node *into, const struct node *from);

/* The scalar as the file has it: what messages quote; NULL: it is none. */
const char *node_said(const struct node *node);

/* "true" or "false" in *out (lent) for what YAML and Python's programs take for these: "yes", "0",
 * "Off". False: it is neither. */
bool node_loose_bool(const char *text, const char **out);
/* Whether a value says true, in any of these words; NULL does not. */
bool node_is_true(const struct node *node);
/* What a plain word without quotes is in these syntaxes' common core: decimal integers, reals with
 * a '.' or an exponent; NODE_TEXT: neither. */
enum node_kind node_number_kind(const char *text);

/* "a boolean", "a table": in messages. */
const char *node_kind_name(enum node_kind kind);

#endif

/* framework.h - a framework's configuration as a table of keys: for the files of this folder only.
 *
 * One row says everything about a key: where it is, what it may hold, which setting it is and how
 * values are spelled on both sides. Reading a file (import.h), writing one (export.h), what holds
 * when a key is absent, every message and what is listed come from the row:
 *
 *     fsdp_reshard_after_forward: false  <--row-->  --reshard never
 *
 * Rows are read in their order, the system (`strategy`) first, because it decides which settings
 * there are; a setting that more than one key makes up has a rule, behind the keys it needs. A key
 * that feeds two settings has two rows; of keys that name one setting the first that is there
 * counts. Keys without a row are listed as unknown. */
#ifndef SHARDPLAN_FRAMEWORK_H
#define SHARDPLAN_FRAMEWORK_H

#include "frameworks/import.h"

struct key_row;

enum key_kind {
    KEY_WORD,    /* a text, one of `words` */
    KEY_TEXT,    /* any text */
    KEY_BOOL,    /* `words` spell "true" and "false" as a setting's values */
    KEY_INTEGER, /* from `least` on; a real with an integer's value, too ("5e8") */
    KEY_REAL,    /* from `least` on */
    KEY_LIST,    /* of texts; is written with one */
    KEY_TABLE,
    KEY_ANY,
    KEY_SECTION, /* every key below this one */
};

struct key_word {
    const char *key;     /* NULL ends the list */
    const char *setting; /* NULL: it says nothing of a setting */
};

/* What a key makes of the settings when it is not their value itself. `node` is NULL when the key
 * is absent. ERR_INVALID: it does not go with other keys. */
typedef enum err_code key_reader(struct import *import, const struct key_row *row,
                                 const struct node *node, struct err *err);

/* The value of a key for the settings, in `text`, as the file says it; NULL: the key is left out.
 */
typedef const char *key_writer(const struct settings *settings, char text[NUMBER_TEXT]);

struct key_row {
    const char *path; /* "training.seq_len" */
    enum key_kind kind;
    const char *setting;          /* NULL: none */
    const struct key_word *words; /* NULL: values are spelled alike */
    double least;
    const char *initial; /* what holds when the key is absent, as the file would say it */
    const char *neutral; /* of a key that cannot be planned: the value that changes nothing */
    const char *why;     /* what is listed when it is there (and not neutral); NULL: it has no
                            effect on the memory and the time of a step */
    uint32_t systems;    /* bits: of those that read it; 0: all */
    uint32_t syntaxes;   /* bits of enum document_syntax: version gates; 0: all */
    key_reader *read;    /* NULL: the value, spelled as a setting's, is set */
    key_writer *write;   /* NULL: the setting's value, spelled as the key's */
    const char *twin;    /* the key of the file that this one names (`named`) which says the same:
                            the framework refuses two values; NULL: none */
    bool is_auto;        /* "auto" stands for "somebody else decides" */
    const char *filled;  /* ... who puts this value where nobody decides otherwise; NULL: none */
    bool reads_auto;     /* ... and `read` is given it */
    bool last;           /* in a file that another one names: read behind the keys of that one */
    bool any_case;       /* of its words */
    bool unwritten;      /* another spelling: read, never written */
};

struct implied_setting { /* what holds whatever the file says */
    const char *setting, *value;
    uint32_t systems;
    const char *source; /* of what is not the framework's but its launcher's: is listed; NULL */
    bool (*applies)(const struct import *import); /* of files of several programs; NULL: always */
};

struct script_setting { /* what the framework leaves to the user's own code */
    const char *setting;
    const char *where; /* "DataLoader(batch_size=%s)": how it is said there */
    bool (*applies)(const struct settings *settings); /* NULL: always */
    bool instead; /* a key says the setting, too: where this applies the script's holds */
};

/* What no file of theirs says: the environment of whoever starts it. */
bool framework_expands_segments(const struct settings *settings);
#define EXPANDABLE_SEGMENTS_BY_SCRIPT                                                              \
    {                                                                                              \
        "expandable-segments", "PYTORCH_ALLOC_CONF=expandable_segments:True: %s",                  \
            framework_expands_segments, false                                                      \
    }

struct framework {
    const char *name;  /* "torchtitan" */
    const char *about; /* "a configuration of torchtitan": in messages */
    const char *(*about_file)(const struct document *document); /* ... of files of several programs,
                                                                   before `prepare`; NULL: of one */
    const struct key_row *rows;
    uint32_t row_count;
    const struct implied_setting *implied; /* setting NULL ends it */
    const struct script_setting *script;   /* setting NULL ends it */
    uint32_t systems;                      /* bits: that it can run */
    const char *versions;                  /* of the framework that a written file is for */
    const char *file_setting;  /* "zero": its value is the path of the file itself; NULL */
    const char *file_also;     /* a setting of which that file may say the same; NULL */
    const char *file_path;     /* ... and this the table of it that the setting is about */
    const char *settings_path; /* a table of settings by their own names; NULL */
    void (*prepare)(struct document *document); /* brings spellings into the rows' form; NULL */
    const char *(*renamed)(const char *path);   /* the rows' name of a spelling that was left as
                                                   another key says it; NULL: there are none */
    const char *(*other_name)(uint32_t i);      /* the i-th other spelling of a key that `prepare`
                                                   brings; NULL behind the last; NULL: none */
    enum document_syntax syntax;                /* that is written */
    const char *named; /* the key of another file that has the rest, DeepSpeed's: read before this
                          one, which fills in its "auto"; NULL */
    const struct framework *named_framework;     /* whose that file is */
    const char *(*named_from)(const char *path); /* where such a file comes from that is not there:
                                                    behind the message; NULL: nothing is said */
    bool loose; /* texts may stand for booleans and numbers, as in a launcher's environment */
};
#define KEY_ROWS(list) .rows = (list), .row_count = sizeof(list) / sizeof *(list)
#define KEY_WORDS(...)                                                                             \
    (const struct key_word[])                                                                      \
    {                                                                                              \
        __VA_ARGS__,                                                                               \
        {                                                                                          \
            NULL, NULL                                                                             \
        }                                                                                          \
    }
#define FOR_SYSTEM(name) (1U << SYSTEM_##name)
#define FOR_SYNTAX(name) (1U << SYNTAX_##name)

extern const struct framework framework_torchtitan;
extern const struct framework framework_accelerate;
extern const struct framework framework_deepspeed;
extern const struct framework framework_transformers;
extern const struct framework framework_llama_factory;
extern const struct framework framework_fsdp2;

/* The framework that a document is a configuration of; NULL: none's. */
const struct framework *framework_of(const struct document *document);

/* Its setting's value for a key's, and the other way round; NULL: there is none. A row without
 * words gives the text itself. */
const char *key_to_setting(const struct key_row *row, const char *text);
const char *setting_to_key(const struct key_row *row, const char *text);

/* ---- for rules ---- */

/* Sets a setting that a key made, unless an option did; what the chosen system has not is listed.
 */
enum err_code import_set(struct import *import, const char *setting, const char *value,
                         const struct key_row *row, const struct node *node, struct err *err);

/* The value that will hold: an option's, else what was set so far, else the default. */
const char *import_value(const struct import *import, const char *setting,
                         char buffer[NUMBER_TEXT]);

/* Whether an option of the command line, or of the file's own, says it. */
bool import_is_given(const struct import *import, const char *setting);
/* ... as what; NULL: it was not. */
const char *import_given(const struct import *im, const char *setting);

/* Whether an option says that one process is started, which trains alone. */
bool import_is_alone(const struct import *import);

/* The model as far as it is known: false where none is that can be read. The caller owns what *out
 * has: model_release. */
bool import_model(const struct import *import, struct model_config *out);

/* What `says` answers of the model, a word that outlives it; NULL: nothing, or none is known yet
 * that can be read. */
const char *import_of_model(const struct import *import,
                            const char *(*says)(const struct model_config *config));

/* How many blocks a decoder has; 0: it is none, or no model is known. */
uint32_t import_layers(const struct import *import);

/* Whether the model is a recording, which has its code, what is cast in it and what it returns, and
 * of which blocks may be units; false also where no model is known yet. */
bool import_is_recorded(const struct import *import);

/* Where a path of the file leads to: as it stands, or from the file's own folder or one above that;
 * NULL: nowhere. */
const char *import_path(struct import *import, const char *path);

/* The same of a model that is there, which transformers takes before one of the Hub: a folder with
 * a config.json, or such a file (*.json). */
const char *import_model_path(struct import *import, const char *path);

/* Whether the keys of the file that this one names have been read. */
bool import_has_named(const struct import *import);

/* Whether an option or a key has set it. */
bool import_has(const struct import *import, const char *setting);

/* What a key holds, or `otherwise` when it is absent or no integer. */
long long import_integer(const struct import *import, const char *path, long long otherwise);
const struct node *import_node(const struct import *import, const char *path);

/* The key that one no row has was meant to be: a slip of it, or its only namesake in another
 * section, which the file does not have. Lent; NULL: there is none. */
const char *import_meant(const struct import *import, const char *path);

/* The reader of a key that another row's reader looks at. */
enum err_code import_elsewhere(struct import *import, const struct key_row *row,
                               const struct node *node, struct err *err);

/* What is listed of a kind, a line each, in the import's arena; NULL: nothing. */
const char *import_lines(struct import *import, enum note_kind kind);

/* Lists a key as not planned. */
void import_list(struct import *import, const struct node *node, const char *path, const char *why);

/* Lists what the launcher's file says with a key that is not planned as overridden by this one's
 * `with` ("bf16"), unless it says that, too. */
void import_overrule(struct import *import, const char *key, const char *with);

/* Lists a key as left open: somebody else decides. */
void import_open(struct import *import, const struct node *node, const char *path, const char *why);

/* Lists a key as one that nobody knows. */
void import_unknown(struct import *import, const struct node *node, const char *path);

/* Lists a key as without effect. */
void import_idle(struct import *import, const struct node *node, const char *path);

/* ERR_INVALID: "FILE:LINE: PATH VALUE: " and what is wrong. */
enum err_code import_refuse(const struct import *import, const char *path, const struct node *node,
                            struct err *err, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));

/* The same unless the node holds one of the row's words: with those, and the nearest. */
enum err_code import_check_word(const struct import *import, const struct key_row *row,
                                const struct node *node, struct err *err);

/* Text that lives as long as the import. */
const char *import_text(struct import *import, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif

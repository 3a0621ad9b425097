/* import.h - a framework's configuration file as settings: `--from FILE`.
 *
 *     file --document_read--> keys --the framework's rows--> settings, and what is listed
 *
 * Of a job that has two, the launcher's and its trainer's, the second is read over the first
 * (import_files).
 *
 * Nothing of the file is passed over in silence: what became a setting, what shardplan cannot plan,
 * what it does not know, what has no effect on a step, what an option overrides and what the file
 * leaves open are notes. */
#ifndef SHARDPLAN_IMPORT_H
#define SHARDPLAN_IMPORT_H

#include "frameworks/document.h"
#include "settings/settings_parse.h"

#include <jansson.h>
#include <stdio.h>

struct framework;

enum note_kind {
    NOTE_TAKEN,      /* became a setting */
    NOTE_UNPLANNED,  /* it changes a step, and shardplan cannot plan it */
    NOTE_UNKNOWN,    /* no row has the key */
    NOTE_MISSPELT,   /* ... but nearly: a slip, or a key of somebody else's */
    NOTE_OVERRIDDEN, /* an option of the command line says otherwise */
    NOTE_UNSAID, /* a setting that the file leaves open: an option says it, or the default holds */
    NOTE_LAUNCHED, /* what the framework's own launcher sets beside the file */
    NOTE_IDLE,     /* no effect on memory and time of a step */
    NOTE_KINDS
};

struct note {
    enum note_kind kind;
    const char *key;   /* of the file; NULL: of a default of the framework */
    const char *value; /* as the file has it; NULL */
    uint32_t line;     /* 0: none */
    bool listed;       /* one of a list: its value tells it from the others of the key */
    const char *text;  /* the setting ("--seq 8192"), or why; may be NULL */
};

struct import { /* zero-initialise; import_free */
    const struct framework *framework;
    const char *about; /* whose file it is: "a configuration of axolotl" */
    struct document document;
    struct document named; /* the file that it names (framework.h); root NULL: none */
    bool in_named;         /* whose keys are read: they are swapped with the document's */
    struct arena arena;    /* notes, values of settings */
    struct settings *settings;
    const struct setting_given *given; /* options: they hold whatever a key says */
    uint32_t given_count, own_count;   /* of those, the first that the file itself carries */
    struct note *notes;                /* owned */
    uint32_t note_count, note_cap;
    uint64_t set[SETTINGS_ROW_WORDS]; /* a bit a row: by a key */
    struct import
        *before;         /* the launcher's file, which has been read: owned; NULL: there is none */
    bool named_lent;     /* `named` is that one's */
    const char *above;   /* of the launcher's: the path of the file that is read over it; NULL */
    bool processes_only; /* ... which says the system, and this one how many processes */
};

/* Sets what a file says, except what `given` (the command line) says: then that is listed. Texts in
 * *settings live as long as *import. ERR_INVALID: it cannot be read, or file, line, key, value and
 * what is allowed. On any return the caller owns *import: import_free. */
enum err_code import_file(struct import *import, struct settings *settings, const char *path,
                          const struct setting_given *given, uint32_t given_count, struct err *err);

/* The same of one file or of several of a job, in any order: accelerate's or DeepSpeed's beside
 * that of what it starts (TRL, axolotl, LLaMA-Factory, TrainingArguments). What the launcher's says
 * holds where the other leaves it open; where both say it, the other's holds, which is listed, or
 * is refused as transformers does. ERR_INVALID, too: they are not of one job. Is a
 * `settings_source`, with the import as its context. */
enum err_code import_files(void *import, struct settings *settings, const char *const *paths,
                           uint32_t path_count, const struct setting_given *given,
                           uint32_t given_count, struct err *err);

/* The same of a document, which the import takes. */
enum err_code import_document(struct import *import, struct settings *settings,
                              const struct document *document, const struct setting_given *given,
                              uint32_t given_count, struct err *err);

void import_free(struct import *import);

/* What is listed, for people: nothing when no file was read; what is not planned or misspelt stands
 * beside the verdict (`unplanned` and `misspelt` of the settings). */
void import_print(FILE *file, const struct import *import);

/* {"file", "framework", "taken": [{"key", "line", "value", "setting"}], "not_planned": [...],
 * "unknown": [...], ...}; NULL when no file was read. The caller owns it. */
json_t *import_json(const struct import *import);

#endif

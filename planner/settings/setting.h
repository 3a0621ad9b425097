/* setting.h - one setting: a row of the table in setting_table.c, and what can be done with a row.
 *
 * A row is all there is to say about a setting. From it come the options of every command, --help,
 * the man page and completion, the settings echoed in results, and the axes of a search. */
#ifndef SHARDPLAN_SETTING_H
#define SHARDPLAN_SETTING_H

#include "base/err.h"
#include "base/number.h"
#include "settings/command.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct settings;

enum setting_kind {
    SETTING_VALUE, /* one of the words, or one of the numbers */
    SETTING_FLAG,  /* an option without an argument; as text on, off */
    SETTING_TEXT,  /* anything: files, patterns */
    SETTING_NAME,  /* one of `names`, in any spelling */
    SETTING_LIST,  /* files; each time it is given adds one */
    SETTING_PART,  /* "i/n", i < n */
};

enum setting_group { /* headings of --help, in this order */
                     GROUP_MODEL,
                     GROUP_JOB,
                     GROUP_CLUSTER,
                     GROUP_STRATEGY,
                     GROUP_FSDP2,
                     GROUP_FSDP1,
                     GROUP_DDP,
                     GROUP_ZERO,
                     GROUP_SEARCH,
                     GROUP_RUN,
                     GROUP_OPTIMIZER,
                     GROUP_CHECKPOINT,
                     GROUP_REHEARSAL,
                     GROUP_CUDA,
                     GROUP_MEASURE,
                     GROUP_SWEEP,
                     GROUP_OUTPUT, /* what is printed and where it goes: not echoed */
                     GROUP_COUNT
};

struct setting_field { /* a member of struct settings; size 0: none */
    uint16_t offset, size;
};

struct setting_word {
    const char *text; /* NULL ends the list */
    int value;        /* of the field: an enum constant, a bool */
    bool hidden;      /* another spelling of the word with the same value: read, never written */
};

enum number_kind { NUMBER_NONE, NUMBER_INTEGER, NUMBER_REAL, NUMBER_SIZE };

struct setting_number { /* one way to write a number */
    enum number_kind kind;
    double least, most;
    const char *noun; /* in messages: "numbers of ranks 1 ... 8"; NULL: integers, numbers, sizes */
    struct setting_field field; /* uint32_t or uint64_t, float or double */
    int word;                   /* then also the value of the row's word field, if it has one */
    uint32_t rest;              /* of the number's field while a word is set */
    const char *before, *after; /* written around it: "first-", "%"; NULL: nothing */
    bool kilo;                  /* it counts tokens: "8k" is 8 x 1024 */
};

struct setting_names {                        /* (lent) what is built in */
    const char *(*at)(uint32_t i);            /* NULL beyond the last */
    const char *(*find)(const char *text);    /* the one that is meant, or NULL */
    const char *(*nearest)(const char *text); /* or NULL: none is near */
};

struct setting {
    const char *name; /* "micro-batch": typed after "--", with '_' in JSON */
    char key;         /* short option, or 0 */
    bool positional;  /* an argument, typed without its name */
    enum setting_kind kind;
    enum setting_group group;
    const char *arg;   /* what stands for the value in --help; FILE and DIR are completed as such */
    const char *help;  /* half a line, no final period */
    const char *brief; /* of what most people need: a few words; NULL: it is none of these */
    const char *initial; /* default, as it would be typed; NULL: none, or it depends */
    const char *absent;  /* ... on this; NULL */
    int unset;           /* of a word field that is not given, where there is no `initial` */
    struct setting_field field;
    const struct setting_word *words;
    bool (*offers)(int value); /* of the words; NULL: all */
    struct setting_number numbers[3];
    const struct setting_names *names;
    uint32_t commands, systems; /* bits by enum command, enum system_kind */
    const char *lacks;          /* "shards no parameters": why a system in `lacking` refuses it */
    uint32_t lacking;
    const char *with; /* says nothing where that setting is at its default: then, of a command line,
                         it is refused; a file may have it. NULL: there is none */
    bool numerics;    /* a change of it alone changes what is trained, not only how */
    const char *axis; /* values worth a search, by commas; AXIS_WORDS: its words; NULL: none */
    const char *wide; /* more of these, for a search that was allowed the setting by name; of a
                         setting without `axis`: all there are */
    bool (*pays)(const struct settings *settings); /* where its `wide` values are worth a search,
                                                      too; NULL: nowhere, unless it was allowed */
    bool spends; /* the first of its axis takes the least memory, the others more for time */
    const char *refines; /* the setting of which it says how far that goes: where that is given, a
                            search leaves this one alone, too, unless it is asked to; NULL */
    bool of_blocks;      /* it counts blocks: more than the model has are all of them */
    bool ahead; /* ... and says only how long before its use something is fetched: every value runs
                   the same work */
    bool allocator; /* says only how memory is handed out: every value asks for the same */
};

#define AXIS_WORDS "*"

/* All rows: lent, in the order of --help. */
const struct setting *setting_rows(uint32_t *count);

/* Whether a command, a system (enum system_kind) has it. */
bool setting_is_of(const struct setting *row, enum command command);
bool setting_suits(const struct setting *row, uint32_t system);
/* Whether any system that can be planned has it: if not, it is parsed to be refused, never shown.
 */
bool setting_is_offered(const struct setting *row);

/* Whether a row before it has its name, group and commands, so that systems have one option with
 * values of their own: the help of the first is that of all. */
bool setting_repeats(const struct setting *row);

enum { SETTING_SYSTEMS = 128 };

/* "fsdp2, fsdp1": the systems that have the option, in text; returns text. Empty: all of them have,
 * or those that its group is of. */
const char *setting_systems(const struct setting *row, char text[SETTING_SYSTEMS]);

/* "Job": the heading of a group. */
const char *setting_group_title(enum setting_group group);

/* ---- its value, as text ---- */

/* Sets the fields. ERR_INVALID in the one form of all messages about values: "--reshard alway:
 * allowed are default, always, never, numbers of ranks 1 ... 1000000; did you mean always?" Texts
 * are lent: they must live as long as the settings. */
enum err_code setting_write(const struct setting *row, struct settings *settings, const char *text,
                            struct err *err);

/* What setting_write would read back as the same value; NULL: not given, and there is no default.
 * The text is lent or in `buffer`. */
const char *setting_read(const struct setting *row, const struct settings *settings,
                         char buffer[NUMBER_TEXT]);

/* Whether it is given, or by default, as that text. */
bool setting_is(const struct setting *row, const struct settings *settings, const char *text);

/* setting_read for programs: a number where only numbers are allowed (sizes in bytes), true or
 * false, a string, null. The caller owns it. */
json_t *setting_json(const struct setting *row, const struct settings *settings);

/* Puts the default, or "not given". */
void setting_reset(const struct setting *row, struct settings *settings);

/* Makes the setting in `to` what it is in `from`. */
void setting_copy(const struct setting *row, const struct settings *from, struct settings *to);

/* "default, always, never, numbers of ranks 1 ... 1000000", in text; returns text. Empty: anything.
 */
const char *setting_allowed(const struct setting *row, char *text, size_t size);

/* Value i of its axis, in `text`; false beyond the last, or when it is no axis. */
bool setting_axis_value(const struct setting *row, uint32_t i, char text[NUMBER_TEXT]);
/* The same of a search that was allowed the setting: the rest of its values behind these. */
bool setting_wide_value(const struct setting *row, uint32_t i, char text[NUMBER_TEXT]);

#endif

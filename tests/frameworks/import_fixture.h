/* import_fixture.h - a configuration as settings, and what is expected of it. */
#ifndef SHARDPLAN_IMPORT_FIXTURE_H
#define SHARDPLAN_IMPORT_FIXTURE_H

#include "frameworks/framework.h"
#include "frameworks/import.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(list) (sizeof(list) / sizeof(list)[0])
#define DATA "tests/data/frameworks/"

struct fixture {
    struct import import;
    struct settings settings;
};

/* With options as on a command line: "name text name text". */
static inline enum err_code take_with(struct fixture *f, const char *path,
                                      enum document_syntax syntax, const char *text,
                                      const struct setting_given *given, uint32_t count,
                                      struct err *err)
{
    settings_defaults(&f->settings, COMMAND_PLAN);
    if (!text)
        return import_file(&f->import, &f->settings, path, given, count, err);
    struct document document;
    const enum err_code rc = document_parse(path, syntax, text, NULL, &document, err);
    if (rc == ERR_OK)
        return import_document(&f->import, &f->settings, &document, given, count, err);
    document_free(&document);
    f->import = (struct import){.framework = NULL};
    return rc;
}

static inline void take_file(struct fixture *f, const char *path)
{
    struct err err = {0};
    if (take_with(f, path, 0, NULL, NULL, 0, &err) != ERR_OK)
        fail_msg("%s", err.text);
}

static inline void take_text(struct fixture *f, enum document_syntax syntax, const char *text)
{
    struct err err = {0};
    if (take_with(f, "x", syntax, text, NULL, 0, &err) != ERR_OK)
        fail_msg("%s\n%s", text, err.text);
}

/* "gpus 8, units torchtitan" */
static inline void expect(const struct fixture *f, const char *list)
{
    char text[1024], buffer[NUMBER_TEXT], *rest;
    snprintf(text, sizeof text, "%s", list);
    for (char *pair = strtok_r(text, ",", &rest); pair; pair = strtok_r(NULL, ",", &rest)) {
        pair += strspn(pair, " ");
        char *value = pair + strcspn(pair, " ");
        *value++ = '\0';
        const char *got = settings_get(&f->settings, pair, buffer);
        if (!got || strcmp(got, value) != 0)
            fail_msg("%s: --%s is %s, not %s", f->import.document.path, pair, got ? got : "none",
                     value);
    }
}

static inline const struct note *find_note(const struct fixture *f, enum note_kind kind,
                                           const char *key)
{
    for (uint32_t i = 0; i < f->import.note_count; i++) {
        const struct note *note = &f->import.notes[i];
        if (note->kind == kind && note->key && strcmp(note->key, key) == 0)
            return note;
    }
    return NULL;
}

static inline void expect_note(const struct fixture *f, enum note_kind kind, const char *key,
                               uint32_t line, const char *text)
{
    const struct note *note = find_note(f, kind, key);
    if (!note || note->line != line || (text && (!note->text || !strstr(note->text, text))))
        fail_msg("%s is not listed so: line %u, %s", key, note ? note->line : 0,
                 note && note->text ? note->text : "-");
}

static inline bool leaves_open(const struct fixture *f, const char *setting)
{
    char option[64];
    snprintf(option, sizeof option, "(%s)", setting);
    for (uint32_t i = 0; i < f->import.note_count; i++)
        if (f->import.notes[i].kind == NOTE_UNSAID && f->import.notes[i].text &&
            strstr(f->import.notes[i].text, option))
            return true;
    return false;
}

#endif

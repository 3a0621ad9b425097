/* import.c - keys become settings, row by row; see import.h and framework.h. */
#include "frameworks/import.h"

#include "base/number.h"
#include "frameworks/framework.h"
#include "frameworks/import_parts.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* ---- values ---- */

/* A number that an integer key may hold, as decimal digits. */
static bool integer_text(struct import *im, const struct node *node, const char **out)
{
    double value;
    const enum node_kind kind = node->kind == NODE_TEXT ? node_number_kind(node->text) : node->kind;
    *out = node->text;
    if (kind == NODE_INTEGER)
        return true;
    if (kind != NODE_REAL || !number_real(node->text, &value) || value != trunc(value) ||
        fabs(value) > 1e15)
        return false;
    *out = import_text(im, "%.0f", value);
    return true;
}

/* The value of a key as text, if it is of the row's kind. */
static bool value_text(struct import *im, const struct key_row *row, const struct node *node,
                       const char **out)
{
    const bool loose = im->framework->loose && node->kind == NODE_TEXT;
    *out = node->text;
    switch (row->kind) {
    case KEY_BOOL:
        return node->kind == NODE_BOOL ||
               (im->framework->loose && node->text && node_loose_bool(node->text, out));
    case KEY_INTEGER:
        return (node->kind == NODE_INTEGER || node->kind == NODE_REAL || loose) &&
               integer_text(im, node, out);
    case KEY_REAL:
        return node->kind == NODE_INTEGER || node->kind == NODE_REAL ||
               (loose && node_number_kind(node->text) != NODE_TEXT);
    case KEY_WORD:
        if (node->kind == NODE_BOOL && strcmp(node->text, "false") == 0)
            *out = "no"; /* what YAML makes of no */
        return node->kind == NODE_TEXT || node->kind == NODE_BOOL ||
               (node->kind == NODE_INTEGER && im->framework->loose) ||
               (node->kind == NODE_TABLE && node->text); /* what is called */
    case KEY_TEXT:
        return node->kind == NODE_TEXT;
    case KEY_LIST:
        return node->kind == NODE_LIST;
    case KEY_TABLE:
        return node->kind == NODE_TABLE;
    default:
        return true;
    }
}

static const char *kind_text(const struct key_row *row)
{
    static const char *const kinds[] = {
        [KEY_WORD] = "a text",      [KEY_TEXT] = "a text",     [KEY_BOOL] = "true, false",
        [KEY_INTEGER] = "integers", [KEY_REAL] = "numbers",    [KEY_TABLE] = "a table",
        [KEY_ANY] = "anything",     [KEY_SECTION] = "a table", [KEY_LIST] = "a list",
    };
    return kinds[row->kind];
}

static enum err_code check_value(struct import *im, const struct key_row *row,
                                 const struct node *node, const char **text, struct err *err)
{
    double value;
    if (!value_text(im, row, node, text)) {
        if (row->kind == KEY_WORD && row->words && node->text)
            return import_refuse_word(im, row, node, node->text, err);
        return import_refuse(im, row->path, node, err, "it is %s; allowed are %s",
                             node_kind_name(node->kind), kind_text(row));
    }
    if (row->words && import_find_word(im, row, *text))
        return ERR_OK;
    if (row->words && (row->kind == KEY_WORD))
        return import_refuse_word(im, row, node, *text, err);
    if ((row->kind == KEY_INTEGER || row->kind == KEY_REAL) &&
        (!number_real(*text, &value) || value < row->least))
        return import_refuse(im, row->path, node, err, "allowed are %s from %g on", kind_text(row),
                             row->least);
    return ERR_OK;
}

/* ---- rows ---- */

static bool is_read_by(const struct import *im, const struct key_row *row)
{
    return (!row->systems || (row->systems >> im->settings->job.strategy.system & 1U)) &&
           (!row->syntaxes || (row->syntaxes >> im->document.syntax & 1U));
}

static enum err_code set_value(struct import *im, const struct key_row *row,
                               const struct node *node, const char *text, struct err *err)
{
    const struct key_word *word = import_find_word(im, row, text);
    const char *value = word ? word->setting : text;
    const struct setting *target = settings_find(im->settings, row->setting, NULL);
    if (!value || (target && import_is_set(im, target))) {
        if (node && value)
            import_note(im, NOTE_OVERRIDDEN, row->path, node, "another key says it");
        else if (node)
            import_note(im, row->why ? NOTE_UNPLANNED : NOTE_IDLE, row->path, node, row->why);
        return ERR_OK;
    }
    return import_set(im, row->setting, value, row, node, err);
}

/* What is below a section without rows of its own. */
static void note_section(struct import *im, const struct key_row *row, const char *path,
                         struct node *node)
{
    const enum note_kind kind = row->why ? NOTE_UNPLANNED : NOTE_IDLE;
    if (node->read)
        return;
    node->read = true;
    if (node->kind != NODE_TABLE || !node->first) {
        if (node->kind != NODE_TABLE)
            import_note(im, kind, path, node, row->why);
        return;
    }
    for (struct node *n = node->first; n; n = n->next)
        note_section(im, row, import_text(im, "%s.%s", path, n->key ? n->key : ""), n);
}

static bool same_value(const char *a, const char *b)
{
    double x, y;
    return strcasecmp(a, b) == 0 || (number_real(a, &x) && number_real(b, &y) && x == y);
}

/* Whether a key that cannot be planned changes nothing: 0.0 as 0, and 0 as false where anything may
 * stand. */
static bool is_neutral(const struct import *im, const struct key_row *row, const char *text)
{
    const bool number = row->kind == KEY_INTEGER || row->kind == KEY_REAL;
    if (row->kind == KEY_ANY && strcmp(row->neutral, "false") == 0 && same_value(text, "0"))
        return true;
    return number ? same_value(row->neutral, text)
                  : import_same_word(im->framework, row->neutral, text);
}

/* What the row's twin in the named file holds, or NULL: nothing, or "auto". */
static const struct node *twin_of(const struct import *im, const struct key_row *row)
{
    const struct node *twin =
        row->twin && import_has_named(im) ? document_find(&im->named, row->twin) : NULL;
    const bool says = twin && twin->kind != NODE_NULL && twin->text;
    return says && strcmp(twin->text, "auto") != 0 ? twin : NULL;
}

static enum err_code take_present(struct import *im, const struct key_row *row, struct node *node,
                                  struct err *err)
{
    const char *text;
    if (row->kind == KEY_SECTION) {
        note_section(im, row, row->path, node);
        return ERR_OK;
    }
    if (row->kind == KEY_TABLE)
        node->read = true; /* its keys have rows of their own */
    const bool seen = node->read && row->kind != KEY_TABLE;
    node->read = true;
    if (node->kind == NODE_OTHER && row->kind != KEY_ANY) {
        if (!seen)
            import_note(im, NOTE_UNPLANNED, row->path, node,
                        "it cannot be read without running it");
        return ERR_OK;
    }
    if (row->is_auto && node->kind == NODE_TEXT && strcmp(node->text, "auto") == 0) {
        if (im->in_named) /* who names the file fills it in */
            return ERR_OK;
        if (row->reads_auto)
            return row->read(im, row, node, err);
        if (!seen)
            import_note(im, NOTE_UNSAID, row->path, node,
                        row->why ? row->why : "whoever calls the framework decides");
        return row->filled ? set_value(im, row, NULL, row->filled, err) : ERR_OK;
    }
    TRY(check_value(im, row, node, &text, err));
    const struct node *twin = twin_of(im, row);
    if (twin && !same_value(twin->text, text) &&
        !(row->setting && import_is_given(im, row->setting)))
        return import_refuse(im, row->path, node, err, "%s says %s %s; %s refuses what differs",
                             im->named.path, row->twin, twin->text, im->framework->name);
    if (twin && !row->read && import_has(im, row->setting) && !import_is_given(im, row->setting))
        return ERR_OK; /* it was taken from there */
    if (row->read)
        return row->read(im, row, node, err);
    if (row->setting)
        return set_value(im, row, node, text, err);
    if (row->kind == KEY_TABLE || seen)
        return ERR_OK;
    const bool neutral = !row->why || (row->neutral && text && is_neutral(im, row, text));
    import_note(im, neutral ? NOTE_IDLE : NOTE_UNPLANNED, row->path, node,
                neutral ? NULL : row->why);
    return ERR_OK;
}

static enum err_code take_row(struct import *im, const struct key_row *row, struct err *err)
{
    struct node *node = document_find(&im->document, row->path);
    if (!is_read_by(im, row))
        return ERR_OK;
    if (node && node->kind != NODE_NULL)
        return take_present(im, row, node, err);
    if (node)
        node->read = true;
    if (row->read)
        return row->read(im, row, NULL, err);
    return row->initial && row->setting ? set_value(im, row, NULL, row->initial, err) : ERR_OK;
}

/* ---- behind the rows ---- */

/* Of a recorded model, what its recording has. */
static bool is_in_recording(const struct import *im, const char *setting)
{
    return (strcmp(setting, "code") == 0 || strcmp(setting, "seq") == 0) && import_is_recorded(im);
}

static enum err_code take_implied(struct import *im, struct err *err)
{
    for (const struct implied_setting *s = im->framework->implied; s && s->setting; s++) {
        const struct setting *target = settings_find(im->settings, s->setting, NULL);
        if ((s->systems && !(s->systems >> im->settings->job.strategy.system & 1U)) || !target ||
            import_is_set(im, target) || is_in_recording(im, s->setting) ||
            (s->applies && !s->applies(im)))
            continue;
        TRY(import_set(im, s->setting, s->value, NULL, NULL, err));
        if (s->source && import_has(im, s->setting) && !import_given(im, s->setting))
            import_note(im, NOTE_LAUNCHED, NULL, NULL,
                        import_text(im, "--%s %s: %s", s->setting, s->value, s->source));
    }
    return ERR_OK;
}

/* Whether there is a row for the path: for another system, or other versions. */
static const struct key_row *any_row(const struct import *im, const char *path)
{
    for (uint32_t i = 0; i < im->framework->row_count; i++)
        if (strcmp(im->framework->rows[i].path, path) == 0)
            return &im->framework->rows[i];
    return NULL;
}

static bool has_rows_below(const struct import *im, const char *path)
{
    const size_t length = strlen(path);
    for (uint32_t i = 0; i < im->framework->row_count; i++)
        if (strncmp(im->framework->rows[i].path, path, length) == 0 &&
            im->framework->rows[i].path[length] == '.')
            return true;
    return false;
}

static void note_unknown(struct import *im, const char *path, const struct node *node)
{
    const char *now = im->framework->renamed ? im->framework->renamed(path) : NULL;
    const bool said = now && import_node(im, now);
    const char *nearest = said ? NULL : import_meant(im, path);
    if (said)
        import_note(im, NOTE_OVERRIDDEN, path, node,
                    import_text(im, "its later name %s says it", now));
    else if (nearest)
        import_note(im, NOTE_MISSPELT, path, node, import_text(im, "did you mean %s?", nearest));
    else
        import_note(im, NOTE_UNKNOWN, path, node, NULL);
}

static void note_unread(struct import *im, const char *path, const struct node *table)
{
    for (const struct node *n = table->first; n; n = n->next) {
        const char *own = import_text(im, "%s%s%s", path, *path ? "." : "", n->key ? n->key : "");
        const struct key_row *row = any_row(im, own);
        if (n->meant) {
            import_note(im, NOTE_MISSPELT, own, n, n->meant);
            continue;
        }
        if (n->kind == NODE_TABLE && n->first && (n->read || !row || has_rows_below(im, own))) {
            note_unread(im, own, n);
        } else if (!n->read && row) {
            const bool version = row->syntaxes && !(row->syntaxes >> im->document.syntax & 1U);
            import_note(im, version ? NOTE_UNKNOWN : NOTE_IDLE, own, n,
                        version ? "another version of the framework has it"
                                : import_text(im, "%s does not use it",
                                              system_name(im->settings->job.strategy.system)));
        } else if (!n->read) {
            note_unknown(im, own, n);
        }
    }
}

static void note_unsaid(struct import *im)
{
    char buffer[NUMBER_TEXT];
    for (const struct script_setting *s = im->framework->script; s && s->setting; s++) {
        const struct setting *row = settings_find(im->settings, s->setting, NULL);
        if (!row || import_has(im, s->setting) || is_in_recording(im, s->setting) ||
            (im->before && import_has(im->before, s->setting)) ||
            (row->kind == SETTING_TEXT && !row->positional))
            continue;
        const char *value = setting_read(row, im->settings, buffer);
        const char *option = import_option(im, row);
        import_note(im, NOTE_UNSAID, NULL, NULL,
                    value ? import_text(im, "not in the file, assumed %s (%s)", value, option)
                          : import_text(im, "not in the file (%s)", option));
    }
}

/* ---- options that the file carries ---- */

struct option_list {
    struct setting_given at[64];
    uint32_t count;
};

/* The word at *at, which it ends behind; one with blanks stands in single quotes. "": there is
 * none. */
static const char *next_word(struct import *im, const char **at)
{
    const char *begin = *at + strspn(*at, " ");
    const bool quoted = *begin == '\'';
    const size_t length = strcspn(begin + quoted, quoted ? "'" : " ");
    *at = begin + quoted + length + (quoted && begin[quoted + length]);
    return import_text(im, "%.*s", (int)length, begin + quoted);
}

/* "gpt2 --seq 8192 --gpu h100-sxm": a command line, whose first word may be its argument, MODEL. */
static enum err_code read_options(struct import *im, struct option_list *out, struct err *err)
{
    const char *at = im->document.options;
    for (bool first = true; at && *(at += strspn(at, " ")); first = false) {
        const bool named = strncmp(at, "--", 2) == 0;
        const char *name = named ? next_word(im, &at) : "--model";
        const char *value = named || first ? next_word(im, &at) : "";
        if (!value[0] || out->count == 64)
            return err_set(err, ERR_INVALID, "%s: shardplan's own line: \"%.60s\" is no option",
                           im->document.path, named ? name : at);
        out->at[out->count++] = (struct setting_given){name + 2, value};
        if (settings_is_others(im->settings, out->at[out->count - 1].name))
            out->count--; /* what `plan` wrote down, and this command does not ask for */
    }
    return ERR_OK;
}

/* The command line last: what it says holds. */
static void join_options(struct import *im, const struct option_list *own,
                         const struct setting_given *given, uint32_t count)
{
    struct setting_given *all = arena_alloc(&im->arena, (own->count + (size_t)count) * sizeof *all);
    memcpy(all, own->at, own->count * sizeof *all);
    if (count)
        memcpy(all + own->count, given, count * sizeof *all);
    im->given = all;
    im->given_count = own->count + count;
    im->own_count = own->count;
}

static enum err_code set_own_options(struct import *im, const struct option_list *own,
                                     struct err *err)
{
    for (uint32_t i = 0; i < own->count; i++)
        if (strcmp(own->at[i].name, "strategy") != 0 &&
            settings_set(im->settings, own->at[i].name, own->at[i].text, err) != ERR_OK)
            return err_context(err, "%s: shardplan's own line", im->document.path);
    return ERR_OK;
}

/* ---- */

/* The settings themselves, by name: what `shardplan export --to fsdp2` writes. */
static enum err_code take_settings(struct import *im, const char *path, struct err *err)
{
    struct node *table = document_find(&im->document, path);
    for (int system = 1; system >= 0; system--)
        for (struct node *n = table ? table->first : NULL; n; n = n->next) {
            const struct key_row row = {.path = n->key};
            if ((strcmp(n->key, "strategy") == 0) != system)
                continue;
            if (n->kind != NODE_NULL && !settings_is_others(im->settings, n->key))
                TRY(import_set(im, n->key, n->text ? n->text : "", &row, n, err));
            n->read = true;
        }
    return ERR_OK;
}

/* Of a launcher's file that says no more than how many processes there are. */
static bool is_passed_over(const struct import *im, const struct key_row *row)
{
    return im->processes_only && !(row->setting && (strncmp(row->setting, "gpus", 4) == 0 ||
                                                    strcmp(row->setting, "strategy") == 0));
}

static enum err_code take_rows(struct import *im, struct err *err)
{
    for (uint32_t i = 0; i < im->framework->row_count; i++)
        if (!(im->in_named && im->framework->rows[i].last) &&
            !is_passed_over(im, &im->framework->rows[i]))
            TRY(take_row(im, &im->framework->rows[i], err));
    if (im->framework->settings_path)
        return take_settings(im, im->framework->settings_path, err);
    if (im->framework->file_setting && *im->document.path)
        TRY(import_set(im, im->framework->file_setting, im->document.path, NULL, NULL, err));
    return ERR_OK;
}

static void swap_named(struct import *im, const struct framework *framework)
{
    const struct document document = im->document;
    im->document = im->named;
    im->named = document;
    im->in_named = !im->in_named;
    im->framework = framework;
}

/* The path as the file has it, or around that file. */
static enum err_code read_named(struct import *im, const char *path, struct err *err)
{
    struct err first = {0};
    if (document_read(import_text(im, "%s", path), &im->named, &first) == ERR_OK)
        return ERR_OK;
    document_free(&im->named);
    const char *there = import_path(im, path);
    if (there && strcmp(there, path) != 0)
        return document_read(there, &im->named, err);
    const bool missing = !there && im->framework->named_from;
    const char *from = missing ? im->framework->named_from(path) : NULL;
    return err_set(err, first.code, "%s%s%s", first.text, from ? "; " : "", from ? from : "");
}

/* The keys of the file that this one names: what they say holds. */
static enum err_code take_named(struct import *im, struct err *err)
{
    const struct framework *own = im->framework;
    const struct node *node = own->named ? import_node(im, own->named) : NULL;
    if (!node)
        return ERR_OK;
    if (node->kind != NODE_TEXT)
        return import_refuse(im, own->named, node, err,
                             "write it to a file of its own, and give its path here");
    if (read_named(im, node->text, err) != ERR_OK)
        return err_context(err, "%s:%u: %s", im->document.path, node->line, own->named);
    if (framework_of(&im->named) != own->named_framework)
        return import_refuse(im, own->named, node, err, "it is no configuration of DeepSpeed");
    swap_named(im, own->named_framework);
    enum err_code rc = take_rows(im, err);
    if (rc == ERR_OK)
        rc = take_implied(im, err);
    swap_named(im, own);
    return rc;
}

/* Its keys that look at what the naming file fills in. */
static enum err_code take_named_last(struct import *im, struct err *err)
{
    const struct framework *own = im->framework;
    enum err_code rc = ERR_OK;
    if (!im->named.root)
        return ERR_OK;
    swap_named(im, own->named_framework);
    for (uint32_t i = 0; i < im->framework->row_count && rc == ERR_OK && !im->above; i++)
        if (im->framework->rows[i].last)
            rc = take_row(im, &im->framework->rows[i], err);
    if (rc == ERR_OK && !im->named_lent)
        note_unread(im, "", im->document.root);
    swap_named(im, own);
    return rc;
}

static enum err_code take_all(struct import *im, const struct option_list *own, struct err *err)
{
    const char *system = import_given(im, "strategy");
    if (system)
        TRY(settings_set(im->settings, "strategy", system, err));
    TRY(take_named(im, err));
    TRY(take_rows(im, err));
    TRY(take_named_last(im, err));
    if (im->framework->settings_path)
        return ERR_OK;
    TRY(take_implied(im, err));
    TRY(set_own_options(im, own, err));
    note_unread(im, "", im->document.root);
    note_unsaid(im);
    return ERR_OK;
}

/* Behind those of the launcher's file, of which this one may have overridden some. */
static const char *join_lines(struct import *im, enum note_kind kind)
{
    const char *before = im->before ? import_lines(im->before, kind) : NULL;
    const char *own = import_lines(im, kind);
    return before && own ? arena_printf(&im->arena, "%s%s", before, own) : own ? own : before;
}

enum err_code import_take(struct import *im, struct settings *settings,
                          const struct setting_given *given, uint32_t given_count, struct err *err)
{
    struct option_list own = {.count = 0};
    im->settings = settings;
    im->framework = framework_of(&im->document);
    if (im->framework)
        im->about = im->framework->about_file ? im->framework->about_file(&im->document)
                                              : im->framework->about;
    if (im->framework && im->framework->prepare)
        im->framework->prepare(&im->document);
    if (!im->framework)
        return err_set(err, ERR_INVALID,
                       "%s: it is no configuration of torchtitan, accelerate, DeepSpeed, axolotl, "
                       "LLaMA-Factory or TRL, and no TrainingArguments of transformers",
                       im->document.path);
    TRY(read_options(im, &own, err));
    join_options(im, &own, given, given_count);
    TRY(take_all(im, &own, err));
    settings->unplanned = join_lines(im, NOTE_UNPLANNED);
    settings->misspelt = join_lines(im, NOTE_MISSPELT);
    return ERR_OK;
}

enum err_code import_document(struct import *im, struct settings *settings,
                              const struct document *document, const struct setting_given *given,
                              uint32_t given_count, struct err *err)
{
    *im = (struct import){.document = *document};
    settings->unplanned = settings->misspelt = NULL;
    return import_take(im, settings, given, given_count, err);
}

enum err_code import_file(struct import *im, struct settings *settings, const char *path,
                          const struct setting_given *given, uint32_t given_count, struct err *err)
{
    struct document document;
    *im = (struct import){.framework = NULL};
    const enum err_code rc = document_read(path, &document, err);
    if (rc != ERR_OK) {
        document_free(&document);
        return rc;
    }
    return import_document(im, settings, &document, given, given_count, err);
}

void import_free(struct import *im)
{
    document_free(&im->document);
    if (!im->named_lent)
        document_free(&im->named);
    if (im->before)
        import_free(im->before);
    free(im->before);
    arena_free(&im->arena);
    free(im->notes);
    *im = (struct import){.framework = NULL};
}

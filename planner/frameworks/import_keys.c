/* import_keys.c - what a framework's rows ask and say while a file becomes settings; see
 * framework.h. */
#include "families/families.h"
#include "frameworks/import.h"

#include "base/names.h"
#include "base/number.h"
#include "frameworks/framework.h"
#include "frameworks/import_parts.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* ---- notes ---- */

/* Whether an option of that name was given, with the value that stands behind it if one does. */
static bool is_followed(const struct import *im, const char *name, const char *word)
{
    struct settings advised = *im->settings, chosen = *im->settings;
    const struct setting *row = settings_find(im->settings, name, NULL);
    const char *given = import_given(im, name);
    if (!row || !given)
        return false;
    return row->kind != SETTING_VALUE || setting_write(row, &advised, word, NULL) != ERR_OK ||
           (setting_write(row, &chosen, given, NULL) == ERR_OK && setting_is(row, &chosen, word));
}

/* The options that a note ends with, behind "; ", are what to do about it: "planned as without it;
 * --store-dtype bf16". Who gave all of them did so. Returns these as they were given; NULL: they
 * were not, or there are none. */
static const char *followed_advice(struct import *im, const char *text)
{
    const char *at = text ? strstr(text, "; --") : NULL, *said = NULL;
    for (at = at ? strstr(at, "--") : NULL; at; at = strstr(at, "--")) {
        const size_t length = strcspn(at += 2, " ,;)");
        const char *name = import_text(im, "%.*s", (int)length, at);
        const char *word = at + length + strspn(at + length, " ");
        word = import_text(im, "%.*s", (int)strcspn(word, " ,;)"), word);
        if (!is_followed(im, name, word))
            return NULL;
        said = import_text(im, "%s%s--%s %s", said ? said : "", said ? " " : "", name,
                           import_given(im, name));
    }
    return said;
}

void import_note(struct import *im, enum note_kind kind, const char *key, const struct node *node,
                 const char *text)
{
    const char *value = NULL;
    if (im->above && kind == NOTE_UNSAID)
        return; /* the file above says it, or leaves it open, too */
    const char *followed =
        kind == NOTE_UNPLANNED || kind == NOTE_UNSAID ? followed_advice(im, text) : NULL;
    if (node && node->said)
        value = node->said;
    else if (node && !(node->was && node->kind == NODE_LIST)) /* that one holds something else */
        value = node->kind == NODE_TABLE ? "{...}" : node->kind == NODE_LIST ? "[...]" : node->text;
    ARRAY_GROW(im->notes, im->note_count, im->note_cap);
    im->notes[im->note_count++] = (struct note){.kind = followed ? NOTE_OVERRIDDEN : kind,
                                                .key = node && node->was ? node->was : key,
                                                .value = value,
                                                .line = node ? node->line : 0,
                                                .listed = node && !node->key,
                                                .text = followed ? followed : text};
}

const char *import_text(struct import *im, const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return arena_strdup(&im->arena, text);
}

const char *import_option(struct import *im, const struct setting *row)
{
    return row->positional ? row->arg : import_text(im, "--%s", row->name);
}

enum err_code import_elsewhere(struct import *import, const struct key_row *row,
                               const struct node *node, struct err *err)
{
    (void)import;
    (void)row;
    (void)node;
    (void)err;
    return ERR_OK;
}

void import_list(struct import *im, const struct node *node, const char *path, const char *why)
{
    import_note(im, NOTE_UNPLANNED, path, node, why);
}

void import_open(struct import *im, const struct node *node, const char *path, const char *why)
{
    import_note(im, NOTE_UNSAID, path, node, why);
}

void import_unknown(struct import *im, const struct node *node, const char *path)
{
    import_note(im, NOTE_UNKNOWN, path, node, NULL);
}

void import_idle(struct import *im, const struct node *node, const char *path)
{
    import_note(im, NOTE_IDLE, path, node, NULL);
}

enum err_code import_refuse(const struct import *im, const char *path, const struct node *node,
                            struct err *err, const char *fmt, ...)
{
    char what[800];
    va_list args;
    va_start(args, fmt);
    vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    const char *value = node && node_said(node) ? node_said(node) : "";
    path = node && node->was ? node->was : path;
    if (node && node->line)
        return err_set(err, ERR_INVALID, "%s:%u: %s%s%.60s: %s", im->document.path, node->line,
                       path, *value ? " " : "", value, what);
    return err_set(err, ERR_INVALID, "%s: %s%s%.60s: %s", im->document.path, path,
                   *value ? " " : "", value, what);
}

/* ---- what settings hold ---- */

bool import_same_word(const struct framework *framework, const char *a, const char *b)
{
    return framework->loose ? strcasecmp(a, b) == 0 : strcmp(a, b) == 0;
}

static uint32_t setting_index(const struct setting *row)
{
    uint32_t count;
    return (uint32_t)(row - setting_rows(&count));
}

bool import_is_set(const struct import *im, const struct setting *row)
{
    const uint32_t i = setting_index(row);
    return im->set[i / 64] >> i % 64 & 1;
}

/* The last of the options with that name; given_count: there is none. */
static uint32_t given_index(const struct import *im, const char *setting)
{
    uint32_t found = im->given_count;
    for (uint32_t i = 0; i < im->given_count; i++)
        if (strcmp(im->given[i].name, setting) == 0)
            found = i;
    return found;
}

const char *import_given(const struct import *im, const char *setting)
{
    const uint32_t i = given_index(im, setting);
    return i < im->given_count ? im->given[i].text : NULL;
}

bool import_is_alone(const struct import *im)
{
    const char *gpus = import_given(im, "gpus");
    return gpus && strcmp(gpus, "1") == 0;
}

const char *import_value(const struct import *im, const char *setting, char buffer[NUMBER_TEXT])
{
    const char *given = import_given(im, setting);
    return given ? given : settings_get(im->settings, setting, buffer);
}

bool import_model(const struct import *im, struct model_config *out)
{
    char buffer[NUMBER_TEXT];
    const char *name = import_value(im, "model", buffer);
    return name && model_find(name, out, NULL) == ERR_OK; /* whoever reads the model says why not */
}

const char *import_of_model(const struct import *im,
                            const char *(*says)(const struct model_config *config))
{
    struct model_config config;
    if (!import_model(im, &config))
        return NULL;
    const char *said = says(&config);
    model_release(&config);
    return said; /* cppcheck-suppress returnDanglingLifetime ; a word that outlives it */
}

uint32_t import_layers(const struct import *im)
{
    struct model_config config;
    if (!import_model(im, &config))
        return 0;
    const uint32_t layers = !config.recording && model_is_decoder(&config) ? config.layers : 0;
    model_release(&config);
    return layers;
}

static const char *recorded_word(const struct model_config *config)
{
    return config->recording ? "recorded" : NULL;
}

bool import_is_recorded(const struct import *im)
{
    return import_of_model(im, recorded_word) != NULL;
}

bool import_is_given(const struct import *im, const char *setting)
{
    return import_given(im, setting) != NULL;
}

bool import_has_named(const struct import *im)
{
    return im->named.root && !im->in_named;
}

bool import_has(const struct import *im, const char *setting)
{
    const struct setting *row = settings_find(im->settings, setting, NULL);
    return import_given(im, setting) || (row && import_is_set(im, row));
}

/* Whether any system of the command has a setting of that name. */
static bool exists(const struct import *im, const char *setting)
{
    uint32_t count;
    const struct setting *rows = setting_rows(&count);
    for (uint32_t i = 0; i < count; i++)
        if (setting_is_of(&rows[i], im->settings->command) && strcmp(rows[i].name, setting) == 0)
            return true;
    return false;
}

/* ---- over the launcher's file ---- */

/* Where that one says the setting with a key of its own; NULL: it does not. */
static struct note *said_before(const struct import *im, const char *setting)
{
    const size_t length = strlen(setting);
    for (uint32_t i = 0; im->before && i < im->before->note_count; i++) {
        struct note *note = &im->before->notes[i];
        if (note->kind == NOTE_TAKEN && note->line &&
            strncmp(note->text + 2, setting, length) == 0 && note->text[2 + length] == ' ')
            return note;
    }
    return NULL;
}

/* Whether the launcher's holds: against what another key's default makes of this one, but not what
 * Trainer holds DeepSpeed's values to. */
static bool holds_before(const struct import *im, const struct setting *target,
                         const struct key_row *row, const struct node *node)
{
    const bool own = !row || (row->setting && strcmp(row->setting, target->name) == 0);
    const bool matched = row && row->twin && system_zero_stage(im->settings->job.strategy.system);
    return im->before && import_is_set(im->before, target) && own && !node && !matched;
}

void import_overrule(struct import *im, const char *key, const char *with)
{
    for (uint32_t i = 0; im->before && i < im->before->note_count; i++) {
        struct note *note = &im->before->notes[i];
        if (note->kind != NOTE_UNPLANNED || !note->key || strcmp(note->key, key) != 0 ||
            (note->value && strcmp(note->value, with) == 0))
            continue;
        note->kind = NOTE_OVERRIDDEN;
        note->text = import_text(im->before, "%s says %s", im->document.path, with);
    }
}

/* What both say, this file otherwise. */
static enum err_code override_before(const struct import *im, const struct setting *target,
                                     const char *value, const struct key_row *row,
                                     const struct node *node, struct err *err)
{
    struct note *note = said_before(im, target->name);
    const char *theirs = note ? note->text + 2 + strlen(target->name) + 1 : NULL;
    const char *path = row ? row->path : im->framework->name;
    const bool matched = row && row->twin && system_zero_stage(im->settings->job.strategy.system);
    if (!theirs || strcmp(theirs, value) == 0)
        return ERR_OK;
    if (strcmp(target->name, "strategy") == 0)
        return import_refuse(im, path, node, err,
                             "%s:%u says another system, %s: leave one of them out",
                             im->before->document.path, note->line, theirs);
    if (matched)
        return import_refuse(im, path, node, err,
                             "%s:%u says %s; transformers refuses what differs",
                             im->before->document.path, note->line, theirs);
    note->kind = NOTE_OVERRIDDEN;
    note->text = import_text(im->before, "%s says --%s %s", im->document.path, target->name, value);
    return ERR_OK;
}

enum err_code import_set(struct import *im, const char *setting, const char *value,
                         const struct key_row *row, const struct node *node, struct err *err)
{
    const char *path = row ? row->path : NULL;
    const struct setting *target = settings_find(im->settings, setting, NULL);
    const char *given = import_given(im, setting);
    if (!target && !node)
        return ERR_OK; /* a default of the framework that nobody asks for */
    if (!target) {
        const char *system = system_name(im->settings->job.strategy.system);
        const bool neutral = row && row->neutral && node->text &&
                             import_same_word(im->framework, row->neutral, node->text);
        if (neutral)
            import_note(im, NOTE_IDLE, path, node, NULL);
        else if (exists(im, setting))
            import_note(im, NOTE_IDLE, path, node,
                        import_text(im, "%s has no --%s", system, setting));
        else
            import_note(im, NOTE_UNPLANNED, path, node,
                        import_text(im, "this version has no --%s", setting));
        return ERR_OK;
    }
    if (given) { /* what the file's own line repeats is no override */
        const bool own = given_index(im, setting) < im->own_count;
        if (node && !own)
            import_note(im, NOTE_OVERRIDDEN, path, node,
                        import_text(im, "%s %s", import_option(im, target), given));
        return ERR_OK;
    }
    if (holds_before(im, target, row, node))
        return ERR_OK;
    if (im->processes_only && strncmp(setting, "gpus", 4) != 0) {
        if (node)
            import_note(im, NOTE_OVERRIDDEN, path, node,
                        import_text(im, "%s says the system", im->above));
        return ERR_OK;
    }
    TRY(override_before(im, target, value, row, node, err));
    if (settings_set(im->settings, setting, arena_strdup(&im->arena, value), err) != ERR_OK) {
        if (node)
            return err_context(err, "%s:%u: %s %.60s", im->document.path, node->line,
                               node->was ? node->was : path,
                               node_said(node) ? node_said(node) : "");
        return err_context(err, "%s: %s", im->document.path, path ? path : im->framework->name);
    }
    im->set[setting_index(target) / 64] |= (uint64_t)1 << setting_index(target) % 64;
    import_note(im, NOTE_TAKEN, path, node, import_text(im, "--%s %s", setting, value));
    return ERR_OK;
}

const struct node *import_node(const struct import *im, const char *path)
{
    const struct node *node = document_find(&im->document, path);
    return node && node->kind != NODE_NULL ? node : NULL;
}

long long import_integer(const struct import *im, const char *path, long long otherwise)
{
    const struct node *node = import_node(im, path);
    double value;
    if (!node || (node->kind != NODE_INTEGER && node->kind != NODE_REAL && node->kind != NODE_TEXT))
        return otherwise;
    return number_real(node->text, &value) && fabs(value) < 1e15 ? (long long)value : otherwise;
}

/* ---- what a file names ---- */

/* From the folder of the file that names it, or from one above that: trainers are started from the
 * top of what they came with. NULL: nowhere. */
static const char *path_around(struct import *im, const char *path)
{
    const char *own = strrchr(im->document.path, '/');
    const char *beside = import_text(im, "%.*s%s", own ? (int)(own - im->document.path) + 1 : 0,
                                     im->document.path, path);
    if (access(beside, F_OK) == 0)
        return beside;
    char *whole = realpath(im->document.path, NULL);
    const char *found = NULL;
    for (char *slash; !found && whole && (slash = strrchr(whole, '/')); *slash = '\0') {
        const char *there = import_text(im, "%.*s%s", (int)(slash - whole) + 1, whole, path);
        found = access(there, F_OK) == 0 ? there : NULL;
    }
    free(whole);
    return found;
}

const char *import_path(struct import *im, const char *path)
{
    if (access(path, F_OK) == 0)
        return path;
    return path[0] != '/' ? path_around(im, path) : NULL;
}

const char *import_model_path(struct import *im, const char *path)
{
    static const char inside[] = "/config.json";
    const size_t length = strlen(path);
    const char *config = import_path(im, import_text(im, "%s%s", path, inside));
    if (config)
        return import_text(im, "%.*s", (int)(strlen(config) - strlen(inside)), config);
    const bool named = length > 5 && strcmp(path + length - 5, ".json") == 0;
    return named ? import_path(im, path) : NULL;
}

/* ---- words ---- */

const struct key_word *import_find_word(const struct import *im, const struct key_row *row,
                                        const char *text)
{
    for (const struct key_word *w = row->words; w && w->key; w++)
        if (import_same_word(im->framework, w->key, text) ||
            (row->any_case && strcasecmp(w->key, text) == 0))
            return w;
    return NULL;
}

const char *key_to_setting(const struct key_row *row, const char *text)
{
    for (const struct key_word *w = row->words; text && w && w->key; w++)
        if (strcasecmp(w->key, text) == 0)
            return w->setting;
    return row->words ? NULL : text;
}

const char *setting_to_key(const struct key_row *row, const char *text)
{
    for (const struct key_word *w = row->words; w && w->key; w++)
        if (w->setting && strcmp(w->setting, text) == 0)
            return w->key;
    return row->words && row->kind != KEY_INTEGER && row->kind != KEY_REAL && row->kind != KEY_TEXT
               ? NULL
               : text;
}

enum err_code import_refuse_word(const struct import *im, const struct key_row *row,
                                 const struct node *node, const char *text, struct err *err)
{
    char allowed[512] = "";
    const char *nearest = NULL;
    size_t used = 0;
    for (const struct key_word *w = row->words; w->key && used < sizeof allowed; w++) {
        used += (size_t)snprintf(allowed + used, sizeof allowed - used, "%s%s", used ? ", " : "",
                                 w->key);
        if (names_near(text, w->key) && names_nearer(text, w->key, nearest))
            nearest = w->key;
    }
    return import_refuse(im, row->path, node, err, "allowed are %s%s%s%s", allowed,
                         nearest ? "; did you mean " : "", nearest ? nearest : "",
                         nearest ? "?" : "");
}

enum err_code import_check_word(const struct import *im, const struct key_row *row,
                                const struct node *node, struct err *err)
{
    const char *text = node->text ? node->text : "";
    return import_find_word(im, row, text) ? ERR_OK : import_refuse_word(im, row, node, text, err);
}

/* import_notes.c - what a file said, listed for people and for programs; see import.h. */
#include "frameworks/framework.h"
#include "frameworks/import.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *title, *member;
} kinds[NOTE_KINDS] = {
    [NOTE_TAKEN] = {"taken", "taken"},
    [NOTE_UNPLANNED] = {"not planned", "not_planned"},
    [NOTE_UNKNOWN] = {"not known", "unknown"},
    [NOTE_MISSPELT] = {"misspelt", "misspelt"},
    [NOTE_OVERRIDDEN] = {"overridden", "overridden"},
    [NOTE_UNSAID] = {"left open", "left_open"},
    [NOTE_LAUNCHED] = {"launcher", "launcher"},
    [NOTE_IDLE] = {"no effect", "no_effect"},
};

static uint32_t count_of(const struct import *im, enum note_kind kind)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < im->note_count; i++)
        count += im->notes[i].kind == kind;
    return count;
}

/* "training.dtype = float16 (line 12): why" */
static void print_note(FILE *file, const struct note *note)
{
    const char *between = "";
    if (note->key) {
        fprintf(file, "%s", note->key);
        if (note->value)
            fprintf(file, " = %.80s", note->value);
        if (note->line)
            fprintf(file, " (line %u)", note->line);
        between = ": ";
    }
    fprintf(file, "%s%s\n", note->text ? between : "", note->text ? note->text : "");
}

static void print_kind(FILE *file, const struct import *im, enum note_kind kind)
{
    const char *title = kinds[kind].title;
    for (uint32_t i = 0; i < im->note_count; i++)
        if (im->notes[i].kind == kind) {
            fprintf(file, "    %-13s", title);
            print_note(file, &im->notes[i]);
            title = "";
        }
}

const char *import_lines(struct import *im, enum note_kind kind)
{
    char *text = NULL;
    size_t size;
    if (count_of(im, kind) == 0)
        return NULL;
    FILE *file = open_memstream(&text, &size);
    if (!file)
        return "what is listed with --json";
    for (uint32_t i = 0; i < im->note_count; i++)
        if (im->notes[i].kind == kind) {
            fputs("    ", file);
            print_note(file, &im->notes[i]);
        }
    const char *lent = fclose(file) == 0 ? arena_strdup(&im->arena, text) : NULL;
    free(text);
    return lent;
}

/* "local_rank"; of one of a list "plugins = axolotl.integrations.swanlab.SwanLabPlugin". */
static size_t put_name(FILE *file, const struct note *note)
{
    const bool valued = note->listed && note->value;
    return (size_t)fprintf(file, "%s%s%s", note->key, valued ? " = " : "",
                           valued ? note->value : "");
}

static size_t name_length(const struct note *note)
{
    return strlen(note->key) + (note->listed && note->value ? 3 + strlen(note->value) : 0);
}

/* Names only, by commas, in lines of a page's width. */
static void print_names(FILE *file, const struct import *im, enum note_kind kind)
{
    size_t column = 0;
    bool some = false;
    for (uint32_t i = 0; i < im->note_count; i++) {
        if (im->notes[i].kind != kind || !im->notes[i].key)
            continue;
        if (!some)
            column = (size_t)fprintf(file, "    %-13s", kinds[kind].title);
        else if (column + name_length(&im->notes[i]) + 2 > 100)
            column = (size_t)fprintf(file, ",\n    %-13s", "") - 2;
        else
            column += (size_t)fprintf(file, ", ");
        column += put_name(file, &im->notes[i]);
        some = true;
    }
    if (some)
        fputc('\n', file);
}

void import_print(FILE *file, const struct import *im)
{
    if (!im->framework)
        return;
    const char *named = im->named.root && !im->named_lent ? im->named.path : NULL;
    if (im->before)
        import_print(file, im->before);
    fprintf(file, "\n  from %s, %s%s%s: %u settings\n", im->document.path, im->about,
            named ? ", and " : "", named ? named : "", count_of(im, NOTE_TAKEN));
    print_kind(file, im, NOTE_UNKNOWN);
    print_kind(file, im, NOTE_OVERRIDDEN);
    print_kind(file, im, NOTE_UNSAID);
    print_kind(file, im, NOTE_LAUNCHED);
    print_names(file, im, NOTE_IDLE);
}

static void set_text(json_t *object, const char *member, const char *text)
{
    if (text)
        json_object_set_new(object, member, json_string(text));
}

json_t *import_json(const struct import *im)
{
    if (!im->framework)
        return NULL;
    json_t *out = json_object();
    set_text(out, "file", im->document.path);
    set_text(out, "framework", im->framework->name);
    if (im->named.root)
        set_text(out, "named", im->named.path);
    if (im->before)
        json_object_set_new(out, "before", import_json(im->before));
    for (int kind = 0; kind < NOTE_KINDS; kind++)
        json_object_set_new(out, kinds[kind].member, json_array());
    for (uint32_t i = 0; i < im->note_count; i++) {
        const struct note *note = &im->notes[i];
        json_t *one = json_object();
        set_text(one, "key", note->key);
        if (note->line)
            json_object_set_new(one, "line", json_integer(note->line));
        set_text(one, "value", note->value);
        set_text(one, note->kind == NOTE_TAKEN ? "setting" : "why", note->text);
        json_array_append_new(json_object_get(out, kinds[note->kind].member), one);
    }
    return out;
}

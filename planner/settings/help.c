/* help.c - see help.h. */
#include "settings/help.h"

#include "base/arena.h"
#include "settings/setting.h"

#include <string.h>

enum { TEXT_AT = 26, BRIEF_AT = 26, WIDTH = 80, ALLOWED = 800 };

/* Words in lines up to WIDTH, from `column` on; the next lines begin at `indent`. */
static void put_words(FILE *file, const char *text, int column, int indent)
{
    bool first = true;
    for (const char *at = text; *(at += strspn(at, " "));) {
        const int length = (int)strcspn(at, " ");
        if (!first && column + 1 + length > WIDTH) {
            fprintf(file, "\n%*s", indent, "");
            column = indent;
            first = true;
        }
        column += fprintf(file, "%s%.*s", first ? "" : " ", length, at);
        first = false;
        at += length;
    }
    fputc('\n', file);
}

/* What holds where it is not given: " (default word)", or ""; a search tries axes and systems. */
static const char *without_it(const struct setting *row, enum command command, struct arena *arena)
{
    if (command == COMMAND_TUNE && (row->axis || strcmp(row->name, "strategy") == 0))
        return " (searched)";
    if (!row->initial && !row->absent)
        return "";
    return arena_printf(arena, " (default%s %s)", row->initial ? "" : ":",
                        row->initial ? row->initial : row->absent);
}

/* "word, integers 1 ... 8 (default word) [fsdp2, fsdp1]", or "" */
static const char *values_of(const struct setting *row, enum command command, struct arena *arena)
{
    char allowed[ALLOWED] = "", systems[SETTING_SYSTEMS];
    const char *of = setting_systems(row, systems);
    if (row->kind == SETTING_VALUE)
        setting_allowed(row, allowed, sizeof allowed);
    return arena_printf(arena, "%s%s%s%s%s", allowed, without_it(row, command, arena),
                        *of ? " [" : "", of, *of ? "]" : "");
}

/* What it is, and its values: behind it where a line has room for both, else below. */
static void put_text(FILE *file, const struct setting *row, enum command command,
                     struct arena *arena)
{
    const char *values = values_of(row, command, arena);
    const char *colon = row->kind == SETTING_VALUE ? ":" : "";
    const bool together =
        !*colon || strlen(row->help) + 2 + strlen(values) <= (size_t)(WIDTH - TEXT_AT);
    put_words(file, arena_printf(arena, "%s%s %s", row->help, colon, together ? values : ""),
              TEXT_AT, TEXT_AT);
    if (together)
        return;
    fprintf(file, "%*s", TEXT_AT, "");
    put_words(file, values, TEXT_AT, TEXT_AT);
}

static void put_option(FILE *file, const struct setting *row, enum command command,
                       struct arena *arena)
{
    int column = row->key ? fprintf(file, "  -%c, ", row->key) : fprintf(file, "      ");
    column += fprintf(file, "--%s%s%s", row->name, row->arg ? "=" : "", row->arg ? row->arg : "");
    if (column + 1 > TEXT_AT) {
        fputc('\n', file);
        column = 0;
    }
    fprintf(file, "%*s", TEXT_AT - column, "");
    put_text(file, row, command, arena);
}

/* An option of --help: one of those that hold for several systems, the first. */
static bool is_shown(const struct setting *row, enum command command)
{
    return setting_is_of(row, command) && !row->positional && setting_is_offered(row) &&
           !setting_repeats(row);
}

static void put_usage(FILE *file, enum command command)
{
    uint32_t count;
    const struct setting *rows = setting_rows(&count);
    fprintf(file, "Usage: %s [OPTION...]", command_about(command)->title);
    for (uint32_t i = 0; i < count; i++)
        if (setting_is_of(&rows[i], command) && rows[i].positional)
            fprintf(file, " %s", rows[i].arg);
    fputc('\n', file);
}

static void put_arguments(FILE *file, enum command command)
{
    uint32_t count;
    const struct setting *rows = setting_rows(&count);
    for (uint32_t i = 0; i < count; i++)
        if (setting_is_of(&rows[i], command) && rows[i].positional) {
            const int column = fprintf(file, "  %s", rows[i].arg);
            fprintf(file, "%*s", BRIEF_AT - column, "");
            put_words(file, rows[i].help, BRIEF_AT, BRIEF_AT);
        }
}

bool help_is_brief(enum command command)
{
    return command_about(command)->examples[0] != NULL;
}

static void put_examples(FILE *file, enum command command)
{
    const struct command_about *about = command_about(command);
    if (!help_is_brief(command))
        return;
    fputs("\nExamples:\n", file);
    for (int i = 0; i < COMMAND_EXAMPLES && about->examples[i]; i++)
        fprintf(file, "  %s\n", about->examples[i]);
}

static bool is_common(const struct setting *row, enum command command)
{
    return row->brief && help_is_brief(command);
}

/* The options of a group, or the most used of all groups, under a title. */
static void put_group(FILE *file, enum command command, int group, bool common)
{
    struct arena arena = {0};
    uint32_t count;
    bool titled = false;
    const struct setting *rows = setting_rows(&count);
    for (uint32_t i = 0; i < count; i++) {
        if (!is_shown(&rows[i], command) || common != is_common(&rows[i], command) ||
            (!common && (int)rows[i].group != group))
            continue;
        if (!titled)
            fprintf(file, "\n %s:\n",
                    common ? "Most used" : setting_group_title((enum setting_group)group));
        titled = true;
        put_option(file, &rows[i], command, &arena);
    }
    arena_free(&arena);
}

void help_write(FILE *file, enum command command)
{
    put_usage(file, command);
    put_words(file, command_about(command)->doc, 0, 0);
    put_examples(file, command);
    put_group(file, command, GROUP_COUNT, true);
    for (int group = 0; group < GROUP_COUNT; group++)
        put_group(file, command, group, false);
    fputs("\n  -?, --help              All of this\n", file);
    if (help_is_brief(command))
        fputs("  -h                      The most used options alone\n", file);
    fputs("      --usage             The options without explanations\n"
          "  -V, --version           The version\n",
          file);
}

static void put_brief(FILE *file, const struct setting *row, enum command command,
                      struct arena *arena)
{
    int column = fprintf(file, "  --%s", row->name);
    column += row->arg ? fprintf(file, " %s", row->arg) : 0;
    fprintf(file, "%*s", BRIEF_AT > column ? BRIEF_AT - column : 1, "");
    put_words(file,
              arena_printf(arena, "%s%s", row->brief,
                           row->initial ? without_it(row, command, arena) : ""),
              BRIEF_AT, BRIEF_AT);
}

void help_write_brief(FILE *file, enum command command)
{
    struct arena arena = {0};
    uint32_t count;
    const struct setting *rows = setting_rows(&count);
    const struct command_about *about = command_about(command);
    if (!help_is_brief(command)) {
        help_write(file, command);
        return;
    }
    put_usage(file, command);
    fprintf(file, "%s: %s\n", about->name, about->summary);
    put_examples(file, command);
    fputs("\nMost used:\n", file);
    put_arguments(file, command);
    for (uint32_t i = 0; i < count; i++)
        if (is_shown(&rows[i], command) && rows[i].brief)
            put_brief(file, &rows[i], command, &arena);
    arena_free(&arena);
    fprintf(file, "\nAll options: %s --help; one of them: shardplan help %s OPTION\n", about->title,
            about->name);
}

bool help_write_option(FILE *file, enum command command, const char *name)
{
    struct arena arena = {0};
    uint32_t count;
    bool found = false;
    const struct setting *rows = setting_rows(&count);
    name += strspn(name, "-");
    const bool letter = strlen(name) == 1;
    for (uint32_t i = 0; i < count; i++)
        if (is_shown(&rows[i], command) &&
            (letter ? rows[i].key == name[0] : strcmp(rows[i].name, name) == 0)) {
            put_option(file, &rows[i], command, &arena);
            found = true;
        }
    arena_free(&arena);
    return found;
}

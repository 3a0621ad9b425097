/* settings_parse.c - see settings_parse.h.
 *
 * Options are collected first and set afterwards, the system before all others: which settings
 * there are depends on it, and people write options in any order. */
#include "settings/settings_parse.h"

#include "settings/help.h"

#include <argp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_KEY = 1000, HELP_KEY = '?', BRIEF_KEY = 'h', MOST_POSITIONAL = 4, MOST_SOURCES = 3 };

static const char SYSTEM_SETTING[] = "strategy", SOURCE_SETTING[] = "from", FIX_SETTING[] = "fix";

enum { FAILED = 3 }; /* the exit status of what is not the arguments' fault */

struct parse {
    struct settings *settings;
    struct settings_list *list; /* NULL: one system only */
    settings_source *source;    /* NULL: none */
    void *context;
    struct setting_given *given; /* (given_count) in order: owned until all are read */
    uint32_t given_count, given_cap;
    const struct setting *positional[MOST_POSITIONAL];
    uint32_t positional_count, positional_given;
};

/* ---- bad usage ---- */

/* Where to read on: about one option (NULL: none in particular), or about all. */
static void put_hint(enum command command, const char *option)
{
    const struct command_about *about = command_about(command);
    if (option && command != COMMAND_RANK)
        fprintf(stderr, "`shardplan help %s %s` says what it takes.\n", about->name, option);
    else if (help_is_brief(command))
        fprintf(stderr, "`%s -h` lists the most used options, `%s --help` all of them.\n",
                about->title, about->title);
    else
        fprintf(stderr, "`%s --help` lists its options.\n", about->title);
}

_Noreturn static void refuse(const struct parse *parse, const char *option, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

_Noreturn static void refuse(const struct parse *parse, const char *option, const char *fmt, ...)
{
    const enum command command = parse->settings->command;
    va_list args;
    fflush(stdout);
    fprintf(stderr, "%s: ", command_about(command)->title);
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputc('\n', stderr);
    put_hint(command, option);
    exit(argp_err_exit_status);
}

/* ---- rows of the command ---- */

/* The first row of the command with that row's name: rows of one name are one option to argp. */
static uint32_t first_of_name(enum command command, uint32_t i)
{
    uint32_t count, first = 0;
    const struct setting *rows = setting_rows(&count);
    while (!setting_is_of(&rows[first], command) || strcmp(rows[first].name, rows[i].name) != 0)
        first++;
    return first;
}

static int key_of(enum command command, uint32_t i)
{
    uint32_t count;
    const struct setting *rows = setting_rows(&count);
    return rows[i].key ? rows[i].key : (int)(FIRST_KEY + first_of_name(command, i));
}

static const struct setting *row_of_key(enum command command, int key)
{
    uint32_t count;
    const struct setting *rows = setting_rows(&count);
    for (uint32_t i = 0; i < count; i++)
        if (setting_is_of(&rows[i], command) && !rows[i].positional && key == key_of(command, i))
            return &rows[i];
    return NULL;
}

/* ---- names that argp would call unrecognized ---- */

/* Whether an option may be written so: getopt takes any beginning of a name. *takes_value: of the
 * first that fits. */
static bool is_option(enum command command, const char *name, size_t length, bool *takes_value)
{
    static const char *const own[] = {"help", "usage", "version"};
    uint32_t count;
    const struct setting *rows = setting_rows(&count);
    *takes_value = false;
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        if (strncmp(own[i], name, length) == 0)
            return true;
    for (uint32_t i = 0; i < count; i++)
        if (setting_is_of(&rows[i], command) && !rows[i].positional &&
            strncmp(rows[i].name, name, length) == 0) {
            *takes_value = rows[i].arg != NULL;
            return true;
        }
    return false;
}

/* Whether the next argument belongs to these short options: "-qo DIR" does, "-oDIR" does not. */
static bool wants_next(enum command command, const char *letters)
{
    for (; *letters; letters++) {
        const struct setting *row = row_of_key(command, *letters);
        if (row && row->arg)
            return letters[1] == '\0';
    }
    return false;
}

/* argp says that it "requires an argument" and not which. */
static void refuse_empty(const struct parse *parse, const char *name)
{
    const enum command command = parse->settings->command;
    char allowed[800];
    uint32_t count, alike = 0;
    const struct setting *rows = setting_rows(&count), *meant = NULL;
    bool exact = false;
    for (uint32_t i = 0; i < count && !exact; i++) {
        if (!setting_is_of(&rows[i], command) || strncmp(rows[i].name, name, strlen(name)) != 0)
            continue;
        exact = strcmp(rows[i].name, name) == 0;
        alike++;
        meant = &rows[i];
    }
    if (meant && meant->arg && (exact || alike == 1)) /* of several argp says which */
        refuse(parse, meant->name, "--%s: its value is missing; %s%s%s", meant->name,
               meant->words ? "allowed are " : meant->arg, meant->words ? "" : ": ",
               meant->words ? setting_allowed(meant, allowed, sizeof allowed) : meant->help);
}

/* argp says "unrecognized option" and no more; here the message names what was meant. */
static void check_names(const struct parse *parse, const struct argp_state *state)
{
    const enum command command = parse->settings->command;
    struct settings settings = {.command = command};
    for (int i = 1; i < state->argc && strcmp(state->argv[i], "--") != 0; i++) {
        const char *arg = state->argv[i];
        const size_t length = strcspn(arg, "=");
        bool takes_value = false;
        char name[128];
        struct err err = {0};
        if (arg[0] != '-')
            continue;
        if (arg[1] != '-') {
            i += wants_next(command, arg + 1);
            continue;
        }
        if (is_option(command, arg + 2, length - 2, &takes_value)) {
            if (takes_value && !arg[length] && i + 1 == state->argc)
                refuse_empty(parse, arg + 2);
            i += takes_value && !arg[length];
            continue;
        }
        snprintf(name, sizeof name, "%.*s", (int)length, arg);
        const struct setting *row = settings_find(&settings, name, &err);
        if (row) /* an argument's name */
            err_set(&err, ERR_INVALID, "%s: `%s` takes it without its name: %s", name,
                    command_about(command)->title, row->arg);
        refuse(parse, NULL, "unrecognized option: %s", err.text);
    }
}

/* ---- argp's calls ---- */

static void take(struct parse *parse, const char *name, const char *text)
{
    ARRAY_GROW(parse->given, parse->given_count, parse->given_cap);
    parse->given[parse->given_count].name = name;
    parse->given[parse->given_count++].text = text;
}

/* What an option was given, the last time; NULL: it was not. */
static const char *given_text(const struct parse *parse, const char *name)
{
    const char *text = NULL;
    for (uint32_t i = 0; i < parse->given_count; i++)
        if (strcmp(parse->given[i].name, name) == 0)
            text = parse->given[i].text;
    return text;
}

/* "one PLAN.json and one TRACE.json": what there must be, each after `word`. */
static const char *list_positional(const struct parse *parse, const char *word, const char *between,
                                   char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t i = 0; i < parse->positional_count && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s%s", i ? between : "", word,
                                 parse->positional[i]->arg);
    return text;
}

/* Of `diff`: what is changed is one argument. */
static void refuse_more(const struct parse *parse, const char *arg)
{
    const struct setting *last = parse->positional[parse->positional_count - 1];
    const char *text = given_text(parse, last->name);
    const bool changed = text && strchr(text, '=');
    if (strchr(arg, '=') && (changed || strcmp(last->name, "b") == 0))
        refuse(parse, NULL,
               "\"%s\" is too much: changes are one argument, joined by commas%s%s%s%s", arg,
               changed ? ": " : "", changed ? text : "", changed ? "," : "",
               changed ? arg : "; B is that or another model or plan");
}

static void take_positional(struct parse *parse, const char *arg)
{
    char names[256];
    if (parse->positional_count == 0)
        refuse(parse, NULL, "\"%s\": it takes no arguments but options", arg);
    if (parse->positional_given == parse->positional_count)
        refuse_more(parse, arg);
    if (parse->positional_given == parse->positional_count)
        refuse(parse, NULL, "%s only: \"%s\" is too much",
               list_positional(parse, "one ", " and ", names, sizeof names), arg);
    take(parse, parse->positional[parse->positional_given++]->name, arg);
}

static void require_positional(const struct parse *parse)
{
    char names[256], helps[512] = "";
    size_t used = 0;
    if (parse->positional_given == parse->positional_count)
        return;
    if (parse->positional_count == 1)
        refuse(parse, NULL, "%s is missing: %s", parse->positional[0]->arg,
               parse->positional[0]->help);
    for (uint32_t i = 0; i < parse->positional_count && used < sizeof helps; i++)
        used += (size_t)snprintf(helps + used, sizeof helps - used, "%s%s: %s", i ? "; " : "",
                                 parse->positional[i]->arg, parse->positional[i]->help);
    refuse(parse, NULL, "%s are needed (%s)",
           list_positional(parse, "", " and ", names, sizeof names), helps);
}

/* All values of --from, in their order. */
static uint32_t list_sources(const struct parse *parse, const char *paths[MOST_SOURCES])
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < parse->given_count; i++) {
        if (strcmp(parse->given[i].name, SOURCE_SETTING) != 0)
            continue;
        if (count == MOST_SOURCES)
            refuse(parse, SOURCE_SETTING, "--from: at most %d files of a job", MOST_SOURCES);
        paths[count++] = parse->given[i].text;
    }
    return count;
}

static const char *source_path(const struct parse *parse)
{
    return given_text(parse, SOURCE_SETTING);
}

/* A file's errors are not about usage: no hint at --help follows. */
static void set_source(const struct parse *parse)
{
    struct err err = {0};
    const char *paths[MOST_SOURCES];
    const uint32_t count = list_sources(parse, paths);
    if (parse->source(parse->context, parse->settings, paths, count, parse->given,
                      parse->given_count, &err) == ERR_OK)
        return;
    fprintf(stderr, "%s: %s\n", command_about(parse->settings->command)->title, err.text);
    exit(argp_err_exit_status);
}

/* Whether the last word on a setting that the system does not have is its default: as if nobody had
 * said anything. */
static bool is_taken_back(const struct parse *parse, const char *name)
{
    uint32_t count;
    const struct setting *rows = setting_rows(&count);
    const char *text = given_text(parse, name);
    if (settings_find(parse->settings, name, NULL))
        return false;
    for (uint32_t i = 0; i < count; i++)
        if (setting_is_of(&rows[i], parse->settings->command) && strcmp(rows[i].name, name) == 0 &&
            rows[i].initial && text && strcmp(rows[i].initial, text) == 0)
            return true;
    return false;
}

/* ---- a search over systems, of options that only some have ---- */

/* Whether the system has the setting and what it is to be; of what is no setting there is nothing
 * to have. */
static bool takes(const struct settings *of, const char *name, const char *text)
{
    struct settings settings = *of;
    const struct setting *row = settings_find(of, name, NULL);
    return row && setting_write(row, &settings, text, NULL) == ERR_OK;
}

static bool takes_fixed(const struct settings *of, const char *text)
{
    char name[128];
    const char *value = strchr(text, '=');
    snprintf(name, sizeof name, "%.*s", value ? (int)(value - text) : 0, text);
    return value && takes(of, name, value + 1);
}

static bool takes_all(const struct parse *parse, const struct settings *of)
{
    for (uint32_t i = 0; i < parse->given_count; i++) {
        const struct setting_given *given = &parse->given[i];
        if (!is_taken_back(parse, given->name) && !takes(of, given->name, given->text))
            return false;
        if (strcmp(given->name, FIX_SETTING) == 0 && !takes_fixed(of, given->text))
            return false;
    }
    return true;
}

static bool is_system_given(const struct parse *parse)
{
    const size_t length = strlen(SYSTEM_SETTING);
    for (uint32_t i = 0; i < parse->given_count; i++) {
        const struct setting_given *given = &parse->given[i];
        if (given->text && strcmp(given->name, FIX_SETTING) == 0 &&
            strncmp(given->text, SYSTEM_SETTING, length) == 0)
            return true;
    }
    const struct setting *row = settings_find(parse->settings, SYSTEM_SETTING, NULL);
    return given_text(parse, SYSTEM_SETTING) || (row && settings_is_given(parse->settings, row));
}

/* A search that nobody gave a system begins with the first that takes all options, and leaves out
 * those that do not by itself; where none does the default says why. */
static void seek_system(const struct parse *parse)
{
    const enum system_kind first = parse->settings->job.strategy.system;
    if (parse->settings->command != COMMAND_TUNE || is_system_given(parse))
        return;
    for (uint32_t i = 0; i < SYSTEM_COUNT; i++) {
        struct settings other = *parse->settings;
        const enum system_kind system = (enum system_kind)((first + i) % SYSTEM_COUNT);
        if (i > 0)
            settings_set_system(&other, system);
        if (!system_is_planned(system) || system_is_alone(system) || !takes_all(parse, &other))
            continue;
        *parse->settings = other;
        return;
    }
}

static void set_all(const struct parse *parse)
{
    struct err err = {0};
    for (int system_first = 1; system_first >= 0; system_first--)
        for (uint32_t i = 0; i < parse->given_count; i++)
            if ((strcmp(parse->given[i].name, SYSTEM_SETTING) == 0) == system_first &&
                !is_taken_back(parse, parse->given[i].name) &&
                settings_type(parse->settings, parse->given[i].name, parse->given[i].text, &err) !=
                    ERR_OK)
                refuse(parse, parse->given[i].name, "%s", err.text);
}

/* Whether an axis of `sweep`, or a --largest, has values of the setting. */
static bool is_swept(const struct parse *parse, const char *name)
{
    const size_t length = strlen(name);
    for (uint32_t i = 0; i < parse->given_count; i++) {
        const char *text = parse->given[i].text;
        const struct setting *row = settings_find(parse->settings, parse->given[i].name, NULL);
        if (row && row->group == GROUP_SWEEP && text && strncmp(text, name, length) == 0 &&
            (text[length] == '\0' || text[length] == '='))
            return true;
    }
    return false;
}

/* Options that are of another one, which is not there. What is searched or changed may bring it,
 * and a file may say what its program does not use. */
static void check_alone(const struct parse *parse, const struct settings *settings)
{
    uint32_t count;
    const struct setting *rows = setting_rows(&count);
    if (settings->command != COMMAND_FIT && settings->command != COMMAND_PLAN &&
        settings->command != COMMAND_SWEEP)
        return;
    for (uint32_t i = 0; i < count; i++) {
        char buffer[NUMBER_TEXT];
        const struct setting *row = &rows[i];
        if (!row->with || !settings_is_given(settings, row) || is_swept(parse, row->with) ||
            settings_find(settings, row->name, NULL) != row ||
            (source_path(parse) && !given_text(parse, row->name)))
            continue;
        const struct setting *with = settings_find(settings, row->with, NULL);
        const char *value = with ? setting_read(with, settings, buffer) : NULL;
        if (value && with->initial && strcmp(value, with->initial) == 0)
            refuse(parse, row->name, "--%s: of --%s", row->name, with->name);
    }
}

/* ---- several systems ---- */

static void set_or_end(const struct parse *parse, struct settings *settings, const char *name,
                       const char *text)
{
    struct err err = {0};
    if (settings_type(settings, name, text, &err) != ERR_OK)
        refuse(parse, settings_find(settings, name, NULL) ? name : NULL, "%s", err.text);
}

/* Whether a row of that name changes what is trained. */
static bool is_numerics(enum command command, const char *name)
{
    uint32_t count;
    const struct setting *rows = setting_rows(&count);
    for (uint32_t i = 0; i < count; i++)
        if (setting_is_of(&rows[i], command) && strcmp(rows[i].name, name) == 0 && rows[i].numerics)
            return true;
    return false;
}

/* Puts what was given and is had, in front of what is `settings`' own. Returns what is not. */
static const char *set_had(const struct parse *parse, struct settings *settings,
                           const char **refused)
{
    struct settings_list *list = parse->list;
    const char *without = "";
    for (uint32_t i = 0; i < parse->given_count; i++) {
        const struct setting_given *given = &parse->given[i];
        if (strcmp(given->name, SYSTEM_SETTING) == 0)
            continue;
        struct err err = {0};
        if (settings_find(settings, given->name, &err)) {
            set_or_end(parse, settings, given->name, given->text);
            continue;
        }
        if (is_numerics(settings->command, given->name))
            *refused = arena_strdup(&list->arena, err.text);
        else
            without = arena_printf(&list->arena, "%s%s--%s", without, without[0] ? ", " : "",
                                   given->name);
    }
    return without;
}

/* A system's settings: the options that it has, then its own. `text` is one of the list, taken
 * apart. */
static void set_system(struct parse *parse, char *text)
{
    struct settings_list *list = parse->list;
    struct settings *settings = &list->of[list->count];
    char *rest = NULL;
    list->names[list->count] = arena_strdup(&list->arena, text);
    list->refused[list->count] = NULL;
    const char *system = strtok_r(text, "+", &rest);
    settings_defaults(settings, parse->settings->command);
    set_or_end(parse, settings, SYSTEM_SETTING, system ? system : "");
    list->without[list->count] = set_had(parse, settings, &list->refused[list->count]);
    for (char *own = strtok_r(NULL, "+", &rest); own; own = strtok_r(NULL, "+", &rest)) {
        char *value = strchr(own, '=');
        if (value)
            *value++ = '\0';
        set_or_end(parse, settings, own, value ? value : "on");
    }
    check_alone(parse, settings);
    list->count++;
}

/* An option that no system has is an error, in the words of the first. */
static void check_had(const struct parse *parse)
{
    struct err err = {0};
    const struct settings_list *list = parse->list;
    for (uint32_t i = 0; i < parse->given_count; i++) {
        bool had = false;
        for (uint32_t k = 0; k < list->count; k++)
            had = had || settings_find(&list->of[k], parse->given[i].name, NULL);
        if (!had && !settings_find(&list->of[0], parse->given[i].name, &err))
            refuse(parse, NULL, "%s", err.text);
    }
}

/* The row of an option in the first system that has it; there is one. */
static const struct setting *row_had(const struct settings_list *list, const char *name)
{
    const struct setting *row = NULL;
    for (uint32_t i = 0; i < list->count && !row; i++)
        row = settings_find(&list->of[i], name, NULL);
    return row;
}

/* What was given for all, arguments first; --strategy and what is about output are left out. */
static const char *text_of_given(const struct parse *parse)
{
    const char *text = "";
    struct arena *arena = &parse->list->arena;
    for (int positional = 1; positional >= 0; positional--)
        for (uint32_t i = 0; i < parse->given_count; i++) {
            const struct setting_given *given = &parse->given[i];
            const struct setting *row = row_had(parse->list, given->name);
            if (row->group == GROUP_OUTPUT || row->positional != (bool)positional ||
                strcmp(row->name, SYSTEM_SETTING) == 0)
                continue;
            text = arena_printf(arena, "%s%s%s%s%s%s", text, text[0] ? " " : "",
                                positional ? "" : "--", positional ? "" : row->name,
                                positional ? "" : " ", given->text);
        }
    return text;
}

/* Whether something stands on both sides of each comma and plus. */
static bool is_whole_list(const char *systems)
{
    static const char between[] = ",+";
    bool empty = true;
    for (const char *c = systems; *c; c++) {
        if (empty && strchr(between, *c))
            return false;
        empty = strchr(between, *c) != NULL;
    }
    return !empty;
}

static void set_list(struct parse *parse, const char *systems)
{
    char *rest = NULL, *text = arena_strdup(&parse->list->arena, systems);
    if (!is_whole_list(systems))
        refuse(parse, SYSTEM_SETTING,
               "--strategy %s: a name is missing beside a comma or a plus: systems by commas, each "
               "with settings of its own by pluses, such as ddp+autocast=bf16,fsdp2",
               systems);
    if (source_path(parse))
        refuse(parse, NULL,
               "--from %s is the configuration of one system: --strategy %s names more",
               source_path(parse), systems);
    for (text = strtok_r(text, ",", &rest); text; text = strtok_r(NULL, ",", &rest)) {
        if (parse->list->count == SETTINGS_MOST_SYSTEMS)
            refuse(parse, NULL, "--strategy: at most %d systems", SETTINGS_MOST_SYSTEMS);
        set_system(parse, text);
    }
    check_had(parse);
    parse->list->given = text_of_given(parse);
}

/* The text of --strategy where it is a list; NULL: it is not, or there may be none. */
static const char *list_of_systems(const struct parse *parse)
{
    const char *text = given_text(parse, SYSTEM_SETTING);
    return parse->list && text && strpbrk(text, ",+") ? text : NULL;
}

/* All that was given is there. */
static void set_given(struct parse *parse)
{
    const char *systems = list_of_systems(parse);
    if (!source_path(parse))
        require_positional(parse);
    if (systems) {
        set_list(parse, systems);
        return;
    }
    if (source_path(parse) && parse->source)
        set_source(parse);
    seek_system(parse);
    set_all(parse);
    check_alone(parse, parse->settings);
    if (parse->settings->model || !parse->source || !source_path(parse))
        return;
    if (parse->settings->no_preset)
        refuse(parse, NULL, "%s: %s: give MODEL", source_path(parse), parse->settings->no_preset);
    refuse(parse, NULL, "%s does not say which model it is for: give MODEL", source_path(parse));
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct parse *parse = state->input;
    const enum command command = parse->settings->command;
    const struct setting *row;
    switch (key) {
    case ARGP_KEY_INIT:
        state->name = (char *)(uintptr_t)command_about(command)->title; /* argp sets it later */
        check_names(parse, state);
        return 0;
    case ARGP_KEY_ARG:
        take_positional(parse, arg);
        return 0;
    case ARGP_KEY_END:
        set_given(parse);
        return 0;
    case HELP_KEY:
        help_write(stdout, command);
        exit(0);
    case BRIEF_KEY:
        help_write_brief(stdout, command);
        exit(0);
    default:
        row = row_of_key(command, key);
        if (!row)
            return ARGP_ERR_UNKNOWN;
        take(parse, row->name, arg ? arg : "on");
        return 0;
    }
}

/* ---- options ---- */

static void list_options(struct parse *parse, struct argp_option *options)
{
    const enum command command = parse->settings->command;
    uint32_t count, used = 0;
    const struct setting *rows = setting_rows(&count);
    for (uint32_t i = 0; i < count; i++) {
        const struct setting *row = &rows[i];
        if (!setting_is_of(row, command))
            continue;
        if (row->positional) {
            if (parse->positional_count < MOST_POSITIONAL)
                parse->positional[parse->positional_count++] = row;
            continue;
        }
        options[used++] = (struct argp_option){
            .name = row->name,
            .key = key_of(command, i),
            .arg = row->arg,
            .flags = setting_is_offered(row) ? 0 : OPTION_HIDDEN,
        };
    }
    /* argp's own --help ends lines of 79 characters with one of blanks, and sorts by names */
    options[used++] = (struct argp_option){.name = "help", .key = HELP_KEY};
    options[used] = (struct argp_option){.key = BRIEF_KEY, .flags = OPTION_HIDDEN};
}

static void parse_all(enum command command, int argc, char **argv, struct parse *parse)
{
    struct argp_option options[SETTINGS_MOST_ROWS + 3] = {{0}};
    char names[256];
    const struct command_about *about = command_about(command);
    settings_defaults(parse->settings, command);
    list_options(parse, options);
    const struct argp argp = {
        .options = options,
        .parser = parse_option,
        .args_doc = list_positional(parse, "", " ", names, sizeof names),
        .doc = about->doc,
    };
    argv[0] = (char *)(uintptr_t)about->title; /* what usage and errors call this program */
    argp_program_version =
        command == COMMAND_RANK ? "shardrun " SHARDPLAN_VERSION : "shardplan " SHARDPLAN_VERSION;
    argp_err_exit_status = 2;
    const error_t failed = argp_parse(&argp, argc, argv, 0, NULL, parse);
    if (failed != 0) { /* of what is wrong with arguments it has ended the process itself */
        fprintf(stderr, "shardplan: arguments: %s\n", strerror(failed));
        exit(FAILED);
    }
    free(parse->given);
}

void settings_parse(enum command command, int argc, char **argv, struct settings *out)
{
    settings_parse_from(command, argc, argv, NULL, NULL, out);
}

void settings_parse_from(enum command command, int argc, char **argv, settings_source *source,
                         void *context, struct settings *out)
{
    struct parse parse = {.settings = out, .source = source, .context = context};
    parse_all(command, argc, argv, &parse);
}

void settings_parse_list(enum command command, int argc, char **argv, settings_source *source,
                         void *context, struct settings_list *out)
{
    struct parse parse = {.list = out, .source = source, .context = context};
    parse.settings = &out->of[0]; /* of a list the first is made anew */
    out->count = 0;
    out->arena = (struct arena){0};
    parse_all(command, argc, argv, &parse);
    if (out->count)
        return;
    out->names[0] = system_name(out->of[0].job.strategy.system);
    out->without[0] = "";
    out->refused[0] = NULL;
    out->count = 1;
}

void settings_list_free(struct settings_list *list)
{
    arena_free(&list->arena);
    list->count = 0;
}

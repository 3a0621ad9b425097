/* settings.c - settings by name; see settings.h. */
#include "settings/settings.h"

#include "base/names.h"
#include "machine/profile.h"
#include "settings/elsewhere.h"

#include <stdio.h>
#include <string.h>

static uint32_t index_of(const struct setting *row)
{
    uint32_t count;
    return (uint32_t)(row - setting_rows(&count));
}

static void mark_given(struct settings *settings, const struct setting *row)
{
    settings->given[index_of(row) / 64] |= (uint64_t)1 << index_of(row) % 64;
}

bool settings_is_given(const struct settings *settings, const struct setting *row)
{
    return settings->given[index_of(row) / 64] >> index_of(row) % 64 & 1;
}

bool settings_is_typed(const struct settings *settings, const struct setting *row)
{
    return settings->typed[index_of(row) / 64] >> index_of(row) % 64 & 1;
}

static void note_dtype(struct settings *settings, const struct setting *row)
{
    static const struct {
        const char *name;
        enum settings_dtype bit;
    } dtypes[] = {
        {"frozen-dtype", HAS_FROZEN}, {"param-dtype", HAS_PARAM}, {"store-dtype", HAS_STORE},
        {"reduce-dtype", HAS_REDUCE}, {"autocast", HAS_AUTOCAST}, {"outputs", HAS_OUTPUTS},
    };
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        for (uint32_t system = 0; system < SYSTEM_COUNT && strcmp(row->name, dtypes[i].name) == 0;
             system++)
            if (setting_suits(row, system))
                settings->dtypes[system] |= (uint8_t)dtypes[i].bit;
}

void settings_defaults(struct settings *settings, enum command command)
{
    uint32_t count;
    const struct setting *rows = setting_rows(&count);
    *settings = (struct settings){.command = command};
    for (uint32_t i = 0; i < count; i++) {
        if (!setting_is_of(&rows[i], command))
            continue;
        setting_reset(&rows[i], settings);
        note_dtype(settings, &rows[i]);
    }
}

/* ---- names ---- */

static bool is_called(const struct setting *row, const char *name)
{
    const char *own = row->name;
    for (; *own && *name; own++, name++)
        if (*own != *name && !(*own == '-' && *name == '_'))
            return false;
    return *own == *name;
}

/* Of the rows that the chosen system has. */
static const struct setting *nearest_row(const struct settings *settings, const char *name)
{
    uint32_t count;
    const struct setting *rows = setting_rows(&count), *nearest = NULL;
    for (uint32_t i = 0; i < count; i++)
        if (setting_is_of(&rows[i], settings->command) && setting_is_offered(&rows[i]) &&
            setting_suits(&rows[i], settings->job.strategy.system) &&
            names_near(name, rows[i].name) &&
            names_nearer(name, rows[i].name, nearest ? nearest->name : NULL))
            nearest = &rows[i];
    return nearest;
}

static const struct setting *find(const struct settings *settings, const char *name,
                                  const struct setting **unsuited)
{
    uint32_t count;
    const struct setting *rows = setting_rows(&count);
    *unsuited = NULL;
    for (uint32_t i = 0; i < count; i++) {
        if (*rows[i].name != *name || !setting_is_of(&rows[i], settings->command) ||
            !is_called(&rows[i], name))
            continue;
        if (setting_suits(&rows[i], settings->job.strategy.system))
            return &rows[i];
        if (!*unsuited || rows[i].lacking >> settings->job.strategy.system & 1U)
            *unsuited = &rows[i]; /* that says why */
    }
    return NULL;
}

/* What a job is is said to `plan`: of a command that reads plans that is the way round. */
static bool goes_round(const struct setting *row, const struct command_about *about)
{
    return about->of_plan && setting_is_of(row, COMMAND_PLAN) && row->group != GROUP_OUTPUT &&
           !row->positional;
}

/* No row of the command has the name: another command's, or none's. */
static void refuse_name(const struct settings *settings, const char *name, struct err *err)
{
    uint32_t count;
    const struct command_about *about = command_about(settings->command);
    const char *title = about->title;
    const struct setting *rows = setting_rows(&count), *nearest = nearest_row(settings, name);
    for (uint32_t i = 0; i < count; i++)
        if (is_called(&rows[i], name) && goes_round(&rows[i], about)) {
            err_set(err, ERR_INVALID,
                    "--%s: `%s` does not have it; a plan does: `shardplan plan --%s%s%s -o DIR`, "
                    "then `%s`",
                    name, title, name, rows[i].arg ? " " : "", rows[i].arg ? rows[i].arg : "",
                    about->of_plan);
            return;
        }
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t other = 0; is_called(&rows[i], name) && other < COMMAND_COUNT; other++)
            if (setting_is_of(&rows[i], (enum command)other)) {
                err_set(err, ERR_INVALID, "--%s: `%s` does not have it; it belongs to `%s`", name,
                        title, command_about((enum command)other)->title);
                return;
            }
    const struct setting *unsuited;
    const char *meant, *said = elsewhere_say(name, &meant);
    if (said && (!meant || find(settings, meant, &unsuited))) {
        err_set(err, ERR_INVALID, "--%.100s: `%s` does not have it; %s%s%s%s%s", name, title,
                meant ? "did you mean --" : "", meant ? meant : "", meant ? " (" : "", said,
                meant ? ")?" : "");
        return;
    }
    err_set(err, ERR_INVALID, "--%.100s: `%s` does not have it%s%s%s", name, title,
            nearest ? "; did you mean --" : "", nearest ? nearest->name : "", nearest ? "?" : "");
}

/* Whether a system has a setting of that row's name: rows of several may share one. */
static bool has_one_like(const struct setting *like, enum command command, enum system_kind system)
{
    uint32_t count;
    const struct setting *rows = setting_rows(&count);
    for (uint32_t i = 0; i < count; i++)
        if (is_called(&rows[i], like->name) && setting_is_of(&rows[i], command) &&
            setting_suits(&rows[i], system))
            return true;
    return false;
}

/* "--reshard: ddp shards no parameters; it belongs to fsdp2". */
static void refuse_system(const struct setting *row, enum command command, enum system_kind system,
                          struct err *err)
{
    char owners[128] = "";
    size_t used = 0;
    const bool offered = setting_is_offered(row);
    for (uint32_t i = 0; i < SYSTEM_COUNT; i++)
        if (has_one_like(row, command, (enum system_kind)i) &&
            (!offered || system_is_planned((enum system_kind)i)))
            used += (size_t)snprintf(owners + used, sizeof owners - used, "%s%s", used ? ", " : "",
                                     system_name((enum system_kind)i));
    err_set(err, ERR_INVALID, "--%s: %s %s; it belongs to %s%s", row->name, system_name(system),
            row->lacks && (row->lacking >> system & 1U) ? row->lacks : "does not have it", owners,
            offered ? "" : ", which this version does not plan");
}

const struct setting *settings_find(const struct settings *settings, const char *name,
                                    struct err *err)
{
    const struct setting *unsuited;
    name += strncmp(name, "--", 2) == 0 ? 2 : 0;
    const struct setting *row = find(settings, name, &unsuited);
    if (row || !err) /* a search asks very often, and not why */
        return row;
    if (unsuited)
        refuse_system(unsuited, settings->command, settings->job.strategy.system, err);
    else
        refuse_name(settings, name, err);
    return row;
}

bool settings_is_others(const struct settings *settings, const char *name)
{
    uint32_t count;
    bool others = false;
    const struct setting *rows = setting_rows(&count);
    for (uint32_t i = 0; i < count; i++) {
        if (!is_called(&rows[i], name))
            continue;
        if (setting_is_of(&rows[i], settings->command))
            return false;
        others = true;
    }
    return others;
}

/* What was given to a system by another row of that name holds for this one, if it has a word for
 * it. False: nothing was, or it has none. */
static bool take_from_namesake(struct settings *settings, const struct setting *row)
{
    char buffer[NUMBER_TEXT];
    uint32_t count;
    const struct setting *rows = setting_rows(&count);
    for (uint32_t i = 0; i < count; i++) {
        if (&rows[i] == row || strcmp(rows[i].name, row->name) != 0 ||
            !setting_is_of(&rows[i], settings->command) || !settings_is_given(settings, &rows[i]))
            continue;
        const char *text = setting_read(&rows[i], settings, buffer);
        if (text && setting_write(row, settings, text, NULL) == ERR_OK) {
            mark_given(settings, row);
            return true;
        }
    }
    return false;
}

/* Rows of two systems may have one field: what another system left there is none of the chosen
 * one's. */
static void begin_system(struct settings *settings)
{
    uint32_t count;
    const struct setting *rows = setting_rows(&count);
    for (uint32_t i = 0; i < count; i++)
        if (rows[i].systems && setting_is_of(&rows[i], settings->command) &&
            setting_suits(&rows[i], settings->job.strategy.system) &&
            !settings_is_given(settings, &rows[i]) && !take_from_namesake(settings, &rows[i]))
            setting_reset(&rows[i], settings);
    const struct setting *gpus = settings_find(settings, "gpus", NULL); /* alone, it has one */
    if (gpus && system_is_alone(settings->job.strategy.system) &&
        !settings_is_given(settings, gpus))
        settings->job.strategy.world = 1;
}

/* Of a rack a job takes as many GPUs of each as make its own come out even: 64 of an NVL72's 72 for
 * numbers that are powers of two. Less than half of it nobody means: such a number fills no nodes,
 * and what costs a plan says so. */
static uint32_t part_of_node(uint32_t node, uint32_t world)
{
    enum { USUAL_PART = 64 };
    uint32_t part = node;
    if (node <= USUAL_PART || world % node == 0)
        return node;
    if (world <= USUAL_PART || world % USUAL_PART == 0)
        return USUAL_PART;
    while (world > node && 2 * part >= node && world % part != 0)
        part--;
    return 2 * part >= node ? part : node;
}

/* How many GPUs a node has that nobody gave follows from what kind it is. */
static void begin_node(struct settings *settings)
{
    const struct setting *row = settings_find(settings, "gpus-per-node", NULL);
    const uint32_t node = settings->gpu ? profile_node_gpus(settings->gpu, settings->node) : 0;
    if (row && node && !settings_is_given(settings, row))
        settings->gpus_per_node = part_of_node(node, settings->job.strategy.world);
}

void settings_set_system(struct settings *settings, enum system_kind system)
{
    settings->job.strategy.system = system;
    begin_system(settings);
    begin_node(settings);
}

void settings_set_gpus(struct settings *settings, uint32_t gpus)
{
    settings->job.strategy.world = gpus;
    begin_node(settings);
}

/* What follows from a setting, where it was not given itself. */
static void begin_what_follows(struct settings *settings, const struct setting *row)
{
    static const char *const of_nodes[] = {"gpu", "node", "gpus", "strategy"};
    if (strcmp(row->name, "strategy") == 0)
        begin_system(settings);
    for (size_t i = 0; i < sizeof of_nodes / sizeof *of_nodes; i++)
        if (strcmp(row->name, of_nodes[i]) == 0)
            begin_node(settings);
}

enum err_code settings_set(struct settings *settings, const char *name, const char *text,
                           struct err *err)
{
    const struct setting *row = settings_find(settings, name, err);
    if (!row)
        return err_recorded(err);
    TRY(setting_write(row, settings, text, err));
    mark_given(settings, row);
    begin_what_follows(settings, row);
    return ERR_OK;
}

enum err_code settings_type(struct settings *settings, const char *name, const char *text,
                            struct err *err)
{
    TRY(settings_set(settings, name, text, err));
    const struct setting *row = settings_find(settings, name, NULL);
    if (row)
        settings->typed[index_of(row) / 64] |= (uint64_t)1 << index_of(row) % 64;
    return ERR_OK;
}

const char *settings_get(const struct settings *settings, const char *name,
                         char buffer[NUMBER_TEXT])
{
    const struct setting *row = settings_find(settings, name, NULL);
    return row ? setting_read(row, settings, buffer) : NULL;
}

/* ---- all of them ---- */

json_t *settings_echo(const struct settings *settings)
{
    uint32_t count;
    char name[64];
    const struct setting *rows = setting_rows(&count);
    json_t *echo = json_object();
    for (uint32_t i = 0; i < count; i++) {
        if (rows[i].group == GROUP_OUTPUT || !setting_is_of(&rows[i], settings->command) ||
            !setting_suits(&rows[i], settings->job.strategy.system))
            continue;
        snprintf(name, sizeof name, "%s", rows[i].name);
        for (char *c = name; *c; c++)
            if (*c == '-')
                *c = '_';
        json_object_set_new(echo, name, setting_json(&rows[i], settings));
    }
    return echo;
}

static const char *echo_text(const json_t *value, struct arena *arena)
{
    char number[NUMBER_TEXT];
    if (json_is_string(value))
        return arena_strdup(arena, json_string_value(value));
    if (json_is_integer(value))
        return arena_printf(arena, "%lld", (long long)json_integer_value(value));
    if (json_is_real(value))
        return arena_strdup(arena, number_real_text(json_real_value(value), false, number));
    return json_is_true(value) ? "on" : json_is_false(value) ? "off" : NULL;
}

/* Whether it is so already: what is at its default was not asked for. */
static bool is_so(const struct settings *settings, const char *name, const char *text)
{
    const struct setting *row = settings_find(settings, name, NULL);
    return row && setting_is(row, settings, text);
}

enum err_code settings_take_echo(struct settings *settings, const json_t *echo, struct arena *arena,
                                 struct err *err)
{
    const char *name;
    json_t *value;
    for (int system = 1; system >= 0; system--) /* which settings there are depends on it */
        json_object_foreach((json_t *)(uintptr_t)echo, name, value)
        {
            const char *text = echo_text(value, arena);
            if (text && (strcmp(name, "strategy") == 0) == system && !is_so(settings, name, text))
                TRY(settings_set(settings, arena_strdup(arena, name), text, err));
        }
    return ERR_OK;
}

/* Whether nobody gave it, and it is as the number of GPUs makes it: that is what to type. */
static bool follows(const struct settings *settings, const struct setting *row)
{
    return strcmp(row->name, "gpus-per-node") == 0 && !settings_is_given(settings, row);
}

/* What was given, and is nothing that the other system has: that has to be taken back. */
static bool has_to_be_taken_back(const struct settings *from, const struct settings *to,
                                 const struct setting *row)
{
    return settings_is_given(from, row) && !setting_suits(row, to->job.strategy.system) &&
           row->initial && !settings_find(to, row->name, NULL);
}

const char *settings_difference(const struct settings *from, const struct settings *to, char *text,
                                size_t size)
{
    uint32_t count;
    size_t used = 0;
    const struct setting *rows = setting_rows(&count);
    text[0] = '\0';
    for (uint32_t i = 0; i < count && used < size; i++) {
        char before[NUMBER_TEXT], after[NUMBER_TEXT];
        const bool back = has_to_be_taken_back(from, to, &rows[i]);
        if (!setting_is_of(&rows[i], to->command) || follows(to, &rows[i]) ||
            (!back && !setting_suits(&rows[i], to->job.strategy.system)))
            continue;
        const char *old = setting_read(&rows[i], from, before);
        const char *new = back ? rows[i].initial : setting_read(&rows[i], to, after);
        if (new && (!old || strcmp(old, new) != 0))
            used += (size_t)snprintf(text + used, size - used, "%s--%s %s", used ? " " : "",
                                     rows[i].name, new);
    }
    return text;
}

const char *settings_given_text(const struct settings *settings, char *text, size_t size)
{
    uint32_t count;
    size_t used = 0;
    const struct setting *rows = setting_rows(&count);
    text[0] = '\0';
    for (uint32_t i = 0; i < count && used < size; i++) {
        char buffer[NUMBER_TEXT];
        const struct setting *row = &rows[i];
        if (!settings_is_given(settings, row) || !setting_is_of(row, settings->command) ||
            row->group == GROUP_OUTPUT || row->group == GROUP_SWEEP ||
            !setting_suits(row, settings->job.strategy.system))
            continue;
        const char *value = setting_read(row, settings, buffer);
        used += (size_t)snprintf(text + used, size - used, "%s%s%s%s%s", used ? " " : "",
                                 row->positional ? "" : "--", row->positional ? "" : row->name,
                                 row->positional ? "" : " ", value ? value : "");
    }
    return text;
}

const char **settings_arguments(const struct settings *settings, enum command command,
                                struct arena *arena, uint32_t *count)
{
    uint32_t row_count, used = 0;
    const struct setting *rows = setting_rows(&row_count);
    const char **arguments = arena_alloc(arena, 2 * (size_t)row_count * sizeof *arguments);
    for (uint32_t i = 0; i < row_count; i++) {
        char buffer[NUMBER_TEXT];
        if (!settings_is_given(settings, &rows[i]) || !setting_is_of(&rows[i], command) ||
            !setting_suits(&rows[i], settings->job.strategy.system))
            continue;
        const char *value = setting_read(&rows[i], settings, buffer);
        const bool flag = rows[i].kind == SETTING_FLAG;
        if (!value || (flag && strcmp(value, "on") != 0))
            continue;
        if (!rows[i].positional)
            arguments[used++] = arena_printf(arena, "--%s", rows[i].name);
        if (!flag)
            arguments[used++] = arena_strdup(arena, value);
    }
    *count = used;
    return arguments;
}

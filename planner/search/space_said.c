/* space_said.c - see space_said.h. */
#include "search/space_said.h"

#include "lower/lower.h"
#include "settings/settings_resolve.h"

#include <stdio.h>
#include <string.h>

static bool is_row(const uint64_t rows[SETTINGS_ROW_WORDS], const struct setting *row)
{
    uint32_t count;
    const size_t i = (size_t)(row - setting_rows(&count));
    return rows[i / 64] >> i % 64 & 1U;
}

/* One more of a list by commas, once: whichever systems have it. */
static void note_once(struct space *space, const char **list, const char *note)
{
    const size_t length = strlen(note);
    for (const char *at = *list; (at = strstr(at, note)) != NULL; at += length)
        if (at[length] == '\0' || at[length] == ',')
            return;
    *list = arena_printf(&space->arena, "%s%s%s", *list, **list ? ", " : "", note);
}

/* ---- systems ---- */

bool said_at_all(const struct grid *grid, const struct space_options *options, struct err *err)
{
    uint64_t rows[SETTINGS_ROW_WORDS], idle[SETTINGS_ROW_WORDS];
    char list[NUMBER_TEXT];
    return !options->refuses || options->refuses(options->context, &grid->base, rows, idle, list,
                                                 sizeof list, err) == ERR_OK;
}

enum err_code said_system(const struct space_options *options, struct settings *base,
                          struct err *err)
{
    const enum system_kind first = base->job.strategy.system;
    for (uint32_t i = 0; options->refuses && i < SYSTEM_COUNT; i++) {
        struct grid grid = {.base = *base};
        const enum system_kind system = (enum system_kind)((first + i) % SYSTEM_COUNT);
        if (!system_is_planned(system))
            continue;
        if (i > 0)
            TRY(settings_set(&grid.base, "strategy", system_name(system), err));
        if (said_at_all(&grid, options, NULL)) {
            *base = grid.base;
            break;
        }
    }
    return ERR_OK;
}

void said_note_system(struct space *space, enum system_kind system, const char *list)
{
    note_once(space, &space->unsaid,
              arena_printf(&space->arena, "--strategy %s%s%s", system_name(system),
                           list[0] ? " with " : "", list));
}

/* ---- values of an axis ---- */

enum said { SAID, IDLE, REFUSED };

static enum said is_said(const struct space_options *options, const struct settings *settings,
                         const struct setting *row)
{
    uint64_t rows[SETTINGS_ROW_WORDS], idle[SETTINGS_ROW_WORDS];
    char list[NUMBER_TEXT];
    if (options->refuses(options->context, settings, rows, idle, list, sizeof list, NULL) !=
            ERR_OK ||
        is_row(rows, row))
        return REFUSED;
    return is_row(idle, row) ? IDLE : SAID;
}

/* A value that has no effect beside the others is asked about where it has one: with each value of
 * every other axis. It can be said if it can there, or has none anywhere. */
static bool is_said_somewhere(const struct space_options *options, const struct settings *with,
                              const struct setting *row)
{
    uint32_t count;
    const struct setting *rows = setting_rows(&count);
    bool refused = false;
    for (uint32_t i = 0; i < count; i++) {
        char text[NUMBER_TEXT];
        if (&rows[i] == row || !setting_is_of(&rows[i], with->command) ||
            !setting_suits(&rows[i], with->job.strategy.system))
            continue;
        for (uint32_t v = 0; setting_axis_value(&rows[i], v, text); v++) {
            struct settings beside = *with;
            if (settings_set(&beside, rows[i].name, text, NULL) != ERR_OK)
                continue;
            const enum said said = is_said(options, &beside, row);
            if (said == SAID)
                return true;
            refused |= said == REFUSED;
        }
    }
    return !refused;
}

static bool is_lowered(const struct space_options *options, const struct settings *settings,
                       const struct graph *graph, const struct stream *stream)
{
    struct job job;
    return settings_job(settings, options->config, &job, NULL) == ERR_OK &&
           job_check(&job, NULL) == ERR_OK &&
           lower_check(graph, stream, &job.strategy, NULL) == ERR_OK;
}

/* Whether a job is possible of settings, or of them with one value of another axis: what none can
 * be made of is no lack of the reader. The other axis' values are tried on the stream of these
 * settings: most leave it as it is, and what is made of the answer is a note. */
static bool is_possible(const struct space_options *options, const struct settings *with,
                        const struct setting *row)
{
    uint32_t count;
    const struct setting *rows = setting_rows(&count);
    struct job job;
    struct graph *graph;
    struct stream *stream;
    if (settings_job(with, options->config, &job, NULL) != ERR_OK ||
        job_stream(&job, &graph, &stream, NULL) != ERR_OK)
        return false;
    bool possible = is_lowered(options, with, graph, stream);
    for (uint32_t i = 0; i < count && !possible; i++) {
        char text[NUMBER_TEXT];
        if (&rows[i] == row || !setting_is_of(&rows[i], with->command) ||
            !setting_suits(&rows[i], with->job.strategy.system) ||
            settings_is_given(with, &rows[i]))
            continue;
        for (uint32_t v = 0; !possible && setting_axis_value(&rows[i], v, text); v++) {
            struct settings beside = *with;
            possible = settings_set(&beside, rows[i].name, text, NULL) == ERR_OK &&
                       is_lowered(options, &beside, graph, stream);
        }
    }
    stream_free(stream);
    graph_free(graph);
    return possible;
}

void said_keep(struct space *space, const struct space_options *options, struct grid_axis *axis)
{
    char buffer[NUMBER_TEXT];
    const struct setting *row = axis->row;
    const char *present = axis->present < axis->count ? axis->values[axis->present].text : NULL;
    const char *left_out = "";
    uint32_t kept = 0;
    for (uint32_t i = 0; i < axis->count; i++) {
        struct grid_value *value = &axis->values[i];
        const enum said said = is_said(options, &value->with, row);
        if (said == SAID || (said == IDLE && is_said_somewhere(options, &value->with, row)))
            axis->values[kept++] = *value;
        else if (is_possible(options, &value->with, row))
            left_out = arena_printf(&space->arena, "%s%s%s", left_out, *left_out ? "|" : "",
                                    setting_read(row, &value->with, buffer));
    }
    if (*left_out)
        note_once(space, &space->unsaid,
                  arena_printf(&space->arena, "--%s %s", row->name, left_out));
    axis->count = kept;
    axis->present = axis_find(axis, present);
}

/* ---- the rest ---- */

static bool is_axis(const struct grid *grid, const struct setting *row)
{
    for (uint32_t a = 0; a < grid->axis_count; a++)
        if (grid->axes[a].row == row || grid->axes[a].follows == row)
            return true;
    return false;
}

/* Settings of the base that cannot be said, that nobody gave and that are no axes become what the
 * reader has for them. */
static void adopt(struct space *space, struct grid *grid, const struct space_options *options,
                  const struct settings *first, const uint64_t rows[SETTINGS_ROW_WORDS])
{
    uint32_t count;
    struct settings would;
    const struct setting *all = setting_rows(&count);
    if (!options->would ||
        options->would(options->context, first, &would, &space->arena, NULL) != ERR_OK)
        return;
    for (uint32_t i = 0; i < count; i++) {
        char text[NUMBER_TEXT];
        const char *value = setting_read(&all[i], &would, text);
        if (!is_row(rows, &all[i]) || settings_is_given(&grid->base, &all[i]) || !value ||
            is_axis(grid, &all[i]) ||
            settings_set(&grid->base, all[i].name, arena_strdup(&space->arena, value), NULL) !=
                ERR_OK)
            continue;
        note_once(space, &space->adopted,
                  arena_printf(&space->arena, "--%s %s", all[i].name, value));
    }
}

bool said_settled(struct space *space, struct grid *grid, const struct space_options *options,
                  char *list, size_t size, struct err *err)
{
    uint64_t rows[SETTINGS_ROW_WORDS], idle[SETTINGS_ROW_WORDS];
    struct settings first;
    if (!options->refuses)
        return true;
    for (int tried = 0; tried < 2; tried++) {
        grid_settings(grid, 0, &first);
        if (options->refuses(options->context, &first, rows, idle, list, size, err) != ERR_OK)
            return false;
        if (list[0] && tried == 0)
            adopt(space, grid, options, &first, rows);
    }
    if (list[0])
        err_set(err, ERR_UNSUPPORTED, "%s cannot say %s", options->reader, list);
    return !list[0];
}

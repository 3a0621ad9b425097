/* space.c - see space.h. */
#include "search/space_said.h"

#include "settings/settings_resolve.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char BATCH[] = "micro-batch", ACCUMULATE[] = "accumulate", SYSTEM[] = "strategy";

static bool is(const struct setting *row, const char *name)
{
    return strcmp(row->name, name) == 0;
}

/* ---- what is fixed ---- */

/* --fix NAME=VALUE is --NAME VALUE. The system first: what belongs to it depends on it. */
static enum err_code heed_fix(struct settings *s, struct arena *arena, struct err *err)
{
    for (int system_first = 1; system_first >= 0; system_first--)
        for (uint32_t i = 0; i < s->tune.fix.count; i++) {
            const char *text = s->tune.fix.at[i], *value = strchr(text, '=');
            if (!value)
                return err_set(err, ERR_INVALID, "--fix %s: it is NAME=VALUE", text);
            const char *name = arena_printf(arena, "%.*s", (int)(value - text), text);
            if ((strcmp(name, SYSTEM) == 0) != system_first)
                continue;
            const struct setting *row = settings_find(s, name, err);
            if (!row || row->group == GROUP_OUTPUT || row->group == GROUP_SEARCH)
                return row ? err_set(err, ERR_INVALID, "--fix %s: no setting of a job", text)
                           : err_context(err, "--fix %s", text);
            TRY(settings_set(s, name, value + 1, err));
        }
    return ERR_OK;
}

/* A setting that some system has: what is allowed of one need not be another's. */
static const struct setting *find_anywhere(const struct settings *s, const char *name,
                                           struct err *err)
{
    struct settings other = *s;
    for (int i = 0; i < SYSTEM_COUNT; i++) {
        other.job.strategy.system = (enum system_kind)i;
        const struct setting *row = settings_find(&other, name, NULL);
        if (row && system_is_planned((uint32_t)i))
            return row;
    }
    return settings_find(s, name, err);
}

enum { NAME_MOST = 64 };

/* The i-th name of all --allow, each of which may have several by commas; false: there is none. */
static bool allowed_name(const struct settings *s, uint32_t i, char name[NAME_MOST])
{
    for (uint32_t k = 0; k < s->tune.allow.count; k++)
        for (const char *text = s->tune.allow.at[k]; text; text = strchr(text, ',')) {
            text += *text == ',';
            if (i-- == 0) {
                snprintf(name, NAME_MOST, "%.*s", (int)strcspn(text, ","), text);
                return true;
            }
        }
    return false;
}

static enum err_code check_allow(const struct settings *s, struct err *err)
{
    char name[NAME_MOST];
    for (uint32_t i = 0; allowed_name(s, i, name); i++) {
        const struct setting *row = find_anywhere(s, name, err);
        if (!row)
            return err_context(err, "--allow %s", name);
        if (!row->axis && !row->wide && !is(row, SYSTEM))
            return err_set(err, ERR_INVALID, "--allow %s: it has no values to search", name);
    }
    return ERR_OK;
}

static bool is_allowed(const struct settings *s, const char *name)
{
    char allowed[NAME_MOST];
    for (uint32_t i = 0; allowed_name(s, i, allowed); i++) {
        const struct setting *row = find_anywhere(s, allowed, NULL);
        if (row && is(row, name))
            return true;
    }
    return false;
}

/* ---- axes ---- */

static void add_value(struct grid_axis *axis, const struct settings *with, const char *text,
                      struct arena *arena)
{
    struct grid_value *value = &axis->values[axis->count];
    value->with = *with;
    value->text = arena_strdup(arena, text);
    if (settings_set(&value->with, axis->row->name, value->text, NULL) == ERR_OK)
        axis->count++;
}

/* Of a model of so many blocks a number of more of them is that of all. */
static void clamp_value(const struct setting *row, uint32_t blocks, char text[NUMBER_TEXT])
{
    uint64_t number;
    if (row->of_blocks && blocks && number_integer(text, &number) && number > blocks)
        snprintf(text, NUMBER_TEXT, "%u", blocks);
}

/* The values of the row's axis, and the rest of them where it is allowed; in front what was asked
 * for, if it is none of these. */
static void fill_axis(struct grid_axis *axis, const struct settings *base, uint32_t blocks,
                      struct arena *arena)
{
    bool (*value)(const struct setting *, uint32_t, char[NUMBER_TEXT]) =
        is_allowed(base, axis->row->name) || !axis->row->axis ? setting_wide_value
                                                              : setting_axis_value;
    char text[NUMBER_TEXT], buffer[NUMBER_TEXT];
    const char *present = setting_read(axis->row, base, buffer);
    uint32_t count = 0;
    bool there = false;
    while (value(axis->row, count, text))
        there |= present && strcmp(text, present) == 0, count++;
    axis->values = arena_alloc(arena, (count + 1) * sizeof *axis->values);
    if (present && !there)
        add_value(axis, base, present, arena);
    for (uint32_t i = 0; value(axis->row, i, text); i++) {
        clamp_value(axis->row, blocks, text);
        if (axis_find(axis, text) == axis->count)
            add_value(axis, base, text, arena);
    }
    axis->present = axis_find(axis, present);
}

/* Micro-batches that divide a GPU's sequences of a step, each with its number of them. */
static void fill_batch(struct grid_axis *axis, const struct settings *base, uint64_t sequences,
                       struct arena *arena)
{
    char text[NUMBER_TEXT], buffer[NUMBER_TEXT];
    const bool padded = base->job.model.padding_tokens > 0; /* what pads is a micro-batch's */
    uint64_t most = padded ? base->job.model.batch : 0, value;
    for (uint32_t i = 0; setting_axis_value(axis->row, i, text); i++)
        most = number_integer(text, &value) && value > most ? value : most;
    axis->values = arena_alloc(arena, (size_t)(most + 1) * sizeof *axis->values);
    axis->follows = settings_find(base, ACCUMULATE, NULL);
    for (uint64_t batch = 1; batch <= most && batch <= sequences; batch++) {
        struct settings with = *base;
        if (sequences % batch != 0 || (padded && batch != base->job.model.batch))
            continue;
        snprintf(text, sizeof text, "%" PRIu64, sequences / batch);
        if (settings_set(&with, ACCUMULATE, arena_strdup(arena, text), NULL) != ERR_OK)
            continue;
        snprintf(text, sizeof text, "%" PRIu64, batch);
        add_value(axis, &with, text, arena);
    }
    axis->present = axis_find(axis, setting_read(axis->row, base, buffer));
}

static struct grid_axis *new_axis(struct grid *grid, const struct setting *row)
{
    struct grid_axis *axis = &grid->axes[grid->axis_count++];
    *axis = (struct grid_axis){.row = row};
    return axis;
}

/* ---- which settings are axes ---- */

/* Where there is nothing to choose, the base has the only value; false: there is none. */
static bool close_axis(struct space *space, const struct space_options *options, struct grid *grid,
                       struct grid_axis *axis)
{
    if (options->refuses)
        said_keep(space, options, axis);
    axis->usual = axis_find(axis, axis->row->initial);
    if (axis->count >= 2)
        return true;
    if (axis->count == 1 && axis->usual == 0)
        setting_copy(axis->row, &axis->values[0].with, &grid->base);
    if (axis->count == 1 && axis->usual != 0) /* a command has to give what is left */
        (void)settings_set(&grid->base, axis->row->name, axis->values[0].text, NULL);
    if (axis->count == 1 && axis->follows)
        setting_copy(axis->follows, &axis->values[0].with, &grid->base);
    grid->axis_count--;
    return axis->count == 1;
}

static bool is_inner(const struct setting *row)
{
    return row->ahead || row->allocator;
}

/* Whether the system's setting can be an axis by itself, given or not. */
static bool is_searchable(const struct settings *settings, const struct setting *row)
{
    return (row->axis || row->wide) && setting_is_of(row, settings->command) &&
           setting_suits(row, settings->job.strategy.system) && !is(row, BATCH) &&
           !is(row, ACCUMULATE) && !is(row, SYSTEM);
}

static bool refines_given(const struct settings *settings, const struct setting *row)
{
    const struct setting *of = row->refines ? settings_find(settings, row->refines, NULL) : NULL;
    return of && settings_is_given(settings, of);
}

static bool is_searched(const struct settings *settings, const struct space_options *options,
                        const struct setting *row)
{
    if (!is_searchable(settings, row))
        return false;
    if (options->saves && row->spends && setting_is(row, settings, row->initial))
        return false;
    if (is_allowed(settings, row->name))
        return true;
    if (!options->refixed && (settings_is_given(settings, row) || refines_given(settings, row)))
        return false;
    if (row->axis)
        return !row->numerics || options->numerics;
    return (options->rest || (row->pays && row->pays(settings))) && !row->numerics;
}

bool space_searches(const struct settings *settings, const struct space_options *options,
                    const struct setting *row)
{
    return is(row, BATCH) || is(row, SYSTEM) || is_searched(settings, options, row);
}

/* ---- what is left out ---- */

/* Of a search that opens nothing by itself, which setting --allow would open, and how far. */
enum trial { TRIED, OPENED, WIDER, KEPT, NONE };

static enum trial trial_of(const struct settings *settings, const struct setting *row)
{
    const struct space_options plain = {.refuses = NULL};
    if (is_searchable(settings, row)) {
        if (!is_searched(settings, &plain, row))
            return OPENED;
        return row->axis && row->wide && !is_allowed(settings, row->name) ? WIDER : TRIED;
    }
    const bool trains = row->group >= GROUP_STRATEGY && row->group <= GROUP_ZERO;
    const bool is_kept = trains && !row->axis && !row->wide && !row->numerics &&
                         row->kind != SETTING_TEXT && !is(row, SYSTEM) &&
                         setting_is_of(row, settings->command) &&
                         setting_suits(row, settings->job.strategy.system);
    return is_kept ? KEPT : NONE;
}

/* Whether a list has the name, `before` it but at the start, and `after` it but at the end. */
static bool is_listed(const char *list, const char *before, const char *name, char after)
{
    const size_t length = strlen(name), ahead = strlen(before);
    for (const char *at = list; (at = strstr(at, name)) != NULL; at += length)
        if ((at[length] == after || at[length] == '\0') &&
            (at == list || ((size_t)(at - list) >= ahead && !strncmp(at - ahead, before, ahead))))
            return true;
    return false;
}

struct untried space_untried(const struct space *space, struct arena *arena)
{
    const char *lists[NONE] = {"", "", "", ""};
    uint32_t count;
    const struct setting *rows = setting_rows(&count);
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t g = 0; g < space->grid_count; g++) {
            const enum trial trial = trial_of(&space->grids[g].base, &rows[i]);
            if (trial == NONE || is_listed(lists[trial], ", ", rows[i].name, ',') ||
                (trial != KEPT && is_listed(space->unsaid, "--", rows[i].name, ' ')))
                continue;
            lists[trial] = arena_printf(arena, "%s%s%s", lists[trial], *lists[trial] ? ", " : "",
                                        rows[i].name);
        }
    return (struct untried){lists[OPENED], lists[WIDER], lists[KEPT]};
}

/* False: an axis has no value left. */
static bool add_axes(struct space *space, struct grid *grid, const struct settings *settings,
                     const struct space_options *options, uint64_t sequences)
{
    uint32_t count;
    bool some = true;
    struct arena *arena = &space->arena;
    const struct setting *rows = setting_rows(&count);
    const struct setting *batch = settings_find(&grid->base, BATCH, NULL);
    const struct setting *accumulate = settings_find(&grid->base, ACCUMULATE, NULL);
    const bool open = options->refixed || !(settings_is_given(settings, batch) ||
                                            settings_is_given(settings, accumulate));
    if (open) {
        struct grid_axis *axis = new_axis(grid, batch);
        fill_batch(axis, &grid->base, sequences, arena);
        some &= close_axis(space, options, grid, axis);
    }
    for (int inner = 0; inner < 2; inner++) {
        if (inner)
            grid->inner = grid->axis_count;
        for (uint32_t i = 0; i < count && grid->axis_count < AXES_MOST; i++)
            if (is_inner(&rows[i]) == inner && is_searched(&grid->base, options, &rows[i])) {
                struct grid_axis *axis = new_axis(grid, &rows[i]);
                fill_axis(axis, &grid->base, space->blocks, arena);
                some &= close_axis(space, options, grid, axis);
            }
    }
    return some;
}

/* ---- grids ---- */

/* Whether a system can be searched: settings that were changed to it have what was given, by a row
 * of the same name at least, or it does that without being told (a dtype is compared as what the
 * jobs come to). */
static bool has_what_is_given(struct space *space, const struct settings *from,
                              const struct settings *to)
{
    uint32_t count;
    const struct setting *rows = setting_rows(&count);
    for (uint32_t i = 0; i < count; i++) {
        if (!settings_is_given(from, &rows[i]) || !setting_is_of(&rows[i], from->command) ||
            numerics_is_dtype(&rows[i]))
            continue;
        const struct setting *own = settings_find(to, rows[i].name, NULL);
        if (own && settings_is_given(to, own))
            continue;
        struct left_out *out = &space->left_out[space->left_out_count++];
        *out = (struct left_out){.system = to->job.strategy.system};
        snprintf(out->numerics.text, sizeof out->numerics.text, "no --%s", rows[i].name);
        return false;
    }
    return true;
}

/* Whether it trains as was asked for, or may do otherwise; if not, what it does is noted. */
static bool may_train_so(struct space *space, const struct settings *settings,
                         const struct space_options *options, const struct grid *grid)
{
    struct numerics numerics;
    bool allowed = true;
    numerics_compare(settings, &grid->base, options->config, &numerics);
    for (uint32_t i = 0; i < numerics.count; i++)
        allowed &= options->numerics || is_allowed(settings, numerics.settings[i]);
    if (!allowed)
        space->left_out[space->left_out_count++] =
            (struct left_out){grid->base.job.strategy.system, numerics};
    return allowed;
}

/* Sequences that each GPU has in a step; 0: the batch cannot be split so. */
static uint64_t sequences_of(const struct settings *s, const struct space_options *options)
{
    const uint64_t own = (uint64_t)s->job.model.batch * s->job.strategy.accumulate;
    if (!options->global_batch)
        return own;
    return options->global_batch % s->job.strategy.world
               ? 0
               : options->global_batch / s->job.strategy.world;
}

/* One of the two is given, or both: the other follows, or they must agree. */
static enum err_code settle_batch(struct settings *s, uint64_t sequences, struct arena *arena,
                                  struct err *err)
{
    char text[NUMBER_TEXT];
    const bool batch = settings_is_given(s, settings_find(s, BATCH, NULL));
    const bool accumulate = settings_is_given(s, settings_find(s, ACCUMULATE, NULL));
    const uint64_t have = batch ? s->job.model.batch : accumulate ? s->job.strategy.accumulate : 1;
    if (sequences % have || (batch && accumulate && have * s->job.strategy.accumulate != sequences))
        return err_set(err, ERR_INVALID,
                       "--global-batch: each GPU has %" PRIu64
                       " sequences a step, which --%s %" PRIu64 " does not come to",
                       sequences, batch ? BATCH : ACCUMULATE, have);
    snprintf(text, sizeof text, "%" PRIu64, sequences / have);
    const bool given = settings_is_given(s, settings_find(s, batch ? ACCUMULATE : BATCH, NULL));
    if (given || (!batch && !accumulate))
        return ERR_OK;
    return settings_set(s, batch ? ACCUMULATE : BATCH, arena_strdup(arena, text), err);
}

/* ---- what a system cannot do ---- */

/* Whether a job of these settings can be planned. */
static enum err_code check_job(const struct settings *settings, const struct model_config *config,
                               struct err *err)
{
    struct job job;
    TRY(settings_job(settings, config, &job, err));
    return job_check(&job, err);
}

/* The same of a grid: as its base, or with another value along one of its axes. Why the base is
 * none, if nothing is. */
static enum err_code check_grid(const struct grid *grid, const struct model_config *config,
                                struct err *err)
{
    const enum err_code rc = check_job(&grid->base, config, err);
    for (uint32_t a = 0; a < grid->axis_count && rc != ERR_OK; a++)
        for (uint32_t d = 0; d < grid->axes[a].count; d++) {
            struct settings settings;
            grid_settings(grid, grid_with(grid, 0, a, d), &settings);
            if (check_job(&settings, config, NULL) == ERR_OK)
                return ERR_OK;
        }
    return rc;
}

static bool can_do(struct space *space, const struct space_options *options,
                   const struct grid *grid)
{
    struct err why = {0};
    if (check_grid(grid, options->config, &why) == ERR_OK)
        return true;
    struct left_out *out = &space->left_out[space->left_out_count++];
    *out = (struct left_out){.system = grid->base.job.strategy.system};
    snprintf(out->numerics.text, sizeof out->numerics.text, "%.*s", NUMERICS_TEXT - 1, why.text);
    if (space->refused.code == ERR_OK)
        space->refused = why;
    return false;
}

/* Where nobody gave a system and its default cannot do what was given, the first that can. */
static enum err_code able_system(const struct space_options *options, struct settings *base,
                                 struct err *err)
{
    const enum system_kind first = base->job.strategy.system;
    const struct setting *row = settings_find(base, SYSTEM, NULL);
    struct settings *other = xmalloc(sizeof *other); /* large for a stack */
    enum err_code rc = ERR_OK;
    for (uint32_t i = 0; i < SYSTEM_COUNT && rc == ERR_OK; i++) {
        const enum system_kind system = (enum system_kind)((first + i) % SYSTEM_COUNT);
        if (!system_is_planned(system))
            continue;
        *other = *base;
        if (strcmp(system_name(system), row->initial) != 0) /* a command has to give it */
            rc = settings_set(other, SYSTEM, system_name(system), err);
        if (rc == ERR_OK && i > 0)
            numerics_keep(base, options->config, other);
        if (rc == ERR_OK && check_job(other, options->config, NULL) == ERR_OK) {
            *base = *other;
            break;
        }
    }
    free(other);
    return rc;
}

static enum err_code new_grid(struct space *space, const struct settings *settings,
                              const struct space_options *options, enum system_kind system,
                              struct err *err)
{
    struct grid *grid = &space->grids[space->grid_count];
    memset(grid, 0, sizeof *grid);
    grid->base = *settings;
    grid->other_system = system != settings->job.strategy.system;
    if (grid->other_system) {
        TRY(settings_set(&grid->base, SYSTEM, system_name(system), err));
        if (!has_what_is_given(space, settings, &grid->base) ||
            (system_is_alone(system) && settings->job.strategy.world > 1))
            return ERR_OK;
        numerics_keep(settings, options->config, &grid->base);
    }
    const uint64_t sequences = sequences_of(&grid->base, options);
    if (sequences == 0)
        return err_set(
            err, ERR_INVALID,
            "--global-batch %" PRIu64 " cannot be split among %u GPUs: %u sequences or a "
            "multiple of that",
            options->global_batch, settings->job.strategy.world, settings->job.strategy.world);
    if (!options->refixed)
        TRY(settle_batch(&grid->base, sequences, &space->arena, err));
    const char *before = space->unsaid;
    char list[256] = "";
    struct err why = {0};
    if (!said_at_all(grid, options, &why) || !add_axes(space, grid, settings, options, sequences) ||
        !said_settled(space, grid, options, list, sizeof list, &why)) {
        space->unsaid = before;
        said_note_system(space, system, list);
        if (space->refused.code == ERR_OK)
            space->refused = why;
        return ERR_OK;
    }
    if (grid->other_system &&
        (!can_do(space, options, grid) || !may_train_so(space, settings, options, grid))) {
        space->unsaid = before;
        return ERR_OK;
    }
    grid->outer_points = grid_count_points(grid, 0, grid->inner);
    grid->inner_points = grid_count_points(grid, grid->inner, grid->axis_count);
    space->points += grid->outer_points * grid->inner_points;
    space->grid_count++;
    return ERR_OK;
}

/* 0: it is no job as it is asked for. */
static uint32_t blocks_of(const struct settings *settings, const struct model_config *config)
{
    struct job job;
    struct graph *graph;
    if (settings_job(settings, config, &job, NULL) != ERR_OK ||
        job_graph(&job, &graph, NULL) != ERR_OK)
        return 0;
    const uint32_t blocks = graph_count_blocks(graph);
    graph_free(graph);
    return blocks;
}

enum err_code space_new(const struct settings *settings, const struct space_options *options,
                        struct space *out, struct err *err)
{
    *out = (struct space){.unsaid = "", .adopted = "", .reader = options->reader};
    struct settings *base = xmalloc(sizeof *base); /* large for a stack */
    *base = *settings;
    enum err_code rc = heed_fix(base, &out->arena, err);
    if (rc == ERR_OK)
        rc = check_allow(base, err);
    const struct setting *row = settings_find(base, SYSTEM, NULL);
    const bool given = settings_is_given(base, row);
    const bool fixed = given && !options->refixed && !is_allowed(base, SYSTEM);
    if (rc == ERR_OK && !given)
        rc = able_system(options, base, err);
    if (rc == ERR_OK && !given)
        rc = said_system(options, base, err);
    out->blocks = rc == ERR_OK ? blocks_of(base, options->config) : 0;
    out->grids = xmalloc(SYSTEM_COUNT * sizeof *out->grids);
    for (int i = 0; i < SYSTEM_COUNT && rc == ERR_OK; i++) {
        /* the one that was asked for comes first */
        const uint32_t system = (base->job.strategy.system + (uint32_t)i) % SYSTEM_COUNT;
        if (system_is_planned(system) && (i == 0 || !fixed))
            rc = new_grid(out, base, options, system, err);
    }
    free(base);
    if (rc == ERR_OK && out->grid_count == 0)
        rc = err_set(err, ERR_UNSUPPORTED, "%s", out->refused.text);
    if (rc != ERR_OK)
        space_free(out);
    return rc;
}

void space_free(struct space *space)
{
    free(space->grids);
    arena_free(&space->arena);
    *space = (struct space){.grids = NULL};
}

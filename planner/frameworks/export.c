/* export.c - see export.h. */
#include "frameworks/export.h"

#include "frameworks/import.h"
#include "settings/settings_resolve.h"

#include <stdlib.h>
#include <string.h>

static const struct framework *const targets[] = {
    &framework_fsdp2,
    &framework_torchtitan,
    &framework_accelerate,
    &framework_deepspeed,
};

enum { TARGETS = sizeof targets / sizeof targets[0] };

static bool runs(const struct framework *framework, enum system_kind system)
{
    return framework->systems >> system & 1U;
}

static enum err_code find_target(const char *name, enum system_kind system,
                                 const struct framework **out, struct err *err)
{
    char list[128] = "";
    size_t used = 0;
    *out = NULL;
    for (size_t i = 0; i < TARGETS; i++)
        if (strcmp(targets[i]->name, name) == 0)
            *out = targets[i];
    if (!*out)
        return err_set(err, ERR_INVALID,
                       "--to %.60s: allowed are fsdp2, torchtitan, accelerate, "
                       "deepspeed",
                       name);
    if (runs(*out, system))
        return ERR_OK;
    for (size_t i = 0; i < TARGETS; i++)
        if (runs(targets[i], system))
            used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "",
                                     targets[i]->name);
    return err_set(err, ERR_UNSUPPORTED, "%s does not run %s%s%s", name, system_name(system),
                   used ? "; these do: " : "", list);
}

/* ---- keys ---- */

static bool is_written(const struct framework *to, const struct settings *settings,
                       const struct key_row *row)
{
    return row->setting && !row->unwritten &&
           (!row->systems || (row->systems >> settings->job.strategy.system & 1U)) &&
           (!row->syntaxes || (row->syntaxes >> to->syntax & 1U));
}

static enum node_kind kind_of(const struct key_row *row, const char *text)
{
    if (row->kind == KEY_BOOL)
        return NODE_BOOL;
    if (row->kind == KEY_LIST)
        return NODE_LIST;
    return row->kind == KEY_INTEGER || row->kind == KEY_REAL ? node_number_kind(text) : NODE_TEXT;
}

/* The key's value for the settings, NULL: it has none. */
static const char *key_value(const struct settings *settings, const struct key_row *row,
                             char buffer[NUMBER_TEXT])
{
    const char *text = NULL;
    if (row->write)
        text = row->write(settings, buffer);
    else if ((text = settings_get(settings, row->setting, buffer)) != NULL)
        text = setting_to_key(row, text);
    const bool number = row->kind == KEY_INTEGER || row->kind == KEY_REAL;
    return text && number && node_number_kind(text) == NODE_TEXT ? NULL : text;
}

static void put_keys(struct document *document, const struct framework *to,
                     const struct settings *settings)
{
    char buffer[NUMBER_TEXT];
    for (uint32_t i = 0; i < to->row_count; i++) {
        const struct key_row *row = &to->rows[i];
        const char *text = is_written(to, settings, row) ? key_value(settings, row, buffer) : NULL;
        if (text)
            document_put(document, row->path, kind_of(row, text), text);
    }
}

/* Whether a key of the document says the setting. */
static bool is_said(const struct document *document, const struct framework *to,
                    const struct settings *settings, const char *setting)
{
    for (uint32_t i = 0; i < to->row_count; i++)
        if (is_written(to, settings, &to->rows[i]) && strcmp(to->rows[i].setting, setting) == 0 &&
            document_find(document, to->rows[i].path))
            return true;
    return false;
}

/* ---- settings that no key says ---- */

static bool is_scripts(const struct framework *to, const struct settings *settings,
                       const char *setting)
{
    for (const struct script_setting *s = to->script; s && s->setting; s++)
        if (strcmp(s->setting, setting) == 0)
            return !s->applies || s->applies(settings);
    return false;
}

/* Settings of a job that describe no training: what the file is for does not know them. */
static bool is_ours(const struct setting *row)
{
    return row->group == GROUP_CLUSTER || strcmp(row->name, "rank") == 0 ||
           strcmp(row->name, "init") == 0;
}

static bool is_compared(const struct settings *settings, const struct setting *row)
{
    return setting_is_of(row, settings->command) && row->group != GROUP_OUTPUT &&
           setting_suits(row, settings->job.strategy.system) && strcmp(row->name, "from") != 0;
}

/* What holds when nobody says it: what the framework implies, or our default; NULL: nothing. */
static const char *default_of(const struct framework *to, const struct settings *settings,
                              const struct setting *row, char buffer[NUMBER_TEXT])
{
    struct settings defaults;
    for (const struct implied_setting *s = to->implied; s && s->setting; s++)
        if (strcmp(s->setting, row->name) == 0 &&
            (!s->systems || (s->systems >> settings->job.strategy.system & 1U)))
            return s->value;
    settings_defaults(&defaults, settings->command);
    return setting_read(row, &defaults, buffer);
}

static bool same_text(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

struct carried { /* options that stand in the file beside its keys; texts in the arena */
    struct setting_given at[SETTINGS_MOST_ROWS];
    uint32_t count;
    struct arena *arena;
};

static void carry(struct carried *carried, const struct setting *row, const char *text)
{
    carried->at[carried->count++] =
        (struct setting_given){row->name, arena_strdup(carried->arena, text)};
}

/* What the script says where a key could say otherwise holds whatever our own default is. */
static bool is_scripts_own(const struct framework *to, const struct settings *settings,
                           const char *setting)
{
    for (const struct script_setting *s = to->script; s && s->setting; s++)
        if (strcmp(s->setting, setting) == 0)
            return s->instead && s->applies(settings);
    return false;
}

static void carry_script(struct carried *carried, const struct framework *to,
                         const struct settings *settings, const struct document *document)
{
    uint32_t count;
    const struct setting *rows = setting_rows(&count);
    for (uint32_t i = 0; i < count; i++) {
        char buffer[NUMBER_TEXT], other[NUMBER_TEXT];
        const char *text;
        if (!is_compared(settings, &rows[i]) ||
            !(is_ours(&rows[i]) || is_scripts(to, settings, rows[i].name)) ||
            is_said(document, to, settings, rows[i].name))
            continue;
        text = setting_read(&rows[i], settings, buffer);
        if (text && (is_scripts_own(to, settings, rows[i].name) ||
                     !same_text(text, default_of(to, settings, &rows[i], other))))
            carry(carried, &rows[i], text);
    }
}

/* ---- what comes back ---- */

/* The same settings where those without effect are at their defaults, and "same" dtypes are named.
 */
static struct settings in_effect(const struct settings *settings)
{
    struct settings out = *settings;
    struct strategy *s = &out.job.strategy;
    if (s->compute == DTYPE_COUNT)
        s->compute = s->store;
    if (s->reduce == DTYPE_COUNT)
        s->reduce = strategy_own_reduce(s, out.job.model.torch);
    if (s->accumulate == 1)
        s->accumulate_sync = false;
    if (out.job.tape.checkpointing == CHECKPOINTING_NONE)
        out.job.tape = (struct tape_options){.checkpointing = CHECKPOINTING_NONE,
                                             .compiled = out.job.tape.compiled,
                                             .whole_graphs = out.job.tape.whole_graphs};
    if (s->system != SYSTEM_ZERO3 && out.zero_offload == ZERO_OFFLOAD_ALL)
        out.zero_offload = ZERO_OFFLOAD_OPTIMIZER; /* parameters are offloaded at stage 3 alone */
    if (!out.job.tape.compiled)
        out.job.tape.whole_graphs = false;
    if (out.job.tape.compiled)
        out.job.tape.no_early_stop = false;
    return out;
}

struct refused { /* settings that the file gives otherwise */
    uint64_t rows[SETTINGS_ROW_WORDS];
    uint64_t idle[SETTINGS_ROW_WORDS]; /* ... where that has no effect */
    char list[800];
    char reasons[400];     /* of what the framework has, and nobody here plans */
    struct settings would; /* as the file gives them */
};

/* The file itself is its value, or has what another file said of it. */
static bool is_the_files(const struct framework *to, const struct settings *asked,
                         const struct setting *row)
{
    char text[NUMBER_TEXT];
    return same_text(to->file_setting, row->name) ||
           (same_text(to->file_also, row->name) && settings_get(asked, to->file_setting, text));
}

/* What the file gives otherwise is to be carried where that has no effect, else refused. */
static void compare_settings(const struct framework *to, const struct settings *asked,
                             const struct settings *got, struct carried *carried,
                             struct refused *refused)
{
    uint32_t count;
    size_t used = 0;
    const struct setting *rows = setting_rows(&count);
    const struct settings asked_effect = in_effect(asked), got_effect = in_effect(got);
    *refused = (struct refused){.list = "", .would = *asked};
    for (uint32_t i = 0; i < count; i++) {
        char a[NUMBER_TEXT], b[NUMBER_TEXT];
        if (!is_compared(asked, &rows[i]) || is_the_files(to, asked, &rows[i]))
            continue;
        const char *want = setting_read(&rows[i], asked, a), *have = setting_read(&rows[i], got, b);
        if (same_text(want, have))
            continue;
        if (want && same_text(setting_read(&rows[i], &asked_effect, a),
                              setting_read(&rows[i], &got_effect, b))) {
            carry(carried, &rows[i], setting_read(&rows[i], asked, a));
            refused->idle[i / 64] |= (uint64_t)1 << i % 64;
            continue;
        }
        refused->rows[i / 64] |= (uint64_t)1 << i % 64;
        if (have)
            (void)settings_set(&refused->would, rows[i].name, arena_strdup(carried->arena, have),
                               NULL);
        if (used < sizeof refused->list)
            used += (size_t)snprintf(refused->list + used, sizeof refused->list - used,
                                     "%s--%s %s (it would be %s)", used ? ", " : "", rows[i].name,
                                     want ? want : "not given", have ? have : "not given");
    }
}

static void mark_setting(struct refused *refused, const char *name)
{
    uint32_t count;
    const struct setting *rows = setting_rows(&count);
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(rows[i].name, name) == 0)
            refused->rows[i / 64] |= (uint64_t)1 << i % 64;
}

/* What the framework would do and nobody here plans: "--units blocks", and "KEY: ..." why. */
static void refuse_unplanned(const struct framework *to, const struct settings *asked,
                             const struct import *import, struct refused *refused)
{
    size_t used = strlen(refused->list), reasons = 0;
    for (uint32_t n = 0; n < import->note_count; n++)
        for (uint32_t i = 0; i < to->row_count && import->notes[n].kind == NOTE_UNPLANNED; i++) {
            char text[NUMBER_TEXT];
            const struct key_row *row = &to->rows[i];
            if (!is_written(to, asked, row) || !same_text(row->path, import->notes[n].key))
                continue;
            mark_setting(refused, row->setting);
            const char *value = settings_get(asked, row->setting, text);
            if (used < sizeof refused->list)
                used +=
                    (size_t)snprintf(refused->list + used, sizeof refused->list - used, "%s--%s %s",
                                     used ? ", " : "", row->setting, value ? value : "");
            if (reasons < sizeof refused->reasons)
                reasons += (size_t)snprintf(
                    refused->reasons + reasons, sizeof refused->reasons - reasons, "%s%s: %s",
                    reasons ? "; " : " (", row->path, import->notes[n].text);
        }
    if (reasons && reasons + 1 < sizeof refused->reasons)
        memcpy(refused->reasons + reasons, ")", 2);
}

static enum err_code read_back(const struct framework *to, const struct settings *settings,
                               struct document *document, struct carried *carried,
                               struct refused *refused, struct err *err)
{
    struct settings got;
    struct import import;
    settings_defaults(&got, settings->command);
    enum err_code rc = import_document(&import, &got, document, carried->at, carried->count, err);
    for (uint32_t i = 0; i < carried->count && rc == ERR_OK; i++)
        rc = settings_set(&got, carried->at[i].name, carried->at[i].text, err);
    if (rc == ERR_OK) {
        compare_settings(to, settings, &got, carried, refused);
        refuse_unplanned(to, settings, &import, refused);
    }
    import_free(&import);
    *document = (struct document){.root = NULL}; /* the import had it */
    if (rc != ERR_OK)
        return err_context(err, "%s: what would be written is not read back", to->name);
    return ERR_OK;
}

/* ---- the file ---- */

static void list_script(struct exported *out, const struct framework *to,
                        const struct settings *settings, const struct document *document)
{
    uint32_t count = 0;
    for (const struct script_setting *s = to->script; s && s->setting; s++)
        count++;
    out->script = arena_alloc(&out->arena, (count + 1) * sizeof *out->script);
    for (const struct script_setting *s = to->script; s && s->setting; s++) {
        char buffer[NUMBER_TEXT];
        const char *value = settings_get(settings, s->setting, buffer);
        const char *hole = strstr(s->where, "%s");
        if (!value || (s->applies && !s->applies(settings)) ||
            (document && is_said(document, to, settings, s->setting)))
            continue;
        out->script[out->script_count++] = arena_printf(
            &out->arena, "%.*s%s%s", (int)(hole - s->where), s->where, value, hole + 2);
    }
}

/* "gpt2 --gpu h100-sxm --profile 'my profile.json'": as a command line has them. */
static const char *options_text(const struct settings *settings, const struct carried *carried)
{
    const char *text = "";
    for (uint32_t i = 0; i < carried->count; i++) {
        const char *name = carried->at[i].name;
        const struct setting *row = settings_find(settings, name, NULL);
        const bool named = !row || !row->positional;
        const char *quote = strchr(carried->at[i].text, ' ') ? "'" : "";
        text = arena_printf(carried->arena, "%s%s%s%s%s%s%s%s", text, *text ? " " : "",
                            named ? "--" : "", named ? name : "", named ? " " : "", quote,
                            carried->at[i].text, quote);
    }
    return text;
}

static enum err_code write_text(struct exported *out, const struct text_file *from, struct err *err)
{
    FILE *file = open_memstream(&out->text, &out->length);
    if (!file)
        return err_set(err, ERR_NOMEM, "no memory for a file's text");
    switch (from->framework->syntax) {
    case SYNTAX_TOML:
        write_toml(file, from);
        break;
    case SYNTAX_YAML:
        write_yaml(file, from);
        break;
    case SYNTAX_JSON:
        write_json(file, from);
        break;
    default:
        write_fsdp2(file, from);
    }
    return fclose(file) == 0 ? ERR_OK : err_set(err, ERR_IO, "a file's text could not be written");
}

/* What the file of a file setting has beside the keys of our rows: all of its table, or of the
 * whole file where that is the table. */
static enum err_code put_file(struct document *document, const struct framework *to,
                              const struct settings *settings, struct err *err)
{
    char buffer[NUMBER_TEXT];
    struct document file;
    const char *path = to->file_setting ? settings_get(settings, to->file_setting, buffer) : NULL;
    struct node *table = path ? document_find(document, to->file_path) : NULL;
    if (!table)
        return ERR_OK;
    const enum err_code rc = document_read(path, &file, err);
    if (rc == ERR_OK) {
        const struct node *from = document_find(&file, to->file_path);
        document_copy(document, table, from ? from : file.root);
    }
    document_free(&file);
    return rc;
}

static enum err_code make_document(const struct framework *to, const struct settings *settings,
                                   struct document *out, struct err *err)
{
    *out = (struct document){.path = "", .syntax = to->syntax};
    out->root = arena_alloc(&out->arena, sizeof *out->root);
    out->root->kind = NODE_TABLE;
    put_keys(out, to, settings);
    const enum err_code rc = put_file(out, to, settings, err);
    if (rc != ERR_OK)
        document_free(out);
    return rc;
}

/* The options that the file has to carry. */
static enum err_code find_options(struct exported *out, const struct framework *to,
                                  const struct settings *settings, const char **options,
                                  struct refused *refused, struct err *err)
{
    struct carried carried = {.count = 0, .arena = &out->arena};
    struct document document;
    TRY(make_document(to, settings, &document, err));
    carry_script(&carried, to, settings, &document);
    list_script(out, to, settings, &document);
    TRY(read_back(to, settings, &document, &carried, refused, err));
    *options = options_text(settings, &carried);
    return ERR_OK;
}

static bool is_row(const uint64_t *rows, uint32_t i)
{
    return rows[i / 64] >> i % 64 & 1U;
}

static enum err_code find_refused(const struct settings *settings, const char *to,
                                  struct exported *unwritten, struct refused *out, struct err *err)
{
    const struct framework *framework;
    const char *options;
    *out = (struct refused){.list = "", .would = *settings};
    TRY(find_target(to, settings->job.strategy.system, &framework, err));
    return framework->settings_path
               ? ERR_OK
               : find_options(unwritten, framework, settings, &options, out, err);
}

enum err_code export_would(const struct settings *settings, const char *to, struct settings *would,
                           struct arena *arena, struct err *err)
{
    uint32_t count;
    struct exported unwritten = {.text = NULL};
    struct refused refused;
    const struct setting *rows = setting_rows(&count);
    *would = *settings;
    enum err_code rc = find_refused(settings, to, &unwritten, &refused, err);
    for (uint32_t i = 0; i < count && rc == ERR_OK; i++) {
        char text[NUMBER_TEXT];
        const char *value = setting_read(&rows[i], &refused.would, text);
        if (is_row(refused.rows, i) && value)
            rc = settings_set(would, rows[i].name, arena_strdup(arena, value), err);
    }
    export_free(&unwritten);
    return rc;
}

/* ---- what could be said instead ---- */

/* Where the framework would make nothing of a refused setting, the first of its values that is not
 * refused, if there is one. */
static void try_values(const char *to, const struct setting *rows, uint32_t i, struct arena *arena,
                       struct settings *settings)
{
    char text[NUMBER_TEXT];
    for (uint32_t v = 0; setting_axis_value(&rows[i], v, text); v++) {
        struct exported unwritten = {.text = NULL};
        struct settings other = *settings;
        struct refused refused;
        const bool said =
            settings_set(&other, rows[i].name, arena_strdup(arena, text), NULL) == ERR_OK &&
            find_refused(&other, to, &unwritten, &refused, NULL) == ERR_OK &&
            !is_row(refused.rows, i);
        export_free(&unwritten);
        if (said) {
            *settings = other;
            return;
        }
    }
}

/* Whether the model can be built so. */
static bool can_be_built(const struct settings *settings)
{
    struct settings resolved = *settings;
    struct job job;
    struct machine machine;
    struct graph *graph = NULL;
    if (settings_resolve(&resolved, &job, &machine, NULL) != ERR_OK)
        return false;
    const bool built = job_check(&job, NULL) == ERR_OK &&
                       (job.config.recording || job_graph(&job, &graph, NULL) == ERR_OK);
    graph_free(graph);
    settings_release(&job, &machine);
    return built;
}

/* The settings with what a framework would make of those that it cannot say: as options in `text`.
 * What follows from one change may need another. False: that cannot be said, either, or is no plan
 * of that model. */
static bool find_change(const struct settings *settings, const char *to, char *text, size_t size)
{
    enum { ROUNDS = 4 };
    uint32_t count;
    struct arena arena = {0};
    struct settings other = *settings;
    const struct setting *rows = setting_rows(&count);
    bool said = false;
    for (int round = 0; round < ROUNDS && !said; round++) {
        struct exported unwritten = {.text = NULL};
        struct refused refused, still;
        struct settings would;
        if (find_refused(&other, to, &unwritten, &refused, NULL) != ERR_OK ||
            export_would(&other, to, &would, &arena, NULL) != ERR_OK) {
            export_free(&unwritten);
            break;
        }
        export_free(&unwritten);
        for (uint32_t i = 0; i < count; i++) {
            char a[NUMBER_TEXT], b[NUMBER_TEXT];
            if (is_row(refused.rows, i) &&
                same_text(setting_read(&rows[i], &other, a), setting_read(&rows[i], &would, b)))
                try_values(to, rows, i, &arena, &would);
        }
        other = would;
        said = find_refused(&other, to, &unwritten, &still, NULL) == ERR_OK && !still.list[0];
        export_free(&unwritten);
    }
    said = said && (can_be_built(&other) || !can_be_built(settings)); /* nor is its file here */
    if (said)
        settings_difference(settings, &other, text, size);
    arena_free(&arena);
    return said && text[0];
}

static enum err_code refuse(const struct framework *framework, const struct settings *settings,
                            const struct refused *refused, struct err *err)
{
    char change[256] = "";
    const bool fsdp2 = settings->job.strategy.system == SYSTEM_FSDP2;
    if (find_change(settings, framework->name, change, sizeof change))
        return err_set(err, ERR_UNSUPPORTED, "%s cannot say %s: plan with %s instead%s",
                       framework->name, refused->list, change,
                       fsdp2 ? ", or export --to fsdp2, which says all" : "");
    return err_set(err, ERR_UNSUPPORTED, "%s cannot say %s%s: %s", framework->name, refused->list,
                   refused->reasons,
                   fsdp2 ? "export --to fsdp2, which says all"
                         : "plan with what it would be, or change the file by hand");
}

enum err_code export_plan(const struct settings *settings, const struct plan *plan, const char *to,
                          struct exported *out, struct err *err)
{
    const struct framework *framework;
    struct document document;
    struct refused refused = {.list = ""};
    *out = (struct exported){.text = NULL};
    TRY(find_target(to, settings->job.strategy.system, &framework, err));
    struct text_file from = {
        .framework = framework, .settings = settings, .plan = plan, .options = ""};
    out->versions = framework->versions;
    out->syntax = framework->syntax;
    if (framework->settings_path)
        list_script(out, framework, settings, NULL);
    else
        TRY(find_options(out, framework, settings, &from.options, &refused, err));
    if (refused.list[0])
        return refuse(framework, settings, &refused, err);
    from.script = out->script;
    from.script_count = out->script_count;
    TRY(make_document(framework, settings, &document, err));
    from.document = &document;
    const enum err_code rc = write_text(out, &from, err);
    document_free(&document);
    return rc;
}

enum err_code export_refused(const struct settings *settings, const char *to,
                             uint64_t rows[SETTINGS_ROW_WORDS], uint64_t idle[SETTINGS_ROW_WORDS],
                             char *list, size_t size, struct err *err)
{
    struct exported unwritten = {.text = NULL};
    struct refused refused;
    const enum err_code rc = find_refused(settings, to, &unwritten, &refused, err);
    memcpy(rows, refused.rows, sizeof refused.rows);
    memcpy(idle, refused.idle, sizeof refused.idle);
    snprintf(list, size, "%s", refused.list);
    export_free(&unwritten);
    return rc;
}

void export_free(struct exported *exported)
{
    free(exported->text);
    arena_free(&exported->arena);
    *exported = (struct exported){.text = NULL};
}

/* tune_result.c - see tune_result.h. */
#include "report/tune_result.h"

#include "report/files.h"
#include "report/model_notes.h"
#include "report/options.h"
#include "report/picture.h"
#include "report/report.h"
#include "report/title.h"
#include "search/numerics.h"

#include "pareto_gp.h" /* generated from reports/pareto.gp */

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHANGE = 512, ROWS_SHOWN = 12, DEPARTURES = 80 };

static_assert((int)TUNE_RUNNERS <= (int)ROWS_SHOWN, "a table has room for the next fastest");

static double gib(uint64_t bytes)
{
    return (double)bytes / 1073741824.0;
}

static double tokens_per_s(const struct tuned *t, double step_s)
{
    const struct settings *s = &t->space.grids[0].base;
    const double sequences = s->tune.global_batch
                                 ? (double)s->tune.global_batch / s->job.strategy.world
                                 : (double)s->job.model.batch * s->job.strategy.accumulate;
    return sequences * t->job.model.seq / step_s;
}

/* Of what was chosen: with the units that it keeps. */
static void settings_of(const struct tuned *t, const struct found *found, struct settings *out)
{
    if (found == &t->chosen)
        *out = t->choice;
    else
        tuned_settings(t, found, out);
}

/* What was asked for becomes these by such options; "": it is these. The system that was begun with
 * as the default has not what was asked for (settings_parse.c) is one of them. */
static const char *change_to(const struct tuned *t, const struct settings *own, char text[CHANGE])
{
    const struct settings *asked = &t->settings;
    const struct setting *row = settings_find(asked, "strategy", NULL);
    const enum system_kind system = own->job.strategy.system;
    const bool sought = system == asked->job.strategy.system && !settings_is_given(asked, row) &&
                        strcmp(system_name(system), row->initial) != 0;
    const size_t used =
        sought ? (size_t)snprintf(text, CHANGE, "--%s %s ", row->name, system_name(system)) : 0;
    settings_difference(asked, own, text + used, CHANGE - used);
    if (used && !text[used])
        text[used - 1] = '\0';
    return text;
}

/* The same of a found one. */
static const char *change_of(const struct tuned *t, const struct found *found, char text[CHANGE])
{
    struct settings own;
    settings_of(t, found, &own);
    return change_to(t, &own, text)[0] ? text : "as it is";
}

/* What it changes of what is trained (numerics.h); "": nothing. */
static const char *numerics_of(const struct tuned *t, const struct found *found,
                               char text[NUMERICS_TEXT])
{
    struct settings own;
    settings_of(t, found, &own);
    return numerics_difference(&t->settings, &own, &t->job.config, text);
}

/* "shardplan plan llama-3.1-8b --gpus 8 ...": what plans the choice, in the arena. */
static const char *command_of(const struct settings *choice, struct arena *arena)
{
    uint32_t count;
    const char **arguments = settings_arguments(choice, COMMAND_PLAN, arena, &count);
    const char *line = "shardplan plan";
    for (uint32_t i = 0; i < count; i++)
        line = arena_printf(arena, "%s %s", line, arguments[i]);
    return line;
}

/* Units that are kept one by one make a faster step than any of the grid's configurations. */
static bool units_are_fastest(const struct tuned *t)
{
    return t->per_unit.taken && t->chosen.step_s < t->search.front[0].step_s;
}

static const struct found *fastest_of(const struct tuned *t)
{
    return units_are_fastest(t) ? &t->chosen : &t->search.front[0];
}

/* Of the front, with what is chosen unit by unit: the next at or after the n-th that takes less
 * than all before it; NULL: that was the last. */
static const struct found *next_of_front(const struct tuned *t, uint32_t *n)
{
    if (!units_are_fastest(t))
        return *n < t->front_count ? &t->front[(*n)++] : NULL;
    if (*n == 0) {
        ++*n;
        return &t->chosen;
    }
    while (*n <= t->front_count) {
        const struct found *found = &t->front[(*n)++ - 1];
        if (found->device_bytes < t->chosen.device_bytes)
            return found;
    }
    return NULL;
}

/* ---- for programs ---- */

static json_t *found_json(const struct tuned *t, const struct found *found)
{
    struct settings own;
    char change[CHANGE], numerics[NUMERICS_TEXT];
    settings_of(t, found, &own);
    return json_pack("{s:s, s:s, s:f, s:f, s:I, s:I, s:i, s:o}", "change",
                     change_of(t, found, change), "numerics", numerics_of(t, found, numerics),
                     "step_s", found->step_s, "tokens_per_s_per_gpu",
                     tokens_per_s(t, found->step_s), "device_bytes",
                     (json_int_t)found->device_bytes, "headroom_bytes",
                     (json_int_t)(t->limit_bytes - found->device_bytes), "departures",
                     (int)found->weight, "settings", settings_echo(&own));
}

/* null: none could be worked out */
static json_t *least_json(const struct tuned *t)
{
    const struct found *found = &t->least.found;
    char change[CHANGE];
    struct settings own;
    if (!found->device_bytes)
        return json_null();
    tuned_settings(t, found, &own);
    return json_pack("{s:s, s:I, s:b, s:o}", "change", change_of(t, found, change), "device_bytes",
                     (json_int_t)found->device_bytes, "proven", least_is_known(&t->least),
                     "settings", settings_echo(&own));
}

/* null: nothing fits in any way that was tried */
static json_t *tight_json(const struct tuned *t)
{
    const struct tight_fit *tight = &t->tight;
    char change[CHANGE], numerics[NUMERICS_TEXT];
    struct settings own;
    if (!tight->fits)
        return json_null();
    tuned_settings(t, &tight->found, &own);
    return json_pack("{s:s, s:s, s:I, s:b, s:i, s:i, s:f, s:o}", "change",
                     change_of(t, &tight->found, change), "numerics",
                     numerics_of(t, &tight->found, numerics), "device_bytes",
                     (json_int_t)tight->device_bytes, "after_release", tight->after_release,
                     "cuda_mallocs", (int)tight->mallocs, "cuda_frees", (int)tight->frees, "step_s",
                     tight->step_s, "settings", settings_echo(&own));
}

static json_t *list_json(const struct tuned *t, const struct found *found, uint32_t count)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < count; i++)
        json_array_append_new(array, found_json(t, &found[i]));
    return array;
}

/* null: no setting can be put back */
static json_t *simpler_json(const struct tuned *t)
{
    struct arena arena = {0};
    char change[CHANGE];
    const struct simpler *simpler = &t->simpler;
    if (!simpler->is_there)
        return json_null();
    change_to(t, &simpler->own, change);
    json_t *object =
        json_pack("{s:s, s:s, s:f, s:I, s:i, s:o}", "change", change, "command",
                  command_of(&simpler->own, &arena), "step_s", simpler->found.step_s,
                  "device_bytes", (json_int_t)simpler->found.device_bytes, "departures",
                  (int)simpler->found.weight, "settings", settings_echo(&simpler->own));
    arena_free(&arena);
    return object;
}

static json_t *front_json(const struct tuned *t)
{
    json_t *array = json_array();
    const struct found *found;
    for (uint32_t n = 0; (found = next_of_front(t, &n));)
        json_array_append_new(array, found_json(t, found));
    return array;
}

static json_t *reasons_json(const struct tuned *t)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < t->reason_count; i++) {
        const struct tuned_setting *r = &t->reasons[i];
        json_t *reason = json_pack("{s:s, s:s, s:s, s:b, s:b}", "setting", r->name, "value",
                                   r->value, "instead_of", r->usual, "possible_without",
                                   r->possible, "fits_without", r->fits);
        if (r->possible) {
            json_object_set_new(reason, "step_s_without", json_real(r->step_s));
            json_object_set_new(reason, "device_bytes_without",
                                json_integer((json_int_t)r->device_bytes));
            json_object_set_new(reason, "host_needed_bytes_without",
                                json_integer((json_int_t)r->host_needed_bytes));
        }
        json_array_append_new(array, reason);
    }
    return array;
}

static json_t *proof_json(const struct tuned *t)
{
    const struct search *s = &t->search;
    const struct candidates *c = &t->candidates;
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:f}", "points", (json_int_t)t->space.points,
        "not_possible", (json_int_t)c->impossible, "configurations", (json_int_t)s->configurations,
        "excluded_by_bounds", (json_int_t)s->excluded, "simulated",
        (json_int_t)(s->configurations - s->excluded), "replayed", (json_int_t)s->verified,
        "least_bound_bytes", (json_int_t)(s->least_floor == UINT64_MAX ? 0 : s->least_floor),
        "beyond_host_bytes",
        (json_int_t)(s->beyond_host == UINT64_MAX ? 0 : s->beyond_host * t->host_ranks),
        "interrupted", s->interrupted, "seconds", t->seconds);
}

/* [{"strategy": "zero3", "why": "reduces in bf16 instead of fp32", "allow": ["reduce-dtype"]}] */
static json_t *left_out_json(const struct space *space)
{
    json_t *array = json_array();
    for (uint32_t i = 0; i < space->left_out_count; i++) {
        const struct left_out *l = &space->left_out[i];
        json_t *allow = json_array();
        for (uint32_t k = 0; k < l->numerics.count; k++)
            json_array_append_new(allow, json_string(l->numerics.settings[k]));
        json_array_append_new(array,
                              json_pack("{s:s, s:s, s:o}", "strategy", system_name(l->system),
                                        "why", l->numerics.text, "allow", allow));
    }
    return array;
}

static json_t *per_unit_json(const struct tuned *t)
{
    static const char *const states[] = {
        [PER_UNIT_NOT_ASKED] = "not asked", [PER_UNIT_ALL_FIT] = "all fit",
        [PER_UNIT_HIDDEN] = "hidden",       [PER_UNIT_NO_GAIN] = "no gain",
        [PER_UNIT_SEARCHED] = "searched",
    };
    const struct per_unit *p = &t->per_unit;
    json_t *object = json_pack("{s:s}", "state", states[p->state]);
    if (p->state != PER_UNIT_NOT_ASKED)
        json_object_set_new(object, "gathers_cost_s", json_real(p->cost_s));
    if (p->state != PER_UNIT_SEARCHED)
        return object;
    struct settings own;
    const struct kept_set *set = per_unit_set(p);
    tuned_settings(t, &p->base, &own);
    per_unit_put(p, &own);
    json_object_update_new(
        object,
        json_pack("{s:b, s:b, s:i, s:i, s:s, s:f, s:f, s:f, s:f, s:I, s:b, s:f, s:i, s:i, s:o}",
                  "taken", p->taken, "last", p->last, "units", (int)p->of.units, "kept",
                  (int)set->count, "names", set->text, "step_s", set->step_s, "none_step_s",
                  p->of.none.step_s, "all_step_s", p->of.all.step_s, "fastest_step_s",
                  p->of.best.step_s, "device_bytes", (json_int_t)set->device_bytes, "proven",
                  p->of.closed, "gap", 1 - p->of.bound_s / set->step_s, "simulated",
                  (int)p->simulated, "configurations", (int)p->configurations, "settings",
                  settings_echo(&own)));
    return object;
}

json_t *tune_json(const struct tuned *t)
{
    struct arena arena = {0};
    json_t *root =
        json_pack("{s:s, s:o, s:b, s:I, s:o}", "shardplan", SHARDPLAN_VERSION, "settings",
                  settings_echo(&t->settings), "fits", t->search.front_count > 0, "limit_bytes",
                  (json_int_t)t->limit_bytes, "search", proof_json(t));
    json_object_set_new(root, "host_capacity_bytes",
                        t->host_capacity_bytes ? json_integer((json_int_t)t->host_capacity_bytes)
                                               : json_null());
    json_object_set_new(root, "left_out", left_out_json(&t->space));
    if (*t->space.unsaid)
        json_object_set_new(root, "not_searched", json_string(t->space.unsaid));
    if (*t->space.adopted)
        json_object_set_new(root, "adopted", json_string(t->space.adopted));
    model_notes_set(root, &t->job);
    if (t->search.front_count) {
        json_t *chosen = found_json(t, &t->chosen);
        json_object_set_new(chosen, "low_s", json_real(t->low_s));
        json_object_set_new(chosen, "high_s", json_real(t->high_s));
        json_object_set_new(chosen, "fits_by_clock", json_boolean(t->by_clock));
        json_object_set_new(chosen, "host_needed_bytes",
                            json_integer((json_int_t)t->host_needed_bytes));
        json_object_set_new(chosen, "command", json_string(command_of(&t->choice, &arena)));
        json_object_set_new(chosen, "why", reasons_json(t));
        json_object_set_new(chosen, "simpler", simpler_json(t));
        json_object_set_new(root, "chosen", chosen);
        json_object_set_new(root, "per_unit", per_unit_json(t));
        json_object_set_new(root, "fastest", found_json(t, fastest_of(t)));
        json_object_set_new(root, "runners_up", list_json(t, t->runners, t->runner_count));
        json_object_set_new(root, "pareto", front_json(t));
    } else {
        json_object_set_new(root, "least", least_json(t));
        json_object_set_new(root, "tight", tight_json(t));
        json_object_set_new(root, "remedies", remedies_json(t->remedies, t->remedy_count));
    }
    arena_free(&arena);
    return root;
}

/* ---- for people ---- */

/* Systems that do the same otherwise are on one line. */
static void print_left_out(FILE *file, const struct space *space)
{
    for (uint32_t i = 0; i < space->left_out_count; i++) {
        const struct left_out *l = &space->left_out[i];
        bool told = false;
        for (uint32_t k = 0; k < i; k++)
            told |= strcmp(space->left_out[k].numerics.text, l->numerics.text) == 0;
        if (told)
            continue;
        fprintf(file, "  (left out: %s", system_name(l->system));
        for (uint32_t k = i + 1; k < space->left_out_count; k++)
            if (strcmp(space->left_out[k].numerics.text, l->numerics.text) == 0)
                fprintf(file, ", %s", system_name(space->left_out[k].system));
        fprintf(file, ": %s%s", l->numerics.text, l->numerics.count ? ";" : "");
        for (uint32_t k = 0; k < l->numerics.count; k++)
            fprintf(file, " --allow %s", l->numerics.settings[k]);
        fprintf(file, ")\n");
    }
}

/* What the answer is not over: a few names, for all that a search could have been asked for. */
static void print_untried(FILE *file, const struct space *space)
{
    struct arena arena = {0};
    const struct untried untried = space_untried(space, &arena);
    const char *opened = untried.opened, *wider = untried.wider;
    if (*opened || *wider)
        style_wrapped(file, 2,
                      arena_printf(&arena, "(--allow also searches %s%s%s%s)", opened,
                                   *opened && *wider ? "; " : "", *wider ? "more values of " : "",
                                   wider));
    if (*untried.kept)
        style_wrapped(
            file, 2,
            arena_printf(&arena, "(not searched, as given or by default: %s)", untried.kept));
    arena_free(&arena);
}

static void print_proof(FILE *file, const struct tuned *t)
{
    char a[32], b[32], c[32], d[32], e[32];
    const struct search *s = &t->search;
    const uint64_t repeated = t->space.points - t->candidates.impossible - s->configurations;
    fprintf(file, "  %s over %s configurations: %s excluded by bounds, %s simulated, in %.2f s\n",
            !s->interrupted      ? s->front_count > 0 ? "optimal" : "none fits"
            : s->front_count > 0 ? "interrupted (the fastest is proven, the front is not complete)"
                                 : "interrupted before anything was found",
            style_grouped(s->configurations, a), style_grouped(s->excluded, b),
            style_grouped(s->configurations - s->excluded, c), t->seconds);
    fprintf(file, "  (of %s points, %s are not possible and %s mean the same job as another)\n",
            style_grouped(t->space.points, d), style_grouped(t->candidates.impossible, e),
            style_grouped(repeated, a));
}

/* What the answer is not over, below it. */
static void print_scope(FILE *file, const struct tuned *t)
{
    fputc('\n', file);
    if (*t->space.unsaid)
        fprintf(file, "  (not searched, as %s cannot say it: %s)\n", t->space.reader,
                t->space.unsaid);
    if (t->alone)
        fputs("  (one GPU, so of --strategy single; in FSDP's bf16 parameters: --strategy fsdp2)\n",
              file);
    if (*t->space.adopted)
        fprintf(file, "  (as %s has it, where nothing was given: %s)\n", t->space.reader,
                t->space.adopted);
    print_left_out(file, &t->space);
    if (t->search.front_count)
        print_untried(file, &t->space);
}

/* ": reshard=never on 12 of 32 units", of the setting that says which; else "". */
static const char *units_of(const struct tuned *t, const struct tuned_setting *reason,
                            char text[64])
{
    const bool of_units = t->per_unit.taken && strncmp(reason->name, "keep-", 5) == 0;
    text[0] = '\0';
    if (of_units)
        snprintf(text, 64, ": reshard=never on %u of %u units", per_unit_set(&t->per_unit)->count,
                 t->per_unit.of.units);
    return text;
}

/* A smaller micro-batch that takes more has more of them, and what is kept from one to the next. */
static void print_too_much(FILE *file, const struct tuned *t, const struct tuned_setting *r,
                           const char *usual)
{
    fprintf(file, "necessary: with %s it takes %.2f of %.2f GiB%s", usual, gib(r->device_bytes),
            gib(t->most_bytes),
            r->device_bytes <= t->most_bytes ? ", more than the headroom leaves" : "");
    if (r->holds_whole && strcmp(r->name, "micro-batch") == 0)
        fprintf(file,
                ": gradients of %u micro-batches are\n%41swhole on each GPU until the last "
                "(--accumulate-sync last)",
                r->holds_whole, "");
    fputc('\n', file);
}

static void print_why(FILE *file, const struct tuned *t)
{
    char units[64];
    if (t->reason_count)
        fprintf(file, "\n  why, against the framework's default of each:\n");
    for (uint32_t i = 0; i < t->reason_count; i++) {
        const struct tuned_setting *r = &t->reasons[i];
        const char *usual = r->usual[0] ? r->usual : "none";
        fprintf(file, "  --%s %s%*s", r->name, r->value,
                (int)(34 - strlen(r->name) - strlen(r->value)) > 0
                    ? (int)(34 - strlen(r->name) - strlen(r->value))
                    : 1,
                "");
        if (!r->possible)
            fprintf(file, "necessary: %s does not go with the rest\n", usual);
        else if (r->after_release)
            fprintf(file, "necessary: without it, it fits only by giving cached memory back\n");
        else if (!r->fits_host)
            fprintf(file, "necessary: with %s it takes %.2f of %.2f GiB of the host\n", usual,
                    gib(r->host_needed_bytes), gib(t->host_capacity_bytes));
        else if (!r->fits)
            print_too_much(file, t, r, usual);
        else
            fprintf(file, "%+.1f %% step, %+.2f GiB%s\n", 100 * (t->chosen.step_s / r->step_s - 1),
                    gib(t->chosen.device_bytes) - gib(r->device_bytes), units_of(t, r, units));
    }
}

/* What of the units could be kept, and what no choice of them comes to. */
static void print_per_unit(FILE *file, const struct tuned *t)
{
    const struct per_unit *p = &t->per_unit;
    const struct kept_set *set = per_unit_set(p);
    const double cost = 100 * p->cost_s / t->chosen.step_s;
    if (p->state == PER_UNIT_ALL_FIT)
        fprintf(file, "  unit by unit          nothing to choose: all units fit unsharded\n");
    if (p->state == PER_UNIT_HIDDEN)
        fprintf(
            file,
            "  unit by unit          nothing to gain: to gather again in backward costs %.2f %% "
            "of the step\n",
            fmax(0, cost));
    if (p->state == PER_UNIT_NO_GAIN)
        fprintf(file, "  unit by unit          nothing to gain: all units unsharded, which do not "
                      "fit, would be no faster\n");
    if (p->state != PER_UNIT_SEARCHED)
        return;
    fprintf(file, "  unit by unit          ");
    if (p->last)
        fprintf(file,
                "the last %u of %u units unsharded; other choices are within prediction error",
                set->count, p->of.units);
    else
        fprintf(file, "%u of %u units unsharded", set->count, p->of.units);
    if (!p->last && isfinite(p->of.last.step_s))
        fprintf(file, ", %.2f %% faster than the last %u blocks, as many as fit",
                100 * (1 - set->step_s / p->of.last.step_s), p->of.last.count);
    if (!p->taken)
        fprintf(file, ": %+.2f %% step, %s", 100 * (set->step_s / t->chosen.step_s - 1),
                set->step_s < t->chosen.step_s ? "less than predictions tell apart, so not taken"
                                               : "not taken");
    fprintf(file, "\n                        %u choices simulated: ", p->simulated);
    if (p->of.closed)
        fprintf(file, "the fastest that fits, proven\n");
    else
        fprintf(file, "the best possible choice of units is at most %.1f %% faster than this one\n",
                100 * (1 - p->of.bound_s / set->step_s));
}

/* Rows of a table: what all of them have is in its heading. */
struct row_list {
    const struct found *at[ROWS_SHOWN];
    uint32_t count;
};

static void print_found(FILE *file, const struct tuned *t, const struct found *found,
                        const char *options)
{
    char numerics[NUMERICS_TEXT];
    numerics_of(t, found, numerics);
    fprintf(file, "  %9.4g s  %+6.1f %%  %7.2f GiB  %s%s%s\n", found->step_s,
            100 * (found->step_s / fastest_of(t)->step_s - 1), gib(found->device_bytes),
            *options ? options : "(nothing else)", numerics[0] ? "; " : "", numerics);
}

static void print_rows(FILE *file, const struct tuned *t, const char *title,
                       const struct row_list *rows)
{
    struct arena arena = {0};
    char change[CHANGE];
    const char *texts[sizeof rows->at / sizeof rows->at[0]];
    for (uint32_t i = 0; i < rows->count; i++)
        texts[i] = arena_printf(&arena, "%s", change_of(t, rows->at[i], change));
    const char *common = options_common(texts, rows->count, &arena);
    if (rows->count)
        fprintf(file, "\n  %s%s%s:\n", title, *common ? ", each with " : "", common);
    for (uint32_t i = 0; i < rows->count; i++)
        print_found(file, t, rows->at[i], options_besides(texts[i], common, &arena));
    arena_free(&arena);
}

static void print_next(FILE *file, const struct tuned *t)
{
    struct row_list rows = {.count = 0};
    for (uint32_t i = 0; i < t->runner_count; i++)
        rows.at[rows.count++] = &t->runners[i];
    print_rows(file, t, "next", &rows);
}

/* Evenly over a long one. */
static void print_front(FILE *file, const struct tuned *t)
{
    const struct found *found;
    struct row_list rows = {.count = 0};
    uint32_t count = 0;
    for (uint32_t n = 0; next_of_front(t, &n);)
        count++;
    for (uint32_t n = 0, i = 0; (found = next_of_front(t, &n)); i++)
        if (count <= ROWS_SHOWN || i * ROWS_SHOWN / count != (i + 1) * ROWS_SHOWN / count)
            rows.at[rows.count++] = found;
    print_rows(file, t, "less memory, and what it costs", &rows);
}

/* "38.71 of 39.38 GiB, 0.67 free (0.63 of it kept as headroom: --headroom)": of all that there is,
 * not of what the search was left with. */
static void print_device(FILE *file, const struct tuned *t)
{
    const uint64_t headroom = t->most_bytes - t->limit_bytes;
    fprintf(file, "  device                %.2f of %.2f GiB, %.2f free",
            gib(t->chosen.device_bytes), gib(t->most_bytes),
            gib(t->most_bytes - t->chosen.device_bytes));
    if (headroom)
        fprintf(file, " (%.2f of it kept as headroom: --headroom)", gib(headroom));
    fputc('\n', file);
    if (t->by_clock)
        fprintf(file,
                "                        by this machine's clock, as blocks that another stream "
                "uses come back once it\n"
                "                        is done with them; as late as waits show it %.2f\n",
                gib(t->late_bytes));
}

static void print_simpler(FILE *file, const struct tuned *t)
{
    struct arena arena = {0};
    const struct simpler *simpler = &t->simpler;
    if (simpler->is_there) /* what is a little faster is as fast, not -0.0 % */
        fprintf(file, "  simpler, %+.1f %%       %.2f GiB: %s\n",
                fmax(0, 100 * (simpler->found.step_s / t->chosen.step_s - 1)),
                gib(simpler->found.device_bytes), command_of(&simpler->own, &arena));
    arena_free(&arena);
}

/* How many settings it has off their defaults, beside the choice; into `text`. */
static const char *than_chosen(const struct tuned *t, const struct found *other,
                               char text[DEPARTURES])
{
    if (other->weight == t->chosen.weight)
        snprintf(text, DEPARTURES, "as many settings off their defaults");
    else
        snprintf(text, DEPARTURES, "%u settings off their defaults instead of %u", other->weight,
                 t->chosen.weight);
    return text;
}

static void print_choice(FILE *file, const struct tuned *t, const struct style *s)
{
    char change[CHANGE], numerics[NUMERICS_TEXT], number[32], departures[DEPARTURES];
    struct arena arena = {0};
    const struct found *best = &t->front[0]; /* without what gains nothing that is shown */
    fprintf(file, "  %schosen%s                %s\n", s->bold, s->off,
            change_of(t, &t->chosen, change));
    if (numerics_of(t, &t->chosen, numerics)[0])
        fprintf(file, "  numerics              %s\n", numerics);
    fprintf(file, "  step                  %.4g s  (%.4g s to %.4g s), %s tokens/s a GPU\n",
            t->chosen.step_s, t->low_s, t->high_s,
            style_grouped((uint64_t)(tokens_per_s(t, t->chosen.step_s) + 0.5), number));
    print_device(file, t);
    if (t->offloads && t->host_capacity_bytes)
        fprintf(file, "  host                  %.2f of %.2f GiB, %.2f free\n",
                gib(t->host_needed_bytes), gib(t->host_capacity_bytes),
                gib(t->host_capacity_bytes - t->host_needed_bytes));
    else if (t->offloads)
        fprintf(file,
                "  host                  %.2f GiB: that it has so much is not checked; "
                "--host-memory says it\n",
                gib(t->host_needed_bytes));
    result_print_unplanned(file, &t->settings);
    if (!t->per_unit.taken &&
        (t->chosen.point != best->point || t->chosen.candidate != best->candidate))
        fprintf(
            file,
            "  the fastest           %s\n"
            "                        %.2f %% faster, less than predictions tell apart, with %s, "
            "and %.2f GiB\n",
            change_of(t, best, change), 100 * (1 - best->step_s / t->chosen.step_s),
            than_chosen(t, best, departures), gib(best->device_bytes));
    print_per_unit(file, t);
    print_simpler(file, t);
    print_why(file, t);
    print_next(file, t);
    print_front(file, t);
    fprintf(file, "\n  %s\n", command_of(&t->choice, &arena));
    arena_free(&arena);
}

/* A bound is said as one. */
static void print_least(FILE *file, const struct tuned *t)
{
    char change[CHANGE];
    const struct least *least = &t->least;
    if (t->search.least_floor == UINT64_MAX)
        return;
    if (!least->found.device_bytes) {
        fprintf(file, "        each takes %.2f or more\n", gib(t->search.least_floor));
        return;
    }
    fprintf(file, "        the least%s takes %.2f: %s\n",
            least_is_known(least) ? "" : " of those worked out", gib(least->found.device_bytes),
            change_of(t, &least->found, change));
    if (!least_is_known(least))
        fprintf(file, "        all others take %.2f or more\n", gib(least->bound));
}

/* What would need more of the host, whatever it takes of a GPU. */
static void print_beyond_host(FILE *file, const struct tuned *t)
{
    if (t->search.beyond_host != UINT64_MAX)
        fprintf(file, "        %s %.2f GiB or more of a host, which has %.2f\n",
                t->search.least_floor == UINT64_MAX ? "each takes"
                                                    : "others fit no host: they take",
                gib(t->search.beyond_host * t->host_ranks), gib(t->host_capacity_bytes));
}

static void print_tight(FILE *file, const struct tuned *t, const struct style *s)
{
    char change[CHANGE], numerics[NUMERICS_TEXT];
    const struct tight_fit *tight = &t->tight;
    if (!tight->fits)
        return;
    numerics_of(t, &tight->found, numerics);
    fprintf(file, "\n  %sfits, tight%s: %.2f of %.2f GiB: %s%s%s\n", s->good, s->off,
            gib(tight->device_bytes), gib(t->most_bytes), change_of(t, &tight->found, change),
            numerics[0] ? "; " : "", numerics);
    if (tight->by_clock)
        fprintf(file,
                "        by this machine's clock, as blocks that another stream uses come back "
                "once it is done with them\n");
    if (!tight->after_release)
        return;
    fprintf(file, "        only by giving cached memory back, slower steps");
    if (tight->mallocs + tight->frees)
        fprintf(file, ": %u cudaFree, %u cudaMalloc each\n", tight->frees, tight->mallocs);
    else
        fprintf(file, " at first\n");
}

static void print_nothing(FILE *file, const struct tuned *t, const struct style *s)
{
    fprintf(file, "  %snothing fits%s %.2f GiB", s->bad, s->off, gib(t->limit_bytes));
    if (t->most_bytes > t->limit_bytes)
        fprintf(file, ", %.2f less %.2f of headroom,", gib(t->most_bytes),
                gib(t->most_bytes - t->limit_bytes));
    fprintf(file, " without giving cached memory back:\n");
    print_least(file, t);
    print_beyond_host(file, t);
    result_print_unplanned(file, &t->settings);
    print_tight(file, t, s);
}

static void print_no_choice(FILE *file, const struct tuned *t, const struct style *s)
{
    print_nothing(file, t, s);
    if (!t->remedy_count) {
        fprintf(file,
                "\n  nor does it with other numerics or up to %d times the GPUs, nor on up to %d "
                "times without offloading\n",
                REMEDY_TIMES, REMEDY_TIMES_ON_GPU);
        remedies_unsearched_print(file, &t->space.grids[0].base);
    }
    remedies_print(file, s, "what would fit", t->remedies, t->remedy_count);
}

void tune_print(FILE *file, const struct tuned *t)
{
    const struct style s = style_of(file);
    fprintf(file, "%s%s%s on %u x %s, %u tokens a sequence\n\n", s.bold, t->settings.model, s.off,
            t->job.strategy.world, t->machine.profile.title, t->job.model.seq);
    model_notes_print(file, "  ", &t->job);
    print_proof(file, t);
    fputc('\n', file);
    if (t->search.front_count)
        print_choice(file, t, &s);
    else if (!t->search.interrupted)
        print_no_choice(file, t, &s);
    print_scope(file, t);
}

/* ---- files ---- */

static void pareto_data(FILE *file, const void *context)
{
    const struct tuned *t = context;
    const struct found *found;
    for (uint32_t n = 0; (found = next_of_front(t, &n));)
        fprintf(file, "%.6f %.9f\n", gib(found->device_bytes), found->step_s);
}

static void pareto_settings(FILE *file, const void *context)
{
    const struct tuned *t = context;
    char text[TITLE_LINE + 64], name[TITLE_NAME];
    fprintf(file,
            "limit_gib = %.6f\nchosen_gib = %.6f\nchosen_s = %.9f\ntitle = ", gib(t->limit_bytes),
            gib(t->chosen.device_bytes), t->chosen.step_s);
    snprintf(text, sizeof text, "%s on %u x %s: what less memory costs",
             title_model(t->settings.model, name), t->job.strategy.world, t->machine.profile.title);
    files_gnuplot_text(file, text);
    fputc('\n', file);
}

static enum err_code write_plan(const struct tuned *t, const char *dir, const char **note,
                                struct err *err)
{
    struct settings choice = t->choice;
    struct tuned_prediction p;
    choice.command = COMMAND_PLAN;
    choice.output = dir;
    TRY(tuned_predict(t, &choice, true, STEP_TIME_DRAWS, &p, err));
    const enum err_code rc =
        report_write(&choice, &p.job, &p.machine, &p.prediction, &p.time, true, note, err);
    tuned_prediction_free(&p);
    return rc;
}

enum err_code tune_write(const struct tuned *t, const char *dir, const char **note, struct err *err)
{
    static const struct picture picture = {"pareto.svg", pareto_gp, pareto_data, pareto_settings};
    bool drawn;
    *note = NULL;
    TRY(files_write_json(dir, "tune.json", tune_json(t), err));
    TRY(write_plan(t, dir, note, err));
    TRY(picture_draw(&picture, t, dir, &drawn, err));
    if (!drawn)
        *note = "gnuplot is not there or failed: no pareto.svg";
    return ERR_OK;
}

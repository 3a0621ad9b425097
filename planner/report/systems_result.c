/* systems_result.c - see systems_result.h. Bytes in JSON, GiB with two decimals in tables. */
#include "report/systems_result.h"

#include "report/compare_print.h"
#include "report/palette.h"
#include "report/point_json.h"
#include "report/result.h"
#include "report/style.h"
#include "search/numerics.h"
#include "search/sweep.h"

#include <inttypes.h>
#include <string.h>

enum { NARROWEST = 9 };

static double gib(uint64_t bytes)
{
    return (double)bytes / 1073741824.0;
}

/* ---- the table: a row is a text of each column ---- */

struct cell {
    char text[48];
};
typedef void cell_writer(const struct system_point *at, int which, struct cell *out);

struct table {
    FILE *file;
    struct style style;
    const struct systems *systems;
    int title, width[SETTINGS_MOST_SYSTEMS];
    uint32_t from, to; /* the systems of the block that is written */
};

static bool is_refused(const struct system_point *at)
{
    return at->point.verdict == POINT_REFUSED;
}

static void write_verdict(const struct system_point *at, int which, struct cell *out)
{
    (void)which;
    snprintf(out->text, sizeof out->text, "%s%s", point_verdict_text(at->point.verdict),
             at->point.after_release ? "*" : "");
}

/* Of a system that cannot do the job there is no number. */
static void put_row(const struct table *t, const char *title, cell_writer *write, int which)
{
    fprintf(t->file, "  %-*s", t->title, title);
    for (uint32_t i = t->from; i < t->to; i++) {
        struct cell cell = {"-"};
        if (!is_refused(&t->systems->of[i]) || write == write_verdict)
            write(&t->systems->of[i], which, &cell);
        fprintf(t->file, "  %*s", t->width[i], cell.text);
    }
    fputc('\n', t->file);
}

static void put_heading(const struct table *t, const char *title)
{
    fprintf(t->file, "  %s%s%s\n", t->style.dim, title, t->style.off);
}

static void write_bytes(uint64_t bytes, struct cell *out)
{
    snprintf(out->text, sizeof out->text, "%.2f", gib(bytes));
}

static void write_dtypes(const struct system_point *at, int which, struct cell *out)
{
    const enum dtype of[] = {at->store, at->compute, at->reduce};
    const bool cast = which == 1 && at->autocast;
    snprintf(out->text, sizeof out->text, "%s", cast ? "autocast" : dtype_brief(of[which]));
}

static void write_category(const struct system_point *at, int which, struct cell *out)
{
    if (at->point.categories[which])
        write_bytes(at->point.categories[which], out);
}

static uint64_t requested_of(const struct point *p)
{
    uint64_t sum = 0;
    for (int i = 0; i < CATEGORY_WORKSPACE; i++)
        sum += p->categories[i];
    return sum;
}

enum total { REQUESTED, ALLOCATED, RESERVED, OUTSIDE, DEVICE, HOST };

static void write_total(const struct system_point *at, int which, struct cell *out)
{
    const struct point *p = &at->point;
    const uint64_t of[] = {
        [REQUESTED] = requested_of(p),  [ALLOCATED] = p->allocated_bytes,
        [RESERVED] = p->reserved_bytes, [OUTSIDE] = p->categories[CATEGORY_OUTSIDE_ALLOCATOR],
        [DEVICE] = p->device_bytes,     [HOST] = p->host_bytes,
    };
    write_bytes(of[which], out);
}

enum figure { STEP, COMMUNICATION, EXPOSED };

static void write_seconds(const struct system_point *at, int which, struct cell *out)
{
    char text[32];
    const double of[] = {at->point.step_s, at->point.communication_s, at->point.exposed_s};
    snprintf(out->text, sizeof out->text, "%s", compare_seconds(of[which], text));
}

static void write_tokens(const struct system_point *at, int which, struct cell *out)
{
    char number[32];
    (void)which;
    snprintf(out->text, sizeof out->text, "%s",
             style_grouped((uint64_t)(at->point.tokens_per_s + 0.5), number));
}

static void write_mfu(const struct system_point *at, int which, struct cell *out)
{
    (void)which;
    snprintf(out->text, sizeof out->text, "%.1f %%", 100 * at->point.mfu);
}

static void write_form(const struct system_point *at, int which, struct cell *out)
{
    if (which == 0)
        write_bytes(at->form.paper_bytes, out);
    else if (at->form.estimator)
        write_bytes(at->form.estimator_bytes, out);
}

static void write_bound(const struct system_point *at, int which, struct cell *out)
{
    (void)which;
    snprintf(out->text, sizeof out->text, "%s", spent_name(at->point.bound));
}

/* The version that each is planned as of: a system without the setting is known as of one alone. */
static void write_torch(const struct system_point *at, int which, struct cell *out)
{
    char buffer[NUMBER_TEXT];
    const char *version = settings_get(&at->settings, "torch", buffer);
    (void)which;
    if (version)
        snprintf(out->text, sizeof out->text, "%s", version);
    else
        snprintf(out->text, sizeof out->text, "2.%u", (unsigned)TORCH_WHOLE);
}

static void write_gpus(const struct system_point *at, int which, struct cell *out)
{
    (void)which;
    snprintf(out->text, sizeof out->text, "%u", at->settings.job.strategy.world);
}

static bool differs(const struct systems *systems, cell_writer *write)
{
    struct cell first = {""}, other = {""};
    write(&systems->of[0], 0, &first);
    for (uint32_t i = 1; i < systems->count; i++) {
        write(&systems->of[i], 0, &other);
        if (strcmp(first.text, other.text) != 0)
            return true;
    }
    return false;
}

static void put_names(const struct table *t)
{
    fprintf(t->file, "\n  %-*s", t->title, "");
    for (uint32_t i = t->from; i < t->to; i++)
        fprintf(t->file, "  %s%*s%s", i == t->systems->best ? t->style.good : t->style.bold,
                t->width[i], t->systems->of[i].name, t->style.off);
    fputc('\n', t->file);
}

static bool any_has(const struct systems *systems, int category)
{
    for (uint32_t i = 0; i < systems->count; i++)
        if (!is_refused(&systems->of[i]) && systems->of[i].point.categories[category] >> 20)
            return true;
    return false;
}

static bool any_host(const struct systems *systems)
{
    for (uint32_t i = 0; i < systems->count; i++)
        if (!is_refused(&systems->of[i]) && systems->of[i].point.host_bytes >> 20)
            return true;
    return false;
}

static void put_memory(const struct table *t)
{
    put_heading(t, "at the peak, GiB");
    for (int i = 0; i < CATEGORY_WORKSPACE; i++)
        if (any_has(t->systems, i))
            put_row(t, palette_category((enum category)i).name, write_category, i);
    put_row(t, "requested by tensors", write_total, REQUESTED);
    put_row(t, "allocated", write_total, ALLOCATED);
    put_row(t, "reserved", write_total, RESERVED);
    put_row(t, "outside the allocator", write_total, OUTSIDE);
    put_row(t, "device", write_total, DEVICE);
    put_row(t, "", write_verdict, 0);
    if (any_host(t->systems))
        put_row(t, "on the host, a rank", write_total, HOST);
}

/* Products in float8 are held to the peak of what they return. */
static bool any_float8(const struct systems *systems)
{
    for (uint32_t i = 0; i < systems->count; i++)
        if (!is_refused(&systems->of[i]) && systems->of[i].settings.job.model.float8 != FLOAT8_NONE)
            return true;
    return false;
}

static void put_time(const struct table *t)
{
    put_row(t, "step", write_seconds, STEP);
    put_row(t, "tokens/s of a GPU", write_tokens, 0);
    put_row(t, any_float8(t->systems) ? "MFU, of its results' peak" : "MFU, of its dtype's peak",
            write_mfu, 0);
    put_row(t, "communication", write_seconds, COMMUNICATION);
    put_row(t, "exposed of it", write_seconds, EXPOSED);
    put_row(t, "bound by", write_bound, 0);
}

/* ---- what there is to say below it ---- */

/* Whole parameters, whose mixed precision is torch.autocast, and that is off. */
static bool computes_wide(const struct system_point *at)
{
    const enum system_kind system = at->settings.job.strategy.system;
    return (system == SYSTEM_DDP || system == SYSTEM_SINGLE) && at->compute == DTYPE_FP32 &&
           !at->autocast;
}

/* An option holds for the systems that have it, as it does where one is asked about: whose column
 * is of another question is said before any number. */
static void put_without(const struct table *t)
{
    for (uint32_t i = 0; i < t->systems->count; i++)
        if (t->systems->of[i].without[0])
            fprintf(t->file, "  %s is planned without %s, which it does not have\n",
                    t->systems->of[i].name, t->systems->of[i].without);
}

static void put_remarks(const struct table *t)
{
    bool released = false;
    for (uint32_t i = 0; i < t->systems->count; i++) {
        const struct system_point *at = &t->systems->of[i];
        released = released || at->point.after_release;
        if (is_refused(at))
            fprintf(t->file, "  %s%s%s: %s\n", t->style.bad, at->name, t->style.off,
                    at->point.reason);
        if (!is_refused(at) && !at->point.fits_host)
            fprintf(t->file, "  %s%s%s: does not fit the host, %.2f GiB of %.2f\n", t->style.bad,
                    at->name, t->style.off, gib(at->point.host_needed_bytes),
                    gib(at->point.host_capacity_bytes));
        if (!is_refused(at) && computes_wide(at))
            fprintf(t->file, "  %s computes in fp32: its mixed precision is %s+autocast=bf16\n",
                    at->name, at->name);
    }
    if (released)
        fputs("  * fits only by giving cached memory back: expect slow steps\n", t->file);
}

static bool same_dtypes(const struct system_point *a, const struct system_point *b)
{
    return a->store == b->store && a->compute == b->compute && a->reduce == b->reduce &&
           a->autocast == b->autocast;
}

static bool same_training(const struct system_point *a, const struct system_point *b)
{
    return numerics_same_training(&a->settings, &b->settings);
}

/* The fastest that fits of those that train the same as the i-th, in the same dtypes. */
static uint32_t best_alike(const struct systems *s, uint32_t i)
{
    uint32_t best = i;
    for (uint32_t k = 0; k < s->count; k++)
        if (s->of[k].point.verdict == POINT_FITS && same_dtypes(&s->of[k], &s->of[i]) &&
            same_training(&s->of[k], &s->of[i]) &&
            s->of[k].point.tokens_per_s > s->of[best].point.tokens_per_s)
            best = k;
    return best;
}

static void put_one(const struct table *t, const char *title, const struct system_point *at)
{
    struct cell computed = {""}, reduced = {""};
    char number[32];
    write_dtypes(at, 1, &computed);
    write_dtypes(at, 2, &reduced);
    fprintf(t->file, "  %s%s%s%s, %s tokens/s of a GPU", t->style.good, title, at->name,
            t->style.off, style_grouped((uint64_t)(at->point.tokens_per_s + 0.5), number));
    fprintf(t->file, "; computed in %s, reduced in %s\n", computed.text, reduced.text);
}

/* The fastest, and the fastest of each that trains otherwise: they are no like for like. */
static void put_best(const struct table *t)
{
    const struct systems *s = t->systems;
    uint32_t fits = 0;
    for (uint32_t i = 0; i < s->count; i++)
        fits += s->of[i].point.verdict == POINT_FITS;
    if (fits < 2)
        return;
    put_one(t, "fastest that fits: ", &s->of[s->best]);
    for (uint32_t i = 0; i < s->count; i++) {
        if (s->of[i].point.verdict != POINT_FITS || best_alike(s, i) != i || i == s->best)
            continue;
        if (!same_training(&s->of[i], &s->of[s->best]))
            put_one(t, "trains otherwise:  ", &s->of[i]);
        else if (!same_dtypes(&s->of[i], &s->of[s->best]))
            put_one(t, "in other dtypes:   ", &s->of[i]);
    }
}

/* The first system behind those that a line has room for: one at the least. */
static uint32_t end_of_block(const struct table *t, int columns)
{
    uint32_t end = t->from;
    int used = 2 + t->title;
    do
        used += 2 + t->width[end++];
    while (end < t->systems->count && used + 2 + t->width[end] <= columns);
    return end;
}

/* Which rows there are depends on all systems: blocks have the same. */
static void put_block(const struct table *t)
{
    put_names(t);
    if (differs(t->systems, write_torch))
        put_row(t, "as of torch", write_torch, 0);
    if (differs(t->systems, write_gpus)) /* one of them trains alone */
        put_row(t, "GPUs", write_gpus, 0);
    put_row(t, "updated in", write_dtypes, 0);
    put_row(t, "computed in", write_dtypes, 1);
    put_row(t, "reduced in", write_dtypes, 2);
    put_memory(t);
    fputc('\n', t->file);
    put_time(t);
    fputc('\n', t->file);
    put_heading(t, "closed forms: parameters, gradients and states, GiB");
    put_row(t, "ZeRO's paper", write_form, 0);
    put_row(t, "the framework's estimator", write_form, 1);
}

void systems_print(FILE *file, const struct systems *systems)
{
    struct table t = {.file = file, .style = style_of(file), .systems = systems, .title = 25};
    for (uint32_t i = 0; i < systems->count; i++) {
        const int length = (int)strlen(systems->of[i].name);
        t.width[i] = length > NARROWEST ? length : NARROWEST;
    }
    fprintf(file, "%s%s%s\n", t.style.bold, systems->given, t.style.off);
    put_without(&t);
    for (; t.from < systems->count; t.from = t.to) {
        t.to = end_of_block(&t, style_columns(file));
        put_block(&t);
    }
    fputc('\n', file);
    put_remarks(&t);
    put_best(&t);
}

/* ---- JSON ---- */

static json_t *bytes_json(uint64_t bytes)
{
    return json_integer((json_int_t)bytes);
}

static json_t *form_json(const struct closed_form *form)
{
    return json_pack("{s:i, s:o, s:o, s:o}", "zero_stage", (int)form->stage, "paper_bytes",
                     bytes_json(form->paper_bytes), "estimator",
                     form->estimator ? json_string(form->estimator) : json_null(),
                     "estimator_bytes",
                     form->estimator ? bytes_json(form->estimator_bytes) : json_null());
}

static json_t *categories_json(const struct point *p)
{
    json_t *categories = json_object();
    for (int i = 0; i < CATEGORY_COUNT; i++)
        json_object_set_new(categories, category_name((enum category)i),
                            bytes_json(p->categories[i]));
    return categories;
}

static json_t *system_json(const struct system_point *at)
{
    json_t *object = json_pack("{s:s, s:s, s:s, s:o}", "name", at->name, "system",
                               system_name(at->settings.job.strategy.system), "without",
                               at->without, "settings", settings_echo(&at->settings));
    point_set(object, &at->point);
    if (is_refused(at))
        return object;
    json_object_set_new(object, "host_bytes", bytes_json(at->point.host_bytes));
    json_object_set_new(object, "categories", categories_json(&at->point));
    json_object_set_new(object, "closed_form", form_json(&at->form));
    return object;
}

json_t *systems_json(const struct systems *systems)
{
    json_t *root = json_object(), *array = json_array();
    json_object_set_new(root, "shardplan", json_string(SHARDPLAN_VERSION));
    for (uint32_t i = 0; i < systems->count; i++)
        json_array_append_new(array, system_json(&systems->of[i]));
    json_object_set_new(root, "given", json_string(systems->given));
    json_object_set_new(root, "systems", array);
    json_object_set_new(root, "best",
                        systems->best == SWEEP_NONE ? json_null() : json_integer(systems->best));
    return root;
}

/* per_unit.c - see per_unit.h. */
#include "search/per_unit.h"

#include "search/nearer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    BASES_MOST = 48, /* looked at: keeping none and keeping all are simulated */
    SEARCHED_MOST = 2,
    SETS_MOST = 512, /* simulated of each */
    DRAWS = 20,
};

#define AXIS_RESHARD "reshard"
#define AXIS_KEEP "keep-unsharded"
#define KEEP_UNITS "keep-units"

struct base {
    struct found found; /* keeping none */
    double all_s;       /* with all kept */
    bool binds;         /* they do not fit */
    double guess_s;     /* as if keeping were worth the same for each byte */
};

struct asking {
    const struct candidates *c;
    const struct per_unit_options *options;
    struct pool *pool;
    struct base bases[BASES_MOST]; /* (count) */
    uint32_t count;
    bool of_found; /* the first is what was found, which may gather nothing twice */
};

/* ---- bases ---- */

static uint32_t axis_of(const struct grid *grid, const char *name)
{
    uint32_t a = 0;
    while (a < grid->axis_count && strcmp(grid->axes[a].row->name, name) != 0)
        a++;
    return a;
}

/* Whether what is kept is open in a grid: of FSDP2, and nobody gave it. */
static bool is_open(const struct asking *asking, const struct grid *grid)
{
    const struct strategy *s = &grid->base.job.strategy;
    struct settings kept = grid->base;
    if (s->system != SYSTEM_FSDP2 || s->keep_units || s->keep_last ||
        settings_is_given(&grid->base, settings_find(&grid->base, AXIS_KEEP, NULL)) ||
        (s->reshard == RESHARD_NEVER && axis_of(grid, AXIS_RESHARD) == grid->axis_count))
        return false;
    return settings_set(&kept, KEEP_UNITS, "*", NULL) == ERR_OK &&
           (!asking->options->can_say || asking->options->can_say(asking->options->context, &kept));
}

/* The point that keeps none. */
static uint64_t base_point(const struct grid *grid, uint64_t point)
{
    const uint32_t reshard = axis_of(grid, AXIS_RESHARD), keep = axis_of(grid, AXIS_KEEP);
    if (reshard < grid->axis_count)
        point = grid_with(grid, point, reshard, 0);
    return keep < grid->axis_count ? grid_with(grid, point, keep, 0) : point;
}

static void add_base(struct asking *asking, uint32_t grid_index, uint64_t point)
{
    const struct candidates *c = asking->c;
    const struct grid *grid = &c->space->grids[grid_index];
    struct settings settings;
    point = base_point(grid, point);
    grid_settings(grid, point, &settings);
    const uint32_t candidate = candidates_find(c, grid_index, point);
    bool there = candidate >= c->count || asking->count == BASES_MOST ||
                 settings.job.strategy.reshard == RESHARD_NEVER;
    for (uint32_t i = 0; i < asking->count && !there; i++)
        there =
            asking->bases[i].found.candidate == candidate && asking->bases[i].found.point == point;
    if (there || c->at[candidate].device_floor > asking->options->limit_bytes ||
        isinf(c->at[candidate].step_floor_s))
        return;
    asking->bases[asking->count++] = (struct base){
        .found = {.candidate = candidate, .point = point, .weight = grid_departures(grid, point)}};
}

static bool is_never(const struct candidates *c, const struct candidate *at)
{
    struct settings settings;
    const struct grid *grid = &c->space->grids[at->grid];
    grid_settings(grid, at->outer * grid->inner_points, &settings);
    return settings.job.strategy.system == SYSTEM_FSDP2 &&
           settings.job.strategy.reshard == RESHARD_NEVER && settings.job.strategy.keep_last == 0;
}

/* What was found, and what may be faster where all units are kept: what fits of that was found.
 * Returns whether any grid is open. */
static bool find_bases(struct asking *asking)
{
    const struct candidates *c = asking->c;
    const struct found *best = &asking->options->found[0];
    bool open[SYSTEM_COUNT], any = false;
    for (uint32_t g = 0; g < c->space->grid_count; g++)
        any |= open[g] = is_open(asking, &c->space->grids[g]);
    for (uint32_t i = 0; i < asking->options->found_count && any; i++) {
        const struct found *found = &asking->options->found[i];
        if (open[c->at[found->candidate].grid])
            add_base(asking, c->at[found->candidate].grid, found->point);
        asking->of_found = asking->of_found || (i == 0 && asking->count > 0);
    }
    for (uint32_t i = 0; i < c->count && any && c->at[i].step_floor_s < best->step_s; i++) {
        const struct candidate *at = &c->at[i];
        const struct grid *grid = &c->space->grids[at->grid];
        const uint64_t inner =
            c->at[best->candidate].grid == at->grid ? best->point % grid->inner_points : 0;
        if (open[at->grid] && is_never(c, at))
            add_base(asking, at->grid, at->outer * grid->inner_points + inner);
    }
    return any;
}

/* ---- keeping none, and all ---- */

static bool is_faster_than_found(const struct asking *asking, double step_s)
{
    return step_s < asking->options->found[0].step_s * (1 - PER_UNIT_WORTH);
}

struct ends { /* of a base: keeping none, keeping all */
    struct evaluation none, all;
    uint64_t all_bytes;
};

/* Of what would be no faster with all kept no more than that is worked out, but of what was found
 * (`of_found`). */
static enum err_code evaluate_ends(const struct asking *asking, struct evaluator *evaluator,
                                   const struct found *found, bool of_found, struct ends *out)
{
    struct job job;
    bool expandable;
    const struct candidates *c = asking->c;
    const struct candidate *at = &c->at[found->candidate];
    const struct stream_class *class = c->classes[at->stream_class];
    TRY(candidates_job(c, at->grid, found->point, &job, &expandable, NULL));
    struct strategy all = job.strategy;
    all.keep_units = "*";
    TRY(evaluate_fast(evaluator, class, &all, &out->all, NULL));
    if (!of_found && !is_faster_than_found(asking, out->all.step_s))
        return ERR_UNSUPPORTED;
    out->all_bytes = out->all.device_floor;
    if (out->all_bytes <= asking->options->limit_bytes)
        TRY(evaluate_full(evaluator, class, &all, expandable, 0, &out->all_bytes, NULL));
    return evaluate_fast(evaluator, class, &job.strategy, &out->none, NULL);
}

static void simulate_base(void *context, uint32_t i, uint32_t thread)
{
    struct asking *asking = context;
    struct base *base = &asking->bases[i];
    struct ends ends;
    base->guess_s = base->all_s = base->found.step_s = INFINITY;
    if (evaluate_ends(asking, asking->c->evaluators[thread], &base->found,
                      asking->of_found && i == 0, &ends) != ERR_OK)
        return;
    const double limit = (double)asking->options->limit_bytes;
    const double room = limit - (double)ends.none.device_floor;
    const double need = (double)ends.all_bytes - (double)ends.none.device_floor;
    base->found.step_s = ends.none.step_s;
    base->found.device_floor = ends.none.device_floor;
    base->all_s = ends.all.step_s;
    base->binds = ends.all_bytes > asking->options->limit_bytes;
    if (room >= 0)
        base->guess_s = ends.none.step_s -
                        (ends.none.step_s - ends.all.step_s) * (need > room ? room / need : 1);
}

static int by_guess(const void *x, const void *y)
{
    const struct base *a = x, *b = y;
    if (a->guess_s != b->guess_s)
        return a->guess_s < b->guess_s ? -1 : 1;
    if (a->found.candidate != b->found.candidate)
        return a->found.candidate < b->found.candidate ? -1 : 1;
    return a->found.point < b->found.point ? -1 : a->found.point > b->found.point;
}

/* Whether a set of it may be the answer. */
static bool is_worthwhile(const struct asking *asking, const struct base *base)
{
    return base->binds && isfinite(base->guess_s) && is_faster_than_found(asking, base->all_s);
}

/* Keeps those that may be, the likeliest first; returns their number. */
static uint32_t keep_worthwhile(struct asking *asking, struct per_unit *out)
{
    const struct base first = asking->bases[0];
    const bool of_found = asking->of_found && isfinite(first.all_s);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < asking->count; i++)
        if (is_worthwhile(asking, &asking->bases[i]))
            asking->bases[kept++] = asking->bases[i];
    qsort(asking->bases, kept, sizeof *asking->bases, by_guess);
    out->cost_s = of_found ? first.found.step_s - first.all_s : 0;
    out->state = kept                                                ? PER_UNIT_SEARCHED
                 : !of_found                                         ? PER_UNIT_NOT_ASKED
                 : out->cost_s < PER_UNIT_WORTH * first.found.step_s ? PER_UNIT_HIDDEN
                 : first.binds                                       ? PER_UNIT_NO_GAIN
                                                                     : PER_UNIT_ALL_FIT;
    return asking->count = kept;
}

/* ---- sets ---- */

static enum err_code search_base(const struct asking *asking, const struct found *found,
                                 struct kept_answer *out)
{
    const struct candidates *c = asking->c;
    const struct candidate *at = &c->at[found->candidate];
    struct job job;
    bool expandable;
    TRY(candidates_job(c, at->grid, found->point, &job, &expandable, NULL));
    const struct kept_problem problem = {.stream_class = c->classes[at->stream_class],
                                         .strategy = job.strategy,
                                         .expandable_segments = expandable,
                                         .limit_bytes = asking->options->limit_bytes,
                                         .evaluators = c->evaluators,
                                         .pool = asking->pool,
                                         .most_simulated = SETS_MOST,
                                         .stop = asking->options->stop};
    return kept_sets_search(&problem, out, NULL);
}

/* Whether the taken set is as good in another base, all told (nearer.h). */
static bool is_as_good_in(const struct asking *asking, const struct kept_set *set,
                          const struct found *base)
{
    const struct candidates *c = asking->c;
    const struct candidate *at = &c->at[base->candidate];
    const struct stream_class *class = c->classes[at->stream_class];
    struct job job;
    bool expandable;
    struct evaluation fast;
    uint64_t bytes;
    if (candidates_job(c, at->grid, base->point, &job, &expandable, NULL) != ERR_OK)
        return false;
    job.strategy.keep_units = *set->text ? set->text : NULL;
    job.strategy.keep_last = 0;
    return evaluate_fast(c->evaluators[0], class, &job.strategy, &fast, NULL) == ERR_OK &&
           is_as_good(fast.step_s, fast.device_floor, set->step_s, set->device_bytes) &&
           evaluate_full(c->evaluators[0], class, &job.strategy, expandable,
                         asking->options->limit_bytes, &bytes, NULL) == ERR_OK &&
           bytes <= asking->options->limit_bytes &&
           is_as_good(fast.step_s, bytes, set->step_s, set->device_bytes);
}

/* The answer in a base that is one setting nearer to the framework's defaults, if it is as good:
 * searched anew, as its bound is of one base. */
static bool take_nearer(const struct asking *asking, struct per_unit *out)
{
    const struct candidates *c = asking->c;
    const uint32_t index = c->at[out->base.candidate].grid;
    const struct grid *grid = &c->space->grids[index];
    const struct kept_set *set = per_unit_set(out);
    uint64_t points[AXES_MOST];
    const uint32_t count = nearer_points(grid, out->base.point, points);
    for (uint32_t i = 0; i < count; i++) {
        struct kept_answer answer;
        struct found base = {.candidate = candidates_find(c, index, points[i]),
                             .point = points[i],
                             .weight = grid_departures(grid, points[i])};
        if (base.candidate >= c->count || !is_as_good_in(asking, set, &base) ||
            search_base(asking, &base, &answer) != ERR_OK)
            continue;
        out->simulated += answer.simulated;
        const struct kept_set *own = out->last ? &answer.last : &answer.best;
        if (!is_as_good(own->step_s, own->device_bytes, set->step_s, set->device_bytes)) {
            kept_answer_free(&answer);
            continue;
        }
        base.step_s = answer.none.step_s;
        base.device_floor = answer.none.device_floor;
        kept_answer_free(&out->of);
        out->of = answer;
        out->base = base;
        return true;
    }
    return false;
}

static bool draw(const struct candidates *c, const struct found *found, const struct kept_set *set,
                 double steps_s[DRAWS])
{
    struct job job;
    bool expandable;
    const struct candidate *at = &c->at[found->candidate];
    if (candidates_job(c, at->grid, found->point, &job, &expandable, NULL) != ERR_OK)
        return false;
    if (set) {
        job.strategy.keep_units = *set->text ? set->text : NULL;
        job.strategy.keep_last = 0;
    }
    return evaluate_draws(c->evaluators[0], c->classes[at->stream_class], &job.strategy, DRAWS,
                          steps_s, NULL) == ERR_OK;
}

/* In every one of the draws. */
static bool is_faster(const double a_s[DRAWS], const double b_s[DRAWS])
{
    bool faster = true;
    for (int d = 0; d < DRAWS; d++)
        faster = faster && a_s[d] < b_s[d] * (1 - PER_UNIT_WORTH);
    return faster;
}

/* The last k need no list: they are taken unless others are faster in every draw. */
static void weigh(const struct asking *asking, struct per_unit *out)
{
    const struct candidates *c = asking->c;
    double best_s[DRAWS], last_s[DRAWS], found_s[DRAWS];
    if (!draw(c, &out->base, &out->of.best, best_s) ||
        !draw(c, &asking->options->found[0], NULL, found_s))
        return;
    out->last = isfinite(out->of.last.step_s) && draw(c, &out->base, &out->of.last, last_s) &&
                !is_faster(best_s, last_s);
    out->taken = is_faster(out->last ? last_s : best_s, found_s);
}

void per_unit_search(const struct candidates *candidates, const struct per_unit_options *options,
                     struct pool *pool, struct per_unit *out)
{
    struct asking asking = {.c = candidates, .options = options, .pool = pool};
    *out = (struct per_unit){.state = PER_UNIT_NOT_ASKED};
    if (!find_bases(&asking))
        return;
    pool_run(pool, asking.count, simulate_base, &asking);
    const uint32_t count = keep_worthwhile(&asking, out);
    bool any = false;
    for (uint32_t i = 0; i < count && i < SEARCHED_MOST; i++) {
        struct kept_answer answer;
        if (search_base(&asking, &asking.bases[i].found, &answer) != ERR_OK)
            continue;
        out->simulated += answer.simulated;
        out->configurations++;
        const bool better =
            isfinite(answer.best.step_s) && (!any || answer.best.step_s < out->of.best.step_s);
        struct kept_answer *worse = better ? &out->of : &answer;
        if (better && !any)
            worse = NULL;
        if (worse)
            kept_answer_free(worse);
        if (better) {
            out->of = answer;
            out->base = asking.bases[i].found;
            any = true;
        }
    }
    for (bool moved = any; moved; moved = out->last && take_nearer(&asking, out)) {
        while (!out->last && take_nearer(&asking, out))
            continue;
        weigh(&asking, out);
    }
    if (!any && count)
        out->state = PER_UNIT_NOT_ASKED;
}

const struct kept_set *per_unit_set(const struct per_unit *p)
{
    return p->last ? &p->of.last : &p->of.best;
}

void per_unit_put(const struct per_unit *p, struct settings *settings)
{
    const struct kept_set *set = per_unit_set(p);
    if (p->last)
        (void)settings_set(settings, AXIS_KEEP, set->number, NULL);
    else
        (void)settings_set(settings, KEEP_UNITS, set->text, NULL);
}

void per_unit_free(struct per_unit *p)
{
    kept_answer_free(&p->of);
    *p = (struct per_unit){.state = PER_UNIT_NOT_ASKED};
}

/* units_result.c - see units_result.h. */
#include "report/units_result.h"

#include "report/style.h"

#include <string.h>

enum { LINE_RUNS = 4 }; /* in the line; a table has them all */

struct size { /* of one unit */
    uint32_t tensors;
    uint64_t parameters, stored, gathered;
};

/* Bytes of the buffers that the unit's pieces of a role are in; flat ones are in one. */
static uint64_t bytes_of(const struct plan *plan, const struct plan_unit *unit,
                         enum piece_role role)
{
    uint64_t bytes = 0;
    uint32_t last = PLACE_NONE;
    for (uint32_t i = 0; i < unit->params; i++) {
        const struct plan_piece *piece =
            plan_piece(plan, plan->unit_params[unit->first_param + i], role);
        if (piece && piece->buffer != last)
            bytes += plan->buffers[piece->buffer].bytes;
        last = piece ? piece->buffer : last;
    }
    return bytes;
}

static struct size size_of(const struct plan *plan, uint32_t index)
{
    const struct plan_unit *unit = &plan->units[index];
    struct size size = {
        .tensors = unit->params,
        .stored = bytes_of(plan, unit, PIECE_STORE),
        .gathered = bytes_of(plan, unit, PIECE_GATHERED),
    };
    for (uint32_t i = 0; i < unit->params; i++)
        size.parameters += plan_param_elements(plan, plan->unit_params[unit->first_param + i]);
    return size;
}

static const char *name_of(const struct plan *plan, uint32_t unit)
{
    return plan->units[unit].name[0] ? plan->units[unit].name : "root";
}

json_t *units_json(const struct plan *plan)
{
    json_t *units = json_array();
    for (uint32_t u = 0; u < plan->unit_count; u++) {
        const struct size size = size_of(plan, u);
        json_array_append_new(units, json_pack("{s:s, s:i, s:I, s:I, s:I}", "name",
                                               name_of(plan, u), "tensors", (int)size.tensors,
                                               "parameters", (json_int_t)size.parameters,
                                               "stored_bytes", (json_int_t)size.stored,
                                               "gathered_bytes", (json_int_t)size.gathered));
    }
    return units;
}

/* ---- runs of neighbours that are alike ---- */

static bool is_alike(const struct size *x, const struct size *y)
{
    return x->tensors == y->tensors && x->parameters == y->parameters && x->stored == y->stored &&
           x->gathered == y->gathered;
}

/* Whether units come and go, with all of their parameters; buckets and partitions are only reduced
 * together: what some of ZeRO-3's have gathered is of those that stay. */
static bool is_gathered(const struct plan *plan)
{
    uint64_t gathered = 0;
    for (uint32_t u = 0; u < plan->unit_count; u++) {
        const uint32_t *params = &plan->unit_params[plan->units[u].first_param];
        if (strcmp(plan->units[u].name, PLAN_UNIT_IGNORED) == 0)
            continue;
        for (uint32_t i = 0; i < plan->units[u].params; i++)
            if (!plan_piece(plan, params[i], PIECE_GATHERED))
                return false;
        gathered += size_of(plan, u).gathered;
    }
    return gathered > 0 && plan->unit_count > 1;
}

/* The last unit of the run that begins at `first`; its size is *size. */
static uint32_t run_end(const struct plan *plan, uint32_t first, struct size *size)
{
    uint32_t last = first;
    *size = size_of(plan, first);
    while (last + 1 < plan->unit_count) {
        const struct size next = size_of(plan, last + 1);
        if (!is_alike(&next, size))
            break;
        last++;
    }
    return last;
}

static void print_names(FILE *file, const struct plan *plan, uint32_t first, uint32_t last)
{
    if (first < last)
        fprintf(file, "%u x %s ... %s", last - first + 1, name_of(plan, first),
                name_of(plan, last));
    else
        fprintf(file, "%s", name_of(plan, first));
}

/* Whether weights come in float8 (--float8-gather). */
static bool has_float8(const struct plan *plan)
{
    for (uint32_t p = 0; p < plan->param_count; p++) {
        const struct plan_piece *piece = plan_piece(plan, p, PIECE_GATHERED);
        if (piece && plan->buffers[piece->buffer].dtype == DTYPE_FLOAT8_E4M3)
            return true;
    }
    return false;
}

void units_print_line(FILE *file, const struct strategy *strategy, const struct plan *plan)
{
    char number[32];
    uint32_t runs = 0;
    const bool gathered = is_gathered(plan);
    if (!plan->unit_count)
        return;
    if (gathered)
        fprintf(file, "  units: %u, gathered in %s%s:", plan->unit_count,
                dtype_brief(strategy->compute), has_float8(plan) ? " and float8" : "");
    else if (plan->group_count)
        fprintf(file, "  units: %u, reduced in %s:", plan->unit_count,
                dtype_brief(strategy->reduce));
    else
        fprintf(file, "  units: %u:", plan->unit_count);
    for (uint32_t first = 0; first < plan->unit_count; runs++) {
        struct size size;
        const uint32_t last = run_end(plan, first, &size);
        if (runs < LINE_RUNS) {
            fputs(runs ? "; " : " ", file);
            print_names(file, plan, first, last);
            fprintf(file, " %s parameters", style_grouped(size.parameters, number));
        }
        if (runs < LINE_RUNS && gathered && size.gathered)
            fprintf(file, ", %s", style_bytes(size.gathered, number));
        first = last + 1;
    }
    fputs(runs > LINE_RUNS ? "; ...\n" : "\n", file);
}

void units_print(FILE *file, const struct strategy *strategy, const struct plan *plan)
{
    char number[32], gathered_text[32];
    const bool gathered = is_gathered(plan);
    if (!plan->unit_count)
        return;
    fprintf(file, "\n  %-40s %7s %15s %10s %10s\n",
            gathered ? "units" : "units, which are reduced together", "tensors", "parameters",
            "GiB stored", gathered ? "gathered" : "");
    fprintf(file, "  %-40s %7s %15s %10s %10s\n", "", "", "", dtype_brief(strategy->store),
            gathered ? dtype_brief(strategy->compute) : "");
    for (uint32_t first = 0; first < plan->unit_count;) {
        struct size size;
        char names[160] = "";
        const uint32_t last = run_end(plan, first, &size);
        FILE *text = fmemopen(names, sizeof names, "w");
        if (text) {
            print_names(text, plan, first, last);
            fclose(text);
        }
        snprintf(gathered_text, sizeof gathered_text, gathered ? "%.3f" : "",
                 (double)size.gathered / 1073741824.0);
        fprintf(file, "  %-40s %7u %15s %10.3f %10s\n", names, size.tensors,
                style_grouped(size.parameters, number), (double)size.stored / 1073741824.0,
                gathered_text);
        first = last + 1;
    }
}

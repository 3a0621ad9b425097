/* test_streams_fsdp1.c - the streams of FSDP1's plans beside recordings of torch 2.14.1's own
 * (tests/data/truth/streams.jsonl): what is issued on which stream, who waits for whom and where
 * the host blocks, in host order.
 *
 * Left out of a recording: waits for events of the step before, which a plan's step begins behind;
 * record_stream of tensors that have no memory, or are of that stream's own pool, of which the
 * allocator takes no notice, and what is said twice. */
#include "tests/support/truth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LINE = 96, LINES_MOST = 4096, EVENTS_MOST = 4096 };

struct lines {
    char at[LINES_MOST][LINE];
    size_t count;
    uint32_t known[EVENTS_MOST]; /* (events) its number, by order of record; 0: not recorded */
    uint32_t records;
};

static char *next_line(struct lines *lines)
{
    assert_true(lines->count < LINES_MOST);
    return lines->at[lines->count++];
}

/* Events are told apart by the order of their records. */
static void add_event(struct lines *lines, const char *what, const char *stream, uint32_t event)
{
    assert_true(event < EVENTS_MOST);
    if (strcmp(what, "record") == 0)
        lines->known[event] = ++lines->records;
    if (lines->known[event])
        snprintf(next_line(lines), LINE, "%s %s %u", what, stream, lines->known[event]);
}

/* ---- recorded ---- */

static const char *text_of(const json_t *line, size_t i)
{
    return json_string_value(json_array_get(line, i));
}

static uint32_t number_of(const json_t *line, size_t i)
{
    return (uint32_t)json_integer_value(json_array_get(line, i));
}

/* Whether a line says again what the one before did: of an offloaded shard the gather and the free
 * tell the allocator. */
static bool is_repeated(const json_t *recorded, size_t i)
{
    return i > 0 && json_equal(json_array_get(recorded, i - 1), json_array_get(recorded, i));
}

static void read_recorded(const json_t *recorded, struct lines *lines)
{
    size_t i;
    const json_t *line;
    json_array_foreach(recorded, i, line)
    {
        const char *what = text_of(line, 0), *stream = text_of(line, 1);
        if (strcmp(what, "op") == 0) {
            const char *op = text_of(line, 2);
            snprintf(next_line(lines), LINE, "op %s %s", stream,
                     op + (strncmp(op, "aten.", 5) == 0 ? 5 : 0));
        } else if (strcmp(what, "record_stream") != 0) {
            add_event(lines, what, stream, number_of(line, 2));
        } else if (number_of(line, 2) > 0 && strcmp(stream, text_of(line, 4)) != 0 &&
                   !is_repeated(recorded, i)) {
            snprintf(next_line(lines), LINE, "record_stream %s %u %s", stream, number_of(line, 2),
                     text_of(line, 3));
        }
    }
}

/* ---- planned ---- */

static bool is_told_on_compute(uint16_t label)
{
    return label == ATEN_MM || label == ATEN_ADDMM || label == ATEN_BMM || label == ATEN_CAT ||
           label == ATEN_ALL_REDUCE;
}

static void add_kernel(const struct plan *plan, const struct plan_instruction *in,
                       struct lines *lines)
{
    static const struct {
        uint16_t label;
        const char *name;
    } collectives[] = {{ATEN_ALL_GATHER_INTO_TENSOR, "allgather_"},
                       {ATEN_REDUCE_SCATTER_TENSOR, "_reduce_scatter_base_"},
                       {ATEN_ALL_REDUCE, "allreduce_"}};
    const struct kernel *kernel = plan_kernel(plan, in->arg);
    const char *name = plan->labels[kernel->label];
    if (in->op == PLAN_OPTIMIZER ||
        (in->lane == LANE_COMPUTE && !is_told_on_compute(kernel->label)))
        return;
    for (size_t i = 0; i < sizeof collectives / sizeof *collectives; i++)
        if (collectives[i].label == kernel->label)
            name = collectives[i].name;
    snprintf(next_line(lines), LINE, "op %s %.*s", plan->lanes[in->lane].name,
             (int)strcspn(name, "."), name);
}

/* What the host has done, a stream need not be told: it is issued later. */
static bool is_of_host(const struct plan *plan, uint32_t i)
{
    const struct plan_instruction *in = &plan->instructions[i];
    if (in->op == PLAN_RECORD)
        return in->lane == LANE_HOST;
    for (uint32_t k = i; in->op == PLAN_WAIT && k-- > 0;)
        if (plan->instructions[k].op == PLAN_RECORD && plan->instructions[k].arg == in->arg)
            return plan->instructions[k].lane == LANE_HOST;
    return false;
}

/* Whether a `use` has named the lane of the free `i`: the allocator knows. */
static bool is_named(const struct plan *plan, uint32_t i)
{
    const struct plan_instruction *in = &plan->instructions[i];
    while (i-- > 0 &&
           !(plan->instructions[i].op == PLAN_ALLOC && plan->instructions[i].arg == in->arg))
        if (plan->instructions[i].op == PLAN_USE && plan->instructions[i].arg == in->arg &&
            plan->instructions[i].lane == in->lane)
            return true;
    return false;
}

static void read_planned(const struct plan *plan, struct lines *lines)
{
    for (uint32_t i = 0; i < plan->instruction_count; i++) {
        const struct plan_instruction *in = &plan->instructions[i];
        const char *lane = plan->lanes[in->lane].name;
        const struct buffer *buffer =
            in->op == PLAN_FREE || in->op == PLAN_USE ? &plan->buffers[in->arg] : NULL;
        if (!plan_is_issued(in, false) || is_of_host(plan, i))
            continue;
        if (in->op == PLAN_RECORD)
            add_event(lines, "record", lane, in->arg);
        else if (in->op == PLAN_WAIT)
            add_event(lines, in->lane == LANE_HOST ? "sync" : "wait", lane, in->arg);
        else if (plan_op_is_kernel((enum plan_op)in->op))
            add_kernel(plan, in, lines);
        else if (in->op == PLAN_USE ||
                 (buffer && plan_free_is_deferred(plan, in) && !is_named(plan, i)))
            snprintf(next_line(lines), LINE, "record_stream %s %llu %s", lane,
                     (unsigned long long)buffer->bytes, dtype_name((enum dtype)buffer->dtype));
    }
}

/* ---- both ---- */

static void compare(const json_t *row, size_t *rows)
{
    static struct lines theirs, ours;
    struct plan *plan = truth_plan(row, truth_read_written);
    assert_non_null(plan);
    memset(&theirs, 0, sizeof theirs);
    memset(&ours, 0, sizeof ours);
    read_recorded(json_object_get(row, "streams"), &theirs);
    read_planned(plan, &ours);
    for (size_t i = 0; i < theirs.count || i < ours.count; i++)
        if (strcmp(theirs.at[i], ours.at[i]) != 0)
            fail_msg("%s: line %zu of %zu and %zu: recorded \"%s\", planned \"%s\"",
                     truth_text(row, "name", ""), i, theirs.count, ours.count, theirs.at[i],
                     ours.at[i]);
    assert_true(theirs.count > 50);
    plan_free(plan);
    ++*rows;
}

static void streams_are_pytorchs(void **state)
{
    FILE *file = fopen("tests/data/truth/streams.jsonl", "r");
    char *text = NULL;
    size_t size = 0, rows = 0;
    (void)state;
    assert_non_null(file);
    while (getline(&text, &size, file) > 0) {
        json_t *row = json_loads(text, 0, NULL);
        const json_t *strategy = json_object_get(row, "strategy");
        if (strcmp(truth_text(strategy, "system", "fsdp2"), "fsdp1") == 0)
            compare(row, &rows);
        json_decref(row);
    }
    free(text);
    fclose(file);
    print_message("%zu rows\n", rows);
    assert_true(rows >= 21);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_are_pytorchs),
    };
    return cmocka_run_group_tests_name("streams_fsdp1", tests, NULL, NULL);
}

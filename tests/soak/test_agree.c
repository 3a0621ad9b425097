/* test_agree.c - one job, asked about by several commands: whatever one refuses, the others refuse
 * with the same sentence, and what fits for one fits for all.
 *
 * SOAK_JOBS=20000 tries so many, SOAK_FIRST=N begins with job N: a failure says which it was. */
#include "lower/lower.h"
#include "tests/support/odd_lines.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { AGREED = 60, SEED = 20261127, SHOWN = 10 };

static void add_number(struct odd_line *line, const char *name, uint64_t number)
{
    odd_add(line, "--%s=%llu", name, (unsigned long long)number);
}

/* A job of `seq` tokens: a world that fills its nodes or does not, batches, and settings of the
 * model, the job, the cluster and the strategy, mostly such as the system has. */
static void job_draw(struct odd_line *line, uint64_t number, uint32_t *seq)
{
    static const uint32_t worlds[] = {1,  2,  3,  4,  5,  6,  7,  8,  8,
                                      12, 16, 16, 20, 24, 32, 64, 96, 1000};
    static const uint32_t nodes[] = {1, 2, 3, 4, 5, 6, 8, 16};
    odd_begin(SEED ^ (number * 0xbf58476d1ce4e5b9U));
    *line = (struct odd_line){.command = COMMAND_FIT};
    *seq = 1 + (uint32_t)odd_below(odd_below(2) ? 8 : 600);
    const enum system_kind system = (enum system_kind)odd_below(SYSTEM_COUNT);
    odd_add(line, "shardplan");
    odd_add(line, "fit");
    odd_add(line, "%s", odd_model());
    odd_add(line, "--strategy=%s", system_name(system));
    add_number(line, "gpus", ODD_ONE_OF(worlds));
    if (odd_below(3) == 0)
        add_number(line, "gpus-per-node", ODD_ONE_OF(nodes));
    if (odd_below(2))
        add_number(line, "accumulate", 1 + odd_below(odd_below(2) ? 4 : 40));
    if (odd_below(2))
        add_number(line, "micro-batch", 1 + odd_below(5));
    for (uint64_t left = odd_below(odd_below(3) ? 4 : 9); left > 0; left--) {
        const struct setting *row = odd_row(COMMAND_FIT, system);
        if (row->group != GROUP_OUTPUT && !row->positional && strcmp(row->name, "seq") != 0 &&
            setting_is_of(row, COMMAND_PLAN) && setting_is_of(row, COMMAND_SWEEP))
            odd_add_option(line, row);
    }
    add_number(line, "seq", *seq);
}

/* The same job asked for otherwise: `command`, and one more word. */
static struct odd_outcome asked_as(struct odd_line *line, char *command, char *last)
{
    char *const before = line->words[1];
    line->words[1] = command;
    line->words[line->count] = last;
    line->words[line->count + 1] = NULL;
    const struct odd_outcome o = odd_outcome_of(line->words);
    line->words[1] = before;
    line->words[line->count] = NULL;
    return o;
}

/* The sentence of a refusal: its first line, without the name of the command, which argp has. */
static void sentence(const struct odd_outcome *o, const char *command, char *text, size_t size)
{
    char begin[32];
    snprintf(begin, sizeof begin, "shardplan %s:", command);
    const size_t length = strlen(begin);
    const char *at = strncmp(o->error, begin, length) == 0 ? o->error + length
                     : strchr(o->error, ':')               ? strchr(o->error, ':') + 1
                                                           : o->error;
    snprintf(text, size, "%.*s", (int)strcspn(at, "\n"), at);
}

static bool agree(struct odd_line *line, uint64_t number, const struct odd_outcome *fit,
                  char *command, char *last)
{
    char first[1024] = "", second[1024] = "";
    struct odd_outcome o = asked_as(line, command, last);
    const char *what = o.status != fit->status ? "another status than fit's" : odd_wrong(line, &o);
    if (fit->status == 2) {
        sentence(fit, "fit", first, sizeof first);
        sentence(&o, command, second, sizeof second);
    }
    if (!what && strcmp(first, second) != 0)
        what = "another sentence than fit's";
    if (what) {
        odd_show(line, number, fit, "is judged otherwise");
        fprintf(stderr, "    %s %s: %s (status %d)\n    %.600s\n", command, last, what, o.status,
                o.error);
    }
    odd_outcome_free(&o);
    return !what;
}

/* Whatever one command refuses, the others refuse with the same sentence; what fits for one fits
 * for all. */
static void commands_agree_on_a_job(void **state)
{
    (void)state;
    const struct odd_span span = odd_span_of(AGREED);
    uint32_t found = 0, statuses[4] = {0};
    for (uint64_t number = span.begin; number < span.end && found < SHOWN; number++) {
        struct odd_line line;
        uint32_t seq;
        char over[32], quiet[] = "--quiet", no_files[] = "--no-files", fits[] = "fit",
                       plans[] = "plan", sweeps[] = "sweep";
        job_draw(&line, number, &seq);
        snprintf(over, sizeof over, "--over=seq=%u", seq); /* one point: the job */
        struct odd_outcome fit = asked_as(&line, fits, quiet);
        const char *what = odd_wrong(&line, &fit);
        if (what)
            odd_show(&line, number, &fit, what);
        const bool same = !what && agree(&line, number, &fit, plans, no_files) &&
                          agree(&line, number, &fit, sweeps, over);
        if (fit.status >= 0 && fit.status < 4)
            statuses[fit.status]++;
        found += !same;
        odd_outcome_free(&fit);
        odd_free(&line);
    }
    print_message("note: jobs of status 0: %u, 1: %u, 2: %u\n", statuses[0], statuses[1],
                  statuses[2]);
    assert_int_equal(found, 0);
}
int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(commands_agree_on_a_job)};
    return cmocka_run_group_tests_name("agree", tests, odd_set_up, odd_tear_down);
}

/* test_odd_lines.c - whatever is typed: command lines drawn from the table of settings, with the
 * values that it allows, those at its limits, and what nobody should give.
 *
 *     a command, a few of its rows, a value of each --a process of its own--> status, answer, error
 *
 * Each ends by itself within its limits, with a status that the manual has: 2 with a sentence, 1
 * where it may, 0 with a whole answer. What fits has room left, and what `fit` can judge, `plan`
 * can plan. No process is ended by a signal, an assertion or a sanitizer.
 *
 * SOAK_JOBS=20000 tries so many, SOAK_FIRST=N begins with line N: a failure says which it was. */
#include "lower/lower.h"
#include "settings/settings.h"
#include "tests/support/folder.h"
#include "tests/support/odd_lines.h"
#include "tests/support/program.h"
#include "tests/support/soak.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { LINES = 60, SEED = 20261125, SHOWN = 10 };

/* ---- drawing ---- */

static void add_positional(struct odd_line *line)
{
    uint32_t count;
    const struct setting *rows = setting_rows(&count);
    char value[6100];
    for (uint32_t i = 0; i < count; i++) {
        if (!rows[i].positional || !setting_is_of(&rows[i], line->command) || odd_below(60) == 0)
            continue;
        odd_value(&rows[i], line->command, value, sizeof value);
        if (strcmp(rows[i].name, "plan") == 0 && odd_below(8))
            snprintf(value, sizeof value, "plan.json");
        if (strcmp(rows[i].name, "trace") == 0 && odd_below(4))
            snprintf(value, sizeof value, "trace.json");
        if (strcmp(rows[i].name, "table") == 0 && odd_below(4))
            snprintf(value, sizeof value, "kernels.csv");
        odd_add(line, "%s", value);
    }
}
static void line_draw(struct odd_line *line, uint64_t number)
{
    static const enum command commands[] = {
        COMMAND_FIT,  COMMAND_FIT,  COMMAND_FIT,    COMMAND_FIT,     COMMAND_PLAN,
        COMMAND_PLAN, COMMAND_TUNE, COMMAND_TUNE,   COMMAND_SWEEP,   COMMAND_SWEEP,
        COMMAND_DIFF, COMMAND_DIFF, COMMAND_EXPORT, COMMAND_COMPARE, COMMAND_CALIBRATE,
        COMMAND_RUN,  COMMAND_GPUS, COMMAND_KERNELS};
    odd_begin(SEED ^ (number * 0x9e3779b97f4a7c15U));
    *line = (struct odd_line){.command = ODD_ONE_OF(commands)};
    const enum system_kind system =
        odd_below(2) ? SYSTEM_FSDP2 : (enum system_kind)odd_below(SYSTEM_COUNT);
    odd_add(line, "shardplan");
    odd_add(line, "%s", command_about(line->command)->name);
    add_positional(line);
    if (line->command <= COMMAND_DIFF && system != SYSTEM_FSDP2) {
        odd_add(line, "--strategy");
        odd_add(line, "%s", system_name(system));
    }
    for (uint64_t n = odd_below(odd_below(3) ? 5 : 12); n > 0; n--)
        odd_add_option(line, odd_row(line->command, system));
    /* what would take for ever, or stay */
    if (line->command == COMMAND_RUN) {
        odd_add(line, "--steps=2");
        odd_add(line, "--device=host");
    }
    if (line->command == COMMAND_CALIBRATE)
        odd_add(line, "--from-nccl-tests=%s", odd_below(4) ? "nccl.txt" : odd_file());
    if (line->command == COMMAND_PLAN || line->command == COMMAND_CALIBRATE)
        odd_add(line, "--output=%s", line->command == COMMAND_PLAN ? "out" : "out.json");
    if (odd_below(2) && line->command != COMMAND_RUN)
        odd_add(line, "--json");
}
/* What can be judged can be planned, but for what is only fit's. */
static bool plan_disagrees(struct odd_line *line, const struct odd_outcome *fit)
{
    if (line->command != COMMAND_FIT || fit->status > 1 || odd_below(8))
        return false;
    char *name = line->words[1], plan[] = "plan", quiet[] = "--quiet";
    line->words[1] = plan;
    line->words[line->count] = quiet;
    struct odd_outcome o = odd_outcome_of(line->words);
    line->words[1] = name;
    line->words[line->count] = NULL;
    const bool refused = o.status > 1 && !strstr(o.error, "unrecognized option") &&
                         !strstr(o.error, "does not have it");
    if (refused)
        odd_show(line, 0, &o, "fit judges it, and plan refuses");
    odd_outcome_free(&o);
    return refused;
}

static void lines_end_as_the_manual_says(void **state)
{
    (void)state;
    const struct odd_span span = odd_span_of(LINES);
    uint32_t found = 0, statuses[4] = {0};
    for (uint64_t number = span.begin; number < span.end && found < SHOWN; number++) {
        struct odd_line line;
        line_draw(&line, number);
        struct odd_outcome o = odd_outcome_of(line.words);
        const char *what = odd_wrong(&line, &o);
        if (what)
            odd_show(&line, number, &o, what);
        if (o.status >= 0 && o.status < 4)
            statuses[o.status]++;
        found += what || plan_disagrees(&line, &o);
        odd_outcome_free(&o);
        odd_free(&line);
    }
    print_message("note: status 0: %u, 1: %u, 2: %u, 3: %u\n", statuses[0], statuses[1],
                  statuses[2], statuses[3]);
    assert_int_equal(found, 0);
}

/* ---- each word on each system ---- */

/* With words of two other settings, as most that goes wrong takes two. */
static void expect_judged(uint32_t system, const char *code, const struct setting *row,
                          const char *word)
{
    struct odd_line line = {.command = COMMAND_FIT};
    odd_add(&line, "shardplan");
    odd_add(&line, "fit");
    odd_add(&line, "config.json");
    odd_add(&line, "--seq=32");
    odd_add(&line, "--code=%s", code);
    odd_add(&line, "--strategy=%s", system_name((enum system_kind)system));
    odd_add(&line, "--%s=%s", row->name, word);
    for (int others = 0; others < 2;) {
        const struct setting *other = odd_row(COMMAND_FIT, system);
        if (!other->words || other->group == GROUP_OUTPUT || other->group == GROUP_MODEL)
            continue;
        odd_add(&line, "--%s=%s", other->name, other->words[odd_below(odd_words(other))].text);
        others++;
    }
    odd_add(&line, "--quiet");
    struct odd_outcome o = odd_outcome_of(line.words);
    const char *what = odd_wrong(&line, &o);
    if (what)
        odd_show(&line, 0, &o, what);
    assert_null(what);
    odd_outcome_free(&o);
    odd_free(&line);
}

static void each_word_is_judged_or_refused_on_each_system(void **state)
{
    (void)state;
    static const char *const codes[] = {"torchtitan", "hf"};
    uint32_t count;
    const struct setting *rows = setting_rows(&count);
    odd_begin(SEED);
    for (uint32_t i = 0; i < 2 * SYSTEM_COUNT * count; i++) {
        const uint32_t at = i / SYSTEM_COUNT % count, system = i % SYSTEM_COUNT;
        const uint32_t code = i / SYSTEM_COUNT / count;
        const struct setting *row = &rows[at];
        if (!row->words || !setting_is_of(row, COMMAND_FIT) || !setting_suits(row, system) ||
            !is_taken(code, 2, (at + system) % 2)) /* one code, in turns */
            continue;
        for (const struct setting_word *w = row->words; w->text; w++)
            if (!w->hidden && (!row->offers || row->offers(w->value)) && row->group != GROUP_OUTPUT)
                expect_judged(system, codes[code], row, w->text);
    }
}

/* What was found so, and is mended. */
static void lines_that_once_ended_otherwise(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "fit config.json --code=hf --seq=32 --strategy=ddp --autocast=bf16 --attention=efficient",
        "kernels absent.csv",
        "export folder.json",
        "run absent.json --steps=2",
        "fit gpt2 --strategy=zero3 --zero=absent.json",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct odd_line line = {.command = i == 0 ? COMMAND_FIT : COMMAND_EXPORT};
        char text[256], *rest;
        snprintf(text, sizeof text, "shardplan %s", texts[i]);
        for (char *word = strtok_r(text, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
            odd_add(&line, "%s", word);
        struct odd_outcome o = odd_outcome_of(line.words);
        const char *what = odd_wrong(&line, &o);
        if (what)
            odd_show(&line, i, &o, what);
        assert_null(what);
        odd_outcome_free(&o);
        odd_free(&line);
    }
}

static void the_last_of_very_many_options_holds(void **state)
{
    (void)state;
    assert_int_equal(shell("^/shardplan fit gpt2 $(yes -- --gpus=4 | head -2000) --gpus=2 --json"),
                     0);
    json_t *answer = program_object();
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(answer, "settings"), "gpus")), 2);
    json_decref(answer);
}

/* Files are limited to 4 KiB; gnuplot's, too. */
static void a_file_that_grows_too_large_is_an_error(void **state)
{
    (void)state;
    assert_int_equal(shell("(ulimit -f 8; exec ^/shardplan plan fsdp2-tutorial --gpus 2 -q -o "
                           "%s/large 2>&1)",
                           odd_folder()),
                     3);
    assert_non_null(strstr(program_output(), "File too large"));
    assert_int_equal(shell("! ls %s/large | grep tmp", odd_folder()), 0);
}
int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_word_is_judged_or_refused_on_each_system),
        cmocka_unit_test(lines_that_once_ended_otherwise),
        cmocka_unit_test(the_last_of_very_many_options_holds),
        cmocka_unit_test(a_file_that_grows_too_large_is_an_error),
        cmocka_unit_test(lines_end_as_the_manual_says),
    };
    return cmocka_run_group_tests_name("odd_lines", tests, odd_set_up, odd_tear_down);
}

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
#include "base/file.h"
#include "lower/lower.h"
#include "settings/settings.h"
#include "tests/support/folder.h"
#include "tests/support/mutation.h"
#include "tests/support/program.h"

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

enum { LINES = 120, SEED = 20261123, SHOWN = 10, MOST_WORDS = 48, PROCESSOR_S = 60 };
#define MOST_BYTES (6ULL << 30) /* of a process */

static char folder[] = "/tmp/shardplan_odd.XXXXXX";
static char program[4096];
static uint64_t place; /* in the sequence of draws */

static uint64_t below(uint64_t n) /* 0 of 0 */
{
    return mutation_draw(&place) % (n ? n : 1);
}

#define ONE_OF(list) ((list)[below(sizeof(list) / sizeof *(list))])

/* ---- a line ---- */

struct line {
    enum command command;
    char *words[MOST_WORDS]; /* owned; words[0] is the program's name, and NULL ends them */
    uint32_t count;
};

static void add(struct line *line, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void add(struct line *line, const char *fmt, ...)
{
    va_list args;
    assert_true(line->count < MOST_WORDS - 1);
    va_start(args, fmt);
    assert_true(vasprintf(&line->words[line->count++], fmt, args) >= 0);
    va_end(args);
    line->words[line->count] = NULL;
}

static void line_free(struct line *line)
{
    for (uint32_t i = 0; i < line->count; i++)
        free(line->words[i]);
}

/* ---- values ---- */

/* What no setting expects. */
static const char *ugly(void)
{
    static const char *const texts[] = {
        "",      "-1",   "0",   "nan",  "inf",   "-inf", "1e309", "1e-400", "0x10",
        "%s%n",  "\xff", "1,5", "1..",  "..",    "=",    ",",     ",,",     "18446744073709551616",
        "./.",   "/",    "-",   "--",   "1e5",   "+1",   " 1",    "1 ",     "9223372036854775807",
        "a=b=c", "*",    "[",   "\n",   "1GiBB", "KiB",  "1/0",   "0/0",    "4294967296",
        "'",     "\"",   "{}",  "true", "null",  "\\",   "~",     "0.1",    "99999999999999999999",
    };
    static char long_text[6000];
    if (below(40) == 0)
        return memset(long_text, 'a', sizeof long_text - 1);
    return ONE_OF(texts);
}

static uint32_t names_of(const struct setting *row)
{
    uint32_t count = 0;
    while (row->names && row->names->at(count))
        count++;
    return count;
}

static const char *any_name(const struct setting *row)
{
    return row->names->at((uint32_t)below(names_of(row)));
}

static const char *small_model(void)
{
    static const char *const names[] = {"gpt2",     "fsdp2-tutorial", "config.json", "least.json",
                                        "t5-small", "recorded.json",  "qwen3-0.6b"};
    return ONE_OF(names);
}

static const char *file(void)
{
    static const char *const names[] = {
        "plan.json",      "trace.json",      "config.json", "recorded.json", "torchtitan.toml",
        "deepspeed.json", "profile.json",    "kernels.csv", "absent.json",   "empty.json",
        "folder.json",    "accelerate.yaml", "nccl.txt",    "zero.json",     "older/plan.json",
    };
    return ONE_OF(names);
}

/* A number that the form allows: its limits, or as likely within each octave from the least on. */
static void number_of(const struct setting_number *form, char text[static NUMBER_TEXT * 2])
{
    const double least = form->least > 0 ? form->least : 0;
    double value = least;
    if (below(12) == 0)
        value = below(2) ? form->least : form->most;
    else
        for (uint64_t octave = below(below(4) ? 5 : 40); octave > 0; octave--)
            value = 2 * value + (double)below(2);
    if (value > form->most)
        value = form->most;
    if (form->kind == NUMBER_REAL && below(2))
        value = least + (value - least) / 3;
    if (form->kind == NUMBER_REAL)
        snprintf(text, 2 * NUMBER_TEXT, "%s%.9g%s", form->before ? form->before : "", value,
                 form->after ? form->after : "");
    else
        snprintf(text, 2 * NUMBER_TEXT, "%s%.0f%s", form->before ? form->before : "", value,
                 form->after ? form->after : "");
}

static uint64_t count_of(const struct setting *row, bool words)
{
    uint64_t count = 0;
    if (words)
        while (row->words && row->words[count].text)
            count++;
    else
        while (count < 3 && row->numbers[count].kind != NUMBER_NONE)
            count++;
    return count;
}

static const struct setting *any_row(enum command command)
{
    uint32_t count;
    const struct setting *rows = setting_rows(&count), *row;
    do
        row = &rows[below(count)];
    while (!setting_is_of(row, command));
    return row;
}

static void value_of(const struct setting *row, enum command command, char *text, size_t size);

/* "name", "name=value", "name=value,value", "profile.KEY=x0.5,x2" */
static void axis(enum command command, char *text, size_t size)
{
    char one[256], two[256];
    const struct setting *row;
    do
        row = any_row(command);
    while (row->kind != SETTING_VALUE && row->kind != SETTING_NAME && below(8));
    value_of(row, command, one, sizeof one);
    value_of(row, command, two, sizeof two);
    switch (below(5)) {
    case 0:
        snprintf(text, size, "%s", row->name);
        return;
    case 1:
        snprintf(text, size, "profile.nic_bytes_per_s=x0.5,x1");
        return;
    case 2:
        snprintf(text, size, "%s=%s..%s", row->name, one, two);
        return;
    default:
        snprintf(text, size, "%s=%s,%s", row->name, one, two);
        return;
    }
}

static void text_of(const struct setting *row, enum command command, char *text, size_t size)
{
    static const char *const globs[] = {"*embed*", "*", "*.0.*", "*norm*,*ln*", "[", "lm_head*"};
    const char *arg = row->arg ? row->arg : "";
    if (strcmp(row->name, "model") == 0 || strcmp(row->name, "a") == 0)
        snprintf(text, size, "%s", below(3) ? small_model() : any_name(row));
    else if (strcmp(arg, "GLOBS") == 0)
        snprintf(text, size, "%s", ONE_OF(globs));
    else if (strstr(arg, "NAMES"))
        snprintf(text, size, "%u%s", (unsigned)below(70), below(2) ? ",*q*" : "");
    else if (strcmp(arg, "AXIS") == 0 || strcmp(arg, "B") == 0 || strcmp(arg, "NAME=VALUE") == 0)
        axis(strcmp(arg, "B") == 0 ? COMMAND_PLAN : command, text, size);
    else if (strcmp(arg, "NAME") == 0)
        snprintf(text, size, "%s", any_row(command)->name);
    else if (strcmp(row->name, "output") == 0 || strcmp(row->name, "events") == 0 ||
             strncmp(row->name, "save", 4) == 0)
        snprintf(text, size, "%s", strcmp(arg, "DIR") == 0 ? "out" : "out.json");
    else
        snprintf(text, size, "%s", file());
}

static void value_of(const struct setting *row, enum command command, char *text, size_t size)
{
    const uint64_t words = count_of(row, true), numbers = count_of(row, false);
    const uint64_t names = names_of(row);
    text[0] = '\0';
    if (below(25) == 0) {
        snprintf(text, size, "%s", ugly());
        return;
    }
    if (row->kind == SETTING_TEXT || row->kind == SETTING_LIST) {
        text_of(row, command, text, size);
        return;
    }
    if (row->kind == SETTING_PART) {
        snprintf(text, size, "%u/%u", (unsigned)below(3), (unsigned)below(4));
        return;
    }
    const uint64_t at = below(words + 2 * numbers + names);
    if (at < words)
        snprintf(text, size, "%s", row->words[at].text);
    else if (at < words + 2 * numbers)
        number_of(&row->numbers[(at - words) / 2], text);
    else if (names)
        snprintf(text, size, "%s", any_name(row));
}

/* ---- drawing ---- */

static void add_option(struct line *line, const struct setting *row)
{
    char value[6100];
    if (row->kind == SETTING_FLAG) {
        add(line, "--%s", row->name);
        return;
    }
    value_of(row, line->command, value, sizeof value);
    if (below(2) && row->kind != SETTING_FLAG) {
        add(line, "--%s=%s", row->name, value);
        return;
    }
    add(line, "--%s", row->name);
    add(line, "%s", value);
}

static void add_positional(struct line *line)
{
    uint32_t count;
    const struct setting *rows = setting_rows(&count);
    char value[6100];
    for (uint32_t i = 0; i < count; i++) {
        if (!rows[i].positional || !setting_is_of(&rows[i], line->command) || below(60) == 0)
            continue;
        value_of(&rows[i], line->command, value, sizeof value);
        if (strcmp(rows[i].name, "plan") == 0 && below(8))
            snprintf(value, sizeof value, "plan.json");
        if (strcmp(rows[i].name, "trace") == 0 && below(4))
            snprintf(value, sizeof value, "trace.json");
        if (strcmp(rows[i].name, "table") == 0 && below(4))
            snprintf(value, sizeof value, "kernels.csv");
        add(line, "%s", value);
    }
}

/* A row of the command; more often than not one that the system has. */
static const struct setting *row_for(enum command command, uint32_t system)
{
    const struct setting *row = any_row(command);
    if (below(20))
        while (row->positional || !setting_is_offered(row) || !setting_suits(row, system))
            row = any_row(command);
    return row;
}

static void line_draw(struct line *line, uint64_t number)
{
    static const enum command commands[] = {
        COMMAND_FIT,  COMMAND_FIT,  COMMAND_FIT,    COMMAND_FIT,     COMMAND_PLAN,
        COMMAND_PLAN, COMMAND_TUNE, COMMAND_TUNE,   COMMAND_SWEEP,   COMMAND_SWEEP,
        COMMAND_DIFF, COMMAND_DIFF, COMMAND_EXPORT, COMMAND_COMPARE, COMMAND_CALIBRATE,
        COMMAND_RUN,  COMMAND_GPUS, COMMAND_KERNELS};
    place = SEED ^ (number * 0x9e3779b97f4a7c15U);
    *line = (struct line){.command = ONE_OF(commands)};
    const enum system_kind system = below(2) ? SYSTEM_FSDP2 : (enum system_kind)below(SYSTEM_COUNT);
    add(line, "shardplan");
    add(line, "%s", command_about(line->command)->name);
    add_positional(line);
    if (line->command <= COMMAND_DIFF && system != SYSTEM_FSDP2) {
        add(line, "--strategy");
        add(line, "%s", system_name(system));
    }
    for (uint64_t n = below(below(3) ? 5 : 12); n > 0; n--)
        add_option(line, row_for(line->command, system));
    /* what would take for ever, or stay */
    if (line->command == COMMAND_RUN) {
        add(line, "--steps=2");
        add(line, "--device=host");
    }
    if (line->command == COMMAND_CALIBRATE)
        add(line, "--from-nccl-tests=%s", below(4) ? "nccl.txt" : file());
    if (line->command == COMMAND_PLAN || line->command == COMMAND_CALIBRATE)
        add(line, "--output=%s", line->command == COMMAND_PLAN ? "out" : "out.json");
    if (below(2) && line->command != COMMAND_RUN)
        add(line, "--json");
}

/* ---- a process ---- */

struct outcome {
    int status; /* as the shell's: 128 and the signal's number */
    char *out, *error;
};

static void limit(int what, rlim_t most)
{
    const struct rlimit limit = {most, most};
    setrlimit(what, &limit);
}

static char *all_of(const char *name)
{
    size_t length;
    char *text = file_read(file_in(folder, name), &length, NULL);
    assert_non_null(text);
    return text;
}

/* Sanitizers reserve terabytes, and take several times as long. */
static bool sanitized(void)
{
    return strstr(program, "san/") != NULL;
}

static void be(char **words)
{
    const int in = open("/dev/null", O_RDONLY);
    const int out = open(file_in(folder, "stdout"), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    const int error = open(file_in(folder, "stderr"), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(in, 0);
    dup2(out, 1);
    dup2(error, 2);
    limit(RLIMIT_CPU, (sanitized() ? 10 : 1) * PROCESSOR_S);
    limit(RLIMIT_CORE, 0);
    if (!sanitized())
        limit(RLIMIT_AS, MOST_BYTES);
    if (chdir(folder) == 0)
        execv(program, words);
    _exit(126);
}

static struct outcome outcome_of(char **words)
{
    int status;
    fflush(NULL);
    const pid_t pid = fork();
    if (pid == 0)
        be(words);
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return (struct outcome){
        .status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status),
        .out = all_of("stdout"),
        .error = all_of("stderr"),
    };
}

static void outcome_free(struct outcome *outcome)
{
    free(outcome->out);
    free(outcome->error);
}

/* ---- what must hold ---- */

static bool has(const struct line *line, const char *word)
{
    for (uint32_t i = 0; i < line->count; i++)
        if (strcmp(line->words[i], word) == 0)
            return true;
    return false;
}

static bool may_say_no(enum command command)
{
    return command == COMMAND_FIT || command == COMMAND_PLAN || command == COMMAND_TUNE ||
           command == COMMAND_SWEEP || command == COMMAND_COMPARE;
}

/* Where a whole job fits, what it takes is no more than there is. */
static const char *wrong_room(json_t *answer)
{
    const json_t *peak = json_object_get(answer, "peak");
    const json_t *room = json_object_get(answer, "headroom_bytes");
    if (!json_is_true(json_object_get(answer, "fits")))
        return NULL;
    if (json_is_integer(room) && json_integer_value(room) < 0)
        return "fits, with less than no room";
    if (json_is_object(peak) && json_integer_value(json_object_get(peak, "requested_bytes")) <= 0)
        return "fits, and asks for nothing";
    if (json_is_object(peak) && json_integer_value(json_object_get(peak, "requested_bytes")) >
                                    json_integer_value(json_object_get(peak, "reserved_bytes")))
        return "more is requested than reserved";
    return NULL;
}

static json_int_t integer(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

/* Of all categories; without those that no tensor is of. */
static json_int_t sum_of(json_t *categories, bool tensors)
{
    json_int_t sum = 0;
    const char *name;
    json_t *bytes;
    json_object_foreach(categories, name,
                        bytes) if (!tensors || (strcmp(name, "workspace") != 0 &&
                                                strcmp(name, "outside_allocator") != 0)) sum +=
        json_integer_value(bytes);
    return sum;
}

/* Numbers of one answer that are others' sums. */
static const char *wrong_sum(json_t *answer)
{
    static const char *const places[] = {"device", "host"};
    json_t *peak = json_object_get(answer, "peak");
    json_t *categories = json_object_get(answer, "categories");
    if (!json_is_object(peak) || !json_is_object(categories))
        return NULL;
    if (sum_of(categories, true) != integer(peak, "requested_bytes"))
        return "categories are not what is requested";
    if (integer(peak, "reserved_bytes") + integer(categories, "outside_allocator") !=
        integer(peak, "device_bytes"))
        return "reserved and outside are not the device's";
    if (integer(answer, "capacity_bytes") - integer(peak, "device_bytes") !=
        integer(answer, "headroom_bytes"))
        return "the rest is not the room left";
    for (int i = 0; i < 2; i++) {
        json_t *there = json_object_get(answer, places[i]);
        if (there && sum_of(json_object_get(there, "categories"), false) !=
                         integer(there, "requested_bytes"))
            return "a place's categories are not what it is asked for";
    }
    return NULL;
}

static const char *wrong_answer(const struct line *line, const struct outcome *o)
{
    const char *wrong = NULL;
    if (has(line, "--json") && line->command != COMMAND_EXPORT) {
        json_t *answer = json_loads(o->out, 0, NULL);
        wrong = !json_is_object(answer) && !json_is_array(answer) ? "no JSON" : wrong_room(answer);
        wrong = wrong ? wrong : wrong_sum(answer);
        json_decref(answer);
    }
    return wrong;
}

static const char *wrong(const struct line *line, const struct outcome *o)
{
    if (strstr(o->error, "Sanitizer") || strstr(o->error, "runtime error"))
        return "a sanitizer's finding";
    if (strstr(o->error, "internal error"))
        return "an internal error";
    switch (o->status) {
    case 0:
        return wrong_answer(line, o);
    case 1:
        return may_say_no(line->command) ? wrong_answer(line, o) : "this command has no status 1";
    case 2:
        return strncmp(o->error, "shard", 5) != 0 ? "status 2 without a sentence" : NULL;
    case 3:
        return line->command == COMMAND_RUN && strncmp(o->error, "shard", 5) == 0 ? NULL
               : (line->command == COMMAND_PLAN || line->command == COMMAND_DIFF) &&
                       strstr(o->error, "out of host memory")
                   ? NULL /* a program can be larger than any memory: fit needs none of it */
                   : "status 3, and nothing failed";
    default:
        return o->status > 128 ? "ended by a signal" : "a status that the manual does not have";
    }
}

static void show(const struct line *line, uint64_t number, const struct outcome *o,
                 const char *what)
{
    fprintf(stderr, "line %llu: %s (status %d):\n    ", (unsigned long long)number, what,
            o->status);
    for (uint32_t i = 0; i < line->count; i++)
        fprintf(stderr, " '%.80s'", line->words[i]);
    fprintf(stderr, "\n    %.600s\n", o->error);
}

/* What can be judged can be planned, but for what is only fit's. */
static bool plan_disagrees(struct line *line, const struct outcome *fit)
{
    if (line->command != COMMAND_FIT || fit->status > 1 || below(8))
        return false;
    char *name = line->words[1], plan[] = "plan", quiet[] = "--quiet";
    line->words[1] = plan;
    line->words[line->count] = quiet;
    struct outcome o = outcome_of(line->words);
    line->words[1] = name;
    line->words[line->count] = NULL;
    const bool refused = o.status > 1 && !strstr(o.error, "unrecognized option") &&
                         !strstr(o.error, "does not have it");
    if (refused)
        show(line, 0, &o, "fit judges it, and plan refuses");
    outcome_free(&o);
    return refused;
}

static void lines_end_as_the_manual_says(void **state)
{
    (void)state;
    const char *jobs = getenv("SOAK_JOBS"), *first = getenv("SOAK_FIRST");
    const uint64_t begin = first ? strtoull(first, NULL, 10) : 0;
    const uint64_t end = begin + (jobs ? strtoull(jobs, NULL, 10) : LINES);
    uint32_t found = 0, statuses[4] = {0};
    for (uint64_t number = begin; number < end && found < SHOWN; number++) {
        struct line line;
        line_draw(&line, number);
        struct outcome o = outcome_of(line.words);
        const char *what = wrong(&line, &o);
        if (what)
            show(&line, number, &o, what);
        if (o.status >= 0 && o.status < 4)
            statuses[o.status]++;
        found += what || plan_disagrees(&line, &o);
        outcome_free(&o);
        line_free(&line);
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
    struct line line = {.command = COMMAND_FIT};
    add(&line, "shardplan");
    add(&line, "fit");
    add(&line, "config.json");
    add(&line, "--seq=32");
    add(&line, "--code=%s", code);
    add(&line, "--strategy=%s", system_name((enum system_kind)system));
    add(&line, "--%s=%s", row->name, word);
    for (int others = 0; others < 2;) {
        const struct setting *other = row_for(COMMAND_FIT, system);
        if (!other->words || other->group == GROUP_OUTPUT || other->group == GROUP_MODEL)
            continue;
        add(&line, "--%s=%s", other->name, other->words[below(count_of(other, true))].text);
        others++;
    }
    add(&line, "--quiet");
    struct outcome o = outcome_of(line.words);
    const char *what = wrong(&line, &o);
    if (what)
        show(&line, 0, &o, what);
    assert_null(what);
    outcome_free(&o);
    line_free(&line);
}

static void each_word_is_judged_or_refused_on_each_system(void **state)
{
    (void)state;
    static const char *const codes[] = {"torchtitan", "hf"};
    uint32_t count;
    const struct setting *rows = setting_rows(&count);
    place = SEED;
    for (uint32_t i = 0; i < 2 * SYSTEM_COUNT * count; i++) {
        const struct setting *row = &rows[i / SYSTEM_COUNT % count];
        const uint32_t system = i % SYSTEM_COUNT;
        if (!row->words || !setting_is_of(row, COMMAND_FIT) || !setting_suits(row, system))
            continue;
        for (const struct setting_word *w = row->words; w->text; w++)
            if (!w->hidden && (!row->offers || row->offers(w->value)) && row->group != GROUP_OUTPUT)
                expect_judged(system, codes[i / SYSTEM_COUNT / count], row, w->text);
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
        struct line line = {.command = i == 0 ? COMMAND_FIT : COMMAND_EXPORT};
        char text[256], *rest;
        snprintf(text, sizeof text, "shardplan %s", texts[i]);
        for (char *word = strtok_r(text, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
            add(&line, "%s", word);
        struct outcome o = outcome_of(line.words);
        const char *what = wrong(&line, &o);
        if (what)
            show(&line, i, &o, what);
        assert_null(what);
        outcome_free(&o);
        line_free(&line);
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
                           folder),
                     3);
    assert_non_null(strstr(program_output(), "File too large"));
    assert_int_equal(shell("! ls %s/large | grep tmp", folder), 0);
}

/* ---- the files that lines name ---- */

static int set_up(void **state)
{
    (void)state;
    const char *named = getenv("SHARDPLAN");
    if (!realpath(named ? named : "build/shardplan", program) || folder_make(folder) != 0)
        return -1;
    return shell("d=%s; t=tests/data; mkdir $d/folder.json && : >$d/empty.json && "
                 "cp $t/configs/toy-llama/config.json $t/fuzz/least.json $d && "
                 "cp $t/recorded/gpt2.stream.json.gz $d/recorded.json && "
                 "cp $t/fuzz/fuzz_profile/whole.json $d/profile.json && "
                 "cp $t/gpu/matmul_h100.csv $d/kernels.csv && "
                 "cp $t/nccl-tests/named.txt $d/nccl.txt && "
                 "cp $t/frameworks/torchtitan_8b.toml $d/torchtitan.toml && "
                 "cp $t/frameworks/accelerate_fsdp2.yaml $d/accelerate.yaml && "
                 "cp $t/frameworks/deepspeed_zero3.json $d/deepspeed.json && "
                 "cp $t/frameworks/deepspeed_auto.json $d/zero.json && "
                 "^/shardplan plan $d/least.json --code nanogpt --gpus 2 --seq 6 -q -o $d/made && "
                 "mv $d/made/plan.json $d/made/trace.json $d && "
                 "^/shardplan plan $d/config.json --gpus 2 --seq 8 -q -o $d/older",
                 folder);
}

static int tear_down(void **state)
{
    (void)state;
    return folder_remove(folder);
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
    return cmocka_run_group_tests_name("odd_lines", tests, set_up, tear_down);
}

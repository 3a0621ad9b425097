/* test_pictures.c - what pictures say, without looking at them: the gnuplot here puts the script
 * and the data into each (tests/support/folder.h). */
#include "report/palette.h"
#include "report/title.h"
#include "tests/support/folder.h"
#include "tests/support/program.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ON_H100S " --gpus 8 --gpu h100-sxm --seq 8192 "
#define LLAMA "llama-3.1-8b" ON_H100S
#define WIDE "tests/data/configs/wide-llama" ON_H100S /* as large, in a quarter of the layers */

static char folder[] = "/tmp/pictures.XXXXXX";

/* ---- reading what was to be drawn ---- */

static char *drawn(const char *name)
{
    char path[1024];
    const size_t most = 1U << 22;
    char *text = malloc(most);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "r");
    if (!file || !text)
        fail_msg("%s: not there", path);
    const size_t length = fread(text, 1, most - 1, file);
    text[length] = '\0';
    fclose(file);
    return text;
}

static void says(const char *picture, const char *text)
{
    if (!strstr(picture, text))
        fail_msg("no \"%s\" in: %.1500s", text, picture);
}

static double variable(const char *picture, const char *name)
{
    char begin[64];
    snprintf(begin, sizeof begin, "\n%s = ", name);
    const char *at = strstr(picture, begin);
    assert_non_null(at);
    return strtod(at + strlen(begin), NULL);
}

enum { COLUMNS = 24 };

/* The numbers of a line, which is all of it; 0: there are other words. */
static int numbers_of(const char *line, size_t length, double row[COLUMNS])
{
    int count = 0;
    const char *end = line + length;
    for (const char *at = line; at < end && count < COLUMNS; count++) {
        char *next;
        row[count] = strtod(at, &next);
        if (next == at || next > end)
            return 0;
        for (at = next; at < end && *at == ' ';)
            at++;
    }
    return count;
}

/* The next line of numbers, at least two of them; NULL: there is none. The data are the last lines
 * of a picture. */
static const char *next_row(const char *at, double row[COLUMNS], int *count)
{
    while (*at) {
        const size_t length = strcspn(at, "\n");
        *count = numbers_of(at, length, row);
        at += length + (at[length] == '\n');
        if (*count > 1)
            return at;
    }
    return NULL;
}

static json_t *plan(const char *arguments)
{
    const int status = shardplan("plan %s --json -q -o %s", arguments, folder);
    if (status != 0 && status != 1) /* it fits, or does not */
        fail_msg("%s: %s", arguments, program_output());
    return program_object();
}

static double number(const json_t *object, const char *group, const char *key)
{
    const json_t *value = json_object_get(json_object_get(object, group), key);
    assert_true(json_is_number(value));
    return json_number_value(value);
}

/* ---- titles ---- */

static void a_model_is_called_by_its_name(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        {"llama-3.1-8b", "llama-3.1-8b"},
        {"meta-llama/Llama-3.1-8B", "Llama-3.1-8B"},
        {"tests/data/configs/toy-llama", "toy-llama"},
        {"tests/data/configs/toy-llama/", "toy-llama"},
        {"tests/data/configs/toy-llama/config.json", "toy-llama"},
        {"tests/data/configs/toy-llama/.", "toy-llama"},
        {"/config.json", "/"},
        {"models/mine.json", "mine"},
        {"mine.json", "mine"},
        {".json", ".json"},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[TITLE_NAME];
        if (strcmp(title_model(cases[i][0], name), cases[i][1]) != 0)
            fail_msg("%s: %s", cases[i][0], name);
    }
    char name[TITLE_NAME], longest[300];
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    assert_int_equal(strlen(title_model(longest, name)), TITLE_NAME - 1);
}

static void every_picture_says_of_which_job_it_is(void **state)
{
    (void)state;
    static const char *const pictures[] = {"timeline.svg", "memory.svg", "memory-time.svg"};
    json_decref(plan("tests/data/configs/toy-llama/config.json --gpus 4 --seq 128"));
    for (size_t i = 0; i < sizeof pictures / sizeof *pictures; i++) {
        char *picture = drawn(pictures[i]);
        says(picture, "title = 'toy-llama on 4 x NVIDIA ");
        says(picture, ", fsdp2: ");
        assert_null(strstr(picture, "tests/data"));
        free(picture);
    }
    json_decref(plan("llama-3.2-1b --gpus 4 --seq 128 --accumulate 4096"));
    for (size_t i = 0; i < sizeof pictures / sizeof *pictures; i++) {
        char *picture = drawn(pictures[i]);
        says(picture, "5 of 4096 micro-batches of a step");
        free(picture);
    }
    char *page = drawn("report.html");
    says(page, "<h1>llama-3.2-1b on 4 x NVIDIA ");
    says(page, "<dt>reserved</dt><dd>");
    free(page);
}

/* ---- the plan ---- */

/* Rows are in the order of the axis, from the step's begin to its end. */
static void memory_over_time_ends_with_the_step(void **state)
{
    (void)state;
    static const char *const jobs[] = {WIDE, WIDE "--accumulate 4 --offload cpu",
                                       WIDE "--strategy zero3", "tests/data/configs/toy-llama"};
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        json_t *result = plan(jobs[i]);
        const double step_s = number(result, "time", "step_s"), each = step_s < 2 ? 1e3 : 1;
        char *picture = drawn("memory-time.svg");
        double row[COLUMNS], last = 0;
        int count, rows = 0;
        for (const char *at = picture; (at = next_row(at, row, &count)); last = row[0], rows++) {
            assert_true(row[0] >= last);
            assert_true(rows > 0 || row[0] == 0);
        }
        assert_true(rows > 100);
        if (fabs(last / (each * step_s) - 1) > 1e-6 ||
            fabs(variable(picture, "end_x") / (each * step_s) - 1) > 1e-6)
            fail_msg("%s: %g of %g s", jobs[i], last, step_s);
        says(picture, each > 1 ? "device, ms'" : "device, s'");
        free(picture);
        json_decref(result);
    }
}

/* Over time as over instructions: each number beside its line, and the peak on the curve. */
static void memory_has_the_numbers_that_are_printed(void **state)
{
    (void)state;
    static const char *const keys[] = {"device", "reserved", "allocated", "requested"};
    static const char *const pictures[] = {"memory.svg", "memory-time.svg"};
    json_t *result = plan(LLAMA "--checkpointing selective");
    for (size_t i = 0; i < 2; i++) {
        char *picture = drawn(pictures[i]);
        double row[COLUMNS], most = 0;
        int count, columns = 0;
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++) {
            char key[32], entry[64];
            snprintf(key, sizeof key, "%s_bytes", keys[k]);
            snprintf(entry, sizeof entry, "_title = '%s %.2f'", keys[k],
                     number(result, "peak", key) / 1073741824.0);
            says(picture, entry);
        }
        says(picture, "capacity_title = 'capacity 79.10'");
        says(picture, "\"sharded parameters\" \"unsharded parameters\" ");
        for (const char *at = picture; (at = next_row(at, row, &count)); columns = count)
            most = fmax(most, row[1]);
        assert_true(fabs(most - variable(picture, "peak")) < 1e-3);
        assert_int_equal(columns, 5 + 7); /* what there is none of has no colour: input, buffers */
        assert_null(strstr(picture, "\"buffers\""));
        free(picture);
    }
    json_decref(result);
}

/* Whether the legend says a colour. */
static bool has_entry(const char *picture, unsigned rgb)
{
    char text[32];
    snprintf(text, sizeof text, "] = %u\n", rgb);
    return strstr(picture, text) != NULL;
}

static double boxes_ms(const char *picture, unsigned rgb)
{
    double row[COLUMNS], sum = 0;
    int count;
    for (const char *at = picture; (at = next_row(at, row, &count));)
        if (count == 4 && row[3] == rgb)
            sum += row[1] - row[0];
    return sum;
}

static void the_legend_has_what_the_lanes_have(void **state)
{
    (void)state;
    static const char *const jobs[] = {WIDE, WIDE "--strategy ddp --gpus 1", WIDE "--offload cpu"};
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        json_decref(plan(jobs[i]));
        char *picture = drawn("timeline.svg");
        for (uint32_t k = 0; k < PALETTE_WORKS; k++) {
            const struct palette_entry entry = palette_work(k);
            if (has_entry(picture, entry.rgb) != (boxes_ms(picture, entry.rgb) > 0))
                fail_msg("%s: %s", jobs[i], entry.name);
        }
        says(picture, "\"host issues\" \"exposed\"'"); /* the lanes, and the legend's words */
        says(picture, "\"host issues\" ");
        free(picture);
    }
}

/* Lanes wait at once, so together for no less than the step does. */
static void waiting_for_slower_ranks_is_apart(void **state)
{
    (void)state;
    json_t *result = plan(LLAMA "--checkpointing selective");
    const double waiting_ms = 1e3 * number(result, "time", "waiting_s");
    const double communication_ms = 1e3 * number(result, "time", "communication_s");
    char *picture = drawn("timeline.svg");
    const double drawn_ms = boxes_ms(picture, PALETTE_WAITING);
    assert_true(waiting_ms > 0.5 * communication_ms);
    assert_true(drawn_ms > 0.9 * waiting_ms);
    assert_true(drawn_ms + boxes_ms(picture, PALETTE_COLLECTIVE) < 1.1 * communication_ms);
    free(picture);
    json_decref(result);
}

/* ---- others ---- */

static void a_sweep_marks_what_fits_only_by_giving_back(void **state)
{
    (void)state;
    static const char *const questions[] = {
        "--over micro-batch=1,2", "--over checkpointing=none,full --over micro-batch=1,2"};
    for (size_t i = 0; i < 2; i++) {
        double row[COLUMNS];
        int count, released = 0;
        assert_int_equal(shardplan("sweep llama-3.1-8b --gpus 8 --seq 8192 %s --json -o %s",
                                   questions[i], folder),
                         0);
        json_t *result = program_object();
        size_t k, expected = 0;
        json_t *point;
        json_array_foreach(json_object_get(result, "points"), k, point)
        {
            expected +=
                json_is_true(json_object_get(point, "fits_after_releasing_cached_segments"));
        }
        json_decref(result);
        char *picture = drawn("sweep.svg");
        says(picture, "title = 'llama-3.1-8b --gpus 8 --seq 8192'");
        says(picture, "any_released = 1\n");
        says(picture, i ? "title 'best'" : "marked = 'best'");
        for (const char *at = picture; (at = next_row(at, row, &count));)
            released += i == 0 && row[6] > 0;
        if (i == 0)
            assert_int_equal(released, expected);
        free(picture);
    }
}

static void the_front_is_in_its_frame(void **state)
{
    (void)state;
    assert_int_equal(shardplan("tune tests/data/configs/toy-llama --gpus 4 --seq 256 --strategy "
                               "fsdp2 --units blocks -q -o %s",
                               folder),
                     0);
    char *picture = drawn("pareto.svg");
    says(picture, "title = 'toy-llama on 4 x NVIDIA ");
    says(picture, "limit %.2f GiB");
    assert_true(variable(picture, "chosen_gib") <= variable(picture, "limit_gib"));
    free(picture);
}

/* ---- colours ---- */

struct lab {
    double l, a, b;
};

static double linear(unsigned channel)
{
    const double c = (channel & 0xff) / 255.0;
    return c <= 0.04045 ? c / 12.92 : pow((c + 0.055) / 1.055, 2.4);
}

static double curved(double x)
{
    return x > 0.008856 ? cbrt(x) : 7.787 * x + 16.0 / 116;
}

/* CIE L*a*b* of what an eye makes of a colour; `eye` is linear RGB to linear RGB. */
static struct lab seen(unsigned rgb, const double eye[3][3])
{
    static const double xyz[3][3] = {
        {0.4124, 0.3576, 0.1805}, {0.2126, 0.7152, 0.0722}, {0.0193, 0.1192, 0.9505}};
    static const double white[3] = {0.9505, 1, 1.0888};
    const double in[3] = {linear(rgb >> 16), linear(rgb >> 8), linear(rgb)};
    double through[3], f[3];
    for (int i = 0; i < 3; i++) {
        through[i] = eye[i][0] * in[0] + eye[i][1] * in[1] + eye[i][2] * in[2];
        through[i] = fmin(1, fmax(0, through[i]));
    }
    for (int i = 0; i < 3; i++)
        f[i] = curved((xyz[i][0] * through[0] + xyz[i][1] * through[1] + xyz[i][2] * through[2]) /
                      white[i]);
    return (struct lab){116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])};
}

/* Colour blindness as of Machado, Oliveira and Fernandes (2009), in full. */
static void assert_told_apart(struct palette_entry a, struct palette_entry b)
{
    static const double eyes[][3][3] = {
        {{1, 0, 0}, {0, 1, 0}, {0, 0, 1}},
        {{0.152286, 1.052583, -0.204868},
         {0.114503, 0.786281, 0.099216},
         {-0.003882, -0.048116, 1.051998}},
        {{0.367322, 0.860646, -0.227968},
         {0.280085, 0.672501, 0.047413},
         {-0.011820, 0.042940, 0.968881}},
    };
    for (size_t i = 0; i < sizeof eyes / sizeof *eyes; i++) {
        const struct lab p = seen(a.rgb, eyes[i]), q = seen(b.rgb, eyes[i]);
        const double apart =
            sqrt((p.l - q.l) * (p.l - q.l) + (p.a - q.a) * (p.a - q.a) + (p.b - q.b) * (p.b - q.b));
        if (apart < 15)
            fail_msg("%s and %s: %.1f apart, eye %zu", a.name, b.name, apart, i);
    }
}

static void colours_are_told_apart(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < PALETTE_WORKS; i++)
        for (uint32_t k = 0; k < i; k++)
            assert_told_apart(palette_work(i), palette_work(k));
    for (int i = 0; i < CATEGORY_COUNT; i++)
        for (int k = 0; k < i; k++)
            if (i != CATEGORY_WORKSPACE && k != CATEGORY_WORKSPACE) /* which no picture has */
                assert_told_apart(palette_category((enum category)i),
                                  palette_category((enum category)k));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_is_called_by_its_name),
        cmocka_unit_test(every_picture_says_of_which_job_it_is),
        cmocka_unit_test(memory_over_time_ends_with_the_step),
        cmocka_unit_test(memory_has_the_numbers_that_are_printed),
        cmocka_unit_test(the_legend_has_what_the_lanes_have),
        cmocka_unit_test(waiting_for_slower_ranks_is_apart),
        cmocka_unit_test(a_sweep_marks_what_fits_only_by_giving_back),
        cmocka_unit_test(the_front_is_in_its_frame),
        cmocka_unit_test(colours_are_told_apart),
    };
    return cmocka_run_group_tests_name("pictures", tests, folder_set_up_undrawn(folder),
                                       folder_tear_down);
}

/* test_sweep.c - sweeps against predictions made one by one, and searches against trying every
 * value. */
#include "job/step_time.h"
#include "search/sweep.h"
#include "settings/settings_resolve.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(list) (sizeof(list) / sizeof(list)[0])
#define TOY "tests/data/configs/toy-llama"

static struct settings job_of(const char *model)
{
    struct settings settings;
    settings_defaults(&settings, COMMAND_SWEEP);
    assert_int_equal(settings_set(&settings, "model", model, NULL), ERR_OK);
    return settings;
}

static struct settings toy(void)
{
    struct settings settings = job_of(TOY);
    assert_int_equal(settings_set(&settings, "seq", "256", NULL), ERR_OK);
    return settings;
}

static struct axis read_axis(const struct settings *settings, const char *text, struct arena *arena)
{
    struct axis axis;
    struct err err = {0};
    if (axis_read(settings, text, arena, &axis, &err) != ERR_OK)
        fail_msg("%s: %s", text, err.text);
    return axis;
}

static void axes_are_read_as_written(void **state)
{
    (void)state;
    static const struct {
        const char *text, *name, *values; /* by spaces */
    } cases[] = {
        {"reshard=default,never,8", "reshard", "default never 8"},
        {"checkpointing", "checkpointing", "none full selective"},
        {"micro_batch=1..5", "micro-batch", "1 2 3 4 5"},
        {"seq=2048..8192+2048", "seq", "2048 4096 6144 8192"},
        {"seq=2048..8191+2048,9000", "seq", "2048 4096 6144 9000"},
        {"gpus=8..100x2,256", "gpus", "8 16 32 64 256"},
        {"units=blocks,2,500MB", "units", "blocks 2 500MB"},
        {"bucket-cap-mb=1.5,25", "bucket-cap-mb", "1.5 25"}, /* of another system */
        {"profile.nic-bytes-per-s=x0.5,25e9", "profile.nic_bytes_per_s", "x0.5 25e9"},
        {"profile.capacity_bytes=80GiB", "profile.capacity_bytes", "80GiB"},
        {"model=../toy", "model", "../toy"},
        {"seq", "seq", ""},
    };
    const struct settings settings = toy();
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct arena arena = {0};
        char values[256] = "";
        const struct axis axis = read_axis(&settings, cases[i].text, &arena);
        for (uint32_t k = 0; k < axis.count; k++)
            snprintf(values + strlen(values), sizeof values - strlen(values), "%s%s", k ? " " : "",
                     axis.values[k]);
        assert_string_equal(axis.name, cases[i].name);
        assert_string_equal(values, cases[i].values);
        arena_free(&arena);
    }
}

static void mistakes_in_axes_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"resharding=never", "did you mean --reshard?"},
        {"reshard=nevr", "did you mean never?"},
        {"micro-batch=1..9999999", "more than 65536 values"},
        {"micro-batch=0..4", "allowed are integers 1"},
        {"micro-batch=4..0", "allowed are integers"},
        {"seq=1..64x1", "allowed are integers"},
        {"seq=1..64+0", "allowed are integers"},
        {"reshard=", "no value is given"},
        {"output=x", "changes nothing that is predicted"},
        {"over=x", "changes nothing that is predicted"},
        {"profile.nic_bytes=1", "is no number of a profile; did you mean"},
        {"profile.nics=xx", "expected a number"},
    };
    const struct settings settings = toy();
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct arena arena = {0};
        struct axis axis;
        struct err err = {0};
        assert_int_equal(axis_read(&settings, cases[i].text, &arena, &axis, &err), ERR_INVALID);
        if (!strstr(err.text, cases[i].says))
            fail_msg("%s: %s", cases[i].text, err.text);
        arena_free(&arena);
    }
}

/* The numbers of a point are those of predict and step_time. */
static void expect_prediction(const struct settings *settings, const struct point *point)
{
    struct settings copy = *settings;
    struct job job;
    struct machine machine;
    struct prediction p;
    struct step_time t;
    struct err err = {0};
    assert_int_equal(settings_resolve(&copy, &job, &machine, &err), ERR_OK);
    assert_int_equal(predict(&job, &machine, &p, &err), ERR_OK);
    assert_int_equal(step_time(&p, &job, &machine, 0, &t, &err), ERR_OK);
    assert_int_equal(point->verdict, p.fits ? POINT_FITS : POINT_TOO_LARGE);
    assert_int_equal(point->requested_bytes, p.memory.requested.bytes);
    assert_int_equal(point->allocated_bytes, p.memory.allocated.bytes);
    assert_int_equal(point->reserved_bytes, p.memory.reserved_bytes);
    assert_int_equal(point->device_bytes, p.device_bytes);
    assert_true(point->step_s == t.timeline.step_s);
    assert_true(point->tokens_per_s == t.tokens_per_s);
    assert_true(point->mfu == t.mfu && point->hfu == t.hfu);
    assert_true(point->exposed_s == t.timeline.exposed_s);
    step_time_free(&t);
    prediction_free(&p);
    profile_free(&machine.profile);
}

static void every_point_is_a_prediction(void **state)
{
    (void)state;
    struct settings base = toy();
    struct arena arena = {0};
    struct sweep_question question = {.base = &base, .axis_count = 2};
    struct sweep sweep;
    struct err err = {0};
    settings_set(&base, "gpus", "16", NULL);
    question.axes[0] = read_axis(&base, "checkpointing", &arena);
    question.axes[1] = read_axis(&base, "replicate=1,2,3,4", &arena);
    assert_int_equal(sweep_run(&question, NULL, NULL, &sweep, &err), ERR_OK);
    assert_int_equal(sweep.count, 12);
    uint32_t best = 0;
    for (uint32_t i = 0; i < sweep.count; i++) {
        const char *checkpointing = question.axes[0].values[i / 4];
        const char *replicate = question.axes[1].values[i % 4];
        const struct point *p = &sweep.points[i].point;
        struct settings settings = base;
        settings_set(&settings, "checkpointing", checkpointing, NULL);
        settings_set(&settings, "replicate", replicate, NULL);
        assert_int_equal(sweep_index(&question, i, 0), i / 4);
        assert_int_equal(sweep_index(&question, i, 1), i % 4);
        if (i % 4 == 2) { /* 3 does not divide 16 */
            assert_int_equal(p->verdict, POINT_REFUSED);
            assert_non_null(strstr(p->reason, "--replicate 3 does not divide"));
            continue;
        }
        expect_prediction(&settings, p);
        if (p->tokens_per_s > sweep.points[best].point.tokens_per_s)
            best = i;
    }
    assert_int_equal(sweep.best, best);
    assert_int_equal(sweep.refused, 3);
    assert_int_equal(sweep.fits, 9);
    assert_false(sweep.same_step);
    sweep_free(&sweep);
    arena_free(&arena);
}

/* More multiprocessors are more of the same: a step never takes longer for them, whatever the tiles
 * that they share out. */
static void more_multiprocessors_never_slow_a_step(void **state)
{
    (void)state;
    struct settings base = job_of("llama-3.1-8b");
    struct arena arena = {0};
    struct choice choice;
    double before = INFINITY;
    const struct axis axis =
        read_axis(&base, "profile.sms=x1,x1.01,x1.06,x1.2,x1.21,x1.5,x2", &arena);
    settings_set(&base, "gpus", "16", NULL);
    for (uint32_t i = 0; i < axis.count; i++) {
        struct point point;
        assert_int_equal(axis_choose(&base, &axis, &axis.values[i], 1, &choice, NULL), ERR_OK);
        point_evaluate(&choice, &point);
        assert_true(point.step_s > 0 && point.step_s <= before);
        before = point.step_s;
    }
    arena_free(&arena);
}

/* A number of the profile put in is the same as a profile file that says so. */
static void a_number_of_the_profile_is_as_in_a_file(void **state)
{
    (void)state;
    char path[] = "/tmp/shardplan_sweep.XXXXXX";
    FILE *file = fdopen(mkstemp(path), "w");
    struct settings base = job_of("llama-3.1-8b"), with_file;
    struct arena arena = {0};
    struct profile h100;
    struct point plain, swept, filed;
    struct choice choice;
    const struct axis axis = read_axis(&base, "profile.memory_bytes_per_s=x0.5,x1", &arena);
    settings_set(&base, "gpus", "16", NULL);
    assert_int_equal(profile_find("h100-sxm", &h100, NULL), ERR_OK);
    fprintf(file, "{\"memory_bytes_per_s\": %.17g}", profile_value(&h100, PROFILE_MEMORY) / 2);
    fclose(file);
    with_file = base;
    settings_set(&with_file, "profile", path, NULL);
    for (int half = 0; half < 2; half++) {
        const char *value = axis.values[half ? 0 : 1];
        assert_int_equal(axis_choose(&base, &axis, &value, 1, &choice, NULL), ERR_OK);
        point_evaluate(&choice, half ? &swept : &plain);
    }
    point_evaluate(&(struct choice){.settings = with_file}, &filed);
    assert_true(swept.step_s == filed.step_s && swept.exposed_s == filed.exposed_s);
    assert_true(swept.step_s > plain.step_s);
    expect_prediction(&base, &plain);

    /* what a key may not be is refused */
    const struct axis wrong = read_axis(&base, "profile.gemm_efficiency=x3", &arena);
    assert_int_equal(axis_choose(&base, &wrong, wrong.values, 1, &choice, NULL), ERR_OK);
    point_evaluate(&choice, &filed);
    assert_int_equal(filed.verdict, POINT_REFUSED);
    assert_non_null(strstr(filed.reason, "gemm_efficiency"));
    profile_free(&h100);
    remove(path);
    arena_free(&arena);
}

/* What a system does not have is refused, not left out; what both have is carried over. */
static void a_system_refuses_what_was_given_for_another(void **state)
{
    (void)state;
    struct settings base = toy();
    struct arena arena = {0};
    struct err err = {0};
    struct choice choice;
    const struct axis axis = read_axis(&base, "strategy=fsdp2,ddp", &arena);
    settings_set(&base, "optimizer", "sgd", NULL);
    assert_int_equal(axis_choose(&base, &axis, &axis.values[1], 1, &choice, &err), ERR_OK);
    assert_int_equal(choice.settings.job.strategy.optimizer, OPTIMIZER_SGD);
    settings_set(&base, "reshard", "never", NULL);
    assert_int_equal(axis_choose(&base, &axis, &axis.values[0], 1, &choice, &err), ERR_OK);
    assert_int_equal(axis_choose(&base, &axis, &axis.values[1], 1, &choice, &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "ddp shards no parameters"));
    arena_free(&arena);
}

static void values_that_change_nothing_are_told(void **state)
{
    (void)state;
    struct settings base = job_of("llama-3.1-8b");
    struct arena arena = {0};
    struct sweep_question question = {.base = &base, .axis_count = 1};
    struct sweep sweep;
    settings_set(&base, "seq", "8192", NULL);
    settings_set(&base, "checkpointing", "selective", NULL);
    question.axes[0] = read_axis(&base, "forward-prefetch=0..3", &arena);
    assert_int_equal(sweep_run(&question, NULL, NULL, &sweep, NULL), ERR_OK);
    assert_true(sweep.same_step && sweep.same_memory);
    assert_true(sweep.most_s <= sweep.least_s * (1 + SWEEP_ALIKE));
    sweep_free(&sweep);
    question.axes[0] = read_axis(&base, "reshard", &arena);
    assert_int_equal(sweep_run(&question, NULL, NULL, &sweep, NULL), ERR_OK);
    assert_true(!sweep.same_step && !sweep.same_memory);
    sweep_free(&sweep);
    arena_free(&arena);
}

/* ---- searches ---- */

/* The answer by trying every value up to `most`. */
static uint32_t try_all(const struct settings *base, const struct axis *axes, uint32_t axis_count,
                        const char *const *given, uint32_t most, enum turn_kind kind)
{
    uint32_t answer = 0;
    const char *values[4] = {NULL};
    for (uint32_t i = 0; i < axis_count; i++)
        values[i] = given[i];
    for (uint32_t v = 1; v <= most; v++) {
        char text[NUMBER_TEXT];
        struct choice choice;
        struct point point;
        snprintf(text, sizeof text, "%u", v);
        values[axis_count - 1] = text;
        assert_int_equal(axis_choose(base, axes, values, axis_count, &choice, NULL), ERR_OK);
        point_evaluate(&choice, &point);
        if (point.verdict == POINT_FITS && (kind == TURN_LARGEST || !answer))
            answer = v;
    }
    return answer;
}

static void expect_answer(const struct settings *base, const char *name, const char *capacity,
                          enum turn_kind kind, uint32_t most)
{
    struct arena arena = {0};
    struct err err = {0};
    struct turn turn;
    char text[64];
    snprintf(text, sizeof text, "profile.capacity_bytes=%s", capacity);
    struct axis axes[2] = {read_axis(base, text, &arena), read_axis(base, name, &arena)};
    axes[1].count = 0;
    const char *values[2] = {axes[0].values[0], NULL};
    assert_int_equal(turn_find(base, axes, values, 1, &axes[1], kind, &turn, &err), ERR_OK);
    const uint32_t expected = try_all(base, axes, 2, values, most, kind);
    const char *found = turn.answer == TURN_NONE ? "0" : turn.trials[turn.answer].value;
    if (strtoul(found, NULL, 10) != expected)
        fail_msg("%s, %s: %s, not %u", name, capacity, found, expected);
    if (expected && turn.neighbour != TURN_NONE) {
        const struct turn_trial *next = &turn.trials[turn.neighbour];
        assert_int_equal(next->point.verdict, POINT_TOO_LARGE);
        assert_true((strtoul(next->value, NULL, 10) > expected) == (kind == TURN_LARGEST));
        assert_true(turn.neighbours >= 1);
    }
    for (uint32_t i = 1; i < turn.count; i++) /* by value, each once */
        assert_true(strtoul(turn.trials[i - 1].value, NULL, 10) <
                    strtoul(turn.trials[i].value, NULL, 10));
    turn_free(&turn);
    arena_free(&arena);
}

static void a_search_finds_what_trying_all_finds(void **state)
{
    (void)state;
    static const char *const capacities[] = {"1GiB", "1200MiB", "1500MiB", "2000MiB", "2500MiB"};
    const struct settings base = toy();
    for (size_t i = 0; i < COUNT(capacities); i++)
        expect_answer(&base, "micro-batch", capacities[i], TURN_LARGEST, 150);
    expect_answer(&base, "seq", "1150MiB", TURN_LARGEST, 400);
    struct settings large = job_of("llama-3.2-1b");
    settings_set(&large, "checkpointing", "full", NULL);
    static const char *const of_gpus[] = {"1GiB", "9GiB", "12GiB", "14GiB", "24GiB", "80GiB"};
    for (size_t i = 0; i < COUNT(of_gpus); i++)
        expect_answer(&large, "gpus", of_gpus[i], TURN_FEWEST, 72);
}

static void given_values_are_the_only_ones(void **state)
{
    (void)state;
    const struct settings base = toy();
    struct arena arena = {0};
    struct err err = {0};
    struct turn turn;
    struct axis capacity = read_axis(&base, "profile.capacity_bytes=1300MiB", &arena);
    struct axis along = read_axis(&base, "seq=128..1024+128", &arena);
    assert_int_equal(
        turn_find(&base, &capacity, capacity.values, 1, &along, TURN_LARGEST, &turn, &err), ERR_OK);
    assert_true(turn.answer != TURN_NONE);
    for (uint32_t i = 0; i < turn.count; i++)
        assert_int_equal(strtoul(turn.trials[i].value, NULL, 10) % 128, 0);
    turn_free(&turn);
    along = read_axis(&base, "seq=512,256", &arena);
    assert_int_equal(
        turn_find(&base, &capacity, capacity.values, 1, &along, TURN_LARGEST, &turn, &err),
        ERR_INVALID);
    assert_non_null(strstr(err.text, "integers that grow"));
    err = (struct err){0};
    along = read_axis(&base, "checkpointing", &arena);
    assert_int_equal(
        turn_find(&base, &capacity, capacity.values, 1, &along, TURN_LARGEST, &turn, &err),
        ERR_INVALID);
    assert_non_null(strstr(err.text, "no integer setting"));
    arena_free(&arena);
}

/* Learned positions end: larger values are refused, not too large. */
static void a_search_ends_where_values_are_refused(void **state)
{
    (void)state;
    const struct settings base = job_of("gpt2");
    struct arena arena = {0};
    struct turn turn;
    struct axis along = read_axis(&base, "seq", &arena);
    assert_int_equal(turn_find(&base, NULL, NULL, 0, &along, TURN_LARGEST, &turn, NULL), ERR_OK);
    assert_string_equal(turn.trials[turn.answer].value, "1024");
    assert_int_equal(turn.neighbour, TURN_NONE);
    assert_int_equal(turn.trials[turn.answer + 1].point.verdict, POINT_REFUSED);
    for (uint32_t i = 0; i < turn.near_count; i++)
        assert_int_equal(turn.trials[turn.near[i]].point.verdict, POINT_FITS);
    turn_free(&turn);
    arena_free(&arena);
}

struct seen {
    uint32_t calls, total;
};

static void see(void *context, uint32_t done, uint32_t total)
{
    struct seen *seen = context;
    assert_int_equal(done, seen->calls++);
    seen->total = total;
}

static void progress_counts_points(void **state)
{
    (void)state;
    struct settings base = toy();
    struct arena arena = {0};
    struct sweep_question question = {.base = &base, .axis_count = 1};
    struct sweep sweep;
    struct seen seen = {0, 0};
    question.axes[0] = read_axis(&base, "micro-batch=1..5", &arena);
    question.along = read_axis(&base, "seq=64..512x2", &arena);
    question.searches = true;
    assert_int_equal(sweep_run(&question, see, &seen, &sweep, NULL), ERR_OK);
    assert_int_equal(seen.calls, 6);
    assert_int_equal(seen.total, 5);
    for (uint32_t i = 0; i < sweep.count; i++)
        assert_string_equal(sweep.points[i].found, "512");
    sweep_free(&sweep);
    question.axes[0].count = 0;
    struct err err = {0};
    assert_int_equal(sweep_run(&question, NULL, NULL, &sweep, &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "has no values of its own"));
    arena_free(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(axes_are_read_as_written),
        cmocka_unit_test(mistakes_in_axes_are_named),
        cmocka_unit_test(every_point_is_a_prediction),
        cmocka_unit_test(more_multiprocessors_never_slow_a_step),
        cmocka_unit_test(a_number_of_the_profile_is_as_in_a_file),
        cmocka_unit_test(a_system_refuses_what_was_given_for_another),
        cmocka_unit_test(values_that_change_nothing_are_told),
        cmocka_unit_test(a_search_finds_what_trying_all_finds),
        cmocka_unit_test(given_values_are_the_only_ones),
        cmocka_unit_test(a_search_ends_where_values_are_refused),
        cmocka_unit_test(progress_counts_points),
    };
    return cmocka_run_group_tests_name("sweep", tests, NULL, NULL);
}

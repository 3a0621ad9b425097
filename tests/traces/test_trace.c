/* test_trace.c - traces have what viewers need, come back as they were, and every Chrome trace can
 * be read. */
#include "job/plan_trace.h"
#include "job/step_time.h"
#include "tests/support/small_jobs.h"
#include "tests/support/temp_folder.h"
#include "traces/trace.h"

#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* ---- files ---- */

static int make_folder(void **state)
{
    (void)state;
    return temp_folder_make("test_trace");
}

static int remove_folder(void **state)
{
    (void)state;
    return temp_folder_remove();
}

static void write_trace(const struct trace *trace, const char *name)
{
    struct err err = {0};
    if (trace_write(trace, path_of(name), &err) != ERR_OK)
        fail_msg("%s", err.text);
}

static struct trace *read_trace(const char *name)
{
    struct err err = {0};
    struct trace *trace = NULL;
    if (trace_read(path_of(name), &trace, &err) != ERR_OK)
        fail_msg("%s", err.text);
    return trace;
}

static struct trace *read_text(const char *text)
{
    put_text("a.json", text, strlen(text));
    return read_trace("a.json");
}

/* ---- traces ---- */

static const struct trace_event SPAN = {.id = 7,
                                        .kind = TRACE_SPAN,
                                        .name = "mm",
                                        .category = "compute",
                                        .begin_s = 1.5e-6,
                                        .end_s = 4.75e-6,
                                        .bytes = 4096};

static struct trace *two_lanes(void)
{
    static const char *const series[] = {"a", "b"};
    struct trace *trace = trace_new();
    const uint32_t process = trace_add_process(trace, 3, "rank 3 (predicted)");
    const uint32_t compute = trace_add_lane(trace, process, "compute");
    const uint32_t host = trace_add_lane(trace, process, "ho\"st\n");
    struct trace_event event = SPAN;
    event.lane = compute;
    trace_add_event(trace, &event);
    event = (struct trace_event){.id = 8,
                                 .lane = host,
                                 .kind = TRACE_INSTANT,
                                 .name = "end",
                                 .category = "mark",
                                 .begin_s = -1e-9,
                                 .end_s = -1e-9};
    trace_add_event(trace, &event);
    const uint32_t track = trace_add_track(trace, process, "memory", 2, series);
    trace_add_counter(trace, track, 0.0, (const double[]){0, 1e12});
    trace_add_counter(trace, track, 0.123456789, (const double[]){-1.5, 1e300});
    trace_set_info(trace, "clock", "hours");
    trace_set_info(trace, "clock", "seconds");
    return trace;
}

/* ---- writing ---- */

static const json_t *event_at(const json_t *root, size_t index)
{
    const json_t *event = json_array_get(json_object_get(root, "traceEvents"), index);
    assert_non_null(event);
    return event;
}

static void assert_text(const json_t *object, const char *key, const char *text)
{
    assert_non_null(json_object_get(object, key));
    assert_string_equal(json_string_value(json_object_get(object, key)), text);
}

static void assert_number(const json_t *object, const char *key, double number)
{
    assert_true(json_is_number(json_object_get(object, key)));
    const double found = json_number_value(json_object_get(object, key));
    if (fabs(found - number) > 1e-15 * fabs(number))
        fail_msg("%s: %.17g, expected %.17g", key, found, number);
}

static void files_have_what_perfetto_needs(void **state)
{
    (void)state;
    struct trace *trace = two_lanes();
    write_trace(trace, "a.json");
    trace_free(trace);
    json_t *root = json_load_file(path_of("a.json"), JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    assert_text(json_object_get(root, "otherData"), "clock", "seconds");

    const json_t *event = event_at(root, 0);
    assert_text(event, "ph", "M");
    assert_text(event, "name", "process_name");
    assert_number(event, "pid", 3);
    assert_text(json_object_get(event, "args"), "name", "rank 3 (predicted)");
    event = event_at(root, 3);
    assert_text(event, "name", "thread_name");
    assert_number(event, "tid", 2);
    assert_text(json_object_get(event, "args"), "name", "ho\"st\n");
    event = event_at(root, 4);
    assert_text(event, "name", "thread_sort_index");
    assert_number(json_object_get(event, "args"), "sort_index", 2);

    event = event_at(root, 5);
    assert_text(event, "ph", "X");
    assert_text(event, "name", "mm");
    assert_text(event, "cat", "compute");
    assert_number(event, "pid", 3);
    assert_number(event, "tid", 1);
    assert_number(event, "ts", 1.5);
    assert_number(event, "dur", 3.25);
    assert_number(json_object_get(event, "args"), "id", 7);
    assert_number(json_object_get(event, "args"), "bytes", 4096);
    event = event_at(root, 6);
    assert_text(event, "ph", "i");
    assert_text(event, "s", "t");
    assert_number(event, "ts", -0.001);
    event = event_at(root, 8);
    assert_text(event, "ph", "C");
    assert_text(event, "name", "memory");
    assert_number(event, "ts", 123456.789);
    assert_number(json_object_get(event, "args"), "a", -1.5);
    assert_number(json_object_get(event, "args"), "b", 1e300);
    json_decref(root);
}

static void a_trace_comes_back_from_its_file(void **state)
{
    (void)state;
    struct trace *trace = two_lanes();
    write_trace(trace, "a.json");
    trace_free(trace);
    struct trace *again = read_trace("a.json");
    assert_int_equal(again->process_count, 1);
    assert_int_equal(again->processes[0].pid, 3);
    assert_int_equal(again->lane_count, 2);
    assert_string_equal(again->lanes[1].name, "ho\"st\n");
    assert_int_equal(again->event_count, 2);
    const struct trace_event *event = &again->events[0];
    assert_int_equal(event->id, 7);
    assert_int_equal(event->bytes, 4096);
    assert_int_equal(event->lane, 0);
    assert_string_equal(event->name, "mm");
    assert_string_equal(event->category, "compute");
    assert_true(fabs(event->begin_s - 1.5e-6) < 1e-15 && fabs(event->end_s - 4.75e-6) < 1e-15);
    assert_int_equal(again->events[1].kind, TRACE_INSTANT);
    assert_int_equal(again->sample_count, 2);
    assert_string_equal(again->tracks[0].series[1], "b");
    assert_true(again->values[again->samples[1].first + 1] == 1e300);
    assert_string_equal(trace_get_info(again, "clock"), "seconds");
    assert_null(trace_get_info(again, "weather"));
    write_trace(again, "b.json");
    assert_same_files();
    trace_free(again);
}

static void an_empty_trace_comes_back(void **state)
{
    (void)state;
    struct trace *trace = trace_new();
    write_trace(trace, "a.json");
    trace_free(trace);
    trace = read_trace("a.json");
    assert_int_equal(trace->event_count, 0);
    write_trace(trace, "b.json");
    assert_same_files();
    trace_free(trace);
}

static void a_large_trace_comes_back(void **state)
{
    (void)state;
    enum { EVENTS = 200000 };
    static const char *const names[] = {"mm", "add.Tensor", "all_gather layers.31", "copy_in"};
    struct trace *trace = trace_new();
    const uint32_t process = trace_add_process(trace, 0, "rank 0");
    for (int i = 0; i < 4; i++)
        trace_add_lane(trace, process, names[i]);
    for (uint32_t i = 0; i < EVENTS; i++) {
        const double begin_s = 1.3e-5 * i + 1e-9 * (i % 1000);
        const struct trace_event event = {
            .id = i,
            .lane = i % 4,
            .kind = TRACE_SPAN,
            .name = names[i % 4],
            .category = "compute",
            .begin_s = begin_s,
            .end_s = begin_s + 9.7e-6,
            .bytes = 123456ULL * i,
            .module = names[(i + 1) % 4],
        };
        trace_add_event(trace, &event);
    }
    write_trace(trace, "a.json");
    struct trace *again = read_trace("a.json");
    assert_int_equal(again->event_count, EVENTS);
    for (uint32_t i = 0; i < EVENTS; i += 997) {
        assert_int_equal(again->events[i].id, i);
        assert_int_equal(again->events[i].bytes, trace->events[i].bytes);
        assert_string_equal(again->events[i].module, trace->events[i].module);
        assert_true(fabs(again->events[i].end_s - trace->events[i].end_s) < 1e-9);
    }
    write_trace(again, "b.json");
    assert_same_files();
    trace_free(trace);
    trace_free(again);
}

/* ---- writing that fails ---- */

static void nothing_is_left_where_nothing_can_be_written(void **state)
{
    (void)state;
    struct trace *trace = two_lanes();
    struct err err = {0};
    struct stat st;
    assert_int_equal(trace_write(trace, path_of("no/trace.json"), &err), ERR_IO);
    assert_non_null(strstr(err.text, "no/trace.json"));
    err = (struct err){0};
    assert_int_equal(trace_write(trace, temp_folder(), &err), ERR_IO);
    if (stat("/dev/full", &st) == 0) {
        err = (struct err){0};
        assert_int_equal(trace_write(trace, "/dev/full", &err), ERR_IO);
        assert_non_null(strstr(err.text, "/dev/full: No space left on device"));
        assert_int_equal(stat("/dev/full", &st), 0);
        assert_true(S_ISCHR(st.st_mode));
    }
    trace_free(trace);
}

static void a_time_that_is_none_leaves_the_old_file(void **state)
{
    (void)state;
    const double wrong[] = {(double)NAN, INFINITY, -1.0, 1e300};
    for (int i = 0; i < 4; i++) {
        struct trace *trace = two_lanes();
        struct err err = {0};
        size_t length;
        put_text("a.json", "old", 3);
        trace->events[0].end_s = wrong[i];
        assert_int_equal(trace_write(trace, path_of("a.json"), &err), ERR_INTERNAL);
        assert_non_null(strstr(err.text, "event 0 (mm)"));
        char *text = text_of("a.json", &length);
        assert_string_equal(text, "old");
        free(text);
        trace_free(trace);
    }
}

/* ---- what others write ---- */

static void members_come_in_any_order_with_anything_between(void **state)
{
    (void)state;
    struct trace *trace = read_text(
        "\xef\xbb\xbf"
        "{\n  \"schemaVersion\": 1, \"deviceProperties\": [{\"id\": 0, \"x\": [1, [], {}, "
        "null]}],\n"
        "  \"traceEvents\": [\n"
        "  {\"args\": {\"deep\": {\"id\": [3]}, \"bytes\": 1e3, \"id\": 5, \"Op\": \"\\\"\"},\n"
        "   \"dur\": 2.5E0, \"name\": \"aten::mm\", \"cat\": \"cpu_op\", \"ts\": 1e1, \"tid\": 9,\n"
        "   \"pid\": 4, \"ph\": \"X\", \"extra\": true},\n"
        "  {\"ph\": \"s\", \"id\": 1, \"pid\": 4, \"tid\": 9, \"ts\": 10, \"name\": \"flow\"},\n"
        "  {}, {\"ph\": \"X\", \"name\": \"n\", \"pid\": \"Spans\", \"tid\": \"Py\\u0074hon\",\n"
        "   \"ts\": 12, \"args\": {\"id\": -1, \"bytes\": 0.5}},\n"
        "  {\"ph\": \"M\", \"name\": \"process_name\", \"pid\": \"Spans\", \"args\": {\"name\": "
        "\"S\"}},\n"
        "  {\"ph\": \"X\", \"name\": \"o\", \"pid\": \"Spans\", \"tid\": \"Python\", \"ts\": 13,"
        " \"dur\": 1}],\n"
        "  \"otherData\": {\"clock\": \"seconds\", \"n\": 1}, \"displayTimeUnit\": \"ns\"\n}\n");
    assert_int_equal(trace->event_count, 3);
    const struct trace_event *event = &trace->events[0];
    assert_int_equal(event->id, 5);
    assert_int_equal(event->bytes, 1000);
    assert_true(fabs(event->begin_s - 1e-5) < 1e-18 && fabs(event->end_s - 1.25e-5) < 1e-18);
    assert_int_equal(trace->lanes[event->lane].tid, 9);
    assert_int_equal(trace->events[1].id, TRACE_NO_ID);
    assert_int_equal(trace->events[1].bytes, 0);
    assert_int_equal(trace->events[1].lane, trace->events[2].lane);
    assert_string_equal(trace->lanes[trace->events[1].lane].name, "Python");
    assert_string_equal(trace->processes[1].name, "S");
    assert_string_equal(trace_get_info(trace, "clock"), "seconds");
    write_trace(trace, "a.json"); /* and as ours */
    struct trace *again = read_trace("a.json");
    write_trace(again, "b.json");
    assert_same_files();
    trace_free(trace);
    trace_free(again);
}

static void begin_and_end_make_a_span_within_their_thread(void **state)
{
    (void)state;
    struct trace *trace =
        read_text("[{\"ph\":\"B\",\"name\":\"outer\",\"ts\":1,\"pid\":0,\"tid\":1},\n"
                  " {\"ph\":\"B\",\"name\":\"other\",\"ts\":2,\"pid\":0,\"tid\":2},\n"
                  " {\"ph\":\"B\",\"name\":\"inner\",\"ts\":3,\"pid\":0,\"tid\":1},\n"
                  " {\"ph\":\"E\",\"ts\":4,\"pid\":0,\"tid\":1},\n"
                  " {\"ph\":\"E\",\"ts\":5,\"pid\":0,\"tid\":1},\n"
                  " {\"ph\":\"E\",\"ts\":6,\"pid\":0,\"tid\":1},\n"
                  " {\"ph\":\"I\",\"name\":\"old\",\"ts\":7,\"pid\":0,\"tid\":1}]");
    assert_int_equal(trace->event_count, 4);
    assert_true(fabs(trace->events[0].end_s - 5e-6) < 1e-18);
    assert_true(fabs(trace->events[1].end_s - 7e-6) < 1e-18); /* nothing ended it */
    assert_true(fabs(trace->events[2].end_s - 4e-6) < 1e-18);
    assert_int_equal(trace->events[3].kind, TRACE_INSTANT);
    trace_free(trace);
}

static void a_bare_list_may_lack_its_end(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "[]",
        "[ {\"ph\":\"X\",\"name\":\"a\",\"ts\":1,\"dur\":1} ]",
        "[{\"ph\":\"X\",\"name\":\"a\",\"ts\":1,\"dur\":1}",
        "[{\"ph\":\"X\",\"name\":\"a\",\"ts\":1,\"dur\":1},\n",
    };
    for (uint32_t i = 0; i < 4; i++) {
        struct trace *trace = read_text(texts[i]);
        assert_int_equal(trace->event_count, i > 0);
        trace_free(trace);
    }
}

static void strings_are_decoded(void **state)
{
    (void)state;
    struct trace *trace =
        read_text("[{\"ph\":\"X\",\"ts\":0,\"name\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\\u20ac"
                  "\\ud83d\\ude00 \xc3\xa9 \\ud83d \\u0000\"}]");
    assert_string_equal(trace->events[0].name,
                        "\"\\/\b\f\n\r\t\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80 \xc3\xa9 "
                        "\xef\xbf\xbd \xef\xbf\xbd");
    write_trace(trace, "a.json");
    struct trace *again = read_trace("a.json");
    assert_string_equal(again->events[0].name, trace->events[0].name);
    trace_free(trace);
    trace_free(again);
}

static void numbers_are_read_exactly(void **state)
{
    (void)state;
    static const char *const texts[] = {"0",       "-0",
                                        "0.1",     "123456789012345",
                                        "1e-7",    "0.3e+2",
                                        "-12.5",   "9007199254740993",
                                        "1.5E300", "123456789.123456789"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        char text[128];
        snprintf(text, sizeof text, "[{\"ph\":\"C\",\"ts\":0,\"name\":\"n\",\"args\":{\"v\":%s}}]",
                 texts[i]);
        struct trace *trace = read_text(text);
        assert_true(trace->values[0] == strtod(texts[i], NULL));
        trace_free(trace);
    }
}

/* ---- what nobody should write ---- */

static void expect_unreadable(const char *text, const char *expected)
{
    struct err err = {0};
    struct trace *trace = (struct trace *)1;
    put_text("a.json", text, strlen(text));
    assert_int_equal(trace_read(path_of("a.json"), &trace, &err), ERR_INVALID);
    assert_null(trace);
    if (!strstr(err.text, expected) || !strstr(err.text, path_of("a.json")))
        fail_msg("expected \"%s\" in: %s", expected, err.text);
}

static void errors_name_line_and_event(void **state)
{
    (void)state;
#define EVENT "{\"ph\":\"X\",\"ts\":1,\"dur\":1,\"name\":\"a\"}"
    expect_unreadable("", "a.json:1: event 0: a trace begins with \"{\" or \"[\"");
    expect_unreadable("nonsense", "a trace begins with");
    expect_unreadable("{}", "the file has no \"traceEvents\"");
    expect_unreadable("{\"traceEvents\": {}}", "a list of events is expected");
    expect_unreadable("[" EVENT ",\n" EVENT ",\n{\"ph\":}]", "a.json:3: event 2: a string is exp");
    expect_unreadable("[" EVENT "\n" EVENT "]", "a.json:2: event 1: \",\" or \"]\" is expected");
    expect_unreadable("[" EVENT "] x", "the trace ends here");
    expect_unreadable("[" EVENT ",]", "an object is expected");
    expect_unreadable("{\"traceEvents\": [" EVENT, "the file ends too early");
    expect_unreadable("{\"traceEvents\": [" EVENT "]", "the file ends too early");
    expect_unreadable("[{\"ph\":\"X\",\"name\":\"a\"}]", "phase \"X\" needs \"ts\"");
    expect_unreadable("[{\"ph\":\"X\",\"ts\":\"1\"}]", "a number is expected");
    expect_unreadable("[{\"ph\":\"X\",\"ts\":1,\"dur\":-1}]", "ts 1, dur -1: allowed are");
    expect_unreadable("[{\"ph\":\"X\",\"ts\":1e400}]", "the number is too large");
    expect_unreadable("[{\"ph\":\"X\",\"ts\":1e17}]", "ts 1e+17, dur 0: allowed are");
    expect_unreadable("[{\"ph\":\"X\",\"ts\":01}]", "a value is expected");
    expect_unreadable("[{\"ph\":\"X\",\"ts\":1.}]", "digits are expected after the point");
    expect_unreadable("[{\"ph\":\"X\",\"ts\":nan}]", "a value is expected");
    expect_unreadable("[{\"name\":\"\\x\"}]", "unknown escape");
    expect_unreadable("[{\"name\":\"\\u12\"}]", "four hexadecimal digits");
    expect_unreadable("[{\"name\":\"a\nb\"}]", "control character");
    expect_unreadable("[{\"name\":\"a\\\"}]", "the file ends within a string");
    expect_unreadable("[{\"other\":tru}]", "a value is expected");
    expect_unreadable("[{\"other\":[1,]}]", "a value is expected");
    expect_unreadable("[{\"pid\":1e300}]", "the id is too large");
#undef EVENT
}

static void nesting_without_end_is_refused(void **state)
{
    (void)state;
    static char text[200000];
    memset(text, '[', sizeof text - 1);
    for (size_t i = 0; i < 10; i++)
        text[i] = "[{\"other\":"[i];
    expect_unreadable(text, "nested too deeply");
}

static void a_missing_file_is_an_error(void **state)
{
    (void)state;
    struct err err = {0};
    struct trace *trace = NULL;
    assert_int_equal(trace_read(path_of("none.json"), &trace, &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "No such file"));
    err = (struct err){0};
    assert_int_equal(trace_read(temp_folder(), &trace, &err), ERR_INVALID);
    assert_non_null(strstr(err.text, "Is a directory"));
}

/* Every cut and many changed bytes: an error or a trace that can be written, never a crash. */
static void damaged_files_are_refused_or_harmless(void **state)
{
    (void)state;
    struct trace *trace = two_lanes();
    size_t length;
    uint32_t random = 1;
    write_trace(trace, "a.json");
    trace_free(trace);
    char *text = text_of("a.json", &length);
    for (size_t i = 0; i < 3 * length; i++) {
        struct err err = {0};
        char *changed = malloc(length + 1);
        assert_non_null(changed);
        memcpy(changed, text, length);
        random = random * 1664525U + 1013904223U;
        if (length > 0 && i >= length)
            changed[(random >> 8) % length] = "0123456789,:\"{}[]\\u-"[random % 20];
        put_text("b.json", changed, i < length ? i : length);
        free(changed);
        const enum err_code rc = trace_read(path_of("b.json"), &trace, &err);
        if (rc == ERR_OK)
            write_trace(trace, "b.json");
        else
            assert_non_null(strstr(err.text, "b.json:"));
        assert_true(rc != ERR_OK || i + 1 >= length);
        trace_free(trace);
    }
    free(text);
}

/* ---- the trace of a plan ---- */

static const struct memory_options OPTIONS = {.workspace_bytes = {1 << 20, 1 << 20}};

struct simulated {
    struct machine machine;
    struct step_time time;
};

static struct simulated simulate_small(struct plan *plan, const struct job *job)
{
    struct err err = {0};
    struct simulated s = {.machine = {.gpus_per_node = 8}};
    struct prediction prediction = {.plan = plan};
    assert_int_equal(profile_find("h100-sxm", &s.machine.profile, &err), ERR_OK);
    assert_int_equal(step_time(&prediction, job, &s.machine, 0, &s.time, &err), ERR_OK);
    return s;
}

static void simulated_free(struct simulated *s)
{
    step_time_free(&s->time);
    profile_free(&s->machine.profile);
}

static void work_is_on_the_lane_of_its_stream_at_its_time(void **state)
{
    (void)state;
    for (int kind = 0; kind < SMALL_JOBS; kind++) {
        const struct job job = small_job_of_kind(kind);
        struct plan *plan = small_plan_of(&job);
        struct trace *trace = trace_new();
        struct err err = {0};
        struct simulated s = simulate_small(plan, &job);
        assert_int_equal(
            plan_trace_add(plan, &OPTIONS, s.time.simulation, &s.time.timeline, trace, &err),
            ERR_OK);
        uint32_t next = 0, item = 0;
        double issued_s = 0; /* of the event before it on the host's lane */
        for (uint32_t id = 0; id < plan->instruction_count; id++) {
            const struct plan_instruction *i = &plan->instructions[id];
            const bool is_mark = i->op == PLAN_MARK;
            if (!is_mark && !plan_op_is_kernel((enum plan_op)i->op))
                continue;
            while (simulation_instruction(s.time.simulation, item) < id && !is_mark)
                item++;
            assert_true(next < trace->event_count);
            const struct trace_event *event = &trace->events[next++];
            assert_int_equal(event->id, id);
            assert_int_equal(event->kind, is_mark ? TRACE_INSTANT : TRACE_SPAN);
            assert_string_equal(trace->lanes[event->lane].name, plan->lanes[i->lane].name);
            assert_string_equal(event->op, plan_op_name((enum plan_op)i->op));
            if (is_mark)
                continue;
            assert_true(event->begin_s == s.time.timeline.begin_s[item]);
            assert_true(event->end_s == s.time.timeline.end_s[item]);
            if (i->lane == LANE_HOST)
                continue;
            const struct trace_event *issue = &trace->events[next++];
            assert_string_equal(trace->lanes[issue->lane].name, "host issue");
            assert_int_equal(issue->id, TRACE_NO_ID);
            assert_int_equal(issue->issues, id + 1);
            assert_true(issue->begin_s >= issued_s && issue->end_s >= issue->begin_s);
            assert_true(event->begin_s >= issue->end_s);
            issued_s = issue->end_s;
        }
        assert_int_equal(next, trace->event_count);
        assert_string_equal(trace_get_info(trace, "clock"), "seconds");
        simulated_free(&s);
        trace_free(trace);
        plan_free(plan);
    }
}

/* The highest value of a track; `last` receives the one at the end. */
static double highest(const struct trace *trace, const char *track, double *last)
{
    double most = 0;
    *last = -1;
    for (uint32_t i = 0; i < trace->sample_count; i++) {
        if (strcmp(trace->tracks[trace->samples[i].track].name, track) != 0)
            continue;
        *last = trace->values[trace->samples[i].first];
        most = fmax(most, *last);
    }
    return most;
}

static void counters_have_the_peaks_of_the_replay(void **state)
{
    (void)state;
    for (int kind = 0; kind < SMALL_JOBS; kind++) {
        const struct job job = small_job_of_kind(kind);
        struct plan *plan = small_plan_of(&job);
        struct trace *trace = trace_new();
        struct err err = {0};
        struct memory memory;
        double last;
        struct simulated s = simulate_small(plan, &job);
        assert_int_equal(
            plan_trace_add(plan, &OPTIONS, s.time.simulation, &s.time.timeline, trace, &err),
            ERR_OK);
        simulated_free(&s);
        assert_int_equal(memory_replay(plan, &OPTIONS, NULL, NULL, &memory, &err), ERR_OK);
        assert_true(highest(trace, "memory requested", &last) == (double)memory.requested.bytes);
        assert_true(last == (double)memory.live[PLAN_MARK_END]);
        assert_true(highest(trace, "memory allocated", &last) == (double)memory.allocated.bytes);
        assert_true(highest(trace, "memory reserved", &last) <= (double)memory.reserved_bytes);
        assert_true(highest(trace, "memory of activation", &last) > 0);
        assert_true(last == 0);
        trace_free(trace);
        plan_free(plan);
    }
}

static void the_trace_of_a_plan_comes_back_from_its_file(void **state)
{
    (void)state;
    const struct job job = small_job_of_kind(0);
    struct plan *plan = small_plan_of(&job);
    struct err err = {0};
    struct simulated s = simulate_small(plan, &job);
    assert_int_equal(plan_trace_write(plan, &OPTIONS, s.time.simulation, &s.time.timeline,
                                      path_of("a.json"), &err),
                     ERR_OK);
    simulated_free(&s);
    struct trace *again = read_trace("a.json");
    assert_string_equal(again->processes[0].name, "rank 0 (predicted)");
    write_trace(again, "b.json");
    assert_same_files();
    trace_free(again);
    plan_free(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_have_what_perfetto_needs),
        cmocka_unit_test(a_trace_comes_back_from_its_file),
        cmocka_unit_test(an_empty_trace_comes_back),
        cmocka_unit_test(a_large_trace_comes_back),
        cmocka_unit_test(nothing_is_left_where_nothing_can_be_written),
        cmocka_unit_test(a_time_that_is_none_leaves_the_old_file),
        cmocka_unit_test(members_come_in_any_order_with_anything_between),
        cmocka_unit_test(begin_and_end_make_a_span_within_their_thread),
        cmocka_unit_test(a_bare_list_may_lack_its_end),
        cmocka_unit_test(strings_are_decoded),
        cmocka_unit_test(numbers_are_read_exactly),
        cmocka_unit_test(errors_name_line_and_event),
        cmocka_unit_test(nesting_without_end_is_refused),
        cmocka_unit_test(a_missing_file_is_an_error),
        cmocka_unit_test(damaged_files_are_refused_or_harmless),
        cmocka_unit_test(work_is_on_the_lane_of_its_stream_at_its_time),
        cmocka_unit_test(counters_have_the_peaks_of_the_replay),
        cmocka_unit_test(the_trace_of_a_plan_comes_back_from_its_file),
    };
    return cmocka_run_group_tests_name("trace", tests, make_folder, remove_folder);
}

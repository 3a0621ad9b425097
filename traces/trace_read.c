/* trace_read.c - reading any Chrome trace; see trace_read in trace.h.
 *
 * Traces of long runs have hundreds of megabytes of events, so no tree of them is built: a pull
 * parser walks the text once and keeps of each event only what struct trace has. It is a parser of
 * all of JSON, not of what trace_write writes: members come in any order, and whatever is not
 * asked for is checked and skipped.
 *
 *     text -> scan_... (JSON) -> read_event (one event's members) -> keep_... (struct trace)
 *
 * Where writers differ in practice: process and thread ids may be strings; a list of events may
 * end without its "]", because writers that are killed cannot write it; spans may come as a pair
 * of B and E events instead of one X, nested within their thread. */
#include "base/file.h"
#include "traces/find.h"
#include "traces/json_scan.h"
#include "traces/trace.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ident { /* a process or thread id */
    bool is_text;
    int64_t number;
    struct slice text;
};

struct arg { /* a member of "args" */
    struct slice key;
    bool is_number, is_text;
    double number;
    struct slice text;
};

struct raw_event { /* the members of one event that mean something here */
    char phase;
    bool has_ts;
    struct ident pid, tid;
    double ts, dur; /* microseconds */
    struct slice name, category;
};

struct open_span { /* a B that waits for its E */
    uint32_t event;
    uint32_t below; /* the next older one of its lane; FIND_NONE: there is none */
    bool ended;
};

struct reader {
    const char *path;
    struct err *err;
    struct scan scan;
    struct trace *trace;
    struct arg *args; /* of the event at hand */
    uint32_t arg_count, arg_cap;
    double *values; /* (arg_cap) those of them that are numbers */
    uint32_t value_count;
    struct open_span *open;
    uint32_t open_count, open_cap;
    size_t event;              /* position in "traceEvents" */
    const char **pids, **tids; /* (processes), (lanes) ids that are strings; NULL: a number */
    uint32_t *youngest;        /* (lanes) open span; FIND_NONE: none */
    uint32_t pid_cap, tid_cap, youngest_cap;
    struct find processes, lanes, tracks;
    uint32_t last_lane;
    double last_s;
};

/* ---- messages ---- */

static enum err_code wrong(struct reader *r, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* "trace.json:12: event 9: ...". */
static enum err_code wrong(struct reader *r, const char *fmt, ...)
{
    char text[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return err_set(r->err, ERR_INVALID, "%s:%zu: event %zu: %s", r->path, scan_line(&r->scan),
                   r->event, text);
}

/* ---- what is kept ---- */

/* An id that is a string is known by it; the number that it gets is above those that systems give
 * to processes and threads. */
enum { FIRST_OWN_NUMBER = 10000000 };

static const char *ident_text(struct reader *r, const struct ident *ident)
{
    return ident->is_text ? trace_intern(r->trace, ident->text.text, ident->text.length) : NULL;
}

/* What is looked for: a process by its pid, a lane by its process and tid. */
struct wanted {
    const struct reader *r;
    uint32_t process;
    const char *text; /* the id; NULL: a number */
    int64_t number;
};

static bool is_process(const void *what, uint32_t item)
{
    const struct wanted *w = what;
    return w->r->pids[item] == w->text &&
           (w->text || w->r->trace->processes[item].pid == w->number);
}

static bool is_lane(const void *what, uint32_t item)
{
    const struct wanted *w = what;
    const struct trace_lane *l = &w->r->trace->lanes[item];
    return l->process == w->process && w->r->tids[item] == w->text &&
           (w->text || l->tid == w->number);
}

static uint64_t hash_of(const struct wanted *w)
{
    const uint64_t numbers[] = {w->process, (uint64_t)(uintptr_t)w->text,
                                w->text ? 0 : (uint64_t)w->number};
    return find_hash(numbers, 3);
}

static uint32_t keep_process(struct reader *r, const struct ident *pid)
{
    struct trace *trace = r->trace;
    const struct wanted wanted = {r, 0, ident_text(r, pid), pid->number};
    const uint64_t hash = hash_of(&wanted);
    const uint32_t known = find_item(&r->processes, hash, is_process, &wanted);
    if (known != FIND_NONE)
        return known;
    find_add(&r->processes, hash, trace->process_count);
    ARRAY_GROW(r->pids, trace->process_count, r->pid_cap);
    r->pids[trace->process_count] = wanted.text;
    return trace_add_process(
        trace, wanted.text ? FIRST_OWN_NUMBER + (int64_t)trace->process_count : pid->number,
        wanted.text);
}

static uint32_t keep_lane(struct reader *r, const struct raw_event *raw)
{
    struct trace *trace = r->trace;
    const uint32_t count = trace->lane_count;
    const struct wanted wanted = {r, keep_process(r, &raw->pid), ident_text(r, &raw->tid),
                                  raw->tid.number};
    if (r->last_lane < count && is_lane(&wanted, r->last_lane))
        return r->last_lane;
    const uint64_t hash = hash_of(&wanted);
    const uint32_t known = find_item(&r->lanes, hash, is_lane, &wanted);
    if (known != FIND_NONE)
        return r->last_lane = known;
    find_add(&r->lanes, hash, count);
    ARRAY_GROW(r->tids, count, r->tid_cap);
    r->tids[count] = wanted.text;
    ARRAY_GROW(r->youngest, count, r->youngest_cap);
    r->youngest[count] = FIND_NONE;
    r->last_lane = trace_add_lane(trace, wanted.process, wanted.text);
    trace->lanes[count].tid = wanted.text ? FIRST_OWN_NUMBER + (int64_t)count : raw->tid.number;
    trace->lanes[count].sort = TRACE_UNSORTED;
    return r->last_lane;
}

static const struct arg *find_arg(const struct reader *r, const char *key)
{
    for (uint32_t i = 0; i < r->arg_count; i++)
        if (slice_is(r->args[i].key, key))
            return &r->args[i];
    return NULL;
}

/* A whole number among the args, or `otherwise`. */
static uint64_t arg_number(const struct reader *r, const char *key, uint64_t most,
                           uint64_t otherwise)
{
    const struct arg *arg = find_arg(r, key);
    if (!arg || !arg->is_number || arg->number < 0 || arg->number > (double)most ||
        arg->number != floor(arg->number))
        return otherwise;
    return (uint64_t)arg->number;
}

/* A text among the args; NULL: none. */
static const char *arg_text(struct reader *r, const char *key)
{
    const struct arg *arg = find_arg(r, key);
    return arg && arg->is_text ? trace_intern(r->trace, arg->text.text, arg->text.length) : NULL;
}

static void name_process(struct reader *r, const struct raw_event *raw, const char *name)
{
    const uint32_t process = keep_process(r, &raw->pid);
    r->trace->processes[process].name = name;
}

static void name_lane(struct reader *r, const struct raw_event *raw, const char *name)
{
    const uint32_t lane = keep_lane(r, raw);
    r->trace->lanes[lane].name = name;
}

static void sort_lane(struct reader *r, const struct raw_event *raw, double place)
{
    const uint32_t lane = keep_lane(r, raw);
    r->trace->lanes[lane].sort = fabs(place) < INT32_MAX ? (int32_t)place : TRACE_UNSORTED;
}

/* Names and order of processes and threads. */
static void keep_metadata(struct reader *r, const struct raw_event *raw)
{
    const struct arg *name = find_arg(r, "name"), *place = find_arg(r, "sort_index");
    const char *text =
        name && name->is_text ? trace_intern(r->trace, name->text.text, name->text.length) : NULL;
    if (slice_is(raw->name, "process_name") && text)
        name_process(r, raw, text);
    else if (slice_is(raw->name, "thread_name") && text)
        name_lane(r, raw, text);
    else if (slice_is(raw->name, "thread_sort_index") && place && place->is_number)
        sort_lane(r, raw, place->number);
}

/* A lane is the stream that its events say it is. */
static bool keep_stream(struct reader *r, uint32_t lane)
{
    const uint64_t stream = arg_number(r, "stream", INT32_MAX, UINT64_MAX);
    if (stream == UINT64_MAX)
        return false;
    r->trace->lanes[lane].stream = (int32_t)stream;
    return true;
}

static void keep_event(struct reader *r, const struct raw_event *raw, enum trace_kind kind)
{
    struct trace *trace = r->trace;
    const uint32_t lane = keep_lane(r, raw);
    const double begin_s = raw->ts / 1e6;
    const double end_s = kind == TRACE_SPAN ? (raw->ts + raw->dur) / 1e6 : begin_s;
    const bool on_device = keep_stream(r, lane);
    ARRAY_GROW(trace->events, trace->event_count, trace->event_cap);
    trace->events[trace->event_count++] = (struct trace_event){
        .id = (uint32_t)arg_number(r, "id", TRACE_NO_ID - 1, TRACE_NO_ID),
        .lane = lane,
        .kind = kind,
        .name = trace_intern(trace, raw->name.text, raw->name.length),
        .category = trace_intern(trace, raw->category.text, raw->category.length),
        .begin_s = begin_s,
        .end_s = end_s,
        .bytes = arg_number(r, "bytes", 1ULL << 53, 0),
        .op = arg_text(r, "op"),
        .module = arg_text(r, "module"),
        .issues = on_device ? 0 : (uint32_t)arg_number(r, "correlation", UINT32_MAX, 0),
    };
    r->last_s = fmax(r->last_s, end_s);
}

static void keep_begin(struct reader *r, const struct raw_event *raw)
{
    keep_event(r, raw, TRACE_SPAN);
    ARRAY_GROW(r->open, r->open_count, r->open_cap);
    const uint32_t event = r->trace->event_count - 1;
    uint32_t *youngest = &r->youngest[r->trace->events[event].lane];
    r->open[r->open_count] = (struct open_span){.event = event, .below = *youngest};
    *youngest = r->open_count++;
}

/* Ends the youngest open span of the lane; an E without B says nothing. */
static void keep_end(struct reader *r, const struct raw_event *raw)
{
    const uint32_t lane = keep_lane(r, raw); /* first: a new one moves them all */
    uint32_t *youngest = &r->youngest[lane];
    const double end_s = raw->ts / 1e6;
    if (*youngest != FIND_NONE) {
        struct open_span *span = &r->open[*youngest];
        struct trace_event *event = &r->trace->events[span->event];
        event->end_s = fmax(end_s, event->begin_s);
        span->ended = true;
        *youngest = span->below;
    }
    r->last_s = fmax(r->last_s, end_s);
}

/* Spans that nothing ended reach to the end of the trace. */
static void end_open_spans(struct reader *r)
{
    for (uint32_t i = 0; i < r->open_count; i++)
        if (!r->open[i].ended)
            r->trace->events[r->open[i].event].end_s = r->last_s;
}

struct wanted_track {
    const struct trace *trace;
    const char *const *series; /* interned, as all its texts */
    const char *name;
    uint32_t process, count;
};

static bool is_track(const void *what, uint32_t item)
{
    const struct wanted_track *w = what;
    const struct trace_track *track = &w->trace->tracks[item];
    if (track->process != w->process || track->series_count != w->count || track->name != w->name)
        return false;
    for (uint32_t i = 0; i < w->count; i++)
        if (track->series[i] != w->series[i])
            return false;
    return true;
}

static uint32_t keep_track(struct reader *r, const struct raw_event *raw)
{
    struct trace *trace = r->trace;
    struct wanted_track wanted = {.trace = trace, .process = keep_process(r, &raw->pid)};
    wanted.name = trace_intern(trace, raw->name.text, raw->name.length);
    const char **series = xmalloc(r->value_count * sizeof *series);
    for (uint32_t i = 0; i < r->arg_count; i++)
        if (r->args[i].is_number)
            series[wanted.count++] =
                trace_intern(trace, r->args[i].key.text, r->args[i].key.length);
    wanted.series = series;
    const uint64_t numbers[] = {wanted.process, (uint64_t)(uintptr_t)wanted.name,
                                (uint64_t)(uintptr_t)series[0], wanted.count};
    const uint64_t hash = find_hash(numbers, 4);
    uint32_t track = find_item(&r->tracks, hash, is_track, &wanted);
    if (track == FIND_NONE) {
        track = trace_add_track(trace, wanted.process, wanted.name, wanted.count, series);
        find_add(&r->tracks, hash, track);
    }
    free(series);
    return track;
}

static void keep_counter(struct reader *r, const struct raw_event *raw)
{
    r->value_count = 0;
    for (uint32_t i = 0; i < r->arg_count; i++)
        if (r->args[i].is_number)
            r->values[r->value_count++] = r->args[i].number;
    if (r->value_count == 0)
        return;
    trace_add_counter(r->trace, keep_track(r, raw), raw->ts / 1e6, r->values);
    r->last_s = fmax(r->last_s, raw->ts / 1e6);
}

/* ---- one event ---- */

static bool read_number(struct reader *r, double *out)
{
    return scan_peek(&r->scan) == '"' ? scan_fail(&r->scan, "a number is expected")
                                      : scan_number(&r->scan, out);
}

static bool read_ident(struct reader *r, struct ident *out)
{
    double number;
    if (scan_peek(&r->scan) == '"') {
        out->is_text = true;
        return scan_string(&r->scan, &out->text);
    }
    if (!scan_number(&r->scan, &number))
        return false;
    if (fabs(number) > 9e15)
        return scan_fail(&r->scan, "the id is too large");
    *out = (struct ident){.number = (int64_t)number};
    return true;
}

static void grow_args(struct reader *r)
{
    const uint32_t before = r->arg_cap;
    ARRAY_GROW(r->args, r->arg_count, r->arg_cap);
    if (r->arg_cap != before)
        r->values = xrealloc(r->values, r->arg_cap * sizeof *r->values);
}

static bool read_args(struct reader *r)
{
    struct scan *s = &r->scan;
    struct slice key;
    r->arg_count = 0;
    if (scan_peek(s) != '{')
        return scan_skip(s);
    for (bool first = true; scan_member(s, &first, &key);) {
        grow_args(r);
        struct arg *arg = &r->args[r->arg_count++];
        const char c = scan_peek(s);
        *arg = (struct arg){.key = key, .is_text = c == '"'};
        arg->is_number = c == '-' || (c >= '0' && c <= '9');
        if (arg->is_text     ? !scan_string(s, &arg->text)
            : arg->is_number ? !scan_number(s, &arg->number)
                             : !scan_skip(s))
            return false;
    }
    return !s->problem;
}

static bool read_member(struct reader *r, struct slice key, struct raw_event *raw)
{
    struct scan *s = &r->scan;
    struct slice phase;
    if (slice_is(key, "ph")) {
        if (!scan_string(s, &phase))
            return false;
        raw->phase = phase.length == 1 ? phase.text[0] : '\0';
        return true;
    }
    if (slice_is(key, "ts")) {
        raw->has_ts = true;
        return read_number(r, &raw->ts);
    }
    if (slice_is(key, "dur"))
        return read_number(r, &raw->dur);
    if (slice_is(key, "pid"))
        return read_ident(r, &raw->pid);
    if (slice_is(key, "tid"))
        return read_ident(r, &raw->tid);
    if (slice_is(key, "name"))
        return scan_string(s, &raw->name);
    if (slice_is(key, "cat"))
        return scan_string(s, &raw->category);
    if (slice_is(key, "args"))
        return read_args(r);
    return scan_skip(s);
}

static bool is_timed(char phase)
{
    return phase && strchr("XBEiIC", phase) != NULL;
}

static enum err_code keep(struct reader *r, const struct raw_event *raw)
{
    if (raw->phase == 'M') {
        keep_metadata(r, raw);
        return ERR_OK;
    }
    if (!is_timed(raw->phase))
        return ERR_OK;
    if (!raw->has_ts)
        return wrong(r, "an event of phase \"%c\" needs \"ts\"", raw->phase);
    if (raw->dur < 0 || fabs(raw->ts) + raw->dur > 9e15)
        return wrong(r, "ts %g, dur %g: allowed are -9e15 ... 9e15 and 0 ... 9e15", raw->ts,
                     raw->dur);
    switch (raw->phase) {
    case 'X':
        keep_event(r, raw, TRACE_SPAN);
        break;
    case 'B':
        keep_begin(r, raw);
        break;
    case 'E':
        keep_end(r, raw);
        break;
    case 'C':
        keep_counter(r, raw);
        break;
    default:
        keep_event(r, raw, TRACE_INSTANT);
        break;
    }
    return ERR_OK;
}

static enum err_code read_event(struct reader *r)
{
    struct raw_event raw = {.name.text = "", .category.text = ""};
    struct slice key;
    r->arg_count = 0;
    for (bool first = true; scan_member(&r->scan, &first, &key);)
        if (!read_member(r, key, &raw))
            break;
    return r->scan.problem ? wrong(r, "%s", r->scan.problem) : keep(r, &raw);
}

/* ---- the file ---- */

/* A list of events. `bare`: it is the whole file and may end without "]". */
static enum err_code read_events(struct reader *r, bool bare)
{
    struct scan *s = &r->scan;
    if (!scan_expect(s, '[', "a list of events is expected"))
        return wrong(r, "%s", s->problem);
    if (scan_accept(s, ']'))
        return ERR_OK;
    do {
        if (bare && scan_peek(s) == '\0' && s->at == s->end)
            return ERR_OK;
        TRY(read_event(r));
        r->event++;
    } while (scan_accept(s, ','));
    if (bare && s->at == s->end)
        return ERR_OK;
    return scan_expect(s, ']', "\",\" or \"]\" is expected") ? ERR_OK : wrong(r, "%s", s->problem);
}

/* "otherData": members that are strings. */
static bool read_infos(struct reader *r)
{
    struct scan *s = &r->scan;
    struct slice key, value;
    if (scan_peek(s) != '{')
        return scan_skip(s);
    for (bool first = true; scan_member(s, &first, &key);) {
        if (scan_peek(s) != '"') {
            if (!scan_skip(s))
                return false;
        } else if (scan_string(s, &value)) {
            trace_set_info(r->trace, trace_intern(r->trace, key.text, key.length),
                           trace_intern(r->trace, value.text, value.length));
        }
    }
    return !s->problem;
}

/* "distributedInfo": what is not there, or no such number, is 0. */
static bool read_job(struct reader *r)
{
    struct scan *s = &r->scan;
    struct slice key;
    if (scan_peek(s) != '{')
        return scan_skip(s);
    for (bool first = true; scan_member(s, &first, &key);) {
        double number = 0;
        uint32_t *to = slice_is(key, "rank")         ? &r->trace->job.rank
                       : slice_is(key, "world_size") ? &r->trace->job.world
                                                     : NULL;
        if (!to || !strchr("-0123456789", scan_peek(s)) || !scan_peek(s)) {
            if (!scan_skip(s))
                return false;
        } else if (scan_number(s, &number) && number >= 0 && number <= UINT32_MAX) {
            *to = (uint32_t)number;
        }
    }
    return !s->problem;
}

static bool read_other(struct reader *r, struct slice key)
{
    return slice_is(key, "otherData")         ? read_infos(r)
           : slice_is(key, "distributedInfo") ? read_job(r)
                                              : scan_skip(&r->scan);
}

static enum err_code read_object(struct reader *r)
{
    struct scan *s = &r->scan;
    struct slice key;
    bool events = false;
    for (bool first = true; scan_member(s, &first, &key);) {
        if (slice_is(key, "traceEvents")) {
            events = true;
            TRY(read_events(r, false));
        } else if (!read_other(r, key)) {
            break;
        }
    }
    if (s->problem)
        return wrong(r, "%s", s->problem);
    return events ? ERR_OK : wrong(r, "the file has no \"traceEvents\"");
}

static enum err_code read_trace(struct reader *r)
{
    struct scan *s = &r->scan;
    if (s->end - s->at >= 3 && memcmp(s->at, "\xef\xbb\xbf", 3) == 0) /* byte order mark */
        s->at += 3;
    const char first = scan_peek(s);
    if (first == '[')
        TRY(read_events(r, true));
    else if (first == '{')
        TRY(read_object(r));
    else
        return wrong(r, "a trace begins with \"{\" or \"[\"");
    if (scan_peek(s) != '\0' || s->at != s->end)
        return wrong(r, "the trace ends here, and the file goes on");
    end_open_spans(r);
    return ERR_OK;
}

enum err_code trace_read(const char *path, struct trace **out, struct err *err)
{
    size_t length = 0;
    *out = NULL;
    char *text = file_read(path, &length, err);
    if (!text)
        return err ? err->code : ERR_INVALID;
    struct trace *trace = trace_new();
    struct reader r = {
        .path = path,
        .err = err,
        .scan = {.start = text, .at = text, .end = text + length, .arena = &trace->arena},
        .trace = trace,
    };
    const enum err_code rc = read_trace(&r);
    free(text);
    free(r.args);
    free(r.values);
    free(r.open);
    free(r.pids);
    free(r.tids);
    free(r.youngest);
    find_free(&r.processes);
    find_free(&r.lanes);
    find_free(&r.tracks);
    if (rc == ERR_OK)
        *out = trace;
    else
        trace_free(trace);
    return rc;
}

/* trace.c - building and writing a trace; see trace.h. Reading is in trace_read.c.
 *
 * One event a line, each a whole JSON object, so that a file can be searched with grep:
 *
 *     {"displayTimeUnit": "ms", "otherData": {"clock": "seconds"}, "traceEvents": [
 *     {"ph":"M","pid":0,"tid":1,"name":"thread_name","args":{"name":"compute"}},
 *     {"ph":"X","pid":0,"tid":1,"ts":12.5,"dur":3,"name":"mm","cat":"compute",
 *      "args":{"id":7,"bytes":4096,"op":"compute","stream":7,"correlation":8}},
 *
 * Format: "Trace Event Format" of the Chromium project; ts and dur are in microseconds. Thread
 * numbers begin at 1, because viewers take thread 0 for the idle one. */
#include "traces/trace.h"

#include "base/file.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- strings ---- */

struct trace_names { /* open addressing; slot_count is a power of two */
    const char **slots;
    size_t slot_count, count;
};

static size_t hash(const char *text, size_t length)
{
    uint64_t value = 0xcbf29ce484222325U; /* FNV-1a */
    for (size_t i = 0; i < length; i++)
        value = (value ^ (unsigned char)text[i]) * 0x100000001b3U;
    return (size_t)(value ^ value >> 32);
}

static const char **find_slot(const struct trace_names *names, const char *text, size_t length)
{
    size_t slot = hash(text, length) & (names->slot_count - 1);
    for (; names->slots[slot]; slot = (slot + 1) & (names->slot_count - 1))
        if (strncmp(names->slots[slot], text, length) == 0 && !names->slots[slot][length])
            break;
    return &names->slots[slot];
}

static void grow_names(struct trace_names *names)
{
    const struct trace_names old = *names;
    names->slot_count = old.slot_count ? 2 * old.slot_count : 256;
    names->slots = xcalloc(names->slot_count, sizeof *names->slots);
    for (size_t i = 0; i < old.slot_count; i++)
        if (old.slots[i])
            *find_slot(names, old.slots[i], strlen(old.slots[i])) = old.slots[i];
    free(old.slots);
}

const char *trace_intern(struct trace *trace, const char *text, size_t length)
{
    struct trace_names *names = trace->names;
    if (2 * names->count >= names->slot_count)
        grow_names(names);
    assert(2 * names->count < names->slot_count); /* a search for what is not there ends */
    const char **slot = find_slot(names, text, length);
    if (!*slot) {
        *slot = memcpy(arena_alloc(&trace->arena, length + 1), text, length);
        names->count++;
    }
    return *slot;
}

static const char *copy(struct trace *trace, const char *text)
{
    return text ? trace_intern(trace, text, strlen(text)) : NULL;
}

/* ---- building ---- */

struct trace *trace_new(void)
{
    struct trace *trace = xmalloc(sizeof *trace);
    *trace = (struct trace){.names = xmalloc(sizeof *trace->names)};
    *trace->names = (struct trace_names){0};
    return trace;
}

void trace_free(struct trace *trace)
{
    if (!trace)
        return;
    free(trace->names->slots);
    free(trace->names);
    free(trace->events);
    free(trace->processes);
    free(trace->lanes);
    free(trace->tracks);
    free(trace->samples);
    free(trace->infos);
    free(trace->values);
    arena_free(&trace->arena);
    free(trace);
}

uint32_t trace_add_process(struct trace *trace, int64_t pid, const char *name)
{
    ARRAY_GROW(trace->processes, trace->process_count, trace->process_cap);
    trace->processes[trace->process_count] =
        (struct trace_process){.pid = pid, .name = copy(trace, name)};
    return trace->process_count++;
}

uint32_t trace_add_lane(struct trace *trace, uint32_t process, const char *name)
{
    assert(process < trace->process_count);
    const int32_t place = (int32_t)++trace->processes[process].lane_count;
    ARRAY_GROW(trace->lanes, trace->lane_count, trace->lane_cap);
    trace->lanes[trace->lane_count] = (struct trace_lane){
        .process = process,
        .sort = place,
        .tid = place,
        .stream = TRACE_NO_STREAM,
        .name = copy(trace, name),
    };
    return trace->lane_count++;
}

uint32_t trace_add_track(struct trace *trace, uint32_t process, const char *name,
                         uint32_t series_count, const char *const *series)
{
    assert(process < trace->process_count);
    const char **copies = arena_alloc(&trace->arena, series_count * sizeof *copies);
    for (uint32_t i = 0; i < series_count; i++)
        copies[i] = copy(trace, series[i]);
    ARRAY_GROW(trace->tracks, trace->track_count, trace->track_cap);
    trace->tracks[trace->track_count] = (struct trace_track){
        .process = process,
        .series_count = series_count,
        .name = copy(trace, name),
        .series = copies,
    };
    return trace->track_count++;
}

void trace_add_event(struct trace *trace, const struct trace_event *event)
{
    assert(event->lane < trace->lane_count && event->name);
    ARRAY_GROW(trace->events, trace->event_count, trace->event_cap);
    struct trace_event *added = &trace->events[trace->event_count++];
    *added = *event;
    added->name = copy(trace, event->name);
    added->category = copy(trace, event->category);
    added->op = copy(trace, event->op);
    added->module = copy(trace, event->module);
}

void trace_add_counter(struct trace *trace, uint32_t track, double time_s, const double *values)
{
    assert(track < trace->track_count);
    ARRAY_GROW(trace->samples, trace->sample_count, trace->sample_cap);
    trace->samples[trace->sample_count++] =
        (struct trace_sample){.time_s = time_s, .track = track, .first = trace->value_count};
    for (uint32_t i = 0; i < trace->tracks[track].series_count; i++) {
        ARRAY_GROW(trace->values, trace->value_count, trace->value_cap);
        trace->values[trace->value_count++] = values[i];
    }
}

void trace_set_info(struct trace *trace, const char *key, const char *value)
{
    for (uint32_t i = 0; i < trace->info_count; i++) {
        if (strcmp(trace->infos[i].key, key) == 0) {
            trace->infos[i].value = copy(trace, value);
            return;
        }
    }
    ARRAY_GROW(trace->infos, trace->info_count, trace->info_cap);
    trace->infos[trace->info_count++] =
        (struct trace_info){.key = copy(trace, key), .value = copy(trace, value)};
}

const char *trace_get_info(const struct trace *trace, const char *key)
{
    for (uint32_t i = 0; i < trace->info_count; i++)
        if (strcmp(trace->infos[i].key, key) == 0)
            return trace->infos[i].value;
    return NULL;
}

/* ---- writing ---- */

static void put_string(FILE *file, const char *text)
{
    putc_unlocked('"', file);
    for (; *text; text++) {
        const unsigned char c = (unsigned char)*text;
        if (c < ' ')
            fprintf(file, "\\u%04x", c);
        else if (c == '"' || c == '\\')
            fprintf(file, "\\%c", c);
        else
            putc_unlocked(c, file);
    }
    putc_unlocked('"', file);
}

/* Nanoseconds as the microseconds of the format. */
static void put_us(FILE *file, const char *key, int64_t ns)
{
    const uint64_t size = ns < 0 ? -(uint64_t)ns : (uint64_t)ns;
    fprintf(file, ",\"%s\":%s%" PRIu64, key, ns < 0 ? "-" : "", size / 1000);
    if (size % 1000)
        fprintf(file, ".%03u", (unsigned)(size % 1000));
}

static void put_value(FILE *file, double value)
{
    if (fabs(value) < 9007199254740992.0 && value == (double)(int64_t)value)
        fprintf(file, "%" PRId64, (int64_t)value);
    else
        fprintf(file, "%.17g", value);
}

/* A time of about 290 years either way. */
static bool is_time(double seconds)
{
    return fabs(seconds) < 9.2e9;
}

static int64_t to_ns(double seconds)
{
    return (int64_t)llround(seconds * 1e9);
}

/* The beginning of each line: after the first, a comma ends the one before. */
static void put_start(FILE *file, bool *first, const char *phase, int64_t pid)
{
    fprintf(file, "%s{\"ph\":\"%s\",\"pid\":%" PRId64, *first ? "" : ",\n", phase, pid);
    *first = false;
}

static void put_header(FILE *file, const struct trace *trace)
{
    fputs("{\"displayTimeUnit\": \"ms\", ", file);
    if (trace->job.world) /* a space before the rank: HTA's pattern asks for one */
        fprintf(file,
                "\"distributedInfo\": {\"backend\": \"nccl\", \"rank\": %" PRIu32
                ", \"world_size\": %" PRIu32 "}, ",
                trace->job.rank, trace->job.world);
    fputs("\"otherData\": {", file);
    for (uint32_t i = 0; i < trace->info_count; i++) {
        fputs(i ? ", " : "", file);
        put_string(file, trace->infos[i].key);
        fputs(": ", file);
        put_string(file, trace->infos[i].value);
    }
    fputs("}, \"traceEvents\": [\n", file);
}

static void put_processes(FILE *file, const struct trace *trace, bool *first)
{
    for (uint32_t i = 0; i < trace->process_count; i++) {
        if (!trace->processes[i].name)
            continue;
        put_start(file, first, "M", trace->processes[i].pid);
        fputs(",\"tid\":0,\"name\":\"process_name\",\"args\":{\"name\":", file);
        put_string(file, trace->processes[i].name);
        fputs("}}", file);
    }
}

static void put_lanes(FILE *file, const struct trace *trace, bool *first)
{
    for (uint32_t i = 0; i < trace->lane_count; i++) {
        const struct trace_lane *lane = &trace->lanes[i];
        const int64_t pid = trace->processes[lane->process].pid;
        if (lane->name) {
            put_start(file, first, "M", pid);
            fprintf(file,
                    ",\"tid\":%" PRId64 ",\"name\":\"thread_name\",\"args\":{\"name\":", lane->tid);
            put_string(file, lane->name);
            fputs("}}", file);
        }
        if (lane->sort != TRACE_UNSORTED) {
            put_start(file, first, "M", pid);
            fprintf(file,
                    ",\"tid\":%" PRId64 ",\"name\":\"thread_sort_index\","
                    "\"args\":{\"sort_index\":%" PRId32 "}}",
                    lane->tid, lane->sort);
        }
    }
}

static void put_text_arg(FILE *file, const char *key, const char *text)
{
    if (!text || !*text)
        return;
    fprintf(file, ",\"%s\":", key);
    put_string(file, text);
}

/* A kernel's stream, and what ties it to the event that issued it: the same "correlation". */
static void put_links(FILE *file, const struct trace_event *event, const struct trace_lane *lane)
{
    const bool on_device = lane->stream != TRACE_NO_STREAM;
    if (on_device)
        fprintf(file, ",\"stream\":%" PRId32, lane->stream);
    if (on_device && event->id != TRACE_NO_ID)
        fprintf(file, ",\"correlation\":%" PRIu64, (uint64_t)event->id + 1);
    else if (event->issues)
        fprintf(file, ",\"correlation\":%" PRIu32, event->issues);
}

static enum err_code put_event(FILE *file, const struct trace *trace, uint32_t index, bool *first,
                               struct err *err)
{
    const struct trace_event *event = &trace->events[index];
    const struct trace_lane *lane = &trace->lanes[event->lane];
    const bool is_span = event->kind == TRACE_SPAN;
    if (!is_time(event->begin_s) || !is_time(event->end_s) || event->end_s < event->begin_s)
        return err_set(err, ERR_INTERNAL, "event %u (%s): it begins at %g s and ends at %g s",
                       index, event->name, event->begin_s, event->end_s);
    const int64_t begin = to_ns(event->begin_s);
    put_start(file, first, is_span ? "X" : "i", trace->processes[lane->process].pid);
    fprintf(file, ",\"tid\":%" PRId64, lane->tid);
    put_us(file, "ts", begin);
    if (is_span)
        put_us(file, "dur", to_ns(event->end_s) - begin);
    else
        fputs(",\"s\":\"t\"", file);
    fputs(",\"name\":", file);
    put_string(file, event->name);
    if (event->category && *event->category) {
        fputs(",\"cat\":", file);
        put_string(file, event->category);
    }
    fputs(",\"args\":{", file);
    if (event->id != TRACE_NO_ID)
        fprintf(file, "\"id\":%" PRIu32 ",", event->id);
    fprintf(file, "\"bytes\":%" PRIu64, event->bytes);
    put_text_arg(file, "op", event->op);
    put_text_arg(file, "module", event->module);
    if (is_span)
        put_links(file, event, lane);
    fputs("}}", file);
    return ERR_OK;
}

static enum err_code put_sample(FILE *file, const struct trace *trace, uint32_t index, bool *first,
                                struct err *err)
{
    const struct trace_sample *sample = &trace->samples[index];
    const struct trace_track *track = &trace->tracks[sample->track];
    if (!is_time(sample->time_s))
        return err_set(err, ERR_INTERNAL, "counter %s: at %g s", track->name, sample->time_s);
    put_start(file, first, "C", trace->processes[track->process].pid);
    put_us(file, "ts", to_ns(sample->time_s));
    fputs(",\"name\":", file);
    put_string(file, track->name);
    fputs(",\"args\":{", file);
    for (uint32_t i = 0; i < track->series_count; i++) {
        const double value = trace->values[sample->first + i];
        if (!isfinite(value))
            return err_set(err, ERR_INTERNAL, "counter %s: the value %g", track->name, value);
        fputs(i ? "," : "", file);
        put_string(file, track->series[i]);
        putc_unlocked(':', file);
        put_value(file, value);
    }
    fputs("}}", file);
    return ERR_OK;
}

static enum err_code put_trace(FILE *file, const struct trace *trace, struct err *err)
{
    bool first = true;
    put_header(file, trace);
    put_processes(file, trace, &first);
    put_lanes(file, trace, &first);
    for (uint32_t i = 0; i < trace->event_count; i++)
        TRY(put_event(file, trace, i, &first, err));
    for (uint32_t i = 0; i < trace->sample_count; i++)
        TRY(put_sample(file, trace, i, &first, err));
    fputs("\n]}\n", file);
    return ERR_OK;
}

enum err_code trace_write(const struct trace *trace, const char *path, struct err *err)
{
    struct file_writer to;
    TRY(file_create(path, &to, err));
    return file_commit(&to, put_trace(to.file, trace, err), err);
}

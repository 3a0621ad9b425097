/* trace.h - what ran when on which lane, and how much memory was held: one form for predicted and
 * recorded steps, as a file in the Chrome trace event format that Perfetto opens.
 *
 *     process "rank 0 (predicted)"        pid
 *       lane "compute"                    tid     | mm | add |    | mm |
 *       lane "all_gather"                         | all_gather layers.1 |
 *       track "memory requested"          counter  ____----====---___
 *
 * Every event carries the id of its instruction in the plan: comparing is a join on that id. Times
 * are seconds from the start, kept to the nanosecond in the file. Beside these, the file has what
 * tools for PyTorch's profiles look for: "distributedInfo", and of events "stream" and
 * "correlation" (1 + the id, of a kernel and of the host's event that issues it).
 *
 * This folder includes nothing of the others but base/. */
#ifndef SHARDPLAN_TRACE_H
#define SHARDPLAN_TRACE_H

#include "base/arena.h"
#include "base/err.h"

#include <stdint.h>

#define TRACE_NO_ID UINT32_MAX   /* the event is no instruction of a plan */
#define TRACE_UNSORTED INT32_MIN /* the lane has no place of its own in the order */
#define TRACE_NO_STREAM (-1)     /* the lane is none of a device */

/* In the name of an event that lasts no time: its kernel ran as a part of the instruction behind
 * it. */
#define TRACE_FUSED ", fused into "

enum trace_kind { TRACE_SPAN, TRACE_INSTANT };

struct trace_event {
    uint32_t id;   /* of the instruction, or TRACE_NO_ID */
    uint32_t lane; /* index into lanes */
    enum trace_kind kind;
    const char *name, *category;
    double begin_s, end_s; /* equal for TRACE_INSTANT */
    uint64_t bytes;        /* read and written, or sent */
    const char *op;        /* of the plan, "all_gather"; NULL or "": none */
    const char *module;    /* of the model, that it is of; likewise */
    uint32_t issues;       /* 1 + the id that this event of the host issues; 0: none */
};

struct trace_process {
    int64_t pid;
    const char *name; /* NULL: none */
    uint32_t lane_count;
};

struct trace_lane { /* a stream: a thread of the format */
    uint32_t process;
    int32_t sort; /* lanes of a process are shown by this number, or TRACE_UNSORTED */
    int64_t tid;
    int32_t stream;   /* of a device, 0 ..., or TRACE_NO_STREAM */
    const char *name; /* NULL: none */
};

struct trace_track { /* a counter with one or more series */
    uint32_t process;
    uint32_t series_count;
    const char *name;
    const char *const *series;
};

struct trace_sample { /* of one track; a value holds until the track's next sample */
    double time_s;
    uint32_t track;
    uint32_t first; /* its values: series_count of them, from this place in `values` on */
};

struct trace_job {        /* whose trace it is */
    uint32_t rank, world; /* world 0: not known */
};

struct trace_info { /* about the whole trace */
    const char *key, *value;
};

struct trace_names; /* opaque: every string once */

struct trace {
    struct arena arena; /* owns strings */
    struct trace_names *names;
    struct trace_job job;
    struct trace_event *events;
    struct trace_process *processes;
    struct trace_lane *lanes;
    struct trace_track *tracks;
    struct trace_sample *samples;
    struct trace_info *infos;
    double *values;
    uint32_t event_count, process_count, lane_count, track_count, sample_count, info_count;
    uint32_t event_cap, process_cap, lane_cap, track_cap, sample_cap, info_cap;
    uint32_t value_count, value_cap;
};

struct trace *trace_new(void);
void trace_free(struct trace *trace); /* NULL is allowed */

/* Adds; strings are copied, and equal ones share one copy. Each returns an index. */
uint32_t trace_add_process(struct trace *trace, int64_t pid, const char *name);
/* Lanes are shown in the order in which they are added. */
uint32_t trace_add_lane(struct trace *trace, uint32_t process, const char *name);
uint32_t trace_add_track(struct trace *trace, uint32_t process, const char *name,
                         uint32_t series_count, const char *const *series);

void trace_add_event(struct trace *trace, const struct trace_event *event);
/* `values` are as many as the track has series. */
void trace_add_counter(struct trace *trace, uint32_t track, double time_s, const double *values);

/* Sets one piece of information about the trace, such as "clock"; reads it (NULL: not there). */
void trace_set_info(struct trace *trace, const char *key, const char *value);
const char *trace_get_info(const struct trace *trace, const char *key);

/* The trace's own copy of a string: equal strings have equal addresses. */
const char *trace_intern(struct trace *trace, const char *text, size_t length);

/* Writes the trace. The file appears under `path` only when it is complete: on ERR_IO a file
 * already there is kept. ERR_INTERNAL: a time is not a number, or an event ends before it begins.
 */
enum err_code trace_write(const struct trace *trace, const char *path, struct err *err);

/* Reads any Chrome trace: an object with "traceEvents" or a bare list of events, in any order of
 * members. Kept are complete, begin/end and instant events, counters, and the names and order of
 * processes and threads; other phases are passed over. ERR_INVALID names file, line and event. On
 * ERR_OK the caller owns *out: trace_free; else *out is NULL. */
enum err_code trace_read(const char *path, struct trace **out, struct err *err);

#endif

/* snapshot.c - see snapshot.h.
 *
 * A snapshot is one pickled dict:
 *
 *     segments            [{address, total_size, ..., blocks: [{address, size, state, ...}]}]
 *     device_traces       [[{action, addr, size, stream, time_us, frames, ...}]]
 *     allocator_settings  {...}
 *     external_annotations []
 *
 * A pickle is a program for a stack machine. The viewer's machine knows only part of Python's
 * opcodes, so this is protocol 2 with the few below. It also passes the items of one APPENDS as
 * arguments of one call, of which a browser takes only so many: lists go out in batches, as
 * Python writes them.
 *
 * Most of a pickle of dicts would be their keys. Every word is therefore written once and then
 * recalled from the machine's memo in two bytes; so is every list of frames. Recorded are only
 * numbers and pointers; the strings are looked at when the file is written. */
#include "memory/snapshot.h"

#include "base/arena.h"
#include "base/file.h"
#include "base/names.h"
#include "memory/allocator_parts.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct moment { /* lasts from one snapshot_set_frame to the next */
    const char *name, *filename;
    uint64_t time_us;
    int line;
};

struct event {
    uint64_t address, bytes;
    uint32_t moment; /* index + 1 */
    uint8_t action, stream;
};

struct snapshot {
    struct event *events;
    size_t event_count, event_capacity;
    struct moment *moments; /* only those in which something happened */
    size_t moment_count, moment_capacity;
    struct moment now;
    bool now_recorded; /* the last of `moments` is `now` */
};

/* ---- recording ---- */

struct snapshot *snapshot_new(void)
{
    struct snapshot *snapshot = xmalloc(sizeof *snapshot);
    *snapshot = (struct snapshot){0};
    return snapshot;
}

void snapshot_free(struct snapshot *snapshot)
{
    if (!snapshot)
        return;
    free(snapshot->events);
    free(snapshot->moments);
    free(snapshot);
}

void snapshot_set_frame(struct snapshot *snapshot, const char *name, const char *filename, int line,
                        uint64_t time_us)
{
    snapshot->now = (struct moment){name, filename, time_us, line};
    snapshot->now_recorded = false;
}

void snapshot_on_action(void *context, enum allocator_action action, uint64_t address,
                        uint64_t bytes, int stream)
{
    struct snapshot *snapshot = context;
    if (!snapshot->now_recorded) {
        ARRAY_GROW(snapshot->moments, snapshot->moment_count, snapshot->moment_capacity);
        snapshot->moments[snapshot->moment_count++] = snapshot->now;
        snapshot->now_recorded = true;
    }
    ARRAY_GROW(snapshot->events, snapshot->event_count, snapshot->event_capacity);
    snapshot->events[snapshot->event_count++] = (struct event){
        address, bytes, (uint32_t)snapshot->moment_count, (uint8_t)action, (uint8_t)stream};
}

void snapshot_forget(struct snapshot *snapshot, size_t most)
{
    if (snapshot->event_count <= most)
        return;
    const size_t old = snapshot->event_count - most;
    const uint32_t moments =
        most ? snapshot->events[old].moment - 1 : (uint32_t)snapshot->moment_count;
    memmove(snapshot->events, snapshot->events + old, most * sizeof *snapshot->events);
    memmove(snapshot->moments, snapshot->moments + moments,
            (snapshot->moment_count - moments) * sizeof *snapshot->moments);
    snapshot->event_count = most;
    snapshot->moment_count -= moments;
    for (size_t i = 0; i < most; i++)
        snapshot->events[i].moment -= moments;
    snapshot->now_recorded = snapshot->now_recorded && snapshot->moment_count > 0;
}

/* ---- pickle ---- */

#define WORD_MAP(X)                                                                                \
    /* actions, in the order of enum allocator_action */                                           \
    X(ALLOC, "alloc")                                                                              \
    X(FREE_REQUESTED, "free_requested")                                                            \
    X(FREE_COMPLETED, "free_completed")                                                            \
    X(SEGMENT_ALLOC, "segment_alloc")                                                              \
    X(SEGMENT_FREE, "segment_free")                                                                \
    X(SEGMENT_MAP, "segment_map")                                                                  \
    X(SEGMENT_UNMAP, "segment_unmap")                                                              \
    X(OOM, "oom")                                                                                  \
    X(ACTION, "action")                                                                            \
    X(ACTIVE_ALLOCATED, "active_allocated")                                                        \
    X(ACTIVE_PENDING_FREE, "active_pending_free")                                                  \
    X(ACTIVE_SIZE, "active_size")                                                                  \
    X(ADDR, "addr")                                                                                \
    X(ADDRESS, "address")                                                                          \
    X(ALLOCATED_SIZE, "allocated_size")                                                            \
    X(ALLOCATOR_SETTINGS, "allocator_settings")                                                    \
    X(BLOCKS, "blocks")                                                                            \
    X(COMPILE_CONTEXT, "compile_context")                                                          \
    X(DEVICE, "device")                                                                            \
    X(DEVICE_FREE, "device_free")                                                                  \
    X(DEVICE_TRACES, "device_traces")                                                              \
    X(EMPTY, "")                                                                                   \
    X(EXPANDABLE_SEGMENTS, "expandable_segments")                                                  \
    X(EXTERNAL_ANNOTATIONS, "external_annotations")                                                \
    X(FILENAME, "filename")                                                                        \
    X(FRAMES, "frames")                                                                            \
    X(GARBAGE_COLLECTION_THRESHOLD, "garbage_collection_threshold")                                \
    X(GRAPH_CAPTURE_REUSE, "graph_capture_record_stream_reuse")                                    \
    X(INACTIVE, "inactive")                                                                        \
    X(IS_EXPANDABLE, "is_expandable")                                                              \
    X(LARGE, "large")                                                                              \
    X(LINE, "line")                                                                                \
    X(MAX_SPLIT_SIZE, "max_split_size")                                                            \
    X(NAME, "name")                                                                                \
    X(NOT_AVAILABLE, "N/A")                                                                        \
    X(PINNED_REGISTER_THREADS, "pinned_num_register_threads")                                      \
    X(PINNED_USE_REGISTER, "pinned_use_cuda_host_register")                                        \
    X(POOL_ID, "pool_id")                                                                          \
    X(CONF, "PYTORCH_CUDA_ALLOC_CONF")                                                             \
    X(RELEASE_LOCK, "release_lock_on_cudamalloc")                                                  \
    X(REQUESTED_SIZE, "requested_size")                                                            \
    X(ROUNDUP, "roundup_power2_divisions")                                                         \
    X(SEGMENT_POOL_ID, "segment_pool_id")                                                          \
    X(SEGMENT_TYPE, "segment_type")                                                                \
    X(SEGMENTS, "segments")                                                                        \
    X(SIZE, "size")                                                                                \
    X(SMALL, "small")                                                                              \
    X(STATE, "state")                                                                              \
    X(STREAM, "stream")                                                                            \
    X(TIME_US, "time_us")                                                                          \
    X(TOTAL_SIZE, "total_size")                                                                    \
    X(USER_METADATA, "user_metadata")

enum word {
#define X(name, text) WORD_##name,
    WORD_MAP(X)
#undef X
        WORD_COUNT
};

static const char *const word_texts[] = {NAMES_OF(WORD_MAP)};

_Static_assert((int)WORD_OOM == (int)ALLOCATOR_OOM, "actions are the first words");

enum {
    OP_PROTO = 0x80,
    OP_TUPLE2 = 0x86,
    OP_NEWTRUE = 0x88,
    OP_NEWFALSE = 0x89,
    OP_LONG1 = 0x8a,
    OP_MARK = '(',
    OP_STOP = '.',
    OP_BINFLOAT = 'G',
    OP_BININT = 'J',
    OP_BININT1 = 'K',
    OP_BININT2 = 'M',
    OP_BINUNICODE = 'X',
    OP_EMPTY_LIST = ']',
    OP_APPENDS = 'e',
    OP_BINGET = 'h',
    OP_LONG_BINGET = 'j',
    OP_BINPUT = 'q',
    OP_LONG_BINPUT = 'r',
    OP_SETITEMS = 'u',
    OP_EMPTY_DICT = '}',
    BATCH = 1000,
};

enum { MEMO_FRAMES = 256 }; /* memo: words first, whose numbers fit a byte, then frames */
_Static_assert((int)WORD_COUNT <= (int)MEMO_FRAMES, "a word is recalled by one byte");

struct writer {
    FILE *file; /* errors are looked at once, at the end */
    const struct snapshot *snapshot;
    bool written[WORD_COUNT]; /* words in the memo */
    uint32_t *frames;         /* of each moment: the first moment with the same frame */
    bool *frames_written;     /* of each such first moment: in the memo */
};

static void put(struct writer *w, int byte)
{
    putc_unlocked(byte, w->file);
}

static void put_little_endian(struct writer *w, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        put(w, (int)(value >> 8 * i & 0xff));
}

static void put_int(struct writer *w, uint64_t value)
{
    if (value < 1 << 8) {
        put(w, OP_BININT1);
        put_little_endian(w, value, 1);
    } else if (value < 1 << 16) {
        put(w, OP_BININT2);
        put_little_endian(w, value, 2);
    } else if (value < (uint64_t)1 << 31) {
        put(w, OP_BININT);
        put_little_endian(w, value, 4);
    } else {
        put(w, OP_LONG1);
        put(w, 8);
        put_little_endian(w, value, 8);
    }
}

static void put_float(struct writer *w, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    put(w, OP_BINFLOAT);
    for (int shift = 56; shift >= 0; shift -= 8) /* the one big-endian number of a pickle */
        put(w, (int)(bits >> shift & 0xff));
}

static void put_bool(struct writer *w, bool value)
{
    put(w, value ? OP_NEWTRUE : OP_NEWFALSE);
}

static void put_text(struct writer *w, const char *text)
{
    const size_t length = strlen(text);
    put(w, OP_BINUNICODE);
    put_little_endian(w, length, 4);
    fwrite(text, 1, length, w->file);
}

static void put_word(struct writer *w, enum word word)
{
    if (!w->written[word])
        put_text(w, word_texts[word]);
    put(w, w->written[word] ? OP_BINGET : OP_BINPUT);
    put(w, (int)word);
    w->written[word] = true;
}

static void begin_dict(struct writer *w)
{
    put(w, OP_EMPTY_DICT);
    put(w, OP_MARK);
}

static void end_dict(struct writer *w)
{
    put(w, OP_SETITEMS);
}

static void begin_list(struct writer *w)
{
    put(w, OP_EMPTY_LIST);
    put(w, OP_MARK);
}

/* Called before each item of a list: ends a batch now and then. */
static void next_item(struct writer *w, size_t index)
{
    if (index && index % BATCH == 0) {
        put(w, OP_APPENDS);
        put(w, OP_MARK);
    }
}

static void end_list(struct writer *w)
{
    put(w, OP_APPENDS);
}

static void item_int(struct writer *w, enum word key, uint64_t value)
{
    put_word(w, key);
    put_int(w, value);
}

static void item_bool(struct writer *w, enum word key, bool value)
{
    put_word(w, key);
    put_bool(w, value);
}

static void item_word(struct writer *w, enum word key, enum word value)
{
    put_word(w, key);
    put_word(w, value);
}

/* All memory belongs to the default pool. */
static void item_pool_id(struct writer *w, enum word key)
{
    put_word(w, key);
    put_int(w, 0);
    put_int(w, 0);
    put(w, OP_TUPLE2);
}

/* ---- frames ---- */

static size_t moment_hash(const struct moment *moment)
{
    const uint64_t mixed =
        ((uint64_t)(uintptr_t)moment->name * 31 + (uint64_t)(uintptr_t)moment->filename) * 31 +
        (uint64_t)moment->line;
    return (size_t)(mixed * 0x9e3779b97f4a7c15u >> 20);
}

static bool same_frame(const struct moment *a, const struct moment *b)
{
    return a->name == b->name && a->filename == b->filename && a->line == b->line;
}

/* The same instructions run in every step, so a frame occurs in many moments; it is written with
 * the first and recalled for the others. */
static void find_frames(struct writer *w)
{
    const struct snapshot *snapshot = w->snapshot;
    const size_t count = snapshot->moment_count;
    size_t slots = 16;
    while (slots < 2 * count)
        slots *= 2;
    uint32_t *first = xcalloc(slots, sizeof *first); /* index + 1; 0: unused */
    w->frames = xmalloc(count * sizeof *w->frames);
    w->frames_written = xcalloc(count, sizeof *w->frames_written);
    for (size_t i = 0; i < count; i++) {
        const struct moment *moment = &snapshot->moments[i];
        size_t slot = moment_hash(moment) & (slots - 1);
        while (first[slot] && !same_frame(&snapshot->moments[first[slot] - 1], moment))
            slot = (slot + 1) & (slots - 1);
        if (!first[slot])
            first[slot] = (uint32_t)i + 1;
        w->frames[i] = first[slot] - 1;
    }
    free(first);
}

/* A list of one frame; `moment` is an index + 1, 0: unknown. */
static void put_frames(struct writer *w, uint32_t moment)
{
    const struct moment *at = moment ? &w->snapshot->moments[moment - 1] : NULL;
    if (!at || !at->name) {
        put(w, OP_EMPTY_LIST);
        return;
    }
    const uint32_t frame = w->frames[moment - 1];
    const bool recall = w->frames_written[frame];
    if (!recall) {
        begin_list(w);
        begin_dict(w);
        put_word(w, WORD_NAME);
        put_text(w, at->name);
        put_word(w, WORD_FILENAME);
        put_text(w, at->filename ? at->filename : "");
        item_int(w, WORD_LINE, at->line > 0 ? (uint64_t)at->line : 0);
        end_dict(w);
        end_list(w);
    }
    w->frames_written[frame] = true;
    put(w, recall ? OP_LONG_BINGET : OP_LONG_BINPUT);
    put_little_endian(w, MEMO_FRAMES + frame, 4);
}

static void item_frames(struct writer *w, uint32_t moment)
{
    put_word(w, WORD_FRAMES);
    put_frames(w, moment);
}

/* ---- segments and blocks ---- */

struct span {
    struct allocator_span is;
    uint32_t allocated_at, segment_at; /* moments of the last alloc here; 0: unknown */
};

struct span_list {
    struct span *spans; /* by address */
    size_t count, capacity;
};

static void add_span(void *context, const struct allocator_span *span)
{
    struct span_list *list = context;
    ARRAY_GROW(list->spans, list->count, list->capacity);
    list->spans[list->count++] = (struct span){.is = *span};
}

static int compare_address(const void *key, const void *element)
{
    const uint64_t address = *(const uint64_t *)key;
    const struct span *span = element;
    return (address > span->is.address) - (address < span->is.address);
}

/* Finds out from the events when each block and segment came to be. */
static void find_origins(const struct snapshot *snapshot, struct span_list *list)
{
    for (size_t i = 0; list->count && i < snapshot->event_count; i++) {
        const struct event *event = &snapshot->events[i];
        if (event->action != ALLOCATOR_ALLOC && event->action != ALLOCATOR_SEGMENT_ALLOC &&
            event->action != ALLOCATOR_SEGMENT_MAP)
            continue;
        struct span *span =
            bsearch(&event->address, list->spans, list->count, sizeof *span, compare_address);
        if (!span)
            continue;
        if (event->action != ALLOCATOR_ALLOC)
            span->segment_at = event->moment;
        else if (span->is.allocated)
            span->allocated_at = event->moment;
    }
}

static enum word state_of(const struct allocator_span *span)
{
    if (span->pending)
        return WORD_ACTIVE_PENDING_FREE;
    return span->allocated ? WORD_ACTIVE_ALLOCATED : WORD_INACTIVE;
}

static void put_block(struct writer *w, const struct span *span)
{
    begin_dict(w);
    item_int(w, WORD_ADDRESS, span->is.address);
    item_int(w, WORD_SIZE, span->is.bytes);
    item_int(w, WORD_REQUESTED_SIZE, span->is.requested_bytes);
    item_word(w, WORD_STATE, state_of(&span->is));
    item_frames(w, span->allocated_at);
    end_dict(w);
}

/* Writes the segment that begins with `spans`; returns how many of them are its blocks. */
static size_t put_segment(struct writer *w, const struct span *spans, size_t left)
{
    const struct allocator_span *first = &spans->is;
    uint64_t active = 0, pending = 0, requested = 0;
    size_t count = 0;
    for (; count < left && spans[count].is.segment_address == first->segment_address; count++) {
        active += spans[count].is.allocated ? spans[count].is.bytes : 0;
        pending += spans[count].is.pending ? spans[count].is.bytes : 0;
        requested += spans[count].is.requested_bytes;
    }
    begin_dict(w);
    item_int(w, WORD_DEVICE, 0);
    item_int(w, WORD_ADDRESS, first->segment_address);
    item_int(w, WORD_TOTAL_SIZE, first->segment_bytes);
    item_int(w, WORD_ALLOCATED_SIZE, active - pending);
    item_int(w, WORD_ACTIVE_SIZE, active);
    item_int(w, WORD_REQUESTED_SIZE, requested);
    item_int(w, WORD_STREAM, (uint64_t)first->stream);
    item_word(w, WORD_SEGMENT_TYPE, first->small_pool ? WORD_SMALL : WORD_LARGE);
    item_pool_id(w, WORD_SEGMENT_POOL_ID);
    item_bool(w, WORD_IS_EXPANDABLE, first->expandable);
    item_frames(w, spans->segment_at);
    put_word(w, WORD_BLOCKS);
    begin_list(w);
    for (size_t i = 0; i < count; i++) {
        next_item(w, i);
        put_block(w, &spans[i]);
    }
    end_list(w);
    end_dict(w);
    return count;
}

static void put_segments(struct writer *w, const struct allocator *allocator)
{
    struct span_list list = {0};
    allocator_visit(allocator, add_span, &list);
    find_origins(w->snapshot, &list);
    begin_list(w);
    for (size_t i = 0, index = 0; i < list.count; index++) {
        next_item(w, index);
        i += put_segment(w, &list.spans[i], list.count - i);
    }
    end_list(w);
    free(list.spans);
}

/* ---- the rest of the file ---- */

static void put_event(struct writer *w, const struct event *event)
{
    const struct moment *moment = &w->snapshot->moments[event->moment - 1];
    begin_dict(w);
    item_word(w, WORD_ACTION, (enum word)event->action);
    item_int(w, event->action == ALLOCATOR_OOM ? WORD_DEVICE_FREE : WORD_ADDR, event->address);
    item_int(w, WORD_SIZE, event->bytes);
    item_int(w, WORD_STREAM, event->stream);
    item_int(w, WORD_TIME_US, moment->time_us);
    if (moment->name)
        item_frames(w, event->moment);
    item_word(w, WORD_COMPILE_CONTEXT, WORD_NOT_AVAILABLE);
    item_word(w, WORD_USER_METADATA, WORD_EMPTY);
    item_pool_id(w, WORD_POOL_ID);
    end_dict(w);
}

static void put_traces(struct writer *w)
{
    begin_list(w); /* one device */
    begin_list(w);
    for (size_t i = 0; i < w->snapshot->event_count; i++) {
        next_item(w, i);
        put_event(w, &w->snapshot->events[i]);
    }
    end_list(w);
    end_list(w);
}

static void put_settings(struct writer *w, const struct allocator_settings *settings)
{
    begin_dict(w);
    item_word(w, WORD_CONF, WORD_EMPTY);
    put_word(w, WORD_MAX_SPLIT_SIZE);
    if (settings->max_split_bytes) {
        put_int(w, settings->max_split_bytes);
    } else { /* unlimited is the largest size_t there, which comes out as -1 */
        put(w, OP_BININT);
        put_little_endian(w, UINT32_MAX, 4);
    }
    put_word(w, WORD_GARBAGE_COLLECTION_THRESHOLD);
    put_float(w, settings->garbage_collection_threshold);
    item_bool(w, WORD_EXPANDABLE_SEGMENTS, settings->expandable_segments);
    item_int(w, WORD_PINNED_REGISTER_THREADS, 1);
    item_bool(w, WORD_RELEASE_LOCK, false);
    item_bool(w, WORD_PINNED_USE_REGISTER, false);
    item_bool(w, WORD_GRAPH_CAPTURE_REUSE, false);
    put_word(w, WORD_ROUNDUP);
    begin_dict(w);
    for (int i = 0; i < 16; i++) {
        char mib[16];
        snprintf(mib, sizeof mib, "%d", 1 << i);
        put_text(w, mib);
        put_int(w, settings->roundup_power2_divisions[i]);
    }
    end_dict(w);
    end_dict(w);
}

static void put_snapshot(struct writer *w, const struct allocator *allocator)
{
    put(w, OP_PROTO);
    put(w, 2);
    begin_dict(w);
    put_word(w, WORD_SEGMENTS);
    put_segments(w, allocator);
    put_word(w, WORD_DEVICE_TRACES);
    put_traces(w);
    put_word(w, WORD_ALLOCATOR_SETTINGS);
    put_settings(w, &allocator->settings);
    put_word(w, WORD_EXTERNAL_ANNOTATIONS);
    put(w, OP_EMPTY_LIST);
    end_dict(w);
    put(w, OP_STOP);
}

enum err_code snapshot_write(const struct snapshot *snapshot, const struct allocator *allocator,
                             const char *path, struct err *err)
{
    struct file_writer to;
    TRY(file_create(path, &to, err));
    struct writer w = {.file = to.file, .snapshot = snapshot};
    find_frames(&w);
    put_snapshot(&w, allocator);
    free(w.frames);
    free(w.frames_written);
    return file_commit(&to, ERR_OK, err);
}

/* test_snapshot.c - memory snapshots, read back by a decoder that knows what the viewer knows.
 *
 * The decoder below takes exactly the opcodes of PyTorch's memory viewer, and rewind_trace() goes
 * through the trace as the viewer does: backwards, from the segments at the end to nothing. */
#include "base/arena.h"
#include "memory/allocator.h"
#include "memory/snapshot.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB ((uint64_t)1048576)

/* ---- a decoder of pickles ---- */

enum kind { INTEGER, REAL, BOOLEAN, TEXT, LIST, TUPLE, DICT };

struct value {
    enum kind kind;
    int64_t integer; /* and booleans */
    double real;
    const char *text;
    struct value **items; /* of a dict: key, value, key, value, ... */
    size_t count, capacity;
};

struct decoder {
    struct arena arena;
    const unsigned char *at, *end;
    struct value *stack[64 + 2048], *memo[65536];
    size_t depth, marks[64], mark_count;
};

static struct value *new_value(struct decoder *d, enum kind kind)
{
    struct value *value = arena_alloc(&d->arena, sizeof *value);
    value->kind = kind;
    return value;
}

static void push(struct decoder *d, struct value *value)
{
    assert_true(d->depth < sizeof d->stack / sizeof d->stack[0]);
    d->stack[d->depth++] = value;
}

static uint64_t read_bytes(struct decoder *d, size_t bytes)
{
    uint64_t number = 0;
    assert_true(d->at + bytes <= d->end);
    for (size_t i = 0; i < bytes; i++)
        number |= (uint64_t)*d->at++ << 8 * i;
    return number;
}

static void push_integer(struct decoder *d, enum kind kind, int64_t integer)
{
    struct value *value = new_value(d, kind);
    value->integer = integer;
    push(d, value);
}

static void push_text(struct decoder *d, size_t length)
{
    struct value *value = new_value(d, TEXT);
    char *text = arena_alloc(&d->arena, length + 1);
    assert_true(d->at + length <= d->end);
    memcpy(text, d->at, length);
    d->at += length;
    value->text = text;
    push(d, value);
}

static void push_real(struct decoder *d)
{
    struct value *value = new_value(d, REAL);
    uint64_t bits = 0;
    for (int i = 0; i < 8; i++)
        bits = bits << 8 | read_bytes(d, 1);
    memcpy(&value->real, &bits, sizeof bits);
    push(d, value);
}

/* Moves what is above the last mark into the list or dict below it. */
static void pop_items(struct decoder *d, enum kind kind)
{
    const size_t mark = d->marks[--d->mark_count], added = d->depth - mark;
    struct value *into = d->stack[mark - 1];
    assert_int_equal(into->kind, kind);
    assert_true(added <= 1000); /* the viewer passes them as arguments of one call */
    for (size_t i = 0; i < added; i++) {
        if (into->count == into->capacity) { /* memory of the arena is not given back */
            struct value **old = into->items;
            into->capacity = into->capacity ? 2 * into->capacity : 8;
            into->items = arena_alloc(&d->arena, into->capacity * sizeof(struct value *));
            if (into->count)
                memcpy(into->items, old, into->count * sizeof(struct value *));
        }
        into->items[into->count++] = d->stack[mark + i];
    }
    d->depth = mark;
}

static void push_pair(struct decoder *d)
{
    struct value *pair = new_value(d, TUPLE);
    pair->items = arena_alloc(&d->arena, 2 * sizeof(struct value *));
    pair->count = 2;
    d->depth -= 2;
    memcpy(pair->items, d->stack + d->depth, 2 * sizeof(struct value *));
    push(d, pair);
}

/* False at the end. */
static bool step(struct decoder *d)
{
    const unsigned opcode = (unsigned)read_bytes(d, 1);
    switch (opcode) {
    case 0x80: /* PROTO */
        assert_in_range(read_bytes(d, 1), 2, 4);
        break;
    case '(': /* MARK */
        d->marks[d->mark_count++] = d->depth;
        break;
    case '}': /* EMPTY_DICT */
        push(d, new_value(d, DICT));
        break;
    case ']': /* EMPTY_LIST */
        push(d, new_value(d, LIST));
        break;
    case 'e': /* APPENDS */
        pop_items(d, LIST);
        break;
    case 'u': /* SETITEMS */
        pop_items(d, DICT);
        break;
    case 'X': /* BINUNICODE */
        push_text(d, read_bytes(d, 4));
        break;
    case 'J': /* BININT */
        push_integer(d, INTEGER, (int32_t)(uint32_t)read_bytes(d, 4));
        break;
    case 'K': /* BININT1 */
        push_integer(d, INTEGER, (int64_t)read_bytes(d, 1));
        break;
    case 'M': /* BININT2 */
        push_integer(d, INTEGER, (int64_t)read_bytes(d, 2));
        break;
    case 0x8a: /* LONG1 */
        assert_int_equal(read_bytes(d, 1), 8);
        push_integer(d, INTEGER, (int64_t)read_bytes(d, 8));
        break;
    case 'G': /* BINFLOAT */
        push_real(d);
        break;
    case 0x88: /* NEWTRUE */
    case 0x89: /* NEWFALSE */
        push_integer(d, BOOLEAN, opcode == 0x88);
        break;
    case 0x86: /* TUPLE2 */
        push_pair(d);
        break;
    case 'q': /* BINPUT */
    case 'r': /* LONG_BINPUT */
        d->memo[read_bytes(d, opcode == 'q' ? 1 : 4)] = d->stack[d->depth - 1];
        break;
    case 'h': /* BINGET */
    case 'j': /* LONG_BINGET */
        push(d, d->memo[read_bytes(d, opcode == 'h' ? 1 : 4)]);
        assert_non_null(d->stack[d->depth - 1]);
        break;
    case '.': /* STOP */
        return false;
    default:
        fail_msg("opcode 0x%02x is none of the viewer's", opcode);
    }
    return true;
}

static const struct value *get(const struct value *dict, const char *key)
{
    assert_int_equal(dict->kind, DICT);
    for (size_t i = 0; i < dict->count; i += 2)
        if (strcmp(dict->items[i]->text, key) == 0)
            return dict->items[i + 1];
    fail_msg("no key %s", key);
    return NULL;
}

static bool has(const struct value *dict, const char *key)
{
    for (size_t i = 0; i < dict->count; i += 2)
        if (strcmp(dict->items[i]->text, key) == 0)
            return true;
    return false;
}

static uint64_t number(const struct value *dict, const char *key)
{
    const struct value *value = get(dict, key);
    assert_int_equal(value->kind, INTEGER);
    return (uint64_t)value->integer;
}

static const char *text(const struct value *dict, const char *key)
{
    assert_int_equal(get(dict, key)->kind, TEXT);
    return get(dict, key)->text;
}

static const struct value *list(const struct value *dict, const char *key)
{
    assert_int_equal(get(dict, key)->kind, LIST);
    return get(dict, key);
}

static const struct value *trace_of(const struct value *root)
{
    assert_int_equal(list(root, "device_traces")->count, 1);
    return list(root, "device_traces")->items[0];
}

/* ---- a recorded allocator, its file and what the file says ---- */

struct fixture {
    char folder[64], path[96];
    struct snapshot *snapshot;
    struct allocator *allocator;
    struct decoder decoder;
};

static struct fixture *setup(struct allocator_settings settings)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    strcpy(f->folder, P_tmpdir "/snapshotXXXXXX");
    assert_non_null(mkdtemp(f->folder));
    snprintf(f->path, sizeof f->path, "%s/rank0.pickle", f->folder);
    f->snapshot = snapshot_new();
    settings.on_action = snapshot_on_action;
    settings.action_context = f->snapshot;
    f->allocator = allocator_new(&settings);
    return f;
}

static void teardown(struct fixture *f)
{
    allocator_free(f->allocator);
    snapshot_free(f->snapshot);
    arena_free(&f->decoder.arena);
    remove(f->path);
    assert_int_equal(rmdir(f->folder), 0); /* nothing else was left in it */
    free(f);
}

static const struct value *write_and_decode(struct fixture *f)
{
    struct decoder *d = &f->decoder;
    struct err err = {0};
    assert_int_equal(snapshot_write(f->snapshot, f->allocator, f->path, &err), ERR_OK);
    FILE *file = fopen(f->path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    const size_t bytes = (size_t)ftell(file);
    unsigned char *content = arena_alloc(&d->arena, bytes);
    rewind(file);
    assert_int_equal(fread(content, 1, bytes, file), bytes);
    fclose(file);
    d->at = content;
    d->end = content + bytes;
    while (step(d))
        ;
    assert_ptr_equal(d->at, d->end);
    assert_int_equal(d->depth, 1);
    assert_int_equal(d->mark_count, 0);
    return d->stack[0];
}

static struct allocator_block *alloc(struct fixture *f, uint64_t bytes, int stream)
{
    struct allocator_block *block = NULL;
    assert_int_equal(allocator_alloc(f->allocator, bytes, stream, &block, NULL), ERR_OK);
    return block;
}

/* Frees that wait for another stream: completed one after the other, when the next ones come. */
enum { WAITING = 8 };

struct waiting {
    struct allocator_block *blocks[WAITING];
    size_t count;
};

static void free_later(struct fixture *f, struct waiting *waiting, struct allocator_block *block)
{
    struct allocator_block **oldest = &waiting->blocks[waiting->count++ % WAITING];
    if (*oldest)
        allocator_complete_free(f->allocator, *oldest);
    allocator_request_free(f->allocator, block);
    *oldest = block;
}

/* Allocates and frees for a while, frees most of it at times, and keeps some to the end; some frees
 * are not complete then. */
static void run_program(struct fixture *f)
{
    struct waiting waiting = {{0}, 0};
    static const char *const names[] = {"embed", "layers.0.attn", "layers.0.mlp", "loss"};
    enum { COUNT = 64 };
    struct allocator_block *blocks[COUNT] = {0};
    uint32_t random = 12345;
    for (int i = 0; i < 3000; i++) {
        random = random * 1664525 + 1013904223;
        const uint32_t pick = random >> 8;
        const size_t at = pick % COUNT;
        snapshot_set_frame(f->snapshot, names[i % 4], "plan.json", i % 4 + 1,
                           1700000000000000u + (uint64_t)i);
        if (blocks[at]) {
            if (i % 5 == 0)
                free_later(f, &waiting, blocks[at]);
            else
                allocator_free_block(f->allocator, blocks[at]);
            blocks[at] = NULL;
        } else {
            const uint64_t bytes = pick % 3 ? 1 + pick % 100000 : 1 + pick % (30 * (uint32_t)MIB);
            (void)allocator_alloc(f->allocator, bytes, (int)(at % 2), &blocks[at], NULL);
        }
        for (size_t j = 0; i % 700 == 699 && j < COUNT - 8; j++) {
            if (blocks[j])
                allocator_free_block(f->allocator, blocks[j]);
            blocks[j] = NULL;
        }
        if (i % 700 == 699)
            allocator_empty_cache(f->allocator);
    }
    assert_true(allocator_stats(f->allocator)->allocated_bytes > 0 && waiting.count > WAITING);
}

/* ---- the end agrees with the allocator ---- */

struct walk {
    const struct value *segments;
    size_t segment, block;
    uint64_t pending_bytes;
};

static void expect_span(void *context, const struct allocator_span *span)
{
    struct walk *walk = context;
    const struct value *segment = walk->segments->items[walk->segment];
    if (walk->block == list(segment, "blocks")->count) {
        segment = walk->segments->items[++walk->segment];
        walk->block = 0;
    }
    const struct value *block = list(segment, "blocks")->items[walk->block++];
    assert_int_equal(number(segment, "device"), 0);
    assert_int_equal(number(segment, "address"), span->segment_address);
    assert_int_equal(number(segment, "total_size"), span->segment_bytes);
    assert_int_equal(number(segment, "stream"), span->stream);
    assert_string_equal(text(segment, "segment_type"), span->small_pool ? "small" : "large");
    assert_int_equal(get(segment, "is_expandable")->integer, span->expandable);
    assert_int_equal(get(segment, "segment_pool_id")->kind, TUPLE);
    assert_int_equal(number(block, "address"), span->address);
    assert_int_equal(number(block, "size"), span->bytes);
    assert_int_equal(number(block, "requested_size"), span->requested_bytes);
    /* torch/csrc/cuda/Module.cpp has these words */
    assert_string_equal(text(block, "state"), span->pending     ? "active_pending_free"
                                              : span->allocated ? "active_allocated"
                                                                : "inactive");
    walk->pending_bytes += span->pending ? span->bytes : 0;
}

static void expect_sums(const struct value *segments, const struct allocator_stats *stats,
                        uint64_t pending_bytes)
{
    uint64_t total = 0, allocated = 0, active = 0, requested = 0;
    for (size_t i = 0; i < segments->count; i++) {
        total += number(segments->items[i], "total_size");
        allocated += number(segments->items[i], "allocated_size");
        active += number(segments->items[i], "active_size");
        requested += number(segments->items[i], "requested_size");
    }
    assert_int_equal(total, stats->reserved_bytes);
    assert_int_equal(allocated, stats->allocated_bytes);
    assert_int_equal(active, stats->allocated_bytes + pending_bytes);
    assert_int_equal(requested, stats->requested_bytes);
}

/* ---- the viewer's way back ---- */

struct piece { /* a segment or a block */
    uint64_t address, bytes;
    const struct value *frames;
};

struct scene {
    struct piece segments[1024], blocks[1024];
    size_t segment_count, block_count;
};

static struct piece *find_piece(struct piece *pieces, size_t count, uint64_t address)
{
    for (size_t i = 0; i < count; i++)
        if (pieces[i].address <= address && address < pieces[i].address + pieces[i].bytes)
            return &pieces[i];
    return NULL;
}

static void read_scene(struct scene *scene, const struct value *segments)
{
    for (size_t i = 0; i < segments->count; i++) {
        const struct value *segment = segments->items[i], *blocks = list(segment, "blocks");
        scene->segments[scene->segment_count++] = (struct piece){
            number(segment, "address"), number(segment, "total_size"), list(segment, "frames")};
        for (size_t j = 0; j < blocks->count; j++) {
            const struct value *block = blocks->items[j];
            if (strcmp(text(block, "state"), "inactive") != 0)
                scene->blocks[scene->block_count++] =
                    (struct piece){number(block, "address"), number(block, "requested_size"),
                                   list(block, "frames")};
        }
    }
}

/* Takes bytes out of the segments; a segment of pages may lose them at any place. */
static void cut_segment(struct scene *scene, uint64_t address, uint64_t bytes, bool pages)
{
    struct piece *segment = find_piece(scene->segments, scene->segment_count, address);
    assert_non_null(segment);
    const struct piece whole = *segment;
    const uint64_t end = whole.address + whole.bytes;
    assert_true(address + bytes <= end);
    assert_true(pages || (address == whole.address && bytes == whole.bytes));
    for (size_t i = 0; i < scene->block_count; i++) /* no block may lose its memory */
        assert_true(scene->blocks[i].address + scene->blocks[i].bytes <= address ||
                    scene->blocks[i].address >= address + bytes);
    *segment = scene->segments[--scene->segment_count];
    if (address > whole.address)
        scene->segments[scene->segment_count++] =
            (struct piece){whole.address, address - whole.address, NULL};
    if (end > address + bytes)
        scene->segments[scene->segment_count++] =
            (struct piece){address + bytes, end - address - bytes, NULL};
}

static void add_segment(struct scene *scene, uint64_t address, uint64_t bytes, bool pages)
{
    assert_null(find_piece(scene->segments, scene->segment_count, address));
    for (size_t i = 0; pages && i < scene->segment_count;) {
        const struct piece other = scene->segments[i];
        if (other.address + other.bytes != address && other.address != address + bytes) {
            i++;
            continue;
        }
        address = other.address < address ? other.address : address;
        bytes += other.bytes;
        scene->segments[i] = scene->segments[--scene->segment_count];
        i = 0;
    }
    scene->segments[scene->segment_count++] = (struct piece){address, bytes, NULL};
}

static void undo(struct scene *scene, const struct value *event)
{
    const char *action = text(event, "action");
    if (strcmp(action, "oom") == 0) {
        assert_true(has(event, "device_free") && !has(event, "addr"));
        return;
    }
    const uint64_t address = number(event, "addr"), bytes = number(event, "size");
    const bool pages = strcmp(action, "segment_map") == 0 || strcmp(action, "segment_unmap") == 0;
    struct piece *block = find_piece(scene->blocks, scene->block_count, address);
    if (strcmp(action, "alloc") == 0) {
        assert_non_null(block);
        assert_int_equal(block->address, address);
        assert_int_equal(block->bytes, bytes);
        if (block->frames) /* was there at the end: the frame of its last alloc */
            assert_ptr_equal(block->frames, list(event, "frames"));
        *block = scene->blocks[--scene->block_count];
    } else if (strcmp(action, "free_completed") == 0) {
        assert_null(block);
        assert_non_null(find_piece(scene->segments, scene->segment_count, address + bytes - 1));
        scene->blocks[scene->block_count++] = (struct piece){address, bytes, NULL};
    } else if (strcmp(action, "free_requested") == 0) {
        assert_non_null(block);
        assert_int_equal(block->bytes, bytes);
    } else if (strcmp(action, "segment_alloc") == 0 || strcmp(action, "segment_map") == 0) {
        cut_segment(scene, address, bytes, pages);
    } else {
        assert_true(strcmp(action, "segment_free") == 0 || strcmp(action, "segment_unmap") == 0);
        add_segment(scene, address, bytes, pages);
    }
    assert_true(scene->block_count < 1024 && scene->segment_count < 1024);
}

/* Goes back from the end; returns how many events were of `action`. */
static size_t rewind_trace(const struct value *root, const char *action)
{
    static struct scene scene;
    scene.segment_count = scene.block_count = 0;
    read_scene(&scene, list(root, "segments"));
    const struct value *trace = trace_of(root);
    size_t seen = 0;
    for (size_t i = trace->count; i-- > 0;) {
        undo(&scene, trace->items[i]);
        seen += strcmp(text(trace->items[i], "action"), action) == 0;
    }
    assert_int_equal(scene.block_count, 0);
    assert_int_equal(scene.segment_count, 0);
    return seen;
}

/* ---- tests ---- */

static void segments_and_blocks_are_those_of_the_allocator(void **state)
{
    (void)state;
    for (int expandable = 0; expandable < 2; expandable++) {
        struct fixture *f = setup((struct allocator_settings){.expandable_segments = expandable});
        run_program(f);
        const struct value *root = write_and_decode(f);
        struct walk walk = {.segments = list(root, "segments")};
        allocator_visit(f->allocator, expect_span, &walk);
        assert_int_equal(walk.segment + 1, walk.segments->count);
        expect_sums(walk.segments, allocator_stats(f->allocator), walk.pending_bytes);
        assert_true(walk.pending_bytes > 0);
        teardown(f);
    }
}

static void the_trace_leads_back_to_an_empty_start(void **state)
{
    (void)state;
    struct fixture *f = setup((struct allocator_settings){.capacity_bytes = 150 * MIB});
    run_program(f);
    const struct value *root = write_and_decode(f);
    assert_true(rewind_trace(root, "segment_free") > 10);
    assert_int_equal(rewind_trace(root, "oom"), allocator_stats(f->allocator)->ooms);
    assert_true(allocator_stats(f->allocator)->ooms > 0);
    teardown(f);
}

static void the_trace_of_expandable_segments_leads_back_to_an_empty_start(void **state)
{
    (void)state;
    struct fixture *f = setup((struct allocator_settings){.expandable_segments = true});
    run_program(f);
    assert_true(rewind_trace(write_and_decode(f), "segment_unmap") > 5);
    teardown(f);
}

static void an_event_says_what_happened_where_when_and_for_whom(void **state)
{
    (void)state;
    struct fixture *f = setup((struct allocator_settings){0});
    snapshot_set_frame(f->snapshot, "layers.3.mlp.w1", "plan.json", 412, 1700000000000123u);
    struct allocator_block *block = alloc(f, 1000, 2);
    snapshot_set_frame(f->snapshot, NULL, NULL, 0, 7);
    allocator_free_block(f->allocator, block);

    const struct value *trace = trace_of(write_and_decode(f));
    assert_int_equal(trace->count, 4);
    const struct value *event = trace->items[1];
    assert_string_equal(text(trace->items[0], "action"), "segment_alloc");
    assert_int_equal(number(trace->items[0], "size"), 2 * MIB);
    assert_string_equal(text(event, "action"), "alloc");
    assert_int_equal(number(event, "addr"), allocator_block_address(block));
    assert_int_equal(number(event, "size"), 1000); /* as requested, not as rounded */
    assert_int_equal(number(event, "stream"), 2);
    assert_int_equal(number(event, "time_us"), 1700000000000123u);
    assert_int_equal(list(event, "frames")->count, 1);
    const struct value *frame = list(event, "frames")->items[0];
    assert_string_equal(text(frame, "name"), "layers.3.mlp.w1");
    assert_string_equal(text(frame, "filename"), "plan.json");
    assert_int_equal(number(frame, "line"), 412);
    assert_ptr_equal(list(trace->items[0], "frames"), list(event, "frames")); /* written once */
    assert_string_equal(text(trace->items[2], "action"), "free_requested");
    assert_string_equal(text(trace->items[3], "action"), "free_completed");
    assert_int_equal(number(trace->items[3], "time_us"), 7);
    assert_false(has(trace->items[3], "frames"));
    teardown(f);
}

static void settings_are_written_along(void **state)
{
    (void)state;
    struct fixture *f = setup((struct allocator_settings){.max_split_bytes = 64 * MIB,
                                                          .capacity_bytes = 100 * MIB,
                                                          .garbage_collection_threshold = 0.625,
                                                          .roundup_power2_divisions = {[3] = 4}});
    const struct value *root = write_and_decode(f);
    const struct value *settings = get(root, "allocator_settings");
    assert_int_equal(number(settings, "max_split_size"), 64 * MIB);
    assert_true(get(settings, "garbage_collection_threshold")->real >= 0.625);
    assert_true(get(settings, "garbage_collection_threshold")->real <= 0.625);
    assert_int_equal(get(settings, "expandable_segments")->kind, BOOLEAN);
    assert_int_equal(number(get(settings, "roundup_power2_divisions"), "8"), 4);
    assert_int_equal(list(root, "segments")->count, 0); /* nothing was allocated yet */
    assert_int_equal(trace_of(root)->count, 0);
    assert_int_equal(list(root, "external_annotations")->count, 0);
    teardown(f);
}

static void a_failed_write_leaves_nothing_behind(void **state)
{
    (void)state;
    struct fixture *f = setup((struct allocator_settings){0});
    struct err err = {0};
    char path[128];
    run_program(f);
    snprintf(path, sizeof path, "%s/none/rank0.pickle", f->folder);
    assert_int_equal(snapshot_write(f->snapshot, f->allocator, path, &err), ERR_IO);
    assert_non_null(strstr(err.text, path));
    assert_int_equal(snapshot_write(f->snapshot, f->allocator, f->folder, NULL), ERR_IO);

    DIR *parent = opendir(P_tmpdir);
    const char *own_name = strrchr(f->folder, '/') + 1;
    assert_non_null(parent);
    for (const struct dirent *entry = readdir(parent); entry; entry = readdir(parent))
        if (strncmp(entry->d_name, own_name, strlen(own_name)) == 0)
            assert_string_equal(entry->d_name, own_name); /* and no "....tmp" beside it */
    closedir(parent);
    teardown(f);
}

/* What is forgotten is the oldest: the rest is as it was, frames too; blocks that are older have
 * none. */
static void a_record_may_forget_its_beginning(void **state)
{
    (void)state;
    enum { KEPT = 2 };
    struct fixture *f = setup((struct allocator_settings){0});
    struct allocator_block *blocks[3];
    static const char *const names[] = {"first", "second", "third"};
    for (int i = 0; i < 3; i++) {
        snapshot_set_frame(f->snapshot, names[i], "plan.json", i, (uint64_t)i);
        blocks[i] = alloc(f, 3 * MIB, 0);
    }
    allocator_free_block(f->allocator,
                         blocks[1]); /* requested and completed, by the third's frame */
    snapshot_forget(f->snapshot, 1000);
    snapshot_forget(f->snapshot, KEPT);
    snapshot_set_frame(f->snapshot, "fourth", "plan.json", 4, 4);
    blocks[1] = alloc(f, 3 * MIB, 0);
    const struct value *root = write_and_decode(f), *trace = trace_of(root);
    assert_int_equal(trace->count, KEPT + 1);
    static const struct {
        const char *action, *name;
    } kept[] = {{"free_requested", "third"}, {"free_completed", "third"}, {"alloc", "fourth"}};
    for (size_t i = 0; i < KEPT + 1; i++) {
        const struct value *event = trace->items[i];
        assert_string_equal(text(event, "action"), kept[i].action);
        assert_string_equal(text(list(event, "frames")->items[0], "name"), kept[i].name);
    }
    for (int i = 0; i < 3; i++)
        allocator_free_block(f->allocator, blocks[i]);
    teardown(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_record_may_forget_its_beginning),
        cmocka_unit_test(segments_and_blocks_are_those_of_the_allocator),
        cmocka_unit_test(the_trace_leads_back_to_an_empty_start),
        cmocka_unit_test(the_trace_of_expandable_segments_leads_back_to_an_empty_start),
        cmocka_unit_test(an_event_says_what_happened_where_when_and_for_whom),
        cmocka_unit_test(settings_are_written_along),
        cmocka_unit_test(a_failed_write_leaves_nothing_behind),
    };
    return cmocka_run_group_tests_name("snapshot", tests, NULL, NULL);
}

/* gpu_truth.c - see gpu_truth.h. */
#include "tests/support/gpu_truth.h"

#include "memory/allocator.h"
#include "recorded/recording.h"
#include "tests/support/small_device.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include <cmocka.h>

#define MIB ((uint64_t)1048576)
#define FOLDER "tests/data/gpu/allocator/"

const char *const gpu_recordings[] = {"cr",
                                      "wl_medium_128_training",
                                      "wl_medium_256_training",
                                      "wl_medium_1024_training",
                                      "wl_medium_512_inference",
                                      NULL};

/* ---- the allocator ---- */

enum { LIVE_MAX = 8192 };

struct live {
    uint64_t address;
    struct allocator_block *block;
    uint64_t bytes;
    bool free; /* at the beginning: as soon as all blocks are in their places */
};

struct replay {
    struct allocator *allocator;
    struct live live[LIVE_MAX];
    size_t count;
    uint64_t segment_address, segment_bytes; /* the next one PyTorch got; 0 bytes: none */
    bool small;                              /* the segment that begins is of the small pool */
    uint64_t allocated;                      /* bytes as requested */
    uint32_t line;
    struct gpu_replay *out;
};

static bool differs(const struct replay *r)
{
    return r->out->differs[0] != '\0';
}

/* allocator_settings.segment_new: the recorded segment, if it has the size asked for. */
static uint64_t recorded_segment(void *context, uint64_t bytes)
{
    struct replay *r = context;
    if (bytes != r->segment_bytes && !differs(r))
        snprintf(r->out->differs, sizeof r->out->differs,
                 "line %u: a segment of %" PRIu64 " bytes, PyTorch had %" PRIu64, r->line, bytes,
                 r->segment_bytes);
    r->segment_bytes = 0;
    r->out->segments++;
    r->out->reserved += bytes;
    return r->segment_address;
}

static struct allocator_block *alloc_at(struct replay *r, uint64_t address, uint64_t bytes)
{
    struct allocator_block *block;
    assert_int_equal(allocator_alloc(r->allocator, bytes, 0, &block, NULL), ERR_OK);
    if (allocator_block_address(block) != address && !differs(r))
        snprintf(r->out->differs, sizeof r->out->differs,
                 "line %u: %" PRIu64 " bytes at %#" PRIx64 ", PyTorch's are at %#" PRIx64, r->line,
                 bytes, allocator_block_address(block), address);
    return block;
}

static void add(struct replay *r, uint64_t address, uint64_t bytes, bool free)
{
    assert_true(r->count < LIVE_MAX);
    r->live[r->count++] = (struct live){address, alloc_at(r, address, bytes), bytes, free};
}

static void drop(struct replay *r, size_t i)
{
    allocator_free_block(r->allocator, r->live[i].block);
    r->live[i] = r->live[--r->count];
}

/* A segment of the beginning: all of it free and no other block is, so its blocks are cut off it.
 */
static void begin_segment(struct replay *r, uint64_t address, uint64_t bytes)
{
    r->segment_address = address;
    r->segment_bytes = bytes;
    r->small = bytes == 2 * MIB;
    allocator_free_block(r->allocator, alloc_at(r, address, r->small ? 1 : bytes));
}

/* A free block of the beginning is held until all are in place; the small pool's come in pieces of
 * what may be asked of it. */
static void begin_block(struct replay *r, uint64_t address, uint64_t bytes, bool live)
{
    for (; r->small && bytes > MIB; address += MIB, bytes -= MIB)
        add(r, address, MIB, !live);
    add(r, address, bytes, !live);
}

static void finish_beginning(struct replay *r)
{
    for (size_t i = r->count; i-- > 0;)
        if (r->live[i].free)
            drop(r, i);
}

static void free_at(struct replay *r, uint64_t address)
{
    for (size_t i = r->count; i-- > 0;) { /* what came last goes first, mostly */
        if (r->live[i].address != address)
            continue;
        r->allocated -= r->live[i].bytes;
        drop(r, i);
        return;
    }
    fail_msg("line %u: nothing is at %#" PRIx64, r->line, address);
}

static void alloc(struct replay *r, uint64_t address, uint64_t bytes)
{
    add(r, address, bytes, false);
    r->allocated += bytes;
    if (r->allocated > r->out->peak)
        r->out->peak = r->allocated;
    if (r->segment_bytes != 0 && !differs(r))
        snprintf(r->out->differs, sizeof r->out->differs,
                 "line %u: PyTorch asked for a segment, here none was needed", r->line);
    r->out->allocs++;
}

static void event(struct replay *r, char kind, uint64_t address, uint64_t bytes)
{
    if (kind == 'A') {
        alloc(r, address, bytes);
    } else if (kind == 'F') {
        free_at(r, address);
    } else if (kind == 'G') {
        r->segment_address = address;
        r->segment_bytes = bytes;
    } else {
        fail_msg("line %u: no such event: %c", r->line, kind);
    }
    assert_sound(r->allocator);
}

static void end_beginning(struct replay *r)
{
    finish_beginning(r);
    for (size_t i = 0; i < r->count; i++)
        r->allocated += r->live[i].bytes;
    r->out->allocated = r->out->peak = r->allocated;
}

struct gpu_replay gpu_replay(const char *name)
{
    struct gpu_replay out = {.allocs = 0};
    char path[128], line[96], kind;
    struct replay *r = calloc(1, sizeof *r);
    assert_non_null(r);
    r->out = &out;
    r->allocator =
        allocator_new(&(struct allocator_settings){.segment_new = recorded_segment, .context = r});
    snprintf(path, sizeof path, FOLDER "%s.txt.gz", name);
    gzFile file = gzopen(path, "rb");
    assert_non_null(file);
    bool beginning = true;
    for (r->line = 1; !differs(r) && gzgets(file, line, sizeof line); r->line++) {
        uint64_t address, bytes;
        int live = 0;
        const int fields =
            sscanf(line, "%c %" SCNu64 " %" SCNu64 " %d", &kind, &address, &bytes, &live);
        assert_true(fields == (kind == 'B' ? 4 : 3));
        if (kind == 'S') {
            begin_segment(r, address, bytes);
        } else if (kind == 'B') {
            begin_block(r, address, bytes, live);
        } else {
            if (beginning)
                end_beginning(r);
            beginning = false;
            event(r, kind, address, bytes);
        }
    }
    gzclose(file);
    out.planned = allocator_stats(r->allocator)->reserved_bytes;
    allocator_free(r->allocator);
    free(r);
    return out;
}

/* ---- a step ---- */

enum { SMALL = 16 }; /* numbers: PyTorch keeps some of them elsewhere */

struct events {
    int64_t *of; /* bytes born, or minus those that died */
    uint32_t count, cap;
};

static void note(struct events *events, int64_t bytes)
{
    if (llabs(bytes) <= SMALL)
        return;
    ARRAY_GROW(events->of, events->count, events->cap);
    events->of[events->count++] = bytes;
}

static struct events of_gpu(const char *path)
{
    struct events events = {.of = NULL};
    char line[256];
    gzFile file = gzopen(path, "rb");
    assert_non_null(file);
    while (gzgets(file, line, sizeof line)) {
        unsigned long long address;
        long long bytes;
        char kind;
        if (sscanf(line, "%c %llu %lld", &kind, &address, &bytes) == 3 &&
            (kind == 'A' || kind == 'F'))
            note(&events, kind == 'A' ? bytes : -bytes);
    }
    gzclose(file);
    return events;
}

static struct events of_recording(const char *path, const struct recording_choice *choice)
{
    struct err err = {0};
    struct events events = {.of = NULL};
    struct recording *recording = NULL;
    struct stream *stream = NULL;
    if (recording_read(path, &recording, &err) != ERR_OK ||
        recording_stream(recording, choice, &stream, &err) != ERR_OK)
        fail_msg("%s", err.text);
    for (uint32_t i = 0; stream && i < stream->step_count; i++) {
        const struct stream_step step = stream->steps[i];
        if (step.kind == STEP_BIRTH || step.kind == STEP_DEATH) {
            const int64_t bytes = (int64_t)stream->buffers[step.arg].bytes;
            note(&events, step.kind == STEP_BIRTH ? bytes : -bytes);
        } else if (step.kind == STEP_COPIED) { /* .grad is not there yet */
            const uint32_t copy = stream->grads[step.arg].buffer;
            note(&events, (int64_t)stream->buffers[copy].bytes);
        }
    }
    stream_free(stream);
    recording_free(recording);
    return events;
}

/* Two kernels here take workspaces from the allocator. index_put_ sorts its indices first, in ten
 * births and deaths of their size (native/cuda/Indexing.cu, index_put_with_sort_kernel). A sum over
 * many rows is shared by blocks, which leave their parts in one buffer and count themselves in
 * another (native/cuda/Reduce.cuh, gpu_reduce_kernel). The events of one of these from gpu[at] on.
 */
static uint32_t workspaces(const struct events *gpu, uint32_t at, int64_t index_bytes)
{
    const int64_t *of = gpu->of + at;
    uint32_t count = 0;
    int64_t live = 0;
    if (at + 4 <= gpu->count && of[0] > 0 && of[1] > 0 && of[2] == -of[1] && of[3] == -of[0] &&
        of[1] < 1024)
        return 4;
    while (at + count < gpu->count && llabs(of[count]) == index_bytes)
        live += of[count++];
    return live == 0 ? count : 0;
}

static int64_t peak(const struct events *events, uint32_t count)
{
    int64_t live = 0, most = 0;
    for (uint32_t i = 0; events->of && i < count; i++) {
        live += events->of[i];
        most = live > most ? live : most;
    }
    return most;
}

struct gpu_step gpu_step(uint32_t index)
{
    static const struct gpu_step steps[GPU_STEPS] = {
        {.name = "wl_medium_128_training",
         .recording = "tests/data/recorded/wl_medium_128.stream.json.gz",
         .seq = 128},
        {.name = "wl_medium_256_training",
         .recording = "tests/data/recorded/wl_medium_256.stream.json.gz",
         .seq = 256},
    };
    enum {
        BATCH = 4,
        HELD_AT_THE_END = 1
    }; /* the logits, which the script drops in its next step */
    struct gpu_step out = steps[index];
    char path[128];
    snprintf(path, sizeof path, FOLDER "%s.txt.gz", out.name);
    const struct recording_choice choice = {
        .batch = BATCH, .seq = out.seq, .compute = DTYPE_FP32, .autograd = AUTOGRAD_GPU};
    struct events gpu = of_gpu(path), ours = of_recording(out.recording, &choice);
    if (!gpu.of || !ours.of)
        abort(); /* of_gpu and of_recording end the test before */
    assert_true(ours.count > HELD_AT_THE_END && gpu.count > ours.count + 16); /* then the update */
    out.events = ours.count - HELD_AT_THE_END;
    for (; out.equal < out.events; out.equal++) {
        const uint32_t i = out.equal;
        if (gpu.of[i + out.workspaces] != ours.of[i])
            out.workspaces += workspaces(&gpu, i + out.workspaces, (int64_t)BATCH * out.seq * 8);
        out.measured = gpu.of[i + out.workspaces];
        out.planned = ours.of[i];
        if (out.measured != out.planned)
            break;
    }
    out.peak = (uint64_t)peak(&gpu, out.events + out.workspaces);
    out.planned_peak = (uint64_t)peak(&ours, out.events);
    free(gpu.of);
    free(ours.of);
    return out;
}

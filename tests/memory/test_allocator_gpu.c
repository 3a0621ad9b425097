/* test_allocator_gpu.c - the caching allocator against PyTorch's own on real GPUs.
 *
 * Recordings say where PyTorch placed each request (tests/data/gpu/allocator). The allocator begins
 * with the segments and blocks that were there and gets new segments at the recorded addresses:
 * then every block must come out at PyTorch's address, and every segment be asked for in PyTorch's
 * size. */
#include "memory/allocator.h"
#include "tests/support/small_device.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB ((uint64_t)1048576)
#define FOLDER "tests/data/gpu/allocator/"

enum { LIVE_MAX = 8192 };

struct live {
    uint64_t address;
    struct allocator_block *block;
    bool free; /* at the beginning: as soon as all blocks are in their places */
};

struct replay {
    struct allocator *allocator;
    struct live live[LIVE_MAX];
    size_t count;
    uint64_t segment_address, segment_bytes; /* the next one PyTorch got; 0 bytes: none */
    bool small;                              /* the segment that begins is of the small pool */
    uint64_t reserved;
    int line;
};

/* allocator_settings.segment_new: the recorded segment, if it has the size asked for. */
static uint64_t recorded_segment(void *context, uint64_t bytes)
{
    struct replay *r = context;
    if (bytes != r->segment_bytes)
        fail_msg("line %d: a segment of %" PRIu64 " bytes, PyTorch had %" PRIu64, r->line, bytes,
                 r->segment_bytes);
    r->segment_bytes = 0;
    r->reserved += bytes;
    return r->segment_address;
}

static struct allocator_block *alloc_at(struct replay *r, uint64_t address, uint64_t bytes)
{
    struct allocator_block *block;
    assert_int_equal(allocator_alloc(r->allocator, bytes, 0, &block, NULL), ERR_OK);
    if (allocator_block_address(block) != address)
        fail_msg("line %d: %" PRIu64 " bytes at %#" PRIx64 ", PyTorch's are at %#" PRIx64, r->line,
                 bytes, allocator_block_address(block), address);
    return block;
}

static void add(struct replay *r, uint64_t address, uint64_t bytes, bool free)
{
    assert_true(r->count < LIVE_MAX);
    r->live[r->count++] = (struct live){address, alloc_at(r, address, bytes), free};
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
        drop(r, i);
        return;
    }
    fail_msg("line %d: nothing is at %#" PRIx64, r->line, address);
}

/* One line; returns whether it was an alloc. */
static bool event(struct replay *r, char kind, uint64_t address, uint64_t bytes)
{
    if (kind == 'A') {
        add(r, address, bytes, false);
        if (r->segment_bytes != 0)
            fail_msg("line %d: PyTorch asked for a segment, here none was needed", r->line);
    } else if (kind == 'F') {
        free_at(r, address);
    } else if (kind == 'G') {
        r->segment_address = address;
        r->segment_bytes = bytes;
    } else {
        fail_msg("line %d: no such event: %c", r->line, kind);
    }
    assert_sound(r->allocator);
    return kind == 'A';
}

static FILE *open_packed(const char *name)
{
    char command[128];
    snprintf(command, sizeof command, "gzip -dc " FOLDER "%s.txt.gz", name);
    FILE *file = popen(command, "r");
    assert_non_null(file);
    return file;
}

/* Returns the allocs of a recording, all of which landed where PyTorch's did. */
static int replay(const char *name)
{
    struct replay *r = calloc(1, sizeof *r);
    assert_non_null(r);
    r->allocator =
        allocator_new(&(struct allocator_settings){.segment_new = recorded_segment, .context = r});
    FILE *file = open_packed(name);
    char line[96], kind;
    uint64_t address, bytes;
    int allocs = 0, live;
    bool beginning = true;
    for (r->line = 1; fgets(line, sizeof line, file); r->line++) {
        const int fields =
            sscanf(line, "%c %" SCNu64 " %" SCNu64 " %d", &kind, &address, &bytes, &live);
        assert_true(fields == (kind == 'B' ? 4 : 3));
        if (kind == 'S') {
            begin_segment(r, address, bytes);
        } else if (kind == 'B') {
            begin_block(r, address, bytes, live);
        } else {
            if (beginning)
                finish_beginning(r);
            beginning = false;
            allocs += event(r, kind, address, bytes);
        }
    }
    assert_int_equal(pclose(file), 0);
    assert_int_equal(allocator_stats(r->allocator)->reserved_bytes, r->reserved);
    allocator_free(r->allocator);
    free(r);
    return allocs;
}

static void every_block_lands_where_pytorchs_did(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int allocs;
    } recordings[] = {
        {"cr", 3505},
        {"wl_medium_128_training", 6526},
        {"wl_medium_256_training", 6624},
        {"wl_medium_1024_training", 7591},
        {"wl_medium_512_inference", 1666},
    };
    int allocs = 0;
    for (size_t i = 0; i < sizeof recordings / sizeof *recordings; i++) {
        const int landed = replay(recordings[i].name);
        assert_int_equal(landed, recordings[i].allocs);
        allocs += landed;
    }
    assert_int_equal(allocs, 25912);
    printf("note: %d blocks at PyTorch's addresses\n", allocs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_block_lands_where_pytorchs_did),
    };
    return cmocka_run_group_tests_name("allocator_gpu", tests, NULL, NULL);
}

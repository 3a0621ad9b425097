/* gpu_truth.h - what PyTorch's caching allocator did on real GPUs (tests/data/gpu/allocator),
 * beside ours: for the tests that insist on it and the report that shows it. */
#ifndef SHARDPLAN_TESTS_GPU_TRUTH_H
#define SHARDPLAN_TESTS_GPU_TRUTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A recording replayed through planner/memory/allocator.c. The allocator begins with the segments
 * and blocks that were there and gets new segments at the recorded addresses: then every block must
 * come out at PyTorch's address, and every segment be asked for in PyTorch's size. */
struct gpu_replay {
    uint32_t allocs, segments;  /* of PyTorch's, in the order of the file, up to what differed */
    uint64_t allocated, peak;   /* bytes requested at the beginning, and at most */
    uint64_t reserved, planned; /* bytes of segments at the end: PyTorch's, ours */
    char differs[160];          /* "": nothing; else where it ended */
};

/* The recording "cr", "wl_medium_128_training", ... */
struct gpu_replay gpu_replay(const char *name);

/* The names of all of them, ended by NULL. */
extern const char *const gpu_recordings[];

/* A training step as a GPU allocated it, beside the same model recorded without one and planned. */
struct gpu_step {
    const char *name, *recording; /* of tests/data/gpu/allocator; a file of tests/data/recorded */
    uint32_t seq;
    uint32_t events, equal; /* births and deaths of forward and backward; in order, and alike */
    uint32_t workspaces;    /* events in between that are two kernels' own */
    uint64_t peak, planned_peak; /* above the beginning */
    int64_t measured, planned;   /* the first event that differs */
};

enum { GPU_STEPS = 2 };
struct gpu_step gpu_step(uint32_t index);

#endif

/* nccl_tests.h - reads what nccl-tests printed or wrote: measured times of collectives.
 *
 * Text is the table every version prints, with whatever mpirun and NCCL print around it:
 *
 *     # Collective test starting: all_reduce_perf
 *     #  Rank  0 Group  0 Pid  41 on  node-1 device  0 [0000:19:00] NVIDIA H100 80GB HBM3
 *     #       size         count      type   redop    root     time   algbw   busbw #wrong     time
 * ... 1048576        262144     float     sum      -1    28.56   36.71   64.24      0    28.37 ...
 *
 * Several runs may follow one another in a file. JSON is what --output_file (-J) writes. Source:
 * nccl-tests src/util.cu (writeDeviceReport, writeResultHeader, writeBenchmarkLineBody).
 *
 * In-place times are taken, out-of-place ones where a row has none. Rows of no bytes, and runs of
 * what is not planned (alltoall, sendrecv, ...), are counted and left out. */
#ifndef SHARDPLAN_NCCL_TESTS_H
#define SHARDPLAN_NCCL_TESTS_H

#include "machine/fabric.h"

/* What the caller knows where a file does not say. */
struct nccl_tests_known {
    enum collective collective; /* COLLECTIVE_COUNT: not known */
    uint32_t ranks, nodes;      /* 0: not known */
};

struct nccl_tests {
    struct collective_point *points; /* owned, in the file's order; nccl_tests_free */
    size_t count;
    size_t in_place; /* of these, how many are in-place times; the rest are out-of-place */
    size_t left_out; /* rows of no bytes or of other collectives */
};

/* Reads a file of either form. What the file says goes before `known` (lent; NULL: nothing known).
 * ERR_INVALID: it cannot be read, or "file:line: what was found, what was expected"; for JSON
 * "file: results[3].in_place.time: ..."; also when no point is in it. ERR_UNSUPPORTED: ranks split
 * into several groups. On ERR_OK the caller owns what *out holds. */
enum err_code nccl_tests_read(const char *path, const struct nccl_tests_known *known,
                              struct nccl_tests *out, struct err *err);

void nccl_tests_free(struct nccl_tests *tests);

#endif

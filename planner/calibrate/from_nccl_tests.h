/* from_nccl_tests.h - measured collectives of nccl-tests as part of a profile. */
#ifndef SHARDPLAN_FROM_NCCL_TESTS_H
#define SHARDPLAN_FROM_NCCL_TESTS_H

#include "nccl/nccl_tests.h"
#include "stats/fit.h"

#include <jansson.h>

struct nccl_fit { /* points of one collective among as many ranks on as many nodes */
    enum collective collective;
    uint32_t ranks, nodes, points;
    double least_bytes, most_bytes;
    struct alpha_beta_fit fit; /* pieces: 0 where there are too few points for one */
};

struct nccl_import {                 /* nccl_import_free */
    struct collective_point *points; /* of all files, in their order */
    struct nccl_fit *fits;
    size_t point_count, point_cap, left_out; /* left_out: rows of no bytes, other collectives */
    uint32_t fit_count;
    json_t *profile; /* owned */
};

struct nccl_source {
    const char *const *paths; /* what nccl-tests printed or wrote */
    uint32_t path_count;
    struct nccl_tests_known known;
    const char *base; /* a profile's file, or NULL: the result has collectives only */
    const char *gpu;  /* "gpu" of the result, or NULL: as in the base */
    const char *date;
};

/* Reads the files and puts their points into a copy of the base: those of the base stay where the
 * files have none of the same collective, ranks and nodes. Errors are nccl_tests_read's, and
 * ERR_INVALID for a base that is no profile. On ERR_OK the caller owns what is in *out. */
enum err_code nccl_import(const struct nccl_source *source, struct nccl_import *out,
                          struct err *err);
void nccl_import_free(struct nccl_import *import);

#endif

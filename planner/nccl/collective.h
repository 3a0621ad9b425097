/* collective.h - how long a collective takes on the GPU, and what it takes from others meanwhile.
 *
 * Three layers:
 *   1. NCCL's graph search and tuning model choose algorithm, protocol and channels
 *      (nccl_graph.h, nccl_tuning.h): its numbers, unchanged; or what the network's plug-in has in
 *      its place.
 *   2. The choice's time on the wall, which NCCL's model gives too low for middle sizes:
 *
 *          seconds = latency + fill x (1 - exp(-transfer / span)) + transfer
 *          transfer = bytes / bandwidth
 *
 *      A pipeline pays its latency again while it fills, until transfer hides it: fill and span are
 *      multiples of NCCL's latency for Simple pipelines, one pair for rings that pass once, one for
 *      rings that reduce to all, one for NVLS, which fills for two turns of its kernel's loop where
 *      they take longer, or for more in a tree of racks. A tree fills with a chunk at each rank on
 *      the way to the root and back. LL and LL128 wait for nothing: no fill.
 *      Bandwidth is what the links sustain, a fraction of NCCL's figure per GPU generation.
 *   3. Where the fabric has measured times of the same layout, they stand instead of 2.
 *
 * A group has the cards of its own GPUs to itself: where several groups run at once over the same
 * cards (HSDP's replicate groups on nodes with fewer cards than GPUs), sharing them is the
 * caller's.
 *
 * Time is that of the kernel on its stream with the launch hidden behind work before it. What a
 * caller that waits for every collective sees on top is COLLECTIVE_ISOLATED_S. */
#ifndef SHARDPLAN_COLLECTIVE_H
#define SHARDPLAN_COLLECTIVE_H

#include "nccl/nccl_tuning.h"

struct fit_curve;

/* Seconds between the end of a collective that nothing hides and the next one's start, as seen by a
 * benchmark that issues from PyTorch and waits each time: the published 8 x H200 sweep lies 18 to
 * 25 us above NCCL's estimate up to 1 MiB, where the sweep of 8 x H100 by nccl-tests lies on it. */
#define COLLECTIVE_ISOLATED_S 20e-6

struct collective_cost {
    double seconds;
    double latency_s;   /* of the choice, at no bytes */
    double bytes_per_s; /* of the choice, at endless bytes (bytes as in collective_seconds) */
    enum nccl_algorithm algorithm;
    enum nccl_protocol protocol;
    uint32_t channels; /* CTAs, each on an SM of its own while the collective runs */
    double hbm_bytes;  /* read and written in this GPU's memory, buffers not registered */
    double spread;     /* 1 sigma of seconds, relative */
    bool measured;     /* seconds are from the fabric's measured points */
};

/* One way on the wall: see the top. bytes_per_s is 0 when the way is not open. */
struct collective_way {
    double latency_s, fill_s, span_s, bytes_per_s;
    bool hides; /* with TCPX: what a small message waits for, a large one does not. Of 0.9 ms at 8
                   MiB less than 0.2 are left from 256 MiB on, in both sweeps of A3 High: the root
                   of the sum of squares stands for the sum */
};

/* A stretch of sizes that run the same way. */
struct collective_stretch {
    uint64_t from_bytes;
    enum nccl_algorithm algorithm;
    enum nccl_protocol protocol;
    double least_s; /* the longest time of any smaller size: more bytes never take less time */
};

#define COLLECTIVE_MAX_STRETCHES 24

/* What collective_model_build prepared for one collective of one group; read only. */
struct collective_model {
    struct nccl_tuning_model tuning;
    struct collective_way way[NCCL_ALGORITHMS][NCCL_PROTOCOLS];
    double spread[2]; /* of small and of large messages */
    bool is_tuned;    /* the network's plug-in chooses: what is fastest on the wall */
    uint32_t stretches;
    struct collective_stretch stretch[COLLECTIVE_MAX_STRETCHES];
    struct fit_curve *curve; /* owned; NULL without measured points */
};

/* Prepares `collective` of a group with `ranks_per_node` ranks on each of `nodes` nodes (an HSDP
 * replicate group has 1 rank a node). Fabric and its table are lent for the call; tens of
 * microseconds, whatever the number of nodes. ERR_INVALID: fabric_check, or a measured point that
 * is no time. On ERR_OK the caller owns what *out holds: collective_model_free. */
enum err_code collective_model_build(const struct fabric *fabric, enum collective collective,
                                     uint32_t ranks_per_node, uint32_t nodes,
                                     struct collective_model *out, struct err *err);

void collective_model_free(struct collective_model *model);

/* The cost of `bytes`, in nccl-tests' convention: for all_gather and reduce_scatter the whole
 * buffer, ranks x the part of one; for all_reduce and broadcast one rank's buffer. A single rank or
 * 0 bytes cost nothing. Never less for more bytes. Well below a microsecond. */
struct collective_cost collective_cost(const struct collective_model *model, uint64_t bytes);

/* Seconds of `bytes` if NCCL were made to run it this way (NCCL_ALGO, NCCL_PROTO), measured points
 * aside; INFINITY when the way is not open. */
double collective_forced_seconds(const struct collective_model *model,
                                 enum nccl_algorithm algorithm, enum nccl_protocol protocol,
                                 uint64_t bytes);

#endif

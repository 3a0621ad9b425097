/* zero12.h - the state of ZeRO stages 1 and 2: for zero12*.c only. */
#ifndef SHARDPLAN_ZERO12_H
#define SHARDPLAN_ZERO12_H

#include "lower/zero.h"

struct zero12 {
    uint8_t group, lane; /* of all ranks (PLAN_NO_GROUP: one); where reductions run */
    uint32_t ranks;
    bool each;           /* stage 2: every micro-batch reduces, as gradients come */
    bool fp32_partition; /* grad_accum_dtype fp32: gradients are kept in fp32, the partition only */
    bool widened;        /* stage 1 with it: each is added up in fp32 before it is reduced, and
                            .grad goes at once (grad_accum) */
    struct operand *grads; /* (params) what is reduced: .grad, or what is added up in its place */
    /* the vector */
    uint32_t *listed, *order, count; /* trained parameters: as registered, as they lie in it */
    uint64_t *at;                    /* (params) elements before it */
    uint64_t total, partition;       /* elements, padded; of one rank */
    uint32_t flat, master;           /* buffers: 16 bits, whole; fp32, the partition */
    uint32_t *own, own_count;        /* parameters that touch this rank's partition */
    bool *is_own;                    /* (params) */
    uint64_t own_elements;           /* of them, whole */
    /* of one backward */
    bool ready;         /* the buckets are there */
    uint32_t bucket[2]; /* NONE: not there */
    uint32_t turn;      /* the one that is filled */
    uint32_t *in, in_count;
    uint64_t filled; /* elements in it */
    bool oversized;  /* it is one parameter's own gradient */
    uint32_t held;   /* parameter whose .grad stage 1's walk still refers to; NONE */
    uint32_t *forgotten, forgotten_count; /* parameters whose gradients go with the next flush */
    uint32_t gradients; /* this rank's, whole parameters; or its fp32 partition. NONE: none yet */
    uint64_t gradients_used;
    /* of a step */
    struct operand *kept; /* (params) averaged gradients; place NONE: none */
    uint32_t older;       /* the buffer of the first micro-batch's, where `kept` is */
    uint32_t padding;     /* zeros behind them; NONE: they fill the partition */
    /* offload_optimizer: zero12_offload.c */
    bool offload;
    uint32_t host_gradients;     /* the fp32 partition's, on the host */
    uint32_t staging;            /* the partition in 16 bits, on the host */
    uint32_t temporary;          /* on the device: room for the largest gradient */
    uint32_t *accumulated;       /* (params) on the host: of micro-batches so far; NONE: none */
    uint32_t *norms, norm_count; /* of this rank's gradients, as they came */
    uint32_t copied;             /* event: the last gradient is on the host; NONE: known */
    uint32_t filled_event;       /* the bucket's last copy; NONE: none yet */
    uint32_t emptied_event[2];   /* a bucket's last flush */
};

static inline struct zero12 *zero12_of(const struct lowering *low)
{
    return low->state;
}

/* The elements of a parameter in this rank's partition. */
struct part zero12_part(const struct lowering *low, uint32_t param);

/* This rank's partition of the vector, for an operation on the device. */
struct operand zero12_own(const struct lowering *low);
/* Says where the update finds gradients. */
void zero12_declare_gradients(struct lowering *low, uint32_t buffer);
/* This rank's partition of the vector from its fp32 one. */
void zero12_cast_back(struct lowering *low);
/* The vector from its partitions. */
void zero12_gather(struct lowering *low);

/* step(). */
void zero12_update(struct lowering *low);

/* ---- gradients added up in fp32: zero12_widen.c ---- */

/* _fill_param_grad_accum_attribute: .grad is cast and added to what is there. */
void zero12_widen(struct lowering *low, uint32_t param);
/* .grad, or what is kept in its place, is `to` from here on. */
void zero12_exchange(struct lowering *low, uint32_t param, struct operand to);
/* What is left of them when the partition has been put together (free_grad_in_param_list). */
void zero12_drop_widened(struct lowering *low);
/* The dtype of what is reduced, before it is put on the wire in the parameters'. */
enum dtype zero12_reduced_dtype(const struct lowering *low);
/* A copy in the parameters' dtype, in which all ranks are summed (communication_data_type). */
uint32_t zero12_narrow(struct lowering *low, struct operand of);
/* Puts what was summed back, whichever dtype it has. */
void zero12_put_back(struct lowering *low, struct operand summed, struct operand to);
/* Whether .grad is memory of its own. */
bool zero12_has_storage(const struct zero12 *z, struct operand grad);
/* Buckets go with the last gradient that is a view of them. */
void zero12_release_buckets(struct lowering *low);

/* ---- BF16_Optimizer: zero_bf16.c ---- */

/* Whether it is what the strategy comes to. Of the hooks zero_bf16_pre_backward alone asks it for
 * itself. */
bool zero_bf16_has(const struct strategy *strategy);
void zero_bf16_set_up(struct lowering *low);
void zero_bf16_pre_backward(struct lowering *low, uint32_t module);
void zero_bf16_final(struct lowering *low);
void zero_bf16_update(struct lowering *low);

/* ---- offload_optimizer ---- */

void zero12_offload_set_up(struct lowering *low);
/* copy_grads_in_partition: of one of this rank's averaged gradients. True: .grad is to go. */
bool zero12_offload_gradient(struct lowering *low, uint32_t param);
void zero12_offload_update(struct lowering *low);

#endif

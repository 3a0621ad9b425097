/* compare_parts.h - for the files of this folder: what the join knows, and what is made of it. */
#ifndef SHARDPLAN_COMPARE_PARTS_H
#define SHARDPLAN_COMPARE_PARTS_H

#include "compare/compare.h"

struct compare_sample { /* the recorded memory after an instruction */
    bool there;
    uint64_t bytes[COMPARE_QUANTITIES];
};

struct join { /* the recording by instruction id */
    const struct plan *plan;
    const struct trace *trace;
    uint32_t process; /* of the trace */
    uint32_t rank;    /* that was recorded */
    struct arena *arena;
    struct compare_interval *spans; /* (instruction_count), times as in the trace */
    struct compare_sample *samples; /* (instruction_count) */
    const char **names;             /* (instruction_count) of the events; NULL: none */
    uint32_t *fused_into; /* (instruction_count) 1 + the kernel that it ran as a part of; 0: none */
};

/* Whether the instruction runs in every step but the first. */
static inline bool compare_runs(const struct plan *plan, uint32_t instruction)
{
    return !(plan->instructions[instruction].flags & PLAN_FIRST_STEP);
}

/* Whether the memory is sampled after it. */
static inline bool compare_is_sampled(enum plan_op op)
{
    return op == PLAN_ALLOC || op == PLAN_FREE || op == PLAN_MARK;
}

/* Reads events and samples of the recorded process, checking each against the plan. */
enum err_code join_build(struct join *join, struct err *err);

enum err_code compare_memory(const struct join *join, struct compare_memory *out, struct err *err);
enum err_code compare_time(const struct join *join, const json_t *time, struct compare_time *out,
                           struct err *err);

/* What a kernel is summed up under: a computation by its label, what sharding does by its op. */
const char *compare_kind_of(const struct plan *plan, const struct plan_instruction *instruction);

/* When the compute lane stood still, longest first; `spans` from the begin of the step. */
void compare_gaps(const struct plan *plan, const struct compare_interval *spans,
                  struct arena *arena, const struct compare_gap **out, uint32_t *count);

#endif

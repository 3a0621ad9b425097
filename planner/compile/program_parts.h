/* program_parts.h - for program.c, split.c, fusion.c, act_graph.c, order_acts.c and place_acts.c
 * only: a program while it is made. */
#ifndef SHARDPLAN_PROGRAM_PARTS_H
#define SHARDPLAN_PROGRAM_PARTS_H

#include "compile/program.h"

struct list { /* a small set, in the order of arrival */
    uint32_t *of;
    uint32_t count, cap;
};

void list_add_once(struct list *list, uint32_t value);
bool list_has(const struct list *list, uint32_t value);
bool lists_meet(const struct list *a, const struct list *b); /* whether any is in both */

/* What a kernel runs over. */
enum span_kind {
    SPAN_CALL,    /* nothing is known */
    SPAN_POINTS,  /* `all` elements */
    SPAN_ROWS,    /* `all` elements in `kept` rows, summed over each */
    SPAN_COLUMNS, /* likewise in `kept` columns */
};
struct span {
    enum span_kind kind;
    uint64_t all, kept;
    struct shape loops; /* of POINTS and COLUMNS: how memory is gone through, without ones */
};

struct part {      /* one function of an act, and the memory that it reads */
    uint32_t rank; /* its place among all of them before any are fused */
    bool sums;     /* over rows */
    struct list reads, writes;
    uint32_t loads;    /* how many places in it are read for one result */
    struct list moved; /* of what it reads: elements at other places than where they go */
    struct list whole; /* likewise: all of it, and not what a GATHER picks */
    uint32_t gather;   /* that picks of the rest; JOINT_NONE: none */
};

struct draft { /* an act to be; of call JOINT_NONE, several parts fused */
    uint32_t call;
    struct span span;
    bool gone; /* fused into another */
    struct list reads, writes;
    struct part *parts; /* in the order of the graph */
    uint32_t part_count;
};

void draft_free(struct draft *draft);

struct building {
    const struct joint *joint;
    struct program *program;
    bool *there;      /* (nodes) the program has it from outside */
    bool *needed;     /* (nodes) */
    bool *realized;   /* (nodes) its result is in memory */
    uint32_t *users;  /* (nodes) how many read it */
    uint32_t *rank;   /* (nodes) its place in the graph that Inductor is given */
    uint32_t *stack;  /* (nodes) those that are gone through */
    uint32_t *waits;  /* (nodes) the call that it is put in memory for; JOINT_NONE: at its place */
    bool *put;        /* (nodes) of those, what has been */
    uint32_t *memory; /* (nodes) */
    uint32_t memory_cap;
    struct draft *acts;
    uint32_t act_count, act_cap;
};

/* Where a node's value is found: itself where it is there already, else behind its views. */
uint32_t found_at(const struct building *b, uint32_t node);

/* How many partial results of each of its own a node's reduction makes first; 1: none. */
uint32_t parts_of(const struct building *b, uint32_t node);

/* A reduction that Inductor makes one of: over eight elements and more. */
bool is_reduction(const struct joint *joint, uint32_t node);
struct span span_of(const struct joint *joint, uint32_t node);
/* Of a sum of so many rows over columns in so many parts. */
struct shape loops_of_parts(uint64_t rows, uint32_t parts, uint64_t columns);

/* (memories) The act that writes each; JOINT_NONE: it is from outside. The caller frees it. */
uint32_t *writers_of(const struct building *b);

void fuse_acts(struct building *b);
/* Gives kernels that go over their rows more than once the memory back that only they use, as far
 * as it is written and read on different ways. */
void keep_between_ways(struct building *b);
struct estimate {    /* of memory, as Inductor has it (memory.py, estimate_peak_memory) */
    uint64_t *bytes; /* (steps + 1) in memory at each step of the order */
    uint32_t *at;    /* (acts) the step that an act is: there are others */
    uint32_t steps;
};

/* Puts them in order. The caller frees what is in the estimate. */
struct estimate order_acts(struct building *b);
/* Fills the program's acts: which memory is born, taken over, dies. */
void place_acts(struct building *b, const struct estimate *estimate);

#endif

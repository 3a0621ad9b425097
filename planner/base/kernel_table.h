/* kernel_table.h - kernels that several programs share: those of a compute stream, which every plan
 * made of it refers to. */
#ifndef SHARDPLAN_KERNEL_TABLE_H
#define SHARDPLAN_KERNEL_TABLE_H

#include "base/arena.h"
#include "base/kernel.h"

#include <stdatomic.h>

struct kernel_table { /* read only once it is closed, and gone with its last holder */
    struct kernel *kernels;
    struct operand *operands; /* in the order of the kernels */
    uint32_t kernel_count, operand_count, kernel_cap, operand_cap;
    /* Names that labels stand for, where they are more than vocabulary.h's; else NULL. Of the
     * arena, as strides of kernels are. */
    const char **labels;
    uint32_t label_count;
    struct arena arena;
    atomic_uint holders;
};

/* An empty table with room for so many, and one holder: the caller. */
struct kernel_table *kernel_table_new(uint32_t kernels, uint32_t operands);
/* Appends a kernel; the operands that follow with kernel_table_operand are its own. Returns its
 * index. */
uint32_t kernel_table_add(struct kernel_table *table, const struct kernel *kernel);
void kernel_table_operand(struct kernel_table *table, const struct operand *operand);
/* After the last kernel: gives each its operands. */
void kernel_table_close(struct kernel_table *table);
/* One holder more, one less; the last one's release frees it. Any thread may call these. */
struct kernel_table *kernel_table_hold(struct kernel_table *table);
void kernel_table_release(struct kernel_table *table); /* NULL is allowed */

#endif

/* kernel_table.c - see kernel_table.h. */
#include "base/kernel_table.h"

#include <stdlib.h>

struct kernel_table *kernel_table_new(uint32_t kernels, uint32_t operands)
{
    struct kernel_table *table = xmalloc(sizeof *table);
    *table = (struct kernel_table){
        .kernels = xmalloc((kernels + 1) * sizeof *table->kernels),
        .operands = xmalloc((operands + 1) * sizeof *table->operands),
        .kernel_cap = kernels + 1,
        .operand_cap = operands + 1,
        .holders = 1,
    };
    return table;
}

uint32_t kernel_table_add(struct kernel_table *table, const struct kernel *kernel)
{
    ARRAY_GROW(table->kernels, table->kernel_count, table->kernel_cap);
    table->kernels[table->kernel_count] = *kernel;
    return table->kernel_count++;
}

void kernel_table_operand(struct kernel_table *table, const struct operand *operand)
{
    ARRAY_GROW(table->operands, table->operand_count, table->operand_cap);
    table->operands[table->operand_count++] = *operand;
}

void kernel_table_close(struct kernel_table *table)
{
    struct operand *next = table->operands;
    for (uint32_t i = 0; i < table->kernel_count; i++) {
        struct kernel *kernel = &table->kernels[i];
        kernel->operands = next;
        next += (uint32_t)kernel->ins + kernel->outs;
    }
}

struct kernel_table *kernel_table_hold(struct kernel_table *table)
{
    atomic_fetch_add(&table->holders, 1);
    return table;
}

void kernel_table_release(struct kernel_table *table)
{
    if (!table || atomic_fetch_sub(&table->holders, 1) > 1)
        return;
    free(table->kernels);
    free(table->operands);
    arena_free(&table->arena);
    free(table);
}

/* work_check_parts.h - for work_check.c and work_check_host.c only: rows of their tables. */
#ifndef SHARDPLAN_WORK_CHECK_PARTS_H
#define SHARDPLAN_WORK_CHECK_PARTS_H

#include "runtime/work/operand.h"

enum { ANY_NUMBER = UINT8_MAX };

struct work_entry {
    enum err_code (*check)(const struct work *work, struct err *err);
    uint8_t ins_least, ins_most, outs_least;
};

/* What the host has beyond what every backend has, or takes more of; NULL: neither. */
const struct work_entry *work_host_entry(enum work_kind kind);
/* Whether its kernel reads operands as lists, and so with any strides. */
bool work_host_strides(enum work_kind kind);

enum err_code work_check_matmul(const struct work *work, struct err *err);
enum err_code work_check_attention(const struct work *work, struct err *err);
enum err_code work_check_attention_backward(const struct work *work, struct err *err);

#endif

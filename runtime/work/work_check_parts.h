/* work_check_parts.h - for the work_check*.c files only: rows of their tables. */
#ifndef SHARDPLAN_WORK_CHECK_PARTS_H
#define SHARDPLAN_WORK_CHECK_PARTS_H

#include "runtime/work/operand.h"

enum { ANY_NUMBER = UINT8_MAX };

struct work_entry {
    enum err_code (*check)(const struct work *work, struct err *err);
    uint8_t ins_least, ins_most, outs_least;
};

/* Kinds that are taken in any layout; NULL: not such a one. */
const struct work_entry *work_wide_entry(enum work_kind kind);
/* Whether that backend's kernels of it read operands with any strides. */
bool work_takes_strides(enum work_kind kind, enum work_backend backend);

/* What the GPU's kernels ask beyond the host's. */
enum err_code work_check_for_cuda(const struct work *work, struct err *err);

enum err_code work_check_matmul(const struct work *work, struct err *err);
enum err_code work_check_attention(const struct work *work, struct err *err);
enum err_code work_check_attention_backward(const struct work *work, struct err *err);

#endif

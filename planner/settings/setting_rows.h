/* setting_rows.h - how a row of setting_table.c is written: for that file alone. */
#ifndef SHARDPLAN_SETTING_ROWS_H
#define SHARDPLAN_SETTING_ROWS_H

#include "settings/settings.h"

/* Rows take a few lines each; what the macros hold are initialisers. */
/* clang-format off */
/* NOLINTBEGIN(bugprone-macro-parentheses) */
#define FIELD(member) {offsetof(struct settings, member), sizeof(((struct settings *)0)->member)}
#define WORDS(...) (const struct setting_word[]){__VA_ARGS__, {NULL, 0, false}}
#define WORD(text, value) {text, value, false}
#define ALSO(text, value) {text, value, true} /* another spelling of the word with this value */
#define CLOCKS WORDS(WORD("sustained", CLOCK_SUSTAINED), WORD("burst", CLOCK_BURST))
#define OFF_ON WORDS(WORD("off", false), WORD("on", true))
#define TARGETS                                                                                    \
    WORDS(WORD("fsdp2", EXPORT_FSDP2), WORD("torchtitan", EXPORT_TORCHTITAN),                      \
          WORD("accelerate", EXPORT_ACCELERATE), WORD("deepspeed", EXPORT_DEEPSPEED))
#define EACH_LAST WORDS(WORD("each", false), WORD("last", true))
#define INTEGER(member, from, to) NUMBER(INTEGER, member, from, to)
#define REAL(member, from, to) NUMBER(REAL, member, from, to)
#define SIZE(member, from, to) NUMBER(SIZE, member, from, to)
#define NUMBER(what, member, from, to)                                                             \
    {.kind = NUMBER_##what, .least = from, .most = to, .field = FIELD(member)}
#define FROZEN_DTYPES                                                                              \
    WORD("bf16", DTYPE_BF16), WORD("fp16", DTYPE_FP16), ALSO("bfloat16", DTYPE_BF16),              \
        ALSO("float16", DTYPE_FP16)
/* "same" is DTYPE_COUNT until the job is made: no cast, whatever the other dtype is. */
#define STORED_DTYPES                                                                              \
    WORD("bf16", DTYPE_BF16), WORD("fp32", DTYPE_FP32), WORD("fp16", DTYPE_FP16),                  \
    ALSO("bfloat16", DTYPE_BF16), ALSO("float32", DTYPE_FP32), ALSO("float16", DTYPE_FP16)
#define DTYPES STORED_DTYPES, WORD("same", DTYPE_COUNT), ALSO("none", DTYPE_COUNT)
/* NOLINTEND(bugprone-macro-parentheses) */
/* clang-format on */

#define COMMAND(name) (1U << COMMAND_##name)
#define SYSTEM(name) (1U << SYSTEM_##name)
#define WHOLE (SYSTEM(DDP) | SYSTEM(SINGLE)) /* parameters are whole on each rank */
enum {
    FOR_MODEL = COMMAND(FIT) | COMMAND(PLAN) | COMMAND(SWEEP) | COMMAND(TUNE),
    FOR_JOB = FOR_MODEL | COMMAND(DIFF),
    FOR_RUN = COMMAND(RUN) | COMMAND(RANK),
    FOR_ANY = (1U << COMMAND_COUNT) - 1,
    ZERO12 = SYSTEM(ZERO1) | SYSTEM(ZERO2),
    ZERO = ZERO12 | SYSTEM(ZERO3),
    FSDP = SYSTEM(FSDP1) | SYSTEM(FSDP2),
};

#endif

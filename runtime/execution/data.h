/* data.h - tokens to train on: a file of bytes or of token ids, or a generator. */
#ifndef SHARDPLAN_DATA_H
#define SHARDPLAN_DATA_H

#include "base/err.h"

#include <stdint.h>

struct data;

enum data_kind { DATA_BYTES, DATA_UINT16, DATA_UINT32, DATA_REFERENCE };

/* That of a file whose tokens have so many bytes. */
static inline enum data_kind data_kind_of(uint32_t bytes)
{
    return bytes == 4 ? DATA_UINT32 : bytes == 2 ? DATA_UINT16 : DATA_BYTES;
}

/* Opens a file: token ids below `vocab` (others are an error, named by offset). The ids of llm.c's
 * .bin files (a 1,024-byte header, magic 20240520, then uint16) are recognised by the header.
 * `path` NULL: the reference generator of tests/data/numerics/README.md. The caller owns *out. */
enum err_code data_open(const char *path, enum data_kind kind, uint32_t vocab, struct data **out,
                        struct err *err);
/* Whether the first `tokens` that a run reads, which begins again at the end of the file, are all
 * below the vocabulary. ERR_INVALID names the first that is not, and where it is. */
enum err_code data_check(const struct data *data, uint64_t tokens, struct err *err);
void data_close(struct data *data); /* NULL is allowed */

/* Sequence `row` of `rows` of step `step`: seq + 1 tokens, of which the first seq are input and the
 * last seq targets. Files are read in order, over and over. */
enum err_code data_row(struct data *data, uint32_t step, uint32_t row, uint32_t rows, uint32_t seq,
                       int64_t *tokens, struct err *err);

#endif

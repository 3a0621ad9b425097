/* safetensors.h - files of named tensors, in the format of huggingface.co/docs/safetensors.
 *
 *     8 bytes   n, little endian
 *     n bytes   {"__metadata__": {KEY: TEXT...}, NAME: {"dtype", "shape", "data_offsets"}...}
 *     the rest  the tensors' bytes, without holes; offsets count from here
 *
 * Reading trusts nothing: a file that was opened has no duplicate name, no range that overlaps
 * another, leaves a hole or differs from what dtype and shape ask, and is exactly as long as its
 * header says. Writing makes F32 files only. */
#ifndef SHARDPLAN_SAFETENSORS_H
#define SHARDPLAN_SAFETENSORS_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum { SAFETENSORS_DIMS = 8, SAFETENSORS_HEADER_MOST = 100000000 };

struct safetensor {
    const char *name;
    const char *dtype; /* "F32"; ignored when writing */
    uint64_t dim[SAFETENSORS_DIMS];
    uint32_t rank;       /* 0: a scalar */
    uint64_t begin, end; /* bytes from the start of the data; ignored when writing */
};

struct safetensors_note { /* an entry of __metadata__ */
    const char *key, *text;
};

uint64_t safetensor_elements(const struct safetensor *tensor);

struct safetensors; /* a file's header; opaque. No descriptor stays open between calls. */

/* Reads and checks the header. The caller owns *out: safetensors_close; else *out is NULL.
 * ERR_IO: the system's word; ERR_INVALID: not what the format asks for, or cut short;
 * ERR_UNSUPPORTED: a dtype or a number of dims that we do not know. */
enum err_code safetensors_open(const char *path, struct safetensors **out, struct err *err);
void safetensors_close(struct safetensors *file); /* NULL is allowed */

/* Its tensors in the order of names: lent, valid until safetensors_close. */
const struct safetensor *safetensors_list(const struct safetensors *file, uint32_t *count);
/* One of them, or NULL. */
const struct safetensor *safetensors_find(const struct safetensors *file, const char *name);
/* The metadata's text, or NULL: likewise lent. */
const char *safetensors_note(const struct safetensors *file, const char *key);

/* Elements [first, first + count) of a tensor of this file, as fp32: F32 bit for bit, BF16 and F16
 * exactly. ERR_UNSUPPORTED: another dtype. */
enum err_code safetensors_read(const struct safetensors *file, const struct safetensor *tensor,
                               uint64_t first, uint64_t count, float *values, struct err *err);

struct safetensors_writer; /* a file being written; opaque */

/* Creates or empties `path` and writes the header of these F32 tensors, all lent for the call. The
 * caller owns *out: safetensors_finish; else *out is NULL and what was created stays. */
enum err_code safetensors_create(const char *path, const struct safetensor *tensors, uint32_t count,
                                 const struct safetensors_note *notes, uint32_t note_count,
                                 struct safetensors_writer **out, struct err *err);
/* Writes elements [first, first + count) of the tensor of that index; in any order, each once. */
enum err_code safetensors_write(struct safetensors_writer *writer, uint32_t tensor, uint64_t first,
                                uint64_t count, const float *values, struct err *err);
/* hash.h's of all bytes of the file so far. False: they were not written one after the other. */
bool safetensors_sum(const struct safetensors_writer *writer, uint64_t *sum);
/* Of a file that is there. */
enum err_code safetensors_sum_file(const char *path, uint64_t *sum, struct err *err);
/* Checks that every byte was written and has reached the disk, and frees the writer in any case.
 * NULL is allowed. `rc`: what came before; a failure is returned as it is. */
enum err_code safetensors_finish(struct safetensors_writer *writer, enum err_code rc,
                                 struct err *err);

#endif

/* safetensors.c - see safetensors.h.
 *
 * Numbers of the header are checked where they are read, so that no later sum can wrap: dims and
 * offsets are at most INT64_MAX, products are computed with overflow checks, and ranges are proven
 * to tile the data by sorting them by their begin:
 *
 *     0 ......... 96 ....... 120 ............ length of the data
 *     [ first     )[ second   )[ third        )
 *
 * A reader opens the file anew for each range: a checkpoint of thousands of ranks may be read by
 * one, which has far fewer descriptors. */
#include "runtime/state/safetensors.h"

#include "base/arena.h"
#include "base/hash.h"
#include "base/json_file.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files are little endian, so are we");

enum { LENGTH_BYTES = 8, PIECE_BYTES = 1 << 30, SUM_BYTES = 1 << 20 };
#define METADATA "__metadata__"

static const struct {
    const char *name;
    uint32_t bytes;
} dtypes[] = {
    {"F32", 4},     {"BF16", 2},    {"F16", 2}, {"F64", 8},  {"I64", 8}, {"U64", 8},
    {"I32", 4},     {"U32", 4},     {"I16", 2}, {"U16", 2},  {"I8", 1},  {"U8", 1},
    {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"C64", 8}, {"BOOL", 1},
};
enum { F32, BF16, F16, DTYPES = sizeof dtypes / sizeof dtypes[0] };

struct safetensors {
    struct arena arena; /* owns every text */
    const char *path;
    json_t *notes; /* __metadata__ or NULL */
    struct safetensor *tensors;
    uint32_t count;
    uint64_t data, bytes; /* where the tensors' bytes begin, and how many there are */
};

uint64_t safetensor_elements(const struct safetensor *tensor)
{
    uint64_t elements = 1;
    for (uint32_t i = 0; i < tensor->rank; i++)
        elements *= tensor->dim[i];
    return elements;
}

/* ---- bytes of a file ---- */

static enum err_code read_at(int fd, const char *path, void *to, uint64_t bytes, uint64_t at,
                             struct err *err)
{
    for (uint64_t done = 0; done < bytes;) {
        const uint64_t rest = bytes - done;
        const ssize_t n = pread(fd, (char *)to + done, rest < PIECE_BYTES ? rest : PIECE_BYTES,
                                (off_t)(at + done));
        if (n < 0 && errno != EINTR)
            return err_set(err, ERR_IO, "read %s: %s", path, strerror(errno));
        if (n == 0)
            return err_set(err, ERR_INVALID, "%s: truncated", path);
        done += n > 0 ? (uint64_t)n : 0;
    }
    return ERR_OK;
}

static enum err_code write_at(int fd, const char *path, const void *from, uint64_t bytes,
                              uint64_t at, struct err *err)
{
    for (uint64_t done = 0; done < bytes;) {
        const uint64_t rest = bytes - done;
        const ssize_t n = pwrite(fd, (const char *)from + done,
                                 rest < PIECE_BYTES ? rest : PIECE_BYTES, (off_t)(at + done));
        if (n == 0 || (n < 0 && errno != EINTR))
            return err_set(err, ERR_IO, "write %s: %s", path, strerror(n == 0 ? ENOSPC : errno));
        done += n > 0 ? (uint64_t)n : 0;
    }
    return ERR_OK;
}

/* ---- the header ---- */

static uint32_t dtype_of(const char *name)
{
    uint32_t i = 0;
    while (i < DTYPES && (!name || strcmp(name, dtypes[i].name) != 0))
        i++;
    return i;
}

static bool whole(const json_t *value, uint64_t *out)
{
    *out = (uint64_t)json_integer_value(value);
    return json_is_integer(value) && json_integer_value(value) >= 0;
}

static enum err_code fault(const struct safetensors *file, const char *name, enum err_code code,
                           const char *what, struct err *err)
{
    return err_set(err, code, "%s: %s: %s", file->path, name, what);
}

static enum err_code take_shape(const struct safetensors *file, const json_t *shape,
                                struct safetensor *tensor, uint64_t *bytes, struct err *err)
{
    if (!json_is_array(shape))
        return fault(file, tensor->name, ERR_INVALID, "no shape", err);
    if (json_array_size(shape) > SAFETENSORS_DIMS)
        return fault(file, tensor->name, ERR_UNSUPPORTED, "more than 8 dims", err);
    tensor->rank = (uint32_t)json_array_size(shape);
    for (uint32_t i = 0; i < tensor->rank; i++)
        if (!whole(json_array_get(shape, i), &tensor->dim[i]) ||
            __builtin_mul_overflow(*bytes, tensor->dim[i], bytes))
            return fault(file, tensor->name, ERR_INVALID, "a dim that is not a size", err);
    return ERR_OK;
}

static enum err_code take_tensor(const struct safetensors *file, const json_t *json,
                                 struct safetensor *tensor, struct err *err)
{
    const char *dtype = json_string_value(json_object_get(json, "dtype"));
    if (!dtype)
        return fault(file, tensor->name, ERR_INVALID, "no dtype", err);
    if (dtype_of(dtype) == DTYPES)
        return fault(file, tensor->name, ERR_UNSUPPORTED, "a dtype that is not known", err);
    tensor->dtype = dtypes[dtype_of(dtype)].name;
    uint64_t bytes = dtypes[dtype_of(dtype)].bytes;
    TRY(take_shape(file, json_object_get(json, "shape"), tensor, &bytes, err));
    const json_t *offsets = json_object_get(json, "data_offsets");
    if (json_array_size(offsets) != 2 || !whole(json_array_get(offsets, 0), &tensor->begin) ||
        !whole(json_array_get(offsets, 1), &tensor->end) || tensor->begin > tensor->end)
        return fault(file, tensor->name, ERR_INVALID, "data_offsets are not a range", err);
    if (tensor->end > file->bytes)
        return fault(file, tensor->name, ERR_INVALID, "out of range, or the file is truncated",
                     err);
    if (tensor->end - tensor->begin != bytes)
        return fault(file, tensor->name, ERR_INVALID, "data_offsets and shape disagree", err);
    return ERR_OK;
}

static enum err_code take_notes(struct safetensors *file, json_t *notes, struct err *err)
{
    const char *key;
    json_t *text;
    bool texts = json_is_object(notes);
    json_object_foreach(notes, key, text) texts = texts && json_is_string(text);
    if (!texts)
        return err_set(err, ERR_INVALID, "%s: " METADATA " is not a map of texts", file->path);
    file->notes = json_incref(notes);
    return ERR_OK;
}

static int by_place(const void *a, const void *b)
{
    const struct safetensor *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

static int by_name(const void *a, const void *b)
{
    const struct safetensor *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static enum err_code check_tiling(const struct safetensors *file, struct err *err)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < file->count; at = file->tensors[i++].end)
        if (file->tensors[i].begin != at)
            return fault(file, file->tensors[i].name, ERR_INVALID,
                         file->tensors[i].begin < at ? "overlaps the tensor before it"
                                                     : "nothing owns the bytes before it",
                         err);
    if (at != file->bytes)
        return err_set(err, ERR_INVALID, "%s: bytes after the last tensor", file->path);
    return ERR_OK;
}

static enum err_code take_header(struct safetensors *file, json_t *header, struct err *err)
{
    const char *name = NULL;
    json_t *json = NULL;
    file->tensors = arena_alloc(&file->arena, json_object_size(header) * sizeof *file->tensors);
    json_object_foreach(header, name, json)
    {
        if (strcmp(name, METADATA) == 0) {
            TRY(take_notes(file, json, err));
            continue;
        }
        struct safetensor *tensor = &file->tensors[file->count++];
        tensor->name = arena_strdup(&file->arena, name);
        TRY(take_tensor(file, json, tensor, err));
    }
    qsort(file->tensors, file->count, sizeof *file->tensors, by_place);
    TRY(check_tiling(file, err));
    qsort(file->tensors, file->count, sizeof *file->tensors, by_name);
    return ERR_OK;
}

static enum err_code read_header(struct safetensors *file, int fd, uint64_t length, struct err *err)
{
    char *text = xmalloc(length + 1);
    json_error_t fault;
    enum err_code rc = read_at(fd, file->path, text, length, LENGTH_BYTES, err);
    json_t *header = rc == ERR_OK && length > 0 && text[0] == '{'
                         ? json_text_read(text, length, JSON_REJECT_DUPLICATES, &fault)
                         : NULL;
    if (rc == ERR_OK && header)
        rc = take_header(file, header, err);
    else if (rc == ERR_OK)
        rc = err_set(err, ERR_INVALID, "%s: the header is not an object of JSON: %s", file->path,
                     length > 0 && text[0] == '{' ? fault.text : "it does not begin with '{'");
    json_decref(header);
    free(text);
    return rc;
}

static enum err_code read_file(struct safetensors *file, int fd, struct err *err)
{
    struct stat stat;
    uint64_t length = 0;
    if (fstat(fd, &stat) != 0)
        return err_set(err, ERR_IO, "stat %s: %s", file->path, strerror(errno));
    if (!S_ISREG(stat.st_mode))
        return err_set(err, ERR_INVALID, "%s is not a regular file", file->path);
    TRY(read_at(fd, file->path, &length, LENGTH_BYTES, 0, err));
    if (length > SAFETENSORS_HEADER_MOST)
        return err_set(err, ERR_INVALID, "%s: its header would be over 100 MB", file->path);
    file->data = LENGTH_BYTES + length;
    if (file->data > (uint64_t)stat.st_size)
        return err_set(err, ERR_INVALID, "%s: truncated within its header", file->path);
    file->bytes = (uint64_t)stat.st_size - file->data;
    return read_header(file, fd, length, err);
}

/* ---- reading ---- */

static enum err_code open_path(const char *path, int *fd, struct err *err)
{
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not make us wait */
    return *fd >= 0 ? ERR_OK : err_set(err, ERR_IO, "open %s: %s", path, strerror(errno));
}

enum err_code safetensors_open(const char *path, struct safetensors **out, struct err *err)
{
    int fd = -1;
    *out = NULL;
    TRY(open_path(path, &fd, err));
    struct safetensors *file = xmalloc(sizeof *file);
    *file = (struct safetensors){0};
    file->path = arena_strdup(&file->arena, path);
    const enum err_code rc = read_file(file, fd, err);
    close(fd);
    if (rc == ERR_OK)
        *out = file;
    else
        safetensors_close(file);
    return rc;
}

void safetensors_close(struct safetensors *file)
{
    if (!file)
        return;
    json_decref(file->notes);
    arena_free(&file->arena);
    free(file);
}

const struct safetensor *safetensors_list(const struct safetensors *file, uint32_t *count)
{
    *count = file->count;
    return file->tensors;
}

const struct safetensor *safetensors_find(const struct safetensors *file, const char *name)
{
    const struct safetensor key = {.name = name};
    return file->count ? bsearch(&key, file->tensors, file->count, sizeof key, by_name) : NULL;
}

const char *safetensors_note(const struct safetensors *file, const char *key)
{
    return json_string_value(json_object_get(file->notes, key));
}

/* IEEE half to single: subnormal ones are whole multiples of 2^-24. */
static uint32_t widen_half(uint32_t half)
{
    const uint32_t sign = (half & 0x8000) << 16, exponent = half >> 10 & 31, low = half & 0x3ff;
    const float subnormal = (float)low * 0x1p-24F;
    uint32_t bits = (exponent + 112) << 23 | low << 13;
    if (exponent == 0)
        memcpy(&bits, &subnormal, sizeof bits);
    return sign | (exponent == 31 ? 0x7f800000 | low << 13 : bits);
}

enum err_code safetensors_read(const struct safetensors *file, const struct safetensor *tensor,
                               uint64_t first, uint64_t count, float *values, struct err *err)
{
    const uint32_t dtype = dtype_of(tensor->dtype), bytes = dtypes[dtype].bytes;
    int fd = -1;
    assert(first + count <= safetensor_elements(tensor));
    if (dtype > F16)
        return fault(file, tensor->name, ERR_UNSUPPORTED, "not of F32, BF16 or F16", err);
    /* Halves are read into the second half of `values` and widened from the front: what is written
     * never catches up with what is still to be read. */
    char *raw = (char *)values + (dtype == F32 ? 0 : 2 * count);
    TRY(open_path(file->path, &fd, err));
    const enum err_code rc = read_at(fd, file->path, raw, count * bytes,
                                     file->data + tensor->begin + first * bytes, err);
    close(fd);
    for (uint64_t i = 0; i < count && rc == ERR_OK && dtype != F32; i++) {
        uint16_t half;
        memcpy(&half, raw + 2 * i, sizeof half);
        const uint32_t bits = dtype == BF16 ? (uint32_t)half << 16 : widen_half(half);
        memcpy(&values[i], &bits, sizeof bits);
    }
    return rc;
}

/* ---- writing ---- */

struct safetensors_writer {
    struct arena arena; /* owns all of it */
    char *path;
    int fd;
    uint64_t *place; /* (tensors + 1) where each one's bytes begin in the file */
    uint32_t count;
    uint64_t left; /* bytes not yet written */
    struct hash hash;
    bool in_order; /* hash is of all that was written */
};

/* What goes on where the last one ended is hashed. */
static enum err_code put(struct safetensors_writer *writer, const void *from, uint64_t bytes,
                         uint64_t at, struct err *err)
{
    if (bytes == 0)
        return ERR_OK;
    writer->in_order = writer->in_order && at == writer->hash.bytes;
    if (writer->in_order)
        hash_add(&writer->hash, from, bytes);
    return write_at(writer->fd, writer->path, from, bytes, at, err);
}

/* The header's text and the tensors' places, from 0; NULL: a name twice, not in UTF-8, reserved. */
static char *header_text(const struct safetensor *tensors, uint32_t count,
                         const struct safetensors_note *notes, uint32_t note_count, uint64_t *place)
{
    json_t *header = json_object(), *metadata = json_object();
    int failures = note_count ? json_object_set(header, METADATA, metadata) : 0;
    for (uint32_t i = 0; i < note_count; i++)
        failures |= json_object_set_new(metadata, notes[i].key, json_string(notes[i].text));
    uint64_t at = 0;
    for (uint32_t i = 0; i < count; i++) {
        const struct safetensor *tensor = &tensors[i];
        json_t *shape = json_array();
        for (uint32_t d = 0; d < tensor->rank; d++)
            json_array_append_new(shape, json_integer((json_int_t)tensor->dim[d]));
        place[i] = at;
        at += safetensor_elements(tensor) * sizeof(float);
        failures |= json_object_get(header, tensor->name) || strcmp(tensor->name, METADATA) == 0;
        failures |=
            json_object_set_new(header, tensor->name,
                                json_pack("{s:s, s:o, s:[I, I]}", "dtype", "F32", "shape", shape,
                                          "data_offsets", (json_int_t)place[i], (json_int_t)at));
    }
    place[count] = at;
    char *text = failures ? NULL : json_dumps(header, JSON_COMPACT);
    json_decref(metadata);
    json_decref(header);
    return text;
}

static enum err_code write_header(struct safetensors_writer *writer, const char *text,
                                  struct err *err)
{
    /* Spaces at the end align the data to 8 bytes, as the format's own library does. */
    const size_t used = strlen(text);
    const uint64_t length = (used + 7) / 8 * 8;
    writer->left = writer->place[writer->count];
    for (uint32_t i = 0; i <= writer->count; i++)
        writer->place[i] += LENGTH_BYTES + length;
    if (length > SAFETENSORS_HEADER_MOST)
        return err_set(err, ERR_UNSUPPORTED, "%s: a header over 100 MB", writer->path);
    TRY(put(writer, &length, LENGTH_BYTES, 0, err));
    TRY(put(writer, text, used, LENGTH_BYTES, err));
    return put(writer, "       ", length - used, LENGTH_BYTES + used, err);
}

enum err_code safetensors_create(const char *path, const struct safetensor *tensors, uint32_t count,
                                 const struct safetensors_note *notes, uint32_t note_count,
                                 struct safetensors_writer **out, struct err *err)
{
    struct arena arena = {0};
    struct safetensors_writer *writer = arena_alloc(&arena, sizeof *writer);
    *out = NULL;
    writer->path = arena_strdup(&arena, path);
    writer->place = arena_alloc(&arena, (count + (size_t)1) * sizeof *writer->place);
    writer->count = count;
    writer->in_order = true;
    hash_begin(&writer->hash);
    writer->arena = arena;
    char *text = header_text(tensors, count, notes, note_count, writer->place);
    writer->fd = text ? open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666) : -1;
    enum err_code rc = ERR_OK;
    if (!text)
        rc = err_set(err, ERR_INVALID, "%s: a name occurs twice or is not allowed", path);
    else if (writer->fd < 0)
        rc = err_set(err, ERR_IO, "create %s: %s", path, strerror(errno));
    else
        rc = write_header(writer, text, err);
    free(text);
    if (rc != ERR_OK)
        return safetensors_finish(writer, rc, err);
    *out = writer;
    return ERR_OK;
}

enum err_code safetensors_write(struct safetensors_writer *writer, uint32_t tensor, uint64_t first,
                                uint64_t count, const float *values, struct err *err)
{
    const uint64_t at = writer->place[tensor] + first * sizeof *values;
    const uint64_t bytes = count * sizeof *values;
    assert(tensor < writer->count && at + bytes <= writer->place[tensor + 1]);
    assert(bytes <= writer->left);
    writer->left -= bytes;
    return put(writer, values, bytes, at, err);
}

bool safetensors_sum(const struct safetensors_writer *writer, uint64_t *sum)
{
    *sum = hash_end(&writer->hash);
    return writer->in_order;
}

enum err_code safetensors_sum_file(const char *path, uint64_t *sum, struct err *err)
{
    int fd = -1;
    struct hash hash;
    ssize_t got;
    TRY(open_path(path, &fd, err));
    char *piece = xmalloc(SUM_BYTES);
    hash_begin(&hash);
    while ((got = read(fd, piece, SUM_BYTES)) > 0 || (got < 0 && errno == EINTR))
        if (got > 0)
            hash_add(&hash, piece, (size_t)got);
    const enum err_code rc =
        got < 0 ? err_set(err, ERR_IO, "read %s: %s", path, strerror(errno)) : ERR_OK;
    free(piece);
    close(fd);
    *sum = hash_end(&hash);
    return rc;
}

enum err_code safetensors_finish(struct safetensors_writer *writer, enum err_code rc,
                                 struct err *err)
{
    if (!writer)
        return rc;
    if (rc == ERR_OK && writer->left > 0)
        rc = err_set(err, ERR_INTERNAL, "%s: not all of it was written", writer->path);
    if (rc == ERR_OK && fsync(writer->fd) != 0)
        rc = err_set(err, ERR_IO, "finish %s: %s", writer->path, strerror(errno));
    if (writer->fd >= 0 && close(writer->fd) != 0 && rc == ERR_OK)
        rc = err_set(err, ERR_IO, "finish %s: %s", writer->path, strerror(errno));
    struct arena arena = writer->arena; /* which holds the writer itself */
    arena_free(&arena);
    return rc;
}

/* data.c - see data.h. Files are mapped whole; a sequence that would run over the end starts again
 * at the beginning. */
#include "runtime/execution/data.h"

#include "base/arena.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LLMC_MAGIC = 20240520, LLMC_HEADER_BYTES = 1024 };

struct data {
    enum data_kind kind;
    uint32_t vocab;
    const unsigned char *bytes; /* mapped; NULL: the generator */
    size_t mapped, start;       /* bytes in all; where tokens begin */
    uint64_t tokens;
    char path[512];
};

static uint32_t token_bytes(enum data_kind kind)
{
    return kind == DATA_UINT32 ? 4 : kind == DATA_UINT16 ? 2 : 1;
}

static void skip_header(struct data *data)
{
    uint32_t magic = 0;
    if (data->mapped >= LLMC_HEADER_BYTES)
        memcpy(&magic, data->bytes, sizeof magic);
    if (magic != LLMC_MAGIC)
        return;
    data->kind = DATA_UINT16;
    data->start = LLMC_HEADER_BYTES;
}

static enum err_code map_file(struct data *data, const char *path, struct err *err)
{
    struct stat st;
    const int file = open(path, O_RDONLY);
    if (file < 0 || fstat(file, &st) != 0) {
        const enum err_code rc = err_set(err, ERR_INVALID, "open %s: %s", path, strerror(errno));
        if (file >= 0)
            close(file);
        return rc;
    }
    if (!S_ISREG(st.st_mode) || st.st_size == 0) {
        close(file);
        return err_set(err, ERR_INVALID, "%s is not a file with tokens in it", path);
    }
    data->mapped = (size_t)st.st_size;
    void *mapped = mmap(NULL, data->mapped, PROT_READ, MAP_PRIVATE, file, 0);
    close(file);
    if (mapped == MAP_FAILED)
        return err_set(err, ERR_IO, "map %s: %s", path, strerror(errno));
    data->bytes = mapped;
    return ERR_OK;
}

enum err_code data_open(const char *path, enum data_kind kind, uint32_t vocab, struct data **out,
                        struct err *err)
{
    struct data *data = xmalloc(sizeof *data);
    *out = NULL;
    *data = (struct data){.kind = path ? kind : DATA_REFERENCE, .vocab = vocab};
    if (path) {
        snprintf(data->path, sizeof data->path, "%s", path);
        const enum err_code rc = map_file(data, path, err);
        if (rc != ERR_OK) {
            free(data);
            return rc;
        }
        skip_header(data);
        data->tokens = (data->mapped - data->start) / token_bytes(data->kind);
        if (data->tokens < 2) {
            data_close(data);
            return err_set(err, ERR_INVALID, "%s holds fewer than two tokens", path);
        }
    }
    *out = data;
    return ERR_OK;
}

void data_close(struct data *data)
{
    if (!data)
        return;
    if (data->bytes)
        munmap((void *)(uintptr_t)data->bytes, data->mapped);
    free(data);
}

/* tests/data/numerics/README.md: i is the position in the step's (rows, seq + 1) array. */
static int64_t reference_token(uint32_t step, uint64_t i, uint32_t vocab)
{
    uint32_t x = (uint32_t)(i * 1103515245U + (uint64_t)(step + 1) * 12345U * 7919U);
    x = (x ^ (x >> 15)) * 2246822519U;
    return (int64_t)((x >> 8) % vocab);
}

static enum err_code file_token(const struct data *data, uint64_t index, int64_t *out,
                                struct err *err)
{
    const uint32_t size = token_bytes(data->kind);
    const size_t offset = data->start + (size_t)(index % data->tokens) * size;
    uint32_t token = 0;
    memcpy(&token, data->bytes + offset, size); /* little-endian, as the files are */
    if (token >= data->vocab)
        return err_set(err, ERR_INVALID,
                       "%s: token %" PRIu32 " at byte %zu: the model has %" PRIu32, data->path,
                       token, offset, data->vocab);
    *out = token;
    return ERR_OK;
}

enum err_code data_check(const struct data *data, uint64_t tokens, struct err *err)
{
    const uint64_t all = data->kind == DATA_REFERENCE ? 0 : data->tokens;
    int64_t token;
    for (uint64_t i = 0; i < tokens && i < all; i++)
        TRY(file_token(data, i, &token, err));
    return ERR_OK;
}

enum err_code data_row(struct data *data, uint32_t step, uint32_t row, uint32_t rows, uint32_t seq,
                       int64_t *tokens, struct err *err)
{
    const uint64_t length = (uint64_t)seq + 1;
    for (uint64_t i = 0; i < length; i++) {
        if (data->kind == DATA_REFERENCE) {
            tokens[i] = reference_token(step, row * length + i, data->vocab);
            continue;
        }
        const uint64_t first = ((uint64_t)step * rows + row) * seq;
        TRY(file_token(data, first + i, &tokens[i], err));
    }
    return ERR_OK;
}

/* fuzz_data.c - any bytes as tokens, of each kind: every row that can be asked for is of tokens
 * that the model has, or is refused. */
#include "runtime/execution/data.h"

#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

enum { VOCAB = 200, SEQ = 7, ROWS = 3 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_as(const char *path, enum data_kind kind)
{
    static const uint32_t steps[] = {0, 1, 1000000000, UINT32_MAX};
    struct data *data;
    struct err err = {0};
    if (data_open(path, kind, VOCAB, &data, &err) != ERR_OK)
        return;
    for (int s = 0; s < 4; s++)
        for (uint32_t row = 0; row < ROWS; row++) {
            int64_t tokens[SEQ + 1];
            struct err refused = {0};
            if (data_row(data, steps[s], row, ROWS, SEQ, tokens, &refused) != ERR_OK)
                continue;
            for (int i = 0; i <= SEQ; i++)
                if (tokens[i] < 0 || tokens[i] >= VOCAB)
                    abort();
        }
    data_close(data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[] = "/tmp/fuzz_data.XXXXXX";
    const int fd = mkstemp(path);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    close(fd);
    read_as(path, DATA_BYTES);
    read_as(path, DATA_UINT16);
    read_as(path, DATA_UINT32);
    unlink(path);
    return 0;
}

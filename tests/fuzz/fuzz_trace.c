/* fuzz_trace.c - any bytes as a trace: what is read can be written, and read again. */
#include "traces/trace.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[] = "/tmp/fuzz_trace.XXXXXX";
    const int file = mkstemp(path);
    if (file < 0 || write(file, data, size) != (ssize_t)size)
        abort();
    close(file);
    struct trace *trace = NULL, *again = NULL;
    struct err err = {0};
    if (trace_read(path, &trace, &err) == ERR_OK) {
        if (trace_write(trace, path, &err) != ERR_OK || trace_read(path, &again, &err) != ERR_OK) {
            fprintf(stderr, "%s\n", err.text);
            abort();
        }
    }
    trace_free(again);
    trace_free(trace);
    unlink(path);
    return 0;
}

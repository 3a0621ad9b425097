/* fuzz_safetensors.c - any bytes as a file of tensors: what can be opened can be read, to its last
 * element. */
#include "runtime/state/safetensors.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

enum { MOST_ELEMENTS = 1 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_tensor(const struct safetensors *file, const struct safetensor *tensor)
{
    const uint64_t elements = safetensor_elements(tensor);
    struct err err = {0};
    if (safetensors_find(file, tensor->name) != tensor || elements > MOST_ELEMENTS)
        return;
    float *values = malloc(elements * sizeof *values + 1);
    if (values && elements > 0 &&
        safetensors_read(file, tensor, 0, elements, values, &err) == ERR_OK)
        safetensors_read(file, tensor, elements - 1, 1, values, &err);
    free(values);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[] = "/tmp/fuzz_safetensors.XXXXXX";
    const int fd = mkstemp(path);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    close(fd);
    struct safetensors *file;
    struct err err = {0};
    uint32_t count = 0;
    if (safetensors_open(path, &file, &err) == ERR_OK) {
        const struct safetensor *tensors = safetensors_list(file, &count);
        safetensors_note(file, "step");
        for (uint32_t i = 0; i < count; i++)
            read_tensor(file, &tensors[i]);
        safetensors_close(file);
    }
    unlink(path);
    return 0;
}

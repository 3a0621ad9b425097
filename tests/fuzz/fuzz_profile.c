/* fuzz_profile.c - any bytes as a profile: what is read can be planned with. */
#include "cost/cost.h"
#include "machine/profile.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[] = "/tmp/fuzz_profile.XXXXXX";
    const int file = mkstemp(path);
    if (file < 0 || write(file, data, size) != (ssize_t)size)
        abort();
    close(file);
    struct profile profile;
    struct err err = {0};
    if (profile_find("h100-sxm", &profile, &err) != ERR_OK)
        abort();
    const enum err_code rc = profile_read(path, &profile, &err);
    if ((rc == ERR_OK) != (err.code == ERR_OK))
        abort();
    for (int key = 0; rc == ERR_OK && key < PROFILE_KEYS; key++)
        if (!isfinite(profile_value(&profile, (enum profile_key)key)))
            abort();
    profile_free(&profile);
    unlink(path);
    return 0;
}

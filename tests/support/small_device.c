/* small_device.c - see small_device.h. */
#include "tests/support/small_device.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

uint64_t device_new(void *context, uint64_t bytes)
{
    struct device *device = context;
    if (device->used + bytes > device->budget)
        return 0;
    device->used += bytes;
    return ((device->calls++ * 40503 & 0xffff) + 1) << 32;
}

static void device_drop(void *context, uint64_t address, uint64_t bytes)
{
    struct device *device = context;
    assert_true(address != 0 && device->used >= bytes);
    device->used -= bytes;
}

struct allocator *new_on_device(struct allocator_settings settings, struct device *device)
{
    settings.segment_new = device_new;
    settings.segment_drop = device_drop;
    settings.context = device;
    return allocator_new(&settings);
}

void assert_sound(const struct allocator *allocator)
{
    struct err err = {0};
    if (allocator_check(allocator, &err) != ERR_OK)
        fail_msg("%s", err.text);
}

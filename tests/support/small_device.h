/* small_device.h - a device with little memory that hands out addresses in no useful order. */
#ifndef SHARDPLAN_SMALL_DEVICE_H
#define SHARDPLAN_SMALL_DEVICE_H

#include "memory/allocator.h"

#include <stdint.h>

/* Bytes it has, bytes in use, segments made so far. Begin with {.budget = bytes}. */
struct device {
    uint64_t budget, used, calls;
};

/* Address of a new segment, or 0 where the budget does not suffice: allocator_settings.segment_new,
 * whose context is the device. */
uint64_t device_new(void *context, uint64_t bytes);

/* An allocator of these settings whose segments come from the device, which must outlive it. To be
 * freed with allocator_free. */
struct allocator *new_on_device(struct allocator_settings settings, struct device *device);

/* Fails the test with what allocator_check says is broken. */
void assert_sound(const struct allocator *allocator);

#endif

/* device.c - the callers of a device's table: they assert what device.h promises and count.
 *
 * Everything is checked here once, so that a backend need not, and a second backend cannot be
 * laxer than the first. */
#include "runtime/device/device.h"

#include <assert.h>

static const struct device_ops *ops_of(const struct device *dev)
{
    assert(dev && dev->ops && dev->ops->version == DEVICE_OPS_VERSION);
    return dev->ops;
}

void device_close(struct device *dev)
{
    if (dev)
        ops_of(dev)->close(dev);
}

uint64_t device_segment_new(struct device *dev, uint64_t bytes)
{
    assert(bytes > 0);
    return ops_of(dev)->segment_new(dev, bytes);
}

void device_segment_drop(struct device *dev, uint64_t address, uint64_t bytes)
{
    assert(address != 0 && bytes > 0);
    ops_of(dev)->segment_drop(dev, address, bytes);
}

void *device_host_new(struct device *dev, uint64_t bytes)
{
    assert(bytes > 0);
    return ops_of(dev)->host_new(dev, bytes);
}

void device_host_drop(struct device *dev, void *memory, uint64_t bytes)
{
    if (memory)
        ops_of(dev)->host_drop(dev, memory, bytes);
}

enum err_code device_write(struct device *dev, uint64_t to, const void *from, uint64_t bytes,
                           struct err *err)
{
    assert(to != 0 && from && bytes > 0);
    return ops_of(dev)->write(dev, to, from, bytes, err);
}

enum err_code device_read(struct device *dev, void *to, uint64_t from, uint64_t bytes,
                          struct err *err)
{
    assert(to && from != 0 && bytes > 0);
    return ops_of(dev)->read(dev, to, from, bytes, err);
}

enum err_code device_prepare(struct device *dev, const struct work *works, uint32_t count,
                             struct err *err)
{
    if (!ops_of(dev)->prepare)
        return ERR_OK;
    assert(works || count == 0);
    return ops_of(dev)->prepare(dev, works, count, err);
}

enum err_code device_launch(struct device *dev, uint8_t stream, const struct work *work,
                            struct err *err)
{
    assert(stream < LANES_MOST && work && work->kind < WORK_KIND_COUNT);
    assert(work->operand || work->ins + work->outs == 0);
    dev->launches++;
    return ops_of(dev)->launch(dev, stream, work, err);
}

enum err_code device_record(struct device *dev, uint8_t stream, uint32_t event, struct err *err)
{
    assert(stream < LANES_MOST);
    return ops_of(dev)->record(dev, stream, event, err);
}

enum err_code device_wait(struct device *dev, uint8_t stream, uint32_t event, struct err *err)
{
    assert(stream < LANES_MOST);
    return ops_of(dev)->wait(dev, stream, event, err);
}

enum err_code device_hold(struct device *dev, uint32_t event, struct err *err)
{
    return ops_of(dev)->hold(dev, event, err);
}

enum err_code device_sync(struct device *dev, struct err *err)
{
    return ops_of(dev)->sync(dev, err);
}

void device_time_work(struct device *dev, bool on)
{
    if (ops_of(dev)->time_work)
        dev->ops->time_work(dev, on);
}

/* host_device.h - opens the host backend of device.h. */
#ifndef SHARDPLAN_HOST_DEVICE_H
#define SHARDPLAN_HOST_DEVICE_H

#include "base/kernel.h"
#include "runtime/comm/comm.h"
#include "runtime/device/device.h"

/* An arena of `memory_bytes`, events numbered below `events`, a thread for each of `lanes`,
 * collectives through `comm` (lent until close). Without comm (NULL) there is a single rank, or one
 * that rehearses: a collective copies this rank's own part wherever a peer's would come, and takes
 * work.wait_s. The caller owns *out: device_close. */
enum err_code device_open_host(uint64_t memory_bytes, uint32_t events, struct lane_list lanes,
                               struct comm *comm, struct device **out, struct err *err);

/* What a stream of a device without comm does of a piece of work, on the calling thread. */
enum err_code host_run_alone(const struct work *work, struct err *err);

#endif

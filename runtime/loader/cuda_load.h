/* cuda_load.h - opens the cuda backend of device.h, which is a shared object: cuda/backend.h is
 * what it and the program say to each other. */
#ifndef SHARDPLAN_CUDA_LOAD_H
#define SHARDPLAN_CUDA_LOAD_H

#include "runtime/cuda/backend.h"
#include "runtime/device/device.h"

/* Loads the shared object, from the file that SHARDRUN_CUDA names or from where the program was
 * built or installed, and hands it the settings (lent for the call; `comm`, `host` and what they
 * point to until close). ERR_UNSUPPORTED: it is not there, or is of another version; ERR_DEVICE: no
 * driver, no GPU, or one that fails. The caller owns *out: device_close. */
enum err_code device_open_cuda(const struct cuda_settings *settings, struct device **out,
                               struct err *err);

#endif

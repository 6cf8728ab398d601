/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/device/device_file.h - reading and writing device files */
#ifndef MERAK_PARTITIONER_DEVICE_DEVICE_FILE_H
#define MERAK_PARTITIONER_DEVICE_DEVICE_FILE_H

#include "partitioner/device/device.h"

enum merak_status merak_device_load(const char *path,
                                    struct merak_device *device,
                                    struct merak_error *err) MERAK_CHECKED;

/* A calibration of GPUs is for NCCL, unless it says otherwise. */
bool merak_device_is_direct_by_name(const struct merak_device *device);
/* Log one line if it has times of kernels whose names are not those of ops. */
void merak_device_check_ops(const char *path,
                            const struct merak_device *device);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* cmd/calibrate.h - what `merak calibrate` measures in files of their own */
#ifndef MERAK_CMD_CALIBRATE_H
#define MERAK_CMD_CALIBRATE_H

#include "kernels/kernels.h"
#include "partitioner/search/device.h"

/* For qsort(). */
int calibrate_compare_doubles(const void *a, const void *b);
/* Time every kernel of small models of this dtype, in many sizes. */
enum merak_status calibrate_kernels(const struct merak_backend *backend,
                                    enum merak_dtype dtype,
                                    struct merak_rates *rates,
                                    struct merak_error *err) MERAK_CHECKED;

#endif

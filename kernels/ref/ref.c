/* SPDX-License-Identifier: Apache-2.0 */
/* ref.c - the reference backend's table */
#include "config.h"

#include "kernels/ref/ref.h"
#include "kernels/backends.h"

#define ROW(op, cpu, cuda) {.name = #op, .fn = merak_ref_##op},

static const struct merak_kernel table[] = {
    MERAK_KERNEL_OPS(ROW){0},
};

const struct merak_backend merak_backend_ref = {
    .name = "ref",
    .kernel = table,
};

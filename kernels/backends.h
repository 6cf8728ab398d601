/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/backends.h - the built-in backends */
#ifndef MERAK_KERNELS_BACKENDS_H
#define MERAK_KERNELS_BACKENDS_H

#include "kernels/kernels.h"

/* The one compiled for this machine's instruction set, always the same. */
const struct merak_backend *merak_backend_cpu(void);
extern const struct merak_backend merak_backend_ref;
extern const struct merak_backend merak_backend_emu;
extern const struct merak_backend merak_backend_fake;

#endif

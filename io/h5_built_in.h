/* SPDX-License-Identifier: Apache-2.0 */
/* io/h5_built_in.h - what can be used of HDF5 without its headers */
#ifndef MERAK_IO_H5_BUILT_IN_H
#define MERAK_IO_H5_BUILT_IN_H

#include <stdbool.h>

/* Was Merak built with HDF5?  If not, there are no checkpoints and no traces:
 * their functions fail with MERAK_ERR_UNSUPPORTED. */
bool merak_h5_is_built_in(void);

/* Have HDF5 allocate what it keeps permanently (caches, free lists), so that a
 * later checkpoint takes little memory.  Writes nothing; failures are
 * harmless. */
void merak_h5_warm_up(void);

#endif

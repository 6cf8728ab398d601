/* SPDX-License-Identifier: Apache-2.0 */
/* no_h5.c - HDF5 in a build without it */
#include "config.h"

#include "io/h5_built_in.h"

bool merak_h5_is_built_in(void)
{
    return false;
}

void merak_h5_warm_up(void)
{
}

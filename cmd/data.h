/* SPDX-License-Identifier: Apache-2.0 */
/* cmd/data.h - shared by `merak data pack` and `merak data show` */
#ifndef MERAK_CMD_DATA_H
#define MERAK_CMD_DATA_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "merak/status.h"
#include "runtime/runtime.h"

/* Each gets argv from its name on and returns the exit code. */
int merak_data_pack(int argc, char **argv);
int merak_data_show(int argc, char **argv);

#endif

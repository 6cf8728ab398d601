/* SPDX-License-Identifier: Apache-2.0 */
/* merak/merak.h - all of the public API */
#ifndef MERAK_H
#define MERAK_H

#include "merak/model.h"
#include "merak/op.h"
#include "merak/status.h"
#include "merak/train.h"
#include "merak/types.h"

#endif

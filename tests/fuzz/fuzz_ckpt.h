/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_ckpt.h - a small checkpoint that the targets of checkpoints change */
#ifndef MERAK_TESTS_FUZZ_CKPT_H
#define MERAK_TESTS_FUZZ_CKPT_H

#include "fuzz/fuzz.h"

#include "io/ckpt/ckpt_impl.h"

enum { FUZZ_TENSORS = 2, FUZZ_ELEMENTS = 24 };

/* Where its step is, made on the first call. */
const char *fuzz_ckpt(void);
/* A piece that is the whole of tensor i, with data of FUZZ_ELEMENTS. */
struct merak_ckpt_piece fuzz_piece(int i, float *data);

#endif

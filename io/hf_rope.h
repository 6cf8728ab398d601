/* SPDX-License-Identifier: Apache-2.0 */
/* io/hf_rope.h - rotary positions as config.json has them */
#ifndef MERAK_IO_HF_ROPE_H
#define MERAK_IO_HF_ROPE_H

#include "io/hf_config.h"
#include "io/hf_reader.h"

/*
 * Fill rope_theta and rope_scaling from rope_theta, rope_scaling (which wins
 * where a file has both) or rope_parameters, and partial_rotary_factor; head_dim and positions are there
 * already.  Kinds: default, linear, dynamic, llama3, yarn and longrope, of phi3
 * the first and the last; others are refused by name.
 */
void merak_hf_rope_read(struct merak_hf_reader *r, struct merak_hf_config *c);

#endif

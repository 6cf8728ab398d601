/* SPDX-License-Identifier: Apache-2.0 */
/* io/hf_rope.h - rotary positions in config.json */
#ifndef MERAK_IO_HF_ROPE_H
#define MERAK_IO_HF_ROPE_H

#include "io/hf_config.h"
#include "io/hf_family.h"
#include "io/hf_reader.h"

/*
 * Fill rope_theta and rope_scaling from the fields rope_theta, rope_scaling or
 * rope_parameters (the former has precedence) and partial_rotary_factor;
 * head_dim and positions are set already.  Kinds: default, linear, dynamic,
 * llama3, yarn and longrope; for a family with rope_long only default and
 * longrope.  Others are refused by name.
 */
void merak_hf_rope_read(struct merak_hf_reader *r,
                        const struct merak_hf_family *f,
                        struct merak_hf_config *c);

#endif

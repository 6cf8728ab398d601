/* SPDX-License-Identifier: Apache-2.0 */
/* hf_describe.h - what files that describe models of Hugging Face families
 * share */
#ifndef MERAK_IO_HF_DESCRIBE_H
#define MERAK_IO_HF_DESCRIBE_H

#include "io/hf_config.h"

/* The output layer `name`, and the loss. */
struct merak_value *merak_hf_head(struct merak_model *m,
                                  const struct merak_hf_config *c,
                                  struct merak_value *x,
                                  struct merak_value *table, const char *name);
/* False if the run's sequences are longer than the model's positions. */
bool merak_hf_check_seq(struct merak_model *m, const struct merak_hf_config *c);
/* A norm with a mean over the hidden width: `name`.weight and .bias. */
struct merak_value *merak_hf_layernorm(struct merak_model *m,
                                       const struct merak_hf_config *c,
                                       struct merak_value *x, const char *name);
/* x of an MLP without a gate, between its matrices. */
struct merak_value *merak_hf_activate(struct merak_model *m,
                                      const struct merak_hf_config *c,
                                      struct merak_value *x);
/* Of the encoders and decoders of each family. */
void merak_hf_describe_bert(struct merak_model *m,
                            const struct merak_hf_config *c);
void merak_hf_describe_t5(struct merak_model *m,
                          const struct merak_hf_config *c);
void merak_hf_describe_gpt2(struct merak_model *m,
                            const struct merak_hf_config *c);

#endif

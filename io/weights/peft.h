/* SPDX-License-Identifier: Apache-2.0 */
/* io/weights/peft.h - read adapters from a folder of PEFT
 *
 * The format is described in export_peft.c and peft_config.c.
 */
#ifndef MERAK_IO_WEIGHTS_PEFT_H
#define MERAK_IO_WEIGHTS_PEFT_H

#include "io/hf_config.h"
#include "io/weights/named.h"
#include "merak/model.h"

struct merak_peft;

/*
 * Open a folder with the adapters of a model.
 *
 *   model  in   borrowed for the call
 *
 * MERAK_ERR_UNSUPPORTED if they are not those of one --lora-rank: then the
 * message says which are not.  MERAK_ERR_MISMATCH if they are of another
 * model.
 */
enum merak_status merak_peft_open(const char *dir,
                                  const struct merak_hf_config *model,
                                  struct merak_peft **peft_p,
                                  struct merak_error *err) MERAK_CHECKED;
void merak_peft_close(struct merak_peft *peft);
/* The options that make these adapters. */
const struct merak_lora *merak_peft_lora(const struct merak_peft *peft);
/* How many parameters there are, two per layer. */
int merak_peft_count(const struct merak_peft *peft);
/* Is it one of them? */
bool merak_peft_has(const struct merak_peft *peft, const char *param);
/* Read the parameter `param` whole. */
enum merak_status merak_peft_read(const struct merak_peft *peft,
                                  const struct merak_named *param, float *data,
                                  struct merak_error *err) MERAK_CHECKED;

#endif

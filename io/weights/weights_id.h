/* SPDX-License-Identifier: Apache-2.0 */
/* io/weights/weights_id.h - which numbers a model has: a checksum of some
 * elements of every parameter
 *
 * They are rounded to bf16, so that a run's master weights, an export of them
 * in any type, and what a decoder computes with are the same model.
 */
#ifndef MERAK_IO_WEIGHTS_ID_H
#define MERAK_IO_WEIGHTS_ID_H

#include <stdbool.h>
#include <stdint.h>

#include "io/ckpt/ckpt.h"
#include "merak/status.h"

struct merak_graph;
struct merak_value;

struct merak_weights_id {
    uint64_t base;  /* of all parameters but adapters */
    uint64_t whole; /* of all */
};

/* Fill piece->data of a parameter. */
typedef enum merak_status (*merak_weights_read_fn)(
    void *arg, const struct merak_value *param,
    const struct merak_ckpt_piece *piece, struct merak_error *err);

/*
 *   adapters  those of the graph are there to be read; else `whole` is `base`
 */
enum merak_status merak_weights_identify(const struct merak_graph *graph,
                                         bool adapters,
                                         merak_weights_read_fn read, void *arg,
                                         struct merak_weights_id *id,
                                         struct merak_error *err) MERAK_CHECKED;

#endif

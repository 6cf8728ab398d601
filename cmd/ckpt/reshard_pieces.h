/* SPDX-License-Identifier: Apache-2.0 */
/* cmd/ckpt/reshard_pieces.h - what each rank of a training run would save */
#ifndef MERAK_CMD_CKPT_RESHARD_PIECES_H
#define MERAK_CMD_CKPT_RESHARD_PIECES_H

#include "io/ckpt/ckpt.h"
#include "io/hf_config.h"

struct reshard_layout {
    int tp, pp, dp;
    int zero;
    const char *model; /* a folder or a config.json */
    enum merak_hf_unknown unknown;
};

struct reshard_pieces {
    struct merak_ckpt_piece *piece; /* data not set; names are borrowed */
    int n;
    int *first; /* by rank; [n_ranks + 1] */
    int n_ranks;
    size_t most_bytes; /* the largest piece */
    uint64_t bytes;    /* all of them */
};

/*
 * The pieces of `from` that the ranks of a layout would save: stages, tensor
 * parts and optimizer states are split as in training.
 *
 * MERAK_ERR_MISMATCH if the checkpoint is of another model, MERAK_ERR_CONFIG
 * if the degrees are not possible for it.
 */
enum merak_status reshard_pieces_init(struct reshard_pieces *pieces,
                                      const struct merak_ckpt *from,
                                      const struct reshard_layout *layout,
                                      struct merak_error *err) MERAK_CHECKED;
void reshard_pieces_fini(struct reshard_pieces *pieces);

#endif

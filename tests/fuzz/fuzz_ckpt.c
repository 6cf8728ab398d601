/* SPDX-License-Identifier: Apache-2.0 */
/* fuzz_ckpt.c - a small checkpoint that the targets of checkpoints change */
#include "config.h"

#include "fuzz/fuzz_ckpt.h"

#include <stdio.h>
#include <string.h>

static enum merak_status agree(void *arg, enum merak_status mine,
                               struct merak_error *err)
{
    (void)arg;
    (void)err;
    return mine;
}

/* Whole tensors of one rank. */
struct merak_ckpt_piece fuzz_piece(int i, float *data)
{
    static const struct {
        const char *name;
        size_t dim[2];
    } tensor[FUZZ_TENSORS] = {{"param/h.0.w", {4, 6}},
                              {"adam_m/h.0.w", {8, 3}}};
    struct merak_ckpt_piece piece = {
        .name = tensor[i].name, .flat_hi = FUZZ_ELEMENTS, .data = data};

    piece.shape.ndim = piece.box.ndim = 2;
    for (int d = 0; d < 2; d++) {
        piece.shape.dim[d] = tensor[i].dim[d];
        piece.box.full[d] = piece.box.len[d] = tensor[i].dim[d];
    }
    return piece;
}

const char *fuzz_ckpt(void)
{
    static char path[600];
    static float data[FUZZ_TENSORS][FUZZ_ELEMENTS];
    const struct merak_ckpt_state state = {.step = 7,
                                           .consumed_samples = 56,
                                           .consumed_tokens = 448,
                                           .seed = 3,
                                           .seq = 8,
                                           .global_batch = 8,
                                           .model_id = "0123456789abcdef",
                                           .data_id = "abc",
                                           .dtype = "fp32",
                                           .recipe = "lr 1e-3",
                                           .tp = 1,
                                           .pp = 1,
                                           .dp = 1};
    const struct merak_ckpt_keep keep = {.newest = 0};
    const struct merak_ckpt_comm comm = {.size = 1, .agree = agree};
    struct merak_ckpt_piece piece[FUZZ_TENSORS];
    struct merak_error err = {.text = ""};
    enum merak_status rc;

    if (path[0] != '\0')
        return path;
    for (int i = 0; i < FUZZ_TENSORS; i++) {
        for (int k = 0; k < FUZZ_ELEMENTS; k++)
            data[i][k] = (float)(i + k);
        piece[i] = fuzz_piece(i, data[i]);
    }
    rc = merak_ckpt_save(fuzz_dir(), &state, piece, FUZZ_TENSORS, keep, &comm,
                         &err);
    if (rc != MERAK_OK)
        fprintf(stderr, "%s\n", err.text);
    fuzz_must(rc == MERAK_OK, "a checkpoint is saved");
    snprintf(path, sizeof(path), "%s/step-00000007", fuzz_dir());
    return path;
}

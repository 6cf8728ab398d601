/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt_world.h - ranks that save a small model, as processes, for tests
 *
 * The model's elements are functions of (tensor, index, step), so what a
 * checkpoint must hold is known without having written it.
 */
#ifndef MERAK_TESTS_CKPT_WORLD_H
#define MERAK_TESTS_CKPT_WORLD_H

#include <sys/types.h>

#include "io/ckpt/ckpt.h"

struct world_tensor {
    const char *name;
    struct merak_shape shape;
    int split; /* dim that tp cuts, or -1 */
    bool zero; /* cut once more over dp if the layout says so */
};
extern const struct world_tensor world_tensors[];
extern const int world_n_tensors;

struct world_layout {
    int tp, pp, dp;
    bool zero;
};

/* Global index of element i of a box. */
size_t world_index(const struct merak_box *box, size_t i);
float world_value(const char *tensor, size_t index, uint64_t step);
struct merak_ckpt_state world_state(const struct world_layout *layout,
                                    uint64_t step);
/* What rank of the layout holds; with `all`, copies it does not write too.
 * Data is filled for `step`, or NaN if step is UINT64_MAX. */
int world_pieces(const struct world_layout *layout, int rank, bool all,
                 uint64_t step, struct merak_ckpt_piece **pieces_p);
void world_free(struct merak_ckpt_piece *pieces, int n);
/* All saves below: from a copy, and the tensors are overwritten as soon as the
 * save has begun. */
extern bool world_async;
/* If so: and all ranks are of one node, whose first writes for all. */
extern bool world_one_node;
/* Called by the rank, if not NULL, before and after that copy is made. */
extern void (*world_creating)(int rank, bool begun);
/* Save in tp*pp*dp processes; rank 0's status and error, after checking that
 * all ranks returned the same. */
enum merak_status world_save(const char *dir, const struct world_layout *layout,
                             uint64_t step, int keep, struct merak_error *err);
/* Save as one process, in this one. */
enum merak_status world_save_here(const char *dir, uint64_t step, int keep,
                                  struct merak_error *err);
/* Read everything in a layout and compare.  The step found, or -1 if nothing
 * could be loaded or a value was wrong (reason in err). */
int64_t world_check(const char *dir, const struct world_layout *layout,
                    struct merak_error *err);
/* Damage a file, or mend it again: another bit in the byte at `at`. */
void world_flip(const char *path, off_t at);
/* A fresh directory below $TMPDIR or /tmp, and its removal. */
void world_make_dir(char *dir, size_t size);
void world_remove_dir(const char *dir);

#endif

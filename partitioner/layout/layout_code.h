/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/layout/layout_code.h - a layout as a small number
 *
 * One decimal digit per axis, axis 0 the lowest: for searches that keep
 * tables by layout.
 */
#ifndef MERAK_PARTITIONER_LAYOUT_LAYOUT_CODE_H
#define MERAK_PARTITIONER_LAYOUT_LAYOUT_CODE_H

#include "partitioner/layout/layout.h"

enum {
    MERAK_CODE_R,
    MERAK_CODE_P,
    MERAK_CODE_M,
    MERAK_CODE_F,
    MERAK_CODE_SPLIT_0, /* + dim */
    MERAK_CODE_DIGITS = MERAK_CODE_SPLIT_0 + MERAK_MAX_DIMS
};

/* A layout as one number, with a digit per axis of the mesh, and back. */
int merak_layout_code(const struct merak_mesh *mesh,
                      const struct merak_layout *layout);
void merak_code_layout(const struct merak_mesh *mesh, int code,
                       struct merak_layout *layout);
/* Mean number of elements a rank holds. */
double merak_layout_words(const struct merak_mesh *mesh,
                          const struct merak_layout *layout,
                          const struct merak_shape *shape);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/refine/line.h - least squares of
 *
 *   seconds = rounds * latency + bytes * per_byte
 *
 * for measurements of links (rounds and bytes as in level.c).
 */
#ifndef MERAK_PARTITIONER_REFINE_LINE_H
#define MERAK_PARTITIONER_REFINE_LINE_H

/* Weighted normal equations. */
struct merak_line {
    double rr, rb, bb, r1, b1;
};

static inline void merak_line_add(struct merak_line *l, double weight,
                                  double rounds, double bytes, double seconds)
{
    l->rr += weight * rounds * rounds;
    l->rb += weight * rounds * bytes;
    l->bb += weight * bytes * bytes;
    l->r1 += weight * rounds * seconds;
    l->b1 += weight * bytes * seconds;
}

/* 0: the samples do not separate latency from bytes. */
static inline double merak_line_det(const struct merak_line *l)
{
    return l->rr * l->bb - l->rb * l->rb;
}

/* For a nonzero determinant. */
static inline void merak_line_solve(const struct merak_line *l,
                                    double *latency_p, double *per_byte_p)
{
    *latency_p = (l->r1 * l->bb - l->b1 * l->rb) / merak_line_det(l);
    *per_byte_p = (l->b1 * l->rr - l->r1 * l->rb) / merak_line_det(l);
}

/* For lines that share the latency but not the rate: eliminate a line's rate
 * and add what is left to the equation top = bottom * latency. */
static inline void merak_line_share_latency(const struct merak_line *l,
                                            double *top, double *bottom)
{
    *top += l->r1 - l->rb * l->b1 / l->bb;
    *bottom += l->rr - l->rb * l->rb / l->bb;
}

#endif

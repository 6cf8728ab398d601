/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/graph/dims.h - shapes and signatures from one line of text
 *
 * A built-in op has a pattern, which states which index runs along which dim of
 * which operand; shape inference and the dimension signature follow from it:
 *
 *     "tokens=i:bt table=c:vc > out=c:btc"
 *
 *   name=T:dims  T is the element type: c the compute type (f32, bf16, f64),
 *                the same for all c; f f32 (f64 where c is f64); d f64; i i32;
 *                h bf16;
 *                a any, the same for all a
 *   a-z          an index that may be cut; summed where an output lacks it
 *   A-Z          an index that cannot be cut (named by the lower-case letter)
 *   1-9          a dim of exactly that extent, which cannot be cut
 *   *            any number of dims, named b, t, e, f, .. (the graph renames
 *                what counts samples or positions, and what does not: letters.h)
 *
 * Index v is a vocabulary: its shards may differ in size.
 */
#ifndef MERAK_PARTITIONER_GRAPH_DIMS_H
#define MERAK_PARTITIONER_GRAPH_DIMS_H

#include "merak/op.h"

struct merak_dims_operand {
    char name[12];
    char dtype; /* c f d i h a */
    char letter[MERAK_MAX_DIMS + 2];
};

struct merak_dims {
    const char *op;
    int n_in, n_out;
    struct merak_dims_operand operand[MERAK_MAX_OPERANDS];
    size_t extent[128]; /* by letter; 0: not known yet */
    int8_t from[128];   /* the operand that set it */
};

/* Read a pattern and expand its star to fit the inputs of inf. */
enum merak_status merak_dims_parse(struct merak_dims *dims, const char *op,
                                   const char *pattern,
                                   const struct merak_infer *inf,
                                   struct merak_error *err) MERAK_CHECKED;
/* Check the inputs of inf and fill its outputs. */
enum merak_status merak_dims_solve(struct merak_dims *dims,
                                   struct merak_infer *inf,
                                   struct merak_error *err) MERAK_CHECKED;
void merak_dims_indices(const struct merak_dims *dims,
                        const struct merak_infer *inf,
                        struct merak_signature *sig);

/* All of it at once, for an op whose pattern is fixed. */
enum merak_status merak_dims_infer(const char *op, const char *pattern,
                                   struct merak_infer *inf,
                                   struct merak_error *err) MERAK_CHECKED;
void merak_dims_signature(const char *op, const char *pattern,
                          const struct merak_infer *inf,
                          struct merak_signature *sig);

/* "[2,16,32]"; buf of at least MERAK_SHAPE_TEXT bytes. */
#define MERAK_SHAPE_TEXT 136
const char *merak_shape_print(const struct merak_shape *shape, char *buf);

bool merak_shape_equal(const struct merak_shape *a,
                       const struct merak_shape *b);

/* Bytes of all operands, each once. */
double merak_cost_bytes(const struct merak_infer *inf);
/* `flops` for each element of operand 0, and the bytes of all operands. */
void merak_cost_elementwise(const struct merak_infer *inf, double flops,
                            struct merak_cost *cost);

/* Define OP_infer, OP_signature, or both, for ops that differ only in their
 * pattern. */
#define MERAK_DIMS_INFER(op, pattern)                            \
    static enum merak_status op##_infer(struct merak_infer *inf, \
                                        struct merak_error *err) \
    {                                                            \
        return merak_dims_infer(#op, (pattern), inf, err);       \
    }
#define MERAK_DIMS_SIGNATURE(op, pattern)                     \
    static void op##_signature(const struct merak_infer *inf, \
                               struct merak_signature *sig)   \
    {                                                         \
        merak_dims_signature(#op, (pattern), inf, sig);       \
    }
#define MERAK_DIMS(op, pattern)   \
    MERAK_DIMS_INFER(op, pattern) \
    MERAK_DIMS_SIGNATURE(op, pattern)
/* Defines OP_cost: `flops` for each element of operand 0. */
#define MERAK_COST(op, flops)                            \
    static void op##_cost(const struct merak_infer *inf, \
                          struct merak_cost *cost)       \
    {                                                    \
        merak_cost_elementwise(inf, (flops), cost);      \
    }
/* A row of an ops table: OP_infer, OP_signature, OP_cost, the number of
 * inputs (least, most) and outputs, and the gradient or NULL. */
#define MERAK_OP(op, least, most, outs, gradient) \
    MERAK_OP_WITH(op, least, most, outs, gradient, .step_use = MERAK_STEP_NONE)
/* The same with other fields of struct merak_op, step_use among them. */
#define MERAK_OP_WITH(op, least, most, outs, gradient, ...)                  \
    {                                                                        \
        .name = #op, .min_in = (least), .max_in = (most), .n_out = (outs),   \
        .infer = op##_infer, .signature = op##_signature, .cost = op##_cost, \
        .grad = (gradient), __VA_ARGS__                                      \
    }

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* merak/space.h - layers over points of space: images and volumes
 *
 * A part of merak/model.h, which includes it.
 */
#ifndef MERAK_SPACE_H
#define MERAK_SPACE_H

#include "merak/model.h"

/* How windows move over points of space, alike along each dim. */
struct merak_window {
    int stride;   /* points from one window to the next; 0: 1 */
    int dilation; /* from a window's point to its next; 0: 1 */
    int pad;      /* zeros before the first point and after the last;
                     MERAK_PAD_SAME: as many as make one window of each stride
                     that has begun, an odd one after the last */
};
enum { MERAK_PAD_SAME = 0, MERAK_PAD_NONE = -1 };
/* Points of space are 1 to 3 dims between samples and channels: x [B,Z,Y,X,I],
 * w [O,KZ,KY,KX,I], bias [O] or NULL -> [B,Z',Y',X',O], with Z' = (Z + pad -
 * dilation (KZ - 1) - 1) / stride + 1 of the sum of both sides' padding.  No
 * kernel is turned around: this is what others' layers compute, too. */
struct merak_value *merak_conv(struct merak_model *m, struct merak_value *x,
                               struct merak_value *w, struct merak_value *bias,
                               const struct merak_window *how);
/* The layer whose gradient merak_conv() is, PyTorch's ConvTranspose: x
 * [B,Z',Y',X',I], w [I,KZ,KY,KX,O] -> [B,Z,Y,X,O]; with MERAK_PAD_SAME Z is stride
 * Z', otherwise stride (Z' - 1) + dilation (KZ - 1) + 1 less both sides'
 * padding. */
struct merak_value *merak_conv_transposed(struct merak_model *m,
                                          struct merak_value *x,
                                          struct merak_value *w,
                                          const struct merak_window *how);
/* The largest, the mean or the sum of windows of `size` points along each dim of
 * space: [B,Z,Y,X,C] -> [B,Z',Y',X',C].  Of several largest points the first
 * one has the gradient. */
struct merak_value *merak_pool(struct merak_model *m, struct merak_value *x,
                               enum merak_pooling kind, int size,
                               const struct merak_window *how);
/* Each point k times along each dim of space, PyTorch's interpolation by the
 * nearest: [B,Z,Y,X,C] -> [B,k Z,k Y,k X,C], of which z, y, x is z / k, y / k,
 * x / k of x.  The gradient of a point is the sum of its k, k^2 or k^3. */
struct merak_value *merak_upsample(struct merak_model *m, struct merak_value *x,
                                   int k);
/*
 * (x - mean) / sqrt(variance + eps) gamma + beta, mean and variance being those
 * of a group of neighbouring channels of a sample, over all of its points.
 *
 *   x            [B,..,C]: samples, points of up to 3 dims of space, channels
 *   gamma, beta  f32 [C]
 *   groups       divides C; C: of each channel alone
 *
 * Statistics are summed in f64.  Where ranks have parts of the points (--cp)
 * they exchange 2 C numbers of each sample.
 * Source: Wu and He 2018 (arXiv:1803.08494), sec. 3.
 */
struct merak_value *merak_groupnorm(struct merak_model *m,
                                    struct merak_value *x,
                                    struct merak_value *gamma,
                                    struct merak_value *beta, int groups,
                                    float eps);
/*
 * The same with statistics of each channel over samples.  Evaluation takes
 * averages over steps in their place.
 *
 *   mean, variance  f32 [C], parameters of no other use: they begin as 0 and as
 *                   1.  A step moves them by `momentum` towards the mean, over
 *                   all micro-batches of all replicas, of what their samples had,
 *                   of variances without bias.  They are saved with the weights
 *   momentum        0 to 1; 0: 0.1
 *   samples         that share statistics, which divides the micro-batch; 0: all
 *                   of a micro-batch, whose size then changes what is computed
 *
 * Source: Ioffe and Szegedy 2015 (arXiv:1502.03167), algorithm 1 and 2.
 */
struct merak_batch_statistics {
    struct merak_value *mean, *variance;
    float momentum;
    int samples;
};
struct merak_value *merak_batchnorm(struct merak_model *m,
                                    struct merak_value *x,
                                    struct merak_value *gamma,
                                    struct merak_value *beta, float eps,
                                    const struct merak_batch_statistics *of);
/*
 * How little classes of points overlap with what they should be: the mean over
 * samples and classes of 1 - (2 sum p t + s) / (sum p + sum t + s), with p the
 * softmax of logits, t 1 where the class is the target, sums over a sample's
 * points that have one, and s 1e-5.  A loss, f64 [], as merak_mse() is.
 *
 *   logits   [B,..,V]
 *   targets  i32 [B,..], MERAK_NO_TARGET allowed
 *
 * Where ranks have parts of the points (--cp) they exchange 3 V numbers of each
 * sample.
 * Source: Milletari et al. 2016 (arXiv:1606.04797), sec. 3.
 */
struct merak_value *merak_softmax_dice(struct merak_model *m,
                                       struct merak_value *logits,
                                       struct merak_value *targets);
/* The channels of x[0], of x[1], .. of n values, 2 to 4, beside one another:
 * their other dims are the same. */
struct merak_value *merak_concat(struct merak_model *m, int n,
                                 struct merak_value *const *x);
/* The same channels in front of those of each head: shared [B,T,G], x [B,T,H,R]
 * -> [B,T,H,G+R]. */
struct merak_value *merak_concat_shared(struct merak_model *m,
                                        struct merak_value *shared,
                                        struct merak_value *x);

#endif

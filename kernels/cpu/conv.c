/* SPDX-License-Identifier: Apache-2.0 */
/* conv.c - convolutions by oneDNN, in tiles fixed by shape
 *
 * A tile has some rows of the first dim of space of a sample: of the output, or
 * of the input where that is made.  Its windows are those of the whole, padded
 * at its own ends by what they have outside of it.  Each is a primitive of one
 * thread.  Sums of gradients of weights are made tile by tile and added in the
 * order of tiles; where there are many samples, a tile is some whole ones.
 */
#include "config.h"

#include "kernels/cpu/conv.h"

#include "base/error.h"
#include "kernels/cpu/gemm_primitive.h"
#include "kernels/cpu/thread_pool.h"

#include <stdatomic.h>
#include <string.h>

#define TILE_FLOPS 3.2e7 /* at least: a tenth of a millisecond */
#define SAMPLE_TILES 16  /* of a sample, at most */
#define LEAST_POINTS 512 /* that weights are put in order for */
/* Of sums of tiles: bytes, tiles, and points of each, so that adding its sums
 * takes a tenth of its time at most; and how many make oneDNN worth it, since
 * threads have to share them, if there is work for them. */
#define MOST_SUMS ((size_t)32 << 20)
#define MOST_TILES 64
#define SUM_POINTS 1500
#define LEAST_TILES 4
#define CHANNELS 64 /* of weights, up to which they may be padded */
#define ITEM 16384  /* numbers that a thread adds at a time */

static size_t up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static const struct merak_window_dim *dim_of(const struct merak_conv_call *c,
                                             int d)
{
    return &c->windows.dim[MERAK_WINDOW_DIMS - c->dims + d];
}

/* Numbers of the weights in any order. */
static size_t weight_count(const struct merak_conv_call *c)
{
    return merak_windows_taps(&c->windows) * up(c->O, CHANNELS) *
           up(c->I, CHANNELS);
}

static size_t points(const struct merak_conv_call *c, bool in)
{
    size_t n = 1;

    for (int d = 0; d < c->dims; d++)
        n *= in ? dim_of(c, d)->in : dim_of(c, d)->out;
    return n;
}

static double flops_of(const struct merak_conv_call *c)
{
    return 2.0 * (double)merak_windows_taps(&c->windows) *
           (double)(c->I * c->O) * (double)points(c, false);
}

/* Bytes of a number of x and y. */
static size_t elem_of(const struct merak_conv_call *c)
{
    return c->bf16 ? sizeof(uint16_t) : sizeof(float);
}

/* Bytes of the weights in any order, or of their gradients. */
static size_t weight_bytes(const struct merak_conv_call *c)
{
    return weight_count(c) *
           (c->kind == MERAK_CONV_DW ? sizeof(float) : elem_of(c));
}

/* Tiles whose sums are worth adding. */
static size_t most_sums(const struct merak_conv_call *c)
{
    size_t most = least(MOST_SUMS / (weight_count(c) * sizeof(float)),
                        c->samples * points(c, false) / SUM_POINTS);

    return most < 1 ? 1 : least(most, MOST_TILES);
}

/* How samples and rows are divided: `samples` of a tile, or `rows` of one. */
struct grid {
    size_t samples, rows, per_sample, tiles;
};

static struct grid grid_of(const struct merak_conv_call *c)
{
    const struct merak_window_dim *first = dim_of(c, 0);
    size_t all = c->kind == MERAK_CONV_DX ? first->in : first->out;
    size_t want =
        least(least((size_t)(flops_of(c) / TILE_FLOPS) + 1, all), SAMPLE_TILES);
    struct grid g = {.samples = 1};

    if (c->kind == MERAK_CONV_DW) {
        size_t most = most_sums(c);

        want = least(want, most / c->samples > 1 ? most / c->samples : 1);
        g.samples = want > 1 ? 1 : (c->samples + most - 1) / most;
    }
    g.rows = (all + want - 1) / want;
    g.per_sample = (all + g.rows - 1) / g.rows;
    g.tiles = (c->samples + g.samples - 1) / g.samples * g.per_sample;
    return g;
}

size_t merak_conv_scratch(const struct merak_conv_call *c)
{
    size_t weights = weight_bytes(c);

    if (c->samples * points(c, false) < LEAST_POINTS)
        return 0;
    if (c->kind != MERAK_CONV_DW)
        return weights;
    if (grid_of(c).tiles <
        least(LEAST_TILES,
              (size_t)(flops_of(c) * (double)c->samples / TILE_FLOPS)))
        return 0;
    return (grid_of(c).tiles + 1) * weights; /* one in its own order */
}

/* --- tiles ---------------------------------------------------------------- */

struct tile {
    struct merak_conv_key key;
    size_t in, out; /* first rows of the first dim */
};

/* Windows of points [in, in + n_in) that give [out, out + n_out). */
static void set_dim(struct merak_conv_key *k, int d,
                    const struct merak_window_dim *w, int64_t in, int64_t n_in,
                    int64_t out, int64_t n_out)
{
    int64_t stride = (int64_t)w->stride;
    int64_t span = (int64_t)(w->dilation * (w->size - 1)) + 1;
    int64_t begin = out * stride - w->pad;

    k->in[d] = n_in;
    k->out[d] = n_out;
    k->size[d] = (int64_t)w->size;
    k->stride[d] = stride;
    k->dilation[d] = (int64_t)w->dilation;
    k->before[d] = in - begin;
    k->after[d] = begin + (n_out - 1) * stride + span - (in + n_in);
}

static int64_t clip(int64_t x, int64_t least_x, int64_t most)
{
    return x < least_x ? least_x : x > most ? most : x;
}

/* Rows [row, row + n) of the first dim, with all that they have to do with of
 * the other side. */
static void set_first(const struct merak_conv_call *c, struct tile *t,
                      int64_t row, int64_t n)
{
    const struct merak_window_dim *w = dim_of(c, 0);
    int64_t stride = (int64_t)w->stride, in = (int64_t)w->in;
    int64_t span = (int64_t)(w->dilation * (w->size - 1)) + 1, end;

    if (c->kind == MERAK_CONV_DX) {
        int64_t out = (int64_t)w->out, at = row + w->pad - span + stride;

        t->in = (size_t)row;
        at = clip(at > 0 ? at / stride : 0, 0, out);
        end = clip((row + n - 1 + w->pad) / stride + 1, at, out);
        t->out = (size_t)at;
        set_dim(&t->key, 0, w, row, n, at, end - at);
    } else {
        int64_t at = clip(row * stride - w->pad, 0, in);

        t->out = (size_t)row;
        t->in = (size_t)at;
        end = clip((row + n - 1) * stride - w->pad + span, at, in);
        set_dim(&t->key, 0, w, at, end - at, row, n);
    }
}

/* oneDNN pads; it neither leaves points out nor has it empty sides. */
static bool is_padded(const struct merak_conv_key *k)
{
    for (int64_t d = 0; d < k->dims; d++) {
        int64_t span = k->dilation[d] * (k->size[d] - 1) + 1;

        if (k->in[d] < 1 || k->out[d] < 1 || k->before[d] < 0 ||
            k->after[d] < 0 || k->before[d] >= span || k->after[d] >= span)
            return false;
    }
    return true;
}

static bool make_tile(const struct merak_conv_call *c, const struct grid *g,
                      size_t i, struct tile *t)
{
    size_t sample = i / g->per_sample * g->samples;
    size_t row = i % g->per_sample * g->rows;
    const struct merak_window_dim *first = dim_of(c, 0);
    size_t all = c->kind == MERAK_CONV_DX ? first->in : first->out;

    *t = (struct tile){
        .key = {.kind = (int64_t)c->kind,
                .dims = c->dims,
                .bias = c->bias != NULL,
                .bf16 = c->bf16,
                .samples = (int64_t)least(g->samples, c->samples - sample),
                .I = (int64_t)c->I,
                .O = (int64_t)c->O}};
    set_first(c, t, (int64_t)row, (int64_t)least(g->rows, all - row));
    for (int d = 1; d < c->dims; d++) {
        const struct merak_window_dim *w = dim_of(c, d);

        set_dim(&t->key, d, w, 0, (int64_t)w->in, 0, (int64_t)w->out);
    }
    return is_padded(&t->key);
}

/* --- running -------------------------------------------------------------- */

struct job {
    const struct merak_conv_call *c;
    struct grid grid;
    size_t row_in, row_out; /* bytes of a row of the first dim */
    const void *weights;    /* in oneDNN's order */
    float *sums;            /* [tiles, each], of gradients */
    size_t each, numbers;   /* numbers that have to be added */
    float *to;
    _Atomic int failed; /* a dnnl_status_t */
};

/* Are there primitives for all tiles, which agree about weights?  A second turn
 * finds what the first one made, and nothing that it dropped. */
static enum merak_status find_all(struct job *job,
                                  struct merak_conv_primitive **first_p,
                                  struct merak_error *err)
{
    struct merak_conv_primitive *first = NULL, *p = NULL;
    enum merak_status rc = MERAK_OK;
    struct tile t;

    for (size_t i = 0; i < 2 * job->grid.tiles && rc == MERAK_OK; i++) {
        if (!make_tile(job->c, &job->grid, i % job->grid.tiles, &t))
            return MERAK_OK;
        rc = merak_conv_primitive_find(&t.key, &p, err);
        if (rc != MERAK_OK || p == NULL ||
            merak_conv_weights(p) > weight_bytes(job->c))
            return rc;
        if (i % job->grid.tiles == 0)
            first = p;
        if (!merak_conv_alike(first, p))
            return MERAK_OK;
    }
    *first_p = first;
    return rc;
}

static void run_tile(void *arg, size_t item, int thread)
{
    struct job *job = arg;
    const struct merak_conv_call *c = job->c;
    struct merak_conv_primitive *p;
    size_t sample = item / job->grid.per_sample * job->grid.samples;
    struct tile t;
    const char *x = c->x, *y = c->y;
    const void *w =
        job->sums != NULL ? job->sums + item * job->each : job->weights;
    int rc;

    (void)make_tile(c, &job->grid, item, &t);
    p = merak_conv_primitive_cached(&t.key);
    rc = merak_conv_primitive_run(
        p, thread, x + (sample * dim_of(c, 0)->in + t.in) * job->row_in, w,
        y + (sample * dim_of(c, 0)->out + t.out) * job->row_out, c->bias);
    if (rc != 0)
        atomic_store(&job->failed, rc);
}

/* The first tile's sums get those of the others. */
static void add_tiles(void *arg, size_t item, int thread)
{
    const struct job *job = arg;
    size_t end = least((item + 1) * ITEM, job->numbers);

    (void)thread;
    for (size_t t = 1; t < job->grid.tiles; t++) {
        const float *from = job->sums + t * job->each;

        for (size_t i = item * ITEM; i < end; i++)
            job->sums[i] += from[i];
    }
}

static void add_weights(void *arg, size_t item, int thread)
{
    const struct job *job = arg;
    const float *from = job->sums + job->grid.tiles * job->each;
    size_t end = least((item + 1) * ITEM, job->numbers);

    (void)thread;
    for (size_t i = item * ITEM; i < end; i++)
        job->to[i] += from[i];
}

static void run_items(struct job *job, size_t numbers, merak_item_fn item)
{
    job->numbers = numbers;
    merak_pool_run(item, job, (numbers + ITEM - 1) / ITEM);
}

static enum merak_status finish_sums(struct job *job,
                                     struct merak_conv_primitive *p,
                                     struct merak_error *err)
{
    const struct merak_conv_call *c = job->c;
    float *plain = job->sums + job->grid.tiles * job->each;
    enum merak_status rc;

    job->to = (float *)(uintptr_t)c->w;
    run_items(job, merak_conv_weights(p) / sizeof(float), add_tiles);
    rc = merak_conv_unpack(p, job->sums, c->accumulate ? plain : job->to, err);
    if (rc == MERAK_OK && c->accumulate)
        run_items(job, merak_windows_taps(&c->windows) * c->O * c->I,
                  add_weights);
    return rc;
}

enum merak_status merak_conv_compute(const struct merak_conv_call *c,
                                     bool *done_p, struct merak_error *err)
{
    struct job job = {.c = c, .grid = grid_of(c), .weights = c->scratch};
    struct merak_conv_primitive *p = NULL;
    enum merak_status rc;

    *done_p = false;
    if (c->bf16 && !merak_gemm_is_native())
        return MERAK_OK;
    rc = find_all(&job, &p, err);
    if (rc != MERAK_OK || p == NULL)
        return rc;
    job.row_in = points(c, true) / dim_of(c, 0)->in * c->I * elem_of(c);
    job.row_out = points(c, false) / dim_of(c, 0)->out * c->O * elem_of(c);
    if (c->kind == MERAK_CONV_DW) {
        job.sums = c->scratch;
        job.each = weight_count(c);
    } else {
        rc = merak_conv_pack(p, c->w, c->scratch, err);
    }
    if (rc == MERAK_OK)
        merak_pool_run(run_tile, &job, job.grid.tiles);
    if (atomic_load(&job.failed) != 0)
        rc = merak_gemm_fail(err, "convolve",
                             (dnnl_status_t)atomic_load(&job.failed));
    if (rc == MERAK_OK && c->kind == MERAK_CONV_DW)
        rc = finish_sums(&job, p, err);
    *done_p = rc == MERAK_OK;
    return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* test_layout.c - boxes, flat ranges, paths and exchanges */
#include "config.h"

#include "unit/near.h"
#include "unit/shard/virtual.h"

#include "base/rng.h"
#include "base/size.h"

#include <stdlib.h>
#include <string.h>

#define R                                   \
    {                                       \
        .kind = MERAK_REPLICATED, .dim = -1 \
    }
#define S(d)                            \
    {                                   \
        .kind = MERAK_SPLIT, .dim = (d) \
    }
#define H(d, b, a)                                                   \
    {                                                                \
        .kind = MERAK_SPLIT, .dim = (d), .before = (b), .after = (a) \
    }
#define P                                    \
    {                                        \
        .kind = MERAK_PARTIAL_SUM, .dim = -1 \
    }
#define M                                    \
    {                                        \
        .kind = MERAK_PARTIAL_MAX, .dim = -1 \
    }
#define F                             \
    {                                 \
        .kind = MERAK_FLAT, .dim = -1 \
    }

#define COUNT(a) (sizeof(a) / sizeof(*(a)))

static struct merak_mesh mesh_of(int n, const int *size)
{
    struct merak_mesh mesh = {.n_axes = n};

    for (int x = 0; x < n; x++)
        mesh.axis[x].size = size[x];
    return mesh;
}

/* --- boxes ---------------------------------------------------------------- */

static const struct {
    int n_axes, size[3], coord[3];
    struct merak_layout layout;
    struct merak_shape shape;
    size_t lo[2], len[2], flat_lo, flat_hi;
    const char *print;
} box_rows[] = {
    {0, {0}, {0}, {{R}}, {2, {6, 4}}, {0, 0}, {6, 4}, 0, 24, "R"},
    {1, {2}, {1}, {{S(0)}}, {2, {6, 4}}, {3, 0}, {3, 4}, 0, 12, "S0"},
    {1, {2}, {1}, {{P}}, {2, {6, 4}}, {0, 0}, {6, 4}, 0, 24, "P"},
    /* 7 rows over 3: 2, 2, 3 */
    {1, {3}, {0}, {{S(0)}}, {2, {7, 4}}, {0, 0}, {2, 4}, 0, 8, "S0"},
    {1, {3}, {2}, {{S(0)}}, {2, {7, 4}}, {4, 0}, {3, 4}, 0, 12, "S0"},
    /* with rows of the parts before and after */
    {1, {3}, {0}, {{H(0, 1, 2)}}, {2, {7, 4}}, {0, 0}, {4, 4}, 0, 16, "S0+1+2"},
    {1, {3}, {1}, {{H(0, 1, 2)}}, {2, {7, 4}}, {1, 0}, {5, 4}, 0, 20, "S0+1+2"},
    {1, {3}, {2}, {{H(0, 3, 0)}}, {2, {7, 4}}, {1, 0}, {6, 4}, 0, 24, "S0+3+0"},
    /* fewer rows than parts */
    {1, {4}, {0}, {{S(0)}}, {2, {2, 4}}, {0, 0}, {0, 4}, 0, 0, "S0"},
    {1, {4}, {3}, {{S(0)}}, {2, {2, 4}}, {1, 0}, {1, 4}, 0, 4, "S0"},
    /* nested: [5, 10) of 10, cut in 2: [5, 7), [7, 10) */
    {2, {2, 2}, {1, 0}, {{S(0), S(0)}}, {1, {10}}, {5}, {2}, 0, 2, "S0,S0"},
    {2, {2, 2}, {1, 1}, {{S(0), S(0)}}, {1, {10}}, {7}, {3}, 0, 3, "S0,S0"},
    {2,
     {2, 2},
     {1, 0},
     {{S(1), S(0)}},
     {2, {3, 5}},
     {0, 2},
     {1, 3},
     0,
     3,
     "S1,S0"},
    /* flat: the local 3 x 4 in 5 parts of 2, 2, 3, 2, 3 */
    {2, {2, 5}, {1, 2}, {{S(0), F}}, {2, {6, 4}}, {3, 0}, {3, 4}, 4, 7, "S0,F"},
    {2, {2, 5}, {0, 4}, {{M, F}}, {2, {3, 4}}, {0, 0}, {3, 4}, 9, 12, "M,F"},
    /* nested: [7, 15) of 15, cut in 3 */
    {2, {2, 3}, {1, 2}, {{F, F}}, {2, {3, 5}}, {0, 0}, {3, 5}, 12, 15, "F,F"},
    {2, {2, 3}, {1, 0}, {{F, F}}, {2, {3, 5}}, {0, 0}, {3, 5}, 7, 9, "F,F"},
    /* a scalar */
    {2, {2, 2}, {1, 1}, {{P, F}}, {0, {0}}, {0}, {0}, 0, 1, "P,F"},
    {2, {2, 2}, {1, 0}, {{P, F}}, {0, {0}}, {0}, {0}, 0, 0, "P,F"},
};

static void boxes_nest_and_may_be_uneven(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(box_rows); i++) {
        struct merak_mesh mesh = mesh_of(box_rows[i].n_axes, box_rows[i].size);
        size_t ndim = (size_t)box_rows[i].shape.ndim, lo, hi;
        struct merak_box box;
        char text[32];

        merak_layout_box(&mesh, &box_rows[i].layout, &box_rows[i].shape,
                         box_rows[i].coord, &box);
        merak_layout_flat(&mesh, &box_rows[i].layout, &box_rows[i].shape,
                          box_rows[i].coord, &lo, &hi);
        assert_int_equal(box.ndim, ndim);
        assert_memory_equal(box.lo, box_rows[i].lo, ndim * sizeof(size_t));
        assert_memory_equal(box.len, box_rows[i].len, ndim * sizeof(size_t));
        assert_memory_equal(box.full, box_rows[i].shape.dim,
                            ndim * sizeof(size_t));
        assert_int_equal(lo, box_rows[i].flat_lo);
        assert_int_equal(hi, box_rows[i].flat_hi);
        assert_string_equal(
            merak_layout_print(&mesh, &box_rows[i].layout, text, sizeof(text)),
            box_rows[i].print);
    }
}

static const struct {
    struct merak_box box;
    bool contiguous;
    size_t offset;
} contiguous_rows[] = {
    {{2, {4, 6}, {0, 0}, {4, 6}}, true, 0},
    {{2, {4, 6}, {2, 0}, {2, 6}}, true, 12},
    {{2, {4, 6}, {2, 1}, {1, 3}}, true, 13},
    {{2, {4, 6}, {2, 1}, {2, 3}}, false, 0},
    {{3, {2, 4, 6}, {1, 1, 0}, {1, 2, 6}}, true, 30},
    {{3, {2, 4, 6}, {0, 1, 0}, {2, 2, 6}}, false, 0},
    {{3, {1, 4, 6}, {0, 1, 0}, {1, 2, 6}}, true, 6},
    {{2, {4, 6}, {2, 1}, {2, 0}}, true, 13},
    {{0, {0}, {0}, {0}}, true, 0},
};

static void a_box_of_one_run_is_contiguous(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(contiguous_rows); i++) {
        size_t offset = 0;

        assert_int_equal(merak_box_contiguous(&contiguous_rows[i].box, &offset),
                         contiguous_rows[i].contiguous);
        assert_int_equal(offset, contiguous_rows[i].offset);
    }
}

/* Every range of every shape: boxes, walked in order, are the range. */
static void flat_boxes_cover_a_range_in_order(void **state)
{
    static const struct merak_shape shapes[] = {
        {0, {0}},       {1, {7}},          {2, {3, 4}},
        {3, {2, 3, 4}}, {4, {2, 1, 3, 2}}, {6, {2, 1, 2, 3, 1, 2}},
        {2, {5, 1}},    {2, {0, 3}},
    };
    struct merak_box box[MERAK_FLAT_BOXES];

    (void)state;
    for (size_t s = 0; s < COUNT(shapes); s++) {
        size_t count = merak_shape_count(&shapes[s]);

        for (size_t lo = 0; lo <= count; lo++) {
            for (size_t hi = lo; hi <= count; hi++) {
                int n = merak_flat_boxes(&shapes[s], lo, hi, box);
                size_t at = lo, offset = 0;

                assert_in_range(n, 0, MERAK_FLAT_BOXES);
                for (int b = 0; b < n; b++) {
                    assert_true(merak_box_contiguous(&box[b], &offset));
                    assert_int_equal(offset, at);
                    assert_int_not_equal(merak_box_count(&box[b]), 0);
                    at += merak_box_count(&box[b]);
                }
                assert_int_equal(at, hi);
            }
        }
    }
}

/* --- paths ---------------------------------------------------------------- */

/* SuperScaler's states (R, V, D0, D1) of a 1024 x 4096 tensor as meshes: an
 * axis for each count that a path must tell apart. */
static const struct {
    int n_axes, size[3];
    struct merak_layout from, to;
    double cost;
} path_rows[] = {
    {1, {4}, {{P}}, {{R}}, 6291457},
    {1, {4}, {{P}}, {{S(0)}}, 3145729},
    {1, {4}, {{S(0)}}, {{S(1)}}, 786433},
    {1, {4}, {{S(0)}}, {{R}}, 3145729},
    {1, {4}, {{R}}, {{S(1)}}, 1},
    {2, {2, 2}, {{P, P}}, {{R, S(0)}}, 4194306},
    {2, {2, 2}, {{P, P}}, {{S(0), S(1)}}, 3145730},
    {2, {2, 2}, {{R, S(0)}}, {{S(1), S(1)}}, 524290},
    {2, {2, 2}, {{P, S(0)}}, {{R, R}}, 4194306},
    {2, {4, 2}, {{P, P}}, {{S(0), R}}, 4194306},
    {2, {2, 4}, {{R, P}}, {{R, R}}, 5242883},
    {3, {2, 2, 2}, {{R, P, P}}, {{R, R, R}}, 5242883 + 2}, /* two more hops */
    {1, {4}, {{S(0)}}, {{S(0)}}, 0},
    {1, {4}, {{M}}, {{R}}, 6291457},
    {1, {4}, {{P}}, {{F}}, 3145729},
    {1, {4}, {{F}}, {{R}}, 3145729},
    /* a flat part of 2 M is summed where it is */
    {2, {2, 2}, {{P, F}}, {{R, F}}, 2097153},
    /* the outer of two nested cuts: the inner moves out of the way and back,
     * cheaper than gathering both and slicing again (3145731) */
    {2, {2, 2}, {{S(0), S(0)}}, {{R, S(0)}}, 524288 + 2 * 1048576 + 3},
};

static void paths_cost_what_rvd_says(void **state)
{
    const struct merak_shape shape = {2, {1024, 4096}};

    (void)state;
    for (size_t i = 0; i < COUNT(path_rows); i++) {
        struct merak_mesh mesh =
            mesh_of(path_rows[i].n_axes, path_rows[i].size);
        struct merak_hop hops[MERAK_MAX_HOPS];
        double cost = -1, words = 0;
        int n = merak_layout_path(&mesh, &shape, &path_rows[i].from,
                                  &path_rows[i].to, hops, &cost);

        assert_true(n >= 0);
        assert_near(&cost, &path_rows[i].cost, 1, 0.0, 0.0);
        for (int h = 0; h < n; h++)
            words += hops[h].words;
        cost -= n;
        assert_near(&words, &cost, 1, 0.0, 0.0);
        assert_true(merak_layout_equal(
            &mesh, n > 0 ? &hops[n - 1].to : &path_rows[i].from,
            &path_rows[i].to));
    }
}

static void no_layout_becomes_partial(void **state)
{
    const struct merak_shape shape = {1, {8}};
    const struct merak_mesh mesh = mesh_of(2, (int[]){2, 2});
    const struct merak_layout r = {{R, R}}, p = {{P, R}}, m = {{M, R}};
    struct merak_hop hops[MERAK_MAX_HOPS];

    (void)state;
    assert_int_equal(merak_layout_path(&mesh, &shape, &r, &p, hops, NULL), -1);
    assert_int_equal(merak_layout_path(&mesh, &shape, &m, &p, hops, NULL), -1);
}

/* --- exchanges ------------------------------------------------------------ */

static uint32_t draw(uint64_t *seed, uint32_t n)
{
    *seed = merak_rng_mix(*seed, 0x5eed);
    return (uint32_t)(*seed >> 33) % n;
}

static struct merak_layout draw_layout(uint64_t *seed,
                                       const struct merak_mesh *mesh,
                                       const struct merak_shape *shape,
                                       bool partial)
{
    struct merak_layout layout;

    merak_layout_replicated(&layout);
    for (int x = 0; x < mesh->n_axes; x++) {
        int kind = (int)draw(seed, partial ? 4 : 3);

        if (kind == 1 && shape->ndim > 0)
            layout.at[x] = (struct merak_place){
                .kind = MERAK_SPLIT,
                .dim = (int8_t)draw(seed, (uint32_t)shape->ndim)};
        else if (kind == 2 && x == mesh->n_axes - 1)
            layout.at[x] = (struct merak_place)F;
        else if (kind == 3)
            layout.at[x] = (struct merak_place)P;
    }
    return layout;
}

static void **parts_new(const struct merak_mesh *mesh,
                        const struct merak_layout *layout,
                        const struct merak_shape *shape)
{
    int n = virtual_ranks(mesh);
    void **part = calloc((size_t)n, sizeof(*part));

    assert_non_null(part);
    for (int r = 0; r < n; r++) {
        size_t count = virtual_count(mesh, layout, shape, r);

        part[r] = malloc(count * sizeof(double) + 1);
        assert_non_null(part[r]);
        for (size_t i = 0; i < count; i++)
            ((double *)part[r])[i] = NAN; /* what is not written shows */
    }
    return part;
}

static void parts_free(const struct merak_mesh *mesh, void **part)
{
    for (int r = 0; r < virtual_ranks(mesh); r++)
        free(part[r]);
    free(part);
}

static void check_parts(const struct merak_mesh *mesh,
                        const struct merak_layout *layout,
                        const struct merak_shape *shape, const double *whole,
                        void *const *part)
{
    double want[4096];

    for (int r = 0; r < virtual_ranks(mesh); r++) {
        virtual_part(mesh, layout, shape, r, MERAK_F64, whole, want);
        assert_near((double *)part[r], want,
                    virtual_count(mesh, layout, shape, r), 0.0, 0.0);
    }
}

/* Convert a whole tensor's parts hop by hop.  Whole numbers: sums are exact,
 * and only the first rank of a partial group adds anything, so every step in
 * between that is still partial stays comparable too. */
static void round_trip(const struct merak_mesh *mesh,
                       const struct merak_shape *shape,
                       const struct merak_layout *from, int n,
                       const struct merak_hop *hops)
{
    size_t count = merak_shape_count(shape);
    double *whole = calloc(count + 1, sizeof(*whole));
    struct merak_layout at = *from;
    void **part = parts_new(mesh, from, shape);

    assert_non_null(whole);
    for (size_t i = 0; i < count; i++)
        whole[i] = (double)i + 1;
    for (int r = 0; r < virtual_ranks(mesh); r++)
        virtual_part(mesh, from, shape, r, MERAK_F64, whole, part[r]);
    for (int h = 0; h < n; h++) {
        void **next = parts_new(mesh, &hops[h].to, shape);

        virtual_hop(mesh, &hops[h], &at, shape, MERAK_F64, part, next);
        parts_free(mesh, part);
        part = next;
        at = hops[h].to;
        check_parts(mesh, &at, shape, whole, part);
    }
    parts_free(mesh, part);
    free(whole);
}

static void any_conversion_gives_what_slicing_gives(void **state)
{
    uint64_t seed = 1;
    int taken = 0;

    (void)state;
    for (int trial = 0; trial < 4000; trial++) {
        int n_axes = 1 + (int)draw(&seed, 3), size[3];
        struct merak_shape shape = {.ndim = (int)draw(&seed, 4)};
        struct merak_hop hops[MERAK_MAX_HOPS];
        struct merak_layout from, to;
        struct merak_mesh mesh;
        int n;

        for (int x = 0; x < 3; x++)
            size[x] = 1 + (int)draw(&seed, 3);
        for (int d = 0; d < shape.ndim; d++)
            shape.dim[d] = 1 + draw(&seed, 9);
        mesh = mesh_of(n_axes, size);
        from = draw_layout(&seed, &mesh, &shape, true);
        to = draw_layout(&seed, &mesh, &shape, false);
        n = merak_layout_path(&mesh, &shape, &from, &to, hops, NULL);
        if (n < 0)
            continue;
        taken++;
        round_trip(&mesh, &shape, &from, n, hops);
    }
    assert_true(taken > 2000);
}

/* Summed over one axis after the other, each keeping a part of what the one
 * before kept, and gathered the other way round. */
static void flat_cuts_nest(void **state)
{
    static const struct {
        enum merak_convert_kind kind;
        int axis;
        struct merak_place to;
    } rows[] = {
        {MERAK_CONVERT_REDUCE_SCATTER, 0, F}, {MERAK_CONVERT_SLICE, 1, F},
        {MERAK_CONVERT_REDUCE_SCATTER, 3, F}, {MERAK_CONVERT_ALL_GATHER, 3, R},
        {MERAK_CONVERT_ALL_GATHER, 1, R},     {MERAK_CONVERT_ALL_GATHER, 0, R},
    };
    const struct merak_mesh mesh = mesh_of(4, (int[]){2, 3, 2, 2});
    const struct merak_layout from = {{P, R, S(1), P}};
    const struct merak_shape shape = {3, {3, 5, 2}};
    struct merak_hop hops[COUNT(rows)];
    struct merak_layout at = from;

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        assert_true(merak_layout_change(&mesh, &at, rows[i].axis, rows[i].to,
                                        &hops[i]));
        assert_int_equal(hops[i].kind, rows[i].kind);
        at = hops[i].to;
    }
    round_trip(&mesh, &shape, &from, COUNT(rows), hops);
}

/* Every rank of a partial group adds, in member order, or maxes. */
static void partial_values_are_combined(void **state)
{
    static const struct merak_layout to[] = {{{R}}, {{S(0)}}, {{S(1)}}};
    const struct merak_mesh mesh = mesh_of(1, (int[]){3});
    const struct merak_shape shape = {2, {5, 4}};

    (void)state;
    for (size_t t = 0; t < 2 * COUNT(to); t++) {
        struct merak_layout from =
            t % 2 ? (struct merak_layout){{M}} : (struct merak_layout){{P}};
        struct merak_hop hops[MERAK_MAX_HOPS];
        void **in = parts_new(&mesh, &from, &shape);
        void **out = parts_new(&mesh, &to[t / 2], &shape);
        double whole[20];

        for (int i = 0; i < 20; i++) {
            double x[3] = {i, 7 * i % 11, 100 - 3 * i};

            for (int r = 0; r < 3; r++)
                ((double *)in[r])[i] = x[r];
            whole[i] =
                t % 2 ? fmax(fmax(x[0], x[1]), x[2]) : x[0] + x[1] + x[2];
        }
        assert_int_equal(
            merak_layout_path(&mesh, &shape, &from, &to[t / 2], hops, NULL), 1);
        virtual_hop(&mesh, &hops[0], &from, &shape, MERAK_F64, in, out);
        check_parts(&mesh, &to[t / 2], &shape, whole, out);
        parts_free(&mesh, in);
        parts_free(&mesh, out);
    }
}

static const struct {
    struct merak_layout from;
    struct merak_hop hop;
} refused_rows[] = {
    {{{S(0), S(0)}}, {MERAK_CONVERT_ALL_GATHER, 0, {{R, S(0)}}, 0}},
    {{{R, S(0)}}, {MERAK_CONVERT_SLICE, 0, {{S(0), S(0)}}, 0}},
    {{{R, R}}, {MERAK_CONVERT_ALL_REDUCE, 0, {{P, R}}, 0}},
    {{{S(0), R}}, {MERAK_CONVERT_ALL_TO_ALL, 0, {{S(0), R}}, 0}},
    {{{F, F}}, {MERAK_CONVERT_ALL_GATHER, 0, {{R, F}}, 0}},
    {{{P, F}}, {MERAK_CONVERT_REDUCE_SCATTER, 0, {{F, F}}, 0}},
    {{{F, S(0)}}, {MERAK_CONVERT_ALL_GATHER, 1, {{F, R}}, 0}},
    {{{F, R}}, {MERAK_CONVERT_SLICE, 1, {{F, S(0)}}, 0}},
    {{{S(0), F}}, {MERAK_CONVERT_ALL_GATHER, 0, {{R, F}}, 0}},
    {{{P, P}}, {MERAK_CONVERT_ALL_REDUCE, 0, {{R, R}}, 0}},
    {{{P, R}}, {MERAK_CONVERT_ALL_GATHER, 0, {{R, R}}, 0}},
    {{{P, R}}, {MERAK_CONVERT_ALL_REDUCE, 2, {{R, R}}, 0}},
};

static void what_one_collective_cannot_do_is_refused(void **state)
{
    const struct merak_mesh mesh = mesh_of(2, (int[]){2, 2});
    const struct merak_shape shape = {2, {8, 8}};
    const int coord[2] = {0, 0};

    (void)state;
    for (size_t i = 0; i < COUNT(refused_rows); i++) {
        struct merak_exchange ex = {.n = -5};
        struct merak_error err;

        assert_int_equal(merak_exchange_init(&ex, &mesh, &refused_rows[i].hop,
                                             &refused_rows[i].from, &shape,
                                             MERAK_F32, coord, &err),
                         MERAK_ERR_UNSUPPORTED);
        assert_non_null(strstr(err.text, "merak_layout_path"));
        assert_int_equal(ex.n, -5);
    }
}

/* [8, 8] f32 over 4: what has to be staged, in bytes. */
static const struct {
    struct merak_layout from, to;
    size_t bytes;
} scratch_rows[] = {
    {{{P}}, {{R}}, 3 * 64},        /* three others' sixteen elements */
    {{{P}}, {{S(0)}}, 3 * 64},     /* two rows of each */
    {{{P}}, {{S(1)}}, 3 * 64 * 2}, /* packed by the sender as well */
    {{{S(0)}}, {{R}}, 0},          /* straight into place */
    {{{S(1)}}, {{R}}, 3 * 64},     /* columns are unpacked */
    {{{S(0)}}, {{S(1)}}, 3 * 64},  /* 2 x 2 of 2 x 8 out; rows in */
    {{{R}}, {{S(1)}}, 0},          {{{F}}, {{R}}, 0}, {{{P}}, {{F}}, 3 * 64},
};

static void staging_is_what_cannot_move_in_place(void **state)
{
    const struct merak_mesh mesh = mesh_of(1, (int[]){4});
    const struct merak_shape shape = {2, {8, 8}};
    const int coord[1] = {1};

    (void)state;
    for (size_t i = 0; i < COUNT(scratch_rows); i++) {
        struct merak_hop hops[MERAK_MAX_HOPS];
        struct merak_exchange ex;
        struct merak_error err;

        assert_int_equal(merak_layout_path(&mesh, &shape, &scratch_rows[i].from,
                                           &scratch_rows[i].to, hops, NULL),
                         1);
        assert_int_equal(merak_exchange_init(&ex, &mesh, &hops[0],
                                             &scratch_rows[i].from, &shape,
                                             MERAK_F32, coord, &err),
                         MERAK_OK);
        assert_int_equal(merak_exchange_scratch(&ex), scratch_rows[i].bytes);
        merak_exchange_fini(&ex);
    }
}

/* What is reduced may be as large as it likes: what is staged stays. */
static void reductions_stage_two_chunks(void **state)
{
    static const struct merak_layout from = {{P}}, to = {{R}};
    const struct merak_shape shape = {2, {1024, 4096}};
    const int coord[1] = {1};

    (void)state;
    for (int n = 2; n <= 8; n *= 2) {
        const struct merak_mesh mesh = mesh_of(1, &n);
        struct merak_hop hops[MERAK_MAX_HOPS];
        struct merak_exchange ex;
        struct merak_error err;

        assert_int_equal(
            merak_layout_path(&mesh, &shape, &from, &to, hops, NULL), 1);
        assert_int_equal(merak_exchange_init(&ex, &mesh, &hops[0], &from,
                                             &shape, MERAK_F32, coord, &err),
                         MERAK_OK);
        assert_int_equal(merak_exchange_scratch(&ex),
                         2 * (size_t)(n - 1) * merak_exchange_fragment(&ex));
        assert_true(merak_exchange_scratch(&ex) <= (size_t)1 << 20);
        assert_true(merak_exchange_scratch(&ex) >= (size_t)1 << 19);
        merak_exchange_fini(&ex);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(boxes_nest_and_may_be_uneven),
        cmocka_unit_test(a_box_of_one_run_is_contiguous),
        cmocka_unit_test(flat_boxes_cover_a_range_in_order),
        cmocka_unit_test(paths_cost_what_rvd_says),
        cmocka_unit_test(no_layout_becomes_partial),
        cmocka_unit_test(any_conversion_gives_what_slicing_gives),
        cmocka_unit_test(flat_cuts_nest),
        cmocka_unit_test(partial_values_are_combined),
        cmocka_unit_test(what_one_collective_cannot_do_is_refused),
        cmocka_unit_test(staging_is_what_cannot_move_in_place),
        cmocka_unit_test(reductions_stage_two_chunks),
    };

    return cmocka_run_group_tests_name("layout", tests, NULL, NULL);
}

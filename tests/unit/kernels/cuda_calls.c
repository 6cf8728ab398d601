/* SPDX-License-Identifier: Apache-2.0 */
/* cuda_calls.c - calls of the CUDA kernels beside the table of ops */
#include "config.h"

#include "unit/near.h"

#include "unit/kernels/cuda_calls.h"
#include "unit/kernels/cuda_case.h"

#include "kernels/cuda/cuda_ops.h"
#include "kernels/geometry.h"

#include <stdlib.h>
#include <string.h>

#define MANY 60

/* Tensors of 1 .. 5000 elements, and one of none. */
static void create_tensor(struct kc *c, const struct kc_row *like, int i)
{
    struct kc_row row = *like;
    size_t n = i == 7 ? 0 : (size_t)(i * i * 37 % 5000 + 1);

    for (int o = 0; o < row.n_in + row.n_out; o++)
        if (row.operand[o].dim[0] > 2)
            row.operand[o].dim[0] = n;
    row.attrs.i[0] = i % 2;
    row.attrs.f[0] = i % 5 == 3 ? 0.37 : 0; /* of the learning rate */
    kc_create(c, &row, MERAK_F32, (uint64_t)i + 1);
}

static void launch_many(const struct merak_cuda_many *many,
                        const struct merak_kernel_call *const *call)
{
    void *rows = malloc(MANY * many->row_bytes);
    void *beside = malloc(many->beside_bytes(call, MANY) + 1);
    size_t items = 0;

    assert_int_equal(many->fill(call, MANY, rows, beside, &items, NULL),
                     MERAK_OK);
    assert_int_equal(
        many->launch(&cuda_context, rows, MANY, items, call[0]->step, NULL),
        MERAK_OK);
    free(beside);
    free(rows);
}

void cuda_many_tensors_give_the_bits_of_each(void **state)
{
    (void)state;
    for (const struct merak_cuda_many *many = merak_cuda_many; many->op != NULL;
         many++) {
        const struct merak_kernel_call *call[MANY];
        struct kc_row row[KC_MAX_ROWS];
        static struct kc one[MANY], all[MANY];
        int r = 0;

        (void)kc_rows(1, row, KC_MAX_ROWS);
        while (strcmp(row[r].op, many->op) != 0)
            r++;
        for (int i = 0; i < MANY; i++) {
            create_tensor(&one[i], &row[r + (strcmp(many->op, "adamw") == 0)],
                          i);
            kc_copy(&all[i], &one[i]);
            cuda_run(&one[i]);
            all[i].call.attrs = &all[i].attrs;
            all[i].call.step = &all[i].step;
            call[i] = &all[i].call;
        }
        launch_many(many, call);
        for (int i = 0; i < MANY; i++) {
            kc_check_same_bits(&all[i], &one[i], "the other tensors");
            kc_destroy(&all[i]);
            kc_destroy(&one[i]);
        }
    }
}

void cuda_boxes_are_packed(void **state)
{
    static const struct {
        int ndim;
        size_t full[MERAK_MAX_DIMS], lo[MERAK_MAX_DIMS], len[MERAK_MAX_DIMS];
    } boxes[] = {
        {1, {40}, {3}, {17}},
        {2, {16, 32}, {0, 8}, {16, 16}},
        {2, {16, 32}, {4, 0}, {8, 32}},
        {3, {4, 5, 6}, {1, 2, 3}, {2, 3, 2}},
        {3, {4, 6, 8}, {2, 0, 0}, {2, 6, 8}},
        {6, {2, 3, 4, 2, 3, 8}, {1, 0, 1, 0, 1, 4}, {1, 3, 2, 2, 2, 4}},
        {4, {2, 3, 4, 5}, {0, 1, 0, 0}, {2, 0, 4, 5}},
    };
    static const size_t elems[] = {1, 2, 4, 8};

    (void)state;
    for (size_t i = 0; i < sizeof(boxes) / sizeof(*boxes) * 4; i++) {
        const struct merak_accel_box box = {boxes[i / 4].ndim,
                                            boxes[i / 4].full, boxes[i / 4].lo,
                                            boxes[i / 4].len, elems[i % 4]};
        size_t bytes = box.elem_bytes, part = box.elem_bytes;
        unsigned char *from, *got, *want, *back;

        for (int d = 0; d < box.ndim; d++) {
            bytes *= box.full[d];
            part *= box.len[d];
        }
        from = malloc(bytes);
        got = calloc(1, part + 1);
        want = calloc(1, part + 1);
        for (size_t k = 0; k < bytes; k++)
            from[k] = (unsigned char)(k * 131 >> 3);
        merak_pack_box(want, from, &box);
        assert_int_equal(merak_cuda_pack(&cuda_context, got, from, &box, NULL),
                         MERAK_OK);
        assert_memory_equal(got, want, part + 1);
        /* and back, into a tensor of which the rest stays */
        back = malloc(bytes);
        memset(back, 0x5a, bytes);
        merak_unpack_box(memset(from, 0x5a, bytes), &box, want);
        assert_int_equal(
            merak_cuda_unpack(&cuda_context, back, &box, want, NULL), MERAK_OK);
        assert_memory_equal(back, from, bytes);
        free(back);
        free(from);
        free(got);
        free(want);
    }
}

/* A number of a dtype whose sums depend on their order; one in 50 a NaN, where
 * the largest is sought. */
static void put_number(void *p, size_t i, enum merak_dtype dtype, int member,
                       bool max)
{
    uint64_t h =
        (i * 6364136223846793005u + (uint64_t)member) * 1442695040888963407u;
    double x = ldexp((double)(h >> 40 & 0xffff) - 32768, (int)(h >> 33 & 15));

    if (max && dtype != MERAK_I32 && h % 50 == 0)
        x = NAN;
    if (dtype == MERAK_F32)
        ((float *)p)[i] = (float)x;
    else if (dtype == MERAK_F64)
        ((double *)p)[i] = x;
    else if (dtype == MERAK_BF16)
        ((uint16_t *)p)[i] = merak_f32_to_bf16((float)x);
    else
        ((int32_t *)p)[i] = (int32_t)(x / 64);
}

/* As on the host, to the bit: aligned and not, in place and not. */
void cuda_pieces_are_combined_in_member_order(void **state)
{
    static const enum merak_dtype dtypes[] = {MERAK_F32, MERAK_BF16, MERAK_F64,
                                              MERAK_I32};

    (void)state;
    for (int i = 0; i < 64; i++) {
        enum merak_dtype dtype = dtypes[i % 4];
        size_t es = merak_dtype_bytes(dtype), skew = i / 32 * es;
        struct merak_accel_terms p = {.n = 2 + i / 4 % 2 * 3,
                                      .count = 1 + (size_t)i * 37,
                                      .dtype = dtype,
                                      .max = i / 8 % 2 != 0};
        char *staged, *mine, *want;
        int n = 0;

        p.me = i / 16 % p.n;
        p.stride = (p.count * es + 15) / 16 * 16;
        staged = malloc((size_t)p.n * p.stride + es);
        mine = malloc(p.stride + es);
        want = malloc(p.stride);
        for (int q = 0; q < p.n; q++) {
            char *at = q == p.me ? mine + skew
                                 : staged + skew + (size_t)n++ * p.stride;

            for (size_t k = 0; k < p.count; k++)
                put_number(at, k, dtype, q, p.max);
        }
        p.staged = staged + skew;
        p.mine = mine + skew;
        merak_combine_terms(want, &p);
        assert_int_equal(
            merak_cuda_combine(&cuda_context, mine + skew, &p, NULL), MERAK_OK);
        assert_memory_equal(mine + skew, want, p.count * es);
        free(staged);
        free(mine);
        free(want);
    }
}

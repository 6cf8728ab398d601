/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cuda/cuda_tiles.cuh - products of tiles in shared memory, one for
 * each warp
 *
 * A warp holds 16 rows of a result in registers, or MT times 16, in the layout
 * of mma.sync: of each eight columns, lane 4 g + t has elements (g, 2t),
 * (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1).  bf16 tiles are multiplied by
 * tensor cores, f32 tiles by plain multiply-adds; both sum in f32 in a fixed
 * order.
 *
 * A left operand is a tile in shared memory, or held in registers; two products
 * can be chained, since bf16 results in registers are laid out as a left
 * operand is.  Every lane's right operand comes from shared memory, whose
 * bandwidth is what limits products: the more rows a warp has, the fewer bytes
 * it reads for a multiplication.
 */
#ifndef MERAK_KERNELS_CUDA_CUDA_TILES_CUH
#define MERAK_KERNELS_CUDA_CUDA_TILES_CUH

#include "kernels/cuda/cuda_device.cuh"

#define TILE_ROWS 16 /* per warp */

/* Elements from one row of a tile to the next, so that the 16-byte pieces of
 * eight rows are in different banks. */
template <typename T> constexpr __host__ __device__ int tile_ld(int columns)
{
    return columns + 16 / (int)sizeof(T);
}

/* --- instructions ----------------------------------------------------------
 */

#ifdef __CUDACC__
/* Copy 16 bytes to shared memory, or zeros unless `there`, before the next
 * copies_wait() of this thread; barriers do not wait for them. */
static __device__ __forceinline__ void copy_16(void *to, const void *from,
                                               bool there)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                     (unsigned)__cvta_generic_to_shared(to)),
                 "l"(__cvta_generic_to_global(from)), "r"(there ? 16 : 0)
                 : "memory");
}

/* The same for 4 bytes. */
static __device__ __forceinline__ void copy_4(void *to, const void *from,
                                              bool there)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(
                     (unsigned)__cvta_generic_to_shared(to)),
                 "l"(__cvta_generic_to_global(from)), "r"(there ? 4 : 0)
                 : "memory");
}

static __device__ __forceinline__ void copies_wait()
{
    asm volatile("cp.async.wait_all;" ::: "memory");
}

/* Load four 8 x 8 matrices of 16-bit elements: lane i gives the address of row
 * i % 8 of matrix i / 8; each register gets two neighbors in a row. */
static __device__ __forceinline__ void load_matrices(unsigned (&r)[4],
                                                     const merak_bf16 *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 "
                 "{%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"((unsigned)__cvta_generic_to_shared(row))
                 : "memory");
}

/* The same, transposed: neighbors in a column. */
static __device__ __forceinline__ void
load_matrices_transposed(unsigned (&r)[4], const merak_bf16 *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 "
                 "{%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"((unsigned)__cvta_generic_to_shared(row))
                 : "memory");
}

/* c[16, 8] += a[16, 16] b[16, 8]. */
static __device__ __forceinline__ void
multiply(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                 "{%0, %1, %2, %3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0),
                   "r"(b1));
}
#else
/* The instructions, with register layouts as in the PTX manual. */
static inline void copy_16(void *to, const void *from, bool there)
{
    if (!is_aligned(to) || !is_aligned(from))
        merak_sim_fatal("a copy of 16 bytes that are not on 16 bytes");
    merak_sim_copy(to, there ? from : nullptr, 16);
}

static inline void copy_4(void *to, const void *from, bool there)
{
    merak_sim_copy(to, there ? from : nullptr, 4);
}

static inline void copies_wait()
{
    merak_sim_copies_wait();
}

static inline unsigned sim_element(const void *row, unsigned i)
{
    return static_cast<const merak_bf16 *>(row)[i].bits;
}

static inline const void *sim_row(const void *const *given, unsigned lane)
{
    return *static_cast<const void *const *>(given[lane]);
}

static inline const void *const *sim_rows(const merak_bf16 *row)
{
    if (!is_aligned(row))
        merak_sim_fatal("ldmatrix of a row that is not on 16 bytes");
    return merak_sim_exchange(&row, sizeof(row));
}

static inline void load_matrices(unsigned (&r)[4], const merak_bf16 *row)
{
    const void *const *given = sim_rows(row);
    unsigned lane = threadIdx.x % WARP;

    for (unsigned m = 0; m < 4; m++) {
        const void *from = sim_row(given, m * 8 + lane / 4);

        r[m] = sim_element(from, lane % 4 * 2) |
               sim_element(from, lane % 4 * 2 + 1) << 16;
    }
}

static inline void load_matrices_transposed(unsigned (&r)[4],
                                            const merak_bf16 *row)
{
    const void *const *given = sim_rows(row);
    unsigned lane = threadIdx.x % WARP;

    for (unsigned m = 0; m < 4; m++) {
        unsigned first = m * 8 + lane % 4 * 2;

        r[m] = sim_element(sim_row(given, first), lane / 4) |
               sim_element(sim_row(given, first + 1), lane / 4) << 16;
    }
}

struct merak_sim_operands {
    unsigned a[4], b[2];
};

/* Element k of the pair in a register. */
static inline float sim_half(unsigned pair, unsigned k)
{
    return bits_to_f32(k % 2 == 0 ? pair << 16 : pair & 0xffff0000u);
}

static inline void multiply(float (&c)[4], const unsigned (&a)[4], unsigned b0,
                            unsigned b1)
{
    merak_sim_operands mine = {{a[0], a[1], a[2], a[3]}, {b0, b1}};
    const void *const *given = merak_sim_exchange(&mine, sizeof(mine));
    unsigned lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;

    for (unsigned i = 0; i < 4; i++) {
        unsigned column = 2 * t + i % 2;

        for (unsigned k = 0; k < 16; k++) {
            unsigned pair = k % 8 / 2;
            const merak_sim_operands *left =
                static_cast<const merak_sim_operands *>(given[4 * g + pair]);
            const merak_sim_operands *right =
                static_cast<const merak_sim_operands *>(
                    given[4 * column + pair]);

            c[i] += sim_half(left->a[k / 8 * 2 + i / 2], k) *
                    sim_half(right->b[k / 8], k);
        }
    }
}
#endif

/* --- products --------------------------------------------------------------
 */

/* Layout of b: element (k, n) of the right operand is b[n ld + k], or
 * b[k ld + n]. */
enum merak_right { RIGHT_BY_COLUMN, RIGHT_BY_ROW };

/* A left operand: the rows of a warp in shared memory. */
template <typename T> struct merak_left {
    const T *rows;
    int ld;
};

/* The same in registers, 16 MT rows of 16 KT bf16. */
template <int MT, int KT> struct merak_left_held {
    unsigned a[MT][KT][4];
};

/* Rows [16 m, 16 m + 16) and columns [16 k, 16 k + 16) of a left operand. */
static __device__ __forceinline__ void
left_piece(const merak_left<merak_bf16> &left, int m, int k, unsigned (&a)[4])
{
    int lane = threadIdx.x % WARP, low = lane % 8, matrix = lane / 8;

    load_matrices(a, left.rows + (m * 16 + low + matrix % 2 * 8) * left.ld +
                         k * 16 + matrix / 2 * 8);
}

template <int MT, int KT>
static __device__ __forceinline__ void
left_piece(const merak_left_held<MT, KT> &left, int m, int k, unsigned (&a)[4])
{
#pragma unroll
    for (int i = 0; i < 4; i++)
        a[i] = left.a[m][k][i];
}

template <int MT, int KT>
static __device__ __forceinline__ void hold(merak_left_held<MT, KT> &held,
                                            const merak_left<merak_bf16> &left)
{
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int k = 0; k < KT; k++)
            left_piece(left, m, k, held.a[m][k]);
    }
}

/* Results, rounded, as a left operand. */
template <int MT, int NT>
static __device__ __forceinline__ void hold(merak_left_held<MT, NT / 2> &held,
                                            const float (&c)[MT][NT][4])
{
    static_assert(NT % 2 == 0, "pairs of eight columns");
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int n = 0; n < NT; n++) {
            held.a[m][n / 2][n % 2 * 2] = pack2(c[m][n]);
            held.a[m][n / 2][n % 2 * 2 + 1] = pack2(c[m][n] + 2);
        }
    }
}

/* c[16 MT, 8 NT] += left[16 MT, K] b[K, 8 NT]. */
template <int K, merak_right RIGHT, int MT, int NT, typename L>
static __device__ __forceinline__ void
tile_product(float (&c)[MT][NT][4], const L &left, const merak_bf16 *b, int ldb)
{
    static_assert(NT % 2 == 0 && K % 16 == 0, "pairs of eight columns");
    int lane = threadIdx.x % WARP, low = lane % 8, matrix = lane / 8;

    if (RIGHT == RIGHT_BY_COLUMN)
        b += (matrix / 2 * 8 + low) * ldb + matrix % 2 * 8;
    else
        b += (matrix % 2 * 8 + low) * ldb + matrix / 2 * 8;
#pragma unroll
    for (int k = 0; k < K / 16; k++) {
        unsigned a[MT][4], right[4];

#pragma unroll
        for (int m = 0; m < MT; m++)
            left_piece(left, m, k, a[m]);
#pragma unroll
        for (int n = 0; n < NT; n += 2) {
            if (RIGHT == RIGHT_BY_COLUMN)
                load_matrices(right, b + n * 8 * ldb + k * 16);
            else
                load_matrices_transposed(right, b + k * 16 * ldb + n * 8);
#pragma unroll
            for (int m = 0; m < MT; m++) {
                multiply(c[m][n], a[m], right[0], right[1]);
                multiply(c[m][n + 1], a[m], right[2], right[3]);
            }
        }
    }
}

template <int K, merak_right RIGHT, int MT, int NT>
static __device__ __forceinline__ void
tile_product(float (&c)[MT][NT][4], const merak_left<float> &left,
             const float *b, int ldb)
{
    int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;

#pragma unroll
    for (int m = 0; m < MT; m++) {
        const float *a = left.rows + m * 16 * left.ld;

#pragma unroll 2
        for (int k = 0; k < K; k++) {
            float a0 = a[g * left.ld + k], a1 = a[(g + 8) * left.ld + k];

#pragma unroll
            for (int n = 0; n < NT; n++) {
                int column = n * 8 + 2 * t;
                float b0 = RIGHT == RIGHT_BY_COLUMN ? b[column * ldb + k]
                                                    : b[k * ldb + column];
                float b1 = RIGHT == RIGHT_BY_COLUMN ? b[(column + 1) * ldb + k]
                                                    : b[k * ldb + column + 1];

                c[m][n][0] += a0 * b0;
                c[m][n][1] += a0 * b1;
                c[m][n][2] += a1 * b0;
                c[m][n][3] += a1 * b1;
            }
        }
    }
}

/* c += left b for results `left`, rounded to T; `room` is a warp's own part of
 * shared memory, rows of `ld`, which only f32 needs. */
template <merak_right RIGHT, int MT, int LT, int NT>
static __device__ __forceinline__ void
chain_product(float (&c)[MT][NT][4], const float (&left)[MT][LT][4],
              merak_bf16 *room, int ld, const merak_bf16 *b, int ldb)
{
    merak_left_held<MT, LT / 2> held;

    (void)room, (void)ld;
    hold(held, left);
    tile_product<LT * 8, RIGHT>(c, held, b, ldb);
}

template <merak_right RIGHT, int MT, int LT, int NT>
static __device__ __forceinline__ void
chain_product(float (&c)[MT][NT][4], const float (&left)[MT][LT][4],
              float *room, int ld, const float *b, int ldb)
{
    int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;

    __syncwarp(); /* the previous one has been read */
#pragma unroll
    for (int m = 0; m < MT; m++) {
#pragma unroll
        for (int n = 0; n < LT; n++) {
            float *at = room + (m * 16 + g) * ld + n * 8 + 2 * t;

            at[0] = left[m][n][0];
            at[1] = left[m][n][1];
            at[8 * ld] = left[m][n][2];
            at[8 * ld + 1] = left[m][n][3];
        }
    }
    __syncwarp();
    tile_product<LT * 8, RIGHT>(c, merak_left<float>{room, ld}, b, ldb);
}

/* --- memory ----------------------------------------------------------------
 */

/* Start to load rows [0, rows) of a tile [ROWS, DP], each D elements and then
 * zeros, from rows that are `stride` apart; the other rows are zero.  It is
 * there for all after copies_wait() of every thread and a barrier. */
template <int ROWS, int DP, int THREADS, typename T>
static __device__ __forceinline__ void
load_tile(T *tile, const T *from, size_t stride, int rows, int D, bool whole)
{
    constexpr int N = merak_piece<T>::N, PIECES = DP / N;
    constexpr int STEP = THREADS / PIECES; /* rows at once */
    int first = threadIdx.x / PIECES, at = threadIdx.x % PIECES * N;
    T *to = tile + first * tile_ld<T>(DP) + at;
    const T *piece = from + first * stride + at;

    static_assert(THREADS % PIECES == 0 && ROWS % STEP == 0, "whole rows");
    if (whole) {
#pragma unroll
        for (int i = 0; i < ROWS; i += STEP, piece += STEP * stride)
            copy_16(to + i * tile_ld<T>(DP), piece, first + i < rows && at < D);
        return;
    }
#pragma unroll 1
    for (int i = 0; i < ROWS; i += STEP, piece += STEP * stride) {
        int left = first + i < rows ? D - at : 0;

#pragma unroll 1
        for (int k = 0; k < N; k++)
            to[i * tile_ld<T>(DP) + k] = k < left ? piece[k] : T{};
    }
}

#endif

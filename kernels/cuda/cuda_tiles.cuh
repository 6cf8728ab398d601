/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cuda/cuda_tiles.cuh - products of tiles in shared memory, one for
 * each warp
 *
 * A warp holds 16 rows of a result in registers, in the layout of mma.sync: of
 * each eight columns, lane 4 g + t has elements (g, 2t), (g, 2t + 1),
 * (g + 8, 2t), (g + 8, 2t + 1).  bf16 tiles are multiplied by tensor cores,
 * f32 tiles by plain multiply-adds; both sum in f32 in a fixed order.
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

/* c[16, 8 NT] += a[16, K] b[K, 8 NT]; a is by rows. */
template <int K, merak_right RIGHT, int NT>
static __device__ __forceinline__ void
tile_product(float (&c)[NT][4], const merak_bf16 *a, int lda,
             const merak_bf16 *b, int ldb)
{
    static_assert(NT % 2 == 0 && K % 16 == 0, "pairs of eight columns");
    /* more steps at once would need too many registers */
    [[maybe_unused]] constexpr int STEPS = K > 64 ? 2 : K / 16;
    int lane = threadIdx.x % WARP, low = lane % 8, matrix = lane / 8;

#pragma unroll STEPS
    for (int k = 0; k < K; k += 16) {
        unsigned left[4], right[4];

        load_matrices(left,
                      a + (low + matrix % 2 * 8) * lda + k + matrix / 2 * 8);
#pragma unroll
        for (int n = 0; n < NT; n += 2) {
            if (RIGHT == RIGHT_BY_COLUMN)
                load_matrices(right, b + (n * 8 + matrix / 2 * 8 + low) * ldb +
                                         k + matrix % 2 * 8);
            else
                load_matrices_transposed(right,
                                         b + (k + matrix % 2 * 8 + low) * ldb +
                                             n * 8 + matrix / 2 * 8);
            multiply(c[n], left, right[0], right[1]);
            multiply(c[n + 1], left, right[2], right[3]);
        }
    }
}

template <int K, merak_right RIGHT, int NT>
static __device__ __forceinline__ void tile_product(float (&c)[NT][4],
                                                    const float *a, int lda,
                                                    const float *b, int ldb)
{
    int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;

#pragma unroll 2
    for (int k = 0; k < K; k++) {
        float a0 = a[g * lda + k], a1 = a[(g + 8) * lda + k];

#pragma unroll
        for (int n = 0; n < NT; n++) {
            int column = n * 8 + 2 * t;
            float b0 = RIGHT == RIGHT_BY_COLUMN ? b[column * ldb + k]
                                                : b[k * ldb + column];
            float b1 = RIGHT == RIGHT_BY_COLUMN ? b[(column + 1) * ldb + k]
                                                : b[k * ldb + column + 1];

            c[n][0] += a0 * b0;
            c[n][1] += a0 * b1;
            c[n][2] += a1 * b0;
            c[n][3] += a1 * b1;
        }
    }
}

/* --- memory ----------------------------------------------------------------
 */

/* Store a result, rounded to T, to 16 rows of a tile. */
template <typename T, int NT>
static __device__ __forceinline__ void put_tile(T *tile, int ld,
                                                const float (&c)[NT][4])
{
    int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;

#pragma unroll
    for (int n = 0; n < NT; n++) {
        T *at = tile + g * ld + n * 8 + 2 * t;

        if constexpr (sizeof(T) == 2) {
            *reinterpret_cast<merak_word *>(at) = pack2(c[n]);
            *reinterpret_cast<merak_word *>(at + 8 * ld) = pack2(c[n] + 2);
        } else {
            at[0] = c[n][0];
            at[1] = c[n][1];
            at[8 * ld] = c[n][2];
            at[8 * ld + 1] = c[n][3];
        }
    }
}

/* Load rows [0, rows) of a tile [ROWS, DP], each D elements and then zeros,
 * from rows that are `stride` apart; the other rows are zero. */
template <int ROWS, int DP, int THREADS, typename T>
static __device__ __forceinline__ void
load_tile(T *tile, const T *from, size_t stride, int rows, int D, bool whole)
{
    constexpr int N = merak_piece<T>::N, PIECES = DP / N;

#pragma unroll 4
    for (int i = threadIdx.x; i < ROWS * PIECES; i += THREADS) {
        int row = i / PIECES, at = i % PIECES * N;
        T *to = tile + row * tile_ld<T>(DP) + at;
        int left = row < rows ? D - at : 0;

        if (whole && left >= N) {
            *reinterpret_cast<uint4 *>(to) =
                *reinterpret_cast<const uint4 *>(from + row * stride + at);
            continue;
        }
#pragma unroll
        for (int k = 0; k < N; k++)
            to[k] = k < left ? from[row * stride + at + k] : T{};
    }
}

#endif

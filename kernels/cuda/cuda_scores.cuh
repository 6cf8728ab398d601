/* SPDX-License-Identifier: Apache-2.0 */
/* kernels/cuda/cuda_scores.cuh - scores of attention: their exponentials, which
 * pairs of a query and a key have one, and which are dropped
 *
 * F is struct merak_flash.
 */
#ifndef MERAK_KERNELS_CUDA_CUDA_SCORES_CUH
#define MERAK_KERNELS_CUDA_CUDA_SCORES_CUH

#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/cuda_dropout.cuh"
#include "kernels/cuda/cuda_tiles.cuh"

/* Softmax takes exponentials to base 2 in bf16, which one instruction computes,
 * and to base e in f32.  Scores and lse are scaled for them by LOG_E, the
 * logarithm of e to that base. */
template <typename T> struct merak_exp_base {
    static constexpr float LOG_E = sizeof(T) == 2 ? 1.44269504088896340736f : 1;
};

template <typename T>
static __device__ __forceinline__ float softmax_exp(float x)
{
    return sizeof(T) == 2 ? rough_exp2(x) : expf(x);
}

/* Which keys the queries of a sample see: merak_end_key(). */
struct merak_sample_keys {
    unsigned keys;   /* that it has */
    unsigned prefix; /* that all see */
};

/* A number that the host could not check, within what there is. */
static __device__ __forceinline__ unsigned clamp_keys(int32_t n, unsigned most)
{
    return n < 0 ? 0 : (unsigned)n < most ? (unsigned)n : most;
}

template <typename F>
static __device__ __forceinline__ merak_sample_keys keys_of(const F &f,
                                                            size_t b)
{
    return {f.lengths == nullptr ? f.T_ : clamp_keys(f.lengths[b], f.T_),
            f.prefix == nullptr ? 0 : clamp_keys(f.prefix[b], f.T_)};
}

/* One past the last key that a query sees.  It never decreases for later
 * queries, those after the end included. */
template <typename F>
static __device__ __forceinline__ unsigned
end_key(const F &f, const merak_sample_keys &of, unsigned query)
{
    unsigned end = query + 1 + f.after;

    end = end > of.prefix ? end : of.prefix;
    return end < of.keys ? end : of.keys;
}

/* The first key that a query of a sample sees; it sees all from there up to its
 * last.  It never decreases for later queries, those after the end included. */
template <typename F>
static __device__ __forceinline__ unsigned first_key(const F &f, size_t b,
                                                     unsigned query)
{
    unsigned first = query >= f.window ? query - f.window + 1 : 0, start = 0;

    if (f.starts != nullptr) {
        unsigned last = query < f.end ? query : f.end - 1;

        start = (unsigned)f.starts[b * f.rows + last - f.row0];
    }
    return first > start ? first : start;
}

/* The random stream for dropout of a head of a sample, and where key 0 begins
 * in it: merak_attention_element().  The head's biases by lag, or NULL. */
struct merak_mask {
    uint64_t key;
    size_t element;
    const float *bias;
};

template <typename F>
static __device__ __forceinline__ merak_mask mask_of(const F &f, size_t b,
                                                     size_t h)
{
    size_t head = (f.all.group0 + h / f.R) * f.all.R + f.all.head0 + h % f.R;
    size_t row = (f.all.queries + 3) / 4 * 4;

    return merak_mask{!F::PLAIN && f.drops ? drop_key(f.drop, b) : 0,
                      head * f.all.keys * row,
                      F::PLAIN || f.lags.bias == nullptr
                          ? nullptr
                          : f.lags.bias + h * f.lags.lags};
}

/* The factor of dropout for probability (query, key). */
template <typename F>
static __device__ __forceinline__ float kept(const F &f, const merak_mask &mask,
                                             unsigned query, unsigned key)
{
    size_t element;
    uint32_t word[4], mine;

    if (F::PLAIN || !f.drops)
        return 1;
    element = mask.element + key * ((f.all.queries + 3) / 4 * 4) + query;
    philox(mask.key, element / 4, word);
    mine = element % 4 < 2 ? (element % 4 == 0 ? word[0] : word[1])
                           : (element % 4 == 2 ? word[2] : word[3]);
    return is_kept(f.drop, mine) ? f.drop.scale : 0.0f;
}

/* The score times LOG_E of the product of a query with a key. */
template <typename T, typename F>
static __device__ __forceinline__ float
score(const F &f, const merak_mask &mask, float product, unsigned query,
      unsigned key)
{
    if (!F::PLAIN && f.cap > 0)
        return f.cap * merak_exp_base<T>::LOG_E *
               tanhf(product * f.scale * f.inverse_cap);
    if (!F::PLAIN && mask.bias != nullptr && query < f.end && key < f.T_)
        return product * f.exp_scale + mask.bias[query + f.T_ - 1 - key];
    return product * f.exp_scale;
}

/* Do all queries from `query` on see all `columns` keys from `key` on?  Most
 * tiles do, and need no mask.  seen_from: the first key that the last of these
 * queries sees. */
template <typename F>
static __device__ __forceinline__ bool
is_open(const F &f, const merak_sample_keys &of, unsigned query, unsigned key,
        int columns, unsigned seen_from)
{
    return key + columns <= end_key(f, of, query) && key >= seen_from;
}

/* Set what 16 queries from `query` on have of keys that they do not see, among
 * NT * 8 from `key` on, to `value`; a lane has rows g and g + 8. */
template <typename F, int NT>
static __device__ __forceinline__ void
hide(const F &f, const merak_sample_keys &of, float (&s)[NT][4], unsigned query,
     unsigned key, const unsigned (&seen_from)[2], float value)
{
    int lane = threadIdx.x % WARP, g = lane / 4, t = lane % 4;
    const unsigned seen_to[2] = {end_key(f, of, query + g),
                                 end_key(f, of, query + g + 8)};

#pragma unroll
    for (int n = 0; n < NT; n++) {
#pragma unroll
        for (int i = 0; i < 4; i++) {
            unsigned j = key + n * 8 + 2 * t + i % 2;

            if ((j >= seen_to[i / 2]) | (j < seen_from[i / 2]))
                s[n][i] = value;
        }
    }
}

#endif

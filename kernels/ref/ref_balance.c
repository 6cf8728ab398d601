/* SPDX-License-Identifier: Apache-2.0 */
/* ref_balance.c - how evenly experts are loaded, and what that costs
 * (reference) */
#include "config.h"

#include "kernels/ref/ref.h"

/* The scores of a token added up, which its shares are divided by; 1 for those
 * of a softmax. */
static double sum_scores(const struct merak_balance *b, size_t at)
{
    double sum = 0;

    for (size_t e = 0; e < b->E && b->sigmoid; e++)
        sum += ref_score(b->z, at, b->E, true, e);
    return b->sigmoid ? sum : 1;
}

/* A token's share of an expert. */
static double share(const struct merak_balance *b, size_t at, size_t e)
{
    return ref_score(b->z, at, b->E, b->sigmoid, e) / sum_scores(b, at);
}

/* Rows of sequence s that expert e has, and tokens' shares of it. */
static void sum_tokens(const struct merak_balance *b, size_t s, size_t e,
                       double *rows_p, double *shares_p)
{
    const int32_t *id = (const int32_t *)b->ids->data + s * b->T * b->K;

    *rows_p = *shares_p = 0;
    for (size_t i = 0; i < b->T * b->K; i++)
        *rows_p += (size_t)id[i] == e;
    for (size_t t = 0; t < b->T; t++)
        *shares_p += share(b, (s * b->T + t) * b->E, e);
}

REF_KERNEL(route_load)
{
    struct merak_balance b = merak_load_view(call);
    size_t n = b.L;

    (void)err;
    for (size_t s = 0; s < b.B; s++) {
        double squares = 0;

        for (size_t e = 0; e < b.E; e++) {
            double rows, shares;

            sum_tokens(&b, s, e, &rows, &shares);
            ref_store(b.load, s * n + e, rows);
            ref_store(b.load, s * n + b.E + e, shares);
        }
        for (size_t t = 0; t < b.T; t++) {
            double log_sum = ref_log_sum(b.z, (s * b.T + t) * b.E, b.E);

            squares += log_sum * log_sum;
        }
        ref_store(b.load, s * n + 2 * b.E, squares);
    }
    return MERAK_OK;
}

/* Fedus et al. 2021 (arXiv:2101.03961), eq. 4 to 6, of each sequence, where f
 * counts all of a token's experts; Zoph et al. 2022 (arXiv:2202.08906), eq. 5.
 */
REF_KERNEL(balance)
{
    struct merak_balance b = merak_balance_view(call);
    double *tally = merak_call_out(call, 0)->data;
    size_t n = b.L;

    (void)err;
    for (size_t i = 0; i < 2 + b.E; i++)
        tally[i] = 0;
    for (size_t s = 0; s < b.B; s++) {
        for (size_t e = 0; e < b.E; e++) {
            double rows = ref_load(b.load, s * n + e);

            tally[0] += (double)b.E * rows * ref_load(b.load, s * n + b.E + e) /
                        (b.all_t * b.all_t * b.all_b);
            tally[2 + e] += rows;
        }
        tally[1] += ref_load(b.load, s * n + 2 * b.E) / (b.all_t * b.all_b);
    }
    return MERAK_OK;
}

/* The mean of a sequence's rows over experts, weighted by a token's shares. */
static double mean_rows(const struct merak_balance *b, size_t s, size_t at)
{
    double mean = 0;

    for (size_t e = 0; e < b->E; e++)
        mean += ref_load(b->load, s * b->L + e) * share(b, at, e);
    return mean;
}

REF_KERNEL(balance_dx)
{
    struct merak_balance b = merak_balance_dx_view(call);

    (void)err;
    for (size_t i = 0; i < b.B * b.T; i++) {
        size_t at = i * b.E, s = i / b.T;
        double mean = mean_rows(&b, s, at), sum = sum_scores(&b, at);
        double log_sum = ref_log_sum(b.z, at, b.E);

        for (size_t e = 0; e < b.E; e++) {
            double p = ref_score(b.z, at, b.E, b.sigmoid, e);
            double more = ref_load(b.load, s * b.L + e) - mean;
            double dp = b.sigmoid ? p * (1 - p) / sum : p;

            ref_store(merak_call_out(call, 0), at + e,
                      b.aux * more * dp +
                          b.square * log_sum *
                              ref_score(b.z, at, b.E, false, e));
        }
    }
    return MERAK_OK;
}

REF_KERNEL(experts_overflow)
{
    (void)err;
    *(double *)merak_call_out(call, 0)->data = merak_overflow_count(call);
    return MERAK_OK;
}

REF_KERNEL(balance_count)
{
    struct merak_balance b = merak_balance_view(call);
    double by_rows, by_tokens;

    (void)err;
    merak_balance_whole(&b, &by_rows, &by_tokens);
    for (size_t e = 0; e < b.E; e++) {
        double rows = 0;

        for (size_t s = 0; s < b.B; s++)
            rows += ref_load(b.load, s * b.L + e);
        ref_put(call, merak_call_out(call, 0), e,
                by_rows * rows - by_tokens * (double)b.B);
    }
    return MERAK_OK;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* kcase_attention.c - calls of attention: causal, in a window, of documents;
 * with a full mask, with keys of another sequence, of samples with fewer keys,
 * with a prefix; with values of another width than keys; with biases */
#include "config.h"

#include "unit/near.h"

#include "unit/kernels/kcase.h"

#include <string.h>

#define N(...)                                               \
    (int)(sizeof((size_t[]){__VA_ARGS__}) / sizeof(size_t)), \
    {                                                        \
        __VA_ARGS__                                          \
    }

int kc_attention_rows(const struct kc_heads *h, struct kc_row *row, int max)
{
    size_t B = h->B, T = h->T, G = h->G, R = h->R, D = h->D;
    size_t S = T + T / 2 + 1, some = T / 2 + 1; /* keys of another sequence */
    size_t less = D / 2 + 1, more = D + D / 2;  /* channels of values */
    const struct kc_row all[] = {
        {.op = "attention",
         .n_in = 3,
         .n_out = 2,
         .operand = {{'c', N(B, T, G, R, D)},
                     {'c', N(B, T, G, D)},
                     {'c', N(B, T, G, D)},
                     {'c', N(B, T, G, R, D)},
                     {'f', N(B, T, G, R)}}},
        {.op = "attention_packed",
         .n_in = 1,
         .n_out = 2,
         .operand = {{'c', N(B, T, 3, G, D)},
                     {'c', N(B, T, G, D)},
                     {'f', N(B, T, G)}}},
        {.op = "attention",
         .n_in = 3,
         .n_out = 2,
         .attrs = {.i = {6, 3}, .f = {0.3, 0.4, 2.5}},
         .operand = {{'c', N(B, T, G, R, D)},
                     {'c', N(B, T, G, D)},
                     {'c', N(B, T, G, D)},
                     {'c', N(B, T, G, R, D)},
                     {'f', N(B, T, G, R)}}},
        {.op = "attention_packed",
         .n_in = 1,
         .n_out = 2,
         .attrs = {.i = {1 << 20}, .f = {0.6}},
         .operand = {{'c', N(B, T, 3, G, D)},
                     {'c', N(B, T, G, D)},
                     {'f', N(B, T, G)}}},
        {.op = "attention",
         .n_in = 4,
         .n_out = 2,
         .attrs = {.i = {6, (int64_t)T / 2 + 1}, .f = {0.3, 0.4, 2.5}},
         .operand = {{'c', N(B, T, G, R, D)},
                     {'c', N(B, T, G, D)},
                     {'c', N(B, T, G, D)},
                     {'s', N(B, T)},
                     {'c', N(B, T, G, R, D)},
                     {'f', N(B, T, G, R)}}},
        {.op = "attention_packed",
         .n_in = 2,
         .n_out = 2,
         .operand = {{'c', N(B, T, 3, G, D)},
                     {'s', N(B, T)},
                     {'c', N(B, T, G, D)},
                     {'f', N(B, T, G)}}},
        /* values narrower and wider than keys */
        {.op = "attention",
         .n_in = 3,
         .n_out = 2,
         .operand = {{'c', N(B, T, G, R, D)},
                     {'c', N(B, T, G, D)},
                     {'c', N(B, T, G, less)},
                     {'c', N(B, T, G, R, less)},
                     {'f', N(B, T, G, R)}}},
        {.op = "attention",
         .n_in = 4,
         .n_out = 2,
         .vocab = S,
         .attrs = {.i = {6, 0, -1}, .f = {0.3, 0.4, 2.5}},
         .operand = {{'c', N(B, T, G, R, D)},
                     {'c', N(B, S, G, D)},
                     {'c', N(B, S, G, more)},
                     {'l', N(B)},
                     {'c', N(B, T, G, R, more)},
                     {'f', N(B, T, G, R)}}},
        /* full: keys of a longer and of a shorter sequence, with dropout */
        {.op = "attention",
         .n_in = 3,
         .n_out = 2,
         .attrs = {.i = {6, 0, -1}, .f = {0.3}},
         .operand = {{'c', N(B, T, G, R, D)},
                     {'c', N(B, S, G, D)},
                     {'c', N(B, S, G, D)},
                     {'c', N(B, T, G, R, D)},
                     {'f', N(B, T, G, R)}}},
        {.op = "attention",
         .n_in = 4,
         .n_out = 2,
         .vocab = some,
         .attrs = {.i = {6, 0, -1}, .f = {0, 0.4, 2.5}},
         .operand = {{'c', N(B, T, G, R, D)},
                     {'c', N(B, some, G, D)},
                     {'c', N(B, some, G, D)},
                     {'l', N(B)},
                     {'c', N(B, T, G, R, D)},
                     {'f', N(B, T, G, R)}}},
        /* some keys before and after; a query may see none that there is */
        {.op = "attention_packed",
         .n_in = 1,
         .n_out = 2,
         .attrs = {.i = {0, 2, 1}},
         .operand = {{'c', N(B, T, 3, G, D)},
                     {'c', N(B, T, G, D)},
                     {'f', N(B, T, G)}}},
        {.op = "attention",
         .n_in = 4,
         .n_out = 2,
         .vocab = T,
         .attrs = {.i = {6, 3, (int64_t)T / 2}, .f = {0.3}},
         .operand = {{'c', N(B, T, G, R, D)},
                     {'c', N(B, T, G, D)},
                     {'c', N(B, T, G, D)},
                     {'l', N(B)},
                     {'c', N(B, T, G, R, D)},
                     {'f', N(B, T, G, R)}}},
        /* causal with fewer keys; with a prefix, and with both */
        {.op = "attention_packed",
         .n_in = 2,
         .n_out = 2,
         .vocab = T,
         .operand = {{'c', N(B, T, 3, G, D)},
                     {'l', N(B)},
                     {'c', N(B, T, G, D)},
                     {'f', N(B, T, G)}}},
        {.op = "attention",
         .n_in = 4,
         .n_out = 2,
         .vocab = T,
         .attrs = {.i = {6}, .f = {0.3, 0, 1.5}},
         .operand = {{'c', N(B, T, G, R, D)},
                     {'c', N(B, T, G, D)},
                     {'c', N(B, T, G, D)},
                     {'x', N(B)},
                     {'c', N(B, T, G, R, D)},
                     {'f', N(B, T, G, R)}}},
        {.op = "attention_packed",
         .n_in = 3,
         .n_out = 2,
         .vocab = T,
         .operand = {{'c', N(B, T, 3, G, D)},
                     {'l', N(B)},
                     {'x', N(B)},
                     {'c', N(B, T, G, D)},
                     {'f', N(B, T, G)}}},
        {.op = "attention",
         .n_in = 5,
         .n_out = 2,
         .vocab = T,
         .operand = {{'c', N(B, T, G, R, D)},
                     {'c', N(B, T, G, D)},
                     {'c', N(B, T, G, D)},
                     {'s', N(B, T)},
                     {'l', N(B)},
                     {'c', N(B, T, G, R, D)},
                     {'f', N(B, T, G, R)}}},
        /* with sinks: and a window, and documents, and a cap */
        {.op = "attention",
         .n_in = 4,
         .n_out = 2,
         .attrs = {.i = {6, 3}, .f = {0.3, 0.7}},
         .operand = {{'c', N(B, T, G, R, D)},
                     {'c', N(B, T, G, D)},
                     {'c', N(B, T, G, less)},
                     {'z', N(G, R)},
                     {'c', N(B, T, G, R, less)},
                     {'f', N(B, T, G, R)}}},
        {.op = "attention",
         .n_in = 5,
         .n_out = 2,
         .attrs = {.f = {0, 0, 1.5}},
         .operand = {{'c', N(B, T, G, R, D)},
                     {'c', N(B, T, G, D)},
                     {'c', N(B, T, G, D)},
                     {'s', N(B, T)},
                     {'z', N(G, R)},
                     {'c', N(B, T, G, R, D)},
                     {'f', N(B, T, G, R)}}},
        /* with biases: both ways, one way, of samples with fewer keys */
        {.op = "attention_biased",
         .n_in = 4,
         .n_out = 2,
         .attrs = {.i = {6, 0, -1}, .f = {0.3, 0.7, 0, 5, 1}},
         .operand = {{'c', N(B, T, G, R, D)},
                     {'c', N(B, S, G, D)},
                     {'c', N(B, S, G, D)},
                     {'y', N(8, G, R)},
                     {'c', N(B, T, G, R, D)},
                     {'f', N(B, T, G, R)}}},
        {.op = "attention_biased",
         .n_in = 4,
         .n_out = 2,
         .attrs = {.i = {0, 0, 0}, .f = {0, 1, 0, 4, 0}},
         .operand = {{'c', N(B, T, G, R, D)},
                     {'c', N(B, T, G, D)},
                     {'c', N(B, T, G, less)},
                     {'y', N(6, G, R)},
                     {'c', N(B, T, G, R, less)},
                     {'f', N(B, T, G, R)}}},
        {.op = "attention_biased",
         .n_in = 5,
         .n_out = 2,
         .vocab = some,
         .attrs = {.i = {0, 0, -1}, .f = {0, 0.4, 0, 40, 1}},
         .operand = {{'c', N(B, T, G, R, D)},
                     {'c', N(B, some, G, D)},
                     {'c', N(B, some, G, D)},
                     {'l', N(B)},
                     {'y', N(32, G, R)},
                     {'c', N(B, T, G, R, D)},
                     {'f', N(B, T, G, R)}}},
    };
    int n = sizeof(all) / sizeof(*all);

    assert_true(n <= max);
    memcpy(row, all, sizeof(all));
    return n;
}

/* Tiles of every backend: what is seen begins and ends inside them, at their
 * edges and behind the last one.  Some queries see no key. */
static const struct mask {
    size_t T, S; /* queries, keys */
    int64_t window, after;
    const char *inputs; /* types of the optional ones */
} masks[] = {
    {70, 198, 0, -1, ""},   {198, 70, 0, -1, "l"},   {150, 150, 70, 3, ""},
    {150, 150, 5, 100, ""}, {198, 198, 64, 64, "l"}, {198, 198, 0, 0, "l"},
    {130, 130, 0, 0, "x"},  {198, 198, 0, 0, "lx"},  {150, 150, 33, 0, "l"},
    {1, 129, 0, -1, "l"},   {150, 150, 0, 0, "y"},   {70, 198, 0, -1, "y"},
    {198, 70, 0, -1, "ly"}, {198, 198, 0, -1, "ly"}, {198, 198, 0, -1, "lz"},
    {150, 150, 33, 0, "z"}, {150, 150, 0, 0, "z"},
};

int kc_mask_row(int i, struct kc_row *row)
{
    const int n = sizeof(masks) / sizeof(*masks);
    size_t extra = 0;

    if (i >= n)
        return n;
    *row = (struct kc_row){
        .op = "attention",
        .n_out = 2,
        .vocab = masks[i].S,
        .attrs = {.i = {3, masks[i].window, masks[i].after},
                  .f = {i % 3 == 1 ? 0.2 : 0, 0, i % 4 == 2 ? 1.5 : 0}},
        .operand = {{'c', N(2, masks[i].T, 1, 2, 4)},
                    {'c', N(2, masks[i].S, 1, 4)},
                    {'c', N(2, masks[i].S, 1, 4)}}};
    for (; masks[i].inputs[extra] != '\0'; extra++)
        row->operand[3 + extra] =
            (struct kc_operand){masks[i].inputs[extra], N(2)};
    if (extra > 0 && masks[i].inputs[extra - 1] == KC_TABLE) {
        bool both = masks[i].after != 0;

        strcpy(row->op, "attention_biased");
        row->operand[2 + extra] = (struct kc_operand){KC_TABLE, N(32, 1, 2)};
        row->attrs.f[2] = 0;
        row->attrs.f[3] = both ? 128 : 90;
        row->attrs.f[4] = both;
    }
    if (extra > 0 && masks[i].inputs[extra - 1] == KC_SINKS)
        row->operand[2 + extra] = (struct kc_operand){KC_SINKS, N(1, 2)};
    row->n_in = 3 + (int)extra;
    row->operand[3 + extra] = row->operand[0];
    row->operand[4 + extra] = (struct kc_operand){'f', N(2, masks[i].T, 1, 2)};
    return n;
}

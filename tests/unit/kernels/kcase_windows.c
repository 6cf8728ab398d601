/* SPDX-License-Identifier: Apache-2.0 */
/* kcase_windows.c - calls of ops with windows, at several sizes */
#include "config.h"

#include "unit/near.h"

#include "unit/kernels/kcase.h"

#include <string.h>

/* A window: what it is of, what of each dim, and what comes out. */
static const struct form {
    const char *op;
    int dims;
    size_t more[3]; /* points of each dim beside those of a size */
    size_t size[3], stride[3], pad[3], dilation[3];
    bool bias;
    enum merak_pooling kind;
} forms[] = {
    {"conv", 2, {2, 3}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, true, 0},
    {"conv", 2, {5, 4}, {3, 2}, {2, 3}, {1, 0}, {1, 1}, false, 0},
    {"conv",
     3,
     {2, 2, 3},
     {2, 3, 2},
     {2, 1, 2},
     {0, 1, 1},
     {1, 1, 2},
     false,
     0},
    {"conv", 1, {9}, {4}, {3}, {2}, {2}, true, 0},  /* every tap meets others */
    {"conv", 1, {5}, {2}, {4}, {0}, {2}, false, 0}, /* points of no window */
    {"conv", 2, {6, 4}, {3, 4}, {2, 2}, {1, 1}, {1, 1}, true, 0},
    {"conv", 1, {6}, {3}, {1}, {2}, {2}, false, 0},
    {"conv_dx", 2, {6, 4}, {3, 4}, {2, 2}, {1, 1}, {1, 1}, false, 0},
    {"pool", 2, {4, 3}, {3, 3}, {2, 2}, {1, 1}, {1, 1}, false, MERAK_POOL_MAX},
    {"pool",
     3,
     {2, 2, 2},
     {2, 2, 2},
     {2, 2, 1},
     {0, 0, 0},
     {1, 1, 1},
     false,
     MERAK_POOL_MAX},
    {"pool", 2, {4, 3}, {3, 2}, {2, 1}, {1, 0}, {1, 2}, false, MERAK_POOL_MEAN},
    {"pool",
     3,
     {2, 2, 3},
     {2, 3, 3},
     {1, 2, 2},
     {1, 1, 1},
     {1, 1, 1},
     false,
     MERAK_POOL_MEAN_INSIDE},
    {"pool", 2, {5, 4}, {3, 2}, {2, 2}, {1, 0}, {1, 1}, false, MERAK_POOL_SUM},
    {"pool_dx",
     3,
     {2, 3, 2},
     {2, 3, 1},
     {2, 3, 1},
     {0, 0, 0},
     {1, 1, 1},
     false,
     MERAK_POOL_SUM},
};
#define FORMS (sizeof(forms) / sizeof(*forms))

static void shape(struct kc_operand *op, char type, size_t before, int dims,
                  const size_t *space, size_t after)
{
    op->type = type;
    op->dim[op->ndim++] = before;
    for (int d = 0; d < dims; d++)
        op->dim[op->ndim++] = space[d];
    op->dim[op->ndim++] = after;
}

/* Attributes outlive their calls. */
static void make(const struct form *f, double *list, size_t B, size_t points,
                 size_t I, size_t O, struct kc_row *row)
{
    size_t in[3], out[3];
    bool conv = strncmp(f->op, "conv", 4) == 0;
    bool turned = strstr(f->op, "_dx") != NULL;

    *row = (struct kc_row){.n_in = conv ? 2 : 1, .n_out = 1};
    strcpy(row->op, f->op);
    row->attrs.i[0] = f->dims;
    row->attrs.i[1] = (int64_t)f->kind;
    row->attrs.i[2] = MERAK_WINDOW_NUMBERS * f->dims;
    row->attrs.list = list;
    for (int d = 0; d < f->dims; d++) {
        size_t span = f->dilation[d] * (f->size[d] - 1) + 1;

        in[d] = f->more[d] + points;
        out[d] = (in[d] + 2 * f->pad[d] - span) / f->stride[d] + 1;
        *list++ = (double)f->size[d];
        *list++ = (double)f->stride[d];
        *list++ = (double)f->pad[d];
        *list++ = (double)f->dilation[d];
        *list++ = (double)in[d];
        *list++ = (double)out[d];
    }
    shape(&row->operand[0], 'c', B, f->dims, turned ? out : in,
          conv && turned ? O : I);
    if (conv)
        shape(&row->operand[1], 'c', O, f->dims, f->size, I);
    if (f->bias)
        row->operand[row->n_in++] = (struct kc_operand){'f', 1, {O}};
    shape(&row->operand[row->n_in], 'c', B, f->dims, turned ? in : out,
          conv && !turned ? O : I);
}

int kc_window_rows(int size, struct kc_row *row, int max)
{
    static const struct {
        size_t B, points, I, O;
    } sizes[KC_SIZES] = {{1, 0, 3, 2},
                         {2, 2, 17, 7},
                         {1, 0, 1, 1},
                         {2, 6, 8, 16},
                         {3, 5, 40, 24}};
    static double list[KC_SIZES][FORMS][3 * MERAK_WINDOW_NUMBERS];

    assert_true((int)FORMS <= max);
    for (size_t i = 0; i < FORMS; i++)
        make(&forms[i], list[size][i], sizes[size].B, sizes[size].points,
             sizes[size].I, sizes[size].O, &row[i]);
    return (int)FORMS;
}

#define N(...)                                               \
    (int)(sizeof((size_t[]){__VA_ARGS__}) / sizeof(size_t)), \
    {                                                        \
        __VA_ARGS__                                          \
    }

/* B samples of T points, C channels in groups of k. */
int kc_channel_rows(int size, struct kc_row *row, int max)
{
    static const struct {
        size_t B, T, C, k;
    } sizes[KC_SIZES] = {{1, 3, 4, 2},
                         {2, 5, 18, 3},
                         {1, 1, 1, 1},
                         {2, 33, 66, 66},
                         {1, 1100, 48, 1}};
    size_t B = sizes[size].B, T = sizes[size].T;
    size_t C = sizes[size].C, k = sizes[size].k;
    const struct kc_row all[] = {
        {.op = "channel_sums",
         .n_in = 1,
         .n_out = 1,
         .operand = {{'c', N(B, T, C)}, {'d', N(B, C, 2)}}},
        {.op = "channel_sums",
         .n_in = 2,
         .n_out = 1,
         .operand = {{'c', N(B, T, 2, C)},
                     {'c', N(B, T, 2, C)},
                     {'d', N(B, C, 2)}}},
        {.op = "channel_norm",
         .n_in = 4,
         .n_out = 1,
         .attrs = {.i = {(int64_t)k, 1}, .f = {1e-5}},
         .operand = {{'c', N(B, T, C)},
                     {'v', N(B, C, 2)},
                     {'p', N(C)},
                     {'f', N(C)},
                     {'c', N(B, T, C)}}},
        {.op = "batch_norm",
         .n_in = 6,
         .n_out = 1,
         .attrs = {.i = {1, (int64_t)B}, .f = {1e-5}},
         .operand = {{'c', N(B, T, C)},
                     {'v', N(B, C, 2)},
                     {'p', N(C)},
                     {'f', N(C)},
                     {'f', N(C)},
                     {'p', N(C)},
                     {'c', N(B, T, C)}}},
        {.op = "channel_norm_dx",
         .n_in = 5,
         .n_out = 1,
         .attrs = {.i = {1, (int64_t)B}, .f = {1e-5}},
         .operand = {{'c', N(B, T, C)},
                     {'c', N(B, T, C)},
                     {'v', N(B, C, 2)},
                     {'d', N(B, C, 2)},
                     {'p', N(C)},
                     {'c', N(B, T, C)}}},
        {.op = "batch_stats",
         .n_in = 1,
         .n_out = 2,
         .attrs = {.i = {1, 1, 0, (int64_t)T + 1}, .f = {1e-5}},
         .operand = {{'v', N(B, C, 2)}, {'f', N(C)}, {'f', N(C)}},
         .weights = true},
        {.op = "channel_norm_dw",
         .n_in = 2,
         .n_out = 2,
         .attrs = {.i = {1, (int64_t)B, 0, (int64_t)T}, .f = {1e-5}},
         .operand =
             {{'v', N(B, C, 2)}, {'d', N(B, C, 2)}, {'f', N(C)}, {'f', N(C)}},
         .weights = true},
        {.op = "channel_norm_dx",
         .n_in = 5,
         .n_out = 1,
         .attrs = {.i = {(int64_t)k, 1}, .f = {1e-5}},
         .operand = {{'c', N(B, 2, T, C)},
                     {'c', N(B, 2, T, C)},
                     {'v', N(B, C, 2)},
                     {'d', N(B, C, 2)},
                     {'p', N(C)},
                     {'c', N(B, 2, T, C)}}},
        {.op = "channel_norm_dw",
         .n_in = 2,
         .n_out = 2,
         .attrs = {.i = {(int64_t)k, 1, 0, (int64_t)T}, .f = {1e-5}},
         .operand =
             {{'v', N(B, C, 2)}, {'d', N(B, C, 2)}, {'f', N(C)}, {'f', N(C)}},
         .weights = true},
        {.op = "dice_sums",
         .n_in = 2,
         .n_out = 1,
         .vocab = k + 2,
         .operand = {{'c', N(B, T, k + 2)},
                     {'t', N(B, T)},
                     {'d', N(B, k + 2, 3)}}},
        {.op = "dice_loss",
         .n_in = 1,
         .n_out = 1,
         .operand = {{'w', N(B, C, 3)}, {'f', N(B, C)}}},
        {.op = "dice_dlogits",
         .n_in = 3,
         .n_out = 1,
         .vocab = k + 2,
         .attrs = {.f = {0.25}},
         .operand = {{'c', N(B, T, 2, k + 2)},
                     {'t', N(B, T, 2)},
                     {'w', N(B, k + 2, 3)},
                     {'c', N(B, T, 2, k + 2)}}},
        {.op = "concat",
         .n_in = 2,
         .n_out = 1,
         .operand = {{'c', N(B, T, C)},
                     {'c', N(B, T, k)},
                     {'c', N(B, T, C + k)}}},
        {.op = "concat",
         .n_in = 3,
         .n_out = 1,
         .operand = {{'c', N(B, T, k)},
                     {'c', N(B, T, C)},
                     {'c', N(B, T, 3)},
                     {'c', N(B, T, C + k + 3)}}},
        {.op = "concat_shared",
         .n_in = 2,
         .n_out = 1,
         .operand = {{'c', N(B, T, C)},
                     {'c', N(B, T, k, 3)},
                     {'c', N(B, T, k, C + 3)}}},
    };

    assert_true((int)(sizeof(all) / sizeof(*all)) <= max);
    memcpy(row, all, sizeof(all));
    return (int)(sizeof(all) / sizeof(*all));
}

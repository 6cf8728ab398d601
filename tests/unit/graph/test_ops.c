/* SPDX-License-Identifier: Apache-2.0 */
/* test_ops.c - shapes, signatures and costs of the built-in ops
 *
 * Operands are written "f32[2,3] bf16[]"; signatures as one letter a dim,
 * capital where the index cannot be cut, 'v' and what else is uneven named
 * after a semicolon.
 */
#include "config.h"

#include "unit/near.h"

#include "partitioner/graph/graph.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- operands as text
 * --------------------------------------------------------- */

static enum merak_dtype parse_dtype(const char *s, size_t n)
{
    for (int d = 0; d < MERAK_DTYPE_COUNT; d++) {
        const char *name = merak_dtype_name((enum merak_dtype)d);

        if (strlen(name) == n && strncmp(name, s, n) == 0)
            return (enum merak_dtype)d;
    }
    fail_msg("no dtype at %s", s);
    return MERAK_F32;
}

static void parse_operands(const char *s, struct merak_infer *inf)
{
    while (*s != '\0') {
        struct merak_shape *shape = &inf->shape[inf->n_in];
        size_t n = strcspn(s, "[");
        char *end = (char *)s + n + 1;

        inf->dtype[inf->n_in++] = parse_dtype(s, n);
        while (*end != ']') {
            shape->dim[shape->ndim++] = strtoul(end, &end, 10);
            end += *end == ',';
        }
        s = end + 1 + strspn(end + 1, " ");
    }
}

static void print_outputs(const struct merak_infer *inf, char *text,
                          size_t size)
{
    size_t at = 0;

    for (int o = inf->n_in; o < inf->n_in + inf->n_out; o++) {
        at += (size_t)snprintf(text + at, size - at, "%s%s[",
                               o > inf->n_in ? " " : "",
                               merak_dtype_name(inf->dtype[o]));
        for (int d = 0; d < inf->shape[o].ndim; d++)
            at += (size_t)snprintf(text + at, size - at, "%s%zu",
                                   d > 0 ? "," : "", inf->shape[o].dim[d]);
        at += (size_t)snprintf(text + at, size - at, "]");
    }
}

static enum merak_status infer(const char *name, const char *in,
                               const struct merak_attrs *attrs,
                               struct merak_infer *inf, struct merak_error *err)
{
    const struct merak_op *op = merak_op_find(name);

    if (op == NULL)
        fail_msg("no op %s", name);
    memset(inf, 0, sizeof(*inf));
    inf->attrs = attrs;
    parse_operands(in, inf);
    inf->n_out = op->n_out;
    return op->infer(inf, err);
}

/* --- what fits
 * ------------------------------------------------------------------ */

#define R "f32[2,16,2] i32[2,16,2]"
#define MLP "bf16[4,8,32] bf16[4,8,32] bf16[4,32,8]"
#define X "bf16[2,16,32]"
#define S "f32[2,16]"
#define Q "bf16[2,16,2,3,8]"
#define K "bf16[2,16,2,8]"
#define L "f32[2,16,2,3]"
#define N "f32[100]"

static const struct {
    const char *op;
    int64_t i0;
    double f0;
    const char *in, *out, *signature;
} good_rows[] = {
    {"embedding", 0, 0, "i32[2,16] bf16[61,32]", X, "bt vc btc;v"},
    {"embedding_dw", 61, 0, "i32[2,16] " X, "f32[61,32]", "bt btc vc;v"},
    {"add_position", 0, 0, X " bf16[20,32]", X, "btc Pc btc;"},
    {"add_position_dw", 20, 0, X, "f32[20,32]", "btc Pc;"},
    {"linear", 1, 0, X " bf16[48,32]", "bf16[2,16,48]", "bti oi bto;o"},
    {"linear", 1, 0, X " bf16[48,32] f32[48]", "bf16[2,16,48]",
     "bti oi o bto;o"},
    {"linear", 1, 0, X " bf16[3,4,8,32] f32[3,4,8]", "bf16[2,16,3,4,8]",
     "bti opqi opq btopq;"},
    {"linear", 3, 0, Q " bf16[32,2,3,8]", X, "btijk oijk bto;o"},
    {"linear", 1, 0, "f32[5] f32[7,5]", "f32[7]", "i oi o;o"},
    {"linear_dx", 1, 0, "bf16[2,16,3,4,8] bf16[3,4,8,32]", X,
     "btopq opqi bti;"},
    {"linear_dx", 1, 0, "bf16[2,16,61] bf16[61,32]", X, "bto oi bti;o"},
    {"linear_dw", 1, 0, X " bf16[2,16,3,4,8]", "f32[3,4,8,32]",
     "bti btopq opqi;"},
    {"linear_dw", 3, 0, Q " " X, "f32[32,2,3,8]", "btijk bto oijk;o"},
    {"linear_db", 3, 0, "bf16[2,16,3,4,8]", "f32[3,4,8]", "btopq opq;"},
    {"linear_db", 1, 0, X, "f32[32]", "bto o;o"},
    {"layernorm", 0, 1e-5, X " f32[32] f32[32]", X " " S " " S,
     "btC C C btC bt bt;"},
    {"layernorm_dx", 0, 0, X " " X " f32[32] " S " " S, X,
     "btC btC C bt bt btC;"},
    {"layernorm_dw", 0, 0, X " " X " " S " " S, "f32[32] f32[32]",
     "btC btC bt bt C C;"},
    {"rmsnorm", 0, 1e-5, "f64[4,32] f64[32]", "f64[4,32] f64[4]", "bC C bC b;"},
    {"rmsnorm_dx", 0, 0, X " " X " f32[32] " S, X, "btC btC C bt btC;"},
    {"rmsnorm_dw", 0, 0, X " " X " " S, "f32[32]", "btC btC bt C;"},
    {"rope", 0, 1e4, Q, Q, "btefD btefD;+"},
    {"attention", 0, 0, Q " " K " " K, Q " " L, "btgrD bSgD bSgE btgrE btgr;"},
    {"attention", 0, 0, Q " " K " bf16[2,16,2,5]", "bf16[2,16,2,3,5] " L,
     "btgrD bSgD bSgE btgrE btgr;"},
    {"attention_dx", 0, 0, Q " " Q " " K " " K " " Q " " L, Q " " K " " K,
     "btgrE btgrD bSgD bSgE btgrE btgr btgrD bSgD bSgE;"},
    {"attention_biased_dw", 0, 0, "f32[2,32,2,3]", "f32[32,2,3]", "bNgr Ngr;"},
    {"attention_sinks_dw", 0, 0, Q " " Q " " L " f32[2,3]", "f32[2,3]",
     "btgrE btgrE btgr gr gr;"},
    {"attention_packed", 0, 0, "bf16[2,16,3,4,8]", "bf16[2,16,4,8] f32[2,16,4]",
     "bT3hD bThD bTh;"},
    {"attention_packed_dx", 0, 0,
     "bf16[2,16,4,8] bf16[2,16,3,4,8] bf16[2,16,4,8] f32[2,16,4]",
     "bf16[2,16,3,4,8]", "bThD bT3hD bThD bTh bT3hD;"},
    {"gelu", 1, 0, X, X, "bte bte;"},
    {"gelu_dx", 1, 0, X " " X, X, "bte bte bte;"},
    {"mean", 1, 0, X, "bf16[2,32]", "bTe be;"},
    {"mean", 2, 0, X, "bf16[2,16]", "btE bt;"},
    {"relu", 0, 0, X, X, "bte bte;"},
    {"relu", 0, 0.3, X, X, "bte bte;"},
    {"channel_sums", 0, 0, X, "f64[2,32,2]", "btc bc2;"},
    {"channel_sums", 0, 0, "bf16[2,4,4,8] bf16[2,4,4,8]", "f64[2,8,2]",
     "btec btec bc2;"},
    {"dice_sums", 0, 0, "bf16[2,4,4,3] i32[2,4,4]", "f64[2,3,3]",
     "bteV bte bV3;"},
    {"dice_loss", 0, 0, "f64[2,3,3]", "f32[2,3]", "bv3 bv;v"},
    {"dice_dlogits", 0, 0, "bf16[2,4,4,3] i32[2,4,4] f64[2,3,3]",
     "bf16[2,4,4,3]", "bteV bte bV3 bteV;"},
    {"concat", 0, 0, "f32[2,16,3] f32[2,16,5]", "f32[2,16,8]", "btG btR btO;"},
    {"concat_shared", 0, 0, "f32[2,16,3] f32[2,16,4,5]", "f32[2,16,4,8]",
     "btG bthR bthO;"},
    {"concat_shared_dx", 3, 0, "f32[2,16,4,8]", "f32[2,16,3] f32[2,16,4,5]",
     "bthO btG bthR;"},
    {"concat", 0, 0, X " " X " " X " " X, "bf16[2,16,128]",
     "btG btR btC btD btO;"},
    {"relu_dx", 0, 0, X " " X, X, "bte bte bte;"},
    {"tanh", 0, 0, X, X, "bte bte;"},
    {"log1p", 0, 0, X, X, "bte bte;"},
    {"log1p_dx", 0, 0, X " " X, X, "bte bte bte;"},
    {"tanh_dx", 0, 0, X " " X, X, "bte bte bte;"},
    {"relu2", 0, 0, X, X, "bte bte;"},
    {"relu2_dx", 0, 0, X " " X, X, "bte bte bte;"},
    {"widen", 0, 0, X, "f32[2,16,32]", "bte bte;"},
    {"narrow", 0, 0, "f32[2,16,32] " X, X, "bte bte bte;"},
    {"swiglu", 0, 0, X " " X, X, "bte bte bte;"},
    {"swiglu_dx", 0, 0, X " " X " " X, X " " X, "bte bte bte bte bte;"},
    {"add", 0, 0, X " " X, X, "bte bte bte;+"},
    {"dropout", 3, 0.5, X, X, "bte bte;+"},
    {"scale", 0, 2, X, X, "bte bte;+"},
    {"softcap", 0, 30, X, X, "btv btv;v"},
    {"softcap_dx", 0, 30, X " " X, X, "btv btv btv;v"},
    {"route", 2, 0, X, R, "btE btK btK;"},
    {"route", 2, 0, X " f32[32]", R, "btE E btK btK;"},
    {"route_dx", 2, 0, "f32[2,16,2] " X " i32[2,16,2]", X, "btK btE btK btE;"},
    {"experts_overflow", 0, 0, "i32[2,16,2] bf16[4,20,2,8]", "f64[1]",
     "BtK et2f 1;"},
    {"route_load", 0, 0.1, X " i32[2,16,2]", "f32[2,65]", "btE btK bL;"},
    {"route_load", 0, 0, X " i32[2,16,2] f32[32]", "f32[2,65]",
     "btE btK E bL;"},
    {"balance", 32, 0, "f32[2,65]", "f64[34]", "bL R;"},
    {"balance_dx", 0, 0.1, X " f32[2,65]", X, "btE bL btE;"},
    {"balance_count", 32, 0, "f32[2,65]", "f32[32]", "bL E;"},
    {"experts", 0, 0, X " " R " " MLP, X " bf16[2,16,2,2,8]",
     "btC btK btK EfC EfC ECf btC btK2f;"},
    {"experts_dx", 0, 0, X " " R " " MLP " bf16[2,16,2,2,8]",
     X " f32[2,16,2] bf16[2,16,2,2,8]",
     "btC btK btK EfC EfC ECf btK2f btC btK btK2f;"},
    {"experts_dw", 4, 0, X " " R " " X " bf16[2,16,2,2,8] bf16[2,16,2,2,8]",
     "f32[4,8,32] f32[4,8,32] f32[4,32,8]",
     "btC btK btK btC btK2f btK2f EfC EfC ECf;"},
    {"experts", 20, 0, X " " R " " MLP, X " bf16[4,20,2,8]",
     "BtC BtK BtK efC efC eCf BtC et2f;"},
    {"experts_dx", 20, 0, X " " R " " MLP " bf16[4,20,2,8] " X,
     X " f32[2,16,2] bf16[4,20,2,8]",
     "BtC BtK BtK efC efC eCf et2f BtC BtC BtK et2f;"},
    {"experts_bias", 0, 0, X " " R " f32[4,32]", X, "btC btK btK EC btC;"},
    {"experts_bias_dx", 0, 0, X " f32[4,32] i32[2,16,2]", "f32[2,16,2]",
     "btC EC btK btK;"},
    {"experts_bias_db", 4, 0, X " " R, "f32[4,32]", "btC btK btK EC;"},
    {"experts_places_dx", 0, 0, "f32[2,4,6] i32[2,16,2]", "f32[2,16,2]",
     "bEP bTK bTK;"},
    {"experts_left", 0, 0, "i32[2,16,2]", "f64[1]", "BTK 1;"},
    {"experts_dropped", 0, 0, "i32[2,16,2]", "f64[1]", "btK 1;"},
    {"experts_join", 0, 0, "bf16[2,4,5,32] i32[2,16,2]", X, "bERc bTK bTc;"},
    {"experts_join", 0, 0, "bf16[2,4,5,32] i32[2,16,2] " X, X,
     "bERc bTK bTc bTc;"},
    {"experts_rows", 4, 0,
     "bf16[2,4,5,32] f32[2,4,6] " MLP " " X " " R " f64[1]",
     "bf16[2,4,5,32] " X " bf16[2,4,5,2,8]",
     "BeRC BeP efC efC eCf BTC BTK BTK 1 BeRC BTC BeR2f;"},
    {"convert", 0, 0, "i32[2,16] f64[1]", "i32[2,16]", "bt 1 bt;+"},
    {"convert", 0, 0, "i32[2,16]", "i32[2,16]", "bt bt;+"},
    {"convert", 0, 0, "f64[]", "f64[]", " ;+"},
    {"xent_max", 0, 0, "bf16[2,16,61]", S, "btv bt;v"},
    {"xent_max", 0, 0, "bf16[2,61]", "f32[2]", "bv b;v"},
    {"xent_max", 0, 0, "f32[2,3,4,61]", "f32[2,3,4]", "btev bte;v"},
    {"xent_sum", 0, 0, "bf16[2,16,61] " S " i32[2,16]", S " " S,
     "btv bt bt bt bt;v"},
    {"xent_loss", 0, 0, S " " S " " S, S, "bt bt bt bt;"},
    {"pair_loss", 0, 0.1, S " i32[2,16] " S, S " " S " " S,
     "bT bT bT bT bT bT;"},
    {"mean_loss", 0, 1, S " " S " i32[2,16]", "f64[4]", "bT bT bT 4;"},
    {"point_loss", 0, 0, X " f32[2,16,32]", "f32[2,16,32]", "bte bte bte;"},
    {"point_loss_dx", 0, 1, X " f32[2,16,32]", X, "bte bte bte;"},
    {"losses", 0, 0, "f64[] f64[] f64[]", "f64[3]", "   N;+"},
    {"mean_loss", 0, 1, S, "f64[]", "bt ;"},
    {"xent_dlogits", 0, 1, "bf16[2,16,61] " S " " S " i32[2,16]",
     "bf16[2,16,61]", "btv bt bt bt btv;v"},
    {"xent_dlogits", 0, 1, "bf16[2,16,61] " S " " S " i32[2,16] " S,
     "bf16[2,16,61]", "btv bt bt bt bt btv;v"},
    {"grad_add", 0, 0, N, N, "n n;"},
    {"sign_step", 0, 1e-3, N, N, "n n;"},
    {"mean_step", 0, 1e-3, N, N, "n n;"},
    {"sumsq", 0, 0, N, "f64[1]", "n 1;"},
    {"clip", 0, 0, "f64[7]", "f32[2]", "P 2;"},
    {"adamw", 1, 0, N " f32[2]", N " " N " " N " bf16[100]", "n 2 n n n n;"},
};

static void print_signature(const struct merak_infer *inf,
                            const struct merak_signature *sig, char *text)
{
    for (int o = 0; o < inf->n_in + inf->n_out; o++) {
        if (o > 0)
            *text++ = ' ';
        for (int d = 0; d < inf->shape[o].ndim; d++) {
            const struct merak_index *x = &sig->index[sig->operand_dim[o][d]];

            /* rows kept for each expert are cut as positions are */
            assert_int_equal(inf->shape[o].dim[d] % x->extent, 0);
            assert_true(x->extent == inf->shape[o].dim[d] || x->name == 't');
            *text++ = x->kind == MERAK_INDEX_WHOLE
                          ? (char)toupper((unsigned char)x->name)
                          : x->name;
        }
        if (inf->shape[o].ndim == 0 && o == 0)
            assert_int_equal(sig->operand_dim[o][0], -1);
    }
    *text++ = ';';
    for (int i = 0; i < sig->n_index; i++) {
        if (sig->index[i].uneven)
            *text++ = sig->index[i].name;
    }
    if (sig->linear)
        *text++ = '+';
    *text = '\0';
}

static void shapes_that_fit_give_outputs_and_indices(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(good_rows) / sizeof(*good_rows); i++) {
        struct merak_attrs attrs = {.i = {good_rows[i].i0},
                                    .f = {good_rows[i].f0}};
        struct merak_signature sig;
        struct merak_infer inf;
        struct merak_error err;
        char text[256];

        if (infer(good_rows[i].op, good_rows[i].in, &attrs, &inf, &err) !=
            MERAK_OK)
            fail_msg("%s", err.text);
        print_outputs(&inf, text, sizeof(text));
        if (strcmp(text, good_rows[i].out) != 0)
            fail_msg("%s(%s): got %s, expected %s", good_rows[i].op,
                     good_rows[i].in, text, good_rows[i].out);
        merak_op_find(good_rows[i].op)->signature(&inf, &sig);
        print_signature(&inf, &sig, text);
        if (strcmp(text, good_rows[i].signature) != 0)
            fail_msg("%s(%s): signature %s, expected %s", good_rows[i].op,
                     good_rows[i].in, text, good_rows[i].signature);
    }
}

/* A part of a sequence could not run otherwise, whether all of it is T or only
 * its keys, S; means do not, which no part has, and losses of pairs, which need
 * both answers. */
static void ops_on_whole_sequences_say_what_they_read_back(void **state)
{
    int found = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(good_rows) / sizeof(*good_rows); i++) {
        const struct merak_op *op = merak_op_find(good_rows[i].op);
        bool whole = strpbrk(good_rows[i].signature, "ST") != NULL &&
                     strcmp(op->name, "mean") != 0 &&
                     strcmp(op->name, "pair_loss") != 0 &&
                     strcmp(op->name, "mean_loss") != 0;

        /* Experts that share a pool, or whose rows have places, are never run
         * for a part. */
        if (strchr(good_rows[i].signature, 'Q') != NULL ||
            (whole && strncmp(op->name, "experts_", 8) == 0))
            continue;
        if (whole != ((op->back_in | op->back_out) != 0))
            fail_msg("%s", op->name);
        found += whole;
    }
    assert_true(found > 0);
}

static void only_a_maximum_is_combined_by_maximum(void **state)
{
    const struct merak_attrs attrs = {0};
    struct merak_signature sig;
    struct merak_infer inf;

    (void)state;
    assert_int_equal(infer("xent_max", "f32[2,16,61]", &attrs, &inf, NULL),
                     MERAK_OK);
    merak_op_find("xent_max")->signature(&inf, &sig);
    assert_int_equal(sig.index[2].name, 'v');
    assert_int_equal(sig.index[2].kind, MERAK_INDEX_MAX);
    assert_int_equal(
        infer("xent_sum", "f32[2,16,61] " S " i32[2,16]", &attrs, &inf, NULL),
        MERAK_OK);
    merak_op_find("xent_sum")->signature(&inf, &sig);
    assert_int_equal(sig.index[2].name, 'v');
    assert_int_equal(sig.index[2].kind, MERAK_INDEX_SUM);
}

/* --- what does not
 * --------------------------------------------------------------- */

static const struct {
    const char *op;
    int64_t i0;
    double f0;
    const char *in, *says;
} bad_rows[] = {
    {"embedding", 0, 0, "i32[2,16,3] bf16[61,32]",
     "embedding: tokens is [2,16,3], expected dims \"bt\""},
    {"embedding", 0, 0, "f32[2,16] bf16[61,32]",
     "embedding: tokens [2,16] is of type f32, expected i32"},
    {"embedding", 0, 0, "i32[2,16] i32[61,32]",
     "embedding: table [61,32] is of type i32"},
    {"embedding_dw", 0, 0, "i32[2,16] " X, "i[0] is 0"},
    {"add_position", 0, 0, X " bf16[15,32]", "x [2,16,32] is longer than"},
    {"add_position", 0, 0, X " bf16[16,33]",
     "table [16,33] does not fit x [2,16,32]: dim 1 is 33, expected 32"},
    {"linear", 1, 0, X " bf16[48,31]",
     "linear: w [48,31] does not fit x [2,16,32]: dim 1 is 31, expected 32"},
    {"linear", 1, 0, X " f32[48,32]",
     "w [48,32] is of type f32, expected bf16"},
    {"linear", 1, 0, X " bf16[48,32] f32[47]",
     "bias [47] does not fit w [48,32]"},
    {"linear", 1, 0, X " bf16[48,32] bf16[48]", "bias [48] is of type bf16"},
    {"linear", 0, 0, X " bf16[48,32]", "i[0] = 0"},
    {"linear", 2, 0, X " bf16[48,32]", "i[0] = 2"},
    {"linear", 4, 0, X " bf16[48,32]", "i[0] = 4"},
    {"linear", -1, 0, X " bf16[48,32]", "i[0] = -1"},
    {"linear", INT64_MIN, 0, X " bf16[48,32]", "i[0] = -9223372036854775808"},
    {"linear", 1, 0, Q " bf16[2,3,4,8]", "at most 6"},
    {"linear_dx", 1, 0, X " bf16[31,32]", "linear_dx: w [31,32] does not fit"},
    {"linear_dw", 1, 0, X " bf16[2,15,48]", "dy [2,15,48] does not fit x"},
    {"linear_db", 9, 0, X, "linear_db: [2,16,32]"},
    {"layernorm", 0, 1, X " f32[31] f32[32]", "gamma [31] does not fit x"},
    {"layernorm", 0, 1, X " f32[32] f32[31]", "beta [31] does not fit x"},
    {"layernorm", 0, 1, X " bf16[32] f32[32]", "gamma [32] is of type bf16"},
    {"rmsnorm", 0, 1, "f32[] f32[32]", "rmsnorm: x is []"},
    {"rope", 0, 1e4, "f32[2,16,4,7]", "x is [2,16,4,7], expected an even"},
    {"rope", 0, 0, Q, "theta is 0"},
    {"embedding", 62, 0, "i32[2,16] bf16[61,32]",
     "padding is token 61, expected 0 to 60"},
    {"rope", 0, 1e4, "f32[2,16]", "rope: x is [2,16]"},
    {"attention", 0, 0, Q " bf16[2,16,3,8] " K, "k [2,16,3,8] does not fit q"},
    {"attention", 0, 0, Q " " K " bf16[2,15,2,8]", "v [2,15,2,8] does not fit"},
    {"attention", 0, 0, K " " K " " K, "q is [2,16,2,8], expected dims"},
    {"attention_packed", 0, 0, "bf16[2,16,2,4,8]", "dim 2 must be 3"},
    {"attention", 0, 1, Q " " K " " K, "dropout is 1, expected 0 <= p < 1"},
    {"attention_packed", 0, -0.5, "bf16[2,16,3,4,8]", "dropout is -0.5"},
    {"embedding", 0, -1, "i32[2,16] bf16[61,32]", "scale is -1"},
    {"softcap", 0, 0, X, "cap is 0, expected a positive number"},
    {"route", 0, 0, X, "0 of 32 experts for each token; expected 1 to 32"},
    {"route", 33, 0, X, "33 of 32 experts for each token"},
    {"route", 2, -1, X, "weights are multiplied by -1"},
    {"route", 2, 0, X " f32[31]", "bias [31] does not fit z"},
    {"route_load", 0, -1, X " i32[2,16,2]", "coefficients -1 and 0 of"},
    {"route_load", 0, 0, X " i32[2,15,2]", "ids [2,15,2] does not fit z"},
    {"experts", -1, 0, X " " R " " MLP, "-1 rows are kept for each, expected"},
    {"experts", 0, 0, X " " R " bf16[4,8,31] bf16[4,8,32] bf16[4,32,8]",
     "gate [4,8,31] does not fit x [2,16,32]"},
    {"experts", 0, 0, X " " R " bf16[4,8,32] bf16[4,8,32] bf16[3,32,8]",
     "down [3,32,8] does not fit gate"},
    {"experts", 0, 0, X " f32[2,16,2] i32[2,16,3] " MLP,
     "ids [2,16,3] does not fit w"},
    {"experts_send", 4, 0, X " i32[2,16,2]",
     "4 places for each of 0 experts, expected positive numbers"},
    {"experts_places", 0, 0, R, "0 places for each of 0 experts"},
    {"experts_capacity", 0, 0, "i32[2,16,2]", "0 places for each of 0 experts"},
    {"experts_join", 0, 0, "bf16[2,4,5,32] i32[2,16,2] bf16[2,16,31]",
     "more [2,16,31] does not fit rows"},
    {"scale", 0, 0, X, "factor is 0, expected a finite number"},
    {"gelu_dx", 0, 0, X " bf16[2,16]", "gelu_dx: x is [2,16]"},
    {"relu2_dx", 0, 0, X " bf16[2,16]", "relu2_dx: x is [2,16]"},
    {"narrow", 0, 0, X " " X, "narrow: dy [2,16,32] is of type bf16"},
    {"swiglu", 0, 0, X " bf16[2,16,31]", "up [2,16,31] does not fit gate"},
    {"add", 0, 0, X " bf16[2,32,16]", "b [2,32,16] does not fit a [2,16,32]"},
    {"add", 0, 0, X " f32[2,16,32]", "b [2,16,32] is of type f32"},
    {"dropout", 0, 1, X, "p is 1, expected 0 <= p < 1"},
    {"dropout", 0, -0.1, X, "p is -0.1"},
    {"xent_sum", 0, 0, "bf16[2,16,61] " S " i32[2,15]",
     "targets [2,15] does not fit logits [2,16,61]"},
    {"pair_loss", 0, 0, S " i32[2,16] " S,
     "beta 0, expected a positive number"},
    {"mean", 0, 0, X, "mean: along dim 0 of bf16 [2,16,32], expected"},
    {"mean", 3, 0, X, "mean: along dim 3 of bf16 [2,16,32], expected"},
    {"relu", 0, -1, X, "relu: slope below 0 is -1, expected 0 or"},
    {"channel_sums", 0, 0, "f32[4]", "x is [4], expected dims"},
    {"channel_norm", 3, 0, X " f64[2,32,2] f32[32] f32[32]",
     "groups of 3 channels of 0 samples, expected a number that divides 32"},
    {"channel_norm", 8, 0, X " f64[2,16,2] f32[32] f32[32]",
     "sums are [2,16,2], expected those of 2 samples and 32 channels"},
    {"batch_norm", 1, 0, X " f64[3,32,2] f32[32] f32[32] f32[32] f32[32]",
     "sums are [3,32,2], expected those of 2 samples"},
    {"batch_stats", 1, 0, "f64[2,32,2]", "groups of 1 channels of 0 samples"},
    {"channel_norm_dx", 8, 0, X " " X " f64[2,32,2] f64[2,32,2] f32[32]",
     "groups of 8 channels of 0"},
    {"channel_norm_dw", 8, 0, "f64[2,32,2] f64[2,32,2]",
     "groups of 8 channels of 0"},
    {"concat", 0, 0, X " bf16[2,15,32]", "concat: x2 [2,15,32] does not fit"},
    {"concat_shared", 0, 0, X " " X, "x is [2,16,32], expected dims"},
    {"concat_shared", 0, 0, X " bf16[2,15,4,8]", "x [2,15,4,8] does not fit"},
    {"concat_shared_dx", 8, 0, K,
     "8 channels that heads share, expected fewer"},
    {"concat_dx", 31, 0, X, "0 channels from 31 on, expected some of dy's"},
    {"losses", 0, 0, "f64[] f64[1]", "input 1 is f64 [1], expected one"},
    {"point_loss", 0, 0, X " " X, "t [2,16,32] is of type bf16, expected f32"},
    {"xent_max", 0, 0, "bf16[]", "logits is [], expected dims"},
};

static void shapes_that_do_not_fit_are_named(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(bad_rows) / sizeof(*bad_rows); i++) {
        struct merak_attrs attrs = {.i = {bad_rows[i].i0},
                                    .f = {bad_rows[i].f0}};
        struct merak_error err = {0};
        struct merak_infer inf;

        if (infer(bad_rows[i].op, bad_rows[i].in, &attrs, &inf, &err) !=
                MERAK_ERR_PARAM ||
            strstr(err.text, bad_rows[i].says) == NULL ||
            strncmp(err.text, bad_rows[i].op, strlen(bad_rows[i].op)) != 0)
            fail_msg("%s(%s): got \"%s\", expected \"%s\"", bad_rows[i].op,
                     bad_rows[i].in, err.text, bad_rows[i].says);
    }
}

/* --- cost
 * ----------------------------------------------------------------------------
 */

static const struct {
    const char *op;
    int64_t i0;
    const char *in;
    double flops, bytes;
} cost_rows[] = {
    /* 2 B T C O; x, w, y once each, two bytes an element */
    {"linear", 1, X " bf16[48,32]", 2. * 2 * 16 * 32 * 48,
     2. * (2 * 16 * 32 + 48 * 32 + 2 * 16 * 48)},
    {"linear", 1, X " bf16[48,32] f32[48]", 2. * 2 * 16 * 32 * 48 + 2 * 16 * 48,
     2. * (2 * 16 * 32 + 48 * 32 + 2 * 16 * 48) + 4 * 48},
    {"linear", 3, Q " bf16[32,2,3,8]", 2. * 2 * 16 * 48 * 32,
     2. * (2 * 16 * 48 + 48 * 32 + 2 * 16 * 32)},
    {"linear_dx", 1, "bf16[2,16,48] bf16[48,32]", 2. * 2 * 16 * 32 * 48,
     2. * (2 * 16 * 32 + 48 * 32 + 2 * 16 * 48)},
    {"linear_dw", 1, X " bf16[2,16,48]", 2. * 2 * 16 * 32 * 48,
     2. * (2 * 16 * 32 + 2 * 16 * 48) + 4. * 48 * 32},
    /* half of 4 B H T T D forward, of 10 backward */
    {"attention", 0, Q " " K " " K, 2. * 2 * 6 * 16 * 16 * 8,
     2. * (2 * 2 * 16 * 48 + 2 * 2 * 16 * 16) + 4. * 2 * 16 * 6},
    /* D + E in place of 2 D, and 3 D + 2 E of 5 D */
    {"attention", 0, Q " " K " bf16[2,16,2,5]", 2. * 6 * 16 * 16 * (8 + 5),
     2. * (2 * 16 * 48 + 2 * 16 * 16 + 2 * 16 * 10 + 2 * 16 * 30) +
         4. * 2 * 16 * 6},
    {"attention_dx", 0,
     "bf16[2,16,2,3,5] " Q " " K " bf16[2,16,2,5] bf16[2,16,2,3,5] " L,
     2. * 6 * 16 * 16 * (3 * 8 + 2 * 5),
     2. * (2 * 2 * 16 * 48 + 2 * 2 * 16 * 16 + 2 * 2 * 16 * 10 +
           2 * 2 * 16 * 30) +
         4. * 2 * 16 * 6},
    {"attention_packed", 0, "bf16[2,16,3,4,8]", 2. * 2 * 4 * 16 * 16 * 8,
     2. * (4 * 2 * 16 * 32) + 4. * 2 * 16 * 4},
    {"attention_dx", 0, Q " " Q " " K " " K " " Q " " L,
     5. * 2 * 6 * 16 * 16 * 8,
     2. * (4 * 2 * 16 * 48 + 4 * 2 * 16 * 16) + 4. * 2 * 16 * 6},
    /* rows are read where tokens point */
    {"embedding", 0, "i32[2,16] bf16[50257,32]", 0,
     4. * 32 + 2. * 2 * 2 * 16 * 32},
    {"add", 0, X " " X, 2. * 16 * 32, 3. * 2 * 2 * 16 * 32},
    {"convert", 0, X, 0, 2. * 2 * 2 * 16 * 32},
    /* g, and master, m and v both ways, and the bf16 copy */
    {"adamw", 0, N " f32[2]", 1400, 4. * 100 + 8 + 6 * 4. * 100 + 2. * 100},
};

static void costs_follow_the_closed_forms(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(cost_rows) / sizeof(*cost_rows); i++) {
        struct merak_attrs attrs = {.i = {cost_rows[i].i0}, .f = {0}};
        struct merak_cost cost;
        struct merak_infer inf;

        assert_int_equal(
            infer(cost_rows[i].op, cost_rows[i].in, &attrs, &inf, NULL),
            MERAK_OK);
        merak_op_find(cost_rows[i].op)->cost(&inf, &cost);
        if (cost.flops != cost_rows[i].flops ||
            cost.bytes != cost_rows[i].bytes)
            fail_msg("%s(%s): %g flops, %g bytes, expected %g, %g",
                     cost_rows[i].op, cost_rows[i].in, cost.flops, cost.bytes,
                     cost_rows[i].flops, cost_rows[i].bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_that_fit_give_outputs_and_indices),
        cmocka_unit_test(ops_on_whole_sequences_say_what_they_read_back),
        cmocka_unit_test(only_a_maximum_is_combined_by_maximum),
        cmocka_unit_test(shapes_that_do_not_fit_are_named),
        cmocka_unit_test(costs_follow_the_closed_forms),
    };

    return cmocka_run_group_tests_name("ops", tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* test_activations.c - what a transformer layer keeps for its backward, against
 * the published closed form
 *
 * Korthikanti et al. 2022 (arXiv:2205.05198), sec. 4: a layer of a GPT at 16
 * bits keeps s b h (34 + 5 a s / h) bytes, for sequences s, micro-batch b,
 * width h, a heads.  The table below has their terms one by one, and what of
 * each ours keeps, in elements.  With w bytes each and t tensor ranks ours is
 *
 *   none         w sbh (4 + 12/t) + 4 bs (4 + a/t)
 *   sequence cut w sbh 16/t + 4 bs (4 + a)/t
 *   selective    w sbh (4 + 11/t) + 16 bs;  sequence cut  (w 15 sbh + 16 bs)/t
 *   full         2 w sbh;  sequence cut  2 w sbh/t
 *
 * Of theirs, ours lacks the three tensors of s by s (attention runs over tiles
 * and keeps lse, 4 bytes a row) and both masks of dropout (functions of
 * counters).  It keeps the norms' statistics besides, which they leave out as
 * small, and dropping all it has two streams a layer where they have one:
 * attention and MLP are blocks of their own.
 *
 * What is kept is read off the program: what a micro-batch has written before
 * the first backward, and reads after it.
 */
#include "config.h"

#include "unit/gpt2_config.h"
#include "unit/near.h"

#include "partitioner/assembly/assembly.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof(*(a)))

enum { BATCH = 4, SEQ = 32, WIDTH = 128, HEADS = 8 };

/* Recomputation that drops it. */
enum { NEVER, BY_FULL, BY_SELECTIVE };

/* One tensor of a layer, by Korthikanti et al. and as ours keeps it. */
static const struct term {
    const char *what;
    int sbh, ssab;    /* their bytes: times s b h, times s s a b */
    bool alike;       /* tensor ranks all have it, but where the sequence is
                         cut */
    const char *op;   /* ours: what makes it; NULL: not kept */
    const char *name; /* which of these: how its weight's name ends, or NULL */
    int out;
    int elements; /* times s b h, of the compute dtype */
    int tokens;   /* times s b, of f32 */
    int rows;     /* times s b a, of f32 */
    int dropped;
} terms[] = {
    {"inputs of norms", 4, 0, true, "add", NULL, 0, 2, 0, 0, NEVER},
    {"statistics of norms: mean", 0, 0, true, "layernorm", NULL, 1, 0, 2, 0,
     BY_FULL},
    {"statistics of norms: deviation", 0, 0, true, "layernorm", NULL, 2, 0, 2,
     0, BY_FULL},
    {"input of qkv", 2, 0, true, "layernorm", "ln_1.weight", 0, 1, 0, 0,
     BY_FULL},
    {"queries, keys and values", 6, 0, false, "linear", "c_attn.weight", 0, 3,
     0, 0, BY_FULL},
    {"softmax", 0, 2, false, NULL, NULL, 0, 0, 0, 0, NEVER},
    {"softmax's dropout: mask", 0, 1, false, NULL, NULL, 0, 0, 0, 0, NEVER},
    {"softmax's dropout: output", 0, 2, false, NULL, NULL, 0, 0, 0, 0, NEVER},
    {"sums of scores", 0, 0, false, "attention_packed", NULL, 1, 0, 0, 1,
     BY_SELECTIVE},
    {"input of attention's projection", 2, 0, false, "attention_packed", NULL,
     0, 1, 0, 0, BY_SELECTIVE},
    {"attention's dropout: mask", 1, 0, true, NULL, NULL, 0, 0, 0, 0, NEVER},
    {"input of fc", 2, 0, true, "layernorm", "ln_2.weight", 0, 1, 0, 0,
     BY_FULL},
    {"input of gelu", 8, 0, false, "linear", "c_fc.weight", 0, 4, 0, 0,
     BY_FULL},
    {"input of MLP's projection", 8, 0, false, "gelu", NULL, 0, 4, 0, 0,
     BY_FULL},
    {"MLP's dropout: mask", 1, 0, true, NULL, NULL, 0, 0, 0, 0, NEVER},
};

/* --- the table is the published form ------------------------------------- */

/* Their bytes at 16 bits over s b h, x is a s / h. */
static double theirs(int tp, bool sp, bool selective, double x)
{
    double all = 0;

    for (size_t i = 0; i < COUNT(terms); i++) {
        double bytes = terms[i].sbh + (selective ? 0 : terms[i].ssab * x);

        all += terms[i].alike && !sp ? bytes : bytes / tp;
    }
    return all;
}

static void terms_sum_to_the_published_form(void **state)
{
    (void)state;
    for (int t = 1; t <= 8; t *= 2) {
        const double x = 80. * 2048 / 6144; /* a s / h of 22 billion */
        const double got[] = {
            theirs(t, false, false, x), theirs(t, true, false, x),
            theirs(t, true, true, x), theirs(t, false, true, x)};
        const double want[] = {10 + 24. / t + 5 * x / t, (34 + 5 * x) / t,
                               34. / t, 10 + 24. / t};

        assert_near(got, want, COUNT(want), 1e-14, 0);
    }
}

/* --- what a program keeps ------------------------------------------------- */

struct row {
    int tp;
    enum merak_seq_parallel sp;
    enum merak_recompute recompute;
    enum merak_dtype dtype;
};

static struct merak_planned *build(const struct row *row, size_t layers,
                                   int microbatches)
{
    struct merak_hf_config config = gpt2_config(layers, WIDTH, HEADS, 512);
    struct merak_plan plan = {.tp = row->tp,
                              .pp = 1,
                              .dp = 1,
                              .micro_batch = BATCH,
                              .microbatches = microbatches,
                              .recompute = row->recompute,
                              .sp = row->sp,
                              .dtype = row->dtype,
                              .schedule = "gpipe"};
    struct merak_planned *p = NULL;
    struct merak_error err = {0};

    config.resid_dropout = 0.1f;
    if (merak_plan_build(&plan, SEQ, merak_hf_describe, &config, MERAK_PLAN_ALL,
                         NULL, &p, &err) != MERAK_OK)
        fail_msg("tp %d: %s", row->tp, err.text);
    return p;
}

/* Where the backwards begin; all micro-batches' forwards are before it. */
static int turn_of(const struct merak_program *prog)
{
    for (int i = 0; i < prog->n_instrs; i++) {
        if (prog->instr[i].phase != MERAK_PHASE_F || prog->instr[i].recompute)
            return i;
    }
    fail_msg("no backward");
    return -1;
}

/* Does a micro-batch read a slot behind the turn as it was before it? */
static bool is_kept(const struct merak_program *prog, int turn, int slot,
                    int microbatch)
{
    for (int i = turn; i < prog->n_instrs; i++) {
        const struct merak_instr *in = &prog->instr[i];
        unsigned reads, writes;

        merak_instr_access(in, &reads, &writes);
        for (int k = 0; k < in->n_in + in->n_out; k++) {
            if (in->slot[k] != slot)
                continue;
            if (reads >> k & 1)
                return in->microbatch == microbatch;
            if (writes >> k & 1)
                return false;
        }
    }
    return false;
}

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);

    return n >= m && strcmp(name + n - m, end) == 0;
}

static bool is_of(const struct merak_node *node, int out,
                  const struct term *term)
{
    return term->op != NULL && strcmp(node->op->name, term->op) == 0 &&
           out == term->out &&
           (term->name == NULL || ends_with(node->in[1]->name, term->name));
}

/* The term that a value is, or COUNT(terms). */
static size_t term_of(const struct merak_program *prog, int value)
{
    const struct merak_value *v = prog->sharded->graph->value[value];
    size_t i = 0;

    if (v->producer < 0)
        return COUNT(terms);
    while (i < COUNT(terms) &&
           !is_of(prog->sharded->graph->node[v->producer], v->out, &terms[i]))
        i++;
    return i;
}

/* Bytes of micro-batch 0 by term, and last of everything else. */
static void kept_bytes(const struct merak_program *prog,
                       long bytes[COUNT(terms) + 1])
{
    int turn = turn_of(prog);

    memset(bytes, 0, (COUNT(terms) + 1) * sizeof(*bytes));
    for (int s = 0; s < prog->n_slots; s++) {
        const struct merak_slot *slot = &prog->slot[s];

        if (slot->offset + slot->bytes <= prog->persistent_bytes ||
            slot->value < 0 || !is_kept(prog, turn, s, 0))
            continue;
        assert_int_equal(slot->whole, s);
        bytes[term_of(prog, slot->value)] += (long)slot->bytes;
    }
}

/* --- and is to keep --------------------------------------------------------
 */

static long ours(const struct term *term, const struct row *row)
{
    const long tokens = BATCH * SEQ;
    long bytes = (long)merak_dtype_bytes(row->dtype) * term->elements * WIDTH +
                 4 * (term->tokens + term->rows * HEADS);

    if (row->recompute == MERAK_RECOMPUTE_FULL && term->dropped != NEVER)
        return 0;
    if (row->recompute == MERAK_RECOMPUTE_SELECTIVE &&
        term->dropped == BY_SELECTIVE)
        return 0;
    bytes *= tokens;
    return term->alike && row->sp == MERAK_SP_OFF ? bytes : bytes / row->tp;
}

/* What the head of this file says. */
static double closed_form(const struct row *row)
{
    const double w = (double)merak_dtype_bytes(row->dtype), t = row->tp;
    const double bs = BATCH * SEQ, sbh = bs * WIDTH, a = HEADS;
    const bool cut = row->sp == MERAK_SP_ON;

    switch (row->recompute) {
    case MERAK_RECOMPUTE_NONE:
        return cut ? w * sbh * 16 / t + 4 * bs * (4 + a) / t
                   : w * sbh * (4 + 12 / t) + 4 * bs * (4 + a / t);
    case MERAK_RECOMPUTE_SELECTIVE:
        return cut ? (w * 15 * sbh + 16 * bs) / t
                   : w * sbh * (4 + 11 / t) + 16 * bs;
    default:
        return 2 * w * sbh / (cut ? t : 1);
    }
}

static void name_row(const struct row *row, char *text, size_t size)
{
    snprintf(text, size, "tp %d, sp %d, recompute %d, %s", row->tp,
             (int)row->sp, (int)row->recompute, merak_dtype_name(row->dtype));
}

/* What a third layer adds to two, of one rank. */
static void check_rank(const struct row *row, const struct merak_program *two,
                       const struct merak_program *three)
{
    long bytes[2][COUNT(terms) + 1], got, all = 0;
    const double want = closed_form(row);
    char name[64];

    name_row(row, name, sizeof(name));
    kept_bytes(two, bytes[0]);
    kept_bytes(three, bytes[1]);
    for (size_t i = 0; i < COUNT(terms); i++) {
        got = bytes[1][i] - bytes[0][i];
        if (got != ours(&terms[i], row))
            fail_msg("%s: rank %d keeps %ld bytes of \"%s\", not %ld", name,
                     three->rank, got, terms[i].what, ours(&terms[i], row));
        all += got;
    }
    got = bytes[1][COUNT(terms)] - bytes[0][COUNT(terms)];
    if (got != 0)
        fail_msg("%s: rank %d keeps %ld bytes that are none of the terms", name,
                 three->rank, got);
    assert_near(&(double){(double)all}, &want, 1, 0, 0);
}

static void check_layer(const struct row *row)
{
    struct merak_planned *two = build(row, 2, 2), *three = build(row, 3, 2);

    for (int r = 0; r < two->n_programs; r++)
        check_rank(row, two->program[r], three->program[r]);
    merak_planned_destroy(two);
    merak_planned_destroy(three);
}

static void layers_keep_what_the_closed_form_says(void **state)
{
    static const enum merak_recompute mode[] = {
        MERAK_RECOMPUTE_NONE, MERAK_RECOMPUTE_SELECTIVE, MERAK_RECOMPUTE_FULL};
    static const enum merak_dtype dtype[] = {MERAK_BF16, MERAK_F32};

    (void)state;
    for (int tp = 1; tp <= 4; tp *= 2) {
        for (int i = 0; i < 12; i++) {
            struct row row = {.tp = tp,
                              .sp = i & 1 ? MERAK_SP_ON : MERAK_SP_OFF,
                              .recompute = mode[i / 4],
                              .dtype = dtype[i >> 1 & 1]};

            if (tp > 1 || row.sp == MERAK_SP_OFF)
                check_layer(&row);
        }
    }
}

/* A further micro-batch in flight costs a rank's arena that, for each layer:
 * the memory plan adds nothing. */
static void arenas_grow_by_the_closed_form(void **state)
{
    static const struct row rows[] = {
        {1, MERAK_SP_OFF, MERAK_RECOMPUTE_NONE, MERAK_BF16},
        {2, MERAK_SP_OFF, MERAK_RECOMPUTE_NONE, MERAK_F32},
        {4, MERAK_SP_ON, MERAK_RECOMPUTE_NONE, MERAK_BF16},
        {2, MERAK_SP_ON, MERAK_RECOMPUTE_FULL, MERAK_BF16},
    };

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        double want = closed_form(&rows[i]), arena[2][2], got;

        for (int k = 0; k < 4; k++) {
            struct merak_planned *p =
                build(&rows[i], k & 1 ? 7 : 6, k & 2 ? 9 : 8);

            arena[k >> 1][k & 1] = (double)p->program[0]->arena_bytes;
            merak_planned_destroy(p);
        }
        got = arena[1][1] - arena[1][0] - (arena[0][1] - arena[0][0]);
        assert_near(&got, &want, 1, 0, 0);
    }
}

/* Of attention's backwards, a mean by logarithms. */
static double mean_reuse(enum merak_recompute recompute, size_t layers)
{
    const struct row row = {1, MERAK_SP_OFF, recompute, MERAK_F32};
    struct merak_planned *p = build(&row, layers, 2);
    const struct merak_program *prog = p->program[0];
    double sum = 0;
    int n = 0;

    for (int i = 0; i < prog->n_instrs; i++) {
        const struct merak_instr *in = &prog->instr[i];

        if (in->kind != MERAK_INSTR_KERNEL ||
            strcmp(in->op->name, "attention_packed_dx") != 0)
            continue;
        assert_true(in->reuse >= (double)in->bytes / 1.5);
        sum += log2(in->reuse);
        n++;
    }
    assert_int_equal(n, 2 * layers);
    merak_planned_destroy(p);
    return exp2(sum / n);
}

/* From the forward of a layer to its backward all the others are touched; what
 * is recomputed was touched just before, however many layers there are. */
static void what_is_recomputed_is_near(void **state)
{
    double few = mean_reuse(MERAK_RECOMPUTE_NONE, 8);
    double many = mean_reuse(MERAK_RECOMPUTE_NONE, 32);
    double near = mean_reuse(MERAK_RECOMPUTE_FULL, 8);

    (void)state;
    assert_true(many > 1.8 * few && many < 4 * few);
    assert_true(few > 4 * near);
    assert_true(fabs(mean_reuse(MERAK_RECOMPUTE_FULL, 32) / near - 1) < 0.1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(terms_sum_to_the_published_form),
        cmocka_unit_test(layers_keep_what_the_closed_form_says),
        cmocka_unit_test(arenas_grow_by_the_closed_form),
        cmocka_unit_test(what_is_recomputed_is_near),
    };

    return cmocka_run_group_tests_name("activations", tests, NULL, NULL);
}

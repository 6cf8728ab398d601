/* SPDX-License-Identifier: Apache-2.0 */
/* test_shard_sequences.c - layouts where sequences are cut over ranks */
#include "config.h"

#include "unit/near.h"
#include "unit/shard/shard_models.h"

#include "partitioner/layout/shard_impl.h"
#include "partitioner/order/shard_order.h"

#include <math.h>
#include <string.h>
#include <sys/resource.h>

#define COUNT(a) (sizeof(a) / sizeof(*(a)))

static struct merak_sharded *shard_sequences(const struct merak_graph *graph,
                                             int cp, int tp,
                                             enum merak_cp_form form,
                                             enum merak_cp_order order)
{
    const struct merak_shard_options opt = {.tp = tp,
                                            .cp = cp,
                                            .cp_form = form,
                                            .cp_order = order,
                                            .sp = MERAK_SP_OFF};

    return spec_shard(graph, &opt);
}

/* Everything is cut along positions, and no weight, but for what tp cuts. */
static void weights_are_whole_along_cp(void **state)
{
    const struct spec spec = {true, 2, 8, 2, 32, 4, 2, 61, false, 0, BLOCK_PRE};
    struct merak_graph *graph;
    struct merak_model *m = spec_model(&spec, MERAK_F32, &graph);

    (void)state;
    for (int tp = 1; tp <= 4; tp *= 2) {
        struct merak_sharded *s =
            shard_sequences(graph, 2, tp, MERAK_CP_AUTO, MERAK_CP_ORDER_AUTO);

        assert_string_equal(s->mesh.axis[0].name, "cp");
        assert_int_equal(s->mesh.n_axes, tp == 1 ? 1 : tp == 2 ? 2 : 3);
        for (int v = 0; v < s->graph->n_values; v++) {
            const struct merak_value *value = s->graph->value[v];

            if (value->kind == MERAK_VALUE_PARAM)
                assert_int_equal(s->layout[v].at[0].kind, MERAK_REPLICATED);
        }
        for (int n = 0; n < s->graph->n_nodes; n++) {
            const struct merak_node *node = s->graph->node[n];

            if (node->phase == MERAK_PHASE_F && node->op->heads == NULL &&
                s->hop[n].kind == MERAK_CONVERT_NONE)
                assert_int_not_equal(s->strategy[n].cut[0], MERAK_CUT_NONE);
        }
        merak_sharded_destroy(s);
    }
    merak_model_destroy(m);
}

/* Words that a rank sends along cp for attention. */
static double attention_words(const struct merak_sharded *s)
{
    double words = 0;

    for (int n = 0; n < s->graph->n_nodes; n++) {
        const struct merak_node *node = s->graph->node[n];

        if (node->n_in > 0 && node->in[0]->shape.ndim >= 4)
            words += s->hop[n].words;
    }
    return words;
}

/* Words that a rank sends along cp for attention, from and back to values cut
 * along positions: a layer's keys and values gathered twice and the sums of
 * their gradients, 6 kv (c - 1) / c b t; or q, k, v and o, exchanged both ways,
 * 4 (h + kv) (c - 1) / c^2 b t. */
static void words_of_both_forms_are_as_computed(void **state)
{
    static const struct {
        int cp;
        double gather, heads;
    } rows[] = {{2, 402653184, 671088640},
                {4, 603979776, 503316480},
                {8, 704643072, 293601280}};
    /* h 4096, kv 1024, 131072 tokens */
    const struct spec spec = {true, 1,  131072, 1,    4096,     32,
                              8,    64, false,  0.0f, BLOCK_PRE};
    struct merak_graph *graph;
    struct merak_model *m = spec_model(&spec, MERAK_F32, &graph);

    (void)state;
    for (size_t r = 0; r < 2 * COUNT(rows); r++) {
        bool heads = r % 2;
        struct merak_sharded *s = shard_sequences(
            graph, rows[r / 2].cp, 1, heads ? MERAK_CP_HEADS : MERAK_CP_GATHER,
            MERAK_CP_ORDER_AUTO);
        struct merak_sequence_cuts cuts;
        double want = heads ? rows[r / 2].heads : rows[r / 2].gather;
        double words = attention_words(s);

        assert_true(fabs(words - want) < 1);
        merak_sharded_sequence_cuts(s, &cuts);
        assert_int_equal(cuts.gathered, heads ? 0 : 1);
        assert_int_equal(cuts.exchanged, heads ? 1 : 0);
        assert_false(cuts.over_tp);
        merak_sharded_destroy(s);
    }
    merak_model_destroy(m);
}

/* Of c ranks e exchange heads, as many as there are of keys at most: q and o
 * both ways, keys and values also again for the backward, (4 h + 6 kv) (e - 1)
 * / e b t / c; and these are gathered from the c / e others, 6 kv / e (1 - e /
 * c) b t.  The search does the same where it is free to. */
static void more_ranks_than_kv_heads_do_both(void **state)
{
    static const struct {
        int cp, kv, exchange;
        double words;
    } rows[] = {{16, 8, 8, 161480704 + 50331648},
                {32, 8, 8, 80740352 + 75497472},
                {16, 16, 1, 0}};

    (void)state;
    for (size_t r = 0; r < 2 * COUNT(rows); r++) {
        enum merak_cp_form form = r % 2 ? MERAK_CP_AUTO : MERAK_CP_HEADS;
        int cp = rows[r / 2].cp, exchange = rows[r / 2].exchange;
        size_t kv = (size_t)rows[r / 2].kv;
        const struct spec spec = {true, 1,  131072, 1,    4096,     32,
                                  kv,   64, false,  0.0f, BLOCK_PRE};
        struct merak_graph *graph;
        struct merak_model *m = spec_model(&spec, MERAK_F32, &graph);
        struct merak_sharded *s =
            shard_sequences(graph, cp, 1, form, MERAK_CP_ORDER_AUTO);
        struct merak_sequence_cuts cuts;

        merak_sharded_sequence_cuts(s, &cuts);
        assert_int_equal(cuts.exchanged, 1);
        if (exchange == 1) {
            assert_string_equal(s->mesh.axis[0].name, "cp");
            assert_int_equal(cuts.gathered, 0);
        } else {
            assert_string_equal(s->mesh.axis[0].name, "cp.0");
            assert_int_equal(s->mesh.axis[1].size, exchange);
            assert_int_equal(cuts.gathered, 1);
            assert_true(fabs(attention_words(s) - rows[r / 2].words) < 1);
        }
        merak_sharded_destroy(s);
        merak_model_destroy(m);
    }
}

/* Bytes of what a rank has of the keys and values that it gathers over cp:
 * whole, or before that. */
static double gathered_bytes(const struct merak_sharded *s, bool whole)
{
    double bytes = 0;

    for (int n = 0; n < s->graph->n_nodes; n++) {
        const struct merak_node *node = s->graph->node[n];
        const struct merak_value *v = whole ? node->out[0] : node->in[0];
        int coord[MERAK_MAX_AXES] = {0};
        struct merak_box box;

        if (node->phase != MERAK_PHASE_F || v->shape.ndim < 4 ||
            s->hop[n].kind != MERAK_CONVERT_ALL_GATHER)
            continue;
        merak_layout_box(&s->mesh, &s->layout[v->id], &v->shape, coord, &box);
        bytes +=
            (double)merak_box_count(&box) * (double)merak_dtype_bytes(v->dtype);
    }
    return bytes;
}

/* Of a layer of 1024 keys, 262144 tokens in bf16: 2 kv b t elements. */
static void gathered_keys_take_the_bytes_of_the_whole_sequence(void **state)
{
    const struct spec spec = {true, 1,  262144, 1,    4096,     32,
                              8,    64, false,  0.0f, BLOCK_PRE};
    struct merak_graph *graph;
    struct merak_model *m = spec_model(&spec, MERAK_BF16, &graph);
    struct merak_sharded *s =
        shard_sequences(graph, 8, 1, MERAK_CP_GATHER, MERAK_CP_ORDER_AUTO);

    (void)state;
    assert_true(gathered_bytes(s, true) == 1073741824);
    assert_true(gathered_bytes(s, false) == 134217728);
    merak_sharded_destroy(s);
    merak_model_destroy(m);
}

/* Tensor ranks that cut sequences between products send 10 h (t - 1) / t b t of
 * the same layer: four conversions forward, as many back, and twice the inputs
 * of products once more for their weights.  Two are the embedding's. */
static void words_of_tensor_ranks_are_as_computed(void **state)
{
    static const struct {
        int tp;
        double words;
    } rows[] = {{2, 2684354560}, {4, 4026531840}, {8, 4697620480}};
    const struct spec spec = {true, 1,  131072, 1,    4096,     32,
                              8,    64, false,  0.0f, BLOCK_PRE};
    struct merak_graph *graph;
    struct merak_model *m = spec_model(&spec, MERAK_F32, &graph);

    (void)state;
    for (size_t r = 0; r < COUNT(rows); r++) {
        const struct merak_shard_options opt = {.tp = rows[r].tp,
                                                .sp = MERAK_SP_ON};
        struct merak_sharded *s = spec_shard(graph, &opt);
        double each = rows[r].words / 10;
        int n = 0;

        for (int i = 0; i < s->graph->n_nodes; i++)
            n += fabs(s->hop[i].words - each) < 1;
        assert_int_equal(n, 10 + 2);
        merak_sharded_destroy(s);
    }
    merak_model_destroy(m);
}

/* Of both forms the one with fewer words; with (3c - 2) / 2 queries to a key
 * they have as many.  But in order the rank with the last queries, for which
 * all wait, has 2 - 1/c times the mean's work: where sequences are so long that
 * this counts, heads are exchanged. */
static void the_cheaper_form_is_taken(void **state)
{
    static const struct {
        int cp;
        size_t queries; /* of each key */
        size_t seq;
        int sign; /* of the words of gathers less those of exchanges */
        bool gathers;
        enum merak_cp_order order;
    } rows[] = {
        {2, 1, 16, 1, false, 0},
        {2, 2, 16, 0, false, 0},
        {2, 4, 16, -1, true, 0},
        {4, 4, 16, 1, false, 0},
        {4, 5, 16, 0, false, 0},
        {4, 6, 16, -1, true, 0},
        {8, 8, 16, 1, false, 0},
        {8, 11, 16, 0, false, 0},
        {8, 16, 16, -1, true, 0},
        {2, 4, 1 << 17, -1, false, MERAK_CP_CONTIGUOUS},
        {8, 16, 1 << 17, -1, false, MERAK_CP_CONTIGUOUS},
        {2, 4, 1 << 17, -1, true, MERAK_CP_ORDER_AUTO},
        {8, 16, 1 << 17, -1, true, MERAK_CP_HEAD_TAIL},
    };

    (void)state;
    for (size_t r = 0; r < COUNT(rows); r++) {
        const size_t kv = 8, heads = kv * rows[r].queries, tokens = 1 << 17;
        const struct spec spec = {.llama = true,
                                  .batch = tokens / rows[r].seq,
                                  .seq = rows[r].seq,
                                  .layers = 1,
                                  .width = 128 * heads,
                                  .heads = heads,
                                  .kv = kv,
                                  .vocab = 64};
        struct merak_graph *graph;
        struct merak_model *m = spec_model(&spec, MERAK_F32, &graph);
        struct merak_sequence_cuts cuts;
        double words[3], less;

        for (int form = MERAK_CP_AUTO; form <= MERAK_CP_HEADS; form++) {
            struct merak_sharded *s =
                shard_sequences(graph, rows[r].cp, 1, form, rows[r].order);

            words[form] = attention_words(s);
            if (form == MERAK_CP_AUTO)
                merak_sharded_sequence_cuts(s, &cuts);
            merak_sharded_destroy(s);
        }
        less = words[MERAK_CP_GATHER] - words[MERAK_CP_HEADS];
        assert_int_equal((less > 0.5) - (less < -0.5), rows[r].sign);
        if (rows[r].sign != 0) { /* else either */
            assert_int_equal(cuts.gathered, rows[r].gathers);
            assert_int_equal(cuts.exchanged, !rows[r].gathers);
        }
        merak_model_destroy(m);
    }
}

/* Attention of the rank with most of it, as a part of all. */
static double most_attention(const struct merak_graph *graph, int cp,
                             size_t pieces)
{
    for (int n = 0; n < graph->n_forward; n++) {
        const struct merak_node *node = graph->node[n];
        struct merak_infer inf;
        struct merak_cost cost = {0};

        if (node->op->heads == NULL)
            continue;
        merak_node_infer(node, &inf);
        inf.shape[0].dim[1] /= (size_t)cp; /* queries, and what they get */
        inf.shape[inf.n_in].dim[1] /= (size_t)cp;
        inf.pieces = pieces;
        node->op->cost(&inf, &cost);
        return cost.flops / merak_node_cost(node).flops;
    }
    fail();
    return 0;
}

/* The last rank has 2 - 1/c of the mean's attention; in pieces all have as
 * much.  With a window only the first positions see less than others. */
static void pieces_make_the_cost_even(void **state)
{
    struct spec spec = {true, 1, 64, 1, 32, 4, 2, 61, false, 0, BLOCK_PRE};
    struct merak_graph *graph;
    struct merak_model *m = spec_model(&spec, MERAK_F32, &graph);

    (void)state;
    for (int cp = 2; cp <= 8; cp *= 2) {
        assert_true(fabs(most_attention(graph, cp, 0) -
                         (2 * cp - 1.0) / (cp * cp)) < 1e-12);
        assert_true(fabs(most_attention(graph, cp, 2 * (size_t)cp) - 1.0 / cp) <
                    1e-12);
    }
    for (int n = 0; n < graph->n_forward; n++)
        if (graph->node[n]->op->heads != NULL)
            graph->node[n]->attrs.i[1] = 8; /* of 64: 8 * 8 / 2 + 56 * 8 */
    assert_true(fabs(most_attention(graph, 2, 0) - 256.0 / 480) < 1e-12);
    assert_true(fabs(most_attention(graph, 2, 4) - 256.0 / 480) < 1e-12);
    merak_model_destroy(m);
}

/* Pieces where keys are gathered, unless it was said how, or they do not
 * divide. */
static void the_better_order_is_taken(void **state)
{
    static const struct {
        size_t seq;
        enum merak_cp_form form;
        enum merak_cp_order order;
        size_t pieces;
    } rows[] = {
        {16, MERAK_CP_GATHER, MERAK_CP_ORDER_AUTO, 8},
        {16, MERAK_CP_GATHER, MERAK_CP_CONTIGUOUS, 0},
        {16, MERAK_CP_HEADS, MERAK_CP_ORDER_AUTO, 0},
        {16, MERAK_CP_HEADS, MERAK_CP_HEAD_TAIL, 8},
        {12, MERAK_CP_GATHER, MERAK_CP_ORDER_AUTO, 0},
    };

    (void)state;
    for (size_t r = 0; r < COUNT(rows); r++) {
        const struct spec spec = {true, 2,  rows[r].seq, 2, 32,       8,
                                  4,    61, false,       0, BLOCK_PRE};
        struct merak_graph *graph;
        struct merak_model *m = spec_model(&spec, MERAK_F32, &graph);
        struct merak_sharded *s =
            shard_sequences(graph, 4, 1, rows[r].form, rows[r].order);
        struct merak_sequence_cuts cuts;

        merak_sharded_sequence_cuts(s, &cuts);
        assert_int_equal(s->graph->position_pieces, rows[r].pieces);
        assert_int_equal(cuts.head_tail, rows[r].pieces > 0);
        merak_sharded_destroy(s);
        merak_model_destroy(m);
    }
}

static void what_does_not_divide_into_pieces_is_refused(void **state)
{
    const struct spec spec = {true, 1,  4100, 1, 8,        4,
                              2,    32, true, 0, BLOCK_PRE};
    const struct merak_shard_options opt = {
        .tp = 1, .cp = 4, .cp_order = MERAK_CP_HEAD_TAIL};

    (void)state;
    spec_refuses(&spec, &opt,
                 "a sequence of 4100 tokens cannot be cut over cp=4 in "
                 "head-tail order, 8 pieces (nearest: 4096 or 4104)");
}

static double most_resident_bytes(void)
{
    struct rusage usage;

    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    return 1024 * (double)usage.ru_maxrss;
}

/* A square table of conversions over all codes of four axes takes 800 MB for
 * values of one shape and type, and 8 MB over three; one of those layouts that
 * come up takes 128 KiB.  So a model with a dozen kinds of values, cut along
 * three axes, is sharded in less than four tables of three axes. */
static void no_table_is_over_all_layouts(void **state)
{
    const struct spec spec = {true, 2,  64,    2, 64,       8,
                              2,    61, false, 0, BLOCK_PRE};
    const double codes = 10 * MERAK_CODES,
                 dense = MERAK_CODES * MERAK_CODES * 8.;
    struct merak_graph *graph;
    struct merak_model *m = spec_model(&spec, MERAK_F32, &graph);
    const double before = most_resident_bytes();
    struct merak_sharded *s =
        shard_sequences(graph, 2, 4, MERAK_CP_AUTO, MERAK_CP_ORDER_AUTO);

    (void)state;
    assert_int_equal(s->mesh.n_axes, 3);
    assert_true(codes * codes * sizeof(double) == 800000000);
    assert_int_equal(MERAK_KIND_LAYOUTS * MERAK_KIND_LAYOUTS * sizeof(double),
                     128 * 1024);
    print_message("# %.0f bytes more\n", most_resident_bytes() - before);
    assert_true(most_resident_bytes() - before < 4 * dense);
    merak_sharded_destroy(s);
    merak_model_destroy(m);
}

/* There is no axis left for replicas. */
static void too_many_cuts_are_refused(void **state)
{
    const struct spec spec = {true, 2, 8, 2, 32, 4, 2, 61, false, 0, BLOCK_PRE};
    const struct merak_shard_options opt = {
        .tp = 4, .cp = 2, .shared = 1, .stages = 2};

    (void)state;
    spec_refuses(&spec, &opt,
                 "vocabulary-parallel layers: with cp 2, tp 4 is to be "
                 "one axis, but it is kv heads times queries of each: "
                 "use a tp that divides the kv heads, --cp 1 or "
                 "--schedule 1f1b");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_table_is_over_all_layouts), /* before others */
        cmocka_unit_test(weights_are_whole_along_cp),
        cmocka_unit_test(words_of_both_forms_are_as_computed),
        cmocka_unit_test(more_ranks_than_kv_heads_do_both),
        cmocka_unit_test(gathered_keys_take_the_bytes_of_the_whole_sequence),
        cmocka_unit_test(words_of_tensor_ranks_are_as_computed),
        cmocka_unit_test(the_cheaper_form_is_taken),
        cmocka_unit_test(pieces_make_the_cost_even),
        cmocka_unit_test(the_better_order_is_taken),
        cmocka_unit_test(what_does_not_divide_into_pieces_is_refused),
        cmocka_unit_test(too_many_cuts_are_refused),
    };

    return cmocka_run_group_tests_name("shard_sequences", tests, NULL, NULL);
}

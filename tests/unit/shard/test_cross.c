/* SPDX-License-Identifier: Apache-2.0 */
/* test_cross.c - tensors that cross between unlike meshes, done in memory
 *
 * Every crossing is carried out: members hold the numbers of their elements,
 * messages copy them, gathers exchange parts, and each receiver has to end
 * with exactly its box.
 */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/size.h"
#include "partitioner/layout/cross.h"

#define NOTHING SIZE_MAX

/* What is told of a crossing, in elements. */
struct told {
    size_t crossed;  /* by all messages */
    size_t port;     /* sent or received by the busiest member */
    size_t held;     /* by all receivers */
    size_t messages; /* number */
};

struct run {
    const struct merak_cross_end *from, *to;
    const struct merak_shape *shape;
    struct merak_cross cross;
    size_t count;
    size_t **got;     /* [receiver][element of the tensor] */
    unsigned *copies; /* [element]: how often it was sent */
};

static size_t elements(const struct merak_shape *shape)
{
    size_t n = 1;

    for (int d = 0; d < shape->ndim; d++)
        n *= shape->dim[d];
    return n;
}

/* The number in the tensor of element i of a box. */
static size_t element_of(const struct merak_box *box, size_t i)
{
    size_t at = 0, stride = 1;

    for (int d = box->ndim - 1; d >= 0; d--) {
        at += (box->lo[d] + i % box->len[d]) * stride;
        i /= box->len[d];
        stride *= box->full[d];
    }
    return at;
}

static bool box_has(const struct merak_box *box, size_t element)
{
    for (int d = box->ndim - 1; d >= 0; d--) {
        size_t at = element % box->full[d];

        if (at < box->lo[d] || at >= box->lo[d] + box->len[d])
            return false;
        element /= box->full[d];
    }
    return true;
}

static void send_all(struct run *r, struct told *told)
{
    int n_from = merak_cross_members(r->from),
        n_to = merak_cross_members(r->to);
    size_t *sent = test_calloc((size_t)n_from, sizeof(*sent));
    size_t *received = test_calloc((size_t)n_to, sizeof(*received));
    bool *met = test_calloc((size_t)(n_from * n_to), sizeof(*met));

    for (int i = 0; i < r->cross.n_moves; i++) {
        const struct merak_cross_move *m = &r->cross.move[i];
        struct merak_box box;

        assert_in_range(m->from, 0, n_from - 1);
        assert_in_range(m->to, 0, n_to - 1);
        assert_true(m->lo < m->hi && m->hi <= merak_box_count(&m->box));
        assert_true(i == 0 || m->to >= m[-1].to);
        assert_false(met[m->from * n_to + m->to]);
        met[m->from * n_to + m->to] = true;
        merak_cross_box(r->from, r->shape, m->from, &box);
        for (size_t k = m->lo; k < m->hi; k++) {
            size_t e = element_of(&m->box, k);

            assert_true(box_has(&box, e)); /* the sender has it */
            assert_int_equal(r->got[m->to][e], NOTHING);
            r->got[m->to][e] = e;
            r->copies[e]++;
        }
        sent[m->from] += m->hi - m->lo;
        received[m->to] += m->hi - m->lo;
        told->crossed += m->hi - m->lo;
    }
    for (int i = 0; i < n_from; i++)
        told->port = sent[i] > told->port ? sent[i] : told->port;
    for (int i = 0; i < n_to; i++)
        told->port = received[i] > told->port ? received[i] : told->port;
    told->messages = (size_t)r->cross.n_moves;
    test_free(sent);
    test_free(received);
    test_free(met);
}

/* Each member of a gather gives its part to the others on its node. */
static void gather_all(struct run *r)
{
    for (int i = 0; i < r->cross.n_gathers; i++) {
        const struct merak_cross_gather *g = &r->cross.gather[i];
        size_t count = merak_box_count(&g->box), n = (size_t)g->n;

        for (size_t k = 0; k < n; k++) {
            for (size_t e = merak_cut(count, n, k);
                 e < merak_cut(count, n, k + 1); e++) {
                size_t at = element_of(&g->box, e);

                assert_int_equal(r->got[g->member[k]][at], at);
                for (size_t q = 0; q < n; q++)
                    r->got[g->member[q]][at] = at;
            }
        }
        for (int k = 1; k < g->n && r->to->node != NULL; k++)
            assert_int_equal(r->to->node[g->member[k]],
                             r->to->node[g->member[0]]);
    }
}

static void check_receivers(struct run *r, struct told *told)
{
    for (int m = 0; m < merak_cross_members(r->to); m++) {
        struct merak_box box;

        merak_cross_box(r->to, r->shape, m, &box);
        told->held += merak_box_count(&box);
        for (size_t e = 0; e < r->count; e++)
            assert_int_equal(r->got[m][e], box_has(&box, e) ? e : NOTHING);
    }
}

static struct told carry_out(const struct merak_cross_end *from,
                             const struct merak_cross_end *to,
                             const struct merak_shape *shape, size_t least_part,
                             unsigned *copies)
{
    struct run r = {.from = from,
                    .to = to,
                    .shape = shape,
                    .count = elements(shape),
                    .copies = copies};
    int n = merak_cross_members(to);
    struct told told = {0};
    struct merak_error err;

    assert_int_equal(
        merak_cross_init(&r.cross, from, to, shape, least_part, &err),
        MERAK_OK);
    r.got = test_calloc((size_t)n, sizeof(*r.got));
    for (int m = 0; m < n; m++) {
        r.got[m] = test_malloc((r.count + 1) * sizeof(**r.got));
        memset(r.got[m], 0xff, r.count * sizeof(**r.got));
    }
    memset(copies, 0, r.count * sizeof(*copies));
    send_all(&r, &told);
    gather_all(&r);
    check_receivers(&r, &told);
    for (int m = 0; m < n; m++)
        test_free(r.got[m]);
    test_free(r.got);
    merak_cross_fini(&r.cross);
    return told;
}

/* --- random pairs --------------------------------------------------------- */

#define MOST_ELEMENTS 4096
#define MOST_MEMBERS 96

struct draws {
    uint64_t key, at;
};

static int draw(struct draws *d, int n)
{
    return (int)(merak_rng_mix(d->key, d->at++) % (uint64_t)n);
}

/* Replicas that cut samples, then up to two tensor axes in any layout. */
static struct merak_cross_end draw_end(struct draws *d, int ndim, int *node)
{
    struct merak_cross_end end = {.mesh.n_axes = 1 + draw(d, 3)};
    int per_node = 1 + draw(d, 8);

    end.mesh.axis[0].size = 1 + draw(d, 6);
    end.layout.at[0] = (struct merak_place){.kind = MERAK_SPLIT, .dim = 0};
    for (int a = 1; a < end.mesh.n_axes; a++) {
        int dim = draw(d, ndim + 1) - 1;

        end.mesh.axis[a].size = 1 + draw(d, 4);
        end.layout.at[a] =
            dim < 0
                ? (struct merak_place){.kind = MERAK_REPLICATED, .dim = -1}
                : (struct merak_place){.kind = MERAK_SPLIT, .dim = (int8_t)dim};
    }
    for (int i = 0; i < merak_cross_members(&end); i++)
        node[i] = i / per_node;
    end.node = draw(d, 2) ? node : NULL;
    return end;
}

static struct merak_shape draw_shape(struct draws *d)
{
    struct merak_shape shape = {.ndim = 1 + draw(d, 3)};

    for (int i = 0; i < shape.ndim; i++)
        shape.dim[i] = (size_t)(1 + draw(d, 16));
    return shape;
}

/* On how many nodes somebody wants an element. */
static unsigned nodes_that_want(const struct merak_cross_end *to,
                                const struct merak_shape *shape, size_t element)
{
    bool seen[MOST_MEMBERS] = {false};
    unsigned n = 0;

    for (int m = 0; m < merak_cross_members(to); m++) {
        struct merak_box box;
        int node = to->node == NULL ? 0 : to->node[m];

        merak_cross_box(to, shape, m, &box);
        if (box_has(&box, element) && !seen[node]) {
            seen[node] = true;
            n++;
        }
    }
    return n;
}

static void random_pairs_reproduce_the_tensor(void **state)
{
    static unsigned copies[MOST_ELEMENTS];
    int gathers = 0;

    (void)state;
    for (int i = 0; i < 2000; i++) {
        struct draws d = {merak_rng_mix(35, (uint64_t)i), 0};
        struct merak_shape shape = draw_shape(&d);
        int node[2][MOST_MEMBERS];
        struct merak_cross_end from = draw_end(&d, shape.ndim, node[0]);
        struct merak_cross_end to = draw_end(&d, shape.ndim, node[1]);
        struct told told = carry_out(&from, &to, &shape, 0, copies), whole;
        size_t once = 0;

        for (size_t e = 0; e < elements(&shape); e++) {
            assert_int_equal(copies[e], nodes_that_want(&to, &shape, e));
            once += copies[e];
        }
        assert_int_equal(told.crossed, once);
        gathers += told.crossed < told.held;
        /* Whole to each: every receiver is sent its box. */
        whole = carry_out(&from, &to, &shape, SIZE_MAX, copies);
        assert_int_equal(whole.crossed, whole.held);
        carry_out(&from, &to, &shape, 7, copies);
    }
    assert_in_range(gathers, 400, 1999);
}

/* --- published cases and golden values ------------------------------------ */

#define R                                   \
    {                                       \
        .kind = MERAK_REPLICATED, .dim = -1 \
    }
#define S(d)                            \
    {                                   \
        .kind = MERAK_SPLIT, .dim = (d) \
    }
#define END(a, b, ...)                                                   \
    {                                                                    \
        .mesh = {2, {{"", (a)}, {"", (b)}}}, .layout = { {__VA_ARGS__} } \
    }
#define SHAPE(...)      \
    {                   \
        3,              \
        {               \
            __VA_ARGS__ \
        }               \
    }

/* The nine of Alpa's suite of cross-mesh resharding (Zhuang et al. 2022), with
 * dims divided by 64 or so and as uneven as theirs: two nodes of four ranks,
 * and what is cut over nodes is cut over axis 0. */
static const struct alpa {
    struct merak_cross_end from, to;
    struct merak_shape shape;
} alpa[] = {
    {END(2, 4, S(0), R), END(2, 4, S(0), R), SHAPE(16, 16, 8)},
    {END(2, 4, R, R), END(2, 4, S(0), R), SHAPE(16, 16, 8)},
    {END(2, 4, S(1), R), END(2, 4, S(0), R), SHAPE(16, 16, 8)},
    {END(2, 4, S(1), S(1)), END(2, 4, S(0), S(0)), SHAPE(16, 16, 8)},
    {END(2, 4, R, S(0)), END(2, 4, S(0), R), SHAPE(16, 16, 8)},
    {END(2, 4, S(0), R), END(3, 4, S(0), R), SHAPE(48, 16, 5)},
    {END(1, 4, R, S(0)), END(2, 4, R, R), SHAPE(16, 16, 8)},
    {END(1, 4, R, S(0)), END(2, 4, R, R), SHAPE(16, 16, 8)},
    {END(2, 4, S(1), R), END(2, 4, S(2), R), SHAPE(16, 16, 8)},
};

/* No port can have less than what has to cross, divided by the members of the
 * smaller side: sizes divide, so that the bound is met. */
static void published_cases_meet_the_bound_of_a_port(void **state)
{
    static unsigned copies[MOST_ELEMENTS];
    int node[12];

    (void)state;
    for (int i = 0; i < 12; i++)
        node[i] = i / 4;
    for (size_t c = 0; c < sizeof(alpa) / sizeof(*alpa); c++) {
        struct merak_cross_end from = alpa[c].from, to = alpa[c].to;
        int n = merak_cross_members(&from), n_to = merak_cross_members(&to);
        struct told told;
        size_t bound;

        from.node = to.node = node;
        told = carry_out(&from, &to, &alpa[c].shape, 0, copies);
        bound = (told.crossed + (size_t)(n < n_to ? n : n_to) - 1) /
                (size_t)(n < n_to ? n : n_to);
        print_message("# case %zu: %zu elements in %zu messages, a port %zu, "
                      "at least %zu\n",
                      c + 1, told.crossed, told.messages, told.port, bound);
        assert_int_equal(told.port, bound);
    }
}

static const struct golden {
    struct merak_cross_end from, to;
    struct merak_shape shape;
    size_t crossed, held, messages, port;
} golden[] = {
    {END(2, 1, S(0), R), END(1, 4, S(0), R), SHAPE(8, 4, 6), 192, 768, 8, 96},
    {END(2, 1, S(0), R), END(1, 4, S(0), S(1)), SHAPE(8, 4, 6), 192, 192, 8,
     96},
    {END(4, 1, S(0), R), END(2, 2, S(0), R), SHAPE(8, 4, 6), 192, 384, 8, 48},
    {END(1, 4, S(0), R), END(4, 1, S(0), R), SHAPE(8, 4, 6), 192, 192, 4, 48},
    {END(3, 1, S(0), R), END(2, 1, S(0), R), SHAPE(6, 4, 6), 144, 144, 4, 72},
    /* pieces of 5, 5 and 10: the first sender gives one of its two away */
    {END(1, 2, S(0), R), END(1, 3, S(0), S(1)), SHAPE(1, 4, 5), 20, 20, 3, 10},
};

static void golden_crossings(void **state)
{
    static unsigned copies[MOST_ELEMENTS];

    (void)state;
    for (size_t c = 0; c < sizeof(golden) / sizeof(*golden); c++) {
        const struct golden *g = &golden[c];
        struct told told = carry_out(&g->from, &g->to, &g->shape, 0, copies);

        assert_int_equal(told.crossed, g->crossed);
        assert_int_equal(told.held, g->held);
        assert_int_equal(told.messages, g->messages);
        assert_int_equal(told.port, g->port);
    }
}

/* Three replicas to two: pieces of 48, 24, 24 and 48 elements. */
static void unlike_replicas_need_no_gather(void **state)
{
    static const size_t piece[] = {48, 24, 24, 48};
    static const int from[] = {0, 1, 1, 2}, to[] = {0, 0, 1, 1};
    const struct golden *g = &golden[4];
    struct merak_cross cross;

    (void)state;
    assert_int_equal(
        merak_cross_init(&cross, &g->from, &g->to, &g->shape, 0, NULL),
        MERAK_OK);
    assert_int_equal(cross.n_gathers, 0);
    assert_int_equal(cross.n_moves, 4);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(cross.move[i].hi - cross.move[i].lo, piece[i]);
        assert_int_equal(cross.move[i].to, to[i]);
        assert_int_equal(cross.move[i].from, from[i]);
    }
    merak_cross_fini(&cross);
}

/* Between like meshes each member sends to the one in its place. */
static void alike_meshes_send_straight_on(void **state)
{
    static const struct merak_cross_end end[] = {
        END(3, 4, S(0), R),
        END(2, 4, S(0), S(1)),
        END(1, 5, S(0), R),
        END(4, 1, S(0), R),
        END(2, 3, S(0), S(0)),
        END(2, 3, S(0), {.kind = MERAK_PARTIAL_SUM, .dim = -1}),
        END(2, 3, {.kind = MERAK_PARTIAL_SUM, .dim = -1}, R),
        END(2, 3, {.kind = MERAK_PARTIAL_MAX, .dim = -1},
            {.kind = MERAK_PARTIAL_MAX, .dim = -1}),
    };
    const struct merak_shape shape = SHAPE(12, 7, 5);

    (void)state;
    for (size_t i = 0; i < 2 * sizeof(end) / sizeof(*end); i++) {
        const struct merak_cross_end *e = &end[i / 2];
        struct merak_cross cross;

        assert_int_equal(
            merak_cross_init(&cross, e, e, &shape, i % 2 ? SIZE_MAX : 0, NULL),
            MERAK_OK);
        assert_int_equal(cross.n_moves, merak_cross_members(e));
        for (int k = 0; k < cross.n_moves; k++) {
            assert_int_equal(cross.move[k].from, k);
            assert_int_equal(cross.move[k].to, k);
        }
        merak_cross_fini(&cross);
    }
}

static void sums_cross_term_by_term(void **state)
{
    const struct merak_cross_end whole = END(1, 2, S(0), R);
    const struct merak_cross_end sums =
        END(1, 2, S(0), {.kind = MERAK_PARTIAL_SUM, .dim = -1});
    const struct merak_cross_end two =
        END(2, 2, S(0), {.kind = MERAK_PARTIAL_SUM, .dim = -1});
    const struct merak_cross_end flat =
        END(1, 2, S(0), {.kind = MERAK_FLAT, .dim = -1});
    const struct merak_shape shape = SHAPE(2, 2, 2);
    struct merak_cross cross;
    struct merak_error err;

    (void)state;
    assert_int_equal(merak_cross_init(&cross, &sums, &whole, &shape, 0, &err),
                     MERAK_ERR_PARAM);
    assert_string_equal(err.text,
                        "a tensor cannot cross from layout S0,P to S0,R: "
                        "expected nothing flat, and as many terms of a sum on "
                        "both sides");
    assert_int_equal(merak_cross_init(&cross, &whole, &flat, &shape, 0, &err),
                     MERAK_ERR_PARAM);
    /* Two replicas with two terms each to one: a term's halves to its rank. */
    assert_int_equal(merak_cross_init(&cross, &two, &sums, &shape, 0, &err),
                     MERAK_OK);
    assert_int_equal(cross.n_moves, 4);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(cross.move[i].to, i / 2);
        assert_int_equal(cross.move[i].from % 2, i / 2);
        assert_int_equal(cross.move[i].box.lo[0], cross.move[i].from / 2);
    }
    merak_cross_fini(&cross);
}

static void empty_tensors_send_nothing(void **state)
{
    const struct merak_cross_end end = END(2, 2, S(0), R);
    const struct merak_shape none = SHAPE(4, 0, 3);
    struct merak_cross cross;

    (void)state;
    assert_int_equal(merak_cross_init(&cross, &end, &end, &none, 0, NULL),
                     MERAK_OK);
    assert_int_equal(cross.n_moves, 0);
    merak_cross_fini(&cross);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_pairs_reproduce_the_tensor),
        cmocka_unit_test(published_cases_meet_the_bound_of_a_port),
        cmocka_unit_test(golden_crossings),
        cmocka_unit_test(unlike_replicas_need_no_gather),
        cmocka_unit_test(alike_meshes_send_straight_on),
        cmocka_unit_test(sums_cross_term_by_term),
        cmocka_unit_test(empty_tensors_send_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* cross.c - a tensor crosses from one mesh to another
 *
 * The cuts of both layouts divide the tensor into cells: boxes that a member
 * has either all of or nothing of, on either mesh.  A cell goes in one message
 * to each member that wants it, or, where several on a node want it, in a part
 * to each of those.  Messages are given to senders one after the other, each
 * to the one that has least to send yet, and then moved as long as that makes
 * the more loaded of two senders less so.
 */
#include "config.h"

#include "partitioner/layout/cross.h"

#include "base/error.h"
#include "base/grow.h"
#include "base/size.h"

#include <stdlib.h>
#include <string.h>

struct cuts {
    size_t *at; /* ascending, from 0 to the dim */
    int n, room;
};

struct side {
    const struct merak_cross_end *end;
    int n;
    struct merak_box *box; /* by member */
    int *term;             /* by member: which term of a sum it has */
    int n_terms;
};

struct maker {
    struct merak_cross *cross;
    const struct merak_shape *shape;
    size_t least_part;
    struct side from, to;
    struct cuts cuts[MERAK_MAX_DIMS];
    size_t *load;          /* elements that each sender has to send */
    int *want;             /* members that want the cell, by node */
    struct merak_box cell; /* at hand */
    int term;
    struct merak_error *err;
};

int merak_cross_members(const struct merak_cross_end *end)
{
    int n = 1;

    for (int a = 0; a < end->mesh.n_axes; a++)
        n *= end->mesh.axis[a].size;
    return n;
}

void merak_cross_box(const struct merak_cross_end *end,
                     const struct merak_shape *shape, int member,
                     struct merak_box *box)
{
    int coord[MERAK_MAX_AXES] = {0};

    for (int a = end->mesh.n_axes - 1; a >= 0; a--) {
        coord[a] = member % end->mesh.axis[a].size;
        member /= end->mesh.axis[a].size;
    }
    merak_layout_box(&end->mesh, &end->layout, shape, coord, box);
}

/* The place of a member along the axes that are partial. */
static int term_of(const struct merak_cross_end *end, int member)
{
    int term = 0, stride = 1;

    for (int a = end->mesh.n_axes - 1; a >= 0; a--) {
        if (merak_place_is_partial(&end->layout.at[a])) {
            term += member % end->mesh.axis[a].size * stride;
            stride *= end->mesh.axis[a].size;
        }
        member /= end->mesh.axis[a].size;
    }
    return term;
}

static int node_of(const struct merak_cross_end *end, int member)
{
    return end->node == NULL ? 0 : end->node[member];
}

/* --- cells ---------------------------------------------------------------- */

static enum merak_status fail_layouts(const struct maker *m)
{
    const struct merak_cross_end *a = m->from.end, *b = m->to.end;
    char from[32], to[32];

    return merak_fail(
        m->err, MERAK_ERR_PARAM,
        "a tensor cannot cross from layout %s to %s: expected nothing flat, "
        "and "
        "as many terms of a sum on both sides",
        merak_layout_print(&a->mesh, &a->layout, from, sizeof(from)),
        merak_layout_print(&b->mesh, &b->layout, to, sizeof(to)));
}

static bool has_flat(const struct merak_cross_end *end)
{
    for (int a = 0; a < end->mesh.n_axes; a++) {
        if (end->layout.at[a].kind == MERAK_FLAT)
            return true;
    }
    return false;
}

static enum merak_status init_side(struct side *s,
                                   const struct merak_cross_end *end,
                                   const struct merak_shape *shape,
                                   struct merak_error *err)
{
    s->end = end;
    s->n = merak_cross_members(end);
    s->box = calloc((size_t)s->n, sizeof(*s->box));
    s->term = calloc((size_t)s->n, sizeof(*s->term));
    if (s->box == NULL || s->term == NULL)
        return merak_fail_nomem(err, (size_t)s->n * sizeof(*s->box));
    for (int i = 0; i < s->n; i++) {
        merak_cross_box(end, shape, i, &s->box[i]);
        s->term[i] = term_of(end, i);
        if (s->term[i] >= s->n_terms)
            s->n_terms = s->term[i] + 1;
    }
    return MERAK_OK;
}

static enum merak_status add_cut(struct cuts *c, size_t at,
                                 struct merak_error *err)
{
    enum merak_status rc;
    int i = c->n;

    while (i > 0 && c->at[i - 1] > at)
        i--;
    if (i > 0 && c->at[i - 1] == at)
        return MERAK_OK;
    rc = merak_grow(&c->at, &c->room, c->n, sizeof(*c->at), err);
    if (rc != MERAK_OK)
        return rc;
    memmove(c->at + i + 1, c->at + i, (size_t)(c->n - i) * sizeof(*c->at));
    c->at[i] = at;
    c->n++;
    return MERAK_OK;
}

static enum merak_status add_cuts(struct maker *m, const struct side *s)
{
    enum merak_status rc = MERAK_OK;

    for (int i = 0; i < s->n; i++) {
        const struct merak_box *box = &s->box[i];

        for (int d = 0; d < box->ndim && rc == MERAK_OK; d++) {
            rc = add_cut(&m->cuts[d], box->lo[d], m->err);
            if (rc == MERAK_OK)
                rc = add_cut(&m->cuts[d], box->lo[d] + box->len[d], m->err);
        }
    }
    return rc;
}

/* Does a member have, or want, all of a cell of a term? */
static bool holds(const struct side *s, int member,
                  const struct merak_box *cell, int term)
{
    const struct merak_box *box = &s->box[member];

    if (s->term[member] != term)
        return false;
    for (int d = 0; d < cell->ndim; d++) {
        if (cell->lo[d] < box->lo[d] ||
            cell->lo[d] + cell->len[d] > box->lo[d] + box->len[d])
            return false;
    }
    return true;
}

/* --- messages ------------------------------------------------------------- */

/* Another member that has the cell and would be left with less to send than
 * `most` elements, together with `more`: the one with least; or -1. */
static int find_sender(const struct maker *m, const struct merak_box *cell,
                       int term, size_t more, size_t most)
{
    int best = -1;

    for (int i = 0; i < m->from.n; i++) {
        if (m->load[i] + more < most && holds(&m->from, i, cell, term) &&
            (best < 0 || m->load[i] < m->load[best]))
            best = i;
    }
    return best;
}

/* Send elements [lo, hi) of the cell to a member. */
static enum merak_status add_move(struct maker *m, int to, size_t lo, size_t hi,
                                  int gather)
{
    struct merak_cross *c = m->cross;
    int from = find_sender(m, &m->cell, m->term, 0, SIZE_MAX);
    enum merak_status rc;

    if (lo == hi)
        return MERAK_OK;
    rc = merak_grow(&c->move, &c->move_room, c->n_moves, sizeof(*c->move),
                    m->err);
    if (rc != MERAK_OK)
        return rc;
    c->move[c->n_moves++] =
        (struct merak_cross_move){from, to, m->cell, lo, hi, gather};
    m->load[from] += hi - lo;
    return MERAK_OK;
}

/* Send the cell to n members of a node. */
static enum merak_status send_to_node(struct maker *m, const int *want, int n)
{
    struct merak_cross *c = m->cross;
    size_t count = merak_box_count(&m->cell), ways = (size_t)n;
    bool whole = n == 1 || count / ways < m->least_part;
    enum merak_status rc = MERAK_OK;

    if (!whole) {
        int *member = malloc(ways * sizeof(*member));

        if (member == NULL)
            return merak_fail_nomem(m->err, ways * sizeof(*member));
        memcpy(member, want, ways * sizeof(*member));
        rc = merak_grow(&c->gather, &c->gather_room, c->n_gathers,
                        sizeof(*c->gather), m->err);
        if (rc != MERAK_OK) {
            free(member);
            return rc;
        }
        c->gather[c->n_gathers++] =
            (struct merak_cross_gather){m->cell, n, member};
    }
    for (size_t i = 0; i < ways && rc == MERAK_OK; i++)
        rc = whole ? add_move(m, want[i], 0, count, -1)
                   : add_move(m, want[i], merak_cut(count, ways, i),
                              merak_cut(count, ways, i + 1), c->n_gathers - 1);
    return rc;
}

static enum merak_status send_cell(struct maker *m)
{
    enum merak_status rc = MERAK_OK;
    int n = 0, first = 0;

    /* In the order of nodes, and of members in each. */
    for (int i = 0; i < m->to.n; i++) {
        int k = n, node = node_of(m->to.end, i);

        if (!holds(&m->to, i, &m->cell, m->term))
            continue;
        for (; k > 0 && node_of(m->to.end, m->want[k - 1]) > node; k--)
            m->want[k] = m->want[k - 1];
        m->want[k] = i;
        n++;
    }
    for (int i = 1; i <= n && rc == MERAK_OK; i++) {
        if (i < n && node_of(m->to.end, m->want[i]) ==
                         node_of(m->to.end, m->want[first]))
            continue;
        rc = send_to_node(m, m->want + first, i - first);
        first = i;
    }
    return rc;
}

static enum merak_status send_cells(struct maker *m)
{
    int at[MERAK_MAX_DIMS] = {0}, ndim = m->shape->ndim, d;
    enum merak_status rc;

    do {
        m->cell = (struct merak_box){.ndim = ndim};
        for (d = 0; d < ndim; d++) {
            const size_t *cut = m->cuts[d].at + at[d];

            m->cell.full[d] = m->shape->dim[d];
            m->cell.lo[d] = cut[0];
            m->cell.len[d] = cut[1] - cut[0];
        }
        rc = MERAK_OK;
        for (m->term = 0; m->term < m->to.n_terms && rc == MERAK_OK; m->term++)
            rc = send_cell(m);
        d = ndim - 1;
        while (d >= 0 && ++at[d] == m->cuts[d].n - 1)
            at[d--] = 0;
    } while (d >= 0 && rc == MERAK_OK);
    return rc;
}

/* Give messages to other senders while that lessens the load of the one and
 * leaves the other with less than that. */
static void balance(struct maker *m)
{
    struct merak_cross *c = m->cross;
    bool moved = true;

    while (moved) {
        moved = false;
        for (int i = 0; i < c->n_moves; i++) {
            struct merak_cross_move *mv = &c->move[i];
            size_t n = mv->hi - mv->lo;
            int to = find_sender(m, &mv->box, m->from.term[mv->from], n,
                                 m->load[mv->from]);

            if (to < 0)
                continue;
            m->load[mv->from] -= n;
            m->load[to] += n;
            mv->from = to;
            moved = true;
        }
    }
}

static int by_receiver(const void *a, const void *b)
{
    const struct merak_cross_move *x = a, *y = b;

    if (x->to != y->to)
        return x->to < y->to ? -1 : 1;
    return x->from < y->from ? -1 : x->from > y->from;
}

/* Receivers one after the other; each begins with another sender, so that not
 * all of them wait for the first. */
static void put_in_order(struct maker *m)
{
    struct merak_cross *c = m->cross;
    int n = m->from.n;

    for (int i = 0; i < c->n_moves; i++)
        c->move[i].from = (c->move[i].from + n - c->move[i].to % n) % n;
    qsort(c->move, (size_t)c->n_moves, sizeof(*c->move), by_receiver);
    for (int i = 0; i < c->n_moves; i++)
        c->move[i].from = (c->move[i].from + c->move[i].to) % n;
}

static enum merak_status make(struct maker *m,
                              const struct merak_cross_end *from,
                              const struct merak_cross_end *to)
{
    enum merak_status rc = init_side(&m->from, from, m->shape, m->err);

    if (rc == MERAK_OK)
        rc = init_side(&m->to, to, m->shape, m->err);
    if (rc == MERAK_OK &&
        (has_flat(from) || has_flat(to) || m->from.n_terms != m->to.n_terms))
        rc = fail_layouts(m);
    if (rc == MERAK_OK)
        rc = add_cuts(m, &m->from);
    if (rc == MERAK_OK)
        rc = add_cuts(m, &m->to);
    if (rc != MERAK_OK)
        return rc;
    m->load = calloc((size_t)m->from.n, sizeof(*m->load));
    m->want = calloc((size_t)m->to.n, sizeof(*m->want));
    if (m->load == NULL || m->want == NULL)
        return merak_fail_nomem(m->err, (size_t)m->to.n * sizeof(*m->want));
    for (int d = 0; d < m->shape->ndim; d++) {
        if (m->shape->dim[d] == 0)
            return MERAK_OK; /* there is nothing to send */
    }
    rc = send_cells(m);
    if (rc == MERAK_OK && m->cross->n_moves > 0) {
        balance(m);
        put_in_order(m);
    }
    return rc;
}

enum merak_status merak_cross_init(struct merak_cross *cross,
                                   const struct merak_cross_end *from,
                                   const struct merak_cross_end *to,
                                   const struct merak_shape *shape,
                                   size_t least_part, struct merak_error *err)
{
    struct maker m = {
        .cross = cross, .shape = shape, .least_part = least_part, .err = err};
    enum merak_status rc;

    *cross = (struct merak_cross){.move = NULL};
    rc = make(&m, from, to);
    for (int d = 0; d < MERAK_MAX_DIMS; d++)
        free(m.cuts[d].at);
    free(m.from.box);
    free(m.from.term);
    free(m.to.box);
    free(m.to.term);
    free(m.load);
    free(m.want);
    if (rc != MERAK_OK)
        merak_cross_fini(cross);
    return rc;
}

void merak_cross_fini(struct merak_cross *cross)
{
    for (int i = 0; i < cross->n_gathers; i++)
        free(cross->gather[i].member);
    free(cross->gather);
    free(cross->move);
    *cross = (struct merak_cross){.move = NULL};
}

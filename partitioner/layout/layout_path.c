/* SPDX-License-Identifier: Apache-2.0 */
/* layout_path.c - the cheapest collectives from one layout to another
 *
 * Dijkstra's algorithm over layouts.  An edge changes one axis by one
 * collective; what it costs is the number of elements a rank sends, plus one
 * so that fewer hops win a tie.  The idea and the golden costs are those of
 * SuperScaler's RVD search (Lin et al. 2023, arXiv:2301.08984); there
 * states count devices, here axes are named, so who talks to whom is known.
 */
#include "config.h"

#include "partitioner/layout/layout_code.h"

#include <math.h>
#include <stdlib.h>

#define DIGIT_SPLIT_0 MERAK_CODE_SPLIT_0
#define DIGITS MERAK_CODE_DIGITS
#define MAX_STATES 10000 /* DIGITS to the power MERAK_MAX_AXES */

_Static_assert(DIGITS == 10 && MERAK_MAX_AXES == 4, "MAX_STATES is theirs");

struct search {
    const struct merak_mesh *mesh;
    const struct merak_shape *shape;
    int n_states, goal;
    double dist[MAX_STATES];
    int16_t prev[MAX_STATES];
    bool done[MAX_STATES];
    int open[MAX_STATES]; /* discovered states, in order */
    int n_open;
};

static int place_digit(const struct merak_place *place)
{
    switch (place->kind) {
    case MERAK_SPLIT:
        return DIGIT_SPLIT_0 + place->dim;
    case MERAK_PARTIAL_SUM:
        return MERAK_CODE_P;
    case MERAK_PARTIAL_MAX:
        return MERAK_CODE_M;
    case MERAK_FLAT:
        return MERAK_CODE_F;
    default:
        return MERAK_CODE_R;
    }
}

static struct merak_place digit_place(int digit)
{
    static const uint8_t kind[] = {MERAK_REPLICATED, MERAK_PARTIAL_SUM,
                                   MERAK_PARTIAL_MAX, MERAK_FLAT};

    if (digit >= DIGIT_SPLIT_0)
        return (struct merak_place){.kind = MERAK_SPLIT,
                                    .dim = (int8_t)(digit - DIGIT_SPLIT_0)};
    return (struct merak_place){.kind = kind[digit], .dim = -1};
}

int merak_layout_code(const struct merak_mesh *mesh,
                      const struct merak_layout *layout)
{
    int code = 0;

    for (int x = mesh->n_axes - 1; x >= 0; x--)
        code = code * DIGITS + place_digit(&layout->at[x]);
    return code;
}

void merak_code_layout(const struct merak_mesh *mesh, int code,
                       struct merak_layout *layout)
{
    merak_layout_replicated(layout);
    for (int x = 0; x < mesh->n_axes; x++, code /= DIGITS)
        layout->at[x] = digit_place(code % DIGITS);
}

/* An inner axis on the same dim is cut within the parts of an outer one:
 * changing the outer would move every inner part as well. */
static bool is_innermost(const struct merak_mesh *mesh,
                         const struct merak_layout *layout, int axis)
{
    for (int x = axis + 1; x < mesh->n_axes; x++)
        if (layout->at[x].kind == MERAK_SPLIT && mesh->axis[x].size > 1 &&
            layout->at[x].dim == layout->at[axis].dim)
            return false;
    return true;
}

/* No other axis cuts its dim: the neighbours are members of one group. */
static bool is_alone(const struct merak_mesh *mesh,
                     const struct merak_layout *layout, int axis)
{
    for (int x = 0; x < mesh->n_axes; x++) {
        if (x != axis && layout->at[x].kind == MERAK_SPLIT &&
            mesh->axis[x].size > 1 && layout->at[x].dim == layout->at[axis].dim)
            return false;
    }
    return true;
}

static bool is_cut_by_dim(const struct merak_layout *layout, int axis)
{
    return layout->at[axis].kind == MERAK_SPLIT;
}

/* Does a flat cut prevent the change?  One of an outer axis leaves a row of
 * elements, which may be cut again or joined like any other. */
static bool is_flat_beside(const struct merak_mesh *mesh,
                           const struct merak_layout *from,
                           const struct merak_layout *to, int axis)
{
    bool by_dim = is_cut_by_dim(from, axis) || is_cut_by_dim(to, axis);

    for (int x = by_dim ? 0 : axis + 1; x < mesh->n_axes; x++)
        if (x != axis && from->at[x].kind == MERAK_FLAT)
            return true;
    return false;
}

static enum merak_convert_kind change_kind(const struct merak_place *a,
                                           const struct merak_place *b)
{
    bool to_cut = b->kind == MERAK_SPLIT || b->kind == MERAK_FLAT;

    if (merak_place_is_partial(a) && b->kind == MERAK_REPLICATED)
        return MERAK_CONVERT_ALL_REDUCE;
    if (merak_place_is_partial(a) && to_cut)
        return MERAK_CONVERT_REDUCE_SCATTER;
    if (a->kind == MERAK_REPLICATED && to_cut)
        return MERAK_CONVERT_SLICE;
    if ((a->kind == MERAK_SPLIT || a->kind == MERAK_FLAT) &&
        b->kind == MERAK_REPLICATED)
        return MERAK_CONVERT_ALL_GATHER;
    if (a->kind == MERAK_SPLIT && b->kind == MERAK_SPLIT && a->dim != b->dim)
        return MERAK_CONVERT_ALL_TO_ALL;
    if (a->kind == MERAK_SPLIT && b->kind == MERAK_SPLIT &&
        (b->before > 0 || b->after > 0))
        return MERAK_CONVERT_HALO;
    return MERAK_CONVERT_NONE;
}

/* Parts of neighbours along other axes stay, and are widened or cut like a
 * rank's own; those along this one are no one's to convert. */
static bool keeps_reach(const struct merak_layout *from, int axis,
                        enum merak_convert_kind kind)
{
    return !merak_layout_reaches(from) ||
           (from->at[axis].before == 0 && from->at[axis].after == 0 &&
            (kind == MERAK_CONVERT_HALO || kind == MERAK_CONVERT_SLICE));
}

bool merak_layout_change(const struct merak_mesh *mesh,
                         const struct merak_layout *from, int axis,
                         struct merak_place place, struct merak_hop *hop)
{
    struct merak_hop h = {.axis = axis, .to = *from};

    h.kind = change_kind(&from->at[axis], &place);
    h.to.at[axis] = place;
    if (h.kind == MERAK_CONVERT_NONE || !keeps_reach(from, axis, h.kind))
        return false;
    if ((place.before > 0 || place.after > 0) && !is_alone(mesh, &h.to, axis))
        return false;
    /* under a flat cut only elementwise sums keep every part in place */
    if (h.kind != MERAK_CONVERT_ALL_REDUCE &&
        is_flat_beside(mesh, from, &h.to, axis))
        return false;
    if (from->at[axis].kind == MERAK_SPLIT && !is_innermost(mesh, from, axis))
        return false;
    if (place.kind == MERAK_SPLIT && !is_innermost(mesh, &h.to, axis))
        return false;
    *hop = h;
    return true;
}

double merak_layout_words(const struct merak_mesh *mesh,
                          const struct merak_layout *layout,
                          const struct merak_shape *shape)
{
    double n = 1;

    for (int d = 0; d < shape->ndim; d++)
        n *= (double)shape->dim[d];
    for (int x = 0; x < mesh->n_axes; x++) {
        const struct merak_place *place = &layout->at[x];

        if (place->kind == MERAK_SPLIT || place->kind == MERAK_FLAT)
            n /= mesh->axis[x].size;
        if (place->before + place->after > 0)
            n *= 1 + (double)(place->before + place->after) *
                         mesh->axis[x].size / (double)shape->dim[place->dim];
    }
    return n;
}

static double hop_words(enum merak_convert_kind kind, double local, int c)
{
    switch (kind) {
    case MERAK_CONVERT_ALL_REDUCE:
        return 2.0 * (c - 1) / c * local;
    case MERAK_CONVERT_REDUCE_SCATTER:
    case MERAK_CONVERT_ALL_TO_ALL:
        return (double)(c - 1) / c * local;
    case MERAK_CONVERT_ALL_GATHER:
        return (c - 1) * local;
    default:
        return 0;
    }
}

/* Intermediate layouts have only even cuts, so that costs are exact. */
static bool is_even(const struct search *s, const struct merak_layout *layout,
                    int dim)
{
    size_t parts = 1;

    for (int x = 0; x < s->mesh->n_axes; x++)
        if (layout->at[x].kind == MERAK_SPLIT && layout->at[x].dim == dim)
            parts *= (size_t)s->mesh->axis[x].size;
    return s->shape->dim[dim] % parts == 0;
}

static void relax(struct search *s, int state, const struct merak_layout *from,
                  int axis, int digit)
{
    struct merak_hop hop;
    double cost;
    int next;

    /* Intermediate flat layouts sum or gather in two steps: the last axis is
     * enough.  Other flat cuts are ZeRO's, made and joined hop by hop. */
    if (digit == MERAK_CODE_F && axis != s->mesh->n_axes - 1)
        return;
    if (!merak_layout_change(s->mesh, from, axis, digit_place(digit), &hop))
        return;
    next = merak_layout_code(s->mesh, &hop.to);
    if (digit >= DIGIT_SPLIT_0 && next != s->goal &&
        !is_even(s, &hop.to, digit - DIGIT_SPLIT_0))
        return;
    cost = hop_words(hop.kind, merak_layout_words(s->mesh, from, s->shape),
                     s->mesh->axis[axis].size);
    cost += s->dist[state] + 1;
    if (cost >= s->dist[next])
        return;
    if (isinf(s->dist[next]))
        s->open[s->n_open++] = next;
    s->dist[next] = cost;
    s->prev[next] = (int16_t)state;
}

/* The nearest state not settled yet, the first found among equals; -1 if
 * none is left. */
static int nearest(const struct search *s)
{
    int best = -1;

    for (int i = 0; i < s->n_open; i++) {
        int state = s->open[i];

        if (!s->done[state] && (best < 0 || s->dist[state] < s->dist[best]))
            best = state;
    }
    return best;
}

static void search_init(struct search *s, int start)
{
    s->n_states = 1;
    for (int x = 0; x < s->mesh->n_axes; x++)
        s->n_states *= DIGITS;
    for (int i = 0; i < s->n_states; i++) {
        s->dist[i] = INFINITY;
        s->prev[i] = -1;
        s->done[i] = false;
    }
    s->dist[start] = 0;
    s->open[0] = start;
    s->n_open = 1;
}

static bool search_run(struct search *s)
{
    int state = nearest(s);

    while (state >= 0 && state != s->goal) {
        struct merak_layout from;

        s->done[state] = true;
        merak_code_layout(s->mesh, state, &from);
        for (int x = 0; x < s->mesh->n_axes; x++)
            for (int g = 0; g < DIGIT_SPLIT_0 + s->shape->ndim; g++)
                relax(s, state, &from, x, g);
        state = nearest(s);
    }
    return state == s->goal;
}

/* Walk back from the goal; the hops in order. */
static int search_hops(const struct search *s, struct merak_hop *hops)
{
    int chain[MERAK_MAX_HOPS + 1], n = 0;

    for (int state = s->goal; state >= 0; state = s->prev[state]) {
        if (n > MERAK_MAX_HOPS)
            return -1;
        chain[n++] = state;
    }
    for (int i = 0; i + 1 < n; i++) {
        struct merak_layout from, to;
        int axis = 0;

        merak_code_layout(s->mesh, chain[n - 1 - i], &from);
        merak_code_layout(s->mesh, chain[n - 2 - i], &to);
        while (place_digit(&from.at[axis]) == place_digit(&to.at[axis]))
            axis++;
        merak_layout_change(s->mesh, &from, axis, to.at[axis], &hops[i]);
        hops[i].words = hop_words(hops[i].kind,
                                  merak_layout_words(s->mesh, &from, s->shape),
                                  s->mesh->axis[axis].size);
    }
    return n - 1;
}

int merak_layout_path(const struct merak_mesh *mesh,
                      const struct merak_shape *shape,
                      const struct merak_layout *from,
                      const struct merak_layout *to, struct merak_hop *hops,
                      double *cost_p)
{
    struct search s;
    int n = -1;

    s.mesh = mesh;
    s.shape = shape;
    s.goal = merak_layout_code(mesh, to);
    search_init(&s, merak_layout_code(mesh, from));
    if (search_run(&s))
        n = search_hops(&s, hops);
    if (n >= 0 && cost_p != NULL)
        *cost_p = s.dist[s.goal];
    return n;
}

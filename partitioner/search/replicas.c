/* SPDX-License-Identifier: Apache-2.0 */
/* replicas.c - exchanges over the replicas of a stage: over all at once, or
 * over those of an inner sum and then over what these have, axis by axis
 */
#include "config.h"

#include "partitioner/search/replicas.h"

#include "partitioner/device/island_ways.h"
#include "partitioner/program/instr_cost.h"

/* The slowest pair of islands between neighbouring replicas of a stage, of any:
 * 0 without islands. */
static int slowest_pair(const struct merak_rater *r, int n, int stride)
{
    const struct merak_links *links = &r->cost->links;
    int slowest = 0;

    for (int s = 0; links->islands != NULL && s < r->plan->pp; s++) {
        const struct merak_stage_mesh mesh = merak_plan_mesh(r->plan, s);
        int pair = merak_links_slowest_pair(
            links, merak_stage_rank(&mesh, 0, 0), mesh.stride * stride, n);

        slowest = merak_islands_slower(links->islands, slowest, pair);
    }
    return slowest;
}

void merak_replicas_init(struct merak_rater *r)
{
    const struct merak_links *links = &r->cost->links;
    int n[2] = {merak_plan_dp_in(r->plan, 0), 1}, stride = 1;

    n[1] = r->mesh.dp / n[0];
    r->n_replicas = merak_plan_dp_axes(r->plan, 0);
    for (int a = 0; a < r->n_replicas; a++) {
        r->replicas[a] = (struct merak_replicas){.n = n[a]};
        for (int d = 0; d < n[a]; d++)
            r->replicas[a].spread.n[merak_links_level(
                links, 0, merak_stage_rank(&r->mesh, 0, d * stride))]++;
        r->replicas[a].spread.pair = slowest_pair(r, n[a], stride);
        stride *= n[a];
    }
}

/* How often a rank's bytes are on their way along an axis: those summed whole
 * twice; of the outer axis there is a part for each rank of the inner one. */
static double times(const struct merak_rater *r, bool whole, int axis)
{
    if (whole)
        return 2;
    return axis > 0 ? 1.0 / r->replicas[0].n : 1;
}

/* The kind of collective, and what of a rank's bytes each sends. */
static enum merak_convert_kind kind_of(const struct merak_rater *r, bool reduce,
                                       int axis, double *bytes)
{
    bool whole = reduce && r->plan->zero == 0;
    int n = r->replicas[axis].n;

    *bytes *= times(r, whole, axis) * (n - 1) / n;
    if (whole)
        return MERAK_CONVERT_ALL_REDUCE;
    return reduce ? MERAK_CONVERT_REDUCE_SCATTER : MERAK_CONVERT_ALL_GATHER;
}

/* Seconds along an axis. */
static double along_s(const struct merak_rater *r, int axis, bool reduce,
                      double bytes, int n)
{
    /* All stages gather at the same time, and reduce when each is ready. */
    const struct merak_links *links = reduce ? &r->links : &r->contended;
    const struct merak_spread *spread = &r->replicas[axis].spread;
    enum merak_convert_kind kind = kind_of(r, reduce, axis, &bytes);
    double latency = merak_links_exchange_s(links, kind, 0, spread);

    return (n - 1) * latency +
           merak_links_exchange_s(links, kind, bytes, spread);
}

double merak_over_dp(const struct merak_rater *r, bool reduce, double bytes,
                     int n)
{
    double seconds = 0;

    for (int a = 0; a < r->n_replicas; a++)
        seconds += along_s(r, a, reduce, bytes, n);
    return seconds;
}

double merak_over_home(const struct merak_rater *r, bool reduce, double bytes,
                       int n)
{
    return merak_plan_is_home_in(r->plan) ? along_s(r, 0, reduce, bytes, n)
                                          : merak_over_dp(r, reduce, bytes, n);
}

bool merak_home_is_in_node(const struct merak_rater *r)
{
    int n = merak_plan_is_home_in(r->plan) ? 1 : r->n_replicas;

    for (int a = 0; a < n; a++) {
        if (r->replicas[a].spread.n[0] < r->replicas[a].n)
            return false;
    }
    return true;
}

double merak_to_home(const struct merak_rater *r, double bytes)
{
    return merak_plan_is_home_in(r->plan) ? along_s(r, 1, false, bytes, 1) : 0;
}

/* Along the first axes. */
static struct merak_interference interference_of(const struct merak_rater *r,
                                                 int n_axes, bool reduce,
                                                 double bytes)
{
    struct merak_interference sum = {0};

    for (int a = 0; a < n_axes; a++) {
        double sent = bytes;
        enum merak_convert_kind kind = kind_of(r, reduce, a, &sent);
        struct merak_interference one =
            merak_cost_interference(r->cost, kind, sent, r->replicas[a].n);

        sum.copy_s += one.copy_s;
        sum.wake_s += one.wake_s;
    }
    return sum;
}

struct merak_interference
merak_over_dp_interference(const struct merak_rater *r, bool reduce,
                           double bytes)
{
    return interference_of(r, r->n_replicas, reduce, bytes);
}

struct merak_interference
merak_over_home_interference(const struct merak_rater *r, bool reduce,
                             double bytes)
{
    int n = merak_plan_is_home_in(r->plan) ? 1 : r->n_replicas;

    return interference_of(r, n, reduce, bytes);
}

double merak_reduced_far(const struct merak_rater *r, int level)
{
    double far = 0;

    for (int a = 0; a < r->n_replicas; a++) {
        int out = r->replicas[a].n;

        for (int l = 0; l <= level; l++)
            out -= r->replicas[a].spread.n[l];
        far += times(r, r->plan->zero == 0, a) * out / r->replicas[a].n;
    }
    return far;
}

double merak_norm_over_dp(const struct merak_rater *r, double bytes)
{
    double seconds = 0;

    for (int a = 0; a < r->n_replicas; a++)
        seconds += merak_links_exchange_s(&r->links, MERAK_CONVERT_ALL_REDUCE,
                                          2 * bytes, &r->replicas[a].spread);
    return seconds;
}

/* --- which are tried ------------------------------------------------------ */

/* The replicas with neighbouring numbers that a domain of a level has, if so
 * many divide them all; else 1. */
static int of_a_domain(const struct merak_search *s,
                       const struct merak_stage_mesh *mesh, int level)
{
    int n = 1;

    while (n < mesh->dp &&
           merak_links_level(&s->cost.links, 0, merak_stage_rank(mesh, 0, n)) <=
               level)
        n++;
    return mesh->dp % n == 0 && n < mesh->dp ? n : 1;
}

/* Seconds of a sum of many bytes over n neighbouring replicas, `stride` apart.
 */
static double sum_s(const struct merak_links *links,
                    const struct merak_stage_mesh *mesh, int n, int stride,
                    double bytes)
{
    struct merak_spread spread = {.n = {0}};

    for (int d = 0; d < n; d++)
        spread.n[merak_links_level(links, 0,
                                   merak_stage_rank(mesh, 0, d * stride))]++;
    return merak_links_exchange_s(links, MERAK_CONVERT_REDUCE_SCATTER,
                                  bytes * (n - 1) / n, &spread);
}

/* The replicas that are summed over first: those of a node, or, if there are
 * larger domains than these, of the domains with which sums of gradients are
 * over soonest. */
static int inner_replicas(const struct merak_search *s,
                          const struct merak_plan *p)
{
    const double bytes = 1e10; /* latencies hardly matter */
    const struct merak_stage_mesh mesh = merak_plan_mesh(p, 0);
    int last = merak_links_last(&s->cost.links), best;
    struct merak_links shared;
    double best_s = 0;

    best = of_a_domain(s, &mesh, 0);
    if (last == 1)
        return best;
    shared = merak_links_shared(&s->cost.links, p, 0);
    for (int l = 0; l < last; l++) {
        int n = of_a_domain(s, &mesh, l);
        double seconds = sum_s(&shared, &mesh, n, 1, bytes) +
                         sum_s(&shared, &mesh, mesh.dp / n, n, bytes / n);

        if (l == 0 || seconds < best_s) {
            best = n;
            best_s = seconds;
        }
    }
    return best;
}

static void add(struct merak_search *s, const struct merak_candidate *cand,
                int dp_in, enum merak_zero_home home,
                struct merak_home list[MERAK_MAX_HOMES], int *n)
{
    struct merak_plan plan = cand->plan;
    struct merak_error why = {.status = MERAK_OK};

    plan.dp_in = dp_in;
    plan.zero_home = home;
    for (int i = 0; i < *n; i++) {
        if (list[i].dp_in == dp_in && list[i].home == home)
            return;
    }
    if (merak_plan_check_zero(&plan, &why) != MERAK_OK) {
        s->home_error = why;
        return;
    }
    if (cand->table->n_axes + merak_plan_dp_axes(&plan, 0) <= MERAK_MAX_AXES)
        list[(*n)++] = (struct merak_home){dp_in, home};
}

static bool may_be(const struct merak_choices *pin, enum merak_zero_home home)
{
    if (pin->given[MERAK_CHOICE_ZERO_HOME])
        return pin->zero_home == home;
    return home == MERAK_HOME_ALL || pin->zero_home == MERAK_HOME_AUTO ||
           pin->zero == MERAK_OPTION_AUTO;
}

int merak_search_homes(struct merak_search *s,
                       const struct merak_candidate *cand,
                       struct merak_home list[MERAK_MAX_HOMES])
{
    const struct merak_choices *pin = &s->in->pin;
    bool given = pin->given[MERAK_CHOICE_DP_IN];
    int inner = given ? pin->dp_in : inner_replicas(s, &cand->plan), n = 0;

    if (may_be(pin, MERAK_HOME_ALL))
        add(s, cand, given ? pin->dp_in : 1, MERAK_HOME_ALL, list, &n);
    if (may_be(pin, MERAK_HOME_ALL) && pin->dp_in == MERAK_OPTION_AUTO)
        add(s, cand, inner, MERAK_HOME_ALL, list, &n);
    if (may_be(pin, MERAK_HOME_IN) &&
        (cand->plan.zero >= MERAK_ZERO_GRADS ||
         pin->given[MERAK_CHOICE_ZERO]) &&
        (inner > 1 || pin->given[MERAK_CHOICE_ZERO_HOME]))
        add(s, cand, inner, MERAK_HOME_IN, list, &n);
    return n;
}

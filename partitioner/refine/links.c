/* SPDX-License-Identifier: Apache-2.0 */
/* links.c - fit latency and bandwidth of links to exchanges and transfers
 *
 * A class takes mean = rounds * latency + bytes / bandwidth, where an
 * all-reduce of n counts 2 (n - 1) rounds, other exchanges n - 1 and a transfer
 * 1, as in level.c.  Both are fitted by least squares of relative
 * errors, weighted by samples; then both are scaled to match the total time of
 * the samples.  Between nodes, the bytes of ranks that share their node's
 * uplink are multiplied accordingly.
 */
#include "config.h"

#include "partitioner/refine/refine_impl.h"
#include "partitioner/refine/line.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define BANDWIDTH_MOST 16.0

/* One kind of link and its samples. */
struct link {
    double latency_s, bytes_per_s;
    struct merak_line line;
    /* of all samples */
    double rounds, bytes, seconds;
    int classes;
    long samples;
};

static void add(struct link *l, const struct refine_class *c, double rounds,
                double bytes, double seconds)
{
    double n = (double)c->n;

    if (seconds <= 0 || n <= 0)
        return;
    merak_line_add(&l->line, n / (seconds * seconds), rounds, bytes, seconds);
    l->rounds += n * rounds;
    l->bytes += n * bytes;
    l->seconds += n * seconds;
    l->classes++;
    l->samples += c->n;
}

/* The least-squares fit, or the old values (to be scaled) if the samples do not
 * separate the two or make no sense. */
static void fit(const struct link *l, double *latency_p, double *per_byte_p)
{
    const struct merak_line *line = &l->line;
    double latency, per_byte;

    *latency_p = l->latency_s;
    *per_byte_p = 1 / l->bytes_per_s;
    if (l->classes < 2 || merak_line_det(line) <= 1e-3 * line->rr * line->bb)
        return;
    merak_line_solve(line, &latency, &per_byte);
    per_byte = *per_byte_p * merak_refine_bound(fmax(per_byte, 0) / *per_byte_p,
                                                BANDWIDTH_MOST);
    if (latency <= 0)
        return;
    *latency_p = latency;
    *per_byte_p = per_byte;
}

/* Set the link's two numbers. */
static void solve(struct link *l)
{
    double latency, per_byte, total, factor;

    fit(l, &latency, &per_byte);
    total = l->rounds * latency + l->bytes * per_byte;
    if (total <= 0) { /* no bytes, over a link of no latency */
        l->latency_s = l->seconds / l->rounds;
        return;
    }
    factor = l->seconds / total;
    latency *= factor;
    if (l->latency_s > 0)
        latency = l->latency_s *
                  merak_refine_bound(latency / l->latency_s, MERAK_REFINE_MOST);
    l->latency_s = latency;
    l->bytes_per_s *= merak_refine_bound(
        1 / (l->bytes_per_s * per_byte * factor), MERAK_REFINE_MOST);
}

static enum merak_status note(struct refine_run *run, const char *what,
                              const struct link *l, double latency_s,
                              double bytes_per_s)
{
    struct merak_change change = {.unit = MERAK_CHANGE_LATENCY,
                                  .before = latency_s,
                                  .after = l->latency_s,
                                  .classes = l->classes,
                                  .samples = l->samples};
    enum merak_status rc;

    snprintf(change.what, sizeof(change.what), "%s, latency", what);
    rc = merak_refine_note(run, &change);
    if (rc != MERAK_OK)
        return rc;
    change.unit = MERAK_CHANGE_RATE;
    change.before = bytes_per_s;
    change.after = l->bytes_per_s;
    snprintf(change.what, sizeof(change.what), "%s, bandwidth", what);
    return merak_refine_note(run, &change);
}

/* --- inside a node -------------------------------------------------------- */

static enum merak_status refine_transfers(struct refine_run *run)
{
    struct merak_device *d = run->device;
    struct link l = {.latency_s = d->links.level[0].latency_s,
                     .bytes_per_s = d->links.level[0].bytes_per_s};

    for (int i = 0; i < run->refine->n; i++) {
        const struct refine_class *c = &run->refine->class[i];

        if (c->what.kind == MERAK_SAMPLE_TRANSFER && c->what.inside == 2)
            add(&l, c, 1, c->what.size.bytes, c->mean);
    }
    if (l.classes == 0)
        return MERAK_OK;
    solve(&l);
    d->links.level[0].latency_s = l.latency_s;
    d->links.level[0].bytes_per_s = l.bytes_per_s;
    return note(run, "link", &l, run->base.links.level[0].latency_s,
                run->base.links.level[0].bytes_per_s);
}

static void keep_group(struct merak_device *d, int ranks, const struct link *l)
{
    struct merak_link_group *at = &d->links.group[0];
    double off = INFINITY;

    for (int i = 0; i < d->links.n_groups; i++) {
        double x = fabs(log((double)d->links.group[i].ranks / ranks));

        if (x < off)
            at = &d->links.group[i];
        off = fmin(x, off);
    }
    if (off > 0 && d->links.n_groups < MERAK_LINK_GROUPS)
        at = &d->links.group[d->links.n_groups++];
    *at = (struct merak_link_group){ranks, l->latency_s, l->bytes_per_s};
}

/* Correct exchanges among `ranks` ranks of a node. */
static enum merak_status refine_group(struct refine_run *run, int ranks)
{
    struct merak_link_group base = merak_links_group(&run->base.links, ranks);
    struct link l = {.latency_s = base.latency_s,
                     .bytes_per_s = base.bytes_per_s};
    char what[32];

    for (int i = 0; i < run->refine->n; i++) {
        const struct refine_class *c = &run->refine->class[i];

        if (c->what.kind == MERAK_SAMPLE_EXCHANGE && c->what.n == ranks &&
            c->what.inside == ranks)
            add(&l, c, merak_convert_rounds(c->what.convert) * (ranks - 1.0),
                c->what.size.bytes, c->mean);
    }
    if (l.classes == 0)
        return MERAK_OK;
    solve(&l);
    keep_group(run->device, ranks, &l);
    snprintf(what, sizeof(what), "link among %d", ranks);
    return note(run, what, &l, base.latency_s, base.bytes_per_s);
}

static bool is_near_exchange(const struct refine_class *c)
{
    return c->what.kind == MERAK_SAMPLE_EXCHANGE &&
           c->what.inside == c->what.n && c->n > 0;
}

static bool is_first_of_size(const struct merak_refine *refine, int at)
{
    const struct merak_sample_class *what = &refine->class[at].what;

    if (!is_near_exchange(&refine->class[at]))
        return false;
    for (int i = 0; i < at; i++) {
        if (refine->class[i].what.n == what->n &&
            is_near_exchange(&refine->class[i]))
            return false;
    }
    return true;
}

/* --- between nodes -------------------------------------------------------- */

/* By what factor the device reduces a rank's rate while the class's sharers use
 * the node's uplink; 1 if it has its full rate. */
static double squeeze(const struct refine_run *run,
                      const struct refine_class *c)
{
    double node = run->base.links.level[0].way_bytes_per_s;

    if (node <= 0)
        return 1;
    return fmax(1, c->sharers * run->base.links.level[1].bytes_per_s / node);
}

/* The inter-node part of a class: rounds, bytes and their time.  The time of
 * the part inside the node, already corrected, is subtracted. */
struct far {
    double rounds, bytes, seconds;
};

static struct far far_of(const struct refine_run *run,
                         const struct refine_class *c)
{
    const struct merak_sample_class *what = &c->what;
    double far = what->n - what->inside, near = what->inside - 1, each;
    struct merak_cost_model now;
    struct merak_link_group link;

    if (what->kind == MERAK_SAMPLE_TRANSFER)
        return (struct far){1, what->size.bytes, c->mean};
    merak_device_cost(run->device, run->dtype, 0, &now);
    link = merak_links_group(&now.links, what->inside);
    each = what->size.bytes / (what->n - 1);
    return (struct far){
        merak_convert_rounds(what->convert) * far, far * each,
        c->mean - near * (merak_convert_rounds(what->convert) * link.latency_s +
                          each / link.bytes_per_s)};
}

static bool is_far(const struct refine_class *c)
{
    return (c->what.kind == MERAK_SAMPLE_EXCHANGE ||
            c->what.kind == MERAK_SAMPLE_TRANSFER) &&
           c->what.inside < c->what.n;
}

/* Fit ranks that had their full rate and ranks that shared their node's uplink
 * as two lines with one latency, by least squares.  False: the rates cannot be
 * told apart, since one of them is not mostly bytes. */
static bool fit_both(struct link *own, struct link *shared)
{
    struct link *const kind[] = {own, shared};
    double top = 0, bottom = 0, all = 0, latency, bytes = 0, took = 0;

    for (int i = 0; i < 2; i++) {
        if (kind[i]->bytes <= 0)
            return false;
        merak_line_share_latency(&kind[i]->line, &top, &bottom);
        all += kind[i]->line.rr;
    }
    latency = bottom > 1e-3 * all ? top / bottom : own->latency_s;
    latency = fmax(latency, own->latency_s / MERAK_REFINE_MOST);
    for (int i = 0; i < 2; i++) {
        if (kind[i]->seconds < 4 * kind[i]->rounds * latency)
            return false;
    }
    for (int i = 0; i < 2; i++) {
        double moving = kind[i]->seconds - kind[i]->rounds * latency;

        kind[i]->latency_s = latency;
        kind[i]->bytes_per_s *= merak_refine_bound(
            kind[i]->bytes / moving / kind[i]->bytes_per_s, BANDWIDTH_MOST);
        bytes += kind[i]->bytes;
        took += kind[i]->bytes / kind[i]->bytes_per_s;
    }
    if (shared->bytes_per_s < own->bytes_per_s) /* a rank exceeds its node */
        shared->bytes_per_s = own->bytes_per_s = bytes / took;
    return true;
}

/* The level between nodes, and what leaves these. */
static struct merak_level *net_of(struct merak_device *d)
{
    return &d->links.level[merak_links_last(&d->links)];
}

static double *way_of(struct merak_device *d)
{
    return &net_of(d)[-1].way_bytes_per_s;
}

static enum merak_status note_node(struct refine_run *run, const struct link *l)
{
    const struct merak_change change = {
        .what = "net, of a node",
        .unit = MERAK_CHANGE_RATE,
        .before = run->base.links.level[0].way_bytes_per_s,
        .after = *way_of(run->device),
        .classes = l->classes,
        .samples = l->samples};

    return merak_refine_note(run, &change);
}

/* If fit_both() fails, the node's rate stays in proportion to a rank's. */
static void solve_net(struct refine_run *run, struct link *l, struct link *own,
                      struct link *shared)
{
    struct merak_device *d = run->device;

    if (fit_both(own, shared)) {
        l->latency_s = own->latency_s;
        l->bytes_per_s = own->bytes_per_s;
        *way_of(d) = shared->bytes_per_s;
        return;
    }
    solve(l);
    *way_of(d) *= l->bytes_per_s / run->base.links.level[1].bytes_per_s;
}

static enum merak_status refine_net(struct refine_run *run)
{
    struct merak_device *d = run->device;
    struct merak_level *net = net_of(d);
    struct link l = {.latency_s = net->latency_s,
                     .bytes_per_s = net->bytes_per_s};
    struct link own = l, shared = l;
    enum merak_status rc;

    shared.bytes_per_s = *way_of(d);
    for (int i = 0; i < run->refine->n; i++) {
        const struct refine_class *c = &run->refine->class[i];
        double k = squeeze(run, c);
        struct far far;

        if (!is_far(c))
            continue;
        far = far_of(run, c);
        add(&l, c, far.rounds, far.bytes * k, far.seconds);
        if (k > 1)
            add(&shared, c, far.rounds, far.bytes * c->sharers, far.seconds);
        else
            add(&own, c, far.rounds, far.bytes, far.seconds);
    }
    if (l.classes == 0)
        return MERAK_OK;
    solve_net(run, &l, &own, &shared);
    net->latency_s = l.latency_s;
    net->bytes_per_s = l.bytes_per_s;
    rc = note(run, "net", &l, run->base.links.level[1].latency_s,
              run->base.links.level[1].bytes_per_s);
    if (rc != MERAK_OK || *way_of(d) <= 0)
        return rc;
    return note_node(run, &l);
}

/* Without transfers, scale the link in proportion to the smallest group. */
static enum merak_status follow_group(struct refine_run *run)
{
    const struct merak_refine *refine = run->refine;
    struct merak_device *d = run->device;
    struct link l = {.latency_s = d->links.level[0].latency_s,
                     .bytes_per_s = d->links.level[0].bytes_per_s};
    struct merak_link_group before, after;
    struct merak_cost_model now;
    int least = 0;

    for (int i = 0; i < refine->n; i++) {
        const struct merak_sample_class *what = &refine->class[i].what;

        if (what->kind == MERAK_SAMPLE_TRANSFER && what->inside == 2 &&
            refine->class[i].n > 0)
            return MERAK_OK;
        if (is_first_of_size(refine, i) && (least == 0 || what->n < least)) {
            least = what->n;
            l.samples = refine->class[i].n;
        }
    }
    if (least == 0)
        return MERAK_OK;
    merak_device_cost(d, run->dtype, 0, &now);
    before = merak_links_group(&run->base.links, least);
    after = merak_links_group(&now.links, least);
    if (before.latency_s > 0)
        l.latency_s *= after.latency_s / before.latency_s;
    l.bytes_per_s *= after.bytes_per_s / before.bytes_per_s;
    d->links.level[0].latency_s = l.latency_s;
    d->links.level[0].bytes_per_s = l.bytes_per_s;
    return note(run, "link, by groups", &l, run->base.links.level[0].latency_s,
                run->base.links.level[0].bytes_per_s);
}

/* Levels that were as fast as a node's stay so: they are one with it. */
static void follow_node(struct merak_links *links, int near)
{
    for (int l = 1; l < near; l++) {
        links->level[l].latency_s = links->level[0].latency_s;
        links->level[l].bytes_per_s = links->level[0].bytes_per_s;
    }
}

/* With levels between, it is not known over which of them a sample went. */
static bool has_one_net(const struct merak_links *links, int near)
{
    return near == merak_links_last(links);
}

enum merak_status merak_refine_links(struct refine_run *run)
{
    struct merak_links *links = &run->device->links;
    int near = merak_links_near(links);
    enum merak_status rc = refine_transfers(run);

    for (int i = 0; i < run->refine->n && rc == MERAK_OK; i++) {
        if (is_first_of_size(run->refine, i))
            rc = refine_group(run, run->refine->class[i].what.n);
    }
    if (rc == MERAK_OK)
        rc = follow_group(run);
    follow_node(links, near);
    if (rc != MERAK_OK || !has_one_net(links, near))
        return rc;
    return refine_net(run);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* net.c - rates of concurrent communication between nodes
 *
 * An exchange or a transfer is a flow: for fixed_s other flows do not slow it,
 * then it moves its bytes, those of all levels together.  It uses the uplinks
 * of all its members' domains, as far as its bytes leave these: a sender's out,
 * a receiver's in, and both of a member of an exchange.  Whenever
 * a flow begins to move bytes or is over, rates are recomputed by progressive
 * filling (max-min fair, like equal TCP flows): those of all ranks rise
 * together until an uplink is full; flows through it are frozen there, and the
 * others rise on.  A flow takes of an uplink what part of its bytes leaves the
 * domain, and of a rank's own, whose rate differs by level, the time that they
 * need.  Only flows that share uplinks with the changed ones,
 * directly or through other flows, are considered.
 *
 * A flow that keeps its rate ends at start + (fixed_s + bytes / rate), bit for
 * bit the result of merak_cost_instr() if nothing is shared and all its bytes
 * are of level 1.
 */
#include "config.h"

#include "partitioner/simulate/net.h"

#include "base/error.h"

#include <math.h>
#include <stdlib.h>

enum { OUT, IN, DIRECTIONS };

/* Parts of a flow's bytes that are less than this are an error of rounding. */
#define LEAST_PART 1e-6

struct flow {
    struct merak_demand demand;
    double start_s;
    double due_s;               /* when it begins to move bytes, or is over */
    double since_s, left, rate; /* bytes left at since_s, rate since then */
    double level;               /* rate that it can rise to */
    const struct merak_member *member;
    struct merak_member own; /* of one member */
    int n_members;
    int heap_at;
    bool moves;
    bool listed; /* in the part being filled */
};

/* Bandwidth left to flows that are not yet frozen. */
struct room {
    double left, ranks; /* bytes/s, and ranks whose rates rise together */
    int n;              /* ends of flows */
};

struct port {
    int *flow; /* flows of this program that move bytes */
    int n;
    bool changed, listed;
    struct room room[DIRECTIONS];
};

struct node {
    bool listed;
    struct room room[DIRECTIONS];
};

struct merak_net {
    struct merak_program *const *programs;
    struct merak_uplinks uplinks;
    struct port *port; /* [programs] */
    struct node *node; /* [uplinks] */
    int *port_flows;   /* storage */
    struct flow *flow;
    int *idle; /* unused entries of flow[] */
    int n_idle;
    int *heap; /* flows, the first one due on top */
    int n_heap;
    /* Lists: ports that changed; and the part being filled. */
    int *changed, n_changed;
    int *ports, n_ports;
    int *nodes, n_nodes;
    int *flows, n_flows;
};

/* --- the heap ------------------------------------------------------------- */

static void put(struct merak_net *net, int at, int flow)
{
    net->heap[at] = flow;
    net->flow[flow].heap_at = at;
}

/* Move a flow up or down to its position.  Flows due at the same time are in no
 * particular order, but always in the same one. */
static void sift(struct merak_net *net, int flow)
{
    double due = net->flow[flow].due_s;
    int at = net->flow[flow].heap_at, child;

    while (at > 0 && due < net->flow[net->heap[(at - 1) / 2]].due_s) {
        put(net, at, net->heap[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    while ((child = 2 * at + 1) < net->n_heap) {
        if (child + 1 < net->n_heap && net->flow[net->heap[child + 1]].due_s <
                                           net->flow[net->heap[child]].due_s)
            child++;
        if (due <= net->flow[net->heap[child]].due_s)
            break;
        put(net, at, net->heap[child]);
        at = child;
    }
    put(net, at, flow);
}

static void drop_first(struct merak_net *net)
{
    int last = net->heap[--net->n_heap];

    if (net->n_heap == 0)
        return;
    put(net, 0, last);
    sift(net, last);
}

/* --- ports ---------------------------------------------------------------- */

static bool uses(const struct merak_net *net, const struct merak_member *member,
                 int direction)
{
    enum merak_instr_kind kind =
        net->programs[member->program]->instr[member->instr].kind;

    return kind != (direction == OUT ? MERAK_INSTR_RECV : MERAK_INSTR_SEND);
}

static void mark(struct merak_net *net, int program)
{
    if (net->port[program].changed)
        return;
    net->port[program].changed = true;
    net->changed[net->n_changed++] = program;
}

static void plug(struct merak_net *net, int flow)
{
    const struct flow *f = &net->flow[flow];

    for (int i = 0; i < f->n_members; i++) {
        struct port *port = &net->port[f->member[i].program];

        port->flow[port->n++] = flow;
        mark(net, f->member[i].program);
    }
}

static void unplug(struct merak_net *net, int flow)
{
    const struct flow *f = &net->flow[flow];

    for (int i = 0; i < f->n_members; i++) {
        struct port *port = &net->port[f->member[i].program];
        int at = 0;

        while (port->flow[at] != flow)
            at++;
        port->flow[at] = port->flow[--port->n];
        mark(net, f->member[i].program);
    }
}

/* --- the part that changed ------------------------------------------------ */

static void list_port(struct merak_net *net, int program)
{
    struct port *port = &net->port[program];

    if (port->listed || port->n == 0)
        return;
    port->listed = true;
    net->ports[net->n_ports++] = program;
    for (int w = 0; w < DIRECTIONS; w++)
        port->room[w] =
            (struct room){.left = net->uplinks.own[program].bytes_per_s[1]};
}

static void list_node(struct merak_net *net, int uplink)
{
    const struct merak_uplink *shared = &net->uplinks.uplink[uplink];
    struct node *node = &net->node[uplink];

    if (node->listed)
        return;
    node->listed = true;
    net->nodes[net->n_nodes++] = uplink;
    for (int w = 0; w < DIRECTIONS; w++)
        node->room[w] = (struct room){.left = shared->bytes_per_s};
    for (int i = 0; i < shared->n; i++)
        list_port(net, net->uplinks.share[shared->first + i].program);
}

static void list_flow(struct merak_net *net, int flow)
{
    struct flow *f = &net->flow[flow];

    if (f->listed)
        return;
    f->listed = true;
    net->flows[net->n_flows++] = flow;
    for (int i = 0; i < f->n_members; i++)
        list_port(net, f->member[i].program);
}

/* List everything that shares uplinks with what changed. */
static void list_part(struct merak_net *net)
{
    net->n_ports = net->n_nodes = net->n_flows = 0;
    for (int i = 0; i < net->n_changed; i++) {
        int program = net->changed[i];

        net->port[program].changed = false;
        list_port(net, program);
        /* a flow that is over leaves room for others on its nodes */
        for (int k = net->uplinks.first_of[program];
             k < net->uplinks.first_of[program + 1]; k++)
            list_node(net, net->uplinks.of[k]);
    }
    net->n_changed = 0;
    for (int i = 0; i < net->n_ports; i++) {
        const struct port *port = &net->port[net->ports[i]];

        for (int k = 0; k < port->n; k++)
            list_flow(net, port->flow[k]);
        for (int k = net->uplinks.first_of[net->ports[i]];
             k < net->uplinks.first_of[net->ports[i] + 1]; k++)
            list_node(net, net->uplinks.of[k]);
    }
}

/* --- filling -------------------------------------------------------------- */

static double ranks_of(const struct merak_net *net, int uplink, int program)
{
    const struct merak_uplink *shared = &net->uplinks.uplink[uplink];
    const struct merak_uplink_share *share = &net->uplinks.share[shared->first];

    while (share->program != program)
        share++;
    return share->ranks;
}

/* What a flow takes of its member's port, by its bytes: 1 where all are of
 * level 1, whose rate is that of the port. */
static double of_port(const struct merak_net *net, const struct flow *f,
                      int program)
{
    const double *own = net->uplinks.own[program].bytes_per_s;
    double part = 1;

    if (net->uplinks.last == 1)
        return 1;
    part = merak_demand_part(&f->demand, 1);
    for (int l = 2; l <= net->uplinks.last; l++)
        part += merak_demand_part(&f->demand, l) * (own[1] / own[l]);
    return part;
}

/* The part of a flow's bytes that leave a domain of this uplink's level. */
static double of_uplink(const struct merak_net *net, const struct flow *f,
                        int uplink)
{
    int pair = net->uplinks.uplink[uplink].pair;
    double part = 1;

    if (pair > 0 && pair != f->demand.pair)
        return 0;
    for (int l = net->uplinks.uplink[uplink].level; l > 0; l--)
        part -= merak_demand_part(&f->demand, l);
    return part > LEAST_PART ? part : 0;
}

static void take_in(struct room *room, double ranks)
{
    room->ranks += ranks;
    room->n++;
}

static void freeze(struct room *room, double ranks, double rate)
{
    room->left -= ranks * rate;
    room->ranks -= ranks;
    room->n--;
}

static void pass_room(struct room *room, double ranks, double rate, bool in)
{
    if (ranks == 0)
        return;
    if (in)
        take_in(room, ranks);
    else
        freeze(room, ranks, rate);
}

/* In all rooms that a flow's bytes pass, take it in or freeze its rate. */
static void pass(struct merak_net *net, const struct flow *f, bool in)
{
    for (int i = 0; i < DIRECTIONS * f->n_members; i++) {
        const struct merak_member *member = &f->member[i / DIRECTIONS];
        int p = member->program, w = i % DIRECTIONS;

        if (!uses(net, member, w))
            continue;
        pass_room(&net->port[p].room[w], of_port(net, f, p), f->rate, in);
        for (int k = net->uplinks.first_of[p]; k < net->uplinks.first_of[p + 1];
             k++) {
            int uplink = net->uplinks.of[k];

            pass_room(&net->node[uplink].room[w],
                      ranks_of(net, uplink, p) * of_uplink(net, f, uplink),
                      f->rate, in);
        }
    }
}

static void lower(const struct room *room, double *level_p)
{
    double level;

    if (room->n == 0)
        return;
    level = room->left / room->ranks;
    if (level < *level_p)
        *level_p = level;
}

/* The rate a flow can rise to, limited by the fullest room that it passes. */
static double level_of(const struct merak_net *net, const struct flow *f)
{
    double level = INFINITY;

    for (int i = 0; i < DIRECTIONS * f->n_members; i++) {
        const struct merak_member *member = &f->member[i / DIRECTIONS];
        int p = member->program, w = i % DIRECTIONS;

        if (!uses(net, member, w))
            continue;
        lower(&net->port[p].room[w], &level);
        for (int k = net->uplinks.first_of[p]; k < net->uplinks.first_of[p + 1];
             k++) {
            int uplink = net->uplinks.of[k];

            if (of_uplink(net, f, uplink) > 0)
                lower(&net->node[uplink].room[w], &level);
        }
    }
    return level;
}

/* Change a flow's rate; its bytes up to now moved at the old one. */
static void set_rate(struct merak_net *net, int flow, double rate, double now_s)
{
    struct flow *f = &net->flow[flow];
    double all = f->demand.far_bytes;

    if (rate == f->rate)
        return;
    if (now_s > f->since_s)
        f->left = fmax(f->left - f->rate * (now_s - f->since_s), 0);
    f->since_s = now_s;
    f->rate = rate;
    f->due_s = f->left < all ? now_s + f->left / rate
                             : f->start_s + (f->demand.fixed_s + all / rate);
    f->due_s = fmax(f->due_s, now_s);
    sift(net, flow);
}

/* Freeze those of flows[from..] that can rise least, and move them to the
 * front; returns their number. */
static int freeze_least(struct merak_net *net, int from, double *level_p,
                        double now_s)
{
    double least = INFINITY;
    int frozen = 0;

    for (int i = from; i < net->n_flows; i++) {
        struct flow *f = &net->flow[net->flows[i]];

        f->level = level_of(net, f);
        least = fmin(least, f->level);
    }
    *level_p = fmax(least, *level_p); /* despite rounding */
    for (int i = from; i < net->n_flows; i++) {
        int flow = net->flows[i];

        if (net->flow[flow].level > least)
            continue;
        set_rate(net, flow, *level_p, now_s);
        pass(net, &net->flow[flow], false);
        net->flows[i] = net->flows[from + frozen];
        net->flows[from + frozen++] = flow;
    }
    return frozen;
}

void merak_net_settle(struct merak_net *net, double now_s)
{
    double level = 0;

    if (net->n_changed == 0)
        return;
    list_part(net);
    for (int i = 0; i < net->n_flows; i++)
        pass(net, &net->flow[net->flows[i]], true);
    for (int done = 0; done < net->n_flows;)
        done += freeze_least(net, done, &level, now_s);
    for (int i = 0; i < net->n_ports; i++)
        net->port[net->ports[i]].listed = false;
    for (int i = 0; i < net->n_nodes; i++)
        net->node[net->nodes[i]].listed = false;
    for (int i = 0; i < net->n_flows; i++)
        net->flow[net->flows[i]].listed = false;
}

/* --- flows ---------------------------------------------------------------- */

void merak_net_begin(struct merak_net *net, double now_s,
                     const struct merak_demand *demand,
                     const struct merak_member *member, int n_members)
{
    int flow = net->idle[--net->n_idle];
    struct flow *f = &net->flow[flow];

    *f = (struct flow){.demand = *demand,
                       .start_s = now_s,
                       .due_s = now_s + demand->fixed_s,
                       .member = member,
                       .n_members = n_members};
    if (n_members == 1) {
        f->own = *member;
        f->member = &f->own;
    }
    put(net, net->n_heap++, flow);
    sift(net, flow);
}

bool merak_net_next(const struct merak_net *net, double *at_s_p)
{
    if (net->n_heap == 0)
        return false;
    *at_s_p = net->flow[net->heap[0]].due_s;
    return true;
}

int merak_net_take(struct merak_net *net, double now_s,
                   const struct merak_member **member_p)
{
    int flow = net->heap[0];
    struct flow *f = &net->flow[flow];

    if (!f->moves) {
        f->moves = true;
        f->left = f->demand.far_bytes;
        f->since_s = now_s;
        f->due_s = INFINITY; /* until rates are settled */
        plug(net, flow);
        sift(net, flow);
        return 0;
    }
    unplug(net, flow);
    drop_first(net);
    net->idle[net->n_idle++] = flow;
    *member_p = f->member;
    return f->n_members;
}

/* --- set-up --------------------------------------------------------------- */

/* Most instructions of a program that can be in flight at once. */
static int most_flows(const struct merak_program *prog)
{
    int n = 2; /* each queue of exchanges runs one at a time */

    for (int i = 0; i < prog->n_instrs; i++)
        n += prog->instr[i].queue == MERAK_QUEUE_P2P;
    return n;
}

static bool alloc(struct merak_net *net, int n, int flows)
{
    int uplinks = net->uplinks.n + 1;

    net->port = calloc((size_t)n + 1, sizeof(*net->port));
    net->node = calloc((size_t)uplinks, sizeof(*net->node));
    net->flow = calloc((size_t)flows + 1, sizeof(*net->flow));
    net->port_flows = calloc(
        4 * (size_t)flows + 2 * (size_t)n + (size_t)uplinks + 4, sizeof(int));
    if (net->port == NULL || net->node == NULL || net->flow == NULL ||
        net->port_flows == NULL)
        return false;
    net->idle = net->port_flows + flows;
    net->heap = net->idle + flows;
    net->flows = net->heap + flows;
    net->changed = net->flows + flows;
    net->ports = net->changed + n;
    net->nodes = net->ports + n;
    return true;
}

enum merak_status merak_net_create(struct merak_program *const *programs, int n,
                                   const struct merak_links *links,
                                   struct merak_net **net_p,
                                   struct merak_error *err)
{
    struct merak_net *net = calloc(1, sizeof(*net));
    int flows = 0, at = 0;
    enum merak_status rc;

    if (net == NULL)
        return merak_fail_nomem(err, sizeof(*net));
    net->programs = programs;
    for (int p = 0; p < n; p++)
        flows += most_flows(programs[p]);
    rc = merak_uplinks_init(&net->uplinks, programs, n, links, err);
    if (rc == MERAK_OK && !alloc(net, n, flows))
        rc = merak_fail_nomem(err, (size_t)flows * sizeof(*net->flow));
    if (rc != MERAK_OK) {
        merak_net_destroy(net);
        return rc;
    }
    for (int p = 0; p < n; p++) {
        net->port[p].flow = net->port_flows + at;
        at += most_flows(programs[p]);
    }
    while (net->n_idle < flows) {
        net->idle[net->n_idle] = flows - 1 - net->n_idle;
        net->n_idle++;
    }
    *net_p = net;
    return MERAK_OK;
}

void merak_net_destroy(struct merak_net *net)
{
    if (net == NULL)
        return;
    merak_uplinks_fini(&net->uplinks);
    free(net->port);
    free(net->node);
    free(net->flow);
    free(net->port_flows);
    free(net);
}

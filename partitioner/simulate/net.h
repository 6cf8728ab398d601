/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/simulate/net.h - what moves between nodes at the same time, and
 * how fast it may
 */
#ifndef MERAK_PARTITIONER_SIMULATE_NET_H
#define MERAK_PARTITIONER_SIMULATE_NET_H

#include <stdbool.h>

#include "partitioner/program/program.h"
#include "partitioner/simulate/meet.h"

/* --- uplinks (uplinks.c) -----------------------------------------------------
 */

/* A program's part in a node's uplink: the ranks there that it stands for. */
struct merak_uplink_share {
    int program;
    double ranks;
};

/* What the ranks of a node share to other nodes, out and in: of a node that
 * programs of several stages, or several of one, use.  Nodes whose shares are
 * alike are one. */
struct merak_uplink {
    int first, n; /* in uplinks->share */
};

/*
 * Who shares what.  Programs may be those of all ranks, or fewer: a stage's
 * ranks do the same at the same time, so that ranks without a program are
 * stood for by those of their stage on their node, or else by all of their
 * stage.
 */
struct merak_uplinks {
    double *own_bytes_per_s; /* [programs] out, and in as much: the network of a
                                rank, and its part of a node that nobody else
                                uses */
    double node_bytes_per_s;
    struct merak_uplink *uplink;
    int n, room;
    struct merak_uplink_share *share;
    int n_shares, share_room;
    int *of;       /* uplinks, by program */
    int *first_of; /* [programs + 1] in `of` */
};

enum merak_status merak_uplinks_init(struct merak_uplinks *uplinks,
                                     struct merak_program *const *programs,
                                     int n, const struct merak_net_rates *rates,
                                     struct merak_error *err) MERAK_CHECKED;
void merak_uplinks_fini(struct merak_uplinks *uplinks);

/* --- flows (net.c) -------------------------------------------------------- */

struct merak_net;

enum merak_status merak_net_create(struct merak_program *const *programs, int n,
                                   const struct merak_net_rates *rates,
                                   struct merak_net **net_p,
                                   struct merak_error *err) MERAK_CHECKED;
void merak_net_destroy(struct merak_net *net);
/* An exchange or a transfer begins.  More than one member is borrowed until it
 * is over; each is an instruction on its way, so there is room. */
void merak_net_begin(struct merak_net *net, double now_s,
                     const struct merak_demand *demand,
                     const struct merak_member *member, int n_members);
/* When merak_net_take() is next to be called; false: nothing is under way. */
bool merak_net_next(const struct merak_net *net, double *at_s_p);
/* What is over now; 0 members: nothing, some bytes begin to move.  Members
 * stand until the next begin. */
int merak_net_take(struct merak_net *net, double now_s,
                   const struct merak_member **member_p);
/* All that begins to move or is over now was taken: share anew. */
void merak_net_settle(struct merak_net *net, double now_s);

#endif

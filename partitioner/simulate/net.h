/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/simulate/net.h - rates of concurrent communication between nodes
 */
#ifndef MERAK_PARTITIONER_SIMULATE_NET_H
#define MERAK_PARTITIONER_SIMULATE_NET_H

#include <stdbool.h>

#include "partitioner/program/program.h"
#include "partitioner/simulate/meet.h"

/* --- uplinks (uplinks.c) -----------------------------------------------------
 */

/* A program's part in a domain's uplink: the ranks there that it represents. */
struct merak_uplink_share {
    int program;
    double ranks;
};

/* What a domain of a level, as a node, can send to others of that level, and
 * receive, where several programs use that domain.  Domains with the same
 * shares are one uplink. */
struct merak_uplink {
    int first, n; /* in uplinks->share */
    int level;
    int pair; /* 0: for all that leaves the domain; else the way from it to
                 that pair's other island */
    double bytes_per_s;
};

/* Rates of one rank by level, from 1 on. */
struct merak_own_rates {
    double bytes_per_s[MERAK_LEVELS];
};

/*
 * Which programs share which uplinks.  Programs may be those of all ranks, or
 * fewer: a stage's ranks do the same at the same time, so that ranks without a
 * program are represented by those of their stage in their domain, or else by
 * all of their stage.
 */
struct merak_uplinks {
    struct merak_own_rates *own; /* [programs] each way: a rank's network rates,
                                    or less if its domain, which no other
                                    program uses, limits them */
    int last;                    /* level that is used */
    struct merak_uplink *uplink;
    int n, room;
    struct merak_uplink_share *share;
    int n_shares, share_room;
    int *of;       /* uplinks, by program */
    int *first_of; /* [programs + 1] in `of` */
};

enum merak_status merak_uplinks_init(struct merak_uplinks *uplinks,
                                     struct merak_program *const *programs,
                                     int n, const struct merak_links *links,
                                     struct merak_error *err) MERAK_CHECKED;
void merak_uplinks_fini(struct merak_uplinks *uplinks);

/* --- flows (net.c) -------------------------------------------------------- */

struct merak_net;

enum merak_status merak_net_create(struct merak_program *const *programs, int n,
                                   const struct merak_links *links,
                                   struct merak_net **net_p,
                                   struct merak_error *err) MERAK_CHECKED;
void merak_net_destroy(struct merak_net *net);
/* Begin an exchange or a transfer.  More than one member is borrowed until it
 * is over; there is room, since each is an instruction in flight. */
void merak_net_begin(struct merak_net *net, double now_s,
                     const struct merak_demand *demand,
                     const struct merak_member *member, int n_members);
/* When merak_net_take() is to be called next; false: nothing is in flight. */
bool merak_net_next(const struct merak_net *net, double *at_s_p);
/* Take what is over now; 0 members: nothing, a flow begins to move bytes.
 * Members are valid until the next begin. */
int merak_net_take(struct merak_net *net, double now_s,
                   const struct merak_member **member_p);
/* Recompute the rates, after all that begins to move or is over was taken. */
void merak_net_settle(struct merak_net *net, double now_s);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/program/balance.h - a row of segments, cut into parts whose
 * longest is shortest
 *
 * The dynamic program that finds every cut: for a plan (stages.c, from FLOPs
 * and sends) and in a search (search/cut.c, from a table of measured segments
 * and from memory).  The caller defines what a part takes.
 */
#ifndef MERAK_PARTITIONER_PROGRAM_BALANCE_H
#define MERAK_PARTITIONER_PROGRAM_BALANCE_H

#include <stdbool.h>

struct merak_balance;

/* Call merak_balance_join() for the segments that part `part` may end before
 * if it begins with segment `from` and takes `most` at most. */
typedef void (*merak_extend_fn)(struct merak_balance *balance, int part,
                                int from, double most);

/* Segments 0 .. to - 1 in a number of parts. */
struct merak_balance_cell {
    double longest; /* part so far */
    double second;  /* the least decides between equally long ones */
    int from;       /* where the last part begins; -1: there is no such cut */
};

struct merak_balance {
    int n, parts; /* segments */
    merak_extend_fn extend;
    void *arg; /* extend's */
    /* [segment + 1]: the least time of all segments from there on, over all
     * parts that are left; NULL: not known. */
    const double *rest_s;
    struct merak_balance_cell *cell; /* [part + 1][segment + 1] */
};

/* False when out of memory. */
bool merak_balance_init(struct merak_balance *balance, int n, int parts);
void merak_balance_fini(struct merak_balance *balance);

/* A part [from, to) that takes `time` is one more way to reach `to`; `second`
 * is summed along the way. */
void merak_balance_join(struct merak_balance *balance, int part, int from,
                        int to, double time, double second);
/* The last `to` of a part: every later one needs a segment. */
int merak_balance_last_end(const struct merak_balance *balance, int part);
/* The cut whose longest part is shortest, of those whose parts take at most
 * `most`: bound[parts + 1], from 0 to n.  False if there is none. */
bool merak_balance_within(struct merak_balance *balance, double most,
                          int *bound);

#endif

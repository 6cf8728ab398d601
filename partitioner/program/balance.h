/* SPDX-License-Identifier: Apache-2.0 */
/* partitioner/program/balance.h - segments in a row, cut in parts whose longest
 * is shortest
 *
 * The dynamic programme behind every cut: where a plan says where to cut
 * (stages.c knows FLOPs and sends) and where a search looks for it
 * (search/cut.c knows a table of measured segments, and memory).  What a part
 * takes is the caller's.
 */
#ifndef MERAK_PARTITIONER_PROGRAM_BALANCE_H
#define MERAK_PARTITIONER_PROGRAM_BALANCE_H

#include <stdbool.h>

struct merak_balance;

/* Call merak_balance_join() for the segments that part `part` may end before
 * if it begins with segment `from` and takes `most` at most. */
typedef void (*merak_extend_fn)(struct merak_balance *balance, int part,
                                int from, double most);

/* Segments 0 .. to - 1 in so many parts. */
struct merak_balance_cell {
    double longest; /* part so far */
    double second;  /* of equally long ones the least is taken */
    int from;       /* where the last part begins; -1: there is no such cut */
};

struct merak_balance {
    int n, parts; /* segments */
    merak_extend_fn extend;
    void *arg; /* extend's */
    /* [segment + 1]: what lies from there on takes at least, to be done by
     * the parts that are left; NULL: not known. */
    const double *rest_s;
    struct merak_balance_cell *cell; /* [part + 1][segment + 1] */
};

/* False when out of memory. */
bool merak_balance_init(struct merak_balance *balance, int n, int parts);
void merak_balance_fini(struct merak_balance *balance);

/* A part [from, to) that takes `time` is one more way to come to `to`; `second`
 * is added up along the way. */
void merak_balance_join(struct merak_balance *balance, int part, int from,
                        int to, double time, double second);
/* Every later part needs a segment; the last takes all that is left. */
int merak_balance_last_end(const struct merak_balance *balance, int part);
/* The cut whose longest part is shortest, of those whose parts take at most so
 * long: bound[parts + 1], from 0 to n.  False if there is none. */
bool merak_balance_within(struct merak_balance *balance, double most,
                          int *bound);

#endif

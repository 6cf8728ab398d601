/* SPDX-License-Identifier: Apache-2.0 */
/* balance.c - a row of segments, cut into parts whose longest is shortest */
#include "config.h"

#include "partitioner/program/balance.h"

#include <stdlib.h>

bool merak_balance_init(struct merak_balance *b, int n, int parts)
{
    *b = (struct merak_balance){.n = n, .parts = parts};
    b->cell = malloc(((size_t)parts + 1) * ((size_t)n + 1) * sizeof(*b->cell));
    return b->cell != NULL;
}

void merak_balance_fini(struct merak_balance *b)
{
    free(b->cell);
}

static struct merak_balance_cell *cell_at(const struct merak_balance *b,
                                          int parts, int segment)
{
    return &b->cell[parts * (b->n + 1) + segment];
}

void merak_balance_join(struct merak_balance *b, int part, int from, int to,
                        double time, double second)
{
    const struct merak_balance_cell *before = cell_at(b, part, from);
    struct merak_balance_cell *after = cell_at(b, part + 1, to);
    double longest = time > before->longest ? time : before->longest;

    second += before->second;
    if (after->from < 0 || longest < after->longest ||
        (longest == after->longest && second < after->second))
        *after = (struct merak_balance_cell){longest, second, from};
}

int merak_balance_last_end(const struct merak_balance *b, int part)
{
    return b->n - (b->parts - 1 - part);
}

bool merak_balance_within(struct merak_balance *b, double most, int *bound)
{
    for (int i = 0; i < (b->parts + 1) * (b->n + 1); i++)
        b->cell[i].from = -1;
    *cell_at(b, 0, 0) = (struct merak_balance_cell){0, 0, 0};
    for (int s = 0; s < b->parts; s++) {
        for (int from = s; from < b->n; from++) {
            if (cell_at(b, s, from)->from < 0 ||
                (b->rest_s != NULL &&
                 b->rest_s[from] > (b->parts - s) * most * (1 + 1e-9)))
                continue;
            b->extend(b, s, from, most);
        }
    }
    bound[b->parts] = b->n;
    for (int s = b->parts; s > 0; s--) {
        bound[s - 1] = cell_at(b, s, bound[s])->from;
        if (bound[s - 1] < 0)
            return false;
    }
    return true;
}

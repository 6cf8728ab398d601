/* SPDX-License-Identifier: Apache-2.0 */
/* setups.h - ranks on nodes and the ways between them, for tests */
#ifndef MERAK_TESTS_SETUPS_H
#define MERAK_TESTS_SETUPS_H

#include "unit/near.h"
#include "unit/test_ranks.h"

#include <stdatomic.h>
#include <sys/mman.h>

static const int two_nodes[] = {0, 0, 1, 1, 1};
static const int own_nodes[] = {0, 1, 2, 3, 4};

/* Every way a message can take: offered in the arena, UCX's shared memory,
 * UCX between nodes, and its TCP. */
static const struct setup setups[] = {
    {NULL, 2, NULL, true, 0},       {NULL, 3, NULL, false, 0},
    {NULL, 4, two_nodes, true, 0},  {NULL, 2, own_nodes, true, 0},
    {"tcp,self", 2, NULL, true, 0}, {"tcp,self", 3, own_nodes, false, 0},
};
#define N_SETUPS (sizeof(setups) / sizeof(*setups))

/* So many zeros that all ranks see. */
static inline atomic_int *shared_ints(size_t n)
{
    atomic_int *p = mmap(NULL, n * sizeof(*p), PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    assert_true(p != MAP_FAILED);
    return p;
}

static inline void on_all_setups(rank_fn fn)
{
    for (size_t i = 0; i < N_SETUPS; i++) {
        int failed = run_ranks(&setups[i], fn, NULL);

        if (failed != 0)
            print_error("set-up %zu: %d ranks failed\n", i, failed);
        assert_int_equal(failed, 0);
    }
}

#endif

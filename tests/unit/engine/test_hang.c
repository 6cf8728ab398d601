/* SPDX-License-Identifier: Apache-2.0 */
/* test_hang.c - who is to blame for a hang, from what all ranks answered */
#include "config.h"

#include "runtime/boot/boot.h"
#include "runtime/train/trainer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define N 4
#define WAITS "step 3, compute is at instruction 9 (sum) for 6.0 s, which waits"
#define COMPUTES "step 3, computes instruction 9 (matmul) for 6.0 s"

struct row {
    const char *name;
    const char *heard[N]; /* answers; NULL: none */
    const char *known[N]; /* of the processes of those that gave none */
    const char *want;
};

/* Ranks 0 and 1 are tasks 1 and 3, on n2; 2 and 3 are tasks 0 and 2, on n1. */
static const int transport_rank[N] = {1, 3, 0, 2};
static int node_of[N] = {0, 1, 0, 1};
static const char *const hosts[] = {"n1", "n2"};

static const struct row rows[] = {
    {"a stopped process",
     {WAITS, NULL, WAITS, WAITS},
     {NULL, "its process is stopped"},
     "rank 1 on n2 does not answer: its process is stopped"},
    {"a process that has ended",
     {WAITS, WAITS, NULL, WAITS},
     {NULL, NULL, "its process has ended"},
     "rank 2 on n1 is gone: its process has ended"},
    {"nothing is known of it",
     {WAITS, WAITS, WAITS, NULL},
     {NULL},
     "rank 3 on n1 does not answer"},
    {"of several, one of which something is known",
     {NULL, WAITS, NULL, NULL},
     {NULL, NULL, NULL, "its process is stopped by a debugger"},
     "rank 3 on n1 does not answer: its process is stopped by a debugger, nor "
     "do 2 others"},
    {"of several, the first",
     {WAITS, NULL, NULL, WAITS},
     {NULL},
     "rank 1 on n2 does not answer, nor does 1 other"},
    {"a node",
     {NULL, NULL, WAITS, WAITS},
     {NULL},
     "none of the 2 ranks on n2 answers"},
    {"all answer and one computes",
     {WAITS, WAITS, COMPUTES, WAITS},
     {NULL},
     "rank 2 on n1 computes and the others wait for it"},
    {"all answer and two compute",
     {WAITS, COMPUTES, COMPUTES, WAITS},
     {NULL},
     ""},
    {"all wait", {WAITS, WAITS, WAITS, WAITS}, {NULL}, ""},
};

static void the_culprit_is_named(void **state)
{
    const struct row *row = *state;
    struct merak_boot boot = {.size = N, .node_of = node_of, .hosts = hosts};
    struct merak_told told[N];
    char text[MERAK_CULPRIT_BYTES];

    memset(told, 0, sizeof(told));
    for (int r = 0; r < N; r++) {
        struct merak_told *its = &told[transport_rank[r]];
        const char *is = row->heard[r] != NULL ? row->heard[r] : row->known[r];

        its->heard = row->heard[r] != NULL;
        snprintf(its->text, sizeof(its->text), "%s", is != NULL ? is : "");
    }
    merak_hang_culprit(&boot, transport_rank, told, text);
    assert_string_equal(text, row->want);
}

int main(void)
{
    struct CMUnitTest tests[sizeof(rows) / sizeof(rows[0])];

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        tests[i] = (struct CMUnitTest){rows[i].name, the_culprit_is_named, NULL,
                                       NULL, (void *)(uintptr_t)&rows[i]};
    return cmocka_run_group_tests_name("hang", tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* all_rows.h - is there time for every row, as at night? */
#ifndef MERAK_TESTS_ALL_ROWS_H
#define MERAK_TESTS_ALL_ROWS_H

#include <stdbool.h>
#include <stdlib.h>

/* A row that takes many seconds is left to MERAK_TEST_ALL=1, which
 * tests/nightly.sh sets, where others of its kind stand for it. */
static inline bool test_all_rows(void)
{
    return getenv("MERAK_TEST_ALL") != NULL;
}

#endif

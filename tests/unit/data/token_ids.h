/* SPDX-License-Identifier: Apache-2.0 */
/* token_ids.h - ids of a text, as tests of tokenizers collect them */
#ifndef MERAK_TESTS_TOKEN_IDS_H
#define MERAK_TESTS_TOKEN_IDS_H

#include "unit/near.h"

#include <stdint.h>
#include <string.h>

#include "merak/status.h"

#define MAX_TEXT 65536

struct ids {
    int32_t id[MAX_TEXT];
    size_t n;
};

/* A merak_ids_fn; arg is a struct ids. */
static enum merak_status collect(void *arg, const int32_t *ids, size_t n,
                                 struct merak_error *err)
{
    struct ids *got = arg;

    (void)err;
    assert_true(got->n + n <= MAX_TEXT);
    memcpy(got->id + got->n, ids, n * sizeof(*ids));
    got->n += n;
    return MERAK_OK;
}

#endif

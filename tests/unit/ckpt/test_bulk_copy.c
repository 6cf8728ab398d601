/* SPDX-License-Identifier: Apache-2.0 */
/* test_bulk_copy.c - the copy that a save beside training is made from */
#include "config.h"

#include "unit/near.h"

#include "io/ckpt/ckpt_impl.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 200000, MARGIN = 64 };

static unsigned char from[MOST + 2 * MARGIN], to[MOST + 2 * MARGIN];

/* Some short, some a group of pages and more, some with an odd end. */
static const size_t sizes[] = {0,     1,     63,    64,    4096,   16384,
                               32767, 32768, 32832, 65537, 131071, MOST};

static void one(size_t n, size_t from_at, size_t to_at)
{
    memset(to, 0xee, sizeof(to));
    merak_bulk_copy(to + MARGIN + to_at, from + from_at, n);
    assert_memory_equal(to + MARGIN + to_at, from + from_at, n);
    for (size_t i = 0; i < sizeof(to); i++) {
        if ((i < MARGIN + to_at || i >= MARGIN + to_at + n) && to[i] != 0xee)
            fail_msg("%zu bytes to %zu: byte %zu is hit", n, to_at, i);
    }
}

static void any_size_to_any_place_and_nothing_beside(void **state)
{
    static const size_t places[] = {0, 1, 4, 16, 36, 60, 63};

    (void)state;
    for (size_t i = 0; i < sizeof(from); i++)
        from[i] = (unsigned char)(i * 2654435761u >> 24);
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        for (size_t p = 0; p < sizeof(places) / sizeof(places[0]); p++) {
            one(sizes[s], places[p], places[(p + 3) % 7]);
            one(sizes[s], 0, places[p]);
        }
    }
}

/* --- pieces -----------------------------------------------------------------
 */

enum { PIECES = 7 };

/* Some are no bytes, some more than a thread takes at a time. */
static const size_t elements[PIECES] = {0, 3, 700001, 0, 1, 1500000, 0};

static void *share(void *copying)
{
    merak_ckpt_copying_share(copying);
    return NULL;
}

/* Each piece's data by itself here, together there. */
static void make(struct merak_ckpt_piece *live, struct merak_ckpt_piece *copy,
                 float *there)
{
    for (int i = 0; i < PIECES; i++) {
        live[i] = (struct merak_ckpt_piece){.flat_hi = elements[i]};
        live[i].data = malloc((elements[i] + 1) * sizeof(float));
        assert_non_null(live[i].data);
        for (size_t k = 0; k < elements[i]; k++)
            live[i].data[k] = (float)(k % 65521) + (float)i * 0.125f;
        copy[i] = live[i];
        copy[i].data = there;
        there += elements[i];
    }
}

static void two_threads_copy_each_piece(void **state)
{
    struct merak_ckpt_piece live[PIECES], copy[PIECES];
    struct merak_ckpt_copying copying;
    size_t n = 0;
    float *there;

    (void)state;
    for (int i = 0; i < PIECES; i++)
        n += elements[i];
    there = calloc(n, sizeof(float));
    assert_non_null(there);
    make(live, copy, there);
    for (int threads = 1; threads <= 2; threads++) {
        pthread_t thread;

        memset(there, 0xff, n * sizeof(float));
        merak_ckpt_copying_begin(&copying, live, copy, PIECES);
        if (threads == 2)
            assert_int_equal(pthread_create(&thread, NULL, share, &copying), 0);
        merak_ckpt_copying_share(&copying);
        if (threads == 2)
            pthread_join(thread, NULL);
        for (int i = 0; i < PIECES; i++)
            assert_memory_equal(copy[i].data, live[i].data,
                                elements[i] * sizeof(float));
    }
    for (int i = 0; i < PIECES; i++)
        free(live[i].data);
    free(there);
}

static void no_pieces_are_copied(void **state)
{
    struct merak_ckpt_copying copying;

    (void)state;
    merak_ckpt_copying_begin(&copying, NULL, NULL, 0);
    merak_ckpt_copying_share(&copying);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_size_to_any_place_and_nothing_beside),
        cmocka_unit_test(two_threads_copy_each_piece),
        cmocka_unit_test(no_pieces_are_copied),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

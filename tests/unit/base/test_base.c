/* SPDX-License-Identifier: Apache-2.0 */
/* test_base.c - errors, random numbers, cuts */
#include "config.h"

#include "unit/near.h"

#include "base/error.h"
#include "base/arrays.h"
#include "base/grow.h"
#include "base/open.h"
#include "base/rng.h"
#include "base/size.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Salmon et al., Random123's known answers for philox4x32-10. */
static const struct {
    uint32_t counter[4], key[2], want[4];
} philox_rows[] = {
    {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
     {0xffffffff, 0xffffffff},
     {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
     {0xa4093822, 0x299f31d0},
     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};

/* Opening a pipe that nobody writes to would hang. */
static void only_regular_files_are_opened_and_at_once(void **state)
{
    char dir[] = "/tmp/merak-open-XXXXXX", pipe[64], file[64];
    int fd = -1;
    FILE *f;

    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(pipe, sizeof(pipe), "%s/pipe", dir);
    snprintf(file, sizeof(file), "%s/file", dir);
    assert_int_equal(mkfifo(pipe, 0600), 0);
    assert_string_equal(merak_open_regular(pipe, &fd), "a pipe, not a file");
    assert_int_equal(errno, 0);
    assert_string_equal(merak_open_regular(dir, &fd),
                        "a directory, not a file");
    assert_string_equal(merak_open_regular("/dev/zero", &fd),
                        "a device, not a file");
    assert_string_equal(merak_fopen_regular(file, &f), strerror(ENOENT));
    assert_int_equal(errno, ENOENT);
    assert_int_equal(fd, -1);
    f = fopen(file, "w");
    assert_non_null(f);
    fputs("text", f);
    fclose(f);
    assert_null(merak_fopen_regular(file, &f));
    assert_int_equal(fgetc(f), 't');
    fclose(f);
    unlink(pipe);
    unlink(file);
    rmdir(dir);
}

static void philox_gives_the_published_answers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(philox_rows) / sizeof(*philox_rows); i++) {
        struct merak_rng_block b =
            merak_philox(philox_rows[i].key, philox_rows[i].counter);

        assert_memory_equal(b.word, philox_rows[i].want, sizeof(b.word));
    }
}

static void a_permutation_hits_every_place_once(void **state)
{
    unsigned char seen[1000];

    (void)state;
    for (uint64_t n = 1; n <= sizeof(seen); n = n * 3 / 2 + 1) {
        memset(seen, 0, sizeof(seen));
        for (uint64_t i = 0; i < n; i++) {
            uint64_t to = merak_rng_permute(42, n, i);

            assert_true(to < n);
            assert_int_equal(seen[to]++, 0);
        }
    }
}

static void normals_have_mean_zero_and_variance_one(void **state)
{
    double sum = 0, squares = 0;
    const int n = 200000;

    (void)state;
    for (int i = 0; i < n; i++) {
        double x = merak_rng_normal(7, (uint64_t)i);

        sum += x;
        squares += x * x;
    }
    assert_true(fabs(sum / n) < 0.01); /* 4.5 sigma of the mean */
    assert_true(fabs(squares / n - 1) < 0.015);
}

static void cuts_cover_without_gap(void **state)
{
    (void)state;
    for (size_t extent = 0; extent < 40; extent++) {
        for (size_t parts = 1; parts < 9; parts++) {
            assert_int_equal(merak_cut(extent, parts, 0), 0);
            assert_int_equal(merak_cut(extent, parts, parts), extent);
            for (size_t i = 0; i < parts; i++) {
                size_t size = merak_cut(extent, parts, i + 1) -
                              merak_cut(extent, parts, i);

                assert_in_range(size, extent / parts,
                                (extent + parts - 1) / parts);
            }
        }
    }
}

static void errors_keep_errno_and_take_context(void **state)
{
    struct merak_error err;

    (void)state;
    errno = ENOENT;
    assert_int_equal(merak_fail(&err, MERAK_ERR_IO, "cannot open %s", "x"),
                     MERAK_ERR_IO);
    merak_error_wrap(&err, "manifest %d", 3);
    assert_string_equal(err.text, "manifest 3: cannot open x");
    assert_int_equal(errno, ENOENT);
    assert_int_equal(err.status, MERAK_ERR_IO);
    assert_int_equal(merak_fail(NULL, MERAK_ERR_PARAM, "x"), MERAK_ERR_PARAM);
}

/* The fix that an error names can be taken away, wherever context was put. */
static void errors_name_their_fix(void **state)
{
    struct merak_error err;

    (void)state;
    errno = ENOENT;
    merak_fail(&err, MERAK_ERR_CONFIG, "%d chunks: it runs 1", 3);
    assert_int_equal(err.fix, 0);
    assert_int_equal(
        merak_error_fix(&err, MERAK_ERR_CONFIG, ": set chunks = %d", 1),
        MERAK_ERR_CONFIG);
    merak_error_wrap(&err, "schedule %s", "gpipe: fast");
    assert_string_equal(
        err.text, "schedule gpipe: fast: 3 chunks: it runs 1: set chunks = 1");
    merak_error_drop_fix(&err);
    assert_string_equal(err.text, "schedule gpipe: fast: 3 chunks: it runs 1");
    merak_error_drop_fix(&err);
    assert_string_equal(err.text, "schedule gpipe: fast: 3 chunks: it runs 1");
    assert_int_equal(errno, ENOENT);
    assert_int_equal(merak_error_fix(NULL, MERAK_ERR_PARAM, "x"),
                     MERAK_ERR_PARAM);
    /* cut off with what came before it */
    merak_fail(&err, MERAK_ERR_CONFIG, "%*s", (int)sizeof(err.text) - 12, "x");
    merak_error_fix(&err, MERAK_ERR_CONFIG, ": use y");
    merak_error_wrap(&err, "%20s", "z");
    assert_int_equal(err.fix, 0);
}

static void bytes_have_units(void **state)
{
    static const struct {
        double bytes;
        const char *text;
    } row[] = {{0, "0 B"},          {1023, "1023 B"},
               {1024, "1 KiB"},     {1.5 * 1024 * 1024, "1.5 MiB"},
               {80e9, "74.51 GiB"}, {5e15, "4547 TiB"}};

    (void)state;
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        char text[MERAK_BYTES_TEXT];

        merak_bytes_text(row[i].bytes, text);
        assert_string_equal(text, row[i].text);
    }
}

static void errors_are_one_line(void **state)
{
    struct merak_error err;

    (void)state;
    merak_fail(&err, MERAK_ERR_FORMAT, "no token \"%s\"",
               "a\nb\tc\033[2Jd\xc3");
    assert_string_equal(err.text, "no token \"a b c?[2Jd?\"");
    merak_error_fix(&err, MERAK_ERR_FORMAT, ": try %s", "e\rf");
    merak_error_wrap(&err, "file %s", "g\nh");
    assert_string_equal(err.text,
                        "file g h: no token \"a b c?[2Jd?\": try e?f");
}

static void arrays_grow_and_keep_what_they_hold(void **state)
{
    struct merak_error err;
    int *array = NULL, room = 0, grown = 0;

    (void)state;
    for (int n = 0; n < 1000; n++) {
        int before = room;

        assert_int_equal(merak_grow(&array, &room, n, sizeof(*array), &err),
                         MERAK_OK);
        assert_true(room > n);
        grown += room != before;
        array[n] = n;
    }
    for (int n = 0; n < 1000; n++)
        assert_int_equal(array[n], n);
    assert_true(grown < 10);
    free(array);
}

static void arrays_that_cannot_grow_stay_as_they_are(void **state)
{
    static const struct {
        int room;
        size_t size;
    } row[] = {{0, SIZE_MAX / 2},
               {4, SIZE_MAX / 4},
               {INT_MAX / 2 + 1, 1},
               {INT_MAX, 1}};

    (void)state;
    for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
        char *array = malloc(1), *same = array;
        struct merak_error err;
        int room = row[i].room;

        assert_int_equal(merak_grow(&array, &room, room, row[i].size, &err),
                         MERAK_ERR_NOMEM);
        assert_ptr_equal(array, same);
        assert_int_equal(room, row[i].room);
        free(array);
    }
}

static void arrays_begin_and_end_together(void **state)
{
    char *text = NULL, *none = NULL;
    double *number = NULL;
    const struct merak_array arrays[] = {
        MERAK_ARRAY(text, 3), MERAK_ARRAY(none, 0), MERAK_ARRAY(number, 2)};
    const struct merak_array huge[] = {MERAK_ARRAY(text, 1),
                                       MERAK_ARRAY(number, SIZE_MAX / 8)};
    struct merak_error err;

    (void)state;
    assert_int_equal(MERAK_ARRAYS(arrays, &err), MERAK_OK);
    assert_int_equal((uintptr_t)number % sizeof(*number), 0);
    assert_true(text + 3 <= none && none <= (char *)number);
    for (int i = 0; i < 3; i++)
        assert_int_equal(text[i], 0);
    assert_true(number[0] == 0 && number[1] == 0);
    free(text);
    assert_int_equal(MERAK_ARRAYS(huge, &err), MERAK_ERR_NOMEM);
    assert_null(text);
    assert_null(number);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrays_begin_and_end_together),
        cmocka_unit_test(only_regular_files_are_opened_and_at_once),
        cmocka_unit_test(philox_gives_the_published_answers),
        cmocka_unit_test(a_permutation_hits_every_place_once),
        cmocka_unit_test(normals_have_mean_zero_and_variance_one),
        cmocka_unit_test(cuts_cover_without_gap),
        cmocka_unit_test(arrays_grow_and_keep_what_they_hold),
        cmocka_unit_test(arrays_that_cannot_grow_stay_as_they_are),
        cmocka_unit_test(bytes_have_units),
        cmocka_unit_test(errors_keep_errno_and_take_context),
        cmocka_unit_test(errors_name_their_fix),
        cmocka_unit_test(errors_are_one_line),
    };

    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}

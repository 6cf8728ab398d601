/* SPDX-License-Identifier: Apache-2.0 */
/* test_arena.c - memory that node peers can map, and private memory */
#include "config.h"

#include "base/error.h"
#include "runtime/transport/arena.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB ((size_t)1 << 20)

static bool is_zero(const unsigned char *data, size_t bytes)
{
    return data[0] == 0 && memcmp(data, data + 1, bytes - 1) == 0;
}

static void an_arena_is_zero_until_written_and_when_cleared(void **state)
{
    static const size_t sizes[] = {
        1, 64, 4096, 4097, 2 * MIB - 1, 2 * MIB, 2 * MIB + 1, 7 * MIB + 100};
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct merak_error err;

    (void)state;
    for (size_t i = 0; i < 2 * sizeof(sizes) / sizeof(*sizes); i++) {
        struct merak_arena arena = {.fd = -1};
        bool shared = i % 2 == 0;

        assert_int_equal(merak_arena_create(sizes[i / 2], shared, &arena, &err),
                         MERAK_OK);
        assert_int_equal(arena.bytes, sizes[i / 2]);
        assert_int_equal((uintptr_t)arena.base % page, 0);
        for (int turn = 0; turn < 2; turn++) {
            assert_true(is_zero(arena.base, arena.bytes));
            memset(arena.base, 0xa5, arena.bytes);
            assert_int_equal(merak_arena_clear(&arena, &err), MERAK_OK);
        }
        assert_true(is_zero(arena.base, arena.bytes));
        merak_arena_destroy(&arena);
        assert_null(arena.base);
        merak_arena_destroy(&arena); /* of nothing */
    }
}

static void a_shared_one_has_a_file_for_others_to_map(void **state)
{
    struct merak_arena arena;
    struct merak_error err;
    struct stat st;

    (void)state;
    assert_int_equal(merak_arena_create(5000, true, &arena, &err), MERAK_OK);
    assert_int_equal(fstat(arena.fd, &st), 0);
    assert_int_equal(st.st_size, 5000);
    merak_arena_destroy(&arena);
    assert_int_equal(merak_arena_create(5000, false, &arena, &err), MERAK_OK);
    assert_int_equal(arena.fd, -1);
    merak_arena_destroy(&arena);
}

static void what_cannot_be_had_is_refused(void **state)
{
    static const struct {
        size_t bytes;
        enum merak_status want;
    } rows[] = {{0, MERAK_ERR_PARAM},
                {SIZE_MAX, MERAK_ERR_NOMEM},
                {SIZE_MAX / 2 - 4096, MERAK_ERR_NOMEM}};
    struct merak_arena arena = {.fd = -1};
    struct merak_error err;

    (void)state;
    for (size_t i = 0; i < 2 * sizeof(rows) / sizeof(*rows); i++) {
        assert_int_equal(
            merak_arena_create(rows[i / 2].bytes, i % 2 == 0, &arena, &err),
            rows[i / 2].want);
        assert_null(arena.base);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_arena_is_zero_until_written_and_when_cleared),
        cmocka_unit_test(a_shared_one_has_a_file_for_others_to_map),
        cmocka_unit_test(what_cannot_be_had_is_refused),
    };

    return cmocka_run_group_tests_name("arena", tests, NULL, NULL);
}

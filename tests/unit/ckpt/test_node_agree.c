/* SPDX-License-Identifier: Apache-2.0 */
/* test_node_agree.c - a rank that cannot get memory for the copy that its node
 * saves from, and the node's others
 *
 * malloc() and calloc() are this program's own, and fail at one call of one
 * rank.  Who waits for that rank waits for ever.
 */
#include "config.h"

#include "unit/ckpt/own_dir.h"

#include "unit/quiet.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define FAILS 1
#else
#define FAILS 0 /* the sanitizer has its own */
#endif

/* At which call, from 1 on, which rank's fails; and calls left till then. */
static int fail_at, fail_rank;
static atomic_int left;

static void arm(int rank, bool begun)
{
    atomic_store(&left, begun && rank == fail_rank ? fail_at : 0);
}

#if FAILS
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);

static bool fails(void)
{
    if (atomic_load(&left) == 0 || atomic_fetch_sub(&left, 1) != 1)
        return false;
    errno = ENOMEM;
    return true;
}

void *malloc(size_t size)
{
    return fails() ? NULL : __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
    return fails() ? NULL : __libc_calloc(n, size);
}
#endif

static void all_ranks_of_the_node_get_the_error_at_once(void **state)
{
    static const struct world_layout three = {1, 1, 3, true};
    struct merak_error err;
    int struck = 0;

    (void)state;
    if (!FAILS)
        skip();
    quiet_logs();
    alarm(60);
    world_async = world_one_node = true;
    world_creating = arm;
    for (fail_rank = 0; fail_rank < 3; fail_rank++) {
        fail_at = 1;
        /* as many calls as there are */
        while (world_save(dir, &three, 1, 0, &err) != MERAK_OK) {
            /* the thread's stack is the system's */
            if (err.status != MERAK_ERR_NOMEM && err.status != MERAK_ERR_SYSTEM)
                fail_msg("rank %d, call %d: %s", fail_rank, fail_at, err.text);
            struck++;
            fail_at++;
        }
        assert_int_equal(world_check(dir, &three, &err), 1);
        assert_true(fail_at > 4);
    }
    world_async = world_one_node = false;
    world_creating = NULL;
    alarm(0);
    print_message("# failed at %d calls\n", struck);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OWN_DIR_TEST(all_ranks_of_the_node_get_the_error_at_once),
    };

    return cmocka_run_group_tests_name("node_agree", tests, NULL, NULL);
}

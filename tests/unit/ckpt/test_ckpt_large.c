/* SPDX-License-Identifier: Apache-2.0 */
/* test_ckpt_large.c - saves so large that a second thread hashes or copies
 *
 * Other tests save little, so that the thread never starts in them: the thread
 * sanitizer sees here what the two share.
 */
#include "config.h"

#include "unit/ckpt/own_dir.h"

#include "base/cores.h"
#include "io/ckpt/ckpt_impl.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

/* Elements: 12 MiB in all, and one tensor that is none. */
enum { PIECES = 4, STEP = 3 };

static const size_t elements[PIECES] = {5, 1 << 21, 0, (1 << 20) + 7};
static const char *const names[PIECES] = {"param/a", "param/b", "param/c",
                                          "param/d"};

static void make(struct merak_ckpt_piece *piece)
{
    for (int i = 0; i < PIECES; i++) {
        size_t n = elements[i];

        piece[i] = (struct merak_ckpt_piece){
            .name = names[i],
            .shape = {1, {n}},
            .box = {.ndim = 1, .full = {n}, .len = {n}},
            .flat_hi = n};
        piece[i].data = malloc((n + 1) * sizeof(float));
        assert_non_null(piece[i].data);
        for (size_t k = 0; k < n; k++)
            piece[i].data[k] = world_value(names[i], k, STEP);
    }
}

/* All of a file; the caller's to free. */
static char *slurp(const char *sub, const char *name, size_t *bytes)
{
    char path[256];
    struct stat st;
    FILE *file;
    char *text;

    snprintf(path, sizeof(path), "%s/%s/%s", dir, sub, name);
    file = fopen(path, "rb");
    if (file == NULL)
        fail_msg("%s is not there", path);
    assert_int_equal(fstat(fileno(file), &st), 0);
    *bytes = (size_t)st.st_size;
    text = malloc(*bytes + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, *bytes, file), *bytes);
    fclose(file);
    return text;
}

static void assert_same_file(const char *a, const char *b, const char *name)
{
    size_t a_bytes, b_bytes;
    char *x = slurp(a, name, &a_bytes), *y = slurp(b, name, &b_bytes);

    assert_int_equal(a_bytes, b_bytes);
    assert_memory_equal(x, y, a_bytes);
    free(x);
    free(y);
}

static enum merak_status write_shard(const char *sub,
                                     const struct merak_ckpt_piece *piece,
                                     bool spare_core, struct merak_error *err)
{
    const struct merak_ckpt_source source = {
        .piece = piece, .end = PIECES, .spare_core = spare_core};
    char path[256];

    snprintf(path, sizeof(path), "%s/%s", dir, sub);
    assert_int_equal(mkdir(path, 0755), 0);
    return merak_ckpt_shard_write(path, 0, STEP, &source, err);
}

static void who_hashes_is_not_seen_in_files(void **state)
{
    struct merak_ckpt_piece piece[PIECES];
    struct merak_error err;

    (void)state;
    make(piece);
    if (write_shard("two", piece, true, &err) != MERAK_OK ||
        write_shard("one", piece, false, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    assert_same_file("one", "two", "shard-00000.json");
    assert_same_file("one", "two", "shard-00000.h5");
    for (int i = 0; i < PIECES; i++)
        free(piece[i].data);
}

/* HDF5 crashed at the end of a process that had gone on: there the signal of
 * the limit was ignored. */
static void a_limit_of_file_sizes_is_said_and_survived(void **state)
{
    struct merak_ckpt_piece piece[PIECES];
    struct rlimit limit, saved;
    struct merak_error err = {.status = MERAK_OK};
    enum merak_status rc;

    (void)state;
    make(piece);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &saved), 0);
    limit = saved;
    limit.rlim_cur = 1 << 20;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    rc = write_shard("limited", piece, true, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &saved), 0);
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(rc, MERAK_ERR_IO);
    assert_non_null(strstr(err.text, "`ulimit -f` allows 1048576 bytes"));
    assert_int_equal(write_shard("after", piece, true, &err), MERAK_OK);
    for (int i = 0; i < PIECES; i++)
        free(piece[i].data);
}

/* What the copy's two threads took is what the tensors held when it began. */
static void a_save_beside_training_is_the_same(void **state)
{
    const struct world_layout one = {1, 1, 1, false};
    const struct merak_ckpt_state saved = world_state(&one, STEP);
    const struct merak_ckpt_keep keep = {.newest = 2};
    struct merak_ckpt_piece piece[PIECES];
    struct merak_ckpt_async *async;
    struct merak_error err;
    char path[256];

    (void)state;
    make(piece);
    assert_int_equal(
        merak_ckpt_async_create(piece, PIECES, NULL, NULL, NULL, &async, &err),
        MERAK_OK);
    snprintf(path, sizeof(path), "%s/async", dir);
    if (merak_ckpt_async_start(async, path, &saved, keep, NULL, &err) !=
        MERAK_OK)
        fail_msg("%s", err.text);
    for (int i = 0; i < PIECES; i++)
        memset(piece[i].data, 0xff, elements[i] * sizeof(float));
    if (merak_ckpt_async_wait(async, &err) != MERAK_OK)
        fail_msg("%s", err.text);
    merak_ckpt_async_destroy(async);
    for (int i = 0; i < PIECES; i++)
        free(piece[i].data);
    make(piece);
    assert_int_equal(write_shard("async/plain", piece, false, &err), MERAK_OK);
    assert_same_file("async/plain", "async/step-00000003", "shard-00000.h5");
    for (int i = 0; i < PIECES; i++)
        free(piece[i].data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OWN_DIR_TEST(who_hashes_is_not_seen_in_files),
        OWN_DIR_TEST(a_limit_of_file_sizes_is_said_and_survived),
        OWN_DIR_TEST(a_save_beside_training_is_the_same),
    };

    if (merak_cores_allowed() < 2)
        print_message("# one core: a save's copy is made by one thread\n");
    return cmocka_run_group_tests_name("ckpt_large", tests, NULL, NULL);
}

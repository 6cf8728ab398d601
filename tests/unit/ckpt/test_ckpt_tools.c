/* SPDX-License-Identifier: Apache-2.0 */
/* test_ckpt_tools.c - checkpoints compared, pruned and repaired; and pieces of
 * any form read from them
 */
#include "config.h"

#include "unit/near.h"

#include "unit/ckpt/ckpt_world.h"
#include "unit/quiet.h"

#include "base/log.h"
#include "base/rng.h"
#include "io/ckpt/ckpt_impl.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static char dir[128];

static int make_dir(void **state)
{
    (void)state;
    world_make_dir(dir, sizeof(dir));
    quiet_logs();
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    merak_log_sink(NULL, NULL);
    world_remove_dir(dir);
    return 0;
}

static void check_ok(enum merak_status rc, const struct merak_error *err)
{
    if (rc != MERAK_OK)
        fail_msg("%s", err->text);
}

/* --- reading ----------------------------------------------------------------
 */

static const struct world_tensor *tensor_of(const char *name)
{
    for (int i = 0; i < world_n_tensors; i++) {
        if (strcmp(world_tensors[i].name, name) == 0)
            return &world_tensors[i];
    }
    return NULL;
}

static size_t draw(uint64_t seed, uint64_t *n, size_t below)
{
    return below == 0 ? 0 : (size_t)(merak_rng_mix(seed, (*n)++) % below);
}

/* Some box of the tensor, and some flat range of it. */
static void draw_piece(uint64_t seed, struct merak_ckpt_piece *piece)
{
    const struct world_tensor *t = tensor_of(piece->name);
    uint64_t k = 0;
    size_t count;

    piece->shape = t->shape;
    piece->box.ndim = t->shape.ndim;
    for (int d = 0; d < t->shape.ndim; d++) {
        size_t full = t->shape.dim[d];

        piece->box.full[d] = full;
        piece->box.lo[d] = draw(seed, &k, full);
        piece->box.len[d] = 1 + draw(seed, &k, full - piece->box.lo[d]);
    }
    count = merak_box_count(&piece->box);
    piece->flat_lo = draw(seed, &k, count);
    piece->flat_hi =
        piece->flat_lo + 1 + draw(seed, &k, count - piece->flat_lo);
}

static void read_drawn(struct merak_ckpt *ckpt, const char *name, uint64_t seed)
{
    static float data[301 * 127];
    struct merak_ckpt_piece piece = {.name = name, .data = data};
    struct merak_error err;

    draw_piece(seed, &piece);
    memset(data, 0xff, sizeof(data));
    check_ok(merak_ckpt_read(ckpt, &piece, &err), &err);
    for (size_t i = piece.flat_lo; i < piece.flat_hi; i++) {
        float want = world_value(name, world_index(&piece.box, i), 20);

        if (memcmp(&data[i - piece.flat_lo], &want, sizeof(want)) != 0)
            fail_msg("%s, seed %llu, element %zu: %g, not %g", name,
                     (unsigned long long)seed, i,
                     (double)data[i - piece.flat_lo], (double)want);
    }
}

/* First with the checksum of what it is from, then without. */
static void pieces_of_any_form_are_read(void **state)
{
    static const char *const names[] = {"param/wte", "adam_m/h.0.attn.qkv.w",
                                        "adam_v/big", "param/h.0.ln.g"};
    const struct world_layout writer = {3, 1, 2, true};
    struct merak_ckpt *ckpt;
    struct merak_error err;

    (void)state;
    check_ok(world_save(dir, &writer, 20, 2, &err), &err);
    for (uint64_t seed = 0; seed < 200; seed++) {
        if (seed % 20 == 0)
            check_ok(merak_ckpt_open(dir, &ckpt, &err), &err);
        for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
            read_drawn(ckpt, names[i], seed);
        if (seed % 20 == 19)
            merak_ckpt_close(ckpt);
    }
}

static void ranks_of_a_node_write_one_file(void **state)
{
    const struct world_layout layouts[] = {
        {2, 2, 2, true}, {3, 1, 2, true}, {1, 1, 1, false}};
    struct merak_error err;
    char path[256];

    (void)state;
    world_async = world_one_node = true;
    for (size_t i = 0; i < sizeof(layouts) / sizeof(*layouts); i++) {
        uint64_t step = 20 + i;

        check_ok(world_save(dir, &layouts[i], step, 0, &err), &err);
        assert_int_equal(world_check(dir, &layouts[0], &err), step);
        snprintf(path, sizeof(path), "%s/step-%08d/shard-00001.h5", dir,
                 (int)step);
        assert_int_not_equal(access(path, F_OK), 0);
    }
    world_async = world_one_node = false;
}

/* Two ranks of a node, played one after the other: what rank 1 tells is kept,
 * and rank 0 hears it then. */
struct played_node {
    int me, messages;
    char told[2][65536];
};

static enum merak_status play_broadcast(void *arg, void *data, size_t bytes,
                                        int root, struct merak_error *err)
{
    struct played_node *played = arg;

    (void)err;
    if (root == 0 && played->me == 1) /* it hears that rank 0 has nothing */
        memset(data, 0, bytes);
    if (root == 0)
        return MERAK_OK;
    assert_true(played->messages < 2 && bytes <= sizeof(played->told[0]));
    if (played->me == 1)
        memcpy(played->told[played->messages++], data, bytes);
    else
        memcpy(data, played->told[played->messages++], bytes);
    return MERAK_OK;
}

static enum merak_status gather_as(int me, struct played_node *played,
                                   const struct merak_ckpt_piece *piece, int fd,
                                   const void *copy, struct merak_error *err)
{
    const struct merak_ckpt_node node = {
        .rank = me, .size = 2, .arg = played, .broadcast = play_broadcast};
    struct merak_ckpt_node_pieces all = {.n = 0};
    enum merak_status rc;

    played->me = me;
    played->messages = 0;
    rc = merak_ckpt_node_gather(&node, piece, 1, fd, copy, 64, &all, err);
    if (rc == MERAK_OK && me == 0) {
        assert_int_equal(all.n, 2);
        assert_true(all.piece[1].data[0] == 2.5f);
    }
    merak_ckpt_node_release(&all);
    return rc;
}

/* As the numbers of processes are others' in a container. */
static void a_copy_that_is_another_file_is_refused(void **state)
{
    static struct played_node played;
    struct merak_ckpt_piece piece = {
        .name = "param/w", .shape = {.ndim = 1, .dim = {2}}, .flat_hi = 2};
    struct merak_error err;
    void *mine, *other;
    int fd = -1, wrong = -1;

    (void)state;
    check_ok(merak_ckpt_node_memory(64, &fd, &mine, &err), &err);
    check_ok(merak_ckpt_node_memory(64, &wrong, &other, &err), &err);
    piece.data = mine;
    piece.data[0] = 2.5f;
    check_ok(gather_as(1, &played, &piece, fd, mine, &err), &err);
    check_ok(gather_as(0, &played, &piece, fd, mine, &err), &err);
    assert_int_equal(dup2(wrong, fd), fd);
    assert_int_equal(gather_as(0, &played, &piece, wrong, mine, &err),
                     MERAK_ERR_SYSTEM);
    assert_non_null(strstr(err.text, "use --ckpt-writers rank"));
    close(fd);
    assert_int_equal(gather_as(0, &played, &piece, wrong, mine, &err),
                     MERAK_ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, "use --ckpt-writers rank"));
    close(wrong);
    munmap(mine, 64);
    munmap(other, 64);
}

/* --- a manifest of other content --------------------------------------------
 */

static char *path_of(const char *name)
{
    static char path[2][256];
    static int turn;

    turn = !turn;
    snprintf(path[turn], sizeof(path[turn]), "%s/step-00000020/%s", dir, name);
    return path[turn];
}

static void rewrite_manifest(void (*change)(json_t *root))
{
    char record[MERAK_CKPT_MAX_RECORD];
    struct merak_error err;
    json_t *root = json_load_file(path_of("manifest.json"), 0, NULL);
    char *text;
    size_t n;

    assert_non_null(root);
    change(root);
    text = json_dumps(root, JSON_COMPACT);
    n = merak_ckpt_record(record, 20, text, strlen(text));
    check_ok(
        merak_durable_write(path_of("manifest.json"), text, strlen(text), &err),
        &err);
    check_ok(merak_durable_write(path_of("COMMITTED"), record, n, &err), &err);
    free(text);
    json_decref(root);
}

static void drop_rest(json_t *root)
{
    json_t *shard;
    size_t i;

    json_array_foreach(json_object_get(root, "shards"), i, shard)
        assert_int_equal(json_object_del(shard, "rest"), 0);
}

/* Their shards are checked as a whole. */
static void checkpoints_of_earlier_versions_are_read(void **state)
{
    const struct world_layout layout = {2, 1, 1, false};
    struct merak_error err;

    (void)state;
    check_ok(world_save(dir, &layout, 20, 2, &err), &err);
    rewrite_manifest(drop_rest);
    assert_int_equal(world_check(dir, &layout, &err), 20);
    for (off_t at = 0; at < 60000; at += 12345) {
        world_flip(path_of("shard-00001.h5"), at);
        assert_int_equal(world_check(dir, &layout, &err), -1);
        assert_non_null(strstr(err.text, "shard-00001.h5 is damaged"));
        world_flip(path_of("shard-00001.h5"), at);
    }
    assert_int_equal(world_check(dir, &layout, &err), 20);
}

/* --- diff -------------------------------------------------------------------
 */

struct seen {
    int n, of[MERAK_CKPT_ONLY_B + 1];
    struct merak_ckpt_difference last; /* that is none of equals */
};

static void take_difference(void *arg, const struct merak_ckpt_difference *d)
{
    struct seen *seen = arg;

    seen->n++;
    seen->of[d->relation]++;
    if (d->relation != MERAK_CKPT_EQUAL)
        seen->last = *d;
}

static bool compare(const char *a, const char *b, struct seen *seen)
{
    struct merak_ckpt *x, *y;
    struct merak_error err;
    char path[256];
    bool same;

    memset(seen, 0, sizeof(*seen));
    snprintf(path, sizeof(path), "%s/%s", dir, a);
    check_ok(merak_ckpt_open(path, &x, &err), &err);
    snprintf(path, sizeof(path), "%s/%s", dir, b);
    check_ok(merak_ckpt_open(path, &y, &err), &err);
    check_ok(merak_ckpt_compare(x, y, take_difference, seen, &same, NULL, &err),
             &err);
    merak_ckpt_close(x);
    merak_ckpt_close(y);
    return same;
}

static void save_small(const char *run, const char *name, size_t rows,
                       const float *data)
{
    const struct world_layout one = {1, 1, 1, false};
    struct merak_ckpt_state st = world_state(&one, 5);
    const struct merak_ckpt_keep all = {.newest = 0};
    struct merak_ckpt_piece piece = {
        name, {2, {rows, 3}}, {2, {rows, 3}, {0, 0}, {rows, 3}},
        0,    rows * 3,       (float *)(uintptr_t)data};
    struct merak_error err;
    char path[256];

    snprintf(path, sizeof(path), "%s/%s", dir, run);
    check_ok(merak_ckpt_save(path, &st, &piece, 1, all, NULL, &err), &err);
}

static void the_same_values_in_other_layouts_are_equal(void **state)
{
    const struct world_layout a = {1, 1, 1, false}, b = {2, 2, 2, true};
    struct merak_error err;
    char path[256];
    struct seen seen;

    (void)state;
    snprintf(path, sizeof(path), "%s/a", dir);
    check_ok(world_save(path, &a, 7, 2, &err), &err);
    snprintf(path, sizeof(path), "%s/b", dir);
    check_ok(world_save(path, &b, 7, 2, &err), &err);
    assert_true(compare("a", "b", &seen));
    assert_int_equal(seen.of[MERAK_CKPT_EQUAL], world_n_tensors);
}

static void differences_are_measured(void **state)
{
    const float x[6] = {1, 2, 3, 4, 5, 6};
    float y[6] = {1, 2, 3.5f, 4, 4.75f, 6};
    struct seen seen;

    (void)state;
    save_small("x", "param/w", 2, x);
    save_small("y", "param/w", 2, y);
    assert_false(compare("x", "y", &seen));
    assert_int_equal(seen.last.relation, MERAK_CKPT_DIFFERENT);
    assert_int_equal(seen.last.elements, 6);
    assert_int_equal(seen.last.n, 2);
    assert_int_equal(seen.last.n_not_finite, 0);
    assert_int_equal(seen.last.at, 2);
    assert_true(seen.last.max_abs == 0.5);
    assert_true(seen.last.max_rel == 0.5 / 3.5);
    assert_true(seen.last.a_at == 3.0f && seen.last.b_at == 3.5f);
    /* no number is larger than any, and equal to itself by its bits */
    y[0] = NAN;
    y[1] = -INFINITY;
    save_small("z", "param/w", 2, y);
    assert_false(compare("y", "z", &seen));
    assert_int_equal(seen.last.n, 2);
    assert_int_equal(seen.last.n_not_finite, 2);
    assert_true(compare("z", "z", &seen));
}

static void other_shapes_and_names_differ(void **state)
{
    const float x[9] = {0};
    struct seen seen;

    (void)state;
    save_small("x", "param/w", 2, x);
    save_small("y", "param/w", 3, x);
    save_small("z", "param/v", 2, x);
    assert_false(compare("x", "y", &seen));
    assert_int_equal(seen.of[MERAK_CKPT_OTHER_SHAPE], 1);
    assert_false(compare("x", "z", &seen));
    assert_int_equal(seen.n, 2);
    assert_int_equal(seen.of[MERAK_CKPT_ONLY_A], 1);
    assert_int_equal(seen.of[MERAK_CKPT_ONLY_B], 1);
}

/* --- prune ------------------------------------------------------------------
 */

static char fates[512];

static void take_fate(void *arg, const struct merak_ckpt_fate *fate)
{
    size_t n = strlen(fates);

    (void)arg;
    assert_true(fate->bytes > 0 || strstr(fate->name, ".tmp") != NULL);
    snprintf(fates + n, sizeof(fates) - n, "%s%s ", fate->stays ? "+" : "-",
             fate->name + strlen("step-000000"));
}

static bool exists(const char *name)
{
    char path[256];

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return access(path, F_OK) == 0;
}

static void prune_keeps_the_newest_and_the_multiples(void **state)
{
    const struct merak_ckpt_keep keep = {2, 20};
    struct merak_ckpt_pruning how = {
        .dry_run = true, .debris = true, .tell = take_fate};
    struct merak_error err;
    char path[256];

    (void)state;
    for (uint64_t step = 10; step <= 60; step += 10)
        check_ok(world_save_here(dir, step, 0, &err), &err);
    snprintf(path, sizeof(path), "%s/step-00000070.tmp", dir);
    check_ok(merak_dir_make(path, &err), &err);
    /* a damaged one does not count */
    snprintf(path, sizeof(path), "%s/step-00000060/master.h5", dir);
    assert_int_equal(unlink(path), 0);
    fates[0] = '\0';
    check_ok(merak_ckpt_prune(dir, keep, UINT64_MAX, &how, &err), &err);
    assert_string_equal(fates, "-70.tmp +60 +50 +40 -30 +20 -10 ");
    assert_true(exists("step-00000010") && exists("step-00000070.tmp"));
    how.dry_run = false;
    check_ok(merak_ckpt_prune(dir, keep, UINT64_MAX, &how, &err), &err);
    assert_false(exists("step-00000070.tmp") || exists("step-00000030") ||
                 exists("step-00000010"));
    assert_true(exists("step-00000060") && exists("step-00000050") &&
                exists("step-00000040") && exists("step-00000020"));
}

/* --- repair -----------------------------------------------------------------
 */

static enum merak_ckpt_repair repair(void)
{
    enum merak_ckpt_repair found;
    struct merak_error err;
    char path[256];

    snprintf(path, sizeof(path), "%s/step-00000020", dir);
    check_ok(merak_ckpt_repair_master(path, &found, &err), &err);
    check_ok(merak_ckpt_verify(path, NULL, NULL, &err), &err);
    return found;
}

static void a_master_is_made_anew(void **state)
{
    const struct world_layout layout = {2, 1, 2, true};
    struct merak_error err;

    (void)state;
    check_ok(world_save(dir, &layout, 20, 2, &err), &err);
    assert_int_equal(repair(), MERAK_CKPT_REPAIR_SOUND);
    usleep(1100 * 1000); /* times have seconds, and none may be in it */
    world_flip(path_of("master.h5"), 5000);
    assert_int_equal(repair(), MERAK_CKPT_REPAIR_SAME);
    assert_int_equal(unlink(path_of("master.h5")), 0);
    assert_int_equal(repair(), MERAK_CKPT_REPAIR_SAME);
    assert_int_equal(world_check(dir, &layout, &err), 20);
}

/* As if another HDF5 had written it. */
static void change_master(json_t *root)
{
    json_t *master = json_object_get(root, "master");

    json_object_set_new(master, "bytes", json_integer(4711));
    json_object_set_new(master, "xxh128",
                        json_string("00000000000000000000000000000000"));
}

static void one_of_another_hdf5_gets_an_entry_of_its_own(void **state)
{
    const struct world_layout one = {1, 1, 1, false};
    struct merak_error err;
    char *before = NULL, *after = NULL;
    size_t n_before, n_after;

    (void)state;
    check_ok(world_save_here(dir, 20, 2, &err), &err);
    rewrite_manifest(change_master);
    check_ok(merak_durable_read(path_of("COMMITTED"), &before, &n_before, &err),
             &err);
    assert_int_equal(repair(), MERAK_CKPT_REPAIR_REWRITTEN);
    assert_int_equal(world_check(dir, &one, &err), 20);
    /* the last rename is missing */
    check_ok(merak_durable_read(path_of("COMMITTED"), &after, &n_after, &err),
             &err);
    check_ok(
        merak_durable_write(path_of("COMMITTED.new"), after, n_after, &err),
        &err);
    check_ok(merak_durable_write(path_of("COMMITTED"), before, n_before, &err),
             &err);
    assert_int_equal(world_check(dir, &one, &err), -1);
    assert_int_equal(repair(), MERAK_CKPT_REPAIR_SOUND);
    assert_int_equal(world_check(dir, &one, &err), 20);
    free(before);
    free(after);
}

static void what_else_is_damaged_is_not_repaired(void **state)
{
    enum merak_ckpt_repair found;
    struct merak_error err;
    char path[256];

    (void)state;
    check_ok(world_save_here(dir, 20, 2, &err), &err);
    snprintf(path, sizeof(path), "%s/step-00000020", dir);
    assert_int_equal(unlink(path_of("master.h5")), 0);
    assert_int_equal(truncate(path_of("shard-00000.h5"), 1000), 0);
    assert_int_equal(merak_ckpt_repair_master(path, &found, &err),
                     MERAK_ERR_CORRUPT);
    assert_non_null(strstr(err.text, "shard-00000.h5 has 1000 bytes"));
    world_flip(path_of("manifest.json"), 100);
    assert_int_equal(merak_ckpt_repair_master(path, &found, &err),
                     MERAK_ERR_CORRUPT);
    assert_int_equal(merak_ckpt_repair_master(dir, &found, &err),
                     MERAK_ERR_NOT_FOUND);
}

int main(void)
{
#define TOOLS_TEST(f) cmocka_unit_test_setup_teardown(f, make_dir, remove_dir)
    const struct CMUnitTest tests[] = {
        TOOLS_TEST(pieces_of_any_form_are_read),
        TOOLS_TEST(ranks_of_a_node_write_one_file),
        TOOLS_TEST(a_copy_that_is_another_file_is_refused),
        TOOLS_TEST(checkpoints_of_earlier_versions_are_read),
        TOOLS_TEST(the_same_values_in_other_layouts_are_equal),
        TOOLS_TEST(differences_are_measured),
        TOOLS_TEST(other_shapes_and_names_differ),
        TOOLS_TEST(prune_keeps_the_newest_and_the_multiples),
        TOOLS_TEST(a_master_is_made_anew),
        TOOLS_TEST(one_of_another_hdf5_gets_an_entry_of_its_own),
        TOOLS_TEST(what_else_is_damaged_is_not_repaired),
    };

    return cmocka_run_group_tests_name("ckpt_tools", tests, NULL, NULL);
}

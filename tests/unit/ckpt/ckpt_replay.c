/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt_replay.c - a disk as it may be after a crash, for tests
 *
 * Replay keeps two states of every file and directory: as programs see it,
 * and as the last fsync of it left it on disk.  A file's fsync says nothing of
 * the name it has in its directory, nor a directory's of the data of its
 * files.
 */
#include "config.h"

#include "unit/near.h"

#include "unit/ckpt/ckpt_replay.h"
#include "unit/ckpt/ckpt_world.h"

#include "base/rng.h"
#include "io/ckpt/durable.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_NODES 512
#define MAX_ENTRIES 32

/* --- the two states
 * ------------------------------------------------------------ */

struct entry {
    char name[64];
    int node;
};

struct state {
    char *data; /* files */
    size_t n;
    struct entry entry[MAX_ENTRIES]; /* directories */
    int n_entries;
};

struct node {
    bool is_dir;
    struct state now, disk;
};

static struct node node[MAX_NODES];
static int n_nodes;
static char last_image[DISK_LOSSES][MERAK_HASH_TEXT];

static int add_node(bool is_dir)
{
    assert_true(n_nodes < MAX_NODES);
    memset(&node[n_nodes], 0, sizeof(*node));
    node[n_nodes].is_dir = is_dir;
    return n_nodes++;
}

static struct entry *find_entry(struct state *dir, const char *name)
{
    for (int i = 0; i < dir->n_entries; i++) {
        if (strcmp(dir->entry[i].name, name) == 0)
            return &dir->entry[i];
    }
    return NULL;
}

static void add_entry(struct state *dir, const char *name, int child)
{
    struct entry *entry = find_entry(dir, name);

    if (entry == NULL) {
        assert_true(dir->n_entries < MAX_ENTRIES);
        entry = &dir->entry[dir->n_entries++];
        snprintf(entry->name, sizeof(entry->name), "%s", name);
    }
    entry->node = child;
}

static void remove_entry(struct state *dir, const char *name)
{
    struct entry *entry = find_entry(dir, name);

    assert_non_null(entry);
    *entry = dir->entry[--dir->n_entries];
}

/* The directory a path is in, and the last word of the path. */
static struct node *parent_of(const char *path, const char **name_p)
{
    const char *slash = strchr(path, '/');
    char first[64];
    struct entry *entry;

    *name_p = slash == NULL ? path : slash + 1;
    if (slash == NULL)
        return &node[0];
    snprintf(first, sizeof(first), "%.*s", (int)(slash - path), path);
    entry = find_entry(&node[0].now, first);
    assert_non_null(entry);
    return &node[entry->node];
}

static struct node *node_of(const char *path)
{
    struct node *parent;
    struct entry *entry;
    const char *name;

    if (*path == '\0')
        return &node[0];
    parent = parent_of(path, &name);
    entry = find_entry(&parent->now, name);
    assert_non_null(entry);
    return &node[entry->node];
}

static void set_size(struct state *file, size_t n)
{
    file->data = realloc(file->data, n + 1);
    assert_non_null(file->data);
    if (n > file->n)
        memset(file->data + file->n, 0, n - file->n);
    file->n = n;
}

static void sync_node(struct node *one)
{
    free(one->disk.data);
    one->disk = one->now;
    if (one->now.data == NULL)
        return;
    one->disk.data = malloc(one->now.n + 1);
    memcpy(one->disk.data, one->now.data, one->now.n);
}

static void apply_write(struct state *file, const struct op *op)
{
    if ((size_t)op->at + op->n > file->n)
        set_size(file, (size_t)op->at + op->n);
    memcpy(file->data + op->at, op->data, op->n);
}

static void apply(const struct op *op)
{
    const char *name, *to;
    struct node *parent = NULL;
    int child;

    if (op->kind == OP_MARK)
        return;
    parent = parent_of(op->path, &name);
    switch (op->kind) {
    case OP_CREATE:
        if (find_entry(&parent->now, name) == NULL)
            add_entry(&parent->now, name, add_node(false));
        set_size(&node_of(op->path)->now, 0);
        break;
    case OP_WRITE:
        apply_write(&node_of(op->path)->now, op);
        break;
    case OP_TRUNCATE:
        set_size(&node_of(op->path)->now, op->n);
        break;
    case OP_SYNC:
        sync_node(node_of(op->path));
        break;
    case OP_RENAME:
        child = (int)(node_of(op->path) - node);
        remove_entry(&parent->now, name);
        parent = parent_of(op->to, &to);
        add_entry(&parent->now, to, child);
        break;
    case OP_MKDIR:
        add_entry(&parent->now, name, add_node(true));
        break;
    default:
        remove_entry(&parent->now, name);
        break;
    }
}

/* --- images
 * --------------------------------------------------------------------- */

static bool toss(enum disk_loss loss, int n, int what)
{
    return merak_rng_mix((uint64_t)loss * 1000003 + (uint64_t)n,
                         (uint64_t)what) &
           1;
}

static const struct state *pick(int at, enum disk_loss loss, int n)
{
    const struct node *one = &node[at];
    bool synced_only = false;

    if (loss == DISK_COIN_A || loss == DISK_COIN_B)
        synced_only = toss(loss, n, at);
    else if (one->is_dir)
        synced_only = loss == DISK_ALL || loss == DISK_NAMES ||
                      (loss == DISK_INNER_NAMES && at != 0);
    else
        synced_only =
            loss == DISK_ALL || loss == DISK_DATA || loss == DISK_INNER_NAMES;
    return synced_only ? &one->disk : &one->now;
}

static void write_file(const char *path, int at, enum disk_loss loss, int n)
{
    const struct state *file = pick(at, loss, n);
    int fd = REAL(open)(path, O_CREAT | O_WRONLY | O_TRUNC, 0666);

    assert_true(fd >= 0);
    if (loss == DISK_ZEROS)
        file = &node[at].disk;
    assert_int_equal(REAL(write)(fd, file->data, file->n), file->n);
    if (loss == DISK_ZEROS && node[at].now.n > file->n)
        assert_int_equal(REAL(ftruncate)(fd, (off_t)node[at].now.n), 0);
    REAL(close)(fd);
}

static void write_dir(const char *path, int at, enum disk_loss loss, int n)
{
    const struct state *dir = pick(at, loss, n);
    char child[512];

    (void)REAL(mkdir)(path, 0777);
    for (int i = 0; i < dir->n_entries; i++) {
        int to = dir->entry[i].node;

        snprintf(child, sizeof(child), "%s/%s", path, dir->entry[i].name);
        if (node[to].is_dir)
            write_dir(child, to, loss, n);
        else
            write_file(child, to, loss, n);
    }
}

/* One number for all that write_dir() would make. */
static uint64_t sum_dir(int at, enum disk_loss loss, int n, uint64_t sum)
{
    const struct state *dir = pick(at, loss, n);
    char hash[MERAK_HASH_TEXT];

    for (int i = 0; i < dir->n_entries; i++) {
        int to = dir->entry[i].node;
        const struct state *file = pick(to, loss, n);

        sum = merak_rng_key(sum, dir->entry[i].name);
        if (node[to].is_dir) {
            sum = sum_dir(to, loss, n, sum);
            continue;
        }
        if (loss == DISK_ZEROS)
            file = &node[to].disk;
        merak_hash(file->n > 0 ? file->data : "", file->n, hash);
        sum = merak_rng_key(sum + (loss == DISK_ZEROS ? node[to].now.n : 0),
                            hash);
    }
    return sum;
}

bool disk_image(int n, enum disk_loss loss, const char *image)
{
    char sum[MERAK_HASH_TEXT];

    assert_true(n >= disk.applied);
    while (disk.applied < n)
        apply(&disk.op[disk.applied++]);
    snprintf(sum, sizeof(sum), "%llu",
             (unsigned long long)sum_dir(0, loss, n, 1));
    if (strcmp(sum, last_image[loss]) == 0)
        return false;
    strcpy(last_image[loss], sum);
    world_remove_dir(image);
    write_dir(image, 0, loss, n);
    return true;
}

/* --- begin and end ---------------------------------------------------------
 */

static void import(const char *path, int at)
{
    DIR *dir = opendir(path);
    struct dirent *entry;
    char child[512];
    struct stat st;

    assert_non_null(dir);
    while ((entry = readdir(dir)) != NULL) {
        struct node *one;
        int to;

        if (entry->d_name[0] == '.')
            continue;
        snprintf(child, sizeof(child), "%s/%s", path, entry->d_name);
        assert_int_equal(stat(child, &st), 0);
        to = add_node(S_ISDIR(st.st_mode));
        add_entry(&node[at].now, entry->d_name, to);
        one = &node[to];
        if (one->is_dir) {
            import(child, to);
        } else {
            assert_int_equal(
                merak_durable_read(child, &one->now.data, &one->now.n, NULL),
                MERAK_OK);
            sync_node(one);
        }
    }
    closedir(dir);
    sync_node(&node[at]);
}

void replay_begin(const char *dir)
{
    n_nodes = 0;
    memset(last_image, 0, sizeof(last_image));
    import(dir, add_node(true));
}

void replay_free(void)
{
    for (int i = 0; i < n_nodes; i++) {
        free(node[i].now.data);
        free(node[i].disk.data);
    }
    n_nodes = 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* ckpt_disk.c - a disk that forgets what was not synced, for tests: what is
 * done to it is noted down
 */
#include "config.h"

#include "unit/near.h"

#include "unit/ckpt/ckpt_replay.h"

#include "io/ckpt/durable.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct disk disk;

/* --- noting down -------------------------------------------------------------
 */

static const char *below(const char *path)
{
    size_t n = strlen(disk.dir);

    if (n == 0 || strncmp(path, disk.dir, n) != 0 ||
        (path[n] != '/' && path[n] != '\0'))
        return NULL;
    path += n;
    while (*path == '/')
        path++;
    return path;
}

static struct op *note(enum op_kind kind, const char *path)
{
    struct op *op;

    if (!disk.recording || path == NULL)
        return NULL;
    assert_true(disk.n_ops < DISK_MAX_OPS);
    op = &disk.op[disk.n_ops++];
    memset(op, 0, sizeof(*op));
    op->kind = kind;
    op->path = strdup(path);
    /* "step-1.tmp/." is "step-1.tmp". */
    if (strlen(path) >= 1 && strcmp(path + strlen(path) - 1, ".") == 0)
        op->path[strlen(path) - 1] = '\0';
    if (strlen(op->path) > 0 && op->path[strlen(op->path) - 1] == '/')
        op->path[strlen(op->path) - 1] = '\0';
    return op;
}

static const char *path_of(int fd)
{
    return fd >= 0 && fd < DISK_MAX_FDS ? disk.fd_path[fd] : NULL;
}

int open(const char *path, int flags, ...)
{
    bool there = access(path, F_OK) == 0;
    mode_t mode = 0;
    struct op *op;
    va_list ap;
    int fd;

    if (flags & O_CREAT) {
        va_start(ap, flags);
        mode = va_arg(ap, mode_t);
        va_end(ap);
    }
    fd = REAL(open)(path, flags, mode);
    if (fd < 0 || fd >= DISK_MAX_FDS || below(path) == NULL)
        return fd;
    free(disk.fd_path[fd]);
    disk.fd_path[fd] = strdup(below(path));
    if ((!there && flags & O_CREAT) || flags & O_TRUNC) {
        op = note(OP_CREATE, below(path));
        if (op != NULL)
            op->empties = true;
    }
    return fd;
}

int close(int fd)
{
    if (path_of(fd) != NULL) {
        free(disk.fd_path[fd]);
        disk.fd_path[fd] = NULL;
    }
    return REAL(close)(fd);
}

/* False, and errno, if there is no space for n more bytes. */
static bool take_space(int fd, size_t n)
{
    if (!disk.limited || path_of(fd) == NULL)
        return true;
    if (n > disk.limit - disk.used) {
        errno = ENOSPC;
        return false;
    }
    disk.used += n;
    return true;
}

static void note_write(int fd, const void *data, ssize_t n, off_t at)
{
    struct op *op = n > 0 ? note(OP_WRITE, path_of(fd)) : NULL;

    if (op == NULL)
        return;
    op->data = malloc((size_t)n);
    memcpy(op->data, data, (size_t)n);
    op->n = (size_t)n;
    op->at = at;
}

ssize_t write(int fd, const void *data, size_t n)
{
    ssize_t did;

    if (!take_space(fd, n))
        return -1;
    did = REAL(write)(fd, data, n);
    if (path_of(fd) != NULL)
        note_write(fd, data, did, lseek(fd, 0, SEEK_CUR) - did);
    return did;
}

ssize_t pwrite(int fd, const void *data, size_t n, off_t at)
{
    ssize_t did;

    if (!take_space(fd, n))
        return -1;
    did = REAL(pwrite)(fd, data, n, at);
    note_write(fd, data, did, at);
    return did;
}

int ftruncate(int fd, off_t size)
{
    struct stat st;
    struct op *op;

    if (disk.limited && path_of(fd) != NULL && fstat(fd, &st) == 0 &&
        st.st_size > size) {
        size_t back = (size_t)(st.st_size - size);

        disk.used -= back < disk.used ? back : disk.used;
    }
    op = note(OP_TRUNCATE, path_of(fd));
    if (op != NULL)
        op->n = (size_t)size;
    return REAL(ftruncate)(fd, size);
}

/* As on a file system without it, unless there is a limit to hold. */
int fallocate(int fd, int mode, off_t at, off_t n)
{
    (void)mode;
    (void)at;
    if (path_of(fd) != NULL && disk.limited && disk.reserves &&
        (size_t)n > disk.limit - disk.used) {
        errno = ENOSPC;
        return -1;
    }
    errno = EOPNOTSUPP;
    return -1;
}

/* fd now stands for what `from` does; -1 for nothing. */
static void follow(int fd, int from)
{
    const char *path = path_of(from);

    if (fd < 0 || fd >= DISK_MAX_FDS)
        return;
    free(disk.fd_path[fd]);
    disk.fd_path[fd] = path == NULL ? NULL : strdup(path);
}

int dup2(int from, int to)
{
    int fd = REAL(dup2)(from, to);

    follow(fd, from);
    return fd;
}

int fcntl(int fd, int command, ...)
{
    va_list ap;
    long arg;
    int rc;

    va_start(ap, command);
    arg = va_arg(ap, long);
    va_end(ap);
    rc = REAL(fcntl)(fd, command, arg);
    if (command == F_DUPFD || command == F_DUPFD_CLOEXEC)
        follow(rc, fd);
    return rc;
}

int fsync(int fd)
{
    (void)note(OP_SYNC, path_of(fd));
    return 0; /* tests need no real disk to spin */
}

int rename(const char *from, const char *to)
{
    int rc = REAL(rename)(from, to);
    struct op *op = rc == 0 ? note(OP_RENAME, below(from)) : NULL;

    if (op != NULL)
        op->to = strdup(below(to));
    return rc;
}

int mkdir(const char *path, mode_t mode)
{
    int rc = REAL(mkdir)(path, mode);

    if (rc == 0)
        (void)note(OP_MKDIR, below(path));
    return rc;
}

int unlink(const char *path)
{
    int rc = REAL(unlink)(path);

    if (rc == 0)
        (void)note(OP_UNLINK, below(path));
    return rc;
}

int rmdir(const char *path)
{
    int rc = REAL(rmdir)(path);

    if (rc == 0)
        (void)note(OP_RMDIR, below(path));
    return rc;
}

/* --- control
 * ---------------------------------------------------------------------- */

void disk_record(const char *dir)
{
    snprintf(disk.dir, sizeof(disk.dir), "%s", dir);
    replay_begin(dir);
    disk.n_ops = disk.applied = 0;
    disk.recording = true;
}

void disk_mark(int64_t value)
{
    struct op *op = note(OP_MARK, "");

    op->mark = value;
}

int disk_stop(void)
{
    disk.recording = false;
    return disk.n_ops;
}

int disk_forget_syncs(void)
{
    int n = 0;

    for (int i = 0; i < disk.n_ops; i++) {
        if (disk.op[i].kind == OP_SYNC)
            free(disk.op[i].path);
        else
            disk.op[n++] = disk.op[i];
    }
    disk.n_ops = n;
    return n;
}

int64_t disk_last_mark(int n)
{
    while (n > 0) {
        if (disk.op[--n].kind == OP_MARK)
            return disk.op[n].mark;
    }
    return -1;
}

const char *disk_describe(int n)
{
    static const char *const verb[] = {"create", "write",  "truncate",
                                       "sync",   "rename", "mkdir",
                                       "unlink", "rmdir",  "mark"};
    static char text[256];

    if (n >= disk.n_ops)
        return "the end";
    snprintf(text, sizeof(text), "%s %s", verb[disk.op[n].kind],
             disk.op[n].path);
    return text;
}

void disk_free(void)
{
    for (int i = 0; i < disk.n_ops; i++) {
        free(disk.op[i].path);
        free(disk.op[i].to);
        free(disk.op[i].data);
    }
    replay_free();
    disk.n_ops = 0;
    disk.dir[0] = '\0';
}

void disk_limit(const char *dir, size_t bytes, bool reserves)
{
    disk.reserves = reserves;
    snprintf(disk.dir, sizeof(disk.dir), "%s", dir);
    disk.limited = bytes != SIZE_MAX;
    disk.limit = bytes;
    disk.used = 0;
}

size_t disk_used(void)
{
    return disk.used;
}

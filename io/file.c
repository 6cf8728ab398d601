/* SPDX-License-Identifier: Apache-2.0 */
/* file.c - reading, writing and publishing files */
#include "config.h"

#include "io/file.h"

#include "base/error.h"
#include "base/open.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* The file is too large for its file system, or for the user's limit. */
static void limit_text(char *text, size_t size)
{
    struct rlimit lim;

    text[0] = '\0';
    if (getrlimit(RLIMIT_FSIZE, &lim) == 0 && lim.rlim_cur != RLIM_INFINITY)
        snprintf(text, size, ": `ulimit -f` allows %llu bytes",
                 (unsigned long long)lim.rlim_cur);
}

enum merak_status merak_file_fail(struct merak_error *err, const char *verb,
                                  const char *path)
{
    int code = errno;
    enum merak_status status = MERAK_ERR_IO;
    char limit[64] = "";

    if (code == ENOSPC || code == EDQUOT)
        status = MERAK_ERR_NOSPACE;
    else if (code == ENOENT || code == ENOTDIR)
        status = MERAK_ERR_NOT_FOUND;
    else if (code == EMFILE || code == ENFILE)
        status = MERAK_ERR_SYSTEM;
    else if (code == EFBIG)
        limit_text(limit, sizeof(limit));
    return merak_fail(err, status, "cannot %s %s: %s%s", verb, path,
                      strerror(code), limit);
}

enum merak_status merak_file_fail_redone(struct merak_error *err,
                                         const char *path, const char *why)
{
    return merak_fail(err, errno == ENOSPC ? MERAK_ERR_NOSPACE : MERAK_ERR_IO,
                      "cannot take the steps that are done again out of "
                      "%.150s: %s",
                      path, why);
}

static bool raise_open_files(void)
{
    struct rlimit lim;

    if (getrlimit(RLIMIT_NOFILE, &lim) != 0 || lim.rlim_cur == lim.rlim_max)
        return false;
    lim.rlim_cur = lim.rlim_max;
    return setrlimit(RLIMIT_NOFILE, &lim) == 0;
}

static const char *open_for_reading(const char *path, int *fd_p)
{
    const char *why = merak_open_regular(path, fd_p);

    if (why != NULL && errno == EMFILE && raise_open_files())
        why = merak_open_regular(path, fd_p);
    return why;
}

enum merak_status merak_file_open(const char *path, int *fd_p,
                                  uint64_t *bytes_p, struct merak_error *err)
{
    enum merak_status rc;
    struct stat st;
    int fd;
    const char *why = open_for_reading(path, &fd);

    if (why != NULL && errno == 0)
        return merak_fail(err, MERAK_ERR_FORMAT, "%s is %s", path, why);
    if (why != NULL)
        return merak_file_fail(err, "open", path);
    if (fstat(fd, &st) != 0) {
        rc = merak_file_fail(err, "examine", path);
        close(fd);
        return rc;
    }
    *fd_p = fd;
    *bytes_p = (uint64_t)st.st_size;
    return MERAK_OK;
}

enum merak_status merak_file_read(int fd, const char *path, void *buf, size_t n,
                                  uint64_t at, struct merak_error *err)
{
    size_t done = 0;

    while (done < n) {
        ssize_t got =
            pread(fd, (char *)buf + done, n - done, (off_t)(at + done));

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return merak_file_fail(err, "read", path);
        if (got == 0)
            return merak_fail(err, MERAK_ERR_CORRUPT,
                              "%s ends at byte %llu, expected %llu", path,
                              (unsigned long long)(at + done),
                              (unsigned long long)(at + n));
        done += (size_t)got;
    }
    return MERAK_OK;
}

enum merak_status merak_file_write(int fd, const char *path, const void *buf,
                                   size_t n, struct merak_error *err)
{
    size_t done = 0;

    while (done < n) {
        ssize_t put = write(fd, (const char *)buf + done, n - done);

        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return merak_file_fail(err, "write", path);
        done += (size_t)put;
    }
    return MERAK_OK;
}

enum merak_status merak_file_write_at(int fd, const char *path, const void *buf,
                                      size_t n, uint64_t at,
                                      struct merak_error *err)
{
    size_t done = 0;

    while (done < n) {
        ssize_t put =
            pwrite(fd, (const char *)buf + done, n - done, (off_t)(at + done));

        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return merak_file_fail(err, "write", path);
        done += (size_t)put;
    }
    return MERAK_OK;
}

enum merak_status merak_file_sync_close(int fd, const char *path,
                                        struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;

    if (fsync(fd) != 0)
        rc = merak_file_fail(err, "write", path);
    /* Network file systems may report a full quota only here. */
    if (close(fd) != 0 && rc == MERAK_OK)
        rc = merak_file_fail(err, "close", path);
    return rc;
}

enum merak_status merak_file_sync_dir(const char *path, struct merak_error *err)
{
    enum merak_status rc = MERAK_OK;
    char *dir = strdup(path);
    char *slash;
    int fd;

    if (dir == NULL)
        return merak_fail_nomem(err, strlen(path) + 1);
    slash = strrchr(dir, '/');
    if (slash != NULL)
        slash[slash == dir ? 1 : 0] = '\0';
    fd = open(slash == NULL ? "." : dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        rc = merak_file_fail(err, "open", dir);
        goto out;
    }
    /* EINVAL: the file system has no directory sync. */
    if (fsync(fd) != 0 && errno != EINVAL)
        rc = merak_file_fail(err, "sync", dir);
    close(fd);
out:
    free(dir);
    return rc;
}

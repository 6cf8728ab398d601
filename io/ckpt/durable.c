/* SPDX-License-Identifier: Apache-2.0 */
/* durable.c - files that survive a power loss */
#include "config.h"

#include "io/ckpt/durable.h"

#include "base/error.h"
#include "base/open.h"
#include "io/file.h"

#include <xxhash.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HASH_BLOCK ((size_t)128 << 10)

char *merak_path(char *buf, const char *dir, const char *name)
{
    /* Unsigned, so that gcc does not warn of an impossible truncation. */
    if ((unsigned)snprintf(buf, PATH_MAX, "%s/%s", dir, name) >= PATH_MAX)
        buf[0] = '\0';
    return buf;
}

static void print_hash(XXH128_hash_t h, char hash[MERAK_HASH_TEXT])
{
    snprintf(hash, MERAK_HASH_TEXT, "%016llx%016llx",
             (unsigned long long)h.high64, (unsigned long long)h.low64);
}

void merak_hash(const void *data, size_t bytes, char hash[MERAK_HASH_TEXT])
{
    print_hash(XXH3_128bits(data, bytes), hash);
}

/* An XXH3_state_t; the name keeps xxhash's header in this file. */
struct merak_hasher *merak_hasher_create(void)
{
    XXH3_state_t *state = XXH3_createState();

    if (state != NULL)
        XXH3_128bits_reset(state);
    return (struct merak_hasher *)state;
}

void merak_hasher_destroy(struct merak_hasher *hasher)
{
    XXH3_freeState((XXH3_state_t *)hasher);
}

void merak_hasher_add(struct merak_hasher *hasher, const void *data,
                      size_t bytes)
{
    XXH3_128bits_update((XXH3_state_t *)hasher, data, bytes);
}

void merak_hasher_take(struct merak_hasher *hasher, char hash[MERAK_HASH_TEXT])
{
    print_hash(XXH3_128bits_digest((XXH3_state_t *)hasher), hash);
    XXH3_128bits_reset((XXH3_state_t *)hasher);
}

/* Read in blocks that stay in cache instead of mapping: this is as fast, and a
 * failing disk gives EIO, where a mapping would kill the process. */
static enum merak_status hash_stream(int fd, const char *path,
                                     struct merak_hasher *hasher,
                                     uint64_t *bytes_p, struct merak_error *err)
{
    char *block = malloc(HASH_BLOCK);
    enum merak_status rc = MERAK_OK;
    uint64_t total = 0;
    ssize_t n;

    if (block == NULL)
        return merak_fail_nomem(err, HASH_BLOCK);
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    do {
        n = read(fd, block, HASH_BLOCK);
        if (n > 0) {
            merak_hasher_add(hasher, block, (size_t)n);
            total += (uint64_t)n;
        } else if (n < 0 && errno != EINTR) {
            rc = merak_file_fail(err, "read", path);
            break;
        }
    } while (n != 0);
    free(block);
    *bytes_p = total;
    return rc;
}

enum merak_status merak_durable_hash(const char *path, uint64_t *bytes_p,
                                     char hash[MERAK_HASH_TEXT],
                                     struct merak_error *err)
{
    struct merak_hasher *hasher = merak_hasher_create();
    enum merak_status rc;
    uint64_t size;
    int fd = -1;

    if (hasher == NULL) {
        rc = merak_fail_nomem(err, 0);
        goto out;
    }
    rc = merak_file_open(path, &fd, &size, err);
    if (rc != MERAK_OK)
        goto out;
    rc = hash_stream(fd, path, hasher, bytes_p, err);
    if (rc == MERAK_OK)
        merak_hasher_take(hasher, hash);
out:
    if (fd >= 0)
        close(fd);
    merak_hasher_destroy(hasher);
    return rc;
}

enum merak_status merak_durable_read(const char *path, char **text_p,
                                     size_t *bytes_p, struct merak_error *err)
{
    uint64_t bytes = 0;
    char *text = NULL;
    enum merak_status rc;
    int fd = -1;

    rc = merak_file_open(path, &fd, &bytes, err);
    if (rc != MERAK_OK)
        return rc;
    text = malloc(bytes + 1);
    if (text == NULL)
        rc = merak_fail_nomem(err, bytes + 1);
    else
        rc = merak_file_read(fd, path, text, bytes, 0, err);
    close(fd);
    if (rc != MERAK_OK) {
        free(text);
        return rc;
    }
    text[bytes] = '\0';
    *text_p = text;
    *bytes_p = bytes;
    return MERAK_OK;
}

enum merak_status merak_durable_write(const char *path, const void *data,
                                      size_t bytes, struct merak_error *err)
{
    enum merak_status rc;
    int fd;

    if (merak_open_new(path, 0666, &fd) != NULL)
        return merak_file_fail(err, "create", path);
    rc = merak_file_write(fd, path, data, bytes, err);
    if (rc == MERAK_OK)
        rc = merak_file_sync_close(fd, path, err);
    else
        close(fd);
    if (rc != MERAK_OK)
        (void)unlink(path);
    return rc;
}

enum merak_status merak_dir_sync(const char *path, struct merak_error *err)
{
    char inside[PATH_MAX];

    return merak_file_sync_dir(merak_path(inside, path, "."), err);
}

static enum merak_status make_one(const char *path, struct merak_error *err)
{
    char parent[PATH_MAX];
    struct stat st;

    if (mkdir(path, 0777) == 0)
        return merak_dir_sync(merak_path(parent, path, ".."), err);
    if (errno != EEXIST)
        return merak_file_fail(err, "make directory", path);
    if (stat(path, &st) == 0 && !S_ISDIR(st.st_mode))
        return merak_fail(err, MERAK_ERR_CONFIG,
                          "%.150s is not a directory: expected one, or a name "
                          "that does not exist yet",
                          path);
    return MERAK_OK;
}

enum merak_status merak_dir_make(const char *path, struct merak_error *err)
{
    char above[PATH_MAX];
    size_t n = strspn(path, "/");

    for (;;) {
        enum merak_status rc;

        n += strcspn(path + n, "/");
        snprintf(above, sizeof(above), "%.*s", (int)n, path);
        rc = make_one(above, err);
        n += strspn(path + n, "/");
        if (rc != MERAK_OK || path[n] == '\0')
            return rc;
    }
}

size_t merak_dir_existing(const char *path)
{
    char above[PATH_MAX];
    size_t n = strlen(path);

    for (;; n--) {
        snprintf(above, sizeof(above), "%.*s", (int)n, path);
        if (n == 0 || access(above, F_OK) == 0)
            return n;
        while (n > 1 && path[n - 1] != '/')
            n--;
    }
}

void merak_dir_remove_made(const char *path, size_t there)
{
    char above[PATH_MAX];
    size_t n = strlen(path);

    snprintf(above, sizeof(above), "%s", path);
    while (n > there && rmdir(above) == 0) {
        while (n > there && above[n - 1] != '/')
            n--;
        while (n > there && above[n - 1] == '/')
            n--;
        above[n] = '\0';
    }
}

/* Names are removed from the directory that is open, whatever lies under its
 * path by then: who may write above it can put a link to another in its
 * place. */
static void empty(DIR *dir)
{
    struct dirent *entry;

    while ((entry = readdir(dir)) != NULL) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            (void)unlinkat(dirfd(dir), entry->d_name, 0);
    }
}

enum merak_status merak_dir_remove(const char *path, struct merak_error *err)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;

    if (fd < 0 && errno == ENOENT)
        return MERAK_OK;
    /* A link, or a file: what the link leads to is not the run's. */
    if (fd < 0 && (errno == ELOOP || errno == ENOTDIR) && unlink(path) == 0)
        return MERAK_OK;
    if (dir == NULL) {
        enum merak_status rc = merak_file_fail(err, "open directory", path);

        if (fd >= 0)
            close(fd);
        return rc;
    }
    empty(dir);
    closedir(dir);
    if (rmdir(path) != 0)
        return merak_file_fail(err, "remove", path);
    return MERAK_OK;
}
